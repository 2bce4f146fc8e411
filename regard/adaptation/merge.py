"""An adapter made one with its bundle: a bundle that stands alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import torch

from regard import bundle as bundles
from regard.bundle import Bundle, Golden
from regard.tasks.golden import answers
from regard.tuning.quantize import quantized

from .file import Adapter, adapted, digest_of, read_bundle


def merge(bundle: str | Path | Bundle, adapter: str | Path | Adapter, out: str | Path) -> Path:
    """Writes the bundle as an adapter makes it, as a bundle of its own; returns where.

    The sums are rounded to float32. Weights that were stored in bfloat16 are rounded to it again; those stored
    in int8 are rounded again with scales of their new rows, so that the merged bundle differs a little from the two
    together. A shortlist is kept, a calibration is not, for it was measured on other probabilities.
    """
    opened = read_bundle(bundle)
    opened.check_elsewhere(out)
    changed = adapted(opened, adapter)
    model = changed.model()
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    kind = str(opened.provenance.notes.get("quantized", ""))
    stored = quantized(weights, kind) if kind in ("int8", "bfloat16") else weights
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = stored.get(name + bundles.SCALE)
            parameter.copy_(stored[name].float() * (1 if scale is None else scale[:, None]))
    found = answers(model, opened.recipe, opened.source, [golden.source_ids for golden in opened.golden])
    golden = [
        Golden(source=g.source, source_ids=g.source_ids, target_ids=tuple(ids), output=opened.target.decode(ids))
        for g, ids in zip(opened.golden, found, strict=True)
    ]
    assert changed.adapter is not None
    note = {"weights": digest_of(opened), "bundle": opened.name, **changed.adapter.card.about}
    merged = {"merged": datetime.now(UTC).isoformat(timespec="seconds"), "adapter": note}
    provenance = opened.provenance.model_copy(update={"notes": {**opened.provenance.notes, **merged}, "scores": []})
    made = bundles.save(
        out,
        recipe=opened.recipe,
        weights=stored,
        source=opened.source,
        target=opened.target,
        provenance=provenance,
        golden=golden,
    )
    if (shortlist := opened.shortlist()) is not None:
        bundles.add_shortlist(bundles.load(made), shortlist)
    return made
