"""Families by their names, and what the configs of several have in common: parts, settings, sizes of Transformers.

A part is named by its entry in a dict. Names are looked up when a config is made, so entries that a script adds count;
those of the paper need no looking up, so that its configs are read without the parts themselves and without PyTorch.
"""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from .interface import Family

if TYPE_CHECKING:
    from regard.nn.attention import Score

PAPER: dict[str, tuple[str, ...]] = {
    "positions": ("sinusoidal", "sinusoidal-halves", "learned", "none"),
    "norm_kind": ("layer",),
    "score": ("scaled_dot", "dot"),
    "normalize": ("softmax",),
    "activation": ("relu", "gelu", "silu"),
}
"""Names of parts, by the key that names them, that everything knows which has the paper's Transformer in it."""


def parts(table: str) -> Mapping[str, Any]:
    """A dict of parts, such as "attention.SCORES" of `regard.nn`, imported when it is needed."""
    module, _, name = f"regard.nn.{table}".rpartition(".")
    return cast(Mapping[str, Any], getattr(import_module(module), name))


def listed(*names: object) -> str:
    """Names for a description: "a, b or c"."""
    *most, last = map(str, names)
    return f"{', '.join(most)} or {last}" if most else last


def one_of(*tables: str, key: str = "") -> AfterValidator:
    """Names of the entries of these dicts; those that the paper has for a key are known."""

    def check(name: str) -> str:
        if name in PAPER.get(key, ()):
            return name
        names = [known for table in tables for known in parts(table)]
        if name not in names:
            found = {"names": names, "name": name, "listed": ", ".join(names)}
            raise PydanticCustomError("unknown_name", "must be one of {listed}", found)
        return name

    return AfterValidator(check)


class Families(UserDict[str, Family]):
    """Families by their names; the page that holds one is imported when it is asked for, and not for its name alone."""

    data: dict[str, Any]

    def __init__(self, pages: Mapping[str, str]) -> None:
        """`pages`: of each name the module that has it."""
        super().__init__()
        self.data.update(pages)

    def __getitem__(self, name: str) -> Family:
        if isinstance(page := self.data[name], str):
            self.data[name] = import_module(page).FAMILIES[name]
        return cast(Family, self.data[name])


# -- settings of one meaning -------------------------------------------------------------------------------------------

Size = Annotated[int, Field(gt=0, le=10**10)]
Chance = Annotated[float, Field(ge=0, lt=1)]

ActivationName = Annotated[
    str,
    one_of("layers.ACTIVATIONS", "layers.GATES", key="activation"),
    Field(
        description="the feed-forward network's activation: relu, gelu, gelu_new or silu; or a gate, with two thirds "
        "of the inner features: reglu, geglu or swiglu"
    ),
]
AttentionDropout = Annotated[Chance, Field(description="dropout of attention weights")]
HeadCount = Annotated[Size, Field(description="attentions side by side")]
HeadsLeft = Annotated[
    tuple[Size, ...], Field(description="heads of each layer, where some were pruned; their width stays; []: none was")
]
_LEFT = ("encoder_heads", "decoder_heads", "cross_heads")
InitRange = Annotated[float, Field(gt=0, description="weights begin uniform between minus this and this")]
KeyValueHeads = Annotated[
    int, Field(ge=0, description="heads of keys and values, shared by neighbours: 1: multi-query; 0: as many as heads")
]
LayerDropout = Annotated[Chance, Field(description="on sub-layer outputs and embedding sums")]
NormName = Annotated[
    str,
    one_of("layers.NORM_KINDS", key="norm_kind"),
    Field(description="layer, rms or batch: of a token's features, but for batch, which sees its neighbours"),
]
NormOrder = Annotated[
    Literal["post", "pre"], Field(description="post: norm after each residual sum (paper); pre: before each sub-layer")
]
NormalizerName = Annotated[
    str,
    one_of("attention.NORMALIZERS", key="normalize"),
    Field(
        description="how scores become weights: softmax, sparsemax, entmax15, straight_through, gumbel or sampled (the "
        "last three: hard attention)"
    ),
]
PositionName = Annotated[
    str,
    one_of("positions.POSITIONS", "positions.BIASES", "positions.ROTARY", key="positions"),
    Field(
        description="how a token knows its position: added to it (sinusoidal, sinusoidal-halves, learned or none), to "
        "the scores of self-attention (t5, t5-layers, shaw, shaw-keys, alibi or kerple), or turning its queries and "
        "keys (rotary)"
    ),
]
AddedName = Annotated[
    str,
    one_of("positions.POSITIONS", key="positions"),
    Field(description="how a token knows its position: sinusoidal, sinusoidal-halves, learned or none"),
]
ScoreName = Annotated[
    str,
    one_of("attention.SCORES", key="score"),
    Field(
        description="how queries and keys are compared: scaled_dot, dot, bilinear, reduced_rank, additive, concat, "
        "cosine, fixed_cosine, location or mean"
    ),
]
ScoreWidth = Annotated[
    int,
    Field(
        ge=0,
        description="inner features of additive and concat, rank of reduced_rank, positions of location; 0: what suits",
    ),
]
Share = Annotated[
    Literal["all", "target", "none"],
    Field(description="one matrix for source and target embeddings and the projection (all), the last two, or none"),
]
Tied = Annotated[bool, Field(description="one matrix for embeddings and projection (Press and Wolf 2017)")]
TokenWidth = Annotated[Size, Field(description="features of a token")]


