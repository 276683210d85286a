"""The router, groups, and two policies that have nothing in common."""

import itertools
from dataclasses import replace

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.grpo import GRPO
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.engines.transformers import TransformersEngine
from coterie.errors import ConfigError, GroupError
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Key, Member
from coterie.kernel.play import Play, Sampling
from coterie.kernel.team import Team, route
from coterie.learning.batch import rows_of
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip
from tests.toys import TEAM, Agree, Sequential, one, policies, run, scripted, tiny

SEEDS = itertools.count()


def sample(role="a", policy="pa", prompt=(1, 2), version=0, text="x", ids=(5,)) -> Sample:
    return Sample(role, policy, version, tuple(prompt), ids, (-1.0,) * len(ids), "stop", text, seed=next(SEEDS))


def group(*members: Member, scope="prompt", role="a", weight=1.0) -> Group:
    return Group(Key("t", 0, "0@0", role), scope, members, weight)


def member(value: float, *samples: Sample) -> Member:
    return Member(samples or (sample(ids=(6, round(10 * value))),), (value,))


@pytest.mark.parametrize("other", [sample(prompt=(1, 3)), sample(policy="pb")])
def test_samples_that_differ_in_prompt_or_policy_are_no_group(other):
    with pytest.raises(
        GroupError,
        match="differ in prompt or policy; samples with different prompts may be compared only under",
    ):
        group(member(0.0), member(1.0, other))
    assert group(member(0.0), member(1.0, other), scope="task").live


def test_an_empty_group_or_member_is_an_error():
    with pytest.raises(GroupError, match="needs a sample"):
        group()
    with pytest.raises(GroupError, match="needs a sample"):
        group(Member((), (1.0,)))


def test_each_policy_gets_exactly_the_samples_of_its_roles():
    groups = [
        group(member(0.0), member(1.0)),
        group(member(2.0, sample("b", "pb")), member(1.0, sample("b", "pb", ids=(7,))), role="b"),
    ]
    routed = route(TEAM, groups, [(-1.0, 1.0), (0.5, -0.5)])
    assert [(one.sample.role, one.advantage) for one in routed["pa"]] == [("a", -1.0), ("a", 1.0)]
    assert [(one.sample.role, one.advantage) for one in routed["pb"]] == [("b", 0.5), ("b", -0.5)]


def test_a_sample_of_several_groups_is_one_row_with_the_sum():
    """As one of the first: its name and share; weights are in the sum."""
    twice = sample(ids=(9,))
    first = group(member(0.0, twice), member(1.0), weight=2.0)
    second = Group(Key("t", 0, "state 0", "a"), "prompt", (member(3.0, twice), member(4.0)), 0.5)
    routed = route(TEAM, [first, second], [(-1.0, 1.0), (0.5, -0.5)])["pa"]
    assert [(one.advantage, one.weight, one.group) for one in routed] == [
        (-1.75, 1.0, "t/0/0@0/a"), (1.0, 2.0, "t/0/0@0/a"), (-0.5, 0.5, "t/0/state 0/a"),
    ]  # fmt: skip


def test_a_group_that_cancels_adds_nothing_to_a_sample_of_another():
    twice, other = sample(), sample()
    alike = Group(Key("t", 0, "state 0", "a"), "prompt", (member(3.0, twice), member(4.0, other)))
    routed = route(TEAM, [group(member(0.0, twice), member(1.0)), alike], [(-1.0, 1.0), (0.5, -0.5)])["pa"]
    assert [one.advantage for one in routed] == [-1.0, 1.0, 0.0]


def test_a_share_counts_the_tasks_whose_groups_were_not_chosen():
    groups = [group(member(0.0), member(1.0))]
    assert {one.share for one in route(TEAM, groups, [(-1.0, 1.0)])["pa"]} == {1 / 2}
    assert {one.share for one in route(TEAM, groups, [(-1.0, 1.0)], tasks=5)["pa"]} == {1 / 10}


def test_one_shared_policy_pools_all_roles():
    team = Team({"a": "p", "b": "p"})
    groups = [group(member(0.0, sample(policy="p")), member(1.0, sample("b", "p")), scope="task")]
    assert len(route(team, groups, [(-1.0, 1.0)])["p"]) == 2


