"""The lectures hold: every number they print is computed again, and what they claim is so."""

from __future__ import annotations

import json
import math
import re
import sys
from functools import cache

import pytest

from regard.apps.cli import main
from regard.errors import DataError
from regard.studies.lectures.every import LECTURES, about, lecture
from regard.studies.lectures.page import Lecture
from regard.studies.lectures.trained import TRAINED


@cache
def given(name: str) -> Lecture:
    return lecture(name)


PRINTED: list[tuple[str, str, object]] = [
    # document 1
    ("joining", "concatenated", [5.0] * 5 + [4.4] * 5),
    ("joining", "added", [9.4] * 5),
    ("queries-keys-values", "x4", [5.0] * 5),
    ("queries-keys-values", "q4", [1.0] * 5),
    # document 2
    ("by-hand", "q1 · k", [112.0, 96.0]),
    ("by-hand", "divided by √d_k", [14.0, 12.0]),
    ("by-hand", "softmax", [0.88, 0.12]),
    ("prediction", "index of the likeliest", 5),
    ("prediction", "its word", "am"),
    # document 5
    ("greedy", "probability of greedy", 0.048),
    ("greedy", "probability of the other", 0.054),
    ("search-cost", "n^T", 1e40),
    ("search-cost", "k n T", 5e5),
    ("bleu", "p1", "4/5"),
    ("bleu", "p2", "3/4"),
    ("bleu", "p3", "1/3"),
    ("bleu", "p4", "0/2"),
]
"""A lecture, its number and the value that the documents print, rounded as they do."""


@pytest.mark.parametrize(("name", "number", "printed"), PRINTED, ids=lambda x: x if isinstance(x, str) else "")
def test_a_printed_number_is_computed_again(name, number, printed):
    found = given(name).numbers[number]
    if (name, number) == ("by-hand", "softmax"):  # printed with two decimals
        found = [round(weight, 2) for weight in found]
    assert found == (printed if isinstance(printed, str) else pytest.approx(printed, 1e-12))


@pytest.mark.parametrize("name", LECTURES)
def test_what_should_be_equal_is(name):
    """Every number that is named a difference or an error is none; in float32 tables, to their precision."""
    numbers = given(name).numbers
    for key, value in numbers.items():
        if "largest difference" in key:
            assert value < 1e-6, key
        if key.startswith("sums of the weights"):
            assert value == pytest.approx([1.0] * len(value))
        assert all(math.isfinite(x) for x in (value if isinstance(value, list) else [value]) if not isinstance(x, str))


def test_a_lecture_gives_the_same_numbers_each_time():
    assert lecture("context-vector").numbers == given("context-vector").numbers


# -- claims ------------------------------------------------------------------------------------------------------------


def test_one_context_keeps_less_of_each_word():
    numbers = given("bottleneck").numbers
    one = numbers["cosine of a word with the one context"]
    assert one == sorted(one, reverse=True)
    assert one[-1] < 0.1
    assert min(numbers["cosine of a word with its own context"]) > 0.999


def test_softmax_is_positive_amplifies_and_does_not_mind_a_shift():
    numbers = given("exponential").numbers
    assert min(numbers["softmax"]) > 0 > min(numbers["shares of x itself"])
    assert numbers["shares of x squared"][0] > numbers["shares of x squared"][1]  # not in the scores' order
    assert numbers["ratio of weights one apart"] == pytest.approx(math.e)
    assert numbers["change when 100 is added to all"] < 1e-12


def test_soft_attention_is_what_hard_attention_is_on_average():
    numbers = given("hard-and-soft").numbers
    assert numbers["distance of the mean of 20,000 draws from the soft"] < 0.03
    assert numbers["distance of the answer of the likeliest from the soft"] > 0.3


