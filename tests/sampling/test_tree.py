"""Tree sampling, with scripted teams: who is compared with whom, what is committed, what is lost.

Names of the form D1 refer to defects of the published code that must not come back.
"""

import time
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.c3 import C3
from coterie.algorithms.drmas import DrMAS
from coterie.algorithms.magrpo import MAGRPO
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import CallError, ConfigError, EnvError, Unavailable
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Environment
from coterie.kernel.episode import Asked, Rewarded
from coterie.kernel.front import RETRIES
from coterie.kernel.play import Play, Sampling
from coterie.kernel.scene import Scene
from coterie.sampling.tree import tree
from tests.outside import double, slow, unavailable_for_odd
from tests.toys import (
    TEAM,
    Looping,
    Sequential,
    Simultaneous,
    Tools,
    Toy,
    counting,
    one,
    run,
    scripted,
    worth,
)


def grow(environment: Environment, script=None, index: int = 0, **settings):
    play = scripted(environment, script)
    keywords = {"num_generations": 4, "horizon": "turn", "team_weight": 1.0, "commit": "greedy", **settings}
    return play, one(play, tree(play, environment.task("train", index), **keywords))


def test_n_agents_and_t_turns_give_exactly_n_t_groups_of_k():
    _, found = grow(Sequential(max_turns=3), num_generations=5)
    assert [group.key.path for group in found.groups] == [f"0@{point}" for point in range(6)]
    assert [group.key.role for group in found.groups] == ["a", "b"] * 3
    assert {len(group.members) for group in found.groups} == {5}


def test_eight_tasks_and_four_draws_give_sixteen_groups_a_turn_each_of_one_task():
    """D9: the published key merged K different tasks."""
    environment = Sequential(max_turns=1)
    play = scripted(environment)

    async def collect():
        tasks = [environment.task("train", index) for index in range(8)]
        return await play.together(*(ATGRPO(num_generations=4).collect(play, task) for task in tasks))

    groups = [group for found in run(collect()) for group in found.groups]
    assert len(groups) == 16
    assert len({group.key for group in groups}) == 16
    assert {len(group.members) for group in groups} == {4}


def test_every_prompt_holds_the_committed_winners_and_nothing_else():
    """D1, D3: branches stepped another environment; sequential roles did not see each other."""
    _, found = grow(Sequential(max_turns=3))
    committed = [group.members[group.committed].samples[0] for group in found.groups]
    for number, group in enumerate(found.groups):
        role, turn = group.key.role, number // 2
        said = " ".join(f"{sample.role}{sample.text}" for sample in committed[:number])
        prompts = {bytes(member.samples[0].prompt_ids).decode() for member in group.members}
        assert prompts == {f"{role} {turn}: {said}"}


def test_every_candidate_is_valued_by_its_own_branch():
    """D2, D5b, D6, D7, D8 of the spec's list: rewards follow the candidate, whoever came before."""
    _, found = grow(Sequential(max_turns=1), horizon="point")
    for group in found.groups:
        for member in group.members:
            assert member.parts["local"] == worth(member.samples[0].text)


@pytest.mark.parametrize("joint", ["aligned", "per_role"])
def test_each_role_of_a_point_is_valued_by_its_own_rewards(joint):
    _, found = grow(Simultaneous(max_turns=2), horizon="point", team_weight=0.0, joint=joint)
    assert [group.key.role for group in found.groups] == ["a", "b", "a", "b"]
    for group in found.groups:
        for member in group.members:
            assert member.value == worth(member.samples[0].text)


def test_the_team_reward_is_that_of_the_candidates_own_branch():
    _, found = grow(Sequential(max_turns=2), horizon="turn", team_weight=0.5)
    said = 0.0
    for group in found.groups:
        if group.key.role == "b":  # the last of its turn: no continuation adds to the team's reward
            for member in group.members:
                mine = worth(member.samples[0].text)
                assert member.parts["team/team"] == pytest.approx(0.5 * (said + mine) / 10)
                assert member.value == pytest.approx(mine + 0.5 * (said + mine) / 10)
        said += worth(group.members[group.committed].samples[0].text)


