"""Raw text files to tokenizers and token stores: what training reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from regard import bundle as bundles
from regard import recipe as recipes
from regard.data.corpus import Corpus, Overlap, Texts, write_corpus
from regard.data.sampling import Sampling
from regard.data.shards import Report
from regard.data.store import Progress, Store, fingerprint, hash_of, how_read, line_of, lowest_of, pairs_of
from regard.errors import DataError, ModelError, RecipeError, TextError
from regard.machine import digest
from regard.models import FAMILIES
from regard.models.blocks import new_model
from regard.nn.layers import only_references
from regard.recipe import Recipe
from regard.settings import DataConfig, Filters
from regard.text.lines import REFUSED, Pair, iter_lines, split_tag, tag
from regard.text.subwords import Kind, TextConfig
from regard.text.tokenizer import Tokenizer
from regard.train import OBJECTIVES, OPTIMIZERS, Inputs, TrainConfig

Given = tuple[Tokenizer | None, Tokenizer | None]
Select = Callable[[Pair], bool]

MOST_PAIRS = 2_000_000  # subwords need no more text than this, and learning them holds it in memory
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
    longest: tuple[int, int]  # see `prepare`

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Tokens of both sides."""
        return len(self.source_tokenizer), len(self.target_tokenizer)

    def sampling(self, text: TextConfig) -> Sampling | None:
        """Subword sampling and noise as training has them; None for none."""
        if not (text.sampling or text.noise):
            return None
        return Sampling(text.sampling, self.source_tokenizer, self.target_tokenizer, self.longest, text.noise)


