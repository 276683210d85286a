"""The plan of a run as text."""

from dataclasses import replace

from coterie.config.resolve import load_config
from coterie.report.planned import dry_text
from coterie.run.dry import DryRun


def test_a_dry_run_says_how_long_all_steps_take_at_its_pace():
    """Two tasks took 4 + 2 seconds, 3 a task; ten steps of eight are 80 tasks, 240 seconds."""
    config = load_config("tally", ["train.steps=10", "train.tasks_per_step=8"])
    done = DryRun(tasks=2, plans=(), measured=(), rollout_s=4.0, update_s=2.0)
    assert "at the pace of so small a step 4 min for 10 steps of 8 tasks, besides validations" in dry_text(done, config)
    assert "at the pace of so small a step 60 s for 10 steps of 8 tasks" in dry_text(
        replace(done, rollout_s=1.0, update_s=0.5), config
    )
