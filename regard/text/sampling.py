"""Other segmentations of a line, drawn by a seed: BPE with merges left out, and unigram pieces by their probability.

SentencePiece draws them too, but its generator is salted anew in every process whatever seed it is given, so a run that
is resumed would read other pieces than a run never stopped. Here a draw is a function of its arguments alone. Without
randomness both give what SentencePiece gives.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import accumulate
from math import exp, log
from random import Random

__all__ = ["Sampler"]

# Fields and kinds of SentencePiece's model format (sentencepiece_model.proto).
_PIECE, _TRAINER = 1, 2
_NORMAL, _UNKNOWN, _SYMBOL, _BYTE = 1, 2, 4, 6
_UNIGRAM, _BPE = 1, 2
# SentencePiece's own: a character without a piece costs this much more than the least likely piece.
_UNKNOWN_PENALTY = 10.0

Draw = Callable[[], float]


class Sampler:
    """Draws segmentations with the vocabulary of a SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        """Takes the model's bytes; only BPE and unigram models can be drawn from (ValueError)."""
        self._ids: dict[str, int] = {}
        self._scores: dict[str, float] = {}
        self._bytes: dict[int, int] = {}
        self._unknown = 0
        symbols = []
        kind, number = _UNIGRAM, 0
        for field, value in _fields(model):
            if field == _TRAINER and isinstance(value, bytes):
                kind = next((int(v) for f, v in _fields(value) if f == 3 and isinstance(v, int)), _UNIGRAM)
            if field != _PIECE or not isinstance(value, bytes):
                continue
            piece, score, type_ = _piece(value)
            if type_ in (_NORMAL, _SYMBOL):
                self._ids[piece] = number
            if type_ == _NORMAL:
                self._scores[piece] = score
            elif type_ == _SYMBOL:
                symbols.append(piece)
            elif type_ == _BYTE:
                self._bytes[int(piece[3:5], 16)] = number
            elif type_ == _UNKNOWN:
                self._unknown = number
            number += 1
        if kind not in (_UNIGRAM, _BPE):
            raise ValueError("only BPE and unigram models can be drawn from.")
        self._segment = self._unigram if kind == _UNIGRAM else self._bpe
        self._lowest = min(self._scores.values(), default=0.0) - _UNKNOWN_PENALTY
        self._beginnings = {piece[:end] for piece in self._scores for end in range(1, len(piece) + 1)}
        longest_first = sorted(symbols, key=len, reverse=True)
        self._symbols = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if symbols else None

    def sample(self, normalized: str, *, alpha: float, seed: int) -> list[int]:
        """Ids of a line that SentencePiece has normalised (spaces are U+2581), drawn by `seed`.

        `alpha` is the share of merges left out for BPE (Provilkov et al. 2020), and for unigram the exponent of each
        piece's probability (Kudo 2018, equation 8, over all segmentations).
        """
        draw = Random(seed).random
        parts = self._symbols.split(normalized) if self._symbols else [normalized]
        pieces: list[str] = []
        for index, part in enumerate(parts):
            if index % 2:  # a symbol, which is always one piece
                pieces.append(part)
            elif part:
                pieces += self._segment(part, alpha, draw)
        return self._numbers(pieces)

    def _numbers(self, pieces: list[str]) -> list[int]:
        ids: list[int] = []
        known = self._ids
        after_unknown = False
        for piece in pieces:
            number = known.get(piece)
            if number is not None:
                ids.append(number)
            elif self._bytes:
                ids += [self._bytes[byte] for byte in piece.encode("utf-8")]
            elif not after_unknown:  # like SentencePiece, one id for a run of unknown characters
                ids.append(self._unknown)
            after_unknown = number is None
        return ids

    def _bpe(self, text: str, alpha: float, draw: Draw) -> list[str]:
        """The best merge first, of equals the leftmost; each is left out with probability `alpha`."""
        scores = self._scores
        end = len(text)
        symbols = list(text)
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        agenda = []  # (-score, left, right, the merged piece)
        for left in range(end - 1):
            pair = text[left : left + 2]
            if pair in scores:
                agenda.append((-scores[pair], left, left + 1, pair))
        heapify(agenda)
        while agenda:
            _, left, right, pair = heappop(agenda)
            # A side that was merged elsewhere is empty or longer than it was.
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(pair):
                continue
            if draw() < alpha:
                continue
            symbols[left], symbols[right] = pair, ""
            following = after[left] = after[right]
            previous = before[left]
            if following < end:
                before[following] = left
                longer = pair + symbols[following]
                if longer in scores:
                    heappush(agenda, (-scores[longer], left, following, longer))
            if previous >= 0:
                longer = symbols[previous] + pair
                if longer in scores:
                    heappush(agenda, (-scores[longer], previous, left, longer))
        return [symbol for symbol in symbols if symbol]

    def _unigram(self, text: str, alpha: float, draw: Draw) -> list[str]:
        """Forward: the summed probability of all ways to each place; backward: a way, drawn piece by piece."""
        scores, beginnings = self._scores, self._beginnings
        end = len(text)
        # For each place the pieces that end there: where they begin, and the log-probability of all ways through them.
        arriving: list[list[tuple[int, float]]] = [[] for _ in range(end + 1)]
        reached = 0.0
        for start in range(end):
            if start:
                reached = _log_of_sum(arriving[start])
            for stop in range(start + 1, end + 1):
                piece = text[start:stop]
                score = scores.get(piece)
                if score is not None:
                    arriving[stop].append((start, reached + alpha * score))
                elif stop == start + 1:
                    arriving[stop].append((start, reached + alpha * self._lowest))
                if piece not in beginnings:
                    break
        pieces = []
        place = end
        while place:
            ways = arriving[place]
            start = ways[0][0] if len(ways) == 1 else _drawn(ways, draw)
            pieces.append(text[start:place])
            place = start
        return pieces[::-1]


def _drawn(ways: list[tuple[int, float]], draw: Draw) -> int:
    """One of the ways' beginnings, as likely as its weight says."""
    top = max(weight for _, weight in ways)
    sums = list(accumulate(exp(weight - top) for _, weight in ways))
    return ways[min(bisect(sums, draw() * sums[-1]), len(ways) - 1)][0]


def _log_of_sum(ways: list[tuple[int, float]]) -> float:
    if len(ways) == 1:
        return ways[0][1]
    top = max(weight for _, weight in ways)
    return top + log(sum(exp(weight - top) for _, weight in ways))


def _piece(value: bytes) -> tuple[str, float, int]:
    """A piece's text, score and kind."""
    text, score, kind = "", 0.0, _NORMAL
    for field, content in _fields(value):
        if field == 1 and isinstance(content, bytes):
            text = content.decode("utf-8")
        elif field == 2 and isinstance(content, bytes):
            score = struct.unpack("<f", content)[0]
        elif field == 3 and isinstance(content, int):
            kind = content
    return text, score, kind


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in protocol-buffer format: number and value, in order."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        wire = key & 7
        if wire == 0:
            yield key >> 3, number()
        else:
            size = {1: 8, 5: 4}[wire] if wire != 2 else number()
            yield key >> 3, message[at : at + size]
            at += size
