"""Which word translates which: links between the words of given pairs of lines, read off a model's attention.

The model reads the source and is made to write the given target (forced decoding), its cross-attention recorded. Two
rules say which step tells where a target token comes from (Chen et al. 2020, "Accurate Word Alignment Induction from
Neural Machine Translation"): the step whose *output* is the token, which is the naive one, or the step whose *input* is
the token, when the decoder knows what it has just written. Weights of tokens become weights of words (the sum over the
tokens of a source word, the mean over those of a target word), which are shared out: divided by all that the source
word gets, so that a full stop that every word looks at does not take them all. A target word chooses the source word
that it looks at most, and a source word the target word that looks at it most, or what a model of the reverse direction
chooses for it. The choices of both sides are joined.

Sizes: B lines, L layers, H heads, T target tokens, S source tokens; N target and M source words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from regard.errors import DataError, ModelError, TextError
from regard.models import FAMILIES
from regard.tasks.details import Weights, layers_of, steps_of
from regard.tasks.forced import forced
from regard.tasks.lines import check_counts, check_length, check_line
from regard.tasks.translate import Translator
from regard.text.lines import read_lines, tag
from regard.text.sentences import unspaced
from regard.text.tokenizer import Tokenizer

from .aer import Gold, Link, alignment_error_rate, parse_gold

Links = frozenset[Link]
Rule = Literal["input", "output"]

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Reading:
    """How attention is read: see `steps_of`."""

    rule: Rule = "output"
    layer: int = 0
    head: int = 0

    def __str__(self) -> str:
        head = f" head {self.head}" if self.head else ""
        return f"{self.rule} {self.layer or 'mean'}{head}"


@dataclass(frozen=True)
class Alignment:
    """The links of one pair of lines: (source word, target word), from 0, in order."""

    links: tuple[Link, ...]
    source: str
    target: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"source": self.source, "target": self.target, "links": self.links, "spans": self.spans}

    @property
    def spans(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """The same as characters: the first and the one behind the last of the source word and of the target word."""
        sources, targets = words(self.source), words(self.target)
        return [(sources[i], targets[j]) for i, j in self.links]


class AlignmentChoice(BaseModel, extra="forbid", frozen=True):
    """How links are made, as `write_choice` keeps it in a file."""

    readings: tuple[Reading, ...] = (Reading(),)  # their mean is read
    reverse: tuple[Reading, ...] = ()  # of the bundle of the reverse direction
    share: bool = True  # weights are divided by what their source word gets in all
    symmetry: str = "grow-diag"  # one of SYMMETRIES
    rates: dict[str, float] = Field(default_factory=dict)
    """AER in percent of all that was tried on a gold set: "forward input 3", "reverse output 2 head 1" and the like."""


def write_choice(path: str | Path, choice: AlignmentChoice) -> None:
    """Write a choice as JSON."""
    Path(path).write_text(choice.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_choice(path: str | Path) -> AlignmentChoice:
    """Read a choice; ModelError for a file that holds none."""
    try:
        return AlignmentChoice.model_validate_json(Path(path).read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"{path}: no choice of layer and rule can be read here ({reason}); make one with --choose."
        ) from None


def choose(
    translator: Translator,
    reverse: Translator | None,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[Gold],
    *,
    how: AlignmentChoice | None = None,
    languages: tuple[str, str] = ("", ""),
    batch_size: int = 32,
) -> AlignmentChoice:
    """The readings of each direction with the lowest AER on a gold set: the best one, and the best one beside it.

    A second reading is kept if their mean is better than the first alone. Each direction is chosen on its own. The rest
    is as `how` says.
    """
    how = how or AlignmentChoice()
    _check(sources, targets, how.symmetry)
    join, share, rates = SYMMETRIES[how.symmetry], how.share, dict[str, float]()
    found: dict[str, tuple[Reading, ...]] = {"forward": (), "reverse": ()}
    for direction, by in (("forward", translator), ("reverse", reverse)):
        if by is None:
            continue
        turned = direction == "reverse"
        read, written = (targets, sources) if turned else (sources, targets)
        every = _every_reading(by)
        each = _weights(by, read, written, [(one,) for one in every], languages[not turned], batch_size)

        def rate(numbers: Sequence[int], each: list[list[Weights]] = each, turned: bool = turned) -> float:
            means = (np.mean([weights[n] for n in numbers], axis=0) for weights in each)
            links = [join(*_choices(mean, share)) for mean in means]
            return alignment_error_rate(_turned(links) if turned else links, gold, resamples=0)["aer"].value

        alone = [rate([n]) for n in range(len(every))]
        best = int(np.argmin(alone))
        pairs = [rate([best, n]) for n in range(len(every))]
        rates |= {f"{direction} {one}": value for one, value in zip(every, alone, strict=True)}
        rates |= {f"{direction} {every[best]} and {one}": value for one, value in zip(every, pairs, strict=True)}
        second = int(np.argmin(pairs))
        found[direction] = (every[best], every[second]) if pairs[second] < alone[best] else (every[best],)
    return how.model_copy(update={"readings": found["forward"], "reverse": found["reverse"], "rates": rates})


def read_lines_of(source: str | Path, target: str | Path | None) -> tuple[list[str], list[str]]:
    """The lines of two files; or of one whose lines are `source ||| target`."""
    lines = read_lines(source)
    if target is not None:
        return lines, read_lines(target)
    for number, line in enumerate(lines, start=1):
        if line.count(" ||| ") != 1:
            raise TextError(
                f"{source}: line {number} has no ' ||| ' between its two sides, or several; give the target's file too."
            )
    pairs = [line.split(" ||| ") for line in lines]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def read_gold(path: str | Path, count: int, base: int = 1) -> list[Gold]:
    """The gold links of so many pairs of lines, see `parse_gold`; DataError names the file and the line."""
    lines = read_lines(path)
    if len(lines) != count:
        raise DataError(f"{path} has {len(lines):,} lines of links for {count:,} pairs; there must be one for each.")
    try:
        return [parse_gold(line, base=base, number=number) for number, line in enumerate(lines, start=1)]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def words(line: str) -> list[tuple[int, int]]:
    """Where the words of a line, which space separates, begin and end."""
    return [found.span() for found in _WORD.finditer(line)]


def pharaoh(links: Sequence[Link]) -> str:
    """Links as `0-0 1-2`."""
    return " ".join(f"{i}-{j}" for i, j in links)


def align_lines(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    choice: AlignmentChoice | None = None,
    reverse: Translator | None = None,
    languages: tuple[str, str] = ("", ""),
    batch_size: int = 32,
) -> list[Alignment]:
    """The alignment of each pair of lines, in order; a pair with an empty side has no links.

    `reverse` translates the other way. `languages` are the codes of source and target, which a bundle of several target
    languages has to be told; it may be its own reverse. Chinese and Japanese words are put together without spaces
    before the model reads them, as it knows them.
    Raises TextError for unequal counts and lines that cannot be read, ModelError for a layer, head, language or
    symmetry that is not there.
    """
    how = choice or AlignmentChoice()
    _check(sources, targets, how.symmetry)
    translator.languages.check(languages[0] or None, None)
    there = _weights(translator, sources, targets, [how.readings], languages[1], batch_size)
    chosen = [_choices(weights[0], how.share) for weights in there]
    if reverse is not None:
        readings = how.reverse or (Reading(),)
        back = _weights(reverse, targets, sources, [readings], languages[0], batch_size)
        others = _turned([_choices(weights[0], how.share)[0] for weights in back])
        chosen = [(own, other) for (own, _), other in zip(chosen, others, strict=True)]
    found = [SYMMETRIES[how.symmetry](*both) for both in chosen]
    return [Alignment(tuple(sorted(f)), s, t) for f, s, t in zip(found, sources, targets, strict=True)]


def _every_reading(translator: Translator) -> list[Reading]:
    layers, heads = FAMILIES[translator.recipe.model.family].cross_attention(translator.recipe.model)
    parts = [(0, 0), *((n, head) for n in range(1, layers + 1) for head in range(heads + 1))]
    return [Reading(rule, *part) for rule in get_args(Rule) for part in parts]


def _add(grown: set[Link], links: Iterable[Link]) -> list[Link]:
    """Adds each link of a word that is not linked yet; what was added."""
    sources, targets = {i for i, _ in grown}, {j for _, j in grown}
    fresh = []
    for i, j in links:
        if i not in sources or j not in targets:
            fresh.append((i, j))
            sources.add(i)
            targets.add(j)
    grown.update(fresh)
    return fresh


def _grow_diag(forward: Links, backward: Links) -> Links:
    """From the intersection, links of the union beside one that is in, of a word not linked yet."""
    grown, union = set(forward & backward), forward | backward
    beside = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
    fresh = sorted(grown)
    while fresh:
        fresh = _add(grown, sorted({(i + a, j + b) for i, j in fresh for a, b in beside} & union - grown))
    return frozenset(grown)


def _final(forward: Links, backward: Links) -> Links:
    """Then any link of either direction of a word that is not linked yet."""
    grown = set(_grow_diag(forward, backward))
    _add(grown, [*sorted(forward), *sorted(backward)])
    return frozenset(grown)


SYMMETRIES: dict[str, Callable[[Links, Links], Links]] = {
    "target": lambda forward, backward: forward,
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": _grow_diag,
    "grow-diag-final": _final,
}
"""How the choices of both sides are joined; "target" takes those of target words alone."""


@dataclass(frozen=True)
class _Read:
    """One side of a pair: ids, and the word that each stands in."""

    ids: list[int]
    words: list[int]  # -1 for the tag that asks for a language
    count: int  # of words


def _weights(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    ways: Sequence[tuple[Reading, ...]],
    to: str,
    batch_size: int,
) -> list[list[Weights]]:
    """For each pair, its weights (N, M) by each way, the mean of some readings; `to` is the target's code, if asked."""
    for reading in chain.from_iterable(ways):
        _check_reading(reading, translator)
    known = translator.languages.targets
    if known and to and to not in known:
        raise ModelError(f"this bundle does not write {to!r}; choose one of {', '.join(known)}.")
    translator.languages.check(None, to or None)
    asks = tag(to) if known and to else ""
    read = [_side(translator.source, line, n, translator, "source", asks) for n, line in enumerate(sources, 1)]
    written = [_side(translator.target, line, n, translator, "target") for n, line in enumerate(targets, 1)]
    found = [[np.zeros((t.count, s.count), np.float32)] * len(ways) for s, t in zip(read, written, strict=True)]
    order = [i for i in range(len(read)) if read[i].ids and written[i].ids]
    order.sort(key=lambda i: (len(written[i].ids), len(read[i].ids), i), reverse=True)
    model = translator.engine.forcing("auto")  # so that a pair's weights do not depend on its neighbours
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        ids = [read[i].ids for i in batch], [written[i].ids for i in batch]
        made = forced(model, *ids, attention=True, scores=False, batch_size=batch_size)
        for i, one in zip(batch, made, strict=True):
            found[i] = [_of_words(_of_tokens(layers_of(one), way), read[i], written[i]) for way in ways]
    return found


