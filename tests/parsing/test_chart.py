"""The chart parser: the best of all trees is found, what is learnt is what is right, and a small grammar is learnt."""

from __future__ import annotations

import gzip
import itertools
import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_parse import text_of, treebank
from trees import tree_of

import regard
from regard import bundle as bundles
from regard.apps.cli import main
from regard.errors import ModelError, TextError
from regard.models.blocks import layout_of, new_model
from regard.parsing.chart import ChartParserConfig, Spans, best_tree, parsed, read_symbols
from regard.parsing.parse import evaluate_trees, open_parser, parse
from regard.parsing.trees import Tree, delinearise, linearise, words_of
from regard.tasks.lines import pad
from regard.text import END, Tokenizer, write_lines
from regard.train import OBJECTIVES, Inputs, Outputs
from regard.train.objectives import LossSettings

# -- chains ------------------------------------------------------------------------------------------------------------

CHAINED = "(S (VP (VB Go) (ADVP (RB home))) (. !))"


@pytest.mark.parametrize("text", ["(S (VP (VB Go)))", "(TOP (S (NP (NP (DT the) (NN cat)))))", CHAINED])
def test_chains_are_one_symbol_and_come_apart_again(text):
    tree = tree_of(text)
    line = linearise(tree, tags=True, chains=True)
    assert delinearise(line, [word.text for word in tree.words()]) == tree
    assert len(line.split()) <= len(linearise(tree, tags=True).split())


def test_a_chain_is_named_from_the_outside_in():
    assert linearise(Tree("S", (tree_of("(VP (VB Go))"),)), chains=True) == "(S+VP XX )S+VP"


def test_a_label_that_looks_like_a_chain_is_refused():
    with pytest.raises(TextError, match=r"'NP\+X' holds a '\+'"):
        linearise(tree_of("(S (NP+X (NN cat)) (VP (VB goes)))"), chains=True)


# -- the best tree -----------------------------------------------------------------------------------------------------


def every_bracketing(start, end):
    """All sets of spans that are binary trees over these words."""
    if end - start == 1:
        return [frozenset({(start, end)})]
    found = []
    for middle in range(start + 1, end):
        for left, right in itertools.product(every_bracketing(start, middle), every_bracketing(middle, end)):
            found.append(left | right | {(start, end)})
    return found


@pytest.mark.parametrize("words", range(1, 8))
def test_the_best_tree_is_the_best_of_all(words):
    draw = np.random.default_rng(words)
    for _ in range(20):
        scores = np.triu(draw.normal(size=(words + 1, words + 1)), 1)
        whole = scores[0, words]
        best = max(
            sum(max(0.0, scores[span]) for span in spans if span != (0, words)) for spans in every_bracketing(0, words)
        )
        found = best_tree(scores, np.ones(scores.shape, np.int64))
        assert sum(scores[start, end] for start, end, _ in found) == pytest.approx(best + whole)
        assert found[0][:2] == (0, words)  # the outer ones first
        kept = [(start, end) for start, end, _ in found]
        for (a, b), (c, d) in itertools.combinations(kept, 2):
            assert b <= c or d <= a or (a <= c and d <= b) or (c <= a and b <= d), "brackets cross"


# -- a model -----------------------------------------------------------------------------------------------------------

SIZES = {"width": 16, "heads": 2, "layers": 2, "feedforward": 32, "dropout": 0.0}


@cache
def vocabularies():
    known = treebank(60)
    source = Tokenizer.train([text_of(tree) for tree in known], size=300, shrink=True)
    lines = [linearise(tree, tags=True, chains=True) for tree in known]
    return source, Tokenizer.train(lines, size=100, kind="words")


@cache
def model():
    from regard.parsing import family  # not before: tests of all families are of those that are there from the start

    family.add()
    torch.manual_seed(1)
    return new_model(ChartParserConfig(**SIZES), *vocabularies()).double().eval()


def batch_of(trees, kind):
    """A batch as training has it."""
    source, target = vocabularies()
    read = [[*source.encode(text_of(tree)), END] for tree in trees]
    written = [[*target.encode(linearise(tree, tags=True, chains=True)), END] for tree in trees]
    lengths = [torch.tensor([len(row) for row in rows]) for rows in (read, written)]
    widths = tuple(int(each.max()) for each in lengths)
    if kind == "packed":
        ids, targets = (torch.tensor([i for row in rows for i in row] + [0] * 3) for rows in (read, written))
    else:
        ids = torch.tensor([row + [0] * (widths[0] - len(row)) for row in read])
        targets = torch.tensor([row + [-1] * (widths[1] - len(row)) for row in written])
    return Inputs(kind, ids, lengths[0], targets.clamp(min=0), targets, lengths[1], widths)


