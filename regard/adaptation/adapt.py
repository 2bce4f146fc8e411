"""`regard.adapt`: a bundle learns from pairs of another domain, or of its users' corrections, into an adapter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from regard.bundle import Bundle
from regard.errors import ModelError, TextError
from regard.search.table import explained
from regard.tasks.engine import check_torch
from regard.tasks.translate import Translator, load
from regard.text.lines import holds_both, read_lines, read_pairs

from .file import Adapter, digest_of, never_written, read_bundle
from .settings import Learning

Pair = tuple[str, str]
Files = str | Path | tuple[str | Path, str | Path]
Pairs = Files | Sequence[Pair]
"""A file of both sides (.tsv, .jsonl, .parquet, .tmx), two files, or pairs of lines."""
Ids = tuple[list[int], list[int]]
Report = Callable[[Mapping[str, object]], None]
_FEWEST = 10
_MOST_REPLAYED = 4000
"""Pairs of replay that are used, drawn from all; more would not be read in the time."""


def adapt(
    bundle: str | Path | Bundle,
    pairs: Pairs,
    out: str | Path | None = None,
    options: Learning | None = None,
    *,
    replay: Pairs | Sequence[str] = (),
    report: Report | None = None,
    **given: object,
) -> Adapter:
    """Learns an adapter of a bundle from pairs, and writes it to `out`; `options`, or their names as keywords, say how.

    `replay` is what the model knows and should keep: pairs, or lines of text alone, which the model translates itself.
    Without it some of what it knows is forgotten. `report` hears of events as dicts: "read", "resumed", "learn",
    "check". Ctrl-C and SIGTERM end the learning, and the best so far is taken; the same call goes on from there, where
    there is an `out`, beside which it is kept.

    Raises BundleError, TextError and ModelError for what cannot be used, TrainingError where nothing is learnt, and
    CheckpointError where an interrupted learning beside `out` is another one.
    """
    check_torch("learning an adapter")
    from .examples import Examples
    from .learn import adapter_of, learn
    from .unfinished import Unfinished

    tell: Report = report or (lambda event: None)
    settings = learning(options, **given)
    opened = read_bundle(bundle)
    translator = load(opened, device="cpu")
    translator.check_steps("adapters are learnt by models that write token by token")
    languages = translator.languages.source, translator.languages.target
    new = encoded(translator, _read(pairs, languages), "pair")
    if len(new) < _FEWEST:
        raise TextError(f"{len(new)} pairs can be learnt from, and {_FEWEST} are needed; one alone is a correction.")
    tell({"event": "read", "pairs": len(new)})
    home = _replayed(translator, replay, languages, settings)
    tell({"event": "read", "replay": len(home)})
    sets = [Examples.of(each, settings.held_out, settings.seed) if each else None for each in (new, home)]
    assert sets[0] is not None
    unfinished = None if out is None else Unfinished.beside(out, _key(settings, digest_of(opened), new, home))
    parts, about = learn(opened.model(), sets[0], sets[1], settings, tell, unfinished)
    adapter = adapter_of(opened, parts, about)
    if out is not None:
        adapter.write(out, half=True)
    if unfinished is not None and not about["stopped"]:
        unfinished.remove()
    return adapter


def learning(options: Learning | None = None, **given: object) -> Learning:
    """These options with what is given in their place. Raises ModelError for a name or a value that there is not."""
    from pydantic import ValidationError

    try:
        return Learning.model_validate({**(options.model_dump() if options else {}), **given})
    except ValidationError as error:
        raise ModelError(explained(error)) from None


def _key(settings: Learning, *read: object) -> str:
    """What tells one learning from another."""
    return sha256(json.dumps([settings.model_dump(), *read]).encode()).hexdigest()


def encoded(translator: Translator, pairs: Iterable[Pair], what: str) -> list[Ids]:
    """The tokens of pairs; what is empty, longer than the bundle takes, or has tokens that it never writes is left out.

    Raises TextError by number.
    """
    found, never = [], frozenset() if translator.bundle is None else never_written(translator.bundle)
    for number, (source, target) in enumerate(pairs, start=1):
        if not source.strip() or not target.strip():
            continue
        try:
            read = translator.encode([source], first_line=number)[0]
        except TextError as error:
            if "tokens" in str(error):
                continue
            raise TextError(f"{what} {number}: {error}") from None
        written = translator.target.encode(target)
        if read and written and max(len(read), len(written)) <= translator.limit and never.isdisjoint(written):
            found.append((read, written))
    return found


def _read(pairs: Pairs, languages: Pair) -> Iterable[Pair]:
    """Pairs of lines, of files or as they are."""
    if isinstance(pairs, str | Path):
        return read_pairs(pairs, languages=languages)
    if isinstance(pairs, tuple) and len(pairs) == 2 and all(isinstance(each, str | Path) for each in pairs):
        return read_pairs(Path(str(pairs[0])), Path(str(pairs[1])))
    found: list[Pair] = []
    for number, pair in enumerate(pairs, start=1):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
            raise TextError(f"pair {number} is no pair of texts; give (source, target).")
        found.append((pair[0], pair[1]))
    return found


def _replayed(translator: Translator, replay: Pairs | Sequence[str], languages: Pair, settings: Learning) -> list[Ids]:
    """What is replayed: pairs, and lines with the model's own translations; some of them, drawn by the seed."""
    import numpy as np

    if not replay:
        return []
    lines: list[str] = []
    if isinstance(replay, str | Path) and not holds_both(str(replay)):
        lines = read_lines(replay)
    elif not isinstance(replay, str | Path | tuple):
        lines = [each for each in replay if isinstance(each, str)]
    draw = np.random.default_rng(settings.seed)

    def some(count: int, most: int) -> list[int]:
        return [int(i) for i in draw.permutation(count)[:most]]

    if lines:
        chosen = [lines[i] for i in some(len(lines), _MOST_REPLAYED // 4)]  # translating takes of the minutes too
        own = [found.text for found in translator.translate(chosen, beam=1)]
        return encoded(translator, zip(chosen, own, strict=True), "replayed line")
    pairs = list(_read(replay, languages))  # type: ignore[arg-type]  # lines are no pairs
    return encoded(translator, [pairs[i] for i in some(len(pairs), _MOST_REPLAYED)], "replayed pair")


def pairs_of(file: Path, target: Path | None) -> Files:
    """What `--pairs` and `--target` name. Raises TextError for a file of one side without the other's."""
    if target is not None:
        return file, target
    if not holds_both(str(file)):
        raise TextError(
            f"{file}: holds one side of the pairs; name the other with --target, or give .tsv, .jsonl or .tmx."
        )
    return file
