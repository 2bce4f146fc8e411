"""What a GPU runs, on a CPU: packs of constant shape, compiled once, with a kernel that no compiler looks into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from regard.data.batches import Batches
from regard.data.store import Store
from regard.errors import TrainingError
from regard.models.transformer import TransformerConfig, build
from regard.nn.attention import multihead
from regard.nn.attention.multihead import Call, Compiled, Reference
from regard.nn.layers import only_references
from regard.nn.state import Packed
from regard.train import Step, TrainConfig, Trainer, inputs
from regard.train.step import Constant

CPU = torch.device("cpu")
TOKENS = 640


def _parts(starts: Tensor, ends: Tensor, longest: int) -> Iterator[tuple[slice, slice]]:
    """Where each sequence's queries and keys lie."""
    for a, b, c, d in zip(*(x.tolist() for x in (starts[:-1], starts[1:], ends[:-1], ends[1:])), strict=True):
        assert max(b - a, d - c) <= longest, (a, b, c, d, longest)
        yield slice(a, b), slice(c, d)


def _weights(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    scores = torch.einsum("qhd,khd->hqk", q, k)
    return (scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf) if causal else scores).softmax(
        -1
    )


@torch.library.custom_op("regard_tests::flash", mutates_args=())
def flash(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, ends: Tensor, longest: int, causal: bool) -> Tensor:
    """Attention as the kernel for CUDA has it: what belongs to no sequence is zero."""
    out = torch.zeros_like(q)
    for ours, theirs in _parts(starts, ends, longest):
        out[ours] = torch.einsum("hqk,khd->qhd", _weights(q[ours], k[theirs], causal), v[theirs])
    return out


@flash.register_fake
def _(q: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(q)


@torch.library.custom_op("regard_tests::flash_back", mutates_args=())
def flash_back(
    given: Tensor, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, ends: Tensor, longest: int, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for ours, theirs in _parts(starts, ends, longest):
        weights = _weights(q[ours], k[theirs], causal)
        dv[theirs] = torch.einsum("hqk,qhd->khd", weights, given[ours])
        dw = torch.einsum("qhd,khd->hqk", given[ours], v[theirs])
        ds = weights * (dw - (dw * weights).sum(-1, keepdim=True))
        dq[ours], dk[theirs] = torch.einsum("hqk,khd->qhd", ds, k[theirs]), torch.einsum("hqk,qhd->khd", ds, q[ours])
    return dq, dk, dv


@flash_back.register_fake
def _(given: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.rest = inputs[5:]


flash.register_autograd(
    lambda ctx, given: (*flash_back(given, *ctx.saved_tensors, *ctx.rest), None, None, None, None), setup_context=_keep
)


class _OnCpu(Compiled):
    """The kernel for CUDA, which takes what that one takes."""

    def refuses(self, call: Call) -> str | None:
        return multihead._ragged(call)

    def run(self, call: Call) -> tuple[Tensor, None]:
        assert call.mask is not None
        ours, theirs = call.packs()
        rows = [x[0].transpose(0, 1) for x in (call.queries, call.keys, call.values)]
        mixed = flash(*rows, ours.starts, theirs.starts, max(ours.width, theirs.width), bool(call.mask.causal))
        return mixed.transpose(0, 1)[None], None


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(multihead, "KERNELS", (_OnCpu(), Reference()))
    with only_references():
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return toy.letters(tmp_path_factory.mktemp("toy") / "store", 600)


def _step(store: Store) -> Step:
    torch.manual_seed(3)
    sizes = TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1, dropout=0.0)
    return Step(build(sizes, 300, 300), 0.1, 100)


def test_packs_of_many_sizes_are_one_graph_and_give_the_same(store: Store, as_on_a_gpu: None) -> None:
    """However many lines there are and however long they are: each new shape would be minutes of compiling."""
    plain, step = _step(store), _step(store)
    made: list[Any] = []

    def counting(graph: Any, examples: Any) -> Any:
        made.append(graph)
        return graph

    step._run = torch.compile(step.hidden, backend=counting, dynamic=False, fullgraph=True)
    batches = Batches(store, batch_tokens=TOKENS, layout="packed", seed=5)
    constant = Constant(TOKENS, batches.longest)
    lines, widths = set(), set()
    for _ in range(12):
        batch = next(batches)
        lines.add(len(batch))
        widths.add(int(batch.target_lengths.max()))
        found = []
        for each, x in ((plain, inputs(batch, CPU)), (step, inputs(batch, CPU, constant))):
            loss = each(x)
            loss.backward()
            found.append((loss.detach(), [p.grad for p in each.parameters()]))
            each.zero_grad(set_to_none=True)
        assert len(x.tokens) == len(x.source) == TOKENS
        torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-4)
    assert len(lines) > 4
    assert len(widths) > 4
    assert len(made) == 1


def test_where_tokens_lie_is_looked_up_in_no_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """For GPUs PyTorch 2.11 compiles a search in a view as one in what it is a view of, and positions were wrong."""
    asked: list[Tensor] = []
    search = torch.searchsorted

    def noting(where: Tensor, *rest: Any, **settings: Any) -> Tensor:
        asked.append(where)
        return search(where, *rest, **settings)

    monkeypatch.setattr(torch, "searchsorted", noting)
    pack = Packed(torch.tensor([2, 0, 3, 0]), 3, 8)
    assert pack.sequences().tolist() == [0, 0, 2, 2, 2, 4, 4, 4]
    assert pack.positions().tolist() == [0, 1, 0, 1, 2, 0, 1, 2]
    assert asked
    assert not any(where._is_view() for where in asked)


def test_the_tail_reaches_no_weight(store: Store, as_on_a_gpu: None) -> None:
    step = _step(store)
    batch = next(Batches(store, batch_tokens=TOKENS, layout="packed", seed=5))
    found = []
    for constant in (None, Constant(2 * TOKENS, (64, 64))):
        loss = step(inputs(batch, CPU, constant))
        loss.backward()
        found.append((loss.detach(), [p.grad for p in step.parameters()]))
        step.zero_grad(set_to_none=True)
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-4)
    assert all(bool(g.isfinite().all()) for _, gradients in found for g in gradients if g is not None)


