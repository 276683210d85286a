"""The loop that teaches the design, examples/loop.py, moves weights as `coterie train` does."""

import importlib.util
from pathlib import Path

import pytest
import torch

import coterie
from coterie.config.resolve import load_config
from coterie.models.load import save_model
from tests.toys import tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def loop():
    spec = importlib.util.spec_from_file_location("loop", ROOT / "examples" / "loop.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights_of(policy) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in policy.model.trained])


@pytest.mark.parametrize("team", [("one", "one"), ("one", "two")])
def test_two_steps_move_the_weights_of_every_policy_as_those_of_a_run(team, loop, tmp_path, capsys):
    save_model(tiny(scale=2.0), tmp_path / "model")
    sets = (
        f"team.a={team[0]}", f"team.b={team[1]}", *(f"policies.{name}.model={tmp_path / 'model'}" for name in {*team}),
        "train.tasks_per_step=4", "train.eval_tasks=2", "train.mute_every=0", "train.device=cpu", "optimizer.eps=0.001",
    )  # fmt: skip
    steps = loop.train("tests/toys.py:Agree", 2, *sets)
    before = {name: weights_of(policy) for name, policy in next(steps).trained.items()}
    after = {name: weights_of(policy) for name, policy in next(steps).trained.items()}
    steps.close()
    config = load_config("tests/toys.py:Agree", ["train.steps=2", "train.checkpoint_every=1", *sets])
    run = coterie.train(config, tmp_path / "run")
    start, first, second = (coterie.load(run.folder, step).models.policies for step in (0, 1, 2))
    for name in team:
        assert (weights_of(start[name]) - weights_of(second[name])).abs().max() > 1e-6, "it has learned"
        assert torch.allclose(before[name], weights_of(first[name]), atol=1e-7, rtol=0)
        assert torch.allclose(after[name], weights_of(second[name]), atol=1e-7, rtol=0)
    assert capsys.readouterr().out.count("reward of a reply") == 1
