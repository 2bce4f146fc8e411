"""Multi30k English to German, prepared once for the benchmarks that read it."""

from __future__ import annotations

import os
from pathlib import Path

from regard.errors import DataError
from regard.settings import DataConfig
from regard.tasks.prepare import Prepared, prepare
from regard.text.subwords import TextConfig

__all__ = ["folder", "load"]


def folder() -> Path:
    """The folder of Multi30k in $REGARD_DATA; raises DataError where there is none."""
    named = os.environ.get("REGARD_DATA")
    if not named:
        raise DataError(
            "REGARD_DATA is not set, but this benchmark reads Multi30k; set it to the folder that holds multi30k/ "
            "(`regard get multi30k` fetches it)."
        )
    found = Path(named) / "multi30k"
    if not (found / "train.en.gz").is_file():
        raise DataError(f"{found / 'train.en.gz'}: no such file; REGARD_DATA must be the folder that holds multi30k/.")
    return found


def load(out: Path, vocabulary: int) -> Prepared:
    """Stores of training and validation pairs with a joint BPE vocabulary, below `out`; made if not there yet."""
    place = folder()
    # Lists, for a generator inside of a generator would look its name up when it is over.
    train, valid = ([str(place / f"{name}.{side}.gz") for side in ("en", "de")] for name in ("train", "val"))
    (source, target), (valid_source, valid_target) = train, valid
    data = DataConfig(source=source, target=target, valid_source=valid_source, valid_target=valid_target)
    return prepare(data, TextConfig(kind="bpe", size=vocabulary, joint=True), out)
