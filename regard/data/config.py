"""Which text is learnt from and how it is cut into batches: the settings of a recipe's `[data]` table."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from regard.data.filters import Filters

__all__ = ["DataConfig", "TestSet"]


class TestSet(BaseModel):
    """A set that is only ever evaluated on."""

    __test__ = False  # not a test case for pytest
    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(description="File of source lines.")
    reference: str = Field(description="File of reference translations, untouched.")


class DataConfig(BaseModel):
    """Files, languages, filters and batches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str | tuple[str, ...] = Field(
        description="Source side: a text file or a list of them (.gz too); or .tsv or .jsonl files with both sides."
    )
    target: str | tuple[str, ...] | None = Field(
        default=None, description="Target side, line by line with the source; left out if the source's files hold both."
    )
    valid_source: str | tuple[str, ...] | None = Field(
        default=None, description="Validation source; if left out, `valid_lines` pairs are split off."
    )
    valid_target: str | tuple[str, ...] | None = Field(default=None, description="Validation target.")
    valid_lines: int = Field(
        default=1000,
        ge=1,
        description="Pairs split off for validation (at most a tenth), chosen by a hash of the source line.",
    )
    fields: tuple[str, str] = Field(default=("source", "target"), description="The two fields read from .jsonl files.")
    source_language: str = Field(default="", description="Code of the source language, like 'en'; may be left empty.")
    target_language: str = Field(default="", description="Code of the target language, like 'de'; may be left empty.")
    target_languages: tuple[str, ...] = Field(
        default=(), description="Several target languages: each source line then starts with a tag, like '<2de> '."
    )
    test: dict[str, TestSet] = Field(default_factory=dict, description="Test sets by name: source and reference.")
    filters: Filters = Field(default=Filters(), description="Which pairs are kept.")
    layout: Literal["padded", "packed"] = Field(
        default="packed",
        description="packed: sequences end to end, no padding; padded: rectangles of near-equal length.",
    )
    batch_tokens: int = Field(
        default=4096,
        ge=0,
        description="Most tokens in a batch on either side, ends included, padding included if padded; "
        "0: as many as fit in memory when training begins, at most 25,000.",
    )
    pool: int = Field(default=50_000, ge=1, description="Lines that are sorted by length together.")
    cache: str | None = Field(
        default=None, description="Directory for the token store, shared between runs; by default inside the run's own."
    )

    @model_validator(mode="after")
    def _sides_match(self) -> Self:
        for source, target, name in (
            (self.sources, self.targets, ""),
            (self.valid_sources, self.valid_targets, "valid_"),
        ):
            if target and len(source) != len(target):
                raise ValueError(
                    f"{name}source names {len(source)} files but {name}target {len(target)}; "
                    "file n of one must go with file n of the other."
                )
        if self.source == ():
            raise ValueError("source names no file; name at least one.")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        """Source files, always as a tuple."""
        return _files(self.source)

    @property
    def targets(self) -> tuple[str, ...]:
        """Target files, as many as source files, or none."""
        return _files(self.target)

    @property
    def valid_sources(self) -> tuple[str, ...]:
        """Validation source files; none if validation is split off."""
        return _files(self.valid_source)

    @property
    def valid_targets(self) -> tuple[str, ...]:
        """Validation target files, as many as source files, or none."""
        return _files(self.valid_target)


def _files(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else value
