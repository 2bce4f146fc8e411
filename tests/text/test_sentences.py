"""Sentences of a line, and parts of a sentence: nothing is lost, and the cuts are where people would make them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.sentences import split_long, split_sentences

# "|" marks where a new sentence begins.
SENTENCES = [
    ("en", "Mr. Smith met Dr. J. R. Jones at 5 p.m. on Monday. |They left."),
    ("en", "It rose by 3.5 per cent. |Why? |Nobody knows!"),
    ("en", '"Stop!" he cried. |"I will not." |She left.'),
    ("en", "Apples, pears, etc. were sold. |We bought Yahoo! shares... and waited. |End"),
    ("en", "(It was late.) |He slept. |2. Wash the fish. |The U.S. Army came."),
    ("en", "He said no. |Then No. 5 came. |See vol. 3."),
    ("de", "Am 3. Oktober kam z. B. Prof. Müller. |Er blieb bis ca. 12 Uhr. |Dann ging er."),
    ("de", "»Komm!« |»Nein«, sagte sie. |Der 2. Weltkrieg begann."),
    ("fr", "M. Dupont est venu ? |« Oui ! » |Il est parti. |Voir p. 12."),
    ("zh", "他来了。|2013年他走了！|“真的吗？”|是的……好吧。"),
    ("ja", "「行きます。」|彼は言った。|はい！？|そう。"),
    ("ar", "كيف حالك؟ |بخير. |شكرا"),
    ("ru", "Он пришёл. |Она ушла... и всё. |Конец!"),
    ("hi", "वह आया। |वह गया।"),
    ("xx", "One. |Two!  |Three?\t|Four"),
    ("en", "A heading\n|A line. |Another"),
    ("en", " led by space. |X "),
]


@pytest.mark.parametrize(("language", "marked"), SENTENCES)
def test_sentences_end_where_they_should(language, marked):
    assert split_sentences(marked.replace("|", ""), language) == marked.split("|")


@pytest.mark.parametrize("text", ["", " ", "\t \u2028", "no end", "a" * 50_000, "." * 50_000, " " * 50_000, "…"])
def test_text_without_an_end_inside_is_one_sentence(text):
    assert split_sentences(text) == ([text] if text else [])


def test_a_region_does_not_change_the_language():
    assert split_sentences("Am 3. Oktober.", "de-AT") == ["Am 3. Oktober."]
    assert len(split_sentences("Vol 3. October.", "en")) == 2


TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from(list(". !?。！？…\"'”»)(aB9,;:，、\n\t\u2028\u200d\x85\x01😀👍🏽é\u0301אب三-")),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(text=TEXT, language=st.sampled_from(["", "en", "de", "zh"]), most=st.integers(1, 12))
def test_nothing_is_lost(text, language, most):
    sentences = split_sentences(text, language)
    assert "".join(sentences) == text
    assert all(s.strip() for s in sentences) or len(sentences) == 1 or not text.strip() or not sentences[-1].strip()
    for sentence in sentences:
        parts = split_long(sentence, lambda part: len(part) <= most)
        assert "".join(parts) == sentence
        assert all(parts)


@pytest.mark.parametrize(
    ("most", "marked"),
    [
        (30, "When the rain had stopped, |they went out; |the streets were empty"),
        (12, "When the |rain had |stopped, |they went |out; |the streets |were empty"),
        (7, "雨停之后，|他们出了门，|街上空无一人"),
        (4, "abcd|efgh|ij |k"),
        (1, "e\u0301|👍🏽|👨\u200d👩\u200d👧|x"),
    ],
)
def test_a_long_sentence_is_cut_at_the_best_place(most, marked):
    def fits(part):
        return len(part.rstrip()) <= most

    assert split_long(marked.replace("|", ""), fits) == marked.split("|")


def test_parts_are_as_long_as_can_be_and_few_are_looked_at():
    text = "word, " * 8000
    looked = 0

    def fits(part):
        nonlocal looked
        looked += len(part)
        return len(part) <= 100

    parts = split_long(text, fits)
    assert "".join(parts) == text
    assert {len(part) for part in parts[:-1]} == {96}
    assert looked < 60 * len(text)


def test_marks_stay_with_their_characters():
    assert all(not unicodedata.combining(part[0]) for part in split_long("e\u0301" * 50, lambda part: len(part) <= 3))
