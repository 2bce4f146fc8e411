"""The settings of a search, as a recipe, a bundle and the command line hold them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision = Literal["auto", "exact", "float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("auto", "exact", "float32", "bfloat16", "int8")

MOST_HYPOTHESES = 1000  # of a sentence that a search may be asked for
_LONGEST = 100_000  # tokens: what lengths may be set to

PANELS: dict[str, tuple[str, ...]] = {
    "Beam": ("penalty", "alpha", "coverage", "stop", "groups", "diversity"),
    "Draws": ("samples", "temperature", "top_k", "top_p", "seed", "mbr"),
    "What translations must keep": ("min_length", "max_length", "extra_length", "no_repeat_ngram_size"),
}
"""Headings under which the command line's help lists settings; the others come before them."""


class SearchConfig(BaseModel):
    """How translations are searched for; the defaults are the paper's (section 6.1).

    Upper bounds keep a setting from asking for more memory than any machine has.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: str = Field(
        "",
        description="the search by its name: greedy, beam, diverse, sample, mask-predict or one that was added; "
        "empty: what the model's family needs and beam, groups and samples ask for",
        json_schema_extra={"flag": "--search"},
    )
    beam: int = Field(4, gt=0, le=MOST_HYPOTHESES, description="hypotheses kept a sentence; 1 is greedy search")
    penalty: Literal["gnmt", "power", "none"] = Field(
        "gnmt", description="length penalty: gnmt ((5+L)/6)^alpha, power L^alpha, or none"
    )
    alpha: float = Field(0.6, ge=0, le=10, description="exponent of the length penalty")
    coverage: float = Field(0.0, ge=0, le=1000, description="beta of the coverage penalty; 0: none")
    stop: Literal["bound", "first", "beam", "full"] = Field(
        "bound",
        description="a beam stops when no open one can win (bound), when one (first) or as many as beam (beam) have "
        "ended, or at full length (full)",
    )
    groups: int = Field(1, gt=0, le=MOST_HYPOTHESES, description="groups of a diverse beam; 1: a plain beam")
    diversity: float = Field(0.5, ge=0, le=1000, description="what a token loses for each earlier group that took it")
    samples: int = Field(
        0, ge=0, le=10 * MOST_HYPOTHESES, description="translations drawn of each line instead of a beam; 0: the beam"
    )
    temperature: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="log-probabilities are divided by it before a draw; below 1 likely tokens are drawn more often",
    )
    top_k: int = Field(0, ge=0, lt=2**31, description="tokens that may be drawn, the likeliest; 0: all")
    top_p: float = Field(1.0, gt=0, le=1, description="probability that the likeliest tokens drawn from must hold")
    seed: int = Field(1, ge=0, lt=2**63, description="of the draws")
    mbr: Literal["none", "chrf", "bleu"] = Field(
        "none",
        description="choose the sample or hypothesis that the others are most like by this metric: chrf, bleu or none",
    )
    min_length: int = Field(0, ge=0, le=_LONGEST, description="shortest output: tokens, the end counted")
    max_length: int = Field(
        0, ge=0, le=_LONGEST, description="longest output in tokens, the end counted; 0: by extra_length alone"
    )
    extra_length: int = Field(50, ge=0, le=_LONGEST, description="longest output: tokens of the source plus this many")
    no_repeat_ngram_size: int = Field(
        0, ge=0, le=_LONGEST, description="no sequence of this many tokens occurs twice in an output; 0: any may"
    )
    ensemble: Literal["probabilities", "logs"] = Field(
        "probabilities", description="what several models are averaged by: probabilities or logs"
    )
    passes: int = Field(
        10, gt=0, le=1000, description="of mask-predict over the target; beam is then how many lengths are tried"
    )
    shortlist: bool = Field(
        False, description="search each sentence over the tokens that go with its own alone: see `regard shortlist`"
    )
    batch_size: int = Field(32, gt=0, le=10_000, description="sentences decoded together")
    precision: Precision = Field(
        "auto",
        description="of products: exact (float64 products of float32 weights), float32, bfloat16 or int8 (the compiled "
        "engine where it can, else PyTorch); auto: the engine's float32, or exact where it cannot",
    )

    @model_validator(mode="after")
    def _fits(self) -> SearchConfig:
        if self.max_length and self.min_length > self.max_length:
            raise ValueError(f"min_length ({self.min_length}) must be at most max_length ({self.max_length})")
        if self.beam % self.groups:
            raise ValueError(f"groups ({self.groups}) must divide beam ({self.beam}); try beam = {2 * self.groups}")
        if self.method in ("", "sample") and not self.draws and (self.top_k or self.top_p < 1 or self.temperature != 1):
            raise ValueError("temperature, top_k and top_p say how samples are drawn; set samples to at least 1")
        for key, default in (("groups", 1), ("coverage", 0.0), ("stop", "bound")):
            if self.draws and getattr(self, key) != default:
                raise ValueError(f"{key} belongs to a beam, and samples ({self.samples}) asks for draws; drop one")
        return self

    @property
    def draws(self) -> int:
        """Samples of each line; 0: the search draws none."""
        return max(self.samples, int(self.method == "sample")) if self.method in ("", "sample") else 0
