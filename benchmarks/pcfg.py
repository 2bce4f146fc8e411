"""A probabilistic context-free grammar read off a treebank, and the best tree by CKY: what a parser must beat.

Labels carry their parent's (Johnson 1998); rules of more than two children are binarised from the left, each part
remembering the child before it, so vertical order 2 and horizontal order 1 (Klein and Manning 2003). Rules have their
relative frequency. Words seen less than RARE times are their class: shape and suffix.

Sizes: n words, S symbols, R binary rules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.parsing.trees import Tree, Word

__all__ = ["RARE", "Grammar", "Lexicon", "Rules", "annotated", "classes", "read_off"]

RARE = 3
"""Words seen less often are their class."""
_SMOOTH = 10.0
"""Counts that a tag lends to each of its annotated forms."""
_FREQUENT = 10
"""Rare words that a class must have had."""
_TOP = "TOP"

Floats = NDArray[np.float32]
Rule = tuple[str, ...]
"""A symbol and the one or two that it becomes."""


def annotated(tree: Tree) -> Iterator[Rule]:
    """The rules of a tree; symbols are label^parent, tag_parent, and @label^parent:child for what is left of a rule."""
    yield (_TOP, f"{tree.label}^{_TOP}")
    yield from _annotated(tree, _TOP)


def _annotated(tree: Tree, parent: str) -> Iterator[Rule]:
    children = [
        f"{child.tag}_{tree.label}" if isinstance(child, Word) else f"{child.label}^{tree.label}"
        for child in tree.children
    ]
    whole = symbol = f"{tree.label}^{parent}"
    for place, child in enumerate(children[:-2]):
        rest = f"@{whole}:{_plain(children[place])}"
        yield (symbol, child, rest)
        symbol = rest
    yield (symbol, *children[-2:])
    for node in tree.children:
        if isinstance(node, Tree):
            yield from _annotated(node, tree.label)


def _plain(symbol: str) -> str:
    """The label or tag without its parent."""
    return symbol.rsplit("^" if "^" in symbol else "_", 1)[0]


def classes(word: str) -> tuple[str, ...]:
    """What stands for a rare word, the finest first: shape and suffix, shape, anything."""
    shape = "".join(
        mark
        for mark, has in (
            ("0", any(c.isdigit() for c in word)),
            ("A", word.isupper() and len(word) > 1),
            ("a", word[:1].isupper() and not word.isupper()),
            ("-", "-" in word or "/" in word),
            (".", not any(c.isalnum() for c in word)),
        )
        if has
    )
    ends = [word[-size:].lower() for size in (4, 3, 2) if len(word) > size + 1]
    return (*(f"<{shape}|{end}>" for end in ends), f"<{shape}>", "<>")


class Lexicon:
    """log P(word | tag symbol) for every tag symbol of a grammar."""

    def __init__(self, tagged: Iterable[tuple[str, str]], index: Mapping[str, int]) -> None:
        """Takes (tag symbol, word) for every word of a treebank."""
        pairs = Counter(tagged)
        seen: Counter[str] = Counter()
        for (_, word), count in pairs.items():
            seen[word] += count
        self._known = {word for word, count in seen.items() if count >= RARE}
        rare = {word: count for word, count in seen.items() if count < RARE}
        ways: Counter[str] = Counter()
        for word, count in rare.items():
            for way in classes(word):
                ways[way] += count
        self._classes = {way for way, count in ways.items() if count >= _FREQUENT or way == "<>"}
        self._size = len(index)
        joint: Counter[tuple[str, str]] = Counter()
        totals: Counter[str] = Counter()
        tag_totals: Counter[str] = Counter()
        for (symbol, word), count in pairs.items():
            joint[symbol, self._as(word)] += count
            totals[symbol] += count
            tag_totals[_plain(symbol)] += count
            if word not in self._known and self._as(word) != "<>":
                joint[symbol, "<>"] += count  # what has no class is like every rare word
        tag_joint: Counter[tuple[str, str]] = Counter()
        for (symbol, word), count in joint.items():
            tag_joint[_plain(symbol), word] += count
        by_tag: dict[str, list[str]] = {}
        for symbol in totals:
            by_tag.setdefault(_plain(symbol), []).append(symbol)
        tables: dict[str, list[tuple[int, float]]] = {}
        for (tag, word), count in tag_joint.items():
            for symbol in by_tag[tag]:
                lent = _SMOOTH * count / tag_totals[tag]
                chance = (joint[symbol, word] + lent) / (totals[symbol] + _SMOOTH)
                tables.setdefault(word, []).append((index[symbol], math.log(chance)))
        self._tables = {
            word: (np.array([i for i, _ in rows]), np.array([v for _, v in rows], np.float32))
            for word, rows in tables.items()
        }

    def _as(self, word: str) -> str:
        return word if word in self._known else next(c for c in classes(word) if c in self._classes or c == "<>")

    def row(self, word: str, anything: bool = False) -> Floats:
        """log P(word | symbol) (S,); -inf for symbols that are no tag of it. `anything`: as a word never seen."""
        found = np.full(self._size, -np.inf, np.float32)
        places, values = self._tables["<>" if anything else self._as(word)]
        found[places] = values
        return found


@dataclass(frozen=True)
class Rules:
    """Rules in the order of their parents."""

    parents: NDArray[np.int64]  # (R,)
    children: NDArray[np.int64]  # (R, 1 or 2)
    values: Floats  # (R,) log-probabilities

    @classmethod
    def of(cls, rows: Sequence[tuple[tuple[int, ...], float]], arity: int) -> Rules:
        rows = sorted(rows)
        ids = np.array([symbols for symbols, _ in rows], np.int64).reshape(len(rows), arity + 1)
        return cls(ids[:, 0], ids[:, 1:], np.array([value for _, value in rows], np.float32))

    def best(self, values: Floats, chosen: NDArray[np.int64], size: int) -> Floats:
        """Of these rules' values the best of each parent (S,)."""
        found = np.full(size, -np.inf, np.float32)
        if len(chosen):
            parents = self.parents[chosen]
            starts = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
            found[parents[starts]] = np.maximum.reduceat(values, starts)
        return found


