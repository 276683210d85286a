"""The table and picture of teams over a real model, from figures by hand."""

from dataclasses import replace

import pytest

from benchmarks import real
from benchmarks.contest import picture
from benchmarks.figures import keep
from benchmarks.rows import Table


@pytest.fixture
def table(tmp_path, monkeypatch):
    """errand's team with two seeds, of which the first ended early, and one agent with a seed."""
    rows = {name: replace(real.TABLE.rows[name], seeds=(0, 1)) for name in ("errand", "errand_whole", "errand_part")}
    made = Table(tmp_path, "nobody", rows, tmp_path / "figures.jsonl")
    known = {"start_success": 0.1, "sampled_tokens": 60_000, "cpu_minutes": 10.0}
    curve = [(0, 0, 0.1), (5, 30_000, 0.5), (10, 60_000, 0.7)]
    for seed, success, clerk, points in ((0, 0.9, -0.6, curve[:2]), (1, 0.7, -0.2, curve)):
        told = {"success": success, "mute": {"clerk": clerk, "cashier": -0.8}, "curve": points}
        keep(made.file, {"row": "errand", "seed": seed, "digest": rows["errand"].digest, **known, **told})
    told = {"success": 0.3, "votes": 0.25, "start_votes": 0.05, "curve": curve}
    keep(made.file, {"row": "errand_whole", "seed": 0, "digest": rows["errand_whole"].digest, **known, **told})
    monkeypatch.setattr(real, "TABLE", made)
    return made


def test_a_row_says_what_its_seeds_have_reached(table):
    _, _, team, alone = real.table_lines()
    cells = [cell.strip() for cell in team.strip("|").split("|")]
    assert cells[:2] == ["errand: the team", "0.100"]
    assert cells[2].startswith("**0.800 (")
    assert cells[3:] == ["0.900, 0.700", "", "", "clerk -20 to -60; cashier -80 to -80", "60", "10"]
    assert "| 0.050 | 0.250 |" in alone
    assert "one seed" not in alone
    assert team in real.page()


def test_curves_of_different_lengths_have_a_mean_as_far_as_all_of_them(table):
    drawn = picture(table, real.ENTRANTS)
    assert "(thousands)" in drawn
    assert ">60</text>" in drawn
    thick = [line for line in drawn.splitlines() if 'stroke-width="3"' in line]
    assert [line.count(",") for line in thick] == [2, 3]
