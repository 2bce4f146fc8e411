"""Compiled kernels agree with PyTorch whatever number of threads OpenMP really gives, in a region and after a fork."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.kernels import native
from regard.kernels.build import KINDS, SOURCES, built

REFUSED = native.unavailable("cpu", torch.float32)
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))


def run(how: str, **environment: str) -> None:
    script = Path(__file__).with_name("threads_of_kernels.py")
    done = subprocess.run(
        [sys.executable, str(script), how],
        env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "agree\n", done.stderr


@pytest.mark.parametrize(
    "threads",
    [
        {"OMP_NUM_THREADS": "4"},
        {"OMP_NUM_THREADS": "2", "OMP_THREAD_LIMIT": "1"},
        {"OMP_NUM_THREADS": "64", "OMP_DYNAMIC": "true"},
    ],
    ids=["as many as asked for", "one of two", "fewer than asked for"],
)
def test_all_gradients_are_right_whatever_threads_are_given(threads):
    run("plainly", **threads)


def test_they_work_inside_of_a_parallel_region():
    run("in a region", OMP_NUM_THREADS="2")


def test_they_neither_hang_nor_err_after_a_fork():
    run("after a fork", OMP_NUM_THREADS="2")


def test_they_work_in_threads_of_their_own_where_no_openmp_is_found():
    run("alone", OMP_NUM_THREADS="3")


IDLE = """
import time
import regard
import torch
x = torch.zeros(2**20)
before = time.process_time()
for _ in range(100):
    x.add_(1)
    time.sleep(0.01)
print(time.process_time() - before)
"""


def said(program: str, **environment: str) -> str:
    """What a program says in an environment that says nothing else of how threads wait."""
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    command, env = [sys.executable, "-c", program], {**kept, "OMP_NUM_THREADS": "2", **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_threads_that_wait_leave_the_cores_to_others():
    """A program that works for a tenth of a second at most, and sleeps for one, takes little processor time."""
    assert float(said(IDLE)) < 0.3


def test_how_threads_wait_is_the_users_choice():
    ask = "import os, regard; print(os.environ.get('GOMP_SPINCOUNT'))"
    assert said(ask) in ("1000", "10000")
    assert said(ask, OMP_WAIT_POLICY="passive") == "None"
    assert said(ask, GOMP_SPINCOUNT="7") == "7"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how many programs want the cores")
def test_threads_sleep_sooner_where_others_want_the_cores():
    ask = "import os, regard; print(os.environ.get('GOMP_SPINCOUNT'))"
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 + (os.cpu_count() or 1))]
    try:
        assert said(ask) == "1000"
    finally:
        for each in busy:
            each.kill()
            each.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.get(platform.machine(), ()))
def test_they_agree_for_every_kind_of_processor_that_this_one_is(kind, monkeypatch):
    monkeypatch.setenv("REGARD_CPU", kind)
    library, reason = built.__wrapped__(SOURCES / "native.cpp")
    if library is None:
        pytest.skip(reason)
    run("plainly", OMP_NUM_THREADS="2", REGARD_CPU=kind)
