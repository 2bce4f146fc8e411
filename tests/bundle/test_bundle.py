"""Bundles: disk and back is the identity; damage of any kind is named; a failed save leaves what was there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle

from regard import bundle as bundles
from regard.bundle.load import Weights
from regard.errors import BundleError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bundles.Bundle:
    return small_bundle(tmp_path_factory.mktemp("bundles") / "small")


@pytest.fixture
def copy(made: bundles.Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.path, tmp_path / "copy"))


def _again(bundle: bundles.Bundle, path: Path, **changes: Any) -> Path:
    return bundles.save(
        path,
        **{
            "recipe": bundle.recipe,
            "weights": dict(bundle.model().named_parameters()),
            "source": bundle.source,
            "target": bundle.target,
            "provenance": bundle.provenance,
            "golden": bundle.golden,
            **changes,
        },
    )


@pytest.mark.parametrize("separate", [False, True])
def test_disk_and_back_is_the_identity(tmp_path: Path, separate: bool) -> None:
    first = small_bundle(tmp_path / "first", separate=separate)
    second = bundles.load(_again(first, tmp_path / "second"))
    assert second.recipe == first.recipe
    assert second.golden == first.golden
    assert second.provenance == first.provenance
    assert second.files == first.files, "the same content gives the same bytes"
    assert [second.source.encode(line) for line in ENGLISH] == [first.source.encode(line) for line in ENGLISH]
    assert [second.target.encode(line) for line in GERMAN] == [first.target.encode(line) for line in GERMAN]
    assert (second.source is second.target) == (not separate)
    one, other = dict(first.model().named_parameters()), dict(second.model().named_parameters())
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert sum(p.numel() for p in one.values()) == first.parameters


def test_nothing_but_the_bundle_is_left(made: bundles.Bundle) -> None:
    assert sorted(p.name for p in made.path.parent.iterdir()) == [made.path.name]
    assert sorted(p.name for p in made.path.iterdir()) == sorted([*made.files, "bundle.json"])
    assert not any(p.suffix in (".pt", ".bin", ".pkl") for p in made.path.iterdir())


def test_every_file_is_guarded_against_a_flipped_bit_and_a_missing_end(made: bundles.Bundle, copy: Path) -> None:
    for name in [*made.files, "bundle.json"]:
        file = copy / name
        content = file.read_bytes()
        # In the card the last byte is only layout; a digit of a digest is content.
        place = content.index(b'"sha256": "') + 11 if name == "bundle.json" else len(content) // 2
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(BundleError, match=rf"{name}: (changed|damaged)"):
            bundles.load(copy)
        file.write_bytes(content[: len(content) // 2])
        with pytest.raises(BundleError, match=rf"{name}: (has .* bytes and should have|damaged or cut short)"):
            bundles.load(copy)
        file.unlink()
        with pytest.raises(BundleError, match=rf"{name}: is missing|{name} is missing"):
            bundles.load(copy)
        file.write_bytes(content)
    bundles.load(copy)


def test_a_bundle_is_checked_where_no_thread_can_be_started(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    bundles.load(copy)
    file = copy / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(BundleError, match=r"weights.safetensors: changed"):
        bundles.load(copy)


def test_a_tokeniser_that_reads_differently_is_found_by_the_golden_ids(made: bundles.Bundle, tmp_path: Path) -> None:
    wrong = [g.model_copy(update={"source_ids": (5, 6, 7)}) for g in made.golden]
    path = _again(made, tmp_path / "ids", golden=wrong)
    with pytest.raises(BundleError, match=r"golden sentence 'A man in an orange hat.*should have the ids \[5, 6, 7\]"):
        bundles.load(path)
    wrong = [g.model_copy(update={"output": "Etwas anderes."}) for g in made.golden]
    with pytest.raises(BundleError, match=r"should read 'Etwas anderes.' and read '"):
        bundles.load(_again(made, tmp_path / "output", golden=wrong))


def test_weights_that_do_not_fit_the_recipe_are_named(made: bundles.Bundle, tmp_path: Path) -> None:
    weights = dict(made.model().named_parameters())
    name, tensor = next(iter(weights.items()))
    with pytest.raises(BundleError, match=f"{name} stands in only one"):
        bundles.load(_again(made, tmp_path / "less", weights={k: v for k, v in weights.items() if k != name})).model()
    with pytest.raises(BundleError, match=f"{name} is .* needs"):
        bundles.load(_again(made, tmp_path / "shape", weights={**weights, name: tensor[1:]})).model()


def test_what_is_no_bundle_is_answered_with_the_way_out(made: bundles.Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no such bundle"):
        bundles.load(tmp_path / "nowhere")
    with pytest.raises(BundleError, match="a bundle is a directory"):
        bundles.load(made.path / "recipe.toml")
    with pytest.raises(BundleError, match=r"did you mean .*small"):
        bundles.load(made.path.parent)
    with pytest.raises(BundleError, match="no bundle is in this directory"):
        bundles.load(tmp_path)


def test_another_format_is_named(copy: Path) -> None:
    card = json.loads((copy / "bundle.json").read_text(encoding="utf-8"))
    (copy / "bundle.json").write_text(json.dumps({**card, "format": 99}), encoding="utf-8")
    with pytest.raises(BundleError, match="format 99"):
        bundles.load(copy)


def test_a_save_never_replaces_what_is_no_bundle(made: bundles.Bundle, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(BundleError, match="is in the way and is no bundle"):
        _again(made, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text(encoding="utf-8") == "years of work"


@pytest.mark.parametrize("moment", range(12))
def test_a_full_disk_at_any_moment_leaves_the_old_bundle(
    made: bundles.Bundle, copy: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up at the n-th forced write or rename of the save, as far as there is an n-th."""
    left = moment

    def failing(call: Any) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **named)

        return run

    weights = {name: tensor + 1 for name, tensor in made.model().named_parameters()}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync))
        patch.setattr(Path, "rename", failing(Path.rename))
        message = _message_of_saving(made, copy, weights)
    names = sorted(p.name for p in copy.parent.iterdir())
    assert names == ["copy"], names
    loaded = dict(bundles.load(copy).model().named_parameters())
    old = dict(made.model().named_parameters())
    expected = old if message else weights
    assert all(torch.equal(loaded[name], expected[name]) for name in old)
    assert not message or ("no space is left on the disk; free some" in message and "untouched" in message)


