"""Comparing systems: sacrebleu's own paired tests to the digit, where systems differ, and input that is refused."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bundles import ENGLISH, GERMAN, small_bundle
from chromium import CHROMIUM, browser, offline

import regard
from regard.apps.cli import main
from regard.comparison import Comparing, compare
from regard.comparison.details import word_diff
from regard.comparison.page import page, tables
from regard.errors import RegardError
from regard.text import write_lines

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("REGARD_DATA", "no data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="REGARD_DATA does not name the corpora")
# Two that differ in their seed alone, and one of another family: a p far from 0 and one near it.
SYSTEMS = [ROOT / "results" / "lineage" / name / "hypotheses.txt" for name in ("luong-2", "luong-3", "transformer-2")]
HOSTILE = '<script>alert(1)</script> & "quotes" \x1b[31m'


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """A reference and two systems' outputs, as paths."""
    first = [*GERMAN[:-1], "Der der Hund"]
    second = [
        f"{line} {HOSTILE}" if number == 3 else line.replace("Mann", "Frau") for number, line in enumerate(GERMAN)
    ]
    for name, lines in (("reference", GERMAN), ("first", first), ("second", second), ("source", ENGLISH)):
        write_lines(tmp_path / f"{name}.txt", lines)
    return [str(tmp_path / f"{name}.txt") for name in ("reference", "first", "second", "source")]


@needs_data
@pytest.mark.parametrize(("test", "flag", "samples"), [("bootstrap", "bs", 1000), ("randomisation", "ar", 500)])
def test_the_printed_figures_are_sacrebleus(tmp_path, test, flag, samples):
    lines = gzip.decompress((DATA / "multi30k" / "test_2016_flickr.en.gz").read_bytes()).decode().split("\n")[:-1]
    reference = tmp_path / "reference.en"
    write_lines(reference, lines)
    call = [sys.executable, "-m", "sacrebleu", reference, "-i", *SYSTEMS, "-m", "bleu", "chrf", "-f", "text"]
    call += [f"--paired-{flag}", f"--paired-{flag}-n", str(samples)]
    printed = subprocess.run([*map(str, call)], capture_output=True, text=True, check=True).stdout
    printed = printed.partition("-----")[0]
    found = compare(SYSTEMS, reference, settings=Comparing(test=test, samples=samples))
    _, _, rows = next(tables(found))
    cells = [cell for row in rows for cell in row[1:]]
    figures = [cell.partition(" (p")[0] for cell in cells]
    assert figures == [one.strip() for one in re.findall(r"│\s+(\d+\.\d(?: \(\d+\.\d ± \d+\.\d\))?)(?=\s)", printed)]
    ps = [re.search(r"\(p = [\d.]+\)\*?", cell)[0] for cell in cells if "(p" in cell]
    assert ps == re.findall(r"\(p = [\d.]+\)\*?", printed)
    assert len(ps) == 4


def test_the_command_shows_tables_and_writes_a_page(small, tmp_path, capsys):
    reference, first, second, source = small
    out = tmp_path / "page.html"
    given = ["compare", "--reference", reference, "--source", source, first, second, "--samples", "100"]
    assert main([*given, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "p of the difference from first" in shown
    assert "\x1b" not in shown
    assert "{+Frau+}" in shown
    text = out.read_text("utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert 'lang="en"' in text
    assert "http://" not in text
    assert "https://" not in text
    assert main([*given, "--json", "--metric", "ter", "--metric", "rouge-1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["scores"]) == ["ter", "rouge-1"]
    assert found["errors"][0]["repeated n-grams"] == 1
    assert found["scores"]["ter"][1]["p"] is not None


def test_a_bundle_translates_the_source_first(tmp_path, small):
    small_bundle(tmp_path / "bundle")
    found = regard.compare(
        [tmp_path / "bundle", small[1]], small[0], source=small[3], settings=Comparing(samples=50, metric=("chrf",))
    )
    assert found.systems == ("bundle", "first")
    with pytest.raises(RegardError, match="--source"):
        compare([tmp_path / "bundle", small[1]], small[0])


def test_errors_and_rare_words_are_counted():
    right = ["the cat sat", "a 3.5 kg dog", "ein Wort"]
    found = compare(
        {"a": right, "b": ["the the cat sat", "a dog", "ein Satz"]},
        right,
        source=["x", "y", "ein Satz"],
        train=["the the cat", "a dog"],
        settings=Comparing(samples=50),
    )
    assert found.errors[0] == {
        "length ratio": 1.0,
        "empty lines": 0,
        "untranslated copies": 0,
        "repeated n-grams": 0,
        "lost numbers": 0,
    }
    assert found.errors[1]["untranslated copies"] == found.errors[1]["repeated n-grams"] == 1
    assert found.errors[1]["lost numbers"] == 1
    assert [row["frequency"] for row in found.frequencies] == ["0", "1", "2-4"]
    assert found.frequencies[2]["scores"] == pytest.approx([100, 200 / 3])
    gaps = [abs(one - other) for one, other in (each["chrf"] for each in found.examples)]
    assert gaps == sorted(gaps, reverse=True)
    assert len(gaps) == 3
    assert word_diff("a c", "a b") == [("same", "a"), ("missing", "b"), ("extra", "c")]
    assert word_diff("黑猫", "白猫") == [("missing", "白"), ("extra", "黑"), ("same", "猫")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: [p[0], p[1]], "1 system"),
        (lambda p: [p[0], p[1], p[1]], "given twice"),
        (lambda p: [p[0], p[1], p[1] + ".gone"], "no such file"),
        (lambda p: [p[0], p[1], str(Path(p[1]).with_name("empty.txt"))], "empty"),
        (lambda p: [p[0], p[1], str(Path(p[1]).with_name("short.txt"))], "2 lines, the reference 12"),
        (lambda p: [p[0], p[1], p[2], "--metric", "blue"], "no metric named 'blue'"),
        (lambda p: [p[0], p[1], p[2], "--metric", "perplexity"], "measured on probabilities"),
        (lambda p: [p[0], p[1], p[2], "--test", "coin"], "coin"),
        (lambda p: [p[0], p[1], p[2], "--samples", "99999999"], "--samples must be at most"),
        (lambda p: [p[0], p[1], p[2], "--out", "page.pdf"], "ends in .html"),
    ],
)
def test_bad_input_is_refused(small, capsys, change, said):
    Path(small[0]).with_name("empty.txt").write_text("")
    Path(small[0]).with_name("short.txt").write_text("a\nb\n")
    assert main(["compare", "--reference", *change(small)]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 700}}])
def test_everybody_can_read_the_page(tmp_path, small, options):
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = compare(small[1:3], small[0], source=small[3], settings=Comparing(samples=50))
    file = tmp_path / "page.html"
    file.write_text(page(found), encoding="utf-8")
    with browser() as chromium, offline(chromium, file, **options) as shown:
        assert shown.locator("table").count() == 4
        violations = axe.Axe().run(shown)
        assert violations.violations_count == 0, violations.generate_report()
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
