"""What training asks of targets that are trees (`regard.settings.TARGET_KINDS`): can they be written, and how well?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.tasks.translate import Translator
from regard.text import Tokenizer

from .parse import evaluate_trees, symbols_of
from .trees import delinearise, words_of


def check(target: Tokenizer) -> None:
    """Raises ModelError for a vocabulary in which no tree can be written."""
    symbols_of(target)


def judge(
    parser: Path | Translator, source: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, object], Iterable[str]]:
    """Bracket scores of the trees of lines whose gold trees are lines of symbols; and these trees."""
    gold = [delinearise(line, words_of(text)) for text, line in zip(source, references[0], strict=True)]
    parsed = evaluate_trees(parser, gold)
    return parsed.to_dict(), map(str, parsed.trees)
