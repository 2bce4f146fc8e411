"""Learning that is interrupted goes on as if it had not been, and what is not its own is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import bundle as bundles
from regard.adaptation.adapt import adapt
from regard.adaptation.file import Adapter
from regard.apps.cli import main
from regard.errors import CheckpointError

BUNDLE = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"
SETTINGS = {"epochs": 4, "rank": 2, "batch_tokens": 32, "minutes": 60, "replay_share": 1}


def pairs(number: int = 80) -> list[tuple[str, str]]:
    draw = np.random.default_rng(3)
    words = ["".join(draw.choice(list("abcdefgh"), draw.integers(2, 5))) for _ in range(number)]
    return [(word, word.upper()) for word in words]


def stopped_at(*updates: int) -> Callable[[Mapping[str, object]], None]:
    """Hears of events, and presses Ctrl-C after these updates."""

    def hear(event: Mapping[str, object]) -> None:
        if event["event"] == "learn" and event["update"] in updates:
            raise KeyboardInterrupt

    return hear


def learnt(out: Path, report: Callable[[Mapping[str, object]], None] | None = None, **more: object) -> Adapter:
    bundle = bundles.load(BUNDLE)
    model = bundle.recipe.model.model_copy(update={"dropout": 0.2})  # so that chance goes on too
    bundle = replace(bundle, recipe=bundle.recipe.model_copy(update={"model": model}))
    return adapt(bundle, pairs()[:50], out, replay=pairs()[50:], report=report, **{**SETTINGS, **more})


def same(one: Adapter, other: Adapter) -> bool:
    names = "updates", "best_update", "loss_before", "loss_after", "home_loss_after", "stopped"
    alike = all(one.card.about[name] == other.card.about[name] for name in names)
    return alike and all((one.parts[name] == part).all() for name, part in other.parts.items())


def test_it_goes_on_with_the_same_bits_wherever_it_was_interrupted(tmp_path: Path) -> None:
    whole = learnt(tmp_path / "whole.safetensors")
    updates = int(str(whole.card.about["updates"]))
    assert updates > 12
    for update in (1, updates // 2 + 1, updates):
        out = tmp_path / f"{update}.safetensors"
        first = learnt(out, stopped_at(update))
        assert (first.card.about["stopped"], first.card.about["updates"]) == (1, update)
        assert out.exists()  # what was best is used until it is taken up
        again = learnt(out)
        assert same(again, whole)
        assert float(str(again.card.about["seconds"])) >= float(str(first.card.about["seconds"]))
        assert not out.with_name(f"{out.name}.unfinished").exists()
    out = tmp_path / "often.safetensors"
    for update in (3, 7, 8):
        learnt(out, stopped_at(update))
    assert same(learnt(out), whole)


def test_the_minutes_of_before_count(tmp_path: Path) -> None:
    out = tmp_path / "a.safetensors"
    learnt(out, stopped_at(3))
    [state] = out.with_name(f"{out.name}.unfinished").glob("*/state.json")
    assert 0 < json.loads(state.read_text("utf-8"))["state"]["seconds"] < 60


def test_what_belongs_to_another_learning_is_refused_and_stays(tmp_path: Path) -> None:
    out = tmp_path / "a.safetensors"
    learnt(out, stopped_at(3))
    place = out.with_name(f"{out.name}.unfinished")
    with pytest.raises(CheckpointError, match=r"other pairs, settings or weights.*remove it"):
        learnt(out, rank=3)
    with pytest.raises(CheckpointError, match="other pairs"):
        adapt(BUNDLE, pairs()[:49], out, replay=pairs()[50:], **SETTINGS)
    [tensors] = place.glob("*/tensors.safetensors")
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    with pytest.raises(CheckpointError, match="SHA-256"):
        learnt(out)


def test_nothing_is_kept_without_a_place(tmp_path: Path) -> None:
    found = adapt(BUNDLE, pairs(), report=stopped_at(1), **SETTINGS)
    assert found.card.about["stopped"] == 1

    def at_once(event: Mapping[str, object]) -> None:
        if event["event"] in ("learn", "check"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # asked twice, it does not wait for what it looks at
        adapt(BUNDLE, pairs(), report=at_once, **SETTINGS)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_goes_on_after_a_signal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    table, home = tmp_path / "pairs.tsv", tmp_path / "home.tsv"
    for file, some in ((table, pairs()[:50]), (home, pairs()[50:])):
        file.write_text("".join(f"{a}\t{b}\n" for a, b in some), encoding="utf-8")
    # Long enough that the signal comes in the middle, wherever this runs.
    given = ["--epochs", "25", "--rank", "2", "--batch-tokens", "32", "--minutes", "60", "--seed", "2"]
    learn = ["adapt", str(BUNDLE), "--pairs", str(table), "--replay", str(home), *given, "--out"]
    out = tmp_path / "a.safetensors"
    command = [sys.executable, "-m", "regard", *learn, str(out)]
    # Bits are those of a number of threads, and a test before this one may have set this process's.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said, sent = "", False
        for line in process.stderr:
            said += line
            if "held out" in line and not sent:
                process.send_signal(number)
                sent = True
        assert process.wait(60) == 130, said
    assert "The same command goes on" in said
    assert main(["adapt", str(BUNDLE), "--adapter", str(tmp_path), "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert told["about"]["stopped"] == 1
    assert main([*learn, str(out)]) == 0
    assert "Going on at update" in capsys.readouterr().err
    assert main([*learn, str(tmp_path / "whole.safetensors")]) == 0
    assert same(Adapter.read(out), Adapter.read(tmp_path / "whole.safetensors"))
