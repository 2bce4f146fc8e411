"""Gold links over attention: between the words that spaces separate, with the error rate of a head."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from bundles import ENGLISH, small_bundle

from regard.apps.cli import main
from regard.errors import DataError
from regard.explore.exploration import explore
from regard.explore.gold import check_links, error_rate, links_of, spaced
from regard.explore.look import Attention, Part, Side, look
from regard.linking.aer import parse_gold


def part() -> Part:
    """Two heads: of the first, word n looks at word n; of the second, everything at the first word."""
    rows = Side(("▁Ein", "▁Ma", "nn", "</s>"), ("Ein", "Mann", "</s>"), np.eye(3)[[0, 1, 1, 2]], (0, 1, -1))
    columns = Side(("<2de>", "▁A", "▁man", "</s>"), ("<2de>", "A", "man", "</s>"), np.eye(4), (-1, 0, 1, -1))
    first = [[0.1, 0.7, 0.2, 0], [0.6, 0, 0.4, 0], [0.6, 0.1, 0.3, 0], [0, 0, 0, 1]]
    second = [[0, 1, 0, 0]] * 4
    return Part("cross", np.array([[first, second]], dtype=np.float32), rows, columns)


def test_a_word_is_linked_with_what_it_looks_at_most() -> None:
    """Whatever stands for no word of a line, such as its end or a language's tag, is linked with nothing."""
    gold = parse_gold("0-0 1-1 0p1", base=0)
    assert links_of(part(), head=1) == [(0, 0), (1, 1)]
    assert links_of(part(), head=2) == [(0, 0), (0, 1)]
    assert error_rate(part(), gold, head=1) == 0
    assert error_rate(part(), gold, head=2) == pytest.approx(100 * (1 - (1 + 2) / (2 + 2)))


def test_words_are_those_that_spaces_separate(tmp_path: Path) -> None:
    small_bundle(tmp_path / "bundle")
    found = look(tmp_path / "bundle", "Don't: look at that!", target="Schau (nicht) hin.")
    cross = spaced(found).part("cross")
    assert cross.columns.words == ("Don't:", "look", "at", "that!", "</s>")
    assert cross.rows.words == ("Schau", "(nicht)", "hin.", "</s>")
    assert (cross.columns.numbers, cross.rows.numbers) == ((0, 1, 2, 3, -1), (0, 1, 2, -1))
    np.testing.assert_allclose(cross.rows.shares.sum(axis=1), 1)
    np.testing.assert_allclose(cross.merged().weights.sum(axis=-1), 1, atol=1e-5)


def test_links_must_be_there() -> None:
    found = Attention("A man", "Ein Mann", (part(),))
    check_links(parse_gold("0-0 1-1", base=0), found)
    with pytest.raises(DataError, match="word 2 of the target"):
        check_links(parse_gold("1-2", base=0), found)
    with pytest.raises(DataError, match="no sure one"):
        check_links(parse_gold("0p0", base=0), found)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_bundle(tmp_path / "bundle")
    call = ["look", str(tmp_path / "bundle"), "A man smiles .", "--gold", "1-1 2-2", "--gold-base", "1"]
    assert main([*call, "--target", "Ein Mann ."]) == 0
    assert "alignment error rate: " in capsys.readouterr().out
    assert main([*call, "--target", "Ein Mann .", "--out", str(tmp_path / "a.html")]) == 0
    assert '"gold":{"sure":[[0,0],[1,1]]' in (tmp_path / "a.html").read_text("utf-8")
    capsys.readouterr()
    assert main(call) == 2
    assert "give --target" in capsys.readouterr().err
    assert main([*call, "--target", "Ein Mann .", "--out", str(tmp_path / "a.svg")]) == 2
    with pytest.raises(DataError, match="given target"):
        explore(tmp_path / "bundle", ENGLISH[0], gold=parse_gold("1-1"))


def test_a_gold_set_as_it_is_published(tmp_path: Path) -> None:
    if not (data := os.environ.get("REGARD_DATA")):
        pytest.skip("REGARD_DATA names no folder with the alignment data")
    small_bundle(tmp_path / "bundle")
    pairs, links = (
        gzip.decompress((Path(data) / "word_alignment" / f"en-fr.dev.{kind}.gz").read_bytes()).decode().splitlines()
        for kind in ("txt", "gold")
    )
    line, target = pairs[0].split(" ||| ")
    found = explore(tmp_path / "bundle", line, target=target, gold=parse_gold(links[0]))
    assert found.attention is not None and found.gold is not None  # noqa: PT018
    assert 0 <= error_rate(found.attention.part("cross"), found.gold) <= 100
