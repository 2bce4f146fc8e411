"""The lectures' figures of trained models: what they say is what the model does, on small models that need no data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle

from regard import recipe as recipes
from regard.apps.cli import main
from regard.errors import DataError
from regard.explore.look import look
from regard.language.open import Pipeline
from regard.models import FAMILIES
from regard.studies.lectures.trained import (
    PAIRS,
    TRAINED,
    Shown,
    alignment,
    decoding_steps,
    looking_back,
    looks,
    memorial,
    pronoun,
    question,
    trained,
)
from regard.tasks.forced import score_lines
from regard.tasks.translate import load
from regard.text import PAD, Tokenizer

ROOT = Path(__file__).resolve().parents[2]
TINY = {"heads": 2, "feedforward": 32, "layers": 1}
SIZES = {"gpt": TINY, "bert": TINY, "lstmn": {"layers": 1}}
LINE = ENGLISH[2]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("lectures") / "bundle"
    small_bundle(path)
    return path


def one_sided(family: str) -> Pipeline:
    """A model of one side with random weights."""
    recipe = recipes.validate(
        {"name": "small", "data": {"text": "x"}, "model": {"family": family, "width": 16, **SIZES[family]}}
    )
    tokens = Tokenizer.train(ENGLISH, size=330)
    torch.manual_seed(0)
    return Pipeline(FAMILIES[family].build(recipe.model, len(tokens), len(tokens), PAD).eval(), recipe, tokens, tokens)


def test_the_steps_are_those_of_greedy_search(bundle):
    shown = decoding_steps(bundle, [LINE])
    best = load(bundle).translate([LINE], beam=1)[0]
    assert shown.numbers["translation"] == best.text
    steps = shown.lines[1:]
    assert len(steps) == len(best.target_tokens)
    for step, token in zip(steps, best.target_tokens, strict=True):
        top = step[-3:]
        assert (top[0].text, top[0].now) == (token, True)
        assert top[0].share >= top[1].share >= top[2].share > 0
    log_probability = sum(torch.tensor(step[-3].share).log().item() for step in steps)
    assert log_probability == pytest.approx(best.log_probability, 1e-4)
    assert shown.numbers["log-probability"] == pytest.approx(best.log_probability, 1e-4)
    assert [step[0].text for step in steps[:2]] == ["<s>", best.target_tokens[0].replace("\u2581", "")]
    # A step looks at the whole source, and no further.
    source = len(best.source_tokens)
    assert [sum(word.share for word in step[1 : 1 + source]) for step in steps] == pytest.approx(
        [1.0] * len(steps), 1e-3
    )


def test_what_a_model_is_made_to_write_is_shown_under_its_own(bundle):
    shown = decoding_steps(bundle, [LINE, GERMAN[2]])
    own = len(decoding_steps(bundle, [LINE]).lines)
    forced = shown.lines[own + 2 :]
    tokens = load(bundle).target.tokens(load(bundle).target.encode(GERMAN[2]))
    assert len(forced) == len(tokens) + 1
    assert forced[-1][0].text.replace(" ", "") == "".join(tokens).replace("\u2581", "")
    found = score_lines(load(bundle), [LINE], [GERMAN[2]])[0]
    assert shown.numbers[f"made to write {GERMAN[2]!r}, log-probability"] == pytest.approx(found.log_probability, 1e-4)


def test_a_word_looks_back_and_nowhere_else():
    opened = one_sided("lstmn")
    shown = looking_back(opened, [ENGLISH[4]])
    weights = look(opened, ENGLISH[4]).words().part("decoder").matrix(1)
    for place, line in enumerate(shown.lines, start=1):
        now = [at for at, word in enumerate(line) if word.now]
        assert now == [place]
        assert not any(word.text or word.share for word in line[place + 1 :])
        assert [word.share for word in line[:place]] == pytest.approx(weights[place, :place].tolist())
    assert 0 < shown.numbers["mean weight of the word just before, from the second on"] < 1
    odd = looking_back(opened, [f"{ENGLISH[4]} \u5148"])
    assert odd.numbers["words that it does not know"] == "\u5148"


def test_the_head_of_it_is_chosen_on_other_sentences(bundle):
    shown = pronoun(bundle)
    layer, head = (int(part) - 1 for part in shown.numbers["chosen on ten other pairs: layer, head"].split(", "))
    for line, end in zip(shown.lines, ("tired", "wide"), strict=True):
        sentence = f"The animal didn't cross the street because it was too {end}."
        part = look(bundle, sentence).words().part("encoder")
        assert [word.text for word in line] == list(part.columns.names)
        row = part.weights[layer, head, part.rows.names.index("it")]
        assert [word.share for word in line] == pytest.approx(row.tolist())
        on = shown.numbers[f"{end}: of it on animal, on street"]
        assert on == pytest.approx([row[part.columns.names.index(noun)] for noun in ("animal", "street")])
    right = shown.numbers["pairs of ten that it moves the right way"], shown.numbers["the same of the best head"]
    assert 0 <= right[0] <= right[1] <= len(PAIRS)
    # The best of 4 coins thrown 10 times each, by counting: more than 5, less than 10.
    drawn = torch.randint(0, 2, (4000, 4, 10), generator=torch.Generator().manual_seed(0)).sum(-1).amax(-1)
    expected = shown.numbers["expected of the best of as many heads that toss a coin"]
    assert expected == pytest.approx(float(drawn.float().mean()), abs=0.1)


def test_a_pair_says_by_its_last_word_what_it_is():
    for sentence, one, other in PAIRS:
        assert len(re.findall(r"\{(\w+)\}", sentence)) == 2
        assert one != other
        assert sentence.endswith("because it was")


def test_a_question_weighs_the_whole_passage_once(bundle):
    shown = question(bundle)
    shares = [value for name, value in shown.numbers.items() if name.startswith("sentence")]
    assert [sum(each) for each in zip(*shares, strict=True)] == pytest.approx([1.0, 1.0])
    assert max(word.share for line in shown.lines[1:] for word in line) == 1.0
    assert all(word.now for word in shown.lines[0])
    # A word asked for is found where it stands, whatever the weights are: embeddings of equal words are equal.
    same = question(bundle, ["girl", "A girl", "Two men"])
    assert same.numbers["1 girl"] == "girl"
    with pytest.raises(DataError, match="passage"):
        question(bundle, ["girl"])


def test_the_memorial_is_the_recipes_text_and_is_seen_whole(bundle):
    lines = (ROOT / "recipes" / "classical-modern-zh" / "chu-shi-biao.txt").read_text("utf-8").splitlines()
    shown = memorial(bundle)
    assert [name for name in shown.numbers if name in lines] == lines
    shorter = memorial(bundle, [LINE])
    assert shorter.numbers[LINE] == load(bundle).translate([LINE])[0].text
    head, *rows = shorter.lines
    assert [sum(word.share for word in row[1:]) for row in rows] == pytest.approx([1.0] * len(rows), 1e-3)
    assert len(head) == len(rows[0])


def test_an_alignment_is_of_the_line_that_is_written(bundle):
    own, made = alignment(bundle, [LINE]), alignment(bundle, [LINE, "Zwei"])
    assert own.numbers["translation"] == made.numbers["translation"] == load(bundle).translate([LINE])[0].text
    cross = look(bundle, LINE, target="Zwei").part("cross")
    assert [row[0].text for row in made.lines[1:]] == list(cross.rows.names)
    for shown in (own, made):
        assert [sum(word.share for word in row[1:]) for row in shown.lines[1:]] == pytest.approx(
            [1.0] * (len(shown.lines) - 1), 1e-3
        )


@pytest.mark.parametrize("family", SIZES)
def test_models_of_one_side_look_at_their_own_line(family):
    opened = one_sided(family)
    found = looks(opened, [ENGLISH[4]])
    assert len(found.numbers) == len(opened.source.encode(ENGLISH[4])) + 1
    if family != "bert":  # what comes first can look at nothing else, or at nothing at all
        assert next(iter(found.numbers.values())).startswith("<s>")


# -- the command and the pictures --------------------------------------------------------------------------------------


def test_the_word_shows_and_draws_with_a_bundle(bundle, capsys, tmp_path):
    given = ["--bundle", str(bundle), "--line", LINE, "--out", str(tmp_path)]
    assert main(["lecture", *given]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"looks: {LINE}")
    assert "translation: " in said
    assert main(["lecture", "decoding-steps", "memorial", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decoding-steps"]["model"] == "small"
    for name in ("looks", "decoding-steps", "memorial"):
        ElementTree.parse(tmp_path / f"{name}.svg")
    assert main(["lecture", "decoding-steps", *given, "--kind", "png"]) in (0, 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bundle", "BUNDLE"], "--line"),
        (["--line", "x"], "--bundle"),
        (["by-hand", "--bundle", "BUNDLE"], "decoding-steps"),
        (["memorial"], "--bundle"),
        (["looking-back", "--bundle", "BUNDLE"], "translate"),
        (["pronoun", "--bundle", "BUNDLE", "--line", "It is."], "animal"),
    ],
)
def test_what_cannot_be_shown_is_said(bundle, capsys, words, says):
    assert main(["lecture", *(str(bundle) if word == "BUNDLE" else word for word in words)]) == 2
    assert says in capsys.readouterr().err


def test_every_figure_has_its_own_line(bundle):
    assert set(TRAINED) == {"decoding-steps", "looking-back", "pronoun", "question", "memorial", "alignment"}
    assert isinstance(trained("question", bundle), Shown)
    with pytest.raises(DataError, match="looking-back"):
        trained("look-back", bundle)


def test_a_lecture_of_several_languages_is_told_which(capsys, tmp_path):
    """It advised --to, which it did not have."""
    several = small_bundle(tmp_path / "several", tags=("de", "fr")).path
    asked = ["lecture", "pronoun", "--bundle", str(several)]
    assert main(asked) == 2
    assert "--to de" in capsys.readouterr().err
    assert main([*asked, "--to", "de"]) == 0
    assert "of it on animal" in capsys.readouterr().out
    assert main(["lecture", "--bundle", str(several), "--line", LINE, "--to", "fr"]) == 0
    assert main(["lecture", "by-hand", "--to", "fr"]) == 2
