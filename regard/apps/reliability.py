"""Reliability diagrams as SVG: confidence beside how often what was given it is right; on the diagonal all is well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

__all__ = ["svg"]

SIDE = 300.0  # px, of a panel
MARGIN = 54.0
GREY, BLUE = "#8a8a8a", "#08519c"
LARGEST = 9.0  # px, the radius of the bin that holds the most


def svg(report: Mapping[str, Any]) -> str:
    """A picture of a calibration's report: a panel for tokens and one for words, before and after.

    The area of a point is the share of what fell into its bin.
    """
    panels = [
        ("tokens of the references", "the likeliest token came", report["tokens"]),
        ("words of the translations", "the word stands in the reference", report["words"]),
    ]
    width, height = len(panels) * (SIDE + 2 * MARGIN), SIDE + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
    ]
    for number, (title, right, found) in enumerate(panels):
        lines.append(f'<g transform="translate({number * (SIDE + 2 * MARGIN) + MARGIN:g} {MARGIN:g})">')
        lines += [*_frame(title, right), *_points(found["before"], GREY), *_points(found["after"], BLUE)]
        for row, (name, colour) in enumerate((("before", GREY), ("after", BLUE))):
            text = f"{name}: calibration error {100 * found[name]['error']:.1f} %"
            lines.append(f'<text x="8" y="{18 + 16 * row}" fill="{colour}">{text}</text>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _frame(title: str, right: str) -> Iterator[str]:
    yield f'<rect width="{SIDE:g}" height="{SIDE:g}" fill="none" stroke="#333"/>'
    yield f'<line x1="0" y1="{SIDE:g}" x2="{SIDE:g}" y2="0" stroke="#bbb" stroke-dasharray="4 4"/>'
    for step in range(6):
        at, value = SIDE * step / 5, f"{step / 5:.1f}"
        yield f'<text x="{at:g}" y="{SIDE + 16:g}" text-anchor="middle">{value}</text>'
        yield f'<text x="-8" y="{SIDE - at + 4:g}" text-anchor="end">{value}</text>'
    middle = SIDE / 2
    yield f'<text x="{middle:g}" y="-14" text-anchor="middle" font-size="14">{escape(title)}</text>'
    yield f'<text x="{middle:g}" y="{SIDE + 38:g}" text-anchor="middle">confidence</text>'
    yield f'<text transform="translate(-38 {middle:g}) rotate(-90)" text-anchor="middle">{escape(right)}</text>'


def _points(found: Mapping[str, Any], colour: str) -> Iterator[str]:
    places = [(SIDE * each["confidence"], SIDE * (1 - each["right"])) for each in found["bins"]]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    most = max(each["count"] for each in found["bins"])
    for (x, y), each in zip(places, found["bins"], strict=True):
        radius = max(LARGEST * (each["count"] / most) ** 0.5, 1.5)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}" fill-opacity="0.6"/>'
