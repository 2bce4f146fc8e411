"""Where a model looks: the right numbers in the right places, as values, as files and in the page."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle

from regard import recipe as recipes
from regard.apps.cli import main
from regard.apps.look import page, picture
from regard.errors import DataError, ModelError, TextError
from regard.explore.look import Attention, Part, Side, look, side_of
from regard.language.open import Pipeline
from regard.models import FAMILIES
from regard.models.blocks import layout_of
from regard.nn.state import Observer
from regard.tasks.translate import load
from regard.text import BEGIN, END, PAD, Tokenizer

LINE, TARGET = ENGLISH[4], GERMAN[4]
OTHERS = {
    "bahdanau": {"width": 24, "encoder_width": 32, "embedding": 16, "readout": 20, "init_range": 0.3},
    "luong": {"width": 24, "embedding": 16, "layers": 2, "init_range": 0.3},
    "convs2s": {"width": 16, "channels": 24, "encoder_layers": 2, "decoder_layers": 2, "max_positions": 64},
    "lstmn-translator": {"width": 16, "embedding": 12, "layers": 2, "score_width": 8},
    "mask-predict": {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 2},
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("look") / "bundle"
    small_bundle(path)
    return path


@pytest.fixture(scope="module")
def found(bundle: Path) -> Attention:
    return look(bundle, LINE, target=TARGET)


def sums_to_one(attention: Attention) -> None:
    for part in attention.parts:
        sums = part.weights.sum(axis=-1, dtype=np.float64)
        np.testing.assert_allclose(sums, 1, atol=1e-6)


def example() -> Part:
    """Two layers of three heads over two tokens that look and three that are looked at; words: ab|c and x|yz."""
    raw = np.random.default_rng(0).random((2, 3, 3, 3)).astype(np.float32)
    weights = raw / raw.sum(axis=-1, keepdims=True)
    rows = Side(("a", "b", "c"), ("ab", "c"), np.array([[1.0, 0], [1, 0], [0, 1]]))
    columns = Side(("x", "y", "z"), ("x", "yz"), np.array([[1.0, 0], [0, 1], [0, 1]]))
    return Part("cross", weights, rows, columns)


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_every_layer_and_head_of_every_part(bundle: Path, found: Attention) -> None:
    translator = load(bundle, device="cpu")
    read = [*translator.source.tokens(translator.source.encode(LINE)), "</s>"]
    written = translator.target.tokens(translator.target.encode(TARGET))
    assert [part.name for part in found.parts] == ["encoder", "cross", "decoder"]
    sides = {
        "encoder": (read, read),
        "cross": ([*written, "</s>"], read),
        "decoder": (["<s>", *written], ["<s>", *written]),
    }
    for part in found.parts:
        rows, columns = sides[part.name]
        assert (list(part.rows.names), list(part.columns.names)) == (rows, columns)
        assert part.weights.shape == (2, 2, len(rows), len(columns))
    sums_to_one(found)
    sums_to_one(found.words())


def test_source_is_on_columns_and_target_on_rows(bundle: Path) -> None:
    """As the weights that go with a translation, which come another way."""
    translator = load(bundle, device="cpu")
    (translation,) = translator.translate([LINE], attention=True)
    cross = look(bundle, LINE).part("cross")
    assert translation.attention is not None
    assert (cross.rows.names, cross.columns.names) == (translation.target_tokens, translation.source_tokens)
    np.testing.assert_allclose(cross.matrix(layer=2), translation.attention, atol=1e-5)


def test_what_is_written_looks_at_nothing_behind_it(found: Attention) -> None:
    decoder = found.part("decoder").weights
    assert not np.triu(decoder, 1).any()
    assert (decoder[:, :, 0, 0] == 1).all()
    assert (decoder[:, :, 2, :3] > 0).all()


def test_an_observer_gets_what_it_asks_for_and_no_more(bundle: Path) -> None:
    model: Any = load(bundle, device="cpu").model
    ids = torch.tensor([[5, 6, 7, END]])
    layout = layout_of("padded", torch.tensor([4]), 4)
    plain, both = Observer("cross"), Observer("cross", "decoder")
    for observe in (plain, both):
        state = model.start(model.encode(ids, layout, observe), layout)
        model.decode(torch.tensor([[BEGIN, 8]]), state, observe=observe)
    assert plain.weights.keys() == {"cross"}
    assert len(plain.weights["cross"]) == len(both.weights["cross"]) == len(both.weights["decoder"]) == 2
    for one, other in zip(plain.weights["cross"], both.weights["cross"], strict=True):
        assert torch.equal(one, other)
    assert both.weights["decoder"][0].shape == (1, 2, 2, 2)


def test_means_over_layers_and_heads() -> None:
    part = example()
    np.testing.assert_array_equal(part.matrix(2, 3), part.weights[1, 2])
    np.testing.assert_allclose(part.matrix(1), part.weights[0].mean(0), rtol=1e-6)
    np.testing.assert_allclose(part.matrix(head=2), part.weights[:, 1].mean(0), rtol=1e-6)
    np.testing.assert_allclose(part.matrix(), part.weights.mean((0, 1)), rtol=1e-6)
    for layer, head in ((3, 0), (0, 4), (-1, 0)):
        with pytest.raises(DataError, match="or 0 for the mean"):
            part.matrix(layer, head)


def test_sums_over_what_is_chosen() -> None:
    part = example()
    np.testing.assert_allclose(part.summed(), part.weights.sum((0, 1)), rtol=1e-6)
    np.testing.assert_allclose(part.summed(layers=[2], heads=[3, 1]), part.weights[1, [0, 2]].sum(0), rtol=1e-6)
    assert part.total() == pytest.approx(2 * 3 * 3)  # each row of each head sums to 1
    chosen = part.total(rows=[1, 3, 3], columns=[2], layers=[1], heads=[2])
    assert chosen == pytest.approx(float(part.weights[0, 1, 0, 1] + part.weights[0, 1, 2, 1]))
    assert part.total(rows=[]) == 0
    for wrong in ({"rows": [0]}, {"columns": [4]}, {"layers": [3]}, {"heads": [-1]}):
        with pytest.raises(DataError, match="take 1 to"):
            part.total(**wrong)


def test_words_are_sums_of_what_is_looked_at_and_means_of_what_looks() -> None:
    part = example()
    words = part.merged()
    w = part.weights[1, 0]
    expected = [[w[:2, 0].mean(), w[:2, 1:].sum(1).mean()], [w[2, 0], w[2, 1:].sum()]]
    np.testing.assert_allclose(words.weights[1, 0], expected, rtol=1e-6)
    assert (words.rows.names, words.columns.names) == (("ab", "c"), ("x", "yz"))
    np.testing.assert_allclose(words.merged().weights, words.weights, rtol=1e-6)


def test_words_of_tokens() -> None:
    line = "two-year 3.5!"
    tokens, places = ["<2de>", "▁two", "-year", "▁", "3.5!"], [(0, 0), (0, 3), (3, 8), (8, 9), (9, 13)]
    side = side_of(line, tokens, places, [(0, 8), (9, 12), (12, 13)])
    assert side.names == (*tokens, "</s>")
    assert side.words == ("<2de>", "two-year", "3.5", "!", "</s>")
    expected = np.zeros((6, 5))
    expected[[0, 1, 2, 3, 5], [0, 1, 1, 2, 4]] = 1
    expected[4, 2:4] = 0.75, 0.25
    np.testing.assert_allclose(side.shares, expected)


def test_the_words_of_a_line_as_a_reader_sees_them(found: Attention) -> None:
    cross = found.words().part()
    words = "A man in a blue shirt is standing on a ladder cleaning a window . </s>"
    assert cross.columns.names == tuple(words.split())
    assert cross.rows.names[-3:] == ("Fenster", ".", "</s>")


@pytest.mark.parametrize("family", OTHERS)
def test_recurrent_and_convolutional_models(family: str, tmp_path: Path) -> None:
    small_bundle(tmp_path / "bundle", model={"family": family, **OTHERS[family]})
    found = look(tmp_path / "bundle", LINE, target=TARGET)
    cross = found.part()
    assert cross.name == "cross"
    assert cross.weights.shape[2:] == (len(cross.rows.names), len(cross.columns.names))
    np.testing.assert_allclose(cross.weights.sum(-1, dtype=np.float64), 1, atol=1e-6)


@pytest.mark.parametrize(("family", "name"), [("gpt", "decoder"), ("bert", "encoder")])
def test_models_of_one_side(family: str, name: str) -> None:
    sizes = {"width": 16, "heads": 2, "feedforward": 32, "layers": 2}
    recipe = recipes.validate({"name": "small", "data": {"text": "x"}, "model": {"family": family, **sizes}})
    tokens = Tokenizer.train(ENGLISH, size=330)
    torch.manual_seed(0)
    model = FAMILIES[family].build(recipe.model, len(tokens), len(tokens), PAD).eval()
    opened = Pipeline(model, recipe, tokens, tokens)
    found = look(opened, LINE)
    assert [part.name for part in found.parts] == [name]
    assert found.part().rows.names[0 if name == "decoder" else -1] == ("<s>" if name == "decoder" else "</s>")
    sums_to_one(found)
    sums_to_one(found.words())
    with pytest.raises(ModelError, match="reads one line"):
        look(opened, LINE, target=TARGET)


@pytest.mark.parametrize(
    ("sizes", "name", "rows"),
    [
        ({"family": "self-attentive", "width": 16, "embedding": 12, "hops": 3, "score_width": 8}, "hops", 3),
        ({"family": "bert-classifier", "width": 16, "heads": 2, "layers": 2}, "encoder", 0),
    ],
)
def test_classifiers(sizes: dict[str, Any], name: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    data = {"source": "x", "labels": "first"}
    recipe = recipes.validate({"name": "small", "data": data, "model": sizes})
    tokens, labels = Tokenizer.train(ENGLISH, size=330), Tokenizer.train(["yes no"], size=10, kind="words")
    torch.manual_seed(0)
    model = FAMILIES[recipe.model.family].build(recipe.model, len(tokens), len(labels), PAD).eval()
    opened = Pipeline(model, recipe, tokens, labels)
    found = look(opened, LINE)
    (part,) = found.parts
    assert (part.name, found.source, found.target) == (name, LINE, "")
    assert part.weights.shape[2:] == (rows or len(part.columns.names), len(part.columns.names))
    assert part.columns.names[-1] == "</s>"
    sums_to_one(found)
    sums_to_one(found.words())
    assert f'"name":"{name}"' in page(found)
    pooled = recipes.validate({"name": "small", "data": data, "model": {**sizes, "pool": "mean"}})
    if name == "hops":
        plain = FAMILIES["self-attentive"].build(pooled.model, len(tokens), len(labels), PAD).eval()
        with pytest.raises(ModelError, match="no attention"):
            look(Pipeline(plain, pooled, tokens, labels), LINE)


def test_what_cannot_be_looked_at_is_said(bundle: Path, found: Attention, tmp_path: Path) -> None:
    with pytest.raises(TextError, match="no text"):
        look(bundle, " ")
    with pytest.raises(TextError, match="line break"):
        look(bundle, LINE, target="a\nb")
    with pytest.raises(DataError, match="encoder, cross, decoder"):
        found.part("middle")
    small_bundle(tmp_path / "bundle", model={"family": "seq2seq", "width": 24, "embedding": 16, "layers": 1})
    with pytest.raises(ModelError, match="no attention"):
        look(tmp_path / "bundle", LINE)


# -- files -------------------------------------------------------------------------------------------------------------


def test_json_and_csv_keep_every_digit(found: Attention) -> None:
    plain = json.loads(found.to_json())
    assert (plain["source"], plain["target"], plain["unit"]) == (LINE, TARGET, "tokens")
    for part, one in zip(found.parts, plain["parts"], strict=True):
        np.testing.assert_array_equal(np.array(one["weights"], dtype=np.float32), part.weights)
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == sum(part.weights.size for part in found.parts)
    for row in rows[:: len(rows) // 50]:
        part = found.part(row["part"])
        place = tuple(int(row[name]) - 1 for name in ("layer", "head", "row", "column"))
        assert np.float32(row["weight"]) == part.weights[place]
        assert (row["row_name"], row["column_name"]) == (part.rows.names[place[2]], part.columns.names[place[3]])


def test_the_picture_shows_the_chosen_numbers(found: Attention) -> None:
    part = found.part("decoder")
    drawn = picture(part, 2, 1)
    assert drawn.title == "Layer: 2 Attention: Output - Output Head: 1"
    shown = drawn.figure.axes[0].collections[0].get_array()
    np.testing.assert_allclose(shown, part.weights[1, 0], atol=1e-7)


def test_a_notebook_shows_the_page_in_a_frame(found: Attention) -> None:
    shown = page(found)
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" [^<>]*></iframe>', shown._repr_html_())
    assert frame is not None
    assert unescape(frame[1]) == shown


def data_of(text: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a page says of itself, and its weights, (L, H, T, S) a part."""
    scripts = dict(re.findall(r'<script type="[^"]+" id="([^"]+)">(.*?)</script>', text, re.DOTALL))
    told = json.loads(scripts["about"])
    [run] = told["runs"]
    about = {**told, **run}
    weights = {}
    for part in about["parts"]:
        levels = np.frombuffer(base64.b64decode(scripts[part["from"]]), f"<u{part['bits'] // 8}")
        weights[part["name"]] = levels.reshape(part["shape"]) / (2 ** part["bits"] - 1)
    return about, weights


