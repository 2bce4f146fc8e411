"""A recipe chosen for raw text: by its size, its letters and the machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from bundles import ENGLISH, GERMAN

from regard.errors import TextError
from regard.settings import DataConfig
from regard.tasks.choose import choose, count

CHINESE = [
    "一个戴着橙色帽子的男人盯着什么看。",
    "两个年轻的白人男子在许多灌木附近的户外。",
    "一个小女孩爬进木制游戏屋。",
] * 4


def files(folder: Path, source: list[str], target: list[str], times: int = 1) -> DataConfig:
    (folder / "a").write_text("".join(f"{line}\n" for line in source) * times, encoding="utf-8")
    (folder / "b").write_text("".join(f"{line}\n" for line in target) * times, encoding="utf-8")
    return DataConfig(source=str(folder / "a"), target=str(folder / "b"), source_language="en")


def test_more_data_gives_more_model_less_dropout_and_fewer_epochs(tmp_path: Path) -> None:
    small = choose(files(tmp_path, ENGLISH, GERMAN, 10), gpu=True).recipe
    large = choose(files(tmp_path, ENGLISH, GERMAN, 2000), gpu=True).recipe
    assert small.model.width < large.model.width
    assert small.text.size < large.text.size
    assert small.train.max_updates <= large.train.max_updates
    assert small.data.source_language == "en", "what was given is kept"


def test_without_a_gpu_the_model_is_kept_small_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.tasks import choose as module

    monkeypatch.setattr(module, "count", lambda data: module.Counts(3_000_000, 10**8, 100, 0.9))
    data = files(tmp_path, ENGLISH, GERMAN)
    on_cpu, on_gpu = choose(data, gpu=False), choose(data, gpu=True)
    assert on_cpu.recipe.model.width < on_gpu.recipe.model.width == 512
    assert on_cpu.recipe.text.size == on_gpu.recipe.text.size == 32_000
    assert any("no GPU" in reason for reason in on_cpu.reasons)
    assert not any("no GPU" in reason for reason in on_gpu.reasons)


def test_scripts_that_share_no_letters_get_vocabularies_of_their_own(tmp_path: Path) -> None:
    ensemble_with = choose(files(tmp_path, ENGLISH, GERMAN)).recipe
    assert (ensemble_with.text.joint, ensemble_with.model.share) == (True, "all")
    apart = choose(files(tmp_path, ENGLISH, CHINESE)).recipe
    assert (apart.text.joint, apart.model.share) == (False, "target")


def test_every_form_of_parallel_text_is_counted(tmp_path: Path) -> None:
    pairs = list(zip(ENGLISH, GERMAN, strict=True))
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    records = "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in pairs)
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(records.encode()))
    plain = count(files(tmp_path, ENGLISH, GERMAN))
    assert plain.pairs == len(ENGLISH)
    assert plain.characters == max(sum(map(len, ENGLISH)), sum(map(len, GERMAN)))
    for name in ("p.tsv", "p.jsonl.gz"):
        assert count(DataConfig(source=str(tmp_path / name))) == plain


def test_text_that_cannot_be_used_is_refused_before_anything_is_chosen(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="12 lines but"):
        choose(files(tmp_path, ENGLISH, GERMAN[1:]))
