"""Word alignments from attention: the two rules, words from tokens, both directions, and the error rate."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle
from hypothesis import given
from hypothesis import strategies as st

from regard.apps.cli import main
from regard.errors import DataError, ModelError, TextError
from regard.linking.aer import Gold, alignment_error_rate, parse_gold
from regard.linking.align import (
    SYMMETRIES,
    Alignment,
    AlignmentChoice,
    Reading,
    _choices,
    _of_tokens,
    align_lines,
    choose,
    pharaoh,
    read_choice,
    write_choice,
)
from regard.tasks.translate import Translator, load
from regard.text import write_lines


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return small_bundle(tmp_path_factory.mktemp("bundles") / "small")


@pytest.fixture(scope="module")
def translator(bundle):
    return load(bundle, device="cpu")


class Looking(torch.nn.Module):
    """Stands in for a model: in layer 2 the step whose input is token t looks at token t, elsewhere at token 0."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def encode(self, source, layout):
        return source

    def start(self, memory, layout):
        return memory

    def decode(self, tokens, state, layout, observe):
        (rows, steps), length = tokens.shape, state.shape[1]
        first = torch.zeros(rows, 2, steps, length)
        first[..., 0] = 1
        second = first.clone()
        for step in range(1, steps):
            second[:, :, step] = 0
            second[:, :, step, min(step - 1, length - 1)] = 1
        observe.weights["cross"] += [first, second]
        return tokens, state


def that_looks(bundle, source, target):
    made = Translator(Looking(), bundle.recipe, source, target)
    made.engine.refusal = lambda: "there is nothing to compile in it"
    return made


@pytest.fixture(scope="module")
def looking(bundle):
    return that_looks(bundle, bundle.source, bundle.target)


def plain(rule, layer, head=0, symmetry="target"):
    """Each target word with the source word that it looks at most."""
    one = (Reading(rule, layer, head),)
    return AlignmentChoice(readings=one, reverse=one, share=False, symmetry=symmetry)


# -- links -------------------------------------------------------------------------------------------------------------

LINES = ["A man in an orange hat .", "", "Two  men\tare at the stove", "土卫 is smiling ▁ ö"]


def test_the_input_rule_reads_the_step_that_reads_the_token(looking):
    found = align_lines(looking, LINES, LINES, choice=plain("input", 2))
    assert [pharaoh(a.links) for a in found] == [
        " ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in LINES
    ]


def test_the_output_rule_reads_the_step_before(looking):
    # One token late, so that the first token of each word looks at the word before, or the last one's tokens do.
    (found,) = align_lines(looking, ["a b c d"], ["a b c d"], choice=plain("output", 2))
    assert found.links == ((0, 0), (0, 1), (1, 2), (2, 3))
    (other,) = align_lines(looking, ["a b c d"], ["a b c d"], choice=plain("input", 1))
    assert other.links == ((0, 0), (0, 1), (0, 2), (0, 3))


def test_each_target_word_has_one_link_whatever_its_neighbours(translator):
    how = AlignmentChoice(symmetry="target")
    whole = align_lines(translator, ENGLISH, GERMAN, choice=how)
    for alignment, source, target in zip(whole, ENGLISH, GERMAN, strict=True):
        assert [j for _, j in sorted(alignment.links, key=lambda link: link[1])] == list(range(len(target.split())))
        assert all(0 <= i < len(source.split()) for i, _ in alignment.links)
    order = list(reversed(range(len(ENGLISH))))
    again = align_lines(translator, [ENGLISH[i] for i in order], [GERMAN[i] for i in order], choice=how, batch_size=5)
    assert [again[order.index(i)] for i in range(len(ENGLISH))] == whole


def test_readings_differ(translator):
    found = {
        tuple(align_lines(translator, ENGLISH, GERMAN, choice=plain(rule, layer, head)))
        for rule in ("input", "output")
        for layer, head in ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2))
    }
    assert len(found) == 10


def test_an_empty_side_has_no_links_and_keeps_its_line(translator):
    found = align_lines(translator, ["", "a b", "  "], ["x", " ", ""])
    assert [a.links for a in found] == [(), (), ()]


