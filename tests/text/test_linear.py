"""Cutting text takes time in proportion to its length, whatever it is made of."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from regard.text.sentences import split_long, split_sentences
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
text = sys.argv[1] * 200_000
assert "".join(split_long(text, lambda part: len(part) <= 100)) == text
assert "".join(split_sentences(text)) == text
print("done")
"""


@pytest.mark.parametrize("unit", [" ", "a ", ",", '"', "\u200d", ". ", "\n"])
def test_200_000_of_anything_are_cut_in_a_minute_of_computing(unit: str) -> None:
    # Time of the processor, not of the clock, and far from both: the slow way took nine minutes for spaces.
    found = subprocess.run([sys.executable, "-c", SCRIPT, unit], capture_output=True, text=True, check=False)
    assert found.stdout == "done\n", f"{found.returncode}: {found.stderr}"
