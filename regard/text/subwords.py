"""Subwords: the settings of a recipe's [text], SentencePiece's model files (sentencepiece_model.proto), and draws.

What reads files raises TextError for bytes that are no such file.

SentencePiece draws segmentations too (BPE with merges left out, unigram tokens by their probability), but its generator
is salted anew in every process whatever seed it is given, so a run that is resumed would read other tokens than a run
never stopped. Here a draw is a function of its arguments alone. Without randomness both give what SentencePiece gives.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect
from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import accumulate
from math import exp, log
from random import Random
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field

from regard.errors import TextError

Kind = Literal["bpe", "unigram", "characters", "words"]
Normalization = Literal["identity", "nfc", "nfkc"]
Order = Literal["left-to-right", "right-to-left"]

TOKEN, TRAINER, _ALGORITHM = 1, 2, 3  # fields of a model, and of its trainer's settings
# SentencePiece's own: a character without a token costs this much more than the least likely token.
_UNKNOWN_PENALTY = 10.0

Draw = Callable[[], float]


class TextConfig(BaseModel, extra="forbid", frozen=True):
    """The subword model and how it is used."""

    kind: Kind = Field(
        "bpe",
        description="How tokens are chosen: bpe merges pairs, unigram prunes; or characters; or whole words between "
        "spaces, any other being unknown.",
    )
    target_kind: Literal["", "bpe", "unigram", "characters", "words"] = Field(
        "", description="The target's kind where it is another, such as words for labels; joint is false then."
    )
    size: int = Field(
        8000,
        ge=5,
        description="Tokens in a vocabulary, with the 4 special ones and the 256 bytes; the most of "
        "characters and words.",
    )
    joint: bool = Field(True, description="One vocabulary for source and target (needed for shared embeddings).")
    shrink: bool = Field(False, description="If the data cannot give `size` tokens, take as many as it gives.")
    byte_fallback: bool = Field(True, description="Spell unseen characters in bytes, so that no text is unknown.")
    character_coverage: float = Field(
        1.0,
        ge=0.98,
        le=1.0,
        description="Share of all characters that get a token of their own; below 1 for thousands of them.",
    )
    split_digits: bool = Field(False, description="Every digit is a token of its own.")
    normalization: Normalization = Field(
        "identity", description="identity changes nothing; nfc composes accents; nfkc also folds full-width forms."
    )
    sampling: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="Subword sampling in training, 0 for none: for bpe the share of merges left out (try 0.1), "
        "for unigram the smoothing (try 0.2; smaller is more random).",
    )
    noise: dict[str, float] = Field(
        {},
        description="Mistakes put into the source in training, each into this share of the lines: typos, case, "
        "punctuation, spaces, emoji.",
    )
    order: Order = Field(
        "left-to-right",
        description="In which the target's tokens are written: right-to-left is the contrast, the last one first.",
    )
    symbols: tuple[str, ...] = Field((), description="Strings that are always one token, beside the language tags.")


# Both are numbered as in SentencePiece's files, from 1.
Algorithm = IntEnum("Algorithm", ["UNIGRAM", "BPE", "WORDS", "CHARACTERS"])
"""How a model segments."""
TokenKind = IntEnum("TokenKind", ["NORMAL", "UNKNOWN", "CONTROL", "SYMBOL", "UNUSED", "BYTE"])
"""What a token is for: a symbol is always one token; what is unused is read from ids, and never written."""


class Token(NamedTuple):
    """A token as its model holds it."""

    text: str = ""
    score: float = 0.0
    kind: int = TokenKind.NORMAL


def tokens_of(model: bytes) -> list[Token]:
    """Every token by its id."""
    return [_token(value) for field, value in fields(model) if field == TOKEN and isinstance(value, bytes)]


def algorithm_of(model: bytes) -> int:
    """How the model segments."""
    found, behind = int(Algorithm.UNIGRAM), 0
    while behind + 1 < len(model) and model[behind] == TOKEN << 3 | 2 and model[behind + 1] < 128:
        behind += 2 + model[behind + 1]  # one of many thousand tokens, which come first
    for field, value in fields(model[behind:]):
        if field == TRAINER and isinstance(value, bytes):
            found = next((int(v) for f, v in fields(value) if f == _ALGORITHM and isinstance(v, int)), found)
    return found


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in protocol-buffer format: number and value, in order."""
    at = 0

    def number() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
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


def bytes_field(field: int, value: bytes) -> bytes:
    """A field that holds bytes, as `fields` reads it."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """A whole number as `fields` reads it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _damaged(what: str) -> TextError:
    return TextError(f"this is not a SentencePiece model: it has {what}.")


def _token(value: bytes) -> Token:
    text, score, kind = Token()
    for field, content in fields(value):
        try:
            if field == 1 and isinstance(content, bytes):
                text = content.decode("utf-8")
            elif field == 2 and isinstance(content, bytes):
                [score] = struct.unpack("<f", content)
            elif field == 3 and isinstance(content, int):
                kind = content
        except (UnicodeDecodeError, struct.error) as error:
            raise _damaged(f"a token that cannot be read ({error})") from None
    return Token(text, score, kind)


