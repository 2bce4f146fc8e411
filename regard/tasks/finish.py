"""What happens when training has ended: the weights become a bundle, which is scored as anybody else would use it."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import bundle as bundles
from regard.bundle import Provenance
from regard.data.reading import sets_of
from regard.disk import write_atomically
from regard.errors import BundleError, RegardError
from regard.models import parameter_count
from regard.nn.positions import fold_scale
from regard.parsing.parse import evaluate_trees
from regard.parsing.trees import delinearise, words_of
from regard.recipe import Recipe
from regard.text import write_lines
from regard.train import OBJECTIVES, Report, Trainer

from .evaluate import DEFAULT_METRICS, evaluate_lines
from .golden import golden
from .prepare import Prepared

Plain = dict[str, Any]
"""Values as they stand in JSON."""


def finish(
    recipe: Recipe, out: Path, prepared: Prepared, trainer: Trainer, weights: dict[str, Tensor], report: Report
) -> None:
    """Make the bundle, score it, and write `results.json`; the trainer's model is given the weights."""
    model = trainer.model
    with torch.no_grad():
        for name, parameter in model.float().named_parameters():
            parameter.copy_(weights[name])
    fold_scale(model)
    model.eval().to("cpu")
    training = _training(trainer, model)
    path = out / "bundle"
    provenance = Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        data={"sha256": prepared.data_hashes, "filters": prepared.report.to_dict()},
        training=training,
    )
    questions = prepared.valid if len(prepared.valid) else prepared.train

    def keep(scores: list[Plain]) -> None:
        try:
            bundles.save(
                path,
                recipe=recipe,
                weights={n: p.detach() for n, p in model.named_parameters()},
                source=prepared.source_tokenizer,
                target=prepared.target_tokenizer,
                provenance=provenance.model_copy(update={"scores": scores}),
                golden=golden(model, recipe, prepared.source_tokenizer, prepared.target_tokenizer, questions),
            )
        except BundleError as error:
            raise BundleError(f"{error} Training is done and saved; --resume makes the bundle from it.") from error
        report({"event": "bundle", "path": str(path)})

    keep([])  # first, so that nothing that happens while scoring can lose it
    scores = _score(path, recipe, prepared, report)
    if scores:
        keep(scores)
    result = {"recipe": recipe.name, "scores": scores, "training": training, "versions": versions()}
    write_atomically(out / "results.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def _training(trainer: Trainer, model: nn.Module) -> Plain:
    """What the bundle and the results say of the training."""
    now = trainer.progress
    return {
        "updates": now.update,
        "epochs": trainer.batches.epoch,
        "target_tokens": now.tokens,
        "seconds": round(now.seconds, 1),
        "trained": round(now.trained, 1),
        "parameters": parameter_count(model),
        "precision": "bfloat16" if trainer.bfloat16 else "float32",
        "threads": torch.get_num_threads(),
        "processes": trainer.parallel.world,
        "device": torch.cuda.get_device_name(trainer.device) if trainer.device.type == "cuda" else "cpu",
        "best_on_dev": now.best,
    }


def _score(path: Path, recipe: Recipe, prepared: Prepared, report: Report) -> list[Plain]:
    """The dev set and each test set of the recipe, as the bundle does on them when anybody else uses it.

    A set that cannot be scored, since the bundle refuses one of its lines, is reported and costs no other its scores.
    """
    how = OBJECTIVES[recipe.objective].scored
    if not how:
        return []
    judge = (_predictions if how == "predictions" else _trees if recipe.data.trees else _translations)(path, recipe)
    scores = []
    for name, source, references in sets_of(recipe.data, prepared.valid):
        began = time.perf_counter()
        try:
            found, lines = judge(source, references)
        except RegardError as error:
            files = recipe.data.test[name].files if name in recipe.data.test else recipe.data.valid_files
            report({"event": "unscored", "set": name, "files": list(files), "why": str(error)})
            continue
        scores.append({"set": name, **found, "seconds": round(time.perf_counter() - began, 1)})
        if lines is not None:
            written = path.parent / "hypotheses" / f"{name}.txt"
            written.parent.mkdir(parents=True, exist_ok=True)
            write_lines(written, lines)
        report({"event": "score", **scores[-1]})
    return scores


Judge = Callable[[Sequence[str], Sequence[Sequence[str]]], tuple[Plain, Iterable[str] | None]]
"""Lines, and what they should give, one or more sets of it -> scores, and what the bundle wrote."""


def _translations(path: Path, recipe: Recipe) -> Judge:
    from .translate import load

    translator = load(path)

    def judge(source: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Plain, Iterable[str]]:
        metrics = recipe.data.metrics or DEFAULT_METRICS
        found = evaluate_lines(translator, source, references, metrics=metrics)
        return found.to_dict(), found.hypotheses

    return judge


def _trees(path: Path, recipe: Recipe) -> Judge:
    from .translate import load

    translator = load(path)

    def judge(source: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Plain, Iterable[str]]:
        gold = [delinearise(line, words_of(text)) for text, line in zip(source, references[0], strict=True)]
        found = evaluate_trees(translator, gold)
        return found.to_dict(), map(str, found.trees)

    return judge


def _predictions(path: Path, recipe: Recipe) -> Judge:
    from .measure import measure
    from .open import open_bundle

    opened = open_bundle(path, ["language-model", "classifier"])

    def judge(source: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Plain, None]:
        scores = measure(opened, source, None if recipe.data.texts else references[0])
        return {"lines": len(source), "scores": {name: score.to_dict() for name, score in scores.items()}}, None

    return judge


def versions() -> dict[str, str]:
    """Versions of what decides a run's result."""
    found = {"python": platform.python_version()}
    for package in ("regard", "torch", "sentencepiece", "numpy", "sacrebleu", "safetensors"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed as a package"
    return found
