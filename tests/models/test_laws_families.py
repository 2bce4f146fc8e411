"""The laws for every family, as its page gives itself in small: a new page is tried by being there.

Laws 2 to 4 with other settings of families are in `test_laws_models.py`, `test_objectives.py` and `test_lstmn.py`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import test_laws_models as laws
import test_objectives as others
import torch
import toy

import regard
from regard import bundle as bundles
from regard import recipe as recipes
from regard.apps.cli import main
from regard.data.batches import Batches
from regard.data.store import Store, fingerprint
from regard.inspection.inspect import inspect
from regard.language.measure import measure
from regard.models import FAMILIES
from regard.nn.attention import SCORES
from regard.search.table import SearchConfig
from regard.settings import Filters
from regard.tasks.decode import decode
from regard.tasks.engine import backend_of
from regard.tasks.fit import fit
from regard.text import MASK, Tokenizer, write_lines
from regard.train import OBJECTIVES, Interrupted, TrainConfig, Trainer

SMALL = {name: family.small for name, family in FAMILIES.items()}
AIMS = {
    "encoder-decoder": "translate",
    "mask-predictor": "cmlm",
    "language-model": "language-model",
    "reader": "masked-lm",
}
LETTERS = "abcdef"
PAIRED = [family for family, known in FAMILIES.items() if known.kind in ("encoder-decoder", "mask-predictor")]
WRITING = [family for family, known in FAMILIES.items() if known.kind == "language-model"]
CLASSIFYING = [family for family, known in FAMILIES.items() if known.kind == "classifier"]
TRANSLATING = [family for family, known in FAMILIES.items() if known.kind == "encoder-decoder"]


def _aim(family: str) -> str:
    return AIMS.get(FAMILIES[family].kind, "classify")


def _words(count: int, seed: int, most: int = 5) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(LETTERS, k=draw.randint(1, most))) for _ in range(count)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_goes_by_the_name_that_its_config_has(family: str) -> None:
    assert FAMILIES[family].config(**SMALL[family]).family == family


# -- the future, padding, neighbours, tokens ---------------------------------------------------------------------------


def _config(family: str) -> Any:
    return FAMILIES[family].config(**SMALL[family], dropout=0.0)


@pytest.mark.parametrize("family", TRANSLATING)
def test_who_translates_keeps_the_laws(family: str) -> None:
    laws.test_decoding_in_any_split_equals_decoding_at_once(_config(family))
    laws.test_a_selected_state_goes_on_as_its_row_would(_config(family))
    laws.test_padded_equals_packed_equals_alone(_config(family))
    laws.test_padding_is_invisible_to_gradients(_config(family))
    laws.test_the_future_is_invisible(_config(family))
    laws.test_the_source_is_seen(_config(family))


@pytest.mark.parametrize("family", WRITING)
def test_who_goes_on_keeps_the_laws(family: str) -> None:
    others.test_a_language_model_in_tokens_is_the_whole_and_sees_no_future(_config(family))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in PAIRED])
def test_who_reads_one_side_sees_no_padding_and_no_neighbour(family: str) -> None:
    others.test_padding_and_neighbours_are_invisible(_config(family))


# -- resuming ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([f"{' '.join(LETTERS)} copy reverse yes no"], size=100, kind="words", symbols=[MASK])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, Store]:
    """150 lines as pairs with themselves reversed, as text, and with a label."""
    lines = _words(150, 1)
    keep = Filters(drop_empty=False, max_ratio=1e9)
    made = {
        "pairs": ((line, line[::-1]) for line in lines),
        "text": (("", line) for line in lines),
        "labels": ((line, "yes" if "a" in line else "no") for line in lines),
    }
    folder = tmp_path_factory.mktemp("stores")
    return {n: Store.build(folder / n, p, tokenizer, tokenizer, keep, fingerprint(n)) for n, p in made.items()}


@pytest.mark.parametrize("family", SMALL)
def test_resuming_is_exact(family: str, stores: dict[str, Store], tokenizer: Tokenizer, tmp_path: Path) -> None:
    aim = _aim(family)
    store = stores["labels" if aim == "classify" else "pairs" if OBJECTIVES[aim].reads == "pairs" else "text"]
    config, build = FAMILIES[family].config, FAMILIES[family].build
    sizes = config(**SMALL[family], dropout=0.2)
    settings = TrainConfig(max_updates=4, accumulate=2, average="ema", warmup=2, precision="float32", save_every=100)

    def trainer(out: Path, stop_after: int = 0) -> Trainer:
        torch.manual_seed(3)
        made = Trainer(
            build(sizes, len(tokenizer), len(tokenizer)),
            Batches(store, batch_tokens=120, layout="packed", seed=5, view=OBJECTIVES[aim].view(tokenizer)),
            settings,
            out,
            seed=5,
            width=16,
            objective=OBJECTIVES[aim],
        )
        backward = made._backward

        def counting(batch: Any) -> float:
            made.stop = made.progress.microstep + 1 == stop_after
            return backward(batch)

        made._backward = counting  # type: ignore[method-assign]
        return made

    whole = trainer(tmp_path / "whole")
    before = {name: value.detach().clone() for name, value in whole.parameters.items()}
    whole.run()
    assert any(not torch.equal(before[name], value) for name, value in whole.parameters.items())
    with pytest.raises(Interrupted):
        trainer(tmp_path / "cut", stop_after=5).run()
    again = trainer(tmp_path / "cut")
    torch.manual_seed(999)  # a new process has another generator
    assert again.resume() is not None
    again.run()
    for name, value in whole.parameters.items():
        assert torch.equal(value, again.parameters[name]), name
        assert torch.equal(whole.averaging.ema[name], again.averaging.ema[name]), name


# -- bundles, and that a line does not know its neighbours -------------------------------------------------------------


def _recipe(family: str, folder: Path, **train: Any) -> recipes.Recipe:
    lines, aim = _words(160, 2), _aim(family)
    data: dict[str, Any] = {"batch_tokens": 300, "valid_lines": 10}
    text: dict[str, Any] = {"kind": "words"}
    if aim == "classify":
        write_lines(folder / "train", [f"{'yes' if 'a' in line else 'no'} {line}" for line in lines])
        data |= {"source": str(folder / "train"), "labels": "first"}
        text |= {"target_kind": "words", "joint": False}
    elif OBJECTIVES[aim].reads == "text":
        lines = [" ".join(LETTERS[start:]) for start in random.Random(3).choices(range(5), k=160)]
        write_lines(folder / "train", lines)
        write_lines(folder / "valid", lines[:10])
        data |= {"text": str(folder / "train"), "valid_text": str(folder / "valid")}
    else:
        write_lines(folder / "train", lines)
        write_lines(folder / "reversed", [line[::-1] for line in lines])
        data |= {"source": str(folder / "train"), "target": str(folder / "reversed")}
    common = {"schedule": "constant", "warmup": 20, "average": "none", "label_smoothing": 0.0, "precision": "float32"}
    return recipes.validate(
        {
            "data": data,
            "text": text,
            "model": {"family": family, "dropout": 0.0, **SMALL[family]},
            "train": {**common, "validate_every": 1000, "save_every": 1000, **train},
            "search": {"beam": 2, "max_length": 8},
        }
    )


LEARNING = {*WRITING, *CLASSIFYING}
RATES = {"lstmn": 2e-2, "bert-classifier": 3e-3}
"""Of those that learn their toy task here, where it is not 1e-2; a bundle of the others is made after two updates."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A family's bundle, made when it is first asked for."""
    found: dict[str, Path] = {}

    def of(family: str) -> Path:
        if family not in found:
            folder = tmp_path_factory.mktemp(family)
            learns = {"max_updates": 150, "learning_rate": RATES.get(family, 1e-2)}
            recipe = _recipe(
                family, folder, **(learns if family in LEARNING else {"max_updates": 2, "learning_rate": 1e-3})
            )
            assert recipes.parse(recipes.to_toml(recipe)) == recipe
            found[family] = fit(recipe, folder / "run")
        return found[family]

    return of


