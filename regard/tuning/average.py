"""One bundle whose weights are the mean of several bundles' weights.

It costs nothing when it is used, and is as a rule better than each of them where they were trained from one beginning:
snapshots of a run, or models that went on from the same bundle with other settings or seeds (Wortsman et al. 2022,
"Model soups"). Models that were begun apart have nothing in common that a mean could keep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from regard import bundle as bundles
from regard.bundle import Bundle
from regard.errors import ModelError

from .quantize import rewritten


def average(paths: Sequence[str | Path], out: str | Path, *, shares: Sequence[float] = ()) -> Bundle:
    """Write the bundle `out` with the weighted mean of the weights of the bundles at `paths`; all else is the first's.

    `shares` say how much of each there is, in any unit; without them all count the same. Scores and a calibration are
    not taken over, as nothing was measured. Raises ModelError for fewer than two bundles, for bundles of other models,
    languages or vocabularies or with int8 weights, and for shares that are no weights; BundleError if `out` cannot be
    written.
    """
    shares = [*shares] or [1.0] * len(paths)
    if len(paths) < 2 or len(shares) != len(paths):
        raise ModelError(f"{len(paths)} bundles and {len(shares)} shares; give two bundles or more, a share each.")
    if not all(0 <= share < math.inf for share in shares) or not sum(shares):
        said = ", ".join(f"{share:g}" for share in shares)
        raise ModelError(f"the shares are {said}; none may be below 0, and one must be above it.")
    found = [bundles.load(path) for path in paths]
    first = found[0]
    for each in found:
        each.check_elsewhere(out)
        _check_alike(first, each)
    model = first.model()
    with torch.no_grad():
        sums = {name: shares[0] * parameter.double() for name, parameter in model.named_parameters()}
        for each, share in zip(found[1:], shares[1:], strict=True):  # one is in memory at a time
            for name, parameter in each.model().named_parameters():
                sums[name] += share * parameter.double()
        for name, parameter in model.named_parameters():
            parameter.copy_(sums[name] / sum(shares))
    made = [
        {"bundle": each.path.name, "sha256": each.files["weights.safetensors"].sha256, "share": share}
        for each, share in zip(found, shares, strict=True)
    ]
    return rewritten(first, out, model, {"average": made})


def _check_alike(first: Bundle, other: Bundle) -> None:
    """Raises ModelError where a mean would mean nothing."""
    if "quantized" in other.provenance.notes:
        raise ModelError(f"{other.path}: its weights were made small; average those it was made of, and quantise that.")
    if _shape(other) != _shape(first):
        raise ModelError(f"{other.path}: its [model] is not that of {first.path}; only models of a kind have a mean.")
    one, wanted = ((data.source_language, data.target_language) for data in (other.recipe.data, first.recipe.data))
    if all((*one, *wanted)) and one != wanted:
        raise ModelError(
            f"{other.path}: it translates {' to '.join(one)}, and {first.path} {' to '.join(wanted)}; only models of "
            "one task have a mean."
        )
    sides = (other.source, first.source), (other.target, first.target)
    if any(one.digest != wanted.digest for one, wanted in sides):
        raise ModelError(
            f"{other.path}: its vocabulary is not that of {first.path}, so one row of weights stands for two tokens; "
            "train them with train.start_from = one bundle."
        )


def _shape(bundle: Bundle) -> dict[str, object]:
    """What must be the same: all of [model] but the dropouts, which training alone knows."""
    return {name: value for name, value in bundle.recipe.model.model_dump().items() if "dropout" not in name}
