"""The page of runs in Chromium: live from its server, and as a report from a file without any network."""

from __future__ import annotations

import json
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chromium import offline
from running import running
from watching import train

from regard.watch import results, translating
from regard.watch.app import make_app
from regard.watch.following import Follower
from regard.watch.report import report
from regard.watch.runs import Run, named

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
playwright.expect.set_options(timeout=30_000)  # a busy machine is slow


@pytest.fixture(scope="module")
def two(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs that differ in their learning rate, all of whose checkpoints were translated."""
    folder = tmp_path_factory.mktemp("two")
    found = [Path(shutil.copytree(trained, folder / "fast"))]
    found.append(train(folder / "slow", train={"learning_rate": 0.001}))
    for path in found:
        run = Run(path)
        run.log.refresh()
        translating.main([str(path), str(run.cache), "0", *(saved.name for saved in results.waiting(run))])
    return found


@pytest.fixture(scope="module")
def file(two: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(two, tmp_path_factory.mktemp("report") / "report.html", translates=False)


@contextmanager
def serving(*runs: Path, translates: bool = False) -> Iterator[str]:
    follower = Follower(named([*runs], None), translates=translates, nice=0)
    with running(make_app(follower)) as address:
        yield address


def test_a_report_shows_curves_and_translations(chromium: Any, file: Path, two: list[Path]) -> None:
    with offline(chromium, file, viewport={"width": 1280, "height": 900}) as page:
        titles = page.locator("#curves h3").all_inner_texts()
        assert titles[:2] == ["Loss (nats per token)", "BLEU of the dev set, greedy"]
        assert {"Learning rate", "Target tokens per second", "Gradient norm"} <= {*titles}
        states = page.locator("#runs tbody tr").all_inner_texts()
        assert [("finished" in row, "30 / 30" in row) for row in states] == [(True, True)] * 2
        sentence = page.locator("#source").inner_text()
        run = Run(two[0])
        run.log.refresh()
        known = [result for _, result in results.known(run)]
        [sample] = [each for each in known[-1]["samples"] if each["source"] == sentence]
        assert page.locator("#made figure").first.locator("p").first.inner_text() == sample["text"]
        page.locator("#at").focus()
        page.keyboard.press("Home")
        assert page.locator("#at-said").inner_text() == "update 20"
        [sample] = [each for each in known[0]["samples"] if each["source"] == sentence]
        assert page.locator("#made figure").first.locator("p").first.inner_text() == sample["text"]
        page.click("#play")
        playwright.expect(page.locator("#at-said")).to_have_text("update 30, bundle")
        playwright.expect(page.locator("#play")).to_have_attribute("aria-pressed", "false")


def test_a_curve_is_read_by_pointing_by_keys_and_as_a_table(chromium: Any, file: Path, two: list[Path]) -> None:
    events = [json.loads(line) for line in (two[0] / "log.jsonl").read_text("utf-8").splitlines()]
    last = [each for each in events if each["event"] == "train"][-1]
    with offline(chromium, file, viewport={"width": 1280, "height": 900}) as page:
        figure = page.locator("#curves figure").first
        figure.locator("svg").focus()
        page.keyboard.press("End")
        said = figure.locator(".readout").inner_text()
        assert said.startswith("updates 30: fast, training ")
        assert f"{last['loss']:.4g}" in said
        page.keyboard.press("Escape")
        assert figure.locator(".readout").inner_text() == ""
        figure.locator("svg").hover()
        assert "slow, dev set" in figure.locator(".readout").inner_text()
        figure.locator("summary").click()
        assert f"{last['loss']:.4g}" in figure.locator("tbody tr").first.inner_text()
        page.uncheck("[data-run='1']")
        assert figure.locator("thead th").all_inner_texts() == ["updates", "fast, training", "fast, dev set"]
        before = figure.locator(".curve.train").first.get_attribute("d")
        page.check("#log")
        assert figure.locator(".curve.train").first.get_attribute("d") != before
        page.select_option("#along", "tokens")
        assert figure.locator("svg").get_attribute("aria-label") == "Loss (nats per token), target tokens"
        page.locator("#smooth").fill("0.9")
        assert figure.locator(".curve.raw").count() == 1


def test_the_page_follows_a_run(chromium: Any, run: Path) -> None:
    log = run / "log.jsonl"
    lines = log.read_text("utf-8").splitlines(keepends=True)
    log.unlink()
    context = chromium.new_context()
    page = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with serving(run) as address:
        page.goto(address)
        playwright.expect(page.locator("#curves")).to_have_text("No curves yet.")
        log.write_text("".join(lines[:5]) + lines[5][:20], encoding="utf-8")
        playwright.expect(page.locator("#curves h3").first).to_have_text("Loss (nats per token)")
        update = json.loads(lines[4])["update"]
        playwright.expect(page.locator("#runs tbody")).to_contain_text(f"{update} / 30")
        with log.open("a", encoding="utf-8") as writing:
            writing.write(lines[5][20:] + "".join(lines[6:]))
        playwright.expect(page.locator("#runs tbody")).to_contain_text("30 / 30")
        (run / "results.json").unlink()
        playwright.expect(page.locator("#runs tbody")).to_contain_text("stopped")
        assert [url for url in asked if not url.startswith(address)] == []
        assert wrong == []
        context.close()


def test_a_checkpoint_is_translated_while_the_page_is_open(chromium: Any, run: Path) -> None:
    with serving(run, translates=True) as address:
        page = chromium.new_page()
        page.goto(address)
        playwright.expect(page.locator("#at-said")).to_have_text("update 30, bundle", timeout=120_000)
        assert page.locator("#translations tbody tr").count() == 3
        page.close()


def get(address: str, path: str, host: str = "") -> tuple[int, dict[str, str]]:
    asked = urllib.request.Request(address + path, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


def test_what_the_server_gives_and_to_whom(run: Path) -> None:
    with serving(run) as address:
        status, headers = get(address, "/")
        assert status == 200
        assert "default-src 'self'" in headers["content-security-policy"]
        assert get(address, "/runs/0?generation=-1")[0] == 200
        for path in ("/runs/1", "/runs/-1", "/runs/0/results/none", "/runs/0/results/..%2Flog", "/log.jsonl", "/docs"):
            assert get(address, path)[0] == 404, path
        assert get(address, "/runs/x")[0] == 422
        assert get(address, "/runs/0", host="evil.example")[0] == 400  # a name that was turned to this machine
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\xff\xfe\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "options", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 700}}, {"locale": "zh-CN"}]
)
def test_everybody_can_use_it(chromium: Any, file: Path, options: dict[str, Any]) -> None:
    with offline(chromium, file, **{"viewport": {"width": 1280, "height": 900}, **options}) as page:
        for summary in page.locator("summary").all():
            summary.click()
        if options.get("locale") == "zh-CN":
            assert page.locator("h1").inner_text() == "训练"
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
