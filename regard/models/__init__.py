"""Model families: one page each, which says in its `FAMILIES` what it is of."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import regard.kernels.table  # noqa: F401  (fills the table of compiled kernels that `nn` asks)

from .interface import EncoderDecoder, Family, Kind, NeedsVocabulary, parameter_count
from .transformer import TransformerConfig

__all__ = [
    "FAMILIES",
    "EncoderDecoder",
    "Family",
    "Kind",
    "NeedsVocabulary",
    "TransformerConfig",
    "parameter_count",
]

_PAGES = [import_module(f".{page.name}", __name__) for page in iter_modules(__path__)]

FAMILIES: dict[str, Family] = {
    name: family for page in _PAGES for name, family in getattr(page, "FAMILIES", {}).items()
}
"""Every family by its name, from all pages of this folder."""
