"""How text becomes tokens: the settings of a recipe's `[text]` table."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Kind = Literal["bpe", "unigram", "characters", "words"]
Normalization = Literal["identity", "nfc", "nfkc"]
Order = Literal["left-to-right", "right-to-left"]


class TextConfig(BaseModel):
    """The subword model and how it is used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind = Field(
        "bpe",
        description="How tokens are chosen: bpe merges pairs, unigram prunes; or characters; or whole words between "
        "spaces, any other being unknown.",
    )
    target_kind: Literal["", "bpe", "unigram", "characters", "words"] = Field(
        "", description="The target's kind where it is another, such as words for labels; joint is false then."
    )
    size: int = Field(
        8000,
        ge=5,
        description="Tokens in a vocabulary, with the 4 special ones and the 256 bytes; the most of "
        "characters and words.",
    )
    joint: bool = Field(True, description="One vocabulary for source and target (needed for shared embeddings).")
    shrink: bool = Field(False, description="If the data cannot give `size` tokens, take as many as it gives.")
    byte_fallback: bool = Field(True, description="Spell unseen characters in bytes, so that no text is unknown.")
    character_coverage: float = Field(
        1.0,
        ge=0.98,
        le=1.0,
        description="Share of all characters that get a token of their own; below 1 for thousands of them.",
    )
    split_digits: bool = Field(False, description="Every digit is a token of its own.")
    normalization: Normalization = Field(
        "identity", description="identity changes nothing; nfc composes accents; nfkc also folds full-width forms."
    )
    sampling: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="Subword sampling in training, 0 for none: for bpe the share of merges left out (try 0.1), "
        "for unigram the smoothing (try 0.2; smaller is more random).",
    )
    order: Order = Field(
        "left-to-right",
        description="In which the target's tokens are written: right-to-left is the contrast, the last one first.",
    )
    symbols: tuple[str, ...] = Field((), description="Strings that are always one token, beside the language tags.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.target_kind and self.joint:
            raise ValueError(
                f'target_kind = "{self.target_kind}" needs a vocabulary of its own; set joint = false, '
                "or leave target_kind out."
            )
        return self
