"""Bad input of every kind: one clear message, exit code 2, and nothing lost."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bundles import ENGLISH, GERMAN, small_bundle

from regard import bundle as bundles
from regard.apps.cli import main
from regard.bundle.save import seal
from regard.train import checkpoint

SETTINGS = ["train.log_every=2", "model.width=16", "model.heads=2", "model.feedforward=16", "text.size=330"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundles") / "small").path


@pytest.fixture
def place(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with good.en, good.de, recipe.toml and a bundle."""
    monkeypatch.chdir(tmp_path)
    pairs = [(f"{a} {n}", f"{b} {n}") for n in range(5) for a, b in zip(ENGLISH, GERMAN, strict=True)]
    write("good.en", "".join(f"{a}\n" for a, _ in pairs))
    write("good.de", "".join(f"{b}\n" for _, b in pairs))
    write("recipe.toml", '[data]\nsource = "good.en"\ntarget = "good.de"\n')
    shutil.copytree(made, "bundle")
    return tmp_path


def write(name: str, content: str | bytes) -> None:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def everything(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with code 2, one message that matches, no traceback, nothing on standard output."""
    code = main(arguments)
    shown = capsys.readouterr()
    assert code == 2, shown.err
    assert re.search(message, shown.err), shown.err
    assert "Traceback" not in shown.err
    assert shown.err.count("regard: ") == 1
    assert shown.out == ""


BAD_TEXT = [
    ("fewer.en", "a line\n" * 59, r"fewer.en has 59 lines but good.de has 60"),
    ("latin.en", "caf\xe9 au lait\n".encode("latin-1") * 60, r"latin.en: line 1 is not UTF-8: byte 0xE9 at position 4"),
    ("utf16.en", ("one line\n" * 60).encode("utf-16"), r"utf16.en: line 1 .* UTF-16"),
    ("empty.en", b"", r"empty.en: the file is empty"),
    ("long.en", "fine\n" + "x" * 100_000 + "\n", r"long.en: line 2 has 100,000 characters; at most 50,000"),
    ("nul.en", "fine\nbad\0line\n" + "fine\n" * 58, r"nul.en: line 2 contains a NUL"),
    ("gone.en", None, r"gone.en: (there is no such file|.*No such file)"),
    ("cut.en.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcbH", r"cut.en.gz: the gzip data is damaged"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_TEXT, ids=[name for name, _, _ in BAD_TEXT])
def test_text_that_cannot_be_used_to_train(
    place: Path, name: str, content: str | bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        write(name, content)
    before = everything(place)
    refused(["train", name, "good.de", "--out", "run"], message, capsys)
    assert everything(place) == before
    refused(["train", "recipe.toml", "--out", "run2", "--set", f"data.source={name}"], message.split(r"\.")[0], capsys)
    assert everything(place).items() >= before.items()


@pytest.mark.parametrize(("name", "content", "message"), BAD_TEXT[1:], ids=[name for name, _, _ in BAD_TEXT[1:]])
def test_text_that_cannot_be_translated(
    place: Path, name: str, content: str | bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        write(name, content)
    write("out.de", "what was here before\n")
    before = everything(place)
    refused(["translate", "bundle", name, "-o", "out.de"], message, capsys)
    refused(["evaluate", "bundle", "--source", name, "--reference", "good.de"], message, capsys)
    refused(["score", "bundle", name, "good.de"], message, capsys)
    assert everything(place) == before


def test_crlf_and_a_byte_order_mark_are_read_for_what_they_are(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("dos.en", b"\xef\xbb\xbf" + Path("good.en").read_bytes().replace(b"\n", b"\r\n"))
    assert main(["translate", "bundle", "good.en", "--beam", "1"]) == 0
    plain = capsys.readouterr().out
    assert main(["translate", "bundle", "dos.en", "--beam", "1"]) == 0
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "recipe.toml", "--set", "train.warmpu=3"], r"\[train\] warmpu: unknown key; did you mean warmup\?"),
        (
            ["train", "recipe.toml", "--set", "model.width=512", "--set", "model.heads=6"],
            r"heads \(6\) must divide width \(512\); try 4 or 8",
        ),
        (
            ["train", "recipe.toml", "--set", "train.learning_rate=fast"],
            r'\[train\] learning_rate = "fast": must be a number',
        ),
        (
            ["train", "recipe.toml", "--set", "data.test.x.source=a", "--set", "data.test.x.reference=b"],
            r"a: there is no such file; data\.test\.x names it",
        ),
        (["train", "recipe.toml", "--out", "run", "--set", "data.target=."], r"\.: this is a directory"),
        (["train", "recipe.toml", "--out", "run", "--set", "data.target=gone.de"], "gone.de: there is no such file"),
        (
            ["train", "recipe.toml", "--set", "data.valid_source=gone", "--set", "data.valid_target=good.de"],
            "gone: there is no such file",
        ),
        (
            ["train", "good.en", "good.de", "--out", "run", "--set", "train.start_from=nowhere"],
            "nowhere: there is no such bundle",
        ),
        (["train", "recipe.toml", "--set", "train.device=cuda:77"], "cuda:77"),
        (
            ["plan", "recipe.toml", "--set", "model.width=9999999992", "--set", "text.shrink=true"],
            "choose smaller sizes",
        ),
        (["train", "missing.toml"], "missing.toml: the recipe cannot be read"),
        (["train", "good.en", "--out", "run"], "give the target's file too"),
        (["train", "good.en", "good.de"], "--out is missing"),
        (["train", "good.en", "good.de", "good.en", "--out", "run"], "3 files were given"),
        (["train", "recipe.toml", "good.de"], "either a recipe or a source and a target"),
        (["train", "recipe.toml", "--from", "en"], "--set data.source_language="),
        (["translate", "bundle", "good.en", "--to", "fr"], r"German \(de\), not to French \(fr\)"),
        (["translate", "bundle", "good.en", "--from", "de"], r"English \(en\), not from German \(de\)"),
        (["translate", "bundle", "good.en", "--beam", "0"], "beam = 0: must be greater than 0"),
        (["translate", "bundle", "good.en", "--bfloat16"], "use --precision bfloat16"),
        (["translate", "bundle", "good.en", "-o", "no/such/folder"], "there is no directory no/such"),
        (["translate", ".", "good.en"], "did you mean bundle"),
        (["init", "--from", '"x'], "is not a language code"),
        (["perplexity", "bundle", "good.en", "good.de", "--stride", "3"], "leave it out"),
        (["estimate", "bundle", "good.en", "good.de", "--reverse", "bundle"], "of the other direction"),
        (["translate", "nowhere", "good.en"], "there is no such bundle"),
        (
            ["evaluate", "bundle", "--source", "good.en", "--reference", "recipe.toml"],
            "60 source lines but 3 reference",
        ),
        (
            ["evaluate", "bundle", "--source", "good.en", "--reference", "good.de", "--metric", "blue"],
            "no metric named",
        ),
        (
            ["evaluate", "bundle", "--source", "good.en", "--reference", "good.de", "--set", "stopp=full"],
            "no key 'stopp'; did you mean 'stop'",
        ),
        (
            ["evaluate", "bundle", "--source", "good.en", "--reference", "good.de", "--set", "search.beam=many"],
            "beam = 'many': must be a valid integer",
        ),
        (["evaluate", "bundle", "--source", "good.en", "--reference", "good.de", "--set", "beam"], "beam = ''"),
        (["calibrate", "bundle", "--source", "good.en", "--reference", "recipe.toml"], "60 source lines but 3 ref"),
        (
            ["calibrate", "bundle", "--source", "recipe.toml", "--reference", "recipe.toml"],
            "3 pairs of lines have text",
        ),
        (["score", "bundle", "good.en", "recipe.toml"], "60 source lines but 3 target lines"),
        (["inspect", "recipe.toml"], "a bundle is a directory, and this is a file"),
        (["get", "multi40k"], "did you mean multi30k"),
        (["init", "recipe.toml"], "recipe.toml: exists already"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_in_a_command(
    place: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(place)
    refused(arguments, message, capsys)
    assert everything(place) == before


@pytest.mark.parametrize("arguments", [["trian"], ["translate"], ["translate", "bundle", "--baem", "3"], []])
def test_a_word_or_an_option_that_is_not_known(
    place: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "Usage: regard" in shown.err + shown.out


@pytest.mark.parametrize("name", ["weights.safetensors", "subwords.model", "recipe.toml", "golden.json", "bundle.json"])
@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_damaged_bundle(place: Path, name: str, harm: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("bundle") / name
    content = file.read_bytes()
    if harm == "gone":
        file.unlink()
    elif harm == "cut":
        file.write_bytes(content[: len(content) * 2 // 3])
    else:
        middle = content.index(b"sha256") + 12 if name == "bundle.json" else len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    for word in (["translate", "bundle", "good.en"], ["inspect", "bundle"]):
        refused(word, name.replace(".", r"\."), capsys)


def train(*more: str) -> list[str]:
    options = [part for setting in (*SETTINGS, *more) for part in ("--set", setting)]
    return ["train", "good.en", "good.de", "--out", "run", *options]


def full(*arguments: object, **named: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_when_the_bundle_is_saved(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to do, the training is not lost, and doing it gives the bundle."""
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["regard.bundle.save"], "sync", full)
        assert main(train("train.max_updates=4", "train.save_every=2")) == 2
    shown = capsys.readouterr().err
    assert re.search(
        r"regard: run/bundle: the bundle could not be saved: no space is left on the disk; free some", shown
    )
    assert max(Path("run/checkpoints").glob("update-*"), default=None) is not None
    assert [p.name for p in Path("run").iterdir() if p.name.endswith((".part", ".old"))] == []
    assert not Path("run/bundle").exists()
    assert main(["train", "run/recipe.toml", "--out", "run", "--resume"]) == 0
    bundles.load("run/bundle")


