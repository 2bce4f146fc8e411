"""Mask-predict: its search, its canvas, its lengths, and that it learns; no law of left to right is for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import Tensor

import regard
from regard import recipe as recipes
from regard.data.batches import Batch
from regard.data.views import CMLMMask
from regard.errors import ModelError
from regard.models.mask_predict import MaskPredictConfig
from regard.search.refine import Blanks, mask_predict

CONFIG = MaskPredictConfig(width=16, heads=2, feedforward=32, encoder_layers=2, decoder_layers=2, dropout=0.0)
MASK = 1


def _hidden(model: Any, sources: list[list[int]], targets: list[list[int]], lay: Any) -> list[Tensor]:
    source, reading = lay(sources)
    target, writing = lay(targets)
    state = model.start(model.encode(source, reading), reading)
    found, _ = model.decode(target, state, writing)
    sizes = [len(t) for t in targets]
    rows = found.split(sizes) if lay is toy.packed else [x[:n] for x, n in zip(found, sizes, strict=True)]
    return [*rows, state.differences]


def test_padded_equals_packed_equals_alone_and_both_sides_are_seen() -> None:
    model = toy.make(CONFIG, dtype=torch.float64)
    rectangle = _hidden(model, toy.SOURCES, toy.TARGETS, toy.padded)
    pack = _hidden(model, toy.SOURCES, toy.TARGETS, toy.packed)
    for i, (a, b) in enumerate(zip(rectangle, pack, strict=True)):
        torch.testing.assert_close(a, b, rtol=1e-6 if i == 3 else 1e-10, atol=1e-10)
        if i < 3:
            alone = _hidden(model, [toy.SOURCES[i]], [toy.TARGETS[i]], toy.padded)
            torch.testing.assert_close(alone[0], a, rtol=1e-10, atol=1e-10)
    changed = _hidden(model, toy.SOURCES, [[*t[:-1], 17] for t in toy.TARGETS], toy.padded)
    assert all(not torch.allclose(a[0], b[0]) for a, b in zip(rectangle[:3], changed[:3], strict=True))


@pytest.mark.parametrize("passes", [1, 2, 4, 10])
def test_the_search_says_each_place_and_says_unsure_ones_again(passes: int) -> None:
    """A model that is right about a place only when it sees enough of the others."""
    right = torch.tensor([[5, 6, 7, 8, 3, 0], [9, 5, 6, 7, 8, 3]])
    shown: list[int] = []

    def fill(ids: Tensor, lengths: Tensor) -> Tensor:
        shown.append(int((ids == MASK).sum()))
        scores = torch.full((*ids.shape, 12), -5.0)
        sure = -0.1 * torch.arange(1, ids.shape[1] + 1).expand_as(ids)  # the first places are the surest
        known = ((ids == right) & (ids != MASK)).sum(1, keepdim=True)
        knows = torch.arange(ids.shape[1]) <= known + 1
        return scores.scatter(2, torch.where(knows, right, 11)[..., None], sure[..., None])

    found = mask_predict(Blanks(fill, torch.tensor([[5], [6]]), mask=MASK, pad=0, end=3), passes)
    assert shown[0] == 9
    assert shown == sorted(shown, reverse=True)
    assert len(shown) <= passes
    assert [len(h.ids) for h in found] == [4, 5]
    assert [h.ids for h in found] == ([[5, 6, 7, 8], [9, 5, 6, 7, 8]] if passes >= 4 else [h.ids for h in found])
    assert all(h.score == pytest.approx(h.log_probability / len(h.ids)) for h in found)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_canvas_masks_one_to_all_of_a_rows_tokens_and_never_its_end(layout: Any) -> None:
    lengths = np.array([5, 2, 1] * 60)
    flat = [np.array([*range(4, 3 + n), 3]) for n in lengths]
    whole = np.concatenate(flat) if layout == "packed" else np.stack([np.pad(r, (0, 5 - len(r))) for r in flat])
    batch = Batch(np.arange(180), whole, lengths, whole, whole, lengths, layout)
    made = CMLMMask(MASK)(batch, key=7)
    masked = made.target_input == MASK
    assert np.array_equal(made.target_output[masked], whole[masked])
    real = whole > 0
    assert (made.target_output[real & ~masked] == -1).all()
    assert not masked[whole == 3].any()
    rows = np.split(masked, np.cumsum(lengths)[:-1]) if layout == "packed" else list(masked)
    counts = [int(r.sum()) for r in rows]
    assert set(counts[0::3]) == {1, 2, 3, 4}
    assert set(counts[1::3]) == {1}
    assert set(counts[2::3]) == {0}


def test_it_learns_to_reverse_and_translates_from_the_command_line(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    words = ["".join(generator.choice(list("abcdefgh"), generator.integers(2, 7))) for _ in range(2400)]
    train, fresh = words[:2200], [w for w in words[2200:] if w not in set(words[:2200])][:60]
    for name, lines in (("a", train), ("b", [w[::-1] for w in train])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[data]\nsource = "{tmp_path}/a"\ntarget = "{tmp_path}/b"\nbatch_tokens = 800\n'
        '[text]\nkind = "characters"\n[model]\nfamily = "mask-predict"\nwidth = 64\nheads = 4\nfeedforward = 128\n'
        "encoder_layers = 2\ndecoder_layers = 2\ndropout = 0.0\nlength_range = 4\n[train]\nmax_updates = 1000\n"
        'schedule = "linear"\nlearning_rate = 4e-3\nwarmup = 60\nlabel_smoothing = 0.0\n'
        'average = "ema"\nema_decay = 0.98\n'
        'precision = "float32"\n[search]\nbeam = 2\npasses = 4\n',
        encoding="utf-8",
    )
    bundle = regard.fit(recipes.load(recipe), tmp_path / "run")
    translator = regard.load(bundle)
    found = translator.translate(fresh)
    assert sum(f.text == w[::-1] for f, w in zip(found, fresh, strict=True)) >= 0.9 * len(fresh)
    with pytest.raises(ModelError, match="all positions at once"):
        next(translator.stream(fresh[0]))
    with pytest.raises(ModelError, match="takes no no_repeat_ngram_size"):
        translator.translate(fresh[:1], search={"no_repeat_ngram_size": 2})