def loss_of(trees, kind, smoothing=0.0):
    x, aim = batch_of(trees, kind), OBJECTIVES["chart"]
    with torch.no_grad():
        hidden = aim.hidden(model(), x, None).flatten(0, -2)
        return float(aim.loss(model(), Outputs(x, hidden, x.targets.flatten(), "encoder"), LossSettings(smoothing, 64)))


def plain_loss(tree, smoothing):
    """The same of one sentence, span by span."""
    source, target = vocabularies()
    ids, layout = pad([[*source.encode(text_of(tree)), END]], "cpu")
    with torch.no_grad():
        hidden = model().encode(ids, layout)[0]
    pieces = source.tokens(ids[0, :-1].tolist())
    firsts = [i for i, piece in enumerate(pieces) if piece.startswith("\u2581")]
    half, words = hidden.shape[1] // 2, len(firsts)
    borders = [*firsts, len(pieces)]
    before = [torch.zeros(half).double() if at == 0 else hidden[at - 1, :half] for at in borders]
    after = [hidden[at, half:] for at in borders]
    labels = {token: number for number, token in enumerate(model().opening.tolist())}
    there = {}
    for label, start, end in chained(tree):
        there[start, end] = labels[target.encode(f"({label}")[0]]

    def cross_entropy(scores, right):
        p = scores.log_softmax(-1)
        return float(-(1 - smoothing) * p[right] - smoothing * p.mean())

    def through(features, norm, tokens):
        weight, bias = model().output.weight[tokens], model().output.bias[tokens]
        return norm(features).relu() @ weight.T + bias

    total = 0.0
    with torch.no_grad():
        for start in range(words):
            for end in range(start + 1, words + 1):
                parts = torch.cat((before[end] - before[start], after[start] - after[end]))
                features = model().span.weight @ parts
                scores = through(features, model().span_norm, model().opening[1:])
                total += cross_entropy(torch.cat((torch.zeros(1), scores)), there.get((start, end), 0))
        for at, word in enumerate(tree.words()):
            features = model().word(torch.cat((before[at + 1], after[at])))
            scores = through(features, model().word_norm, model().tags)
            total += cross_entropy(scores, model().tags.tolist().index(target.encode(word.tag)[0]))
    return total


def chained(tree, start=0):
    """Brackets of a tree with chains as one label."""
    labels = [tree.label]
    while len(tree.children) == 1 and isinstance(tree.children[0], Tree):
        tree = tree.children[0]
        labels.append(tree.label)
    yield "+".join(labels), start, start + len(tree.words())
    for child in tree.children:
        if isinstance(child, Tree):
            yield from chained(child, start)
            start += len(child.words())
        else:
            start += 1


