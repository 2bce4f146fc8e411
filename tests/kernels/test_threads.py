"""Compiled kernels agree with PyTorch whatever number of threads OpenMP really gives, in a region and after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.kernels import native

REFUSED = native.unavailable("cpu", torch.float32)
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))


def run(how: str, folder: Path, **environment: str) -> None:
    script = Path(__file__).with_name("threads_of_kernels.py")
    done = subprocess.run(
        [sys.executable, str(script), how, str(folder)],
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
def test_all_gradients_are_right_whatever_threads_are_given(threads, tmp_path):
    run("plainly", tmp_path, **threads)


def test_they_work_inside_of_a_parallel_region(tmp_path):
    run("in a region", tmp_path, OMP_NUM_THREADS="2")


def test_they_neither_hang_nor_err_after_a_fork(tmp_path):
    run("after a fork", tmp_path, OMP_NUM_THREADS="2")
