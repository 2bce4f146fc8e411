"""Language tags."""

from __future__ import annotations

import pytest

from regard.errors import TextError
from regard.text import split_tag, tag
from regard.text.languages import NAMES, name


@pytest.mark.parametrize("code", [*NAMES, "zh-Hant", "pt-BR"])
@pytest.mark.parametrize("rest", ["", "Good morning.", " two spaces", "<2de> twice"])
def test_a_tag_put_on_comes_off(code: str, rest: str) -> None:
    assert split_tag(f"{tag(code)} {rest}") == (code, rest)


@pytest.mark.parametrize("line", ["", "plain", " <2de> not first", "<2> x", "<2DE> x", "<2de x", "2de> x"])
def test_any_other_line_is_left_alone(line: str) -> None:
    assert split_tag(line) == (None, line)


@pytest.mark.parametrize("code", ["", "d", "German", "de en", "<2de>"])
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(TextError, match="is not a language code"):
        tag(code)


def test_names_are_for_people() -> None:
    assert name("de") == "German"
    assert name("xyz") == "xyz"
