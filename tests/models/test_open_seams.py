"""A script adds a part or a family by an entry in a dict: it is trained, saved, taken up again and used."""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import toy
from pydantic import BaseModel, Field
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard import recipe as recipes
from regard.errors import RecipeError
from regard.language.self_attentive import SelfAttentiveConfig
from regard.models import FAMILIES, Family
from regard.models.choices import PAPER, EncoderDecoderConfig, StackConfig
from regard.nn import ACTIVATIONS, NORM_KINDS, Norm, whole
from regard.nn.attention import NORMALIZERS, SCORES, Score
from regard.nn.attention.core import softmax
from regard.nn.layers import GATES
from regard.nn.positions import BIASES, POSITIONS, ROTARY, Added, Bias
from regard.tasks.fit import fit
from regard.text import write_lines

SIZES = {"width": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "decoder_layers": 1}


class Distance(Score):
    """−|q − k|², as a kernel machine compares."""

    is_dot = False

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        return -(q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)


class Ramp(Added):
    """A position is a number that is learnt how to weigh."""

    def __init__(self, width: int, capacity: int) -> None:
        super().__init__(width, capacity)
        self.slope = nn.Parameter(torch.zeros(1, width))

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        return positions[..., None] * self.slope / 100


class Step(Bias):
    """Whatever stands more than three tokens away is looked at less."""

    fixed = True

    def scores(self, queries: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        far = (key_positions - positions[:, None]).abs() > 3
        return -far.to(queries.dtype)[None].expand(self.heads, -1, -1)


class Scale(Norm):
    """x g / max |x|."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, layout: Any = None) -> Tensor:
        return x * self.weight / x.abs().amax(-1, keepdim=True).clamp(min=1e-6)


class BagConfig(BaseModel, extra="forbid", frozen=True):
    """Sizes of a language model that knows only the mean of what stands before."""

    family: Literal["bag"] = "bag"
    width: int = Field(16, gt=0, description="features")


class BagState:
    """The sum of the vectors so far (B, D), and how many there are."""

    def __init__(self, total: Tensor | None = None, count: int = 0) -> None:
        self.total, self.count = total, count

    def select(self, rows: Tensor) -> BagState:
        return BagState(None if self.total is None else self.total[rows], self.count)


class Bag(nn.Module):
    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.table, self.output = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)

    def start(self, capacity: int | None = None) -> BagState:
        return BagState()

    def decode(self, tokens: Tensor, state: BagState, layout: Any = None, observe: Any = None) -> tuple[Tensor, Any]:
        layout = layout or whole(tokens)
        rows = layout.pad(self.table(tokens))
        total = rows.cumsum(1) if state.total is None else state.total[:, None] + rows.cumsum(1)
        count = torch.arange(1, rows.shape[1] + 1, device=rows.device) + state.count
        hidden = rows + total / count[:, None]
        return layout.flatten(hidden), BagState(total[:, -1], state.count + rows.shape[1])

    def project(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits


ADDED: dict[str, tuple[dict[str, Any], str, Any, dict[str, Any]]] = {
    "score": (SCORES, "distance", Distance, {"score": "distance"}),
    "normaliser": (NORMALIZERS, "warm", lambda: lambda scores: softmax(scores / 2), {"normalize": "warm"}),
    "added positions": (POSITIONS, "ramp", Ramp, {"positions": "ramp"}),
    "biased positions": (BIASES, "step", Step, {"positions": "step"}),
    "norm": (NORM_KINDS, "scale", Scale, {"norm_kind": "scale", "norm": "pre"}),
    "activation": (ACTIVATIONS, "square", lambda x: F.relu(x) ** 2, {"activation": "square"}),
    "family": (FAMILIES, "bag", Family(BagConfig, lambda c, s, t, pad=0: Bag(c.width, t), {}, "language-model"), {}),
}
"""The dict, the entry's name, the entry, and the settings of [model] that ask for it."""


@pytest.fixture(params=ADDED)
def added(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    table, name, entry, settings = ADDED[request.param]
    monkeypatch.setitem(table, name, entry)
    return request.param, settings


class Killed(Exception):  # noqa: N818  (it stands in for a signal)
    """The process is gone."""


def die(event: dict[str, Any]) -> None:
    if event["event"] == "validate" and event["update"] == 3:
        raise Killed


def _recipe(kind: str, settings: dict[str, Any], folder: Path) -> Any:
    draw = random.Random(1)
    lines = [" ".join(draw.choices("abcdef", k=draw.randint(1, 5))) for _ in range(60)]
    write_lines(folder / "a", lines)
    pair = {"source": str(folder / "a"), "target": str(folder / "a")}
    data = {"text": str(folder / "a")} if kind == "family" else pair
    return recipes.validate(
        {
            "name": "added",
            "data": {**data, "valid_lines": 6, "batch_tokens": 120},
            "text": {"size": 300, "kind": "characters", "shrink": True},
            "model": {"family": "bag"} if kind == "family" else {**SIZES, **settings},
            "train": {"max_updates": 4, "validate_every": 1, "save_every": 1, "average": "none", "warmup": 2},
        }
    )


def test_an_entry_is_trained_saved_taken_up_and_used(added: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    kind, settings = added
    recipe = _recipe(kind, settings, tmp_path)
    with pytest.raises(Killed):
        fit(recipe, tmp_path / "run", callbacks=[die])
    bundle = fit(recipe, tmp_path / "run", resume=True)
    straight = fit(recipe, tmp_path / "whole")
    again, once = (regard.bundle.load(path).model().state_dict() for path in (bundle, straight))
    assert all(torch.equal(again[name], once[name]) for name in once), "taken up as if it had never stopped"
    if kind == "family":
        assert regard.generate(bundle, "a b")
    else:
        assert regard.load(bundle).translate(["a b"])[0].text is not None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"score": "distanc"}, r'\[model\] score = "distanc": must be one of .*distance; did you mean distance\?'),
        ({"positions": "sinusoidl"}, r'positions = "sinusoidl": must be one of .*; did you mean sinusoidal\?'),
        ({"activation": "gelu_old"}, r'activation = "gelu_old": must be one of .*; did you mean gelu'),
        ({"norm_kind": "layers"}, r'norm_kind = "layers": must be one of layer, rms, batch; did you mean layer\?'),
    ],
)
def test_an_unknown_name_is_answered_with_what_there_is_now(
    settings: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCORES, "distance", Distance)
    with pytest.raises(RecipeError, match=said):
        _recipe("score", settings, tmp_path)


