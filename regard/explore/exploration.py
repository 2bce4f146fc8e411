"""All that can be shown of what a model did with a line, together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import DataError, ModelError

if TYPE_CHECKING:
    from regard.linking.aer import Gold
    from regard.tasks.translate import Translator

    from .look import Attention
    from .search import SearchTree
    from .steps import Steps


@dataclass(frozen=True)
class Exploration:
    """What one model did with one line, as far as it can be shown."""

    attention: Attention | None = None
    steps: Steps | None = None
    search: SearchTree | None = None
    gold: Gold | None = None
    name: str = ""
    """What tells it from another beside it."""


def explore(
    bundle: str | Path | Translator,
    line: str,
    *,
    target: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    beam: int | None = None,
    gold: Gold | None = None,
    precision: str = "exact",
) -> Exploration:
    """What a model does with a line: where it looks, each step's alternatives, and its search.

    There is no search where it is made to write `target`, and no steps and no search of a model that does not translate
    token by token. `gold` are links between words of the line and of `target` that people made, counted from 0; spaces
    separate those words (`regard.linking.aer.parse_gold`). `precision` is attention's; the rest is as the search is.
    Raises as `regard.look`, `regard.explore.search.search_tree` and `regard.explore.gold.check_links` do.
    """
    if gold is not None and target is None:
        raise DataError("gold links are of a source and a given target; give it (--target).")
    from regard.tasks.engine import check_torch, reads_pairs

    check_torch("what a model did with a line")
    from regard.tasks.translate import Translator, load

    from .gold import check_links, spaced
    from .look import look
    from .search import search_tree
    from .steps import step_by_step

    asked: str | Path | Translator = bundle
    if not isinstance(bundle, Translator) and reads_pairs(bundle):
        asked = load(bundle, device="cpu")
    steps = search = None
    if isinstance(asked, Translator) and asked.in_order:
        steps = step_by_step(asked, line, target=target, from_=from_, to=to, beam=beam)
        if target is None:
            with suppress(ModelError):  # of a recipe that draws samples, say, which is no tree
                search = search_tree(asked, line, from_=from_, to=to, beam=beam)
    try:
        found = look(asked, line, target=target, from_=from_, to=to, beam=beam, precision=precision)
    except ModelError:
        if steps is None:
            raise
        return Exploration(None, steps, search)  # a model without attention has steps
    if gold is None:
        return Exploration(found, steps, search)
    check_links(gold, found)
    return Exploration(spaced(found), steps, search, gold)
