"""Compiled parts are built where there is a compiler and kept whole in a folder of one's own; or it is said why."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest

from regard.engine import decoding
from regard.kernels import build
from regard.kernels.build import SOURCES, built

needs_compiler = pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="needs g++")


@needs_compiler
@pytest.mark.parametrize("source", [*sorted(SOURCES.glob("*.cpp")), decoding.SOURCE], ids=lambda source: source.stem)
def test_every_source_is_built_where_there_is_a_compiler(source):
    library, reason = built(source)
    assert library is not None, reason


@needs_compiler
@pytest.mark.parametrize("stale", [False, True])
def test_a_library_that_came_is_taken_only_with_the_sources_that_made_it(tmp_path, monkeypatch, stale):
    digest = "of others" if stale else build.sources_digest()
    kind = [*build.KINDS[build._MACHINE]][-1]
    text = f'const char* sources_digest() {{ return "{digest}"; }}\nint can_run(const char*) {{ return 1; }}\n'
    (tmp_path / "made.cpp").write_text(f'extern "C" {{\n{text}void {kind}_native_error_message() {{}}\n}}\n')
    monkeypatch.setattr(build, "SHIPPED", tmp_path / "made.so")
    words = [build.compiler()[0], "-shared", "-fPIC", str(tmp_path / "made.cpp"), "-o", str(build.SHIPPED)]
    subprocess.run(words, check=True)
    assert (build._shipped(SOURCES / "native.cpp", "")[0] is None) == stale


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A small source, and an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    path = tmp_path / "answer.cpp"
    path.write_text(f'#include "entry.h"\n// {tmp_path}\nENTRY(int64_t, answer)() {{ return 42; }}\n', "utf-8")
    return path


def made(source: Path) -> tuple[object, str]:
    """What `built` makes, without its memory of what it made before."""
    return build.built.__wrapped__(source)


def answer(source: Path) -> int:
    library, reason = made(source)
    assert library is not None, reason
    return int(library.answer())  # type: ignore[attr-defined]


@needs_compiler
def test_it_is_kept_in_a_folder_of_ones_own_with_its_digest(source, tmp_path):
    assert answer(source) == 42
    folder = tmp_path / "home" / ".cache" / "regard"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [kept] = folder.glob("answer-*.so")
    before = kept.stat().st_mtime_ns
    folder.chmod(0o755)
    assert answer(source) == 42
    assert kept.stat().st_mtime_ns == before, "it was built again"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@needs_compiler
@pytest.mark.parametrize("left", [b"", b"junk", "half"], ids=["empty", "junk", "cut short"])
def test_what_is_damaged_is_built_again(source, tmp_path, left):
    folder = tmp_path / "home" / ".cache" / "regard"
    assert answer(source) == 42
    [kept] = folder.glob("answer-*.so")
    whole = kept.read_bytes()
    kept.unlink()  # what is loaded here must stay whole
    kept.write_bytes(whole[: len(whole) // 2] if left == "half" else left)
    assert answer(source) == 42
    kept.with_suffix(".sha256").unlink()
    assert answer(source) == 42
    assert kept.with_suffix(".sha256").exists()


@needs_compiler
def test_a_home_that_cannot_be_written_to_is_passed_over(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(build.tempfile, "tempdir", str(tmp_path))
    assert answer(source) == 42
    [kept] = tmp_path.glob("regard-*/answer-*.so")
    assert kept.parent.name == f"regard-{os.geteuid()}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "asked for"))
    assert answer(source) == 42
    assert list((tmp_path / "asked for" / "regard").glob("answer-*.so"))


@needs_compiler
def test_a_folder_of_another_user_is_not_used(source, tmp_path, monkeypatch):
    monkeypatch.setattr(build.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(build, "_user", lambda: os.geteuid() + 1)
    library, reason = made(source)
    assert library is None
    assert reason.count("it belongs to another user") == 2
    assert "set XDG_CACHE_HOME to a folder of yours" in reason


# -- what cannot be built ----------------------------------------------------------------------------------------------


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("exit 3", "it ended with status 3 and said nothing"),
        ("echo >&2; exit 1", "it ended with status 1 and said nothing"),
        ("echo 'a.cpp:1: error: no' >&2; echo compilation terminated. >&2; exit 1", "a.cpp:1: error: no"),
    ],
)
def test_a_compiler_that_fails_is_quoted(source, tmp_path, monkeypatch, does, said):
    program(tmp_path / "bin", "c++", does)
    monkeypatch.setattr(build, "compiler", lambda: (str(tmp_path / "bin" / "c++"), "g++"))
    library, reason = made(source)
    assert library is None
    assert reason.endswith(f"could not build answer.cpp: {said}")


@pytest.mark.parametrize("name", ["c++", "g++", "clang++"])
def test_any_compiler_is_used_and_it_is_said_where_there_is_none(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    command, reason = build.compiler.__wrapped__()
    assert command is None
    assert "no C++ compiler was found; install g++" in reason
    program(tmp_path / "bin", name, "echo version 19")
    assert build.compiler.__wrapped__() == (str(tmp_path / "bin" / name), "version 19\n")


# -- kinds of processors -----------------------------------------------------------------------------------------------

KINDS_HERE = build.KINDS.get(platform.machine(), {})
FOUND_OF_A_KIND = """
import json, toy
from regard.engine.decoding import PRECISIONS
from regard.engine.packing import compiled
from regard.models.transformer import TransformerConfig
from regard.search.table import SearchConfig
from regard.tasks.decode import decode
from regard.tasks.engine import Backend

