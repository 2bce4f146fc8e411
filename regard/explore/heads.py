"""What each head of a Transformer is worth: what is lost when it is switched off, on pairs that it was not trained on.

Two ways. Exact: the head is off, and the loss is computed again (Michel et al. 2019, “Are Sixteen Heads Really Better
than One?”, section 3; Voita et al. 2019). Fast: one backward pass gives every head's gradient at once: how fast the
loss changes with its mask, the absolute value of each pair, summed (Michel et al. 2019, equation 2).

Sizes: B pairs, H heads, T target tokens; a loss is natural logarithm, per target token, ends counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.errors import TextError
from regard.estimation.correlation import spearman
from regard.metrics import score
from regard.models.blocks import Transformer
from regard.models.transformer import TransformerConfig
from regard.nn.state import Change, Layout, Observer
from regard.tasks.decode import decode
from regard.tasks.lines import check_counts, encode_targets, pad
from regard.tasks.translate import Translator, load
from regard.text import BEGIN, END, PAD

from .changes import Changes, Head, all_heads, change_of, config_of, heads_named
from .live import backend_without

Ids = Sequence[int]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Effect:
    """What switching one head off changes."""

    head: Head
    loss: float | None  #: By how much the loss rises; below 0: it falls. None: it was not computed.
    gradient: float  #: The fast estimate of the head's importance, never negative.
    bleu: float | None = None  #: By how much BLEU falls, for those heads that it was asked for.


@dataclass(frozen=True)
class Ranking:
    """Every head, the most needed first: by the loss without it, or by its gradient where no loss was computed."""

    pairs: int
    tokens: int
    loss: float  #: With all heads.
    effects: tuple[Effect, ...]
    bleu: float | None = None  #: With all heads, where it was asked for.
    off: tuple[Head, ...] = ()  #: Heads that were off from the beginning.

    @property
    def correlation(self) -> float | None:
        """Spearman's rank correlation of the two ways; None where there is one only."""
        exact = [effect.loss for effect in self.effects if effect.loss is not None]
        if len(exact) < max(2, len(self.effects)):
            return None
        return spearman(exact, [effect.gradient for effect in self.effects])

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        effects = [{**vars(effect), "head": str(effect.head)} for effect in self.effects]
        return {**vars(self), "off": [*map(str, self.off)], "effects": effects, "correlation": self.correlation}


@dataclass(frozen=True)
class Pairs:
    """Lines and their translations, as a translator reads them."""

    read: Sequence[Ids]
    written: Sequence[Ids]
    source: Sequence[str] = field(repr=False)
    target: Sequence[str] = field(repr=False)

    def batches(self, size: int) -> Iterator[tuple[list[Ids], list[Ids]]]:
        """Of near the same length, longest first."""
        order = sorted(range(len(self.read)), key=lambda i: (len(self.written[i]), len(self.read[i]), i), reverse=True)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            yield [self.read[i] for i in batch], [self.written[i] for i in batch]

    @property
    def tokens(self) -> int:
        """Target tokens, ends counted."""
        return sum(len(ids) + 1 for ids in self.written)


def heads(
    bundle: str | Path | Translator,
    source: Sequence[str],
    target: Sequence[str],
    *,
    exact: bool = True,
    bleu: Sequence[str] = (),
    to: str | None = None,
    batch_size: int = 64,
    progress: Tell | None = None,
) -> Ranking:
    """Rank the heads of a bundle's model by what is lost without each on these pairs, which it was not trained on.

    Without `exact` by the gradient alone, which takes one backward pass. `bleu` names heads, as `encoder.2.3` or
    `encoder.2` for a layer, whose effect on BLEU is measured too. Raises ModelError for a model without such heads,
    TextError for lines that cannot be read, DataError for heads that there are not.
    """
    translator = bundle if isinstance(bundle, Translator) else load(bundle, device="cpu")
    config = config_of(translator.recipe)
    asked, pairs = heads_named(bleu, config), pairs_of(translator, source, target, to)
    model, tell = transformer_of(translator), progress or (lambda what: None)
    found = ranked(model, config, pairs, exact=exact, batch_size=batch_size, progress=tell)
    if not asked:
        return found
    whole = bleu_of(translator, pairs, ())
    lost: dict[Head, float] = {}
    for number, head in enumerate(asked, start=1):
        tell(f"translated without {number:,} of {len(asked):,} heads")
        lost[head] = whole - bleu_of(translator, pairs, (head,))
    effects = tuple(Effect(e.head, e.loss, e.gradient, lost.get(e.head)) for e in found.effects)
    return Ranking(found.pairs, found.tokens, found.loss, effects, whole)


def pairs_of(translator: Translator, source: Sequence[str], target: Sequence[str], to: str | None = None) -> Pairs:
    """Lines and their translations by their ids. Raises TextError for lines that cannot be read, and for none."""
    check_counts(source, target, "target")
    read = translator.encode(source, to=to)
    written = encode_targets(translator.target, target, translator.limit)
    kept = [i for i, (a, b) in enumerate(zip(read, written, strict=True)) if a and b]
    if not kept:
        raise TextError("no pair has text on both sides; give pairs that the model was not trained on.")
    return Pairs(
        [read[i] for i in kept], [written[i] for i in kept], [source[i] for i in kept], [target[i] for i in kept]
    )


