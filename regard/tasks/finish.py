"""What comes of training: scores on the dev set, and in the end a bundle, scored as anybody would use it."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard import bundle as bundles
from regard.bundle import Provenance, versions
from regard.data.batches import Batches
from regard.data.corpus import sets_of
from regard.data.store import Stream
from regard.errors import BundleError, RegardError
from regard.machine import write_atomically
from regard.metrics import bleu
from regard.models import FAMILIES
from regard.models.blocks import parameter_count, resolve_precision
from regard.models.interface import EncoderDecoder
from regard.nn.positions import fold_scale
from regard.recipe import Recipe
from regard.search.table import SearchConfig
from regard.text import write_lines
from regard.train import OBJECTIVES, Report, Step, Trainer, inputs

from .decode import decode
from .engine import USES, backend_of, mask_of
from .evaluate import DEFAULT_METRICS, evaluate_lines
from .golden import golden
from .prepare import Prepared

Plain = dict[str, Any]  # values as they stand in JSON


def validate(model: nn.Module, prepared: Prepared, recipe: Recipe, device: torch.device) -> dict[str, float]:
    """A model's scores on the dev set: what its objective judges, and BLEU where it is asked for."""
    objective, chunk = OBJECTIVES[recipe.objective], recipe.train.chunk
    bfloat16 = resolve_precision(recipe.train.precision, device, recipe.model.width)
    held_out = Batches(
        prepared.valid,
        batch_tokens=4096,
        layout="padded",
        stream=Stream(recipe.data.context, recipe.carries),
        view=objective.view(prepared.target_tokenizer),
    )
    with torch.inference_mode():
        step = Step(model, 0.0, chunk, objective=objective, carry=recipe.carries)
        batches = (inputs(batch, device, positions=0) for batch in held_out.one_epoch(sort=True))
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            scores = objective.judge(model, map(step.outputs, batches), chunk)
        if recipe.train.validate_with == "bleu" and "bleu" not in scores:
            scores["bleu"] = _bleu(model, prepared, recipe, "bfloat16" if bfloat16 else "float32")
    return scores


def _bleu(model: nn.Module, prepared: Prepared, recipe: Recipe, precision: str) -> float:
    """Of greedy translations of the dev set."""
    valid, target, search = prepared.valid, prepared.target_tokenizer, recipe.search
    quick = SearchConfig(beam=1, penalty="none", alpha=0.0, extra_length=search.extra_length, batch_size=128)
    backend = backend_of(cast(EncoderDecoder, model), precision, mask_of(recipe, target))
    hypotheses = decode(backend, [valid.source.line_ids(i).tolist() for i in range(len(valid))], quick)
    texts = [target.decode(best.ids) for best, *_ in hypotheses]
    references = [valid.target.text(i) for i in range(len(valid))]
    return bleu(texts, references, language=recipe.data.target_language, resamples=0).value


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
        data={"sha256": prepared.data_hashes, "filters": asdict(prepared.report)},
        training=training,
    )

    def keep(scores: list[Plain]) -> None:
        try:
            bundles.save(
                path,
                recipe=recipe,
                weights={n: p.detach() for n, p in model.named_parameters()},
                source=prepared.source_tokenizer,
                target=prepared.target_tokenizer,
                provenance=provenance.model_copy(update={"scores": scores}),
                golden=golden(model, recipe, prepared.source_tokenizer, prepared.target_tokenizer, prepared.valid),
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
    page = USES[FAMILIES[recipe.model.family].kind].page
    judge = (import_module(page).judge if how == "predictions" else _written)(path, recipe)
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


def _written(path: Path, recipe: Recipe) -> Judge:
    """Judges translations, or what the page of another kind of target reads from them."""
    from .translate import load

    translator = load(path)
    if page := recipe.data.target_kind.page:
        return partial(import_module(page).judge, translator)

    def judge(source: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Plain, Iterable[str]]:
        found = evaluate_lines(translator, source, references, metrics=recipe.data.metrics or DEFAULT_METRICS)
        return found.to_dict(), found.hypotheses

    return judge