# -- configs -----------------------------------------------------------------------------------------------------------


class Config(BaseModel, extra="forbid", frozen=True):
    """What `[model]` may hold, and what can be known of a model by it alone; see `Family`."""

    looks: ClassVar[tuple[int, int]] = (0, 0)
    """`cross_attention`, where no setting changes it."""

    @property
    def capacity(self) -> int | None:
        """The most positions that a line may have, for which a score and a position scheme have weights; None: any."""
        given, known = dict(self), []
        if (score := given.get("score", "dot")) not in PAPER["score"]:
            known.append(parts("attention.SCORES")[score].most_keys(given["score_width"]))
        positions = given.get("positions", "none")
        schemes = {} if positions in PAPER["positions"] else parts("positions.POSITIONS")
        if positions == "learned" or (positions in schemes and schemes[positions].limited):
            known.append(given["max_positions"])
        return min((most for most in known if most is not None), default=None)

    @property
    def cross_attention(self) -> tuple[int, int]:
        """How many layers of the decoder look at the source, and with how many heads each."""
        return self.looks

    @property
    def shares_parts(self) -> bool:
        """Whether all layers have one bias together."""
        name = dict(self).get("positions", "none")
        return name not in PAPER["positions"] and getattr(parts("positions.BIASES").get(name), "shared", False)


family_of = partial(
    Family,
    capacity=lambda config: config.capacity,
    cross_attention=lambda config: config.cross_attention,
    shares_parts=lambda config: config.shares_parts,
)
"""A family whose config is a `Config`, which says all that depends on its settings."""


SMALL = {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1}
SMALL_STACK = {"width": 16, "heads": 2, "layers": 2, "max_positions": 32}
"""Sizes of Transformers, and of single stacks, for tests."""


class StackConfig(Config):
    """A stack of Transformer blocks, as GPT and BERT have one, and Transformers two; the defaults are GPT-2's."""

    width: Size = Field(768, description="features of a token, a multiple of 2")
    layers: Size = Field(12, description="blocks")
    heads: HeadCount = 12
    key_value_heads: KeyValueHeads = 0
    feedforward: int = Field(0, ge=0, description="inner features of the feed-forward network; 0: 4 times the width")
    dropout: LayerDropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    positions: PositionName = "learned"
    max_positions: Size = Field(1024, description="positions that are learned: the longest context")
    norm: NormOrder = "pre"
    norm_kind: NormName = "layer"
    activation: ActivationName = "gelu"

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


class EncoderDecoderSizes(Config):
    """The sizes of two stacks; the defaults are the base model of Vaswani et al. 2017."""

    family: str = Field("", description="the model family")
    width: Size = Field(512, description="d_model: features of a token, a multiple of 2")
    encoder_layers: Size = Field(6, description="N of the encoder")
    decoder_layers: Size = Field(6, description="N of the decoder")
    heads: HeadCount = 8
    feedforward: Size = Field(2048, description="d_ff: inner features of the feed-forward network")
    dropout: LayerDropout = 0.1
    norm: NormOrder = "post"

    @property
    def cross_attention(self) -> tuple[int, int]:
        return self.decoder_layers, min(dict(self).get("cross_heads") or [self.heads])


