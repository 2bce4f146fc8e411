"""What the explorer asks of heads: a translation with some of them off or weights put by hand, and one head opened."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from regard.explore.changes import Changes, Edit, config_of, heads_named

from .explorer import Explored, check_length, computing, opened
from .own import Working

router = APIRouter(prefix="/v1", tags=["Explorer"])
_MOST_EXACT = 20_000_000
"""Parameters of a model whose numbers are told in float64, of which the server keeps a copy then."""
_DIGITS = 7


class PutByHand(BaseModel, extra="forbid", frozen=True):
    """A weight of attention; all count from 1, and 0 stands for every head or every row."""

    part: Literal["encoder", "cross", "decoder"]
    layer: int = Field(ge=1, le=1000)
    head: int = Field(ge=0, le=1000)
    row: int = Field(ge=0, le=10_000)
    column: int = Field(ge=1, le=10_000)
    weight: float = Field(ge=0, le=1)


class Change(Explored):
    """A line to be translated with changes."""

    off: list[str] = Field([], description="Heads that are off, as encoder.2.3.", max_length=1000)
    strengths: dict[str, float] = Field(
        {}, description="Heads and what their output is multiplied by.", max_length=1000
    )
    edits: list[PutByHand] = Field([], description="Weights put by hand.", max_length=1000)
    parameters: dict[str, float] = Field(
        {}, description="Parameters by name and what they are multiplied by.", max_length=100
    )


class Open(Explored):
    """A head to be opened over a line."""

    head: str = Field(description="As encoder.2.3.", max_length=50)


@router.post("/explore/changed")
def changed(asked: Change, work: Working) -> dict[str, object]:
    """The line's translation with heads off, weights put by hand or parameters multiplied, beside that without."""
    from regard.explore.live import translate_changed

    translator, to = opened(asked, work)
    check_length(translator, asked, to)
    config = config_of(translator.recipe)
    strengths = {head: value for name, value in asked.strengths.items() for head in heads_named([name], config)}
    strengths |= dict.fromkeys(heads_named(asked.off, config), 0.0)
    edits = [Edit(**dict(edit)) for edit in asked.edits]
    with computing(work):
        return translate_changed(translator, asked.text, Changes(strengths, edits, asked.parameters), to=to).to_dict()


@router.post("/explore/head")
def head(asked: Open, work: Working) -> dict[str, object]:
    """One head over a line: queries, keys, scores, mask, weights, values, and what the head adds."""
    from regard.explore.opened import open_head

    translator, to = opened(asked, work)
    check_length(translator, asked, to)
    bundle = translator.bundle
    precision = "exact" if bundle is not None and bundle.parameters <= _MOST_EXACT else "float32"
    with computing(work):
        found = open_head(translator, asked.text, asked.head, target=asked.translation, to=to, precision=precision)
    return found.to_dict(_DIGITS)
