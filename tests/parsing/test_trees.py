"""Trees: read and written, cleaned as parsers want them, put on a line and back; brackets against gold ones."""

from __future__ import annotations

import gzip
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import tree_of

from regard.apps.cli import main
from regard.errors import DataError, TextError
from regard.parsing.brackets import score_trees
from regard.parsing.trees import DEEPEST, Tree, Word, delinearise, iter_trees, linearise, words_of

CAT = "(S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .))"

texts = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"), exclude_characters="()"), min_size=1)
tags = st.sampled_from(["NN", "DT", ",", ".", "-LRB-", "PRP$", "XX"])
word = st.builds(Word, tags, texts)
labels = st.sampled_from(["S", "NP", "VP", "ADVP|PRT", "X"])


def constituents(children):
    return st.builds(Tree, labels, st.lists(children, min_size=1, max_size=4).map(tuple))


trees = constituents(st.recursive(word, lambda inner: constituents(inner) | word, max_leaves=12))


# -- bracketed text ----------------------------------------------------------------------------------------------------


@given(trees)
@settings(deadline=None)
def test_a_tree_written_and_read_is_the_same(tree):
    assert tree_of(str(tree)) == tree
    assert tree_of(f"( {tree} )") == tree_of(f"(ROOT {tree})") == tree


def test_trees_stand_on_one_line_or_on_several(tmp_path):
    path = tmp_path / "two.mrg.gz"
    path.write_bytes(gzip.compress(f"\n( {CAT})\n\n{tree_of(CAT).indented()}\n({CAT}) {CAT}\n".encode()))
    assert [str(tree) for tree in iter_trees(path)] == [CAT] * 4
    assert tree_of(CAT).indented() == (
        "(S\n  (NP (DT The) (NN cat))\n  (VP (VBZ sleeps))\n  (. .))"
    )  # as it is read by people


def test_traces_functions_and_indices_go():
    text = """( (S (NP-SBJ-1 (-LRB- -LRB-) (PRP$ its) (NN cat)) (VP=2 (VBD sat) (NP (-NONE- *-1))
        (SBAR (-NONE- 0) (S-CLR (NP (-NONE- *T*)) (ADVP|PRT (RB so))))) (: --)) )"""
    clean = "(S (NP (-LRB- -LRB-) (PRP$ its) (NN cat)) (VP (VBD sat) (SBAR (S (ADVP|PRT (RB so))))) (: --))"
    assert str(tree_of(text)) == clean
    assert str(tree_of(clean)) == clean


def test_as_it_is(tmp_path):
    path = tmp_path / "one.mrg"
    path.write_text("((S (NP-SBJ (-NONE- *)) (VP (VB Go))))")
    assert str(next(iter_trees(path, as_it_is=True))) == "(S (NP-SBJ (-NONE- *)) (VP (VB Go)))"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("((NP (NN a)) (. .))", "(TOP (NP (NN a)) (. .))"),
        ("(ROOT (UH Yes))", "(TOP (UH Yes))"),
        ("(NN cat)", "(TOP (NN cat))"),
        ("(NP (NN Xpd TTD))", "(NP (NN Xpd) (NN TTD))"),
        ("(S (NP (NP (NN a))))", "(S (NP (NP (NN a))))"),
    ],
)
def test_what_is_not_quite_a_tree_has_one_reading(text, kept):
    assert str(tree_of(text)) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP (NN a))\n\n", "line 2: the tree that begins here is never closed: .*: 1; close them"),
        (f"{CAT})", "line 2: a bracket is closed that was never opened"),
        (f"{CAT}\nfoo", "line 3: 'foo' is in no tree"),
        ("(S (NP) (VP (VB go)))", r"line 2: the bracket \(NP holds no word; remove it"),
        ("()", r"line 2: the bracket \( holds no word"),
        ("(S ((NN a)))", "line 2: a bracket inside of a tree has no label"),
        ("(S (NN a) b)", r"line 2: 'b' stands beside constituents; give it a tag of its own: \(NN b\)"),
        ("(S a (NN b))", "line 2: a bracket follows the word 'a'"),
        ("(S (NP\n(-NONE- *)))", "line 3: the tree that ends here has no words, only traces; remove it"),
        ("(S " * 201, "line 2: more than 200 brackets are open at once"),
    ],
)
def test_bad_trees_are_refused_with_their_line(tmp_path, text, message):
    path = tmp_path / "bad.mrg"
    path.write_text(f"{CAT}\n{text}")
    with pytest.raises(TextError, match=f"bad.mrg: {message}"):
        list(iter_trees(path))


