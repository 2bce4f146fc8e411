"""The benchmarks' own arithmetic, and what they say to a mistake; their measurements are not run here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

PLACE = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = [path.stem for folder in (PLACE, PLACE / "peers") for path in folder.glob("*.py")]
SHAPE = {"layers": 2, "width": 8, "feedforward": 12, "heads": 2, "dropout": 0.0, "smoothing": 0.1, "vocabulary": 20}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    """As when a script is run: its folder is where it imports from; forgotten afterwards."""
    for folder in (PLACE, PLACE / "peers"):
        monkeypatch.syspath_prepend(folder)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_operations_of_a_step_are_those_that_pytorch_counts():
    from batched_products import Plain
    from flops import step_flops

    rows, s, t = 3, 5, 7
    model = Plain(SHAPE)
    with FlopCounterMode(display=False) as counter:
        logits = model(torch.randint(4, 20, (rows, s)), torch.randint(4, 20, (rows, t)))
        F.cross_entropy(logits.flatten(0, 1), torch.randint(4, 20, (rows * t,))).backward()
    assert step_flops(SHAPE, [(s, t)] * rows) == counter.get_total_flops()


def test_the_operations_worked_out_by_hand():
    from flops import step_flops

    # One layer of width 2 and feed-forward 3, vocabulary 5; 2 source tokens, 1 target token.
    source = 2 * (4 * 4 + 2 * 2 * 3 + 2 * 4)
    target = 1 * (4 * 4 + 2 * 4 + 2 * 2 * 3 + 2 * 5)
    attention = 2 * 2 * (2 * 2 + 1 * 1 + 2 * 1)
    shape = {"layers": 1, "width": 2, "feedforward": 3, "vocabulary": 5}
    assert step_flops(shape, [(2, 1)]) == 6 * (source + target + attention)


def test_regard_and_its_peers_count_the_same_tokens(tmp_path):
    import loop
    import regard_trainer
    from workers import save_batches, synthetic

    [(source, target)] = synthetic(1, 3, 6, 50)
    target[1, 4], target[1, 5:] = loop.END, loop.PAD  # a shorter row
    save_batches(tmp_path / "batches.npz", [(source, target)])
    peers = loop._batch(source, target)
    own = next(regard_trainer.Given(str(tmp_path / "batches.npz")))
    assert peers.tokens == own.target_tokens == 6 + 4 + 6
    assert peers.source_lengths.tolist() == own.source_lengths.tolist() == [6, 6, 6]
    for theirs, ours in ((peers.target_output, own.target_output), (peers.target_input, own.target_input)):
        assert np.array_equal(theirs[peers.target_output != loop.PAD].numpy(), ours)
    starts = [0, 6, 10]
    assert own.target_input[starts].tolist() == [loop.BEGIN] * 3
    assert own.target_output[[5, 9, 15]].tolist() == [loop.END] * 3


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="needs REGARD_DATA, a directory with multi30k/ in it")
def test_multi30k_is_trained_on_its_training_pairs(tmp_path):
    import multi30k

    made = multi30k.load(tmp_path, 8000)
    assert (len(made.train), len(made.valid)) == (29000, 1014)


def test_batches_for_joeynmt_are_full_with_their_last_pair_and_not_before():
    from train_step import unsorted

    lengths = [(3, 5), (9, 2), (4, 4), (1, 7), (6, 6)]
    batches = unsorted(lengths, 20, 4)  # more than one pass
    assert len(batches) == 4
    for batch in batches:
        assert len(batch) * max(max(lengths[i]) for i in batch) >= 20
        assert (len(batch) - 1) * max(max(lengths[i]) for i in batch[:-1]) < 20
    assert sorted([i for batch in batches for i in batch][:5]) == list(range(5))


def test_joeynmts_log_is_read_and_held_against_the_batches():
    from joeynmt_own import found_in

    line = "Epoch   1, Step: {:8d}, Batch Loss: {:12.6f}, Batch Acc: 0.000000, Tokens per Sec: {:8.0f}, Lr: 0.000500"
    log = "\n".join(
        [
            "Total params: 77",
            *(line.format(step, loss, speed) for step, loss, speed in ((1, 9.5, 10), (2, 9.0, 40), (3, 8.5, 100))),
            "Epoch   1, total training loss: 27.00, num. of seqs: 9, num. of tokens: 260, 5.5000[sec]",
        ]
    )
    job = {"sizes": [(3, 80), (2, 80), (4, 100)], "warmup": 1}
    assert found_in(log, job) == {"seconds": 2 + 1, "tokens": 180, "losses": [9.5, 9.0, 8.5], "parameters": 77}
    for wrong in ([(3, 80), (2, 80)], [(3, 80), (2, 81), (4, 100)], [(3, 80), (3, 80), (4, 100)]):
        with pytest.raises(ValueError, match="3 updates"):
            found_in(log, {**job, "sizes": wrong})


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux only")
def test_the_peak_of_memory_is_that_since_it_was_forgotten():
    import memory

    size = 2**26
    if not memory.forget():
        pytest.skip("this system does not let a process begin its peak anew")
    before = memory.held()
    np.ones(size, np.uint8)
    assert memory.most() - before > 0.9 * size
    memory.forget()
    assert memory.most() - before < 0.5 * size


def test_a_straight_line_is_found_and_a_crooked_one_told():
    from scaling import line

    found = line([1.0, 2.0, 4.0], [5.0, 7.0, 11.0])
    assert (found["slope"], found["intercept"]) == pytest.approx((2.0, 3.0))
    assert found["r_squared"] == pytest.approx(1.0)
    assert line([1.0, 2.0, 3.0], [0.0, 1.0, 0.0])["r_squared"] < 0.1


def test_a_difference_is_held_against_the_noise_of_the_seeds():
    from loss_curves import compare

    exact = [{"dev": {6: value}} for value in (2.0, 2.1, 2.2)]
    for shift, within in ((0.05, True), (0.15, False)):
        auto = [{"dev": {6: run["dev"][6] + shift}} for run in exact]
        point = compare({"auto": auto, "float32": exact}, "dev")[6]
        assert point["difference"] == pytest.approx(shift)
        assert point["noise"] == pytest.approx(0.1)
        assert point["within_noise"] is within


@pytest.mark.parametrize("name", ["train_step", "loss_curves"])
@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_without_data_the_way_to_it_is_named(name, folder, monkeypatch, capsys):
    script = __import__(name)
    from workers import exit_code

    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--quick"])
    monkeypatch.delenv("REGARD_DATA", raising=False)
    if folder:
        monkeypatch.setenv("REGARD_DATA", folder)
    assert exit_code(script.main) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "REGARD_DATA" in said
    assert "multi30k" in said


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("train_step", ["--steps", "0"]),
        ("train_step", ["--isa", "sse"]),
        ("train_step", ["--only", "nobody"]),
        ("scaling", ["--threads", "many"]),
        ("train_memory", ["--shapes", "huge"]),
        ("loss_curves", ["--seeds", "1"]),
    ],
)
def test_a_wrong_argument_is_refused(name, arguments, monkeypatch, capsys):
    script = __import__(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_failed_measurement_says_what_the_script_said():
    from workers import BenchmarkError, Machine

    with pytest.raises(BenchmarkError, match=r"peers/flops_of_nobody.py failed with exit code 2"):
        Machine(1).run("flops_of_nobody", {})


def test_differences_over_seeds_have_students_interval_and_are_told_apart_by_it():
    from variants import compared, interval

    found = interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["half"] == pytest.approx(4.303 / 3**0.5)
    assert interval([5.0])["half"] is None
    made = {
        "base": {1: {"x": 10.0}, 2: {"x": 11.0}, 3: {"x": 12.0}},
        "same": {1: {"x": 11.0}, 2: {"x": 10.0}, 3: {"x": 12.5}},
        "more": {1: {"x": 15.0}, 2: {"x": 16.1}, 3: {"x": 16.9}},
    }
    table = compared(made, ["x"])
    assert "difference" not in table["base"]["x"]
    assert table["more"]["x"]["difference"]["mean"] == pytest.approx(5.0)
    assert [table[name]["x"]["told_apart"] for name in ("same", "more")] == [False, True]


def test_joeynmt_gets_batches_without_padding_in_random_order():
    from beside import bucketed

    lengths = [3, 9, 4, 3, 8, 3, 4, 9, 3, 2, 9, 3]
    order = bucketed(lengths, 12, 1)
    assert sorted(order) == list(range(12))
    batches: list[list[int]] = [[]]
    for pair in order:  # as JoeyNMT cuts them
        batches[-1].append(lengths[pair])
        if max(batches[-1]) * len(batches[-1]) >= 12:
            batches.append([])
    whole = [sorted(batch) for batch in batches if batch]
    assert sorted(whole[:-1]) == [[2, 3, 3, 3], [3, 3, 4], [4, 8], [9, 9]]
    assert whole[-1] == [9], "what does not fill a batch comes last"
    assert any(bucketed(lengths, 12, seed) != order for seed in range(2, 9))


@pytest.mark.parametrize("name", ["table3", "ablation", "contrasts"])
def test_every_variant_is_a_recipe_and_differs_from_the_first(name, tmp_path, monkeypatch):
    import importlib

    from variants import recipe_of

    (tmp_path / "multi30k").mkdir()
    (tmp_path / "multi30k" / "train.en.gz").touch()
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    module = importlib.import_module(name)
    groups = {"transformer": module.VARIANTS} if name != "contrasts" else module.FAMILIES
    for family, variants in groups.items():
        common = module.model_of(family) if name == "contrasts" else []
        recipes = {variant: recipe_of(changes, 1, common) for variant, changes in variants.items()}
        base, *others = recipes.values()
        assert base.model.family == family
        assert all(other != base for other in others)


def _captions(folder, monkeypatch, numbers):
    """Multi30k in small: caption n is "n" on one side and "-n" on the other."""
    import gzip

    monkeypatch.setenv("REGARD_DATA", str(folder))
    (folder / "multi30k").mkdir()
    for name, sign in (("de", ""), ("en", "-")):
        text = "".join(f"{sign}{n}\n" for n in numbers)
        for part in ("train", "val"):
            (folder / "multi30k" / f"{part}.{name}.gz").write_bytes(gzip.compress(text.encode()))


def test_joined_captions_are_the_same_ones_in_groups_of_every_size(tmp_path, monkeypatch):
    from length import SIZES, by_size, write_corpus

    from regard.text import read_lines

    _captions(tmp_path, monkeypatch, range(1, 27))
    paths = write_corpus(tmp_path / "joined")
    for prefix in ("", "valid_"):
        sources, targets = (read_lines(paths[f"{prefix}{side}"]) for side in ("source", "target"))
        assert [" ".join(f"-{n}" for n in line.split()) for line in sources] == targets
        for size, lines in by_size(sources).items():
            assert {len(line.split()) for line in lines} == {size}
            assert sorted(int(n) for line in lines for n in line.split()) == list(range(1, 25))
    parts = by_size(read_lines(paths["valid_source"]))
    assert list(parts) == list(SIZES)
    assert parts[3][0] == "1 2 3"
    assert by_size(read_lines(paths["source"]))[3][0] != "1 2 3"


def test_a_group_is_compared_with_its_captions_one_by_one():
    from length import SIZES, by_size, compared, joined

    captions = [f"caption number {n} is about a dog which runs over {n} hills" for n in range(24)]
    right = [line for size in SIZES for line in joined(captions, size)]
    assert by_size(right)[4] == joined(captions, 4)
    forgets = [line if len(line) < 90 else "a dog" for line in right]
    found = compared(forgets, right)
    assert [row["one_by_one"] for row in found.values()] == pytest.approx([100.0] * 3)
    assert found["4"]["difference"] == pytest.approx(found["4"]["at_once"] - 100)
    assert found["4"]["interval"][1] < -90
    assert compared(right, right)["4"]["interval"] == [0.0, 0.0]


def test_marians_log_is_read_after_the_warm_up():
    from marian_own import found_in

    line = "[date] Ep. 2 : Up. {} : Sen. 1,160 : Cost 7.57984924 : Time {:.2f}s : {:.2f} words/s : gNorm 0.0"
    log = "\n".join(line.format(*each) for each in ((2, 1.0, 90.0), (4, 0.5, 1000.0), ("1,006", 2.0, 2000.0)))
    assert found_in(log, 2) == {"tokens": 4500, "seconds": 2.5, "losses": [7.57984924] * 3}
    with pytest.raises(ValueError, match="of none after"):
        found_in(log, 2000)


def test_a_grown_model_computes_what_the_small_one_does(tmp_path):
    from grow import write_grown

    from regard.bundle import Provenance, load, save
    from regard.models.blocks import new_model
    from regard.recipe import Recipe
    from regard.tasks.forced import forced
    from regard.text import Tokenizer

    lines = ["ein kleiner hund läuft", "zwei kinder laufen über eine wiese", "der mann lacht"]
    tokenizer = Tokenizer.train(lines, size=300, shrink=True)
    sizes = {"width": 16, "heads": 2, "feedforward": 24, "encoder_layers": 1, "decoder_layers": 1}
    table = {"family": "transformer", "norm": "pre", "share": "all", **sizes}
    recipe = Recipe.model_validate({"data": {"source": "a", "target": "b"}, "model": table})
    torch.manual_seed(1)
    model = new_model(recipe.model, tokenizer, tokenizer)
    weights = dict(model.named_parameters())
    save(
        tmp_path / "small", recipe=recipe, weights=weights, source=tokenizer, target=tokenizer,
        provenance=Provenance(), golden=(),
    )  # fmt: skip
    small = load(tmp_path / "small")
    wider = write_grown(small, tmp_path / "wider", len(tokenizer) + 40, 32, 3)
    assert wider.recipe.model.encoder_layers == 3
    assert wider.source.encode(lines[1]) == tokenizer.encode(lines[1])
    assert len(wider.source) == len(tokenizer) + 40
    same = write_grown(small, tmp_path / "same", len(tokenizer), 32, 3)
    sources, targets = ([tokenizer.encode(line)] for line in lines[:2])
    ours, theirs = (forced(each.model().eval(), sources, targets)[0].log_probabilities for each in (small, same))
    assert ours == pytest.approx(theirs, abs=1e-3)
