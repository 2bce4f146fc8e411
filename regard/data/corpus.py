"""Text that is handed in instead of named: any iterable, written down as files that a recipe can name.

Preparing reads a corpus several times, and a run that goes on must read the same text again; a generator or a streamed
data set can promise neither. So each item is taken once, in order, checked, and written to a .jsonl file of the run,
whose SHA-256 tells it from any other text; memory does not grow with it. From there on it is a corpus like any other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from regard.disk import atomic_rename, digest
from regard.errors import DataError
from regard.settings import DataConfig, check_set_name
from regard.text.formats import FIELDS, holds_both, read_pairs, read_texts, texts_of
from regard.text.lines import check_line, write_lines

_ONCE = "; an iterator gives its items once, so hand in a new one."


@dataclass(frozen=True)
class Corpus:
    """Sets of text, each an iterable of pairs (source, target), of lines, or of dicts with the fields `data.fields`.

    A target may be a list of references. A set may be a file too, by its path.
    """

    train: Iterable[object]
    valid: Iterable[object] | None = None
    """What to validate with; None: `data.valid_lines` of the training set are held out."""
    test: Mapping[str, Iterable[object]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Given) -> Corpus:
        """A corpus as it is; sets by name, such as a `DatasetDict`; or an iterable, which is the training set.

        Of sets by name, train is learnt from, valid, validation or dev validated with, and any other is a test set.
        """
        if isinstance(given, Corpus):
            return given
        if not isinstance(given, Mapping):
            return cls(given)
        if "train" not in given:
            raise DataError(
                f"a corpus of several sets names them, and one is train; this one has: {', '.join(map(str, given))}. "
                "For columns of sources and targets give zip(sources, targets)."
            )
        valid = next((name for name in ("valid", "validation", "dev") if name in given), None)
        tests = {name: items for name, items in given.items() if name not in ("train", valid)}
        return cls(given["train"], None if valid is None else given[valid], tests)


Given = Corpus | Mapping[str, Iterable[object]] | Iterable[object]


def write_corpus(corpus: Corpus, data: DataConfig, folder: Path, *, resume: bool = False) -> DataConfig:
    """Write the sets of a corpus into `folder`; returns `data` with these files as what is read.

    With `resume` they must be what was written there before. Raises DataError for a recipe that names files itself, for
    items that are no text and for another corpus than before.
    """
    if data.files or data.valid_files or data.test:
        raise DataError(
            "the recipe names files in [data] and a corpus was handed in as well; leave one of them out "
            "(data.source, target, text, valid_… and test)."
        )
    for name in corpus.test:
        try:
            check_set_name(name)
        except ValueError as error:
            raise DataError(str(error)) from None
    train = iter(corpus.train) if not isinstance(corpus.train, (str, os.PathLike)) else corpus.train
    one_side = False
    if isinstance(train, Iterator):
        if (first := next(train, None)) is None:
            raise DataError(f"the corpus has no item in train{_ONCE}")
        one_side = _of_one_side(first, data)
        train = chain([first], train)
    elif not holds_both(os.fspath(train)):
        one_side = True
    names = (data.fields if len(data.fields) == 1 else ("text",)) if one_side else data.fields
    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, items: Iterable[object]) -> str:
        path = folder / f"{name}.jsonl"
        part = path.with_name(f".{name}.jsonl.part")
        keys = ("text",) if one_side else FIELDS
        rows = _rows(items, names, data, f"corpus, {name}")
        try:
            records = (dict(zip(keys, row, strict=True)) for row in rows)
            if not write_lines(part, (json.dumps(record, ensure_ascii=False) for record in records)):
                raise DataError(f"the corpus has no item in {name}{_ONCE}")
            if resume and path.exists() and digest(path) != digest(part):
                raise DataError(
                    f"{path}: the run was begun with another {name} set than the corpus has now, so it cannot go on "
                    "exactly; hand in the same, or none at all to go on with what was written down."
                )
            atomic_rename(part, path)
        finally:
            part.unlink(missing_ok=True)
        return str(path)

    key = "text" if one_side else "source"
    update: dict[str, object] = {key: write("train", train), "fields": FIELDS}
    if corpus.valid is not None:
        update[f"valid_{key}"] = write("valid", corpus.valid)
    update["test"] = {name: {key: write(f"test-{name}", items)} for name, items in corpus.test.items()}
    return DataConfig.model_validate({**data.model_dump(exclude={*update}), **update})


def _of_one_side(item: object, data: DataConfig) -> bool:
    if not isinstance(item, Mapping):
        return isinstance(item, str)
    return len(data.fields) == 1 or (data.fields == FIELDS and "source" not in item and "text" in item)


def _rows(items: Iterable[object], names: Sequence[str], data: DataConfig, where: str) -> Iterator[Sequence[str]]:
    """The texts of each item of a set: one, or source and target."""
    if isinstance(items, (str, os.PathLike)):
        if len(names) == 2:
            yield from read_pairs(items, fields=names, languages=data.languages)
        else:
            yield from ((text,) for text in read_texts(items, fields=names, language=data.languages[0]))
        return
    for number, item in enumerate(items, start=1):
        here = f"{where}, item {number}"
        if isinstance(item, Mapping):
            yield from texts_of(item, names, here)
        elif isinstance(item, str) and len(names) == 1:
            yield (check_line(item, here),)
        elif isinstance(item, (tuple, list)) and len(item) == len(names):
            yield from texts_of(dict(zip(names, item, strict=True)), names, here)
        else:
            wanted = "a line or a dict" if len(names) == 1 else "a pair (source, target) or a dict"
            raise DataError(f"{here} is {item!r:.60}, and each item of this corpus must be {wanted}, as its first is.")
