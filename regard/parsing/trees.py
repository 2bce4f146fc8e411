"""Constituency trees: bracketed text as treebanks write it, and one line of symbols that a model can write.

    (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .))      a tree
    (S (NP XX XX )NP (VP XX )VP XX )S                       the same as a line, after Vinyals et al. (2015)

In a line every bracket is one symbol with its label, and every word is XX, whatever its tag: the words themselves are
the model's input, so that line and words together are the tree again, but for the tags. Tags may be kept instead, and a
chain of constituents, each of which holds the next alone, may be one symbol: (S+VP … )S+VP.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from regard.errors import TextError
from regard.text.lines import iter_lines

ANY = "XX"  #: The symbol of a word whose tag is not kept.
CHAIN = "+"  #: Between the labels of a chain.
DEEPEST = 200
"""Brackets inside of one another: more are no sentence's, and walking through them would exhaust the stack."""
OUTER = ("", "TOP", "ROOT", "S1")  #: Labels of the bracket around a whole tree, which says nothing.

Bracket = tuple[str, int, int]  #: A label, the number of the first word, and that of the one behind the last.
_TOP = "TOP"
_TRACE = "-NONE-"
# A no-break space belongs to its word, as it does in a line of words.
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_WORD = re.compile(r"\S+", re.ASCII)


@dataclass(frozen=True)
class Word:
    """A word and its part of speech."""

    tag: str
    text: str

    def __str__(self) -> str:
        return f"({self.tag} {escaped(self.text)})"


@dataclass(frozen=True)
class Tree:
    """A constituent: its label, and at least one constituent or word."""

    label: str
    children: tuple[Tree | Word, ...]

    def __str__(self) -> str:
        """On one line, as treebanks write it."""
        return f"({self.label} {' '.join(map(str, self.children))})"

    def words(self) -> list[Word]:
        """Its words from left to right."""
        return [w for child in self.children for w in ([child] if isinstance(child, Word) else child.words())]

    def brackets(self, start: int = 0) -> list[Bracket]:
        """The bracket of every constituent; its own first word has the number `start`."""
        found = [(self.label, start, start + len(self.words()))]
        for child in self.children:
            if isinstance(child, Word):
                start += 1
            else:
                found += child.brackets(start)
                start += len(child.words())
        return found

    def indented(self, depth: int = 0) -> str:
        """On several lines: a constituent of words alone on one, every other with its children under it."""
        if all(isinstance(child, Word) for child in self.children):
            return "  " * depth + str(self)
        inner = "  " * (depth + 1)
        lines = (inner + str(c) if isinstance(c, Word) else c.indented(depth + 1) for c in self.children)
        return "  " * depth + f"({self.label}\n" + "\n".join(lines) + ")"


def words_of(line: str) -> list[str]:
    """The words of a line, between spaces, as treebanks write them."""
    return _WORD.findall(escaped(line))


