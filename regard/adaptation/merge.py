"""An adapter made one with its bundle: a bundle that stands alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import torch

from regard import bundle as bundles
from regard.bundle import Bundle
from regard.tuning.quantize import quantized, rewritten

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
    assert changed.adapter is not None
    note = {"weights": digest_of(opened), "bundle": opened.name, **changed.adapter.card.about}
    merged = {"merged": datetime.now(UTC).isoformat(timespec="seconds"), "adapter": note}
    return rewritten(opened, out, model, merged, stored=stored).path
