"""Objectives beside translation: their batches and their laws, and that a model learns a toy task of each kind."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy

import regard
from regard import bundle as bundles
from regard import recipe as recipes
from regard.data.batches import Batch, Batches, key_of
from regard.data.store import Store, Stream, Windows, fingerprint
from regard.data.views import Label, Masks, SpanCorruption
from regard.errors import DataError, ModelError, TextError
from regard.inspection.inspect import inspect
from regard.language.bert import BERTClassifierConfig, BERTConfig
from regard.language.generate import stream
from regard.language.gpt import GPTConfig
from regard.language.measure import measure
from regard.models.transformer import TransformerConfig
from regard.settings import Filters
from regard.tasks.fit import fit
from regard.text import BEGIN, END, GAPS, MASK, Tokenizer, write_lines
from regard.train import OBJECTIVES, Interrupted, Options, Step, TrainConfig, Trainer, inputs

SMALL = {"width": 16, "heads": 2, "feedforward": 32, "layers": 2, "dropout": 0.0, "max_positions": 32}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c d e f g h i j yes no"], size=100, kind="words", symbols=[MASK, *GAPS])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Store:
    """120 lines of 0 to 12 words, of one side."""
    draw = random.Random(3)
    lines = [" ".join(draw.choices("abcdefghij", k=draw.randint(0, 12))) for _ in range(120)]
    keep = Filters(drop_empty=False, max_ratio=1e9)
    path = tmp_path_factory.mktemp("text") / "store"
    return Store.build(path, (("", line) for line in lines), tokenizer, tokenizer, keep, fingerprint("text"))


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Store:
    """200 lines, and whether there is an "a" in them."""
    draw = random.Random(4)
    lines = [" ".join(draw.choices("abcdefghij", k=draw.randint(1, 8))) for _ in range(200)]
    pairs = ((line, "yes" if "a" in line else "no") for line in lines)
    path = tmp_path_factory.mktemp("labelled") / "store"
    return Store.build(path, pairs, tokenizer, tokenizer, Filters(), fingerprint("labelled"))


def _epoch(batches: Batches) -> list[Batch]:
    epoch, found = batches.epoch, []
    while batches.epoch == epoch:
        found.append(next(batches))
    return found


def _from(epoch: int, batches: Batches) -> Batches:
    batches.seek({"epoch": epoch, "pool": 0, "batch": 0})
    return batches


def _rows(ids: Any, batch: Batch, lengths: Any) -> list[list[int]]:
    if batch.layout == "padded":
        return [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("size", [1, 7, 64, 5000])
def test_a_stream_is_cut_into_windows_and_each_token_predicted_once(text: Store, layout: Any, size: int) -> None:
    whole = [i for line in range(len(text)) for i in (*text.target.line_ids(line).tolist(), END)]
    batches = Batches(text, batch_tokens=150, layout=layout, seed=2, pool=40, stream=Stream(size))
    orders = []
    for _ in range(2):
        windows: dict[int, tuple[list[int], list[int]]] = {}
        for batch in _epoch(batches):
            read = _rows(batch.target_input, batch, batch.target_lengths)
            follow = _rows(batch.target_output, batch, batch.target_lengths)
            windows |= dict(zip(batch.lines.tolist(), zip(read, follow, strict=True), strict=True))
        assert sorted(windows) == list(range(-(-len(whole) // size)))
        before = [i for number in sorted(windows) for i in windows[number][0]]
        after = [i for number in sorted(windows) for i in windows[number][1]]
        assert before == [after[-1], *after[:-1]], "each token is read where the one behind it is predicted"
        offset = next(o for o in range(len(whole)) if whole[o:] + whole[:o] == after)
        orders.append((offset, list(windows)))
    assert orders[0] != orders[1], "another epoch is cut elsewhere"
    in_order = list(Batches(text, batch_tokens=150, layout=layout, stream=Stream(size)).one_epoch(sort=True))
    assert sum(b.target_tokens for b in in_order) == len(whole)
    again = Batches(text, batch_tokens=150, layout=layout, seed=2, pool=40, stream=Stream(size))
    again.seek(batches.position())
    assert np.array_equal(next(again).target_output, next(batches).target_output)


def test_a_window_reads_any_place_of_the_ring(text: Store) -> None:
    windows = Windows(text.target, 10)
    whole = [i for line in range(len(text)) for i in (*text.target.line_ids(line).tolist(), END)]
    assert windows.tokens == len(whole)
    for offset in (0, 1, len(whole) - 3):
        found = windows.read(np.array([0, len(windows) - 1]), offset)
        ring = [whole[(offset - 1 + i) % len(whole)] for i in range(11)]
        assert found[:11].tolist() == ring


# -- views -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_masks_hide_their_share_and_do_not_depend_on_the_batch(text: Store, tokenizer: Tokenizer, layout: Any) -> None:
    view = OBJECTIVES["masked-lm"].view(tokenizer)
    mask = tokenizer.id_of(MASK)
    assert isinstance(view, Masks)
    assert view.mask == mask
    found: list[dict[int, tuple[list[int], list[int]]]] = []
    fates: Counter[str] = Counter()
    for tokens, epoch in ((60, 0), (400, 0), (60, 1)):
        rows: dict[int, tuple[list[int], list[int]]] = {}
        for batch in _epoch(_from(epoch, Batches(text, batch_tokens=tokens, layout=layout, seed=5, view=view))):
            read = _rows(batch.source, batch, batch.source_lengths)
            sought = _rows(batch.target_output, batch, batch.target_lengths)
            assert batch.target_tokens == sum(i >= 0 for row in sought for i in row)
            rows |= dict(zip(batch.lines.tolist(), zip(read, sought, strict=True), strict=True))
        found.append(rows)
    for line, (read, sought) in found[0].items():
        ids = [*text.target.line_ids(line).tolist(), END]
        wanted = 0 if len(ids) == 1 else max(1, round(0.15 * (len(ids) - 1)))
        assert sum(i >= 0 for i in sought) == wanted
        assert read[-1] == END
        assert sought[-1] == -1
        for i, r, s in zip(ids, read, sought, strict=True):
            assert s in (-1, i)
            assert s == i or r == i
            if s == i:
                fates["mask" if r == mask else "same" if r == i else "other"] += 1
    assert found[0] == found[1], "the same in any batch"
    assert found[0] != found[2], "new every epoch"
    assert fates["mask"] > 0.6 * fates.total()
    assert fates["same"]
    assert fates["other"]


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_what_fell_into_gaps_can_be_put_back(text: Store, tokenizer: Tokenizer, layout: Any) -> None:
    view = OBJECTIVES["denoise"].view(tokenizer)
    assert isinstance(view, SpanCorruption)
    assert len(view.marks) == len(GAPS)
    found: list[dict[int, list[int]]] = []
    for tokens in (60, 400):
        rows = {}
        for batch in _epoch(Batches(text, batch_tokens=tokens, layout=layout, seed=5, view=view)):
            sources = _rows(batch.source, batch, batch.source_lengths)
            targets = _rows(batch.target_output, batch, batch.target_lengths)
            for line, source, target in zip(batch.lines.tolist(), sources, targets, strict=True):
                ids = text.target.line_ids(line).tolist()
                assert source[-1] == target[-1] == END
                fallen = {
                    mark: target[target.index(mark) + 1 : target.index(following)]
                    for mark, following in zip(
                        *(lambda m: (m, [*m[1:], END]))([i for i in target if i in view.marks]), strict=True
                    )
                }
                mended = [i for token in source[:-1] for i in fallen.get(token, [token])]
                assert mended == ids
                lost = sum(map(len, fallen.values()))
                assert lost == (max(1, round(0.15 * len(ids))) if ids else 0)
                rows[line] = source
        found.append(rows)
    assert found[0] == found[1]


def test_a_short_line_may_fall_into_a_gap_anywhere() -> None:
    """Were something kept before every gap and nothing behind the last, it would always be the end that falls in."""
    gaps, ids, mark = SpanCorruption(marks=(99,)), np.arange(10), 99
    sources = [gaps._corrupted(ids, key_of(0, line))[0] for line in range(1000)]
    places = Counter(source.index(mark) for source in sources)
    assert set(places) == set(range(9))
    assert min(places.values()) > 70, places


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_label_is_the_only_target(labelled: Store, tokenizer: Tokenizer, layout: Any) -> None:
    yes, no = (tokenizer.encode(word)[0] for word in ("yes", "no"))
    for batch in _epoch(Batches(labelled, batch_tokens=90, layout=layout, view=Label())):
        wanted = [yes if "a" in labelled.source.text(line) else no for line in batch.lines.tolist()]
        assert batch.target_output.flatten().tolist() == wanted
        assert batch.target_tokens == len(batch)


# -- laws of the models ------------------------------------------------------------------------------------------------

WRITERS = {
    f"{norm}-{positions}": GPTConfig(**SMALL, norm=norm, positions=positions)
    for norm, positions in (("pre", "learned"), ("post", "sinusoidal"), ("pre", "none"))
}
WRITERS["modern"] = GPTConfig(**SMALL, positions="rotary", norm_kind="rms", activation="swiglu", key_value_heads=1)
WRITERS["relative"] = GPTConfig(**SMALL, positions="shaw")
READERS = {
    "bert": BERTConfig(**SMALL),
    "bert-post": BERTConfig(**SMALL, norm="post", positions="sinusoidal"),
    "relative": BERTConfig(**SMALL, positions="t5"),
    "end": BERTClassifierConfig(**SMALL, head_dropout=0.0),
    "mean": BERTClassifierConfig(**SMALL, head_dropout=0.0, pool="mean"),
}


@pytest.mark.parametrize("config", WRITERS.values(), ids=WRITERS)
def test_a_language_model_in_tokens_is_the_whole_and_sees_no_future(config: GPTConfig) -> None:
    model: Any = toy.make(config, dtype=torch.float64)  # type: ignore[arg-type]
    tokens = torch.randint(4, 20, (3, 7), generator=torch.Generator().manual_seed(5))
    whole, _ = model.decode(tokens, model.start())
    for capacity in (None, 7, 20):
        for split in ([1] * 7, [3, 4], [1, 5, 1]):
            state, parts = model.start(capacity), []
            for part in tokens.split(split, dim=1):
                hidden, state = model.decode(part, state)
                parts.append(hidden)
            torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-10, atol=1e-10)
    rows = torch.tensor([2, 0, 0])
    _, state = model.decode(tokens[:, :4], model.start())
    last, _ = model.decode(tokens[rows, 4:], state.select(rows))
    torch.testing.assert_close(last, whole[rows, 4:], rtol=1e-10, atol=1e-10)
    changed = tokens.clone()
    changed[:, 4:] = 19
    other, _ = model.decode(changed, model.start())
    torch.testing.assert_close(other[:, :4], whole[:, :4], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(other[:, 4:], whole[:, 4:])


@pytest.mark.parametrize("config", [*WRITERS.values(), *READERS.values()], ids=[*WRITERS, *READERS])
def test_padding_and_neighbours_are_invisible(config: Any) -> None:
    model: Any = toy.make(config, dtype=torch.float64)

    def run(ids: Any, layout: Any) -> Any:
        if hasattr(model, "classify"):
            return model.project(model.classify(ids, layout))
        return model.project(
            model.encode(ids, layout) if hasattr(model, "encode") else model.decode(ids, model.start(), layout)[0]
        )

    rectangle, pack = run(*toy.padded(toy.SOURCES)), run(*toy.packed(toy.SOURCES))
    packs = pack.split([len(row) for row in toy.SOURCES]) if rectangle.dim() == 3 else pack
    for i, row in enumerate(toy.SOURCES):
        alone = run(*toy.padded([row]))[0]
        torch.testing.assert_close(rectangle[i][: len(row)] if rectangle.dim() == 3 else rectangle[i], alone)
        torch.testing.assert_close(packs[i], alone)


def test_a_reader_sees_both_ways() -> None:
    model: Any = toy.make(READERS["bert"], dtype=torch.float64)  # type: ignore[arg-type]
    one, other = (model.encode(*toy.padded([[5, 6, 7, last, END]])) for last in (8, 9))
    assert not torch.allclose(one[:, 0], other[:, 0])


# -- training ----------------------------------------------------------------------------------------------------------

CONFIGS: dict[str, Any] = {
    "language-model": GPTConfig(**{**SMALL, "dropout": 0.1}),
    "masked-lm": BERTConfig(**{**SMALL, "dropout": 0.1}),
    "classify": BERTClassifierConfig(**{**SMALL, "dropout": 0.1}),
    "denoise": TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1),
}


def _batches(objective: str, text: Store, labelled: Store, tokenizer: Tokenizer, layout: Any = "packed") -> Batches:
    context = 8 if objective == "language-model" else 0
    store = labelled if objective == "classify" else text
    view = OBJECTIVES[objective].view(tokenizer)
    return Batches(store, batch_tokens=120, layout=layout, seed=3, stream=Stream(context), view=view)


@pytest.mark.parametrize("objective", CONFIGS)
def test_the_loss_is_the_same_padded_and_packed(
    objective: str, text: Store, labelled: Store, tokenizer: Tokenizer
) -> None:
    config = CONFIGS[objective].model_copy(update={"dropout": 0.0, "head_dropout": 0.0})
    model = toy.make(config, vocabulary=len(tokenizer), dtype=torch.float64)
    step = Step(model, 0.0, 50, objective=OBJECTIVES[objective])
    totals = []
    for layout in ("padded", "packed"):
        found = list(_batches(objective, text, labelled, tokenizer, layout).one_epoch())
        loss = torch.stack([step(inputs(batch, CPU)) for batch in found]).sum()
        totals.append((float(loss.detach()), sum(batch.target_tokens for batch in found)))
    assert totals[0][1] == totals[1][1]
    assert totals[0][0] == pytest.approx(totals[1][0], rel=1e-9)


@pytest.mark.parametrize("objective", CONFIGS)
def test_resuming_is_exact(objective: str, text: Store, labelled: Store, tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = TrainConfig(max_updates=6, save_every=100, log_every=1, precision="float32", average="none", warmup=2)

    def trainer(out: Path, stop_after: int = 0) -> Trainer:
        def hear(event: dict[str, Any]) -> None:
            made.stop = event["update"] == stop_after

        model = toy.make(CONFIGS[objective], vocabulary=len(tokenizer))
        batches = _batches(objective, text, labelled, tokenizer)
        aim = OBJECTIVES[objective]
        made = Trainer(model, batches, config, out, seed=1, width=16, objective=aim, options=Options(report=hear))
        return made

    whole = trainer(tmp_path / "whole")
    whole.run()
    with pytest.raises(Interrupted):
        trainer(tmp_path / "cut", stop_after=3).run()
    again = trainer(tmp_path / "cut")
    assert again.resume() is not None
    again.run()
    for name, value in whole.parameters.items():
        assert torch.equal(value, again.parameters[name]), name


def _learnt(out: Path, tables: dict[str, Any]) -> Path:
    common = {"schedule": "constant", "warmup": 20, "average": "none", "label_smoothing": 0.0, "precision": "float32"}
    often = {"validate_every": 1000, "save_every": 1000}
    recipe = recipes.validate({**tables, "train": {**common, **often, **tables["train"]}})
    assert recipes.parse(recipes.to_toml(recipe)) == recipe
    return fit(recipe, out)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines that count from a digit to 9, as a stream: 6 7 8 9."""
    folder = tmp_path_factory.mktemp("writer")
    lines = [" ".join(map(str, range(start, 10))) for start in random.Random(2).choices(range(8), k=120)]
    write_lines(folder / "train", lines)
    write_lines(folder / "valid", lines[:10])
    data = {"text": str(folder / "train"), "valid_text": str(folder / "valid"), "context": 18, "batch_tokens": 360}
    return _learnt(
        folder / "run",
        {
            "data": data,
            "text": {"kind": "words"},
            "model": {"family": "gpt", "width": 32, "heads": 2, "layers": 2, "dropout": 0.0, "max_positions": 18},
            "train": {"max_updates": 120, "learning_rate": 5e-3},
            "search": {"beam": 1},
        },
    )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines that say one letter all through."""
    folder = tmp_path_factory.mktemp("reader")
    write_lines(folder / "train", [" ".join(letter * n) for letter in "abcdef" for n in range(3, 9) for _ in range(6)])
    return _learnt(
        folder / "run",
        {
            "data": {"text": str(folder / "train"), "valid_lines": 4, "batch_tokens": 300},
            "text": {"kind": "words"},
            "model": {"family": "bert", "width": 32, "heads": 2, "layers": 1, "dropout": 0.0, "max_positions": 32},
            "train": {"max_updates": 120, "learning_rate": 5e-3},
        },
    )


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whether there is an "a" in a line, as lines "label text"."""
    folder = tmp_path_factory.mktemp("classifier")
    draw = random.Random(4)
    lines = [" ".join(draw.choices("abcd", k=draw.randint(1, 6))) for _ in range(239)]
    lines.append("d " * 29 + "d")  # labels are short, and no line is too long for one
    write_lines(folder / "train", [f"{'yes' if 'a' in line else 'no'} {line}" for line in lines])
    write_lines(folder / "test", [f"{'yes' if 'a' in line else 'no'} {line}" for line in lines[:20]])
    return _learnt(
        folder / "run",
        {
            "data": {
                "source": str(folder / "train"),
                "labels": "first",
                "valid_lines": 20,
                "batch_tokens": 300,
                "test": {"same": {"text": str(folder / "test")}},
            },
            "text": {"kind": "words", "target_kind": "words", "joint": False},
            "model": {
                **{"family": "bert-classifier", "width": 32, "heads": 2, "layers": 1, "dropout": 0.0},
                **{"head_dropout": 0.0, "max_positions": 32, "pool": "mean"},
            },
            "train": {"max_updates": 150, "learning_rate": 5e-3, "validate_with": "accuracy", "keep": "best"},
        },
    )


