"""Guided alignment: the loss equals its definition, the head learns the links, and what it cannot be used with."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import recipe as recipes
from regard.data.batches import Batches
from regard.errors import ModelError
from regard.extensions import load_installed
from regard.linking.aer import Gold, alignment_error_rate
from regard.linking.align import AlignmentChoice, Reading, align_lines
from regard.linking.link import link_lines
from regard.tasks.fit import counts_of, fit
from regard.tasks.prepare import prepare
from regard.tasks.translate import load
from regard.text import write_lines
from regard.train import REGULARIZERS, Outputs, inputs

WORDS = ["ash", "elm", "fir", "oak", "yew", "box", "bay", "fig", "hop", "nut", "pea", "rye", "tea", "yam"]
SOURCES = [" ".join(random.Random(n).sample(WORDS, k=2 + n % 5)) for n in range(600)]
TARGETS = [" ".join(word.upper() for word in reversed(line.split())) for line in SOURCES]


def _recipe(folder: Path, strength: float, **tables: dict[str, Any]) -> recipes.Recipe:
    write_lines(folder / "a", SOURCES)
    write_lines(folder / "b", TARGETS)
    made: dict[str, dict[str, Any]] = {
        "data": {"source": str(folder / "a"), "target": str(folder / "b"), "valid_lines": 8, "batch_tokens": 400},
        "text": {"kind": "words", "joint": False},
        "model": {"width": 32},
        "train": {"max_updates": 150, "warmup": 20, "learning_rate": 5e-3, "schedule": "linear", "average": "none",
                  "precision": "float32", "regularizers": {"guided-alignment": strength}},
        "search": {"beam": 1, "max_length": 12},
    }  # fmt: skip
    if "family" not in tables.get("model", {}):
        made["model"] |= {"heads": 2, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    for table, values in tables.items():
        made[table] = {**made.get(table, {}), **values}
    return recipes.validate(made)


def _error(bundle: Path) -> float:
    """The alignment error rate of the taught head on lines whose links are known."""
    links = [frozenset((len(line.split()) - 1 - t, t) for t in range(len(line.split()))) for line in SOURCES[:50]]
    how = AlignmentChoice(readings=(Reading("input", layer=1, head=1),), symmetry="target")
    found = align_lines(load(bundle), SOURCES[:50], TARGETS[:50], choice=how)
    gold = [Gold(each, each) for each in links]
    return alignment_error_rate([frozenset(each.links) for each in found], gold)["aer"].value


def test_the_head_learns_where_tokens_come_from(tmp_path: Path) -> None:
    rates = {}
    for strength in (0.0, 0.05):
        folder = tmp_path / str(strength)
        folder.mkdir()
        rates[strength] = _error(fit(_recipe(folder, strength), folder / "run"))
    assert rates[0.05] < 10 < 30 < rates[0.0], rates


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_the_loss_is_that_of_the_links(tmp_path: Path, layout: str) -> None:
    load_installed()
    recipe = _recipe(tmp_path, 0.5, data={"layout": layout})
    prepared = prepare(recipe.data, recipe.text, tmp_path / "run")
    told: list[str] = []
    entry = REGULARIZERS["guided-alignment"]
    assert entry.prepare
    assert entry.add
    counts = counts_of(recipe, prepared, lambda event: told.append(event["what"]))
    guide = entry.prepare(0.5, counts).to(torch.device("cpu"))
    assert told, "nothing was said of the passes"
    batch = next(Batches(prepared.train, batch_tokens=400, layout=layout))
    x = inputs(batch, torch.device("cpu"))
    rows, queries, keys = len(x.source_lengths), *(int(n.max()) for n in (x.target_lengths, x.source_lengths))
    weights = torch.rand(rows, 2, queries, keys, generator=torch.manual_seed(1), dtype=torch.float64)
    outputs = Outputs(x, torch.zeros(1), torch.zeros(1), "cross", weights=[weights, torch.zeros_like(weights)])
    store = prepared.train
    pairs = [[side.text(line) for line in batch.lines.tolist()] for side in (store.source, store.target)]
    expected = 0.0
    for row, found in enumerate(link_lines(*pairs, learn=(SOURCES, TARGETS))):
        assert len(found.links) == len(pairs[1][row].split()), "these words are easy to link"
        expected -= sum(float(weights[row, 0, t + 1, s].log()) for s, t in found.links)
    assert float(entry.add(guide, None, outputs)) == pytest.approx(0.5 * expected, rel=1e-6)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"text": {"kind": "bpe", "size": 330, "joint": True, "sampling": 0.5}}, "text.sampling"),
        ({"model": {"family": "seq2seq"}}, "which this model does not have"),
    ],
)
def test_what_it_cannot_guide_is_refused(tmp_path: Path, tables: dict[str, dict[str, Any]], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        fit(_recipe(tmp_path, 0.05, **tables), tmp_path / "run")
