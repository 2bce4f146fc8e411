"""Lines of any length: a line in is a line out, in order, and nothing of the source is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from bundles import ENGLISH, small_bundle

from regard.errors import TextError
from regard.tasks.lines import LongTranslation, translate_long
from regard.tasks.translate import Translator, load
from regard.tasks.translation import Translation


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    tables = {"data": {"source": "a", "target": "b", "source_language": "en", "target_language": "de",
                       "filters": {"max_length": 10}}}  # fmt: skip
    return load(small_bundle(tmp_path_factory.mktemp("bundles") / "small", **tables), device="cpu")


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return load(small_bundle(tmp_path_factory.mktemp("bundles") / "many", tags=("de", "fr")), device="cpu")


def echo(translator, seen=None):
    """Stands in for a model that copies: what it is given must be what the bundle takes."""

    def translate(lines):
        if not translator.languages.targets:
            translator.encode(lines)
        if seen is not None:
            seen.extend(lines)
        return [Translation(line, log_probability=-1.0, ended=True) for line in lines]

    return translate


LONG = [
    "A man. Two  dogs!\tA girl?  ",
    "  led by space. " + "word, " * 300,
    "😀👍🏽" * 500,
    "e\u0301" * 700 + ". \u202eשלום עולם. מה שלומך? " + "א" * 300,
    "a\x01b\x85c\u2028d. " * 90,
    ("x" * 49_990 + ". End.")[:50_000],
    "word " * 10_000,
    "." * 3000,
]


@pytest.mark.parametrize("line", LONG, ids=range(len(LONG)))
def test_a_model_that_copies_gives_the_line_back(translator, line):
    seen = []
    before, found, behind = translate_long(translator, ["before", line, "behind"], echo(translator, seen))
    assert (before.text, behind.text) == ("before", "behind")
    assert found.text == line
    assert isinstance(found, LongTranslation)
    assert len(found.parts) == len(seen) - 2 > 1
    assert found.log_probability == -len(found.parts)
    assert not isinstance(before, LongTranslation)


def test_lines_that_fit_are_not_touched(translator):
    lines = ["Ah. Bo.", "", "  ", " a "]
    seen = []
    assert [t.text for t in translate_long(translator, lines, echo(translator, seen))] == lines
    assert seen == lines
    seen.clear()
    assert [t.text for t in translate_long(translator, lines, echo(translator, seen), always=True)] == lines
    assert seen == ["Ah.", "Bo.", "", "  ", " a "]


def test_a_real_model_translates_each_sentence_as_if_it_stood_alone(translator):
    line = " ".join(s if s.endswith(".") else f"{s}." for s in ENGLISH[:3])
    (found,) = translate_long(translator, [line], partial(translator.translate, beam=1), always=True)
    alone = translator.translate(["A man in an orange hat is starring at something ."], beam=1)
    assert isinstance(found, LongTranslation)
    assert found.parts[0].text == alone[0].text
    assert found.text.startswith(alone[0].text)
    assert len(found.parts) == 3


def test_between_sentences_the_target_has_its_own_spaces(translator):
    english = {"他来了。": "He came.", "他走了！": "He left!"}
    chinese = {there: here for here, there in english.items()}

    def by(table):
        return lambda lines: [Translation(table.get(line, line)) for line in lines]

    zh = Translator(translator.model, translator.recipe, translator.source, translator.target)
    zh.reading = replace(zh.reading, languages=replace(zh.languages, source="zh"))
    assert translate_long(zh, ["他来了。他走了！"], by(english), always=True)[0].text == "He came. He left!"
    assert translate_long(translator, ["He came. He left!"], by(chinese), always=True)[0].text == "他来了。他走了！"
    assert translate_long(translator, ["He came.  He left!"], by(chinese), always=True)[0].text == "他来了。  他走了！"


def test_each_part_carries_the_tag(multilingual):
    seen = []
    (found,) = translate_long(multilingual, ["<2fr> A man. Two dogs."], echo(multilingual, seen), always=True)
    assert seen == ["<2fr> A man.", "<2fr> Two dogs."]
    assert len(found.parts) == 2
    with pytest.raises(TextError, match=r"line 7 .* does not say which language"):
        translate_long(multilingual, ["A man. Two dogs."], echo(multilingual), always=True, first_line=7)
    found = translate_long(multilingual, ["A man. Two dogs."], echo(multilingual), always=True, to="de")
    assert found[0].text == "A man. Two dogs."


@pytest.mark.parametrize(("character", "what"), [("\0", "a NUL"), ("\n", "a line break")])
def test_what_is_refused_is_named_by_its_own_line(translator, character, what):
    with pytest.raises(TextError, match=f"line 12 contains {what}"):
        translate_long(translator, ["A. B. C.", "x. " * 100, f"a{character}b"], translator.translate, first_line=10)
    with pytest.raises(TextError, match="is one string"):
        translate_long(translator, "a line", translator.translate)
