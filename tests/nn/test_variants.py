"""Every part that a Transformer's config can name keeps the laws of models; each is what its paper says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import test_laws_models as laws
import torch
import toy
from torch import Tensor, nn
from torch.nn import functional as F

import regard.kernels.table  # noqa: F401  (fills the table of stand-ins)
from regard.errors import ModelError
from regard.models.blocks import layout_of, parameter_count
from regard.models.transformer import TransformerConfig
from regard.nn import ACTIVATIONS, NORM_KINDS
from regard.nn.attention import NORMALIZERS, SCORES, Causal, Heads, MultiHead, attend
from regard.nn.attention.multihead import KERNELS, Call, Reference
from regard.nn.layers import GATES, BatchNorm, FeedForward, GatedFeedForward, RMSNorm
from regard.nn.positions import BIASES, POSITIONS, ROTARY
from regard.studies.lectures.positions import FullyConnected
from regard.tasks.costs import count_costs
from regard.train.step import Inputs, Step, Weights

SMALL: dict[str, Any] = {
    "width": 16,
    "heads": 2,
    "feedforward": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
    "max_positions": 32,
}

SETTINGS: dict[str, dict[str, Any]] = {
    **{f"score={name}": {"score": name} for name in SCORES if name != "scaled_dot"},
    **{f"normalize={name}": {"normalize": name} for name in NORMALIZERS if name != "softmax"},
    **{f"positions={name}": {"positions": name} for name in (*BIASES, *ROTARY)},
    **{f"norm_kind={name}": {"norm_kind": name, "norm": "pre"} for name in NORM_KINDS if name != "layer"},
    **{f"activation={name}": {"activation": name} for name in (*ACTIVATIONS, *GATES) if name != "relu"},
    "positions concatenated": {"positions_enter": "concatenated"},
    "positions in every layer": {"positions_enter": "every-layer", "positions": "learned"},
    "multi-query": {"heads": 4, "key_value_heads": 1},
    "grouped-query": {"heads": 4, "key_value_heads": 2, "positions": "rotary"},
    "key-value split": {"key_value": "split"},
    "attention dropout": {"attention_dropout": 0.1},
    "an SSRU": {"decoder_mixer": "ssru"},
}
HARD = ("straight_through", "gumbel", "sampled")

CONFIGS = {name: TransformerConfig(**{**SMALL, **settings}) for name, settings in SETTINGS.items()}
EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@EVERY
def test_tokens_equal_the_whole(config: TransformerConfig) -> None:
    laws.test_decoding_in_any_split_equals_decoding_at_once(config)
    laws.test_a_selected_state_goes_on_as_its_row_would(config)


@EVERY
def test_padding_neighbours_and_the_future_are_invisible(config: TransformerConfig) -> None:
    laws.test_padded_equals_packed_equals_alone(config)
    laws.test_padding_is_invisible_to_gradients(config)
    laws.test_the_future_is_invisible(config)


@EVERY
def test_the_source_is_seen(config: TransformerConfig) -> None:
    laws.test_the_source_is_seen(config)


@pytest.mark.parametrize("name", ["score=additive", "normalize=sampled", "positions=shaw", "norm_kind=batch"])
def test_a_plan_can_be_made(name: str) -> None:
    costs = count_costs(CONFIGS[name], 20, 20, bfloat16=False)
    assert costs.parameters == parameter_count(toy.make(CONFIGS[name]))


# -- training ----------------------------------------------------------------------------------------------------------


def _inputs(kind: str) -> Inputs:
    lay = toy.packed if kind == "packed" else toy.padded
    (source, reading), (tokens, writing) = lay(toy.SOURCES), lay(toy.TARGETS)
    after = [[*row[1:], toy.END] for row in toy.TARGETS]
    longest = max(map(len, after))
    if kind == "packed":
        targets = torch.tensor([i for row in after for i in row])
    else:
        targets = torch.tensor([row + [-1] * (longest - len(row)) for row in after])
    widths = reading.width, writing.width
    return Inputs(kind, source, reading.lengths, tokens, targets, writing.lengths, widths)


class _Witness(nn.Module):
    """A part that adds a penalty and keeps what it is told."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.told: list[tuple[Tensor, Tensor]] = []
        decode = model.decode

        def decode_and_add(tokens: Tensor, state: Any, layout: Any = None, observe: Any = None) -> Any:
            if observe is not None:
                observe.losses.append(self.loss)
            return decode(tokens, state, layout, observe)

        model.decode = decode_and_add

    def loss(self, losses: Tensor, tokens: Tensor) -> Tensor:
        self.told.append((losses, tokens))
        return 3 * self.weight * tokens.sum()