def test_a_disk_that_is_full_when_a_checkpoint_is_saved(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save_file
    calls = []

    def second_fails(*arguments: object, **named: object) -> None:
        calls.append(1)
        (full if len(calls) > 1 else save)(*arguments, **named)  # type: ignore[operator]

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", second_fails)
        assert main(train("train.max_updates=6", "train.save_every=2", "train.validate_every=100")) == 2
    assert re.search(r"could not be saved .*No space left.* [Ff]ree some space", capsys.readouterr().err)
    newest = max(Path("run/checkpoints").glob("update-*"), default=None)
    assert newest is not None
    checkpoint.load(newest)
    assert main(["train", "run/recipe.toml", "--out", "run", "--resume"]) == 0


def test_a_full_disk_under_the_output(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = [sys.executable, "-m", "regard", "translate", "bundle", "good.en", "--beam", "1"]
    with open("/dev/full", "wb") as nowhere:
        done = subprocess.run(command, stdout=nowhere, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "regard: No space left on device; free some space, or choose another disk.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as Unix does")
def test_ctrl_c_saves_says_how_to_go_on_and_going_on_works(place: Path) -> None:
    endless = train("train.max_updates=1000000", "train.validate_every=1000000", "train.save_every=1000000")
    for arguments in (endless, ["train", "run/recipe.toml", "--out", "run", "--resume"]):
        code, shown = interrupted(arguments)
        assert code == 130, shown
        assert re.search(r"Stopped; everything is saved in run/checkpoints/update-\S+\.\n", shown), shown
        assert "Go on with:  regard train run/recipe.toml --out run --resume\n" in shown
        assert "Traceback" not in shown
        newest = max(Path("run/checkpoints").glob("update-*"), default=None)
        assert newest is not None
        checkpoint.load(newest)
    assert "going on from run/checkpoints/update-" in shown


def interrupted(arguments: list[str]) -> tuple[int, str]:
    """Run a training that never ends, press Ctrl-C once it trains, and wait: the exit code and standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    guard = threading.Timer(600, process.kill)
    guard.start()
    shown = ""
    try:
        while line := process.stderr.readline():
            shown += line
            if re.match(r"update [\d,]+: loss", line):
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                break
        shown += process.stderr.read()
        return process.wait(), shown
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        process.stderr.close()
        if process.stdout is not None:
            process.stdout.close()


UNUSUAL = [
    "   ",
    "A man \x01with\x1b[31m red\x07 \u2028sep\u0085 x\ttab\x0b\x0c.",
    "A \U0001f468\u200d\U0001f469\u200d\U0001f467 family \U0001f1e9\U0001f1ea smiles \U0001f600!",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u202b\u05e9\u05dc\u05d5\u05dd A man\u202c\ufeff",
    "\u2581 \U000f2581 <unk> </s> <pad> <0x0A> %s {x}",
    "",
    "a" * 120,
]


def test_unusual_lines_come_back_as_a_line_each(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("odd.en", "".join(f"{line}\n" for line in UNUSUAL))
    for options in ([], ["--split"], ["--beam", "3", "--precision", "float32"]):
        assert main(["translate", "bundle", "odd.en", "-o", "odd.de", *options]) == 0
        found = Path("odd.de").read_bytes().decode("utf-8")
        assert found.count("\n") == len(UNUSUAL)
        lines = found.split("\n")[:-1]
        assert [lines[0], lines[6]] == ["", ""]
        assert "\0" not in found
    assert main(["translate", "bundle", "odd.en", "--confidence", "--alignment"]) == 0
    shown = capsys.readouterr().out.split("\n")[:-1]
    for number, (line, record) in enumerate(zip(UNUSUAL, map(json.loads, shown), strict=True), start=1):
        assert record["line"] == number
        assert all(word["text"] == record["text"][word["start"] : word["end"]] for word in record.get("words", []))
        assert all(word["text"] == line[word["start"] : word["end"]] for word in record.get("source_words", []))
    assert main(["score", "bundle", "odd.en", "odd.en"]) == 0
    assert capsys.readouterr().out.count("\n") == len(UNUSUAL)
    assert main(["evaluate", "bundle", "--source", "odd.en", "--reference", "odd.en", "--resamples", "0"]) == 0


def test_bootstrap_samples_are_none_or_more(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("a.en", "A man is smiling.\n")
    for word in (
        ["evaluate", "bundle", "--source", "a.en", "--reference", "a.en"],
        ["align", "bundle", "a.en", "a.en"],
    ):
        refused([*word, "--resamples", "-5"], "resamples = -5: must be greater than or equal to 0", capsys)


def test_a_line_of_fifty_thousand_characters(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What may be read is translated, in parts; a character more is refused."""
    line = ("A man is smiling at a stuffed lion. " * 1400)[:50_000]
    write("long.en", f"{line}\n")
    assert main(["translate", "bundle", "long.en", "--beam", "1", "--max-length", "2", "--precision", "float32"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    for word in (["score", "bundle", "long.en", "long.en"], ["align", "bundle", "long.en", "long.en"]):
        refused(word, r"line 1 has [\d,]+ tokens.* at most", capsys)
    write("longer.en", f"{line}x\n")
    refused(["translate", "bundle", "longer.en"], "50,001 characters; at most 50,000", capsys)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("tensors.safetensors", "this is a checkpoint, to go on from with `regard train --resume`"),
        ("model.bin", "a model of CTranslate2"),
        ("config.json", "`regard import` makes bundles of Marian's"),
        ("anything", "no bundle is in this directory"),
    ],
)
def test_a_directory_that_is_no_bundle(
    place: Path, file: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other").mkdir()
    write(f"other/{file}", b"what it holds does not matter")
    for word in (["translate", "other", "good.en"], ["score", "other", "good.en", "good.de"], ["inspect", "other"]):
        refused(word, message, capsys)


def test_weights_of_another_model_under_a_bundles_name(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every digest is right, and still the weights are not those that the recipe speaks of."""
    wide = {"width": 64, "heads": 2, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2}
    small_bundle(place / "wide", model=wide)
    bundle = bundles.load("bundle")
    shutil.copyfile("wide/weights.safetensors", "bundle/weights.safetensors")
    Path("bundle/bundle.json").unlink()
    seal(Path("bundle"), bundle.recipe, bundle.parameters, bundle.provenance, bundle.golden)
    refused(["translate", "bundle", "good.en"], r"weights.safetensors: .* is \(\d+,.*\) and .* needs \(64", capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--include", "ein Mann", "--forbid", "Mann"], "requires 'ein Mann' and forbids 'Mann', which is in it"),
        (["--prefix", "Ein Hund .", "--forbid", "Hund"], "forbidden"),
        (["--include", "ein langer Satz", "--max-length", "2"], r"needs \d+ tokens, and at most 2 are allowed"),
        (["--min-length", "5", "--max-length", "3"], r"min_length \(5\) must be at most max_length \(3\)"),
        (["--temperature", "2"], "set samples to at least 1"),
        (["--include", "\ud800"], "half of a surrogate pair"),
        (["--stop", "never"], "stop = 'never': must be 'bound', 'first', 'beam' or 'full'"),
        (["--samples", "3", "--n-best", "2"], "leave n_best out"),
        (["--stream", "--alignment"], "--stream shows one translation"),
        (["--glossary", "good.de"], "good.de: line 1 .* must be a source term, a tab and a target term"),
        (["--with", "other"], "another source vocabulary"),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_wishes_that_contradict_each_other(
    place: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "other" in options:
        small_bundle(place / "other", separate=True)
    refused(["translate", "bundle", "good.en", *options], message, capsys)
