"""Lines in, trees out: constituency parsing as translation (Vaswani et al. 2017, section 6.3), or by a chart.

A chart parser (`.chart`) finds the best of all trees. Any other bundle, trained on words and lines of symbols
(`regard trees` makes both of a treebank), writes a symbol after another under rules that leave only whole trees over
exactly the line's words: brackets balanced, none empty, a symbol for each word. So a search ends with a tree, whatever
the model thinks: a symbol after which none could be finished, the length limit counted, has no probability.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from regard.bundle import Bundle
from regard.bundle import load as load_bundle
from regard.errors import DataError, ModelError, TextError
from regard.language.open import Pipeline, open_bundle
from regard.metrics import Score
from regard.models import FAMILIES
from regard.search.table import Options, search_with
from regard.tasks.decode import decode
from regard.tasks.engine import parameter_of
from regard.tasks.translate import Translator, load
from regard.text import END, Tokenizer

from .brackets import score_trees
from .trees import Tree, delinearise, words_of

Parser = Translator | Pipeline
"""What parses: a translator that writes trees, or the pipeline of a chart parser."""
SHORT = 40  #: Words of a sentence up to which EVALB scores apart.
MOST_OPEN = 8  #: Brackets opened in a row, so that every tree ends; the trees of CRAFT have no more.
_DEEP = 100  #: Brackets inside of one another.


@dataclass(frozen=True)
class Parse:
    """A line's tree."""

    tree: Tree | None  #: None for a line without words. Tags are XX, unless the bundle has learnt tags.
    log_probability: float = 0.0  #: Natural logarithm, summed over the symbols and the end; a chart parser has none.
    score: float = 0.0  #: Log-probability over the length penalty; of a chart parser the sum of its brackets' scores.

    def __str__(self) -> str:
        return "" if self.tree is None else str(self.tree)


