"""What the configs of several families have in common: names of parts, and the sizes of Transformers.

A part is named by its entry in a dict. Names are looked up when a config is made, so entries that a script adds count;
those of the paper need no looking up, so that its configs are read without the parts themselves and without PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from regard.nn.attention import Score

PAPER: dict[str, tuple[Any, ...]] = {
    "positions": ("sinusoidal", "sinusoidal-halves", "learned", "none"),
    "norm_kind": ("layer",),
    "score": ("scaled_dot", "dot"),
    "normalize": ("softmax",),
    "activation": ("relu", "gelu", "silu"),
}
"""Names of parts, by the key that names them, that everything knows which has the paper's Transformer in it."""
_ADDED = PAPER["positions"]
"""Positions that are added to a token."""


def _table(name: str) -> Mapping[str, Any]:
    """A dict of parts, such as "attention.SCORES" of `regard.nn`."""
    module, _, table = f"regard.nn.{name}".rpartition(".")
    found: Mapping[str, Any] = getattr(import_module(module), table)
    return found


def _one_of(*tables: str, key: str = "") -> AfterValidator:
    """Names of the entries of these dicts; those that the paper has for a key are known."""

    def check(name: str) -> str:
        if name in PAPER.get(key, ()):
            return name
        names = [known for table in tables for known in _table(table)]
        if name not in names:
            found = {"names": names, "name": name, "listed": ", ".join(names)}
            raise PydanticCustomError("unknown_name", "must be one of {listed}", found)
        return name

    return AfterValidator(check)


ActivationName = Annotated[str, _one_of("ACTIVATIONS", "GATES", key="activation")]
AddedName = Annotated[str, _one_of("positions.POSITIONS")]
CellName = Annotated[str, _one_of("recurrent.CELLS")]
NormName = Annotated[str, _one_of("NORM_KINDS", key="norm_kind")]
NormalizerName = Annotated[str, _one_of("attention.NORMALIZERS", key="normalize")]
PoolName = Annotated[str, _one_of("convolution.POOLS")]
PositionName = Annotated[str, _one_of("positions.POSITIONS", "positions.BIASES", "positions.ROTARY", key="positions")]
ScoreName = Annotated[str, _one_of("attention.SCORES", key="score")]


def listed(*names: object) -> str:
    """Names for a description: "a, b or c"."""
    *most, last = map(str, names)
    return f"{', '.join(most)} or {last}" if most else last


def capacity(score: str, score_width: int, positions: str = "none", max_positions: int = 0) -> int | None:
    """The most positions that a line may have, for which a score and a position scheme have weights; None: any number.

    Both have the widths and positions that a config gives them.
    """
    known = [] if score in PAPER["score"] else [_table("attention.SCORES")[score].most_keys(score_width)]
    added = None if positions in _ADDED else _table("positions.POSITIONS").get(positions)
    if positions == "learned" or (added is not None and added.limited):
        known.append(max_positions)
    return min((most for most in known if most is not None), default=None)


def own_capacity(config: EncoderDecoderConfig | StackConfig) -> int | None:
    """The most positions that a line may have, as a config of Transformers says itself."""
    return config.capacity


