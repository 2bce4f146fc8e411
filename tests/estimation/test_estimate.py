"""Quality without a reference: better translations get better figures, and an estimator learns the judges' own."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.apps.cli import main
from regard.errors import DataError, ModelError, TextError
from regard.estimation import Estimator, agreement, estimate, learn_estimator

REVERSER = Path(__file__).resolve().parents[1] / "bundle" / "made-by-0.1" / "transformer"


@pytest.fixture(scope="module")
def pairs() -> tuple[list[str], list[str], list[float]]:
    """Lines, translations of which some letters are wrong, and the share of those."""
    draw, lines, made, wrong = random.Random(5), [], [], []
    good = regard.load(REVERSER)
    for number in range(120):
        lines.append(" ".join(draw.choices("abcdefgh", k=draw.randint(3, 9))))
        letters = list(good.translate([lines[-1]])[0].text)
        spoilt = [i for i in range(len(letters)) if draw.random() < (number % 4) / 6]
        for i in spoilt:
            letters[i] = draw.choice([x for x in "ABCDEFGH" if x != letters[i]])
        made.append("".join(letters))
        wrong.append(len(spoilt) / len(letters))
    return lines, made, wrong


def test_what_is_likely_is_thought_good(pairs: tuple[list[str], list[str], list[float]]) -> None:
    lines, made, wrong = pairs
    found = regard.estimate(REVERSER, lines, made)
    assert all(0 < value <= 1 for value in found)
    assert agreement(found, wrong).spearman < -0.8
    one = regard.score_lines(regard.load(REVERSER), lines[:1], made[:1])[0]
    assert found[0] == pytest.approx(np.exp(one.log_probability / len(one.tokens)))


def test_an_estimator_gives_the_judges_figure_and_better(
    pairs: tuple[list[str], list[str], list[float]], tmp_path: Path
) -> None:
    lines, made, wrong = pairs
    learnt = learn_estimator(REVERSER, lines[:80], made[:80], wrong[:80], reverse=REVERSER)
    kept = Estimator.read(learnt.write(tmp_path / "estimator.json"))
    assert kept == learnt
    found = estimate(REVERSER, lines[80:], made[80:], estimator=kept, reverse=REVERSER)
    agreed = agreement(found, wrong[80:], same_scale=True)
    assert agreed.pearson > 0.9
    assert agreed.error is not None
    assert agreed.error < 0.1
    assert learnt.pearson == pytest.approx(agreed.pearson, abs=0.1), "what cross-validation promised"
    alone = learn_estimator(REVERSER, lines, made, wrong)
    assert (len(alone.names), len(learnt.names)) == (8, 12)
    both = estimate(REVERSER, lines[:3], made[:3], reverse=REVERSER)
    assert all(0 < value <= 1 for value in both)


def test_a_ridge_is_least_squares_with_its_penalty(pairs: tuple[list[str], list[str], list[float]]) -> None:
    """Held against the normal equations with rows added for the penalty."""
    from regard.estimation.estimate import _ridge

    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(40, 3)) * [1, 10, 0.1], draw.normal(size=40)
    *_, weights, bias = _ridge(x, y, 7.0)
    z = (x - x.mean(0)) / x.std(0)
    rows = np.vstack([z, np.sqrt(7.0) * np.eye(3)])
    wanted, *_ = np.linalg.lstsq(rows, np.concatenate([y - y.mean(), np.zeros(3)]), rcond=None)
    np.testing.assert_allclose(weights, wanted, atol=1e-12)
    assert bias == pytest.approx(y.mean())


def test_the_command(pairs: tuple[list[str], list[str], list[float]], tmp_path: Path, capsys) -> None:
    lines, made, wrong = pairs
    for name, values in (("source", lines), ("made", made), ("hter", [str(x) for x in wrong])):
        (tmp_path / name).write_text("".join(f"{value}\n" for value in values), "utf-8")
    source, translation, hter = (str(tmp_path / name) for name in ("source", "made", "hter"))
    command = ["estimate", str(REVERSER), source, translation]
    kept = str(tmp_path / "estimator.json")
    assert main([*command, "--learn", hter, "--out", kept]) == 0
    assert "Pearson 0.9" in capsys.readouterr().err
    assert main([*command, "--estimator", kept, "--gold", hter]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 120
    assert "120 lines: Pearson 0.9" in told.err
    assert main([*command, "--gold", hter, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agreement"]["spearman"] < -0.8
    assert found["agreement"]["error"] is None
    assert found["estimates"] == pytest.approx(estimate(REVERSER, lines, made))
    for wrong_words, says in (
        (["--learn", hter], "--out"),
        (["--learn", hter, "--out", kept, "--gold", hter], "without --estimator"),
        (["--estimator", kept, "--reverse", str(REVERSER)], "another bundle"),
        (["--estimator", str(tmp_path / "nowhere")], "no such estimator"),
        (["--estimator", source], "is no estimator"),
        (["--gold", source], "is no number"),
        (["--learn", hter, "--out", str(tmp_path)], "is a directory"),
    ):
        assert main([*command, *wrong_words]) == 2
        assert says in " ".join(capsys.readouterr().err.split())


def test_what_cannot_be_learnt_or_compared(pairs: tuple[list[str], list[str], list[float]], tmp_path: Path) -> None:
    lines, made, wrong = pairs
    with pytest.raises(DataError, match="at least 20"):
        learn_estimator(REVERSER, lines[:19], made[:19], wrong[:19])
    with pytest.raises(DataError, match="all alike"):
        learn_estimator(REVERSER, lines[:30], made[:30], [0.5] * 30)
    with pytest.raises(TextError, match="judgement lines"):
        learn_estimator(REVERSER, lines[:30], made[:30], wrong)
    with pytest.raises(TextError, match="translation lines"):
        estimate(REVERSER, lines, made[:3])
    with pytest.raises(TextError, match="no line"):
        estimate(REVERSER, [], [])
    learnt = learn_estimator(REVERSER, lines[:30], made[:30], wrong[:30]).model_dump()
    for change in ({"weights": [0.0]}, {"scales": [0.0] * 8}, {"bias": float("nan")}, {"names": ["mean"]}, {"more": 1}):
        (tmp_path / "changed.json").write_text(json.dumps({**learnt, **change}))
        with pytest.raises(ModelError, match="is no estimator"):
            Estimator.read(tmp_path / "changed.json")
