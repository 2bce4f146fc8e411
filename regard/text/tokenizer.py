"""A line of text to the ids of its tokens and back, by SentencePiece (Kudo and Richardson 2018).

Text to ids to text is the identity for any line when `normalization` is "identity" and `byte_fallback` is on: nothing
is tokenised, trimmed or folded behind the user's back. SentencePiece marks a space with U+2581, so that character alone
would come back as a space; it is escaped here with a private-use character, and that character with itself.

Beside tokens that are learnt (bpe, unigram) there are characters, and whole words between spaces: a closed vocabulary,
such as labels, in which any other word is unknown.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal, get_args

import sentencepiece

from regard.disk import atomic_rename
from regard.errors import TextError
from regard.text.config import TextConfig
from regard.text.model_file import Algorithm, algorithm_of
from regard.text.sampling import Sampler

PAD, UNK, BEGIN, END = 0, 1, 2, 3
MASK = "<mask>"
"""The token that stands for one to be filled in."""
GAPS = tuple(f"<gap{number}>" for number in range(1, 33))
"""The tokens that stand for gaps to be filled in, the first for the first."""

Kind = Literal["bpe", "unigram", "characters", "words"]
Normalization = Literal["identity", "nfc", "nfkc"]

_SPACE = "\u2581"
_ESCAPE = "\U000f2581"
_ESCAPED = re.compile(f"[{_SPACE}{_ESCAPE}]")
_UNESCAPED = re.compile(f"{_ESCAPE}([01])")
_LONGEST_LINE = 400_000
"""Bytes of a line that a vocabulary is learnt from."""
_MOST_BYTES, _MOST_CHARACTERS = 1 << 26, 1000
"""Of a model's file, and of one of its tokens."""
_ALGORITHM = {"bpe": "bpe", "unigram": "unigram", "characters": "char", "words": "word"}
"""SentencePiece's names of the kinds."""
_UNKNOWN = {"characters": "\u2047", "words": " <unk>"}
"""How an unknown character or word reads; corpora of words write it so, and SentencePiece reads it so."""


