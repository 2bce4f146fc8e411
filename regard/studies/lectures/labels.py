"""The names of the lectures' numbers, and the words among their values, in Chinese."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from .page import Value

LABELS = Path(__file__).parent / "labels.toml"
LANGUAGES = ("en", "zh")


@cache
def _words() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = tomllib.loads(LABELS.read_text("utf-8"))
    return found


@cache
def _tables() -> tuple[dict[str, str], dict[str, str], list[tuple[re.Pattern[str], str]]]:
    """Words among values, whole labels, and labels with stars."""
    found = _words()
    labels = found["labels"]
    starred = [
        (re.compile("(.+)".join(map(re.escape, label.split("*")))), chinese)
        for label, chinese in labels.items()
        if "*" in label
    ]
    return found["values"], labels, starred


def label(name: str, language: str = "en") -> str:
    """What a number is called: in English, or in Chinese (zh); a name that has no Chinese stays as it is."""
    if language != "zh":
        return name
    _, labels, starred = _tables()
    if name in labels:
        return labels[name]
    for pattern, chinese in starred:
        if found := pattern.fullmatch(name):
            parts = iter(found.groups())
            return "".join(label(next(parts), "zh") if part == "*" else part for part in re.split(r"(\*)", chinese))
    return name


def said(text: str, language: str = "en") -> str:
    """A value that is text: in Chinese (zh), the words in it that are the lectures' own are Chinese."""
    if language != "zh":
        return text
    values, _, _ = _tables()
    if text in values:
        return values[text]
    for english in ("; looks at ", "not run", "in small"):
        text = text.replace(english, values[english])
    return text


def shown(value: Value, language: str = "en") -> str:
    """A number, or what stands in its place, as it is printed: six digits, and words in English or in Chinese (zh)."""
    if isinstance(value, list):
        return ", ".join(shown(one, language) for one in value)
    if isinstance(value, str):
        return said(value, language)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def message(text: str, language: str = "en") -> str:
    """What the command says by itself, in English or in Chinese (zh)."""
    return _words()["messages"][text] if language == "zh" else text
