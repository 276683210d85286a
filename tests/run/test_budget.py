"""A budget of sampled tokens: it ends a run, moves the learning rate, and is kept by a resumed run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coterie import load_config, train, update
from coterie.errors import ConfigError
from coterie.learning.optimizer import OptimizerConfig, learning_rate
from coterie.models.load import save_model
from coterie.run.folder import Run
from tests.runs import cut_back, untimed, weights
from tests.toys import tiny

SETS = [
    "team.a=x", "team.b=y", "policies.x.model=TINY", "policies.y.model=TINY", "train.steps=50",
    "train.tasks_per_step=3", "train.eval_tasks=5", "train.eval_every=30", "train.checkpoint_every=1",
    "train.keep_checkpoints=99", "train.episodes_every=1", "algorithm.num_generations=4", "optimizer.lr=1e-2",
    "engine.max_tokens=8", "train.max_sampled_tokens=1200",
]  # fmt: skip


@pytest.mark.parametrize(
    ("spent", "schedule", "rate"),
    [(0.25, "linear", 0.75), (0.05, "linear", 0.9), (0.5, "cosine", 0.5), (1, "linear", 0)],
)
def test_the_rate_follows_steps_or_tokens_whichever_is_further(spent, schedule, rate):
    """Step 1 of 10, so a tenth by steps."""
    assert learning_rate(OptimizerConfig(lr=1.0, schedule=schedule), 1, 10, spent) == pytest.approx(rate)


def test_the_rate_falls_from_its_peak_after_the_warm_up_whatever_was_spent_in_it():
    """Eight steps spend a budget, five of them in the warm-up: 1, 2/3 and 1/3 of the peak are left."""
    config = OptimizerConfig(lr=1.0, warmup_steps=5)
    rates = [learning_rate(config, step, 1000, step / 8) for step in range(8)]
    assert rates == pytest.approx([1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1, 2 / 3, 1 / 3])


def test_rollouts_ahead_of_the_budget_are_refused():
    with pytest.raises(ConfigError, match=r"train\.max_sampled_tokens.*before it is known"):
        load_config(
            "configs/plan_path.toml", ["train.max_sampled_tokens=9", "runtime.name=ray", "runtime.max_staleness=1"]
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return folder


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(load_config("tests/toys.py:Agree", [one.replace("TINY", str(model)) for one in SETS]), folder)
    return folder


@pytest.mark.slow
def test_a_run_ends_at_the_first_step_that_has_spent_its_budget(whole):
    lines = Run(whole).metrics()
    totals = [line["budget/sampled_tokens"] for line in lines[1:]]
    assert totals[-2] < 1200 <= totals[-1]
    assert "validation/success" in lines[-1], "the last step is validated, whatever eval_every says"
    assert Run(whole).saved_episodes()[-1] == Run(whole).checkpoints.steps()[-1] == len(totals)
    before = [0, *totals[:-1]]
    expected = [1e-2 * (1 - max(step / 50, spent / 1200)) for step, spent in enumerate(before)]
    for policy in "xy":
        assert [line[f"policy/{policy}/lr"] for line in lines[1:]] == pytest.approx(expected)


@pytest.mark.slow
def test_it_is_resumed_and_updated_exactly(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, 2)
    train(resume=folder)
    last = len(untimed(whole)) - 1
    assert untimed(folder) == untimed(whole)
    assert weights(folder, last) == weights(whole, last)
    assert update(Run(folder), last).differs == ()
    train(resume=folder)
    assert untimed(folder) == untimed(whole), "there is nothing left to spend"