def transformer_of(translator: Translator) -> Transformer:
    """A translator's model in PyTorch and float32. Raises ModelError for one without heads."""
    config_of(translator.recipe)
    return cast(Transformer, translator.engine.model)


def ranked(
    model: Transformer,
    config: TransformerConfig,
    pairs: Pairs,
    *,
    off: Sequence[Head] = (),
    exact: bool = True,
    batch_size: int = 64,
    progress: Tell = lambda what: None,
) -> Ranking:
    """Every head that is not off, the most needed first; see `heads`."""
    whole, gradients, done = 0.0, dict.fromkeys(all_heads(config), 0.0), 0
    left = [head for head in gradients if head not in off]
    losses = dict.fromkeys(left, 0.0)
    for read, written in pairs.batches(batch_size):
        loss, found = gradients_of(model, config, read, written, off)
        whole += loss
        for head, gradient in found.items():
            gradients[head] += gradient
        if exact:
            for head, changed in losses_without(model, read, written, left, off):
                losses[head] += changed - loss
        done += len(read)
        progress(f"read {done:,} of {len(pairs.read):,} pairs")
    tokens = pairs.tokens
    effects = [Effect(head, losses[head] / tokens if exact else None, gradients[head] / tokens) for head in left]
    effects.sort(key=lambda effect: effect.gradient if effect.loss is None else effect.loss, reverse=True)
    return Ranking(len(pairs.read), tokens, whole / tokens, tuple(effects), off=tuple(off))


def gradients_of(
    model: Transformer, config: TransformerConfig, read: Sequence[Ids], written: Sequence[Ids], off: Iterable[Head] = ()
) -> tuple[float, dict[Head, float]]:
    """The summed loss of a batch, and each head's gradient of it: the absolute value for each pair, summed."""
    closed = {(head.part, head.layer, head.head) for head in off}
    masks = {
        (part, layer): torch.tensor(
            [[0.0 if (part, layer + 1, n + 1) in closed else 1.0 for n in range(count)]] * len(read), requires_grad=True
        )
        for part in ("encoder", "cross", "decoder")
        for layer, count in enumerate(config.heads_in(part))
    }

    def change(part: str, layer: int, weights: Tensor) -> Tensor:
        return weights * masks[part, layer][:, :, None, None].to(weights)

    with torch.enable_grad():
        loss = _loss(model, read, written, change)
    found = torch.autograd.grad(loss, [*masks.values()])
    return float(loss.detach()), {
        Head(head.part, head.layer, head.head): float(gradient[:, head.head - 1].abs().sum())
        for (part, layer), gradient in zip(masks, found, strict=True)
        for head in all_heads(config)
        if (head.part, head.layer - 1) == (part, layer)
    }


@torch.inference_mode()
def losses_without(
    model: Transformer, read: Sequence[Ids], written: Sequence[Ids], each: Iterable[Head], off: Sequence[Head] = ()
) -> Iterator[tuple[Head, float]]:
    """The summed loss of a batch with each of these heads off, and those that are off always."""
    lines, layout = _padded(read)
    closed = dict.fromkeys(off, 0.0)
    memory = model.encode(lines, layout, Observer(change=change_of(Changes(closed))))  # it serves all but the encoder's
    for head in each:
        change = change_of(Changes({**closed, head: 0.0}))
        own = model.encode(lines, layout, Observer(change=change)) if head.part == "encoder" else memory
        yield head, float(_loss_after(model, own, layout, written, change))


def loss_of(model: Transformer, pairs: Pairs, off: Iterable[Head] = (), batch_size: int = 64) -> float:
    """The loss of all pairs with these heads off, per target token."""
    change = change_of(Changes(dict.fromkeys(off, 0.0)))
    with torch.inference_mode():
        total = sum(float(_loss(model, read, written, change)) for read, written in pairs.batches(batch_size))
    return total / pairs.tokens


def bleu_of(translator: Translator, pairs: Pairs, off: Sequence[Head]) -> float:
    """BLEU of the pairs' sources, translated with these heads off, by what the bundle's recipe searches with."""
    texts = [
        translator.target.decode(best.ids)
        for best, *_ in decode(backend_without(translator, off), pairs.read, translator.recipe.search)
    ]
    language = translator.recipe.data.target_language
    return score(texts, [pairs.target], ["bleu"], language=language, resamples=0)["bleu"].value


def _padded(rows: Sequence[Ids]) -> tuple[Tensor, Layout]:
    return pad([[*line, END] for line in rows], "cpu")


def _loss(model: Transformer, read: Sequence[Ids], written: Sequence[Ids], change: Change) -> Tensor:
    lines, layout = _padded(read)
    return _loss_after(model, model.encode(lines, layout, Observer(change=change)), layout, written, change)


def _loss_after(model: Transformer, memory: Tensor, layout: Layout, written: Sequence[Ids], change: Change) -> Tensor:
    """The loss of a batch, summed, given what the encoder made of it."""
    tokens, writing = pad([[BEGIN, *line] for line in written], "cpu")
    wanted, _ = pad([[*line, END] for line in written], "cpu")
    hidden, _ = model.decode(tokens, model.start(memory, layout), writing, Observer(change=change))
    inside = wanted.flatten() != PAD
    logits = model.project(hidden.flatten(0, 1)[inside])
    return cross_entropy(logits, wanted.flatten()[inside], reduction="sum")
