"""Raw text files to subword models and token stores: what training reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard import recipe as recipes
from regard.data.batches import Sampling
from regard.data.corpus import Corpus, write_corpus
from regard.data.filters import Overlap, Report
from regard.data.reading import hash_of, how_read, line_of, lowest_of, pairs_of
from regard.data.store import Store, fingerprint
from regard.disk import digest
from regard.errors import DataError, TextError
from regard.recipe import Recipe
from regard.settings.data import DataConfig, Filters
from regard.text.config import TextConfig
from regard.text.formats import Pair
from regard.text.languages import split_tag
from regard.text.lines import iter_lines
from regard.text.tokenizer import Tokenizer

from .tokenizers import MOST_PAIRS, Given, Notes, Progress, tokenizers

Lengths = tuple[int, int]
"""Most tokens of a source and of a target, ends counted; 0: any number."""
Select = Callable[[Pair], bool]

# Validation text is scored as it is: nothing in it is dropped.
_KEEP_ALL = Filters(max_length=2**31, max_ratio=2.0**31, drop_empty=False)


@dataclass(frozen=True)
class Prepared:
    """What `prepare` made or found."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # the very same object if joint
    train: Store
    valid: Store
    report: Report  # of the training pairs
    data_hashes: dict[str, str]  # input file -> SHA-256 of its bytes, in hex
    longest: Lengths  # see `prepare`

    def sampling(self, alpha: float) -> Sampling | None:
        """Subword sampling as training does it; None for none."""
        return Sampling(alpha, self.source_tokenizer, self.target_tokenizer, self.longest) if alpha else None


