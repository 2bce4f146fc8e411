"""Lines of text on their way into a model: checked, encoded, padded. Everything that reads lines does it here.

Sizes: B lines, T the longest, ends counted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.errors import ModelError, TextError
from regard.text.languages import name as language_name
from regard.text.languages import split_tag, tag
from regard.text.lines import check_line as check_text
from regard.text.tokenizer import PAD, Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from regard.nn.state import Layout

Ids = Sequence[int]
Span = tuple[int, int]


def check_list(lines: Sequence[str]) -> None:
    """Raises TextError for one string in the place of a list."""
    if isinstance(lines, str):
        raise TextError(f"translate takes a list of lines, and {lines[:40]!r} is one string: put it in a list.")


def check_line(line: str, name: str) -> None:
    """Raises TextError, by `name` such as "line 3", for a line that is not one segment of text."""
    check_text(line, name, sys.maxsize)


def check_length(ids: Ids, limit: int, name: str, line: str | None = None) -> None:
    """Raises TextError for more tokens than a bundle takes; `line` to tell its characters too."""
    if len(ids) > limit:
        characters = "" if line is None else f" ({len(line):,} characters)"
        way = "split it into sentences, one a line" if line is not None else "split the pair into sentences"
        raise TextError(
            f"{name} has {len(ids):,} tokens{characters}; this bundle takes at most {limit:,} in one line: {way}."
        )


def check_counts(source: Sequence[str], other: Sequence[str], what: str) -> None:
    """Raises TextError where there are not as many of the others ("target", "reference") as source lines."""
    if len(source) != len(other):
        raise TextError(
            f"{len(source):,} source lines but {len(other):,} {what} lines; line n of one must go with line n of the "
            "other."
        )


def encode_targets(target: Tokenizer, lines: Sequence[str], limit: int) -> list[list[int]]:
    """Ids of given translations, without ends. Raises TextError, naming the line, for what cannot be read."""
    found = []
    for number, line in enumerate(lines, start=1):
        check_line(line, f"target line {number}")
        found.append(target.encode(line))
        check_length(found[-1], limit, f"target line {number}")
    return found


def pad(rows: Sequence[Ids], device: torch.device | str) -> tuple[Tensor, Layout]:
    """Rows of ids filled up with PAD to the longest (B, T), and their layout."""
    import torch

    from regard.models.modules import layout_of

    lengths = [len(row) for row in rows]
    ids = torch.tensor([[*row, *[PAD] * (max(lengths) - len(row))] for row in rows], device=device)
    return ids, layout_of("padded", torch.tensor(lengths, device=device), max(lengths))


@dataclass(frozen=True)
class Languages:
    """What a bundle translates from and to; empty where its recipe does not say."""

    source: str
    target: str
    targets: tuple[str, ...]
    """Of a multilingual bundle, whose lines carry a tag."""

    def __str__(self) -> str:
        return f"{self.source or '?'} to {', '.join(self.targets) or self.target or '?'}"

    def check(self, from_: str | None, to: str | None) -> None:
        """Raises ModelError for languages that the bundle does not have."""
        for asked, has, option in ((from_, self.source, "from"), (to, self.target, "to")):
            if asked is None or (option == "to" and self.targets):
                continue
            if not has:
                raise ModelError(
                    f"the bundle does not say which language it translates {option}, so {asked!r} cannot be checked; "
                    f"leave `{option}` out."
                )
            if asked != has:
                raise ModelError(
                    f"this bundle translates {option} {language_name(has)} ({has}), not {option} "
                    f"{language_name(asked)} ({asked}); use a bundle for that pair, or leave `{option}` out."
                )
        if to is not None and self.targets and to not in self.targets:
            raise ModelError(
                f"this bundle cannot translate to {language_name(to)} ({to}); it knows {', '.join(self.targets)}."
            )

    def tagged(self, line: str, name: str, to: str | None) -> str:
        """The line with its target's tag in front, where the bundle has several; empty if no text is behind it."""
        if not self.targets:
            return line
        code, rest = split_tag(line)
        known = self.targets
        if not rest.strip():
            return ""
        if code is not None and code not in known:
            raise TextError(f"{name} asks for {tag(code)}, and this bundle knows {', '.join(map(tag, known))}.")
        if code is not None and to not in (None, code):
            raise TextError(f"{name} begins with {tag(code)} but {to!r} was asked for; remove one of the two.")
        if code is None and to is None:
            raise TextError(
                f"{name} ({line[:40]!r}) does not say which language to write: begin it with one of "
                f"{', '.join(map(tag, known))} and a space, or ask for one (--to {known[0]})."
            )
        return line if code is not None else f"{tag(str(to))} {line}"


@dataclass(frozen=True)
class SourceSide:
    """How a translator reads its lines."""

    tokenizer: Tokenizer
    languages: Languages
    limit: int
    """The most tokens of a line."""

    def encode(
        self, lines: Sequence[str], *, from_: str | None = None, to: str | None = None, first_line: int = 1
    ) -> list[list[int]]:
        """Ids of each line, without end; none for a line with no text, which needs no translation.

        Raises TextError, naming the line, for what cannot be read, ModelError for languages that there are not.
        """
        check_list(lines)
        self.languages.check(from_, to)
        return [self._ids(line, f"line {number}", to) for number, line in enumerate(lines, start=first_line)]

    def _ids(self, line: str, name: str, to: str | None) -> list[int]:
        check_line(line, name)
        line = self.languages.tagged(line, name, to)
        if not line.strip():
            return []
        ids = self.tokenizer.encode(line)
        check_length(ids, self.limit, name, line)
        return ids

    def spans(self, line: str, to: str | None = None) -> tuple[list[Span], list[Span]]:
        """Where the tokens of a line and its words stand in it; of a language's tag only the tokens count."""
        from regard.text.sentences import words

        full = self.languages.tagged(line, "line 1", to)
        ahead = len(full) - len(line)
        text = split_tag(line)[1] if self.languages.targets else line
        behind = len(line) - len(text)
        tokens = [(max(start - ahead, 0), max(end - ahead, 0)) for start, end in self.tokenizer.spans(full)]
        return tokens, [(start + behind, end + behind) for start, end in words(text)]
