"""Frequent tokens: what looking at them costs, in every family that looks, and vectors of them that are shorter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from test_contrasts import LINES, _recipe
from test_laws_families import _aim
from torch import Tensor

from regard import bundle as bundles
from regard.errors import ModelError
from regard.inspection.inspect import inspect
from regard.models import FAMILIES
from regard.nn.positions import fold_scale, scale_rows
from regard.nn.state import Observer
from regard.tasks.fit import counts_of, fit
from regard.tasks.prepare import prepare
from regard.text import END
from regard.train import OBJECTIVES, REGULARIZERS, Inputs, Step
from regard.train.regularizers import Term, rarity, terms_of

COMMON = 6
SOURCES = [[COMMON, 5, 7, COMMON, toy.END], [8, COMMON, toy.END], [COMMON, 9, 10, 11, COMMON, 12, toy.END]]
TARGETS = [[toy.BEGIN, COMMON, 5, COMMON], [toy.BEGIN, COMMON, 9, 9, COMMON, 8], [toy.BEGIN, COMMON, 14]]
BLIND = ["rnn-lm", "seq2seq"]
LOOKING = [family for family in FAMILIES if family not in BLIND]


def _inputs(family: str, kind: str) -> Inputs:
    """Lines as the family's objective is given them."""
    if _aim(family) in ("translate", "cmlm"):
        sources, tokens = SOURCES, TARGETS
    else:
        sources = tokens = SOURCES if _aim(family) in ("masked-lm", "classify") else TARGETS
    targets = [[*row[1:], toy.END] for row in tokens]
    lay = toy.packed if kind == "packed" else toy.padded
    (source, reading), (given, writing), (right, _) = lay(sources), lay(tokens), lay(targets)
    if kind == "padded":
        right = torch.where(torch.arange(right.shape[1]) < writing.lengths[:, None], right, -1)
    widths = reading.width, writing.width
    return Inputs(kind, source, reading.lengths, given, right, writing.lengths, widths)


def _model(family: str) -> Any:
    return toy.make(FAMILIES[family].config(**FAMILIES[family].small, dropout=0.0), dtype=torch.float64).train()


def _step(family: str, model: Any, cost: Tensor | None) -> Step:
    terms = [] if cost is None else [Term(REGULARIZERS["attention-cost"], cost)]
    return Step(model, 0.1, chunk=64, objective=OBJECTIVES[_aim(family)], terms=terms)


def _looked(family: str, model: Any, price: Tensor) -> list[Tensor]:
    """What each line pays a target if it is alone: by the definition, with plain means."""
    paid = []
    aim = OBJECTIVES[_aim(family)]
    x = _inputs(family, "padded")
    for i, (many, more) in enumerate(zip(x.source_lengths.tolist(), x.target_lengths.tolist(), strict=True)):
        source, tokens = x.source[i : i + 1, :many], x.tokens[i : i + 1, :more]
        alone = Inputs(
            "padded", source, x.source_lengths[i : i + 1], tokens, tokens, x.target_lengths[i : i + 1], (many, more)
        )
        observe = Observer(aim.attention)
        _step(family, model, None).hidden(alone, observe)
        keys = (tokens if aim.attention == "decoder" else source)[0]
        paid.append(torch.stack([(w[0] * price[keys]).sum(-1).mean() for w in observe.weights[aim.attention]]).mean())
    return paid


def test_rarity_is_a_half_at_the_share_that_is_named() -> None:
    counts = torch.tensor([0, 10, 90, 900])
    assert rarity(counts, 0.01).tolist() == pytest.approx([1.0, 0.5, 0.1, 0.01 / 0.91])


@pytest.mark.parametrize("kind", ["padded", "packed"])
@pytest.mark.parametrize("family", LOOKING)
def test_each_line_pays_for_its_targets_as_it_would_alone(family: str, kind: str) -> None:
    price = torch.zeros(20, dtype=torch.float64)
    price[COMMON], price[5] = 0.7, 0.1
    found = []
    for each in (None, price):
        model = _model(family)
        loss = _step(family, model, each)(_inputs(family, kind))
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}
        found.append((float(loss.detach()), gradients))
    (before, without), (after, paying) = found
    assert after == pytest.approx(before, rel=1e-6), "what is told is the model's own loss"
    model = _model(family).eval()
    targets = [1] * 3 if _aim(family) == "classify" else _inputs(family, "padded").target_lengths.tolist()
    paid = torch.stack([n * each for n, each in zip(targets, _looked(family, model, price), strict=True)]).sum()
    right = torch.autograd.grad(paid, list(model.parameters()), allow_unused=True)
    assert any(gradient is not None and gradient.abs().max() > 1e-5 for gradient in right)
    for name, gradient in zip(without, right, strict=True):
        more = paying[name] - without[name]
        torch.testing.assert_close(more, torch.zeros_like(more) if gradient is None else gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", LOOKING)
def test_who_pays_looks_less_at_what_is_common(family: str) -> None:
    one = torch.zeros(20, dtype=torch.float64)
    one[COMMON] = 1.0
    looked = []
    for price in (None, 5.0 * one):
        model = _model(family)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(15):
            optimizer.zero_grad()
            _step(family, model, price)(_inputs(family, "padded")).backward()
            optimizer.step()
        looked.append(torch.stack(_looked(family, model.eval(), one)).mean().item())
    assert looked[1] < 0.7 * looked[0], looked


@pytest.mark.parametrize("family", BLIND)
def test_who_does_not_look_is_told_so(family: str) -> None:
    with pytest.raises(ModelError, match="attention-cost is a cost of attention, and this model has no"):
        _step(family, _model(family), torch.ones(20))(_inputs(family, "padded"))


def test_every_family_looks_or_is_blind() -> None:
    assert [name for name, family in FAMILIES.items() if not family.has_attention] == BLIND


def test_the_price_is_of_what_is_read_and_a_lines_end_is_free(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, LINES, "left-to-right", regularizers={"attention-cost": 2.0}, log_every=1)
    prepared = prepare(recipe.corpus, recipe.spelling, tmp_path)
    (term,) = terms_of(recipe.train.regularizers, counts_of(recipe, prepared), torch.device("cpu"))
    price = term.value
    counts = prepared.train.source.counts(len(prepared.source_tokenizer))
    counts[END] = 0
    share = counts / counts.sum()
    assert price.tolist() == pytest.approx((2.0 * share / (0.01 + share)).tolist(), rel=1e-5)
    assert price[END] == 0
    events: list[dict[str, Any]] = []
    fit(recipe, tmp_path / "run", callbacks=[events.append])
    free = recipe.model_copy(update={"train": recipe.train.model_copy(update={"regularizers": {}})})
    fit(free, tmp_path / "free", callbacks=[events.append])
    first, second = ([e["loss"] for e in events if e["event"] == "train"][i::3] for i in (0, 1))
    assert first[0] == pytest.approx(first[1], rel=1e-5), "the loss that is told is the model's own"
    assert second[0] != second[1], "and it learns otherwise"


# -- shorter vectors ---------------------------------------------------------------------------------------------------

APART = {"transformer": {"share": "target"}, "parser": {"share": "target"}, "gpt": {"tied": False}}
"""Settings that give the side that is read a table of its own, where it has none otherwise."""
TIED = ["bert", "mask-predict"]
SCALE = torch.ones(20, dtype=torch.float64)
SCALE[COMMON], SCALE[5] = 0.25, 0.5


def _apart(family: str, sizes: tuple[int, int] = (20, 20)) -> Any:
    each = FAMILIES[family]
    torch.manual_seed(0)
    made = each.build(each.config(**each.small, **APART.get(family, {}), dropout=0.0), *sizes, toy.PAD)
    return made.double().train()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in TIED])