@pytest.mark.parametrize("family", SMALL)
def test_a_bundle_gives_its_golden_answers_again(family: str, made: Any) -> None:
    found = inspect(made(family), again=True)
    assert found.verified
    assert found.golden


@pytest.mark.parametrize("family", SMALL)
def test_a_line_is_answered_alone_as_in_company(family: str, made: Any) -> None:
    lines = ["a b c", "f", "c d e f a"]

    def answers(given: list[str]) -> list[Any]:
        if family in PAIRED:
            translations = regard.load(made(family)).translate(given)
            return [(t.text, pytest.approx(t.log_probability, rel=1e-9)) for t in translations]
        if _aim(family) == "classify":
            return [
                [(c.text, pytest.approx(c.probability, rel=1e-9)) for c in row]
                for row in regard.classify(made(family), given)
            ]
        return [regard.perplexities(made(family), [line])["token"].detail["nats"] for line in given]

    ensemble_with = answers(lines)
    if _aim(family) in ("language-model", "masked-lm"):
        found = regard.perplexities(made(family), lines)["token"].detail
        counts = [regard.perplexities(made(family), [line])["token"].detail["count"] for line in lines]
        assert found["nats"] * found["count"] == pytest.approx(
            sum(a * b for a, b in zip(ensemble_with, counts, strict=True)), rel=1e-9
        )
    else:
        assert ensemble_with == [answers([line])[0] for line in lines]


