"""What is read of a run while it goes on, after it, and after a crash; and what its checkpoints make of sentences."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from watching import train

import regard
from regard.apps.cli import main as command
from regard.errors import DataError
from regard.watch import log as logs
from regard.watch import results, translating
from regard.watch.following import Follower
from regard.watch.report import report
from regard.watch.runs import Run, named
from regard.watch.sentences import Sentence, from_file, keep, kept


def event(update: int, **values: object) -> str:
    return json.dumps({"event": "train", "update": update, **values})


# -- the log -----------------------------------------------------------------------------------------------------------


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = logs.Log(path)
    log.refresh()  # there is none yet
    whole = event(2, loss=3.5)
    path.write_text(event(1, loss=4.0) + "\n" + whole[:15], encoding="utf-8")
    log.refresh()
    assert log.kinds["train"].values == {"update": [1], "loss": [4.0]}
    with path.open("a", encoding="utf-8") as file:
        file.write(whole[15:] + "\n")
    log.refresh()
    assert log.kinds["train"].values == {"update": [1, 2], "loss": [4.0, 3.5]}
    assert log.generation == 0


def test_what_is_no_event_is_passed_over(tmp_path: Path) -> None:
    lines = ["", "no JSON", "[1]", "{}", '{"event": 3, "update": 1}', '{"event": "train", "update": "x"}', "[" * 9999]
    lines += [event(1, loss=1.0, note="text", improved=True, huge=1e999), event(2, norm=2.0), "\0\0", "ÿ"]
    (tmp_path / "log.jsonl").write_bytes("\n".join(lines).encode("utf-8") + b"\n\xff\xfe\n")
    log = logs.Log(tmp_path / "log.jsonl")
    log.refresh()
    columns = {"update": [1, 2], "loss": [1.0, None], "huge": [None, None], "norm": [None, 2.0]}
    assert log.kinds["train"].values == columns


def test_a_resumed_run_writes_its_log_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(event(i, loss=1.0) + "\n" for i in range(1, 6)), encoding="utf-8")
    log = logs.Log(path)
    log.refresh()
    identity = log.identity
    part = tmp_path / "part"
    part.write_text("".join(event(i, loss=1.0) + "\n" for i in range(1, 4)), encoding="utf-8")
    os.replace(part, path)
    log.refresh()
    assert log.kinds["train"].values["update"] == [1, 2, 3]
    assert (log.generation, log.identity) == (1, identity)
    path.unlink()
    log.refresh()
    assert (log.kinds, log.generation, log.identity) == ({}, 2, "")


def test_a_long_log_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_POINTS", 100)
    (tmp_path / "log.jsonl").write_text("".join(event(i) + "\n" for i in range(1, 1001)), encoding="utf-8")
    log = logs.Log(tmp_path / "log.jsonl")
    log.refresh()
    updates = [int(each or 0) for each in log.kinds["train"].values["update"]]
    assert len(updates) <= 100
    assert (updates[0], updates[-1]) == (1, 1000)
    assert updates == sorted(updates)
    assert [*log.kinds["train"].thinned(7)["update"]][-1] == 1000
    assert log.generation > 0


# -- the run -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell who holds a lock")
def test_whether_a_run_goes_on(run: Path, tmp_path: Path) -> None:
    assert Run(tmp_path / "none").state() == "waiting"
    watched = Run(run)
    assert watched.state() == "finished"
    with (run / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert watched.state() == "running"
    assert watched.state() == "finished"
    (run / "results.json").unlink()
    assert watched.state() == "stopped"  # what was killed leaves its lock's file


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is no directory"):
        Run(tmp_path / "file")
    with pytest.raises(DataError, match="named twice"):
        named([tmp_path, tmp_path / "."], None)
    with pytest.raises(DataError, match="no run here"):
        report([tmp_path / "none"], tmp_path / "a.html")
    with pytest.raises(DataError, match=r"ends with \.html"):
        report([tmp_path], tmp_path / "a.png")


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    names = [run.name for run in named([tmp_path / "a" / "run", tmp_path / "b" / "run"], None)]
    assert names == ["a/run", "b/run"]


# -- translations ------------------------------------------------------------------------------------------------------


def translated(path: Path) -> Run:
    run = Run(path)
    run.log.refresh()
    translating.main([str(path), str(run.cache), "0", *(saved.name for saved in results.waiting(run))])
    return run


def test_each_checkpoint_translates_the_same_sentences(run: Path) -> None:
    watched = translated(run)
    found = results.known(watched)
    assert [(saved.update, saved.name == "bundle") for saved, _ in found] == [(20, False), (30, False), (30, True)]
    lines = [sentence.source for sentence in kept(watched)]
    assert [[each["source"] for each in result["samples"]] for _, result in found] == [lines] * 3
    # The run ends with the weights of its last checkpoint, so both say the same, and it is what everybody is told.
    bundle = found[-1][1]["samples"]
    assert [each["text"] for each in bundle] == [each["text"] for each in found[-2][1]["samples"]]
    translator = regard.load(run / "bundle")
    assert [each["text"] for each in bundle] == [translator.translate([line])[0].text for line in lines]
    assert not results.waiting(watched)


def test_attention_is_what_look_shows(run: Path) -> None:
    sample = results.known(translated(run))[-1][1]["samples"][0]
    for drawn, target in ((sample["own"], sample["text"]), (sample["forced"], sample["reference"])):
        cross = regard.look(run / "bundle", sample["source"], target=target).part("cross")
        assert drawn["rows"] == [*cross.rows.names]
        assert drawn["columns"] == [*cross.columns.names]
        levels = np.stack([np.frombuffer(base64.b64decode(layer), np.uint8) for layer in drawn["layers"]])
        wanted = cross.weights.mean(1).reshape(len(levels), -1)
        np.testing.assert_allclose(levels / 255, wanted, rtol=0, atol=0.51 / 255)


def test_a_checkpoint_that_training_removes_is_translated_all_the_same(run: Path) -> None:
    watched = Run(run)
    watched.log.refresh()
    results.hold(watched)
    first = watched.checkpoints()[0]
    assert first.path is not None
    shutil.rmtree(first.path)
    assert first.name in {saved.name for saved in results.waiting(watched)}
    translated(run)
    done = {saved.name: saved for saved, _ in results.known(watched)}
    assert done[first.name].path is None
    assert not [*(watched.cache / "held").iterdir()]


def test_a_checkpoint_that_is_removed_before_it_is_read_is_forgotten(run: Path) -> None:
    watched = Run(run)
    watched.log.refresh()
    first = watched.checkpoints()[0]
    assert first.path is not None
    shutil.rmtree(first.path)
    translating.translate(watched, first)
    assert not results.known(watched)


def test_a_damaged_checkpoint_is_named(run: Path) -> None:
    watched = Run(run)
    watched.log.refresh()
    first = watched.checkpoints()[0]
    assert first.path is not None
    with (first.path / "tensors.safetensors").open("r+b") as file:
        file.seek(-50, os.SEEK_END)
        file.write(b"\x01" * 50)
    watched = translated(run)
    assert "SHA-256 differs" in results.known(watched)[0][1]["error"]
    assert not results.waiting(watched)  # it is not tried again


def test_results_of_another_run_or_other_sentences_do_not_hold(run: Path) -> None:
    watched = translated(run)
    assert len(results.known(watched)) == 3
    keep(watched, (Sentence("abe"),))
    assert not results.known(watched)
    again = translated(run)
    assert [[each["source"] for each in result["samples"]] for _, result in results.known(again)] == [["abe"]] * 3
    text = (run / "log.jsonl").read_text("utf-8")
    (run / "log.jsonl").write_text(text.replace('"loss": ', '"loss": 1', 1), encoding="utf-8")
    other = Run(run)
    other.log.refresh()
    assert not results.known(other)


def test_old_results_are_thinned(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_KEPT", 8)
    monkeypatch.setattr(results, "_NEWEST", 4)
    watched = Run(run)
    for update in range(100, 140):
        saved = results.Saved(f"update-{update:09d}-{update:010d}", update, None, None)
        results.write(watched, saved, results.stamp_of(watched, saved), {"samples": []})
    updates = [saved.update for saved, _ in results.known(watched)]
    assert len(updates) <= 8
    assert (updates[0], updates[-4:]) == (100, [136, 137, 138, 139])


def test_sentences_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("abe\teba\n\ncd\n", encoding="utf-8")
    assert from_file(path) == (Sentence("abe", "eba"), Sentence("cd"))
    path.write_text("a\n" * 21, encoding="utf-8")
    with pytest.raises(DataError, match="21 sentences"):
        from_file(path)
    path.write_text("a" * 1001 + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="more than 1,000 characters"):
        from_file(path)


def test_a_model_that_does_not_translate_has_curves_all_the_same(run: Path) -> None:
    (run / "recipe.toml").write_text('[data]\ntext = "a.txt"\n[model]\nfamily = "gpt"\n', encoding="utf-8")
    follower = Follower([Run(run)])
    follower.finish()
    news = follower.news(0, -1, {})
    assert "does not translate" in news["wrong"]
    assert news["events"]["train"]["loss"]


def test_watching_while_training_goes_on(tmp_path: Path) -> None:
    """Training keeps one checkpoint; what was there when it was looked at is translated, and in the end the bundle."""
    follower = Follower([Run(tmp_path / "run")], nice=0)
    follower.start()
    training = threading.Thread(target=train, args=(tmp_path / "run",), kwargs={"train": {"keep_checkpoints": 1}})
    try:
        training.start()
        training.join()
        end = time.monotonic() + 120
        while follower.result(0, "bundle") is None and time.monotonic() < end:
            time.sleep(0.2)
    finally:
        follower.close()
    news = follower.news(0, -1, {})
    assert news["state"] == "finished"
    assert news["events"]["validate"]["bleu"]
    assert [each["name"] for each in news["checkpoints"] if each["translated"]][-1] == "bundle"
    assert news["checkpoints"][-2]["on_disk"]


def test_the_command_writes_a_report(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["watch", str(run), "--no-translate", "--out", str(tmp_path / "here")]) == 0
    assert capsys.readouterr().out == f"written: {tmp_path / 'here' / 'report.html'}\n"
    assert command(["watch", str(tmp_path / "none"), "--out", str(tmp_path / "a.html")]) == 2
    assert "no run here" in capsys.readouterr().err


def test_where_the_run_cannot_be_written_to_results_lie_elsewhere(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    watched = Run(run)
    assert run not in watched.cache.parents
    assert named([run], tmp_path / "cache")[0].cache.parent == tmp_path / "cache"
    watched.close()