def _of_tokens(attention: Sequence[Weights], readings: Sequence[Reading]) -> Weights:
    """Each layer's weights (H, T + 1, S + 1) -> (T, S): the row of each target token, the mean over the readings."""
    each = [steps_of(attention, reading.rule, reading.layer, reading.head) for reading in readings]
    return np.asarray(np.stack(each).mean(axis=0), dtype=np.float32)


def _of_words(weights: Weights, read: _Read, written: _Read) -> Weights:
    """(T, S) -> (N, M): the sum over a source word's tokens, the mean over a target word's."""
    sources = np.zeros((len(read.ids), read.count), np.float32)
    spoken = [token for token, word in enumerate(read.words) if word >= 0]
    sources[spoken, [read.words[token] for token in spoken]] = 1
    targets = np.zeros((written.count, len(written.ids)), np.float32)
    targets[written.words, np.arange(len(written.ids))] = 1
    targets /= np.maximum(targets.sum(axis=1, keepdims=True), 1)
    return np.asarray(targets @ weights @ sources, dtype=np.float32)


def _choices(weights: Weights, share: bool) -> tuple[Links, Links]:
    """(N, M) -> each target word with the source word it looks at most, and each source word with its target word."""
    if not weights.size:
        return frozenset(), frozenset()
    if share:
        weights = weights / np.maximum(weights.sum(axis=0), np.finfo(weights.dtype).tiny)
    sources, targets = weights.argmax(axis=1), weights.argmax(axis=0)
    return frozenset((int(i), j) for j, i in enumerate(sources)), frozenset((i, int(j)) for i, j in enumerate(targets))


