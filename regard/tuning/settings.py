"""What is tried when a bundle's search is chosen; the fields are the flags of `regard tune`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator

from regard.errors import ModelError
from regard.search.table import SearchConfig, explained


class Grid(BaseModel, extra="forbid", frozen=True):
    """What is tried, and by what it is judged."""

    metric: str = Field("bleu", description="what decides: bleu, chrf, chrf++, ter, rouge-l or any other of text")
    penalty: Literal["", "gnmt", "power"] = Field(
        "", description="the length penalty that --alphas are of: gnmt or power; left out: the bundle's"
    )
    alphas: tuple[float, ...] = Field(
        (0.0, 0.4, 0.8, 1.2, 1.6, 2.0),
        description="exponents of the length penalty, and then halfway to the best one's neighbours",
    )
    beams: tuple[int, ...] = Field((1, 2, 4, 6, 8, 10), description="widths of the beam")
    mbr: bool = Field(True, description="try minimum Bayes risk too: the likest to the others of the widest beam")
    to: str | None = Field(None, description="target language, where the bundle has several and lines have no tags")

    @field_validator("alphas", "beams")
    @classmethod
    def _some(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not values:
            raise ValueError("nothing is left to be tried; give one value at least")
        return (*sorted(set(values)),)

    @field_validator("alphas")
    @classmethod
    def _exponents(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        for value in values:
            SearchConfig(alpha=value)
        return values

    @field_validator("beams")
    @classmethod
    def _widths(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        for value in values:
            SearchConfig(beam=value)
        return values

    @classmethod
    def of(cls, grid: Self | None = None, **given: object) -> Self:
        """This grid with what is given in its place; ModelError for a name or a value that there is not."""
        fields = {} if grid is None else grid.model_dump()
        try:
            return cls.model_validate({**fields, **{key: value for key, value in given.items() if value is not None}})
        except ValidationError as error:
            raise ModelError(explained(error)) from None
