"""Hierarchical GRPO by hand: attempts within an episode, proposals across episodes."""

from __future__ import annotations

import pytest

from coterie import load_config
from coterie.algorithms.hierarchical_grpo import HierarchicalGRPO
from coterie.errors import ConfigError
from coterie.kernel.team import route
from tests.toys import TEAM, Toy, one, scripted

ALGORITHM = HierarchicalGRPO(num_generations=2, attempts=("b",))


class Proposed(Toy):
    """a proposes, b attempts it twice; an attempt is worth its number, and a proposal what half of b's miss of 1."""

    async def play(self, task, scene):
        proposal = await scene.ask("a", "propose")
        attempts = await scene.ask_all([("b", proposal.text)] * 2)
        for reply in attempts:
            scene.reward(reply, float(reply.text))
        scene.reward(proposal, 1 - sum(float(reply.text) for reply in attempts) / 2)


def test_the_golden_numbers():
    """Attempts 1, 0 at p and 1, 1 at q, so proposals are worth 0.5 and 0."""
    proposals, attempts = iter("pq"), {"p": iter("10"), "q": iter("11")}
    play = scripted(Proposed(), lambda role, prompt, rng: next(proposals) if role == "a" else next(attempts[prompt]))
    found = one(play, ALGORITHM.collect(play, Proposed().task("train", 0)))
    told = {group.key.path: (group.key.role, group.values) for group in found.groups}
    assert told == {"*": ("a", (0.5, 0.0)), "attempts 0.0": ("b", (1, 0)), "attempts 1.0": ("b", (1, 1))}
    earned, _ = ALGORITHM.credit(found.groups, {})
    assert dict(zip(told, earned, strict=True)) == {
        "*": pytest.approx((0.25, -0.25)), "attempts 0.0": pytest.approx((0.5, -0.5)), "attempts 1.0": (0.0, 0.0),
    }  # fmt: skip
    routed = route(TEAM, found.groups, earned)
    assert (len(routed["pa"]), len(routed["pb"])) == (2, 4)


def test_attempts_of_two_roles_at_one_prompt_are_two_groups():
    class Both(Toy):
        async def play(self, task, scene):
            for reply in await scene.ask_all([("a", "solve"), ("b", "solve")] * 2):
                scene.reward(reply, float(reply.text))

    algorithm = HierarchicalGRPO(num_generations=2, attempts=("a", "b"))
    said = {"a": iter("1212"), "b": iter("3434")}
    play = scripted(Both(), lambda role, prompt, rng: next(said[role]))
    found = one(play, algorithm.collect(play, Both().task("train", 0)))
    assert [(group.key.role, group.values) for group in found.groups] == [("a", (1, 2)), ("b", (3, 4))] * 2


def test_an_attempt_alone_is_not_trained():
    class Once(Toy):
        async def play(self, task, scene):
            scene.reward("a", float((await scene.ask("a", "propose")).text))
            scene.reward("b", float((await scene.ask("b", "solve")).text))

    play = scripted(Once())
    found = one(play, ALGORITHM.collect(play, Once().task("train", 0)))
    assert [group.key.role for group in found.groups] == ["a"]
    assert play.budget.dropped["lone"] == 2, "b's attempts"


def test_a_role_that_is_named_twice_is_refused():
    with pytest.raises(ConfigError, match="names 'planner' twice"):
        load_config("plan_path", ["algorithm.name=hierarchical_grpo", "algorithm.attempts=['planner', 'planner']"])


def test_a_role_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="attempts names 'planer'; did you mean 'planner'"):
        load_config("plan_path", ["algorithm.name=hierarchical_grpo", "algorithm.attempts=['planer']"])
