"""The LSTM with a tape: its equations, its laws as a language model, and what is left of it without the tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from regard import recipe
from regard.models import FAMILIES
from regard.models.lstmn import LSTMNConfig, Tape, Written
from regard.nn.recurrent import LSTM
from regard.nn.state import Observer

CONFIGS = {
    "tape": LSTMNConfig(width=16, embedding=12, layers=2, score_width=8),
    "last": LSTMNConfig(width=16, embedding=12, layers=2, tape=False),
}
EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
TEXT = torch.randint(4, 20, (3, 7), generator=torch.Generator().manual_seed(5))


@EVERY
def test_text_in_any_split_equals_text_at_once(config: LSTMNConfig) -> None:
    model: Any = toy.make(config, dtype=torch.float64)
    whole, _ = model.decode(TEXT, model.start())
    for split in ([1] * 7, [3, 4], [1, 5, 1]):
        state, tokens = model.start(), []
        for part in TEXT.split(split, dim=1):
            hidden, state = model.decode(part, state)
            tokens.append(hidden)
        torch.testing.assert_close(torch.cat(tokens, 1), whole, rtol=1e-10, atol=1e-10)
    rows = torch.tensor([2, 0, 0])
    _, state = model.decode(TEXT[:, :5], model.start())
    last, _ = model.decode(TEXT[rows, 5:], state.select(rows))
    torch.testing.assert_close(last, whole[rows, 5:], rtol=1e-10, atol=1e-10)


@EVERY
def test_padding_and_the_future_are_invisible(config: LSTMNConfig) -> None:
    model: Any = toy.make(config, dtype=torch.float64)

    def hidden(rows: list[list[int]], lay: Any) -> list[Tensor]:
        ids, layout = lay(rows)
        found, _ = model.decode(ids, model.start(), layout)
        sizes = [len(r) for r in rows]
        return list(found.split(sizes)) if lay is toy.packed else [x[:n] for x, n in zip(found, sizes, strict=True)]

    rectangle, pack = hidden(toy.TARGETS, toy.padded), hidden(toy.TARGETS, toy.packed)
    changed = hidden([[*t[:2], *(17 for _ in t[2:])] for t in toy.TARGETS], toy.padded)
    for i, row in enumerate(rectangle):
        torch.testing.assert_close(pack[i], row, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(hidden([toy.TARGETS[i]], toy.padded)[0], row, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(changed[i][:2], row[:2], rtol=1e-10, atol=1e-10)


def test_a_step_is_the_papers() -> None:
    """Equations 4 to 9 for one row, a place at a time, with plain numbers."""
    torch.manual_seed(0)
    layer = Tape(3, 4, 5, tape=True).double()
    torch.nn.init.normal_(layer.score)
    x = torch.randn(6, 1, 3, dtype=torch.float64)
    observe = Observer("decoder")
    found, _ = layer(x, Written(), observe)
    record = observe.weights["decoder"]
    h: list[Tensor] = []
    c: list[Tensor] = []
    read = torch.zeros(4, dtype=torch.float64)
    for t in range(6):
        cell = torch.zeros(4, dtype=torch.float64)
        if t:
            a = [layer.score @ torch.tanh(layer.key(h[i]) + layer.query(x[t, 0]) + layer.again(read)) for i in range(t)]
            s = torch.softmax(torch.stack(a), 0)
            torch.testing.assert_close(record[0][0, 0, t, :t], s)
            read = sum((s[i] * h[i] for i in range(t)), torch.zeros(()))
            cell = sum((s[i] * c[i] for i in range(t)), torch.zeros(()))
        i_, f_, g_, o_ = (layer.input(x[t, 0]) + layer.hidden(read)).chunk(4)
        c.append(f_.sigmoid() * cell + i_.sigmoid() * g_.tanh())
        h.append(o_.sigmoid() * c[-1].tanh())
    torch.testing.assert_close(found[:, 0], torch.stack(h))
    assert record[0].shape == (1, 1, 6, 6)
    assert record[0].triu().eq(0).all()


def test_without_a_tape_it_is_a_plain_lstm() -> None:
    torch.manual_seed(0)
    layer, plain = Tape(3, 16, 5, tape=False), LSTM(3, 16)
    plain.load_state_dict({n: p for n, p in layer.state_dict().items() if not n.startswith("score")})
    x = torch.randn(6, 2, 3)
    torch.testing.assert_close(layer(x, Written(), None)[0], plain(x)[0])


def test_the_recipes_with_and_without_a_tape_are_equal_in_size_and_budget() -> None:
    folder = Path(__file__).resolve().parents[2] / "recipes" / "ptb"
    tables, sizes = [], []
    for name in ("lstmn", "lstm"):
        made = recipe.load(folder / f"{name}.toml", variables={"REGARD_DATA": "data"})
        model = FAMILIES[made.model.family].build(made.model, made.text.size, made.text.size)
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
        tables.append(made.model_dump(exclude={"name": True, "model": {"tape", "width"}}))
    assert tables[0] == tables[1], "but for the tape and the width they are one recipe"
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-3)