def test_a_row_drawn_longer_than_any_is_no_wider_than_the_model_knows(store: Store) -> None:
    batch = next(Batches(store, batch_tokens=TOKENS, layout="packed", seed=5))
    most = int(batch.target_lengths.max())
    for positions, width in ((None, 1 << (most - 1).bit_length()), (most, most)):
        x = inputs(batch, CPU, Constant(TOKENS, (2, 2)), positions=positions)
        assert x.widths[1] == width


@pytest.mark.parametrize(
    ("config", "stays"),
    [
        ({}, True),
        ({"positions": "rotary", "norm": "pre"}, True),
        ({"attention_dropout": 0.1}, False),
        ({"positions": "alibi"}, False),
        ({"decoder_mixer": "ssru"}, False),
    ],
)
def test_only_what_stays_packed_has_a_constant_shape(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], stays: bool
) -> None:
    monkeypatch.setattr(multihead, "KERNELS", (_OnCpu(), Reference()))
    sizes = TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1, **config)
    batches = Batches(store, batch_tokens=TOKENS, layout="packed", seed=5)
    before = batches.position()
    with only_references():
        trainer = Trainer(build(sizes, 300, 300), batches, TrainConfig(), tmp_path, seed=1, width=16)
        assert trainer.constant is None  # on a CPU
        assert trainer.bare.stays_packed(inputs(next(batches.one_epoch()), CPU), False) is stays
    assert batches.position() == before
    trainer.batches.close()


def test_padded_batches_have_no_constant_shape(store: Store, tmp_path: Path) -> None:
    sizes = TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1)
    batches = Batches(store, batch_tokens=TOKENS, seed=5)
    trainer = Trainer(build(sizes, 300, 300), batches, TrainConfig(), tmp_path, seed=1, width=16)
    assert not trainer.bare.stays_packed(inputs(next(batches.one_epoch()), CPU), False)
    trainer.batches.close()


def test_losses_that_were_not_read_are_looked_at_before_anything_is_saved(store: Store, tmp_path: Path) -> None:
    sizes = TransformerConfig(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1)
    batches = Batches(store, batch_tokens=TOKENS, seed=5)
    trainer = Trainer(build(sizes, 300, 300), batches, TrainConfig(log_every=3), tmp_path, seed=1, width=16)
    trainer.progress.update = 2
    trainer.unread = trainer.unread + torch.nan
    trainer._read_losses(rarely=True)
    assert trainer.progress.pending_loss == 0.0  # not yet
    with pytest.raises(TrainingError, match="training has diverged: at update 2 the loss is nan"):
        trainer.save()
    assert not trainer.checkpoints.exists()
    trainer.batches.close()