def test_scaled_vectors_are_those_of_a_table_with_scaled_rows(family: str) -> None:
    damped, scaled = _apart(family), _apart(family)
    table = next(part for part in scaled.modules() if isinstance(part, torch.nn.Embedding))
    with torch.no_grad():
        table.weight.mul_(SCALE[:, None])
    scale_rows(damped, SCALE)
    losses = []
    for model in (damped, scaled):
        torch.manual_seed(1)  # of dropout, where the config says so
        loss = _step(family, model, None)(_inputs(family, "packed"))
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)
    names = [name for name, _ in damped.named_parameters()]
    assert names == [name for name, _ in scaled.named_parameters()]
    assert damped.state_dict().keys() == scaled.state_dict().keys(), "nothing more is kept"
    pairs = zip(damped.named_parameters(), scaled.parameters(), strict=True)
    for (name, one), other in pairs:
        if one.grad is not None and other.grad is not None:
            times = SCALE[:, None] if other is table.weight else 1.0
            torch.testing.assert_close(one.grad, other.grad * times, rtol=1e-8, atol=1e-10, msg=name)
    fold_scale(damped)
    for one, other in zip(damped.parameters(), scaled.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert not any(name.endswith("scale") for name, _ in damped.named_buffers())


@pytest.mark.parametrize(
    "family", [f for f, known in FAMILIES.items() if known.kind in ("encoder-decoder", "classifier")]
)
def test_the_first_table_is_the_one_of_what_is_read(family: str) -> None:
    model = _apart(family, (20, 23))
    assert next(part for part in model.modules() if isinstance(part, torch.nn.Embedding)).num_embeddings == 20


@pytest.mark.parametrize("family", [*TIED, "transformer"])
def test_a_table_with_other_uses_is_refused(family: str) -> None:
    with pytest.raises(ModelError, match=r"keep them apart .* or leave input-weights out"):
        scale_rows(_model(family), SCALE)


@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_vectors_of_common_tokens_stay_shorter_when_they_learn(family: str) -> None:
    lengths = []
    for scale in (torch.ones(20, dtype=torch.float64), SCALE):
        model = _apart(family)
        scale_rows(model, scale)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(15):
            optimizer.zero_grad()
            _step(family, model, None)(_inputs(family, "padded")).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        fold_scale(model)
        table = next(part for part in model.modules() if isinstance(part, torch.nn.Embedding))
        lengths.append(table.weight.detach().norm(dim=1))
    assert lengths[1][COMMON] < 0.4 * lengths[0][COMMON]
    assert lengths[1][9] == pytest.approx(float(lengths[0][9]), rel=0.2)


def test_a_bundle_has_the_scales_in_its_table(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, LINES, "left-to-right", learning_rate=1e-12)
    rows = []
    for damping in (0.0, 0.05):
        changes = {"model": recipe.model.model_copy(update={"share": "target"})}
        changes["train"] = recipe.train.model_copy(update={"regularizers": {"input-weights": damping}})
        out = tmp_path / str(damping)
        path = fit(recipe.model_copy(update=changes), out)
        rows.append(bundles.load(path).model().source.table.weight.detach())  # type: ignore[union-attr]
        assert inspect(path, again=True).verified
    prepared = prepare(recipe.corpus, recipe.spelling, tmp_path / "0.05")
    counts = torch.from_numpy(prepared.train.source.counts(len(prepared.source_tokenizer)))
    counts[END] = 0
    torch.testing.assert_close(rows[1], rows[0] * rarity(counts, 0.05)[:, None], rtol=1e-5, atol=1e-6)
    assert (rarity(counts, 0.05) < 0.5).sum() == 6, "the six letters"
