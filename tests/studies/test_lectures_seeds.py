"""Claims of the lectures on recurrences, the documents' own sentences, windows, drawing and the whole architecture."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from regard.studies.lectures import texts
from regard.studies.lectures.every import lecture
from regard.studies.lectures.page import Lecture
from tests.studies.test_lectures_paper import document, squeezed


@cache
def given(name: str) -> Lecture:
    return lecture(name)


def test_gates_are_shares_and_an_lstm_has_four_times_an_elman_cells_weights():
    numbers = given("recurrent-cells").numbers
    gates = [value for key, value in numbers.items() if "gate of the first feature" in key]
    assert len(gates) == 5
    assert all(0 < share < 1 for gate in gates for share in gate)
    assert numbers["parameters of lstm, 512 to 512"] == 4 * numbers["parameters of elman, 512 to 512"]


def test_gradients_vanish_through_recurrences_and_not_through_attention():
    numbers = given("vanishing-gradients").numbers
    for cell in ("Elman", "GRU", "LSTM"):
        found = numbers[f"gradient, {cell}"]
        assert found == sorted(found, reverse=True)
        assert found[-1] < 1e-12 < found[1]
    assert numbers["gradient, LSTM, forget gates open"][-1] > 0.01
    even = [g * t for g, t in zip(numbers["gradient, attention, words alike"], numbers["T"], strict=True)]
    assert even == pytest.approx([1.0] * len(even), rel=0.02)
    assert numbers["gradient, attention, the query finds the first"] == pytest.approx([1.0] * 7, rel=0.02)


def test_the_table_of_lstm_attention_and_transformer_is_as_printed():
    """Document 3: no, no, yes for parallel; what survives a cut recurrence came by attention."""
    numbers = given("serial-parallel").numbers
    models = ("LSTM", "LSTM + attention", "Transformer")
    assert [numbers[f"all words at once, {name}"] for name in models] == ["no", "no", "yes"]
    cut = [numbers[f"gradient by the first word, recurrence cut, {name}"] for name in models]
    assert cut[0] == 0 < cut[1]
    assert cut[2] > 0
    chain = numbers["longest chain of operations, LSTM"]
    assert [b - a for a, b in pairwise(chain)] == [4 * 7, 8 * 7, 16 * 7]  # seven a word


def test_the_pronouns_take_in_whom_they_mean_at_any_distance():
    numbers = given("pronoun-table").numbers
    assert (numbers["她 looks most at"], numbers["他 looks most at"]) == ("柔嘉", "鸿渐")
    assert numbers["weight of 她 on itself"] > 0
    assert numbers["sum of the weights of 她"] == pytest.approx(1.0)
    assert numbers["the same in the shorter sentence"] < numbers["words from 柔嘉 to 她"]
    assert numbers["the same ratio in the shorter sentence"] == pytest.approx(
        numbers["weight of 柔嘉 over that of 鸿渐, of 她"]
    )


def test_the_sentences_are_those_of_the_document():
    text = document(1)
    for words in (texts.SENTENCE, texts.SHORTER):
        assert "".join(words) in text.replace(",", "")
    assert squeezed("".join(clause for clause, _ in texts.MEMORIAL)).rstrip("。") in text
    assert squeezed(" ".join(clause for _, clause in texts.MEMORIAL)) in text


def test_the_memorial_returns_to_the_late_emperor_over_many_steps():
    numbers = given("memorial-text").numbers
    assert numbers["先帝 begins at character"] == [0.0, 49.0, 69.0]
    assert numbers["steps of a recurrence from the first to the last, Chinese"] == 69
    assert numbers["characters"] == sum(numbers["characters of each"]) == 96


def test_windows_hide_what_lies_outside_and_a_gaussian_takes_some_of_the_weight():
    numbers = given("local-window").numbers
    assert numbers["largest weight outside of the window, local-m"] == 0.0
    assert numbers["largest weight outside of the window, local-p"] == 0.0
    assert numbers["positions that word 10 looks at: global, local-m, local-p"][:2] == [24.0, 9.0]
    assert 0 < numbers["sum of the weights of word 10, local-p"] < 1
    assert all(0 < p < 24 for p in numbers["p_t of the first four words, local-p"])


def test_every_sequence_is_found_once_and_they_share_the_probability():
    numbers = given("exhaustive").numbers
    assert numbers["sequences"] == 97
    assert numbers["of 1, 2, 3, 4 words, the end counted"] == [1.0, 3.0, 9.0, 84.0]  # 27 · 4, less 24 of probability 0
    assert numbers["sum of the probabilities"] == pytest.approx(1.0)
    assert numbers["number 4"] == "A B C <eos>: 0.048"
    assert numbers["place of the greedy one"] == 4


def test_draws_come_as_often_as_they_are_likely():
    numbers = given("sampling").numbers
    drawn = numbers["first word drawn: A, B, C, <eos>"]
    assert drawn == pytest.approx(numbers["as the table has it"], abs=0.02)
    assert numbers["share of A B C <eos>"] == pytest.approx(0.048, abs=0.012)
    assert numbers["with top-k of 1"] == given("greedy").numbers["greedy"]


def test_a_model_fed_its_own_symbols_carries_its_mistakes_on():
    numbers = given("exposure-bias").numbers
    assert numbers["loss of the last update"] < 0.5 * numbers["loss of the first update"]
    assert numbers["mean, fed the right symbols"] > numbers["mean, fed its own symbols"] + 0.05
    forced, free = (numbers[f"right, fed {what}, first to last"] for what in ("the right symbols", "its own symbols"))
    assert forced[0] == free[0]  # until then both have read the same
    assert len(forced) == len(free) == 14


def test_dropout_keeps_the_mean_and_is_nothing_in_use():
    numbers = given("dropout").numbers
    assert numbers["share of zeros, p = 0.1"] == pytest.approx(0.1, abs=0.01)
    assert numbers["what is not zero"] == pytest.approx(numbers["1 / (1 - p)"])
    assert numbers["mean in training"] == pytest.approx(1.0, abs=0.01)


def test_the_base_model_has_its_parts_and_its_words_hear_whom_they_may():
    numbers = given("architecture").numbers
    parts = [value for key, value in numbers.items() if key.startswith("parameters, ")]
    assert sum(parts) == numbers["parameters of the base model, 37,000 tokens"] == 63_082_496
    hears = {key.partition("hear, ")[2]: value for key, value in numbers.items() if "that hear" in key}
    assert hears == {"encoder": 16, "decoder, masked": 10, "cross-attention": 16}
