"""Requests that nobody means well with: a short run of benchmarks/hostile.py."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from serving import serving

pytest.importorskip("schemathesis", reason="Schemathesis is not installed (the extra dev)")


@pytest.fixture(scope="module")
def hostile() -> ModuleType:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    try:
        return importlib.import_module("hostile")
    finally:
        sys.path.pop(0)


def test_every_answer_is_as_described(hostile: ModuleType, address: str) -> None:
    made, wrong = hostile.fuzzed(address, 3, 1)
    assert wrong == ""
    assert made > 300


def test_a_good_client_beside_bad_ones(hostile: ModuleType) -> None:
    """No fault, and every answer that the good client is given is right."""
    with serving() as address, ThreadPoolExecutor(8) as threads:
        good = hostile.Good(address, "en", "de")
        requests = [each for each in hostile.malformed(120, 1) if len(each[0]) < 5_000_000]
        answers = Counter(threads.map(lambda each: hostile.send(address, each), requests))
        good.stop()
        counted = hostile.statuses(address)
        gone = httpx.get(f"{address}/metrics").text
    assert good.answers.keys() == {"right"}
    assert not {code for code in (*answers, *counted) if code.startswith("5")}
    assert "regard_faults_total 0.0" in gone
