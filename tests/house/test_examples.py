"""The documents' examples run: every shell block and every Python block, page by page, one after the other.

A page runs in a directory with small stand-ins of the files, recipes and bundles that the examples name; what would
train for long trains for two updates. What cannot run here (a network, several machines, an environment of its own) is
in COVERED with the place that does it. Any other command, and a block in an unknown language, fails. A Chinese page
whose commands and code are its English one's runs as that.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import re
import shlex
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bundles import ENGLISH, GERMAN, small_bundle
from test_parse import random_bundle, text_of, treebank

from regard import recipe as recipes
from regard.apps.cli import main
from regard.parsing.trees import linearise
from regard.tasks.fit import fit
from regard.text import write_lines

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / "extending.md"}),
]  # that: test_extending.py
FENCE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
PROSE = {"", "toml", "text", "{eval-rst}", "{toctree}"}
"""What a block may be that nothing runs; recipes in TOML are read by the last test here."""

COVERED = {
    r"\./run (setup|check|test)": ".ci/run:./run check",
    r"\./run docs": "tests/house/test_site.py:sphinx",
    r"\./run bench": "tests/house/test_benchmarks.py:def test_",
    r"\./run demo|regard demo": "tests/studies/test_demo.py:def test_what_it_leaves_suffices_to_recompute_the_figures",
    r"python tools/bundles.py": "tests/bundle/test_ready.py:def test_a_ready_bundle_is_loaded_by_its_name",
    r"regard translate ready:": "tests/bundle/test_ready.py:def test_a_ready_bundle_is_loaded_by_its_name",
    r"python3 -m venv": "run:-m venv",
    r"\. \.venv/bin/activate|pip install": "run:pip",
    r"regard get": "tests/fetching/test_get.py:def test_fetches_and_reports_progress",
    r"torchrun --standalone": "tests/train/test_parallel.py:"
    "def test_two_processes_train_as_one_and_a_kill_changes_nothing",
    r"(TORCH_\w+=1 )?torchrun --nnodes": "tests/train/test_parallel.py:def test_torchruns_environment_is_read",
    r"REGARD_DATA=data regard lineage": "tests/studies/test_lineage_report.py:"
    "def test_runs_are_trained_once_and_tabulated",
    r"regard translate .* --engine ray": "tests/cluster/test_cluster.py:def test_workers_and_the_job_are_killed",
    r"regard serve .* --adapter": "tests/server/test_adapters.py:def test_the_command_line_takes_adapters",
    r"regard estimate .* --(learn|estimator)": "tests/estimation/test_estimate.py:def test_the_command",
    r"regard watch (?!.*--out)": "tests/watch/test_watch_page.py:def test_the_page_follows_a_run",
    r"regard homework check mine$": "tests/studies/test_homework_folder.py:"
    "def test_model_answers_get_full_points_training_included",
    r"regard homework report": "tests/studies/test_homework_folder.py:"
    "def test_the_report_has_a_row_for_each_student_and_no_formula",
    r"regard import opus-mt-en-de": "tests/exchange/test_exchange.py:def test_an_imported_bundle_is_a_bundle",
}
"""Commands that do not run here, and where something runs in their stead: "file:words in it"."""

PAIRS = {"source": "train.en", "target": "train.de", "valid_source": "val.en", "valid_target": "val.de"}
TEXT = {"text": "train.en", "valid_text": "val.en"}
LABELLED = {"source": "labelled.txt", "valid_source": "labelled.txt", "labels": "first"}
TREES = {
    f"{part}{side}": f"wsj.{kind}"
    for part in ("", "valid_")
    for side, kind in (("source", "words"), ("target", "linear"))
}
TRANSFORMER = {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 2, "decoder_layers": 2}
BLOCKS = {"width": 16, "heads": 2, "feedforward": 32, "layers": 1}
RECIPES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "settings": ({}, TRANSFORMER),
    "first": (PAIRS, TRANSFORMER),
    "bahdanau": (PAIRS, {"family": "bahdanau", "width": 16, "encoder_width": 16, "embedding": 8, "readout": 8}),
    "lstmn": (TEXT, {"family": "lstmn", "width": 16, "embedding": 8, "score_width": 8}),
    "shakespeare": ({**TEXT, "context": 16}, {"family": "gpt", **BLOCKS}),
    "masked": (TEXT, {"family": "bert", **BLOCKS}),
    "labels": (LABELLED, {"family": "bert-classifier", **BLOCKS}),
    "parser": (TREES, {"family": "parser", **TRANSFORMER, "share": "target"}),
}
"""Small recipes: their data and their model."""
BUNDLES = {
    "first": ["runs/first", "runs/second", "runs/cmudict", "runs/tatoeba-fr-en", "runs/tatoeba-en-de-base"],
    "lstmn": ["runs/ptb-lstmn"],
    "shakespeare": ["runs/shakespeare"],
    "masked": ["runs/masked"],
    "labels": ["runs/sst2"],
}
"""The runs that the documents name, by the small recipe that they are made of."""
PLACES = {
    "settings.toml": "settings",
    "first.toml": "first",
    "recipe.toml": "first",
    "recipes/multi30k-de-en/bahdanau.toml": "bahdanau",
    "recipes/parse-craft/small.toml": "parser",
}
"""The recipes that the documents name."""
FILES = {
    **{f"{name}.en": ENGLISH * 2 for name in ("train", "val", "text")},
    **{f"{name}.de": GERMAN * 2 for name in ("train", "val")},
    "train.zh": GERMAN * 2,  # the stand-in of another language
    "test.zh": GERMAN[:4],
    "test.en": ENGLISH[:4],
    "test.de": GERMAN[:4],
    "val.tsv": [f"{one}\t{other}" for one, other in zip(ENGLISH, GERMAN, strict=True)],
    "test.tsv": [f"{one}\t{other}" for one, other in zip(ENGLISH[:4], GERMAN, strict=False)],
    **{f"{name}.de": [line.replace("Mann", name) for line in GERMAN] * 2 for name in "ab"},
    "test.txt": ENGLISH,
    "valid.txt": ENGLISH,
    "lines.txt": ENGLISH[:2],
    "labelled.txt": [f"{'one' if 'A' in line else 'many'} {line}" for line in ENGLISH],
    "train.en.zst": ENGLISH * 2,
    "train.de.gz": GERMAN * 2,
    "pairs.jsonl": [
        json.dumps({"source": one, "target": two}) for one, two in zip(ENGLISH * 2, GERMAN * 2, strict=True)
    ],
    "pairs.csv": ["source,target", *(f'"{one}","{two}"' for one, two in zip(ENGLISH * 2, GERMAN * 2, strict=True))],
    "memory.tmx": [
        "<tmx><body>",
        *(
            f'<tu><tuv xml:lang="en"><seg>{one}</seg></tuv><tuv xml:lang="de-DE"><seg>{two}</seg></tuv></tu>'
            for one, two in zip(ENGLISH * 2, GERMAN * 2, strict=True)
        ),
        "</body></tmx>",
    ],
    "terms.tsv": ["hat\tHut", "lion\tL\u00f6wen"],
    **{
        f"{name}.txt": [f"{one} ||| {two}" for one, two in zip(ENGLISH, GERMAN, strict=True)]
        for name in ("pairs", "dev")
    },
    **{f"{name}.gold": ["1-1 2-2"] * len(ENGLISH) for name in ("pairs", "dev")},
    **{f"{name}.mrg": [str(tree) for tree in treebank(12)] for name in ("wsj", "test")},
    "wsj.words": [text_of(tree) for tree in treebank(12)],
    "wsj.linear": [linearise(tree) for tree in treebank(12)],
    "sentences.txt": [text_of(tree) for tree in treebank(3)],
    "recipes/classical-modern-zh/chu-shi-biao.txt": ENGLISH[:3],
}
"""Files that the documents name."""


EXTRAS = {
    "data.md": ("datasets", "pyarrow"),
    "exchange.md": ("transformers", "ctranslate2"),
    "look.md": ("matplotlib",),
    "evaluation.md": ("rouge_score",),
    "search.md": ("rouge_score",),
    "sweeping.md": ("optuna",),
}
"""Packages of the extras that a page's examples need."""