def test_spans_are_places_in_the_lines_as_they_are_given():
    found = Alignment(((0, 1), (1, 0)), "  Guten  Tag", "day good")
    assert found.spans == [((2, 7), (4, 8)), ((9, 12), (0, 3))]


def test_chinese_words_are_read_without_spaces(looking):
    read = []
    looking.source, kept = type("Spy", (), {
        "normalization": "identity",
        "encode": lambda self, text: read.append(text) or kept.encode(text),
        "spans": lambda self, text: kept.spans(text),
    })(), looking.source  # fmt: skip
    try:
        align_lines(looking, ["科学家 一直 猜想 NASA 2013 年 。 한국 말"], ["a"], choice=plain("input", 2))
    finally:
        looking.source = kept
    assert read == ["科学家一直猜想NASA 2013年。한국 말"]


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_normalization_moves_no_word(tmp_path, form):
    from regard.text import TextConfig, Tokenizer

    tokenizer = Tokenizer.train([*ENGLISH, "ﬁne e\u0301 ½ ①"], size=400, settings=TextConfig(normalization=form))
    bundle = small_bundle(tmp_path / "b")
    line = "ﬁ ﬁ e\u0301 ½ ① \u00a8 e\u0301 man"
    found = align_lines(that_looks(bundle, tokenizer, tokenizer), [line], [line], choice=plain("input", 2))
    assert pharaoh(found[0].links) == " ".join(f"{i}-{i}" for i in range(len(line.split())))


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (Reading("input", 3), "layer is 3; this model has layers 1 to 2"),
        (Reading("input", -1), "layer is -1"),
        (Reading("output", 1, 9), "head is 9; this model has heads 1 to 2"),
        (Reading("shift", 1), "rule is 'shift'"),
    ],
)
def test_what_is_not_there_is_refused(translator, reading, message):
    with pytest.raises(ModelError, match=message):
        align_lines(translator, ["a"], ["b"], choice=AlignmentChoice(readings=(reading,)))


def test_lines_that_cannot_be_read_are_named(translator):
    with pytest.raises(TextError, match="2 source lines but 1 target lines"):
        align_lines(translator, ["a", "b"], ["a"])
    with pytest.raises(TextError, match=r"target line 2 has .* tokens"):
        align_lines(translator, ["a", "b"], ["a", "b " * 5000])
    with pytest.raises(TextError, match="source line 1 contains a NUL"):
        align_lines(translator, ["a\0"], ["b"])
    with pytest.raises(ModelError, match="symmetry is 'both'"):
        align_lines(translator, ["a"], ["b"], choice=AlignmentChoice(symmetry="both"))


def test_languages_are_those_of_the_bundle(tmp_path):
    one = load(small_bundle(tmp_path / "one"), device="cpu")
    assert align_lines(one, ENGLISH[:1], GERMAN[:1], languages=("en", "de"))
    with pytest.raises(ModelError, match=r"translates to German \(de\), not to French \(fr\)"):
        align_lines(one, ["a"], ["b"], languages=("en", "fr"))
    with pytest.raises(ModelError, match=r"translates from English \(en\), not from German \(de\)"):
        align_lines(one, ["a"], ["b"], languages=("de", ""))


def test_the_tag_that_asks_for_a_language_is_no_word(tmp_path):
    many = load(small_bundle(tmp_path / "many", tags=("de", "en")), device="cpu")
    how = plain("output", 0)
    found = align_lines(many, ENGLISH, GERMAN, choice=how, languages=("en", "de"))
    written = align_lines(many, [f"<2de> {line}" for line in ENGLISH], GERMAN, choice=how)  # here it is one
    for one, other in zip(found, written, strict=True):
        assert [j for _, j in sorted(one.links, key=lambda link: link[1])] == list(range(len(one.target.split())))
        assert {(i - 1, j) for i, j in other.links if i} <= set(one.links)
    how = plain("output", 0, symmetry="union")
    both = align_lines(many, ENGLISH, GERMAN, choice=how, reverse=many, languages=("en", "de"))
    assert all(set(one.links) <= set(two.links) for one, two in zip(found, both, strict=True))
    with pytest.raises(ModelError, match="does not write 'fr'; choose one of de, en"):
        align_lines(many, ["a"], ["b"], languages=("en", "fr"))