def test_a_horizon_of_a_point_ends_before_the_next_decision():
    _, found = grow(Sequential(max_turns=2), horizon="point")
    assert all("team/team" not in member.parts for group in found.groups[::2] for member in group.members)
    assert all("team/team" in member.parts for group in found.groups[1::2] for member in group.members)


@pytest.mark.parametrize(("horizon", "forks"), [("point", [2, 1, 1, 1]), ("turn", [8, 8, 8, 8])])
def test_where_nothing_is_drawn_equal_answers_share_a_fork_and_the_committed_one_goes_on(monkeypatch, horizon, forks):
    made: list[int] = []
    fork = Cursor.fork

    def counted(self, *args, **kwargs):
        made.append(len(self.log.events))
        return fork(self, *args, **kwargs)

    monkeypatch.setattr(Cursor, "fork", counted)

    def script(role: str, prompt: str, rng: Random) -> str:
        return rng.choice("27")

    _, found = grow(Sequential(max_turns=2), script, num_generations=8, horizon=horizon)
    assert all({member.samples[0].text for member in group.members} == {"2", "7"} for group in found.groups)
    assert [made.count(length) for length in sorted(set(made))] == forks
    assert [group.values for group in found.groups] == [
        tuple(worth(member.samples[0].text) + (member.parts.get("team/team", 0.0)) for member in group.members)
        for group in found.groups
    ]


@pytest.mark.parametrize("horizon", ["point", "turn", "episode"])
@pytest.mark.parametrize("commit", ["greedy", "random"])
def test_a_state_changes_no_value_whatever_is_done_with_it_before_the_turns(horizon, commit):
    class Best(Toy):
        kept: bool = True

        async def play(self, task, scene):
            state = scene.state() if self.kept else SimpleNamespace()
            state.best, state.said = 0.0, []
            state.said.append(scene.rng.random())
            for _ in scene.turns(4):
                reply = await scene.ask("a", f"{state.said} {scene.rng.random()}")
                state.best = max(state.best, worth(reply.text))
                state.said.append(state.best)
                scene.reward("a", state.best)
            scene.succeed()

    def values(kept: bool) -> list[tuple[float, ...]]:
        _, found = grow(Best(kept=kept), horizon=horizon, commit=commit)
        return [group.values for group in found.groups]

    assert values(kept=True) == values(kept=False)
    assert len(set(values(kept=True))) > 1


def test_a_branch_that_is_valued_otherwise_than_the_story_is_told():
    class Counting(Toy):
        async def play(self, task, scene):
            scene.state()
            said: list[str] = []
            for _ in scene.turns(3):
                said.append((await scene.ask("a", "say")).text)
                scene.reward("a", -len(said))
            scene.succeed()

    with pytest.raises(EnvError, match=r"what passes from turn to turn must be in scene\.state"):
        grow(Counting(), horizon="point")


def test_greedy_commits_the_joint_answer_that_earns_most_over_all_roles():
    for index in range(20):
        _, found = grow(Simultaneous(max_turns=1), index=index, horizon="point", team_weight=0.0, joint="aligned")
        together = [sum(values) for values in zip(*(group.values for group in found.groups), strict=True)]
        assert {together[group.committed] for group in found.groups} == {max(together)}


def test_greedy_commits_a_best_candidate_and_random_does_not_look():
    _, greedy = grow(Sequential(max_turns=4), horizon="point")
    assert all(group.values[group.committed] == max(group.values) for group in greedy.groups)
    commits = [grow(Sequential(max_turns=4), index=index, commit="random", horizon="point")[1] for index in range(8)]
    chosen = [group.committed for found in commits for group in found.groups]
    assert len(set(chosen)) == 4
    assert any(group.values[group.committed] < max(group.values) for found in commits for group in found.groups)


def test_ties_are_broken_by_a_seeded_draw_not_by_place():
    """D8: ties always went to index 0, and negative rewards lost to skipped branches."""

    class Flat(Sequential):
        async def play(self, task, scene: Scene) -> None:
            for _ in scene.turns(1):
                await scene.ask("a", "x")
                scene.reward("a", -1.0)

    commits = [grow(Flat(), index=index)[1].groups[0].committed for index in range(24)]
    assert set(commits) == {0, 1, 2, 3}
    assert commits == [grow(Flat(), index=index)[1].groups[0].committed for index in range(24)]