def written(name: str) -> dict[str, Any]:
    """A small recipe."""
    data, model = RECIPES[name]
    return {
        "name": name,
        "data": data,
        "text": {
            "size": 400,
            "shrink": True,
            **({"target_kind": "words", "joint": False} if name in ("labels", "parser") else {}),
        },
        "model": model,
        "train": {"max_updates": 2, "precision": "float32", "device": "cpu", "average": "none"},
        "search": {"beam": 1, "extra_length": 5},
    }


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block of a page."""
    return [((info.split() or [""])[0], body) for _, info, body in FENCE.findall(page.read_text("utf-8"))]


def commands(block: str) -> list[str]:
    """The command lines of a shell block; `\\` at an end goes on, `#` begins a comment."""
    lines = block.replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in re.sub(r"(^|\s)#.*", "", line).split("&&")]
    return [re.sub(r"\s+", " ", part) for part in parts if part]


def covered(command: str) -> str:
    """Where a command is covered that does not run here, or nothing."""
    return next((where for pattern, where in COVERED.items() if re.match(pattern, command)), "")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the examples speak of."""
    place = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        Path("recipes/reading").mkdir(parents=True)
        shutil.copy(ROOT / "recipes" / "reading" / "synthetic.toml", "recipes/reading")
        for name, lines in FILES.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            write_lines(name, lines)
        if find_spec("pyarrow"):
            from pyarrow import parquet, table

            parquet.write_table(table({"source": ENGLISH * 2, "target": GERMAN * 2}), "pairs.parquet")
        for side in ("en", "de"):
            for part in ("train", "val"):
                Path("data/multi30k").mkdir(parents=True, exist_ok=True)
                Path(f"data/multi30k/{part}.{side}.gz").write_bytes(gzip.compress(Path(f"{part}.{side}").read_bytes()))
        for name, recipe in PLACES.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(recipes.to_toml(recipes.validate(written(recipe))), encoding="utf-8")
        for name, runs in BUNDLES.items():
            fit(recipes.validate(written(name)), runs[0])
            for other in runs[1:]:
                shutil.copytree(runs[0], other)
        random_bundle(Path("runs/parse-craft/bundle"))
        small_bundle(Path("runs/classical-modern-zh/bundle"))
        small_bundle(Path("runs/tatoeba-en-zh/bundle"))
        shutil.copytree("runs/first/bundle", "demo/bundle")
        for name, lines in (("source", ENGLISH[:2]), ("reference", GERMAN[:2])):
            write_lines(f"demo/heldout.{name}", lines)
    return place


