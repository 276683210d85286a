"""Verdicts on claims: what is sure and what is not; and pages that say what their figures say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from benchmarks import ablations, joined, methods, paper, svg
from benchmarks import claims as bench_claims
from benchmarks import map as maps
from benchmarks.claims import FOLDER, Claim, Comparison, Versus, claims, index, unfinished
from benchmarks.rows import Table


@pytest.mark.parametrize(
    ("more", "less", "verdict"),
    [
        ((0.9, 0.91, 0.92), (0.5, 0.5, 0.5), "holds"),
        ((0.5, 0.5, 0.5), (0.9, 0.91, 0.92), "does not hold"),
        ((0.9, 0.5, 0.7), (0.7, 0.7, 0.6), "not decided"),
        ((0.7, 0.7, 0.6), (0.9, 0.5, 0.7), "not decided"),
        ((0.9,), (0.1,), "not decided"),
        ((0.50, 0.51, 0.52), (0.51, 0.52, 0.50), "no difference"),  # 0.00 ± 0.043
        ((0.53, 0.54, 0.55), (0.51, 0.52, 0.50), "not decided"),  # 0.03 ± 0.043
    ],
)
def test_a_claim_holds_if_its_interval_is_above_zero(more, less, verdict):
    assert Versus.between(more, less).verdict == verdict


# differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t(2) = 4.303: 0.248
def test_the_interval_by_hand():
    found = Versus.between((0.5, 0.6, 0.7), (0.4, 0.4, 0.4))
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, -0.0484, 0.4484), abs=1e-3)
    assert str(found) == "+20.0 [-4.8, +44.8]"
    with pytest.raises(ValueError, match="zip"):
        Versus.between((0.5,), (0.4, 0.4))


# ten seeds: 2.26216 / sqrt(10) = 0.715 deviations instead of 1.242 for five
@pytest.mark.parametrize(
    ("more", "close"),
    [
        ((0.0, 0.1, 0.2, 0.3, 0.4), False),  # 0.2, deviation 0.158: ± 0.196, holds already
        ((-0.06, 0.04, 0.14, 0.24, 0.34), True),  # 0.14 ± 0.196 with five, ± 0.113 with ten
        ((-0.16, -0.06, 0.04, 0.14, 0.24), False),  # 0.04 ± 0.196, ± 0.113
        ((-0.03, -0.01, 0.01, 0.03, 0.05), False),  # 0.01 ± 0.039: no difference already
        ((-0.06, -0.02, 0.0, 0.02, 0.06), True),  # 0.0 ± 0.055 with five, ± 0.032 with ten: no difference
    ],
)
def test_ten_seeds_where_they_would_decide(more, close):
    assert Comparison("", more, (0.0,) * len(more)).close == close


def test_not_below_by_more_than_a_margin():
    assert Versus.between((0.50, 0.51), (0.51, 0.52), margin=0.02).verdict == "holds"
    assert Versus.between((0.50, 0.51), (0.51, 0.52)).verdict == "does not hold"
    assert Versus.between((0.50, 0.51), (0.60, 0.61), margin=0.02).verdict == "does not hold"


def test_rows_with_more_seeds_are_compared_on_those_that_both_have():
    rows = [Comparison("maths", (0.5, 0.6, 0.0, 0.0), (0.4, 0.4))]
    claim = Claim("this", "This beats that", "A paper.", ("this", "that"), lambda: rows, "paper", "Larger models.")
    assert "| maths | 0.550 | 0.400 | +15.0 [" in claim.page()
    assert ", 2 seeds a row. The difference" in claim.page()
    rows.append(Comparison("code", (0.5, 0.6, 0.7), (0.4, 0.4, 0.4)))
    assert ", 2 or 3 seeds a row, those that both rows have. The difference" in claim.page()


def test_the_index_says_what_is_missing(monkeypatch):
    assert unfinished(825, 825, 0) == ""
    assert unfinished(820, 825, 0) == "5 of 825 runs are still to come, so some rows have fewer. "
    assert unfinished(825, 825, 2) == "Comparisons that meet it and have fewer than ten: 2. "

    close = Comparison("maths", (0.50, 0.58, 0.54, 0.50, 0.58), (0.5,) * 5)  # 0.040 ± 0.050; ten: ± 0.029
    claim = Claim("this", "This beats that", "A paper.", ("this", "that"), lambda: [close], "paper", "Larger models.")
    monkeypatch.setattr(bench_claims, "claims", lambda: [claim])
    assert "have fewer than ten: 1. " in index()[2]


def test_a_page_says_first_where_its_claim_does_not_hold():
    rows = (
        Comparison("games", (0.9, 0.92), (0.5, 0.52), "90 and 50"),
        Comparison("maths", (0.3, 0.32), (0.5, 0.52)),
        Comparison("code", (0.9, 0.1), (0.5, 0.5)),
        Comparison("not finished", (0.9,), (0.5, 0.5)),
    )
    claim = Claim("this", "This beats that", "A paper.", ("this", "that"), lambda: rows, "paper", "Larger models.")
    assert claim.answer() == "**Does not hold**: maths. **Holds**: games. **Not decided**: code."
    page = claim.page()
    assert page.splitlines()[2] == claim.answer()
    assert "| games | 0.910 | 0.510 | +40.0 [+40.0, +40.0] | 90 and 50 | holds |" in page
    assert "not finished" not in page
    assert "2 seeds a row" in page
    drawn = claim.picture()
    assert [drawn.count(f'fill="{colour}"') for colour in (svg.BETTER, svg.WORSE, svg.UNSURE)] == [1, 1, 1]
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert replace(claim, compared=lambda: ()).answer() == "Not measured yet."


@pytest.mark.parametrize(
    ("team", "folder", "planner"),
    [
        ("joined", "alone_proposer-3", "alone_planner-3"),
        ("split_joined", "split_alone_proposer-3", "split_alone_planner-3"),
        ("swapped", "plan_path_roles-3", ""),
        ("split_swapped", "split_roles-3", ""),
    ],
)
def test_which_runs_a_team_is_put_together_from(monkeypatch, team, folder, planner):
    monkeypatch.setattr(Table, "trained", lambda table, name, seed: table.folder / f"{name}-{seed}")
    of, change = joined.put_together(team, 3)
    assert of.name == folder
    assert Path(change.source).name == planner


def test_the_picture_of_methods_names_those_that_one_task_lacks():
    texts = [each.text for each in ElementTree.fromstring(methods.picture()).iter()]
    assert all(texts.count(method.title) == 1 for method in methods.METHODS.values())


def test_rows_that_methods_takes_from_paper_are_that_method():
    for name, method in methods.METHODS.items():
        for task, known in method.known.items():
            ours, theirs = (row.resolved(0) for row in (methods._row(task, method), paper.TABLE.rows[known]))
            if (name, task) != ("at_grpo_greedy", "maths"):
                assert theirs.algorithm == ours.algorithm, (name, task)
                continue
            assert "judge" not in theirs.environment.roles, "both speak at once, so a turn is a point"
            assert theirs.algorithm == ours.algorithm.model_copy(update={"horizon": "point"})


def test_every_claim_has_a_page_that_is_written_from_the_figures():
    names = [claim.name for claim in claims()]
    assert len(names) == len(set(names))
    for claim in claims():
        assert (FOLDER / f"{claim.name}.md").read_text() == claim.page()
        assert (FOLDER / f"{claim.name}.svg").read_text() == claim.picture()
    assert (FOLDER / "index.md").read_text() == "\n".join(index())
    pages = {f"{name}{kind}" for name in names for kind in (".md", ".svg")} | {"index.md"}
    assert {file.name for file in FOLDER.iterdir()} == pages


@pytest.mark.parametrize("bench", [paper, ablations, methods, maps])
def test_results_pages_are_written_from_the_figures(bench):
    assert bench.PAGE.read_text() == "\n".join(bench.page())


def test_pictures_are_drawn_from_the_figures():
    assert methods.PICTURE.read_text() == methods.picture()
    for rival, file in maps.PICTURES.items():
        assert file.read_text() == maps.picture(rival)


def test_the_team_gains_where_it_succeeds_more_often(monkeypatch):
    """With 2 of 6 arrows known and 3 hops: 0.7 and 0.9 of the team, 0.1 and 0.3 of one agent, seed by seed."""
    found = {"big_team": (0.7, 0.9), "big_part": (0.1, 0.3)}
    runs = {name: [{"by_kind": {maps.cell(2, 3): one}} for one in values] for name, values in found.items()}
    monkeypatch.setattr(maps, "TABLE", SimpleNamespace(found=runs.__getitem__))
    assert maps.gain("big", "part", 2, 3) == pytest.approx((0.6, 0.6, 0.6))
