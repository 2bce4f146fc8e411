"""The lectures' pages in Chromium: offline, on a laptop and a phone, and their numbers equal to the library's."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from chromium import offline

from regard.nn.attention import Causal, attend, weigh
from regard.nn.attention.core import matrix
from regard.nn.attention.scores import Additive, Dot, FixedCosine, ScaledDot
from regard.nn.positions import RelativeBuckets, Sinusoidal
from regard.nn.recurrent import GRU, LSTM, Elman
from regard.search.table import penalty_of
from regard.studies.lectures import attention as lectured
from regard.studies.lectures import generation, interactive, measures, positions
from regard.studies.lectures.every import LECTURES, lecture, words
from regard.train.objectives import label_smoothed
from regard.train.step import Schedule, paper

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: pip install '.[dev]'")
_BY_WIDGET = {found.partition(":")[0]: name for name, found in reversed(words()["widget"].items()) if name in LECTURES}
MOVING = sorted(_BY_WIDGET.values())
"""A lecture of each figure that moves."""
CLOSE = 1e-6


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of each figure, one without any, and the index; the pictures inside are tested elsewhere."""
    place = tmp_path_factory.mktemp("lectures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interactive, "picture", lambda one, name: "")
        names = [*MOVING, "dropout"]
        for name in names:
            (place / f"{name}.html").write_text(interactive.page(name, lecture(name)), encoding="utf-8")
        interactive.write_index(place, names)
    return place


class Moving:
    """A page whose controls are set, and whose numbers are read in full."""

    def __init__(self, shown: Any) -> None:
        self.shown = shown

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            self.shown.evaluate(
                """([name, value]) => {
                  const control = document.querySelector(`[name="${name}"]`);
                  control[control.type === "checkbox" ? "checked" : "value"] = value;
                  ["input", "change"].forEach((name) => control.dispatchEvent(new Event(name)));
                }""",
                [name, value],
            )

    def __getitem__(self, name: str) -> Any:
        return json.loads(self.shown.locator(f'[data-name="{name}"]').get_attribute("data-value"))

    def formula(self, expression: str) -> Any:
        return self.shown.evaluate(expression)


@contextmanager
def moving(chromium: Any, pages: Path, name: str) -> Iterator[Moving]:
    with offline(chromium, pages / f"{name}.html", viewport={"width": 1280, "height": 900}) as shown:
        yield Moving(shown)


def near(found: Any, known: Any) -> None:
    values = known.tolist() if isinstance(known, torch.Tensor) else known
    assert found == pytest.approx(values, abs=CLOSE, rel=CLOSE)


def doubles(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_opens_offline_in_both_languages(chromium: Any, pages: Path, width: int, scheme: str) -> None:
    seen = set()
    for file in sorted(pages.glob("*.html")):
        with offline(chromium, file, viewport={"width": width, "height": 900}, color_scheme=scheme) as shown:
            headings = []
            for _ in range(2):
                headings += shown.locator("h1:visible").all_inner_texts()
                assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), file.name
                shown.click("#language")
            assert len(headings) == 2, file.name
            seen.add(file.stem)
            shown.click("#large")
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{file.name}, large letters"
    assert seen == {*MOVING, "dropout", "index", interactive.RECORDED}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(chromium: Any, pages: Path, scheme: str) -> None:
    for name in [*MOVING, "dropout", "index", interactive.RECORDED]:
        with offline(chromium, pages / f"{name}.html", color_scheme=scheme) as shown:
            found = axe.Axe().run(shown)
            assert found.violations_count == 0, f"{name}: {found.generate_report()}"


@pytest.mark.parametrize("kind", ["dot", "scaled", "cosine", "additive"])
def test_a_query_that_is_dragged(chromium: Any, pages: Path, kind: str) -> None:
    score = {"dot": Dot(2), "scaled": ScaledDot(2), "cosine": FixedCosine(2), "additive": Additive(2, 2)}[kind].double()
    if isinstance(score, Additive):
        with torch.no_grad():
            for name, parameter in score.named_parameters():
                parameter.copy_(torch.eye(2) if parameter.dim() == 2 and parameter.shape[0] == 2 else 1.0)
                if name.endswith("bias"):
                    parameter.zero_()
    with moving(chromium, pages, "scores") as page:
        page.set(x=-0.75, y=1.25, score=kind, temperature=0.5)
        keys = doubles(page.formula("KEYS"))
        query = doubles([[-0.75, 1.25]])
        with torch.no_grad():
            scores = score.compare(score.queries(query), score.keys(keys))[0]
        if kind == "cosine":
            scores = scores / scores.norm() * doubles(page["scores"]).norm()  # the library multiplies by a constant
            near(page["scores"], torch.cosine_similarity(query, keys, dim=-1))
        near(page["scores"], scores)
        weights = weigh(doubles(page["scores"]) / 0.5)
        near(page["weights"], weights)
        near(page["context"], weights @ keys)
        near(page["entropy"], float(-(weights * weights.log()).sum()))


def test_the_query_follows_the_pointer_and_the_keyboard(chromium: Any, pages: Path) -> None:
    with moving(chromium, pages, "scores") as page:
        box = page.shown.locator(".picture svg").bounding_box()
        before = page["scores"]
        page.shown.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.3)
        page.shown.mouse.down()
        page.shown.mouse.move(box["x"] + box["width"] * 0.15, box["y"] + box["height"] * 0.6)
        page.shown.mouse.up()
        dragged = page["scores"]
        assert dragged != before
        page.shown.focus('[name="x"]')
        page.shown.keyboard.press("ArrowRight")
        assert page["scores"] != dragged