class Sampler:
    """Draws segmentations with the vocabulary of a SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        """Takes the model's bytes; only BPE and unigram models can be drawn from (ValueError)."""
        tokens = list(enumerate(tokens_of(model)))
        self._ids = {token.text: i for i, token in tokens if token.kind in (TokenKind.NORMAL, TokenKind.SYMBOL)}
        self._scores = {token.text: token.score for _, token in tokens if token.kind == TokenKind.NORMAL}
        self._bytes = {int(token.text[3:5], 16): i for i, token in tokens if token.kind == TokenKind.BYTE}
        self._unknown = max((i for i, token in tokens if token.kind == TokenKind.UNKNOWN), default=0)
        algorithm = algorithm_of(model)
        if algorithm not in (Algorithm.UNIGRAM, Algorithm.BPE):
            raise ValueError("only BPE and unigram models can be drawn from.")
        self._segment = self._unigram if algorithm == Algorithm.UNIGRAM else self._bpe
        self._lowest = min(self._scores.values(), default=0.0) - _UNKNOWN_PENALTY
        self._beginnings = {token[:end] for token in self._scores for end in range(1, len(token) + 1)}
        symbols = sorted((token.text for _, token in tokens if token.kind == TokenKind.SYMBOL), key=len, reverse=True)
        spanning = any("\u2581" in token.lstrip("\u2581") for token in self._scores)
        self._words = re.compile("(?s).+" if spanning else "\u2581*[^\u2581]*")
        self._symbols = re.compile(f"({'|'.join(map(re.escape, symbols)) or '(?!)'})")

    def sample(self, normalized: str, *, alpha: float, seed: int) -> list[int]:
        """Ids of a line that SentencePiece has normalised (spaces are U+2581), drawn by `seed`.

        `alpha` is how probably each merge is left out for BPE (Provilkov et al. 2020), and for unigram the exponent of
        each token's probability (Kudo 2018, equation 8, over all segmentations).
        """
        draw = Random(seed).random
        ids: list[int] = []
        after_unknown = False
        for index, part in enumerate(self._symbols.split(normalized)):
            # Every other part is a symbol, which is always one token.
            for token in [part] if index % 2 else self._segment(part, alpha, draw) if part else []:
                number = self._ids.get(token)
                if number is not None:
                    ids.append(number)
                elif self._bytes:
                    ids += [self._bytes[byte] for byte in token.encode("utf-8")]
                elif not after_unknown:  # like SentencePiece, one id for a run of unknown characters
                    ids.append(self._unknown)
                after_unknown = number is None
        return ids

    def _bpe(self, text: str, alpha: float, draw: Draw) -> list[str]:
        """Tokens of each word, for merges are drawn word by word; text without spaces is one word."""
        return [token for word in self._words.findall(text) for token in self._merged(word, alpha, draw)]

    def _merged(self, word: str, alpha: float, draw: Draw) -> list[str]:
        """The best merge first, of equals the leftmost; one that is left out may be made after the next, until all that
        are possible are left out at once (Provilkov et al. 2020, algorithm 1)."""
        scores, end = self._scores, len(word)
        symbols = list(word)
        before, after = list(range(-1, end)), list(range(1, end + 1))
        # Entries are (-score, left, right, the merged token).
        agenda = [(-scores[p], left, left + 1, p) for left in range(end - 1) if (p := word[left : left + 2]) in scores]
        heapify(agenda)
        left_out: list[tuple[float, int, int, str]] = []
        while agenda:
            _, left, right, pair = entry = heappop(agenda)
            # A side that was merged elsewhere is empty or longer than it was.
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(pair):
                continue
            if draw() < alpha:
                left_out.append(entry)
                continue
            symbols[left], symbols[right] = pair, ""
            following = after[left] = after[right]
            before[following] = left
            for first, second in ((left, following), (before[left], left)):
                if first >= 0 and second < end and (longer := symbols[first] + symbols[second]) in scores:
                    left_out.append((-scores[longer], first, second, longer))
            while left_out:
                heappush(agenda, left_out.pop())
        return [symbol for symbol in symbols if symbol]

    def _unigram(self, text: str, alpha: float, draw: Draw) -> list[str]:
        """A segmentation of the text, drawn from all of them by their probabilities.

        Forward, the probabilities of all ways to each position are summed; backward, one way is drawn, token by token.
        """
        scores, beginnings, end = self._scores, self._beginnings, len(text)
        # Of each token that ends at a position: its beginning, and the log-probability of all ways through it.
        arriving: list[list[tuple[int, float]]] = [[] for _ in range(end + 1)]
        reached = 0.0
        for start in range(end):
            if start:
                reached = _sums(arriving[start])[0]
            for stop in range(start + 1, end + 1):
                token = text[start:stop]
                score = scores.get(token)
                if score is not None:
                    arriving[stop].append((start, reached + alpha * score))
                elif stop == start + 1:
                    arriving[stop].append((start, reached + alpha * self._lowest))
                if token not in beginnings:
                    break
        tokens, position = [], end
        while position:
            ways = arriving[position]
            sums = _sums(ways)[1]  # of a single way nothing is drawn
            start = ways[min(bisect(sums, draw() * sums[-1]), len(ways) - 1) if len(ways) > 1 else 0][0]
            tokens.append(text[start:position])
            position = start
        return tokens[::-1]


def _sums(ways: list[tuple[int, float]]) -> tuple[float, list[float]]:
    """The logarithm of the sum of the weights' exponentials, and running sums of these, relative to the highest."""
    if len(ways) == 1:
        return ways[0][1], [1.0]
    top = max(weight for _, weight in ways)
    sums = list(accumulate(exp(weight - top) for _, weight in ways))
    return top + log(sums[-1]), sums