def test_a_continuation_never_enters_the_next_group():
    """Keeping the winner's continuation would favour candidates whose continuation was lucky."""
    play, found = grow(Sequential(max_turns=2), counting(0, 10**9))
    sampled = [
        seed
        for wave in play._front.engine.waves  # pyright: ignore[reportAttributeAccessIssue]
        for request in wave
        for seed in request.seeds
    ]
    assert len(sampled) == len(set(sampled))
    trained = [member.samples[0].seed for group in found.groups for member in group.members]
    assert set(trained) <= set(sampled)
    assert len(sampled) - len(trained) == 8  # the planner's replies that only valued the proposer's


def test_every_generated_reply_is_trained_once_or_was_a_continuation():
    """D4: samples of the winning turn were dropped."""

    class StopsEarly(Sequential):
        async def play(self, task, scene: Scene) -> None:
            for _ in scene.turns(5):
                reply = await scene.ask("a", "x")
                scene.reward("a", worth(reply.text))
                if reply.text == "9":
                    scene.succeed()
                    return

    for index in range(12):
        play, found = grow(StopsEarly(), index=index, num_generations=6)
        trained = [member.samples[0].seed for group in found.groups for member in group.members]
        assert len(trained) == len(set(trained)) == play.budget.replies["a"]
        assert len(trained) == 6 * found.logs[0].turns


def test_candidates_may_be_valued_in_any_order():
    first = grow(Sequential(max_turns=3))[1]
    second = grow(Sequential(max_turns=3))[1]
    assert first == second


def test_siblings_leave_no_trace_in_the_committed_log():
    _, found = grow(Sequential(max_turns=3))
    log = found.logs[0]
    replies = [reply.text for _, reply in log.replies()]
    assert replies == [group.members[group.committed].samples[0].text for group in found.groups]


def test_aligned_roles_answer_with_the_same_draw_and_the_best_joint_is_committed():
    _, found = grow(Simultaneous(max_turns=2))
    for a, b in zip(found.groups[::2], found.groups[1::2], strict=True):
        assert (a.key.role, b.key.role, a.committed) == ("a", "b", b.committed)
        joint = [left + right for left, right in zip(a.values, b.values, strict=True)]
        assert joint[a.committed] == max(joint)
        for left, right in zip(a.members, b.members, strict=True):
            agreed = float(left.samples[0].text == right.samples[0].text)
            assert left.parts["team/team"] == right.parts["team/team"] == agreed


def test_per_role_tries_candidates_against_the_partners_first_draw():
    _, found = grow(Simultaneous(max_turns=1), joint="per_role")
    a, b = found.groups
    partner = {"a": b.members[0].samples[0].text, "b": a.members[0].samples[0].text}
    for group in (a, b):
        assert len(group.members) == 4
        for member in group.members:
            assert member.parts["team/team"] == float(member.samples[0].text == partner[group.key.role])


def test_simultaneous_prompts_hold_nothing_of_the_same_point():
    _, found = grow(Simultaneous(max_turns=1))
    for group in found.groups:
        assert bytes(group.members[0].samples[0].prompt_ids).decode() == f"{group.key.role} 0 "


def test_points_after_an_external_effect_are_skipped_and_counted():
    play, found = grow(Tools(effect="external"))
    assert found.groups == ()
    assert play.budget.dropped == {"external_effect": 4, "after_external": 1}
    assert play.budget.calls == {
        "double": 1,
        "fail": 1,
    }  # the committed episode's own calls: no candidate has changed the world


class Spending(Toy):
    """a speaks, the world changes, both speak at once, a speaks again."""

    async def play(self, task, scene: Scene) -> None:
        await scene.ask("a", "first")
        await scene.call(double, 1, effect="external")
        await scene.ask_all({"a": "both", "b": "both"})
        last = await scene.ask("a", "last")
        scene.reward("a", worth(last.text))


