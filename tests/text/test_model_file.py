"""Bytes of tokenizers that strangers made: what is no model is refused as such, and nothing else happens."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable

import pytest

from regard.errors import TextError
from regard.text import TextConfig, Tokenizer
from regard.text.subwords import fields, tokens_of

WORDS = [
    "the",
    "old",
    "man",
    "saw",
    "a",
    "dog",
    "in",
    "der",
    "Stadt",
    "kauft",
    "Äpfel",
    "und",
    "vieles",
    "mehr",
    "你好",
]
LINES = [" ".join(random.Random(seed).choices(WORDS, k=9)) for seed in range(200)]
USED = ["the old man 你好 <2de> xyz", "", "Äpfel und \u2581 \U000f2581", "a" * 300]


@pytest.fixture(scope="module")
def models() -> list[bytes]:
    kinds = ("bpe", "unigram", "characters", "words")
    return [Tokenizer.train(LINES, size=330, shrink=True, kind=kind, symbols=["<2de>"]).to_bytes() for kind in kinds]


def number(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(key: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(key << 3) + number(value)
    return number(key << 3 | 2) + number(len(value)) + value


def in_bytes(model: bytes, rng: random.Random) -> bytes:
    """Some bytes are others; sometimes the end is missing."""
    changed = bytearray(model)
    for _ in range(rng.randint(1, 6)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.2 else changed)


def in_structure(model: bytes, rng: random.Random) -> bytes:
    """Fields are gone, doubled, cut, of another number, or hold what no tokenizer has."""
    items = list(fields(model))
    at = rng.randrange(len(items))
    key, value = items[at]
    way = rng.randrange(7)
    if way == 0:
        del items[at]
    elif way == 1:
        items.insert(rng.randrange(len(items)), items[at])
    elif way == 2:
        items[at] = (key, value[: rng.randrange(len(value) + 1)] if isinstance(value, bytes) else value + 1)
    elif way == 3:
        items[at] = (rng.randrange(1, 9), value)
    elif way == 4:
        text = rng.choice([b"", b"\xff\xfe", b"<0xZZ>", b"<0x41>", "\u2581".encode(), b"a" * 100_000, b"\0"])
        score = rng.choice([float("nan"), float("inf"), -1e38, 0.0])
        token = field(1, text) + number(2 << 3 | 5) + struct.pack("<f", score) + field(3, rng.choice([*range(7), 99]))
        items[at] = (1, token)
    elif way == 5:
        setting = field(rng.choice([3, 4, 24, 25, 35, 40, 41, 42, 43, 44]), rng.choice([0, 1, 2, 5, 2**31 - 1, 2**40]))
        items = [(key, value + setting if key == 2 and isinstance(value, bytes) else value) for key, value in items]
    else:
        rng.shuffle(items)
    return b"".join(field(key, value) for key, value in items)


@pytest.mark.parametrize("way", [in_bytes, in_structure])
def test_500_damaged_models_raise_nothing_but_our_own_error(
    models: list[bytes], way: Callable[[bytes, random.Random], bytes]
) -> None:
    rng = random.Random(1)
    usable = 0
    for turn in range(500):
        damaged = way(models[turn % 4], rng)
        with contextlib.suppress(TextError):
            tokenizer = Tokenizer.from_bytes(damaged)
            for line in USED:
                ids = tokenizer.encode(line)
                tokenizer.decode(ids)
                tokenizer.tokens(ids)
                tokenizer.unknown_count(ids)
                tokenizer.spans(line)
                tokenizer.spans_of(ids)
                tokenizer.sample(line, alpha=0.1, seed=3)
            tokenizer.encode_lines(USED)
            tokenizer.tokens(range(len(tokenizer)))
            tokenizer.decode(range(len(tokenizer)))
            usable += 1
        with contextlib.suppress(TextError):
            tokens_of(damaged)
    assert 10 < usable < 400, "some damage is none, and most is"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (b"", "0 bytes"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "not a SentencePiece model"),
        (b"no model", "not a SentencePiece model"),
    ],
)
def test_what_is_no_model_is_refused(model: bytes, words: str) -> None:
    with pytest.raises(TextError, match=words):
        Tokenizer.from_bytes(model)


def test_a_token_without_end_is_refused(models: list[bytes]) -> None:
    token = field(1, b"a" * 2000) + number(2 << 3 | 5) + struct.pack("<f", 0.0) + field(3, 1)
    with pytest.raises(TextError, match="one of its tokens has 2,000 characters"):
        Tokenizer.from_bytes(models[0] + field(1, token))


@pytest.mark.parametrize("message", [b"\x80", b"\x0a\x05ab", b"\x0e", b"\x09abc", b"\x08" + b"\xff" * 40 + b"\x01"])
def test_a_message_that_does_not_end(message: bytes) -> None:
    with pytest.raises(TextError, match=r"cut short|more than 64 bits|unknown kind"):
        list(fields(message))


def test_a_token_that_is_no_text_is_refused_with_the_files_name() -> None:
    whole = Tokenizer.train(
        ["abab baba"], size=20, kind="characters", settings=TextConfig(byte_fallback=False)
    ).to_bytes()
    assert "a" in Tokenizer(whole).tokens(range(6))
    with pytest.raises(TextError, match=r"my\.model: this is not a SentencePiece model \(.*invalid"):
        Tokenizer(whole.replace(b"\x0a\x01a", b"\x0a\x01\xc1"), name="my.model")
