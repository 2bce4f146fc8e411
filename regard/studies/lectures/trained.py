"""The lectures' figures that need a trained model: each reads lines of text with a bundle and shades words.

What is shaded says how much of each word was mixed in, and not why the model wrote what it wrote (Jain and Wallace
2019; Wiegreffe and Pinter 2019).

Sizes: L layers, H heads, Q words of a question, P of a passage, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError
from regard.explore.look import Part, look
from regard.language.open import Pipeline, open_bundle
from regard.models.blocks import device_of
from regard.models.interface import EncoderDecoder
from regard.nn.attention import ScaledDot, attend
from regard.pictures import Word
from regard.tasks.details import shares_of
from regard.tasks.forced import hidden_of, logits_of
from regard.tasks.lines import pad
from regard.tasks.translate import Translator
from regard.text.lines import tag
from regard.text.sentences import words

from .page import Value

_TOP = 3
PAIRS = (
    ("The {dog} did not eat the {bread} because it was", "tired", "dry"),
    ("The {cat} did not enter the {house} because it was", "afraid", "dark"),
    ("The {horse} did not pull the {car} because it was", "weak", "broken"),
    ("The {bird} did not leave the {tree} because it was", "sick", "beautiful"),
    ("The {bear} did not open the {door} because it was", "lazy", "closed"),
    ("The {ship} did not cross the {river} because it was", "damaged", "frozen"),
    ("The {wolf} did not climb the {mountain} because it was", "hungry", "steep"),
    ("The {monkey} did not read the {book} because it was", "stupid", "boring"),
    ("The {fish} did not touch the {stone} because it was", "afraid", "hot"),
    ("The {mouse} did not open the {box} because it was", "small", "heavy"),
)
"""Sentences in which the last word says what "it" is: by the first the first noun, by the second the second."""


@dataclass(frozen=True)
class Shown:
    """What a trained model does with a lecture's lines: numbers, and lines of shaded words to draw."""

    numbers: Mapping[str, Value]
    lines: tuple[tuple[Word, ...], ...]
    aligned: bool = True
    """Words of one position stand under each other."""


def _decimals(share: float) -> str:
    return f"{share:.3f}"


def _for(line: str, to: str | None) -> str:
    """The line with the tag of the language that is asked for, if one is."""
    return line if to is None else f"{tag(to)} {line}"


def _plain(token: str) -> str:
    """A token without the mark of a space before it."""
    return token.removeprefix("\u2581") or "\u2423"


def _looked(part: Part, matrix: NDArray[np.float32]) -> dict[str, Value]:
    """Of each row the column with the largest weight."""
    return {
        f"{n} {name}": f"{part.columns.names[int(row.argmax())]} ({_decimals(float(row.max()))})"
        for n, (name, row) in enumerate(zip(part.rows.names, matrix, strict=True), start=1)
    }


def _grid(part: Part, matrix: NDArray[np.float32]) -> tuple[tuple[Word, ...], ...]:
    """A row for each that looks, under the names of what is looked at."""
    head = (Word(""), *map(Word, part.columns.names))
    rows = zip(part.rows.names, matrix.tolist(), strict=True)
    return (head, *((Word(name, now=True), *(Word("", min(w, 1.0)) for w in row)) for name, row in rows))


def looks(bundle: str | Path | Pipeline, lines: Sequence[str], to: str | None = None) -> Shown:
    """What each token of a line looks at, in the last layer, the mean of its heads.

    Of a translator: what each token of its own translation looks at in the line. Of a language model: what each token
    looks at among those before, as in Cheng et al. 2016, Figure 1; of a masked one: in the whole line.
    """
    found = look(bundle, _for(lines[0], to))
    part = found.part()
    matrix = part.matrix(len(part.weights))
    numbers: dict[str, Value] = {"translation": found.target} if part.name == "cross" else {}
    return Shown(numbers | _looked(part, matrix), _grid(part, matrix))


