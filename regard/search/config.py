"""Decoding defaults, as a recipe and a bundle hold them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SearchConfig"]


class SearchConfig(BaseModel):
    """How translations are searched for; the defaults are the paper's (section 6.1)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    beam: int = Field(4, gt=0, description="hypotheses kept a sentence; 1 is greedy search")
    penalty: Literal["gnmt", "power", "none"] = Field(
        "gnmt", description="length penalty: gnmt ((5+L)/6)^alpha, power L^alpha, or none"
    )
    alpha: float = Field(0.6, ge=0, description="exponent of the length penalty")
    extra_length: int = Field(50, ge=0, description="longest output: pieces of the source plus this many")
    batch_size: int = Field(32, gt=0, description="sentences decoded together")
