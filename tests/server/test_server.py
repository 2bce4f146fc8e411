"""The server itself: its own API, limits, what it does at once and at its end."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serving import BUNDLES, serving

import regard
from regard.search.table import Options
from regard.server.limits import Limits
from regard.server.queue import Queue
from regard.server.service import Service, joined

LINE = ["abc de", "fgh", "a b c d", "gh abc", "d e f"]


def ask(address: str, path: str, **body: object) -> httpx.Response:
    return httpx.post(f"{address}{path}", json=body, timeout=60)


def test_own_api_gives_what_the_translator_gives(address: str) -> None:
    expected = regard.load(BUNDLES / "transformer").translate(LINE, n_best=2, alignment=True)
    found = ask(address, "/v1/translate", text=LINE, n_best=2, alignment=True, split=False).json()
    assert (found["source"], found["target"]) == ("en", "de")
    for text, one in zip(found["translations"], expected, strict=True):
        [line] = text["lines"]
        wanted = json.loads(json.dumps(one.to_dict()))
        assert line["text"] == wanted["text"]
        assert line["alignment"] == wanted["alignment"]
        assert [each["text"] for each in line["hypotheses"]] == [each["text"] for each in wanted["hypotheses"]]


def test_constraints(address: str) -> None:
    found = ask(address, "/v1/translate", text="abc de", constraints={"include": ["GH"]}).json()
    assert "GH" in found["translations"][0]["text"].split()


def test_stream(address: str) -> None:
    found = ask(address, "/v1/stream", text="abc de\nabc")
    assert found.headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in found.text.strip().split("\n\n")]
    parts = [json.loads(data.removeprefix("data: "))["text"] for name, data in events if name == "event: part"]
    assert "".join(parts) == "ED CBA\nCBA"
    assert events[-1] == ["event: end", 'data: {"text": "", "ended": true}']
    cut = ask(address, "/v1/stream", text="abc de", search={"max_length": 2}).text
    assert cut.endswith('event: end\ndata: {"text": "", "ended": false}\n\n')


def test_score(address: str) -> None:
    found = ask(address, "/v1/score", pairs=[["abc de", "ED CBA"], ["abc de", "ED CBB"]]).json()["log_probabilities"]
    assert found[1] < found[0] < 0


def test_alternatives_and_lists(address: str) -> None:
    found = ask(address, "/translate", q=["abc de", "fgh"], source="auto", target="de", alternatives=2).json()
    assert found["translatedText"] == ["ED CBA", "HGF"]
    assert [len(each) for each in found["alternatives"]] == [2, 2]
    assert [each["language"] for each in found["detectedLanguage"]] == ["en", "en"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/translate", {"source": "en", "target": "de"}, 400, "missing q"),
        ("/translate", {"q": "a", "target": "de"}, 400, "missing source"),
        ("/translate", {"q": "a", "source": "de", "target": "de", "format": "pdf"}, 400, "pdf format is not supported"),
        ("/translate", {"q": {"a": 1}, "source": "en", "target": "de"}, 400, "q must be a string"),
        ("/translate", {"q": "a", "source": "en", "target": "de", "alternatives": "x"}, 400, "alternatives"),
        ("/translate", {"q": "a" * 60_000, "source": "en", "target": "de"}, 413, "exceeds text limit"),
        ("/translate", {"q": ["a"] * 500, "source": "en", "target": "de"}, 413, "500 texts"),
        ("/v1/translate", {"text": "a", "target": "fr"}, 400, "fr is not supported"),
        ("/v1/translate", {"text": "a", "n_best": 1000}, 400, "n_best"),
        ("/v1/translate", {"text": "a", "search": {"batch_size": 5}}, 400, "batch_size cannot be set"),
        ("/v1/translate", {"text": "a", "search": {"beam": 500}}, 400, "32 at most"),
        ("/v1/translate", {"text": "a", "search": {"beam": -1}}, 400, "beam"),
        ("/v2/translate", {"target_lang": "DE"}, 400, "'text' not specified"),
        ("/v2/translate", {"text": ["a"], "target_lang": "DE", "glossary_id": "no"}, 400, "source_lang"),
        (
            "/v2/translate",
            {"text": ["a"], "source_lang": "EN", "target_lang": "DE", "glossary_id": "no"},
            404,
            "not found",
        ),
        ("/nowhere", {}, 404, "Not Found"),
    ],
)
def test_mistakes(address: str, path: str, body: dict[str, object], status: int, message: str) -> None:
    found = httpx.post(f"{address}{path}", json=body)
    assert found.status_code == status, found.text
    [said] = found.json().values()
    assert message in said


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"q": ' * 50_000,
        b'"\\ud800"',
        b"\xff\xfe",
        b'{"q": "\\ud800", "source": "en", "target": "de"}',
    ],
)
def test_bodies_that_are_no_request(address: str, body: bytes) -> None:
    for path in ("/translate", "/v1/translate", "/v2/translate", "/detect", "/v2/glossaries"):
        found = httpx.post(f"{address}{path}", content=body, headers={"content-type": "application/json"})
        assert found.status_code < 500


def test_a_body_that_is_too_large_or_too_slow() -> None:
    with serving(limits=Limits(max_body=2000, max_seconds=1.0)) as address:
        assert ask(address, "/translate", q="a" * 5000, source="en", target="de").status_code == 413
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(
                b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            )
            slow.settimeout(10)
            assert b"408" in slow.recv(100)


def test_documents_by_libretranslate(address: str) -> None:
    files, pair = {"file": ("a.txt", b"abc\nde\n")}, {"source": "en", "target": "de"}
    found = httpx.post(f"{address}/translate_file", files=files, data=pair, timeout=60).json()["translatedFileUrl"]
    assert httpx.get(found).content == b"CBA\nED\n"
    assert httpx.get(found).status_code == 404
    wrong = httpx.post(f"{address}/translate_file", files={"file": ("a.pdf", b"x")}, data=pair)
    assert (wrong.status_code, "not known" in wrong.json()["error"]) == (400, True)


def test_documents_of_our_own(address: str) -> None:
    files, pair = {"file": ("a.md", b"# abc de\n\nabc\n")}, {"source": "en", "target": "de"}
    begun = httpx.post(f"{address}/v1/documents", files=files, data=pair)
    place = f"{address}/v1/documents/{begun.json()['document_id']}"
    while (status := httpx.get(place).json())["status"] in ("queued", "translating"):
        time.sleep(0.01)
    assert (begun.status_code, status["status"], status["lines_done"]) == (202, "done", 2)
    found = httpx.get(f"{place}/result")
    assert (found.content, "a.de.md" in found.headers["content-disposition"]) == (b"# ED CBA\n\nCBA\n", True)


def test_rate() -> None:
    with serving(limits=Limits(rate=3)) as address:
        codes = [ask(address, "/translate", q="a", source="en", target="de").status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        assert httpx.get(f"{address}/health").status_code == 200


def test_pages_of_other_origins_are_refused_unless_named(address: str) -> None:
    header = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in httpx.get(f"{address}/languages", headers=header).headers
    with serving(cors=("https://example.org",)) as opened:
        found = httpx.get(f"{opened}/languages", headers=header).headers
        assert found["access-control-allow-origin"] == "https://example.org"


def test_many_at_once_share_batches() -> None:
    with serving() as address, ThreadPoolExecutor(32) as threads:
        lines = [LINE[i % len(LINE)] for i in range(160)]
        expected = [each.text for each in regard.load(BUNDLES / "transformer").translate(lines)]
        found = threads.map(
            lambda q: ask(address, "/translate", q=q, source="en", target="de").json()["translatedText"], lines
        )
        assert list(found) == expected
        metrics = dict(
            line.rsplit(" ", 1) for line in httpx.get(f"{address}/metrics").text.splitlines() if line[0] != "#"
        )
        assert float(metrics["regard_sentences"]) == 160
        assert float(metrics["regard_batches"]) < 160
        assert float(metrics['regard_requests_total{route="/translate",status="200"}']) == 160


def test_one_request_of_a_batch_may_fail_alone() -> None:
    translator = regard.load(BUNDLES / "transformer")
    queue = Queue(100)
    until = time.monotonic() + 30
    with ThreadPoolExecutor(8) as threads:
        work = [
            threads.submit(queue.translate, translator, [line], Options(), until) for line in ["abc", "x" * 9999, "de"]
        ]
        assert work[0].result()[0].text == "CBA"
        with pytest.raises(regard.RegardError, match="at most"):
            work[1].result()
        assert work[2].result()[0].text == "ED"
    queue.close()


def test_pivot_and_what_cannot_be_served(tmp_path: Path) -> None:
    bundles = (f"en-de={BUNDLES / 'transformer'}", f"fr-en={BUNDLES / 'transformer'}")
    with serving(*bundles, pivot="en") as address:
        found = {each["code"]: each["targets"] for each in httpx.get(f"{address}/languages").json()}
        assert found == {"de": [], "en": ["de"], "fr": ["de", "en"]}
        assert ask(address, "/translate", q="abc", source="fr", target="de").status_code == 200
    with pytest.raises(regard.ModelError, match="does not say which languages"):
        Service([BUNDLES / "transformer"], Limits())
    with pytest.raises(regard.ModelError, match="two bundles translate en-de"):
        Service([bundles[0], bundles[0]], Limits())


def test_a_bundle_is_replaced_without_a_gap(tmp_path: Path) -> None:
    place = tmp_path / "bundle"
    shutil.copytree(BUNDLES / "transformer", place)
    service = Service([f"en-de={place}"], Limits())
    try:
        old = service.translator("en", "de")
        assert service.reload() == []
        again = tmp_path / "again"
        shutil.copytree(BUNDLES / "transformer", again)
        (again / "bundle.json").touch()
        place.rename(tmp_path / "old")
        again.rename(place)
        assert service.reload() == [place]
        assert service.translator("en", "de") is not old
        (place / "weights.safetensors").write_bytes(b"no")
        (place / "bundle.json").touch()
        with pytest.raises(regard.BundleError):
            service.reload()
        assert joined(service.translate(["abc"], "en", "de")[0]) == "CBA"
    finally:
        service.close()


def test_sigterm_answers_what_was_accepted() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "regard", "serve", f"en-de={BUNDLES / 'transformer'}", "--port", str(port)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(300):
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                        break
                except httpx.HTTPError:
                    time.sleep(0.1)
            found: list[int] = []
            text = "\n".join(LINE * 150)
            body = {"q": text, "source": "en", "target": "de"}
            work = [
                threading.Thread(
                    target=lambda: found.append(
                        httpx.post(f"http://127.0.0.1:{port}/translate", json=body, timeout=60).status_code
                    )
                )
                for _ in range(4)
            ]
            for each in work:
                each.start()
            metrics = f"http://127.0.0.1:{port}/metrics"
            while "regard_requests_in_progress 5" not in httpx.get(metrics).text:  # the four, and this one
                time.sleep(0.005)
            process.terminate()
            for each in work:
                each.join()
            assert found == [200] * 4
            assert process.wait(30) in (0, -15)
        finally:
            process.kill()
        assert process.stderr is not None
        said = process.stderr.read()
    assert LINE[0] not in said
    assert '"path": "/translate"' in said


def test_commands_of_keys(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "regard", "serve"]
    made = subprocess.run([*words, "--new-key", "me", "--keys", str(tmp_path / "k")], capture_output=True, text=True)
    assert made.returncode == 0
    assert len(made.stdout.strip()) == 43
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    none = subprocess.run(words, capture_output=True, text=True)
    assert (none.returncode, "name at least one bundle" in none.stderr) == (2, True)
