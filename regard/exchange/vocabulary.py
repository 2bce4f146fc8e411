"""A Marian vocabulary as tokens of ours: two SentencePiece models whose ids are rows of the same tables.

Marian segments each side with a SentencePiece model of its own and looks the tokens up in vocab.json, whose ids are
those of the embeddings: the union of both sides' tokens, as a rule. Here each side's model gets all the vocabulary's
tokens, in one order; those that it does not write itself are marked unused, so its segmentations stay as they were.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import TextError
from regard.text import BEGIN, PAD, Tokenizer
from regard.text.subwords import (
    TOKEN,
    TRAINER,
    Algorithm,
    Token,
    TokenKind,
    algorithm_of,
    bytes_field,
    fields,
    tokens_of,
    varint,
)

# Fields of a trainer's settings; ids and names are those of pad, unknown, begin and end.
_SIZE, _UNKNOWN_SURFACE = 4, 44
_IDS, _NAMES = (43, 40, 41, 42), (48, 45, 46, 47)
_TAG = re.compile(">>.+<<")
"""A target language, as Marian's multilingual models have it at the beginning of a source line."""


@dataclass(frozen=True)
class Specials:
    """Marian's ids of pad, unknown, the token that decoding starts from, and end."""

    pad: int
    unknown: int
    start: int
    end: int


@dataclass(frozen=True)
class Vocabulary:
    """What takes the place of Marian's vocabulary."""

    tokenizer: tuple[Tokenizer, ...]  #: One for each SentencePiece model; their ids mean the same rows.
    rows: tuple[int, ...]  #: Marian's id of each of ours; -1 for none, whose vector is zero.
    silent: tuple[int, ...]
    """Our ids that may never be written: they stand for nothing in Marian, or Marian forbids them."""

    @property
    def size(self) -> int:
        """Tokens that Marian's vocabulary has."""
        return len(set(self.rows) - {-1})


def arrange(names: Sequence[str], models: Sequence[tuple[str, bytes]], specials: Specials) -> Vocabulary:
    """`names` are vocab.json's tokens by Marian's id; `models` SentencePiece models by file, the source's first.

    Raises TextError for a model that is none, or that cannot be given other tokens without segmenting otherwise.
    """
    s = specials
    own = [_tokens(file, model) for file, model in models]
    rest = [i for i in range(len(names)) if i not in (s.pad, s.unknown, s.start, s.end)]
    # A token that a model writes and vocab.json does not know is unknown to Marian; here it has an id, whose vector is
    # that of the unknown.
    written = [t.text for tokens in own for t in tokens if t.kind not in (TokenKind.UNKNOWN, TokenKind.CONTROL)]
    known = set(names)
    without_id = [text for text in dict.fromkeys(written) if text not in known]
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
    first = [Token(name, 0.0, TokenKind.CONTROL) for name in (pad, names[s.unknown], begin, names[s.end])]
    first[1] = first[1]._replace(kind=TokenKind.UNKNOWN)
    made: list[Tokenizer] = []
    for (file, model), tokens in zip(models, own, strict=True):
        by_text = {token.text: token for token in tokens if token.kind != TokenKind.UNKNOWN}
        foreign = [text for text in texts if text not in by_text and not _TAG.fullmatch(text)]
        if foreign and algorithm_of(model) != Algorithm.UNIGRAM:
            raise TextError(
                f"{file}: is no unigram model, and {len(foreign):,} tokens of vocab.json ({foreign[0]!r}, say) are "
                "none of its own: with them it would segment otherwise, so it cannot be brought over."
            )
        all_tokens = [*first, *(by_text.get(text) or _foreign(text, reads=not made) for text in texts)]
        # Hugging Face leaves unknown tokens out of the text, and so this does.
        made.append(Tokenizer(with_tokens(model, all_tokens, unknown_surface=""), name=file))
    return Vocabulary(tuple(made), tuple(rows), tuple(silent))


def marian_names(tokenizer: Tokenizer) -> list[str]:
    """What vocab.json calls the tokens, by id."""
    return [re.sub("^\u2581(>>.+<<)$", r"\1", name) for name in tokenizer.tokens(range(len(tokenizer)))]


def _tokens(file: str, model: bytes) -> list[Token]:
    try:
        tokens, algorithm = tokens_of(model), algorithm_of(model)
    except (TextError, ValueError, struct.error):
        tokens = []
    if not tokens:
        raise TextError(f"{file}: this is not a SentencePiece model, or it is damaged; get it again.")
    if algorithm not in (Algorithm.UNIGRAM, Algorithm.BPE):
        raise TextError(f"{file}: segments into words or characters; only unigram and BPE models can be brought over.")
    return tokens


def _foreign(text: str, *, reads: bool) -> Token:
    """A token of the vocabulary that this side's model does not have."""
    if reads and _TAG.fullmatch(text):
        # A line begins with a space for SentencePiece. The tag is taken as one with it, or a lone space stood before.
        return Token("\u2581" + text, 0.0, TokenKind.SYMBOL)
    return Token(text, 0.0, TokenKind.UNUSED)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def with_tokens(model: bytes, tokens: Sequence[Token], *, unknown_surface: str) -> bytes:
    """The model with these tokens instead of its own; the first four are pad, unknown, begin and end.

    Unknown tokens are decoded as `unknown_surface`. What the model says of normalization is kept.
    """
    settings = _number(_SIZE, len(tokens)) + bytes_field(_UNKNOWN_SURFACE, unknown_surface.encode())
    for number, (identity, name) in enumerate(zip(_IDS, _NAMES, strict=True)):
        settings += _number(identity, number) + bytes_field(name, tokens[number].text.encode())
    out = bytearray()
    for text, score, kind in tokens:
        parts = (bytes_field(1, text.encode()), varint(2 << 3 | 5), struct.pack("<f", score), _number(3, kind))
        out += bytes_field(TOKEN, b"".join(parts))
    for field, value in fields(model):
        if field != TOKEN and isinstance(value, bytes):
            out += bytes_field(field, value)
    # Of a message that comes twice the fields are merged, and the last value of each counts.
    return bytes(out + bytes_field(TRAINER, settings))


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)
