"""A reader trained from questions in SQuAD's form: by the training loop of translators, into a bundle.

What a run leaves in its directory: `recipe.toml`, `subwords.model`, `checkpoints/`, `log.jsonl`, `bundle/` and
`results.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from regard import bundle as bundles
from regard import recipe as recipes
from regard.bundle import Golden, Provenance, versions
from regard.data.batches import Batches
from regard.data.store import Store
from regard.errors import RecipeError
from regard.machine import locked, stopping, write_atomically
from regard.models.blocks import device_named, new_model, parameter_count
from regard.recipe import Recipe
from regard.tasks.golden import answers
from regard.text import Tokenizer
from regard.train import Options, Report, Step, Trainer, inputs
from regard.train.checkpoint import Journal

from . import family
from .answer import answered, longest_line
from .lines import Window, joined, windows_of
from .model import PASSAGE, SPAN, SpanReader, answers_alone
from .score import Scores, scores_of
from .squad import Question, read_questions

_GOLDEN = 8
_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class _Side:
    """Rows of ids, as a side of a store gives them."""

    rows: Sequence[NDArray[np.int64]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(row) for row in self.rows], np.int64)

    def ids_of(self, lines: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.concatenate([self.rows[line] for line in lines.tolist()])


class _Store:
    """Windows as a store: at the token that an answer starts with the target is the place of its last one, else -1."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.source = _Side([np.array(window.ids, np.int64) for window in windows])
        self.target = _Side([_targets(window) for window in windows])

    def __len__(self) -> int:
        return len(self.source.rows)


def _targets(window: Window) -> NDArray[np.int64]:
    row = np.full(len(window.ids), -1, np.int64)
    if window.answer is not None:
        row[window.answer[0]] = window.answer[1]
    return row


def learn(
    recipe: Recipe | str | Path,
    out: str | Path,
    train: str | Path | Sequence[Question],
    valid: str | Path | Sequence[Question],
    *,
    resume: bool = False,
    report: Report = lambda event: None,
) -> Path:
    """Train a reader on questions into the directory `out`; returns the path of its bundle.

    `valid` are questions that choose the weights, by what the recipe's `train.validate_with` names: loss, exact or f1.
    `report` hears of each event of training. Raises Interrupted after Ctrl-C or SIGTERM, its checkpoint saved, and a
    RegardError for what the user can mend.
    """
    family.add()
    recipe = recipe if isinstance(recipe, Recipe) else recipes.load(recipe)
    _check(recipe)
    recipe = _settled(recipe)
    out = Path(out)
    sets = [each if not isinstance(each, str | Path) else read_questions(each) for each in (train, valid)]
    out.mkdir(parents=True, exist_ok=True)
    with locked(out / ".lock") as free:
        if not free:
            raise RecipeError(f"{out}: another process is training in this directory; choose another --out.")
        return _learn(recipe, out, sets[0], sets[1], resume, report)


def _settled(recipe: Recipe) -> Recipe:
    """The recipe without choices that depend on the moment, so that a run goes on as it began."""
    data, train = recipe.data, recipe.train
    data = data.model_copy(update={"batch_tokens": data.batch_tokens or _BATCH_TOKENS})
    train = train.model_copy(update={"precision": "float32" if train.precision == "auto" else train.precision})
    return recipe.model_copy(update={"data": data, "train": train})


def _check(recipe: Recipe) -> None:
    """Raises RecipeError for a recipe of another family, or that names files of lines."""
    if recipe.model.family != "span-reader":
        raise RecipeError(f'model.family is {recipe.model.family!r}, and `regard read train` trains "span-reader".')
    if recipe.data.side:
        raise RecipeError("a reader's questions are given on the command line; leave the files of [data] out.")
    if recipe.text.order != "left-to-right":
        raise RecipeError("a reader's passages are read from left to right; leave text.order out.")


def _learn(
    recipe: Recipe, out: Path, train: Sequence[Question], valid: Sequence[Question], resume: bool, report: Report
) -> Path:
    digests = {name: _digest(each) for name, each in (("train", train), ("valid", valid))}
    _begin(recipe, out, digests, resume)
    tokenizer = _tokenizer(recipe, out, train)
    torch.manual_seed(recipe.seed)
    model = new_model(recipe.model, tokenizer, tokenizer).to(device_named(recipe.train.device))
    windows = windows_of(tokenizer, train, longest_line(recipe), PASSAGE)
    held = windows_of(tokenizer, valid, longest_line(recipe), PASSAGE)
    journal = Journal(out, report)
    validate = partial(_validate, recipe=recipe, tokenizer=tokenizer, questions=valid, windows=held)
    options = Options(validate=validate, report=journal)
    trainer = Trainer(
        model,
        _batches(windows, recipe),
        recipe.train,
        out,
        seed=recipe.seed,
        width=recipe.model.width,
        objective=SPAN,
        options=options,
    )
    taken_up = trainer.resume() if resume else None
    journal.open(trainer.progress.update)
    report(
        {
            "event": "start",
            "parameters": parameter_count(model),
            "questions": len(train),
            "windows": len(windows),
            "tokens": len(tokenizer),
            "resumed_from": str(taken_up) if taken_up else None,
        }
    )

    def ask_to_stop() -> None:
        trainer.stop = True

    try:
        with stopping(ask_to_stop):
            trainer.run()
    finally:
        journal.close()
    return _finish(recipe, out, trainer, tokenizer, valid, digests)