@pytest.mark.parametrize("width", [1, 64, 512])
def test_scaling(chromium: Any, pages: Path, width: int) -> None:
    with moving(chromium, pages, "scaling") as page:
        page.set(width=width)
        raw = doubles(page.formula("DRAWN")) * math.sqrt(width)
        for name, scores in (("plain", raw), ("scaled", raw / math.sqrt(width))):
            near(page[name], weigh(scores))
        slopes = []
        for scores in (raw, raw / math.sqrt(width)):
            jacobian = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, -1), scores)
            slopes.append(float(jacobian.norm()))
        near(page["slopes"], slopes)


@pytest.mark.parametrize(("causal", "window", "padding"), [(False, 0, 0), (True, 0, 2), (True, 1, 0), (False, 2, 4)])
def test_masks(chromium: Any, pages: Path, causal: bool, window: int, padding: int) -> None:
    with moving(chromium, pages, "masks") as page:
        page.set(causal=causal, window=window, padding=padding)
        scores = doubles(page.formula("SCORES"))
        seen = torch.ones(5, 5, dtype=torch.bool)
        seen[:, 5 - padding :] = False
        if causal:
            seen &= matrix(Causal(), 1, 5, 5, torch.device("cpu")).reshape(5, 5)
        if window:
            seen &= (torch.arange(5) - torch.arange(5)[:, None]).abs() <= window
        weights = weigh(scores, seen)
        near(page["sums"], weights.sum(-1))
        near(page["first"], weights[0])
        near(page["last"], weights[4])


@pytest.mark.parametrize("power", [0, 1, 2, 3])
def test_heads(chromium: Any, pages: Path, power: int) -> None:
    with moving(chromium, pages, "heads") as page:
        page.set(heads=power)
        words_ = doubles(page.formula("LONG"))
        parts = words_.view(4, 2**power, -1).transpose(0, 1)
        score = ScaledDot(parts.shape[-1])
        weights = attend(score.queries(parts), score.keys(parts), parts, score.compare)[1]
        near(page["first"], weights[0, 0])
        near(page["last"], weights[-1, 0])


def test_the_local_window(chromium: Any, pages: Path) -> None:
    with moving(chromium, pages, "local-window") as page:
        page.set(centre=4.3, reach=2.5)
        scores = doubles([math.sin(1.7 * i) + (1.2 if i % 5 == 3 else 0) for i in range(12)])
        distance = torch.arange(12) - 3.3
        known = weigh(scores, distance.abs() <= 2.5) * (-(distance**2) / (2 * 1.25**2)).exp()
        near(page["local"], known)


