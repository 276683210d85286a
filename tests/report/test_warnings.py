"""A run of each kind of trouble, and the warning that it gets, when it happens."""

from __future__ import annotations

import pytest

from coterie import load_config, train
from coterie.engines import decoding
from coterie.errors import ConfigError
from coterie.models.load import save_model
from coterie.report.diagnose import concerns, history
from tests.toys import tiny

SETS = ["train.steps=6", "train.tasks_per_step=8", "train.eval_tasks=50", "train.eval_every=50", "train.mute_every=0",
        "algorithm.num_generations=6", "algorithm.horizon=point"]  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_model(tiny(0, scale=2.0), folder / "wide")
    save_model(tiny(0, scale=2.0, context=96), folder / "narrow")
    return folder


def trouble(models, tmp_path, environment: str, *sets: str, model: str = "wide") -> dict[tuple[str, str], str]:
    """The warnings of a run, in their words."""
    named = f"policies.team.model={models / model}"
    run = train(load_config(f"tests/{environment}", [*SETS, named, *sets]), tmp_path / "run")
    roles = tuple(run.config.team.roles)
    arose = {(one.kind, one.role) for _, one in history(run.metrics(), roles)}
    last = {(one.kind, one.role): str(one) for one in concerns(run.metrics(), roles)}
    assert last.keys() <= arose
    return last


@pytest.mark.slow
def test_a_play_without_reward_or_outcome(models, tmp_path):
    told = trouble(models, tmp_path, "troubled.py:Mute", "train.steps=1")
    assert "call scene.reward(role, value)" in told["no_reward", ""]
    assert "end play with scene.succeed()" in told["no_outcome", ""]


@pytest.mark.slow
def test_a_learning_rate_that_spoils_the_weights(models, tmp_path):
    told = trouble(models, tmp_path, "toys.py:Agree", "optimizer.lr=1e6", "train.steps=12", "train.tasks_per_step=16")
    assert {"stuck", "exploded"} & {kind for kind, _ in told}
    assert all("lower" in text or "tenth" in text for (kind, _), text in told.items() if kind in ("stuck", "exploded"))


@pytest.mark.slow
def test_replies_that_are_all_cut(models, tmp_path):
    told = trouble(models, tmp_path, "troubled.py:Endless", "engine.max_tokens=3")
    assert "% are cut at the token limit: raise the limit" in told["cut", "a"]


@pytest.mark.slow
def test_a_policy_that_says_always_the_same(models, tmp_path):
    told = trouble(models, tmp_path, "troubled.py:Certain", "train.steps=80", "optimizer.lr=3e-2",
                   "optimizer.schedule=constant", "algorithm.num_generations=32")  # fmt: skip
    assert "has collapsed" in told["collapsed", "team"]


@pytest.mark.slow
def test_a_validation_that_does_not_move(models, tmp_path):
    told = trouble(models, tmp_path, "troubled.py:Fated", "train.eval_every=1")
    assert "validation is flat: 0.500, and 0.500 at step" in told["flat", ""]


@pytest.mark.slow
def test_a_validation_that_falls_from_its_best(models, tmp_path):
    told = trouble(models, tmp_path, "troubled.py:Perverse", "train.steps=10", "train.eval_every=5",
                   "optimizer.lr=3e-2", "algorithm.num_generations=16")  # fmt: skip
    assert "the best checkpoint is kept" in told["fallen", ""]


@pytest.mark.long
def test_a_shared_policy_that_one_role_has_captured(models, tmp_path):
    told = trouble(models, tmp_path, "troubled.py:Crowded", "train.steps=20", "train.tasks_per_step=4")
    assert "role 'a' has captured the policy it shares" in told["captured", "a"]
    assert ("dominant", "a") not in told


@pytest.mark.slow
def test_prompts_that_outgrow_the_context(models, tmp_path):
    told = trouble(models, tmp_path, "troubled.py:Growing", "train.steps=5", "train.tasks_per_step=2", model="narrow")
    assert "it is not asked, and the episode fails" in told["overlong", "a"]


def test_an_engine_that_samples_another_distribution(models, tmp_path, monkeypatch):
    right = decoding.log_distribution
    monkeypatch.setattr("coterie.run.policies.TESTED", {})
    monkeypatch.setattr(
        decoding, "log_distribution", lambda logits, temperature, size: right(logits / 4, temperature, size)
    )
    with pytest.raises(
        ConfigError, match=r"the engine's log-probabilities differ by 0\.\d+ from those of a plain forward"
    ):
        trouble(models, tmp_path, "toys.py:Agree", "train.steps=1")
    monkeypatch.setattr("coterie.run.policies.check_family", lambda policy, trained: None)
    told = trouble(models, tmp_path, "toys.py:Agree", "train.steps=1", "train.max_mismatch=9")
    assert "other probabilities than it sampled" in told["mismatch", "team"]


def test_a_play_that_has_solved_once_is_not_told_that_it_says_no_outcome():
    silent = {"step": 1, "groups/total": 4.0, "groups/live": 4.0, "rollout/no_outcome": 1.0}

    def told(*lines):
        return "no_outcome" in {one.kind for one in concerns([{"step": 0}, *lines], ("a", "b"))}

    assert told(silent)
    assert told(silent, {**silent, "step": 2})
    assert not told({**silent, "rollout/no_outcome": 0.9}, {**silent, "step": 2})
    assert not told({**silent, "validation/success": 0.5})


def test_a_run_in_which_nobody_is_asked_is_told_so():
    line = {"step": 1, "groups/total": 0.0, "groups/live": 0.0, "budget/sampled_tokens": 0}
    assert [one.kind for one in concerns([{"step": 0}, line], ("a",))] == ["unasked"]
    assert not concerns([{"step": 0}, {**line, "budget/sampled_tokens": 1}], ("a",))