def test_the_page_holds_all_weights_and_needs_nothing_else(found: Attention) -> None:
    text = page(found, language="zh")
    about, weights = data_of(text)
    assert about["language"] == "zh"
    for part in found.parts:
        np.testing.assert_allclose(weights[part.name], part.weights, atol=1 / 2**16)
    for one, part in zip(about["parts"], found.parts, strict=True):
        for side, mine in ((one["rows"], part.rows), (one["columns"], part.columns)):
            shares = np.zeros_like(mine.shares)
            for token, words in enumerate(side["shares"]):
                for word, share in words:
                    shares[token, word] = share
            np.testing.assert_allclose(shares, mine.shares, atol=1e-6)
            assert len(side["names"]) == len(mine.names)
    assert set(re.findall(r"https?://[^\s\"'`<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:link|script|img)[^>]+(?:src|href)=\"(?!data:)", text)


def test_a_long_line_has_eight_bits_a_weight() -> None:
    names = tuple(map(str, range(300)))
    side = Side(names, names, np.eye(300))
    weights = np.random.default_rng(1).dirichlet(np.ones(300), (2, 6, 300)).astype(np.float32)
    about, found = data_of(page(Attention("", "", (Part("decoder", weights, side, side),))))
    assert about["parts"][0]["bits"] == 8
    np.testing.assert_allclose(found["decoder"], weights, atol=0.51 / 255)


def test_a_line_cannot_end_the_pages_script(bundle: Path) -> None:
    line = 'a </script><script>alert("1")</script> & man'
    about, _ = data_of(page(look(bundle, line, target=line)))
    assert (about["source"], about["target"]) == (line, line)


# -- the word ----------------------------------------------------------------------------------------------------------


def test_the_command_line(bundle: Path, found: Attention, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["look", str(bundle), LINE, "--target", TARGET]
    assert main([*call, "--part", "encoder", "--layer", "1", "--words"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Layer: 1 Attention: Input - Input\n")
    assert "ladder" in said
    assert main([*call, "--part", "encoder", "--layer", "1", "--head", "2", "--language", "zh"]) == 0
    assert capsys.readouterr().out.startswith("层：1，注意力：Input - Input（编码器），头：2\n")
    assert main([*call, "--gold", "0-0", "--language", "zh"]) == 0
    assert "对齐错误率: " in capsys.readouterr().out
    assert main([*call, "--out", str(tmp_path / "all")]) == 0
    assert sorted(file.name for file in (tmp_path / "all").iterdir()) == [
        f"attention.{kind}" for kind in ("csv", "html", "json", "svg")
    ]
    assert json.loads((tmp_path / "all" / "attention.json").read_text("utf-8")) == json.loads(found.to_json())
    capsys.readouterr()
    assert main([*call, "--out", "/dev/null"]) == 2
    assert "/dev/null: it is no directory; name one, or a file that ends with .html" in capsys.readouterr().err
    assert main([*call, "--out", str(tmp_path / "one.csv"), "--words"]) == 0
    assert main([*call, "--out", str(tmp_path / "one.png"), "--head", "2"]) == 0
    assert (tmp_path / "one.png").read_bytes() == picture(found.part(), 0, 2).render("png")
    assert (tmp_path / "one.csv").read_text("utf-8") == found.words().to_csv()
    capsys.readouterr()
    for wrong, named in (
        (["--out", "x.gif"], ".html"),
        (["--language", "fr"], "en or zh"),
        (["--layer", "9"], "1 to 2"),
        (["--part", "middle"], "cross"),
    ):
        assert main([*call, *wrong]) == 2
        assert named in capsys.readouterr().err
