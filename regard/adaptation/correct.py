"""One corrected sentence is learnt: the smallest change of one matrix after which the model writes the correction.

The last feed-forward network of the decoder ends with a matrix W (D, I), which reads what is active at a position, its
key k (I,). What is missing there for the wanted tokens is found by gradients: vectors u (D,) that, added to W k, make
each wanted token likely. W then becomes W + sum u d', where the rows d are chosen so that d k is 1 at the position that
u is for and 0 at all other known ones: of the same sentence, of other corrections and of sentences that are to stay
as they are (an update by least squares on associative memories, as in Meng et al. 2022, equation 2). It is of rank one
for each position that had to change, and what lies below W, so every key, stays as it was.

Sizes: D width, I inner width, T tokens of a target with its end, P of them that have to change, N all known positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from regard.bundle import Bundle
from regard.models.blocks import Block, Transformer
from regard.models.interface import EncoderDecoder
from regard.nn.layers import FeedForward, only_references
from regard.tasks.forced import hidden_of
from regard.text.tokenizer import END

from .file import DOWN, UP, Adapter, Card, digest_of
from .use import place_of

Wide = NDArray[np.float64]
Pair = tuple[Sequence[int], Sequence[int]]
"""Ids of a sentence and of its translation, without ends."""
CERTAIN = (0.45, 0.6, 0.8, 0.93, 0.98)
"""How likely each wanted token is made: the first that suffices is taken, so that no more changes than must."""
# Of the keys' mean square, added to their products: keys that are nearly alike may differ a little.
_RIDGE = 0.3
_MOST_STEPS = 30
_MOST_LOOKS = 8
_NEAR = 128  # tokens of a position that gradients are made of
_MOST_PAIRS = 256
_MOST_ROUNDS = 6
_MOST_KNOWN = 1024  # positions that are kept as they are


@dataclass(frozen=True)
class Positions:
    """What a pair's target positions are to the matrix."""

    keys: Wide
    """(T, I), what it reads."""
    sums: Tensor
    """(T, D), what its product ends in, before the last norm."""
    wanted: Tensor
    """(T,), the tokens that should come."""


