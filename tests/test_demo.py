"""The demo's claim: a weak team becomes a good one. Slow; the numbers of all seeds are in docs/results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.api import load

ROOT = Path(__file__).parent.parent
SCRIPT = """
import json, sys
from pathlib import Path
from coterie.bench.demo import CONFIG, before_and_after
from coterie.config import load_config
print(json.dumps(before_and_after(load_config(CONFIG), Path(sys.argv[1]))))
"""


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """The demo with seed 0, in a process that has both cores."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("demo") / "run")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_starter_that_solves_at_most_half_ends_above_94_percent_in_fewer_turns(figures):
    assert figures["tasks"] == 1000
    assert figures["start_success"] <= 0.5
    assert figures["success"] >= 0.94
    assert figures["turns"] < figures["start_turns"]


@pytest.mark.slow
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
