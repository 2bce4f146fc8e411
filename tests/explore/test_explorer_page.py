"""The explorer's page as a reader has it, in Chromium: the search, the steps, decoding, two runs and gold links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles import ENGLISH, GERMAN, small_bundle
from chromium import offline

from regard.explore.exploration import Exploration, explore
from regard.explore.gold import error_rate
from regard.explore.page import inlined, page
from regard.linking.aer import parse_gold

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
LINE, TARGET = ENGLISH[7], GERMAN[7]
GOLD = parse_gold("0-0 1-1 2-2 3p2 4-2 5-3 6-4 7-5", base=0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exploration]:
    place = tmp_path_factory.mktemp("page")
    small_bundle(place / "one", search={"beam": 3, "extra_length": 4})
    small_bundle(place / "two", search={"beam": 2, "extra_length": 4}, seed=2)
    return {
        "free": explore(place / "one", LINE),
        "other": explore(place / "two", "A man is smiling."),
        "gold": explore(place / "one", LINE, target=TARGET, gold=GOLD),
    }


@pytest.fixture
def opened(
    chromium: Any, runs: dict[str, Exploration], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Any]:
    names, options = getattr(request, "param", (("free",), {}))
    file = tmp_path / "explored.html"
    file.write_text(page(*(runs[name] for name in names)), encoding="utf-8")
    with offline(chromium, file, **{"viewport": {"width": 1280, "height": 900}, **options}) as shown:
        yield shown


def test_modules_are_put_together() -> None:
    text = inlined("main.js")
    assert not re.search(r"^(?:import|export) ", text, re.MULTILINE)
    made = re.findall(r'^modules\["([\w-]+\.js)"\]', text, re.MULTILINE)
    assert len(made) == len(set(made))
    for found in re.finditer(r'= modules\["([\w-]+\.js)"\];', text):
        assert text.index(f'modules["{found[1]}"] =') < found.start()


def test_views_by_keyboard(opened: Any) -> None:
    opened.focus("#tab-attention")
    for name in ("decoding", "steps", "search"):
        while opened.get_attribute("[role=tab][aria-selected=true]", "id") != f"tab-{name}":
            opened.keyboard.press("ArrowRight")
        assert opened.locator(f"#view-{name}").is_visible()
        assert opened.locator("#views > :not([hidden])").count() == 1
        assert opened.evaluate("document.activeElement.id") == f"tab-{name}"


def test_the_tree_is_the_search(opened: Any, runs: dict[str, Exploration]) -> None:
    tree = runs["free"].search
    assert tree is not None
    opened.click("#tab-search")
    best = tree.path(tree.answers()[0])
    opened.focus("#tree")
    opened.keyboard.press("ArrowRight")
    first = min((number for number in tree.children() if tree.nodes[number].kept), key=lambda n: tree.nodes[n].place)
    node = tree.nodes[first]
    said = opened.inner_text("#tree-readout")
    assert f"log-probability in all {node.total:.4f}, score {node.score:.4f}, place {node.place} of its step" in said
    opened.keyboard.press("ArrowDown")
    assert opened.inner_text("#tree-readout") != said
    with opened.expect_download() as waiting:
        opened.click("#tree-svg")
    svg = Path(waiting.value.path()).read_text("utf-8")
    kept = sum(node.kept for node in tree.nodes)
    assert svg.count("<text") == kept
    assert f"answer 1 ({best[-1].score:.3f})" in svg
    opened.check("#tree-all")
    with opened.expect_download() as waiting:
        opened.click("#tree-svg")
    assert Path(waiting.value.path()).read_text("utf-8").count("<text") == len(tree.nodes)


@pytest.mark.parametrize("opened", [(("free",), {}), (("gold",), {})], indirect=True, ids=["translation", "forced"])
def test_the_steps_have_their_probabilities(opened: Any, runs: dict[str, Exploration], request: Any) -> None:
    steps = runs["gold" if "forced" in request.node.name else "free"].steps
    assert steps is not None
    opened.click("#tab-steps")
    rows = opened.locator("#tables tbody tr")
    assert rows.count() == len(steps.steps)
    for number, step in enumerate(steps.steps):
        cells = rows.nth(number).locator("td")
        assert cells.nth(2).inner_text() == str(step.rank)
        assert float(cells.nth(3).inner_text()) == pytest.approx(step.entropy / 0.6931472, abs=0.006)
        assert cells.nth(4).locator(".alternative").count() == len(step.alternatives)


def test_decoding_goes_step_by_step(opened: Any, runs: dict[str, Exploration]) -> None:
    found = runs["free"].attention
    assert found is not None
    layers, steps = found.part("encoder").weights.shape[0], len(found.part("cross").rows.names)
    opened.click("#tab-decoding")
    assert opened.inner_text("#said") == "The source is read."
    assert int(opened.get_attribute("#time", "max")) == layers + steps
    opened.click("#on")
    assert opened.inner_text("#said").startswith("Encoder, layer 1 of 2")
    opened.focus("#time")
    for _ in range(layers):
        opened.keyboard.press("ArrowRight")
    assert opened.inner_text("#said").startswith(f"Step 1 of {steps}: writes")
    opened.keyboard.press("End")
    assert opened.inner_text("#said").startswith(f"Step {steps} of {steps}")
    opened.keyboard.press("Home")
    opened.keyboard.press("Space")
    assert opened.inner_text("#play") == "Pause"
    playwright.expect(opened.locator("#said")).to_have_text(re.compile("^Encoder"), timeout=20_000)
    opened.keyboard.press("Space")
    assert opened.inner_text("#play") == "Play"


@pytest.mark.parametrize("opened", [(("free",), {"reduced_motion": "reduce"})], indirect=True)
def test_nothing_moves_where_that_is_not_wanted(opened: Any) -> None:
    opened.click("#tab-decoding")
    assert opened.locator("#play").is_hidden()
    opened.focus("#time")
    opened.keyboard.press("Space")
    opened.wait_for_timeout(1200)
    assert opened.inner_text("#said") == "The source is read."
    assert "nothing moves by itself" in opened.inner_text("#player-keys")


@pytest.mark.parametrize("opened", [(("gold",), {})], indirect=True)
def test_gold_links_and_the_error_rate_of_what_is_shown(opened: Any, runs: dict[str, Exploration]) -> None:
    found = runs["gold"].attention
    assert found is not None
    part = found.part("cross")
    assert opened.input_value("#unit") == "words"
    for layer, head in ((0, 0), (1, 1), (1, 2), (2, 1), (2, 2)):
        opened.select_option("#layer", str(layer))
        opened.select_option("#head", str(head))
        rate = float(re.search(r"([\d.]+) %", opened.inner_text("#gold"))[1])  # type: ignore[index]
        assert rate == pytest.approx(error_rate(part, GOLD, layer, head), abs=0.06)
    with opened.expect_download() as waiting:
        opened.click("#svg")
    assert Path(waiting.value.path()).read_text("utf-8").count('fill="none"') == len(GOLD.possible)


@pytest.mark.parametrize("opened", [(("free", "other"), {})], indirect=True)
def test_two_stand_side_by_side(opened: Any, runs: dict[str, Exploration]) -> None:
    assert opened.inner_text("#source-2") == "A man is smiling."
    left, right = (opened.locator(name).bounding_box() for name in ("#picture", "#picture-2"))
    assert left["x"] + left["width"] <= right["x"]
    opened.click("#heads-2 [data-layer='2'][data-head='1']")
    assert opened.inner_text("#title-2") == "Layer: 2 Attention: Input - Output Head: 1"
    assert opened.inner_text("#title") == "Layer: mean Attention: Input - Output"
    opened.select_option("#part", "encoder")
    assert opened.inner_text("#title-2").startswith("Layer: mean Attention: Input - Input")
    with opened.expect_download() as waiting:
        opened.click("#svg")
    sizes = [found.part("encoder").matrix().size for name in ("free", "other") if (found := runs[name].attention)]
    assert Path(waiting.value.path()).read_text("utf-8").count('class="weight"') == sum(sizes)
    for name, each in (("decoding", "#screen-2"), ("search", "#tree-2")):
        opened.click(f"#tab-{name}")
        assert opened.locator(each).is_visible()
    opened.click("#tab-steps")
    assert opened.locator("#tables table").count() == 2


PHONE = {"viewport": {"width": 360, "height": 700}, "is_mobile": True, "has_touch": True}


@pytest.mark.parametrize(
    "opened",
    [
        (("free",), {}),
        (("free", "other"), {"color_scheme": "dark"}),
        (("gold",), {"color_scheme": "dark"}),
        (("free", "other"), PHONE),
    ],
    indirect=True,
    ids=["light", "dark", "gold", "phone"],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_everybody_can_use_it(opened: Any, language: str) -> None:
    opened.select_option("#language", language)
    for tab in opened.locator("[role=tab]").all():
        name = tab.get_attribute("id")
        opened.click(f"#{name}")
        found = axe.Axe().run(opened)
        assert found.violations_count == 0, found.generate_report()
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert "undefined" not in opened.evaluate("document.body.innerText")
