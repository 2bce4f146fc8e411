"""A comparison as tables, and as one page of HTML that needs nothing else; every text is escaped here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from regard.metrics import METRICS

from .compare import Compared
from .details import word_diff
from .significance import Tested

Made = tuple[str, Sequence[str], list[list[str]]]  # a title, a head and rows


def tables(found: Compared) -> Iterator[Made]:
    """What is shown on the terminal and on the page."""
    names = [METRICS[name].name for name in found.scores]
    test = "paired bootstrap" if found.test == "bootstrap" else "paired approximate randomisation"
    yield (
        f"{found.lines:,} lines; {test}, {found.samples:,} samples, seed {found.seed}; "
        f"p of the difference from {found.systems[0]}",
        ["system", *names],
        [
            [system, *(_tested(each[number]) for each in found.scores.values())]
            for number, system in enumerate(found.systems)
        ],
    )
    first = names[0]
    yield _scores(f"{first} by words of the reference", ("words", "lines"), found.lengths, found.systems)
    yield _scores("F1 of words by how often they occur", ("frequency", "words"), found.frequencies, found.systems)
    rows = [
        [
            kind,
            *(
                "-" if each[kind] is None else f"{each[kind]:.3f}" if "ratio" in kind else f"{each[kind]:.0f}"
                for each in found.errors
            ),
        ]
        for kind in found.errors[0]
    ]
    yield "Kinds of errors (in lines; numbers one by one)", ["error", *found.systems], rows


def page(found: Compared) -> str:
    """The whole comparison."""
    parts = []
    for title, head, rows in tables(found):
        names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
        body = "".join(
            f'<tr><th scope="row">{escape(row[0])}</th>'
            + "".join(f"<td>{escape(each)}</td>" for each in row[1:])
            + "</tr>\n"
            for row in rows
        )
        parts.append(
            f'<h2>{escape(title)}</h2>\n<div class="scroll" tabindex="0" role="group" aria-label="{escape(title)}">'
            f"<table><thead><tr>{names}</tr></thead><tbody>\n{body}</tbody></table></div>"
        )
    signatures = (f"<li>{escape(METRICS[n].name)}: <code>{escape(s)}</code></li>" for n, s in found.signatures.items())
    parts.append(f"<ul>{''.join(signatures)}</ul>")
    if found.examples:
        parts.append(
            "<h2>The lines that differ most</h2><p><del>Missing</del> is what the reference has alone, "
            "<ins>added</ins> what the output has alone.</p>"
        )
    parts += [_example(found.systems, each) for each in found.examples]
    template = (files("regard.comparison") / "page.html").read_text(encoding="utf-8")
    return template.replace("<!--BODY-->", "\n".join(parts))


def _tested(each: Tested) -> str:
    spread = "" if each.mean is None or each.half is None else f" ({each.mean:.1f} ± {each.half:.1f})"
    p = "" if each.p is None else f" (p = {each.p:.4f}){'*' if each.p < 0.05 else ''}"
    return f"{each.score:.1f}{spread}{p}"


def _scores(title: str, keys: Sequence[str], found: Sequence[dict[str, object]], systems: Sequence[str]) -> Made:
    rows = []
    for each in found:
        scores = each["scores"]
        assert isinstance(scores, list)
        rows.append([*(str(each[key]) for key in keys), *(f"{score:.1f}" for score in scores)])
    return title, [*keys, *systems], rows


def _example(systems: Sequence[str], each: dict[str, object]) -> str:
    tags = {"same": "{}", "missing": "<del>{}</del>", "extra": "<ins>{}</ins>"}
    reference, outputs = str(each["reference"]), each["outputs"]
    assert isinstance(outputs, list)
    lines = [f'<dt>reference</dt><dd dir="auto" lang="">{escape(reference)}</dd>']
    for system, line in zip(systems, outputs, strict=True):
        marked = " ".join(tags[kind].format(escape(text)) for kind, text in word_diff(line, reference))
        lines.append(f'<dt>{escape(system)}</dt><dd dir="auto" lang="">{marked}</dd>')
    return f"<section><h3>Line {each['line']}</h3><dl>{''.join(lines)}</dl></section>"
