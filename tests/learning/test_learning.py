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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 1)), 2])
def test_replies_that_are_charged_by_their_length_become_less_than_half_as_long(seed, tmp_path):
    """Of 16 tokens at most; every one beyond the second costs a twelfth, and nothing else is to be learned."""
    save_model(tiny(seed, scale=2.0), tmp_path / "model")
    sets = [*COMMON, f"policies.team.model={tmp_path / 'model'}", "train.steps=50", "algorithm.num_generations=4",
            "engine.max_tokens=16", f"train.seed={seed}"]  # fmt: skip

    def lengths(name: str, *more: str) -> list[float]:
        run = train(load_config("tests/toys.py:Sequential", [*sets, *more]), tmp_path / name)
        return [line["rollout/reply_tokens"] for line in run.metrics()[1:]]

    charged = lengths("charged", "loss.overlong_from=2", "loss.overlong_buffer=12")
    assert min(charged[:3]) > 12
    assert max(charged[-3:]) < 8
    assert min(lengths("free")) > 12