def decoding_steps(
    bundle: str | Path | Pipeline, lines: Sequence[str] = ("Je suis étudiant", "I am a student"), to: str | None = None
) -> Shown:
    """A line translated greedily, step by step: what is written so far, where the step looks in the source (the mean
    of all layers and heads), and the three likeliest next tokens, that which is written in bold. Under it the same of a
    second line, which the model is made to write.
    """
    opened = open_bundle(bundle, ["encoder-decoder"])
    translator = Translator(cast(EncoderDecoder, opened.model), opened.recipe, opened.source, opened.target)
    line = _for(lines[0], to)
    best = translator.translate([line], beam=1)[0].hypotheses[0]
    numbers, shown = _steps(translator, line, list(best.ids), look(opened, line, beam=1).part("cross"))
    numbers = {"translation": best.text} | _of_bundle(opened) | numbers
    for target in lines[1:]:
        ids = opened.target.encode(target)
        more, steps = _steps(translator, line, ids, look(opened, line, target=target).part("cross"))
        numbers |= {f"made to write {target!r}, {name}": value for name, value in more.items()}
        shown += ((Word(""),), *steps)
    return Shown(numbers, shown)


@torch.inference_mode()
def _steps(
    translator: Translator, line: str, written: Sequence[int], cross: Part
) -> tuple[dict[str, Value], tuple[tuple[Word, ...], ...]]:
    """The numbers and the shaded line of each step that writes these ids, and looks as `cross` says."""
    model, target, source = translator.engine.model_for("exact"), translator.target, cross.columns.names
    hidden, wanted = hidden_of(model, translator.encode([line]), [written])
    count = len(cross.rows.names)  # the end among them, unless the length limit cut it off
    likely = torch.cat(list(logits_of(model, hidden[0, :count]))).softmax(-1)  # (T, V)
    so_far = list(accumulate(target.tokens(written), lambda a, b: a + b, initial=""))
    head = (Word("so far"), *map(Word, source), Word(""), Word("next"), *[Word("")] * (_TOP - 1))
    numbers: dict[str, Value] = {"log-probability": float(likely.gather(1, wanted[0, :count, None]).log().sum())}
    steps = [head]
    for step, (row, all_, token) in enumerate(zip(cross.matrix().tolist(), likely, wanted[0].tolist(), strict=False)):
        values, best = (found.tolist() for found in all_.topk(_TOP))
        names = target.tokens(best)
        top = [Word(name, p, one == token, _decimals(p)) for name, p, one in zip(names, values, best, strict=True)]
        begun = so_far[step].replace("\u2581", " ").strip() or "<s>"
        steps.append((Word(begun), *(Word("", weight) for weight in row), Word(""), *top))
        looked = max(range(len(row)), key=row.__getitem__)
        said = [f"{_plain(word.text)} {word.note}" for word in top]
        numbers[f"step {step + 1}"] = f"{', '.join(said)}; looks at {_plain(source[looked])} {row[looked]:.3f}"
    return numbers, tuple(steps)


def _of_bundle(opened: Pipeline) -> dict[str, Value]:
    """Which model it is that figures are of."""
    if opened.bundle is None:
        return {}
    digest = str(opened.bundle.files["weights.safetensors"].sha256)
    return {"model": opened.bundle.name, "SHA-256 of its weights": digest[:16]}


def looking_back(
    bundle: str | Path | Pipeline,
    lines: Sequence[str] = ("the fbi is chasing a criminal on the run",),
    to: str | None = None,
) -> Shown:
    """Of each word of a line, how much it looks at each before it: Figure 1 of Cheng et al. 2016, of a language model
    that has read the line so far (the last layer, the mean of its heads).
    """
    opened = open_bundle(bundle, ["language-model"])
    found = look(opened, _for(lines[0], to)).words()
    part = found.part("decoder")
    matrix = part.matrix(len(part.weights))
    names = part.rows.names
    numbers = _of_bundle(opened)
    unknown = [name for name in names[1:] if opened.source.unknown_count(opened.source.encode(name))]
    numbers["words that it does not know"] = ", ".join(unknown) or "none"
    numbers["mean weight of the word just before, from the second on"] = float(np.mean(np.diagonal(matrix, -1)[1:]))
    shaded = []
    for position, row in enumerate(matrix.tolist()):
        if position:  # the first is what begins a line, and can look at nothing
            before = [Word(name, weight) for name, weight in zip(names, row[:position], strict=False)]
            rest = [Word("")] * (len(names) - position - 1)
            shaded.append((*before, Word(names[position], row[position], now=True), *rest))
            looked = max(range(position), key=row.__getitem__)
            numbers[f"{position} {names[position]}"] = f"{names[looked]} ({_decimals(row[looked])})"
    return Shown(numbers, tuple(shaded))