def test_weights_come_back_bit_for_bit(made: Any) -> None:
    for family in SMALL:
        first, second = (dict(bundles.load(made(family)).model().named_parameters()) for _ in range(2))
        assert first.keys() == second.keys()
        assert all(torch.equal(value, second[name]) for name, value in first.items())


# -- learning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", WRITING)
def test_who_goes_on_learns_to(family: str, made: Any) -> None:
    (found,) = regard.generate(made(family), "b c", search={"samples": 0, "beam": 1, "max_length": 8})
    assert found.text.split() == ["d", "e", "f"]
    assert found.ended


@pytest.mark.parametrize("family", CLASSIFYING)
def test_who_classifies_learns_labels(family: str, made: Any) -> None:
    lines = [line for line in _words(60, 4) if line not in set(_words(160, 2))]
    found = regard.classify(made(family), lines)
    right = sum(choices[0].text == ("yes" if "a" in line else "no") for choices, line in zip(found, lines, strict=True))
    assert right >= 0.9 * len(lines)


WIDER: dict[str, tuple[dict[str, Any], float, int, float]] = {
    "transformer": ({"width": 48, "heads": 4, "feedforward": 96, "decoder_layers": 2}, 6e-3, 600, 0.95),
    "parser": ({"width": 48, "heads": 4, "feedforward": 96, "decoder_layers": 2}, 6e-3, 600, 0.95),
    "seq2seq": ({"width": 128, "embedding": 32, "layers": 1, "cell": "gru", "init_range": 0.15}, 8e-3, 400, 0.7),
    "bahdanau": (
        {"width": 48, "encoder_width": 48, "embedding": 24, "readout": 24, "init_range": 0.2},
        1e-2,
        300,
        0.95,
    ),
    "luong": ({"width": 48, "embedding": 24, "layers": 1, "init_range": 0.3}, 1e-2, 300, 0.95),
    "convs2s": ({"width": 48, "channels": 48}, 1e-2, 300, 0.95),
    "lstmn-translator": ({"width": 48, "embedding": 24, "score_width": 24, "init_range": 0.3}, 1e-2, 400, 0.9),
}
"""Of families that translate: sizes, rate, updates, the least share of fresh lines that come out right; of others, as
its page says, 1e-2, 400, 0.9. One vector for a whole line: what was not seen comes out less surely."""


def _trained(family: str, sizes: dict[str, Any], store: Store, words: Tokenizer, out: Path, **train: Any) -> Any:
    torch.manual_seed(1)
    config, build = FAMILIES[family].config, FAMILIES[family].build
    aim = _aim(family)
    common = {"schedule": "linear", "warmup": 40, "clip": 1.0, "label_smoothing": 0.0, "average": "ema"}
    settings = TrainConfig(**common, ema_decay=0.98, save_every=10_000, log_every=1000, **train)  # type: ignore[arg-type]
    model = build(config(**{**SMALL[family], "dropout": 0.0, **sizes}), len(words), len(words))
    batches = Batches(store, batch_tokens=500, layout="packed", seed=1, view=OBJECTIVES[aim].view(words))
    trainer = Trainer(model, batches, settings, out, seed=1, width=48, objective=OBJECTIVES[aim])
    trainer.run()
    trainer.weights.copy_to_model(trainer.final_weights())
    return model.float().eval()


def _share(model: Any, words: Tokenizer, sources: list[str], right: list[str], mask: int | None = None) -> float:
    """Of lines that come out right."""
    ids = [words.encode(line) for line in sources]
    found = decode(backend_of(model, "float32", mask), ids, SearchConfig(beam=1))
    return sum(words.decode(h[0].ids) == line for h, line in zip(found, right, strict=True)) / len(sources)


