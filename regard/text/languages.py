"""Languages by code, and the tag that tells a multilingual model which one to write: `<2de> Good morning.`"""

from __future__ import annotations

import re

from regard.errors import TextError

__all__ = ["NAMES", "name", "split_tag", "tag"]

NAMES = {
    "ar": "Arabic",
    "cs": "Czech",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "lzh": "Classical Chinese",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh": "Chinese",
}

_CODE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")
_TAG = re.compile(rf"<2({_CODE.pattern})> ?")


def name(code: str) -> str:
    """The English name of a language, or the code itself where no name is known."""
    return NAMES.get(code, code)


def tag(code: str) -> str:
    """The tag that asks for a target language: "de" gives "<2de>". Raises TextError for what is no language code."""
    if not _CODE.fullmatch(code):
        raise TextError(f"{code!r} is not a language code; use one like 'de', 'zh' or 'zh-Hant'.")
    return f"<2{code}>"


def split_tag(line: str) -> tuple[str | None, str]:
    """(code, rest) of a tagged line, without the space after the tag; (None, line) of any other line."""
    found = _TAG.match(line)
    return (found.group(1), line[found.end() :]) if found else (None, line)
