"""A SentencePiece model that is damaged inside is refused in words, though SentencePiece reads it."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from regard.errors import TextError
from regard.text import Tokenizer
from regard.text.format import fields


def test_a_token_that_is_no_text() -> None:
    whole = Tokenizer.train(["abab baba"], size=20, kind="characters", byte_fallback=False).to_bytes()
    assert "a" in Tokenizer(whole).tokens(range(6))
    with pytest.raises(TextError, match=r"my\.model: this is a damaged SentencePiece model \(.*invalid"):
        Tokenizer(whole.replace(b"\x0a\x01a", b"\x0a\x01\xc1"), name="my.model")


@pytest.mark.parametrize("message", [b"\x80", b"\x0a\x05ab", b"\x0e", b"\x09abc", b"\x08" + b"\xff" * 40 + b"\x01"])
def test_a_message_that_does_not_end(message: bytes) -> None:
    with pytest.raises(ValueError, match="does not end"):
        list(fields(message))


def test_random_bytes_are_no_message_or_one() -> None:
    for seed in range(500):
        with suppress(ValueError):  # and nothing else
            list(fields(random.Random(seed).randbytes(20)))