def test_variance_of_products_is_the_width_and_scaling_mends_the_gradient():
    numbers = given("scaling").numbers
    assert [v / d for v, d in zip(numbers["variance"], numbers["d_k"], strict=True)] == pytest.approx([1.0] * 7, 0.15)
    assert numbers["variance, scaled"] == pytest.approx([1.0] * 7, 0.15)
    plain, scaled = numbers["a (1 - a) of it, plain"], numbers["a (1 - a) of it, scaled"]
    assert plain[-1] < 0.06 < 0.17 < min(scaled)
    assert max(numbers["softmax of 1, 2, 7, 12, 8, 5, 2, 1"]) > 0.97
    assert max(numbers["softmax of the same over √64"]) < 0.3


def test_hidden_places_have_no_weight():
    numbers = given("masks").numbers
    assert numbers["largest weight of a hidden position"] == 0.0
    assert numbers["positions seen, causal"] == 15  # a position sees itself


def test_eight_heads_cost_as_much_as_one():
    numbers = given("heads").numbers
    assert numbers["parameters at width 512, one head"] == numbers["parameters at width 512, eight heads"]
    assert numbers["parameters at width 512, eight heads"] == 4 * (512 * 512 + 512)


def test_sinusoids_have_periods_fall_and_go_on():
    numbers = given("sinusoid-laws").numbers
    fall = numbers["share of it at distances 1, 10, 50, 150"]
    assert fall == sorted(fall, reverse=True)
    # It does not fall at every step: counted by a sum of cosines, Σ_i cos(k · 10000^(-2i/128)).
    products = [sum(math.cos(k * 10000 ** (-2 * i / 128)) for i in range(64)) for k in range(200)]
    rises = [k for k in range(1, 200) if products[k] > products[k - 1]]
    assert numbers["distances from 1 to 199 at which it rises"] == len(rises) == 85
    assert numbers["the first of them"] == rises[:3] == [12, 18, 24]
    assert "rises" in about("sinusoid-laws")
    assert numbers["its sine after 0, 1, 2 periods"] == pytest.approx([0.0] * 3, abs=1e-9)
    step = "one step on, found on positions to 199, tried from 300, error, "
    assert numbers[f"{step}sinusoids"] < 0.01
    assert numbers[f"{step}independent vectors"] > 0.9
    assert given("sinusoids").numbers["PE(0), first four"] == [0.0, 1.0, 0.0, 1.0]


def test_learned_positions_end_where_training_did():
    numbers = given("learned-positions").numbers
    assert "longer than the 5 learned positions" in numbers["what a line of 7 gets"]
    assert numbers["positions that sinusoids made for it"] == 7


def test_far_distances_share_a_bucket():
    numbers = given("buckets").numbers
    assert numbers["buckets of 1, 7, 8, 64, 128 before"] == [1, 7, 8, 14, 15]
    # Of the 32 one is never used: nothing stands after itself.
    assert (numbers["buckets"], numbers["buckets, causal"]) == (31, 32)


def test_rotations_know_the_distance_only_and_keep_lengths():
    numbers = given("rotation").numbers
    products = numbers["(R_m q) · (R_n k), n - m = 3, m = 0, 10, 100, 1000"]
    assert products == pytest.approx([numbers["q · (R_3 k)"]] * 4, 1e-6)
    assert numbers["(3, 4) turned by 1"] == pytest.approx(numbers["the same by x cos - y sin, x sin + y cos"])
    assert numbers["R_2ᵀ R_5 of one pair"] == pytest.approx(numbers["cos 3, -sin 3, sin 3, cos 3"], abs=1e-6)
    before, after = numbers["length before and after"]
    assert before == pytest.approx(after)


def test_rotations_decay_for_vectors_that_are_alike_and_not_for_independent_ones():
    numbers = given("rotation-decay").numbers
    for name in ("q = k = (1, …, 1)", "q, k uniform in [0, 1)"):
        curve = numbers[f"mean product / D, {name}"]
        assert curve == sorted(curve, reverse=True)
        assert curve[-1] < curve[0] / 3
    assert max(map(abs, numbers["mean product / D, q, k normal"])) < 0.01
    assert numbers["its spread over √D, q, k normal"] == pytest.approx([1.0] * 10, 0.05)
    same = numbers["cosine of a vector with itself 0, 1, 8, 64 positions on"]
    assert same[0] == pytest.approx(1.0)
    assert same[-1] < 0.6  # so cosine similarity is not preserved between places


