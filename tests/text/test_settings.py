"""The bounds of a recipe's `[text]` are those of what is called with it."""

from __future__ import annotations

import pytest

from regard import recipe
from regard.errors import RecipeError, TextError
from regard.text import TextConfig, Tokenizer
from regard.text.lines import check_line

DATA = '[data]\nsource = "a"\ntarget = "b"\n[text]\n'


def test_the_least_coverage_is_sentencepieces() -> None:
    lines = [f"some text {chr(0x4E00 + index)}" for index in range(200)]
    Tokenizer.train(lines, size=500, shrink=True, settings=TextConfig(character_coverage=0.98))
    assert recipe.parse(f"{DATA}character_coverage = 0.98").text.character_coverage == 0.98
    with pytest.raises(RecipeError, match=r"character_coverage = 0\.979: must be at least 0\.98"):
        recipe.parse(f"{DATA}character_coverage = 0.979")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a\0b", r"line 7 contains a NUL \(U\+0000\) at character 2"),
        ("ab\nc", "line 7 contains a line break at character 3"),
        ("é\ud800", "line 7 contains .* at character 2, half of a surrogate pair"),
        ("x" * 101, "line 7 has 101 characters; at most 100"),
    ],
)
def test_a_line_that_is_no_segment_of_text_is_refused_by_its_name(line: str, words: str) -> None:
    with pytest.raises(TextError, match=words):
        check_line(line, "line 7", 100)
    assert check_line("fine\u2028\r é", "line 7") == "fine\u2028\r é"