def test_no_page_imports_another_page() -> None:
    """Pages stand in the room of models, and in rooms above it that their families are for."""
    folder = Path(regard.__file__).parent
    rooms = ("models", "language", "parsing", "reading")
    files = [path for room in rooms for path in (folder / room).glob("*.py") if path.stem != "__init__"]
    trees = {f"regard.{path.parent.name}.{path.stem}": ast.parse(path.read_text("utf-8")) for path in files}
    pages = {
        name
        for name, tree in trees.items()
        if any(isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "FAMILIES" for n in tree.body)
    }
    assert len(pages) >= 10
    held = {name: family for page in pages for name, family in import_module(page).FAMILIES.items()}
    own = {**FAMILIES, **{name: held[name] for name in ("span-reader", "chart-parser")}}  # which our extensions add
    assert held == own, "the package names every family of its pages, and no other"
    for name in pages:
        found = set()
        for node in (node for node in ast.walk(trees[name]) if isinstance(node, ast.ImportFrom)):
            base = f"{name.rpartition('.')[0]}.{node.module or ''}".rstrip(".") if node.level else str(node.module)
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        assert not found & pages, f"{name} imports {found & pages}"


def test_only_the_page_of_the_family_that_is_asked_for_is_imported() -> None:
    code = """
import sys
from regard.models import FAMILIES
pages = set(FAMILIES.data.values())
loaded = lambda: sorted(page for page in pages if page in sys.modules)
FAMILIES["mine"] = 1
assert "gpt" in FAMILIES and "mine" in FAMILIES and "other" not in FAMILIES and FAMILIES.get("other") is None
print(loaded(), FAMILIES["gpt"].kind, FAMILIES.get("gpt") is FAMILIES["gpt"], FAMILIES["mine"], loaded(), sep="; ")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "[]; language-model; True; 1; ['regard.language.gpt']\n"


def test_the_end_of_a_line_is_the_last_state_of_either_direction() -> None:
    """Of a bidirectional LSTM the backward direction has read all of the line at its first token, not at its last."""
    model: Any = toy.make(SelfAttentiveConfig(width=16, embedding=10, pool="end", dropout=0.0), dtype=torch.float64)
    ids, layout = toy.padded(toy.SOURCES)
    found = model.embed(ids, layout)[:, 0]
    states, _ = model.encoder(model.table(ids).transpose(0, 1), lengths=layout.lengths)  # (S, B, D)
    for row, length in enumerate(layout.lengths.tolist()):
        torch.testing.assert_close(found[row], torch.cat((states[length - 1, row, :8], states[0, row, 8:])))


@pytest.mark.parametrize("config", [StackConfig, EncoderDecoderConfig])
def test_descriptions_of_configs_name_every_part(config: type[BaseModel]) -> None:
    """They are written out, so that a config is read without the parts themselves."""
    for key, tables in {
        "positions": (POSITIONS, BIASES, ROTARY),
        "norm_kind": (NORM_KINDS,),
        "score": (SCORES,),
        "normalize": (NORMALIZERS,),
        "activation": (ACTIVATIONS, GATES),
    }.items():
        names = {name for table in tables for name in table}
        assert set(PAPER[key]) <= names
        if (field := config.model_fields.get(key)) is not None:
            assert names <= set(re.findall(r"[\w-]+", str(field.description)))
