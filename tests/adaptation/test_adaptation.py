"""Adapters: what they do to weights, that strangers' are refused, and what a toy learns from pairs and one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import numpy as plain

import regard
from regard import bundle as bundles
from regard.adaptation.adapt import adapt
from regard.adaptation.file import ADDED, DOWN, UP, AdaptedBundle, Adapter, Card, adapted, digest_of, joined
from regard.adaptation.keep import Corrections
from regard.adaptation.merge import merge
from regard.adaptation.use import corrected
from regard.apps.cli import main
from regard.engine.decoding import Tensors, refusal
from regard.errors import BundleError, KernelError, ModelError, RegardWarning, TextError
from regard.tasks.translate import Translator, load
from regard.tuning.quantize import quantize

BUNDLE = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"
OUTER = "decoder.0.feedforward.outer.weight"
LINES = ["abc de", "bhdg be", "fgdc dcdd ab", "hab", "gg fab cad"]


@pytest.fixture(scope="module")
def bundle() -> bundles.Bundle:
    return bundles.load(BUNDLE)


@pytest.fixture(scope="module")
def translator(bundle: bundles.Bundle) -> Translator:
    return load(bundle, device="cpu")


def made(bundle: bundles.Bundle, scale: float = 0.3) -> Adapter:
    """An adapter of random numbers, of a matrix, a table and a vector."""
    draw, weights = np.random.default_rng(1), adapted(bundle, Adapter(Card(weights=digest_of(bundle)), {}))
    parts: dict[str, np.ndarray] = {}
    for name in (OUTER, "source.table.weight"):
        rows, columns = weights.changed_weights()[name].shape
        parts[name + DOWN] = draw.normal(0, scale, (3, columns)).astype(np.float32)
        parts[name + UP] = draw.normal(0, scale, (rows, 3)).astype(np.float32)
    norm = "decoder.0.feedforward_residual.norm.bias"
    parts[norm + ADDED] = draw.normal(0, scale, weights.changed_weights()[norm].shape).astype(np.float32)
    return Adapter(Card(weights=digest_of(bundle), bundle="toy", about={"pairs": 3}), parts)


# -- files -------------------------------------------------------------------------------------------------------------


def test_what_is_merged_is_what_is_added_in_float64(bundle: bundles.Bundle) -> None:
    adapter, draw = made(bundle), np.random.default_rng(2)
    whole, changed = bundle.weights({n: w.shape for n, w in adapted(bundle, adapter).changed_weights().items()}), {}
    for name, weight in adapted(bundle, adapter).changed_weights().items():
        changed[name] = weight
        if name + UP in adapter.parts:
            x = draw.normal(size=(5, weight.shape[1]))
            up, down = (adapter.parts[name + end].astype(np.float64) for end in (UP, DOWN))
            apart = x @ (whole[name].astype(np.float64) + up @ down).T
            np.testing.assert_allclose(x @ weight.T.astype(np.float64), apart, rtol=1e-5, atol=1e-6)
        elif name + ADDED in adapter.parts:
            np.testing.assert_allclose(weight, whole[name] + adapter.parts[name + ADDED], rtol=1e-6)
        else:
            assert (weight == whole[name]).all()
    assert changed.keys() == whole.keys()


def test_a_file_brings_back_what_was_written(bundle: bundles.Bundle, tmp_path: Path) -> None:
    adapter = made(bundle)
    found = Adapter.read(adapter.write(tmp_path / "a.safetensors"))
    assert found.card == adapter.card
    assert all((found.parts[name] == part).all() for name, part in adapter.parts.items())
    half = adapter.write(tmp_path / "half.safetensors", half=True)
    assert half.stat().st_size < (tmp_path / "a.safetensors").stat().st_size
    np.testing.assert_allclose(Adapter.read(half).parts[OUTER + UP], adapter.parts[OUTER + UP], rtol=1e-3)


def test_adapters_are_joined_in_their_order(bundle: bundles.Bundle) -> None:
    one, other = made(bundle), made(bundle, 0.1)
    both = joined([one, other], one.card)
    weight = adapted(bundle, Adapter(one.card, {})).changed_weights()[OUTER]
    expected = weight.astype(np.float64) + sum(
        a.parts[OUTER + UP].astype(np.float64) @ a.parts[OUTER + DOWN].astype(np.float64) for a in (one, other)
    )
    np.testing.assert_allclose(both.changed(OUTER, weight), expected, rtol=1e-5, atol=1e-6)
    twice = adapted(adapted(bundle, one), other)
    assert (twice.changed_weights()[OUTER] == both.changed(OUTER, weight)).all()


CARD = {"format": 1, "weights": "0" * 64}


@pytest.mark.parametrize(
    ("card", "parts", "wrong"),
    [
        (None, {}, "is no adapter"),
        ("{", {}, "cannot be read"),
        ("[" * 100_000, {}, "cannot be read"),
        (CARD | {"format": 2}, {}, "cannot be read"),
        (CARD | {"weights": "short"}, {}, "cannot be read"),
        (CARD | {"other": 1}, {}, "cannot be read"),
        (CARD, {}, "belongs to another bundle"),
        ({}, {OUTER + UP: (32, 2)}, "fits no parameter"),
        ({}, {OUTER + UP: (32, 2), OUTER + DOWN: (3, 64)}, "fits no parameter"),
        ({}, {OUTER + ADDED: (3,)}, "fits no parameter"),
        ({}, {"nothing:added": (3,)}, "fits no parameter"),
        ({}, {OUTER: (3,)}, "fits no parameter"),
        ({}, {OUTER + UP: (0, 10**6), OUTER + DOWN: (10**6, 0)}, "fits no parameter"),
    ],
)
def test_a_strangers_adapter_is_refused(
    bundle: bundles.Bundle, tmp_path: Path, card: object, parts: dict[str, tuple[int, ...]], wrong: str
) -> None:
    if isinstance(card, dict):
        card = json.dumps(card or {"format": 1, "weights": digest_of(bundle)})
    tensors = {name: np.ones(shape, np.float32) for name, shape in parts.items()} or {"x": np.ones(1, np.float32)}
    file = tmp_path / "stranger.safetensors"
    plain.save_file(tensors, file, None if card is None else {"regard.adapter": str(card)})
    with pytest.raises(BundleError, match=wrong):
        load(bundle, adapter=file)


def test_damaged_files_are_refused(bundle: bundles.Bundle, tmp_path: Path) -> None:
    whole = made(bundle).to_bytes()
    file = tmp_path / "damaged.safetensors"
    for data in (b"", b"\xff" * 40, whole[: len(whole) // 2], whole[:8] + b"x" + whole[9:]):
        file.write_bytes(data)
        with pytest.raises(BundleError):
            Adapter.read(file)
    adapter = made(bundle)
    for value in (np.nan, np.inf):
        wrong = {**adapter.parts, OUTER + UP: np.full_like(adapter.parts[OUTER + UP], value)}
        file.write_bytes(replace(adapter, parts=wrong).to_bytes())
        with pytest.raises(BundleError, match="not finite"):
            Adapter.read(file)
    file.write_bytes(plain.save({"a:added": np.ones(2, np.int64)}, {"regard.adapter": adapter.card.model_dump_json()}))
    with pytest.raises(BundleError, match="stored as I64"):
        Adapter.read(file)
    with file.open("wb") as large:
        large.truncate(65 << 20)
    with pytest.raises(BundleError, match="more than"):
        Adapter.read(file)
    with pytest.raises(BundleError, match="no such adapter"):
        Adapter.read(tmp_path / "missing.safetensors")


# -- use ---------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(refusal() is not None, reason="the compiled decoder is not built here")
def test_the_engine_and_pytorch_agree_with_an_adapter(bundle: bundles.Bundle) -> None:
    changed = load(adapted(bundle, made(bundle, 0.1)), device="cpu")
    fast, exact = (changed.translate(LINES, precision=precision) for precision in ("float32", "exact"))
    assert [each.text for each in fast] == [each.text for each in exact]
    for one, other in zip(fast, exact, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_it_is_loaded_and_merged_by_file(bundle: bundles.Bundle, translator: Translator, tmp_path: Path) -> None:
    file = made(bundle, 0.2).write(tmp_path / "a.safetensors")
    changed = regard.load(BUNDLE, adapter=file)
    texts = [each.text for each in changed.translate(LINES)]
    assert texts != [each.text for each in translator.translate(LINES)]
    alone = regard.load(merge(bundle, file, tmp_path / "merged"))
    assert [each.text for each in alone.translate(LINES)] == texts
    assert alone.bundle is not None
    assert not isinstance(alone.bundle, AdaptedBundle)
    assert alone.bundle.provenance.notes["adapter"]["pairs"] == 3


def test_a_bundle_in_int8_is_merged_and_rounded_again(bundle: bundles.Bundle, tmp_path: Path) -> None:
    quantize(BUNDLE, tmp_path / "int8")
    small = bundles.load(tmp_path / "int8")
    adapter = replace(made(bundle, 0.1), card=Card(weights=digest_of(small)))
    together = load(adapted(small, adapter), device="cpu").translate(LINES, precision="exact")
    alone = bundles.load(merge(small, adapter, tmp_path / "merged"))
    assert alone.provenance.notes["quantized"] == "int8"
    after = load(alone, device="cpu").translate(LINES, precision="exact")
    for one, other in zip(together, after, strict=True):
        assert one.text == other.text
        assert one.log_probability == pytest.approx(other.log_probability, abs=0.3)


@pytest.mark.skipif(refusal() is not None, reason="the compiled decoder is not built here")
def test_a_decoder_with_another_matrix_shares_the_rest(bundle: bundles.Bundle) -> None:
    adapter = made(bundle, 0.2)
    alone = replace(adapter, parts={name: part for name, part in adapter.parts.items() if name.startswith(OUTER)})
    changed = adapted(bundle, alone)
    for precision in ("float32", "bfloat16", "int8"):
        base, whole = load(bundle, device="cpu"), load(changed, device="cpu")
        before = [each.to_dict() for each in base.translate(LINES, precision=precision)]
        decoder = corrected(base, alone).engine.decoder(precision)
        ids, target = [[*row, 3] for row in base.encode(LINES)], base.target.encode("ED CBA")
        found = [each.forced(ids, [target] * len(ids), (2, 3)) for each in (decoder, whole.engine.decoder(precision))]
        assert [row for row, _ in found[0]] == [row for row, _ in found[1]]
        assert [each.to_dict() for each in base.translate(LINES, precision=precision)] == before
        matrix = np.zeros((decoder.shape.width, decoder.shape.inner), np.float32)
        with pytest.raises(KernelError, match="norm"):
            decoder.with_matrix(-1 - decoder.shape.pre_norm, Tensors(matrix))
        with pytest.raises(KernelError, match="no pair"):
            decoder.with_matrix(1000, Tensors(matrix))
        with pytest.raises(KernelError, match="numbers"):
            decoder.with_matrix(1, Tensors(matrix[:1]))
        with pytest.raises(KernelError, match="output"):
            decoder.with_matrix(0, Tensors(matrix[:1]))
        del base
        assert decoder.forced(ids[:1], [target], (2, 3))  # it lives on without the one that it was made of


# -- learning from pairs -----------------------------------------------------------------------------------------------


def pairs(translator: Translator) -> list[tuple[str, str]]:
    """Another domain: letters keep their order."""
    draw = np.random.default_rng(3)
    words = ["".join(draw.choice(list("abcdefgh"), draw.integers(2, 5))) for _ in range(200)]
    return [(word, word.upper()) for word in words]


def test_a_toy_learns_from_pairs(translator: Translator, tmp_path: Path) -> None:
    heard: list[str] = []
    new, file = pairs(translator), tmp_path / "learnt.safetensors"
    adapter = regard.adapt(
        BUNDLE,
        new,
        file,
        replay=[source for source, _ in new[:40]] * 2,
        report=lambda event: heard.append(str(event["event"])),
        epochs=12,
        rank=4,
        learning_rate=0.02,
        batch_tokens=256,
        replay_share=0.1,
    )
    about = adapter.card.about
    assert float(str(about["loss_after"])) < float(str(about["loss_before"])) - 0.5
    assert {"read", "learn", "check"} <= set(heard)
    assert file.stat().st_size < 200_000
    texts = [each.text for each in regard.load(BUNDLE, adapter=file).translate([source for source, _ in new])]
    before = [each.text for each in translator.translate([source for source, _ in new])]
    right = [sum(a == b for a, (_, b) in zip(found, new, strict=True)) for found in (texts, before)]
    assert right[0] > right[1] + 20


def test_the_same_seed_learns_the_same(translator: Translator) -> None:
    settings = {"epochs": 2, "rank": 2, "layers": ("decoder",), "minutes": 10}
    one, other = (adapt(BUNDLE, pairs(translator)[:60], replay=pairs(translator)[60:90], **settings) for _ in range(2))
    assert all(name.startswith("decoder") for name in one.names)
    assert all((one.parts[name] == other.parts[name]).all() for name in one.parts)


def test_what_cannot_be_learnt_is_refused(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(TextError, match="10 are needed"):
        adapt(BUNDLE, [("ab", "BA")] * 3)
    with pytest.raises(TextError, match="pair 2"):
        adapt(BUNDLE, [("ab", "BA"), ("ab",)])  # type: ignore[list-item]  # which is what is tried
    with pytest.raises(ModelError, match="rank"):
        adapt(BUNDLE, pairs(translator), rank=-1)
    with pytest.raises(regard.TrainingError, match="no parameter"):
        adapt(BUNDLE, pairs(translator), layers=("nothing",))
    with pytest.raises(regard.TrainingError, match="max-mb"):
        adapt(BUNDLE, pairs(translator), max_mb=0.001)


def test_from_the_command_line(translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{a}\t{b}\n" for a, b in pairs(translator)[:40]), encoding="utf-8")
    text = tmp_path / "home.txt"
    text.write_text("abc\nde fg\nhab\n" * 5, encoding="utf-8")
    file, bundle = tmp_path / "a.safetensors", str(BUNDLE)
    learn = ["adapt", bundle, "--pairs", str(table), "--out", str(file), "--epochs", "1", "--rank", "1"]
    assert main([*learn, "--replay", str(text)]) == 0
    assert "learnt from" in capsys.readouterr().out
    assert main(["adapt", bundle, "--adapter", str(tmp_path), "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert told["about"]["rank"] == 1
    assert main(["adapt", bundle, "--adapter", str(file), "--merge", str(tmp_path / "merged")]) == 0
    (tmp_path / "lines").write_text("abc de\n", encoding="utf-8")
    capsys.readouterr()
    shown = []
    for words in ([bundle, "--adapter", str(file)], [str(tmp_path / "merged")]):
        assert main(["translate", *words, str(tmp_path / "lines")]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert main(["adapt", bundle]) == 2
    assert main(["adapt", bundle, "--pairs", str(text), "--out", str(file)]) == 2
    assert main(["adapt", bundle, "--pairs", str(table)]) == 2


# -- one correction ----------------------------------------------------------------------------------------------------


def bits(translator: Translator) -> list[dict[str, object]]:
    return [each.to_dict() for each in translator.translate(LINES)]


def test_one_correction_holds_and_is_undone_to_the_bit(translator: Translator, tmp_path: Path) -> None:
    before = bits(translator)
    kept = Corrections(translator, tmp_path)
    for line, found in zip(LINES[1:], translator.translate(LINES[1:]), strict=True):
        kept.note(line, found)
    first = kept.learn("abc de", "EDE ABC")
    assert first is not None
    assert (first.before, first.changed) == ("ED CBA", 0)
    one = bits(kept.translator)
    assert one[0]["text"] == "EDE ABC"
    assert [each["text"] for each in one[1:]] == [each["text"] for each in before[1:]]
    assert kept.learn("abc de", "EDE ABC") is None
    second = kept.learn("hab", "HAB")
    assert second is not None
    assert [each["text"] for each in bits(kept.translator)][:4:3] == ["EDE ABC", "HAB"]
    assert bits(translator) == before
    again = Corrections(translator, tmp_path)
    assert [each.translation for each in again.all] == ["EDE ABC", "HAB"]
    assert bits(again.translator) == bits(kept.translator)
    assert kept.undo(second.id)
    assert bits(kept.translator) == one
    assert kept.undo(first.id)
    assert not kept.undo(first.id)
    assert bits(kept.translator) == before
    assert kept.all == []
    assert list(kept.folder.iterdir()) == []


def test_pytorch_says_what_the_engine_says(translator: Translator, tmp_path: Path) -> None:
    kept = Corrections(translator, tmp_path)
    kept.learn("abc de", "EDE ABC")
    assert kept.translator.translate(["abc de"], precision="exact")[0].text == "EDE ABC"
    exported = kept.exported()
    assert exported is not None
    file = exported.write(tmp_path / "all.safetensors")
    assert regard.load(BUNDLE, adapter=file).translate(["abc de"])[0].text == "EDE ABC"
    assert regard.load(merge(BUNDLE, file, tmp_path / "merged")).translate(["abc de"])[0].text == "EDE ABC"


def test_a_later_correction_takes_an_earlier_ones_place(translator: Translator, tmp_path: Path) -> None:
    kept = Corrections(translator, tmp_path)
    kept.learn("abc de", "EDE ABC")
    kept.learn("abc de", "ABC")
    assert [each.translation for each in kept.all] == ["ABC"]
    assert kept.translator.translate(["abc de"])[0].text == "ABC"
    assert kept.learn("abc de", "ED CBA") is None  # what the model says by itself needs no correction
    assert kept.all == []


def test_what_is_no_correction_is_refused(translator: Translator, tmp_path: Path) -> None:
    kept = Corrections(translator, tmp_path, most=1)
    with pytest.raises(ModelError, match="tokens"):
        kept.learn("abc " * 40, "ABC")
    with pytest.raises(ModelError, match="cannot write"):
        kept.learn("abc", "A☃")
    with pytest.raises(TextError):
        kept.learn("abc\nde", "A")
    kept.learn("abc de", "EDE ABC")
    with pytest.raises(ModelError, match="no more than 1"):
        kept.learn("hab", "HAB")
    name = kept.all[0].id
    (kept.folder / f"{name}.safetensors").write_bytes(b"nothing")
    with pytest.warns(RegardWarning, match="left out"):
        assert Corrections(translator, tmp_path).all == []


def test_other_families_say_what_they_can_do(tmp_path: Path) -> None:
    other = load(BUNDLE.with_name("luong"), device="cpu")
    with pytest.raises(ModelError, match="regard adapt"):
        Corrections(other, tmp_path)
