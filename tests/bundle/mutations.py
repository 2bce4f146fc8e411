"""Random changes to values and bytes, the same for the same seed: what fuzz tests feed."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 99, 128, 1000, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**40),
    *(0.0, -0.0, 0.5, 1e-308, 1e-5, 1e9, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
    *("", " ", "a", "\0", "../../x", "/dev/null", "\x1b[31m", "[red]", "<2de>", "x" * 5000, "\u2581", "\uffff", "1"),
    *([], {}, [[]], [0], [1e308], ["x"], {"a": 1}, [None], [[[[[[]]]]]], [[0.5, 0.5], [0.1, 2]], [2**40]),
)
"""Values of every kind at the edges of what programs expect."""


def change_value(value: Any, draw: random.Random) -> Any:
    """A JSON value with one to three of its parts replaced, removed, doubled or changed a little."""
    value = copy.deepcopy(value)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        spots = list(_spots(value))
        if not spots:
            return draw.choice(NASTY)
        parent, key = draw.choice(spots)
        kind = draw.random()
        if kind < 0.55:
            parent[key] = copy.deepcopy(draw.choice(NASTY))
        elif kind < 0.65:
            del parent[key]
        elif kind < 0.75:
            other, at = draw.choice(spots)
            parent[key] = copy.deepcopy(other[at])
        elif kind < 0.85 and isinstance(parent, dict):
            parent[str(draw.choice(("", "x", "__class__", "weights.safetensors", "family", "..")))] = parent[key]
        elif isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
            parent[key] = parent[key] * draw.choice((-1, 2, 1000, 0.5)) + draw.choice((0, 1, -1))
        elif isinstance(parent[key], str):
            parent[key] = change_bytes(parent[key].encode(), draw).decode("utf-8", "replace")
        elif isinstance(parent[key], list):
            parent[key] = parent[key] * 2
    return value


def _spots(value: Any) -> Any:
    """Every place of a value that can be changed, as its container and the key in it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _spots(value[key])


def change_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bytes with one to six of them changed, or with a part cut out, doubled, put elsewhere or made up."""
    new = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 3, 6))):
        start = draw.randrange(len(new) + 1)
        end = min(len(new), start + draw.choice((1, 1, 2, 4, 8, 50)))
        kind = draw.random()
        if kind < 0.4 and start < len(new):
            new[start] ^= 1 << draw.randrange(8)
        elif kind < 0.6:
            new[start:end] = draw.randbytes(end - start)
        elif kind < 0.7:
            new[start:start] = draw.choice((b"\xff" * 9, b"\0" * 8, struct.pack("<q", -1), b"\x80\x80\x80\x80\x08"))
        elif kind < 0.8:
            del new[start:end]
        elif kind < 0.9:
            new[start:start] = new[start:end]
        else:
            del new[start:]
    return bytes(new)


def change_safetensors(data: bytes, draw: random.Random) -> bytes:
    """A safetensors file with its header or its numbers changed; mostly so that it is one still."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = data[8 : 8 + size], data[8 + size :]
    kind = draw.random()
    if kind < 0.2:
        return change_bytes(data, draw)
    if kind < 0.6:
        value = change_value(json.loads(header), draw)
        header = json.dumps(value).encode()
    elif kind < 0.7:
        header = change_bytes(header, draw)
    else:
        body = change_bytes(body, draw)
        body = (body + data[8 + size :])[: len(data) - 8 - size]
    return struct.pack("<Q", len(header)) + header + body
