"""An exercise's points and findings as text for a terminal."""

from __future__ import annotations

from textwrap import indent

from .grade import Graded


def shown(graded: Graded, language: str) -> str:
    """The exercise's points, each check with its mark, what is wrong, and the smallest input that shows it."""
    points = f"{graded.points} / {graded.of}"
    lines = [f"{graded.name}: {points}  {graded.title}"]
    if graded.untouched:
        return lines[0] + {"en": "  (not begun)", "zh": "（还没有开始）"}[language] + "\n"
    told: set[str] = set()
    for check in graded.checks:
        name = f"{check.function}: " if check.function else ""
        lines.append(f"  {'✓' if check.points else '✗'} {name}{check.about} ({check.points} / {check.of})")
        lines += [indent(finding.text, "      ") for finding in check.findings if finding.text not in told]
        told |= {finding.text for finding in check.findings}
        if check.example:
            lines.append(indent(check.example, "        "))
    return "\n".join(lines) + "\n"