def prepare(
    data: DataConfig,
    text: TextConfig,
    out: Path,
    *,
    given: Given = (None, None),
    longest: Lengths = (0, 0),
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Learn the subwords and build the stores of training and validation pairs, or find them as they were left.

    They lie in `out`/prepared, or in `data.cache` under their fingerprint. What is there is used if the files' content
    and the settings are the same. A side whose tokenizer is `given` uses that. `longest` is how many tokens of a source
    and of a target, ends counted, the model can take. A large corpus is encoded by as many processes as there are
    `workers`, if more than one; what they make is the same, however many. Raises TextError or DataError, naming file
    and line, for text that cannot be used.
    """
    if not data.files:
        raise DataError(
            "no text is named: name files in data.source (and data.target) or in data.text, or hand in a corpus."
        )
    hashes = _hashes((*data.files, *data.valid_files, *data.excludes))
    kind, training = how_read(data), _training(data, hashes)
    learnt = fingerprint(training, MOST_PAIRS, text.model_dump(exclude={"sampling", "order"}))
    root = _root(data, out, learnt if text.order == "left-to-right" else fingerprint(learnt, text.order))
    notes = Notes(root / "prepare.json")

    limit = None if data.valid_files else _limit(data, notes, training, progress)
    select = _learnt_from(limit, data)
    learning = filter(select, _counted(data, "pairs read", progress))
    source, target = tokenizers(data, text, learning, notes, learnt, given=given, progress=progress)
    target = target.in_order(text.order)

    def store(name: str, pairs: Iterator[Pair], select: Select | None, filters: Filters, *content: object) -> Store:
        vocabularies = (source.digest, target.digest)
        return Store.build(
            root / name,
            pairs if select is None else (pair if select(pair) else None for pair in pairs),
            source,
            target,
            filters,
            fingerprint(content, vocabularies, filters.model_dump()),
            workers=workers,
            progress=progress,
        )

    train = store("train", pairs_of(data), select, _filters(data), "train", training)
    if limit is None:
        valid_files = [hashes[name] for name in data.valid_files]
        valid = store("valid", pairs_of(data, valid=True), None, _KEEP_ALL, "valid", valid_files, data.fields, *kind)
    else:
        pairs = _counted(data, "pairs searched for those held out", progress)
        valid = store("valid", pairs, _held_out(limit, data), _filters(data), "held out", training)
    for made, of_valid in ((train, False), (valid, limit is None)):
        check_lines(made, data, longest, valid=of_valid)
    return Prepared(source, target, train, valid, train.report, hashes, longest)


def check_lines(store: Store, data: DataConfig, longest: Lengths, *, valid: bool) -> None:
    """Raises DataError for a line that is longer than the model can take, and for a label that is no single token."""

    def pair(line: int) -> Pair:
        return store.source_text(line), store.target_text(line)

    sides = (("source", store.source), ("target", store.target)) if not data.context else ()
    for (name, side), most in zip(sides, longest, strict=False):
        for line in np.flatnonzero(side.lengths >= most)[:1].tolist() if most else ():
            way = "split or remove it" if valid else f"set data.filters.max_length to at most {most - 1:,}"
            raise DataError(
                f"{line_of(data, pair(line), valid=valid)}: the {name} has {side.lengths[line] + 1:,} tokens, its end "
                f"counted, and the model has positions for {most:,}; {way}, or give the model more positions."
            )
    if data.target_kind.one_token:
        for line in np.flatnonzero(store.target_lengths != 1)[:1].tolist():
            raise DataError(
                f"{line_of(data, pair(line), valid=valid)}: the label {store.target_text(line)!r} is "
                f'{store.target_lengths[line]} tokens, and a class is one; set text.target_kind = "words" and '
                "text.joint = false, and write labels without spaces."
            )


def _training(data: DataConfig, hashes: dict[str, str]) -> str:
    """The fingerprint of the pairs that are trained on, before the filters."""
    files = [[hashes[name], "".join(Path(name).suffixes)] for name in data.files]
    held_out = None if data.valid_files else data.valid_lines
    left_out = [data.exclude_words, *(hashes[name] for name in data.excludes)] if data.excludes else []
    return fingerprint(files, held_out, data.fields, data.target_languages, *how_read(data), *left_out)


def _root(data: DataConfig, out: Path, learnt: str) -> Path:
    if data.cache is None:
        root = Path(out) / "prepared"
    else:
        # Runs that differ in anything prepared get directories of their own; the others share one.
        valid = [data.valid_files] if data.texts else [data.valid_sources, data.valid_target_files]
        root = Path(data.cache) / fingerprint(learnt, data.filters.model_dump(), valid)[:16]
    root.mkdir(parents=True, exist_ok=True)
    return root


def _hashes(names: Iterable[str]) -> dict[str, str]:
    hashes = {}
    for name in names:
        try:
            hashes[name] = digest(Path(name))
        except OSError as error:
            raise TextError(f"{name}: the file cannot be read ({error.strerror}); check the path.") from None
    return hashes


def with_corpus(recipe: Recipe, corpus: Any, out: Path, *, resume: bool = False) -> Recipe:
    """The recipe with a corpus that was handed in written down under `out` and named in its `[data]`.

    `corpus` is whatever `Corpus.of` takes. Raises DataError and TextError for one that cannot be used, RecipeError for
    one of another kind than the recipe's objective wants, and, with `resume`, for another than the run was begun with.
    """
    data = write_corpus(Corpus.of(corpus), recipe.data, out / "corpus", resume=resume)
    tables = recipe.model_dump(mode="json", exclude_none=True)
    return recipes.validate({**tables, "data": data.model_dump(mode="json", exclude_none=True)}, name="the corpus")


def _filters(data: DataConfig) -> Filters:
    """Of text of one side only the lines' length is looked at, of a stream nothing, of labels not their length."""
    if data.context:
        return _KEEP_ALL
    if data.texts:
        return data.filters.model_copy(update={"drop_empty": False, "max_ratio": 2.0**31})
    return data.filters if data.target_kind.like_source else data.filters.model_copy(update={"max_ratio": 2.0**31})


def _learnt_from(limit: int | None, data: DataConfig) -> Select | None:
    """Which pairs are trained on; None: all."""
    rules: list[Select] = []
    if data.texts and not data.context and data.filters.drop_empty:
        rules.append(lambda pair: bool(pair[1].strip()))
    if limit is not None:
        rules.append(lambda pair: hash_of(pair, data) > limit)
    if data.excludes:
        overlap = Overlap((line for name in data.excludes for line in iter_lines(name)), data.exclude_words)
        rules.append(lambda pair: not any(side in overlap for side in (split_tag(pair[0])[1], pair[1])))
    return (lambda pair: all(rule(pair) for rule in rules)) if rules else None


def _held_out(limit: int, data: DataConfig) -> Select:
    return lambda pair: hash_of(pair, data) <= limit


def _limit(data: DataConfig, notes: Notes, training: str, progress: Progress | None) -> int:
    """Source lines whose hash is at most this are held out: `valid_lines` different ones, or a tenth if fewer."""
    if (known := notes.get("held_out_limit", training)) is not None:
        return int(known)
    lowest = lowest_of((hash_of(pair, data) for pair in _counted(data, "pairs read", progress)), 10 * data.valid_lines)
    if len(lowest) < 2:
        raise DataError(
            f"{', '.join(data.sources or data.texts)}: {len(lowest)} different source line is too few to hold some out "
            "for validation; give more, or validation files (data.valid_source, data.valid_target)."
        )
    limit = lowest[min(data.valid_lines, max(1, len(lowest) // 10)) - 1]
    notes.put("held_out_limit", training, limit)
    return limit


def _counted(data: DataConfig, what: str, progress: Progress | None) -> Iterator[Pair]:
    for count, pair in enumerate(pairs_of(data), start=1):
        if progress is not None and count % 10_000 == 0:
            progress(what, count)
        yield pair