def test_a_residual_lets_the_gradient_by_and_the_norm_does_its_work():
    numbers = given("add-and-norm").numbers
    assert numbers["means"] == pytest.approx([0.0] * 4, abs=1e-9)
    assert numbers["variances"] == pytest.approx([1.0] * 4, 1e-4)
    assert numbers["gradient at the bottom of 64 layers, f(x)"] < 1e-20
    assert numbers["gradient at the bottom of 64 layers, x + f(x)"] > 0.1


def test_neighbours_change_batch_norm_only():
    numbers = given("layer-or-batch").numbers
    assert numbers["change by a neighbour, layer norm"] == 0.0
    assert numbers["change by a neighbour, batch norm"] > 0.1


def test_smoothing_wants_no_certainty():
    numbers = given("smoothing").numbers
    assert numbers["target, ε = 0.1, V = 5"] == pytest.approx([0.92, 0.02, 0.02, 0.02, 0.02])
    assert numbers["probability at which the smoothed loss is least"] == pytest.approx(0.92, 1e-3)
    assert numbers["least loss"] == pytest.approx(numbers["entropy of the target"], 1e-4)


def test_the_rate_rises_and_falls():
    numbers = given("warm-up").numbers
    assert numbers["update of the largest rate"] == 4000
    assert numbers["rate at update 4,000, its largest"] == pytest.approx(numbers["1 / √(512 · 4000)"])
    assert numbers["rate at update 16,000"] == pytest.approx(numbers["rate at update 4,000, its largest"] / 2)
    assert numbers["rate at update 1"] < numbers["rate at update 16,000"]


def test_greedy_is_not_best_and_the_shortest_wins_unless_lengths_count():
    numbers = given("greedy").numbers
    assert (numbers["greedy"], numbers["the other"]) == ("A B C <eos>", "A C B <eos>")
    assert numbers["best of four words"] == "A C B <eos>"
    assert (numbers["best of all"], numbers["probability of the best of all"]) == ("<eos>", pytest.approx(0.1))
    # By the printed table alone 0.054 is out of reach.
    assert numbers["best of four words by the printed table alone"] == pytest.approx(0.048)
    lengths = given("length").numbers
    assert (lengths["best at α = 0"], lengths["best at α = 0.75"]) == ("<eos>", "A C B <eos>")


def test_two_beams_find_what_greedy_misses():
    numbers = given("beams").numbers
    assert numbers["beam of 1"] == given("greedy").numbers["greedy"]
    assert numbers["beam of 2"] == numbers["exhaustive"] == "A C B <eos>"
    assert numbers["score of a beam of 2"] == pytest.approx(math.log(0.054) / 4**0.75)


def test_probabilities_of_all_sequences_sum_to_one():
    numbers = given("chain-rule").numbers
    assert numbers["sum over all sequences of at most two words"] == pytest.approx(1.0)
    assert numbers["sequences of length 10 over 10,000 words, as a power of ten"] == pytest.approx(40.0)


def test_the_lectures_bleu_is_not_the_one_that_is_reported():
    numbers = given("bleu").numbers
    assert numbers["brevity"] == pytest.approx(math.exp(-0.2))
    assert numbers["BLEU-4 of the lecture"] == 0.0 < numbers["BLEU of sacrebleu, smoothed, of 100"]
    assert numbers["BLEU-3 of the lecture"] == pytest.approx(math.exp(-0.2) * 0.2 ** (1 / 3))
    two = "two references of 4 and 7, six words: of the lecture"
    assert numbers[two] == pytest.approx(1.0)  # longer than the shortest reference
    assert numbers["the same by sacrebleu, of 100"] == pytest.approx(100 * math.exp(1 - 7 / 6))  # nearest in length