def test_words_are_written_so_that_brackets_stay_brackets():
    assert words_of(" It (the\tcat) is\u00a0here ") == ["It", "-LRB-the", "cat-RRB-", "is\u00a0here"]
    assert str(Tree("S", (Word("SYM", ":)"),))) == "(S (SYM :-RRB-))"


# -- one line of symbols -----------------------------------------------------------------------------------------------


@given(trees)
@settings(deadline=None)
def test_on_a_line_and_back_onto_the_words(tree):
    found = [w.text for w in tree.words()]
    assert delinearise(linearise(tree, tags=True), found) == tree
    plain = delinearise(linearise(tree), found)
    assert plain.brackets() == tree.brackets()
    assert [w.text for w in plain.words()] == found
    assert {w.tag for w in plain.words()} == {"XX"}


def test_the_line_of_a_tree():
    assert linearise(tree_of(CAT)) == "(S (NP XX XX )NP (VP XX )VP XX )S"
    assert linearise(tree_of(CAT), tags=True) == "(S (NP DT NN )NP (VP VBZ )VP . )S"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "0 words, and there are 2"),
        ("(S XX )S", "symbols for 1 words, and there are 2"),
        ("(S XX XX XX )S", "symbols for 3 words"),
        ("(S XX XX", "1 brackets are open"),
        ("(S XX XX )NP", r"\(S is closed by \)NP"),
        ("(S XX XX (NP )NP )S", r"\(NP holds no word"),
        ("(S XX XX )S )S", "comes behind the tree's last bracket"),
        ("(S XX )S (S XX )S", "comes behind"),
        ("XX XX", "'XX' is outside"),
        (")S", r"'\)S' is outside"),
        ("( XX XX )", "a bracket has no label"),
        ("(S " * (DEEPEST + 1), "more than 200"),
    ],
)
def test_lines_that_are_no_tree(line, message):
    with pytest.raises(TextError, match=message):
        delinearise(line, ["two", "words"])


# -- brackets against gold ones ----------------------------------------------------------------------------------------


def scores(pairs, **options):
    found, gold = ([tree_of(text) for text in side] for side in zip(*pairs, strict=True))
    return score_trees(found, gold, **options)


def figures(*pairs):
    found = scores(pairs, resamples=0)
    return tuple(round(found[name].value, 2) for name in ("precision", "recall", "f1", "exact"))


def test_equal_trees_are_all_right():
    assert figures((CAT, CAT)) == (100, 100, 100, 100)


def test_a_hand_counted_pair():
    # Gold: S 0-5, NP 0-2, VP 2-5, PP 3-5, NP 4-5. Found: S 0-5, NP 0-2, VP 2-5, NP 3-5 (a wrong label): 3 of 4, 3 of 5.
    gold = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (NNS mats)))))"
    found = "(S (NP (XX the) (XX cat)) (VP (XX sat) (NP (XX on) (XX mats))))"
    assert figures((found, gold)) == (75, 60, 66.67, 0)
    # Sums over the corpus, not a mean of sentences: 3 + 3 of 4 + 3, 3 + 3 of 5 + 3.
    assert figures((found, gold), (CAT, CAT)) == (85.71, 75, 80, 50)


@pytest.mark.parametrize(
    ("found", "gold"),
    [
        # Where punctuation hangs does not matter, nor a bracket around nothing else.
        ("(S (NP (NN a) (, ,)) (VP (VB b)) (. .))", "(S (NP (NN a)) (, ,) (VP (VB b) (. .)))"),
        ("(S (NP (NN a)) (PRN (: --)))", "(S (NP (NN a)) (: --))"),
        ("(S (ADVP (RP up)) (VP (VB b)))", "(S (PRT (RP up)) (VP (VB b)))"),
        ("(TOP (S (NN a)) (. .))", "(S (NN a) (. .))"),
    ],
)
def test_what_makes_no_difference(found, gold):
    assert figures((found, gold)) == (100, 100, 100, 100)