def _message_of_saving(made: bundles.Bundle, path: Path, weights: dict[str, Any]) -> str:
    """What the failed save says; nothing if it succeeded."""
    try:
        _again(made, path, weights=weights)
    except BundleError as error:
        return str(error)
    return ""


def test_a_replacement_cut_short_between_its_renames_says_how_to_go_on(copy: Path) -> None:
    copy.rename(copy.with_name(".copy.old"))
    with pytest.raises(BundleError, match=r"the bundle before is whole: `mv .*\.copy\.old .*copy`"):
        bundles.load(copy)


def test_a_bundle_may_be_named_by_a_link_or_by_a_dot(
    made: bundles.Bundle, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {name: tensor + 1 for name, tensor in made.model().named_parameters()}
    link = copy.with_name("link")
    link.symlink_to(copy)
    _again(made, link, weights=weights)
    assert link.is_symlink()
    assert all(torch.equal(p, weights[n]) for n, p in bundles.load(copy).model().named_parameters())
    monkeypatch.chdir(copy)
    bundles.load(".")
    monkeypatch.chdir(copy.parent)
    with pytest.raises(BundleError, match="did you mean copy"):
        bundles.load(".")


def test_asking_whether_there_is_a_tensor_reads_none(copy: Path) -> None:
    weights = Weights(copy / "weights.safetensors")
    name = next(iter(weights))
    (copy / "weights.safetensors").unlink()
    assert name in weights
    assert "no.such" not in weights
    with pytest.raises(BundleError, match="cannot be read"):
        weights[name]
