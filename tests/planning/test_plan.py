"""A plan holds: costs are what the real model has, estimates come near the counted, what fits is found and kept, and a
batch that does not fit can be cut in two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles import ENGLISH, GERMAN
from toy import CONFIGS, make

from regard import recipe as recipes
from regard.apps.cli import main
from regard.data.batches import Batch, Batches
from regard.data.store import Stream
from regard.errors import ModelError
from regard.kernels import native
from regard.language.bert import BERTConfig
from regard.language.gpt import GPTConfig
from regard.models import FAMILIES
from regard.models.blocks import is_out_of_memory, layout_of
from regard.models.transformer import TransformerConfig
from regard.nn.layers import only_references
from regard.planning import plan as planning
from regard.planning.plan import plan
from regard.recipe import Recipe
from regard.tasks import fit as fitting
from regard.tasks.costs import MOST_TOKENS, _kept, count_costs, fitting_tokens, training_memory
from regard.tasks.fit import fit
from regard.tasks.prepare import prepare
from regard.train import OBJECTIVES, OPTIMIZERS, Step, TrainConfig, inputs
from regard.train.step import halves

# -- costs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, c in CONFIGS.items() if c.family == "transformer"])
def test_parameters_and_model_flops_are_the_formulas(name: str) -> None:
    c, v, s, t = CONFIGS[name], 23, 11, 37
    d, f, n, m = c.width, c.feedforward, c.encoder_layers, c.decoder_layers
    attention, feedforward = 4 * d * d, 2 * d * f
    adds = n * (attention + feedforward) * s + n * 2 * d * s * s  # encoder: matrices, then the two products
    if c.decoder_mixer == "ssru":
        adds += m * (2 * d * d + feedforward) * t
    else:
        adds += m * ((attention + feedforward) * t + 2 * d * t * t)  # decoder on itself
    adds += m * (2 * d * d * t + 2 * d * d * s + 2 * d * s * t)  # decoder on the memory
    adds += d * v * t
    costs = count_costs(c, v, v, bfloat16=False)
    assert float(costs.flops.of(s, t)) == pytest.approx(6 * adds, rel=1e-9)
    assert costs.flops.fixed == pytest.approx(0.0, abs=1.0)
    assert costs.parameters == sum(p.numel() for p in make(c, v).parameters())


@pytest.mark.parametrize("bfloat16", [False, True])
def test_activations_are_those_that_the_real_model_keeps(bfloat16: bool) -> None:
    config = TransformerConfig(width=32, heads=4, feedforward=64, encoder_layers=2, decoder_layers=1, dropout=0.1)
    rows, s, t = 3, 13, 29
    model: Any = make(config).train()
    if bfloat16:
        model.bfloat16()
    read, write = (torch.zeros(rows, width, dtype=torch.long) for width in (s, t))
    reading, writing = (layout_of("padded", torch.full((rows,), x.shape[1]), x.shape[1]) for x in (read, write))
    with only_references(), _kept(model) as kept:
        hidden, _ = model.decode(write, model.start(model.encode(read, reading), reading), writing)
        model.project(hidden)
    costs = count_costs(config, 20, 20, bfloat16=bfloat16)
    foreseen = costs.activations.fixed + rows * float(costs.activations.of(s, t))
    assert foreseen == pytest.approx(sum(storage.nbytes() for storage in kept.values()), rel=0.02)


def test_of_layers_that_are_computed_again_inputs_are_kept_and_one_layer_whole() -> None:
    layers = 6
    config = TransformerConfig(width=32, heads=4, feedforward=64, encoder_layers=layers, decoder_layers=layers)
    plain, again = (count_costs(config, 20, 20, bfloat16=False, again=again) for again in (False, True))
    assert float(again.flops.of(90, 90)) == float(plain.flops.of(90, 90))
    assert float(again.activations.of(90, 90)) < 0.35 * float(plain.activations.of(90, 90))
    rows = float(again.activations.of(90, 90)) - float(plain.activations.of(90, 90)) / (2 * layers)
    assert rows > 2 * layers * 90 * 32 * 4  # at least what enters each layer


def test_a_language_models_flops_are_the_formula_and_do_not_know_a_source() -> None:
    c, v, t = GPTConfig(width=16, heads=2, layers=3, feedforward=32), 23, 37
    adds = c.layers * ((4 * 16 * 16 + 2 * 16 * 32) * t + 2 * 16 * t * t) + 16 * v * t
    costs = count_costs(c, v, v, bfloat16=False, objective="language-model")
    assert float(costs.flops.of(1, t)) == pytest.approx(6 * adds, rel=1e-9)
    assert float(costs.flops.of(1, t)) == pytest.approx(float(costs.flops.of(9, t)), rel=1e-9)


def test_what_is_masked_alone_is_projected() -> None:
    c, v, s = BERTConfig(width=16, heads=2, layers=1, feedforward=32), 50, 20
    adds = (4 * 16 * 16 + 2 * 16 * 32) * s + 2 * 16 * s * s + 16 * 16 * s + 0.15 * 16 * v * s
    costs = count_costs(c, v, v, bfloat16=False, objective="masked-lm")
    assert float(costs.flops.of(s, s)) == pytest.approx(6 * adds, rel=1e-9)


def test_counting_leaves_random_numbers_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    count_costs(CONFIGS["post-sinusoidal-all"], 20, 20, bfloat16=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_largest_batch_that_fits_is_found() -> None:
    costs, config = count_costs(TransformerConfig(), 8000, 8000, bfloat16=False), TrainConfig()

    def need(tokens: int) -> int:
        return sum(training_memory(costs, config, "cpu", tokens=tokens, longest=100).values())

    tokens = fitting_tokens(costs, config, "cpu", free=4 << 30, longest=100)
    assert need(tokens) < 4 << 30
    assert need(2 * tokens) > 4 << 30
    assert fitting_tokens(costs, config, "cpu", free=6 << 30, longest=100) > tokens
    assert fitting_tokens(costs, config, "cuda", free=1 << 40, longest=100) == MOST_TOKENS
    with pytest.raises(ModelError, match=r"1\.0 GiB of memory are free .*longest pair alone .100 tokens. needs"):
        fitting_tokens(costs, config, "cpu", free=1 << 30, longest=100)


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A small model on 600 pairs that differ."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [(f"{a} {n}", f"{b} {n}") for n in range(50) for a, b in zip(ENGLISH, GERMAN, strict=True)]
    for side, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in lines), encoding="utf-8")
    return recipes.validate(
        {
            "name": "small",
            "data": {"source": str(folder / "a.en"), "target": str(folder / "a.de"), "batch_tokens": 300},
            "text": {"size": 500},
            "model": {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1},
            "train": {"max_updates": 2, "validate_every": 2, "device": "cpu"},
            "search": {"beam": 1, "extra_length": 3},
        }
    )


def test_a_plan_estimates_from_the_files_and_counts_in_the_store(recipe: Recipe, tmp_path: Path) -> None:
    out = tmp_path / "run"
    before = plan(recipe, out, measure=False)
    assert not out.exists(), "nothing is prepared"
    assert not before.exact
    assert "regard prepare" in before.notes[0]
    prepared = prepare(recipe.data, recipe.text, out)
    after = plan(recipe, out, measure=False)
    assert after.exact
    assert after.notes == ()
    assert after.pairs == len(prepared.train)
    assert after.target_tokens == int(prepared.train.target.lengths.sum()) + after.pairs
    assert after.tokens == before.tokens == (500, 500)
    for name in ("pairs", "source_tokens", "target_tokens", "batches", "flops_per_token"):
        assert getattr(before, name) == pytest.approx(getattr(after, name), rel=0.1), name
    other = recipe.model_copy(update={"text": recipe.text.model_copy(update={"size": 450})})
    assert not plan(other, out, measure=False).exact, "a store of other settings does not count"
    assert plan(recipe, out, measure=False).exact, "and was left as it was"


ONE_SIDED = [family for family, known in FAMILIES.items() if known.kind in ("language-model", "reader", "classifier")]


@pytest.mark.parametrize("family", ONE_SIDED)
def test_a_run_on_text_of_one_side_or_labels_is_planned_and_its_batches_found(family: str, tmp_path: Path) -> None:
    data = {"labels": "first"} if FAMILIES[family].kind == "classifier" else {"context": 16} if family == "gpt" else {}
    model = {**FAMILIES[family].small, **({"max_positions": 64} if "max_positions" in FAMILIES[family].small else {})}
    lines = [
        f"{('yes' if 'man' in line else 'no') if data.get('labels') else ''} {line} {n}"
        for n in range(20)
        for line in ENGLISH
    ]
    (tmp_path / "train").write_text("".join(line.strip() + "\n" for line in lines), encoding="utf-8")
    (tmp_path / "valid").write_text("".join(line.strip() + "\n" for line in lines[:20]), encoding="utf-8")
    file, valid = str(tmp_path / "train"), str(tmp_path / "valid")
    named = {"source": file} if data.get("labels") else {"text": file, "valid_text": valid}
    recipe = recipes.validate(
        {
            "data": {**named, **data, "batch_tokens": 0},
            "text": {"size": 420, **({"target_kind": "words", "joint": False} if data.get("labels") else {})},
            "model": {"family": family, **model},
            "train": {"max_updates": 2, "precision": "float32", "device": "cpu"},
        }
    )
    found = plan(recipe, tmp_path / "run", measure=False)
    prepared = prepare(recipe.corpus, recipe.spelling, tmp_path)
    sizes = len(prepared.source_tokenizer), len(prepared.target_tokenizer)
    built = FAMILIES[family].build(recipe.model, *sizes)
    assert found.chosen
    assert found.tokens == sizes
    assert found.parameters == sum(p.numel() for p in built.parameters())
    assert found.batch_tokens == fitting._fitting(recipe, prepared, torch.device("cpu")) == MOST_TOKENS
    few = recipe.model_copy(update={"data": recipe.data.model_copy(update={"batch_tokens": 300})})
    counted = plan(few, tmp_path / "run", measure=False)
    view = OBJECTIVES[recipe.objective].view(prepared.target_tokenizer)
    batches = Batches(prepared.train, batch_tokens=300, layout="packed", stream=Stream(recipe.data.context), view=view)
    assert counted.batches == pytest.approx(len(list(batches.one_epoch())), rel=0.15)
    assert counted.flops_per_token > 0


def test_batches_and_flops_of_a_plan_are_the_epochs(recipe: Recipe, tmp_path: Path) -> None:
    found = plan(recipe, tmp_path, measure=False)
    prepared = prepare(recipe.data, recipe.text, tmp_path)
    batches = list(Batches(prepared.train, batch_tokens=300, layout=recipe.data.layout).one_epoch(sort=True))
    assert found.batches == pytest.approx(len(batches), rel=0.1)
    costs = count_costs(recipe.model, 500, 500, bfloat16=False)
    flops = sum(float(costs.flops.of(b.source_lengths, b.target_lengths).sum()) for b in batches)
    assert found.flops_per_token == pytest.approx(flops / sum(b.target_tokens for b in batches), rel=0.1)
    assert found.flops == pytest.approx(found.flops_per_token * found.target_tokens * found.epochs, rel=0.05)


def test_what_is_computed_twice_costs_twice(recipe: Recipe, tmp_path: Path) -> None:
    once, word, twice = (
        plan(
            recipes.changed(recipe, {"train": {"regularizers": {name: strength}}}, name="a test"),
            tmp_path,
            measure=False,
        )
        for name, strength in (("r-drop", 0.0), ("word-dropout", 0.1), ("r-drop", 1.0))
    )
    assert word.flops == once.flops
    assert twice.flops == pytest.approx(2 * once.flops)
    assert twice.gpus[0].seconds >= once.gpus[0].seconds


def test_a_few_steps_tell_the_time(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_SECONDS", 0.05)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    found = plan(recipe, tmp_path / "run", measure=True)
    assert found.measured is not None
    assert found.measured.tokens_per_second > 0
    assert found.measured.batch_tokens == 300
    assert found.measured.seconds == pytest.approx(
        found.target_tokens * found.epochs / found.measured.tokens_per_second, rel=0.05
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_fit_is_still_planned(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "free_memory", lambda device: 1 << 20)
    found = plan(recipe, tmp_path / "run")
    assert not found.fits
    assert found.measured is None
    assert "no time was measured: no batch fits: 0.0 GiB" in found.notes[-1]


def test_a_plan_is_told_to_people_and_to_programs(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(recipes.to_toml(recipe), encoding="utf-8")
    assert main(["plan", "small.toml", "--no-measure"]) == 0
    shown = capsys.readouterr().out
    assert "the run fits" in shown
    assert "A100 80 GB" in shown
    assert "estimated from data sheets" in shown
    assert main(["plan", "small.toml", "--no-measure", "--json", "--set", "data.batch_tokens=0"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["chosen"]
    assert told["batch_tokens"] == MOST_TOKENS
    assert main(["plan", "small.toml", "--no-measure", "--set", "train.device=nowhere"]) == 2
    assert 'train.device = "nowhere"' in capsys.readouterr().err
    assert main(["plan", "small.toml", "--set", "data.source=gone"]) == 2
    assert "gone" in capsys.readouterr().err


def test_batches_as_large_as_fit_stay_so_when_resumed(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"batch_tokens": 0})})
    monkeypatch.setattr(fitting, "free_memory", lambda device: 540 << 20)
    events: list[dict[str, Any]] = []
    fit(open_recipe, tmp_path, callbacks=[events.append])
    chosen = next(e["tokens"] for e in events if e["event"] == "batch")
    assert 300 < chosen < MOST_TOKENS
    assert recipes.load(tmp_path / "recipe.toml").data.batch_tokens == chosen
    monkeypatch.setattr(fitting, "free_memory", lambda device: 1 << 40)
    fit(open_recipe, tmp_path, resume=True, callbacks=[events.append])
    assert recipes.load(tmp_path / "recipe.toml").data.batch_tokens == chosen
    assert sum(e["event"] == "batch" for e in events) == 1


def test_the_precision_that_was_quickest_stays_when_resumed(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = recipe.model_copy(update={"train": recipe.train.model_copy(update={"precision": "auto", "device": "cpu"})})
    events: list[dict[str, Any]] = []
    for quick in ("bfloat16", "float32"):
        took = {kind: 1.0 + (kind != quick) for kind in ("float32", "bfloat16")}
        monkeypatch.setattr(native, "map_seconds", lambda width, took=took: took)
        fit(auto, tmp_path, resume=quick == "float32", callbacks=[events.append])
        assert recipes.load(tmp_path / "recipe.toml").train.precision == "bfloat16"
    [chosen] = [event for event in events if event["event"] == "precision"]
    assert chosen["chosen"] == "bfloat16"
    assert "1000.00 ms in bfloat16" in chosen["because"]


# -- a batch that does not fit -----------------------------------------------------------------------------------------


def test_out_of_memory_is_recognised() -> None:
    with pytest.raises(RuntimeError) as found:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(found.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(KeyError("out of memory"))


def _batch(layout: str, lengths: list[tuple[int, int]]) -> Batch:
    """Random ids for sequences of these source and target lengths."""
    ids = np.random.default_rng(1)
    sides = [[ids.integers(4, 20, size=pair[side]) for pair in lengths] for side in (0, 1, 1)]

    def laid(rows: list[Any]) -> Any:
        if layout == "packed":
            return np.concatenate(rows)
        width = max(map(len, rows))
        return np.stack([np.pad(row, (0, width - len(row))) for row in rows])

    source, target = np.array(lengths).T
    return Batch(np.arange(len(lengths)), laid(sides[0]), source, laid(sides[1]), laid(sides[2]), target, layout)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_halves_add_up_to_the_whole(layout: str) -> None:
    whole = _batch(layout, [(7, 3), (5, 9), (2, 2), (11, 4), (1, 1)])
    model = make(CONFIGS["post-sinusoidal-all"], dtype=torch.float64).train()
    step = Step(model, 0.1, 4)

    def run(batches: list[Batch]) -> tuple[float, list[torch.Tensor]]:
        model.zero_grad(set_to_none=True)
        losses = [step(inputs(batch, torch.device("cpu"))) for batch in batches]
        for loss in losses:
            loss.backward()
        return sum(loss.item() for loss in losses), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    parts = list(halves(whole))
    assert [len(part) for part in parts] == [3, 2]
    assert sum(part.target_tokens for part in parts) == whole.target_tokens
    if layout == "padded":
        assert parts[0].source.shape == (3, 7), "no wider than its own longest row"
    (loss, gradients), (again, summed) = run([whole]), run(parts)
    assert again == pytest.approx(loss, rel=1e-12)
    for one, other in zip(gradients, summed, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-10)
    quarters = [token for part in parts for token in halves(part)]
    assert np.concatenate([token.lines for token in quarters]).tolist() == whole.lines.tolist()


def test_a_single_pair_cannot_be_cut() -> None:
    with pytest.raises(ModelError, match=r"one pair of 40 source and 30 target tokens .*data\.filters\.max_length"):
        halves(_batch("padded", [(40, 30)]))


def test_memory_counts_the_state_of_the_optimiser_that_is_named() -> None:
    costs = count_costs(TransformerConfig(width=16, heads=2, feedforward=16), 20, 20, bfloat16=False)
    for name, entry in OPTIMIZERS.items():
        memory = training_memory(costs, TrainConfig(optimizer=name), "cpu", tokens=50, longest=10)
        assert memory["optimiser state"] == round(entry.state * memory["weights"])