# -- both directions ---------------------------------------------------------------------------------------------------


def test_symmetries_of_a_known_case():
    forward = frozenset({(0, 0), (1, 1), (1, 2), (4, 4)})
    backward = frozenset({(0, 0), (1, 1), (2, 2), (3, 5)})
    joined = {name: way(forward, backward) for name, way in SYMMETRIES.items()}
    assert joined["intersection"] == {(0, 0), (1, 1)}
    assert joined["union"] == forward | backward
    assert joined["grow-diag"] == {(0, 0), (1, 1), (1, 2), (2, 2)}
    assert joined["grow-diag-final"] == {(0, 0), (1, 1), (1, 2), (2, 2), (4, 4), (3, 5)}


LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@given(LINKS, LINKS)
def test_each_symmetry_holds_the_one_before(forward, backward):
    found = [SYMMETRIES[name](forward, backward) for name in ("intersection", "grow-diag", "grow-diag-final", "union")]
    assert all(one <= other for one, other in itertools.pairwise(found))


def test_a_reverse_model_is_turned_round(looking):
    def both(symmetry):
        how = plain("input", 2, symmetry=symmetry)
        (found,) = align_lines(looking, ["a b c"], ["a b"], choice=how, reverse=looking)
        return found.links

    assert both("intersection") == ((0, 0), (1, 1))
    assert both("union")[:2] == ((0, 0), (1, 1))
    assert both("union")[2][0] == 2


def test_what_every_word_looks_at_is_shared_out():
    weights = np.array([[0.4, 0.0, 0.6], [0.0, 0.4, 0.6], [0.1, 0.0, 0.9]])
    assert _choices(weights, share=False)[0] == {(2, 0), (2, 1), (2, 2)}
    own, others = _choices(weights, share=True)
    assert own == {(0, 0), (1, 1), (2, 2)} == others
    assert _choices(np.zeros((2, 3)), share=True) == (frozenset({(0, 0), (0, 1)}), frozenset({(0, 0), (1, 0), (2, 0)}))


def test_two_readings_are_better_than_one(looking):
    """Each looks right at one half of a line, and elsewhere in the line at nothing much."""
    record = [np.zeros((1, 5, 5), np.float32), np.zeros((1, 5, 5), np.float32)]
    record[0][0, 1:3, :4], record[1][0, 1:3, :4] = np.eye(4)[:2], 0.25
    record[0][0, 3:, :4], record[1][0, 3:, :4] = 0.25, np.eye(4)[2:]
    both = _of_tokens(record, (Reading("input", 1), Reading("input", 2)))
    assert both.argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert _of_tokens(record, (Reading("input", 1),)).argmax(axis=1).tolist() == [0, 1, 0, 0]


# -- the error rate ----------------------------------------------------------------------------------------------------


def test_the_error_rate_of_a_case_counted_by_hand():
    gold = [parse_gold("1-1 2p2 3?1"), parse_gold("1-1 2-2")]
    assert gold[0] == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1), (2, 0)}))
    scores = alignment_error_rate([{(0, 0), (1, 1)}, {(0, 0), (0, 1)}], gold, resamples=0)
    # |A| = 4, |S| = 3, |A and S| = 2, |A and P| = 3
    assert scores["precision"].value == pytest.approx(75)
    assert scores["recall"].value == pytest.approx(200 / 3)
    assert scores["aer"].value == pytest.approx(100 * (1 - 5 / 7))
    assert scores["aer"].interval is None
    assert not scores["aer"].higher_is_better
    assert scores["aer"].signature == "nlines:2|sure:3|possible:5|links:4"


def test_the_interval_holds_the_value_and_gold_itself_has_no_error():
    gold = [parse_gold(f"1-1 2p{2 + i % 3} 3-3") for i in range(40)]
    scores = alignment_error_rate([{(0, 0), (1, 1), (2, 2 - i % 2)} for i in range(40)], gold, resamples=200)
    low, high = scores["aer"].interval
    assert low < scores["aer"].value < high
    assert alignment_error_rate([g.sure for g in gold], gold, resamples=0)["aer"].value == 0
    assert alignment_error_rate([()] * 40, gold, resamples=0)["aer"].value == 100


