"""Tags: none is lost, none is made, and they stand around the words they belong to."""

from __future__ import annotations

import html
import random
import re
import time
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turned import turned

from regard.documents.markup import translate_markup
from regard.documents.reading import VOID, read
from regard.tasks.translation import Translation, WordLink

_TAG = re.compile(r"<[^>]*>")


def made(text: str, **options: object) -> str:
    [found] = translate_markup([text], turned, **options)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("one two", "TWO ONE"),
        ("<b>one</b> two", "TWO <b>ONE</b>"),
        ("one <b>two three</b> four", "FOUR <b>THREE TWO</b> ONE"),
        ("<b>one <i>two</i></b> three", "THREE <b><i>TWO</i> ONE</b>"),
        ("<p>one two</p>\n<p>three four</p>", "<p>TWO ONE</p>\n<p>FOUR THREE</p>"),
        ("one<br>two", "ONE<br>TWO"),
        ("a &lt; b &amp; c", "C &amp; B &lt; A"),
        ("AT&T now", "NOW T & AT".replace("&", "&amp;")),
        ("one <code>x &amp;&amp; y</code> two", "TWO ONE <code>x &amp;&amp; y</code>"),
        ('one <span translate="no">kept <b>so</b></span> two', 'TWO ONE <span translate="no">kept <b>so</b></span>'),
        ("<script>if (a < b) f('<b>')</script>one two", "<script>if (a < b) f('<b>')</script>TWO ONE"),
        ("<!-- note -->one two", "<!-- note -->TWO ONE"),
        ("", ""),
        ("  <b> </b>  ", None),
        ("<b>one", "<b>ONE"),
        ("one</b>", "ONE</b>"),
        ("1 < 2", None),
    ],
)
def test_html(text: str, wanted: str | None) -> None:
    found = made(text)
    assert wanted is None or found == wanted
    assert Counter(_TAG.findall(found)) == Counter(_TAG.findall(text))


def test_xml() -> None:
    text = '<S>one <x id="1"/><T>two</T></S> <N>kept</N>'
    assert made(text, xml=True, ignored=["N"], blocks=["S"]) == '<S><T>TWO</T> ONE <x id="1"/></S> <N>kept</N>'


class _Checked(HTMLParser):
    """Whether every end has its beginning, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.well = True

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.well &= bool(self.open) and self.open.pop() == tag


def random_markup(draw: random.Random, depth: int = 0) -> str:
    out = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.5 or depth > 3:
            out.append(" ".join(draw.choice(["one", "two", "a,", "b.", "z"]) for _ in range(draw.randint(1, 4))))
        elif kind < 0.6:
            out.append(draw.choice(["<br>", "<img src='x'>", "<!-- c -->", "&nbsp;"]))
        else:
            tag = draw.choice(["b", "i", "a", "p", "span", "li"] if depth == 0 else ["b", "i", "a", "span"])
            out.append(f"<{tag} n='{draw.random()}'>{random_markup(draw, depth + 1)}</{tag}>")
    return draw.choice(["", " "]).join(out)


@pytest.mark.parametrize("seed", range(200))
def test_every_tag_stands_once_and_well(seed: int) -> None:
    text = random_markup(random.Random(seed))
    draw = random.Random(seed + 1)

    def unreliable(lines: list[str]) -> list[Translation]:
        """With links that are wrong, missing and many."""
        found = []
        for each in turned(lines):
            count = len(each.words)
            links = tuple(
                WordLink(draw.randrange(count), draw.randrange(count), draw.random())
                for _ in range(draw.randint(0, count))
            )
            found.append(Translation(each.text, words=each.words, source_words=each.source_words, alignment=links))
        return found

    for translate in (turned, unreliable):
        [found] = translate_markup([text], translate)
        assert Counter(_TAG.findall(found)) == Counter(_TAG.findall(text))
        parser = _Checked()
        parser.feed(found)
        assert parser.well
        assert not parser.open


_PLAIN = st.text(alphabet="ab z,.1\n\t&<>'\"=/!-é你", max_size=12)
_TREES = st.recursive(
    _PLAIN.map(lambda text: html.escape(text, quote=False)),
    lambda inner: (
        st.builds(
            "<{0} n='{1}'>{2}</{0}>".format,
            st.sampled_from(["b", "i", "p", "span", "_:x", "ü", "code"]),
            st.integers(0, 99),
            st.lists(inner, max_size=4).map("".join),
        )
        | st.sampled_from(["<br/>", "<x id='1'/>", "<!-- a -->", "<?p?>"])
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "text",
    [
        "a <i><p>a</p>b c </i><b>  d e f<p></p></b>",
        "<b><p></p> a</b><b>b c<i><p></p>d</i></b>",
        "<b>a <p/>b<i>c</i><p/>d</b>",
    ],
)
def test_elements_across_blocks_do_not_cross(text: str) -> None:
    """An element that goes on behind a block has its end there; none may come between, whatever the alignment says."""
    for seed in range(100):
        draw = random.Random(seed)

        def unreliable(lines: list[str], draw: random.Random = draw) -> list[Translation]:
            found = turned(lines)
            for number, each in enumerate(found):
                count = len(each.words)
                links = tuple(
                    WordLink(draw.randrange(count), draw.randrange(count), draw.random()) for _ in range(count)
                )
                found[number] = replace(each, alignment=links)
            return found

        [found] = translate_markup([text], unreliable, xml=True, blocks=["p"])
        assert Counter(_TAG.findall(found)) == Counter(_TAG.findall(text))
        ElementTree.fromstring(f"<a>{found}</a>")


@settings(max_examples=150, deadline=None)
@given(st.lists(_TREES, max_size=4).map("".join), st.booleans(), st.randoms(use_true_random=False))
def test_any_markup_stays_well_formed(text: str, xml: bool, draw: random.Random) -> None:
    """Whatever the alignment says, all tags stand once, and XML is still XML."""

    def unreliable(lines: list[str]) -> list[Translation]:
        found = []
        for each in turned(lines):
            count = len(each.words)
            links = tuple(WordLink(draw.randrange(count), draw.randrange(count), draw.random()) for _ in range(count))
            found.append(Translation(each.text, words=each.words, source_words=each.source_words, alignment=links))
        return found

    [found] = translate_markup([text], unreliable, xml=xml, ignored=["code"], blocks=["p"])
    assert Counter(_TAG.findall(found)) == Counter(_TAG.findall(text))
    if xml:
        ElementTree.fromstring(f"<a xmlns:_='u'>{found}</a>")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="<>/!?&;'\"=-[]ab p\n", max_size=60), st.booleans())
def test_any_text_can_be_read(text: str, xml: bool) -> None:
    translate_markup([text], turned, xml=xml)


@pytest.mark.parametrize(
    "piece", ["<a ", '<a b="', "<a b='c'", "<!--", "<?", "<![CDATA[", "&", "</", "<b>", "<b>a</b> "]
)
@pytest.mark.parametrize("xml", [False, True])
def test_no_text_takes_long_to_read(piece: str, xml: bool) -> None:
    """The standard library's reader of HTML takes a quarter of a minute for some of these."""
    start = time.process_time()
    read(piece * 8000, xml=xml)
    assert time.process_time() - start < 3


def test_deep_markup_is_no_danger() -> None:
    text = "<b>" * 5000 + "one" + "</b>" * 5000
    assert Counter(_TAG.findall(made(text))) == Counter(_TAG.findall(text))
    assert len(read("<" * 20_000)) >= 1
