"""The homework kit: model answers get full points, and typical wrong answers are named rightly."""

from __future__ import annotations

import re
import textwrap

import pytest
import torch

from regard.errors import DataError
from regard.studies.homework import words
from regard.studies.homework.asking import Asked, Outcome, calls_of
from regard.studies.homework.compare import same
from regard.studies.homework.exercise import LANGUAGES, Exercise, Said, chosen, edited, exercises
from regard.studies.homework.judge import Judged, judge, tried

EVERY = list(exercises().values())
WRONG = [(exercise, wrong) for exercise in EVERY for wrong in exercise.wrong]
CHINESE = re.compile("[\u4e00-\u9fff]")


def judged(exercise: Exercise, names: dict[str, object], language: str = "en") -> list[Judged]:
    """What is said of functions, asked in this process."""

    def outcome(call: Asked) -> Outcome:
        return tried(names[call.function], [dict(call.arguments)])[0]  # type: ignore[arg-type,call-overload]

    return judge(exercise, [outcome(call) for call in calls_of(exercise) if not call.by], language)


def said_of(function: str, found: list[Judged]) -> list[str]:
    """The names of what is wrong with a function."""
    return [finding.name for each in found if each.function == function for finding in each.findings]


def answer_with(exercise: str, code: str, language: str = "en") -> list[Judged]:
    """What is said of the model answers with other functions in their place."""
    names = edited(exercises()[exercise], ())
    exec(textwrap.dedent(code), names)
    return judged(exercises()[exercise], names, language)


def test_there_are_enough_exercises() -> None:
    assert 12 <= len(EVERY) <= 15
    assert [exercise.number for exercise in EVERY] == list(range(1, len(EVERY) + 1))
    assert all(exercise.points == 10 for exercise in EVERY)


@pytest.mark.parametrize("exercise", EVERY, ids=lambda exercise: exercise.name)
def test_model_answers_pass_every_check_of_their_functions(exercise: Exercise) -> None:
    for language in LANGUAGES:
        text = exercise.written(language, answered=True)
        names: dict[str, object] = {}
        exec(compile(text, exercise.file, "exec"), names)
        assert [each for each in judged(exercise, names, language) if each.points < each.of or each.findings] == []


@pytest.mark.parametrize("exercise", EVERY, ids=lambda exercise: exercise.name)
def test_blanks_are_empty_and_say_so(exercise: Exercise) -> None:
    names: dict[str, object] = {}
    text = exercise.written("en", answered=False)
    exec(compile(text, exercise.file, "exec"), names)
    assert text.count("raise NotImplementedError") == len(exercise.answers)
    found = judged(exercise, names)
    assert sum(each.points for each in found) == 0
    assert {finding.name for each in found for finding in each.findings} == {"empty"}


@pytest.mark.parametrize(("exercise", "wrong"), WRONG, ids=lambda value: value.name)
def test_a_typical_wrong_answer_is_named(exercise: Exercise, wrong) -> None:
    found = judged(exercise, edited(exercise, wrong.edits))
    assert said_of(wrong.function, found) == [wrong.name]
    texts = [finding.text for each in found if each.function == wrong.function for finding in each.findings]
    assert texts == [wrong.said.en]
    assert any(each.points < each.of and each.example for each in found if each.function == wrong.function)


@pytest.mark.parametrize("exercise", EVERY, ids=lambda exercise: exercise.name)
def test_each_exercise_names_many_wrong_answers_apart(exercise: Exercise) -> None:
    assert len(exercise.wrong) >= 4
    assert {wrong.function for wrong in exercise.wrong} == {answer.__name__ for answer in exercise.answers}
    names = [(wrong.function, wrong.name) for wrong in exercise.wrong]
    assert len({*names}) == len(names)


# -- wrong answers that are written in another way than the kit's own --------------------------------------------------

