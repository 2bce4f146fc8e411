"""Throughput and latency of `regard serve` under many clients, beside the same lines translated offline.

    python benchmarks/serve.py --bundle runs/multi30k/bundle --source test.en --clients 64 --libretranslate PYTHON

Each client sends one sentence after another, over a connection of its own, to LibreTranslate's /translate. Offline is
`Translator.translate` of all lines in one process, with its default settings and as many threads. Server, clients and
offline take turns; the clients are a process of their own and share the cores with the server. Memory is the most that
was resident in the server's process. A share of 0.8 is 80 % of the offline speed.

With `--libretranslate`, the Python of an environment where LibreTranslate is installed, it serves a CTranslate2 export
of the same bundle (see `--quantization`), with the bundle's beam, and is asked the same. It takes each text for one
sentence, since its sentence splitter would be fetched from the network; that saves it work.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
from record import RESULTS, circumstances, write
from workers import BenchmarkError

import regard
from regard.text import read_lines

HEAD = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Server:
    """A running `regard serve`; the time that it took to be ready."""

    def __init__(self, words: list[str], environment: dict[str, str] | None = None) -> None:
        """By a command, whose last word is made the port."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        start = time.perf_counter()
        nothing = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*words, str(port)], stdout=nothing, stderr=nothing, env=os.environ | (environment or {})
        )
        while True:
            try:
                httpx.get(f"{self.address}/health").raise_for_status()
                break
            except httpx.HTTPError:
                if self.process.poll() is not None:
                    raise BenchmarkError(f"the server ended with status {self.process.returncode}: {words}") from None
                time.sleep(0.01)
        self.start_s = time.perf_counter() - start

    def stop(self) -> int:
        """Stops it, and returns the most bytes that were resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return int(found[1]) * 1024 if found else 0


def regard_server(bundle: Path) -> Server:
    """A running `regard serve`."""
    return Server([sys.executable, "-m", "regard", "serve", str(bundle), "--port"])


SHIM = """
import sys
from argostranslate.sbd import MiniSBDSentencizer
MiniSBDSentencizer.split_sentences = lambda self, text: [text]
import libretranslate.init
libretranslate.init.boot = lambda *given, **named: None
from libretranslate import main
sys.argv[0] = "libretranslate"
main()
"""
"""LibreTranslate, which would fetch a sentence splitter and models: each text is one sentence, no more models."""


class LibreTranslate:
    """LibreTranslate over a CTranslate2 export of a bundle, packed as Argos Translate wants it."""

    def __init__(self, python: str, bundle: Path, pair: tuple[str, str], quantization: str, folder: Path) -> None:
        opened = regard.load(bundle)
        self._python, self._home, self._beam = python, folder, opened.recipe.search.beam
        package = folder / "packages" / f"{pair[0]}_{pair[1]}"
        package.mkdir(parents=True)
        words = [sys.executable, "-m", "regard", "export", str(bundle), "--to", "ctranslate2", "--no-verify"]
        words += ["--out", str(package / "model"), "--quantization", quantization]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(package / "model" / "source.spm", package / "sentencepiece.model")  # Argos knows one for both sides
        about = {"package_version": "1.0", "argos_version": "1.9", "from_code": pair[0], "from_name": pair[0]}
        about |= {"to_code": pair[1], "to_name": pair[1], "type": "translate"}
        (package / "metadata.json").write_text(json.dumps(about), encoding="utf-8")

    def start(self) -> Server:
        """A running server; it is given as many threads as this machine has cores."""
        environment = {
            "HOME": str(self._home),
            "XDG_DATA_HOME": str(self._home),
            "ARGOS_PACKAGES_DIR": str(self._home / "packages"),
            "ARGOS_CHUNK_TYPE": "MINISBD",
            "ARGOS_BEAM_SIZE": str(self._beam),
        }
        words = [self._python, "-c", SHIM, "--disable-files-translation", "--disable-web-ui", "--host", "127.0.0.1"]
        words += ["--threads", str(os.cpu_count()), "--port"]
        return Server(words, environment)


async def load(address: str, lines: list[str], pair: tuple[str, str], clients: int) -> tuple[float, list[float]]:
    """Seconds for all lines by so many clients, and milliseconds of each request.

    The clients write HTTP to sockets themselves: a library would take a part of the cores that the server works on.
    """
    work, took = iter(lines), []
    host, port = address.removeprefix("http://").split(":")

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for line in work:
            start = time.perf_counter()
            body = json.dumps({"q": line, "source": pair[0], "target": pair[1]}).encode()
            writer.write(HEAD % len(body) + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"(?i)content-length: (\d+)", answer)
            if not answer.startswith(b"HTTP/1.1 200") or size is None:
                raise BenchmarkError(f"the server answered {answer[:80]!r}.")
            await reader.readexactly(int(size[1]))
            took.append(1000 * (time.perf_counter() - start))
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - start, took


def offline(bundle: Path, lines: list[str]) -> float:
    """Seconds for all lines in this process, after a warm-up."""
    translator = regard.load(bundle)
    translator.translate(lines[:64])
    start = time.perf_counter()
    translator.translate(lines)
    return time.perf_counter() - start


def under_load(server: Server, lines: list[str], pair: tuple[str, str], most: int) -> dict[str, Any]:
    """Speed and latency of one client and of many, and what the server's start and memory were; it ends."""
    try:
        asyncio.run(load(server.address, lines[:64], pair, 8))
        by_clients = {}
        for clients in sorted({1, most}):
            some = lines if clients > 1 else lines[: max(len(lines) // 10, 20)]
            seconds, took = asyncio.run(load(server.address, some, pair, clients))
            cuts = quantiles(took, n=100)
            by_clients[clients] = {"lines_s": len(some) / seconds, "p50_ms": cuts[49], "p95_ms": cuts[94]}
    finally:
        peak = server.stop()
    return {"start_s": server.start_s, "peak_bytes": peak, "clients": by_clients}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    lines = list(itertools.islice(itertools.cycle(read_lines(arguments.source)), arguments.lines))
    languages = regard.load(arguments.bundle).languages
    pair = (languages.source, languages.target or languages.targets[0])
    other, rounds = None, []
    if arguments.libretranslate:
        folder = Path(tempfile.mkdtemp(prefix="libretranslate-"))
        other = LibreTranslate(arguments.libretranslate, arguments.bundle, pair, arguments.quantization, folder)
    for number in range(arguments.rounds):
        alone = offline(arguments.bundle, lines)
        found = under_load(regard_server(arguments.bundle), lines, pair, arguments.clients)
        beside = under_load(other.start(), lines, pair, arguments.clients) if other else None
        rounds.append({"offline_lines_s": len(lines) / alone, **found, "libretranslate": beside})
        share = found["clients"][arguments.clients]["lines_s"] / rounds[-1]["offline_lines_s"]
        print(
            f"round {number + 1}: offline {rounds[-1]['offline_lines_s']:.0f} lines/s, served {share:.2f} of it",
            flush=True,
        )
    most = arguments.clients
    return {
        **circumstances(),
        "bundle": regard.load(arguments.bundle).recipe.name,
        "lines": len(lines),
        "clients": most,
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "share_of_offline": median(r["clients"][most]["lines_s"] / r["offline_lines_s"] for r in rounds),
        "p50_ms": median(r["clients"][most]["p50_ms"] for r in rounds),
        "p95_ms": median(r["clients"][most]["p95_ms"] for r in rounds),
        "one_client_p50_ms": median(r["clients"][1]["p50_ms"] for r in rounds),
        "start_s": median(r["start_s"] for r in rounds),
        "peak_bytes": max(r["peak_bytes"] for r in rounds),
        "libretranslate": beside_of(rounds, most),
        "rounds": rounds,
    }


def beside_of(rounds: list[dict[str, Any]], most: int) -> dict[str, float] | None:
    """LibreTranslate's medians, if it was asked."""
    found = [each["libretranslate"] for each in rounds if each["libretranslate"]]
    if not found:
        return None
    return {
        "lines_s": median(each["clients"][most]["lines_s"] for each in found),
        "p50_ms": median(each["clients"][most]["p50_ms"] for each in found),
        "p95_ms": median(each["clients"][most]["p95_ms"] for each in found),
        "one_client_p50_ms": median(each["clients"][1]["p50_ms"] for each in found),
        "start_s": median(each["start_s"] for each in found),
        "peak_bytes": max(each["peak_bytes"] for each in found),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--libretranslate", metavar="PYTHON", help="Python of an environment with LibreTranslate")
    parser.add_argument("--quantization", default="float32", help="of the export that LibreTranslate serves")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS / "serve.json")
    arguments = parser.parse_args()
    found = measure(arguments)
    write(arguments.results, found)
    print(f"{found['share_of_offline']:.2f} of offline, p95 {found['p95_ms']:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
