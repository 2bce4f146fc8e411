"""The target language code as metrics read it: "zh-TW", "zh_CN" and "ZH" are all "zh"."""

from __future__ import annotations

__all__ = ["CHINESE", "primary"]

CHINESE = frozenset({"zh", "zho", "chi", "cmn", "lzh", "yue", "wuu"})


def primary(language: str) -> str:
    """The language alone, in lower case, without region or script."""
    return language.lower().replace("_", "-").split("-")[0]