OTHERS = {
    "scores dot outer-softmax": (
        "dot",
        "softmax-already",
        "def dot(query, keys): e = (keys * query).sum(-1).exp(); return e / e.sum()",
    ),
    "scaling loops without scale": (
        "weigh",
        "no-scale",
        """
        def weigh(queries, keys):
            rows = [torch.stack([q @ k for k in keys]).softmax(0) for q in queries]
            return torch.stack(rows)
        """,
    ),
    "scaling einsum, wrong axis": (
        "weigh",
        "wrong-axis",
        """
        def weigh(queries, keys):
            e = (torch.einsum("td,sd->ts", queries, keys) * queries.shape[1] ** -0.5).exp()
            return e / e.sum(0, keepdim=True)
        """,
    ),
    "masks triu": ("causal", "true-hides", "def causal(size): return torch.ones(size, size).triu(1) == 1"),
    "masks addition of minus infinity": (
        "weigh",
        "nan-row",
        "def weigh(scores, mask): return (scores + torch.where(mask, 0.0, -torch.inf)).softmax(-1)",
    ),
    "masks large negative": (
        "weigh",
        "uniform-row",
        "def weigh(scores, mask): return torch.where(mask, scores, torch.tensor(-1e4)).softmax(-1)",
    ),
    "heads reshape": (
        "split",
        "no-transpose",
        "def split(x, heads): return x.reshape(heads, x.shape[0], x.shape[1] // heads)",
    ),
    "sinusoids loops": (
        "sinusoids",
        "exchanged",
        """
        def sinusoids(positions, width):
            table = torch.zeros(len(positions), width)
            for i in range(0, width, 2):
                table[:, i] = torch.cos(positions / 10000 ** (i / width))
                table[:, i + 1] = torch.sin(positions / 10000 ** (i / width))
            return table
        """,
    ),
    "rotary by complex numbers, backwards": (
        "rotate",
        "backwards",
        """
        def rotate(x, positions):
            speeds = 10000.0 ** (-torch.arange(0, x.shape[1], 2) / x.shape[1])
            turns = torch.polar(torch.ones(len(x), len(speeds)), -positions[:, None] * speeds)
            return torch.view_as_real(torch.view_as_complex(x.view(len(x), -1, 2)) * turns).flatten(1)
        """,
    ),
    "rotary rotate_half": (
        "rotate",
        "halves",
        """
        def rotate(x, positions):
            half = x.shape[1] // 2
            angles = positions[:, None] * 10000.0 ** (-torch.arange(half) / half)
            angles = torch.cat((angles, angles), -1)
            return x * angles.cos() + torch.cat((-x[:, half:], x[:, :half]), -1) * angles.sin()
        """,
    ),
    "lstm PyTorch's cell with other gates": (
        "step",
        "forget-input",
        """
        def step(x, hidden, cell, w, u, b):
            f, i, g, o = torch.split(torch.addmv(torch.addmv(b, w, x), u, hidden), len(cell))
            cell = f.sigmoid().mul(cell).add(i.sigmoid().mul(g.tanh()))
            return o.sigmoid().mul(cell.tanh()), cell
        """,
    ),
    "bahdanau no mask": (
        "align",
        "padding-weight",
        "def align(state, annotations, length, w, u, v):\n"
        "    return torch.stack([v @ (w @ state + u @ h).tanh() for h in annotations]).softmax(0)",
    ),
    "luong sigma": (
        "local_weights",
        "wide-gauss",
        """
        def local_weights(scores, centre, window):
            found = torch.zeros(len(scores))
            inside = [j for j in range(len(scores)) if abs(j - centre) <= window]
            for j, weight in zip(inside, scores[inside].softmax(0)):
                found[j] = weight * math.exp(-((j - centre) ** 2) / (2 * window**2))
            return found
        """,
    ),
    "teaching cross-entropy of PyTorch": (
        "smoothed_loss",
        "no-smoothing",
        """
        def smoothed_loss(logits, targets, smoothing):
            return torch.nn.functional.cross_entropy(logits, targets.clamp(min=-1), ignore_index=-1, reduction="sum")
        """,
    ),
    "beam multiplied penalty": (
        "score",
        "wrong-way",
        "def score(log_probability, length, alpha): return log_probability * length ** alpha",
    ),
    "bleu sets": (
        "precision",
        "not-clipped",
        """
        def precision(candidate, references, n):
            own = [tuple(candidate[i:i + n]) for i in range(len(candidate) - n + 1)]
            known = {tuple(r[i:i + n]) for r in references for i in range(len(r) - n + 1)}
            return sum(gram in known for gram in own) / len(own) if own else 0.0
        """,
    ),
    "bleu no penalty": (
        "bleu",
        "no-brevity",
        """
        def bleu(candidate, references, longest):
            product = math.prod(precision(candidate, references, n) for n in range(1, longest + 1))
            return product ** (1 / longest)
        """,
    ),
    "rouge precision": (
        "rouge",
        "precision",
        """
        def rouge(candidate, references, n):
            own = grams(candidate, n)
            right = sum(sum((own & grams(r, n)).values()) for r in references)
            return right / (sum(own.values()) or 1)
        """,
    ),
    "transformer without scale": (
        "attend",
        "no-scale",
        """
        def attend(queries, keys, values, mask):
            return torch.nn.functional.scaled_dot_product_attention(
                queries, keys, values, mask if mask is None else mask, scale=1.0).nan_to_num(0.0)
        """,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_wrong_answers_in_other_words_are_named_too(name: str) -> None:
    function, wrong, code = OTHERS[name]
    assert said_of(function, answer_with(name.split()[0], code)) == [wrong]


def test_pytorchs_own_attention_is_right() -> None:
    """Right answers in other words get their points: rows without anything to see are zeros, not NaN."""
    code = """
    def attend(queries, keys, values, mask):
        found = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask)
        return found.nan_to_num(0.0)
    """
    assert all(each.points == each.of for each in answer_with("transformer", code))


def test_two_mistakes_together_are_both_named() -> None:
    found = answer_with("scaling", "def weigh(queries, keys): return (queries @ keys.T).softmax(0)")
    assert sorted(said_of("weigh", found)) == ["no-scale", "wrong-axis"]
    assert all(f.text.startswith(words.BOTH.en) for each in found if each.function == "weigh" for f in each.findings)


def test_a_mistake_in_a_function_that_is_called_is_named_where_it_shows() -> None:
    found = judged(exercises()["scaling"], edited(exercises()["scaling"], ((" / math.sqrt(queries.shape[-1])", ""),)))
    assert said_of("attend", found) == ["no-scale"]


# -- laws, kinds, shapes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exercise", "function", "code", "names"),
    [
        (
            "masks",
            "causal",
            "def causal(size): return torch.ones(size, size, dtype=torch.bool).tril(1) & True",
            ["one-ahead"],
        ),
        ("masks", "causal", "def causal(size): return torch.eye(size, dtype=torch.bool).flip(0)", ["leaks-future"]),
        ("masks", "causal", "def causal(size): return torch.ones(size, size).tril()", ["dtype"]),
        ("masks", "weigh", "def weigh(scores, mask): return scores.softmax(-1) * 0.5", ["hidden-weight"]),
        ("masks", "causal", "def causal(size): pass", ["none"]),
        ("scaling", "weigh", "def weigh(queries, keys): return (queries @ keys.T / 7).relu()", ["sums"]),
        ("scaling", "attend", "def attend(queries, keys, values): return values[:1, :1]", ["shape"]),
        ("scaling", "attend", "def attend(queries, keys, values): return attend_.numpy() if 0 else [1.0]", ["kind"]),
        ("rotary", "rotate", "def rotate(x, positions): return x * 2", ["lengths", "zero"]),
        (
            "luong",
            "local_weights",
            "def local_weights(scores, centre, window): return scores.softmax(0) * 0.3",
            ["window"],
        ),
        ("buckets", "bucket", "def bucket(distance, buckets, farthest): return distance.abs() + 40", ["out-of-range"]),
        ("buckets", "bucket", "def bucket(distance, buckets, farthest): return distance.double()", ["dtype"]),
        ("rouge", "rouge", "def rouge(candidate, references, n): return 2.5", ["share"]),
        ("scores", "dot", "def dot(query, keys): return (keys @ query) / 0 * 0", ["nan"]),
    ],
)
def test_laws_speak_where_no_typical_answer_fits(exercise: str, function: str, code: str, names: list[str]) -> None:
    assert said_of(function, answer_with(exercise, code)) == names


def test_what_is_shown_is_the_smallest_case_that_fails() -> None:
    found = answer_with("masks", "def causal(size): return torch.ones(size, size, dtype=torch.bool)")
    (example,) = [each.example for each in found if each.function == "causal"]
    assert example.split("\n") == [
        "the smallest input that shows it: causal(size=2)",
        "yours: [[True, True], [True, True]]",
        "right: [[True, False], [True, True]]",
    ]


def test_results_are_compared_up_to_rounding_and_by_kind() -> None:
    half = torch.tensor([0.5])
    assert same(half, half.double() + 1e-7)
    assert not same(half, half.half())
    assert not same(half, torch.tensor([1]))
    assert not same(torch.tensor([True]), torch.tensor([1]))
    assert same(torch.tensor(2.0), 2)
    assert same(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert not same(1.7e-7, 2e-6)
    assert same((half, [1, "a"]), (half, [1.0, "a"]))
    assert not same(True, 1)


# -- texts -------------------------------------------------------------------------------------------------------------


def said(value: object) -> list[Said]:
    """Every pair of sentences in a value."""
    if isinstance(value, Said):
        return [value]
    if isinstance(value, dict):
        return [each for inner in value.values() for each in said(inner)]
    return [each for inner in value for each in said(inner)] if isinstance(value, tuple | list) else []


@pytest.mark.parametrize("exercise", EVERY, ids=lambda exercise: exercise.name)
def test_both_languages_say_the_same_things(exercise: Exercise) -> None:
    english, chinese = (exercise.texts[language] for language in LANGUAGES)
    assert english.functions.keys() == chinese.functions.keys()
    assert all(
        CHINESE.search(text)
        for text in (chinese.title, chinese.body, *chinese.functions.values())
        if text != "BLEU" and text != "ROUGE"
    )
    assert not any(CHINESE.search(text) for text in (english.title, english.body, *english.functions.values()))
    formulas = [re.findall(r"^ {4}.*$", text.body, re.MULTILINE) for text in (english, chinese)]
    assert len(formulas[0]) == len(formulas[1])
    written = [exercise.written(language, answered=False) for language in LANGUAGES]
    heads = [re.findall(r"^def .*$", text, re.MULTILINE) for text in written]
    assert heads[0] == heads[1]
    assert all(line == line.rstrip() for text in written for line in text.split("\n"))
    pairs = said([exercise.checks, exercise.wrong, exercise.laws, exercise.trained or ()])
    assert len(pairs) == len(exercise.checks) + len(exercise.wrong) + len(exercise.laws) + 2 * bool(exercise.trained)
    assert all(CHINESE.search(pair.zh) or pair.zh == pair.en for pair in pairs)
    assert not any(CHINESE.search(pair.en) for pair in pairs)
    for source in exercise.sources:
        assert 1 <= source.document <= 5


def test_the_sentences_of_the_check_have_the_same_blanks_in_both_languages() -> None:
    pairs = said([value for name, value in vars(words).items() if name.isupper()])
    assert len(pairs) > 15
    for pair in pairs:
        assert sorted(re.findall(r"\{\w+\}", pair.en)) == sorted(re.findall(r"\{\w+\}", pair.zh)), pair.en


def test_exercises_are_chosen_by_name_number_or_file() -> None:
    assert [e.name for e in chosen(["masks", "2", "01_scores.py", "hw/02_scaling"])] == ["scores", "scaling", "masks"]
    with pytest.raises(DataError, match="no exercise 'mask'"):
        chosen(["mask"])
