"""What a stranger can do to a bundle: change any file and write its digests anew, which needs no secret."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def reseal(folder: Path) -> None:
    """Make the sizes and digests in `bundle.json` anew, as whoever changed a file would."""
    file = folder / "bundle.json"
    try:
        card = json.loads(file.read_bytes())
        for name, known in card["files"].items():
            content = (folder / name).read_bytes()
            known |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        seal(file, card)
    except (ValueError, TypeError, AttributeError, KeyError, OSError, RecursionError):
        return  # a card so damaged cannot be sealed


def seal(file: Path, card: dict[str, Any]) -> None:
    """Write the card with its own digest made anew."""
    card.pop("sha256", None)
    card["sha256"] = hashlib.sha256(json.dumps(card, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(card, ensure_ascii=False), encoding="utf-8")


def edit_card(folder: Path, **changes: Any) -> None:
    file = folder / "bundle.json"
    seal(file, {**json.loads(file.read_bytes()), **changes})


def edit_text(folder: Path, name: str, old: str, new: str) -> None:
    file = folder / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    reseal(folder)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    with safe_open(folder / "weights.safetensors", "pt") as stored:
        return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  # it is no dict


def put_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    save_file(weights, folder / "weights.safetensors")
    reseal(folder)


def raw_weights(folder: Path, header: bytes, body: bytes = b"") -> None:
    (folder / "weights.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
    reseal(folder)