def test_a_language_model_learns_to_count_and_goes_on(writer: Path) -> None:
    greedy = {"samples": 0, "beam": 1, "max_length": 25}
    (found,) = regard.generate(writer, "2 3 4", search=greedy)
    first, *_ = found.text.split("\n")
    assert first.split() == ["5", "6", "7", "8", "9"]
    assert len(found.ids) == 25, "a stream goes on over the end of a line, and out of its context"
    assert not found.ended
    assert all(line.split() == [*map(str, range(int(line[0]), 10))] for line in found.text.split("\n")[1:-1])
    assert "".join(stream(writer, "2 3 4", search=greedy)) == found.text
    drawn = {"samples": 3, "seed": 7, "max_length": 9}
    several = regard.generate(writer, "7 8", search=drawn)
    assert len(several) == 3
    assert several == regard.generate(writer, "7 8", search=drawn)
    best, *others = regard.generate(writer, "1 2", search={"beam": 3, "max_length": 9})
    assert best.text.split() == ["3", "4", "5", "6", "7", "8", "9"]
    assert best.ended
    assert all(best.log_probability >= other.log_probability for other in others)


def test_perplexity_is_per_token_word_and_character(writer: Path, tmp_path: Path) -> None:
    lines = ["2 3 4 5 6 7 8 9", "7 8 9"]
    found = regard.perplexities(writer, lines)
    assert [found[unit].detail["count"] for unit in ("token", "word", "character")] == [13, 13, 22]
    assert found["word"].value < 2.0
    nats = {unit: score.detail["nats"] * score.detail["count"] for unit, score in found.items()}
    assert nats["token"] == pytest.approx(nats["character"])
    assert regard.perplexities(writer, lines, stride=3)["token"].detail["count"] == 13
    one_by_one = regard.perplexities(writer, lines, batch_size=1)["token"].value
    assert one_by_one == pytest.approx(found["token"].value, rel=1e-12)
    with pytest.raises(ModelError, match="stride is 19"):
        regard.perplexities(writer, lines, stride=19)
    with pytest.raises(ModelError, match="one side only"):
        regard.perplexities(writer, lines, lines)


