"""One role asked several prompts at once, and a team that grows and shrinks: keys, credit, replay and ablation hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.gigpo import GiGPO
from coterie.algorithms.joyagents import JoyAgents
from coterie.algorithms.magrpo import MAGRPO
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.checks.conformance import check
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import EnvError
from coterie.kernel.environment import SPLITS, Environment, Split, Task
from coterie.kernel.episode import Answered, Asked, Rewarded, episode_of, path_of, value
from coterie.kernel.play import Play, Sampling
from coterie.kernel.scene import Scene, role_of
from coterie.kernel.team import Team, route
from coterie.report.text import tree_text
from coterie.run.evaluate import evaluate_team
from coterie.run.records import Played
from coterie.sampling.to_go import to_go
from tests.toys import Agree, one, scripted

TEAM = Team({"lead": "p", "worker": "q"})


@dataclass(frozen=True, slots=True)
class Named(Task):
    number: int = 0


class Crew(Environment):
    """The lead says how many workers; each is worth its own number; then the lead once more."""

    roles: ClassVar = ("lead", "worker")

    def task(self, split: Split, index: int) -> Task:
        return Named(f"{split}-{index}", split, number=3 * index + SPLITS.index(split))

    async def play(self, task: Task, scene: Scene) -> None:
        for _ in scene.turns(2):
            many = await scene.ask("lead", "how many?")
            count = min(3, int(many.text)) if many.text.isdigit() else 0
            replies = await scene.ask_all([("worker", f"part {at} of {count}") for at in range(count)])
            for reply in replies:
                scene.reward(reply, float(len(reply.text)))
            scene.team_reward(count / 10)
        scene.succeed()


def says(role, prompt, rng) -> str:
    return f"{rng.randrange(0, 4)}" if role == "lead" else "x" * rng.randrange(1, 6)


def play(script=says, **kwargs) -> Play:
    return Play(Crew(), TEAM, ScriptedEngine(script), seed=3, **kwargs)


def collected(algorithm, script=says):
    """Groups and logs of several tasks."""
    mine = play(script)

    async def all_of():
        return await mine.together(*(algorithm.collect(mine, Crew().task("train", at)) for at in range(6)))

    return [one for one in asyncio.run(all_of()) if not isinstance(one, Exception)]


def test_a_role_asked_several_times_at_once_has_a_speaker_for_each():
    mine = play(lambda role, prompt, rng: "3" if role == "lead" else prompt.split()[1] * 2)
    cursor = mine.start(Crew().task("train", 0))
    drawn = asyncio.run(one_branch(mine, cursor))
    asked = [event for event in cursor.events if isinstance(event, Asked)]
    assert [tuple(event.prompts) for event in asked] == [("lead",), ("worker#0", "worker#1", "worker#2")] * 2
    replies = [event.replies for event in cursor.events if isinstance(event, Answered)][1]
    assert {speaker: (reply.role, reply.text) for speaker, reply in replies.items()} == {
        f"worker#{at}": ("worker", f"{at}{at}") for at in range(3)
    }
    assert len({one.sample.seed for one in drawn}) == len(drawn) == 8  # pyright: ignore[reportGeneralTypeIssues]
    assert cursor.log.rewards() == {"worker": 12.0, "team": pytest.approx(0.6)}


async def one_branch(mine: Play, cursor):
    (drawn,) = await mine.together(mine.run(cursor))
    return drawn


@pytest.mark.parametrize("count", [0, 1])
def test_none_and_one_are_numbers_too(count):
    mine = play(lambda role, prompt, rng: str(count) if role == "lead" else "x")
    cursor = mine.start(Crew().task("train", 0))
    asyncio.run(one_branch(mine, cursor))
    asked = [tuple(event.prompts) for event in cursor.events if isinstance(event, Asked)]
    assert asked == ([("lead",), ("worker",)] * 2 if count else [("lead",)] * 2)


# two workers at point 1 earn 5 and 7, the team 0.2 in that turn; later workers 1, the team 0.1
def test_a_reply_earns_its_own_reward_and_no_neighbours():
    lengths = iter([5, 7, 1])
    counts = iter(["2", "1"])
    mine = play(lambda role, prompt, rng: next(counts) if role == "lead" else "x" * next(lengths))
    cursor = mine.start(Crew().task("train", 0))
    asyncio.run(one_branch(mine, cursor))
    worth = {
        (speaker, horizon): value(cursor.events, 1, speaker, horizon).total
        for speaker in ("worker#0", "worker#1")
        for horizon in ("turn", "episode")
    }
    assert worth == {
        ("worker#0", "turn"): pytest.approx(5.2), ("worker#1", "turn"): pytest.approx(7.2),
        ("worker#0", "episode"): pytest.approx(6.3), ("worker#1", "episode"): pytest.approx(8.3),
    }  # fmt: skip
    # discounted by 0.5: the next point came to 1 + 0.1
    decisions = [(1, "worker#0"), (1, "worker#1"), (3, "worker")]
    assert to_go(cursor.events, decisions, 1.0, 0.5) == pytest.approx([5.75, 7.75, 1.1])


@pytest.mark.parametrize(
    "algorithm",
    [ATGRPO(num_generations=3), MASGRPO(num_generations=4), GiGPO(num_generations=4), JoyAgents(num_generations=3),
     MAGRPO(num_generations=2)],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_every_method_keys_credits_and_routes_each_reply(algorithm):
    found = collected(algorithm)
    groups = [group for one in found for group in one.groups]
    assert len({group.key for group in groups}) == len(groups)
    earned, _ = algorithm.credit(groups, {})
    routed = route(TEAM, groups, earned)
    assert {one.sample.role for one in routed["q"]} == {"worker"}
    assert {one.sample.role for one in routed["p"]} == {"lead"}
    prompts = [group for group in groups if group.scope == "prompt"]
    assert all(len({member.samples[0].prompt_ids for member in group.members}) == 1 for group in prompts)
    if algorithm.__class__ in (ATGRPO, JoyAgents, MAGRPO):  # a worker of several has a group of its own
        assert any("#1" in group.key.path and group.key.role == "worker" for group in groups)


def test_a_tree_values_each_worker_by_its_own_reward():
    for found in collected(ATGRPO(num_generations=4)):
        for group in found.groups:
            if group.key.role == "worker":
                counts = {round(member.value - len(member.samples[0].text), 6) for member in group.members}
                assert len(counts) == 1  # what remains is the team's, the same for all


def test_a_tree_shows_each_group_once_below_what_it_was_asked():
    together = scripted(Agree())
    trees = [one(together, ATGRPO(num_generations=4).collect(together, Agree().task("train", 0)))]
    for found in [*trees, *collected(ATGRPO(num_generations=3))]:
        played = Played("train", 0, found, tuple((0.0,) * len(group.members) for group in found.groups))
        shown, asked = [], ""
        for line in tree_text(played).splitlines():
            if line.endswith(" is asked"):
                asked = line.split(", ")[1].removesuffix(" is asked")
            elif line.startswith("    group "):
                path, _, role = line.removeprefix("    group ").split(":")[0].split("/", 2)[2].rpartition("/")
                shown.append(f"{role}{path.partition('#')[1]}{path.partition('#')[2]}")
                assert shown[-1] == asked
        assert len(shown) == len(found.groups) > 0


def test_a_branch_begins_with_the_number_of_its_episode():
    assert [episode_of(branch) for branch in ("0", "12", "12/3.1", "3/10.2/4.greedy")] == [0, 12, 12, 3]
    assert path_of("12/3.1", 4, "worker#2") == "12/3.1@4#2"
    assert path_of("0", 4, "lead") == path_of("0", 4) == "0@4"


def test_the_contract_is_checked_and_holds():
    report = check(Crew(), tasks=2, horizon="turn", decentralised=True)
    assert report.ok, str(report)


def test_a_muted_role_is_mute_however_often_it_is_asked():
    engine = ScriptedEngine(lambda role, prompt, rng: "3" if role == "lead" else "xx")
    found = evaluate_team(Crew(), TEAM, engine, tasks=2, seats={"worker": lambda prompt: ""})
    assert found.rewards == {"worker": 0.0, "team": pytest.approx(0.6)}
    assert all(request.role == "lead" for wave in engine.waves for request in wave)


def wrong(body: str) -> str:
    """What is said of a play."""

    class Wrong(Crew):
        async def play(self, task: Task, scene: Scene) -> None:
            await eval(f"(lambda scene: {body})(scene)")  # one coroutine of a scene

    cursor = Play(Wrong(), TEAM, ScriptedEngine(says), seed=0).start(Crew().task("train", 0))
    with pytest.raises(EnvError) as told:
        asyncio.run(cursor.advance())
    return str(told.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("scene.ask_all('lead')", "takes {role: prompt}, or a list of (role, prompt)"),
        ("scene.ask_all(['lead'])", "takes {role: prompt}, or a list of (role, prompt)"),
        ("scene.ask_all([('boss', 'x')])", "the roles are ['lead', 'worker']"),
        ("scene.ask_all([('worker', 'x')] * 257)", "asked 257 prompts at once, more than 256"),
        ("scene.ask_all({})", "play asked []"),
        ("scene.ask('worker#1', 'x')", "asked 'worker#1', which is no role"),
        ("scene.ask_all({'worker#1': 'x'})", "asked 'worker#1', which is no role"),
        ("scene.ask_all([('worker#1', 'x'), ('worker', 'y')])", "asked 'worker#1', which is no role"),
    ],
)
def test_what_is_no_list_of_prompts_is_one_line(body, message):
    assert message in wrong(body)


def test_a_reward_says_whose_where_several_spoke():
    class Vague(Crew):
        async def play(self, task: Task, scene: Scene) -> None:
            await scene.ask_all([("worker", "x"), ("worker", "y")])
            scene.reward("worker", 1.0)

    class Late(Crew):
        async def play(self, task: Task, scene: Scene) -> None:
            first, _ = await scene.ask_all([("worker", "x"), ("worker", "y")])
            await scene.ask("worker", "again")
            scene.reward(first, 1.0)

    for environment, message in ((Vague(), "spoke 2 times at once; say for which"), (Late(), "none of the latest")):
        mine = Play(environment, TEAM, ScriptedEngine(says), seed=0)
        with pytest.raises(EnvError, match=message):
            asyncio.run(one_branch(mine, mine.start(Crew().task("train", 0))))


def test_where_a_team_grows_beyond_the_bound_of_cross_its_joint_actions_are_aligned():
    """4^2 = 16 joint actions of two workers, at most 20; 4^3 of three are too many, and no reply ends the run."""
    for count, several in (("2", 16 // 4), ("3", 1)):
        tasks = collected(
            MAGRPO(num_generations=4, joint="cross", max_joint_actions=20, expansion="greedy"),
            lambda role, prompt, rng, count=count: count if role == "lead" else rng.choice("xyz"),
        )
        workers = [group for task in tasks for group in task.groups if group.key.role.startswith("worker")]
        assert workers
        assert {len(member.returns) for group in workers for member in group.members} == {several}


@pytest.mark.parametrize("make", [iter, tuple, lambda prompts: (prompt for prompt in prompts)])
def test_prompts_may_be_whatever_can_be_gone_through(make):
    class Lazy(Crew):
        async def play(self, task: Task, scene: Scene) -> None:
            prompts = [("worker", "one"), ("worker", "two")]
            assert len(await scene.ask_all(make(prompts))) == 2
            scene.succeed()

    mine = Play(Lazy(), TEAM, ScriptedEngine(says), seed=0)
    cursor = mine.start(Crew().task("train", 0))
    asyncio.run(one_branch(mine, cursor))
    assert len(list(cursor.log.replies())) == 2


def test_speakers_names():
    assert [role_of(one) for one in ("worker", "worker#0", "worker#12")] == ["worker"] * 3


# the worker's first reply: what both replies of the next point earned, at half: 0.5 x (1 + 2)
def test_what_a_role_does_pays_in_all_its_later_replies_side_by_side():
    events = [
        Asked({"worker": "s"}),
        Asked({"worker#0": "x", "worker#1": "y"}),
        Rewarded("worker#0", 1, 1.0, "local"),
        Rewarded("worker#1", 1, 2.0, "local"),
    ]
    points = [(0, "worker"), (1, "worker#0"), (1, "worker#1")]
    assert to_go(events, points, 1.0, 0.5) == [1.5, 1.0, 2.0]


def test_one_of_several_prompts_that_outgrew_the_context_is_counted_by_role_and_is_no_success():
    class Long(Crew):
        async def play(self, task: Task, scene: Scene) -> None:
            await scene.ask("lead", "begin")
            await scene.ask_all([("worker", "y"), ("worker", "y" * 999)])
            scene.succeed()

    class Small(ScriptedEngine):
        def context(self, policy: str) -> int:
            return 600

    mine = Play(Long(), TEAM, Small(says), seed=0, sampling=Sampling(max_tokens=8))
    cursor = mine.start(Crew().task("train", 0))
    asyncio.run(one_branch(mine, cursor))
    assert dict(mine.budget.overlong) == {"worker": 1}
    assert not cursor.log.solved