@pytest.mark.parametrize(
    ("line", "base", "message"),
    [("1-1 0-2", 1, "'0-2' counts words from 0"), ("1:2", 0, "'1:2' is no link"), ("1-", 1, "line 7")],
)
def test_bad_gold_is_named(line, base, message):
    with pytest.raises(DataError, match=message):
        parse_gold(line, base=base, number=7)


def test_gold_must_fit():
    with pytest.raises(DataError, match="1 alignments but 0 gold lines"):
        alignment_error_rate([()], [])
    with pytest.raises(DataError, match="no sure link"):
        alignment_error_rate([()], [parse_gold("1p1")])


def test_the_best_reading_is_chosen(looking, tmp_path):
    lines = ["A man in an orange hat .", "Two men are at the stove"]
    gold = [parse_gold(" ".join(f"{i}-{i}" for i in range(len(line.split()))), base=0) for line in lines]
    found = choose(looking, looking, lines, lines, gold, how=AlignmentChoice(share=False, symmetry="target"))
    assert found.readings == found.reverse == (Reading("input", 2),)  # nothing is better beside it
    assert found.rates["forward input 2"] == found.rates["reverse input 2"] == 0
    assert len(found.rates) == 2 * 2 * 14  # each alone, and each beside the best
    assert found.rates["forward output 2"] > 0
    write_choice(tmp_path / "choice.json", found)
    assert read_choice(tmp_path / "choice.json") == found
    (tmp_path / "choice.json").write_text('{"reading": {"rule": "no"}}')
    with pytest.raises(ModelError, match=r"choice\.json: no choice"):
        read_choice(tmp_path / "choice.json")


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "en", [*ENGLISH[:3], ""])
    write_lines(tmp_path / "de", [*GERMAN[:3], ""])
    write_lines(tmp_path / "both", [f"{s} ||| {t}" for s, t in zip(ENGLISH[:3], GERMAN[:3], strict=True)])
    write_lines(tmp_path / "gold", ["1-1 2p2", "1-1", "2-2"])
    return tmp_path


def test_align_writes_a_line_for_a_line(bundle, files, capsys, translator):
    assert main(["align", str(bundle.path), "en", "de", "--layer", "2", "--no-share", "--symmetry", "target"]) == 0
    lines = capsys.readouterr().out.split("\n")
    expected = align_lines(translator, [*ENGLISH[:3], ""], [*GERMAN[:3], ""], choice=plain("output", 2))
    assert lines == [*(pharaoh(a.links) for a in expected), ""]
    assert lines[3] == ""
    assert main(["align", str(bundle.path), "en", "de", "--json"]) == 0
    first = json.loads(capsys.readouterr().out.split("\n")[0])
    assert first["source"] == ENGLISH[0]
    assert len(first["spans"]) == len(first["links"])


def test_align_scores_and_chooses(bundle, files, capsys):
    path = str(bundle.path)
    assert main(["align", path, "both", "--gold", "gold", "--reverse", path, "--choose", "choice.json"]) == 0
    shown = capsys.readouterr()
    assert "AER" in shown.out
    assert "nlines:3|bs:1000|seed:12345|sure:3|possible:4" in shown.out
    choice = json.loads((files / "choice.json").read_text())
    assert set(choice["rates"]) >= {"forward input 1", "reverse output 2", "forward output mean"}
    assert main(["align", path, "both", "--gold", "gold", "--reading", "choice.json", "--json", "-o", "links"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["scores"]["aer"]["unit"] == "percent"
    assert scores["readings"] == choice["readings"]
    assert len((files / "links").read_text().split("\n")) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["both", "--choose", "x"], "--choose needs --gold"),
        (["en"], "line 1 has no ' \\|\\|\\| '"),
        (["both", "--gold", "en"], "en has 4 lines of links for 3 pairs"),
        (["both", "--layer", "7"], "layer is 7"),
        (["both", "--symmetry", "all"], "symmetry is 'all'"),
    ],
)
def test_mistakes_have_a_message(bundle, files, capsys, options, message):
    assert main(["align", str(bundle.path), *options]) == 2
    assert re.search(message, capsys.readouterr().err)
