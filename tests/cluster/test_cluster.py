"""A corpus translated by workers of a Ray cluster on this machine, some of which are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.apps.cli import main
from regard.apps.options import Cluster
from regard.cluster import translate_file
from regard.errors import ModelError
from regard.search.table import Options

BUNDLE = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


def job(folder: Path, name: str, *more: str) -> subprocess.Popen[str]:
    """`regard translate` by Ray as a process of its own."""
    words = ["translate", str(BUNDLE), str(folder / "in.txt"), "--output", str(folder / name), "--engine", "ray"]
    words = [sys.executable, "-m", "regard", *words, "--shard-lines", "300", "--workers", "2", *more]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def descendants(process: int) -> dict[int, str]:
    """The processes that a process began, and those that they did, with their command lines."""
    parents: dict[int, int] = {}
    for found in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(found.parent.name)] = int(found.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    below, new = set[int](), {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        below |= new
    return {each: line for each in below if (line := _command(each))}


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def workers(job: int, name: str = "ray::") -> list[int]:
    """Ray's workers below a job."""
    return [process for process, line in descendants(job).items() if line.startswith(name)]


def until(what: str, condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit, what
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a corpus, and what a run that nothing disturbs makes of it."""
    pytest.importorskip("ray", reason="Ray is not installed (the extra ray; there is none for Python 3.14)")
    folder = tmp_path_factory.mktemp("corpus")
    drawn = random.Random(3)
    lines = [" ".join(drawn.choices("abcdefgh", k=drawn.randint(0, 12))) for _ in range(7001)]
    (folder / "in.txt").write_text("\n".join(lines) + "\n")
    assert main(["translate", str(BUNDLE), str(folder / "in.txt"), "--output", str(folder / "plain.txt")]) == 0
    return folder


def test_workers_and_the_job_are_killed(folder: Path) -> None:
    """A worker dies, then the job with all of its processes; the same again gives the lines of an undisturbed run."""
    shards = folder / "out.txt.shards"
    with job(folder, "out.txt") as first:  # its pipe is closed, whoever else still holds it
        try:
            until("no shard is done", lambda: len(list(shards.glob("0*.txt"))) >= 2, first)
            # A worker carries the name of its task only while it works on one; between two it is ray::IDLE.
            found: list[int] = []
            until("no worker works", lambda: found.extend(workers(first.pid, "ray::translated")) or bool(found), first)
            os.kill(found[0], signal.SIGKILL)
            before = len(list(shards.glob("0*.txt")))
            until("nothing goes on", lambda: len(list(shards.glob("0*.txt"))) >= before + 3, first)
            began = workers(first.pid)
        finally:
            first.kill()
    assert not (folder / "out.txt").exists()
    limit = time.monotonic() + 60
    while left := [worker for worker in began if _command(worker).startswith("ray::translated")]:
        assert time.monotonic() < limit, left
        time.sleep(0.1)
    kept = {path.name: path.stat().st_mtime_ns for path in shards.glob("0*.txt")}
    assert 0 < len(kept) < 24

    second = job(folder, "out.txt")
    assert second.communicate()[1].splitlines()[0] == f"{len(kept) + 1} of 24 shards are done."
    assert second.returncode == 0
    assert (folder / "out.txt").read_bytes() == (folder / "plain.txt").read_bytes()
    assert not shards.exists()


def test_a_worker_says_which_line_is_wrong(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("abc\n" * 400 + "a\tb\x00c\n")
    wrong = job(tmp_path, "out.txt")
    assert "line 401" in wrong.communicate()[1]
    assert wrong.returncode == 2


def test_another_text_is_begun_anew(folder: Path, tmp_path: Path) -> None:
    """What lies there of another job is no part of this one's output."""
    shards = tmp_path / "out.txt.shards"
    shards.mkdir()
    (shards / "job.json").write_text("{}")
    (shards / "00000000.txt").write_text("of another text\n" * 3)
    (tmp_path / "in.txt").write_text("abc de\n\nfgh\n")
    made = job(tmp_path, "out.txt", "--split")
    assert (made.communicate()[1], made.returncode) == ("1 of 1 shards are done.\n", 0)
    assert (tmp_path / "out.txt").read_text() == "ED CBA\n\nHGF\n"


def test_workers_tell_which_translations_were_cut_off(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("abc de\n\n" + "a b c\n" * 299 + "fgh\n")
    made = job(tmp_path, "out.txt", "--max-length", "2")
    told = made.communicate()[1]
    assert "regard: cut off at the longest output allowed: line 1, line 3, line 4 and 296 more;" in told
    assert "allowed: line 301, line 302;" in told
    assert made.returncode == 0


@pytest.mark.parametrize("options", [Options(n_best=2), Options(alignment=True), Options(search={"samples": 3})])
def test_options_that_give_more_than_a_line(folder: Path, tmp_path: Path, options: Options) -> None:
    with pytest.raises(ModelError, match="one translation a line"):
        translate_file(BUNDLE, folder / "in.txt", tmp_path / "out.txt", options, cluster=Cluster(shard_lines=10))


def test_what_has_no_lines_to_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(BUNDLE), str(folder / "in.txt"), "--engine", "ray"]) == 2
    assert "--output" in capsys.readouterr().err


def test_without_ray(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.cluster.translate.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="needs Ray"):
        translate_file(BUNDLE, folder / "in.txt", tmp_path / "out.txt")