class StackConfig(BaseModel):
    """A stack of Transformer blocks, as GPT and BERT have one, and Transformers two; the defaults are GPT-2's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    width: int = Field(768, gt=0, description="features of a token, a multiple of 2")
    layers: int = Field(12, gt=0, description="blocks")
    heads: int = Field(12, gt=0, description="attentions side by side")
    key_value_heads: int = Field(
        0, ge=0, description="heads of keys and values, shared by neighbours: 1: multi-query; 0: as many as heads"
    )
    feedforward: int = Field(0, ge=0, description="inner features of the feed-forward network; 0: 4 times the width")
    dropout: float = Field(0.1, ge=0, lt=1, description="on sub-layer outputs and embedding sums")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    positions: PositionName = Field(
        "learned",
        description="how a token knows its position: added to it (sinusoidal, sinusoidal-halves, learned or none), to "
        "the scores (t5, t5-layers, shaw, shaw-keys, alibi or kerple), or turning queries and keys (rotary)",
    )
    max_positions: int = Field(1024, gt=0, description="positions that are learned: the longest context")
    norm: Literal["pre", "post"] = Field("pre", description="norm before each sub-layer, or after its residual sum")
    norm_kind: NormName = Field("layer", description="layer, rms or batch")
    activation: ActivationName = Field(
        "gelu",
        description="the feed-forward network's activation: relu, gelu, gelu_new or silu; or a gate, with two thirds "
        "of the inner features: reglu, geglu or swiglu",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(
                f"heads ({self.heads}) must divide width ({self.width}) into even parts; "
                f"try width {-(-self.width // (2 * self.heads)) * 2 * self.heads}"
            )
        if self.key_value_heads and self.heads % self.key_value_heads:
            raise ValueError(
                f"key_value_heads ({self.key_value_heads}) must divide heads ({self.heads}); try 1, or leave it out"
            )
        return self

    @property
    def capacity(self) -> int | None:
        """The most positions that a line may have; None: any number."""
        return capacity("scaled_dot", 0, self.positions, self.max_positions)


class EncoderDecoderConfig(BaseModel):
    """A row of Table 3 of Vaswani et al. 2017, or what came after; the defaults are the paper's base model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: str = Field("", description="the model family")
    width: int = Field(512, gt=0, description="d_model: features of a token, a multiple of 2")
    encoder_layers: int = Field(6, gt=0, description="N of the encoder")
    decoder_layers: int = Field(6, gt=0, description="N of the decoder")
    heads: int = Field(8, gt=0, description="h: attentions side by side")
    feedforward: int = Field(2048, gt=0, description="d_ff: inner features of the feed-forward network")
    key_width: int = Field(0, ge=0, description="d_k of a head; 0: width / heads")
    value_width: int = Field(0, ge=0, description="d_v of a head; 0: width / heads")
    key_value_heads: int = Field(
        0, ge=0, description="heads of keys and values, shared by neighbours: 1: multi-query; 0: as many as heads"
    )
    key_value: Literal["projected", "split"] = Field(
        "projected",
        description="keys and values: projected, or split: the two halves of what is looked at (widths left at 0)",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="P_drop on sub-layer outputs and embedding sums")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of attention weights")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="dropout inside the feed-forward network")
    positions: PositionName = Field(
        "sinusoidal",
        description="how a token knows its position: added to it (sinusoidal, sinusoidal-halves, learned or none), to "
        "the scores of self-attention (t5, t5-layers, shaw, shaw-keys, alibi or kerple), or turning its queries and "
        "keys (rotary)",
    )
    positions_enter: Literal["added", "concatenated", "every-layer"] = Field(
        "added",
        description="positions of the first kind: added to embeddings, concatenated and mapped back to width, or "
        "added again before every layer",
    )
    max_positions: int = Field(1024, gt=0, description="positions that are learned; sinusoids go on for ever")
    norm: Literal["post", "pre"] = Field("post", description="post: norm after the residual sum (paper); pre: before")
    norm_kind: NormName = Field(
        "layer", description="layer, rms or batch: of a token's features, but for batch, which sees its neighbours"
    )
    score: ScoreName = Field(
        "scaled_dot",
        description="how queries and keys are compared: scaled_dot, dot, bilinear, reduced_rank, additive, concat, "
        "cosine, fixed_cosine, location or mean",
    )
    score_width: int = Field(
        0,
        ge=0,
        description="inner features of additive and concat, rank of reduced_rank, positions of location; 0: what suits",
    )
    normalize: NormalizerName = Field(
        "softmax",
        description="how scores become weights: softmax, sparsemax, entmax15, straight_through, gumbel or sampled (the "
        "last three: hard attention)",
    )
    activation: ActivationName = Field(
        "relu",
        description="the feed-forward network's activation: relu, gelu, gelu_new or silu; or a gate, with two thirds "
        "of the inner features: reglu, geglu or swiglu",
    )
    share: Literal["all", "target", "none"] = Field(
        "all", description="one matrix for source and target embeddings and the projection (all), the last two, or none"
    )
    output_bias: bool = Field(False, description="a bias on the logits (Marian has one, the paper has none)")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if (self.key_width == 0 or self.value_width == 0) and self.width % self.heads:
            raise ValueError(
                f"heads ({self.heads}) must divide width ({self.width}); try {_divisors(self.width, self.heads)}, or "
                "give key_width and value_width"
            )
        if self.heads % self.groups:
            raise ValueError(
                f"key_value_heads ({self.groups}) must divide heads ({self.heads}); "
                f"try {_divisors(self.heads, self.groups)}"
            )
        keys, values = self.widths
        if self.key_value == "split" and self.groups * (keys + values) != self.width:
            raise ValueError(
                f'key_value = "split" makes keys and values of the {self.width} features themselves, so '
                f"key_value_heads ({self.groups}) times key_width ({keys}) and value_width ({values}) together must "
                f"be {self.width}; leave both widths at 0"
            )
        return self

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.width % 2:
            raise ValueError(f"width ({self.width}) must be even, since sinusoids come in pairs; try {self.width + 1}")
        if self.positions in _ADDED:
            return self
        schemes, biases, turning = (_table(f"positions.{name}") for name in ("POSITIONS", "BIASES", "ROTARY"))
        scores, rotary = _table("attention.SCORES"), self.positions in turning
        if self.positions not in schemes and self.positions_enter != "added":
            raise ValueError(
                f'positions_enter = "{self.positions_enter}" is for positions that are added to a token '
                f'({listed(*schemes)}), and "{self.positions}" act inside attention; leave it out'
            )
        needs_dot = rotary or (self.positions in biases and biases[self.positions].needs_dot)
        if needs_dot and not scores[self.score].is_dot:
            dots = [name for name, score in scores.items() if score.is_dot]
            raise ValueError(
                f'positions = "{self.positions}" need a score that is a dot product ({listed(*dots)}), and '
                f'"{self.score}" is none; change one of the two'
            )
        if rotary and (width := self.new_score().prepared) % 2:
            raise ValueError(
                f'positions = "{self.positions}" turn pairs of features, so what is compared must have an even width, '
                f"not {width}; change key_width or score_width"
            )
        return self

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def widths(self) -> tuple[int, int]:
        """Features of a head's keys and values."""
        head = self.width // (2 * self.groups if self.key_value == "split" else self.heads)
        return self.key_width or head, self.value_width or head

    @property
    def capacity(self) -> int | None:
        """The most positions that a line may have; None: any number."""
        return capacity(self.score, self.score_width, self.positions, self.max_positions)

    @property
    def beyond(self) -> dict[str, str]:
        """Parts that other libraries may not know, by the keys that name them: all that is not the paper's."""
        known = {
            "key_value_heads": (0, self.heads),
            "key_value": ("projected",),
            "positions_enter": ("added",),
            **PAPER,
            "score": ("scaled_dot",),
        }
        values = {key: getattr(self, key) for key in known}
        return {key: f"model.{key} = {json.dumps(value)}" for key, value in values.items() if value not in known[key]}

    def new_score(self) -> Score:
        """What compares the queries and keys of a head."""
        score: Score = _table("attention.SCORES")[self.score](self.widths[0], size=self.score_width)
        return score


def _divisors(number: int, near: int) -> str:
    """The two divisors of a number that are nearest to another."""
    found = sorted((n for n in range(1, number + 1) if number % n == 0), key=lambda n: (abs(n - near), n))
    return listed(*sorted(found[:2]))
