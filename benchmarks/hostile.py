"""What a server bears: thousands of malformed requests, while a good client goes on asking beside them.

    python benchmarks/hostile.py --bundle runs/my-translator/bundle

Schemathesis makes requests of the server's own description, valid ones and broken ones, and holds every answer to it.
Then come what no description knows: random bytes, slow and half-closed connections, huge bodies, deep JSON, broken
multipart, documents that unpack to hundreds of megabytes. All of it comes `--rounds` times, the same each time: what
the first round makes is made once, and what a later one adds was kept. Reported: answers by status, faults (500 and
above), what the good client was answered, and the server's memory before, after each round and at most.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from record import RESULTS, circumstances, write
from serve import regard_server

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
PATHS = ("/translate", "/detect", "/v1/translate", "/v1/stream", "/v1/score", "/v2/translate", "/v2/glossaries")
SUFFIXES = ["docx", "pptx", "xlsx", "odt", "epub", "html", "xliff", "po", "srt", "vtt", "md", "txt", "xml", "tmx"]
FORM = "multipart/form-data; boundary=b"
Request = tuple[bytes, float]
"""Bytes for a connection, and seconds to wait between their two halves."""


def fuzzed(address: str, examples: int, seed: int) -> tuple[int, str]:
    """Requests that Schemathesis made of the server's description, and what it found wrong with the answers."""
    words = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{address}/v1/openapi.json", "--no-color"]
    words += ["--max-examples", str(examples), "--phases", "examples,coverage,fuzzing", "--checks", CHECKS]
    words += ["--mode", "all", "--suppress-health-check", "all", "--continue-on-failure", "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:  # it leaves its notes where it runs
        found = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    made = re.search(r"([\d,]+) generated", found.stdout)
    wrong = found.stdout.partition("= FAILURES =")[2].partition("= WARNINGS =")[0]
    return int(made[1].replace(",", "")) if made else 0, wrong if found.returncode else ""


def post(path: str, body: bytes, kind: str = "application/json", length: int | None = None) -> bytes:
    """A request as bytes."""
    size = len(body) if length is None else length
    lines = f"POST {path} HTTP/1.1", "Host: x", f"Content-Type: {kind}", f"Content-Length: {size}", "Connection: close"
    return "\r\n".join((*lines, "", "")).encode() + body


def packed(name: str, content: bytes) -> bytes:
    """A zip archive with one file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(name, content)
    return made.getvalue()


def documents() -> Iterator[tuple[str, bytes]]:
    """Documents that nobody means well with, by name."""
    entities = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
    laughs = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "ha">{entities}]><x>&a9;</x>'.encode()
    outside = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>'
    deep = b"<p>" * 100_000
    for content in (laughs, outside, deep, b"", b"\xff\xfe\x00", b"PK\x03\x04 no archive", os.urandom(5000)):
        for suffix in SUFFIXES if len(content) < 100_000 else SUFFIXES[:7]:  # of plain text it is only much text
            yield f"a.{suffix}", content
    bomb = b"<w:p>" + b" " * 400_000_000
    for name, inside in (("a.docx", "word/document.xml"), ("a.odt", "content.xml"), ("a.xlsx", "xl/sharedStrings.xml")):
        yield name, packed(inside, bomb)
        yield name, packed(f"../../{inside}", laughs)
        yield name, packed(inside, laughs)


def multipart(name: str, content: bytes) -> tuple[bytes, str]:
    """A form with a document, and its type."""
    fields = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in (("source", "en"), ("target", "de"))
    )
    head = f'{fields}--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--b--\r\n", FORM


def malformed(number: int, seed: int) -> Iterator[Request]:
    """So many requests, the same for the same seed."""
    drawn = random.Random(seed)
    for name, content in documents():
        body, kind = multipart(name, content)
        yield post(drawn.choice(("/v1/documents", "/translate_file")), body, kind), 0.0
    makers: list[Callable[[str], Request]] = [
        lambda path: (drawn.randbytes(drawn.randint(1, 4000)), 0.0),
        lambda path: (b"GET " + drawn.randbytes(200).replace(b"\n", b"") + b" HTTP/1.1\r\nHost: x\r\n\r\n", 0.0),
        lambda path: (post(path, drawn.randbytes(drawn.randint(0, 3000))), 0.0),
        lambda path: (post(path, b"[" * drawn.randint(1, 200_000)), 0.0),
        lambda path: (post(path, b'{"q": ' * drawn.randint(1, 50_000)), 0.0),
        lambda path: (post(path, b'{"q": "\\ud800", "text": ["\\udfff"], "source": "en", "target": "de"}'), 0.0),
        lambda path: (post(path, b'{"text": 1e999, "q": -0, "n_best": 1e308, "source": [], "target": {}}'), 0.0),
        lambda path: (post(path, b"x" * 3_000_000), 0.0),
        lambda path: (post(path, b"{", length=10**12), 0.0),
        lambda path: (post(path, b"", length=-1), 0.0),
        lambda path: (post(path, multipart("a.txt", b"abc")[0][: drawn.randint(1, 200)], FORM), 0.0),
        lambda path: (post(path, b"q=%ff%fe&source=%00&target=de&q=" * 300, "application/x-www-form-urlencoded"), 0.0),
        lambda path: (post(path, b'{"q": "a"}', "application/json; charset=utf-32"), 0.0),
        lambda path: (b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", 0.0),
        lambda path: (post(path, b'{"q": "abc", "source": "en", "target": "de"}'), drawn.choice((0.0, 0.0, 0.5))),
    ]  # fmt: skip
    for turn in range(number):
        yield makers[turn % len(makers)](drawn.choice(PATHS))


def send(address: str, request: Request) -> str:
    """Sends bytes and returns the status of the answer; "none" where there is none in five seconds.

    One in ten closes its side of the connection when all is sent.
    """
    host, port = address.removeprefix("http://").split(":")
    body, wait = request
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            half = len(body) // 2
            connection.sendall(body[:half])
            time.sleep(wait)
            connection.sendall(body[half:])
            if len(body) % 10 == 0:
                connection.shutdown(socket.SHUT_WR)
            found = re.match(rb"HTTP/1.1 (\d+)", connection.recv(100))
            return found[1].decode() if found else "none"
    except OSError:
        return "none"


class Good:
    """A client that asks for the same translation again and again, and counts what it is answered."""

    def __init__(self, address: str, source: str, target: str) -> None:
        self._ask = {"q": "A man is smiling.", "source": source, "target": target}
        self._address, self._going = address, True
        self.answers, self.slowest = Counter[str](), 0.0
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        with httpx.Client(base_url=self._address, timeout=90) as client:
            expected = client.post("/translate", json=self._ask).json()
            while self._going:
                start = time.perf_counter()
                try:
                    found = client.post("/translate", json=self._ask)
                    self.answers["right" if found.json() == expected else str(found.status_code)] += 1
                except httpx.HTTPError as error:
                    self.answers[type(error).__name__] += 1
                self.slowest = max(self.slowest, time.perf_counter() - start)
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends it."""
        self._going = False
        self._thread.join()


def resident(process: int, name: str = "VmRSS") -> int:
    """Bytes of memory that a process has now, or has had at most (VmHWM)."""
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{process}/status").read_text(encoding="utf-8"))
    return int(found[1]) * 1024 if found else 0


def settled(process: int) -> int:
    """Bytes that are resident when the server has had the time to give back what it freed."""
    time.sleep(15)
    return resident(process)


def many(address: str, requests: Iterator[Request], together: int) -> Counter[str]:
    """How these requests were answered."""
    with ThreadPoolExecutor(together) as threads:
        return Counter(threads.map(lambda request: send(address, request), requests))


def statuses(address: str) -> dict[str, int]:
    """How many requests the server answered, by status."""
    counts = Counter[str]()
    for line in httpx.get(f"{address}/metrics").text.splitlines():
        if found := re.match(r'regard_requests_total\{.*status="(\d+)"\} ([\d.]+)', line):
            counts[found[1]] += int(float(found[2]))
    return dict(sorted(counts.items()))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    server = regard_server(arguments.bundle)
    process, address = server.process.pid, server.address
    try:
        [pair, *_] = httpx.get(f"{address}/v1/bundles").json()["bundles"]
        good = Good(address, pair["source"], pair["target"])
        fuzzed(address, 20, arguments.seed + 1)  # what is made at the first use is made
        many(address, malformed(200, arguments.seed + 1), arguments.together)
        before = settled(process)
        made, wrong, sent, after = 0, "", Counter[str](), list[int]()
        for _ in range(arguments.rounds):
            number, found = fuzzed(address, arguments.examples, arguments.seed)
            made, wrong = made + number, wrong or found
            sent += many(address, malformed(arguments.requests, arguments.seed), arguments.together)
            after.append(settled(process))
        good.stop()
        most = resident(process, "VmHWM")
        by_status = statuses(address)
    finally:
        server.stop()
    return {
        **circumstances(),
        "schemathesis_requests": made,
        "schemathesis_found": wrong,
        "other_requests": sum(sent.values()),
        "other_answers": dict(sorted(sent.items())),
        "answers_by_status": by_status,
        "faults": {code: n for code, n in by_status.items() if code >= "500"},
        "good_client": dict(good.answers),
        "good_client_slowest_s": good.slowest,
        "resident_bytes": {"before": before, "after each round": after, "most": most},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=400, help="of each operation, for Schemathesis")
    parser.add_argument("--requests", type=int, default=5000, help="that no description knows")
    parser.add_argument("--rounds", type=int, default=3, help="how often all of this comes")
    parser.add_argument("--together", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS / "hostile.json")
    arguments = parser.parse_args()
    found = measure(arguments)
    write(arguments.results, found)
    print({key: found[key] for key in ("answers_by_status", "good_client", "resident_bytes", "schemathesis_requests")})
    print(found["schemathesis_found"])
    return 1 if found["faults"] or found["schemathesis_found"] else 0


if __name__ == "__main__":
    sys.exit(main())
