"""Flags that are generated from options, and commands that are loaded when they are used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from bundles import small_bundle

from regard.apps.cli import app, main
from regard.search.table import Constraints, Options, SearchConfig

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # it is a group


def loaded(*words: str) -> set[str]:
    code = f"import sys; from regard.apps.cli import main; main({list(words)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_no_command() -> None:
    found = loaded("--help")
    ours = {name for name in found if name.startswith("regard")}
    assert ours == {"regard", "regard.apps", "regard.apps.cli", "regard.errors", "regard.machine"}
    assert not found & {"torch", "numpy", "pydantic", "rich"}
    assert len(found) < 250, "what is loaded, rather than a time, which depends on the machine"


@pytest.mark.parametrize("word", ["translate", "evaluate", "generate", "look"])
def test_the_help_of_a_command_needs_no_torch(word: str) -> None:
    assert not loaded(word, "--help") & {"torch", "numpy"}


@pytest.mark.parametrize("word", [*COMMANDS])
def test_every_command_can_be_loaded_and_explains_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--help"]) == 0
    assert f"Usage: regard {word}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["translate", "B", "L", "--set", "samples=abc"], "samples = 'abc': must be a valid integer"),
        (["translate", "B", "L", "--batch-size", "0"], "batch_size = 0: must be greater than 0"),
        (["score", "B", "L", "L", "--batch-size", "0"], "batch_size = 0: must be greater than 0"),
        (["score", "B", "L", "L", "--precision", "float16"], "precision = 'float16': must be 'auto', 'exact'"),
        (["translate", "B", "L", "--n-best", "1000000"], "n_best is 1000000; it must be from 1 to 1000"),
        (["translate", "B", "L", "--glossary", "nowhere"], "nowhere"),
        (["translate", "B", "L", "--output", "B"], "is a directory; name another file"),
        (["translate", "B", "L", "--output", "nowhere/made"], "there is no directory nowhere"),
        (
            ["evaluate", "B", "--source", "L", "--reference", "L", "--resamples", "1000000"],
            "less than or equal to 100000",
        ),
    ],
    ids=lambda value: " ".join(value[3:]) if isinstance(value, list) else "",
)
def test_a_wrong_value_is_named_and_its_rule(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_bundle(tmp_path / "bundle")
    (tmp_path / "lines").write_text("A man.\n", encoding="utf-8")
    places = {"B": str(tmp_path / "bundle"), "L": str(tmp_path / "lines")}
    assert main([places.get(word, word) for word in words]) == 2
    assert message in capsys.readouterr().err


def test_every_option_of_a_translation_is_a_flag_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    given = {parameter.name for parameter in COMMANDS["translate"].params}
    assert {*SearchConfig.model_fields, *Constraints.model_fields} <= given
    assert {*Options.model_fields} - given == {"search", "constraints"}, "which are the others' names together"
    assert main(["translate", "--help"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^(\w[\w ]*):$", shown, re.M) == [
        *("Arguments", "Options", "Beam", "Draws", "What translations must keep")
    ]
    words = " ".join(shown.split())
    for field in ("beam", "diversity", "min_length"):
        description = str(SearchConfig.model_fields[field].description)
        assert description[1:40] in words
    assert "--batch-independent" not in shown
