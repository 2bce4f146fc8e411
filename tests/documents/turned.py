"""A translator for tests of documents: words turned round, in capitals, and aligned as they are."""

from __future__ import annotations

from regard.tasks.translation import Translation, WordLink, WordSpan
from regard.text.sentences import words

__all__ = ["turned"]


def turned(lines: list[str]) -> list[Translation]:
    """Each line's words in the opposite order, in capitals, aligned as they are."""
    found = []
    for line in lines:
        spans = words(line)
        out, target = "", []
        for start, end in reversed(spans):
            out += " " if out else ""
            target.append(WordSpan(line[start:end].upper(), len(out), len(out) + end - start))
            out += line[start:end].upper()
        links = tuple(WordLink(len(spans) - 1 - i, i, 1.0) for i in range(len(spans)))
        source = tuple(WordSpan(line[a:b], a, b) for a, b in spans)
        found.append(Translation(out, words=tuple(target), source_words=source, alignment=links))
    return found
