"""What a recipe's `[data]` names, read: pairs to learn from, and the sets that a trained model is scored on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from regard.data.store import Store
from regard.errors import DataError
from regard.settings import DataConfig
from regard.text.formats import Pair, format_of, read_labelled, read_pairs, read_texts
from regard.text.languages import split_tag, tag
from regard.text.lines import read_lines, references_of

_UNSPACED = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"(?=\w)[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
"""Words, and each character of Chinese and Japanese; punctuation is neither."""


def pairs_of(data: DataConfig, *, valid: bool = False) -> Iterator[Pair]:
    """All pairs of the training files, or of those of validation, in order; text of one side has empty sources.

    In a multilingual corpus every source must carry a known tag.
    """
    for _, pairs in _files(data, valid):
        yield from pairs


def line_of(data: DataConfig, wanted: Pair, *, valid: bool = False) -> str:
    """Where this pair is first found, for a message: "train.en: line 7"."""
    for name, pairs in _files(data, valid):
        for number, pair in enumerate(pairs, start=1):
            if pair == wanted:
                return f"{name}: line {number:,}"
    return "a line"


def _files(data: DataConfig, valid: bool) -> Iterator[tuple[str, Iterator[Pair]]]:
    for name in data.valid_texts if valid else data.texts:
        yield name, (("", line) for line in _texts(name, data))
    targets = data.valid_target_files if valid else data.target_files
    for index, name in enumerate(data.valid_sources if valid else data.sources):
        if data.labels:
            pairs = read_labelled(name)
        else:
            target = targets[index] if targets else None
            pairs = read_pairs(name, target, fields=data.fields, languages=data.languages)
        yield name, _tagged(pairs, name, data.target_languages) if data.target_languages else pairs


def _texts(name: str, data: DataConfig) -> Iterator[str]:
    return read_texts(name, fields=data.fields, language=data.source_language or data.target_language)


def _tagged(pairs: Iterator[Pair], name: str, languages: tuple[str, ...]) -> Iterator[Pair]:
    for number, pair in enumerate(pairs, start=1):
        if split_tag(pair[0])[0] not in languages:
            raise DataError(
                f"{name}: line {number} ({pair[0][:40]!r}) does not start with a tag of data.target_languages "
                f"({', '.join(map(tag, languages))}); put one and a space before the text."
            )
        yield pair


def sets_of(data: DataConfig, valid: Store) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """What a trained model is scored on: name, lines, and what they should give, one or more sets of it.

    The validation set is called dev. What text of one side should give is itself. Only where a file holds both sides
    may lines in a row have one source; they are one line with several references.
    """
    if lines := range(len(valid)):
        targets = [valid.target.text(i) for i in lines]
        sources = targets if data.texts else [valid.source.text(i) for i in lines]
        apart = data.texts or data.labels or (data.valid_target_files if data.valid_sources else data.target_files)
        yield "dev", *((sources, [targets]) if apart else references_of(zip(sources, targets, strict=True)))
    for name, files in data.test.items():
        if files.text and data.labels:
            pairs = list(read_labelled(files.text))
            yield name, [text for text, _ in pairs], [[label for _, label in pairs]]
        elif files.text:
            texts = [*_texts(files.text, data)]
            yield name, texts, [texts]
        elif files.reference:
            yield name, read_lines(files.source), [read_lines(files.reference)]
        else:
            yield name, *references_of(read_pairs(files.source, fields=data.fields, languages=data.languages))


def how_read(data: DataConfig) -> list[object]:
    """What of the settings, beside the files and `data.fields`, decides what is read of them."""
    named = {format_of(name).named_by for name in (*data.files, *data.valid_files)}
    return [
        *([data.labels] if data.labels else []),
        *(["text", bool(data.context)] if data.texts else []),
        *(["fields"] if data.texts and "fields" in named else []),
        *([data.languages] if "languages" in named else []),
    ]


def hash_of(pair: Pair, data: DataConfig) -> int:
    """64 bits of a source line (or text) without its tag: all translations of it fall on the same side of a split."""
    line = pair[1] if data.texts else split_tag(pair[0])[1]
    return int.from_bytes(blake2b(line.encode(), digest_size=8).digest(), "big")


def lowest_of(values: Iterable[int], count: int) -> list[int]:
    """The lowest `count` different values in order, in memory of that size."""
    kept: set[int] = set()
    bound = 2**64
    for value in values:
        if value < bound:
            kept.add(value)
            if len(kept) > 4 * count:
                kept = set(sorted(kept)[:count])
                bound = max(kept)
    return sorted(kept)[:count]


class Overlap:
    """Text that is not to be learnt from: whether a line has so many words in a row with one of its lines.

    Case and punctuation do not count, and a character of a script without spaces is a word. Of a line with fewer words
    all of them are compared with all those of a line.
    """

    def __init__(self, lines: Iterable[str], words: int) -> None:
        self._words = words
        self._runs: set[tuple[str, ...]] = set()
        for line in lines:
            found = _words_of(line)
            self._runs.update(tuple(found[i : i + words]) for i in range(max(1, len(found) - words + 1)) if found)
        self._first = {run[0] for run in self._runs}

    def __contains__(self, line: str) -> bool:
        found = _words_of(line)
        if len(found) < self._words:
            return tuple(found) in self._runs
        # Almost all runs begin with a word that none of ours begins with: so the others need not be made.
        begun = (i for i, word in enumerate(found) if word in self._first)
        return any(tuple(found[i : i + self._words]) in self._runs for i in begun)


def _words_of(line: str) -> list[str]:
    return _WORDS.findall(line.lower())
