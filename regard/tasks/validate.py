"""How good a model is on the dev set while it is trained: what its objective judges, and BLEU where it is asked for."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from regard.data.batches import Batches
from regard.metrics import bleu
from regard.models.interface import EncoderDecoder
from regard.recipe import Recipe
from regard.search.config import SearchConfig
from regard.train import OBJECTIVES, Step, inputs

from .decode import decode, mask_of
from .engine import backend_of
from .prepare import Prepared

_TOKENS = 4096
"""Of a batch."""


class Validator:
    """A model -> its scores on the dev set; bfloat16 says how it is computed with."""

    def __init__(self, prepared: Prepared, recipe: Recipe, device: torch.device, *, bfloat16: bool) -> None:
        self.prepared, self.recipe, self.device, self.bfloat16 = prepared, recipe, device, bfloat16
        self.objective = OBJECTIVES[recipe.objective]
        self.batches = Batches(
            prepared.valid,
            batch_tokens=_TOKENS,
            layout="padded",
            context=recipe.data.context,
            view=self.objective.view(prepared.target_tokenizer),
        )

    @torch.inference_mode()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        chunk = self.recipe.train.chunk
        step = Step(model, 0.0, chunk, objective=self.objective)
        batches = (inputs(batch, self.device, positions=0) for batch in self.batches.one_epoch(sort=True))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            scores = self.objective.judge(model, map(step.outputs, batches), chunk)
        if self.recipe.train.validate_with == "bleu" and "bleu" not in scores:
            scores["bleu"] = self._bleu(model)
        return scores

    def _bleu(self, model: nn.Module) -> float:
        """Of greedy translations."""
        valid, target, search = self.prepared.valid, self.prepared.target_tokenizer, self.recipe.search
        quick = SearchConfig(beam=1, penalty="none", alpha=0.0, extra_length=search.extra_length, batch_size=128)
        precision = "bfloat16" if self.bfloat16 else "float32"
        backend = backend_of(cast(EncoderDecoder, model), precision, mask_of(self.recipe, target))
        hypotheses = decode(backend, [valid.source_ids(i).tolist() for i in range(len(valid))], quick)
        texts = [target.decode(best.ids) for best, *_ in hypotheses]
        references = [valid.target_text(i) for i in range(len(valid))]
        return bleu(texts, references, language=self.recipe.data.target_language, resamples=0).value
