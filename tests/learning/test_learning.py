"""The team learns: a bandit for two with a known optimum, from three seeds."""

import pytest

from coterie import load_config, train
from coterie.models.load import save_model
from tests.toys import tiny

COMMON = [
    "train.steps=40",
    "train.tasks_per_step=8",
    "train.eval_tasks=10",
    "train.eval_every=40",
    "train.checkpoint_every=40",
    "train.episodes_every=40",
    "algorithm.num_generations=8",
    "optimizer.lr=1e-2",
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("team", ["shared", "per role"])
def test_success_rises_from_chance_to_almost_always(seed, team, tmp_path):
    save_model(tiny(seed), tmp_path / "model")
    policies = ("team", "team") if team == "shared" else ("x", "y")
    sets = [f"policies.{policy}.model={tmp_path / 'model'}" for policy in dict.fromkeys(policies)]
    sets += ["team.a=x", "team.b=y"] if team == "per role" else []
    run = train(load_config("tests/toys.py:Agree", [*COMMON, *sets, f"train.seed={seed}"]), tmp_path / "run")
    lines = [line for line in run.metrics() if "role/a/return" in line]
    both = [line["role/a/return"] + line["role/b/return"] for line in lines]
    start, end = sum(both[:4]) / 4, sum(both[-4:]) / 4
    assert start < 2.6  # by chance: a earns 1/2 + 1/4, b 1/2 + … ; the optimum is 4
    assert end > 3.6, (start, end)
