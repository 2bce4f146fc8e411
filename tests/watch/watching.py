"""Runs that are trained in seconds, to be watched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard import recipe as recipes
from regard.tasks.fit import fit

SETTINGS: dict[str, dict[str, Any]] = {
    "text": {"size": 300, "shrink": True},
    "model": {
        "family": "transformer",
        **{"width": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.0},
    },
    "train": {
        **{"max_updates": 30, "save_every": 10, "keep_checkpoints": 2, "validate_every": 10, "log_every": 2},
        **{"average": "ema", "learning_rate": 0.01, "warmup": 5, "validate_with": "bleu", "clip": 1.0},
    },
}


def train(out: Path, **changes: dict[str, Any]) -> Path:
    """Train a toy that turns letters round, into `out`."""
    words = [f"{a}{b}{c}" for a in "abcd" for b in "efgh" for c in "ab"]
    source = [f"{words[i % 32]} {words[i * 7 % 32]} {words[i * 3 % 32]}" for i in range(300)]
    out.parent.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {}
    for name, lines in {"source": source, "target": [line[::-1] for line in source]}.items():
        files[name] = str(out.parent / f"a.{name}")
        Path(files[name]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    tables = {**SETTINGS, "data": {**files, "valid_lines": 12, "batch_tokens": 200}}
    for table, keys in changes.items():
        tables[table] = {**tables[table], **keys}
    fit(recipes.validate(tables, name="toy"), out)
    return out