def test_after_an_external_effect_one_reply_a_role_is_drawn_and_the_story_goes_on_with_it():
    play, found = grow(Spending())
    engine = play._front.engine
    assert play.budget.dropped == {"external_effect": 4, "after_external": 3}
    assert [len(request.seeds) for wave in engine.waves for request in wave] == [4, 1, 1, 1]  # pyright: ignore[reportAttributeAccessIssue]
    first_draws = [engine.script("", "", Random(request.seeds[0])) for wave in engine.waves for request in wave]  # pyright: ignore[reportAttributeAccessIssue]
    assert [reply.text for _, reply in found.logs[0].replies()] == first_draws


def test_groups_have_the_scope_that_forbids_other_prompts_and_may_be_two():
    _, found = grow(Sequential(max_turns=1), num_generations=2)
    assert [(group.scope, len(group.members)) for group in found.groups] == [("prompt", 2)] * 2


def test_equal_answers_that_share_a_fork_are_all_counted_when_it_fails():
    draws = iter("11112222")
    play, found = grow(OneBranchDown(), lambda role, prompt, rng: next(draws), num_generations=8, horizon="point")
    assert play.budget.dropped == {"sandbox": 4}
    assert [len(group.members) for group in found.groups] == [4]


class Faulty(ScriptedEngine):
    """Fails for the requests that `fails` names, as often as they are tried."""

    def __init__(self, fails, times: int = 99) -> None:
        super().__init__(counting())
        self.fails, self.times, self.tries = fails, times, 0

    async def generate(self, requests):
        if any(self.fails(request) for request in requests):
            self.tries += 1
            if self.tries <= self.times:
                raise Unavailable("engine", "down")
        return await super().generate(requests)


def test_a_fault_is_retried():
    engine = Faulty(lambda request: request.role == "b", times=RETRIES)
    play = Play(Sequential(), TEAM, engine, seed=0)
    found = one(play, ATGRPO(num_generations=3).collect(play, Sequential().task("train", 0)))
    assert len(found.groups) == 4
    assert not play.budget.dropped


class OneBranchDown(Tools):
    async def play(self, task, scene: Scene) -> None:
        reply = await scene.ask("a", "x")
        await scene.call(unavailable_for_odd, int(worth(reply.text)))
        scene.reward("a", worth(reply.text))


def test_a_candidate_lost_to_a_fault_leaves_its_group_and_is_counted():
    """D7, D14: a time-out kept an old reward; a failed call was trained as an end-of-text token."""
    play, found = grow(OneBranchDown(), num_generations=8)
    (group,) = found.groups
    assert all(worth(member.samples[0].text) % 2 == 0 for member in group.members)
    assert len(group.members) + play.budget.dropped["sandbox"] == 8
    assert play.budget.dropped["sandbox"] > 0


def test_a_task_without_a_valid_candidate_is_dropped_by_name():
    class Down(OneBranchDown):
        async def play(self, task, scene: Scene) -> None:
            await scene.ask("a", "x")
            await scene.call(unavailable_for_odd, 1)

    play, found = grow(Down())
    assert isinstance(found, Unavailable)
    assert str(found) == "no candidate at 0@0 could be valued"
    assert play.budget.dropped == {"sandbox": 4, "point": 1}


def test_a_lone_survivor_is_not_a_group():
    """D19: a group of one kept its raw reward."""
    draws = iter("2111")
    play, found = grow(OneBranchDown(), lambda role, prompt, rng: next(draws))
    assert found.groups == ()
    assert play.budget.dropped == {"sandbox": 3, "lone": 1}
    draws = iter("1211")
    again = one(play, tree(play, OneBranchDown().task("train", 1), num_generations=4, horizon="turn", team_weight=1.0,
                           commit="greedy"))  # fmt: skip
    assert again.groups == ()
    assert play.budget.dropped == {"sandbox": 6, "lone": 2}


def test_lone_episodes_are_no_group_either():
    draws = iter("21111211")
    play = scripted(OneBranchDown(), lambda role, prompt, rng: next(draws))
    for index in range(2):
        found = one(play, MASGRPO(num_generations=4).collect(play, OneBranchDown().task("train", index)))
        assert (found.groups, len(found.logs)) == ((), 1)
    assert play.budget.dropped == {"sandbox": 6, "lone": 2}


