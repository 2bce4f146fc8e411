"""The documents' slips: each with a check that the printed form is wrong, or the right form right."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest
import torch

from regard.language.gpt import GPTConfig
from regard.metrics import bleu
from regard.models.transformer import TransformerConfig, build
from regard.nn import Padded
from regard.nn.attention import Causal, Dot, Heads, MultiHead, ScaledDot, attend, softmax, weigh
from regard.nn.attention.core import matrix
from regard.nn.attention.scores import Additive, ReducedRank
from regard.nn.layers import FeedForward
from regard.nn.positions import sinusoids
from regard.nn.recurrent import GRU
from regard.settings import TrainConfig
from regard.studies.lectures import attention, generation, measures
from regard.studies.lectures.every import lecture
from regard.studies.lectures.positions import rotation_matrix
from regard.train.step import Schedule, paper

ROOT = Path(__file__).resolve().parents[2]
SLIPS = tomllib.loads((ROOT / "regard/studies/lectures/errata.toml").read_text("utf-8"))["slip"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def small(**sizes):
    return TransformerConfig(
        width=16, heads=2, feedforward=32, dropout=0.0, **{"encoder_layers": 1, "decoder_layers": 1} | sizes
    )


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_every_slip_has_its_check_and_every_check_its_slip():
    checks = {name[5:] for name in globals() if name.startswith("test_") and "every_slip" not in name}
    assert checks == {slip["id"] for slip in SLIPS}


def test_second_sinusoid_divides_by_d():
    sines, cosines = sinusoids(torch.arange(50), 16)
    assert torch.allclose(sines**2 + cosines**2, torch.ones(50, 8))  # so only if both have the same angle
    assert float(cosines[5, 3]) == pytest.approx(math.cos(5 / 10000 ** (6 / 16)))
    assert float(cosines[5, 3]) != pytest.approx(math.cos(5 / 10000 ** (6 * 16)), 1e-3)


def test_encoder_reads_its_own_word():
    cell, one = GRU(4, 8), torch.randn(5, 1, 4)
    other = one.clone()
    other[-1] += 1  # another last word
    u, w = (cell(words)[1][0] for words in (one, other))
    assert not torch.allclose(u, w)
    begin = torch.zeros(1, 1, 4)
    u, w = (cell(torch.cat((begin, words[:-1])))[1][0] for words in (one, other))
    assert torch.equal(u, w)


def test_third_context_is_c3():
    weights, states = softmax(normal(3, 6)), normal(6, 4)
    contexts = weights @ states
    mistaken = weights[2].clone()
    mistaken[4] = weights[0, 4]
    assert not torch.allclose(contexts[2], contexts[0])
    assert float(mistaken.sum()) != pytest.approx(1.0)
    assert not torch.allclose(mistaken @ states, contexts[2])


def test_sums_begin_at_one_of_the_two():
    assert len(lecture("context-vector").numbers["weights of the third word"]) == 6
    assert len(range(0, 6 + 1)) == 7


def test_weights_are_computed_not_trained():
    score = Additive(4).double()
    weights = [weigh(score.compare(score.queries(normal(1, 4)), score.keys(normal(5, 4)))) for _ in range(2)]
    assert not torch.allclose(*weights)
    assert {name for name, _ in score.named_parameters()} == {"v", "query.weight", "key.weight"}


def test_scale_is_of_the_width_and_of_q_and_k():
    q, k, score = normal(3, 64), normal(5, 64), ScaledDot(64)
    once, longer = (weigh(score.compare(score.queries(q * n), k)) for n in (1, 3))
    assert float(longer.max()) > float(once.max())  # a longer q still sharpens the weights
    assert score.scale == 1 / math.sqrt(64)


def _turn(angle):
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def test_rope_product_has_sines():
    m, n = 0.3, 1.1
    product = _turn(m).T @ _turn(n)
    right = math.sin(m) * math.cos(n) - math.cos(m) * math.sin(n), math.cos(m) * math.sin(n) - math.sin(m) * math.cos(n)
    assert (float(product[0, 1]), float(product[1, 0])) == pytest.approx(right)
    assert right == pytest.approx((-math.sin(n - m), math.sin(n - m)))
    printed = (
        math.cos(m) * math.cos(n) - math.cos(m) * math.sin(n),
        math.cos(m) * math.cos(n) - math.sin(m) * math.cos(n),
    )
    assert printed != pytest.approx(right)


def test_rotated_product_is_a_number():
    q, k = normal(2), normal(2)
    product = (rotation_matrix(3, 2) @ q) @ (rotation_matrix(7, 2) @ k)
    assert product.shape == ()
    assert float(product) == pytest.approx(float(q @ rotation_matrix(4, 2) @ k), abs=1e-6)


def test_infinity_is_added_to_scores():
    scores, ahead = normal(4, 4), torch.ones(4, 4, dtype=torch.bool).triu(1)
    right = softmax(scores.masked_fill(ahead, float("-inf")))
    assert torch.allclose(right, weigh(scores, ~ahead))
    wrong = softmax(scores).masked_fill(ahead, float("-inf"))
    assert not torch.isfinite(wrong.sum(-1)[:3]).any()
    assert float(wrong[3].sum()) == pytest.approx(1.0)  # the last row has nothing ahead


def test_rope_has_an_angle_for_each_pair():
    angles = torch.atan2(rotation_matrix(1, 8).diagonal(-1)[::2], rotation_matrix(1, 8).diagonal()[::2])
    assert angles.tolist() == pytest.approx([10000 ** (-2 * i / 8) for i in range(4)], 1e-5)
    one = torch.block_diag(*[_turn(2 * math.pi)] * 4)  # with one angle of 1, at distance 2π nothing is turned
    assert torch.allclose(one, torch.eye(8), atol=1e-6)
    assert not torch.allclose(rotation_matrix(2 * math.pi, 8), torch.eye(8, dtype=torch.float64), atol=1e-2)


def test_rope_decay_is_not_for_any_vectors():
    q, k = normal(4000, 64), normal(4000, 64)
    near, far = (((k @ rotation_matrix(n, 64).T) * q).sum(-1) for n in (0, 200))
    assert abs(float(near.mean())) < 0.5 > abs(float(far.mean()))
    assert float(far.std() / near.std()) == pytest.approx(1.0, abs=0.06)


def test_nearer_is_more_similar_only_for_equal_vectors():
    q = normal(64)
    k = rotation_matrix(10, 64).T @ q  # turned back by ten places
    products = [float(q @ rotation_matrix(n, 64) @ k) for n in range(20)]
    assert products.index(max(products)) == 10


def test_rope_changes_cosine_similarity():
    q, k = normal(64), normal(64)

    def cosine(m, n):
        return float(torch.cosine_similarity(rotation_matrix(m, 64) @ q, rotation_matrix(n, 64) @ k, dim=0))

    assert cosine(7, 7) == pytest.approx(cosine(0, 0), abs=1e-6)
    assert abs(cosine(0, 7) - cosine(0, 0)) > 0.01
    assert float((rotation_matrix(7, 64) @ q).norm()) == pytest.approx(float(q.norm()))


def test_gpt_has_learned_positions():
    assert GPTConfig().positions == "learned"


def test_output_layer_maps_to_the_vocabulary():
    model = build(small(), 30, 30)
    assert model.project(torch.zeros(2, 5, 16)).shape == (2, 5, 30)


def test_causal_sees_itself():
    seen = matrix(Causal(), 1, 4, 4, torch.device("cpu")).view(4, 4)
    assert bool(seen.diagonal().all())
    strictly = seen & ~torch.eye(4, dtype=torch.bool)
    assert weigh(torch.zeros(4, 4), strictly)[0].sum() == 0  # the first has nothing to look at


def test_similarity_must_be_normalised():
    query, values = torch.ones(1, 4), torch.ones(8, 1)
    keys, more = torch.ones(4, 4), torch.ones(8, 4)
    bare = [Dot(4).compare(query, k) @ values[: len(k)] for k in (keys, more)]
    both = [attend(query, k, values[: len(k)], Dot(4).compare)[0] for k in (keys, more)]
    assert float(bare[1]) == 2 * float(bare[0])
    assert torch.equal(*both)


def test_encoders_other_than_the_first_not_heads():
    sizes = [build(small(encoder_layers=n), 30, 30) for n in (1, 3)]
    tables = [sum(isinstance(part, torch.nn.Embedding) for part in model.modules()) for model in sizes]
    assert tables[0] == tables[1]  # embedded once, however many layers


def test_reduced_rank_multiplies_from_the_left():
    score, s, h = ReducedRank(8, size=2).double(), normal(8), normal(8)
    U, V = score.query.weight, score.key.weight
    assert float(score.compare(score.queries(s[None]), score.keys(h[None]))) == pytest.approx(float((U @ s) @ (V @ h)))
    with pytest.raises(RuntimeError):
        s @ U  # (8,) (2, 8)
    square, other = normal(8, 8), normal(8, 8)
    assert not math.isclose(float((s @ square) @ (other @ h)), float(s @ (square.T @ other) @ h))


def test_additive_ends_with_a_vector():
    score = Additive(8, size=5)
    assert score.v.shape == (5,)
    assert score.compare(score.queries(torch.randn(2, 8)), score.keys(torch.randn(3, 8))).shape == (2, 3)


def test_masked_scores_are_scaled_too():
    q, k, seen = normal(4, 64), normal(4, 64), torch.ones(4, 4, dtype=torch.bool).tril()
    score = ScaledDot(64)
    scaled = weigh(score.compare(score.queries(q), k), seen)
    assert torch.allclose(scaled, weigh(q @ k.T / 8, seen))
    assert not torch.allclose(scaled, weigh(q @ k.T, seen))


def test_i_numbers_pairs():
    assert sinusoids(torch.arange(3), 16)[0].shape == (3, 8)


def test_training_is_parallel_although_writing_is_not():
    model = build(small(), 30, 30).double().eval()
    layout = Padded(torch.tensor([4]), 4)
    memory = model.encode(torch.tensor([[5, 6, 7, 3]]), layout)
    written = torch.tensor([[2, 8, 9, 10]])
    at_once = model.decode(written, model.start(memory, layout))[0]
    state, tokens = model.start(memory, layout), []
    for t in range(4):
        hidden, state = model.decode(written[:, t : t + 1], state)
        tokens.append(hidden)
    assert torch.allclose(at_once, torch.cat(tokens, 1))


def test_root_of_dk_is_the_scale():
    q, k = normal(3000, 256), normal(3000, 256)
    products = (q * k).sum(-1)
    assert float((products / 16).var()) == pytest.approx(1.0, abs=0.15)
    assert float((products / 256).var()) == pytest.approx(1 / 256, rel=0.15)


def test_all_are_projections_of_the_same_input():
    layer = MultiHead(Heads(16, 2, 8, 8), ScaledDot(8))
    assert layer.query.weight.shape == (16, 16)
    assert layer.key_value.weight.shape == (32, 16)


def test_same_place_means_the_layer_before():
    model = build(small(), 30, 30).eval()
    layout = Padded(torch.tensor([3]), 3)
    one, other = (model.encode(torch.tensor([[5, 6, last]]), layout) for last in (7, 8))
    assert not torch.allclose(one[0, 0], other[0, 0])  # the first word's output knows the last word


def test_feed_forward_widens():
    config = TransformerConfig()
    assert config.feedforward == 4 * config.width


def test_the_paper_has_relu():
    assert TransformerConfig().activation == "relu"
    layer = FeedForward(4, 8, "relu", 0.0)
    assert float(layer.activation(torch.tensor(-1.0))) == 0.0


def test_warm_up_begins_slowly():
    base = Schedule(peak=1.0, warmup=4000, total=100_000, width=512)
    rates = [paper(base, n) for n in range(1, 8001)]
    assert rates[:4000] == sorted(rates[:4000])
    assert rates[3999:] == sorted(rates[3999:], reverse=True)
    assert rates[0] < rates[3999] / 3000


def test_schedule_knows_the_number_of_the_update_only():
    base = Schedule(peak=1.0, warmup=4000, total=100_000, width=512)
    assert paper(base, 123) == pytest.approx(512**-0.5 * min(123**-0.5, 123 * 4000**-1.5))


def test_the_paper_does_not_accumulate():
    config = TrainConfig()
    assert (config.accumulate, config.beta1, config.beta2, config.epsilon) == (1, 0.9, 0.98, 1e-9)


def test_no_batch_norm_no_weight_decay():
    assert (TrainConfig().weight_decay, TrainConfig().label_smoothing) == (0.0, 0.1)
    assert (TransformerConfig().norm_kind, TransformerConfig().dropout) == ("layer", 0.1)


def test_chain_rule_ends_with_the_last():
    found = generation._greedy()
    factors = [generation.TABLE[t][w] for t, w in enumerate([*found.ids, generation.END])]
    assert math.prod(factors) == pytest.approx(math.exp(found.log_probability))
    assert math.prod(factors[:-1]) != pytest.approx(math.exp(found.log_probability))


def test_greedy_bound_is_over_words_at_t():
    best = max(h.log_probability for h in generation._all(0.0) if len(h.ids) == 3)
    assert generation._greedy().log_probability <= best


def test_table_does_not_hold_the_better_path():
    assert max(generation.TABLE[2]) == 0.4
    assert all(sum(row) == pytest.approx(1.0) for row in (*generation.TABLE, *generation.AFTER_AC))
    assert lecture("greedy").numbers["best of four words by the printed table alone"] < 0.054


def test_better_is_not_best():
    assert generation.TABLE[0][generation.END] > 0.054


def test_perplexity_of_two_needs_log_two():
    numbers = lecture("perplexity").numbers
    assert numbers["by the product (15.38)"] == pytest.approx(numbers["by words (15.37)"])
    wrong = numbers["2 to the mean of natural logarithms, which is another number"]
    assert wrong == pytest.approx(numbers["by the product (15.38)"] ** math.log(2))


def test_keys_and_values_have_heads_too():
    own, shared = (MultiHead(Heads(16, 4, 4, 4, n), ScaledDot(4)) for n in (0, 1))
    assert own.key_value.weight.shape[0] == 4 * shared.key_value.weight.shape[0]


def test_v_is_two_things():
    score = Additive(4)
    q, k = torch.randn(1, 4), torch.randn(3, 4)
    first, second = (
        attend(score.queries(q), score.keys(k), values, score.compare)[1]
        for values in (torch.randn(3, 2), torch.ones(3, 2))
    )
    assert torch.equal(first, second)  # whatever the values


def test_stacks_need_not_be_equal():
    model = build(small(encoder_layers=1, decoder_layers=3), 30, 30).eval()
    layout = Padded(torch.tensor([3]), 3)
    ids = torch.tensor([[5, 6, 3]])
    assert model.decode(ids, model.start(model.encode(ids, layout), layout))[0].shape == (1, 3, 16)


def test_cost_leaves_out_the_projections():
    from torch.utils.flop_counter import FlopCounterMode

    n, d = 12, 8
    x, maps, score = normal(n, d), [normal(d, d) for _ in range(4)], Dot(d)
    with FlopCounterMode(display=False) as counted:
        q, k, v = (x @ each for each in maps[:3])
        attend(q, k, v, score.compare)[0] @ maps[3]
    assert counted.get_total_flops() == 2 * attention.multiplications("attention, projected", n, d)
    assert attention.multiplications("attention, projected", 2 * d, d) == 2 * attention.multiplications(
        "attention", 2 * d, d
    )


def _reached(kernel, dilated, n):
    """Layers until the last of n places has heard of the first."""
    layers, reach = 0, 1
    while reach < n:
        reach += (kernel - 1) * (kernel**layers if dilated else 1)
        layers += 1
    return layers


def test_logarithmic_paths_need_dilation():
    assert _reached(3, True, 3**6) == 6
    assert _reached(3, False, 3**6) == (3**6 - 1) / 2


def test_shortest_reference_is_not_the_standard():
    six, short, long = list("ABCDEF"), list("ABCD"), list("ABCDEFG")
    assert measures.lecture_bleu(six, [short, long]) == pytest.approx(1.0)
    found = bleu([" ".join(six)], [[" ".join(short)], [" ".join(long)]], resamples=0)
    assert found.detail["brevity_penalty"] == pytest.approx(math.exp(1 - 7 / 6))


def test_weights_are_of_the_order_as_well():
    score = ScaledDot(8)
    x = normal(5, 8)

    def itself(words):
        return attend(score.queries(words), words, words, score.compare)[0]

    assert not torch.allclose(itself(2 * x), 2 * itself(x))
    weights = attend(score.queries(x), x, x, score.compare)[1]
    assert torch.allclose(weights @ (2 * x), 2 * (weights @ x))


def test_the_late_emperor_passed_away():
    slip = next(slip for slip in SLIPS if slip["id"] == "the_late_emperor_passed_away")
    assert slip["right"] == "中道崩殂"
    assert slip["right"] not in slip["printed"]