def test_the_lectures_rouge_is_recall_over_all_references():
    numbers = given("rouge").numbers
    assert numbers["ROUGE-1 and -2 of the lecture, two references"] == pytest.approx([6 / 9, 4 / 7])
    assert numbers["the same, one reference"] == pytest.approx([4 / 6, 3 / 5])
    assert numbers["F1 of rouge-score, best reference"] == pytest.approx([100 * 8 / 11, 100 * 6 / 9])


def test_perplexity_is_one_number_in_three_forms_and_needs_base_two():
    numbers = given("perplexity").numbers
    three = [numbers[f"by {how}"] for how in ("sequences (15.36)", "words (15.37)", "the product (15.38)")]
    assert three == pytest.approx([numbers["Regard's"]] * 3)
    assert three[0] == pytest.approx(2 ** (8 / 5))
    assert numbers["2 to the mean of natural logarithms, which is another number"] < three[0] - 0.5


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_word_lists_shows_and_draws(capsys, tmp_path):
    assert main(["lecture"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in [*LECTURES, *TRAINED])
    pytest.importorskip("matplotlib")
    assert main(["lecture", "by-hand", "masks", "warm-up", "--kind", "svg", "--out", str(tmp_path)]) == 0
    assert "14, 12" in capsys.readouterr().out
    drawn = {name: (tmp_path / f"{name}.svg").read_bytes() for name in ("by-hand", "masks", "warm-up")}
    assert all(b"</svg>" in picture for picture in drawn.values())
    assert main(["lecture", "masks", "--kind", "svg", "--out", str(tmp_path), "--json"]) == 0
    assert (tmp_path / "masks.svg").read_bytes() == drawn["masks"]
    assert json.loads(capsys.readouterr().out)["masks"]["positions seen, both"] == 12


@pytest.mark.parametrize("json_too", [False, True])
def test_what_can_be_computed_is_where_an_extra_is_missing(capsys, monkeypatch, json_too):
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    assert main(["lecture", "all", *(["--json"] if json_too else [])]) == 2
    said = capsys.readouterr()
    shown = json.loads(said.out) if json_too else re.findall("^([a-z-]+): ", said.out, re.M)
    assert list(shown) == [name for name in LECTURES if name != "rouge"]
    assert re.fullmatch(r"regard: rouge is left out: .*rouge-score.*pip install '\.\[rouge\]'.*\n", said.err)


def test_numbers_are_shown_where_nothing_can_be_drawn(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["lecture", "by-hand", "masks", "--kind", "svg", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "by-hand: " in said.out
    assert "masks: " in said.out
    assert said.err.count("pip install '.[pictures]'") == 1


def test_what_there_is_not_is_said(capsys):
    assert main(["lecture", "by_hand"]) == 2
    assert "by-hand" in capsys.readouterr().err
    assert main(["lecture", "by-hand", "--kind", "gif"]) == 2
    with pytest.raises(DataError):
        lecture("none")
    with pytest.raises(DataError, match="--bundle"):
        lecture("pronoun")


def test_every_lecture_says_what_it_shows():
    assert all(about(name).endswith(".") for name in [*LECTURES, *TRAINED])


def test_layers_are_counted_with_all_that_they_do():
    """Attention with its projections costs more than the table's recurrence, and less than an LSTM."""
    numbers = given("complexity").numbers
    n, d = 70, 512
    assert numbers["Elman cell, n = 70, d = 512"] == 2 * n * d * d  # of the input and of the state before
    assert numbers["LSTM cell, n = 70, d = 512"] == 4 * 2 * n * d * d  # of the state and of three gates
    projected = numbers["attention, projected, n = 70, d = 512"]
    assert numbers["recurrence, n = 70, d = 512"] < projected < numbers["LSTM cell, n = 70, d = 512"]
    reached = 1
    steps = 0
    while reached < 729:  # a layer of kernel 3 lets a position see two more
        reached, steps = reached + 2, steps + 1
    assert numbers["steps between the ends of 729 words, convolution"] == steps
