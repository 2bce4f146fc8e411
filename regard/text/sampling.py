"""Other segmentations of a line, drawn by a seed: BPE with merges left out, and unigram tokens by their probability.

SentencePiece draws them too, but its generator is salted anew in every process whatever seed it is given, so a run that
is resumed would read other tokens than a run never stopped. Here a draw is a function of its arguments alone. Without
randomness both give what SentencePiece gives.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import accumulate
from math import exp, log
from random import Random

from regard.text.model_file import Algorithm, Kind, algorithm_of, tokens_of

# SentencePiece's own: a character without a token costs this much more than the least likely token.
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
        for number, (token, score, kind) in enumerate(tokens_of(model)):
            if kind in (Kind.NORMAL, Kind.SYMBOL):
                self._ids[token] = number
            if kind == Kind.NORMAL:
                self._scores[token] = score
            elif kind == Kind.SYMBOL:
                symbols.append(token)
            elif kind == Kind.BYTE:
                self._bytes[int(token[3:5], 16)] = number
            elif kind == Kind.UNKNOWN:
                self._unknown = number
        algorithm = algorithm_of(model)
        if algorithm not in (Algorithm.UNIGRAM, Algorithm.BPE):
            raise ValueError("only BPE and unigram models can be drawn from.")
        self._segment = self._unigram if algorithm == Algorithm.UNIGRAM else self._bpe
        self._lowest = min(self._scores.values(), default=0.0) - _UNKNOWN_PENALTY
        self._beginnings = {token[:end] for token in self._scores for end in range(1, len(token) + 1)}
        longest_first = sorted(symbols, key=len, reverse=True)
        self._symbols = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if symbols else None

    def sample(self, normalized: str, *, alpha: float, seed: int) -> list[int]:
        """Ids of a line that SentencePiece has normalised (spaces are U+2581), drawn by `seed`.

        `alpha` is the share of merges left out for BPE (Provilkov et al. 2020), and for unigram the exponent of each
        token's probability (Kudo 2018, equation 8, over all segmentations).
        """
        draw = Random(seed).random
        parts = self._symbols.split(normalized) if self._symbols else [normalized]
        tokens: list[str] = []
        for index, part in enumerate(parts):
            if index % 2:  # a symbol, which is always one token
                tokens.append(part)
            elif part:
                tokens += self._segment(part, alpha, draw)
        return self._numbers(tokens)

    def _numbers(self, tokens: list[str]) -> list[int]:
        ids: list[int] = []
        known = self._ids
        after_unknown = False
        for token in tokens:
            number = known.get(token)
            if number is not None:
                ids.append(number)
            elif self._bytes:
                ids += [self._bytes[byte] for byte in token.encode("utf-8")]
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
        agenda = []  # (-score, left, right, the merged token)
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
        """A segmentation of the text, drawn from all of them by their probabilities.

        Forward, the probabilities of all ways to each position are summed; backward, one way is drawn, token by token.
        """
        scores, beginnings = self._scores, self._beginnings
        end = len(text)
        # Of each token that ends at a position: its beginning, and the log-probability of all ways through it.
        arriving: list[list[tuple[int, float]]] = [[] for _ in range(end + 1)]
        reached = 0.0
        for start in range(end):
            if start:
                reached = _log_of_sum(arriving[start])
            for stop in range(start + 1, end + 1):
                token = text[start:stop]
                score = scores.get(token)
                if score is not None:
                    arriving[stop].append((start, reached + alpha * score))
                elif stop == start + 1:
                    arriving[stop].append((start, reached + alpha * self._lowest))
                if token not in beginnings:
                    break
        tokens = []
        position = end
        while position:
            ways = arriving[position]
            start = ways[0][0] if len(ways) == 1 else _drawn(ways, draw)
            tokens.append(text[start:position])
            position = start
        return tokens[::-1]


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