def escaped(word: str) -> str:
    """A word as treebanks write it: its parentheses as -LRB- and -RRB-."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


# -- bracketed text ----------------------------------------------------------------------------------------------------


def iter_trees(source: str | os.PathLike[str] | BinaryIO, *, as_it_is: bool = False) -> Iterator[Tree]:
    """The trees of a file or a binary stream, each on one line or on several.

    The bracket around a whole tree is dropped if its label is one of OUTER; where it holds several constituents, or
    words alone, it is called TOP. Traces (-NONE-) go, with what they leave empty; labels lose their functions and
    indices (NP-SBJ-1 is NP, -LRB- stays), unless all that is to stay `as_it_is`. Words that share a bracket get its tag
    each.
    Raises TextError, naming file and line, for brackets that are not balanced, text outside of a tree, a constituent
    without words or without a label, a word beside constituents, and more than DEEPEST brackets inside of one another.
    """
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "standard input")
    yield from _trees(iter_lines(source), str(name), as_it_is)


@dataclass
class _Open:
    """A bracket that is not closed yet: around words, or around constituents."""

    line: int
    label: str | None = None
    words: list[str] = field(default_factory=list)
    children: list[Tree | Word] = field(default_factory=list)


def _trees(lines: Iterable[str], name: str, as_it_is: bool) -> Iterator[Tree]:
    stack: list[_Open] = []
    for number, line in enumerate(lines, start=1):
        where = f"{name}: line {number}"
        for token in _TOKEN.findall(line):
            if fault := _fault(stack, token[:60]):
                raise TextError(f"{where}: {fault}")
            if token == "(":
                if stack and stack[-1].label is None:
                    stack[-1].label = ""
                stack.append(_Open(number))
            elif token != ")":
                if stack[-1].label is None:
                    stack[-1].label = token
                else:
                    stack[-1].words.append(token)
            else:
                last = stack.pop()
                label = last.label or ""
                words: list[Tree | Word] = [Word(label, word) for word in last.words]
                found = words or [Tree(label, tuple(last.children))]
                if stack:
                    stack[-1].children += found
                else:
                    yield _finished(found, where, as_it_is)
    if stack:
        raise TextError(
            f"{name}: line {stack[0].line}: the tree that begins here is never closed: brackets open at the end of the "
            f"file: {len(stack)}; close them."
        )


def _fault(stack: list[_Open], token: str) -> str | None:
    """What is wrong with a token that comes where these brackets are open."""
    if not stack:
        fault = "a bracket is closed that was never opened" if token == ")" else f"{token!r} is in no tree"
        return None if token == "(" else f"{fault}; a tree begins with a bracket and ends with it: (NP (NN cat))."
    last = stack[-1]
    if token == ")" and not last.words and not last.children:
        return f"the bracket ({last.label or ''} holds no word; remove it, or write (TAG word)."
    if token not in "()" and last.children:
        return f"{token!r} stands beside constituents; give it a tag of its own: (NN {token})."
    if token == "(" and last.words:
        word = last.words[-1][:60]
        return f"a bracket follows the word {word!r}; give it a tag of its own: (NN {word})."
    if token == "(" and last.label is None and len(stack) > 1:
        return "a bracket inside of a tree has no label; write one behind it, like (NP."
    if token == "(" and len(stack) == DEEPEST:
        return f"more than {DEEPEST} brackets are open at once; is one of them not closed?"
    return None


def _finished(found: Sequence[Tree | Word], where: str, as_it_is: bool) -> Tree:
    kept = found if as_it_is else [node for node in map(_clean, found) if node is not None]
    if not kept:
        raise TextError(f"{where}: the tree that ends here has no words, only traces; remove it.")
    whole = kept[0]
    if not isinstance(whole, Tree):
        return Tree(_TOP, tuple(kept))
    if whole.label not in OUTER:
        return whole
    inner = whole.children[0]
    return inner if len(whole.children) == 1 and isinstance(inner, Tree) else Tree(_TOP, whole.children)


def _clean(node: Tree | Word) -> Tree | Word | None:
    """Without traces, functions and indices; None if nothing is left."""
    if isinstance(node, Word):
        return None if node.tag == _TRACE else Word(_plain(node.tag), node.text)
    children = tuple(kept for kept in map(_clean, node.children) if kept is not None)
    return Tree(_plain(node.label), children) if children else None


def _plain(label: str) -> str:
    """NP-SBJ-1 and NP=2 are NP; -LRB- and the dash as a tag stay."""
    return label if label[:1] in ("-", "=") else re.split("[-=]", label, maxsplit=1)[0]


# -- one line of symbols -----------------------------------------------------------------------------------------------


def linearise(node: Tree | Word, *, tags: bool = False, chains: bool = False) -> str:
    """The tree as a line of symbols: (NP opens, )NP closes, and XX, or its tag, is a word; `chains` are one symbol.

    Raises TextError for a label that holds a CHAIN, since it could not be told from a chain of labels.
    """
    if isinstance(node, Word):
        return node.tag if tags else ANY
    labels = [node.label]
    while chains and len(node.children) == 1 and isinstance(node.children[0], Tree):
        node = node.children[0]
        labels.append(node.label)
    if wrong := next((label for label in labels if CHAIN in label), None):
        raise TextError(f"the label {wrong!r} holds a {CHAIN!r}, which joins the labels of a chain; rename it.")
    inner = (linearise(child, tags=tags, chains=chains) for child in node.children)
    label = CHAIN.join(labels)
    return " ".join([f"({label}", *inner, f"){label}"])


def delinearise(line: str, words: Sequence[str]) -> Tree:
    """The tree that a line of symbols says over these words.

    Raises TextError where brackets are not balanced or empty, where symbols for words are not as many as there are
    words, and where the line is more or less than one tree.
    """
    stack: list[tuple[str, list[Tree | Word]]] = [("", [])]
    used = 0
    for symbol in line.split():
        label, children = stack[-1]
        outside = len(stack) == 1
        if outside and children:
            raise TextError(f"{symbol!r} comes behind the tree's last bracket; a line is one tree.")
        if symbol.startswith("("):
            if symbol == "(" or len(stack) > DEEPEST:
                fault = "a bracket has no label" if symbol == "(" else f"more than {DEEPEST} brackets are open at once"
                raise TextError(f"{fault}; a line is one tree, such as (NP XX )NP.")
            stack.append((symbol[1:], []))
        elif outside:
            raise TextError(f"{symbol!r} is outside of a tree; a tree begins with a bracket, such as (S.")
        elif symbol.startswith(")"):
            if symbol[1:] != label or not children:
                fault = f"({label} is closed by {symbol}" if children else f"({label} holds no word"
                raise TextError(f"{fault}; brackets are closed by their own label, around at least one word.")
            stack.pop()
            *outer, inner = label.split(CHAIN)
            whole = Tree(inner, tuple(children))
            for each in reversed(outer):
                whole = Tree(each, (whole,))
            stack[-1][1].append(whole)
        else:
            children += [Word(symbol, word) for word in words[used : used + 1]]
            used += 1
    if used != len(words):
        raise TextError(f"the line has symbols for {used} words, and there are {len(words)}; they must be as many.")
    if len(stack) > 1 or not stack[0][1]:
        raise TextError(f"{len(stack) - 1} brackets are open at the end of the line; a line is one whole tree.")
    found = stack[0][1][0]
    assert isinstance(found, Tree)
    return found
