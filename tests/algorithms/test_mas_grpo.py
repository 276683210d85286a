"""mas_grpo: what is compared by `by`, from one set of episodes."""

from __future__ import annotations

import pytest

from coterie.algorithms.drmas import DrMAS
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.kernel.team import route
from tests.toys import TEAM, Sequential, Toy, one, scripted


class Ends(Toy):
    """a and b speak each turn; a's words say whether there is another turn, and the last what the team wins."""

    async def play(self, task, scene):
        for _ in scene.turns(3):
            said = (await scene.ask("a", "on?")).text
            await scene.ask("b", "hm")
            if said != "on":
                scene.team_reward(float(said))
                break


def collected(by, algorithm=None):
    """Episodes of 2, 1 and 1 turns that return 3, 1 and 2."""
    said = iter(["on", "1", "2", "3"])
    play = scripted(Ends(), lambda role, prompt, rng: next(said) if role == "a" else "x")
    algorithm = algorithm or MASGRPO(num_generations=3, advantage="center", by=by)
    return play, algorithm, one(play, algorithm.collect(play, Ends().task("train", 0)))


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("team", {("*", "team"): (3.0, 1.0, 2.0)}),
        ("role", {("*", "a"): (3.0, 1.0, 2.0), ("*", "b"): (3.0, 1.0, 2.0)}),
        ("turn", {("turn 0", "team"): (3.0, 1.0, 2.0)}),
        ("role_turn", {("turn 0", "a"): (3.0, 1.0, 2.0), ("turn 0", "b"): (3.0, 1.0, 2.0)}),
    ],
)
def test_groups_by_hand(by, wanted):
    play, algorithm, found = collected(by)
    assert {(group.key.path, group.key.role): group.values for group in found.groups} == wanted
    alone = {"turn": 2, "role_turn": 2}.get(by, 0)
    assert play.budget.dropped["lone"] == alone, "one episode alone had a second turn"
    routed = route(TEAM, found.groups, algorithm.credit(found.groups, {})[0])
    assert sum(map(len, routed.values())) == 8 - alone


def test_what_is_said_before_the_first_turn_is_a_turn_of_its_own():
    class Before(Toy):
        async def play(self, task, scene):
            await scene.ask("a", "hello")
            for _ in scene.turns(1):
                await scene.ask("a", "on?")
            scene.team_reward(1.0)

    algorithm = MASGRPO(num_generations=2, by="turn")
    play = scripted(Before())
    groups = one(play, algorithm.collect(play, Before().task("train", 0))).groups
    assert sorted(group.key.path for group in groups) == ["turn -1", "turn 0"]


def test_where_both_roles_speak_once_in_a_turn_groups_by_role_make_the_update_of_whole_episodes():
    totals = {}
    for by in ("team", "role", "turn", "role_turn"):
        play = scripted(Sequential())
        algorithm = MASGRPO(num_generations=4, by=by)
        groups = one(play, algorithm.collect(play, Sequential().task("train", 0))).groups
        totals[by] = sorted(
            (sample.role, sample.text, round(advantage, 6))
            for group, earned in zip(groups, algorithm.credit(groups, {})[0], strict=True)
            for member, advantage in zip(group.members, earned, strict=True)
            for sample in member.samples
        )
    assert totals["team"] == totals["role"]
    assert totals["turn"] == totals["role_turn"]


def test_by_role_it_is_drmas_that_counts_an_episode_once():
    groups = {}
    for algorithm in (MASGRPO(by="role"), DrMAS(count="episode")):
        play = scripted(Sequential())
        groups[type(algorithm)] = one(play, algorithm.collect(play, Sequential().task("train", 0))).groups
    assert groups[MASGRPO] == groups[DrMAS]
