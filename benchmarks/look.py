"""How soon the page of `regard look` opens and answers a click, in Chromium, and how large it is.

The page of 512 tokens has six layers of eight heads: 12.6 million weights, drawn at random, for what they are changes
nothing. Opening is from the browser's start on the file to the first picture drawn; a click is on one of the small
pictures or a select, until the next picture has been painted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, circumstances, write

from regard.apps.look import page
from regard.explore.look import Attention, Part, Side

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from chromium import browser

WORDS, LAYERS, HEADS = 30, 6, 8
# Resolved when what the last event changed is on the screen: one frame to draw it in, one more to have shown it.
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
CLICK = f"""async (selector) => {{
  const button = document.querySelector(selector), start = performance.now();
  button.click();
  return await {PAINTED} - start;
}}"""
CHOOSE = f"""async ([selector, value]) => {{
  const select = document.querySelector(selector), start = performance.now();
  select.value = value;
  select.dispatchEvent(new Event("change"));
  return await {PAINTED} - start;
}}"""


def side(count: int) -> Side:
    """So many tokens, of which two make a word now and then."""
    word = np.cumsum(np.arange(count) % 3 != 2) - 1
    names = tuple(f"▁token{i}" for i in range(count))
    return Side(names, tuple(f"word{i}" for i in range(word[-1] + 1)), np.eye(word[-1] + 1)[word])


def weights(rows: int, columns: int, layers: int, heads: int) -> np.ndarray:
    """(layers, heads, rows, columns), rows that sum to one, sharp as a trained model's are."""
    drawn = np.random.default_rng(0).exponential(size=(layers, heads, rows, columns)).astype(np.float32) ** 4
    return drawn / drawn.sum(axis=-1, keepdims=True)


def own(count: int, layers: int, heads: int) -> Attention:
    """A model of one side over so many tokens."""
    return Attention("", "", (Part("encoder", weights(count, count, layers, heads), side(count), side(count)),))


def sentence() -> Attention:
    """A translator of six layers of eight heads over a sentence of thirty words, as tokens."""
    tokens = side(WORDS * 3 // 2)
    parts = [
        Part(name, weights(len(tokens.names), len(tokens.names), LAYERS, HEADS), tokens, tokens)
        for name in ("encoder", "cross", "decoder")
    ]
    return Attention(" ".join(tokens.words), " ".join(tokens.words), tuple(parts))


def measured(chromium: Any, file: Path, layers: int, heads: int, rounds: int) -> dict[str, Any]:
    """Medians and worst of opening (seconds) and of each kind of click (milliseconds)."""
    openings: list[float] = []
    clicks: dict[str, list[float]] = {"a head": [], "all heads of a layer": [], "all layers and heads": [], "words": []}
    for turn in range(rounds):
        shown = chromium.new_page(viewport={"width": 1280, "height": 800})
        shown.goto(file.as_uri())
        openings.append(shown.evaluate(PAINTED) / 1000)  # performance.now() counts from when the page was asked for
        for layer in range(layers):
            head = (turn + layer) % heads + 1
            clicks["a head"].append(shown.evaluate(CLICK, f"#heads [data-layer='{layer + 1}'][data-head='{head}']"))
        clicks["all heads of a layer"].append(shown.evaluate(CHOOSE, ["#head", "0"]))
        clicks["all layers and heads"].append(shown.evaluate(CHOOSE, ["#layer", "0"]))
        clicks["words"].append(shown.evaluate(CHOOSE, ["#unit", "words"]))
        shown.close()
    return {
        "open_s": {"median": statistics.median(openings), "most": max(openings)},
        "click_ms": {name: {"median": statistics.median(each), "most": max(each)} for name, each in clicks.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small page once, not kept")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tokens, layers, heads, rounds = (48, 2, 2, 1) if options.quick else (512, LAYERS, HEADS, options.rounds)
    small = len(page(sentence()).encode())
    with tempfile.TemporaryDirectory() as place, browser() as opened:
        file = Path(place) / "attention.html"
        file.write_text(page(own(tokens, layers, heads)), encoding="utf-8")
        result = {
            **circumstances(),
            "chromium": opened.version,
            "tokens": tokens,
            "layers": layers,
            "heads": heads,
            "rounds": rounds,
            "page_bytes": file.stat().st_size,
            "page_bytes_of_30_words": small,
            **measured(opened, file, layers, heads, rounds),
        }
    for name in ("page_bytes", "page_bytes_of_30_words", "open_s", "click_ms"):
        print(f"{name}: {result[name]}")
    if not options.quick:
        write(RESULTS / "look.json", result)


if __name__ == "__main__":
    main()
