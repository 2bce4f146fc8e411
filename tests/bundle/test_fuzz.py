"""Whatever is changed in a bundle, nothing but a RegardError comes out of loading it and translating a line with it.

Every change is resealed (the digests are made anew), and the same for the same seed. `FUZZ=20000` tries more of them.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
import tomli_w
from mutations import change_bytes, change_safetensors, change_value
from strangers import edit_text, reseal

import regard
from regard import recipe
from regard.errors import RegardError

pytestmark = pytest.mark.filterwarnings("ignore::regard.errors.RegardWarning")

MADE = Path(__file__).parent / "made-by-0.1" / "transformer"
COUNT = int(os.environ.get("FUZZ", "500"))
SECONDS, BYTES = 20, 2 << 30
"""What one case may take, and how much memory all may take beside what is taken already."""


@contextmanager
def bounded() -> Iterator[None]:
    """Inside, no more memory than `BYTES` can be taken."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def late(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"it takes longer than {SECONDS} seconds")


@contextmanager
def timed() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def use(folder: Path) -> None:
    regard.load(folder).translate(["ab c"], max_length=6)


def fuzz(change: Callable[[random.Random], None], attempt: Callable[[], object]) -> None:
    """Change and attempt with many seeds; every error that no user should see is told, with its seed."""
    wrong: dict[str, str] = {}
    refused = 0
    with bounded():
        for seed in range(COUNT):
            change(random.Random(seed))
            try:
                with timed():
                    attempt()
            except RegardError:
                refused += 1
            except Exception as error:  # which is what is looked for
                wrong.setdefault(f"{type(error).__name__}: {error}"[:200], f"seed {seed}")
    assert wrong == {}
    assert refused > COUNT / 20, "changes that change nothing find nothing"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A bundle without golden sentences, which would find most changes before anything else can."""
    folder = Path(shutil.copytree(MADE, tmp_path / "copy"))
    (folder / "golden.json").write_text("[]", encoding="utf-8")
    reseal(folder)
    use(folder)
    return folder


def restored(folder: Path, name: str) -> bytes:
    """The file as it was, after every other one was put back."""
    for file in MADE.iterdir():
        shutil.copyfile(file, folder / file.name)
    return (MADE / name).read_bytes()


def test_bundles(copy: Path) -> None:
    def change(draw: random.Random) -> None:
        name = draw.choice(("bundle.json", "golden.json", "calibration.json", "recipe.toml", "recipe.toml"))
        content = restored(copy, name)
        if draw.random() < 0.2:
            new = change_bytes(content, draw)
        elif name == "recipe.toml":
            try:
                new = tomli_w.dumps(change_value(tomllib.loads(content.decode()), draw)).encode()
            except (TypeError, ValueError, AttributeError):  # there is no such value in TOML
                new = change_bytes(content, draw)
        else:
            new = json.dumps(change_value(json.loads(content), draw)).encode()
        (copy / name).write_bytes(new)
        reseal(copy)

    fuzz(change, lambda: use(copy))


def test_subword_models(copy: Path) -> None:
    content = (copy / "subwords.model").read_bytes()

    def change(draw: random.Random) -> None:
        (copy / "subwords.model").write_bytes(change_bytes(content, draw))
        reseal(copy)

    fuzz(change, lambda: use(copy))


def test_weights(copy: Path) -> None:
    content = (copy / "weights.safetensors").read_bytes()

    def change(draw: random.Random) -> None:
        (copy / "weights.safetensors").write_bytes(change_safetensors(content, draw))
        reseal(copy)

    fuzz(change, lambda: use(copy))


def test_shortlists(copy: Path) -> None:
    edit_text(copy, "recipe.toml", "shortlist = false", "shortlist = true")
    content = (copy / "shortlist.safetensors").read_bytes()

    def change(draw: random.Random) -> None:
        (copy / "shortlist.safetensors").write_bytes(change_safetensors(content, draw))
        reseal(copy)

    fuzz(change, lambda: use(copy))


def test_recipes() -> None:
    text = (MADE / "recipe.toml").read_bytes()
    held: list[str] = []

    def change(draw: random.Random) -> None:
        try:
            new = tomli_w.dumps(change_value(tomllib.loads(text.decode()), draw))
        except (TypeError, ValueError, AttributeError):
            new = change_bytes(text, draw).decode("utf-8", "replace")
        held[:] = [new]

    fuzz(change, lambda: recipe.parse(held[0]))
