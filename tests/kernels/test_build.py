"""The compiled parts are built wherever there is a compiler, so that nobody goes without them in silence."""

from __future__ import annotations

import platform
import shutil

import pytest

from regard.engine import decoding
from regard.kernels.build import SOURCES, built


@pytest.mark.skipif(
    platform.system() != "Linux" or not (shutil.which("c++") or shutil.which("g++")), reason="needs Linux and g++"
)
@pytest.mark.parametrize("source", [*sorted(SOURCES.glob("*.cpp")), decoding.SOURCE], ids=lambda source: source.stem)
def test_every_source_is_built_where_there_is_a_compiler(source):
    library, reason = built(source)
    assert library is not None, reason
