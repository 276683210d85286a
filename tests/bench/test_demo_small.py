"""The demo's claim: a weak team becomes a good one. Its beginning in the gate; the numbers of all seeds are in
docs/results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import smoke
from coterie.report.diagnose import history
from coterie.run.ablation import every_ablation
from coterie.run.loaded import load

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
from pathlib import Path
from coterie.bench.demo_small import CONFIG, before_and_after
from coterie.config.resolve import load_config
print(json.dumps(before_and_after(load_config(CONFIG), Path(sys.argv[1]))))
"""


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """The demo with seed 0, on one thread: two would wait for whoever has the other core."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("demo") / "run")]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=env)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
def test_a_starter_that_solves_at_most_half_ends_above_94_percent_in_fewer_turns(figures):
    assert figures["tasks"] == 1000
    assert figures["start_success"] <= 0.5
    assert figures["success"] >= 0.94
    assert figures["turns"] < figures["start_turns"]


@pytest.mark.long
def test_most_of_it_is_learned_early_and_the_run_looks_healthy(figures):
    lines = {int(line["step"]): line for line in load(figures["run"]).run.metrics()}
    assert lines[20]["validation/success"] >= lines[0]["validation/success"] + 0.25
    last = lines[max(lines)]
    assert last["groups/live"] > 0
    for policy in ("scout", "pilot"):
        assert last[f"policy/{policy}/entropy"] > 0.02
        assert last[f"policy/{policy}/mismatch_max"] < 1e-3
    assert all(
        line[f"role/{role}/truncated_share"] < 0.05
        for line in lines.values()
        if line["step"]
        for role in ("proposer", "planner")
    )


@pytest.mark.long
def test_both_roles_earn_their_place_and_nothing_is_warned_of(figures):
    """Muting costs at least 20 points, exchanging policies something, and each role has learned what it does."""
    team = load(figures["run"])
    lines = team.run.metrics()
    assert history(lines, ("proposer", "planner")) == []
    assert any("mute/proposer/change" in line for line in lines)
    _, changes = team.compare(every_ablation(team.config.team), tasks=500)
    found = {one.ablation: one for one in changes}
    for role in ("proposer", "planner"):
        assert found[f"mute {role}"].change <= -0.2
        assert found[f"mute {role}"].high < -0.1
        assert found[f"replace {role}=base"].high < 0
    assert found["swap proposer,planner"].high < 0


@pytest.mark.long
def test_twenty_steps_raise_its_success():
    figures = smoke.run(print)
    assert figures["success"] >= figures["start"] + 0.1
