"""Raw text files to subword models and token stores: what training reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from regard import bundle as bundles
from regard import recipe as recipes
from regard.data.corpus import Corpus, write_corpus
from regard.data.filters import Overlap, Report
from regard.data.store import Store, fingerprint
from regard.disk import digest
from regard.errors import DataError, TextError
from regard.recipe import Recipe
from regard.settings.data import DataConfig, Filters
from regard.text.config import TextConfig
from regard.text.formats import read_labelled, read_pairs, read_texts
from regard.text.languages import split_tag, tag
from regard.text.lines import iter_lines, read_lines, references_of
from regard.text.order import in_order
from regard.text.tokenizer import Kind, Tokenizer

__all__ = ["Prepared", "given_by", "pairs_of", "prepare", "sets_of", "with_corpus"]

# Called with what is being counted and how many so far.
Progress = Callable[[str, int], None]
Pair = tuple[str, str]
Given = tuple[Tokenizer | None, Tokenizer | None]
Select = Callable[[Pair], bool]

# Subwords need no more text than this, and learning them holds it in memory.
_SUBWORD_PAIRS = 2_000_000
_SIDES = ("source.model", "target.model")
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


def prepare(
    data: DataConfig,
    text: TextConfig,
    out: Path,
    *,
    given: Given = (None, None),
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Learn the subwords and build the stores of training and validation pairs, or find them as they were left.

    A side whose subwords are `given` uses those.

    They lie in `out`/prepared, or in `data.cache` under their fingerprint. What is there is used if the files' content
    and the settings are the same. A large corpus is encoded by as many processes as there are `workers`, if more than
    one; what they make is the same, however many. Raises TextError or DataError, naming file and line, for text that
    cannot be used.
    """
    if not data.files:
        raise DataError(
            "no text is named: name files in data.source (and data.target) or in data.text, or hand in a corpus."
        )
    hashes = _hashes((*data.files, *data.valid_files, *data.excludes))
    files = [[hashes[name], "".join(Path(name).suffixes)] for name in data.files]
    held_out = None if data.valid_files else data.valid_lines
    kind = [*([data.labels] if data.labels else []), *(["text", bool(data.context)] if data.texts else [])]
    left_out = [data.exclude_words, *(hashes[name] for name in data.excludes)] if data.excludes else []
    training = fingerprint(files, held_out, data.fields, data.target_languages, *kind, *left_out)
    learnt = fingerprint(training, _SUBWORD_PAIRS, text.model_dump(exclude={"sampling", "order"}))
    root = _root(data, out, learnt if text.order == "left-to-right" else fingerprint(learnt, text.order))
    notes = _Notes(root / "prepare.json")

    limit = _limit(data, notes, training, progress) if held_out is not None else None
    select = _learnt_from(limit, data)
    source, target = _tokenizer(data, text, root, notes, learnt, select, given, progress)
    target = in_order(target, text.order)

    def store(name: str, pairs: Iterator[Pair], select: Select | None, filters: Filters, *content: object) -> Store:
        vocabularies = (source.digest, target.digest)
        return Store.build(
            root / name,
            pairs,
            source,
            target,
            filters,
            fingerprint(content, vocabularies, filters.model_dump()),
            select=select,
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
    return Prepared(source, target, train, valid, train.report, hashes)


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


class _Notes:
    """What is known about the files in a directory, on disk: each entry with the fingerprint it holds for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            found = {}
        self._entries: dict[str, Any] = found if isinstance(found, dict) else {}

    def get(self, name: str, fingerprint: str) -> Any:
        entry = self._entries.get(name)
        return entry["value"] if isinstance(entry, dict) and entry.get("fingerprint") == fingerprint else None

    def put(self, name: str, fingerprint: str, value: Any) -> None:
        self._entries[name] = {"fingerprint": fingerprint, "value": value}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._entries, indent=1) + "\n", "utf-8")
        os.replace(part, self._path)


def with_corpus(recipe: Recipe, corpus: Any, out: Path, *, resume: bool = False) -> Recipe:
    """The recipe with a corpus that was handed in written down under `out` and named in its `[data]`.

    `corpus` is whatever `Corpus.of` takes. Raises DataError and TextError for one that cannot be used, RecipeError for
    one of another kind than the recipe's objective wants, and, with `resume`, for another than the run was begun with.
    """
    data = write_corpus(Corpus.of(corpus), recipe.data, out / "corpus", resume=resume)
    tables = recipe.model_dump(mode="json", exclude_none=True)
    return recipes.validate({**tables, "data": data.model_dump(mode="json", exclude_none=True)}, name="the corpus")


def sets_of(data: DataConfig, valid: Store) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """What a trained model is scored on: name, lines, and what they should give, one or more sets of it.

    The validation set is called dev. What text of one side should give is itself. Only where a file holds both sides
    may lines in a row have one source; they are one line with several references.
    """
    if lines := range(len(valid)):
        targets = [valid.target_text(i) for i in lines]
        sources = targets if data.texts else [valid.source_text(i) for i in lines]
        apart = data.valid_target_files if data.valid_sources else data.target_files
        one_file = not (data.texts or data.labels or apart)
        yield "dev", *(references_of(zip(sources, targets, strict=True)) if one_file else (sources, [targets]))
    for name, files in data.test.items():
        if files.text and data.labels:
            pairs = list(read_labelled(files.text))
            yield name, [text for text, _ in pairs], [[label for _, label in pairs]]
        elif files.source and not files.reference:
            pairs = list(read_pairs(files.source, fields=data.fields, languages=data.languages))
            yield name, *references_of(pairs)
        elif files.text:
            texts = list(read_texts(files.text, fields=data.fields, language=data.languages[0] or data.languages[1]))
            yield name, texts, [texts]
        else:
            yield name, read_lines(files.source), [read_lines(files.reference)]


def given_by(recipe: Recipe) -> Given:
    """The vocabularies of the bundle that training starts from; the labels of a classifier are the data's own."""
    if not recipe.train.start_from:
        return None, None
    bundle = bundles.load(recipe.train.start_from)
    return bundle.source, None if recipe.objective == "classify" else bundle.target


def pairs_of(data: DataConfig, *, valid: bool = False) -> Iterator[Pair]:
    """All pairs of the training files, or of those of validation, in order; text of one side has empty sources.

    In a multilingual corpus every source must carry a known tag.
    """
    for name in data.valid_texts if valid else data.texts:
        language = data.source_language or data.target_language
        yield from (("", line) for line in read_texts(name, fields=data.fields, language=language))
    targets = data.valid_target_files if valid else data.target_files
    for index, name in enumerate(data.valid_sources if valid else data.sources):
        if data.labels:
            pairs = read_labelled(name)
        else:
            target = targets[index] if targets else None
            pairs = read_pairs(name, target, fields=data.fields, languages=data.languages)
        for number, pair in enumerate(pairs, start=1):
            if data.target_languages and split_tag(pair[0])[0] not in data.target_languages:
                wanted = ", ".join(map(tag, data.target_languages))
                raise DataError(
                    f"{name}: line {number} ({pair[0][:40]!r}) does not start with a tag of data.target_languages "
                    f"({wanted}); put one and a space before the text."
                )
            yield pair


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
        rules.append(lambda pair: _hash(pair, data) > limit)
    if data.excludes:
        overlap = Overlap((line for name in data.excludes for line in iter_lines(name)), data.exclude_words)
        rules.append(lambda pair: not any(side in overlap for side in (split_tag(pair[0])[1], pair[1])))
    return (lambda pair: all(rule(pair) for rule in rules)) if rules else None


def _held_out(limit: int, data: DataConfig) -> Select:
    return lambda pair: _hash(pair, data) <= limit


def _hash(pair: Pair, data: DataConfig) -> int:
    """64 bits of a source line without its tag, so that all translations of it fall on the same side of a split.

    Of text of one side, of the line.
    """
    line = pair[1] if data.texts else split_tag(pair[0])[1]
    return int.from_bytes(blake2b(line.encode(), digest_size=8).digest(), "big")


def _limit(data: DataConfig, notes: _Notes, training: str, progress: Progress | None) -> int:
    """Source lines whose hash is at most this are held out: `valid_lines` different ones, or a tenth if fewer."""
    if (known := notes.get("held_out_limit", training)) is not None:
        return int(known)
    lowest = _lowest((_hash(pair, data) for pair in _counted(data, "pairs read", progress)), 10 * data.valid_lines)
    if len(lowest) < 2:
        raise DataError(
            f"{', '.join(data.sources or data.texts)}: {len(lowest)} different source line is too few to hold some out "
            "for validation; give more, or validation files (data.valid_source, data.valid_target)."
        )
    limit = lowest[min(data.valid_lines, max(1, len(lowest) // 10)) - 1]
    notes.put("held_out_limit", training, limit)
    return limit


def _lowest(values: Iterable[int], count: int) -> list[int]:
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


def _counted(data: DataConfig, what: str, progress: Progress | None) -> Iterator[Pair]:
    for count, pair in enumerate(pairs_of(data), start=1):
        if progress is not None and count % 10_000 == 0:
            progress(what, count)
        yield pair


def _tokenizer(
    data: DataConfig,
    text: TextConfig,
    root: Path,
    notes: _Notes,
    learnt: str,
    select: Select | None,
    given: Given,
    progress: Progress | None,
) -> tuple[Tokenizer, Tokenizer]:
    """The models of both sides: those given, those in `root` if they were learnt from the same, or new ones."""
    wanted: dict[str, tuple[Kind, tuple[int, ...]]] = {
        "source.model": (text.kind, (0,)),
        "target.model": (text.target_kind or text.kind, (1,)),
    }
    if given != (None, None):
        wanted = {name: wanted[name] for name, model in zip(_SIDES, given, strict=True) if model is None}
    elif text.joint or data.texts:
        wanted = {"subwords.model": (text.kind, (0, 1))}
    if (models := _known_tokenizers(root, list(wanted), notes.get("subwords", learnt))) is None:
        pairs = _thinned(filter(select, _counted(data, "pairs read", progress)), _SUBWORD_PAIRS)
        if progress is not None:
            progress("pairs to learn subwords from", len(pairs))
        models = []
        for name, (kind, sides) in wanted.items():
            models.append(_learn([pair[side] for side in sides for pair in pairs], kind, data, text))
            models[-1].save(root / name)
        notes.put("subwords", learnt, [model.digest for model in models])
    return given[0] or models[0], given[1] or models[-1]


def _known_tokenizers(root: Path, names: list[str], digests: Any) -> list[Tokenizer] | None:
    if not isinstance(digests, list) or len(digests) != len(names):
        return None
    try:
        models = [Tokenizer.load(root / name) for name in names]
    except TextError:
        return None
    return models if [model.digest for model in models] == digests else None


def _learn(lines: list[str], kind: Kind, data: DataConfig, text: TextConfig) -> Tokenizer:
    tags = [tag(code) for code in data.target_languages]
    return Tokenizer.train(
        lines,
        size=text.size,
        kind=kind,
        byte_fallback=text.byte_fallback,
        split_digits=text.split_digits,
        normalization=text.normalization,
        character_coverage=text.character_coverage,
        symbols=list(dict.fromkeys([*tags, *text.symbols])),
        shrink=text.shrink,
    )


def _thinned(pairs: Iterable[Pair], most: int) -> list[Pair]:
    """Every pair, or every 2nd, 4th, 8th … so that at most `most` are kept; spread evenly over the corpus."""
    kept: list[Pair] = []
    step = 1
    for index, pair in enumerate(pairs):
        if index % step == 0:
            kept.append(pair)
            if len(kept) > most:
                kept = kept[::2]
                step *= 2
    return kept