@pytest.mark.parametrize("kind", ["padded", "packed"])
def test_a_part_adds_to_the_objective_and_is_told_each_lines_loss(kind: str) -> None:
    model: Any = toy.make(CONFIGS["score=dot"], dtype=torch.float64).train()
    model.witness = _Witness(model)
    step, batch = Step(model, 0.1, chunk=4), _inputs(kind)
    loss = step(batch)
    loss.backward()
    assert model.witness.weight.grad.item() == 3 * sum(map(len, toy.TARGETS))
    ((losses, tokens),) = model.witness.told
    assert tokens.tolist() == [len(row) for row in toy.TARGETS]
    torch.testing.assert_close(losses.sum(), loss.detach().to(losses.dtype), rtol=1e-5, atol=1e-5)
    for i, (source, target) in enumerate(zip(toy.SOURCES, toy.TARGETS, strict=True)):
        (x, reading), (y, writing) = toy.padded([source]), toy.padded([target])
        hidden, _ = model.decode(y, model.start(model.encode(x, reading), reading), writing)
        after = torch.tensor([*target[1:], toy.END])
        alone = F.cross_entropy(model.project(hidden)[0], after, label_smoothing=0.1, reduction="sum")
        torch.testing.assert_close(losses[i], alone.detach().to(losses.dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["padded", "packed"])
@pytest.mark.parametrize("normalize", HARD)
def test_hard_attention_gives_every_weight_a_gradient(normalize: str, kind: str) -> None:
    model = toy.make(CONFIGS[f"normalize={normalize}"]).train()
    Step(model, 0.1, chunk=64)(_inputs(kind)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("normalize", [name for name in NORMALIZERS if name != "softmax"])
@pytest.mark.parametrize("name", ["convs2s", "bahdanau", "luong", "luong-unfed", "luong-local-p", "lstmn-translator"])
def test_who_looks_once_a_layer_takes_every_normaliser(name: str, normalize: str) -> None:
    config = toy.CONFIGS[name].model_copy(update={"normalize": normalize})
    laws.test_decoding_in_any_split_equals_decoding_at_once(config)
    laws.test_padded_equals_packed_equals_alone(config)
    laws.test_the_future_is_invisible(config)
    for kind in ("padded", "packed"):
        model = toy.make(config).train()
        Step(model, 0.1, chunk=64)(_inputs(kind)).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        looks = [p.grad for n, p in model.named_parameters() if n.startswith(("score.", "attention")) and "query" in n]
        assert all(gradient is not None and gradient.any() for gradient in looks), "also where a choice has none"


@pytest.mark.parametrize("name", ["normalize=entmax15", "positions=rotary", "norm_kind=rms", "multi-query"])
def test_parts_learn_to_copy(name: str) -> None:
    torch.manual_seed(1)
    model = toy.make(CONFIGS[name].model_copy(update={"encoder_layers": 1, "decoder_layers": 1})).train()
    step, optimizer = Step(model, 0.0, chunk=256), torch.optim.AdamW(model.parameters(), lr=0.01)
    lengths, rows = torch.full((32,), 4), torch.randint(4, 20, (80, 32, 4))
    losses = []
    for source in rows:
        begun = F.pad(source[:, :-1], (1, 0), value=toy.BEGIN)
        loss = step(Inputs("padded", source, lengths, begun, source, lengths, (4, 4)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


# -- keys and values ---------------------------------------------------------------------------------------------------


def test_several_queries_over_the_same_keys_and_values_are_each_alone() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(5, 8), torch.randn(7, 8), torch.randn(7, 6)
    score = SCORES["additive"](8)
    mixed, weights = attend(score.queries(q), score.keys(k), v, score.compare)
    for i in range(5):
        alone, its_weights = attend(score.queries(q[i : i + 1]), score.keys(k), v, score.compare)
        torch.testing.assert_close(mixed[i : i + 1], alone)
        torch.testing.assert_close(weights[i : i + 1], its_weights)


@pytest.mark.parametrize("groups", [1, 2])
def test_shared_heads_are_many_heads_with_equal_keys_and_values(groups: int) -> None:
    torch.manual_seed(0)
    shared: Any = MultiHead(Heads(16, 4, 4, 4, groups), SCORES["scaled_dot"](4))
    full: Any = MultiHead(Heads(16, 4, 4, 4), SCORES["scaled_dot"](4))
    full.load_state_dict(
        {
            name: value
            if "key_value" not in name
            else value.unflatten(0, (2, groups, 1, 4)).expand(2, groups, 4 // groups, 4, *value.shape[1:]).flatten(0, 3)
            for name, value in shared.state_dict().items()
        }
    )
    x, layout = torch.randn(3, 6, 16), layout_of("padded", torch.tensor([6, 6, 6]), 6)
    few, many = (part(x, layout, part.prepare(x, layout), Causal()) for part in (shared, full))
    torch.testing.assert_close(few, many)
    assert shared.prepare(x, layout).keys.shape == (3, groups, 6, 4)


def test_split_keys_and_values_are_what_is_looked_at() -> None:
    part: Any = MultiHead(Heads(16, 2, 4, 4, split=True), SCORES["dot"](4))
    x, layout = torch.randn(3, 6, 16), layout_of("padded", torch.tensor([6, 6, 6]), 6)
    memory = part.prepare(x, layout)
    for head in range(2):
        assert torch.equal(memory.keys[:, head], x[..., 4 * head : 4 * head + 4])
        assert torch.equal(memory.values[:, head], x[..., 8 + 4 * head : 12 + 4 * head])


# -- positions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("name", BIASES)
def test_kernels_with_a_bias_agree_with_the_reference_in_float64(name: str, kernel: Any) -> None:
    torch.manual_seed(0)
    bias: Any = BIASES[name](2, 4, 6, True)
    with torch.no_grad():
        for parameter in bias.parameters():
            parameter.normal_()
    exact = [torch.randn(3, 2, n, d, dtype=torch.float64) for n, d in ((5, 4), (9, 4), (9, 6))]
    found = []
    for dtype, runner in ((torch.float32, kernel), (torch.float64, Reference())):
        part = bias.to(dtype)
        leaves = [x.to(dtype).requires_grad_() for x in exact]
        call = Call(*leaves, SCORES["dot"](4), Causal(4), bias=part, position=4)
        if kernel.name == "fused" and bias.mixes:
            assert "what is mixed" in str(kernel.refuses(call))
            return
        if kernel.name not in ("fused", "reference"):
            assert kernel.refuses(call)
            return
        mixed, _ = runner.run(call)
        part.zero_grad()
        mixed.square().sum().backward()
        gradients = [x.grad.double() for x in (*leaves, *part.parameters()) if x.grad is not None]
        found.append([mixed.detach().double(), *(g.clone() for g in gradients)])
    for fast, slow in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)


def test_relative_buckets_are_t5s() -> None:
    transformers = pytest.importorskip("transformers.models.t5.modeling_t5", reason="needs the dev extra")
    distance = torch.arange(-300, 300)
    for causal in (True, False):
        theirs = transformers.T5Attention._relative_position_bucket(distance, not causal, 32, 128)
        assert torch.equal(BIASES["t5"](2, 4, 4, causal).bucket(distance), theirs)  # type: ignore[operator]


def test_t5s_table_is_one_for_all_layers_of_a_side_and_is_trained_by_each() -> None:
    models = {name: toy.make(CONFIGS[f"positions={name}"], dtype=torch.float64).train() for name in ("t5", "t5-layers")}
    tables = {name: [n for n, _ in model.named_parameters() if "bias.table" in n] for name, model in models.items()}
    assert tables["t5"] == ["encoder.0.attention.bias.table", "decoder.0.attention.bias.table"]
    assert len(tables["t5-layers"]) == 4
    with torch.no_grad():  # with equal tables both are one model, and the shared one's gradient is the sum
        models["t5-layers"].load_state_dict(models["t5"].state_dict())
    for model in models.values():
        Step(model, 0.0, chunk=64)(_inputs("padded")).backward()
    one, each = ({n: p.grad for n, p in model.named_parameters()} for model in models.values())
    for side in ("encoder", "decoder"):
        total = sum(each[f"{side}.{layer}.attention.bias.table"] for layer in range(2))
        torch.testing.assert_close(one[f"{side}.0.attention.bias.table"], total)


def test_alibi_is_a_slope_for_each_head() -> None:
    part = BIASES["alibi"](8, 4, 4, True)
    found = part.scores(torch.zeros(1, 8, 2, 4), torch.tensor([3, 4]), torch.arange(5))
    assert found[0].tolist() == [[-1.5, -1.0, -0.5, 0.0, -0.5], [-2.0, -1.5, -1.0, -0.5, 0.0]]
    assert found[7, 0, 0].item() == -3 / 256


def test_kerple_falls_ever_more_slowly_and_has_a_value_for_every_distance() -> None:
    part: Any = BIASES["kerple"](2, 4, 4, True)
    with torch.no_grad():
        part.logs.copy_(torch.tensor([0.5, 2.0, 1.0, 3.0]).log())
    found = part.scores(torch.zeros(1, 2, 1, 4), torch.tensor([50]), torch.arange(51))
    assert found.shape == (2, 1, 51)
    torch.testing.assert_close(found[1, 0, 40], -2 * torch.tensor(31.0).log())
    torch.testing.assert_close(found[0, 0, 50], torch.tensor(0.0))
    steps = found[:, 0].diff()
    assert (steps > 0).all()
    assert (steps.diff() > 0).all(), "the nearer, the steeper"


def test_shaws_positions_are_vectors_for_clipped_distances() -> None:
    torch.manual_seed(0)
    part: Any = BIASES["shaw"](1, 4, 6, False)
    q, k, v = (torch.randn(1, 1, n, d) for n, d in ((30, 4), (30, 4), (30, 6)))
    mixed, weights = Reference().run(Call(q, k, v, SCORES["dot"](4), want_weights=True, bias=part))
    assert weights is not None
    for i in (0, 7, 29):
        near = [min(max(j - i, -16), 16) + 16 for j in range(30)]
        scores = torch.stack([q[0, 0, i] @ (k[0, 0, j] + part.keys[near[j]]) for j in range(30)])
        torch.testing.assert_close(weights[0, 0, i], scores.softmax(0))
        values = torch.stack([v[0, 0, j] + part.values[near[j]] for j in range(30)])
        torch.testing.assert_close(mixed[0, 0, i], scores.softmax(0) @ values)


def test_rotation_turns_pairs_and_leaves_their_distance() -> None:
    torch.manual_seed(0)
    part = ROTARY["rotary"](8, 4).double()
    x, y = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def turned(z: Tensor, place: int) -> Tensor:
        return part(z, torch.tensor([place]), place + 1)[0, 0, 0]

    pairs = torch.view_as_complex(x[0, 0, 0].view(4, 2)) * torch.polar(
        torch.ones(4).double(), 5 / 10000 ** (torch.arange(0, 8, 2).double() / 8)
    )
    torch.testing.assert_close(turned(x, 5), torch.view_as_real(pairs).flatten(), rtol=1e-6, atol=1e-6)
    for i, j in ((0, 3), (4, 7), (50, 53)):
        product = turned(x, i) @ turned(y, j)
        torch.testing.assert_close(product, turned(x, 0) @ turned(y, 3), rtol=1e-5, atol=1e-5)


LAID = {
    "queries, keys and values of one map": lambda x: x[..., 64:128].unflatten(-1, (4, 16)).transpose(1, 2),
    "from an odd place on, odd steps apart": lambda x: x[..., :95].contiguous()[..., 5:21, None].permute(0, 3, 1, 2),
    "features not side by side": lambda x: x[:, :4, :80].unflatten(-1, (16, 5)).mT,
    "several sequences": lambda x: x.view(4, 5, 3, 16).transpose(1, 2),
    "of a width that no kernel takes": lambda x: x[..., 64:96].unflatten(-1, (4, 8)).transpose(1, 2),
}


@pytest.mark.parametrize("laid", LAID)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotation_is_that_of_exact_numbers_however_they_lie(dtype: torch.dtype, laid: str) -> None:
    torch.manual_seed(0)
    drawn, found = torch.randn(1, 5, 192).to(dtype), []
    for kind in (dtype, torch.float64):
        features = drawn.to(kind).requires_grad_()
        x = LAID[laid](features)
        out = ROTARY["rotary"](x.shape[-1], 4)(x, torch.tensor([0, 1, 2, 0, 9]), 10)
        assert out.dtype == kind
        asked = torch.arange(x.shape[-1]).to(kind)
        found.append([each.double() for each in (out, *torch.autograd.grad((out * asked).sum(), features))])
    bound = 1e-2 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(found[0], found[1], rtol=bound, atol=bound)


# -- norms and feed-forward --------------------------------------------------------------------------------------------


def test_batch_norm_counts_real_tokens_only_and_keeps_running_averages() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([3, 1, 4])
    rows = torch.randn(8, 16) * 3 + 1
    packed = layout_of("packed", lengths, 4, 10)
    padded = layout_of("padded", lengths, 4)
    rectangle = torch.full((3, 4, 16), 1000.0)
    rectangle[padded.inside()] = rows
    theirs = nn.BatchNorm1d(16)
    want = theirs(rows)
    for x, layout in ((torch.cat((rows, torch.full((2, 16), 1000.0))), packed), (rectangle, padded)):
        ours = BatchNorm(16)
        torch.testing.assert_close(ours(x, layout)[layout.inside()], want)
        torch.testing.assert_close(ours.running_mean.detach(), theirs.running_mean)
        # PyTorch's keeps the variance of a sample, ours that of the batch.
        torch.testing.assert_close(ours.running_variance.detach(), 0.9 + 0.1 * rows.var(0, correction=0))
        ours.eval()
        assert torch.equal(ours(x[:1]), ours(x, layout)[:1])


def test_rms_norm_does_not_centre() -> None:
    x = torch.randn(5, 16) + 3
    torch.testing.assert_close(RMSNorm(16)(x), x / x.square().mean(-1, keepdim=True).sqrt(), rtol=1e-4, atol=1e-5)


def test_the_feed_forward_network_is_two_convolutions_of_width_one() -> None:
    torch.manual_seed(0)
    part = FeedForward(16, 32, "relu", 0.0)
    first, second = nn.Conv1d(16, 32, 1), nn.Conv1d(32, 16, 1)
    for convolution, linear in ((first, part.inner), (second, part.outer)):
        convolution.load_state_dict({"weight": linear.weight[..., None], "bias": linear.bias})
    x = torch.randn(3, 7, 16)
    torch.testing.assert_close(part(x), second(first(x.mT).relu()).mT)


def test_a_gate_has_as_many_weights_as_the_network_without() -> None:
    gated, plain = GatedFeedForward(512, 2048, "swiglu", 0.0), FeedForward(512, 2048, "silu", 0.0)
    assert parameter_count(gated) == pytest.approx(parameter_count(plain), rel=5e-3)
    x = torch.randn(4, 512)
    w, v = gated.inner(x).split(1368, -1)
    torch.testing.assert_close(gated(x), gated.outer(F.silu(w) * v))


def test_a_fully_connected_layer_knows_one_length() -> None:
    torch.manual_seed(0)
    part, x = FullyConnected(4), torch.randn(2, 4, 8)
    padded, packed = (layout_of(kind, torch.tensor([4, 4]), 4, 8) for kind in ("padded", "packed"))
    torch.testing.assert_close(part(x, padded)[1], part.weight @ x[1])
    torch.testing.assert_close(part(x.flatten(0, 1), packed), part(x, padded).flatten(0, 1))
    with pytest.raises(ModelError, match="of 4 positions cannot take a sequence of 3; give it sequences of 4"):
        part(x, layout_of("padded", torch.tensor([4, 3]), 4))


# -- configs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "additive", "positions": "rotary"}, r'"rotary" need a score that is a dot .* "additive" is none'),
        ({"score": "location", "positions": "shaw"}, r'"shaw" need a score that is a dot product'),
        ({"score": "reduced_rank", "score_width": 3, "positions": "rotary"}, "must have an even width, not 3"),
        ({"decoder_mixer": "ssru", "decoder_heads": (8,) * 6}, '"ssru" has no heads; leave decoder_heads out'),
        ({"key_value_heads": 3}, r"key_value_heads \(3\) must divide heads \(8\); try 2 or 4"),
        ({"key_value": "split", "key_width": 64}, r"together must be 512; leave both widths at 0"),
        ({"positions": "t5", "positions_enter": "every-layer"}, '"t5" act inside attention; leave it out'),
        ({"norm_kind": "group"}, "layer.*rms.*batch"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**settings)


def test_a_line_may_be_as_long_as_its_places() -> None:
    assert TransformerConfig().capacity is None
    assert TransformerConfig(positions="learned", max_positions=99).capacity == 99
    assert TransformerConfig(score="location", score_width=64).capacity == 64
    assert TransformerConfig(score="location").capacity == 1024


def test_what_is_not_the_papers_is_named() -> None:
    assert (
        TransformerConfig(heads=4, key_value_heads=4, norm="pre", positions="learned", activation="gelu").beyond == {}
    )
    named = TransformerConfig(positions="rotary", activation="swiglu", norm_kind="rms", key_value_heads=1).beyond
    assert list(named) == ["key_value_heads", "positions", "norm_kind", "activation"]
    assert named["key_value_heads"] == "model.key_value_heads = 1"


def test_the_page_of_attention_names_every_part() -> None:
    page = (Path(__file__).parents[2] / "docs" / "attention.md").read_text("utf-8")
    parts = (*SCORES, *NORMALIZERS, *POSITIONS, *BIASES, *ROTARY, *NORM_KINDS, *ACTIVATIONS, *GATES)
    assert [name for name in parts if f"`{name}`" not in page] == []


def test_running_averages_stay_exact_beside_bfloat16_weights() -> None:
    norm = BatchNorm(16)
    weights = Weights(norm, bfloat16=True)
    norm(torch.randn(8, 16).bfloat16() + 3).float().sum().backward()
    weights.accumulate()
    assert sorted(weights.gradients) == ["bias", "weight"]
    before = norm.running_mean.detach().clone()
    assert before.dtype == torch.float32
    assert before.mean().item() == pytest.approx(0.3, abs=0.15)
    weights.copy_to_model(weights.masters)
    assert torch.equal(norm.running_mean, before)
    assert norm.weight.dtype == torch.bfloat16
