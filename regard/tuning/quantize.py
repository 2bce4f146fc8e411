"""A bundle whose weights take less room, and what that changes.

int8: each row of a matrix as whole numbers from -127 to 127 and a scale, which is how the compiled decoder multiplies
them; vectors stay float32. bfloat16: all of them in 16 bits. Such a bundle is used like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import bundle as bundles
from regard.bundle import SCALE, Bundle
from regard.errors import ModelError, TextError
from regard.metrics import score
from regard.recipe import Recipe
from regard.tasks.golden import answered
from regard.tasks.lines import check_counts
from regard.tasks.translate import load
from regard.text import split_tag, tag

KINDS = ("int8", "bfloat16")


@dataclass(frozen=True)
class Quantized:
    """What a smaller bundle is compared with the one that it was made of."""

    to: str
    bytes_before: int
    bytes_after: int  #: Of the weights.
    lines: int = 0
    same: int = 0  #: Lines translated as before: the one in float32, the other as it is used by default.
    scores: dict[str, tuple[float, float]] | None = None
    """BLEU and chrF before and after, where references were given."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(vars(self))


def quantize(
    path: str | Path,
    out: str | Path,
    *,
    to: str = "int8",
    source: Sequence[str] = (),
    reference: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Quantized:
    """Write the bundle at `path` as the bundle `out`, with weights of the kind `to`, and compare the two on `source`.

    Without lines, the golden sentences are compared. Raises ModelError for a kind that there is not, TextError for
    unequal counts of lines, BundleError if `out` cannot be written.
    """
    if to not in KINDS:
        raise ModelError(f"--to {to}: must be one of {', '.join(KINDS)}.")
    if reference:
        check_counts(source, reference, "reference")
    tell = progress or (lambda what: None)
    before = load(path, device="cpu")
    assert before.bundle is not None
    before.bundle.check_elsewhere(out)
    for number, line in enumerate(source, start=1):
        if before.languages.targets and line.strip() and split_tag(line)[0] is None:
            tags = ", ".join(map(tag, before.languages.targets))
            raise TextError(
                f"line {number} ({line[:40]!r}) does not say which language to write: begin it with one of {tags} and "
                "a space."
            )
    tell("writing")
    after = load(_save(before.bundle, Path(out), to), device="cpu")
    assert after.bundle is not None
    lines = list(source) or [golden.source for golden in before.bundle.golden]
    tell("translating")
    texts = [
        [t.text for t in translator.translate(lines, precision=precision)]
        for translator, precision in ((before, "float32"), (after, to))
    ]
    found = [score(each, [reference], ["bleu", "chrf"], resamples=0) for each in texts] if reference else []
    return Quantized(
        to=to,
        bytes_before=before.bundle.files["weights.safetensors"].size,
        bytes_after=after.bundle.files["weights.safetensors"].size,
        lines=len(lines),
        same=sum(a == b for a, b in zip(*texts, strict=True)),
        scores={name: (found[0][name].value, found[1][name].value) for name in found[0]} if found else None,
    )


def quantized(weights: dict[str, Tensor], to: str) -> dict[str, Tensor]:
    """Parameters by name, as a bundle of the kind stores them."""
    if to == "bfloat16":
        return {name: weight.bfloat16() for name, weight in weights.items()}
    stored = dict(weights)
    for name, weight in weights.items():
        if weight.dim() == 2 and "positions" not in name:
            scale = weight.abs().amax(1) / 127
            stored[name] = (weight / scale.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round().to(torch.int8)
            stored[name + SCALE] = scale
    return stored


def rewritten(
    bundle: Bundle,
    out: str | Path,
    model: nn.Module,
    notes: Mapping[str, object],
    *,
    recipe: Recipe | None = None,
    stored: Mapping[str, Tensor] | None = None,
    scores: Sequence[dict[str, object]] = (),
) -> Bundle:
    """Write `out`, the bundle with this model's weights, as they are or as they are to be `stored`; and load it.

    Its golden sentences are answered by the model, `notes` are added to the bundle's, a shortlist stays, since it
    depends on the vocabularies alone, and a calibration does not; `scores` are what is still true of it. Raises
    BundleError if it cannot be written.
    """
    recipe = recipe or bundle.recipe
    changed = {"notes": {**bundle.provenance.notes, **notes}, "scores": [*scores]}
    made = bundles.save(
        out,
        recipe=recipe,
        weights=dict(model.named_parameters()) if stored is None else stored,
        source=bundle.source,
        target=bundle.target,
        provenance=bundle.provenance.model_copy(update=changed),
        golden=answered([g.source for g in bundle.golden], model, recipe, bundle.source, bundle.target),
    )
    found = bundles.load(made)
    shortlist = bundle.shortlist()
    return found if shortlist is None else bundles.add_shortlist(found, shortlist)


@torch.no_grad()
def _save(bundle: Bundle, out: Path, to: str) -> Path:
    model = bundle.model()
    stored = quantized({name: p.detach() for name, p in model.named_parameters()}, to)
    for name, parameter in model.named_parameters():
        scale = stored[name + SCALE][:, None] if name + SCALE in stored else 1
        parameter.copy_(stored[name].float() * scale)
    recipe = bundle.recipe.model_copy(update={"search": bundle.recipe.search.model_copy(update={"precision": to})})
    return rewritten(
        bundle, out, model, {"quantized": to}, recipe=recipe, stored=stored, scores=bundle.provenance.scores
    ).path
