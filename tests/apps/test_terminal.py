"""Text of others in the terminal: no character of it is obeyed, and nothing of it is markup."""

from __future__ import annotations

import io
import os
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from bundles import small_bundle
from rich.console import Console

from regard.apps.cli import cell, main, printable, say, status
from regard.apps.training import _fit
from regard.errors import Interrupted, ModelError
from regard.inspection.command import show_inspection
from regard.inspection.inspect import Inspection
from regard.models.blocks import device_named
from regard.text import write_lines

EVIL = "a\x1b]8;;http://x\x1b\\b\x9b2J\x07\u202ec[/b][link=http://x]d[/red]"


def on(text: io.StringIO) -> Console:
    return Console(file=text, force_terminal=True, width=300, color_system=None)


def test_every_character_that_a_terminal_obeys_is_written_as_its_number() -> None:
    assert printable("a\x1b[31m\x7f\x85\u2066\ud800") == "a\\x1b[31m\\x7f\\x85\\u2066\\ud800"
    assert (
        printable("Zeile\t1\nde\u0301ja\u0300 vu \u4e2d\u6587 \U0001f600")
        == "Zeile\t1\nde\u0301ja\u0300 vu \u4e2d\u6587 \U0001f600"
    )


def test_nothing_of_a_line_is_markup_or_obeyed() -> None:
    text = io.StringIO()
    say(on(text), EVIL)
    on(text).print(cell(EVIL))
    assert text.getvalue() == f"{printable(EVIL)}\n" * 2
    assert "\x1b" not in text.getvalue()


def test_progress_is_a_line_now_and_then_where_no_terminal_shows_it(monkeypatch, capsys) -> None:
    with status("reading") as tell:
        tell("1 of 3 lines")
    assert capsys.readouterr().err == ""  # half a minute has not passed
    monkeypatch.setattr("regard.apps.cli._SELDOM", 0.0)
    with status("reading") as tell:
        tell("2 of 3 lines")
        tell("[b]3[/b] of 3 lines")
    assert capsys.readouterr().err == "2 of 3 lines\n[b]3[/b] of 3 lines\n"


def test_a_bundle_cannot_command_the_terminal_that_it_is_inspected_in() -> None:
    came = {
        "created": EVIL, "machine": EVIL, "versions": {EVIL: EVIL}, "training": {EVIL: {EVIL: EVIL}},
        "data": {"sha256": {EVIL: EVIL}},
        "scores": [{"set": EVIL, "scores": {"bleu": {"name": EVIL, "value": 1.0, "unit": EVIL, "signature": EVIL}}}],
    }  # fmt: skip
    found = Inspection(Path(EVIL), EVIL, EVIL, EVIL, 1, (1, 1), 1, EVIL, EVIL, came, [(EVIL, EVIL)], False)
    text = io.StringIO()
    show_inspection(found, on(text))
    assert printable(EVIL) in text.getvalue()
    assert not any(character in text.getvalue() for character in ("\x1b]", "\x9b", "\x07", "\u202e"))


def test_an_error_names_a_file_without_obeying_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "no-bundle", "no\x1b[2Jfile", "b"]) == 2
    assert main(["plan", "no\x1b[2J.toml"]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "no\\x1b[2J.toml" in said


@pytest.mark.parametrize("name", ["x[/b]", "run[lr=0.1]", "a b"])
def test_the_command_to_go_on_with_is_the_one_to_type(name: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr("regard.tasks.fit.fit", lambda *_, **__: (_ for _ in ()).throw(Interrupted(Path(name) / "c")))
    with pytest.raises(Exception, match="130"):
        _fit(None, Path(name), False)
    said = capsys.readouterr().err
    command = shlex.split(said.partition("Go on with:")[2])
    assert command == ["regard", "train", f"{name}/recipe.toml", "--out", name, "--resume"]
    assert f"{name}/c" in said


# -- what -o names -----------------------------------------------------------------------------------------------------


def test_what_a_link_points_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old\n", encoding="utf-8")
    for name, target in (("link", "real"), ("dangling", "new")):
        (tmp_path / name).symlink_to(tmp_path / target)
        assert write_lines(tmp_path / name, ["a", "b"]) == 2
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / target).read_text("utf-8") == "a\nb\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dangling", "link", "new", "real"]


def test_a_device_is_written_into_and_stays_a_device(tmp_path: Path) -> None:
    write_lines("/dev/null", ["a"])
    assert Path("/dev/null").is_char_device()
    (tmp_path / "null").symlink_to("/dev/null")
    write_lines(tmp_path / "null", ["a"])
    assert (tmp_path / "null").is_symlink()


@contextmanager
def read(pipe: Path) -> Iterator[list[bytes]]:
    """A pipe, and what came out of it once all is written."""
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    yield got
    reader.join(20)
    assert pipe.is_fifo()


def test_a_pipe_gets_the_lines(tmp_path: Path) -> None:
    with read(tmp_path / "pipe") as got:
        write_lines(tmp_path / "pipe", ["a", "b"])
    assert got == [b"a\nb\n"]


def test_a_pipe_gets_the_vectors(tmp_path: Path) -> None:
    bundle = small_bundle(tmp_path / "bundle").path
    write_lines(tmp_path / "lines", ["a lion", "a man"])
    with read(tmp_path / "pipe") as got:
        assert main(["embed", str(bundle), str(tmp_path / "lines"), "-o", str(tmp_path / "pipe")]) == 0
    assert np.load(io.BytesIO(got[0])).shape == (2, 32)


@pytest.mark.parametrize("device", ["meta", "cuda:99", "nowhere", ""])
def test_a_device_that_computes_nothing_is_refused(device: str, tmp_path: Path, capsys) -> None:
    bundle = small_bundle(tmp_path / "bundle").path
    (tmp_path / "a").write_text("a lion\n", encoding="utf-8")
    assert main(["translate", str(bundle), str(tmp_path / "a"), "--device", device]) == 2
    assert "cannot be used" in capsys.readouterr().err
    with pytest.raises(ModelError, match="cannot be used"):
        device_named(device)


# -- the doctor --------------------------------------------------------------------------------------------------------


def test_a_machine_in_a_bad_state_is_described_all_the_same(monkeypatch, tmp_path, capsys) -> None:
    """A folder that is gone, a kernel that cannot be asked, a package whose description is damaged."""

    def broken(*_: object, **__: object) -> None:
        raise OSError("broken\x1b[2J on purpose")

    monkeypatch.setattr("regard.engine.decoding.refusal", broken)
    monkeypatch.setattr("regard.inspection.doctor.shutil.disk_usage", broken)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.count("OSError: broken\\x1b[2J on purpose") == 2
    assert "\x1b" not in said
    assert "versions" in said
