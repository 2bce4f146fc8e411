"""Lines of any length: cut into sentences, translated, and put together again, so that a line in is a line out.

A line of more tokens than any that was trained on (or every line, where that is asked for) is cut into its sentences, a
sentence of more than the bundle takes behind clause marks, else between words, else between characters. Nothing is
dropped: the parts join to the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.text import split_tag, tag
from regard.text.sentences import split_long, split_sentences, unspaced

from .lines import check_list
from .translate import Translator
from .translation import Translation, WordLink, WordSpan

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
