"""Every key of [search] has a law: a test that fails if the key does not do what its description says."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.search.table import SearchConfig

LAWS = {
    "method": "search/test_search_table.test_a_search_of_ones_own_is_one_entry",
    "beam": "test_laws_search.test_a_wide_beam_equals_exhaustive_search",
    "penalty": "test_laws_search.test_penalties_are_the_named_formulas",
    "alpha": "test_laws_search.test_a_wide_beam_equals_exhaustive_search",
    "coverage": "test_laws_search.test_a_wide_beam_with_coverage_equals_exhaustive_search",
    "stop": "test_laws_search.test_beams_stop_when_their_rule_says",
    "groups": "test_laws_search.test_a_diverse_beam_of_one_group_is_the_beam",
    "diversity": "test_laws_search.test_a_diverse_beam_reports_the_models_log_probabilities_and_differs",
    "samples": "test_search_translate.test_samples_are_several_and_repeatable",
    "temperature": "test_laws_search.test_samples_are_as_frequent_as_they_are_likely",
    "top_k": "test_laws_search.test_samples_are_as_frequent_as_they_are_likely",
    "top_p": "test_laws_search.test_samples_are_as_frequent_as_they_are_likely",
    "seed": "test_laws_search.test_a_draw_is_a_function_of_its_key",
    "mbr": "test_search_translate.test_minimum_bayes_risk_chooses_among_what_was_drawn",
    "min_length": "test_search_translate.test_no_output_is_longer_or_shorter_than_it_may_be",
    "max_length": "test_search_translate.test_no_output_is_longer_or_shorter_than_it_may_be",
    "extra_length": "test_search_translate.test_no_output_is_longer_or_shorter_than_it_may_be",
    "no_repeat_ngram_size": "test_search_constraints.test_nothing_is_repeated_unless_it_is_required",
    "ensemble": "test_laws_search.test_an_ensemble_is_the_mean_that_it_names",
    "most_steps": "test_exact.test_giving_up_is_said_and_the_line_is_named",
    "passes": "test_mask_predict.test_the_search_says_each_place_and_says_unsure_ones_again",
    "shortlist": "test_shortlist.test_a_sentence_is_written_with_its_own_list_alone",
    "batch_size": "test_laws_search.test_decode_keeps_order_and_is_independent_of_batches",
    "precision": "test_decoding.test_coarser_precisions_are_the_same_rounding_in_pytorch",
}
"""A new key needs a law, and a line here that names it."""


def test_every_key_has_a_law() -> None:
    assert LAWS.keys() == SearchConfig.model_fields.keys()


@pytest.mark.parametrize("law", sorted(set(LAWS.values())))
def test_the_law_is_there(law: str) -> None:
    file, _, name = law.partition(".")
    (path,) = Path(__file__).parents[1].rglob(f"{file}.py")
    assert f"\ndef {name}(" in path.read_text("utf-8")