def test_two_samples_of_one_seed_are_an_error_and_equal_ones_are_one():
    one = replace(sample(), seed=7)
    pair = [group(member(0.0, one), member(1.0, replace(one, text="y")))]
    with pytest.raises(GroupError, match="the seed 7"):
        route(TEAM, pair, [(-1.0, 1.0)])
    again = [group(member(0.0, one), member(1.0)), group(member(2.0, replace(one)), member(3.0))]  # as read from a file
    assert [one.advantage for one in route(TEAM, again, [(1.0, -1.0), (0.5, -0.5)])["pa"]] == [1.5, -1.0, -0.5]


def test_a_sample_of_another_policy_is_an_error():
    with pytest.raises(GroupError, match="was played by"):
        route(TEAM, [group(member(0.0, sample("b", "pa")), member(1.0, sample("b", "pa")))], [(1.0, -1.0)])


def test_only_groups_without_spread_train_nothing_and_the_denominator_counts_them():
    """D12: the published filters dropped hard groups and kept dead ones."""
    rewards = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    groups = [group(*(member(value) for value in values)) for values in rewards]
    algorithm = ATGRPO()
    routed = route(TEAM, groups, [algorithm.advantages(one) for one in groups])
    assert [one.live for one in groups] == [False, True, False]
    assert [one.advantage != 0 for one in routed["pa"]] == [False, False, True, True, False, False]
    assert {row.token_weight for row in rows_of(routed["pa"], Clip(denominator="sequences"))} == {1 / (6 * 2)}
    assert {row.token_weight for row in rows_of(routed["pa"], Clip(denominator="tokens"))} == {1 / 12}


def test_members_that_are_alike_teach_nothing_though_their_returns_differ():
    """They pull the same logits up and down: the sum is exactly nothing, whatever chance made of their returns."""
    same = group(member(0.0, sample()), member(1.0, sample()))
    assert not same.live
    (low, high) = route(TEAM, [same], [(-0.7, 0.7)])["pa"]
    assert (low.advantage, high.advantage) == (0.0, 0.0)
    (low, high) = route(TEAM, [same], [(0.0, 1.0)])["pa"]  # without a baseline they do not cancel
    assert (low.advantage, high.advantage) == (0.0, 1.0)
    assert group(member(0.0, sample()), member(1.0, sample(ids=(7,)))).live
    for other in (sample(prompt=(1, 3)), sample(policy="pb")):
        assert group(member(0.0, sample()), member(1.0, other), scope="task").live


def test_mas_grpo_compares_episodes_and_trains_every_sample_once():
    """D10: the published baseline kept only samples of the last turn."""
    environment = Sequential(max_turns=3)
    play = scripted(environment)
    found = one(play, MASGRPO(num_generations=4).collect(play, environment.task("train", 0)))
    (only,) = found.groups
    assert only.scope == "task"
    assert [len(one.samples) for one in only.members] == [6] * 4
    assert sum(len(one.samples) for one in only.members) == sum(play.budget.replies.values())
    for episode, log in zip(only.members, found.logs, strict=True):
        assert episode.value == pytest.approx(sum(log.rewards().values()))
    advantages = MASGRPO().advantages(only)
    routed = route(TEAM, found.groups, [advantages])
    assert len(routed["pa"]) == len(routed["pb"]) == 12
    for at, episode in enumerate(only.members):
        mine = {one.seed for one in episode.samples}
        assert {one.advantage for graded in routed.values() for one in graded if one.sample.seed in mine} == {
            advantages[at]
        }


def test_grpo_trains_one_role():
    with pytest.raises(ConfigError, match="solo"):
        GRPO().check(Sequential(), TEAM)


class Solo(Sequential):
    roles = ("a",)

    async def play(self, task, scene):
        for _ in scene.turns(1):
            reply = await scene.ask("a", f"say {task.number}")
            scene.reward("a", float(reply.text))


