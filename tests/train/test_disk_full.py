"""A disk that fills up while a run saves: exit code 2, a message that says how to go on, and nothing lost."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

RECIPE = """
[data]
source = "{folder}/letters"
target = "{folder}/backwards"
valid_lines = 20
batch_tokens = 300

[text]
size = 320
shrink = true
sampling = 0.1

[model]
width = 64
heads = 4
feedforward = 128
encoder_layers = 1
decoder_layers = 1

[train]
max_updates = {updates}
learning_rate = 3e-3
schedule = "inverse-sqrt"
warmup = 10
average = "ema"
validate_every = 50
save_every = 2
log_every = 1

[search]
beam = 1
extra_length = 5
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns to write letters backwards."""
    tmp_path = tmp_path_factory.mktemp("letters")
    dice = random.Random(1)
    lines = [" ".join(dice.choices("abcdefghij", k=dice.randint(1, 8))) for _ in range(300)]
    for name, texts in (("letters", lines), ("backwards", [line[::-1] for line in lines])):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(folder=tmp_path, updates=30), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    """The run as it is when nothing happens to it."""
    out = recipe.parent / "whole"
    code, said = run(recipe, out)
    assert code == 0, said
    return out


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)], capture_output=True)
    except OSError as error:
        pytest.skip(f"a small file system cannot be mounted: {error}")
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def start(recipe: Path, out: Path, *options: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "regard", "train", str(recipe), "--out", str(out), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=before)


def run(recipe: Path, out: Path, *options: str) -> tuple[int, str]:
    process = start(recipe, out, *options)
    said = process.communicate(timeout=120)[1]
    return process.returncode, said


def fill(disk: Path, free: int = 0) -> None:
    """Take all space of the disk but `free` bytes, rounded down to pages."""
    with (disk / "filler").open("ab", buffering=0) as file:
        while (room := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - free) > 0:
            try:
                file.write(bytes(min(room, 65536)))
            except OSError:
                return


def wait_for_checkpoint(out: Path, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not list((out / "checkpoints").glob("update-*[0-9]")):
        time.sleep(0.005)


def check_message(code: int, said: str) -> None:
    assert code == 2, said
    last = said.strip().splitlines()[-1]
    assert last.startswith("regard: ")
    assert "--resume" in last
    assert "Traceback" not in said


def finish(recipe: Path, out: Path, whole: Path) -> None:
    """The run goes on, and comes to the same log and bundle as one that was never stopped."""
    code, said = run(recipe, out, "--resume")
    assert code == 0, said
    losses = [
        [json.loads(line).get("loss") for line in (place / "log.jsonl").read_text().splitlines()]
        for place in (out, whole)
    ]
    assert losses[0] == losses[1]
    weights = [(place / "bundle" / "weights.safetensors").read_bytes() for place in (out, whole)]
    assert weights[0] == weights[1]


def test_a_disk_that_fills_up_while_training(recipe: Path, whole: Path, disk: Path) -> None:
    out = disk / "run"
    process = start(recipe, out)
    wait_for_checkpoint(out, process)
    while process.poll() is None:  # a save that removes an older one makes room again
        fill(disk)
        time.sleep(0.001)
    said = process.communicate()[1]
    check_message(process.returncode, said)
    left = list((out / "checkpoints").glob("*.part"))
    assert not left
    (disk / "filler").unlink()
    finish(recipe, out, whole)


def test_a_disk_without_room_for_the_bundle(recipe: Path, whole: Path, disk: Path) -> None:
    """The trained weights and the bundle before it are still there, and another try makes the new one."""
    out = disk / "run"
    assert run(recipe, out)[0] == 0
    before = {path: path.read_bytes() for path in (*out.glob("checkpoints/*/*"), *out.glob("bundle/*"))}
    fill(disk, free=150_000)
    code, said = run(recipe, out, "--resume")
    check_message(code, said)
    assert "no space is left" in said
    assert {path: path.read_bytes() for path in before} == before
    assert not list(out.glob("**/*.part"))
    (disk / "filler").unlink()
    finish(recipe, out, whole)


def test_a_limit_on_the_size_of_files(recipe: Path, whole: Path, tmp_path: Path) -> None:
    """Needs no file system of its own: writing more than the limit fails like writing to a full disk."""
    out = tmp_path / "place" / "run"
    process = start(recipe, out)
    wait_for_checkpoint(out, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    newest = max(out.glob("checkpoints/update-*[0-9]/tensors.safetensors"))
    limit = newest.stat().st_size // 2

    def before() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = start(recipe, out, "--resume", before=before)
    said = process.communicate(timeout=120)[1]
    check_message(process.returncode, said)
    assert load_file(newest)
    finish(recipe, out, whole)
