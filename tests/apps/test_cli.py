"""The command line, word by word, and the Python API's names."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bundles import ENGLISH, GERMAN, small_bundle

import regard
from regard.apps.cli import main
from regard.engine import decoding

WORDS = ["train", "translate", "evaluate", "score", "generate", "fill", "classify", "embed", "perplexity", "phrases"]
WORDS += ["inspect", "init", "plan", "prepare", "get", "demo", "doctor"]
QUICK = [
    "train.max_updates=6",
    "train.validate_every=3",
    "train.log_every=2",
    "model.width=16",
    "model.heads=2",
    "model.feedforward=16",
    "text.size=330",
    "search.extra_length=3",
]

DEFAULT = "float64" if decoding.refusal() else "float32"
"""What products are computed in where nothing is asked for."""


def settings(extra: tuple[str, ...] = ()) -> list[str]:
    return [part for setting in [*QUICK, *extra] for part in ("--set", setting)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.en and a.de, with 60 different pairs."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [(f"{a} {n}", f"{b} {n}") for n in range(5) for a, b in zip(ENGLISH, GERMAN, strict=True)]
    for side, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundles") / "small").path


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Source and reference."""
    for name, lines in (("s", ENGLISH), ("r", GERMAN)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(tmp_path / "s"), str(tmp_path / "r")


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    """What makes it quick is what it does not load (tests/apps/test_flags.py); a time would depend on the machine."""
    done = subprocess.run([sys.executable, "-m", "regard", "--help"], capture_output=True, text=True, check=True)
    assert all(f"  {word} " in done.stdout for word in WORDS)
    heavy = (
        "import sys, regard.apps.cli; print(sorted({'torch', 'numpy', 'pydantic', 'sacrebleu'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("word", WORDS)
def test_every_word_explains_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--help"]) == 0
    assert f"Usage: regard {word}" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"regard {regard.__version__}\n"


def test_public_names_are_there_and_are_all() -> None:
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    assert set(regard.__all__) <= set(dir(regard))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = regard.lode


def test_two_files_become_a_translator(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train without a recipe, look at what is left, and use it."""
    out = tmp_path / "run"
    pair = [str(corpus / "a.en"), str(corpus / "a.de")]
    assert main(["train", *pair, "--out", str(out), "--from", "en", "--to", "de", *settings()]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{out / 'bundle'}\n"
    assert "60 pairs:" in shown.err
    assert "[model]\nwidth = 16" in shown.err, "the recipe is printed"
    assert "dev loss" in shown.err
    assert regard.load_recipe(out / "recipe.toml").train.max_updates == 6, "and written into the output"
    assert regard.load_recipe(out / "recipe.toml") == regard.load(out / "bundle").recipe

    assert main(["translate", str(out / "bundle"), pair[0], "--beam", "1"]) == 0
    assert capsys.readouterr().out.count("\n") == 60
    assert main(["inspect", str(out / "bundle"), "--verify"]) == 0
    assert "translated again in float64, and the same" in capsys.readouterr().out

    assert main(["train", *pair, "--out", str(out)]) == 2
    assert "holds a run already; go on with --resume" in capsys.readouterr().err
    assert main(["train", *pair, "--out", str(out), "--resume"]) == 0, "the recipe that was chosen is taken up"
    assert "bit for bit" not in capsys.readouterr().err

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert main(["train", *pair, "--out", str(out), "--resume"]) == 0
    finally:
        torch.set_num_threads(threads)
    said = f"saved with {threads} threads, going on with {threads + 1}: as good, but not bit for bit"
    assert said in capsys.readouterr().err


def test_a_recipe_is_written_prepared_and_trained(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "my.toml"
    monkeypatch.setenv("REGARD_DATA", str(corpus))
    files = ["--source", "${REGARD_DATA}/a.en", "--target", "${REGARD_DATA}/a.de"]
    assert main(["init", str(recipe), *files, "--from", "en", "--to", "de"]) == 0
    assert main(["init", str(recipe)]) == 2
    assert "exists already" in capsys.readouterr().err
    out = str(tmp_path / "run")
    more = settings(("text.shrink=true", "train.average_every=2"))
    assert main(["prepare", str(recipe), "--out", out, *more]) == 0
    assert "pairs to learn from" in capsys.readouterr().out
    assert main(["train", str(recipe), "--out", out, *more]) == 0
    assert (tmp_path / "run" / "bundle" / "bundle.json").exists()
    monkeypatch.delenv("REGARD_DATA")
    assert main(["train", str(recipe)]) == 2
    assert "${REGARD_DATA} has no value that is a file or folder here" in capsys.readouterr().err
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "misspelt"))
    assert main(["train", str(recipe)]) == 2
    assert "${REGARD_DATA} has no value that is a file or folder here" in capsys.readouterr().err


def test_init_prints_a_recipe_that_parses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert regard.Recipe is not None
    from regard.recipe import parse

    parse(capsys.readouterr().out)


def test_translate_reads_standard_input_and_writes_lines(
    bundle: Path,
    files: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["translate", str(bundle), files[0]]) == 0
    plain = capsys.readouterr().out
    assert plain.count("\n") == len(ENGLISH)

    stream = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + "\r\n".join(ENGLISH).encode() + b"\r\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    assert main(["translate", str(bundle), "-"]) == 0
    assert capsys.readouterr().out == plain, "a byte-order mark and CRLF make no difference"

    assert main(["translate", str(bundle), files[0], "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == plain

    assert main(["translate", str(bundle), files[0], "--scores"]) == 0
    scored = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert all(float(value) < 0 for value, _ in scored)

    assert main(["translate", str(bundle), files[0], "--n-best", "2"]) == 0
    numbers = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert numbers == [str(1 + n // 2) for n in range(2 * len(ENGLISH))]


@pytest.mark.filterwarnings("always:cut off at the longest")
def test_translations_that_are_cut_off_are_told(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By line, of text, and by how they begin in a document; an empty line's ends at once."""
    text, document = tmp_path / "a.txt", tmp_path / "a.md"
    text.write_text(f"\n{ENGLISH[0]}\n\n" + f"{ENGLISH[0]}\n" * 4, encoding="utf-8")
    document.write_text(f"# {ENGLISH[0]}\n", encoding="utf-8")
    to_file = ["-o", str(tmp_path / "b.md")]
    for name, given, said in (
        (text, [], "line 2, line 4, line 5 and 2 more"),
        (text, ["--stream"], "line 2, line 4, line 5 and 2 more"),
        (document, to_file, f"'{ENGLISH[0][:40]}'"),
    ):
        assert main(["translate", str(bundle), str(name), "--max-length", "1", *given]) == 0
        shown, told = capsys.readouterr()
        assert shown.count("\n") == (7 if name == text else 0)
        assert told.startswith(f"regard: cut off at the longest output allowed: {said}; raise it (extra_length")
    text.write_text("\n\n", encoding="utf-8")
    assert main(["translate", str(bundle), str(text)]) == 0
    assert capsys.readouterr().err == ""


def test_evaluate_tells_scores_with_signatures_and_how_they_were_made(
    bundle: Path, files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference = files
    assert main(["evaluate", str(bundle), "--source", source, "--reference", reference]) == 0
    shown = capsys.readouterr().out
    assert "tok:13a" in shown
    assert f"{DEFAULT} on cpu" in shown

    (tmp_path / "groups").write_text("first\n" * 6 + "second\n" * 6, encoding="utf-8")
    options = ["--metric", "chrf", "--groups", str(tmp_path / "groups"), "-o", str(tmp_path / "out"), "--json"]
    assert main(["evaluate", str(bundle), "--source", source, "--reference", reference, *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["scores"]) == ["bleu", "chrf"]
    assert list(result["groups"]) == ["first", "second"]
    assert result["decoding"]["precision"] == DEFAULT
    assert len((tmp_path / "out").read_text(encoding="utf-8").splitlines()) == len(ENGLISH)


def test_score_gives_a_line_a_line(bundle: Path, files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(bundle), *files]) == 0
    shown = capsys.readouterr()
    values = [float(line) for line in shown.out.splitlines()]
    assert len(values) == len(ENGLISH)
    assert "perplexity" in shown.err
    assert main(["score", str(bundle), *files, "--json", "--tokens"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for value, record in zip(values, records, strict=True):
        assert record["log_probability"] == pytest.approx(value, abs=1e-4)
        assert sum(p for _, p in record["tokens"]) == pytest.approx(value, abs=1e-3)


def test_inspect_and_doctor_speak_to_people_and_to_programs(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(bundle)]) == 0
    assert "en to de" in capsys.readouterr().out
    assert main(["inspect", str(bundle), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["family"] == "transformer"
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "kernels" in shown
    assert "not fused:" in shown, "the reason for what was not chosen"
    assert main(["doctor", "--json"]) == 0
    assert {f["topic"] for f in json.loads(capsys.readouterr().out)} == {
        *("versions", "machine", "decoder", "kernels", "training")
    }


def test_get_lists_what_it_knows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["get"]) == 0
    assert capsys.readouterr().out.startswith("multi30k\t")
    assert main(["get", "multi30k", "--offline", "--out", str(tmp_path)]) == 2
    assert "offline" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "many").write_text(f"{ENGLISH[0]}\n" * 500, encoding="utf-8")
    command = f"{sys.executable} -m regard translate {bundle} {tmp_path / 'many'} --beam 1 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_output_is_utf8_whatever_the_locale(bundle: Path, files: tuple[str, str]) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "regard", "inspect", str(bundle), "--json"]
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert json.loads(done.stdout.decode("utf-8"))["golden"][0][0] == ENGLISH[0]
