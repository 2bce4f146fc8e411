"""The lectures' pages as files: one each, with everything inside, in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.apps.cli import main
from regard.studies.lectures import every, interactive
from regard.studies.lectures.every import LECTURES, lecture, words
from regard.studies.lectures.recording import recorded

BUNDLE = Path(__file__).parents[1] / "bundle" / "made-by-0.1" / "transformer"


@pytest.fixture
def few() -> Iterator[None]:
    """Three lectures alone; afterwards all, in their order."""
    every_one = dict(LECTURES)
    for name in every_one.keys() - {"masks", "by-hand", "dropout"}:
        del every.LECTURES[name]
    yield
    every.LECTURES.clear()
    every.LECTURES.update(every_one)


def test_all_lectures_have_a_page_and_an_index_leads_to_them(
    few: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lecture", "all", "--out", str(tmp_path)]) == 0
    assert "drawn" in capsys.readouterr().out
    names = ["masks", "by-hand", "dropout", interactive.RECORDED]
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted([*names, "index"])
    links = re.findall(r'href="([\w-]+)\.html"', (tmp_path / "index.html").read_text("utf-8"))
    assert sorted(links) == sorted(names)
    for path in tmp_path.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r'(?:src|href)="(?!data:|[\w-]+\.html")', text), "nothing comes from elsewhere"
        assert text.count('lang="zh"') >= 3
    page = (tmp_path / "masks.html").read_text("utf-8")
    assert 'data-widget="masks"' in page
    assert "data:image/svg+xml;base64," in page
    assert "谁能看谁" in page
    assert "Who may look where" in page
    assert 'data-widget="' not in (tmp_path / "dropout.html").read_text("utf-8")


def test_one_lecture_is_one_file(tmp_path: Path) -> None:
    assert main(["lecture", "by-hand", "--out", str(tmp_path), "--json"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["by-hand.html"]


def test_a_page_is_there_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from regard.errors import DataError

    def missing(*given: object) -> None:
        raise DataError("pictures need matplotlib <install it>")

    monkeypatch.setattr(interactive, "draw", missing)
    page = interactive.page("masks", lecture("masks"))
    assert "pictures need matplotlib &lt;install it&gt;" in page
    assert 'data-widget="masks"' in page


def test_a_bundle_has_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["lecture", "decoding-steps", "--bundle", str(BUNDLE), "--out", str(tmp_path)]
    assert main([*given, "--kind", "html"]) == 2
    assert "svg, png or pdf" in capsys.readouterr().err


def test_numbers_have_names_and_words_in_both_languages() -> None:
    page = interactive.page("greedy", lecture("greedy"))
    rows = re.findall(r'<td><span lang="en">([^<]*)</span><span lang="zh">([^<]*)</span></td>', page)
    assert len(rows) >= len(lecture("greedy").numbers)
    assert any(english != chinese for english, chinese in rows)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("p(y_t | y_<t, x)", "p(y<sub>t</sub> | y<sub>&lt;t</sub>, x)"),
        ("d^−0.5 · L^α", "d<sup>−0.5</sup> · L<sup>α</sup>"),
        ("sin(p / 10000^(2i/D))", "sin(p / 10000<sup>2i/D</sup>)"),
        ("Q_h K_hᵀ", "Q<sub>h</sub> K<sub>h</sub>ᵀ"),
    ],
)
def test_formulas_are_raised_and_lowered(written: str, shown: str) -> None:
    assert interactive._formula(written) == shown


def test_every_figure_that_is_named_is_there() -> None:
    scripts = "".join(
        (Path(interactive.__file__).parent / "web" / name).read_text("utf-8") for name in interactive._SCRIPTS
    )
    for found in words()["widget"].values():
        assert re.search(rf"^  {found.partition(':')[0]}\(root\) {{$", scripts, re.MULTILINE), found


def test_a_translation_is_recorded_word_by_word() -> None:
    kept = recorded(BUNDLE, "abc de")
    steps = kept["steps"]
    assert isinstance(steps, list)
    assert steps
    for step in steps:
        assert len(step["attention"]) == len(kept["source"])  # type: ignore[arg-type]  # a list, by its docstring
        assert sum(step["attention"]) == pytest.approx(1, abs=1e-3)
        assert step["token"] == step["likeliest"][0][0]
