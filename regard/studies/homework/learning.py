"""A small Transformer that learns to reverse, with a student's functions in the place of the library's own."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.store import Store, fingerprint
from regard.models import FAMILIES
from regard.models.transformer import TransformerConfig
from regard.nn.attention import multihead
from regard.nn.attention.core import Call
from regard.nn.layers import FeedForward, only_references
from regard.search.table import SearchConfig
from regard.settings import Filters, TrainConfig
from regard.tasks.decode import decode
from regard.tasks.engine import backend_of
from regard.text import Tokenizer
from regard.train import Trainer

LETTERS = "abcdef"
UPDATES = 280


def _lines(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(LETTERS, k=draw.randint(1, 3))) for _ in range(count)]


class _Given(multihead.Kernel):
    """Attention by a function that was handed in; it scales the scores itself."""

    name = "given"

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> None:
        self.attend = attend

    def run(self, call: Call) -> tuple[Tensor, Tensor | None]:
        rows = call.in_rows()
        mixed = self.attend(rows.queries, rows.keys, rows.values, rows.matrix())
        return call.restored(mixed), None


def learn(functions: dict[str, object]) -> float:
    """The share of fresh lines that a Transformer reverses after training with `attend` and `feed_forward`.

    It runs in a process of its own, whose kernels are the student's from now on.
    """
    attend, network = functions["attend"], functions["feed_forward"]
    assert callable(attend)
    assert callable(network)
    multihead.KERNELS = (_Given(attend),)

    def forward(self: FeedForward, x: Tensor) -> Tensor:
        inner, outer = self.inner, self.outer
        return network(x, inner.weight.T, inner.bias, outer.weight.T, outer.bias)  # type: ignore[no-any-return]  # a student's

    FeedForward.forward = forward  # type: ignore[method-assign]  # in this process alone
    with tempfile.TemporaryDirectory() as folder, only_references():
        return _trained(Path(folder))


def _trained(folder: Path) -> float:
    torch.manual_seed(1)
    words = Tokenizer.train([" ".join(LETTERS)], size=60, kind="words")
    pairs = [(line, line[::-1]) for line in _lines(700, 1)]
    store = Store.build(folder / "store", iter(pairs), words, words, Filters(max_ratio=9.0), fingerprint("homework"))
    sizes = TransformerConfig(
        width=32, heads=2, feedforward=64, encoder_layers=1, decoder_layers=2, dropout=0.0, norm="pre", score="dot"
    )
    settings = TrainConfig(
        max_updates=UPDATES,
        schedule="linear",
        learning_rate=1e-2,
        warmup=20,
        clip=1.0,
        label_smoothing=0.0,
        precision="float32",
        average="none",
        save_every=10_000,
        log_every=1000,
    )
    model = FAMILIES[sizes.family].build(sizes, len(words), len(words))
    trainer = Trainer(
        model, Batches(store, batch_tokens=500, layout="padded", seed=1), settings, folder, seed=1, width=32
    )
    trainer.run()
    trainer.weights.copy_to_model(trainer.final_weights())
    seen = {line for line, _ in pairs}
    fresh = [line for line in _lines(600, 2) if line not in seen][:60]
    tuned = backend_of(model.float().eval(), "float32")
    found = decode(tuned, [words.encode(x) for x in fresh], SearchConfig(beam=1, precision="float32"))
    return sum(words.decode(h[0].ids) == x[::-1] for h, x in zip(found, fresh, strict=True)) / len(fresh)
