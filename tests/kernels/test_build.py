"""Compiled parts are built where there is a compiler and kept whole in a folder of one's own; or it is said why."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from functools import partial
from pathlib import Path

import pytest
import toy
from kernels import threads_of_kernels

from regard.engine import decoding
from regard.engine.packing import compiled
from regard.kernels import build, native, recurrent
from regard.kernels.build import SOURCES, built
from regard.models.transformer import TransformerConfig
from regard.search.config import SearchConfig
from regard.tasks.decode import decode
from regard.tasks.engine import Backend

needs_compiler = pytest.mark.skipif(
    platform.system() != "Linux" or not (shutil.which("c++") or shutil.which("g++")), reason="needs Linux and g++"
)


@needs_compiler
@pytest.mark.parametrize("source", [*sorted(SOURCES.glob("*.cpp")), decoding.SOURCE], ids=lambda source: source.stem)
def test_every_source_is_built_where_there_is_a_compiler(source):
    library, reason = built(source)
    assert library is not None, reason


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A small source, and an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    path = tmp_path / "answer.cpp"
    path.write_text(f'// {tmp_path}\nextern "C" int answer() {{ return 42; }}\n', "utf-8")
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
    user = os.geteuid()
    monkeypatch.setattr(build.os, "geteuid", lambda: user + 1)
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


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({}, "no C++ compiler was found; install g++"),
        ({"clang++": "echo clang version 19"}, "clang++ is Clang, whose OpenMP is not the one that PyTorch brings"),
        ({"c++": "echo Debian clang version 19"}, "c++ is Clang, whose OpenMP is not the one that PyTorch brings"),
    ],
)
def test_clang_is_not_used_and_it_is_said_why(tmp_path, monkeypatch, programs, said):
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        program(tmp_path / "bin", name, text)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    command, reason = build.compiler.__wrapped__()
    assert command is None
    assert said in reason


def test_gcc_behind_clang_is_found(tmp_path, monkeypatch):
    program(tmp_path / "bin", "c++", "echo Debian clang version 19")
    program(tmp_path / "bin", "g++", "echo g++ 12 Free Software Foundation")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert build.compiler.__wrapped__()[0] == str(tmp_path / "bin" / "g++")


# -- another processor -------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="builds for lesser x86 processors")
def test_kernels_and_decoder_are_right_without_avx512(monkeypatch):
    config = TransformerConfig(width=32, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1, dropout=0.0)
    model, sources, search = toy.make(config, vocabulary=90), [[5, 6, 7], [8], [9, 10, 11]], SearchConfig(beam=3)

    def found() -> list[list[float]]:
        decoders = [compiled(model, config, precision) for precision in decoding.PRECISIONS]
        each = [h[0] for decoder in decoders for h in decode(Backend(decoders=[decoder]), sources, search)]
        return [[h.log_probability, *h.ids] for h in each]

    expected = found()
    for module in (native, recurrent, decoding):
        monkeypatch.setattr(module, "built", partial(built, architecture="x86-64-v3"))
    threads_of_kernels.passes()
    threads_of_kernels.one_step()
    for ours, exact in zip(found(), expected, strict=True):
        assert ours == pytest.approx(exact, abs=0.02)