def test_positions(chromium: Any, pages: Path) -> None:
    table = Sinusoidal(64, 200)(torch.arange(200), 200).double()
    with moving(chromium, pages, "sinusoids") as page:
        page.set(position=7, width=6)
        assert page["vector"] == pytest.approx(table[7, :4].tolist(), abs=1e-5)  # the library's table is float32
        products = [float(table[7] @ table[7 + k]) for k in (0, 1, 10)]
        assert page["at"] == pytest.approx(products, abs=1e-4)
        found = doubles(page.formula("formulas.sinusoid(7, 64)"))
        angles = 7 / 10000 ** (torch.arange(0, 64, 2, dtype=torch.float64) / 64)
        near(found.tolist(), torch.stack((angles.sin(), angles.cos()), -1).flatten())
    with moving(chromium, pages, "rotation") as page:
        page.set(m=11, n=4)
        query, key = doubles([1, 0.2, 0.6, 0.8]), doubles([0.9, -0.3, 0.2, 1])
        turned = [positions.rotation_matrix(p, 4) @ x for p, x in ((11, query), (4, key))]
        assert page["product"] == pytest.approx(float(turned[0] @ turned[1]), abs=1e-5)  # float32's sines
        near(page["apart"], page["product"])
    buckets = RelativeBuckets(1, 4, 4, causal=False)
    with moving(chromium, pages, "buckets") as page:
        distances = list(range(-150, 151))
        known = buckets.bucket(torch.tensor(distances)).tolist()
        assert page.formula("Array.from({length: 301}, (_, i) => formulas.bucket(i - 150))") == known
        page.set(distance=-37)
        assert page["bucket"] == known[distances.index(-37)]


def test_training(chromium: Any, pages: Path) -> None:
    with moving(chromium, pages, "warm-up") as page:
        page.set(warmup=2000, width=256, factor=1.5)
        schedule = Schedule(peak=1.5, warmup=2000, total=100_000, width=256)
        near(page["at"], [paper(schedule, n) for n in (1, 1000, 20000)])
        near(page["most"], paper(schedule, 2000))
    with moving(chromium, pages, "smoothing") as page:
        page.set(epsilon=0.2, words=30)
        logits = torch.full((1, 30), 0.1 / 29, dtype=torch.float64)
        logits[0, 0] = 0.9
        near(page["here"], float(label_smoothed(logits.log(), torch.tensor([0]), 0.2)))
        near(page["best"], 1 - 0.2 + 0.2 / 30)
    with moving(chromium, pages, "exponential") as page:
        page.set(a=-1.5, b=0.5, c=2, temperature=0.7)
        near(page["weights"], weigh(doubles([-1.5, 0.5, 2]) / 0.7))


@torch.no_grad()
def test_cells_and_what_layers_cost(chromium: Any, pages: Path) -> None:
    def last(cell: LSTM | GRU | Elman, weights: list[float], biases: list[float], before: float = 0.0) -> float:
        for name, parameter in cell.double().named_parameters():
            parameter.fill_(before if name == "hidden.weight" else 0.0)
        cell.input.weight.copy_(doubles(weights)[:, None])
        bias = cell.input.bias if cell.input.bias is not None else cell.hidden.bias
        bias.copy_(doubles(biases))
        return float(cell(doubles([1.0] + [0.0] * 19)[:, None, None])[0][-1, 0, 0])

    with moving(chromium, pages, "recurrent-cells") as page:
        for forget, update, weight in ((-1.5, 0.5, 0.4), (5.0, 4.0, 1.5)):
            page.set(forget=forget, update=update, weight=weight)
            known = [
                last(LSTM(1, 1), [4.0, 0.0, 1.0, 0.0], [0.0, forget, 0.0, 4.0]),
                last(GRU(1, 1), [0.0, -8.0, 1.0], [0.0, update, 0.0]),
                last(Elman(1, 1), [1.0], [0.0], weight),
            ]
            near(page["last"], known)
    with moving(chromium, pages, "complexity") as page:
        kinds = ("attention", "attention, projected", "recurrence", "LSTM cell", "convolution")
        for length, width, kernel in ((6, 9, 3), (14, 5, 9)):
            page.set(length=length, width=width, kernel=kernel)
            near(page["costs"], [lectured.multiplications(kind, 2**length, 2**width, kernel) for kind in kinds])
            near(page["ratio"], 2 * 2**length / 2**width)


