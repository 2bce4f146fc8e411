"""Lines of text on their way into a model: checked, cut, encoded, padded. Everything that reads lines does it here.

A line may be of any length: one of more tokens than any that was trained on (or every line, where that is asked for) is
cut into its sentences, a sentence of more than the bundle takes behind clause marks, else between words, else between
characters. Nothing is dropped: the parts join to the line.

Sizes: B lines, T the longest, ends counted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.errors import ModelError, RegardWarning, TextError
from regard.text.languages import name as language_name
from regard.text.lines import check_line as check_text
from regard.text.lines import split_tag, tag
from regard.text.sentences import split_long, split_sentences, unspaced, words
from regard.text.tokenizer import PAD, Tokenizer

from .translation import Translation, WordLink, WordSpan

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from regard.nn.state import Layout

    from .translate import Translator

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


def warn_of_cut(names: Sequence[str]) -> None:
    """Warns of lines, by names such as "line 3", whose translations the limit of length cut off."""
    if names:
        some = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
        way = "raise it (extra_length, max_length), or, if words repeat, lower alpha or set no_repeat_ngram_size to 3"
        warnings.warn(f"cut off at the longest output allowed: {some}; {way}.", RegardWarning, stacklevel=2)


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

    from regard.models.blocks import layout_of

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
        full = self.languages.tagged(line, "line 1", to)
        ahead = len(full) - len(line)
        text = split_tag(line)[1] if self.languages.targets else line
        behind = len(line) - len(text)
        tokens = [(max(start - ahead, 0), max(end - ahead, 0)) for start, end in self.tokenizer.spans(full)]
        return tokens, [(start + behind, end + behind) for start, end in words(text)]


# -- lines of any length ----------------------------------------------------------------------------------------------


Translate = Callable[[Sequence[str]], list[Translation]]


@dataclass(frozen=True)
class LongTranslation(Translation):
    """The translation of a line that was cut; its figures are sums over its `parts`, which alone have attention."""

    parts: tuple[Translation, ...] = ()


@dataclass(frozen=True)
class _Cut:
    """A line, or a part of one: what is to be translated, and the space before and behind it."""

    before: str
    text: str
    behind: str
    shift: int = 0
    """From characters of the text to characters of the line."""


def translate_long(
    translator: Translator,
    lines: Sequence[str],
    translate: Translate,
    *,
    always: bool = False,
    to: str | None = None,
    first_line: int = 1,
) -> list[Translation]:
    """A translation of each line, in order, by `translate`, which is given lines that the bundle takes.

    With `always` every line is cut into sentences, else only those longer than the lines that were trained on. `to` is
    what `translate` asks for. Raises TextError naming the line, counted from `first_line`, for what cannot be read.
    """
    check_list(lines)
    cuts = [_cut(translator, line, always) for line in lines]
    if all(len(parts) == 1 for parts in cuts):
        return translate(lines)
    for number, parts in enumerate(cuts, start=first_line):
        for part in parts:  # a part's number is not its line's, so what is refused is refused here, by the line's own
            translator.encode([part.text], to=to, first_line=number)
    found = iter(translate([cut.text for line in cuts for cut in line]))
    return [_joined(line, [next(found) for _ in line]) for line in cuts]


def _cut(translator: Translator, line: str, always: bool) -> list[_Cut]:
    """The parts of a line; a line that need not be cut is one part, as it is."""
    if "\0" in line or "\n" in line or not line.strip():
        return [_Cut("", line, "")]  # refused, or empty: not for us to say
    code, rest = split_tag(line) if translator.languages.targets else (None, line)
    ahead = "" if code is None else f"{tag(code)} "
    room = 16 if translator.languages.targets else 0  # for a tag, whether it is written in the line or asked for

    def tokens(text: str) -> int:
        return len(translator.source.encode(text))

    length = tokens(rest)
    if not always and length <= translator.recipe.data.filters.max_length and length + room <= translator.limit:
        return [_Cut("", line, "")]
    most = max(translator.limit - room, 1)
    parts = [
        part
        for sentence in split_sentences(rest, translator.languages.source)
        for part in split_long(sentence, lambda text: tokens(text.strip()) <= most)
    ]
    if len(parts) == 1:
        return [_Cut("", line, "")]
    cuts, begin = [], len(line) - len(rest)
    for part in parts:
        text = part.strip()
        start = part.index(text)
        shift = begin + start - len(ahead)
        cuts.append(_Cut(part[:start], f"{ahead}{text}" if text else "", part[start + len(text) :], shift))
        begin += len(part)
    return cuts


def _joined(cuts: Sequence[_Cut], found: Sequence[Translation]) -> Translation:
    if len(cuts) == 1:
        return found[0]
    text, words, source_words, alignment = cuts[0].before, list[WordSpan](), list[WordSpan](), list[WordLink]()
    for cut, translation, following in zip(cuts, found, [*found[1:], None], strict=True):
        alignment += [
            WordLink(link.source + len(source_words), link.target + len(words), link.weight)
            for link in translation.alignment
        ]
        source_words += [word.moved(cut.shift) for word in translation.source_words]
        words += [word.moved(len(text)) for word in translation.words]
        text += translation.text
        text += cut.behind if following is None else _between(cut, translation.text, following.text)
    return LongTranslation(
        text,
        log_probability=sum(t.log_probability for t in found),
        score=sum(t.score for t in found),
        ended=all(t.ended for t in found),
        unknown_count=sum(t.unknown_count for t in found),
        source_tokens=tuple(token for t in found for token in t.source_tokens),
        target_tokens=tuple(token for t in found for token in t.target_tokens),
        confidences=tuple(confidence for t in found for confidence in t.confidences),
        words=tuple(words),
        source_words=tuple(source_words),
        alignment=tuple(alignment),
        parts=tuple(found),
    )


def _between(cut: _Cut, one: str, other: str) -> str:
    """The space between two parts: the source's, but as the target's script has it between two sentences.

    From Chinese into a script with spaces one is put in; the other way a single one is left out.
    """
    wide = unspaced(one[-1:]), unspaced(other[:1])
    if cut.behind == "" and unspaced(cut.text[-1:]) and one and other and not any(wide):
        return " "
    return "" if cut.behind == " " and all(wide) else cut.behind
