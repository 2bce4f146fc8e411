"""Runs that were trained in seconds, to be watched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from watching import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be changed."""
    return train(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A finished run of one's own."""
    return Path(shutil.copytree(trained, tmp_path / "first"))