def prepare(
    data: DataConfig,
    text: TextConfig,
    out: Path,
    *,
    given: Given = (None, None),
    longest: tuple[int, int] = (0, 0),
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Learn the subwords and build the stores of training and validation pairs, or find them as they were left.

    They lie in `out`/prepared, or in `data.cache` under their fingerprint. What is there is used if the files' content
    and the settings are the same. A side whose tokenizer is `given` uses that. `longest` is how many tokens of a source
    and of a target, ends counted, the model can take. A large corpus is encoded by so many `workers` (processes), with
    the same result however many. Raises TextError or DataError, naming file and line, for text that cannot be used.
    """
    if not data.files:
        raise DataError(
            "no text is named: name files in data.source (and data.target) or in data.text, or hand in a corpus."
        )
    hashes = _hashes((*data.files, *data.valid_files, *data.excludes))
    kind, training = how_read(data), _training(data, hashes)
    learnt = fingerprint(training, MOST_PAIRS, text.model_dump(exclude={"sampling", "noise", "order"}))
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
        pairs, most = _counted(data, "pairs searched for those held out", progress), limit
        valid = store("valid", pairs, lambda pair: hash_of(pair, data) <= most, _filters(data), "held out", training)
    for made, of_valid in ((train, False), (valid, limit is None)):
        check_lines(made, data, longest, valid=of_valid)
    return Prepared(source, target, train, valid, train.report, hashes, longest)


def check_lines(store: Store, data: DataConfig, longest: tuple[int, int], *, valid: bool) -> None:
    """Raises DataError for a line that is longer than the model can take, and for a label that is no single token."""

    def where(line: int) -> str:
        return line_of(data, store.pair(line), valid=valid)

    sides = (("source", store.source), ("target", store.target)) if not data.context else ()
    for (name, side), most in zip(sides, longest, strict=False):
        for line in np.flatnonzero(side.lengths >= most)[:1].tolist() if most else ():
            way = "split or remove it" if valid else f"set data.filters.max_length to at most {most - 1:,}"
            raise DataError(
                f"{where(line)}: the {name} has {side.lengths[line] + 1:,} tokens, its end "
                f"counted, and the model has positions for {most:,}; {way}, or give the model more positions."
            )
    if data.target_kind.one_token:
        for line in np.flatnonzero(store.target.lengths != 1)[:1].tolist():
            raise DataError(
                f"{where(line)}: the label {store.target.text(line)!r} is {store.target.lengths[line]} tokens, and a "
                'class is one; set text.target_kind = "words" and text.joint = false, and write labels without spaces.'
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


def _hashes(names: Sequence[str]) -> dict[str, str]:
    try:
        return {name: digest(Path(name)) for name in names}
    except OSError as error:  # a damaged disk's names no file
        raise TextError(f"{error.filename or ', '.join(names)}: {error.strerror}; check the path.") from None


def with_corpus(recipe: Recipe, corpus: Texts, out: Path, *, resume: bool = False) -> Recipe:
    """The recipe with a corpus that was handed in written down under `out` and named in its `[data]`.

    `corpus` is whatever `Corpus.of` takes. Raises DataError and TextError for one that cannot be used, RecipeError for
    one of another kind than the recipe's objective wants, and, with `resume`, for another than the run was begun with.
    """
    data = write_corpus(Corpus.of(corpus), recipe.data, out / "corpus", resume=resume)
    return recipes.changed(recipe, {"data": data.model_dump(mode="json", exclude_none=True)}, name="the corpus")


def _filters(data: DataConfig) -> Filters:
    """Of text of one side only the lines' length is looked at, of a stream nothing, of labels not their length."""
    if data.context:
        return _KEEP_ALL
    any_ratio = {"drop_empty": data.filters.drop_empty and not data.texts, "max_ratio": _KEEP_ALL.max_ratio}
    return data.filters.model_copy(update=any_ratio if data.texts or not data.target_kind.like_source else {})


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


def prepare_for(recipe: Recipe, out: Path, progress: Progress | None = None) -> Prepared:
    """What `prepare` makes of a recipe's corpus, each line of which its model takes."""
    longest = longest_of(recipe)
    return prepare(recipe.corpus, recipe.spelling, out, given=given_by(recipe), longest=longest, progress=progress)


def longest_of(recipe: Recipe) -> tuple[int, int]:
    """The most tokens of a source and of a target, ends counted, that the model takes; 0: any number.

    A model of these sizes without memory is asked. Raises RecipeError where a window of a stream is longer.
    """
    family, context = FAMILIES[recipe.model.family], recipe.data.context
    if (most := family.capacity(recipe.model)) is None:
        return 0, 0
    if context > most:
        raise RecipeError(
            f"data.context ({context}) is more than the {most} positions of the model; lower it, or raise "
            "model.max_positions."
        )
    if OBJECTIVES[recipe.objective].reads == "text":
        return 0, 0 if context else most
    with FakeTensorMode(), only_references(), torch.random.fork_rng(devices=()), torch.no_grad():
        model = new_model(recipe.model, 50, 50).eval()
        source, target = (not _takes(model, recipe, *tokens) for tokens in ((most + 1, 1), (1, most + 1)))
    return most if source else 0, most if target and not recipe.corpus.target_kind.one_token else 0


def _takes(model: nn.Module, recipe: Recipe, *tokens: int) -> bool:
    """Whether the model takes a pair of so many source and target tokens."""
    try:
        OBJECTIVES[recipe.objective].hidden(model, Inputs.of_size(1, *tokens), None)
    except ModelError:
        return False
    return True


def copies(config: TrainConfig) -> dict[str, float]:
    """What training holds beside the weights, in as many numbers as they have, or so many times as many."""
    state, average = OPTIMIZERS[config.optimizer].state, float(config.average == "ema")
    return {"gradients": 1.0, "optimiser state": state, "moving average": average}


def check_shortest(recipe: Recipe, valid: Store) -> None:
    """Raises RecipeError where `[search]` asks for more tokens than it permits for a short line of the dev set."""
    side, search = valid.target if recipe.data.texts else valid.source, recipe.search
    if FAMILIES[recipe.model.family].kind != "encoder-decoder" or not search.min_length:
        return
    line = int(np.argmin(side.lengths))
    if search.min_length > (most := int(side.lengths[line]) + search.extra_length):
        where = line_of(recipe.corpus, valid.pair(line), valid=bool(recipe.data.valid_files))
        raise RecipeError(
            f"[search] min_length = {search.min_length}: {where} permits at most {most} tokens (its own "
            f"{side.lengths[line]} and extra_length = {search.extra_length}); lower min_length or raise extra_length."
        )


def check_named(recipe: Recipe) -> None:
    """Raises an error for a file or bundle that the recipe names and that is not there, and for metrics likewise."""
    needed = dict.fromkeys((*recipe.data.files, *recipe.data.valid_files, *recipe.data.excludes), "check the path")
    for name, files in recipe.data.test.items():
        needed |= dict.fromkeys(files.files, f"data.test.{name} names it; correct or remove it")
    for file, way_out in needed.items():
        if not Path(file).is_file():
            what, _ = REFUSED[IsADirectoryError if Path(file).is_dir() else FileNotFoundError]
            raise TextError(f"{file}: {what}; {way_out}.")
    given_by(recipe)
    if recipe.data.metrics and not recipe.data.trees:
        from .evaluate import wanted_of

        wanted_of(recipe.data.metrics)


class Notes:
    """What is known about the files in a directory, on disk: each entry with the fingerprint it holds for."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path.parent
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            found = {}
        self._entries: dict[str, object] = found if isinstance(found, dict) else {}

    def get(self, name: str, fingerprint: str) -> Any:
        entry = self._entries.get(name)
        return entry["value"] if isinstance(entry, dict) and entry.get("fingerprint") == fingerprint else None

    def put(self, name: str, fingerprint: str, value: object) -> None:
        self._entries[name] = {"fingerprint": fingerprint, "value": value}
        part = self.path.with_suffix(f".{os.getpid()}.part")  # runs that share a cache write here at once
        part.write_text(json.dumps(self._entries, indent=1) + "\n", "utf-8")
        os.replace(part, self.path)


def given_by(recipe: Recipe) -> Given:
    """The vocabularies of the bundle that training starts from; the labels of a classifier are the data's own."""
    if not recipe.train.start_from:
        return None, None
    bundle = bundles.load(recipe.train.start_from)
    return bundle.source, None if recipe.corpus.target_kind.one_token else bundle.target


def tokenizers(
    data: DataConfig,
    text: TextConfig,
    pairs: Iterable[Pair],
    notes: Notes,
    fingerprint: str,
    *,
    given: Given = (None, None),
    progress: Progress | None = None,
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides: those given, those beside `notes` if their fingerprint is the same, or new ones."""
    wanted: dict[str, tuple[Kind, tuple[int, ...]]] = {
        "source.model": (text.kind, (0,)),
        "target.model": (text.target_kind or text.kind, (1,)),
    }
    if given != (None, None):
        wanted = {name: wanted[name] for name, model in zip(_SIDES, given, strict=True) if model is None}
    elif text.joint or data.texts:
        wanted = {"subwords.model": (text.kind, (0, 1))}
    if (models := _known(notes.folder, list(wanted), notes.get("subwords", fingerprint))) is None:
        sample = _thinned(pairs, MOST_PAIRS)
        if progress is not None:
            progress("pairs to learn subwords from", len(sample))
        models = []
        symbols = [*dict.fromkeys([*map(tag, data.target_languages), *text.symbols])]
        for name, (kind, sides) in wanted.items():
            lines = [pair[side] for side in sides for pair in sample]
            made = Tokenizer.train(lines, size=text.size, kind=kind, symbols=symbols, shrink=text.shrink, settings=text)
            made.save(notes.folder / name)
            models.append(made)
        notes.put("subwords", fingerprint, [model.digest for model in models])
    return given[0] or models[0], given[1] or models[-1]


def _known(folder: Path, names: list[str], digests: object) -> list[Tokenizer] | None:
    if not isinstance(digests, list) or len(digests) != len(names):
        return None
    try:
        models = [Tokenizer.load(folder / name) for name in names]
    except TextError:
        return None
    return models if [model.digest for model in models] == digests else None


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
