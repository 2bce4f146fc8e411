"""Model families: one page each, which says in its `FAMILIES` what it is of."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import regard.kernels.table  # noqa: F401  (fills the table of compiled kernels that `nn` asks)

from .interface import EncoderDecoder, Family, Kind
from .transformer import TransformerConfig, parameter_count

__all__ = [
    "FAMILIES",
    "KINDS",
    "MODELS",
    "EncoderDecoder",
    "Family",
    "Kind",
    "TransformerConfig",
    "parameter_count",
]

_PAGES = [import_module(f".{page.name}", __name__) for page in iter_modules(__path__)]

FAMILIES: dict[str, Family] = {
    name: family for page in _PAGES for name, family in getattr(page, "FAMILIES", {}).items()
}
"""Every family by its name, from all pages of this folder."""

MODELS: dict[str, tuple[type[Any], Callable[..., Any]]] = {n: (f.config, f.build) for n, f in FAMILIES.items()}
"""Family -> its config and its builder."""

KINDS: dict[str, Kind] = {name: family.kind for name, family in FAMILIES.items()}
"""Family -> what it is."""