@dataclass(frozen=True)
class ParseEvaluation:
    """Trees of a treebank's words, and how like its own they are."""

    scores: dict[str, Score]  #: F1, precision, recall and exact trees of all sentences.
    short: dict[str, Score]  #: The same of sentences of at most SHORT words; empty if there is none.
    trees: list[Tree]
    decoding: dict[str, object]
    seconds: float  #: Spent parsing.

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON, without the trees."""
        return {
            "lines": len(self.trees),
            "scores": {name: score.to_dict() for name, score in self.scores.items()},
            f"up_to_{SHORT}_words": {name: score.to_dict() for name, score in self.short.items()},
            "decoding": self.decoding,
            "seconds": round(self.seconds, 3),
        }


def open_parser(bundle: str | Path | Bundle | Parser, device: str = "cpu") -> Parser:
    """A bundle that parses, ready for use: a translator that writes trees, or the pipeline of a chart parser.

    Raises ModelError for a bundle of another kind.
    """
    if isinstance(bundle, Translator | Pipeline):
        return bundle
    from . import family  # which adds the chart parser's name, and not before somebody parses

    family.add()
    found = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    if FAMILIES[found.recipe.model.family].kind == "chart":
        return open_bundle(found.path, ["chart"], device=device)
    return load(bundle, device=device)


def parse(
    bundle: str | Path | Bundle | Parser,
    lines: Sequence[str],
    options: Options | None = None,
    *,
    first_line: int = 1,
    progress: Callable[[int], None] | None = None,
    **others: Any,
) -> list[Parse]:
    """The tree of each line, in order; words stand between spaces, as the treebank's do.

    `options`, or `others` by name, replace keys of the bundle's [search]; a chart parser has none but precision.
    Raises ModelError for a bundle that writes no trees, for such a key of a chart parser and for a length limit too
    short for a tree, TextError, naming the line from `first_line` on, for what cannot be read.
    """
    if isinstance(lines, str):
        raise TextError(f"parse takes a list of lines, and {lines[:40]!r} is one string: put it in a list.")
    parser, options = open_parser(bundle), Options.of(options, **others)
    parses, words = [Parse(None)] * len(lines), [words_of(line) for line in lines]
    full = [i for i, each in enumerate(words) if each]
    asked = [words[i] for i in full], options, [first_line + i for i in full], progress
    found = _charted(parser, *asked) if isinstance(parser, Pipeline) else _written(parser, *asked)
    for i, (symbols, log_probability, score) in zip(full, found, strict=True):
        parses[i] = Parse(delinearise(parser.target.decode(symbols), words[i]), log_probability, score)
    return parses


_Found = list[tuple[Sequence[int], float, float]]  # of each sentence its symbols, their log-probability, and the score
_Progress = Callable[[int], None] | None


def _written(
    translator: Translator, words: list[list[str]], options: Options, numbers: list[int], progress: _Progress
) -> _Found:
    """Trees that are written symbol by symbol."""
    search = search_with(translator.recipe.search, options.search)
    translator.check_forwards("a tree's brackets are kept whole from left to right")
    symbols = symbols_of(translator.target)
    found = decode(
        translator.backend(search),
        [translator.encode([" ".join(each)], first_line=n)[0] for each, n in zip(words, numbers, strict=True)],
        search,
        rules=lambda index, limit: Bracketing(symbols, len(words[index]), limit),
        lines=numbers,
        progress=progress,
    )
    return [(best.ids, best.log_probability, best.score) for best, *_ in found]


def _charted(
    parser: Pipeline, words: list[list[str]], options: Options, numbers: list[int], progress: _Progress
) -> _Found:
    """Trees that a chart is filled for."""
    from .chart import ChartParser, parsed

    if others := sorted(options.search.keys() - {"precision"}):
        raise ModelError(f"a chart parser finds the best tree without a search; leave {', '.join(others)} out.")
    model = cast(ChartParser, parser.model_for(options.search.get("precision", "auto")))
    rows, most = [], 4 * parser.recipe.data.filters.max_length
    for each, number in zip(words, numbers, strict=True):
        ids = parser.encode(" ".join(each), number)
        if len(ids) > most:
            raise TextError(f"line {number} has {len(ids):,} tokens, and at most {most:,} are parsed: split it.")
        if (there := int(model.begins[ids].sum())) != len(each):
            raise TextError(f"line {number} has {len(each)} words, of which only {there} have letters that are read.")
        rows.append(ids)
    return [(symbols, 0.0, score) for symbols, score in parsed(model, rows, progress)]


def evaluate_trees(
    bundle: str | Path | Bundle | Parser,
    gold: Sequence[Tree],
    options: Options | None = None,
    *,
    resamples: int = 1000,
    progress: Callable[[int], None] | None = None,
    **others: Any,
) -> ParseEvaluation:
    """Parse the words of gold trees and score the trees; `resamples` bootstrap samples give the 95 % intervals.

    Raises DataError where there is no tree, and what `parse` raises.
    """
    if not gold:
        raise DataError("there is no gold tree to score against; give at least one.")
    parser, options = open_parser(bundle), Options.of(options, **others)
    began = time.perf_counter()
    lines = [" ".join(word.text for word in tree.words()) for tree in gold]
    parses = parse(parser, lines, options, progress=progress)
    seconds = time.perf_counter() - began
    trees = [each.tree for each in parses if each.tree is not None]
    short = [i for i, tree in enumerate(gold) if len(tree.words()) <= SHORT]
    if isinstance(parser, Pipeline):
        how: dict[str, object] = {"chart": "cky", "device": str(parameter_of(parser.model).device)}
    else:
        how = {**search_with(parser.recipe.search, options.search).model_dump(), "device": parser.device}
    return ParseEvaluation(
        scores=score_trees(trees, gold, resamples=resamples),
        short=score_trees([trees[i] for i in short], [gold[i] for i in short], resamples=resamples) if short else {},
        trees=trees,
        decoding=how,
        seconds=seconds,
    )


# -- the rules that a search keeps, as those of `regard.search.constraints` are ----------------------------------------


@dataclass(frozen=True)
class Symbols:
    """What the tokens of a vocabulary are in a line of symbols; all others are never written."""

    closing: Mapping[int, int]  #: Of each token that opens a bracket, the one that closes it.
    words: tuple[int, ...]  #: Tokens that stand for a word.


def symbols_of(target: Tokenizer) -> Symbols:
    """What each token of a vocabulary is in a line of symbols. Raises ModelError if it has no brackets or no words."""
    tokens = {token.removeprefix("\u2581"): i for i, token in enumerate(target.tokens(range(len(target)))) if i > END}
    labels = {i: token[1:] for token, i in tokens.items() if token.startswith("(") and len(token) > 1}
    closing = {i: tokens[f"){label}"] for i, label in labels.items() if f"){label}" in tokens}
    words = tuple(i for token, i in tokens.items() if not token.startswith(("(", ")")))
    if not closing or not words:
        raise ModelError(
            "this bundle writes no trees: its target vocabulary has no brackets such as (NP and )NP; train one on what "
            '`regard trees` makes of a treebank, with text.target_kind = "words".'
        )
    return Symbols(closing, words)


@dataclass(frozen=True)
class Bracketing:
    """What the hypotheses of one sentence must be: trees over `words` words, in at most `limit` tokens with the end."""

    symbols: Symbols
    words: int
    limit: int

    def needs(self) -> tuple[int, ...]:
        return (*self.symbols.closing, *self.symbols.closing.values(), *self.symbols.words)

    def refusal(self) -> str | None:
        if self.words + 3 <= self.limit:
            return None
        needed = f"a tree over {self.words} words needs {self.words + 3} tokens"
        return f"{needed}, and at most {self.limit} are allowed"

    def start(self) -> BracketState:
        return BracketState(self.symbols, (), self.words, 0, self.limit)


@dataclass(frozen=True)
class BracketState:
    """How far one hypothesis has come."""

    symbols: Symbols
    open: tuple[int, ...]  #: Of each open bracket, the token that closes it.
    words: int  #: Still without a symbol.
    opened: int  #: Brackets opened since the last word or closed bracket.
    room: int  #: Tokens that may still come, the end counted.

    def after(self, token: int) -> BracketState:
        """The hypothesis with one more token."""
        closing = self.symbols.closing.get(token)
        if closing is not None:
            return BracketState(self.symbols, (*self.open, closing), self.words, self.opened + 1, self.room - 1)
        if self.open and token == self.open[-1]:
            return BracketState(self.symbols, self.open[:-1], self.words, 0, self.room - 1)
        return BracketState(self.symbols, self.open, self.words - 1, 0, self.room - 1)

    def allowed(self, vocabulary: int, end: int) -> NDArray[np.bool_]:
        """The tokens that may come next (vocabulary,)."""
        may = np.zeros(vocabulary, dtype=np.bool_)
        may[end] = not self.words and not self.open
        # A symbol for each word, the end of each bracket, and the end of all.
        spare = self.room - self.words - len(self.open) - 1
        if self.words and spare >= 2 and self.opened < MOST_OPEN and len(self.open) < _DEEP:
            may[list(self.symbols.closing)] = True
        if self.words and self.open:
            may[list(self.symbols.words)] = True
        if self.open and not self.opened and (len(self.open) > 1 or not self.words):
            may[self.open[-1]] = True
        return may
