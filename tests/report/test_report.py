"""The report: what it holds, that hostile text stays text, and that a real browser finds nothing wrong."""

import os
import re
import shutil
from html import escape
from pathlib import Path

import pytest

from coterie import load_config, train
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import CheckpointError
from coterie.kernel.loops import Hosted
from coterie.models.load import save_model
from coterie.report.charts import COLORS, Series, line_chart, tree_picture
from coterie.report.gather import report
from coterie.run.weights import TeamModels
from tests.toys import tiny

HOSTILE = (
    '</pre></code></script><script>document.title="owned"</script><img src="http://example.invalid/x" onerror=alert(1)>'
    '<svg onload=alert(2)><a href="javascript:alert(3)">{{ 7*7 }}\x1b[31m\u202e'
)
SETS = [
    "team.a=x", "team.b=y", "train.steps=3", "train.tasks_per_step=3", "train.eval_tasks=6", "train.eval_every=1",
    "train.episodes_every=1", "algorithm.num_generations=3",
]  # fmt: skip


class Hostile(ScriptedEngine):
    """Says what would harm a page that trusted it."""

    def __init__(self) -> None:
        super().__init__(lambda role, prompt, rng: f"{rng.randint(0, 9)}" if rng.random() < 0.5 else HOSTILE)
        self.policies = dict.fromkeys("xy")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two runs whose second spoke to harm."""
    home = tmp_path_factory.mktemp("report")
    save_model(tiny(scale=2.0, context=2048), home / "model")
    sets = [*SETS, *(f"policies.{name}.model={home / 'model'}" for name in "xy")]
    train(load_config("tests/toys.py:Agree", sets), home / "kind")
    begin = TeamModels.__init__

    def begin_hostile(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.engine = Hosted(Hostile())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TeamModels, "__init__", begin_hostile)
        train(
            load_config("tests/toys.py:Sequential", [*sets, "engine.max_tokens=400", "train.max_mismatch=1000"]),
            home / "<b>hostile",
        )
    return [home / "kind", home / "<b>hostile"]


@pytest.mark.slow
def test_a_report_shows_curves_roles_groups_and_the_ablations_of_the_first_run(runs):
    page = report(runs, tasks=8)
    for text in (
        "validation/success", "role/a/gradient_share", "policy/y/entropy", "Rewards by part", "Group audit",
        "replies to one prompt", "by policy x at version 2", "mute a", "replace b=base", "swap a,b", "step 0",
        "groups without spread", "Warnings",
    ):  # fmt: skip
        assert text in page, text
    assert page.count("<polyline") > 20
    assert {color for color in COLORS if f'stroke="{color}"' in page} >= set(COLORS[:2])


def test_what_a_model_wrote_is_text_and_the_page_may_run_nothing(runs):
    page = report([runs[1], runs[0]], tasks=0)
    assert escape('<script>document.title="owned"</script>', quote=True).replace("&quot;", "&#34;") in page
    tags = set(re.findall(r"<([a-zA-Z!/][\w-]*)", page))
    assert not tags & {"script", "img", "iframe", "form"}
    assert all(f'id="{anchor}"' in page for anchor in re.findall(r'<a href="#([^"]*)"', page))
    assert "<a" not in re.sub(r'<a href="#[^"]*"', "", page)
    assert "<b>hostile" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "{{ 7*7 }}" in page


def test_a_report_of_one_run_plays_nothing_when_told_so(runs, monkeypatch):
    monkeypatch.setattr("coterie.run.loaded.load", None)
    assert "Does each role earn its place?" not in report(runs[:1], tasks=0)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="is not a run folder"):
        report([tmp_path])


def test_a_run_that_has_only_begun_can_be_reported(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "begun")
    (tmp_path / "begun/metrics.jsonl").unlink()
    shutil.rmtree(tmp_path / "begun/episodes")
    assert "Curves" in report([tmp_path / "begun"], tasks=0)


def test_a_line_is_drawn_where_its_numbers_say():
    """Across, 46 + 264 x step / 4; down, 8 + 158 x (1 - success)."""
    svg = line_chart([Series("run", [(0, 0.0), (2, 0.5), (4, 1.0)], "red")], "t", share=True)
    assert 'points="46.0,166.0 178.0,87.0 310.0,8.0"' in svg


def test_a_chart_of_nothing_and_of_one_point_is_still_a_picture():
    assert line_chart([], "t").endswith("</svg>")
    assert line_chart([Series("run", [(3, 2.0)], "red")], "t").count("<polyline") == 1


def test_the_tree_follows_what_was_committed():
    svg = tree_picture([[(1.0, 1.0, True), (0.0, -1.0, False)], [(0.0, 0.0, False), (0.0, 0.0, True)]], "t")
    assert 'points="4,60 42,35.0 98,85.0"' in svg  # the better of the first column, the second of an equal pair


def browser():
    """Debian's chromium; where there is none, the test is skipped, in CI it fails."""
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed; .ci/run installs it")
        pytest.skip("no chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    return sync_playwright(), chromium


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "dark"),
        (1200, "light"),
        *(pytest.param(*way, marks=pytest.mark.long) for way in ((400, "light"), (1200, "dark"))),
    ],
)
def test_a_real_browser_shows_it_without_a_request_an_error_or_a_sideways_scroll(runs, tmp_path, scheme, width):
    page = tmp_path / "report.html"
    page.write_text(report([runs[1], runs[0]], tasks=4 if width == 1200 and scheme == "light" else 0), encoding="utf-8")
    playwright, chromium = browser()
    happened: list[str] = []
    with playwright as player:
        window = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = window.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.on("console", lambda message: happened.append(message.text))
        tab.on("pageerror", lambda error: happened.append(str(error)))
        tab.on("dialog", lambda dialog: happened.append(dialog.message))
        tab.on("request", lambda request: happened.append(request.url))
        tab.goto(page.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        tab.wait_for_timeout(200)
        assert tab.title().startswith("coterie: ")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        ink, paper = tab.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        window.close()
    assert happened == [page.as_uri()]
    bright = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (ink, paper)]
    assert abs(bright[0] - bright[1]) > 500  # of 765: text stands out
    assert (bright[1] > bright[0]) == (scheme == "light")
