"""The baseline of parsing: the grammar read off trees, and the best tree against every tree."""

from __future__ import annotations

import itertools
import math
import random
import sys
from pathlib import Path

import pytest
from trees import tree_of

from regard.parsing.trees import Tree, Word

PLACE = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def pcfg(monkeypatch):
    monkeypatch.syspath_prepend(PLACE)
    import pcfg

    yield pcfg
    sys.modules.pop("pcfg", None)


def test_rules_carry_their_parent_and_remember_one_child(pcfg):
    tree = tree_of("(S (NP (DT a) (JJ b) (NN c) (NN d)) (VP (VB e)))")
    assert list(pcfg.annotated(tree)) == [
        ("TOP", "S^TOP"),
        ("S^TOP", "NP^S", "VP^S"),
        ("NP^S", "DT_NP", "@NP^S:DT"),
        ("@NP^S:DT", "JJ_NP", "@NP^S:JJ"),
        ("@NP^S:JJ", "NN_NP", "NN_NP"),
        ("VP^S", "VB_VP"),
    ]


LEXICON = {"N_": {"she": 0.3, "stars": 0.3, "eyes": 0.4}, "V_": {"saw": 1.0}, "P_": {"with": 1.0}}


def test_a_hand_made_grammar_prefers_what_it_should(pcfg):
    def best(high):
        rules = {
            ("TOP", "S^"): 1.0,
            ("S^", "NP^", "VP^"): 1.0,
            ("NP^", "N_"): 0.8,
            ("NP^", "NP^", "PP^"): 0.2,
            ("VP^", "V_", "NP^"): 1 - high,
            ("VP^", "VP^", "PP^"): high,
            ("PP^", "P_", "NP^"): 1.0,
        }
        return pcfg.Grammar(rules, LEXICON).parse(["she", "saw", "stars", "with", "eyes"])

    tree, value = best(0.5)
    assert str(tree) == (
        "(S (NP (N she)) (VP (VP (V saw) (NP (N stars))) (PP (P with) (NP (N eyes)))))"
    )  # 0.5 against 0.2
    assert math.exp(value) == pytest.approx(0.5 * 0.5 * 0.8**3 * 0.3 * 0.3 * 0.4, rel=1e-5)
    tree, value = best(0.1)
    assert str(tree) == "(S (NP (N she)) (VP (V saw) (NP (NP (N stars)) (PP (P with) (NP (N eyes))))))"
    assert math.exp(value) == pytest.approx(0.9 * 0.2 * 0.8**3 * 0.3 * 0.3 * 0.4, rel=1e-5)


def test_what_has_no_tree_has_none(pcfg):
    grammar = pcfg.Grammar({("TOP", "S^"): 1.0, ("S^", "N_", "V_"): 1.0}, LEXICON)
    assert grammar.parse(["she", "saw"]) is not None
    assert grammar.parse(["saw", "she"]) is None
    assert grammar.parse(["she"]) is None


def inside(rules, lexicon, words):
    """The best log-probability by trying everything, a symbol at most once along a chain of unary rules."""
    best = {}

    def value(i, j, symbol, chain):
        key = (i, j, symbol, chain)
        if key not in best:
            ways = [math.log(lexicon[symbol][words[i]])] if j - i == 1 and words[i] in lexicon.get(symbol, {}) else []
            for rule, chance in rules.items():
                if rule[0] == symbol and len(rule) == 3:
                    ways += [
                        math.log(chance) + value(i, k, rule[1], frozenset()) + value(k, j, rule[2], frozenset())
                        for k in range(i + 1, j)
                    ]
                elif rule[0] == symbol and rule[1] not in chain:
                    ways.append(math.log(chance) + value(i, j, rule[1], chain | {rule[1]}))
            best[key] = max(ways, default=-math.inf)
        return best[key]

    return value(0, len(words), "TOP", frozenset())


@pytest.mark.parametrize("seed", range(5))
def test_cky_finds_the_best_of_all_trees(pcfg, seed):
    draw = random.Random(seed)
    inner, tags, vocabulary = ["A^", "B^", "C^"], ["X_", "Y_"], ["u", "v"]
    rules = {("TOP", "A^"): 1.0}
    for symbol in inner:
        right = [*itertools.product([*inner, *tags], repeat=2), *((s,) for s in (*inner, *tags) if s != symbol)]
        chosen = draw.sample(right, 6)
        weights = [draw.random() + 0.01 for _ in chosen]
        rules |= {(symbol, *each): weight / sum(weights) for each, weight in zip(chosen, weights, strict=True)}
    lexicon = {tag: {"u": share, "v": 1 - share} for tag, share in zip(tags, (0.3, 0.9), strict=True)}
    grammar = pcfg.Grammar(rules, lexicon)
    for _ in range(6):
        words = draw.choices(vocabulary, k=draw.randint(1, 5))
        wanted = inside(rules, lexicon, words)
        found = grammar.parse(words)
        if wanted == -math.inf:
            assert found is None
        else:
            tree, value = found
            assert value == pytest.approx(wanted, rel=1e-4)
            assert [word.text for word in tree.words()] == words


def test_a_treebank_is_learnt_and_unknown_words_have_classes(pcfg):
    trees = [tree_of(f"(S (NP (DT the) (NN {noun})) (VP (VBZ {verb})))") for noun, verb in
             [("cat", "sees")] * 5 + [(f"cat{i}ness", f"zap{i}sees") for i in range(12)]]  # fmt: skip
    grammar = pcfg.read_off(trees)
    tree, _ = grammar.parse(["the", "darkness", "foresees"])
    assert str(tree) == "(S (NP (DT the) (NN darkness)) (VP (VBZ foresees)))"
    assert isinstance(tree.children[0], Tree)
    assert tree.children[0].children[1] == Word("NN", "darkness")
    total = sum(math.exp(grammar.lexicon.row(word)[grammar.index["NN_NP"]]) for word in ("cat", "darkness"))
    assert 0.99 < total <= 1.0001  # known words and the class of rare ones
    assert pcfg.classes("IL-2") == ("<0A-|-2>", "<0A->", "<>")
