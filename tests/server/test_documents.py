"""What documents cost a server: disk and not memory, and never more than it allows."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import deepl
import httpx
import pytest
from serving import serving

from regard.documents.formats import translate_document
from regard.documents.markup import Translate
from regard.server import documents
from regard.server.limits import Limits, new_key


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Documents that are not done before the function is called."""
    free = threading.Event()

    def waits(data: bytes, suffix: str, translate: Translate, to: str) -> bytes:
        free.wait(60)
        return translate_document(data, suffix, translate, to)

    with monkeypatch.context() as patched:
        patched.setattr(documents, "translate_document", waits)
        try:
            yield free.set
        finally:
            free.set()


def send(address: str, text: str = "abc", key: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    pair = {"source": "en", "target": "de"}
    return httpx.post(f"{address}/v1/documents", files={"file": ("a.txt", text.encode())}, data=pair, headers=headers)


def done(address: str, sent: httpx.Response, key: str = "") -> str:
    """The address of a document, when it is done."""
    place = f"{address}/v1/documents/{sent.json()['document_id']}"
    until = time.monotonic() + 60
    while get(place, key).json()["status"] != "done":
        assert time.monotonic() < until
        time.sleep(0.02)
    return place


def get(place: str, key: str = "") -> httpx.Response:
    return httpx.get(place, headers={"Authorization": f"Bearer {key}"} if key else {})


def test_results_that_nobody_fetches_make_room_for_new_ones() -> None:
    with serving(limits=Limits(max_documents=2)) as address:
        places = [done(address, send(address)) for _ in range(5)]
        found = [httpx.get(f"{place}/result") for place in places]
    assert [each.status_code for each in found] == [404, 404, 404, 200, 200]
    assert "newer ones need its place" in found[0].json()["error"]
    assert found[4].content == b"CBA"


def test_so_they_do_where_the_disk_is_full() -> None:
    with serving(limits=Limits(max_stored=1000)) as address:
        places = [done(address, send(address, "abc\n" * 100)) for _ in range(4)]
        assert [httpx.get(place).status_code for place in places] == [404, 404, 200, 200]
        refused = send(address, "abc\n" * 300)
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)


def test_anothers_result_is_left_for_some_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = new_key("one", tmp_path / "keys"), new_key("other", tmp_path / "keys")
    with serving(limits=Limits(max_documents=1), keys=tmp_path / "keys") as address:
        place = done(address, send(address, key=one), one)
        assert send(address, key=other).status_code == 429
        monkeypatch.setattr(documents, "_GRACE", 0.0)
        done(address, send(address, key=other), other)
        assert get(place, one).status_code == 404


def test_too_much_work_is_too_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(limits=Limits(max_documents=1)) as address, held(monkeypatch) as release:
        first = send(address)
        refused = send(address)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert httpx.get(f"{address}/v1/documents/{first.json()['document_id']}/result").status_code == 503
        release()
        done(address, first)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_clients_of_deepl_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("abc")
    with serving(limits=Limits(max_documents=1)) as address, held(monkeypatch) as release:
        assert send(address).status_code == 202
        threading.Timer(0.5, release).start()
        client = deepl.DeepLClient("any", server_url=address)
        client.translate_document_from_filepath(tmp_path / "a.txt", tmp_path / "b.txt", target_lang="DE")
        assert (tmp_path / "b.txt").read_text() == "CBA"


def test_files_are_private_and_do_not_stay(folder: Path) -> None:
    with serving() as address:
        place = done(address, send(address))
        [kept] = folder.glob("regard-documents-*")
        [file] = kept.iterdir()
        assert (kept.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
        assert httpx.get(f"{place}/result").content == b"CBA"
        assert not list(kept.iterdir())
        done(address, send(address))
    assert not kept.exists()


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with serving() as address:
        with monkeypatch.context() as patched:
            patched.setattr(documents.Documents, "_write", full)
            refused = send(address)
        assert (refused.status_code, "No space left" in refused.json()["error"]) == (503, True)
        done(address, send(address))