class EncoderDecoderConfig(EncoderDecoderSizes):
    """A row of Table 3 of Vaswani et al. 2017, or what came after; the defaults are the paper's base model."""

    key_width: int = Field(0, ge=0, description="d_k of a head; 0: width / heads")
    value_width: int = Field(0, ge=0, description="d_v of a head; 0: width / heads")
    encoder_heads: HeadsLeft = ()
    decoder_heads: HeadsLeft = ()
    cross_heads: HeadsLeft = ()
    decoder_mixer: Literal["attention", "ssru"] = Field(
        "attention", description="how a decoder layer knows the tokens before: by attention, or a light recurrence"
    )
    key_value_heads: KeyValueHeads = 0
    key_value: Literal["projected", "split"] = Field(
        "projected",
        description="keys and values: projected, or split: the two halves of what is looked at (widths left at 0)",
    )
    attention_dropout: AttentionDropout = 0.0
    activation_dropout: Chance = Field(0.0, description="dropout inside the feed-forward network")
    positions: PositionName = "sinusoidal"
    positions_enter: Literal["added", "concatenated", "every-layer"] = Field(
        "added",
        description="positions of the first kind: added to embeddings, concatenated and mapped back to width, or "
        "added again before every layer",
    )
    max_positions: Size = Field(1024, description="positions that are learned; sinusoids go on for ever")
    norm_kind: NormName = "layer"
    score: ScoreName = "scaled_dot"
    score_width: ScoreWidth = 0
    normalize: NormalizerName = "softmax"
    activation: ActivationName = "relu"
    share: Share = "all"
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
        if self.positions in PAPER["positions"]:
            return self
        schemes, scores, biases = parts("positions.POSITIONS"), parts("attention.SCORES"), parts("positions.BIASES")
        if self.positions not in schemes and self.positions_enter != "added":
            raise ValueError(
                f'positions_enter = "{self.positions_enter}" is for positions that are added to a token '
                f'({listed(*schemes)}), and "{self.positions}" act inside attention; leave it out'
            )
        turns = self.positions in parts("positions.ROTARY")
        needs_dot = turns or (self.positions in biases and biases[self.positions].needs_dot)
        if needs_dot and not scores[self.score].is_dot:
            dots = [name for name, score in scores.items() if score.is_dot]
            raise ValueError(
                f'positions = "{self.positions}" need a score that is a dot product ({listed(*dots)}), and '
                f'"{self.score}" is none; change one of the two'
            )
        if turns and (width := self.new_score().prepared) % 2:
            raise ValueError(
                f'positions = "{self.positions}" turn pairs of features, so what is compared must have an even width, '
                f"not {width}; change key_width or score_width"
            )
        return self

    @model_validator(mode="after")
    def _left_heads_fit(self) -> Self:
        for key, layers in zip(_LEFT, (self.encoder_layers, self.decoder_layers, self.decoder_layers), strict=True):
            left = dict(self)[key]
            if left and (len(left) != layers or max(left) > self.heads):
                rule = f"{layers} numbers, one for each layer, from 1 to {self.heads}"
                raise ValueError(f"{key} ({listed(*left)}) must be {rule}; or leave it out")
            added = self.positions in (*PAPER["positions"], "rotary")
            if left and (self.groups != self.heads or self.key_value == "split" or not added):
                raise ValueError(f"{key} are for heads that share nothing, positions too; leave it out")
        if self.decoder_heads and self.decoder_mixer != "attention":
            raise ValueError(f'decoder_mixer = "{self.decoder_mixer}" has no heads; leave decoder_heads out')
        return self

    def heads_in(self, part: str) -> tuple[int, ...]:
        """The heads of each layer of a part: encoder, decoder or cross; none of an SSRU."""
        if part == "decoder" and self.decoder_mixer == "ssru":
            return (0,) * self.decoder_layers
        left: tuple[int, ...] = dict(self)[f"{part}_heads"]
        return left or (self.heads,) * (self.encoder_layers if part == "encoder" else self.decoder_layers)

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
    def beyond(self) -> dict[str, str]:
        """Parts that other libraries may not know, by the keys that name them: all that is not the paper's."""
        known: dict[str, tuple[object, ...]] = {
            **dict.fromkeys(_LEFT, ((),)),
            "decoder_mixer": ("attention",),
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
        return cast("Score", parts("attention.SCORES")[self.score](self.widths[0], size=self.score_width))


def _divisors(number: int, near: int) -> str:
    """The two divisors of a number that are nearest to another, as far as they are near."""
    tried = {1, number, *range(max(1, near - 9999), min(number, near + 9999) + 1)}
    found = sorted((n for n in tried if number % n == 0), key=lambda n: (abs(n - near), n))
    return listed(*sorted(found[:2]))
