"""A line of text to the ids of its tokens and back, by SentencePiece (Kudo and Richardson 2018).

Text to ids to text is the identity for any line when `normalization` is "identity" and `byte_fallback` is on: nothing
is tokenised, trimmed or folded behind the user's back. SentencePiece marks a space with U+2581, so that character alone
would come back as a space; it is escaped here with a private-use character, and that character with itself.

Beside tokens that are learnt (bpe, unigram) there are characters, and whole words between spaces: a closed vocabulary,
such as labels, in which any other word is unknown. Ids from right to left are the contrast to writing from left to
right; models, search and training know nothing of it (after Liu et al. 2016, "Agreement on target-bidirectional neural
machine translation", who join both orders).
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

import sentencepiece

from regard.errors import TextError
from regard.machine import atomic_rename
from regard.text.subwords import Algorithm, Kind, Normalization, Order, Sampler, TextConfig, algorithm_of, bytes_field

PAD, UNK, BEGIN, END = 0, 1, 2, 3
MASK = "<mask>"  # the token that stands for one to be filled in
GAPS = tuple(f"<gap{number}>" for number in range(1, 33))  # those of gaps, the first of the first

T = TypeVar("T")

_SPACE, _ESCAPE = "\u2581", "\U000f2581"
_ESCAPED = re.compile(f"[{_SPACE}{_ESCAPE}]")
_UNESCAPED = re.compile(f"{_ESCAPE}([01])")
_LONGEST_LINE = 400_000  # bytes of a line that a vocabulary is learnt from
_MOST_BYTES, _MOST_CHARACTERS = 1 << 26, 1000  # of a model's file, and of one of its tokens
# SentencePiece's names of the kinds; and how an unknown character or word reads, as corpora of words write it too.
_ALGORITHM = {"bpe": "bpe", "unigram": "unigram", "characters": "char", "words": "word"}
_UNKNOWN = {"characters": "\u2047", "words": " <unk>"}


class Tokenizer:
    """A trained vocabulary of tokens. Immutable; safe to share between threads."""

    def __init__(self, model: bytes, *, name: str = "subword model", order: Order = "left-to-right") -> None:
        """Takes the bytes of a SentencePiece model whose special ids are ours; `name` is for messages.

        A line's ids come in this `order`: from right to left its last token is the first.
        """
        if not 0 < len(model) <= _MOST_BYTES:
            raise TextError(f"{name}: a SentencePiece model of {len(model):,} bytes; {_MOST_BYTES:,} are the most.")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            # SentencePiece takes bytes that are no text, and says so only where such a token is used.
            tokens: list[str] = self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
            self._processor.decode([UNK])
        except (RuntimeError, UnicodeDecodeError) as error:
            raise TextError(f"{name}: this is not a SentencePiece model ({error}).") from None
        if (longest := max(map(len, tokens))) > _MOST_CHARACTERS:
            raise TextError(f"{name}: one of its tokens has {longest:,} characters; {_MOST_CHARACTERS:,} are the most.")
        found = tuple(getattr(self._processor, special)() for special in ("pad_id", "unk_id", "bos_id", "eos_id"))
        if found != (PAD, UNK, BEGIN, END):
            raise TextError(
                f"{name}: its ids of pad, unknown, begin and end are {found}; they must be {(PAD, UNK, BEGIN, END)}: "
                "train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3."
            )
        self._model, self._size = model, len(tokens)
        self.order: Order = order
        marks = (normalization for normalization, mark in _REMEMBERED.items() if model.endswith(mark))
        self.normalization: Normalization = next(marks, "identity")

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        size: int,
        kind: Kind = "bpe",
        symbols: Sequence[str] = (),
        shrink: bool = False,
        settings: TextConfig | None = None,
    ) -> Tokenizer:
        """A vocabulary of `size` tokens from raw lines; deterministic. `settings` say how characters are treated.

        Of characters and words `size` is the most that are taken, the most frequent ones; words are never spelt in
        bytes. Raises TextError if the lines cannot give that many tokens, naming the largest possible size (with
        `shrink`, takes that), if `size` has no room for every character, and if there is no text at all.
        """
        for symbol in symbols:
            if not symbol or symbol != "".join(symbol.split()) or _ESCAPED.search(symbol):
                raise TextError(f"symbol {symbol!r} must be a string without spaces (or U+2581), like '<2de>'.")
            if symbols.count(symbol) > 1:
                raise TextError(f"symbol {symbol!r} is given twice; give each symbol once.")
        settings = settings or TextConfig()
        prepared = [_prepared(line, settings.normalization) for line in lines if line.strip()]
        if not prepared:
            raise TextError("there is no text to learn subwords from: every line is empty.")

        def attempt(size: int) -> bytes:
            out = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(prepared),
                model_writer=out,
                vocab_size=size,
                model_type=_ALGORITHM[kind],
                byte_fallback=settings.byte_fallback and kind != "words",
                split_digits=settings.split_digits,
                character_coverage=settings.character_coverage,
                user_defined_symbols=list(symbols),
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=kind != "characters",
                unk_surface=_UNKNOWN.get(kind, " \u2047 "),
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BEGIN,
                eos_id=END,
                max_sentence_length=_LONGEST_LINE,
                minloglevel=2,
            )
            return out.getvalue()

        try:
            model = attempt(size)
        except RuntimeError as error:
            largest = re.search(_LARGEST, str(error))
            if largest is None or not (shrink or kind in ("characters", "words")):
                raise TextError(_why_not_learnt(str(error), size)) from None
            model = attempt(int(largest[1]))
        return cls(model + _REMEMBERED.get(settings.normalization, b""))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a model file. Raises TextError if it is missing or is no such model."""
        try:
            return cls(Path(path).read_bytes(), name=os.fspath(path))
        except OSError as error:
            raise TextError(f"{os.fspath(path)}: the subword model cannot be read ({error.strerror}).") from None

    @classmethod
    def from_bytes(cls, data: bytes) -> Tokenizer:
        """The inverse of `to_bytes`."""
        return cls(data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file; it appears only when whole."""
        part = Path(path).with_name(Path(path).name + ".part")
        part.write_bytes(self._model)
        atomic_rename(part, Path(path))

    def to_bytes(self) -> bytes:
        """The model file's content: a SentencePiece model that other programs read too."""
        return self._model

    def in_order(self, order: Order) -> Tokenizer:
        """The same tokens, written in this order; the very same object if it is their own."""
        return self if order == self.order else Tokenizer(self._model, order=order)

    @property
    def digest(self) -> str:
        """SHA-256 of the model, in hex; from right to left of order and model, for its ids are no other's."""
        order = "" if self.order == "left-to-right" else self.order
        return hashlib.sha256(order.encode() + self._model).hexdigest()

    def __len__(self) -> int:
        """Tokens in the vocabulary, the special ones included."""
        return self._size

    def encode(self, line: str) -> list[int]:
        """The ids of a line's tokens, without begin and end; the same every time."""
        ready = self._ready(line)
        return self._known(ready, self._processor.encode(ready))

    def encode_lines(self, lines: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """`encode` of each line, by so many threads (None: one for each core): for whole files."""
        ready = [self._ready(line) for line in lines]
        found: list[list[int]] = self._processor.encode(ready, num_threads=threads or -1)
        return list(map(self._known, ready, found))

    def sample(self, line: str, *, alpha: float, seed: int) -> list[int]:
        """The ids of one of a line's other segmentations: a pure function of (line, alpha, seed).

        `alpha` is the share of merges left out for BPE (Provilkov et al. 2020) and the smoothing for unigram
        (Kudo 2018); characters and words have one segmentation only.
        """
        if self._whole:
            return self.encode(line)
        normalized = self._processor.normalize(self._ready(line))
        return self._turned(self._sampler.sample(normalized, alpha=alpha, seed=seed))

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Where each token of `encode(line)` stands in the line: its first character and the one behind its last.

        Every byte of a character has the span of the whole character, and so has every part that normalization makes
        of one. A space in front of the line, which SentencePiece adds, has no width.
        """
        ready = self._ready(line)
        found, position = [], len(ready) - len(self._processor.normalize(ready))
        for i, token in self._apart(ready, self._processor.encode(ready)):
            start = position
            if not self._processor.is_byte(i):
                position += len(token)
            elif int(token[3:5], 16) & 0xC0 != 0x80:  # a character's first byte
                position += 1
            else:
                start -= 1
            found.append((max(start, 0), max(position, 0)))
        if ready != line:  # the spans of the line itself that these come from
            ends = _rising([len(self._ready(line[:count])) for count in range(len(line) + 1)])
            for number, (start, end) in enumerate(found):
                first, last = bisect_right(ends, start) - 1, bisect_left(ends, end)
                if last < len(ends) and ends[last] == end:
                    last = bisect_right(ends, end) - 1
                found[number] = (first, max(first, last))
        return self._turned(found)

    def spans_of(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Where each token stands in the text of `decode(ids)`, as `spans` gives it; special ones have no width."""
        ids = self._turned([*ids])
        # A character whose bytes have not all come shows as several; it is as wide as it will be.
        ends = _rising([len(self._text(ids[:count])) for count in range(len(ids) + 1)])
        found: list[tuple[int, int]] = []
        for i, (start, end) in zip(ids, pairwise(ends), strict=True):
            of_byte = start == end and self._processor.is_byte(int(i)) and found
            found.append(found[-1] if of_byte else (start, end))
        return self._turned(found)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; pad, begin and end are dropped. Bytes that are not UTF-8 become U+FFFD."""
        return self._text(self._turned([*ids]))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One string for each id, special ones and bytes (`<0xE4>`) included; U+2581 marks a space."""
        return [self._processor.id_to_piece(i) for i in self._checked(ids)]

    def unknown_count(self, ids: Iterable[int]) -> int:
        """How many ids stand for characters that training never saw: unknown ones and bytes."""
        return sum(i == UNK or self._processor.is_byte(i) for i in self._checked(ids))

    def id_of(self, token: str) -> int | None:
        """The id of exactly this token (a language tag, say), or None if the vocabulary has no such token.

        Of whole words it is the word's, which the space before it belongs to.
        """
        as_word = not token.startswith(_SPACE) and self._algorithm == Algorithm.WORDS
        if as_word and (word := self.id_of(_SPACE + token)) is not None:
            return word
        found: int = self._processor.piece_to_id(token)
        return found if found != UNK or token == self._processor.id_to_piece(UNK) else None

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self._model)

    @cached_property
    def _algorithm(self) -> int:
        """How the model segments, which is asked for only where something is unknown."""
        return algorithm_of(self._model)

    @property
    def _whole(self) -> bool:
        """Whether its tokens are characters or words, each of them one id, known or not."""
        return self._algorithm in (Algorithm.CHARACTERS, Algorithm.WORDS)

    def _ready(self, line: str) -> str:
        """The line as SentencePiece reads it."""
        line = _prepared(line, self.normalization)
        if not line.isascii():
            try:
                line.encode("utf-8")
            except UnicodeEncodeError as error:
                raise TextError(
                    f"{line[error.start]!r} at character {error.start + 1} is half of a surrogate pair, "
                    "no character; remove it."
                ) from None
        return line

    def _known(self, ready: str, ids: list[int]) -> list[int]:
        return self._turned([i for i, _ in self._apart(ready, ids)] if UNK in ids else ids)

    def _apart(self, ready: str, ids: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Ids with their text; a run of unknown characters or words is one id to SentencePiece.

        Where tokens are characters or words, each has an id here. Else the run is unknown, but for one that the
        vocabulary has though it is never segmented into it: a token of the other side, in a model brought over.
        """
        for i, token in zip(ids, self._processor.encode(ready, out_type=str), strict=True):
            if i != UNK:
                yield i, token
            elif not self._whole:
                known = self._processor.piece_to_id(token)
                yield known if self._processor.is_unused(known) else UNK, token
            elif self._algorithm == Algorithm.CHARACTERS:
                yield from ((UNK, character) for character in token)
            else:
                yield from ((UNK, word) for word in re.findall(f"{_SPACE}?[^{_SPACE}]*", token) if word)

    def _turned(self, items: list[T]) -> list[T]:
        """Items of a line's tokens from left to right in this vocabulary's order, or back."""
        return items if self.order == "left-to-right" else items[::-1]

    def _text(self, ids: Sequence[int]) -> str:
        kept = self._checked(i for i in ids if i not in (PAD, BEGIN, END))
        text: str = self._processor.decode(kept)
        if kept[:1] == [UNK] and self._algorithm == Algorithm.WORDS:
            text = text.removeprefix(" ")
        return _UNESCAPED.sub(lambda found: _SPACE if found[1] == "1" else _ESCAPE, text) if _ESCAPE in text else text

    def _checked(self, ids: Iterable[int]) -> list[int]:
        wanted = [int(i) for i in ids]
        if wrong := [i for i in wanted if not 0 <= i < self._size]:
            raise TextError(f"id {wrong[0]} is outside of the vocabulary, which has ids 0 to {self._size - 1}.")
        return wanted


_REMEMBERED: dict[Normalization, bytes] = {
    composed: bytes_field(7000, b"regard:" + composed.encode()) for composed in ("nfc", "nfkc")
}
"""What is appended to a model to remember its normalization: a field that SentencePiece skips."""


def _prepared(line: str, normalization: Normalization) -> str:
    """The line, normalised and escaped."""
    if normalization != "identity":
        line = unicodedata.normalize("NFC" if normalization == "nfc" else "NFKC", line)
    return _ESCAPED.sub(lambda found: _ESCAPE + "01"[found[0] == _SPACE], line) if _ESCAPED.search(line) else line


def _rising(ends: Sequence[int]) -> list[int]:
    """Each number, or the least behind it if that is less."""
    return list(accumulate(reversed(ends), min))[::-1]


_LARGEST = r"Please set it to a value <= (\d+)"
_REASONS = {
    _LARGEST: "a vocabulary of {size:,} tokens is more than this text can give: set size to at most {number:,}, set "
    "shrink = true, or give more text.",
    r"\(vocab_size\) >= \((0)\)": "a vocabulary of {size:,} characters has no room for the 256 bytes that spell "
    "others: set size to at least 261, or byte_fallback = false.",
    r"smaller than required_chars. \d+ vs (\d+)": "a vocabulary of {size:,} tokens has no room for all characters of "
    "this text: set size to more than {number:,}, or character_coverage below 1 (0.9995, say): rarer characters are "
    "then spelt in bytes.",
}
"""What SentencePiece says of a text that it cannot learn from, and what it means."""


def _why_not_learnt(error: str, size: int) -> str:
    for pattern, meaning in _REASONS.items():
        if found := re.search(pattern, error):
            return meaning.format(size=size, number=int(found[1]))
    return f"subwords could not be learnt from this text: {error}"
