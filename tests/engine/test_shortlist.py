"""Shortlists: a list of everything changes nothing, a sentence is written with its own list alone, rules are kept."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import toy
from bundles import ENGLISH, GERMAN, small_bundle
from typer.testing import CliRunner

from regard import bundle as bundles
from regard.apps.cli import app
from regard.engine import decoding
from regard.engine.packing import compiled
from regard.errors import DataError, ModelError, TextError
from regard.models.transformer import TransformerConfig
from regard.search.table import Constraints, SearchConfig
from regard.tasks.decode import decode
from regard.tasks.engine import Backend
from regard.tasks.translate import load
from regard.text import END, PAD, UNK, Shortlist, Tokenizer
from regard.tuning.lists import learn
from regard.tuning.quantize import quantize
from regard.tuning.shortlist import shortlist

SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [4, 5], [6, 6, 6, 6, 6, 6, 6, 6, 6], [18, 4]]
SMALL = TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=2, decoder_layers=2, dropout=0.0)
VOCABULARY = 90  # more than a panel, and not a whole number of them
EVERYTHING = Shortlist(np.arange(VOCABULARY, dtype=np.int32), np.zeros(VOCABULARY + 1, np.int64), np.empty(0, np.int32))
SEARCHES = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4},
    "shortest": {"beam": 3, "min_length": 4},
    "samples": {"samples": 3, "beam": 1},
    "groups": {"beam": 4, "groups": 2},
    "coverage": {"beam": 2, "coverage": 0.2},
}

needs_compiler = pytest.mark.skipif(decoding.refusal() is not None, reason=str(decoding.refusal()))


def some() -> Shortlist:
    """Seven tokens of each source token, and a few that may always come."""
    draw = np.random.default_rng(1)
    tokens = [np.sort(draw.choice(np.arange(4, VOCABULARY), 7, replace=False)) for _ in range(VOCABULARY)]
    starts = np.arange(VOCABULARY + 1, dtype=np.int64) * 7
    return Shortlist(np.array([UNK, END, 20, 60, 88], np.int32), starts, np.concatenate(tokens).astype(np.int32))


def search_of(name: str, **changes: int) -> SearchConfig:
    return SearchConfig(**{**SEARCHES[name], "extra_length": 6, **changes})


@pytest.mark.parametrize("name", SEARCHES)
def test_a_list_of_everything_changes_nothing(name):
    model = toy.make(SMALL, vocabulary=VOCABULARY)
    search = search_of(name)
    for ours, other in zip(
        decode(model, SOURCES, search, shortlist=EVERYTHING), decode(model, SOURCES, search), strict=True
    ):
        assert [h.ids for h in ours] == [h.ids for h in other]
        assert [h.score for h in ours] == pytest.approx([h.score for h in other], abs=1e-12)


@needs_compiler
@pytest.mark.parametrize("precision", decoding.PRECISIONS)
def test_a_compiled_list_of_everything_changes_no_bit(precision):
    decoder = compiled(toy.make(SMALL, vocabulary=VOCABULARY), SMALL, precision)
    for name in ("greedy", "beam", "shortest"):
        search = search_of(name)
        whole = decode(Backend(decoders=[decoder]), SOURCES, search)
        assert decode(Backend(decoders=[decoder]), SOURCES, search, shortlist=EVERYTHING) == whole


@pytest.mark.parametrize("name", SEARCHES)
def test_a_sentence_is_written_with_its_own_list_alone(name):
    model, lists = toy.make(SMALL, vocabulary=VOCABULARY), some()
    found = decode(model, SOURCES, search_of(name), shortlist=lists)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        for h in hypotheses:
            assert set(h.ids) <= set(lists.of(source).tolist())
    alone = [decode(model, [s], search_of(name), lines=[i], shortlist=lists)[0] for i, s in enumerate(SOURCES, 1)]
    for ours, other in zip(found, alone, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in other]
        assert [h.score for h in ours] == pytest.approx([h.score for h in other], abs=1e-12)


def test_log_probabilities_are_those_among_the_list():
    model, lists = toy.make(SMALL, vocabulary=VOCABULARY, dtype=torch.float64), some()
    [[best]] = decode(model, SOURCES[:1], search_of("beam"), shortlist=lists)
    ids = [toy.BEGIN, *best.ids]
    source, reading = toy.padded([[*SOURCES[0], END]])
    with torch.no_grad():
        hidden, _ = model.decode(torch.tensor([ids]), model.start(model.encode(source, reading), reading))
        own = torch.from_numpy(lists.of(SOURCES[0]).astype(np.int64))
        among = torch.full((len(ids), VOCABULARY), float("-inf"), dtype=torch.float64)
        among[:, own] = model.project(hidden)[0][:, own].log_softmax(-1)
    wanted = [*best.ids, *[END][: best.ended]]
    assert best.log_probability == pytest.approx(sum(float(among[t, i]) for t, i in enumerate(wanted)), abs=1e-10)


@needs_compiler
@pytest.mark.parametrize("name", SEARCHES)
def test_the_compiled_decoder_finds_what_the_reference_finds(name):
    model, lists = toy.make(SMALL, vocabulary=VOCABULARY), some()
    decoder = compiled(model, SMALL, "float32")
    ours = decode(Backend(decoders=[decoder]), SOURCES, search_of(name), shortlist=lists)
    for mine, other in zip(ours, decode(model, SOURCES, search_of(name), shortlist=lists), strict=True):
        assert [h.ids for h in mine] == [h.ids for h in other]
        assert [h.score for h in mine] == pytest.approx([h.score for h in other], abs=2e-5)


@needs_compiler
@pytest.mark.parametrize("precision", decoding.PRECISIONS)
def test_neighbours_change_no_bit(precision):
    decoder, lists = compiled(toy.make(SMALL, vocabulary=VOCABULARY), SMALL, precision), some()
    for name in ("beam", "samples", "shortest"):
        found = [
            decode(Backend(decoders=[decoder]), SOURCES, search_of(name, batch_size=size), shortlist=lists)
            for size in (1, 2, 5, 32)
        ]
        assert all(each == found[0] for each in found)


# -- learning ----------------------------------------------------------------------------------------------------------


def test_what_translates_what_is_learnt():
    draw = random.Random(1)
    words = [f"w{i}" for i in range(12)]
    lines = [[draw.choice(words) for _ in range(4)] for _ in range(300)]
    english, german = ([" ".join(w.replace("w", side) for w in line) for line in lines] for side in ("e", "g"))
    ours, theirs = (Tokenizer.train(text, size=60, kind="words") for text in (english, german))
    pairs = list(zip(ours.encode_lines(english), theirs.encode_lines(german), strict=True))
    found = learn(pairs, ours, theirs, each=1, always=0)
    assert found.always.tolist() == [UNK, END]
    for i in range(12):
        [word] = ours.encode(f"e{i}")
        assert set(found.of([word])) == {UNK, END, *theirs.encode(f"g{i}")}
    few = learn(pairs, ours, theirs, each=3, always=2)
    assert len(few.always) == 4
    assert max(np.diff(few.starts)) <= 3 + 1  # and the token that is spelt alike


def test_what_is_spelt_alike_goes_with_itself(tmp_path):
    both = small_bundle(tmp_path / "bundle").source
    found = learn([(both.encode("A man"), both.encode("Ein Mann"))], both, both)
    for line in ("Zürich 42", "☃"):  # the second is bytes
        assert set(both.encode(line)) <= set(found.of(both.encode(line)).tolist())
    assert PAD not in found.of(range(len(both)))


# -- bundles, rules, commands ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    path = tmp_path_factory.mktemp("listed") / "bundle"
    small_bundle(path)
    shortlist(path, ENGLISH, GERMAN, each=5, always=3)
    return path


def test_a_bundle_keeps_it(listed, tmp_path):
    bundle = bundles.load(listed)
    kept = bundle.shortlist()
    assert kept is not None
    assert len(kept.starts) == len(bundle.source) + 1
    quantize(listed, tmp_path / "small")
    for again in (
        bundles.load(tmp_path / "small"),
        bundles.add_calibration(bundles.load(tmp_path / "small"), bundles.Calibration()),
    ):
        other = again.shortlist()
        assert other is not None
        assert all(np.array_equal(a, b) for a, b in zip(vars(kept).values(), vars(other).values(), strict=True))
    bundles.add_shortlist(bundle, replace(kept, always=kept.always[:2]))
    assert bundles.load(listed).shortlist().always.tolist() == kept.always[:2].tolist()
    bundles.add_shortlist(bundles.load(listed), kept)


PRECISIONS = ["float32", pytest.param("int8", marks=needs_compiler)]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rules_are_kept(listed, precision):
    translator = load(listed)
    search = {"shortlist": True, "precision": precision, "extra_length": 30}
    for constraints in (
        Constraints(include=("Feuerwehr", "Straße")),
        Constraints(prefix="Zwölf"),
        Constraints(include=("Öl",), forbid=("Mann", "ein")),
        Constraints(placeholders=True),
    ):
        lines = ["{name} is 42% off <b>", "Two dogs."]
        for found in translator.translate(lines, search=search, constraints=constraints):
            assert all(phrase in found.text for phrase in constraints.include)
            assert found.text.startswith(constraints.prefix)
            assert not {"Mann", "ein"} & set(found.text.split()) or not constraints.forbid
            assert all(phrase in found.text for phrase in found.hypotheses[0].met)
    [drawn] = translator.translate(
        ["Two dogs."], search={**search, "samples": 5}, constraints=Constraints(include=("Hund",))
    )
    assert all("Hund" in candidate.text for candidate in drawn.hypotheses)


@pytest.mark.parametrize(("most", "fits"), [(1, False), (4, True), (12, True)])
def test_rules_are_kept_or_refused_however_little_room_there_is(listed, most, fits):
    translator = load(listed)
    search = {"shortlist": True, "max_length": most, "beam": 2, "extra_length": 30}
    rules = Constraints(include=("Mann", "Hemd"), forbid=("Mann Hemd",))
    if not fits:
        with pytest.raises(ModelError, match=f"at most {most} are allowed"):
            translator.translate(["Two dogs."], search=search, constraints=rules)
        return
    [found] = translator.translate(["Two dogs."], search=search, constraints=rules)
    assert {"Mann", "Hemd"} <= set(found.text.replace(",", " ").replace(".", " ").split())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_stream_gives_what_translate_gives(listed, precision):
    translator = load(listed)
    search = {"shortlist": True, "precision": precision, "beam": 3}
    for line in ENGLISH[:3]:
        [whole] = translator.translate([line], search=search)
        assert "".join(translator.stream(line, search=search)) == whole.text


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_ensemble_of_a_model_with_itself_is_the_model(listed, precision):
    search = {"shortlist": True, "precision": precision}
    alone, twice = load(listed), load(listed, with_=[listed])
    for one, two in zip(
        alone.translate(ENGLISH[:4], search=search), twice.translate(ENGLISH[:4], search=search), strict=True
    ):
        assert one.text == two.text
        assert one.score == pytest.approx(two.score, abs=1e-5)


def test_ctranslate2_is_given_the_same(listed, tmp_path):
    pytest.importorskip("ctranslate2")
    from regard.exchange.ctranslate2 import write_ctranslate2

    bundle = bundles.load(listed)
    write_ctranslate2(bundle, tmp_path)
    kept = bundle.shortlist()
    assert kept is not None
    lines = [line.split("\t") for line in (tmp_path / "vmap.txt").read_text("utf-8").splitlines()]
    assert [key for key, _ in lines] == ["", *bundle.source.tokens(range(len(bundle.source)))]
    for i in (5, 300):
        assert lines[i + 1][1].split() == bundle.target.tokens(kept.tokens[kept.starts[i] : kept.starts[i + 1]])


def test_mistakes(listed, tmp_path):
    small_bundle(tmp_path / "bare")
    with pytest.raises(ModelError, match="regard shortlist BUNDLE --source"):
        load(tmp_path / "bare").translate(ENGLISH[:1], search={"shortlist": True})
    with pytest.raises(TextError, match="12 source lines but 1 target lines"):
        shortlist(listed, ENGLISH, GERMAN[:1])
    with pytest.raises(DataError, match="0 pairs of lines"):
        shortlist(listed, ["", ""], ["", ""])
    with pytest.raises(DataError, match="--each is 0; it must be at least 1"):
        shortlist(listed, ENGLISH, GERMAN, each=0)


def test_the_commands(listed, tmp_path):
    small_bundle(tmp_path / "bundle")
    (tmp_path / "en").write_text("\n".join(ENGLISH) + "\n", "utf-8")
    (tmp_path / "de").write_text("\n".join(GERMAN) + "\n", "utf-8")
    sides = ["--source", str(tmp_path / "en"), "--target", str(tmp_path / "de")]
    done = CliRunner().invoke(app, ["shortlist", str(tmp_path / "bundle"), *sides, "--always", "4", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["pairs"], found["measured"]) == (11, 1)
    assert 0 < found["covered"] <= 1
    done = CliRunner().invoke(app, ["translate", str(tmp_path / "bundle"), str(tmp_path / "en"), "--shortlist"])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == len(ENGLISH)
    done = CliRunner().invoke(app, ["doctor", str(tmp_path / "bundle"), "--json"])
    found = {f["name"]: f for f in json.loads(done.stdout) if f["topic"] == "translating"}
    assert found["by default"]["value"] == ("PyTorch" if decoding.refusal() else "compiled decoder")
    assert found["--precision exact"]["value"] == "PyTorch"
    assert "float64" in found["--precision exact"]["note"]
    assert found["--shortlist"]["value"] == "learnt"
