"""The viewer in a real browser: nothing goes wrong, nothing leaves the machine, everybody can read it."""

import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.report.test_report import browser, runs  # noqa: F401  (fixtures)
from tests.view.test_view import COOKIE, KEY, window  # noqa: F401

VIEWS = [
    "", "curves/", "roles/", "rollouts/", "rollouts/1/", "rollouts/1/0/", "rollouts/1/0/0/", "warnings/", "memory/",
    "config/", "find/?text=script", "play/",
]  # fmt: skip
SERIOUS = {"serious", "critical"}
pytestmark = pytest.mark.slow


class Seen:
    """A tab, and whatever happened in it that should not."""

    def __init__(self, player, chromium: str, port: int, width: int = 1200, scheme: str = "light") -> None:
        self.home = f"http://127.0.0.1:{port}"
        self.happened: list[str] = []
        self.window = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        self.context = self.window.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab = self.context.new_page()
        self.tab.on("console", lambda message: self.happened.append(message.text))
        self.tab.on("pageerror", lambda error: self.happened.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.happened.append(dialog.message))
        self.tab.on("request", self._asked)
        self.tab.goto(f"{self.home}/?key={quote(KEY)}")

    def _asked(self, request) -> None:
        if not request.url.startswith((self.home, "data:")):
            self.happened.append(request.url)

    def go(self, address: str) -> None:
        self.tab.goto(f"{self.home}/{address}")


def axe() -> str:
    """The accessibility checker, where it is installed."""
    checker = pytest.importorskip("axe_playwright_python", reason="no accessibility checker here")
    return (Path(checker.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "dark"),
        *(pytest.param(*way, marks=pytest.mark.long) for way in ((1200, "light"), (400, "light"), (1200, "dark"))),
    ],
)
def test_every_view_is_shown_without_an_error_a_request_beyond_or_a_sideways_scroll(window, width, scheme):  # noqa: F811
    playwright, chromium = browser()
    checker = axe()
    with playwright as player:
        seen = Seen(player, chromium, window.port, width, scheme)
        tab = seen.tab
        for address in ["", "compare/", *(f"{run}/{view}" for run in ("kind", "b-hostile") for view in VIEWS)]:
            seen.go(address)
            tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, address
            assert tab.locator("h1").count() == 1
            tab.evaluate(f"(() => {{ {checker} }})()")
            found = tab.evaluate("axe.run()")
            bad = [(one["id"], one["nodes"][0]["html"]) for one in found["violations"] if one["impact"] in SERIOUS]
            assert not bad, (address, bad)
        seen.window.close()
    assert seen.happened == []


def test_the_keyboard_alone_goes_everywhere_and_arrows_walk_what_is_beside(window):  # noqa: F811
    playwright, chromium = browser()
    with playwright as player:
        seen = Seen(player, chromium, window.port)
        tab = seen.tab
        seen.go("kind/rollouts/1/0/0/")
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
        tab.keyboard.press("ArrowRight")
        tab.wait_for_url("**/rollouts/1/0/1/")
        tab.keyboard.press("ArrowLeft")
        tab.wait_for_url("**/rollouts/1/0/0/")
        seen.go("kind/rollouts/1/0/")
        reached = set()
        for _ in range(200):
            tab.keyboard.press("Tab")
            reached.add(tab.evaluate("document.activeElement.getAttribute('href') || document.activeElement.tagName"))
        wanted = set(tab.evaluate("[...document.querySelectorAll('a[href]')].map(one => one.getAttribute('href'))"))
        closed = set(
            tab.evaluate("[...document.querySelectorAll('details:not([open]) a')].map(one => one.getAttribute('href'))")
        )
        assert wanted - closed <= reached
        seen.window.close()
    assert seen.happened == []


def test_a_page_follows_a_run_that_goes_on_and_leaves_what_is_open_as_it_is(runs, window):  # noqa: F811
    playwright, chromium = browser()
    metrics = runs[0] / "metrics.jsonl"
    before = metrics.read_text()
    with playwright as player:
        seen = Seen(player, chromium, window.port)
        tab = seen.tab
        seen.go("kind/")
        tab.wait_for_timeout(2500)
        tab.evaluate("document.querySelector('#team details').open = true")
        tab.evaluate("document.querySelector('#words').remove()")  # as if nothing had been said when it was opened
        last = json.loads(before.splitlines()[-1])
        later = {**last, "step": last["step"] + 1, "budget/sampled_tokens": 7_654_321}
        try:
            metrics.write_text(f"{before}{json.dumps(later)}\n")
            deadline = time.monotonic() + 15
            while "7,654,321" not in tab.locator("#story").inner_text():
                assert time.monotonic() < deadline
                tab.wait_for_timeout(200)
            assert tab.evaluate("document.querySelector('#team details').open")
            assert tab.evaluate("document.querySelector('#team + #words') !== null"), "a new section, in its place"
            tab.locator("#story a").first.focus()
            metrics.write_text(f"{before}{json.dumps(later | {'budget/sampled_tokens': 8_765_432})}\n")
            tab.wait_for_timeout(5000)
            assert "8,765,432" not in tab.locator("#story").inner_text(), "somebody is in it"
            tab.evaluate("document.activeElement.blur()")
            deadline = time.monotonic() + 15
            while "8,765,432" not in tab.locator("#story").inner_text():
                assert time.monotonic() < deadline
                tab.wait_for_timeout(200)
        finally:
            metrics.write_text(before)
        seen.window.close()
    assert seen.happened == []


def test_seven_tabs_are_live_at_once(window):  # noqa: F811
    playwright, chromium = browser()
    with playwright as player:
        seen = Seen(player, chromium, window.port)
        tabs = [seen.context.new_page() for _ in range(7)]
        for tab in tabs:
            tab.goto(f"{seen.home}/kind/", timeout=10_000)
        assert [re.sub(r"\s.*", "", tab.locator("h1").inner_text()) for tab in tabs] == ["toys.py:Agree,"] * 7
        seen.window.close()