def _pronoun(opened: Pipeline, line: str, nouns: Sequence[str]) -> tuple[Part, NDArray[np.float64], list[int]]:
    """The encoder's attention between words, what "it" looks at (L, H, S), and the positions of the nouns."""
    part = look(opened, line).words().part("encoder")
    names = list(part.rows.names)
    missing = [word for word in ("it", *nouns) if word not in names]
    if missing:
        raise DataError(f"{line!r} has no {missing[0]!r}; the lines need 'it' and the nouns {' and '.join(nouns)}.")
    return part, part.weights[:, :, names.index("it")].astype(np.float64), [names.index(noun) for noun in nouns]


def pronoun(
    bundle: str | Path | Pipeline,
    lines: Sequence[str] = (
        "The animal didn't cross the street because it was too tired.",
        "The animal didn't cross the street because it was too wide.",
    ),
    to: str | None = None,
) -> Shown:
    """What "it" looks at in an encoder, when the last word says that it is the animal and when it says the street.

    The head is not chosen on these sentences but on ten other pairs (`PAIRS`): the one whose preference of the first
    noun over the second changes most, on average, in the right direction with the last word.
    """
    opened = open_bundle(bundle, ["encoder-decoder", "reader"])
    changes = []
    for sentence, *ends in PAIRS:
        nouns = [word.partition("}")[0] for word in sentence.split("{")[1:]]
        plain = sentence.replace("{", "").replace("}", "")
        prefers = []
        for end in ends:
            _, weights, (one, other) = _pronoun(opened, _for(f"{plain} too {end}.", to), nouns)
            prefers.append(weights[:, :, one] - weights[:, :, other])
        changes.append(prefers[0] - prefers[1])
    change = np.stack(changes)  # (pairs, L, H)
    layer, head = map(int, np.unravel_index(change.mean(0).argmax(), change.shape[1:]))
    heads = change[0].size
    right = (change > 0).sum(0)
    numbers = _of_bundle(opened) | {
        "heads": heads,
        "chosen on ten other pairs: layer, head": f"{layer + 1}, {head + 1}",
        "its mean change of preference there": float(change[:, layer, head].mean()),
        "pairs of ten that it moves the right way": int(right[layer, head]),
        "the same of the best head": int(right.max()),
        "expected of the best of as many heads that toss a coin": _best_of_coins(len(PAIRS), heads),
    }
    shaded = []
    for line in (_for(each, to) for each in lines):
        part, weights, (one, other) = _pronoun(opened, line, ("animal", "street"))
        names, row = part.rows.names, weights[layer, head].tolist()
        shaded.append(tuple(Word(name, w, name == "it") for name, w in zip(names, row, strict=True)))
        numbers[f"{names[-3]}: of it on animal, on street"] = [row[one], row[other]]
        numbers[f"{names[-3]}: the same, mean of all heads"] = weights.mean((0, 1))[[one, other]].tolist()
        if opened.recipe.model.family == "transformer":
            numbers[f"{names[-3]}: translation"] = look(opened, line).target
    return Shown(numbers, tuple(shaded))


def _best_of_coins(tosses: int, coins: int) -> float:
    """The mean of the most heads that any of some coins shows."""
    at_most = accumulate(math.comb(tosses, heads) / 2**tosses for heads in range(tosses))
    return float(tosses - sum(share**coins for share in at_most))


_QUESTION = (
    "How did some suspect that Polo learned about China instead of by actually visiting it?",
    "Travellers from Europe reached China in those years and came back.",
    "The best known was Marco Polo of Venice, who told of the city of the Great Khan.",
    "His book appeared about 1299 and was read all over Europe.",
    "It says nothing of the Great Wall or of tea houses, so some doubt him.",
    "Some suggest that he gained much of his knowledge through contact with Persian traders.",
    "Many of the places in the book have Persian names.",
)
"""The question of the lecture (from SQuAD), and its passage in other words, a sentence a line; the fifth answers it."""