def test_a_reward_no_horizon_sees_names_the_one_that_would():
    class Late(Sequential):
        async def play(self, task, scene: Scene) -> None:
            for _ in scene.turns(2):
                await scene.ask("a", "x")
                await scene.ask("b", "y")
                scene.reward("a", 1.0)

    with pytest.raises(EnvError, match=r"role 'a'.*point 0.*'point'.*horizon \"turn\""):
        grow(Late(), horizon="point")
    grow(Late(), horizon="turn")

    class Later(Sequential):
        async def play(self, task, scene: Scene) -> None:
            for turn in scene.turns(2):
                if turn:
                    scene.reward("a", 1.0)
                await scene.ask("a", "x")

    with pytest.raises(EnvError, match=r"point 0.*horizon \"episode\""):
        grow(Later(), horizon="turn")


def test_two_runs_give_identical_waves():
    waves = [grow(Sequential(max_turns=2))[0]._front.engine.waves for _ in range(2)]  # pyright: ignore[reportAttributeAccessIssue]
    assert waves[0] == waves[1]
    assert all(wave == sorted(wave, key=lambda request: request.key) for wave in waves[0])


def test_a_wave_waits_for_every_branch():
    environment = Sequential(max_turns=2)
    play = scripted(environment, counting(0, 4))

    async def collect():
        tasks = [environment.task("train", index) for index in range(3)]
        await play.together(*(ATGRPO(num_generations=2).collect(play, task) for task in tasks))

    run(collect())
    sizes = [len(wave) for wave in play._front.engine.waves]  # pyright: ignore[reportAttributeAccessIssue]
    # a turn: 3 prompts to a; policy b answers its 6 continuations, then its 3 own prompts
    assert sizes == [3, 6, 3] * 2


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), turns=st.integers(1, 3), draws=st.integers(2, 4))
def test_within_a_group_prompt_policy_and_version_are_one(seed, turns, draws):
    """D5: one selection a turn left K different prompts in a group."""
    environment = Sequential(max_turns=turns)
    play = scripted(environment, seed=seed)
    found = one(play, ATGRPO(num_generations=draws).collect(play, environment.task("train", 0)))
    for group in found.groups:
        samples = [member.samples[0] for member in group.members]
        assert len({(s.prompt_ids, s.policy, s.version) for s in samples}) == 1
        assert {s.role for s in samples} == {group.key.role}
        assert {s.policy for s in samples} == {TEAM.roles[group.key.role]}


def test_looping_environments_without_turns_are_sampled_too():
    _, found = grow(Looping(), counting(0, 3), horizon="point")
    asked = sum(isinstance(event, Asked) for event in found.logs[0].events)
    assert len(found.groups) == asked


def test_the_log_says_what_the_committed_episode_earned():
    _, found = grow(Sequential(max_turns=2))
    local = sum(event.value for event in found.logs[0].events if isinstance(event, Rewarded) and event.role == "a")
    assert found.logs[0].rewards()["a"] == local


def test_a_sample_can_be_drawn_again_alone():
    _, found = grow(Sequential())
    for group in found.groups:
        for member in group.members:
            (sample,) = member.samples
            assert sample.text == counting()(sample.role, "", Random(sample.seed))


class OneName(Sequential):
    def task(self, split, index):
        return replace(super().task(split, index), id="riddle")


def test_two_tasks_of_one_name_never_get_each_others_samples():
    environment = OneName()
    play = scripted(environment)

    async def collect():
        tasks = [environment.task("train", index) for index in range(2)]
        return await play.together(*(ATGRPO(num_generations=2).collect(play, task) for task in tasks))

    with pytest.raises(EnvError, match="both called task 'riddle'"):
        run(collect())


def test_a_total_outage_loses_the_task_under_whole_episodes_too():
    class Down(OneBranchDown):
        async def play(self, task, scene: Scene) -> None:
            await scene.ask("a", "x")
            await scene.call(unavailable_for_odd, 1)

    play = scripted(Down())
    found = one(play, MASGRPO(num_generations=3).collect(play, Down().task("train", 0)))
    assert isinstance(found, Unavailable)
    assert str(found) == "no episode of task train-0 could be played"
    assert play.budget.dropped == {"sandbox": 3, "task": 1}