class Teacher:
    """A bundle's model in PyTorch, which corrections are learnt with. Its weights are those of the bundle, always."""

    def __init__(self, bundle: Bundle) -> None:
        """Raises ModelError for a model whose decoder does not end with a feed-forward network as the paper has it."""
        self.bundle, self.name = bundle, place_of(bundle)
        model = bundle.model()
        assert isinstance(model, Transformer)
        self.model = model
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        self._block = cast("Block", model.decoder[-1])
        assert isinstance(self._block.feedforward, FeedForward)
        self._outer = self._block.feedforward.outer
        post = bundle.recipe.model.model_dump()["norm"] == "post"
        self._norm: nn.Module = self._block.feedforward_residual.norm if post else model.decoder_norm
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Positions] = {}

    def positions(self, pairs: Sequence[Pair]) -> list[Positions]:
        """Of pairs of ids without ends; they depend on no correction but for their sums, which are without any."""
        wanted = [((*source,), (*target,)) for source, target in pairs]
        if new := [pair for pair in dict.fromkeys(wanted) if pair not in self._known]:
            seen: dict[str, Tensor] = {}

            def read(module: nn.Module, given: tuple[Tensor, ...]) -> None:
                seen["key" if module is self._outer else "sum"] = given[0].float()

            hooks = [part.register_forward_pre_hook(read) for part in (self._outer, self._norm)]
            try:
                with torch.no_grad(), only_references():
                    model = cast("EncoderDecoder", self.model)
                    hidden_of(model, [source for source, _ in new], [target for _, target in new])
            finally:
                for hook in hooks:
                    hook.remove()
            if len(self._known) > _MOST_PAIRS:
                self._known.clear()
            for keys, sums, pair in zip(seen["key"], seen["sum"], new, strict=True):
                size = len(pair[1]) + 1  # the rest of the row fills it up
                found = Positions(keys[:size].double().numpy(), sums[:size], torch.tensor([*pair[1], END]))
                self._known[pair] = found
        return [self._known[pair] for pair in wanted]

    def missing(self, at: Positions, more: Wide, certain: float) -> Tensor:
        """What is to be added to the sums and `more` (T, D) to give each wanted token this probability; 0: it has.

        Gradients are of the likeliest tokens alone, and all are looked at again when these suffice: a whole table of
        them is too large to be read at every step.
        """
        sums = at.sums + torch.from_numpy(more).float()
        added = torch.zeros_like(sums, requires_grad=True)
        rate = 0.05 * float(sums.norm(dim=-1).mean()) / math.sqrt(sums.shape[-1])
        optimizer = torch.optim.Adam([added], lr=rate)
        tokens = at.wanted.unique()
        with only_references():
            for _ in range(_MOST_LOOKS):
                with torch.no_grad():
                    logits = self.model.project(self._norm(sums + added))
                open_ = cross_entropy(logits, at.wanted, reduction="none") > -math.log(certain)
                if not open_.any():
                    break
                near = logits[open_].topk(min(_NEAR, logits.shape[-1])).indices
                tokens = torch.cat((tokens, near.flatten())).unique()
                rest = logits.index_fill(1, tokens, -math.inf).logsumexp(-1, keepdim=True)
                self._step_until(added, optimizer, (sums, rest), (at.wanted, tokens), certain + 0.1 * (1 - certain))
        return added.detach()

    def _step_until(
        self,
        added: Tensor,
        optimizer: torch.optim.Optimizer,
        now: tuple[Tensor, Tensor],
        asked: tuple[Tensor, Tensor],
        aim: float,
    ) -> None:
        """Changes what is added until each wanted token has a probability among some tokens and `rest`, which stays.

        `now` are the sums (T, D) and the logit of all other tokens together (T, 1), `asked` the wanted tokens and some.
        """
        (sums, rest), (wanted, tokens), output = now, asked, self.model.output
        weight = output.weight[tokens]
        bias = None if output.bias is None else output.bias[tokens]
        places = torch.searchsorted(tokens, wanted)
        for _ in range(_MOST_STEPS):
            logits = torch.cat((linear(self._norm(sums + added), weight, bias), rest), -1)
            short = cross_entropy(logits, places, reduction="none")
            open_ = short > -math.log(aim)
            if not open_.any():
                break
            optimizer.zero_grad()
            short[open_].sum().backward()
            before = added.detach().clone()
            optimizer.step()
            with torch.no_grad():  # the optimiser's momentum goes on where nothing is asked for any more
                added[~open_] = before[~open_]

    def update(
        self, at: Positions, missing: Tensor, keep: Sequence[Positions]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Up (D, P) and down (P, I) of the change; see above. What is kept beyond some positions is left out."""
        changes = missing.norm(dim=-1).numpy() > 0
        others = np.concatenate([at.keys[~changes], *(each.keys for each in keep)])[:_MOST_KNOWN]
        keys = np.concatenate((at.keys[changes], others))
        products = keys @ keys.T
        ridge = _RIDGE * products.diagonal().mean() * np.eye(len(keys))
        chosen = np.linalg.solve(products + ridge, np.eye(len(keys))[:, : changes.sum()])
        return missing.numpy()[changes].T.astype(np.float32), (chosen.T @ keys).astype(np.float32)

    def adapter(
        self, card: Card, pair: Pair, earlier: Adapter | None, keep: Sequence[Pair], certain: float
    ) -> Adapter | None:
        """An adapter after which the pair's target is likely after its source; None: it is so already.

        `earlier` are the changes that are made already; `keep` are the ids of pairs that are to stay as they are.
        """
        at, *kept = self.positions([pair, *keep])
        before = np.zeros((len(at.keys), at.sums.shape[-1]))
        if earlier is not None:
            before = _products(at.keys, earlier.parts[self.name + UP], earlier.parts[self.name + DOWN])
        total, now = torch.zeros_like(at.sums), before
        parts: dict[str, NDArray[np.float32]] = {}
        for _ in range(_MOST_ROUNDS):  # what others hold back is asked for again
            missing = self.missing(at, now, certain)
            if not missing.any():
                break
            total += missing
            up, down = self.update(at, total, kept)
            parts = {self.name + UP: up, self.name + DOWN: down}
            now = before + _products(at.keys, up, down)
        return Adapter(card, parts) if parts else None


def _products(keys: Wide, up: NDArray[np.float32], down: NDArray[np.float32]) -> Wide:
    """What a change adds to the sums of positions (T, D)."""
    made: Wide = (keys @ down.T.astype(np.float64)) @ up.T.astype(np.float64)
    return made


def card_of(bundle: Bundle, source: str, target: str, before: str) -> Card:
    """The card of a correction that is learnt now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    weights = digest_of(bundle)
    return Card(weights=weights, bundle=bundle.name, created=now, source=source, target=target, before=before)