def _fresh(seen: list[str]) -> list[str]:
    return [line for line in _words(900, 6, 4) if line not in set(seen) and len(line) > 3][:60]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Store:
    """Lines that begin with what is to be done with the rest: "copy a b" and "reverse a b"."""
    pairs = [pair for line in _words(900, 5, 4) for pair in ((f"copy {line}", line), (f"reverse {line}", line[::-1]))]
    path = tmp_path_factory.mktemp("asked") / "store"
    return Store.build(path, iter(pairs), tokenizer, tokenizer, Filters(max_ratio=9.0), fingerprint("asked"))


@pytest.mark.parametrize("family", TRANSLATING)
def test_who_translates_learns_to_copy_and_to_reverse_as_asked(
    family: str, asked: Store, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    sizes, rate, updates, least = WIDER.get(family, ({}, 1e-2, 400, 0.9))
    model = _trained(family, sizes, asked, tokenizer, tmp_path, learning_rate=rate, max_updates=updates)
    fresh = _fresh(_words(900, 5, 4))
    for task, right in (("copy", fresh), ("reverse", [line[::-1] for line in fresh])):
        share = _share(model, tokenizer, [f"{task} {line}" for line in fresh], right)
        assert share >= least, (task, share)


def test_mask_predict_learns_to_copy(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """To reverse it learns in `test_mask_predict.py`; both at once take it longer."""
    lines = _words(1800, 5)
    pairs = ((line, line) for line in lines)
    store = Store.build(tmp_path / "s", pairs, tokenizer, tokenizer, Filters(), fingerprint("copies"))
    sizes = {"width": 64, "heads": 4, "feedforward": 128, "encoder_layers": 2, "decoder_layers": 2, "length_range": 4}
    model = _trained("mask-predict", sizes, store, tokenizer, tmp_path, learning_rate=4e-3, max_updates=700)
    fresh = _fresh(lines)
    assert _share(model, tokenizer, fresh, fresh, tokenizer.id_of(MASK)) >= 0.9


def test_every_family_learns_somewhere() -> None:
    """Who fills in masks learns in `test_objectives.py` and `test_mask_predict.py`, the others in their own tests."""
    assert {*TRANSLATING, *LEARNING, "bert", "mask-predict"} == set(FAMILIES) - {"span-reader", "chart-parser"}


# -- every score where a decoder looks once a layer --------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", ["bahdanau-lstm", "luong", "luong-unfed", "convs2s", "lstmn-translator"])
def test_every_score_keeps_the_laws(name: str, score: str) -> None:
    config = toy.CONFIGS[name].model_copy(update={"score": score})
    laws.test_decoding_in_any_split_equals_decoding_at_once(config)
    laws.test_padded_equals_packed_equals_alone(config)
    laws.test_the_future_is_invisible(config)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_label_that_training_never_saw_counts_as_wrong(made: Any) -> None:
    lines = ["a b", "b c", "c a"]
    found = [choices[0].text for choices in regard.classify(made("self-attentive"), lines)]
    assert measure(made("self-attentive"), lines, found, resamples=0)["accuracy"].value == 100.0
    strange = [*found[:2], "perhaps"]
    assert measure(made("self-attentive"), lines, strange, resamples=0)["accuracy"].value == pytest.approx(200 / 3)


def test_of_a_prompt_longer_than_the_context_the_end_is_read(made: Any) -> None:
    search = {"samples": 0, "beam": 1, "max_length": 4}
    end = " ".join(random.Random(7).choices(LETTERS, k=40))
    one, other = (regard.generate(made("gpt"), f"{start} {end}", search=search)[0] for start in ("a b c", "f f"))
    assert one == other
    changed = regard.generate(made("gpt"), f"{end[:-1]}{'a' if end[-1] != 'a' else 'b'}", search=search)[0]
    assert changed.log_probability != one.log_probability


def test_no_mask_a_line_too_long_and_a_vector_that_is_not_there_are_said_in_a_line(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("unmasked", f"a {MASK}\na b\n"), ("long", f"{'a ' * 40}{MASK}\n"), ("plain", "a b\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    for family, word, name, message in (
        ("bert", "fill", "unmasked", r"line 2 \('a b'\) has no <mask>"),
        ("bert", "fill", "long", "at most 32"),
        ("self-attentive", "embed", "plain", "no tensor of a vector for each position"),
        ("luong", "embed", "plain", "no tensor of a vector for each position"),
    ):
        assert main([word, str(made(family)), str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert re.search(message, said), said
        assert "Traceback" not in said
