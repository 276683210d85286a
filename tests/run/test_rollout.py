"""A step's rollout: how old its samples may be, and shares of it as one."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from coterie.config.settings import RuntimeConfig
from coterie.errors import EngineError
from coterie.kernel.episode import Sample
from coterie.kernel.front import Budget
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.team import Team
from coterie.run.records import Played
from coterie.run.rollout import Rollout, check_versions


def played(*versions: int, policy: str = "x") -> list[Played]:
    """A task a version."""
    samples = [
        Sample("a", policy, version, (1, 2), (5, at), (-1.0, -1.0), "stop", "t", at)
        for at, version in enumerate(versions)
    ]
    groups = [
        Group(Key(f"t{at}", 0, "0@0", "a"), "prompt", (Member((one,), (1.0,)),)) for at, one in enumerate(samples)
    ]
    return [Played("train", at, Collected((group,), ())) for at, group in enumerate(groups)]


def config(ahead: int = 0) -> SimpleNamespace:
    runtime = RuntimeConfig(name="ray", max_staleness=ahead) if ahead else RuntimeConfig()
    return SimpleNamespace(runtime=runtime, team=Team({"a": "x", "b": "judge"}, frozenset({"judge"})))


def test_taking_turns_every_sample_is_of_the_weights_that_learn():
    assert check_versions(config(), played(3, 3), 3) == {}
    for version in (2, 4):
        with pytest.raises(EngineError, match=f"step 4 holds a sample of policy 'x' by weights of step {version}"):
            check_versions(config(), played(3, version), 3)


def test_ahead_they_may_be_as_old_as_is_said_and_no_older():
    assert check_versions(config(2), played(1, 2, 3, 3), 3) == {"rollout/staleness": 0.75, "rollout/staleness_max": 2}
    for version in (0, 4):
        with pytest.raises(EngineError, match=r"runtime.max_staleness = 2"):
            check_versions(config(2), played(3, version), 3)


def test_what_is_never_trained_has_no_age():
    assert check_versions(config(), played(0, policy="judge"), 3) == {}


def test_shares_of_a_step_are_one_rollout_in_their_order():
    one = Rollout(tuple(played(0)), 1, Budget(prompt_tokens=3, engine_s=2.0, replies=Counter(a=1)), None)
    other = replace(one, lost=2, budget=Budget(prompt_tokens=4, engine_s=5.0, replies=Counter(a=2, b=1)))
    whole = Rollout.whole([one, other])
    assert whole.played == one.played + other.played
    assert whole.lost == 3
    assert (whole.budget.prompt_tokens, whole.budget.engine_s) == (7, 5.0), "engines worked side by side"
    assert whole.budget.replies == {"a": 3, "b": 1}
