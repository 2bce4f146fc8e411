"""A batch as an objective wants it: text with tokens masked, text with gaps to be filled, a label to be chosen.

Text of one side is the target of pairs with an empty source; here it becomes what is read. What is drawn is a hash of
the seed, the epoch and the position in the text, so resuming is exact and a line's draws are independent of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regard.data.batches import Batch, assembled, key_of, mixed

Ints = NDArray[np.int64]
_FIRST = 4  # the first id that is no special one


def _starts(lengths: Ints) -> Ints:
    return np.cumsum(lengths) - lengths


def _uniform(values: NDArray[np.uint64], key: int) -> NDArray[np.float64]:
    """A number from 0 to below 1 for each value."""
    return (mixed(values, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Masks:
    """BERT's masked language model (Devlin et al. 2019, section 3.1): `share` of each row's tokens are to be found.

    Of these 80 % are the mask instead, 10 % any other token, 10 % themselves; at least one a row, anew each epoch.
    """

    mask: int
    tokens: int  # in the vocabulary
    share: float = 0.15

    def __call__(self, batch: Batch, key: int) -> Batch:
        lengths = batch.target_lengths
        wanted = np.where(lengths > 1, np.maximum(1, np.rint(self.share * (lengths - 1))), 0)
        real, ids, drawn, sought = _sought(batch, wanted, key)
        chance = _uniform(drawn, key_of(key, 2))
        others = _FIRST + (_uniform(drawn, key_of(key, 3)) * (self.tokens - _FIRST)).astype(np.int64)
        read = np.where(sought & (chance < 0.8), self.mask, np.where(sought & (chance >= 0.9), others, ids))
        source, target = _laid(batch, real, read, np.where(sought, ids, -1))
        return replace(batch, source=source, source_lengths=lengths, target_input=source, target_output=target)


@dataclass(frozen=True)
class CMLMMask:
    """Mask-predict's targets (Ghazvininejad et al. 2019, section 3.1): any number of a row's tokens is to be found.

    Each of them is the mask instead. Drawn anew every epoch.
    """

    mask: int

    def __call__(self, batch: Batch, key: int) -> Batch:
        tokens = batch.target_lengths - 1
        chance = _uniform(mixed(batch.lines, key), key_of(key, 4))
        wanted = np.minimum(1 + (chance * tokens).astype(np.int64), tokens)
        real, ids, _, sought = _sought(batch, wanted, key)
        shown, target = _laid(batch, real, np.where(sought, self.mask, ids), np.where(sought, ids, -1))
        return replace(batch, target_input=shown, target_output=target)


@dataclass(frozen=True)
class SpanCorruption:
    """T5's span corruption (Raffel et al. 2020, section 3.1.4): read the text with gaps, write what was in them.

    `share` of each row's tokens fall out in spans of `span` tokens on average, each span leaving a mark of its own in
    the source; the target is each mark with what it stands for. Where the gaps are is drawn anew every epoch, a line's
    ends as likely as elsewhere: T5's own code lets every text end in a gap, and a short one has no other.
    """

    marks: tuple[int, ...]
    share: float = 0.15
    span: float = 3.0

    def __call__(self, batch: Batch, key: int) -> Batch:
        lines = zip(batch.lines.tolist(), _rows(batch), strict=True)
        pairs = [self._corrupted(ids, key_of(key, line)) for line, ids in lines]
        return assembled(batch, [source for source, _ in pairs], [target for _, target in pairs])

    def _corrupted(self, ids: Ints, key: int) -> tuple[list[int], list[int]]:
        n = len(ids)
        lost = min(max(1, round(n * self.share)), max(1, n - 1))
        spans = min(max(1, round(lost / self.span)), lost, max(1, n - lost), len(self.marks))
        gone = _parts(lost, spans, key_of(key, 2))
        # Something is kept between spans; before the first and behind the last there may be nothing.
        kept = _parts(n - lost + 2, spans + 1, key_of(key, 1))
        kept[0] -= 1
        source: list[int] = []
        target: list[int] = []
        position = 0
        for mark, before, width in zip(self.marks, kept, gone, strict=False):
            source += [*ids[position : position + before].tolist(), mark]
            target += [mark, *ids[position + before : position + before + width].tolist()]
            position += before + width
        return source + ids[position:].tolist(), target


@dataclass(frozen=True)
class Label:
    """A class: the target is one token, its label, and no end is written."""

    def __call__(self, batch: Batch, key: int) -> Batch:
        lengths = batch.target_lengths
        first = (slice(None), slice(1)) if batch.layout == "padded" else _starts(lengths)
        shown, target = batch.target_input[first], batch.target_output[first]
        return replace(batch, target_input=shown, target_output=target, target_lengths=np.ones_like(lengths))


def _sought(
    batch: Batch, wanted: Ints | NDArray[np.float64], key: int
) -> tuple[NDArray[np.bool_], Ints, NDArray[np.uint64], NDArray[np.bool_]]:
    """Where targets really are, their ids (L,), what draws are made of (L,), and which are to be found: of each row as
    many as wanted (B,), the end never."""
    lengths = batch.target_lengths
    real = np.arange(batch.target_output.shape[-1]) < (lengths[:, None] if batch.layout == "padded" else lengths.sum())
    ids: Ints = batch.target_output[real]
    rows = np.repeat(np.arange(len(batch)), lengths)
    positions = np.arange(len(ids)) - _starts(lengths)[rows]
    drawn = mixed(batch.lines, key)[rows] + positions.astype(np.uint64)
    order = np.where(positions == lengths[rows] - 1, 2.0, _uniform(drawn, key_of(key, 1)))
    sought = np.empty(len(ids), np.bool_)
    sought[np.lexsort((order, rows))] = positions < wanted[rows]
    return real, ids, drawn, sought


def _laid(batch: Batch, real: NDArray[np.bool_], *values: Ints) -> tuple[Ints, ...]:
    """Values (L,) where the targets really are, as they are laid out."""
    made = tuple(batch.target_output.copy() for _ in values)
    for into, value in zip(made, values, strict=True):
        into[real] = value
    return made


def _rows(batch: Batch) -> Iterator[Ints]:
    """Target ids of each row, without its end."""
    ids, lengths = batch.target_output, batch.target_lengths
    rows = ids if batch.layout == "padded" else np.split(ids, np.cumsum(lengths)[:-1])
    yield from (row[: n - 1] for row, n in zip(rows, lengths.tolist(), strict=True))


def _parts(whole: int, parts: int, key: int) -> list[int]:
    """A number as a sum of so many numbers of at least 1 (one part may be 0), any such sum being as likely."""
    if whole <= 1 or parts == 1:
        return [whole] * parts
    order = np.argsort(mixed(np.arange(1, whole), key), kind="stable")
    cuts = np.sort(order[: parts - 1] + 1)
    sizes: list[int] = np.diff([0, *cuts.tolist(), whole]).tolist()
    return sizes
