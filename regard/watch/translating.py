"""What each checkpoint makes of the sentences: translations and attention, computed in a process of its own.

    python -m regard.watch.translating RUN CACHE NICE NAME...

It is polite, since a training may run beside it: one thread, as nice as it is told to be, and it ends when it has
translated by the checkpoints that it was given. A result is a file, `samples/NAME.json` in the cache; it holds for one
checkpoint of one run and for these sentences (`results.Stamp`).
"""

from __future__ import annotations

import os
import sys
import time
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from regard import recipe as recipes
from regard.errors import RegardError
from regard.recipe import Recipe
from regard.text.tokenizer import Tokenizer

from .log import Plain
from .results import held, stamp_of, waiting, write
from .runs import Run, Saved
from .sentences import Sentence, chosen, keep, kept

if TYPE_CHECKING:
    from torch import nn

    from regard.explore.look import Attention
    from regard.language.open import Pipeline
    from regard.tasks.translate import Translator


def main(arguments: list[str]) -> None:
    """Translate by these checkpoints of a run."""
    with suppress(OSError, AttributeError):
        os.nice(int(arguments[2]))
    import torch

    torch.set_num_threads(1)
    run = Run(arguments[0], Path(arguments[1]))
    run.log.refresh()
    for name in arguments[3:]:
        if saved := next((each for each in waiting(run) if each.name == name), None):
            translate(run, saved)


def translate(run: Run, saved: Saved) -> None:
    """Write down what a checkpoint, or the bundle, makes of the sentences; or why that cannot be known."""
    stamp, began = stamp_of(run, saved), time.perf_counter()
    try:
        with held(run, saved) as path:
            recipe = recipes.load(run.path / "recipe.toml")
            sentences = _sentences(run, recipe)
            stamp = stamp_of(run, saved)  # the sentences may have been chosen just now
            samples = of_sentences(_opened(run, recipe, saved, path), sentences)
    except RegardError as error:
        if saved.path is not None and saved.path.exists():  # else it was removed meanwhile: there is nothing to say
            write(run, saved, stamp_of(run, saved), {"error": str(error)})
        return
    write(run, saved, stamp, {"seconds": round(time.perf_counter() - began, 2), "samples": samples})


def _sentences(run: Run, recipe: Recipe) -> tuple[Sentence, ...]:
    """Those that were chosen before, or a few of the dev set."""
    if found := kept(run):
        return found
    from regard.data.store import Store

    if recipe.data.cache is None:
        valid = Store.open(run.path / "prepared" / "valid")
    else:
        from regard.tasks.prepare import prepare_for

        valid = prepare_for(recipe, run.path).valid
    keep(run, found := chosen(valid))
    return found


def _tokenizers(run: Run, recipe: Recipe) -> tuple[Tokenizer, Tokenizer]:
    """Those of the run, from where `prepare` left them; it is asked itself where they lie elsewhere."""
    from regard.tasks.prepare import given_by, prepare_for

    if recipe.data.cache is not None:
        prepared = prepare_for(recipe, run.path)
        return prepared.source_tokenizer, prepared.target_tokenizer
    folder = run.path / "prepared"
    joint = recipe.text.joint or bool(recipe.data.texts)
    source, target = given_by(recipe)
    source = source or Tokenizer.load(folder / ("subwords.model" if joint else "source.model"))
    if target is None and joint:
        target = source
    target = target or Tokenizer.load(folder / "target.model")
    return source, target.in_order(recipe.text.order)


def _opened(run: Run, recipe: Recipe, saved: Saved, path: Path) -> Translator:
    """A translator with a checkpoint's weights: their moving average where the run keeps one, as validation judges."""
    from regard.tasks.translate import Translator, load

    if saved.name == "bundle":
        return load(path, device="cpu")
    import torch

    from regard.errors import CheckpointError
    from regard.models.blocks import new_model
    from regard.models.interface import EncoderDecoder
    from regard.nn.positions import fold_scale
    from regard.tasks.engine import check_kind
    from regard.train import checkpoint

    check_kind(recipe, ["encoder-decoder", "mask-predictor"], run.path)
    source, target = _tokenizers(run, recipe)
    tensors = checkpoint.load(path).tensors
    model = new_model(recipe.model, source, target).float()
    group = "ema" if any(name.startswith("ema.") for name in tensors) else "model"
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            try:
                parameter.copy_(tensors[f"{group}.{name}"])
            except (KeyError, RuntimeError):
                raise CheckpointError(f"{saved.name}: belongs to another model ({name} differs).") from None
        fold_scale(model)
    return Translator(cast(EncoderDecoder, model.eval()), recipe, source, target)


# -- what is shown -----------------------------------------------------------------------------------------------------


def of_sentences(translator: Translator, sentences: tuple[Sentence, ...]) -> list[Plain]:
    """Each sentence with its translation, and the cross-attention over that and over the reference."""
    from regard.language.open import Pipeline
    from regard.models import FAMILIES
    from regard.tasks.engine import exact_copy

    made: list[Plain] = []
    for sentence in sentences:
        sample: Plain = {"source": sentence.source, "reference": sentence.reference}
        try:
            [found] = translator.translate([sentence.source])
            sample |= {"text": found.text, "log_probability": round(found.log_probability, 4)}
        except RegardError as error:  # one line that cannot be read costs no other its translation
            sample["error"] = str(error)
        made.append(sample)
    if FAMILIES[translator.recipe.model.family].has_attention:
        model = cast("nn.Module", exact_copy(translator.model))  # once, for all of them
        opened = Pipeline(model, translator.recipe, translator.source, translator.target)
        for sentence, sample in zip(sentences, made, strict=True):
            if "text" in sample:
                sample["own"] = _attention(opened, sentence.source, str(sample["text"]))
                sample["forced"] = _attention(opened, sentence.source, sentence.reference)
    return made


def _attention(opened: Pipeline, source: str, target: str) -> Plain | None:
    """Where the model looks while it writes this target; None where it cannot be made to write it."""
    from regard.explore.look import look

    try:
        return _drawn(look(opened, source, target=target)) if target.strip() else None
    except RegardError:
        return None


def _drawn(seen: Attention) -> Plain | None:
    """Tokens of both sides and the weights of each layer, the mean of its heads, 255 for all, row by row in base64."""
    cross = next((part for part in seen.parts if part.name == "cross"), None)
    if cross is None:
        return None
    layers: NDArray[np.float64] = cross.weights.mean(axis=1, dtype=np.float64)  # (L, T, S)
    levels = np.rint(layers.clip(0, 1) * 255).astype(np.uint8)
    return {
        "rows": [*cross.rows.names],
        "columns": [*cross.columns.names],
        "layers": [b64encode(layer.tobytes()).decode() for layer in levels],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
