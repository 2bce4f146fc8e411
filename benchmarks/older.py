"""Copies of bundles for versions of Regard older than the renames of 0.2, so that both can be timed side by side.

git archive ab9ed04 | tar -x -C older      # a version whose default was float64
python benchmarks/default.py --before older …
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

KNOWN = Path(__file__).parents[1] / "tests" / "bundle" / "made-by-0.1" / "transformer" / "recipe.toml"
"""A recipe of that version, whose keys are those that it knows."""
LEFT_OUT = ("search", "precision")
"""Its default, "float32", multiplied in float64; "auto" was the compiled decoder in int8, which one had to ask for."""
RENAMED = {"max_updates": "updates", "learning_rate": "rate", "score_width": "score_size"}
COPIED = ("subwords.model", "weights.safetensors", "golden.json")


def older_copy(bundle: Path, out: Path) -> Path:
    """Writes the bundle of a Transformer as 0.1 reads it: `out`, with the same weights, tokens and search."""
    out.mkdir(parents=True)
    recipe = tomllib.loads((bundle / "recipe.toml").read_text(encoding="utf-8"))
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    lines = [f"name = {json.dumps(recipe['name'])}", f"seed = {recipe['seed']}"]
    for table in ("data", "text", "model", "train", "search"):
        lines.append(f"[{table}]")
        for key, value in recipe[table].items():
            old = RENAMED.get(key, key)
            if old in known[table] and (table, old) != LEFT_OUT and not isinstance(value, dict):
                lines.append(f"{old} = {_toml(value)}")
    (out / "recipe.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in COPIED:
        shutil.copy(bundle / name, out / name)
    card = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    del card["sha256"]
    card["files"] = {
        file.name: {"size": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in sorted(out.iterdir())
    }
    card["sha256"] = hashlib.sha256(json.dumps(card, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    (out / "bundle.json").write_text(json.dumps(card, ensure_ascii=False), encoding="utf-8")
    return out


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)
