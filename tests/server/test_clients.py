"""Programs that others wrote, as they are, against a running server."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import deepl
import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI
from serving import serving

from regard.server.limits import Limits, new_key

# These programs leave their sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def client(address: str) -> deepl.DeepLClient:
    return deepl.DeepLClient("any", server_url=address)


def test_libretranslatepy(address: str) -> None:
    client = LibreTranslateAPI(address)
    assert client.translate("abc de", "en", "de") == "ED CBA"
    assert {each["language"] for each in client.detect("Where is the library?")} <= {"en", "de"}
    languages = {each["code"]: each for each in client.languages()}
    assert languages["en"]["targets"] == ["de"]
    assert languages["en"]["name"] == "English"


def test_libretranslatepy_is_told_what_is_wrong(address: str) -> None:
    with pytest.raises(HTTPError) as refused:
        LibreTranslateAPI(address).translate("abc", "en", "xx")
    assert refused.value.code == 400
    assert refused.value.read() == b'{"error":"xx is not supported"}'


def test_deep_translator(address: str) -> None:
    client = LibreTranslator(source="en", target="de", api_key="any", custom_url=f"{address}/")
    assert client.translate("abc de") == "ED CBA"
    assert client.translate_batch(["abc", "de"]) == ["CBA", "ED"]


def test_deepl_translates(client: deepl.DeepLClient) -> None:
    one = client.translate_text("abc de", target_lang="DE")
    assert (one.text, one.detected_source_lang, one.billed_characters) == ("ED CBA", "EN", 6)
    several = client.translate_text(["abc", "", "de\nabc"], source_lang="EN", target_lang="DE")
    assert [each.text for each in several] == ["CBA", "", "ED\nCBA"]


def test_deepl_keeps_tags(client: deepl.DeepLClient) -> None:
    found = client.translate_text("<a href='x'>abc</a> de", target_lang="DE", tag_handling="html").text
    assert found == "ED <a href='x'>CBA</a>"


def test_deepl_lists_languages(client: deepl.DeepLClient) -> None:
    assert [str(each) for each in client.get_source_languages()] == ["EN"]
    assert [str(each) for each in client.get_target_languages()] == ["DE"]
    assert [(str(p.source_lang), str(p.target_lang)) for p in client.get_glossary_languages()] == [("en", "de")]


def test_deepl_counts(client: deepl.DeepLClient) -> None:
    before = client.get_usage().character.count
    client.translate_text("abcd", target_lang="DE")
    assert client.get_usage().character.count == before + 4


def test_deepl_glossaries(client: deepl.DeepLClient) -> None:
    made = client.create_glossary("terms", "EN", "DE", {"abc": "X", "de": "FG"})
    try:
        assert (made.name, made.entry_count, made.ready) == ("terms", 2, True)
        assert client.get_glossary_entries(made) == {"abc": "X", "de": "FG"}
        assert made.glossary_id in {each.glossary_id for each in client.list_glossaries()}
        assert client.get_glossary(made.glossary_id).name == "terms"
        found = client.translate_text("de", source_lang="EN", target_lang="DE", glossary=made).text
        assert "FG" in found.split()
    finally:
        client.delete_glossary(made)
    with pytest.raises(deepl.exceptions.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)


def test_deepl_documents(client: deepl.DeepLClient, tmp_path: Path) -> None:
    source, made = tmp_path / "a.html", tmp_path / "made.html"
    source.write_text("<h1>abc de</h1><p>de</p>")
    status = client.translate_document_from_filepath(source, made, source_lang="EN", target_lang="DE")
    assert made.read_text() == "<h1>ED CBA</h1><p>ED</p>"
    assert (status.done, status.billed_characters) == (True, 8)
    (tmp_path / "a.docx").write_bytes(b"PK no document")
    with pytest.raises(deepl.DocumentTranslationException, match="not a document of the kind Word"):
        client.translate_document_from_filepath(tmp_path / "a.docx", tmp_path / "b.docx", target_lang="DE")


def test_deepl_is_told_what_is_wrong(client: deepl.DeepLClient) -> None:
    with pytest.raises(deepl.DeepLException, match="target_lang"):
        client.translate_text("abc", target_lang="FI")


def test_deepl_with_keys_and_quota(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    key = new_key("a program", keys)
    assert key not in keys.read_text()
    with serving(keys=keys, limits=Limits(quota=10)) as address:
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=address).translate_text("abc", target_lang="DE")
        client = deepl.DeepLClient(key, server_url=address)
        assert client.translate_text("abc de", target_lang="DE").text == "ED CBA"
        assert (client.get_usage().character.count, client.get_usage().character.limit) == (6, 10)
        with pytest.raises(deepl.QuotaExceededException):
            client.translate_text("abc de", target_lang="DE")
        with pytest.raises(HTTPError) as refused:
            LibreTranslateAPI(address).translate("abc", "en", "de")
        assert refused.value.code == 403
