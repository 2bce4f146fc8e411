"""Law 1: kernels agree with `attend`, and both with float64; masks, layouts and dropout do what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard.kernels.table  # noqa: F401  (fills the table of stand-ins)
from regard.errors import ModelError
from regard.kernels import native
from regard.nn import Observer, Padded
from regard.nn.attention import NORMALIZERS, SCORES, AndMask, Causal, Dot, Lengths, Mask, Window, attend, scores, weigh
from regard.nn.attention.core import observed
from regard.nn.attention.multihead import KERNELS, Call, Reference, choose
from regard.nn.layers import Dropout, LayerNorm, keep_mask
from regard.nn.positions import POSITIONS, look_up, sinusoids
from regard.nn.state import Packed
from regard.train import label_smoothed

REFUSED = native.unavailable("cpu", torch.float32)
B, H, T, S, D, E = 3, 2, 5, 7, 4, 6
FLOATS = torch.float32, torch.float64

MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": Causal(2),
    "window": Window(1),
    "lengths": Lengths(torch.tensor([7, 1, 4])),
    "both": AndMask(Causal(2), Lengths(torch.tensor([7, 1, 4]))),
}


def _qkv(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((B, H, T, D), (B, H, S, D), (B, H, S, E))
    return tuple(torch.randn(*s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_kernels_agree_with_attend_in_float64(kernel: object, score: str, mask: str) -> None:
    results = []
    for dtype, runner in ((torch.float32, kernel), (torch.float64, None)):
        torch.manual_seed(0)
        part = SCORES[score](D).to(dtype)
        q, k, v = (x.requires_grad_() for x in _qkv(dtype))
        prepared = part.queries(q), part.keys(k)
        call = Call(*prepared, v, part, MASKS[mask])
        if runner is not None and getattr(runner, "name") != "reference" and not part.is_dot:  # noqa: B009
            assert runner.refuses(call) == "the score is not a dot product"  # type: ignore[attr-defined]
            return
        if runner is not None and getattr(runner, "name") == "compiled":  # noqa: B009
            assert runner.refuses(call) == "the sequences are not packed"  # type: ignore[attr-defined]
            return
        if runner is None:
            mixed, _ = attend(*prepared, v, part.compare, call.matrix())
        else:
            if getattr(runner, "name") == "fused" and mask in ("window", "both", "lengths"):  # noqa: B009
                rows = call.matrix()
                assert rows is not None
                if not rows.any(-1).all():
                    pytest.skip("a query that sees nothing is the reference's own case")
            mixed, _ = runner.run(call)  # type: ignore[attr-defined]
        mixed.square().sum().backward()
        leaves = (q, k, v, *part.parameters())
        results.append([mixed.double(), *(x.grad.double() for x in leaves if x.grad is not None)])
    for fast, exact in zip(*results, strict=True):
        torch.testing.assert_close(fast, exact, rtol=2e-5, atol=2e-5)


def _formula(part: Any, name: str, q: Tensor, k: Tensor) -> Tensor:
    """The score of one query (Q,) and one key (D,), as its paper writes it."""
    match name:
        case "dot":
            return q @ k
        case "scaled_dot":
            return q @ k / D**0.5
        case "bilinear":
            return k @ part.query.weight @ q
        case "reduced_rank":
            return (part.query.weight @ q) @ (part.key.weight @ k)
        case "additive":
            return part.v @ torch.tanh(part.query.weight @ q + part.key.weight @ k)
        case "concat":
            return part.v @ torch.tanh(part.both.weight @ torch.cat((q, k)))
        case "cosine":
            return q @ k / q.norm() / k.norm() * part.log_temperature.exp()
        case "fixed_cosine":
            return q @ k / q.norm() / k.norm() * D**0.5
        case "mean":
            return q.new_zeros(())
    raise AssertionError(name)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("query_width", [D, D + 2])
def test_a_score_is_its_papers_formula(name: str, query_width: int) -> None:
    torch.manual_seed(0)
    if query_width != D and issubclass(SCORES[name], Dot):
        with pytest.raises(ModelError, match="queries of width 6 and keys of width 4 have no dot product; make them"):
            SCORES[name](D, query_width)
        return
    part: Any = SCORES[name](D, query_width).double()
    q, k = torch.randn(2, T, query_width, dtype=torch.float64), torch.randn(2, S, D, dtype=torch.float64)
    scores = part.compare(part.queries(q), part.keys(k))
    assert scores.shape == (2, T, S)
    if name == "location":
        torch.testing.assert_close(scores, (q @ part.places.weight.T)[..., :S])
        return
    rows = [[[_formula(part, name, query, key) for key in k[b]] for query in q[b]] for b in range(2)]
    torch.testing.assert_close(scores, torch.stack([torch.stack([torch.stack(r) for r in row]) for row in rows]))


def test_the_concatenated_form_of_an_additive_score_is_the_sum_form() -> None:
    torch.manual_seed(0)
    one: Any = SCORES["additive"](D, D + 2, 3)
    two: Any = SCORES["concat"](D, D + 2, 3)
    with torch.no_grad():
        two.both.weight.copy_(torch.cat((one.query.weight, one.key.weight), 1))
        two.v.copy_(one.v)
    q, k = torch.randn(T, D + 2), torch.randn(S, D)
    torch.testing.assert_close(*(x.compare(x.queries(q), x.keys(k)) for x in (one, two)))


def test_an_additive_score_made_in_parts_is_the_same_with_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    part = SCORES["additive"](D).double()
    given = [torch.randn(2, n, D, dtype=torch.float64) for n in (T, S)]
    found = []
    for cells in (1 << 24, 100):
        monkeypatch.setattr(scores, "_CELLS", cells)
        q, k = (x.clone().requires_grad_() for x in given)
        part.zero_grad()
        made = part.compare(part.queries(q), part.keys(k))
        made.square().sum().backward()
        found.append([made, *(x.grad for x in (q, k, *part.parameters()))])
    for whole, tokens in zip(*found, strict=True):
        torch.testing.assert_close(whole, tokens)


def test_a_location_score_refuses_more_places_than_it_has() -> None:
    part = SCORES["location"](D, size=6)
    with pytest.raises(ModelError, match=r"7 positions to look at are more than the 6 .* larger model.score_width"):
        part.compare(part.queries(torch.randn(T, D)), part.keys(torch.randn(S, D)))


def test_mean_pooling_is_attention_that_ignores_its_query() -> None:
    q, k, v = _qkv(torch.float32)
    part, mask = SCORES["mean"](D), Lengths(torch.tensor([7, 1, 4]))
    mixed, _ = Reference().run(Call(part.queries(q), part.keys(k), v, part, mask))
    for row, n in zip(range(B), (7, 1, 4), strict=True):
        torch.testing.assert_close(mixed[row], v[row, :, :n].mean(-2, keepdim=True).expand(H, T, E))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("width", [16, 20, 64])
def test_the_compiled_kernel_agrees_with_attend_on_packs(dtype: torch.dtype, causal: bool, width: int) -> None:
    """Sequences of many lengths, an empty one, and a tail that belongs to none; gradients too."""
    if REFUSED:
        pytest.skip(REFUSED)
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([1, 7, 16, 0, 33, 70, 5])
    key_lengths = lengths if causal else torch.tensor([3, 1, 17, 2, 40, 64, 9])
    layouts = [Packed(n, int(n.max()), int(n.sum()) + 6) for n in (lengths, key_lengths)]
    score, mask = SCORES["scaled_dot"](width), Causal() if causal else Lengths(key_lengths)
    tensors = [
        torch.randn(layout.tokens, H * size, generator=generator, dtype=torch.float64).to(dtype)
        for layout, size in zip((layouts[0], layouts[1], layouts[1]), (width, width, width + 3), strict=True)
    ]
    fill = torch.randn(layouts[0].tokens, H * (width + 3), generator=generator, dtype=torch.float64)
    fill[int(lengths.sum()) :] = 0
    found = []
    for exact in (False, True):
        leaves = [(x.double() if exact else x.clone()).requires_grad_() for x in tensors]
        q, k, v = (x[None].unflatten(-1, (H, -1)).transpose(1, 2) for x in leaves)
        call = Call(q * score.scale, k, v, score, mask, False, *layouts)  # type: ignore[attr-defined]
        kernel, _ = choose(call)
        assert kernel.name == ("reference" if exact else "compiled")
        mixed, _ = kernel.run(call)
        out = mixed.transpose(1, 2).flatten(-2)[0]
        (out * fill.to(out.dtype)).sum().backward()
        found.append([out.double().where(fill != 0, 0), *(x.grad.double() for x in leaves if x.grad is not None)])
    bound = 1e-5 if dtype == torch.float32 else 4e-2
    for fast, exact_one in zip(*found, strict=True):
        torch.testing.assert_close(fast, exact_one, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_layer_norm_agrees_with_float64(dtype: torch.dtype) -> None:
    if REFUSED:
        pytest.skip(REFUSED)
    torch.manual_seed(0)
    x, g = torch.randn(37, 48).mul(3).add(1).to(dtype), torch.randn(37, 48).to(dtype)
    gain, bias = torch.randn(48).to(dtype), torch.randn(48).to(dtype)
    found = []
    for exact in (False, True):
        leaves = [(t.double() if exact else t.clone()).requires_grad_() for t in (x, gain, bias)]
        layer = LayerNorm(48).to(leaves[0].dtype)
        y = torch.func.functional_call(layer, {"weight": leaves[1], "bias": leaves[2]}, (leaves[0],))
        assert exact or type(y.grad_fn).__name__ == "_LayerNormBackward"
        y.backward(g.to(y.dtype))
        found.append([y.double(), *(t.grad.double() for t in leaves if t.grad is not None)])
    bound = 1e-5 if dtype == torch.float32 else 4e-2
    for fast, exact_one in zip(*found, strict=True):
        torch.testing.assert_close(fast, exact_one, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [7, 64, 999])
def test_the_compiled_loss_agrees_with_float64(dtype: torch.dtype, vocabulary: int) -> None:
    if REFUSED:
        pytest.skip(REFUSED)
    torch.manual_seed(0)
    logits = torch.randn(23, vocabulary).mul(6).to(dtype)
    logits[3, 2] = 300  # nothing overflows, and what is impossible is 0
    targets = torch.randint(0, vocabulary, (23,))
    targets[[4, 9]] = -1
    exact = logits.double().requires_grad_()
    label_smoothed(exact, targets, 0.1).backward()  # type: ignore[no-untyped-call]
    spent = logits.clone()
    losses = native.smoothed(spent, targets, 0.1)
    want = [float(label_smoothed(row[None].detach(), t[None], 0.1)) for row, t in zip(exact, targets, strict=True)]
    torch.testing.assert_close(losses, torch.tensor(want), rtol=1e-5, atol=1e-5)
    bound = 1e-5 if dtype == torch.float32 else 5e-3
    torch.testing.assert_close(spent.double(), exact.grad, rtol=bound, atol=bound)


def test_a_compiled_residual_drops_its_share_and_nothing_of_the_rest() -> None:
    if REFUSED:
        pytest.skip(REFUSED)
    torch.manual_seed(0)
    x, y = torch.randn(1001, 333, requires_grad=True), torch.randn(1001, 333, requires_grad=True)
    torch.manual_seed(1)
    out = Dropout(0.3).add(x, y)
    assert type(out.grad_fn).__name__ == "_DropAddBackward"
    out.sum().backward()
    kept = y.grad != 0  # type: ignore[union-attr]
    assert kept.double().mean().item() == pytest.approx(0.7, abs=5 * 0.5 / y.numel() ** 0.5)
    torch.testing.assert_close(out, x + torch.where(kept, y / 0.7, 0.0))
    assert torch.equal(x.grad, torch.ones_like(x))  # type: ignore[arg-type]
    again = Dropout(0.3).add(x, y)
    assert not torch.equal(again, out), "each call draws anew"
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.3).add(x, y), out), "and the seed decides"
    draws = kept.double().flatten() - 0.7
    for distance in (1, 2, 3, 16, 333, 1024):
        assert abs((draws[distance:] * draws[:-distance]).mean().item()) < 5 * 0.21 / y.numel() ** 0.5


def test_gradients_of_a_frequent_token_are_summed_in_float32() -> None:
    torch.manual_seed(0)
    table, ids, g = torch.randn(5, 8), torch.randint(0, 3, (3000,)), torch.rand(3000, 8).bfloat16()
    low = torch.nn.Embedding.from_pretrained(table.bfloat16(), freeze=False)
    look_up(ids, low).backward(g)  # type: ignore[no-untyped-call]
    exact = torch.zeros(5, 8, dtype=torch.float64).index_add_(0, ids, g.double())
    assert torch.equal(low.weight.grad, exact.bfloat16())  # type: ignore[arg-type]


def test_a_query_that_sees_nothing_gets_zeros_and_a_finite_gradient() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    weights = weigh(scores, torch.tensor([[True, True, False], [False, False, False]]))
    weights.square().sum().backward()
    assert weights[1].eq(0).all()
    assert weights[0, 2] == 0
    assert weights[0].sum().item() == pytest.approx(1.0)
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_the_choice_of_a_kernel_says_why_others_refused() -> None:
    q, k, v = _qkv(torch.float32)
    kernel, refusals = choose(Call(q, k, v, SCORES["scaled_dot"](D), want_weights=True))
    assert kernel.name == "reference"
    assert "weights" in refusals["fused"]
    long = torch.zeros(1, 1, 600, D)
    assert choose(Call(long, long, long, SCORES["scaled_dot"](D)))[0].name == "fused"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_layouts_hold_the_same_tokens(lengths: list[int]) -> None:
    sizes = torch.tensor(lengths)
    flat = torch.arange(int(sizes.sum()) * 2.0).view(-1, 2)
    packed = Packed(sizes, max(lengths), len(flat))
    rectangle = packed.pad(flat)
    assert rectangle.shape == (len(lengths), max(lengths), 2)
    assert torch.equal(packed.flatten(rectangle), flat)
    padded = Padded(sizes, max(lengths))
    for row, token in zip(rectangle, flat.split(lengths), strict=True):
        assert torch.equal(row[: len(token)], token)
    assert torch.equal(packed.positions(), torch.cat([padded.positions()[:n] for n in lengths]))


def test_sinusoids_are_the_papers() -> None:
    sines, cosines = sinusoids(torch.tensor([0, 1, 50]), 8)
    assert sines[0].tolist() == [0, 0, 0, 0]
    assert cosines[0].tolist() == [1, 1, 1, 1]
    torch.testing.assert_close(sines[2, 3], torch.tensor(50.0 / 10000 ** (6 / 8)).sin())
    table = POSITIONS["sinusoidal"](8, 4)(torch.tensor([50]), 51)  # beyond its first capacity
    torch.testing.assert_close(table[0, 7], cosines[2, 3])


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_dropout_drops_its_share_keeps_the_mean_and_matches_its_gradient(probability: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(400_000, requires_grad=True)
    y = Dropout(probability)(x)
    y.sum().backward()
    # Five standard deviations of a share estimated from 400,000 draws.
    assert (y == 0).double().mean().item() == pytest.approx(probability, abs=5 * 0.5 / 400_000**0.5)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert torch.equal(x.grad, y.detach())  # type: ignore[arg-type]
    assert torch.equal(Dropout(probability).eval()(x), x)


def test_dropout_draws_are_independent_between_neighbours() -> None:
    torch.manual_seed(1)
    mask, scale = keep_mask(torch.Size((400_000,)), 0.25, torch.device("cpu"))
    assert scale == pytest.approx(1 / 0.75, rel=1e-4)
    kept = mask.double() - 0.75
    for distance in (1, 2, 3, 4):
        assert abs((kept[distance:] * kept[:-distance]).mean().item()) < 5 * 0.1875 / 400_000**0.5


# -- normalisers -------------------------------------------------------------------------------------------------------


def _by_bisection(z: Tensor, alpha: float) -> Tensor:
    """alpha-entmax of a vector, its threshold found by halving (Peters et al. 2019, equation 10)."""
    z = z * (alpha - 1)
    low, high = z.max() - 1, z.max()
    for _ in range(80):
        middle = (low + high) / 2
        weights = (z - middle).clamp(min=0) ** (1 / (alpha - 1))
        low, high = (middle, high) if weights.sum() > 1 else (low, middle)
    return weights


@pytest.mark.parametrize(("name", "alpha"), [("sparsemax", 2.0), ("entmax15", 1.5)])
def test_sparse_normalisers_are_their_papers_and_have_their_gradients(name: str, alpha: float) -> None:
    torch.manual_seed(0)
    z = torch.randn(6, 9, dtype=torch.float64) * torch.tensor([0.1, 0.5, 1, 2, 5, 20]).double()[:, None]
    weights = NORMALIZERS[name]()(z)
    torch.testing.assert_close(weights, torch.stack([_by_bisection(row, alpha) for row in z]))
    assert weights[3:].eq(0).any()
    assert torch.autograd.gradcheck(NORMALIZERS[name](), (z.requires_grad_(),))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalisers_see_no_hidden_key_and_give_zeros_where_nothing_is_seen(name: str, training: bool) -> None:
    torch.manual_seed(0)
    normalize: Any = NORMALIZERS[name]()
    if hasattr(normalize, "train"):
        normalize.train(training)
    visible = torch.tensor([[True, True, False], [False, True, False], [False, False, False]])
    scores = torch.randn(4, 3, 3, requires_grad=True)
    observe = Observer()
    weights = weigh(scores, visible, normalize=observed(normalize, observe, None))
    torch.testing.assert_close(weights.sum(-1), torch.tensor([1.0, 1.0, 0.0]).expand(4, 3))
    assert weights[..., ~visible].eq(0).all()
    fill = torch.randn_like(weights)
    loss = (weights * fill).sum()
    if training and name == "sampled":
        loss = loss + observe.losses[0](torch.arange(4.0), torch.ones(4))
    if loss.requires_grad:
        loss.backward()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
        assert scores.grad[..., ~visible].eq(0).all()
        assert scores.grad.any()
    else:
        assert not training
    low = weigh(scores.detach().bfloat16(), visible, normalize=normalize)
    assert low.dtype == torch.bfloat16
    assert low[:, 2].eq(0).all()


@pytest.mark.parametrize("name", ["sampled", "gumbel"])
def test_hard_attention_draws_from_the_softmax_and_takes_the_best_in_use(name: str) -> None:
    torch.manual_seed(0)
    scores = torch.tensor([1.0, 0.0, -1.0, 2.0])
    normalize: Any = NORMALIZERS[name]()
    weights = normalize(scores.expand(20_000, 4))
    assert set(weights.detach().round(decimals=5).unique().tolist()) == {0.0, 1.0}
    # Five standard deviations of a share estimated from 20,000 draws.
    torch.testing.assert_close(weights.mean(0), scores.softmax(0), atol=5 * 0.5 / 20_000**0.5, rtol=0)
    assert torch.equal(normalize.eval()(scores), torch.tensor([0.0, 0.0, 0.0, 1.0]))


def test_straight_through_attention_looks_at_one_key_and_learns_as_softmax_does() -> None:
    torch.manual_seed(0)
    scores, fill = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4)
    weights = NORMALIZERS["straight_through"]()(scores)
    assert torch.equal(weights.detach().round(), torch.nn.functional.one_hot(scores.argmax(-1), 4).float())
    (found,) = torch.autograd.grad((weights * fill).sum(), scores)
    (soft,) = torch.autograd.grad((scores.softmax(-1) * fill).sum(), scores)
    torch.testing.assert_close(found, soft)


def test_the_score_function_is_the_gradient_of_the_expected_loss() -> None:
    """Two lines with one choice each among three keys whose losses are known: the expectation is exact."""
    torch.manual_seed(0)
    costs = torch.tensor([[1.0, 5.0, 2.0], [3.0, 0.0, 1.0]], dtype=torch.float64)
    scores = torch.randn(2, 1, 3, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad((scores.softmax(-1)[:, 0] * costs).sum(), scores)
    normalize: Any = NORMALIZERS["sampled"]()
    draws = 4000
    total = torch.zeros_like(scores)
    for _ in range(draws):
        observe = Observer()
        weights = observed(normalize, observe, None)(scores)
        losses = (weights.detach()[:, 0] * costs).sum(-1)
        total += torch.autograd.grad(observe.losses[0](losses, torch.ones(2).double()), scores)[0]
    # Five standard deviations: a draw's gradient is no larger than the largest difference of losses.
    torch.testing.assert_close(total / draws, exact, atol=5 * 5 / draws**0.5 / 2, rtol=0)
