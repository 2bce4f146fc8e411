"""Guided alignment: one head of the decoder learns where each token of the translation comes from.

Garg et al. 2019, "Jointly learning to align and translate with Transformer models": while the model learns to
translate, the attention of one head, in the last layer but one, is also taught links of words. Where they take
GIZA++'s links, we take those of `regard link`, learnt from the same tokens before training begins. The head is taught
in the step that is given the token, not in the one that writes it (Chen et al. 2020), so `regard align --rule input`
reads it.

Sizes: B lines, H heads, T queries, S keys, N lines of the store, K links of them all.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.errors import ModelError
from regard.train.objectives import Inputs, Model, Outputs
from regard.train.regularizers import REGULARIZERS, Counts, Regularizer

from .link import THRESHOLD, learnt, links_of

_LEAST = 1e-6  # of a weight whose logarithm is taken


@dataclass(frozen=True)
class Guide:
    """Links of tokens, line after line, and how much they count."""

    strength: float
    offsets: Tensor  # (N + 1,): where each line's links begin among the K
    source: Tensor  # (K,) positions in the line
    target: Tensor  # (K,)
    lengths: Tensor  # (N, 2): tokens of the source and of the target, ends included

    def to(self, device: torch.device) -> Guide:
        """The same on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("offsets", "source", "target", "lengths")}
        return replace(self, **moved)

    def goal(self, x: Inputs, queries: int, keys: int) -> Tensor:
        """(B, T, S): 1 where the step that is given a token should look, and 0; rows without a link are all 0.

        Raises ModelError if the lines are cut into other tokens than those that were linked.
        """
        assert x.lines is not None
        real = x.lines >= 0
        lines = x.lines[real]
        if (torch.stack([x.source_lengths[real], x.target_lengths[real]], 1) != self.lengths[lines]).any():
            raise ModelError(
                "train.regularizers: guided-alignment needs each line's tokens to be the same in every epoch; leave "
                "text.sampling, text.noise and whatever else changes the lines out, or guided-alignment."
            )
        starts = self.offsets[lines]
        counts = self.offsets[lines + 1] - starts
        rows = real.nonzero()[:, 0].repeat_interleave(counts)
        before = (starts - counts.cumsum(0) + counts).repeat_interleave(counts)
        links = before + torch.arange(len(rows), device=rows.device)
        goal = torch.zeros(len(x.lines), queries, keys, device=rows.device)
        goal[rows, self.target[links] + 1, self.source[links]] = 1.0
        return goal


def _guide(strength: float, counts: Counts) -> Guide:
    """Link the tokens of the text that is trained on."""
    if counts.store is None or not counts.store.source.lengths.any():
        raise ModelError("train.regularizers: guided-alignment is for translators, which read a source; leave it out.")
    sides = counts.store.source, counts.store.target
    count = len(sides[0].lengths)
    lines = [[side.line_ids(line).tolist() for line in range(count)] for side in sides]
    passes = itertools.count()
    linker = learnt(*lines, progress=lambda what: counts.progress("passes of linking tokens", next(passes)))
    found = [np.concatenate(parts) for parts in zip(*links_of(linker, THRESHOLD, count), strict=True)]
    order = np.argsort(found[0], kind="stable")
    line, target, source = (torch.from_numpy(each[order]) for each in found)
    offsets = torch.bincount(line + 1, minlength=count + 1).cumsum(0)
    lengths = torch.from_numpy(np.stack([side.lengths + 1 for side in sides], 1))
    return Guide(strength, offsets, source, target, lengths)


def _taught(guide: Guide, model: Model, outputs: Outputs) -> Tensor:
    """The cross-entropy of the head's weights against the links, each linked target token counting the same."""
    if not outputs.weights or outputs.attention != "cross":
        raise ModelError(
            "train.regularizers: guided-alignment teaches attention to the source, which this model does not have; "
            "leave it out."
        )
    weights = outputs.weights[max(0, len(outputs.weights) - 2)][:, 0].float()  # (B, T, S)
    goal = guide.goal(outputs.inputs, *weights.shape[1:])
    share = goal / goal.sum(-1, keepdim=True).clamp(min=1.0)
    return -guide.strength * (share * weights.clamp(min=_LEAST).log()).sum()


REGULARIZERS["guided-alignment"] = Regularizer(
    "how much the first head of the decoder's last layer but one is taught to look at the token that each token is the "
    "translation of, by links learnt from the text before training (Garg et al. 2019, who use 0.05)",
    prepare=_guide,
    add=_taught,
    attention=True,
)
