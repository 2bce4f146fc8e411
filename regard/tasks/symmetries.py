"""Links chosen from both sides of a pair of lines, joined to one alignment (Koehn et al. 2003)."""

from __future__ import annotations

from collections.abc import Callable

from regard.metrics.aer import Link

Links = frozenset[Link]


def _grow_diag(forward: Links, backward: Links) -> Links:
    """From the intersection, links of the union beside one that is in, of a word not linked yet."""
    grown, union = set(forward & backward), forward | backward
    sources, targets = {i for i, _ in grown}, {j for _, j in grown}
    beside = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
    fresh = sorted(grown)
    while fresh:
        reached = sorted({(i + a, j + b) for i, j in fresh for a, b in beside} & union - grown)
        fresh = []
        for i, j in reached:
            if i not in sources or j not in targets:
                fresh.append((i, j))
                grown.add((i, j))
                sources.add(i)
                targets.add(j)
    return frozenset(grown)


def _final(forward: Links, backward: Links) -> Links:
    """Then any link of either direction of a word that is not linked yet."""
    grown = set(_grow_diag(forward, backward))
    sources, targets = {i for i, _ in grown}, {j for _, j in grown}
    for i, j in [*sorted(forward), *sorted(backward)]:
        if i not in sources or j not in targets:
            grown.add((i, j))
            sources.add(i)
            targets.add(j)
    return frozenset(grown)


SYMMETRIES: dict[str, Callable[[Links, Links], Links]] = {
    "target": lambda forward, backward: forward,
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": _grow_diag,
    "grow-diag-final": _final,
}
"""How the choices of both sides are joined; "target" takes those of target words alone."""
