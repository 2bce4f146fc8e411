"""The explorer in the server: what it answers, and its page, live, with a key where keys are on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from chromium import watched
from serving import BUNDLES, serving

from regard.explore.look import look
from regard.server.explorer import MOST_CHARACTERS
from regard.server.limits import new_key

LINE = {"text": "abc de", "source": "en", "target": "de"}


def asked(address: str, body: dict[str, Any], key: str = "") -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urlopen(Request(f"{address}/v1/explore", json.dumps(body).encode(), headers)) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_what_it_answers(address: str) -> None:
    status, run = asked(address, LINE)
    assert (status, run["source"], run["target"]) == (200, "abc de", "ED CBA")
    found = look(BUNDLES / "transformer", "abc de")
    for part in run["parts"]:
        levels = np.frombuffer(base64.b64decode(part["data"]), f"<u{part['bits'] // 8}").reshape(part["shape"])
        np.testing.assert_allclose(levels / 65535, found.part(part["name"]).weights, atol=1e-4)
    assert [step["token"] for step in run["steps"]][-1] == "end"
    answers = [node for node in run["search"]["nodes"] if node["answer"]]
    assert [node["answer"] for node in answers] == [1]
    status, run = asked(address, {**LINE, "translation": "ED"})
    assert (status, run["target"], "search" in run) == (200, "ED", False)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({**LINE, "text": ""}, 400, "no text"),
        ({**LINE, "text": "a\nb"}, 400, "one line"),
        ({**LINE, "text": "a" * (MOST_CHARACTERS + 1)}, 400, "2000"),
        ({**LINE, "text": "ab " * 200}, 413, "tokens"),
        ({**LINE, "target": "xx"}, 400, "not supported"),
    ],
)
def test_what_it_refuses(address: str, body: dict[str, Any], status: int, said: str) -> None:
    found, error = asked(address, body)
    assert found == status, error
    assert said in error["error"]


def test_the_older_page_is_there(address: str) -> None:
    with urlopen(f"{address}/v1/look?text=abc%20de&source=en&target=de") as answer:
        assert b'id="weights-0-cross"' in answer.read()
    with pytest.raises(HTTPError, match="413"):
        urlopen(f"{address}/v1/look?text={'a' * (MOST_CHARACTERS + 1)}&source=en&target=de")


# -- in a browser ------------------------------------------------------------------------------------------------------


def test_it_goes_along_with_what_is_typed(chromium: Any, address: str) -> None:
    from playwright.sync_api import expect

    with watched(chromium, f"{address}/explore#text=abc+de&source=en&target=de", address) as page:
        expect(page.locator("#target")).to_have_text("ED CBA", timeout=30_000)
        assert page.locator("#picture").is_visible()
        assert page.locator("#from-2").is_hidden()  # one bundle has nothing to stand beside it but another line
        page.click("#tab-search")
        page.fill("#line", "fgh")
        expect(page.locator("#source")).to_have_text("fgh", timeout=30_000)
        assert page.locator("#tree").is_visible()
        page.fill("#line-2", "de")
        expect(page.locator("#source-2")).to_have_text("de", timeout=30_000)
        assert page.locator("#tree-2").is_visible()
        page.fill("#written", "HGF")
        expect(page.locator("#target")).to_have_text("HGF", timeout=30_000)
        page.fill("#line", "")
        expect(page.locator("#lines dl")).to_have_count(0)


def test_two_bundles_stand_side_by_side(chromium: Any) -> None:
    from playwright.sync_api import expect

    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with (
        serving(f"en-de={BUNDLES / 'transformer'}", f"de-en={BUNDLES / 'luong'}") as address,
        watched(chromium, f"{address}/explore#text=abc+de&source=en&target=de", address) as page,
    ):
        expect(page.locator("#target")).to_have_text("ED CBA", timeout=30_000)
        assert page.locator("#target-2").count() == 0
        page.select_option("#from-2", "de")
        assert page.locator("#to-2 option").all_inner_texts() == ["English"]
        expect(page.locator("#source-2")).to_have_text("abc de", timeout=30_000)
        assert page.locator("#lines h2").all_inner_texts() == ["en → de", "de → en"]
        page.fill("#line-2", "fgh")
        expect(page.locator("#source-2")).to_have_text("fgh", timeout=30_000)
        for tab in ("attention", "decoding", "steps"):
            page.click(f"#tab-{tab}")
            found = axe.Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
        page.select_option("#language", "zh")
        assert page.locator("#from-2 option").all_inner_texts() == ["相同", "德语", "英语"]
        page.set_viewport_size({"width": 360, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.fill("#line-2", "")
        page.select_option("#from-2", "")
        expect(page.locator("#lines dl")).to_have_count(1, timeout=30_000)


@pytest.mark.parametrize(
    "options", [{}, {"color_scheme": "dark", "locale": "zh-CN"}, {"viewport": {"width": 360, "height": 700}}]
)
def test_everybody_can_use_it(chromium: Any, address: str, options: dict[str, Any]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with watched(chromium, f"{address}/explore#text=abc+de&source=en&target=de", address, **options) as page:
        page.wait_for_selector("#picture")
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_key_goes_along_and_into_no_address(chromium: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    key = new_key("somebody", tmp_path / "keys")
    with serving(keys=tmp_path / "keys") as address:
        assert asked(address, LINE)[0] == 403
        assert asked(address, LINE, key)[0] == 200
        context = chromium.new_context()
        urls: list[str] = []
        context.on("request", lambda one: urls.append(one.url))
        page = context.new_page()
        page.goto(address)
        page.click("#access summary")
        page.fill("#key", key)
        page.fill("#source", "abc de")
        expect(page.locator("#target")).to_have_text("ED CBA", timeout=30_000)
        with page.expect_popup() as opening:
            page.click("#look")
        expect(opening.value.locator("#target")).to_have_text("ED CBA", timeout=30_000)
        assert not any(key in url for url in [*urls, opening.value.url])
        context.close()
