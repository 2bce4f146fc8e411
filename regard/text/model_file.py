"""SentencePiece's model files (sentencepiece_model.proto): their tokens read, and put in another order.

What reads them raises TextError for bytes that are no such file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from regard.errors import TextError

# Fields of a model.
_TOKEN, _TRAINER = 1, 2
# Fields of its trainer's settings.
_ALGORITHM, _SIZE = 3, 4
_IDS, _NAMES = (43, 40, 41, 42), (48, 45, 46, 47)
"""Of pad, unknown, begin and end."""
_UNKNOWN_SURFACE = 44


class Algorithm(IntEnum):
    """How a model segments."""

    UNIGRAM = 1
    BPE = 2
    WORDS = 3
    CHARACTERS = 4


class Kind(IntEnum):
    """What a token is for: a symbol is always one token; what is unused is read from ids, and never written."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    SYMBOL = 4
    UNUSED = 5
    BYTE = 6


class Token(NamedTuple):
    """A token as its model holds it."""

    text: str
    score: float
    kind: int


def tokens_of(model: bytes) -> list[Token]:
    """Every token by its id."""
    return [_token(value) for field, value in fields(model) if field == _TOKEN and isinstance(value, bytes)]


def algorithm_of(model: bytes) -> int:
    """How the model segments."""
    found = int(Algorithm.UNIGRAM)
    for field, value in fields(model):
        if field == _TRAINER and isinstance(value, bytes):
            found = next((int(v) for f, v in fields(value) if f == _ALGORITHM and isinstance(v, int)), found)
    return found


def with_tokens(model: bytes, tokens: Sequence[Token], *, unknown_surface: str) -> bytes:
    """The model with these tokens instead of its own; the first four are pad, unknown, begin and end.

    Unknown tokens are decoded as `unknown_surface`. What the model says of normalization is kept.
    """
    settings = _number(_SIZE, len(tokens)) + _bytes(_UNKNOWN_SURFACE, unknown_surface.encode())
    for number, (identity, name) in enumerate(zip(_IDS, _NAMES, strict=True)):
        settings += _number(identity, number) + _bytes(name, tokens[number].text.encode())
    out = bytearray()
    for text, score, kind in tokens:
        token = _bytes(1, text.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score) + _number(3, kind)
        out += _bytes(_TOKEN, token)
    for field, value in fields(model):
        if field != _TOKEN and isinstance(value, bytes):
            out += _bytes(field, value)
    # Of a message that comes twice the fields are merged, and the last value of each counts.
    return bytes(out + _bytes(_TRAINER, settings))


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in protocol-buffer format: number and value, in order."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while shift < 70:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise _damaged(f"a number of more than 64 bits at byte {at}")

    try:
        while at < len(message):
            key = number()
            wire = key & 7
            if wire == 0:
                yield key >> 3, number()
                continue
            size = number() if wire == 2 else {1: 8, 5: 4}[wire]
            if at + size > len(message):
                raise IndexError
            yield key >> 3, message[at : at + size]
            at += size
    except IndexError:
        raise _damaged("a field that is cut short") from None
    except KeyError as error:
        raise _damaged(f"a field of unknown kind {error}") from None


def _damaged(what: str) -> TextError:
    return TextError(f"this is not a SentencePiece model: it has {what}.")


def _token(value: bytes) -> Token:
    text, score, kind = "", 0.0, int(Kind.NORMAL)
    for field, content in fields(value):
        try:
            if field == 1 and isinstance(content, bytes):
                text = content.decode("utf-8")
            elif field == 2 and isinstance(content, bytes):
                score = struct.unpack("<f", content)[0]
            elif field == 3 and isinstance(content, int):
                kind = content
        except (UnicodeDecodeError, struct.error) as error:
            raise _damaged(f"a token that cannot be read ({error})") from None
    return Token(text, score, kind)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