def test_at_grpo_with_one_role_and_one_turn_is_grpo():
    """Same prompts, same groups, same advantages; only the samples' seeds differ."""
    environment, team = Solo(), Team({"a": "p"})
    replies = iter(["3", "1", "4", "1"] * 2)
    play = scripted(environment, lambda role, prompt, rng: next(replies), team)
    (tree,) = one(play, ATGRPO(num_generations=4).collect(play, environment.task("train", 0))).groups
    (whole,) = one(play, GRPO(num_generations=4).collect(play, environment.task("train", 0))).groups
    assert sorted(tree.values) == sorted(whole.values) == [1.0, 1.0, 3.0, 4.0]
    assert sorted(ATGRPO().advantages(tree)) == sorted(GRPO().advantages(whole))
    assert {m.samples[0].prompt_ids for m in tree.members} == {m.samples[0].prompt_ids for m in whole.members}


def test_two_policies_of_different_size_and_tokenizer_go_through_rendering_waves_and_update():
    models = {"pa": tiny(1, hidden=32, vocabulary=300), "pb": tiny(2, hidden=64, layers=3, vocabulary=320)}
    assert len(models["pa"].tokenizer) != len(models["pb"].tokenizer)
    environment = Agree()
    engine = TransformersEngine(policies(models))
    play = Play(environment, TEAM, engine, seed=0, sampling=Sampling())
    algorithm = ATGRPO(num_generations=6)

    async def collect():
        tasks = [environment.task("train", index) for index in range(6)]
        return await play.together(*(algorithm.collect(play, task) for task in tasks))

    groups = [group for found in run(collect()) for group in found.groups]
    for found in groups:
        (policy,) = {m.samples[0].policy for m in found.members}
        assert policy == TEAM.roles[found.key.role]
        prompt = found.members[0].samples[0].prompt_ids
        text = "pick" if policy == "pa" else "match"
        assert text in models[policy].tokenizer.decode(prompt)
    learner = LocalLearner(policies(models), Clip(), 1)
    learned = learner.update(route(TEAM, groups, [algorithm.advantages(one) for one in groups]), 0)
    assert set(learned) == {"pa", "pb"}
    for policy in learned.values():
        assert policy.metrics["ratio"] == pytest.approx(1.0, rel=0, abs=1e-4)
        assert policy.metrics["mismatch_max"] < 1e-4


def test_a_team_of_no_roles_is_refused():
    with pytest.raises(ConfigError, match="at least one role"):
        Team({})


def test_an_episodes_return_is_the_weighted_team_reward_and_all_local_rewards():
    environment = Sequential(max_turns=1)
    play = scripted(environment)
    (only,) = one(play, MASGRPO(num_generations=3, team_weight=0.5).collect(play, environment.task("train", 0))).groups
    assert only.key == ("train-0", 0, "*", "team")
    assert only.scope == "task"
    for member in only.members:
        a, b = (float(sample.text) for sample in member.samples)
        assert member.parts == pytest.approx({"a": a, "b": b, "team": 0.5 * (a + b) / 10})
        assert member.value == pytest.approx(sum(member.parts.values()))


def test_two_episodes_are_enough_to_compare():
    environment = Sequential()
    play = scripted(environment)
    (only,) = one(play, MASGRPO(num_generations=2).collect(play, environment.task("train", 0))).groups
    assert len(only.members) == 2


def test_a_silent_episode_is_no_member():
    class Silent(Sequential):
        async def play(self, task, scene):
            scene.succeed()

    play = scripted(Silent())
    found = one(play, MASGRPO(num_generations=3).collect(play, Silent().task("train", 0)))
    assert (found.groups, len(found.logs)) == ((), 3)


def test_a_group_of_several_samples_a_member_says_what_is_wrong():
    with pytest.raises(GroupError, match="a member of scope 'prompt' is one sample"):
        group(Member((sample(), sample()), (0.0,)))


def test_advantages_of_alike_members_cancel_up_to_rounding_whatever_their_size():
    for scale in (1.0, 1e9):
        same = group(*(member(0.0, sample()) for _ in range(3)))
        routed = route(TEAM, [same], [(0.1 * scale, 0.2 * scale, -0.3 * scale)])["pa"]
        assert {one.advantage for one in routed} == {0.0}