def test_a_reader_learns_to_fill_in(reader: Path) -> None:
    ((choices,),) = regard.fill(reader, [f"c c {MASK} c"])
    assert choices[0].text == "c"
    assert choices[0].probability > 0.9
    assert len(choices) == 5
    several = regard.fill(reader, [f"b {MASK} b {MASK} b", f"f f {MASK}"], top=1)
    assert [[c[0].text for c in line] for line in several] == [["b", "b"], ["f"]]
    assert regard.perplexities(reader, ["d d d d"])["token"].value < 1.2
    with pytest.raises(TextError, match=r"line 2 \('no mask'\) has no <mask>"):
        regard.fill(reader, [MASK, "no mask"])
    with pytest.raises(TextError, match=r"41 tokens .* at most 32"):
        regard.fill(reader, ["a " * 39 + MASK])


def test_a_classifier_learns_its_labels(classifier: Path) -> None:
    filters = bundles.load(classifier).provenance.data["filters"]
    assert filters["kept"] == filters["read"]
    found = regard.classify(classifier, ["b c a", "d d b", "a"])
    assert [choices[0].text for choices in found] == ["yes", "no", "yes"]
    for choices in found:
        assert {choice.text for choice in choices} == {"yes", "no"}
        assert sum(choice.probability for choice in choices) == pytest.approx(1.0)
    (alone,) = regard.classify(classifier, ["d d b"])
    assert alone[0].probability == pytest.approx(found[1][0].probability, rel=1e-12)
    score = measure(classifier, ["b a", "c d"], ["yes", "no"], resamples=0)["accuracy"]
    assert score.value == 100.0
    recorded = bundles.load(classifier).provenance.scores
    assert [entry["set"] for entry in recorded] == ["dev", "same"]
    assert recorded[1]["scores"]["accuracy"]["value"] == 100.0
    with pytest.raises(TextError, match="2 lines but 1 labels"):
        measure(classifier, ["a", "b"], ["yes"])


