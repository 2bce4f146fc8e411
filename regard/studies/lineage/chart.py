"""Lines over a common axis as SVG that stands in a page: its colours are the page's, and its words in two languages.

A line is known by its colour, its marks and its dashes, so that no one of them is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

__all__ = ["chart", "say"]

WIDTH, HEIGHT = 680.0, 340.0  # px
LEFT, RIGHT, ABOVE, BELOW = 58.0, 216.0, 12.0, 46.0
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 4")
MARKS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.5-3.5h7v7h-7Z",
    "M0-4.5 4.5 3.5h-9Z",
    "M0-5 5 0 0 5-5 0Z",
    "M0 4.5 4.5-3.5h-9Z",
    "M-4-4 4 4M-4 4 4-4",
)

Words = tuple[str, str]  # English, Chinese


def say(words: Words, tag: str = "span", more: str = "") -> str:
    """The same in both languages; the page shows one."""
    return "".join(f'<{tag}{more} lang="{lang}">{text}</{tag}>' for lang, text in zip(("en", "zh"), words, strict=True))


def chart(
    places: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    x: Words,
    y: Words,
    name: str,
    logarithmic: bool = False,
    at: float | None = None,
) -> str:
    """Lines {name: a value for each place}, both axes logarithmic or none; `at` draws a line across the places.

    `name` is the id of the element that names the picture.
    """
    every = [value for values in lines.values() for value in values if math.isfinite(value)]
    across, along = _Axis(places, logarithmic, loose=False), _Axis(every, logarithmic)

    def right(value: float) -> float:
        return LEFT + across.share(value) * (WIDTH - LEFT - RIGHT)

    def down(value: float) -> float:
        return HEIGHT - BELOW - along.share(value) * (HEIGHT - ABOVE - BELOW)

    parts = [f'<svg class="chart" role="img" aria-labelledby="{name}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}">']
    for value in along.ticks:
        parts.append(f'<path class="grid" d="M{LEFT:g} {down(value):.1f}H{WIDTH - RIGHT:g}"/>')
        parts.append(f'<text x="{LEFT - 7:g}" y="{down(value) + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    for value in across.ticks:
        parts.append(f'<path class="grid" d="M{right(value):.1f} {HEIGHT - BELOW:g}v5"/>')
        parts.append(
            f'<text x="{right(value):.1f}" y="{HEIGHT - BELOW + 19:g}" text-anchor="middle">{_number(value)}</text>'
        )
    if at is not None:
        parts.append(f'<path class="mark" d="M{right(at):.1f} {ABOVE:g}V{HEIGHT - BELOW:g}"/>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(say(x, "text", f' x="{middle:g}" y="{HEIGHT - 8:g}" text-anchor="middle"'))
    turned = f' transform="translate(14 {ABOVE + (HEIGHT - ABOVE - BELOW) / 2:g}) rotate(-90)" text-anchor="middle"'
    parts.append(say(y, "text", turned))
    for number, (line, values) in enumerate(lines.items()):
        dots = [(right(a), down(b), b) for a, b in zip(places, values, strict=True) if math.isfinite(b)]
        parts += _line(number, line, dots)
    return "\n".join([*parts, "</svg>"])


def _line(number: int, name: str, dots: Sequence[tuple[float, float, float]]) -> Iterator[str]:
    """One line with its marks, and its name in the legend."""
    dash, mark = DASHES[number % len(DASHES)], MARKS[number % len(MARKS)]
    yield f'<g class="line c{number % 6}">'
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in dots)
    yield f'<polyline points="{path}" stroke-dasharray="{dash}"/>'
    for a, b, value in dots:
        shown = f"{escape(name)}: {value:.4g}"
        yield f'<path class="dot" transform="translate({a:.1f} {b:.1f})" d="{mark}"><title>{shown}</title></path>'
    at, top = WIDTH - RIGHT + 14, ABOVE + 10 + 22 * number
    yield f'<path d="M{at:g} {top:g}h24" stroke-dasharray="{dash}"/>'
    yield f'<path class="dot" transform="translate({at + 12:g} {top:g})" d="{mark}"/>'
    yield f'<text x="{at + 30:g}" y="{top + 4:g}">{escape(name)}</text></g>'


class _Axis:
    """Where values lie between the ends of an axis, and which of them are named."""

    def __init__(self, values: Sequence[float], logarithmic: bool, loose: bool = True) -> None:
        self.logarithmic = logarithmic
        low, high = min(values, default=0.0), max(values, default=1.0)
        if logarithmic:
            base = 10.0 if loose else 2.0
            first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
            step = max(1, round((last - first) / 8))
            self.ticks = [base**power for power in range(first, last + 1, step)]
        else:
            spread = (high - low) or abs(high) or 1.0
            step = 10 ** math.floor(math.log10(spread / 4))
            step *= next(f for f in (1, 2, 5, 10) if spread / (step * f) <= 6)
            first = math.floor(low / step)
            self.ticks = [step * i for i in range(first, math.ceil(high / step) + 1)]
        self.low, self.high = self.ticks[0], self.ticks[-1]
        if not loose:
            self.low, self.high = low, high
            self.ticks = [tick for tick in self.ticks if low <= tick <= high]

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = (math.log(each) for each in (low, high, value))
        return (value - low) / (high - low) if high > low else 0.5


def _number(value: float) -> str:
    if value and (abs(value) < 1e-2 or abs(value) >= 1e5):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:g}"
