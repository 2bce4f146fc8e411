"""What models of older versions computed otherwise, so that such a bundle is refused and does not answer wrongly."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = ["computes_otherwise"]


def computes_otherwise(model: BaseModel, version: str) -> str | None:
    """Why a model made by this version of Regard would answer otherwise now; None: it answers as it did."""
    if not version.startswith("0.1."):
        return None
    settings = model.model_dump()
    heads = settings.get("heads") or 1
    if settings.get("positions") == "alibi" and heads & (heads - 1):
        return (
            f"ALiBi's slopes for {heads} heads, which are no power of two, are those of its authors since version 0.2"
        )
    if settings["family"] == "self-attentive" and settings.get("pool") == "end":
        return 'pool = "end" takes the last state of each direction since version 0.2'
    return None