def _begin(recipe: Recipe, out: Path, digests: dict[str, str], resume: bool) -> None:
    """Write down what the run is; raises RecipeError where another one is there already."""
    file = out / "questions.json"
    begun = file.exists() and any((out / "checkpoints").glob("update-*"))
    if begun and not resume:
        raise RecipeError(f"{out}: holds a run already; go on with --resume, or choose another --out.")
    if begun and (recipes.load(out / "recipe.toml") != recipe or json.loads(file.read_text("utf-8")) != digests):
        raise RecipeError(
            f"{out}: was begun with another recipe or other questions; resume with those, or choose another --out."
        )
    write_atomically(out / "recipe.toml", recipes.to_toml(recipe))
    write_atomically(file, json.dumps(digests) + "\n")


def _digest(questions: Sequence[Question]) -> str:
    return hashlib.sha256(repr([(q.question, q.passage, q.answers, q.id) for q in questions]).encode()).hexdigest()


def _tokenizer(recipe: Recipe, out: Path, questions: Sequence[Question]) -> Tokenizer:
    """The vocabulary of the training questions and passages, learnt once."""
    file, text = out / "subwords.model", recipe.text
    if not file.exists():
        lines = dict.fromkeys(part for q in questions for part in joined(q.question, q.passage, PASSAGE).split(PASSAGE))
        symbols = tuple(dict.fromkeys((PASSAGE, *text.symbols)))
        Tokenizer.train(lines, size=text.size, kind=text.kind, symbols=symbols, shrink=text.shrink, settings=text).save(
            file
        )
    return Tokenizer.load(file)


def _batches(windows: Sequence[Window], recipe: Recipe) -> Batches:
    tokens, seed = recipe.data.batch_tokens, recipe.seed
    return Batches(cast(Store, _Store(windows)), batch_tokens=tokens, layout="padded", seed=seed, view=answers_alone)


@torch.inference_mode()
def _validate(
    model: torch.nn.Module,
    *,
    recipe: Recipe,
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    windows: Sequence[Window],
) -> dict[str, float]:
    """The loss of the held-out questions, and how well they are answered."""
    step = Step(model, 0.0, recipe.train.chunk, objective=SPAN)
    batches = _batches(windows, recipe).one_epoch(sort=True)
    device = next(model.parameters()).device
    scores = SPAN.judge(model, (step.outputs(inputs(batch, device, positions=0)) for batch in batches), 0)
    found = _scored(cast(SpanReader, model), recipe, tokenizer, questions)
    return {**scores, "exact": found.exact, "f1": found.f1}


def _scored(model: SpanReader, recipe: Recipe, tokenizer: Tokenizer, questions: Sequence[Question]) -> Scores:
    answers = answered(model, recipe, tokenizer, questions)
    return scores_of(questions, {q.id: a.text for q, a in zip(questions, answers, strict=True)})


def _finish(
    recipe: Recipe,
    out: Path,
    trainer: Trainer,
    tokenizer: Tokenizer,
    valid: Sequence[Question],
    digests: dict[str, str],
) -> Path:
    """Make the bundle and `results.json`."""
    model = cast(SpanReader, trainer.model)
    weights = trainer.final_weights()
    with torch.no_grad():
        for name, parameter in model.float().named_parameters():
            parameter.copy_(weights[name])
    model.eval().to("cpu")
    scores, now = _scored(model, recipe, tokenizer, valid), trainer.progress
    training = {"updates": now.update, "questions": now.tokens, "trained": round(now.trained, 1)}
    asked = [joined(q.question, q.passage, PASSAGE) for q in valid[:: max(1, len(valid) // _GOLDEN)][:_GOLDEN]]
    asked = [line for line in asked if len(tokenizer.encode(line)) < longest_line(recipe)]
    rows = [tokenizer.encode(line) for line in asked]
    told = answers(model, recipe, tokenizer, rows)
    provenance = Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        data={"sha256": digests},
        training=training,
        notes={"dev questions": scores.to_dict()},
    )
    bundles.save(
        out / "bundle",
        recipe=recipe,
        weights={name: parameter.detach() for name, parameter in model.named_parameters()},
        source=tokenizer,
        target=tokenizer,
        provenance=provenance,
        golden=[
            Golden(source=line, source_ids=tuple(row), target_ids=tuple(ids), output=tokenizer.decode(ids))
            for line, row, ids in zip(asked, rows, told, strict=True)
        ],
    )
    result = {"recipe": recipe.name, "valid": scores.to_dict(), "training": training, "versions": versions()}
    write_atomically(out / "results.json", json.dumps(result, indent=1) + "\n")
    return out / "bundle"
