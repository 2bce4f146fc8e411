"""Which tokens go together, learnt from pairs of lines.

It is asked of IBM's first model of alignment (Brown et al. 1993): among the source's tokens, each target token comes
from one or another, as likely as the two are elsewhere.

Sizes: S source vocabulary, T target vocabulary, n pairs of tokens that occur in a line and its translation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.shortlist import Ids, Shortlist
from regard.text.tokenizer import END, PAD, UNK, Tokenizer

_CHUNK = 1 << 22  # pairs of tokens that are in memory at a time, beside the table of all that differ
_ROUNDS = 4
_LEAST = 1e-4  # a target token that a source token becomes less often than this is not in its list


def learn(
    pairs: Sequence[tuple[Ids, Ids]], source: Tokenizer, target: Tokenizer, *, each: int = 100, always: int = 100
) -> Shortlist:
    """The shortlist of these pairs: at most `each` tokens of a source token, beside the `always` most frequent ones.

    The end and the unknown token may always come. A token that is spelt alike on both sides goes with itself, seen or
    not, for names and numbers are copied.
    """
    width = len(target)
    counts = np.bincount([i for _, ids in pairs for i in set(ids)], minlength=width)
    counts[[PAD, UNK, END]] = 0
    frequent = np.argsort(-counts, kind="stable")[:always]
    common = np.union1d(frequent[counts[frequent] > 0], [UNK, END]).astype(np.int32)
    keys, chances = first_model(pairs, width)
    rows, columns = np.divmod(keys, width)
    good = np.flatnonzero((chances >= _LEAST) & (rows != PAD) & ~np.isin(columns, common))
    good = good[np.lexsort((-chances[good], rows[good]))]  # each row's likeliest first
    rank = np.arange(len(good)) - np.searchsorted(rows[good], rows[good])
    alike = np.array([target.id_of(token) or PAD for token in source.tokens(range(len(source)))])
    spelt = np.flatnonzero(alike != PAD)
    rows, columns = np.divmod(np.union1d(keys[good[rank < each]], spelt * width + alike[spelt]), width)
    return Shortlist(common, np.searchsorted(rows, np.arange(len(source) + 1)), columns.astype(np.int32))


def first_model(pairs: Sequence[tuple[Ids, Ids]], width: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Pairs of tokens as source · T + target (n,), in order, and how likely the one becomes the other (n,).

    The source's padding stands for what comes from none of its tokens.
    """
    keys = np.empty(0, dtype=np.int64)
    for chunk, _ in _chunks(pairs, width):
        keys = np.union1d(keys, chunk)
    chances = np.ones(len(keys))
    owners = keys // width
    for _ in range(_ROUNDS):
        expected = np.zeros(len(keys))
        for chunk, lengths in _chunks(pairs, width):
            indices = np.searchsorted(keys, chunk)
            shares = chances[indices]
            totals = np.add.reduceat(shares, np.cumsum([0, *lengths[:-1]]))
            expected += np.bincount(indices, shares / np.repeat(totals, lengths), minlength=len(keys))
        chances = expected / np.bincount(owners, expected)[owners]
    return keys, chances


def _chunks(pairs: Sequence[tuple[Ids, Ids]], width: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Every target token of a line with each of its source's, as keys; and how many keys each target token has."""
    keys: list[NDArray[np.int64]] = []
    lengths: list[NDArray[np.int64]] = []
    size = 0
    for source, target in pairs:
        ours, theirs = np.array(sorted({PAD, *source})), np.array(sorted(set(target)))
        keys.append((theirs[:, None] + ours * width).ravel())
        lengths.append(np.full(len(theirs), len(ours)))
        size += len(keys[-1])
        if size > _CHUNK:
            yield np.concatenate(keys), np.concatenate(lengths)
            keys, lengths, size = [], [], 0
    if size:
        yield np.concatenate(keys), np.concatenate(lengths)
