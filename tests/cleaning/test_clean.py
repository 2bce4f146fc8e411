"""Pairs that are no translations go, each for the reason that a person would give; all others stay, in order."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

import regard
from regard.apps.cli import main
from regard.cleaning.rules import RULES, Corpus, Pair, Rules, numbers
from regard.errors import DataError, TextError

CORPUS = Corpus(("en", "de"), 0.1)

BAD = {
    "empty": [("", "Etwas."), ("Something.", " \u3000 ")],
    "damaged": [
        ("A caf\ufffd.", "Ein Café."),
        ("A house.", "Ein Haus fÃ¼r alle."),
        ("Tom &amp; Jerry", "Tom und Jerry"),
    ],
    "identical": [("Where is it?", "Where  is it?")],
    "length": [("word " * 300, "Wort " * 300)],
    "letters": [("- - - 1 = 2 - -", "Das ist etwas.")],
    "ratio": [("Mr President, I would like to thank the Commissioner.", "Herr!")],
    "numbers": [("In 1969 they came.", "Sie kamen 1996."), ("It cost 10,000 yen.", "Es kostete 1.000 Yen.")],
}
GOOD = [
    ("Yes.", "Jawohl."),
    ("It cost 10,000 yen in 2016.", "Es kostete 2016 10.000 Yen."),
    ("A hundred miles.", "Hundert Meilen, also 160 km."),
    ("Room 12, please.", "Zimmer zwölf, bitte."),
    ("3.50", "3,50"),
    ("He said: “R&D”!", "Er sagte: „F&E“!"),
]


@pytest.mark.parametrize("name", BAD)
def test_each_rule_takes_what_it_is_for_and_no_other_does_before_it(name: str) -> None:
    for pair in BAD[name]:
        found = [rule for rule, (_, fits) in RULES.items() if fits and fits(Pair(*pair), Rules(), CORPUS)]
        assert found[:1] == [name], pair


def test_what_is_fit_stays() -> None:
    for pair in GOOD:
        assert [name for name, (_, fits) in RULES.items() if fits and fits(Pair(*pair), Rules(), CORPUS)] == [], pair


def test_numbers_are_read_with_what_groups_them() -> None:
    assert numbers("10,000 and 10.000, 1\u202f234’567 of ４２０, 12:30, 2016", 3) == [
        "10000",
        "10000",
        "1234567",
        "420",
        "2016",
    ]


def _write(folder: Path, pairs: list[tuple[str, str]]) -> list[str]:
    names = [str(folder / "in.en"), str(folder / "in.de")]
    for name, side in zip(names, zip(*pairs, strict=True), strict=True):
        Path(name).write_text("".join(f"{line}\n" for line in side), "utf-8")
    return names


def _read(name: str | Path) -> list[str]:
    return Path(name).read_text("utf-8").splitlines()


def test_a_corpus_is_cut_into_what_stays_and_what_goes(tmp_path: Path) -> None:
    bad = [pair for pairs in BAD.values() for pair in pairs]
    again = ("room  12, PLEASE.", "Zimmer zwölf, bitte.")
    names = _write(tmp_path, [*GOOD, *bad, again])
    made = regard.clean(*names, tmp_path / "out")
    assert made.files == tuple(str(tmp_path / f"out.{end}") for end in ("source", "target", "rejected.tsv"))
    assert list(zip(*map(_read, made.files[:2]), strict=True)) == GOOD
    assert (made.read, made.kept) == (len(GOOD) + len(bad) + 1, len(GOOD))
    assert made.gone == {**{name: len(pairs) for name, pairs in BAD.items()}, "duplicate": 1}
    rejected = [line.split("\t") for line in _read(made.files[2])]
    assert [int(number) for _, number, _, _ in rejected] == [*range(len(GOOD) + 1, made.read + 1)]
    assert json.loads((tmp_path / "out.report.json").read_text("utf-8"))["gone"] == made.gone
    assert [path.name for path in tmp_path.glob("*.part")] == []
    kept = regard.clean(*names, tmp_path / "all", rules=Rules(off=tuple(RULES)))
    assert kept.kept == kept.read


def test_one_line_of_a_side_can_be_enough(tmp_path: Path) -> None:
    names = _write(tmp_path, [("Go.", "Geh."), ("Go.", "Los."), ("Walk.", "Geh.")])
    for side, kept in (("pair", 3), ("source", 2), ("target", 2)):
        assert regard.clean(*names, tmp_path / side, rules=Rules(duplicates=side)).kept == kept


def _tatoeba(count: int) -> list[tuple[str, str]]:
    if (folder := os.environ.get("REGARD_DATA")) is None:
        pytest.skip("needs REGARD_DATA, a directory with tatoeba_en-de/ in it")
    sides = []
    for language in ("en", "de"):
        with gzip.open(f"{folder}/tatoeba_en-de/train.{language}.gz", "rt", encoding="utf-8", newline="\n") as lines:
            sides.append([line.rstrip("\n") for line, _ in zip(lines, range(count), strict=False)])
    return list(zip(*sides, strict=True))


def test_pairs_put_together_wrongly_are_found_among_real_ones(tmp_path: Path) -> None:
    """100 of 8,000 have the translation of another: most are found by their words, and few others go."""
    pairs = _tatoeba(8000)
    wrong = random.Random(1).sample(range(len(pairs)), 100)
    moved = [pairs[i][1] for i in (*wrong[1:], wrong[0])]
    for i, target in zip(wrong, moved, strict=True):
        pairs[i] = (pairs[i][0], target)
    made = regard.clean(*_write(tmp_path, pairs), tmp_path / "out")
    gone = {int(line.split("\t")[1]) - 1 for line in _read(made.files[2])}
    assert len(gone & set(wrong)) >= 60
    assert len(gone - set(wrong)) <= 0.01 * len(pairs)
    assert made.likeness["pairs"] > 1 > 0 > made.likeness["by_chance"]


def test_lines_of_another_language_go(tmp_path: Path) -> None:
    pytest.importorskip("lingua")
    good = [("Was there an earthquake?", "Gab es ein Erdbeben?"), ("Tom knew.", "Tom wusste Bescheid.")]
    bad = [("Je voudrais vous dire quelque chose, monsieur.", "Ich möchte Ihnen etwas sagen, mein Herr."),
           ("They never came back home again.", "Ze zijn nooit meer naar huis teruggekomen.")]  # fmt: skip
    names = _write(tmp_path, [*good, *bad])
    made = regard.clean(*names, tmp_path / "out", languages=("en", "de"))
    assert made.gone == {"language": 2}
    assert made.files[0].endswith("out.en")
    assert _read(made.files[1]) == [target for _, target in good]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = _write(tmp_path, [*GOOD, *BAD["numbers"]])
    assert main(["clean", *names, "--out", str(tmp_path / "out"), "--off", "ratio"]) == 0
    out, err = capsys.readouterr()
    assert f"{len(GOOD)} of {len(GOOD) + 2} pairs kept" in out
    assert "numbers" in err
    assert "In 1969" in err
    assert main(["clean", *names, "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gone"] == {"numbers": 2}


def test_lines_that_are_held_out_are_not_learnt_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Signs, capitals, widths and spaces aside, on either side; a line of signs alone holds nothing out."""
    bad = [("room, twelve PLEASE", "Ein Zimmer."), ("It is ３.", "Das ist drei."), ("A test.", "Es war — ein Test")]
    good = [("Room twelve, pleases.", "Ein Zimmer!"), ("…", "…?"), ("नमस्ते", "Guten Tag.")]
    held = tmp_path / "test.en.gz"
    held.write_bytes(gzip.compress("Room twelve, please!\r\nit is 3\n\n...\nनमसत\n".encode()))
    (tmp_path / "test.de").write_text("Es war ein Test.\n", "utf-8")
    names = _write(tmp_path, [*bad, *good])
    flags = ["--held-out", str(held), "--held-out", str(tmp_path / "test.de"), "--off", "letters", "--off", "identical"]
    assert main(["clean", *names, *flags, "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gone"] == {"held-out": len(bad)}
    assert list(zip(_read(tmp_path / "out.source"), _read(tmp_path / "out.target"), strict=True)) == good
    assert main(["clean", *names, "--held-out", str(tmp_path / "none"), "--out", str(tmp_path / "other")]) == 2
    assert "none: there is no such file" in capsys.readouterr().err
    flags = ["--held-out", str(tmp_path / "test.de"), "--to", "de", "--from", "en", "--off", "language"]
    assert main(["clean", *names, *flags, "--out", str(tmp_path / "test")]) == 2
    assert "which is read" in capsys.readouterr().err


def test_what_is_read_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = _write(tmp_path, GOOD)
    before = [Path(name).read_bytes() for name in names]
    assert main(["clean", *names, "--from", "en", "--to", "de", "--out", str(tmp_path / "in")]) == 2
    assert "which is read; choose another beginning" in capsys.readouterr().err
    assert [Path(name).read_bytes() for name in names] == before


def test_mistakes_are_told_with_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = _write(tmp_path, GOOD)
    with pytest.raises(DataError, match="no such rule; choose among empty"):
        regard.clean(*names, tmp_path / "out", rules=Rules(off=("lenght",)))
    with pytest.raises(DataError, match="'tlh' is not among the"):
        regard.clean(*names, tmp_path / "out", languages=("en", "tlh"))
    with pytest.raises(DataError, match="name two"):
        regard.clean(*names, tmp_path / "out", languages=("de", "de"))
    with pytest.raises(DataError, match="no pair is left of 1: empty 1"):
        regard.clean(*_write(tmp_path, [("", "")]), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []
    (tmp_path / "short").write_text("a\n", "utf-8")
    _write(tmp_path, GOOD)
    with pytest.raises(TextError, match="lines"):
        regard.clean(names[0], tmp_path / "short", tmp_path / "out")
    assert main(["clean", names[0], "--out", str(tmp_path / "out")]) == 2
    assert "one file holds both sides only as" in capsys.readouterr().err
    assert main(["clean", *names, "--max-ratio", "1"]) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []
