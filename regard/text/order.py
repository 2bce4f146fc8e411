"""A target that is written from its last token to its first: the contrast to writing from left to right.

Whoever encodes and decodes with such a vocabulary turns the ids on the way, so that models, search and training know
nothing of it (after Liu et al. 2016, "Agreement on target-bidirectional neural machine translation", who join both
orders).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from regard.text.tokenizer import Tokenizer


class Backwards(Tokenizer):
    """The same tokens, of which a line's last one comes first."""

    order = "right-to-left"

    def __init__(self, model: bytes, *, name: str = "subword model") -> None:
        super().__init__(model, name=name)
        self._forwards = Tokenizer(model, name=name)

    @property
    def digest(self) -> str:
        """SHA-256 of order and model, in hex: its ids are no other vocabulary's."""
        return hashlib.sha256(self.order.encode() + self.to_bytes()).hexdigest()

    def encode(self, line: str) -> list[int]:
        return self._forwards.encode(line)[::-1]

    def encode_lines(self, lines: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        return [ids[::-1] for ids in self._forwards.encode_lines(lines, threads=threads)]

    def sample(self, line: str, *, alpha: float, seed: int) -> list[int]:
        return self._forwards.sample(line, alpha=alpha, seed=seed)[::-1]

    def spans(self, line: str) -> list[tuple[int, int]]:
        return self._forwards.spans(line)[::-1]

    def spans_of(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return self._forwards.spans_of(ids[::-1])[::-1]

    def decode(self, ids: Iterable[int]) -> str:
        return self._forwards.decode([*ids][::-1])


ORDERS: dict[str, type[Tokenizer]] = {"left-to-right": Tokenizer, "right-to-left": Backwards}
"""What `text.order` names."""


def in_order(tokenizer: Tokenizer, order: str) -> Tokenizer:
    """The same tokens, written in this order; the very same object if it is their own."""
    return tokenizer if tokenizer.order == order else ORDERS[order].from_bytes(tokenizer.to_bytes())