def test_lines_are_vectors_whatever_the_neighbours(writer: Path, reader: Path, classifier: Path) -> None:
    for path, lines in ((writer, ["1 2 3", "4"]), (reader, ["a a a", "b"]), (classifier, ["a b", "c c c"])):
        for pool in ("mean", "end"):
            found = regard.embed(path, lines, pool=pool)
            assert found.shape == (2, 32)
            assert found.dtype == np.float32
            np.testing.assert_allclose(regard.embed(path, lines[1:], pool=pool)[0], found[1], rtol=1e-6)
        assert regard.embed(path, []).shape == (0, 32)
    with pytest.raises(ModelError, match="mean"):
        regard.embed(reader, ["a"], pool="best")


def test_bundles_keep_their_golden_answers(writer: Path, reader: Path, classifier: Path) -> None:
    for path in (writer, reader, classifier):
        found = inspect(path, again=True)
        assert found.verified
        assert found.golden
        assert all(output for _, output in found.golden)


def test_a_bundle_of_another_kind_is_refused_by_what_it_is_for(writer: Path, reader: Path, classifier: Path) -> None:
    for use, path, message in (
        (regard.load, writer, "is a language model; use `regard generate`"),
        (lambda p: regard.generate(p), reader, "is a masked language model; use `regard fill`"),
        (lambda p: regard.fill(p, [MASK]), classifier, "is a classifier; use `regard classify`"),
    ):
        with pytest.raises(ModelError, match=message):
            use(path)