def test_what_makes_one():
    # -LRB- is no punctuation to EVALB, so its place counts: 1 of 2.
    assert figures(("(S (NP (-LRB- -LRB-) (NN a)))", "(S (-LRB- -LRB-) (NP (NN a)))")) == (50, 50, 50, 0)
    # A bracket that stands twice is two brackets.
    assert figures(("(NP (NN a))", "(NP (NP (NN a)))")) == (100, 50, 66.67, 0)
    assert figures(("(NP (NP (NP (NN a))))", "(NP (NP (NN a)))")) == (66.67, 100, 80, 0)
    # A tree of punctuation alone has no brackets: nothing is wrong with it.
    assert figures(("(X (. .))", "(NP (. .))")) == (100, 100, 100, 100)


def test_sentences_of_punctuation_alone_are_left_out_of_the_exact_trees():
    """EVALB skips them; of the two that are left one is exact."""
    wrong = ("(NP (NN a))", "(NP (NP (NN a)))")
    pairs = [(CAT, CAT), ("(X (. .))", "(NP (. .))"), wrong]
    assert figures(*pairs) == (100, 80, 88.89, 50)  # 4 brackets of 4 found, of 5 of gold
    assert scores(pairs, resamples=0)["exact"].detail["skipped"] == 1


def test_the_bracket_around_a_tree_is_taken_out_and_the_signature_says_so():
    """COLLINS.prm takes out TOP alone: with it, ROOT would be right here, 1 of 2 found and 1 of 4 of gold."""
    pair = ("(ROOT (NP (NN a) (VB b)))", "(ROOT (S (NP (NN a)) (VP (VB b))))")
    assert figures(pair) == (0, 0, 0, 0)
    trees = [Tree("ROOT", (Word("NN", "a"),)), Tree("S1", (Word("NN", "a"),))]
    found = score_trees(trees, trees, resamples=0)["f1"]
    assert found.detail["gold"] == 0
    assert "|outer:no|" in found.signature
    assert "evalb:collins" not in found.signature


def test_the_interval_holds_the_figure_and_the_signature_says_how():
    gold = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (NNS mats)))))"
    found = scores([(CAT, CAT), ("(S (DT the) (NN cat) (VBD sat) (IN on) (NNS mats))", gold)] * 10)["f1"]
    assert found.interval[0] < found.value < found.interval[1] <= 100
    assert found.signature == "nrefs:1|bs:1000|seed:12345|like:evalb-collins|punct:no|outer:no|prt:advp|tags:gold"
    assert found.detail == {"lines": 20, "matched": 40, "found": 40, "gold": 80, "exact": 10, "skipped": 0}


def test_counts_must_be_equal():
    with pytest.raises(DataError, match="as many, and at least one"):
        score_trees([], [])
    with pytest.raises(DataError, match="1 trees and 2 gold trees"):
        score_trees([tree_of(CAT)], [tree_of(CAT)] * 2)


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_treebank_becomes_two_files(tmp_path, capsys):
    bank = tmp_path / "bank.mrg"
    bank.write_text(f"( {CAT} )\n((S (VP (VB Go)) (NP-SBJ (-NONE- *))))\n")
    words, linear = tmp_path / "out.words", tmp_path / "out.linear"
    assert main(["trees", str(bank), "--words", str(words), "--linear", str(linear)]) == 0
    assert words.read_text() == "The cat sleeps .\nGo\n"
    assert linear.read_text() == "(S (NP XX XX )NP (VP XX )VP XX )S\n(S (VP XX )VP )S\n"
    assert main(["trees", str(bank), "--linear", str(linear), "--tags"]) == 0
    assert linear.read_text().splitlines()[1] == "(S (VP VB )VP )S"
    assert capsys.readouterr().out == ""
    assert main(["trees", str(bank)]) == 0
    assert capsys.readouterr().out == f"{CAT}\n(S (VP (VB Go)))\n"


def test_a_bad_treebank_is_said_in_a_line(tmp_path, capsys):
    bank = tmp_path / "bank.mrg"
    bank.write_text("(S (NP (NN cat))\n")
    assert main(["trees", str(bank)]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(r"regard: .*bank.mrg: line 1: .*never closed.*\n", error)
