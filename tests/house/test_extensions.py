"""Extensions: loaded when a name is missing and not before; one that fails is named; a script may be imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard import extensions, recipe
from regard.apps.cli import main
from regard.errors import ExtensionError, ModelError, RecipeError
from regard.models import FAMILIES

DATA = '[data]\nsource = "a.en"\ntarget = "a.de"\n'
ADDS = """
from dataclasses import replace
from typing import Literal
from regard.models import FAMILIES

class Config(FAMILIES["transformer"].config):
    family: Literal["mine"] = "mine"

def add():
    FAMILIES["mine"] = replace(FAMILIES["transformer"], config=Config)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that is installed and whose entry point names a function of `adding.py`, which tests may rewrite."""
    extensions.load_installed()  # so that our own entries are in the table that is put back
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "adding.py").write_text(ADDS, encoding="utf-8")
    monkeypatch.setattr(extensions, "_looked", False)
    package = tmp_path / "mine-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    (package / "entry_points.txt").write_text("[regard]\nmine = adding:add\n", encoding="utf-8")
    before = dict(FAMILIES)
    yield tmp_path / "adding.py"
    FAMILIES.clear()
    FAMILIES.update(before)
    sys.modules.pop("adding", None)


def test_an_installed_family_is_loaded_when_a_recipe_names_it(installed: Path) -> None:
    assert recipe.parse(DATA).model.family == "transformer"
    assert "adding" not in sys.modules, "nothing is loaded for what is known"
    assert recipe.parse(DATA + '[model]\nfamily = "mine"').model.family == "mine"
    assert "adding" in sys.modules


def test_it_is_loaded_once(installed: Path) -> None:
    assert extensions.load_installed()
    assert not extensions.load_installed()


def test_one_that_fails_is_named(installed: Path) -> None:
    installed.write_text("def add():\n    raise KeyError('where')\n", encoding="utf-8")
    with pytest.raises(ExtensionError, match=r"extension 'mine' of mine 1.0 \(adding:add\) .*KeyError: 'where' "):
        recipe.parse(DATA + '[model]\nfamily = "mine"')
    assert recipe.parse(DATA).model.family == "transformer", "and harms nothing that does not need it"


def test_a_name_that_nobody_has_says_where_names_come_from(installed: Path) -> None:
    with pytest.raises(RecipeError, match=r"family = 'qqq': must be one of .*mine; .* `regard --import FILE …`"):
        recipe.parse(DATA + '[model]\nfamily = "qqq"')
    with pytest.raises(ModelError, match=r"search = 'bean': must be one of beam, greedy; did you mean beam\?"):
        extensions.entry({"beam": 1, "greedy": 2}, "bean", "search", ModelError)


def test_a_script_is_imported_before_the_command(
    installed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = installed.with_name("script.py")
    script.write_text(ADDS + "add()\nprint('imported')\n", encoding="utf-8")
    try:
        assert main(["--import", str(script), "get"]) == 0
        assert capsys.readouterr().out.startswith("imported")
        assert "mine" in FAMILIES
    finally:
        sys.modules.pop("script", None)
    script.write_text("x = 1\ny = x / 0\n", encoding="utf-8")
    assert main(["--import", str(script), "get"]) == 2
    assert "script.py: ZeroDivisionError: division by zero (script.py, line 2)" in capsys.readouterr().err
    assert main(["--import", "nowhere.py", "get"]) == 2
    assert "there is no such file" in capsys.readouterr().err
    taken = installed.with_name("json.py")
    taken.write_text("", encoding="utf-8")
    assert main(["--import", str(taken), "get"]) == 2
    assert "a module of the name 'json' is there already" in capsys.readouterr().err