config = TransformerConfig(width=32, heads=2, feedforward=64, encoder_layers=1, decoder_layers=1, dropout=0.0)
model, sources = toy.make(config, vocabulary=90), [[5, 6, 7], [8], [9, 10, 11]]
search = SearchConfig(beam=3, extra_length=3)
found = {}
for precision in PRECISIONS:
    backend = Backend(decoders=[compiled(model, config, precision)])
    all_at_once = [each[0] for each in decode(backend, sources, search)]
    alone = [decode(backend, [source], search)[0][0] for source in sources]
    assert [(h.ids, h.log_probability) for h in all_at_once] == [(h.ids, h.log_probability) for h in alone]
    found[precision] = [[h.log_probability, *h.ids] for h in all_at_once]
exact = decode(model.double(), sources, search)
found["exact"] = [[each[0].log_probability, *each[0].ids] for each in exact]
print(json.dumps(found))
"""


BITS_OF_A_KIND = """
import toy
from regard.engine.decoding import Beam
from regard.engine.packing import compiled
from regard.models.transformer import TransformerConfig

config = TransformerConfig(width=96, heads=3, feedforward=144, encoder_layers=1, decoder_layers=1, dropout=0.0)
model = toy.make(config, vocabulary=150)
sources = [[5 + (7 * i + j) % 140 for j in range(1 + 3 * i)] + [3] for i in range(13)]
for precision in ("int8", "bfloat16"):
    of = compiled(model, config, precision)

    def found(sources, batch):
        return of.search(sources, [12] * len(sources), Beam(4, 1, batch, "full", 2, 3, float))

    together = found(sources, 13)
    assert together == [found([source], 1)[0] for source in sources] == found(sources[::-1], 5)[::-1]
    if precision == "int8":
        print([[(ids, score.hex()) for ids, _, score, _ in each] for each in together])
"""


def of_a_kind(program: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a program prints where this processor is taken for one of a kind."""
    monkeypatch.setenv("REGARD_CPU", kind)
    library, reason = made(decoding.SOURCE)
    if library is None:
        pytest.skip(reason)
    tests = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{tests.parent}:{tests}"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_compiler
def test_tiles_find_the_bits_of_all_other_products_of_whole_numbers(monkeypatch):
    one, other = (of_a_kind(BITS_OF_A_KIND, kind, monkeypatch) for kind in ("avx512_bf16", "amx"))
    assert one == other


@needs_compiler
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_the_decoder_is_right_and_knows_no_neighbours_on_every_kind_of_processor(kind, monkeypatch):
    found = json.loads(of_a_kind(FOUND_OF_A_KIND, kind, monkeypatch))
    for precision, bound in {"float32": 1e-4, "bfloat16": 0.1, "int8": 0.1}.items():
        for ours, exact in zip(found[precision], found["exact"], strict=True):
            assert ours == pytest.approx(exact, abs=bound)


def test_a_kind_that_is_not_there_is_said(monkeypatch, source):
    monkeypatch.setenv("REGARD_CPU", "quantum")
    library, reason = made(source)
    assert library is None
    assert reason.startswith("REGARD_CPU is 'quantum'; on ")


@needs_compiler
def test_a_kind_that_this_processor_is_not_is_said(monkeypatch, source):
    monkeypatch.setattr(build, "_able", lambda file: ["generic"])
    monkeypatch.setenv("REGARD_CPU", list(KINDS_HERE)[-1])
    library, reason = made(source)
    assert library is None
    assert reason.endswith("and this processor can do generic")


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_are_as_many_as_asked_for_or_as_the_processors_given(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert build.default_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "none")
    monkeypatch.setattr(build, "quota", lambda: 0.5)
    assert build.default_threads() == 1


@pytest.mark.parametrize(
    ("group", "files", "processors"),
    [
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, math.inf),
        ("0::/a/b", {"sys/fs/cgroup/a/cpu.max": "150000 100000", "sys/fs/cgroup/a/b/cpu.max": "400000 100000"}, 1.5),
        (
            "3:cpu:/a",
            {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("3:cpu:/", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, math.inf),
        ("4:memory:/a", {}, math.inf),
    ],
)
def test_what_control_groups_allow(tmp_path, group, files, processors):
    for name, text in {"proc/self/cgroup": group, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n", "ascii")
    assert build.quota(tmp_path) == processors
    assert build.quota(tmp_path / "nowhere") == math.inf


def test_threads_are_counted_while_pytorch_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may be at it: a server's first request for the explorer, beside translations."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert build.default_threads() >= 1
