"""A Marian vocabulary as pieces of ours: two SentencePiece models whose ids are rows of the same tables.

Marian segments each side with a SentencePiece model of its own and looks the pieces up in vocab.json, whose ids are
those of the embeddings: the union of both sides' pieces, as a rule. Here each side's model gets all the vocabulary's
pieces, in one order; those that it does not write itself are marked unused, so its segmentations stay as they were.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import TextError
from regard.text import BEGIN, PAD, Subwords
from regard.text.format import Algorithm, Kind, Piece, algorithm_of, pieces_of, with_pieces

__all__ = ["Specials", "Vocabulary", "arrange", "marian_names"]

_TAG = re.compile(">>.+<<")
"""A target language, as Marian's multilingual models have it at the beginning of a source line."""


@dataclass(frozen=True)
class Specials:
    """Marian's ids of pad, unknown, the piece that decoding starts from, and end."""

    pad: int
    unknown: int
    start: int
    end: int


@dataclass(frozen=True)
class Vocabulary:
    """What takes the place of Marian's vocabulary."""

    subwords: tuple[Subwords, ...]
    """One for each SentencePiece model; their ids mean the same rows."""
    rows: tuple[int, ...]
    """Marian's id of each of ours; -1 for none, whose vector is zero."""
    silent: tuple[int, ...]
    """Our ids that may never be written: they stand for nothing in Marian, or Marian forbids them."""


def arrange(names: Sequence[str], models: Sequence[tuple[str, bytes]], specials: Specials) -> Vocabulary:
    """`names` are vocab.json's pieces by Marian's id; `models` SentencePiece models by file, the source's first.

    Raises TextError for a model that is none, or that cannot be given other pieces without segmenting otherwise.
    """
    s = specials
    own = [(file, *_parts(file, model)) for file, model in models]
    rest = [i for i in range(len(names)) if i not in (s.pad, s.unknown, s.start, s.end)]
    known = set(names)
    # A piece that a model writes and vocab.json does not know is unknown to Marian; here it has an id, whose vector is
    # that of the unknown.
    without_id = list(
        dict.fromkeys(
            piece.text
            for _, pieces, _ in own
            for piece in pieces
            if piece.kind not in (Kind.UNKNOWN, Kind.CONTROL) and piece.text not in known
        )
    )
    texts = [*(names[i] for i in rest), *without_id]
    taken = {*texts, names[s.unknown], names[s.end]}
    pad = _free("<pad>" if s.start == s.pad else names[s.pad], taken)
    begin = _free("<s>" if s.start in (s.pad, s.end) else names[s.start], {*taken, pad})
    rows = [-1 if s.start == s.pad else s.pad, s.unknown, s.start, s.end, *rest, *[s.unknown] * len(without_id)]
    silent = [
        *([PAD] if s.start == s.pad else []),
        *([BEGIN] if s.start in (s.pad, s.end) else []),
        *range(len(rows) - len(without_id), len(rows)),
    ]
    specials_first = [
        Piece(pad, 0.0, Kind.CONTROL),
        Piece(names[s.unknown], 0.0, Kind.UNKNOWN),
        Piece(begin, 0.0, Kind.CONTROL),
        Piece(names[s.end], 0.0, Kind.CONTROL),
    ]
    subwords = []
    for side, (file, pieces, model) in enumerate(own):
        by_text = {piece.text: piece for piece in pieces if piece.kind != Kind.UNKNOWN}
        made = [by_text.get(text) or _foreign(text, reads=side == 0) for text in texts]
        foreign = [t for t in texts if t not in by_text and not _TAG.fullmatch(t)]
        if foreign and algorithm_of(model) != Algorithm.UNIGRAM:
            raise TextError(
                f"{file}: is no unigram model, and {len(foreign):,} pieces of vocab.json ({foreign[0]!r}, say) are "
                "none of its own: with them it would segment otherwise, so it cannot be brought over."
            )
        # Hugging Face leaves unknown pieces out of the text, and so this does.
        subwords.append(Subwords(with_pieces(model, [*specials_first, *made], unknown_surface=""), name=file))
    return Vocabulary(tuple(subwords), tuple(rows), tuple(silent))


def marian_names(subwords: Subwords) -> list[str]:
    """What vocab.json calls the pieces, by id."""
    return [_TAG_PIECE.sub(r"\1", name) for name in subwords.pieces(range(len(subwords)))]


_TAG_PIECE = re.compile("^\u2581(>>.+<<)$")


def _parts(file: str, model: bytes) -> tuple[list[Piece], bytes]:
    try:
        pieces = pieces_of(model)
        algorithm = algorithm_of(model)
    except (IndexError, KeyError, UnicodeDecodeError, struct.error):
        pieces, algorithm = [], 0
    if not pieces:
        raise TextError(f"{file}: this is not a SentencePiece model, or it is damaged; get it again.")
    if algorithm not in (Algorithm.UNIGRAM, Algorithm.BPE):
        raise TextError(f"{file}: segments into words or characters; only unigram and BPE models can be brought over.")
    return pieces, model


def _foreign(text: str, *, reads: bool) -> Piece:
    """A piece of the vocabulary that this side's model does not have."""
    if reads and _TAG.fullmatch(text):
        # A line begins with a space for SentencePiece. The tag is taken as one with it, or a lone space stood before.
        return Piece("\u2581" + text, 0.0, Kind.SYMBOL)
    return Piece(text, 0.0, Kind.UNUSED)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