@torch.inference_mode()
def question(bundle: str | Path | Pipeline, lines: Sequence[str] = _QUESTION, to: str | None = None) -> Shown:
    """A question's words look at a passage: softmax(Q Kᵀ / √D) over all words of the passage, queries and keys being
    the encoder's last states, and the mean over the question's words. No answer is taken out of it.
    """
    opened = open_bundle(bundle, ["encoder-decoder", "reader"])
    asked, *sentences = (_for(line, to) for line in lines)
    if not sentences:
        raise DataError("a question needs a passage: give its sentences, each by a --line of its own, after it.")
    queries, asking = _states(opened, asked)
    read = [_states(opened, sentence) for sentence in sentences]
    keys = torch.cat([states for states, _ in read])  # (P, D)
    score = ScaledDot(keys.shape[-1])
    _, weights = attend(score.queries(queries), score.keys(keys), keys, score.compare)  # (Q, P)
    names = [name for _, sentence in read for name in sentence]
    each = weights.mean(0).split([len(sentence) for _, sentence in read])
    numbers = _of_bundle(opened)
    numbers |= {
        f"{n} {name}": names[int(row.argmax())] for n, (name, row) in enumerate(zip(asking, weights, strict=True), 1)
    }
    for n, (sentence, part) in enumerate(zip(read, each, strict=True), start=1):
        numbers[f"sentence {n}: of the weight, of the words"] = [float(part.sum()), len(sentence[1]) / len(names)]
    most = float(weights.mean(0).max())
    shaded = [
        tuple(Word(name, share / most) for name, share in zip(sentence, part.tolist(), strict=True))
        for (_, sentence), part in zip(read, each, strict=True)
    ]
    return Shown(numbers, (tuple(Word(name, now=True) for name in asking), *shaded), aligned=False)


def _states(opened: Pipeline, line: str) -> tuple[Tensor, list[str]]:
    """The encoder's last states, a word each (the mean over its tokens), and the words."""
    ids = opened.encode(line)
    spans = words(line)
    shares = torch.from_numpy(shares_of(opened.source.spans(line), spans))  # (tokens, words)
    model = cast(EncoderDecoder, opened.model_for())
    tokens, layout = pad([ids], device_of(model))
    states = model.encode(tokens, layout)[0].double()
    return (shares / shares.sum(0)).T @ states, [line[start:stop] for start, stop in spans]


_MEMORIAL = (
    "先帝创业未半而中道崩殂，今天下三分，益州疲弊，此诚危急存亡之秋也。",
    "然侍卫之臣不懈于内，忠志之士忘身于外者，盖追先帝之殊遇，欲报之于陛下也。",
    "诚宜开张圣听，以光先帝遗德，恢弘志士之气，不宜妄自菲薄，引喻失义，以塞忠谏之路也。",
)


def memorial(bundle: str | Path | Pipeline, lines: Sequence[str] = _MEMORIAL, to: str | None = None) -> Shown:
    """The opening of Zhuge Liang's 出师表 in the Chinese of today, and where each character of the first line's
    translation looks (the mean of all layers and heads): grey of a cell, weight, as in Figure 3 of Bahdanau et al.
    """
    opened = open_bundle(bundle, ["encoder-decoder"])
    numbers = _of_bundle(opened)
    found = [look(opened, _for(line, to)) for line in lines]
    numbers |= {line: one.target for line, one in zip(lines, found, strict=True)}
    cross = found[0].part("cross")
    return Shown(numbers, _grid(cross, cross.matrix()))


def alignment(
    bundle: str | Path | Pipeline,
    lines: Sequence[str] = ("I love natural language processing.", "我爱自然语言处理。"),
    to: str | None = None,
) -> Shown:
    """Where each token of a translation looks in the line (the mean of all layers and heads): of the second line, which
    the model is made to write, and else of its own translation. The numbers have the model's own, too.
    """
    opened = open_bundle(bundle, ["encoder-decoder"])
    line = _for(lines[0], to)
    found = look(opened, line)
    numbers = _of_bundle(opened) | {"translation": found.target}
    cross = (look(opened, line, target=lines[1]) if len(lines) > 1 else found).part("cross")
    return Shown(numbers | _looked(cross, cross.matrix()), _grid(cross, cross.matrix()))


TRAINED: dict[str, Callable[..., Shown]] = {
    "decoding-steps": decoding_steps,
    "looking-back": looking_back,
    "pronoun": pronoun,
    "question": question,
    "memorial": memorial,
    "alignment": alignment,
}
"""Every lecture that needs a bundle, by name, in the order in which they are given."""


def trained(name: str, bundle: str | Path, lines: Sequence[str] = (), to: str | None = None) -> Shown:
    """The named lecture with a bundle, on its own lines or on these; `to` is the target language of one with several.

    Raises DataError for a name that there is not.
    """
    if name not in TRAINED:
        raise DataError(f"there is no lecture {name!r} of a trained model; there are {', '.join(TRAINED)}.")
    return TRAINED[name](bundle, lines, to) if lines else TRAINED[name](bundle, to=to)