def test_a_classifier_begins_with_what_a_reader_has_learnt(reader: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    lines = [" ".join(draw.choices("abcdef", k=draw.randint(1, 6))) for _ in range(60)]
    write_lines(tmp_path / "train", [f"{'yes' if 'a' in line else 'no'} {line}" for line in lines])
    sizes = {"family": "bert-classifier", "width": 32, "heads": 2, "layers": 1, "max_positions": 32}
    tables: dict[str, Any] = {
        "data": {"source": str(tmp_path / "train"), "labels": "first", "valid_lines": 6, "batch_tokens": 300},
        "text": {"target_kind": "words", "joint": False},
        "model": sizes,
        "train": {
            "max_updates": 1,
            "learning_rate": 1e-9,
            "schedule": "constant",
            "average": "none",
            "start_from": str(reader),
        },
    }
    heard: list[dict[str, Any]] = []
    made = bundles.load(fit(recipes.validate(tables), tmp_path / "run", callbacks=[heard.append]))
    (begun,) = (event for event in heard if event["event"] == "begin")
    assert begun["new"] == ["pooler.weight", "pooler.bias", "output.weight", "output.bias"]
    before = bundles.load(reader)
    assert made.source.digest == before.source.digest
    old, new = (dict(bundle.model().named_parameters()) for bundle in (before, made))
    for name in ("body.embedding.table.weight", "body.layers.0.attention.query.weight"):
        torch.testing.assert_close(new[name], old[name])
    other = recipes.validate({**tables, "model": {**sizes, "width": 64, "max_positions": 64}})
    with pytest.raises(ModelError, match="no parameter of this bundle has a name and shape"):
        fit(other, tmp_path / "other")


def test_a_label_of_several_tokens_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "train", [f"label{n % 3} a b c {n}" for n in range(60)])
    recipe = recipes.validate(
        {
            "data": {"source": str(tmp_path / "train"), "labels": "first"},
            "text": {"size": 300, "shrink": True, "split_digits": True},
            "model": {"family": "bert-classifier", "width": 16, "heads": 2, "layers": 1},
        }
    )
    with pytest.raises(DataError, match=r'set text\.target_kind = "words"'):
        fit(recipe, tmp_path / "run")


