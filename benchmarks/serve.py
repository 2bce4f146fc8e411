"""Throughput and latency of `regard serve` under many clients, beside the same lines translated offline.

    python benchmarks/serve.py --bundle runs/multi30k/bundle --source test.en --clients 64

Each client sends one sentence after another, over a connection of its own, to LibreTranslate's /translate. Offline is
`Translator.translate` of all lines in one process, with its default settings and as many threads. Server, clients and
offline take turns; the clients are a process of their own and share the cores with the server. Memory is the most that
was resident in the server's process. A share of 0.8 is 80 % of the offline speed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
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

    def __init__(self, bundle: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        start = time.perf_counter()
        words = [sys.executable, "-m", "regard", "serve", str(bundle), "--port", str(port)]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        while True:
            try:
                httpx.get(f"{self.address}/health").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.01)
        self.start_s = time.perf_counter() - start

    def stop(self) -> int:
        """Stops it, and returns the most bytes that were resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return int(found[1]) * 1024 if found else 0


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
            size = re.search(rb"content-length: (\d+)", answer)
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


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    lines = list(itertools.islice(itertools.cycle(read_lines(arguments.source)), arguments.lines))
    languages = regard.load(arguments.bundle).languages
    pair = (languages.source, languages.target or languages.targets[0])
    rounds = []
    for number in range(arguments.rounds):
        alone = offline(arguments.bundle, lines)
        server = Server(arguments.bundle)
        try:
            asyncio.run(load(server.address, lines[:64], pair, 8))
            by_clients = {}
            for clients in sorted({1, arguments.clients}):
                some = lines if clients > 1 else lines[: max(len(lines) // 10, 20)]
                seconds, took = asyncio.run(load(server.address, some, pair, clients))
                cuts = quantiles(took, n=100)
                by_clients[clients] = {"lines_s": len(some) / seconds, "p50_ms": cuts[49], "p95_ms": cuts[94]}
        finally:
            peak = server.stop()
        rounds.append(
            {
                "offline_lines_s": len(lines) / alone,
                "start_s": server.start_s,
                "peak_bytes": peak,
                "clients": by_clients,
            }
        )
        share = by_clients[arguments.clients]["lines_s"] / rounds[-1]["offline_lines_s"]
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
        "rounds": rounds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS / "serve.json")
    arguments = parser.parse_args()
    found = measure(arguments)
    write(arguments.results, found)
    print(f"{found['share_of_offline']:.2f} of offline, p95 {found['p95_ms']:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
