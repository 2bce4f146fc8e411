"""Law 7 through the command line: a run killed at random moments and resumed ends with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from measuring import measured


def test_three_kills_and_an_interrupt_change_no_bit(tmp_path: Path) -> None:
    found = measured("kill_and_resume", tmp_path, "--kills=3", "--interrupts=1", "--updates=16", "--runs=bpe")
    assert found["kills"] == 3
    assert found["kills_inside_a_save"] >= 1
    assert found["interrupts"] == 1
    assert found["identical"]


@pytest.mark.slow
def test_no_kill_anywhere_changes_a_bit(tmp_path: Path) -> None:
    """Both recipes; kills while preparing, training, validating, and inside saves of every kind."""
    found = measured("kill_and_resume", tmp_path)
    assert found["kills"] >= 24
    assert found["kills_inside_a_save"] >= 6
    assert found["interrupts"] >= 4
    assert found["identical"]