class Grammar:
    """Binary and unary rules over numbered symbols, with a lexicon; `parse` finds the best tree."""

    def __init__(self, rules: Mapping[Rule, float], lexicon: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Takes the probability of each rule; and, where no treebank gives a lexicon, those of words by symbol."""
        names = dict.fromkeys([_TOP, *(symbol for rule in rules for symbol in rule), *(lexicon or {})])
        self.symbols = list(names)
        self.index = {symbol: i for i, symbol in enumerate(names)}
        rows = [(tuple(self.index[s] for s in rule), math.log(p)) for rule, p in rules.items()]
        self.unary = Rules.of([row for row in rows if len(row[0]) == 2], 1)
        self.binary = Rules.of([row for row in rows if len(row[0]) == 3], 2)
        self._given = lexicon
        self.lexicon: Lexicon | None = None

    def _row(self, word: str, anything: bool) -> Floats:
        if self.lexicon is not None:
            return self.lexicon.row(word, anything)
        assert self._given is not None
        chances = [self._given.get(symbol, {}).get(word, 0.0) for symbol in self.symbols]
        return np.array([math.log(chance) if chance else -math.inf for chance in chances], np.float32)

    def parse(self, words: Sequence[str]) -> tuple[Tree, float] | None:
        """The best tree and its log-probability. Where none is found, words count as never seen; None if there is
        still none."""
        for anything in (False, True):
            chart = _Chart(self, [self._row(word, anything) for word in words])
            value = float(chart.whole[0, len(words)][self.index[_TOP]])
            if value > -math.inf:
                (tree,) = chart.build(0, len(words), self.index[_TOP], words)
                assert isinstance(tree, Tree)
                return tree, value
            if self.lexicon is None:
                return None
        return None


class _Chart:
    """Log-probabilities of the best tree of each span and symbol: before unary rules (`bare`), and with them."""

    def __init__(self, grammar: Grammar, rows: Sequence[Floats]) -> None:
        n, size = len(rows), len(grammar.symbols)
        self.grammar = grammar
        self.bare: dict[tuple[int, int], Floats] = {}
        self.whole: dict[tuple[int, int], Floats] = {}
        # The same by where a span begins and by where it ends, so that all splits of a span lie side by side.
        self.begins = np.full((n, n + 1, size), -np.inf, np.float32)
        self.ends = np.full((n + 1, n, size), -np.inf, np.float32)
        for width in range(1, n + 1):
            for i in range(n - width + 1):
                bare = rows[i] if width == 1 else self._joined(i, i + width)
                self.bare[i, i + width] = bare
                self.whole[i, i + width] = self._raised(bare)
                self.begins[i, i + width] = self.ends[i + width, i] = self.whole[i, i + width]

    def _joined(self, i: int, j: int) -> Floats:
        """The best of all binary rules and splits (S,)."""
        rules = self.grammar.binary
        left, right = self.begins[i, i + 1 : j], self.ends[j, i + 1 : j]  # (m, S)
        some = np.isfinite(left.max(0))[rules.children[:, 0]] & np.isfinite(right.max(0))[rules.children[:, 1]]
        chosen = np.flatnonzero(some)
        if not len(chosen):
            return np.full(left.shape[1], -np.inf, np.float32)
        a, b = rules.children[chosen].T
        best: Floats = (left[:, a] + right[:, b]).max(0) + rules.values[chosen]
        return rules.best(best, chosen, left.shape[1])

    def _raised(self, bare: Floats) -> Floats:
        """With unary rules, again and again until nothing is better."""
        rules = self.grammar.unary
        whole = bare
        while True:
            some = np.flatnonzero(np.isfinite(whole)[rules.children[:, 0]])
            values = whole[rules.children[some, 0]] + rules.values[some]
            better = np.maximum(whole, rules.best(values, some, len(whole)))
            if (better == whole).all():
                return whole
            whole = better

    def build(self, i: int, j: int, symbol: int, words: Sequence[str]) -> list[Tree | Word]:
        """The best tree of a span and symbol; of what a binary rule left, the children."""
        value, name = self.whole[i, j][symbol], self.grammar.symbols[symbol]
        if value == self.bare[i, j][symbol]:
            if j - i == 1:
                return [Word(_plain(name), words[i])]
            children = self._split(i, j, symbol, words)
        else:
            rules = self.grammar.unary
            mine = np.flatnonzero(rules.parents == symbol)
            below = rules.children[mine, 0]
            child = int(below[np.argmax(self.whole[i, j][below] + rules.values[mine])])
            children = self.build(i, j, child, words)
            if name == _TOP:
                return children
        return children if name.startswith("@") else [Tree(_plain(name), tuple(children))]

    def _split(self, i: int, j: int, symbol: int, words: Sequence[str]) -> list[Tree | Word]:
        rules = self.grammar.binary
        mine = np.flatnonzero(rules.parents == symbol)
        a, b = rules.children[mine].T
        values = self.begins[i, i + 1 : j][:, a] + self.ends[j, i + 1 : j][:, b] + rules.values[mine]  # (m, rules)
        split, rule = np.unravel_index(np.argmax(values), values.shape)
        k = i + 1 + int(split)
        return [*self.build(i, k, int(a[rule]), words), *self.build(k, j, int(b[rule]), words)]


def read_off(trees: Iterable[Tree]) -> Grammar:
    """The grammar of a treebank: each rule with its relative frequency among those of its symbol."""
    counts: Counter[Rule] = Counter()
    tagged: list[tuple[str, str]] = []
    for tree in trees:
        counts.update(annotated(tree))
        tagged += _tagged(tree)
    of: Counter[str] = Counter()
    for rule, count in counts.items():
        of[rule[0]] += count
    grammar = Grammar({rule: count / of[rule[0]] for rule, count in counts.items()})
    grammar.lexicon = Lexicon(tagged, grammar.index)
    return grammar


def _tagged(tree: Tree) -> Iterator[tuple[str, str]]:
    for child in tree.children:
        if isinstance(child, Word):
            yield f"{child.tag}_{tree.label}", child.text
        else:
            yield from _tagged(child)
