"""Attention on top of a recurrence: to all of the source, or to a window of it (Luong, Pham and Manning 2015).

Sizes: B sentences, S source tokens, T target tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..state import KeysValues, Observer
from .core import Normalizer, mix, observed, weigh
from .scores import Score


class LuongAttention(nn.Module):
    """Global or local attention, and the attentional state tanh(W_c [c; h]) (section 3, equations 5 to 10)."""

    def __init__(self, width: int, score: Score, kind: str, window: int, normalize: Normalizer) -> None:
        super().__init__()
        self.score, self.kind, self.window, self.normalize = score, kind, window, normalize
        self.output = nn.Linear(2 * width, width, bias=False)
        # The name stays, because bundles hold the weight under it.
        self.place = nn.Linear(width, width, bias=False) if kind == "local-p" else None
        self.share = nn.Linear(width, 1, bias=False) if kind == "local-p" else None

    def prepare(self, states: Tensor) -> KeysValues:
        """The keys and values of the source's states (B, S, D), with one head."""
        values = states[:, None].contiguous()  # (B, 1, S, D)
        return KeysValues(self.score.keys(values), values)

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        lengths: Tensor,
        first: int,
        inside: Tensor,
        observe: Observer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """States x (B, T, D), the first at this position of the target -> attentional states, weights (B, 1, T, S).

        `inside` (B, T) is false where there is only padding.
        """
        positions = torch.arange(memory.keys.shape[2], device=x.device)
        mask, nearness = (positions < lengths[:, None])[:, None, None], None  # (B, 1, 1, S)
        if self.kind != "global":
            distance = positions - self._centres(x, lengths, first)[:, None, :, None]  # (B or 1, 1, T, S)
            mask = mask & (distance.abs() <= self.window)
            if self.kind == "local-p":  # equation 10, its standard deviation half of the window
                nearness = (distance / self.window).square().mul(-2.0).exp()
        scores = self.score.compare(self.score.queries(x[:, None]), memory.keys)
        weights = weigh(scores, mask, normalize=observed(self.normalize, observe, inside))
        if nearness is not None:
            weights = weights * nearness.to(weights.dtype)
        context = mix(weights, memory.values)[:, 0]  # (B, T, D)
        return self.output(torch.cat((context, x), -1)).tanh(), weights

    def _centres(self, x: Tensor, lengths: Tensor, first: int) -> Tensor:
        """p_t (B or 1, T): the target's own position, or S sigmoid(v tanh(W h)) (equation 9)."""
        if self.place is None or self.share is None:
            return torch.arange(first, first + x.shape[1], device=x.device)[None]
        share: Tensor = self.share(self.place(x).tanh())[..., 0].sigmoid()
        return lengths[:, None] * share.to(torch.promote_types(share.dtype, torch.float32))