class Slow(Toy):
    seconds: float = 0.0

    async def play(self, task, scene: Scene) -> None:
        await scene.ask("a", "x")
        try:
            await scene.call(slow, self.seconds)
        except CallError as error:
            scene.fail(error.kind)
        else:
            scene.succeed()


def test_the_time_limit_of_a_call_does_not_count_its_place_in_the_queue():
    play = scripted(Slow(seconds=0.05), sampling=Sampling(call_timeout_s=0.5))
    found = one(play, MASGRPO(num_generations=60).collect(play, Slow().task("train", 0)))
    assert all(log.solved for log in found.logs)


def test_a_call_that_hangs_is_a_failure_of_its_own_and_holds_nothing_up():
    began = time.monotonic()
    play = scripted(Slow(seconds=20.0), sampling=Sampling(call_timeout_s=0.1))
    found = one(play, MASGRPO(num_generations=2).collect(play, Slow().task("train", 0)))
    assert [log.outcome.reason for log in found.logs] == ["timeout", "timeout"]
    assert time.monotonic() - began < 10


class Talkative(Toy):
    """Every reply makes the next prompt longer."""

    async def play(self, task, scene: Scene) -> None:
        said = "x"
        for _ in range(40):
            said += (await scene.ask("a", said, max_tokens=50)).text
            scene.reward("a", len(said) / 100)
        scene.succeed()


class Narrow(ScriptedEngine):
    def context(self, policy):
        return 300


ALGORITHMS = [
    MASGRPO(num_generations=2),
    DrMAS(num_generations=2),
    ATGRPO(num_generations=3),
    ATGRPO(num_generations=3, horizon="point"),
    MAGRPO(num_generations=2, max_nodes=10**9, expansion="greedy"),
    C3(num_generations=2, continuations=1),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
def test_an_episode_that_outgrows_the_context_keeps_what_was_sampled_and_is_no_success(algorithm):
    """The role that cannot be asked says nothing; `play` scores that, and calls it a success all the same."""
    environment = Talkative()
    play = Play(environment, TEAM, Narrow(lambda role, prompt, rng: "y" * rng.randrange(18, 22)), seed=0)
    found = one(play, algorithm.collect(play, environment.task("train", 0)))
    assert found.groups
    samples = [sample for group in found.groups for member in group.members for sample in member.samples]
    assert all(sample.completion_ids for sample in samples)
    assert play.budget.overlong["a"] > 0
    assert not play.budget.dropped
    for log in found.logs:
        assert (log.solved, log.outcome.reason) == (False, "the prompt of a outgrew the context")
        assert [reply.finish for _, reply in log.replies()][-1] == "context"
    again = Cursor(environment, environment.task("train", 0), found.logs[0].seed, recorded=found.logs[0].events)
    assert run(again.advance()) is None
    assert again.events == found.logs[0].events


def test_where_one_of_two_cannot_be_asked_the_other_is_compared():
    class Uneven(Toy):
        async def play(self, task, scene: Scene) -> None:
            first = await scene.ask("a", "x")
            replies = await scene.ask_all({"a": first.text * 300, "b": "short"})
            scene.team_reward(float(len(replies["b"].text)))

    for algorithm in (ATGRPO(num_generations=4), MAGRPO(num_generations=2, max_nodes=99), C3(num_generations=2)):
        play = Play(Uneven(), TEAM, Narrow(counting(1, 10**9)), seed=0)
        found = one(play, algorithm.collect(play, Uneven().task("train", 0)))
        assert {group.key.role for group in found.groups if group.point == 1} == {"b"}


def test_a_first_prompt_that_does_not_fit_is_refused_and_says_what_to_set():
    play = Play(Talkative(), TEAM, Narrow(counting()), seed=0, sampling=Sampling(max_tokens=400))
    with pytest.raises(ConfigError, match=r"context of 300; shorten the prompt, lower engine\.max_tokens, or give pol"):
        one(play, _asks(play))


async def _asks(play):
    class Long(Toy):
        async def play(self, task, scene: Scene) -> None:
            await scene.ask("a", "x" * 400)

    cursor = Play(Long(), TEAM, play._front.engine, seed=0).start(Long().task("train", 0))
    point = await cursor.advance()
    await play.ask(cursor, point)