def _turned(links: Sequence[Links]) -> list[Links]:
    return [frozenset((i, j) for j, i in each) for each in links]


def _side(tokenizer: Tokenizer, line: str, number: int, translator: Translator, side: str, asks: str = "") -> _Read:
    """A line as the model reads it, with the word of each token."""
    check_line(line, f"{side} line {number}")
    # U+2581 and its escape would move what comes behind; to an alignment they are a character like another.
    plain = line.replace("\u2581", "_").replace("\U000f2581", "_")
    if tokenizer.normalization != "identity":
        form: Literal["NFC", "NFKC"] = "NFC" if tokenizer.normalization == "nfc" else "NFKC"
        plain = " ".join("".join(unicodedata.normalize(form, word).split()) or "_" for word in plain.split())
    # Of each character the word it stands in, a space's being the next.
    text, owners, count = asks, [-1] * len(asks), 0
    for count, found in enumerate(_WORD.finditer(plain), start=1):
        word = found.group()
        if text and (text == asks or not (unspaced(text[-1]) or unspaced(word[0]))):
            word = f" {word}"
        text += word
        owners += [count - 1] * len(word)
    ids = tokenizer.encode(text) if count else []
    check_length(ids, translator.limit, f"{side} line {number}")
    # A token may begin with the space before its word, or (Chinese) run over two words: its last character decides.
    of_words = [owners[max(min(end, len(owners)) - 1, 0)] for _, end in tokenizer.spans(text)] if count else []
    return _Read(ids, of_words, count)


def _check(sources: Sequence[str], targets: Sequence[str], symmetry: str) -> None:
    check_counts(sources, targets, "target")
    if symmetry not in SYMMETRIES:
        raise ModelError(f"symmetry is {symmetry!r}; choose one of {', '.join(SYMMETRIES)}.")


def _check_reading(reading: Reading, translator: Translator) -> None:
    layers, heads = FAMILIES[translator.recipe.model.family].cross_attention(translator.recipe.model)
    if reading.rule not in get_args(Rule):
        raise ModelError(f"rule is {reading.rule!r}; choose input or output.")
    for name, value, most in (("layer", reading.layer, layers), ("head", reading.head, heads)):
        if not 0 <= value <= most:
            raise ModelError(f"{name} is {value}; this model has {name}s 1 to {most}, and 0 stands for their mean.")
