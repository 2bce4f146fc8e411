"""Corrections and fuzzy matches over HTTP: taught, used at once, listed, undone to the bit, kept over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import BUNDLES, serving

from regard.adaptation.file import Adapter
from regard.errors import ModelError, TextError
from regard.server import corrections as routes
from regard.server.limits import Limits
from regard.server.memory import Memory, memories
from regard.server.service import Service

TEXT, RIGHT = "abc de", "EDE ABC"


@pytest.fixture
def teachable(tmp_path: Path) -> Iterator[httpx.Client]:
    table = tmp_path / "memory.tsv"
    table.write_text("abc df\tFD CBA\nhab\tBAH\nabc de gg\tGG ED CBA\n", encoding="utf-8")
    with serving(corrections=tmp_path / "kept", memory=[table]) as address, httpx.Client(base_url=address) as client:
        yield client


def translated(client: httpx.Client, text: str, **more: object) -> dict[str, object]:
    found = client.post("/v1/translate", json={"text": text, **more}).raise_for_status().json()
    line: dict[str, object] = found["translations"][0]["lines"][0]
    return line


def taught(client: httpx.Client, text: str, translation: str) -> httpx.Response:
    return client.put("/v1/corrections", json={"text": text, "translation": translation})


def test_a_correction_is_used_at_once_and_undone_to_the_bit(teachable: httpx.Client) -> None:
    lines = ["abc de", "hab", "bhdg be"]
    before = [translated(teachable, line) for line in lines]
    [made] = taught(teachable, TEXT, RIGHT).raise_for_status().json()["corrections"]
    assert (made["text"], made["translation"], made["before"]) == (TEXT, RIGHT, "ED CBA")
    assert made["changed"] == 0
    assert translated(teachable, TEXT)["text"] == RIGHT
    assert [translated(teachable, line)["text"] for line in lines[1:]] == [each["text"] for each in before[1:]]
    assert teachable.post("/translate", json={"q": TEXT, "source": "en", "target": "de"}).json() == {
        "translatedText": RIGHT
    }
    listed = teachable.get("/v1/corrections").json()
    assert [each["id"] for each in listed["corrections"]] == [made["id"]]
    assert taught(teachable, TEXT, RIGHT).json() == {"corrections": []}
    assert teachable.delete(f"/v1/corrections/{made['id']}").json() == {"undone": made["id"]}
    assert teachable.delete(f"/v1/corrections/{made['id']}").status_code == 404
    assert [translated(teachable, line) for line in lines] == before


def test_it_is_kept_over_a_restart_and_taken_along(tmp_path: Path) -> None:
    with serving(corrections=tmp_path) as address, httpx.Client(base_url=address) as client:
        assert client.get("/v1/corrections/export").status_code == 404
        taught(client, TEXT, RIGHT).raise_for_status()
    with serving(corrections=tmp_path) as address, httpx.Client(base_url=address) as client:
        assert translated(client, TEXT)["text"] == RIGHT
        file = tmp_path / "all.safetensors"
        file.write_bytes(client.get("/v1/corrections/export").raise_for_status().content)
    assert len(Adapter.read(file).names) == 1


def test_a_line_of_sentences_is_learnt_sentence_by_sentence(teachable: httpx.Client) -> None:
    found = taught(teachable, "hab. Abc de.", "HAB. EDE ABC.")
    assert found.status_code in (200, 409)  # it is the sentences that count, not what this toy makes of a full stop
    if found.status_code == 200:
        assert 1 <= len(found.json()["corrections"]) <= 2
    assert taught(teachable, "hab. Abc de.", "HAB.").status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "a\nb", "translation": "A"}, 400),
        ({"text": "", "translation": "A"}, 400),
        ({"text": "a" * 2001, "translation": "A"}, 400),
        ({"text": "abc " * 100, "translation": "A"}, 409),
        ({"text": "abc", "translation": "A☃"}, 409),
        ({"text": "abc", "translation": "A", "target": "fr"}, 400),
        ({"text": "abc", "translation": "A", "other": 1}, 400),
        ({"text": "abc"}, 400),
    ],
)
def test_what_is_no_correction_is_refused(teachable: httpx.Client, body: dict[str, object], status: int) -> None:
    found = teachable.put("/v1/corrections", json=body)
    assert found.status_code == status, found.text
    assert found.json()["error"]


def test_it_is_off_unless_asked_for(address: str) -> None:
    found = httpx.put(f"{address}/v1/corrections", json={"text": TEXT, "translation": RIGHT})
    assert found.status_code == 403
    assert "--corrections" in found.json()["error"]
    assert httpx.get(f"{address}/v1/corrections").json() == {"corrections": [], "taken": False}
    assert httpx.delete(f"{address}/v1/corrections/x").status_code == 404


def test_without_pytorch_it_says_what_to_install(teachable: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "has_torch", lambda: False)
    found = taught(teachable, TEXT, RIGHT)
    assert found.status_code == 501
    assert "pip install" in found.json()["error"]


# -- the memory --------------------------------------------------------------------------------------------------------


def test_matches_stand_beside_a_translation(teachable: httpx.Client) -> None:
    assert "matches" not in translated(teachable, TEXT)
    found = translated(teachable, TEXT, matches=2)["matches"]
    assert isinstance(found, list)
    assert [(each["text"], each["translation"]) for each in found] == [("abc df", "FD CBA"), ("abc de gg", "GG ED CBA")]
    assert found[0]["similarity"] == pytest.approx(10 / 12, abs=1e-3)
    taught(teachable, TEXT, RIGHT).raise_for_status()
    first = translated(teachable, "Abc de", matches=1)["matches"]
    assert first == [{"text": TEXT, "translation": RIGHT, "similarity": 1.0, "origin": "correction"}]
    assert translated(teachable, "x" * 40, matches=3)["matches"] == []


def test_a_memory_finds_what_a_plain_search_finds() -> None:
    from difflib import SequenceMatcher

    words = [f"{a}{b} {b}{a}{a}" for a in "abcdefgh" for b in "stuvwxyz"] + ["Straße", "a" * 900, ""]
    memory = Memory((word, word.upper(), "m") for word in words)
    for text in ("ab sa", "as saa", "STRASSE", "a" * 800):
        found = memory.matches(text, 3)
        assert all(match.similarity >= 0.6 for match in found)
        assert [each.similarity for each in found] == sorted((each.similarity for each in found), reverse=True)
        exact = [word for word in words if word.casefold() == text.casefold()]
        assert [each.text for each in found if each.similarity == 1.0] == exact
        assert found
        assert SequenceMatcher(None, found[0].text.casefold(), text.casefold()).ratio() > 0.5
    assert memory.matches("b" * 1001, 3) == []
    assert memory.matches("as saa", 0) == []


TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>abc</seg></tuv><tuv xml:lang="de"><seg>CBA</seg></tuv></tu></body></tmx>"""


def test_files_of_memories(tmp_path: Path) -> None:
    tmx, table = tmp_path / "m.tmx", tmp_path / "m.tsv"
    tmx.write_text(TMX, encoding="utf-8")
    table.write_text("abc\tXYZ\n", encoding="utf-8")
    found = memories([(tmx, None), (table, ("en", "de"))], [("en", "de"), ("de", "en")])
    assert [each.translation for each in found["en", "de"].matches("abc", 5)] == ["CBA", "XYZ"]
    assert [each.translation for each in found["de", "en"].matches("cba", 5)] == ["abc"]
    with pytest.raises(ModelError, match="en-de="):
        memories([(table, None)], [("en", "de"), ("de", "en")])
    with pytest.raises(ModelError, match="no bundle"):
        memories([(table, ("fr", "de"))], [("en", "de")])
    with pytest.raises(TextError, match="no unit"):
        memories([(tmx, None)], [("fr", "it")])
    bundle = f"en-de={BUNDLES / 'transformer'}"
    with pytest.raises(TextError):
        Service([bundle], Limits(), memory=[tmp_path / "missing.tmx"])
