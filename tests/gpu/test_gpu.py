"""What runs on CUDA alone; on machines without a GPU these are skipped, and `run test` says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from torch import Tensor
from typer.testing import CliRunner

from regard.apps.cli import app
from regard.data.batches import Batches
from regard.data.store import Store
from regard.models.transformer import TransformerConfig, build
from regard.nn.attention import SCORES, AndMask, Causal, Lengths, Window
from regard.nn.attention.multihead import KERNELS, Call, Compiled, Fused, choose
from regard.nn.state import Packed
from regard.text import write_lines
from regard.train import Options, TrainConfig, Trainer
from regard.train.objectives import projected_loss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
CPU, GPU = torch.device("cpu"), torch.device("cuda")


if torch.cuda.is_available():  # tests train on a CPU too, several at a time: with all threads each they never end
    torch.set_num_threads(2)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of float32 in float32: by default PyTorch rounds the factors of convolutions and of its own layers."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["causal", "lengths", "window"])
@pytest.mark.parametrize("width", [16, 24, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:])
def test_every_kernel_agrees_with_float64_on_packs(dtype: torch.dtype, width: int, kind: str) -> None:
    """Sequences of many lengths, empty ones, and a tail that belongs to none; gradients too."""
    torch.manual_seed(1)
    lengths = torch.tensor([1, 7, 16, 0, 33, 300, 70, 5])
    key_lengths = torch.tensor([3, 1, 17, 2, 40, 260, 64, 9]) if kind == "lengths" else lengths
    sizes = [(n, int(n.max()), int(n.sum()) + 53) for n in (lengths, key_lengths)]
    score = SCORES["scaled_dot"](width)
    tensors = [torch.randn(tokens, 2 * width, dtype=torch.float64) for tokens in (sizes[0][2], *[sizes[1][2]] * 2)]
    fill = torch.randn(sizes[0][2], 2 * width, dtype=torch.float64)
    fill[int(lengths.sum()) :] = 0

    def run(kernel: Any, device: torch.device, kept: torch.dtype) -> list[Tensor] | None:
        layouts = [Packed(n.to(device), *rest) for n, *rest in sizes]
        inside = Lengths(key_lengths.to(device))
        mask: Any = {"causal": Causal(), "window": AndMask(Window(3), inside), "lengths": inside}[kind]
        leaves = [x.to(device, kept, copy=True).requires_grad_() for x in tensors]
        q, k, v = (x[None].unflatten(-1, (2, -1)).transpose(1, 2) for x in leaves)
        call = Call(q * score.scale, k, v, score, mask, False, *layouts)  # type: ignore[attr-defined]
        if kernel.refuses(call) is not None:
            return None
        mixed, _ = kernel.run(call)
        out = mixed.transpose(1, 2).flatten(-2)[0]
        seen = fill.to(device) != 0
        (out.double() * fill.to(device)).where(seen, 0).sum().backward()
        return [
            out.detach().double().cpu().where(seen.cpu(), 0),
            *(x.grad.double().cpu() for x in leaves if x.grad is not None),
        ]

    exact_one = run(KERNELS[-1], CPU, torch.float64)
    assert exact_one is not None
    ran = {
        kernel.name
        for kernel in KERNELS
        if (found := run(kernel, GPU, dtype)) is not None and _near(found, exact_one, dtype)
    }
    assert {"reference", "fused"} <= ran
    assert ("compiled" in ran) == (kind != "window")


def _near(found: list[Tensor], exact_one: list[Tensor], dtype: torch.dtype) -> bool:
    bound = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for fast, right in zip(found, exact_one, strict=True):
        assert bool(fast.isfinite().all())
        assert float((fast - right).norm() / right.norm()) < bound
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:])
def test_the_loss_and_its_gradients_agree_with_float64(dtype: torch.dtype) -> None:
    """More tokens than the kernel reads at a time, in several chunks; of some targets nothing is wanted."""
    torch.manual_seed(1)
    targets = torch.randint(0, 9001, (70, 2))[:, 0]  # a column, as of models that have one target a line
    targets[::9] = -1
    tensors = [torch.randn(n, 64, dtype=torch.float64) / 4 for n in (70, 9001)]
    found = []
    for device, kept in ((GPU, dtype), (CPU, torch.float64)):
        leaves = [x.to(dtype).to(device, kept).requires_grad_() for x in tensors]
        loss = projected_loss(*leaves, None, targets.to(device), 0.1, 32)
        loss.backward()
        found.append([loss.detach().double().cpu(), *(x.grad.double().cpu() for x in leaves if x.grad is not None)])
    assert _near(*found, dtype)


def test_packs_take_the_kernel_that_is_made_for_them() -> None:
    block = torch.zeros(1, 2, 128, 64, device=GPU)
    layout = Packed(torch.tensor([100, 20], device=GPU), 100, 128)
    call = Call(block, block, block, SCORES["scaled_dot"](64), Causal(), False, layout)
    assert isinstance(choose(call)[0], Compiled)


def test_padded_batches_take_pytorchs_fused_kernel() -> None:
    block = torch.zeros(3, 2, 20, 64, device=GPU)
    assert isinstance(choose(Call(block, block, block, SCORES["scaled_dot"](64), Causal()))[0], Fused)


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lay", ["padded", "packed"])
@pytest.mark.parametrize("name", toy.CONFIGS)
def test_every_family_computes_what_it_does_in_float64_on_a_cpu(name: str, lay: str) -> None:
    found = []
    for device, dtype in ((CPU, torch.float64), (GPU, torch.float32)):
        model: Any = toy.make(toy.CONFIGS[name], dtype=dtype).to(device)
        (source, reading), (target, writing) = (getattr(toy, lay)(rows) for rows in (toy.SOURCES, toy.TARGETS))
        for layout in (reading, writing):
            layout.lengths = layout.lengths.to(device)
            if lay == "packed":
                layout.starts = layout.starts.to(device)
        memory = model.encode(source.to(device), reading)
        hidden, _ = model.decode(target.to(device), model.start(memory, reading), writing)
        model.project(hidden).square().mean().backward()
        found.append(
            [hidden.detach().double().cpu(), *(p.grad.double().cpu() for p in model.parameters() if p.grad is not None)]
        )
    inside = writing.inside().cpu()
    for gpu, cpu in zip(*found[::-1], strict=True):
        if gpu is found[1][0]:
            gpu, cpu = gpu[inside], cpu[inside]
        torch.testing.assert_close(gpu, cpu, rtol=1e-3, atol=1e-4)


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return toy.letters(tmp_path_factory.mktemp("toy") / "store", 2000)


def _train(
    store: Store, out: Path, device: torch.device, *, updates: int = 12, **settings: Any
) -> list[dict[str, Any]]:
    torch.manual_seed(3)
    sizes = TransformerConfig(width=64, heads=2, feedforward=128, encoder_layers=2, decoder_layers=2, dropout=0.0)
    config = TrainConfig(
        max_updates=updates, schedule="constant", learning_rate=1e-3, warmup=0, log_every=1, save_every=6, **settings
    )
    events: list[dict[str, Any]] = []
    trainer = Trainer(
        build(sizes, 300, 300).to(device),
        Batches(store, batch_tokens=2000, layout="packed", seed=5),
        config,
        out,
        seed=5,
        width=64,
        options=Options(report=events.append),
    )
    trainer.resume()
    trainer.run()
    return [event for event in events if event["event"] == "train"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "lion", "adafactor", "sgd"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_training_goes_as_on_a_cpu(
    store: Store, tmp_path: Path, compiled: bool, precision: str, optimizer: str
) -> None:
    if compiled and optimizer != "adamw":
        pytest.skip("the step is the same as AdamW's")
    settings: dict[str, Any] = {"optimizer": optimizer, "clip": 1.0}
    ours = _train(store, tmp_path / "gpu", GPU, precision=precision, compile=compiled, **settings)
    theirs = _train(store, tmp_path / "cpu", CPU, precision="float32", **settings)
    bound = 2e-3 if precision == "float32" else 2e-2
    for one, other in zip(ours, theirs, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=bound)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gradients_of_several_batches_add_up(store: Store, tmp_path: Path, precision: str) -> None:
    """Those of a compiled step stand where the next step writes its own."""
    settings: dict[str, Any] = {"accumulate": 3, "updates": 6}
    ours = _train(store, tmp_path / "gpu", GPU, precision=precision, compile=True, **settings)
    theirs = _train(store, tmp_path / "cpu", CPU, precision="float32", **settings)
    for one, other in zip(ours, theirs, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=2e-3 if precision == "float32" else 2e-2)


def test_a_compiled_run_compiles_once_and_is_taken_up_again(store: Store, tmp_path: Path) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    whole = _train(store, tmp_path / "whole", GPU, compile=True)
    assert counters["stats"]["unique_graphs"] <= 3  # the model, and the loss of a chunk and of the last one
    _train(store, tmp_path / "parts", GPU, compile=True, updates=6)
    parts = _train(store, tmp_path / "parts", GPU, compile=True)
    assert [event["loss"] for event in parts] == pytest.approx([event["loss"] for event in whole[6:]], rel=1e-2)


def test_a_batch_that_does_not_fit_is_cut(store: Store, tmp_path: Path) -> None:
    torch.cuda.empty_cache()
    everything = torch.cuda.mem_get_info()[1]
    torch.manual_seed(3)
    sizes = TransformerConfig(width=512, feedforward=2048, encoder_layers=6, decoder_layers=6)
    events: list[dict[str, Any]] = []
    trainer = Trainer(
        build(sizes, 300, 300).to(GPU),
        Batches(store, batch_tokens=40_000, layout="packed", seed=5),
        TrainConfig(max_updates=2, log_every=1, precision="bfloat16", compile=False),
        tmp_path,
        seed=5,
        width=512,
        options=Options(report=events.append),
    )
    torch.cuda.set_per_process_memory_fraction(3e9 / everything)
    try:
        trainer.run()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert [event["event"] for event in events if event["event"] != "train"][:1] == ["cut"]


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_translator_trained_on_a_gpu_translates_alike_everywhere(tmp_path: Path) -> None:
    letters = [" ".join("abcdefghij"[(3 * i + j * (1 + i % 7)) % 10] for j in range(1 + i % 6)) for i in range(3000)]
    write_lines(tmp_path / "a", letters)
    write_lines(tmp_path / "b", (line.upper() for line in letters))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"""
        [data]
        source = "{tmp_path}/a"
        target = "{tmp_path}/b"
        batch_tokens = 2000
        metrics = ["bleu"]
        [text]
        kind = "characters"
        size = 300
        [model]
        family = "transformer"
        width = 64
        heads = 4
        feedforward = 128
        encoder_layers = 2
        decoder_layers = 2
        norm = "pre"
        positions = "rotary"
        [train]
        optimizer = "muon"
        max_updates = 400
        schedule = "linear"
        learning_rate = 5e-3
        warmup = 50
        device = "cuda"
        average = "none"
        validate_every = 200
        """
    )
    done = CliRunner().invoke(app, ["train", str(recipe), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    outputs = []
    for device in ("cpu", "cuda"):
        for precision in ("exact", "float32"):
            made = tmp_path / f"{device}-{precision}"
            asked = [str(tmp_path / "run" / "bundle"), str(tmp_path / "a"), "-o", str(made), "--device", device]
            done = CliRunner().invoke(app, ["translate", *asked, "--precision", precision])
            assert done.exit_code == 0, done.output
            outputs.append(made.read_text("utf-8").splitlines())
    right = (tmp_path / "b").read_text("utf-8").splitlines()
    assert sum(a == b for a, b in zip(outputs[0], right, strict=True)) > 2900
    for other in outputs[1:]:
        assert sum(a == b for a, b in zip(outputs[0], other, strict=True)) >= len(other) - 3