@pytest.mark.parametrize("penalty", ["power", "gnmt"])
def test_beams_of_every_width_find_what_the_librarys_do(chromium: Any, pages: Path, penalty: str) -> None:
    with moving(chromium, pages, "greedy") as page:
        for width in (1, 2, 3, 4):
            for alpha in (0.0, 0.35, 0.75, 1.5):
                page.set(width=width, alpha=alpha, penalty=penalty)
                problem = generation._problem(penalty, alpha)
                best = generation.beam_search(problem, width=width, stop="full")[0][0]
                assert page["score"] == pytest.approx(best.score, abs=CLOSE)
                assert page["probability"] == pytest.approx(math.exp(best.log_probability), abs=CLOSE)
        page.set(step=0)
        boxes = page.shown.locator(".box")
        counts = [boxes.count()]
        for _ in range(4):
            page.shown.get_by_role("button", name="Next step").click()
            counts.append(boxes.count())
        assert counts[0] == 0
        assert counts == sorted(counts)
        assert page.shown.locator(".box.finished").count() > 0
        assert page.shown.locator(".box.live").count() > 0


def test_lengths(chromium: Any, pages: Path) -> None:
    with moving(chromium, pages, "length") as page:
        for penalty in ("power", "gnmt"):
            page.set(alpha=0.6, penalty=penalty)
            logs = [math.log(p) for p in (0.1, 0.1, 0.048, 0.054)]
            divided = penalty_of(penalty, 0.6)
            near(page["scores"], [log / divided(n) for log, n in zip(logs, (1, 2, 4, 4), strict=True)])


@pytest.mark.parametrize(
    ("guess", "truth"),
    [("A B B C D", "A B C D E F"), ("a b c d e f g", "a b c d e f g"), ("the cat sat there", "the cat sat on the mat")],
)
def test_measures_of_what_is_typed(chromium: Any, pages: Path, guess: str, truth: str) -> None:
    candidate, reference = guess.split(), truth.split()
    with moving(chromium, pages, "bleu") as page:
        page.shown.fill('[name="guess"]', guess)
        page.shown.fill('[name="truth"]', truth)
        near(page["bleu"], measures.lecture_bleu(candidate, [reference]))
        shares = [measures.precision(candidate, [reference], n) for n in range(1, 5)]
        assert page["shares"] == [f"{right}/{total}" for right, total in shares]
        near(page["rouge"], [measures.lecture_rouge(candidate, [reference], n) for n in (1, 2)])


def test_a_recorded_translation_is_played(chromium: Any, pages: Path) -> None:
    kept = json.loads((Path(interactive.__file__).parent / "recorded.json").read_text("utf-8"))
    with moving(chromium, pages, interactive.RECORDED) as page:
        for number, step in enumerate(kept["steps"], start=1):
            page.set(step=number)
            assert (page["token"], page["attention"]) == (step["token"], step["attention"])
            assert sum(step["attention"]) == pytest.approx(1, abs=1e-2)
        page.set(step=0)
        page.shown.get_by_role("button", name="Step", exact=True).click()
        assert page["token"] == kept["steps"][0]["token"]


def test_what_is_on_screen_is_saved(chromium: Any, pages: Path, tmp_path: Path) -> None:
    with moving(chromium, pages, "masks") as page:
        page.set(causal=True)
        with page.shown.expect_download() as found:
            page.shown.get_by_role("button", name="Save as SVG").click()
        found.value.save_as(tmp_path / "saved.svg")
    text = (tmp_path / "saved.svg").read_text("utf-8")
    assert text.startswith("<svg")
    assert "sat" in text
    assert 'lang="zh"' not in text
    (tmp_path / "shown.html").write_text(f"<!doctype html><title>saved</title>{text}", encoding="utf-8")
    with offline(chromium, tmp_path / "shown.html") as shown:
        assert shown.locator("svg text").count() > 20


def test_every_lecture_has_its_words() -> None:
    table = words()
    for kind in ("zh", "title"):
        assert set(LECTURES) <= set(table[kind]), kind
    assert set(table["widget"]) <= {*LECTURES, interactive.RECORDED}
