"""Regularisers that compute a batch twice, and words that are replaced before a model is given them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import toy
from test_additions import _losses, _tables, _trained_resumed_and_used
from torch.nn import functional as F

from regard import recipe as recipes
from regard.models import FAMILIES
from regard.nn.layers import only_references, unavailable
from regard.tasks.fit import fit
from regard.text import END
from regard.train import REGULARIZERS, Inputs, Step
from regard.train.regularizers import Counts, Term, _diverging, divergence, terms_of


def _by_definition(one: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
                   targets: torch.Tensor) -> torch.Tensor:  # fmt: skip
    """Liang et al. 2021, equation 2, without its half: KL(p, q) + KL(q, p), by PyTorch's own function."""
    p, q = (F.linear(x[targets >= 0], weight, bias).log_softmax(-1) for x in (one, other))
    return F.kl_div(q, p, reduction="sum", log_target=True) + F.kl_div(p, q, reduction="sum", log_target=True)


@pytest.mark.parametrize("biased", [False, True])
def test_the_divergence_and_its_gradients_are_the_definition(biased: bool) -> None:
    torch.manual_seed(1)
    shapes = [(11, 6), (11, 6), (17, 6), *([(17,)] if biased else [])]
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    targets = torch.tensor([4, -1, 5, 6, 7, -1, 8, 9, 10, 11, 3])
    made = []
    for compute in (lambda *x: divergence(*x, targets, 4), lambda *x: _by_definition(*x, targets)):
        value = compute(*given, *([] if biased else [None]))
        made.append([value, *torch.autograd.grad(3.0 * value, given)])
    for ours, theirs in zip(*made, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert made[0][0].item() > 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_divergence_is_the_reference(dtype: torch.dtype) -> None:
    """A vocabulary that is no multiple of a vector, predictions far apart and alike, and padding."""
    if reason := unavailable("divergence", "cpu", dtype):
        pytest.skip(reason)
    torch.manual_seed(2)
    one = 6.0 * torch.randn(9, 37).to(dtype)
    other = (one + torch.tensor([0.0, 0.1, 20.0]).repeat(3)[:, None] * torch.randn(9, 37)).to(dtype)
    targets = torch.tensor([5, 6, 7, 8, -1, 9, 10, 11, 36])
    made = [one.clone(), other.clone()]
    found = _diverging(*made, targets)
    with only_references():
        doubles = [one.double(), other.double()]
        exact = _diverging(*doubles, targets)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(made, doubles, strict=True):
        tolerance = 1e-4 if dtype == torch.float32 else 0.02
        torch.testing.assert_close(mine.double(), theirs, rtol=tolerance, atol=tolerance)
        assert not mine[4].any()


def _step(strength: float, dropout: float) -> tuple[Step, Inputs]:
    model = toy.make(
        FAMILIES["transformer"].config(**FAMILIES["transformer"].small, dropout=dropout), dtype=torch.float64
    ).train()
    terms = [Term(REGULARIZERS["r-drop"], torch.tensor(strength))] if strength else []
    source, reading = toy.padded([[5, 6, 7, toy.END], [8, 9, toy.END]])
    tokens, writing = toy.padded([[toy.BEGIN, 5, 6], [toy.BEGIN, 9, 9]])
    right, _ = toy.padded([[5, 6, toy.END], [9, 9, toy.END]])
    x = Inputs("padded", source, reading.lengths, tokens, right, writing.lengths, (reading.width, writing.width))
    return Step(model, 0.1, chunk=64, terms=terms), x


def test_without_dropout_two_passes_agree_and_nothing_changes() -> None:
    made = []
    for strength in (0.0, 5.0):
        torch.manual_seed(3)
        step, x = _step(strength, 0.0)
        loss = step(x)
        loss.backward()
        made.append([loss, *(p.grad for p in step.model.parameters() if p.grad is not None)])
    for plain, agreeing in zip(*made, strict=True):
        torch.testing.assert_close(plain, agreeing)


def test_r_drop_learns_the_two_passes_losses_and_their_divergence() -> None:
    """The gradient is that of the mean loss plus alpha / 4 of the divergence, written down by hand."""
    step, x = _step(5.0, 0.3)
    torch.manual_seed(7)
    step(x).backward()
    ours = {name: p.grad.clone() for name, p in step.model.named_parameters() if p.grad is not None}
    step.model.zero_grad()
    torch.manual_seed(7)
    hidden = [step.hidden(x).flatten(0, -2) for _ in range(2)]
    targets, output = step.targets(x), step.model.output
    total = 1.25 * _by_definition(*hidden, output.weight, output.bias, targets)
    for each in hidden:
        scores = F.linear(each, output.weight, output.bias)
        total = total + 0.5 * F.cross_entropy(scores, targets, reduction="sum", label_smoothing=0.1, ignore_index=-1)
    total.backward()
    for name, parameter in step.model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(ours[name], parameter.grad, msg=name)


@pytest.mark.parametrize(("name", "strength"), [("r-drop", 5.0), ("word-replacement", 0.3)])
def test_a_run_resumes_exactly(tmp_path: Path, name: str, strength: float) -> None:
    found = _trained_resumed_and_used(_tables(tmp_path, regularizers={name: strength}), tmp_path)
    plain: list[dict[str, object]] = []
    fit(recipes.validate(_tables(tmp_path)), tmp_path / "plain", callbacks=[plain.append])
    assert found[6] != _losses(plain)[6]
    assert all(math.isfinite(loss) for loss in found.values())


def test_words_are_replaced_as_often_as_asked_by_words_as_frequent_as_they_are() -> None:
    read = torch.tensor([0, 0, 0, 9, 60, 30, 10])
    counts = Counts(read, torch.tensor([0, 0, 0, 9, 0, 1, 1, 1, 1]))  # the target has more tokens
    (term,) = terms_of({"word-replacement": 0.25}, counts, torch.device("cpu"))
    assert term.entry.inputs is not None
    ids = torch.full((40_000,), 6)
    ids[:4] = torch.tensor([0, 1, 2, END])
    lengths = torch.tensor([len(ids)])
    x = Inputs("packed", ids, lengths, ids, ids, lengths, (len(ids), len(ids)))
    torch.manual_seed(1)
    seen = term.entry.inputs(term.value, x)
    assert seen.source[:4].tolist() == [0, 1, 2, END], "special tokens stay"
    shares = torch.bincount(seen.source[4:], minlength=9) / (len(ids) - 4)
    torch.testing.assert_close(shares[4:7], torch.tensor([0.15, 0.075, 0.775]), atol=0.01, rtol=0)
    assert shares[[0, 1, 2, 3, 7, 8]].sum() == 0, "neither special tokens nor those that the source never has"
    written = torch.bincount(seen.tokens[4:], minlength=9) / (len(ids) - 4)
    torch.testing.assert_close(written[[4, 5, 7, 8]], torch.tensor([0.0, 0.0625, 0.0625, 0.0625]), atol=0.01, rtol=0)
    assert torch.equal(seen.targets, x.targets), "what is to be predicted stays"