@pytest.mark.parametrize("kind", ["padded", "packed"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_sum_over_spans_and_words(kind, smoothing):
    trees = treebank(5, seed=2)
    expected = sum(plain_loss(tree, smoothing) for tree in trees)
    assert loss_of(trees, kind, smoothing) == pytest.approx(expected, rel=1e-9)


def test_gradients_reach_every_parameter():
    aim, x = OBJECTIVES["chart"], batch_of(treebank(4), "packed")
    hidden = aim.hidden(model(), x, None)
    aim.loss(model(), Outputs(x, hidden, x.targets, "encoder"), LossSettings(0.0, 64)).backward()
    named = dict(model().named_parameters())
    assert [name for name, p in named.items() if p.grad is None or not p.grad.any()] == []
    model().zero_grad(set_to_none=True)


def test_symbols_are_read_back():
    _, target = vocabularies()
    trees = treebank(10, seed=3)
    rows = [target.encode(linearise(tree, tags=True, chains=True)) for tree in trees]
    gold = read_symbols(model(), rows)
    for tree, tags, brackets in zip(trees, gold.tags, gold.brackets, strict=True):
        names = [target.decode([int(model().opening[label])])[1:] for label, _, _ in brackets]
        assert sorted(zip(names, *list(zip(*brackets, strict=True))[1:], strict=True)) == sorted(chained(tree))
        assert [target.decode([int(model().tags[tag])]) for tag in tags] == [word.tag for word in tree.words()]


def test_a_tree_does_not_depend_on_its_neighbours():
    source, _ = vocabularies()
    rows = [source.encode(text_of(tree)) for tree in treebank(12, seed=4)]
    together = parsed(model(), rows)
    for row, (symbols, score) in zip(rows, together, strict=True):
        [(alone, its)] = parsed(model(), [row])
        assert alone == symbols
        assert its == pytest.approx(score, rel=1e-9)


def test_spans_are_all_of_each_sentence():
    spans = Spans.of([2, 0, 3], torch.device("cpu"))
    assert list(zip(*(x.tolist() for x in spans), strict=True)) == [
        *[(0, 0, 1), (0, 0, 2), (0, 1, 2)],
        *[(2, 0, 1), (2, 0, 2), (2, 0, 3), (2, 1, 2), (2, 1, 3), (2, 2, 3)],
    ]


def test_padded_equals_packed():
    trees = treebank(6, seed=5)
    x, y = batch_of(trees, "padded"), batch_of(trees, "packed")
    rows, pack = (layout_of(b.kind, b.source_lengths, b.widths[0], len(b.source)) for b in (x, y))
    padded, packed = model().encode(x.source, rows), pack.pad(model().encode(y.source, pack))
    for row, length in enumerate(x.source_lengths.tolist()):
        torch.testing.assert_close(padded[row, :length], packed[row, :length])


# -- from a recipe to trees --------------------------------------------------------------------------------------------

RECIPE = """
name = "toy-chart"

[data]
source = "train.words"
target = "train.chains"
valid_source = "valid.words"
valid_target = "valid.chains"
batch_tokens = 1024

[data.test.test]
source = "valid.words"
reference = "valid.chains"

[text]
target_kind = "words"
joint = false
size = 300
shrink = true

[model]
family = "chart-parser"
width = 32
layers = 2
heads = 2
dropout = 0.0

[train]
optimizer = "muon"
learning_rate = 0.01
schedule = "inverse-sqrt"
warmup = 20
max_updates = 150
validate_every = 75
validate_with = "f1"
keep = "best"
average = "none"
label_smoothing = 0.0
save_every = 75
precision = "float32"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A parser of the small grammar, trained by the command line."""
    place = tmp_path_factory.mktemp("chart")
    write_lines(place / "train.mrg", map(str, treebank(400)))
    write_lines(place / "valid.mrg", map(str, treebank(40, seed=9)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for part in ("train", "valid"):
            made = ["--words", f"{part}.words", "--linear", f"{part}.chains", "--tags", "--chains"]
            assert main(["trees", f"{part}.mrg", *made]) == 0
        (place / "toy.toml").write_text(RECIPE)
        assert main(["train", "toy.toml", "--out", "run"]) == 0
    return SimpleNamespace(place=place, bundle=place / "run" / "bundle")


def test_a_small_grammar_is_learnt(run):
    result = evaluate_trees(run.bundle, treebank(40, seed=10))
    assert result.scores["f1"].value > 90  # where a phrase with a preposition belongs is chance in this grammar
    kept = json.loads((run.place / "run" / "results.json").read_text())
    assert [each["set"] for each in kept["scores"]] == ["dev", "test"]
    assert kept["scores"][0]["scores"]["f1"]["value"] > 90
    assert len((run.place / "run" / "hypotheses" / "dev.txt").read_text().splitlines()) == 40


def test_trees_are_over_the_lines_words(run):
    lines = ["the cat sees a dog .", "", "a (strange) word zyx !", "cat", "the " * 70 + "."]
    found = parse(run.bundle, lines)
    assert found[1].tree is None
    for line, each in zip(lines, found, strict=True):
        assert [word.text for word in each.tree.words()] == words_of(line) if line else each.tree is None
    assert {word.tag for word in found[0].tree.words()} <= {"DT", "NN", "VBZ", "IN", "."}


def test_the_command_line_and_python_agree(run, capsys, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sees a dog .\n\na man likes the hill .\n")
    capsys.readouterr()
    assert main(["parse", str(run.bundle), str(lines)]) == 0
    written = capsys.readouterr().out.split("\n")
    expected = regard.parse(str(run.bundle), lines.read_text().splitlines())
    assert written == [*map(str, expected), ""]


def test_a_treebank_is_scored(run, capsys, tmp_path):
    with gzip.open(tmp_path / "gold.mrg.gz", "wt") as file:
        file.writelines(f"{tree}\n" for tree in treebank(20, seed=11))
    capsys.readouterr()
    assert main(["parse", str(run.bundle), "--evaluate", str(tmp_path / "gold.mrg.gz"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lines"] == 20
    assert told["decoding"] == {"chart": "cky", "device": "cpu"}
    assert told["scores"]["f1"]["value"] > 80


def test_its_bundle_answers_as_it_was_made(run, capsys):
    assert main(["inspect", str(run.bundle), "--verify"]) == 0
    assert len(bundles.load(run.bundle).golden) == 8


@pytest.mark.parametrize("flag", [["--beam", "4"], ["--alpha", "1.0"]])
def test_a_chart_has_no_beam(run, flag, capsys, monkeypatch, tmp_path):
    (tmp_path / "lines").write_text("the cat .\n")
    assert main(["parse", str(run.bundle), str(tmp_path / "lines"), *flag]) == 2
    assert f"leave {flag[0][2:]} out" in capsys.readouterr().err


def test_what_cannot_be_parsed_is_named(run):
    with pytest.raises(TextError, match=r"line 7 has 3,001 tokens, and at most 1,024 are parsed"):
        parse(run.bundle, ["the cat .", "cat " * 3000 + "."], first_line=6)
    with pytest.raises(TextError, match="one string"):
        parse(run.bundle, "the cat .")


def test_other_commands_know_it(run, capsys, monkeypatch):
    assert main(["translate", str(run.bundle)]) == 2
    assert "this bundle parses; use `regard parse`" in capsys.readouterr().err
    assert main(["look", str(run.bundle), "the cat sees a dog ."]) == 0
    monkeypatch.chdir(run.place)
    assert main(["plan", "toy.toml"]) == 0


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.regularizers.r-drop=1", "train.regularizers.r-drop is for targets of tokens, not of spans"),
        (
            "train.regularizers.word-dropout=0.1",
            "train.regularizers.word-dropout is for targets of tokens, not of spans",
        ),
        ('text.order="right-to-left"', "leave text.order out"),
        ('train.validate_with="bleu"', "choose loss or f1"),
    ],
)
def test_settings_that_are_not_for_spans_are_refused(run, setting, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(run.place)
    assert main(["train", "toy.toml", "--out", str(tmp_path / "r"), "--set", setting]) == 2
    assert said in capsys.readouterr().err


def test_chains_that_are_not_one_symbol_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = tree_of("(S (VP (VB Go) (NP (DT the) (NN way))))")
    for part in ("train", "valid"):
        write_lines(f"{part}.words", [text_of(tree)] * 60)
        write_lines(f"{part}.chains", [linearise(tree, tags=True)] * 60)
    (tmp_path / "plain.toml").write_text(RECIPE)
    assert main(["train", "plain.toml", "--out", "r"]) == 2
    assert "with --chains" in capsys.readouterr().err


def test_text_without_brackets_is_refused_before_training(run, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(run.place)
    wrong = RECIPE.replace(".chains", ".words")
    (tmp_path / "wrong.toml").write_text(wrong)
    assert main(["train", str(tmp_path / "wrong.toml"), "--out", str(tmp_path / "r")]) == 2
    assert "no brackets such as (NP and )NP" in capsys.readouterr().err
    assert not (tmp_path / "r" / "checkpoints").exists()


def test_a_run_goes_on_bit_for_bit(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.place)
    assert main(["train", "toy.toml", "--out", str(tmp_path / "r"), "--set", "train.max_updates=75"]) == 0
    recipe = tmp_path / "r" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("max_updates = 75", "max_updates = 150"))
    assert main(["train", str(recipe), "--out", str(tmp_path / "r"), "--resume"]) == 0
    texts = [(place / "hypotheses" / "dev.txt").read_text() for place in (run.place / "run", tmp_path / "r")]
    assert texts[0] == texts[1]


def test_a_treebank_without_tags_is_learnt_too(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.place)
    trees = treebank(100, seed=12)
    write_lines(tmp_path / "w", map(text_of, trees))
    write_lines(tmp_path / "t", (linearise(tree, chains=True) for tree in trees))
    recipe = RECIPE.replace("train.words", str(tmp_path / "w")).replace("train.chains", str(tmp_path / "t"))
    recipe = recipe.replace("valid.words", str(tmp_path / "w")).replace("valid.chains", str(tmp_path / "t"))
    (tmp_path / "plain.toml").write_text(recipe.replace("max_updates = 150", "max_updates = 10"))
    assert main(["train", str(tmp_path / "plain.toml"), "--out", str(tmp_path / "out")]) == 0
    [found] = parse(tmp_path / "out" / "bundle", ["the cat sees a dog ."])
    assert {word.tag for word in found.tree.words()} == {"XX"}


def test_a_bundle_that_is_open_stays_open(run):
    opened = open_parser(run.bundle)
    assert open_parser(opened) is opened
    assert parse(opened, ["the cat ."]) == parse(run.bundle, ["the cat ."])
    with pytest.raises(ModelError, match="without a search"):
        parse(opened, ["the cat ."], beam=2)
