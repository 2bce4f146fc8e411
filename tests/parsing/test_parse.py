"""Parsing: whatever a model thinks, its trees are whole trees over the line's words; and a small grammar is learnt."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
import toy
from bundles import small_bundle
from trees import tree_of

import regard
from regard import bundle as bundles
from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import DataError, ModelError, TextError
from regard.models import FAMILIES
from regard.models.blocks import new_model
from regard.parsing.brackets import score_trees
from regard.parsing.parse import MOST_OPEN, Bracketing, Symbols, evaluate_trees, parse
from regard.parsing.trees import Tree, iter_trees, linearise, words_of
from regard.search.beam import beam_search
from regard.search.constraints import constrained
from regard.search.table import penalty_of
from regard.studies.lectures.exhaustive import exhaustive_search
from regard.tasks.engine import use_of
from regard.tasks.translate import load
from regard.text import PAD, Tokenizer, write_lines

NOUNS, VERBS, PREPOSITIONS = ["cat", "dog", "man", "hill", "hat"], ["sees", "likes", "finds"], ["on", "in", "with"]


def noun_phrase(draw, depth):
    plain = f"(NP (DT {draw.choice(['the', 'a'])}) (NN {draw.choice(NOUNS)}))"
    if depth == 0 or draw.random() < 0.5:
        return plain
    return f"(NP {plain} (PP (IN {draw.choice(PREPOSITIONS)}) {noun_phrase(draw, depth - 1)}))"


def sentence(draw):
    verb = draw.choice(VERBS)
    tail = f" {noun_phrase(draw, 2)}" if draw.random() < 0.8 else ""
    return tree_of(f"(S {noun_phrase(draw, 1)} (VP (VBZ {verb}){tail}) (. .))")


def treebank(count, seed=1):
    draw = random.Random(seed)
    return [sentence(draw) for _ in range(count)]


def text_of(tree):
    return " ".join(word.text for word in tree.words())


def random_bundle(path, *, tags=False, **search):
    """A bundle that writes symbols with random weights."""
    known = treebank(40)
    source = Tokenizer.train([text_of(tree) for tree in known], size=300, shrink=True)
    target = Tokenizer.train([linearise(tree, tags=tags) for tree in known], size=100, kind="words")
    recipe = recipes.validate(
        {
            "name": "random parser",
            "data": {"source": "a", "target": "b"},
            "text": {"target_kind": "words", "joint": False},
            "model": {
                "width": 16,
                "heads": 2,
                "feedforward": 32,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "share": "target",
            },
            "search": {"beam": 3, "alpha": 0.3, "extra_length": 60, "batch_size": 100} | search,
        }
    )
    torch.manual_seed(3)
    model = FAMILIES["transformer"].build(recipe.model, len(source), len(target), PAD)
    with torch.no_grad():  # far from even, so that some brackets are opened again and again
        for parameter in model.parameters():
            parameter.mul_(3)
    bundles.save(
        path,
        recipe=recipe,
        weights=dict(model.named_parameters()),
        source=source,
        target=target,
        provenance=bundles.Provenance(),
        golden=[],
    )
    return load(path, device="cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def untrained(place):
    return random_bundle(place / "random")


# -- the rules ---------------------------------------------------------------------------------------------------------

SYMBOLS = Symbols({3: 4, 5: 6}, (7,))
"""0 to 2 are nothing, 3 (A, 4 )A, 5 (B, 6 )B, 7 XX; the end is 8."""
END = 8


def written(ids):
    """The tree that these ids are over as many words as they have."""
    names = {3: "(A", 4: ")A", 5: "(B", 6: ")B", 7: "XX"}
    from regard.parsing.trees import delinearise

    return delinearise(" ".join(names[i] for i in ids), ["w"] * ids.count(7))


def random_walk(rules, draw):
    place, ids = rules.start(), []
    while True:
        token = int(draw.choice(np.flatnonzero(place.allowed(9, END)).tolist()))
        if token == END:
            return ids
        ids.append(token)
        place = place.after(token)


def test_whatever_is_allowed_ends_in_a_tree_within_the_limit():
    draw = random.Random(0)
    for _ in range(400):
        words = draw.randint(1, 6)
        limit = words + 3 + draw.choice([0, 1, 2, 5, 100])
        ids = random_walk(Bracketing(SYMBOLS, words, limit), draw)
        assert len(ids) + 1 <= limit
        assert ids.count(7) == words
        written(ids)


def test_every_tree_is_allowed():
    # All sequences that are trees over 2 words in at most 7 symbols and the end; and by the rules.
    import itertools

    def is_tree(ids):
        try:
            written(ids)
        except TextError:
            return False
        return ids.count(7) == 2

    every = {ids for size in range(1, 8) for ids in itertools.product(range(3, 8), repeat=size) if is_tree(ids)}
    reached = set()
    waiting = [(Bracketing(SYMBOLS, 2, 8).start(), ())]
    while waiting:
        place, ids = waiting.pop()
        for token in np.flatnonzero(place.allowed(9, END)).tolist():
            if token == END:
                reached.add(ids)
            else:
                waiting.append((place.after(token), (*ids, token)))
    assert reached == every
    assert len(every) == 2 + 3 * 4  # one bracket around both words; two, around both, the first or the second


def test_only_so_many_brackets_are_opened_in_a_row():
    place = Bracketing(SYMBOLS, 1, 1000).start()
    for _ in range(MOST_OPEN):
        assert place.allowed(9, END)[3]
        place = place.after(3)
    assert np.flatnonzero(place.allowed(9, END)).tolist() == [7]


def test_too_short_a_limit_is_refused():
    assert Bracketing(SYMBOLS, 4, 7).refusal() is None
    assert "over 4 words needs 7 tokens, and at most 6" in str(Bracketing(SYMBOLS, 4, 6).refusal())


class Count:
    """A state that is only the number of tokens so far."""

    def __init__(self, tokens):
        self.tokens = tokens

    def select(self, rows):
        return self


def test_a_wide_beam_finds_the_best_tree():
    def step(tokens, state):
        torch.manual_seed(state.tokens)
        return torch.randn(9).log_softmax(-1).expand(len(tokens), 9), Count(state.tokens + 1)

    options = {"end": END, "penalty": penalty_of("power", 1.0)}
    under, start = constrained(step, Count(0), [Bracketing(SYMBOLS, 2, 8)], END)
    first = torch.tensor([0])
    (found,) = toy.searched(beam_search, under, start, first, width=200, max_length=torch.tensor([8]), **options)
    best = toy.searched(exhaustive_search, under, start, first, max_length=8, n_best=100, **options)
    assert len(best) == 14
    assert found[0].ids == best[0].ids
    assert found[0].score == pytest.approx(best[0].score)


# -- any model ---------------------------------------------------------------------------------------------------------


def test_the_trees_of_a_random_model_are_trees_over_the_words(untrained):
    draw = random.Random(7)
    words = [*NOUNS, *VERBS, "(", ")", "Übergrößenträger", "土卫", "a\u00a0b", "\u2581", "-LRB-", "XX"]
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(200)]
    found = parse(untrained, lines, beam=1, precision="float32")
    for line, each in zip(lines, found, strict=True):
        assert [word.text for word in each.tree.words()] == words_of(line)
        assert each.log_probability < 0
        again = tree_of(str(each.tree))
        assert again == each.tree or each.tree.label == "TOP"


def test_a_beam_a_batch_and_an_order_change_no_tree(untrained):
    lines = [text_of(tree) for tree in treebank(12, seed=2)]
    whole = parse(untrained, lines)
    back = parse(untrained, lines[::-1], batch_size=5)[::-1]
    assert [str(each) for each in whole] == [str(each) for each in back]


def test_a_tight_limit_still_gives_trees(place):
    tight = random_bundle(place / "tight", extra_length=3, max_length=9)
    lines = ["the cat sees a dog .", "the"]
    assert [len(each.tree.words()) for each in parse(tight, lines)] == [6, 1]
    with pytest.raises(ModelError, match="line 1: a tree over 7 words needs 10 tokens, and at most 9"):
        parse(tight, ["the cat sees a big dog ."])


def test_learnt_tags_are_written(place):
    found = parse(random_bundle(place / "tags", tags=True), ["the cat sees a dog"])[0]
    assert {word.tag for word in found.tree.words()} <= {"DT", "NN", "VBZ", "IN", "."}


def test_an_empty_line_has_no_tree(untrained):
    found = parse(untrained, ["", "a cat", " \t"])
    assert [str(each) for each in found][::2] == ["", ""]
    assert found[1].tree is not None


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_bundle_that_writes_no_trees_is_refused(place):
    with pytest.raises(ModelError, match="this bundle writes no trees"):
        parse(load(small_bundle(place / "german"), device="cpu"), ["a cat"])


def test_what_cannot_be_parsed_is_said(untrained):
    with pytest.raises(TextError, match="takes a list of lines"):
        parse(untrained, "a cat")
    with pytest.raises(TextError, match=r"line 8 contains a NUL"):
        parse(untrained, ["a", "b\0"], first_line=7)
    with pytest.raises(DataError, match="no gold tree"):
        evaluate_trees(untrained, [])
    with pytest.raises(DataError, match="tree 2 is over 'a', and its gold tree over 'b'"):
        score_trees([tree_of("(S (X a))")] * 2, [tree_of("(S (X a))"), tree_of("(S (X b))")])


# -- a small grammar, and the command line -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """The bundle of a parser trained on 600 sentences, and a treebank that it has not seen."""
    folder = tmp_path_factory.mktemp("grammar")
    known = treebank(600)
    seen = {text_of(tree) for tree in known}
    fresh = [tree for tree in treebank(200, seed=9) if text_of(tree) not in seen][:40]
    write_lines(folder / "train.mrg", map(str, known))
    write_lines(folder / "gold.mrg", map(str, fresh))
    command = ["trees", str(folder / "train.mrg"), "--words", str(folder / "words"), "--linear", str(folder / "linear")]
    assert main(command) == 0
    recipe = recipes.validate(
        {
            "data": {
                "source": str(folder / "words"),
                "target": str(folder / "linear"),
                "valid_lines": 20,
                "batch_tokens": 512,
                "targets": "trees",
            },
            "text": {"kind": "words", "target_kind": "words", "joint": False},
            "model": {
                "width": 32,
                "heads": 4,
                "feedforward": 64,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "dropout": 0.0,
                "norm": "pre",
                "share": "target",
            },
            "train": {
                "max_updates": 450,
                "schedule": "linear",
                "learning_rate": 6e-3,
                "warmup": 30,
                "average": "none",
                "validate_every": 450,
                "save_every": 450,
                "precision": "float32",
                "device": "cpu",
            },
            "search": {"beam": 2, "alpha": 0.3, "extra_length": 100},
        }
    )
    return regard.fit(recipe, folder / "run"), folder / "gold.mrg"


# TensorBoard's writer, where it is installed, comes with a library that warns of its own future.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_grammar_is_learnt(learnt):
    bundle, gold = learnt
    found = evaluate_trees(bundle, list(iter_trees(gold)), resamples=0)
    assert found.scores["f1"].value > 90
    assert found.short["f1"].value == found.scores["f1"].value
    dev = json.loads((bundle.parent / "results.json").read_text())["scores"][0]
    assert (dev["set"], dev["lines"]) == ("dev", 20)
    assert dev["scores"]["f1"]["value"] > 90, "its dev lines are parsed, and scored as trees"
    assert len(list(iter_trees(bundle.parent / "hypotheses" / "dev.txt"))) == 20


def test_parse_on_the_command_line(learnt, tmp_path, capsys):
    bundle, gold = learnt
    lines = tmp_path / "in.txt"
    lines.write_text("the man sees a dog .\n\na cat likes the hat .\n")
    assert main(["parse", str(bundle), str(lines)]) == 0
    first, empty, last = capsys.readouterr().out.splitlines()
    assert empty == ""
    assert text_of(tree_of(first)) == "the man sees a dog ."
    assert main(["parse", str(bundle), str(lines), "--trees", "--output", str(tmp_path / "out.mrg")]) == 0
    assert [str(tree) for tree in iter_trees(tmp_path / "out.mrg")] == [first, last]
    assert len((tmp_path / "out.mrg").read_text().splitlines()) > 5
    command = ["parse", str(bundle), "--evaluate", str(gold), "--resamples", "100"]
    assert main([*command, "--json", "--output", str(tmp_path / "found.mrg")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["lines"] == len(list(iter_trees(tmp_path / "found.mrg"))) == 40
    assert shown["scores"]["f1"]["value"] > 90
    assert main(command) == 0
    assert "bracket F1" in capsys.readouterr().out


def test_bad_use_of_the_command(learnt, tmp_path, capsys):
    bundle, gold = learnt
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\nwith a \0 NUL\n")
    for arguments, message in (
        ([str(bundle), str(bad)], "bad.txt: line 2 contains a NUL"),
        ([str(bundle), str(bad), "--evaluate", str(gold)], "leave one of the two out"),
        ([str(bundle), str(gold), "--json"], "--json shows scores"),
        ([str(bundle), "--evaluate", str(bad)], "'fine' is in no tree"),
        ([str(bundle), str(tmp_path / "none")], "there is no such file"),
        ([str(bundle), str(gold), "--beam", "0"], "beam = 0"),
    ):
        assert main(["parse", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert isinstance(next(iter_trees(gold)), Tree)


def test_brackets_are_asked_for_of_trees_alone_and_refused_before_training(learnt, tmp_path, capsys):
    bundle, _ = learnt
    assert use_of(bundles.load(bundle).recipe, "runs/p") == "regard parse runs/p"
    words = [str(bundle.parent.parent / "words")] * 2
    command = ["train", *words, "--out", str(tmp_path / "run"), "--set", "train.max_updates=1"]
    assert main([*command, "--set", 'data.metrics=["brackets", "chrf"]']) == 2
    assert "targets = 'trees'" in capsys.readouterr().err
    assert main([*command, "--set", "data.targets=trees"]) == 2
    assert "writes no trees" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


# -- a model that is told at which word it stands ----------------------------------------------------------------------


_SIDES = {"data": {"source": "a", "target": "b"}, "text": {"target_kind": "words", "joint": False}}
_PARSER = {"family": "parser", "width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1}


@pytest.mark.parametrize("packed", [False, True])
def test_before_each_symbol_a_parser_is_given_the_word_that_comes_next(packed):
    trees = treebank(30)
    source = Tokenizer.train([text_of(tree) for tree in trees], size=290, shrink=True)
    target = Tokenizer.train([linearise(tree) for tree in trees], size=100, kind="words")
    model = new_model(
        recipes.validate({**_SIDES, "model": {**_PARSER, "share": "target"}}).model, source, target
    ).eval()
    rows, written = [], []
    for tree in trees[:3]:
        ids = source.encode(text_of(tree))
        assert len(ids) > len(tree.words()), "some words are of several tokens"
        rows.append([*ids, toy.END])
        written.append([toy.BEGIN, *target.encode(linearise(tree))])
    lay = toy.packed if packed else toy.padded
    read, layout = lay(rows)
    given = []
    model.word.register_forward_hook(lambda module, inputs, output: given.append(inputs[0]))
    memory = model.encode(read, layout)
    tokens, places = lay(written)
    model.decode(tokens, model.start(memory, layout), places)

    seen, added = layout.pad(memory[0]), places.pad(given[0])
    for row, (ids, symbols, tree) in enumerate(zip(rows, written, trees, strict=False)):
        begins = [i for i, token in enumerate(source.tokens(ids)) if token.startswith("\u2581")]
        assert len(begins) == len(tree.words())
        done = 0
        for place, symbol in enumerate(target.tokens(symbols)):
            done += symbol == "\u2581XX"
            expected = seen[row, begins[done]] if done < len(begins) else torch.zeros(16)
            torch.testing.assert_close(added[row, place], expected)
