"""Heads taken out of a bundle: their rows and columns of the projections are gone, and so are their numbers.

What is left computes what the whole model computes with those heads switched off. A layer keeps at least one head of
each attention, and the heads that it keeps keep their width (Michel et al. 2019, section 4; Voita et al. 2019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard import bundle as bundles
from regard.bundle import Bundle
from regard.errors import DataError, ModelError
from regard.models.blocks import new_model
from regard.models.transformer import TransformerConfig
from regard.tasks.translate import load
from regard.tuning.quantize import quantized, rewritten

from .changes import Head, all_heads, config_of, heads_named
from .heads import Ranking, Tell, loss_of, pairs_of, ranked, transformer_of


@dataclass(frozen=True)
class Pruned:
    """What a bundle without some heads is, beside the one that it was made of."""

    out: Path
    off: tuple[Head, ...]
    heads: int  #: Before.
    parameters_before: int
    parameters_after: int
    bytes_before: int
    bytes_after: int  #: Of the weights.
    loss_before: float | None = None
    loss_after: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {**vars(self), "out": str(self.out), "off": [*map(str, self.off)]}


def prune_heads(bundle: str | Path, out: str | Path, off: Sequence[str | Head]) -> Pruned:
    """Write the bundle without these heads, as `encoder.2.3` or `encoder.2` for a layer's, as the bundle `out`.

    It is used, trained on (`train.start_from`) and compiled as any other. A calibration is left out, for it was the
    whole model's. Raises DataError for heads that there are not and where a layer would keep none, ModelError for a
    model whose heads cannot be taken apart.
    """
    found = bundles.load(bundle)
    found.check_elsewhere(out)
    config = config_of(found.recipe)
    heads = heads_named(map(str, off), config)
    smaller = config_without(config, heads)
    recipe = found.recipe.model_copy(update={"model": smaller})
    weights = weights_without({n: p.detach() for n, p in found.model().named_parameters()}, config, heads)
    kind = str(found.provenance.notes.get("quantized", ""))
    if kind:
        weights = quantized(weights, kind)
    model = new_model(recipe.model, found.source, found.target).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_plain(weights, name))
    names = [*found.provenance.notes.get("pruned_heads", ()), *map(str, heads)]
    made = rewritten(found, out, model, {"pruned_heads": names}, recipe=recipe, stored=weights)
    return _compared(found, made, heads)


def _plain(weights: dict[str, Tensor], name: str) -> Tensor:
    scale = weights.get(name + bundles.SCALE)
    return weights[name].float() if scale is None else weights[name].float() * scale[:, None]


def _compared(before: Bundle, after: Bundle, off: Sequence[Head]) -> Pruned:
    sizes = (each.files["weights.safetensors"].size for each in (before, after))
    heads = len(all_heads(config_of(before.recipe)))
    return Pruned(after.path, tuple(off), heads, before.parameters, after.parameters, *sizes)


def config_without(config: TransformerConfig, off: Collection[Head]) -> TransformerConfig:
    """The settings of the model without these heads. Raises DataError where a layer would keep none."""
    left = {}
    for part in ("encoder", "decoder", "cross"):
        counts = [*config.heads_in(part)]
        for head in off:
            if head.part == part:
                counts[head.layer - 1] -= 1
        if 0 in counts:
            layer = counts.index(0) + 1
            raise DataError(f"layer {layer} of {part} would keep no head; leave it at least one.")
        left[f"{part}_heads"] = tuple(counts)
    settings = {**config.model_dump(), **{key: counts for key, counts in left.items() if set(counts) != {config.heads}}}
    try:
        return TransformerConfig(**settings)
    except ValueError as error:  # heads that share keys, or have biases by their number
        raise ModelError(f"heads of this model cannot be taken out: {error}") from None


def weights_without(weights: dict[str, Tensor], config: TransformerConfig, off: Collection[Head]) -> dict[str, Tensor]:
    """A model's parameters by name, without the rows of these heads' queries, keys and values, and their columns."""
    keys, values = config.widths
    made = dict(weights)
    for module in dict.fromkeys(head.module for head in off):
        gone = {head.head - 1 for head in off if head.module == module}
        [part, layer] = next((head.part, head.layer) for head in off if head.module == module)
        count = config.heads_in(part)[layer - 1]
        left = [number for number in range(count) if number not in gone]

        def rows(width: int, begin: int = 0, left: list[int] = left) -> list[int]:
            return [begin + head * width + i for head in left for i in range(width)]

        both = rows(keys) + rows(values, count * keys)
        for kind in ("weight", "bias"):
            made[f"{module}.query.{kind}"] = weights[f"{module}.query.{kind}"][rows(keys)]
            made[f"{module}.key_value.{kind}"] = weights[f"{module}.key_value.{kind}"][both]
        made[f"{module}.output.weight"] = weights[f"{module}.output.weight"][:, rows(values)]
    return made


def least_useful(ranking: Ranking, config: TransformerConfig, count: int) -> list[Head]:
    """The `count` least useful heads of a ranking, of which no attention loses its last; DataError for too many."""
    left = Counter((head.part, head.layer) for head in all_heads(config) if head not in ranking.off)
    found: list[Head] = []
    for effect in reversed(ranking.effects):
        at = effect.head.part, effect.head.layer
        if len(found) < count and left[at] > 1:
            left[at] -= 1
            found.append(effect.head)
    if len(found) < count:
        raise DataError(
            f"{count:,} heads are to go, and only {len(found):,} can: every attention keeps one; take a smaller part."
        )
    return found


def prune(
    bundle: str | Path,
    out: str | Path,
    pairs: tuple[Sequence[str], Sequence[str]],
    part: float,
    *,
    exact: bool = True,
    greedy: bool = False,
    to: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Pruned:
    """Write the bundle without its least useful heads, `part` of them all (rounded down), as they rank on these pairs.

    `greedy` takes one head after the other out and ranks the others again each time; else one ranking says all.
    Without `exact` they rank by gradients. Raises DataError for a part that cannot be taken out.
    """
    translator = load(bundle, device="cpu")
    config, tell = config_of(translator.recipe), progress or (lambda what: None)
    if not 0 < part < 1:
        raise DataError(f"{part:g} of the heads cannot go; take a part between 0 and 1, such as 0.33.")
    known, model = pairs_of(translator, *pairs, to), transformer_of(translator)
    count, off = int(part * len(all_heads(config))), list[Head]()
    if not count:
        raise DataError(f"{part:g} of {len(all_heads(config))} heads is less than one; take a larger part.")
    while len(off) < count:
        about = f"{len(off):,} of {count:,} heads are out; "
        ranking = ranked(model, config, known, off=off, exact=exact, progress=_after(about if greedy else "", tell))
        off += least_useful(ranking, config, 1 if greedy else count)
    losses = {"loss_before": loss_of(model, known), "loss_after": loss_of(model, known, off)}
    return Pruned(**{**vars(prune_heads(bundle, out, off)), **losses})


def _after(about: str, tell: Tell) -> Tell:
    return lambda what: tell(about + what)