def run(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One command line, in this process: `echo … |` before it is what it reads, `> FILE` behind it where it writes."""
    said, _, rest = command.rpartition(" | ")
    reads = "A man is smiling.\n"
    if said:
        echo = shlex.split(said)
        assert echo[0] == "echo", command
        reads = " ".join(echo[1:]) + "\n"
    words = shlex.split(rest)
    out = None
    for sign in (">", "<"):
        if sign in words:
            at = words.index(sign)
            file = Path(words[at + 1])
            del words[at : at + 2]
            out, reads = (file, reads) if sign == ">" else (out, file.read_text("utf-8"))
    assert words[0] == "regard", f"{command}: not run here; if it cannot be, say in COVERED what covers it"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(reads.encode())))
    capsys.readouterr()
    code = main(_shortened(words[1:]))
    found = capsys.readouterr()
    assert code == 0, f"{command}\n{found.err}"
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(found.out, "utf-8")


def _shortened(words: list[str]) -> list[str]:
    """A command with what keeps it short; what begins anew finds an empty place."""
    if words[0] == "init":
        Path(words[1]).unlink(missing_ok=True)
    if words[0] == "plan":
        return [*words, "--no-measure"]
    if words[:2] == ["read", "train"]:
        return [*words, "--set", "train.max_updates=2"]
    if words[0] != "train" or "--resume" in words:
        return words
    if "--out" in words:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
    small = ["train.max_updates=2"]
    if not words[1].startswith("recipes/"):
        small += [f"model.{key}={value}" for key, value in TRANSFORMER.items()]
        small += ["text.shrink=true", "search.beam=1", "search.extra_length=5"]
    return [*words, *(part for setting in small for part in ("--set", setting))]


def run_by(page: Path) -> list[str]:
    """What of a page runs: commands, and Python as it stands."""
    return [part for language, body in blocks(page) for part in (commands(body) if language == "sh" else [body])]


def twin(page: Path) -> Path:
    """The English page of a Chinese one; else the page itself."""
    return Path(str(page).replace(".zh.md", ".md").replace("lectures/zh/", "lectures/en/"))


RUNNING = [page for page in PAGES if blocks(page) and (page == twin(page) or run_by(page) != run_by(twin(page)))]


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: str(page.relative_to(ROOT)))
# TensorBoard's writer, where it is installed, comes with a library that warns of its own future.
# Examples leave files open, to be short; they are collected here, not in a test that comes later.
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_examples_run(
    page: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in EXTRAS.get(page.name, ()):
        pytest.importorskip(extra, reason=f"{page.name} is run with {extra}, which is not installed")
    found = blocks(page)
    assert {language for language, _ in found} <= PROSE | {"sh", "python"}
    here = tmp_path / "here"
    shutil.copytree(place, here)
    monkeypatch.chdir(here)
    names: dict[str, object] = {"__name__": "__example__"}
    for language, body in found:
        if language == "python":
            exec(compile(body, str(page), "exec"), names)
        for command in commands(body) if language == "sh" else ():
            if not covered(command):
                run(command, monkeypatch, capsys)
    names.clear()
    gc.collect()


def test_what_does_not_run_here_runs_elsewhere() -> None:
    every = {
        command for page in PAGES for language, body in blocks(page) if language == "sh" for command in commands(body)
    }
    for pattern, where in COVERED.items():
        path, _, words = where.partition(":")
        assert words in (ROOT / path).read_text("utf-8"), where
        assert any(re.match(pattern, command) for command in every), f"{pattern}: no document has such a command"


@pytest.mark.parametrize(
    ("page", "body"),
    [(page, body) for page in PAGES for language, body in blocks(page) if language == "toml"],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_every_recipe_in_a_document_is_one(page: Path, body: str) -> None:
    tables = tomllib.loads(body)
    tables.setdefault("data", dict(PAIRS))
    if "context" in tables["data"]:
        tables.setdefault("model", {"family": "gpt"})
    recipes.validate(tables)
