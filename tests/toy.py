"""Small models and toy corpora that the tests share."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.store import Store, fingerprint
from regard.models import FAMILIES
from regard.models.bahdanau import BahdanauConfig
from regard.models.blocks import layout_of
from regard.models.convs2s import ConvS2SConfig
from regard.models.lstmn import LSTMNTranslatorConfig
from regard.models.luong import LuongConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig
from regard.nn.state import Layout
from regard.search.hypotheses import Hypothesis, Problem, run_through
from regard.search.paths import greedy_steps, sample_steps
from regard.settings import Filters
from regard.text import Tokenizer

PAD, BEGIN, END = 0, 2, 3
WORDS = [
    "the",
    "old",
    "man",
    "sees",
    "a",
    "young",
    "dog",
    "in",
    "der",
    "Stadt",
    "und",
    "kauft",
    "Äpfel",
    "你好",
    "世界",
]
KEEP_ALL = Filters(max_length=10_000, max_ratio=10_000, drop_empty=False)

CONFIGS: dict[str, Any] = {
    f"{norm}-{positions}-{share}": TransformerConfig(
        width=16,
        heads=2,
        feedforward=32,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        norm=norm,
        positions=positions,
        share=share,
        max_positions=32,
    )
    for norm, positions, share in (
        *product(("post", "pre"), ("sinusoidal", "learned"), ("all",)),
        ("post", "none", "target"),
        ("pre", "sinusoidal-halves", "none"),
    )
}
CONFIGS["ssru"] = CONFIGS["pre-sinusoidal-all"].model_copy(update={"decoder_mixer": "ssru"})
CONFIGS["convs2s"] = ConvS2SConfig(
    width=16, channels=24, encoder_layers=2, decoder_layers=2, kernel=3, dropout=0.0, max_positions=32
)
_small: dict[str, Any] = {"width": 16, "embedding": 12, "layers": 2, "dropout": 0.0, "init_range": 0.4}
CONFIGS |= {
    "lstmn-translator": LSTMNTranslatorConfig(width=16, embedding=12, layers=2, score_width=8),
    "seq2seq-lstm": Seq2SeqConfig(**_small),
    "seq2seq-gru-cho": Seq2SeqConfig(**_small, cell="gru", context="every-step", reverse_source=False),
    "seq2seq-elman": Seq2SeqConfig(**_small, cell="elman", bidirectional=True, reverse_source=False),
    "bahdanau": BahdanauConfig(width=16, encoder_width=12, embedding=10, readout=8, init_range=0.4),
    "bahdanau-lstm": BahdanauConfig(
        cell="lstm", width=16, encoder_width=16, encoder_layers=2, embedding=10, readout=8, score="dot", init_range=0.4
    ),
    "luong": LuongConfig(**_small),
    "luong-local-p": LuongConfig(**_small, score="concat", attention="local-p", window=2, cell="gru"),
    "luong-local-m": LuongConfig(**_small, score="location", attention="local-m", window=4, reverse_source=False),
    "luong-unfed": LuongConfig(**_small, score="dot", input_feeding=False, bidirectional=True, reverse_source=False),
}


def make(config: Any, vocabulary: int = 20, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model with fixed random weights, biases and norms included, so that none hides behind a zero or a one."""
    torch.manual_seed(0)
    model: nn.Module = FAMILIES[config.family].build(config, vocabulary, vocabulary, PAD)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.to(dtype).eval()


def letters(path: Path, count: int) -> Store:
    """A store of lines of 1 to 40 letters and the same letters backwards, of fewer than 300 tokens."""
    lines = [" ".join("abcdefghij"[(i * j) % 10] for j in range(1 + i * 7 % 40)) for i in range(count)]
    tokenizer = Tokenizer.train(lines, size=300, kind="unigram", shrink=True)
    pairs = ((line, line[::-1]) for line in lines)
    return Store.build(path, pairs, tokenizer, tokenizer, Filters(), fingerprint("toy"))


def padded(rows: list[list[int]]) -> tuple[Tensor, Layout]:
    """Rows as a padded rectangle of ids and its layout."""
    lengths = torch.tensor([len(r) for r in rows])
    longest = int(lengths.max())
    return torch.tensor([r + [PAD] * (longest - len(r)) for r in rows]), layout_of("padded", lengths, longest)


def packed(rows: list[list[int]]) -> tuple[Tensor, Layout]:
    """Rows end to end and their layout."""
    lengths = torch.tensor([len(r) for r in rows])
    return torch.tensor([i for r in rows for i in r]), layout_of(
        "packed", lengths, int(lengths.max()), int(lengths.sum())
    )


SOURCES = [[5, 6, 7, END], [8, END], [9, 10, 11, 12, 13, END]]
TARGETS = [[BEGIN, 4, 5, 6], [BEGIN, 9, 9, 9, 9, 9, 8], [BEGIN, 14]]


def searched(search: Any, step: Any, state: Any, first: Tensor, **settings: Any) -> Any:
    """What a search finds for a problem made of these settings; the others are the search's own."""
    given = {key: settings.pop(key) for key in ("max_length", "end", "penalty", "bonus", "choose") if key in settings}
    if isinstance(given["max_length"], int):
        given["max_length"] = torch.tensor([given["max_length"]] * len(first))
    return search(Problem(step, state, first, **given), **settings)


def greedy_search(problem: Problem[Any]) -> list[Hypothesis]:
    """What greedy steps come to."""
    return run_through(greedy_steps(problem))


def sample_search(problem: Problem[Any], **settings: Any) -> list[Hypothesis]:
    """What drawn steps come to."""
    return run_through(sample_steps(problem, **settings))