def test_text_begins_after_begin_or_in_a_stream_after_an_end(text: Store) -> None:
    lines = next(Batches(text, batch_tokens=100, layout="padded").one_epoch())
    assert set(lines.target_input[:, 0].tolist()) == {BEGIN}
    window = next(Batches(text, batch_tokens=100, layout="padded", stream=Stream(9)).one_epoch())
    assert window.target_input[0, 0] == END
    assert replace(window).target_tokens == window.target_lengths.sum()


def test_what_mends_gaps_is_used_as_what_translates(tmp_path: Path) -> None:
    draw = random.Random(6)
    write_lines(tmp_path / "text", [" ".join(draw.choices("abcdef", k=draw.randint(3, 9))) for _ in range(60)])
    recipe = recipes.validate(
        {
            "data": {"text": str(tmp_path / "text"), "valid_lines": 5, "batch_tokens": 200},
            "text": {"kind": "words"},
            "model": {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
            "train": {"max_updates": 2, "average": "none"},
            "search": {"beam": 1, "extra_length": 2},
        }
    )
    assert recipe.objective == "denoise"
    path = fit(recipe, tmp_path / "run")
    assert inspect(path, again=True).verified
    (found,) = regard.load(path).translate([f"a {GAPS[0]} c d"])
    assert GAPS[0] in "".join(found.source_tokens)
