"""Measures of sequences: BLEU, ROUGE and perplexity as the lecture defines them, and as they are reported here.

The lecture's forms differ from those that figures are compared in, so each is computed and named apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from regard.metrics import bleu, perplexity, rouge_1, rouge_2
from regard.pictures import bars, curves

from .page import Lecture

Words = Sequence[str]


def _grams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def precision(candidate: Words, references: Sequence[Words], n: int) -> tuple[int, int]:
    """P_n as a fraction: n-grams of the candidate that some reference holds as often, and all (equation 15.39)."""
    found = _grams(candidate, n)
    held = [_grams(reference, n) for reference in references]
    return sum(min(count, max(r[g] for r in held)) for g, count in found.items()), found.total()


def lecture_bleu(candidate: Words, references: Sequence[Words], longest: int = 4) -> float:
    """b · exp(Σ 1/N · log P_n), with the shortest reference's length and no smoothing (equation 15.41); 0 to 1."""
    shares = [precision(candidate, references, n) for n in range(1, longest + 1)]
    if not all(right for right, _ in shares):
        return 0.0
    shortest = min(len(reference) for reference in references)
    brevity = 1.0 if len(candidate) > shortest else math.exp(1 - shortest / len(candidate))
    return brevity * math.exp(sum(math.log(right / total) for right, total in shares) / longest)


def lecture_rouge(candidate: Words, references: Sequence[Words], n: int) -> float:
    """Recall of n-grams, summed over the references above and below the bar (equation 15.42)."""
    found = _grams(candidate, n)
    held = [_grams(reference, n) for reference in references]
    right = sum(min(found[g], count) for r in held for g, count in r.items())
    return right / sum(r.total() for r in held)


def bleu_() -> Lecture:
    """ABBCD beside ABCDEF: p1 = 4/5, p2 = 3/4, p3 = 1/3, p4 = 0; so BLEU-4 is 0, unless it is smoothed."""
    label, guess = list("ABCDEF"), list("ABBCD")
    shares = [precision(guess, [label], n) for n in range(1, 5)]
    ours = bleu([" ".join(guess)], [" ".join(label)], resamples=0)
    short, long = list("ABCD"), list("ABCDEFG")
    two = [[" ".join(short)], [" ".join(long)]]
    six = list("ABCDEF")
    return Lecture(
        {f"p{n}": f"{right}/{total}" for n, (right, total) in enumerate(shares, start=1)}
        | {
            "brevity": math.exp(1 - len(label) / len(guess)),
            "BLEU-4 of the lecture": lecture_bleu(guess, [label]),
            "BLEU-3 of the lecture": lecture_bleu(guess, [label], 3),
            "BLEU of sacrebleu, smoothed, of 100": ours.value,
            "its signature": ours.signature,
            "two references of 4 and 7, six words: of the lecture": lecture_bleu(six, [short, long]),
            "the same by sacrebleu, of 100": bleu([" ".join(six)], two, resamples=0).value,
        },
        (
            bars(
                "Precision of n-grams",
                ["1", "2", "3", "4"],
                {"the lecture": [r / t for r, t in shares], "sacrebleu": [p / 100 for p in ours.detail["precisions"]]},
            ),
        ),
    )


def rouge_() -> Lecture:
    """ROUGE-N is recall; the lecture sums over references, rouge-score takes the best reference's F1."""
    guess, references = list("ABBCD"), [list("ABCDEF"), list("ABX")]
    lines = [[" ".join(reference)] for reference in references]
    standard = [metric([" ".join(guess)], lines, resamples=0).value for metric in (rouge_1, rouge_2)]
    mine = [lecture_rouge(guess, references, n) for n in (1, 2)]
    single = [lecture_rouge(guess, references[:1], n) for n in (1, 2)]
    return Lecture(
        {
            "ROUGE-1 and -2 of the lecture, two references": mine,
            "the same, one reference": single,
            "F1 of rouge-score, best reference": standard,
        },
        (
            bars(
                "ROUGE-N",
                ["1", "2"],
                {
                    "lecture, summed": mine,
                    "lecture, one reference": single,
                    "rouge-score, F1 of the best": [value / 100 for value in standard],
                },
            ),
        ),
    )


def perplexity_() -> Lecture:
    """Three forms of one number: 2 to the mean of -log2 p, e to that of -ln p, the inverse of the geometric mean."""
    words = [[0.5, 0.25, 0.5], [0.125, 0.5]]  # p of each word of two sequences
    flat = [p for sequence in words for p in sequence]
    sequences = [math.prod(sequence) for sequence in words]
    total = len(flat)
    of_sequences = 2 ** (-sum(math.log2(p) for p in sequences) / total)
    of_words = 2 ** (-sum(math.log2(p) for p in flat) / total)
    product = math.prod(flat) ** (-1 / total)
    ours = perplexity(sum(math.log(p) for p in flat), total, "word").value
    natural = 2 ** (-sum(math.log(p) for p in flat) / total)
    shares = [n / 100 for n in range(1, 101)]
    return Lecture(
        {
            "by sequences (15.36)": of_sequences,
            "by words (15.37)": of_words,
            "by the product (15.38)": product,
            "Regard's": ours,
            "2 to the mean of natural logarithms, which is another number": natural,
        },
        (
            curves(
                "Perplexity of a constant probability",
                shares,
                {"perplexity": [perplexity(math.log(p), 1).value for p in shares]},
                x="probability of each word",
                logarithmic="y",
            ),
        ),
    )
