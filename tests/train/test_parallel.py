"""Training on many processes is the same training: shares add up to the batch, losses and order do not depend on how
many processes there are or which of them are killed."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from measuring import measured
from torch import nn
from toy import CONFIGS, make

from regard.data.batches import Batch
from regard.errors import ModelError
from regard.recipe import parse, to_toml
from regard.train import Step, TrainConfig, Trainer, Weights, inputs
from regard.train.parallel import Parallel, _Cast


def batch_of(layout: Any, lengths: list[tuple[int, int]]) -> Batch:
    """A batch of random tokens with these lengths, ends included."""
    draw = np.random.default_rng(0)
    rows = [(draw.integers(4, 20, s), draw.integers(4, 20, t)) for s, t in lengths]
    source, target = [s for s, _ in rows], [t for _, t in rows]

    def shaped(side: list[Any]) -> Any:
        if layout == "packed":
            return np.concatenate(side)
        out = np.zeros((len(side), max(map(len, side))), np.int64)
        for place, row in zip(out, side, strict=True):
            place[: len(row)] = row
        return out

    return Batch(
        np.arange(len(rows)),
        shaped(source),
        np.array([len(x) for x in source]),
        shaped(target),
        shaped(target),
        np.array([len(x) for x in target]),
        layout,
    )


def learnt(step: nn.Module, batch: Batch) -> tuple[float, dict[str, torch.Tensor]]:
    step.zero_grad()
    loss = step(inputs(batch, torch.device("cpu")))
    loss.backward()
    return float(loss.detach()), {n: p.grad.clone() for n, p in step.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_shares_add_up_to_the_batch(layout: str, world: int) -> None:
    """Rows, tokens, losses and gradients; with seven processes for five rows some have nothing, and add nothing."""
    batch = batch_of(layout, [(3, 4), (4, 4), (5, 3), (6, 6), (6, 5)])
    step = Step(make(CONFIGS["post-sinusoidal-all"]), 0.1, 8)
    shares = [Parallel(rank, world).share(batch) for rank in range(world)]
    real = [share for share in shares if (share.target_output >= 0).any()]
    assert np.concatenate([share.lines for share in real]).tolist() == batch.lines.tolist()
    assert len(real) == min(world, len(batch))
    total, gradients = learnt(step, batch)
    found = [learnt(step, share) for share in shares]
    assert sum(loss for loss, _ in found) == pytest.approx(total, rel=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(sum(g[name] for _, g in found), gradient, rtol=1e-4, atol=1e-5)


def test_shares_are_balanced_by_tokens() -> None:
    lengths = [(n, n + 1) for n in range(1, 60)]
    batch = batch_of("packed", lengths)
    for world in (2, 4, 8):
        shares = [Parallel(rank, world).share(batch) for rank in range(world)]
        tokens = [share.source_tokens + share.target_tokens for share in shares]
        assert max(tokens) - min(tokens) <= 2 * sum(lengths[-1])


def test_each_process_draws_its_own_dropout_and_one_alone_draws_as_ever() -> None:
    assert Parallel().seed(12345) == Parallel(0, 8).seed(12345) == 12345
    assert len({Parallel(rank, 8).seed(12345) for rank in range(8)}) == 8


def test_bfloat16_copies_give_the_gradients_of_a_bfloat16_model() -> None:
    """Also of a table that both sides share; and the float32 weights stay as they are."""
    batch = batch_of("packed", [(3, 4), (4, 4), (5, 3)])
    model = make(CONFIGS["post-none-target"]), make(CONFIGS["post-sinusoidal-all"])
    for one in model:
        cast = Step(copy.deepcopy(one), 0.1, 8)
        for module in cast.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.bfloat16())
        before = {n: p.detach().clone() for n, p in cast.named_parameters()}
        loss, gradients = learnt(_Cast(cast), batch)
        weights = Weights(one, True)
        other = Step(one, 0.1, 8)(inputs(batch, torch.device("cpu")))
        other.backward()
        weights.accumulate()
        assert loss == float(other.detach())
        for name, gradient in weights.gradients.items():
            assert gradients[f"step.model.{name}"].dtype == torch.float32
            assert torch.equal(gradients[f"step.model.{name}"], gradient), name
        assert dict.fromkeys(before, True) == {n: torch.equal(p, before[n]) for n, p in cast.named_parameters()}


def test_what_several_processes_cannot_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="names one GPU for 2 processes"):
        Parallel(1, 2).device(torch.device("cuda:0"))
    model = make(CONFIGS["post-sinusoidal-all"])
    batches: Any = SimpleNamespace(position=dict, epoch=0, batch_tokens=8)
    trainer = Trainer(model, batches, TrainConfig(precision="float32"), tmp_path, seed=1, width=16)
    trainer.parallel = Parallel(1, 2)

    def full(*given: Any, positions: int | None) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    trainer.step = nn.Identity()
    monkeypatch.setattr(trainer.parallel.__class__, "reducing", lambda *given: nullcontext())
    monkeypatch.setattr("regard.train.loop.inputs", full)
    with pytest.raises(ModelError, match="process 2 of 2: its share of a batch of 8 target tokens does not fit"):
        trainer._backward(batch_of("packed", [(3, 4), (4, 4)]))


def test_torchruns_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    assert Parallel.started() == Parallel()
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    found = Parallel.started("fsdp")
    assert (found.rank, found.world, found.local, found.sharded, found.main) == (5, 8, 1, True, False)


def test_a_recipe_says_how_work_is_shared() -> None:
    text = '[data]\nsource = "a"\ntarget = "b"\n[train]\nparallel = "fsdp"\n'
    assert parse(to_toml(parse(text))).train.parallel == "fsdp"


def test_two_processes_train_as_one_and_a_kill_changes_nothing(tmp_path: Path) -> None:
    """DDP on two; and FSDP2 on two, one of them killed, gone on with alone."""
    found = measured("parallel", tmp_path, "--quick")
    (curve,), (kill,) = found["curves"], found["kills"]
    for one in (curve, kill):
        assert one["largest_difference_of_a_loss"] <= 1e-5
        assert one["largest_difference_of_a_dev_loss"] <= 1e-5
        assert one["same_batches_in_the_same_order"]
    assert curve["reductions_an_update"] == 1
    assert curve["reduced_only_after_the_last_batch_of_an_update"]


@pytest.mark.slow
def test_one_two_and_four_processes_are_the_same_run(tmp_path: Path) -> None:
    """Both kinds and layouts, kills and restarts, one number of processes after another."""
    found = measured("parallel", tmp_path)
    assert len(found["kills"]) >= 12
    assert found["as_it_must_be"]