class Tokenizer:
    """A trained vocabulary of tokens. Immutable; safe to share between threads."""

    order = "left-to-right"
    """In which a line's tokens come: see `regard.text.order`."""

    def __init__(self, model: bytes, *, name: str = "subword model") -> None:
        """Takes the bytes of a SentencePiece model whose special ids are ours; `name` is for messages."""
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
        self._model = model
        self._size = len(tokens)
        self._algorithm = algorithm_of(model)
        self._sampler: Sampler | None = None  # made when it is first asked for
        self.normalization: Normalization = _normalization_in(model)

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
        _check_symbols(symbols)
        settings = settings or TextConfig()
        normalization = settings.normalization
        given = kind in ("characters", "words")  # by the text, not learnt from it
        prepared = [_escape(_normalize(line, normalization)) for line in lines if line.strip()]
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
            largest = _largest_size(error)
            if largest is None or not (shrink or given):
                raise _training_error(error, size, largest) from None
            model = attempt(largest)
        return cls(model + _normalization_field(normalization))

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
        path = Path(path)
        part = path.with_name(path.name + ".part")
        part.write_bytes(self._model)
        atomic_rename(part, path)

    def to_bytes(self) -> bytes:
        """The model file's content: a SentencePiece model that other programs read too."""
        return self._model

    @property
    def digest(self) -> str:
        """SHA-256 of the model, in hex."""
        return hashlib.sha256(self._model).hexdigest()

    def __len__(self) -> int:
        """Tokens in the vocabulary, the special ones included."""
        return self._size

    def encode(self, line: str) -> list[int]:
        """The ids of a line's tokens, without begin and end; the same every time."""
        return self._read(self._ready(line))

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Where each token of `encode(line)` stands in the line: its first character and the one behind its last.

        Every byte of a character has the span of the whole character, and so has every part that normalization makes
        of one. A space in front of the line, which SentencePiece adds, has no width.
        """
        ready = self._ready(line)
        ahead = len(self._processor.normalize(ready)) - len(ready)
        found, position = [], -ahead
        texts: list[str] = self._processor.encode(ready, out_type=str)
        for i, token in self._apart(zip(self._processor.encode(ready), texts, strict=True)):
            start = position
            if not self._processor.is_byte(i):
                position += len(token)
            elif int(token[3:5], 16) & 0xC0 != 0x80:  # a character's first byte
                position += 1
            else:
                start -= 1
            found.append((max(start, 0), max(position, 0)))
        return found if ready == line else self._in_raw(line, found)

    def spans_of(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Where each token stands in the text of `decode(ids)`, as `spans` gives it; special ones have no width."""
        ends = [len(self.decode(ids[:count])) for count in range(len(ids) + 1)]
        # A character whose bytes have not all come shows as several; it is as wide as it will be.
        ends = list(accumulate(reversed(ends), min))[::-1]
        found: list[tuple[int, int]] = []
        for i, (start, end) in zip(ids, pairwise(ends), strict=True):
            of_byte = start == end and self._processor.is_byte(int(i)) and found
            found.append(found[-1] if of_byte else (start, end))
        return found

    def _in_raw(self, line: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The spans of the line itself that these spans of the prepared line (`_ready`) come from."""
        ends = [len(self._ready(line[:count])) for count in range(len(line) + 1)]
        ends = list(accumulate(reversed(ends), min))[::-1]
        found = []
        for start, end in spans:
            first, last = bisect_right(ends, start) - 1, bisect_left(ends, end)
            if last < len(ends) and ends[last] == end:
                last = bisect_right(ends, end) - 1
            found.append((first, max(first, last)))
        return found

    def encode_lines(self, lines: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """`encode` of each line, by so many threads (None: one for each core): for whole files."""
        ready = [self._ready(line) for line in lines]
        found: list[list[int]] = self._processor.encode(ready, num_threads=threads or -1)
        return [self._read(line) if UNK in ids else ids for line, ids in zip(ready, found, strict=True)]

    def sample(self, line: str, *, alpha: float, seed: int) -> list[int]:
        """The ids of one of a line's other segmentations: a pure function of (line, alpha, seed).

        `alpha` is the share of merges left out for BPE (Provilkov et al. 2020) and the smoothing for unigram
        (Kudo 2018); characters and words have one segmentation only.
        """
        if self._whole:
            return self.encode(line)
        if self._sampler is None:
            self._sampler = Sampler(self._model)
        return self._sampler.sample(self._processor.normalize(self._ready(line)), alpha=alpha, seed=seed)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; pad, begin and end are dropped. Bytes that are not UTF-8 become U+FFFD."""
        kept = [int(i) for i in ids if i not in (PAD, BEGIN, END)]
        self._check(kept)
        text: str = self._processor.decode(kept)
        if self._algorithm == Algorithm.WORDS and kept[:1] == [UNK]:
            text = text.removeprefix(" ")
        return _UNESCAPED.sub(_original, text) if _ESCAPE in text else text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One string for each id, special ones and bytes (`<0xE4>`) included; U+2581 marks a space."""
        wanted = [int(i) for i in ids]
        self._check(wanted)
        return [self._processor.id_to_piece(i) for i in wanted]

    def unknown_count(self, ids: Iterable[int]) -> int:
        """How many ids stand for characters that training never saw: unknown ones and bytes."""
        wanted = [int(i) for i in ids]
        self._check(wanted)
        return sum(i == UNK or self._processor.is_byte(i) for i in wanted)

    def id_of(self, token: str) -> int | None:
        """The id of exactly this token (a language tag, say), or None if the vocabulary has no such token.

        Of whole words it is the word's, which the space before it belongs to.
        """
        as_word = self._algorithm == Algorithm.WORDS and not token.startswith(_SPACE)
        if as_word and (word := self.id_of(_SPACE + token)) is not None:
            return word
        found: int = self._processor.piece_to_id(token)
        return found if found != UNK or token == self._processor.id_to_piece(UNK) else None

    @property
    def _whole(self) -> bool:
        """Whether its tokens are characters or words, each of them one id, known or not."""
        return self._algorithm in (Algorithm.CHARACTERS, Algorithm.WORDS)

    def _read(self, ready: str) -> list[int]:
        ids: list[int] = self._processor.encode(ready)
        if UNK not in ids:
            return ids
        return [i for i, _ in self._apart(zip(ids, self._processor.encode(ready, out_type=str), strict=True))]

    def _apart(self, tokens: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Ids with their text; a run of unknown characters or words is one id to SentencePiece.

        Where tokens are characters or words, each has an id here. Else the run is unknown, but for one that the
        vocabulary has though it is never segmented into it: a token of the other side, in a model brought over.
        """
        for i, token in tokens:
            if i != UNK:
                yield i, token
            elif not self._whole:
                known = self._processor.piece_to_id(token)
                yield known if self._processor.is_unused(known) else UNK, token
            elif self._algorithm == Algorithm.CHARACTERS:
                yield from ((UNK, character) for character in token)
            else:
                yield from ((UNK, word) for word in re.findall(f"{_SPACE}?[^{_SPACE}]*", token) if word)

    def _ready(self, line: str) -> str:
        line = _escape(_normalize(line, self.normalization))
        if not line.isascii():
            try:
                line.encode("utf-8")
            except UnicodeEncodeError as error:
                raise TextError(
                    f"{line[error.start]!r} at character {error.start + 1} is half of a surrogate pair, "
                    "no character; remove it."
                ) from None
        return line

    def _check(self, ids: Sequence[int]) -> None:
        if ids and (min(ids) < 0 or max(ids) >= self._size):
            wrong = next(i for i in ids if not 0 <= i < self._size)
            raise TextError(f"id {wrong} is outside of the vocabulary, which has ids 0 to {self._size - 1}.")


def _escape(line: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPE + "01"[found.group() == _SPACE], line) if _ESCAPED.search(line) else line


def _original(found: re.Match[str]) -> str:
    return _SPACE if found.group(1) == "1" else _ESCAPE


def _normalize(line: str, normalization: Normalization) -> str:
    if normalization == "identity":
        return line
    return unicodedata.normalize("NFC" if normalization == "nfc" else "NFKC", line)


def _normalization_field(normalization: Normalization) -> bytes:
    """What is appended to a model to remember its normalization: a field (number 7000) that SentencePiece skips."""
    if normalization == "identity":
        return b""
    value = b"regard:" + normalization.encode()
    tag = 7000 << 3 | 2
    return bytes([tag & 127 | 128, tag >> 7 & 127 | 128, tag >> 14, len(value)]) + value


def _normalization_in(model: bytes) -> Normalization:
    choices: Iterator[Normalization] = (n for n in get_args(Normalization) if n != "identity")
    return next((n for n in choices if model.endswith(_normalization_field(n))), "identity")


def _check_symbols(symbols: Sequence[str]) -> None:
    for symbol in symbols:
        if not symbol or symbol != "".join(symbol.split()) or _ESCAPED.search(symbol):
            raise TextError(f"symbol {symbol!r} must be a string without spaces (and without U+2581), like '<2de>'.")
        if symbols.count(symbol) > 1:
            raise TextError(f"symbol {symbol!r} is given twice; give each symbol once.")


def _largest_size(error: RuntimeError) -> int | None:
    found = re.search(r"Please set it to a value <= (\d+)", str(error))
    return int(found.group(1)) if found else None


def _training_error(error: RuntimeError, size: int, largest: int | None) -> TextError:
    if largest is not None:
        return TextError(
            f"a vocabulary of {size:,} tokens is more than this text can give: set size to at most {largest:,}, "
            "set shrink = true, or give more text."
        )
    if "(vocab_size) >= (0)" in str(error):
        return TextError(
            f"a vocabulary of {size:,} characters has no room for the 256 bytes that spell others: "
            "set size to at least 261, or byte_fallback = false."
        )
    if found := re.search(r"smaller than required_chars. (\d+) vs (\d+)", str(error)):
        return TextError(
            f"a vocabulary of {size:,} tokens has no room for all characters of this text: set size to more than "
            f"{int(found.group(2)):,}, or character_coverage below 1 (0.9995, say): "
            "rarer characters are then spelt in bytes."
        )
    return TextError(f"subwords could not be learnt from this text: {error}")
