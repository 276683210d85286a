"""Against CoMLRL 1.4.3, the published library: the same recorded completions through its code and ours.

Equal where it is right; where it is not, the difference is stated and shown. Its trainer is made without its
constructor: what is compared is its own tree of rewards, its returns and its advantages.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coterie.algorithms.magrpo import MAGRPO
from coterie.kernel.group import Collected, Group, Key, Member
from tests.games import Game, Tables, collect

magrpo = pytest.importorskip("comlrl.trainers.reinforce.magrpo", reason="pip install 'coterie[oracles]'")
pytestmark = pytest.mark.slow
SIZE = 3
Returns = dict[tuple[str, str], list[float]]
"""By node and role."""


def theirs(game: Game, found: Collected, joint: str, threshold: float | None = None) -> Returns:
    """Their returns of every node and role, for the completions of our tree."""
    draws = {(group.key.path, group.key.role): group.members for group in found.groups}
    roles = game.roles

    def generate(agent: str, items: Any, **kwargs: Any) -> dict[str, Any]:
        path = (kwargs["external_prompts"] or f"{agent} 0@0").split()[1]
        texts = [f"{path} {number} {member.samples[0].text}" for number, member in enumerate(draws[path, agent])]
        return {"completions": [texts], "prompts": [f"{agent} {path}"]}

    def transition(agent_completions: list[str], **_: Any) -> list[str]:
        path = agent_completions[0].split()[0]
        name, _, point = path.partition("@")
        chosen = [int(text.split()[1]) for text in agent_completions]
        digits = [at * SIZE ** (len(chosen) - 1 - place) for place, at in enumerate(chosen)]
        number = chosen[0] if joint == "aligned" else sum(digits)
        child = f"{name}/{point}.{number}" if number else name
        return [f"{role} {child}@{int(point) + 1}" for role in roles]

    def reward(*completions: list[str]) -> list[float]:
        """Of one joint action at a time, by the way that led there."""
        texts = [one[0] for one in completions]
        path = texts[0].split()[0]
        way = (*way_to(path), tuple(int(text.split()[2]) for text in texts))
        return [game.reward(way)]

    def way_to(path: str) -> tuple[tuple[int, ...], ...]:
        """The joint actions before a node, from its name."""
        name, _, point = path.partition("@")
        steps = {int(part.split(".")[0]): int(part.split(".")[1]) for part in name.split("/")[1:]}
        way: list[tuple[int, ...]] = []
        for at in range(int(point)):
            number = steps.get(at, 0)
            before = "/".join(["0", *(f"{k}.{v}" for k, v in sorted(steps.items()) if k < at)])
            chosen = [number] * len(roles)
            if joint != "aligned":
                chosen = [number // SIZE ** (len(roles) - 1 - place) % SIZE for place in range(len(roles))]
            played = [draws[f"{before}@{at}", role][one].samples[0] for role, one in zip(roles, chosen, strict=True)]
            way.append(tuple(int(sample.text) for sample in played))
        return tuple(way)

    taken: Returns = {}
    trainer: Any = object.__new__(magrpo.MAGRPOTrainer)
    trainer.args = SimpleNamespace(num_turns=game.turns, num_generations=SIZE, joint_mode=joint, max_new_tokens=1,
                                   early_termination_threshold=threshold, rollout_buffer_size=10**9)  # fmt: skip
    trainer.agents, trainer.num_agents, trainer.env_step = list(roles), len(roles), 0
    trainer.reward_func, trainer.reward_processor, trainer.external_transition = reward, lambda value: value, transition
    trainer.rollout_buffers = [[] for _ in roles]
    trainer._generate_completions_with_external_prompts = generate
    trainer._run_agent_tasks = lambda task: [task(at) for at in range(len(roles))]
    trainer._pack_completions_for_buffer = lambda data: data
    trainer._drain_ready_buffers = lambda ready: None

    trainer._train_step_returns({"prompt": ""})
    for buffer in trainer.rollout_buffers:
        for sample in buffer:
            path = sample.completions_data["prompts"][0].split()[1]
            taken[path, roles[sample.agent_idx]] = sample.returns
    return taken


def ours(found: Collected) -> Returns:
    return {(group.key.path, group.key.role): list(group.values) for group in found.groups}


@pytest.mark.parametrize(
    "game",
    [Game(turns=1, seed=1), Game(turns=2, seed=2, actions=3), Game(agents=3, turns=2, seed=3)],
    ids=["one turn", "two turns", "three agents"],
)
def test_aligned_returns_of_every_node_are_equal_without_discount(game):
    found = collect(game, MAGRPO(num_generations=SIZE), Tables(game.actions))
    left, right = ours(found), theirs(game, found, "aligned")
    assert left.keys() == right.keys()
    for node, values in left.items():
        assert right[node] == pytest.approx(values)


@pytest.mark.parametrize("turns", [1, 2])
def test_cross_returns_are_theirs_over_the_partners_joint_actions(turns):
    """D14: they sum over the G^(n-1) joint actions that contain a completion; we take the mean."""
    game = Game(turns=turns, seed=4)
    found = collect(game, MAGRPO(num_generations=SIZE, joint="cross"), Tables())
    left, right = ours(found), theirs(game, found, "cross")
    assert left.keys() == right.keys()
    for node, values in left.items():
        assert right[node] == pytest.approx([SIZE * value for value in values])


def test_crossed_gives_every_role_the_first_joint_returns_there():
    """D13: a spelling that is accepted and means something else; an error here."""
    game = Game(turns=1, seed=4)
    found = collect(game, MAGRPO(num_generations=SIZE, joint="cross"), Tables())
    spelled = theirs(game, found, "crossed")
    assert spelled["0@0", "a"] == spelled["0@0", "b"]
    assert len(spelled["0@0", "a"]) == SIZE**2


def test_the_discount_is_ignored_there():
    """D17: gamma = 0 and gamma = 1 give the same returns."""
    game = Game(turns=2, seed=2)
    found = collect(game, MAGRPO(num_generations=SIZE, discount=0.0), Tables())
    right = theirs(game, found, "aligned")
    assert right["0@0", "a"] != pytest.approx(ours(found)["0@0", "a"])
    assert right["0@1", "a"] == pytest.approx(ours(found)["0@1", "a"])  # the last turn has no future


def test_a_non_negative_reward_ends_every_episode_after_its_first_turn_there():
    """D16: by the default threshold of -0.2, on the node's mean; branches end by themselves here."""

    class Ones(Game):
        def reward(self, way):
            return 1.0

    game = Ones(turns=2)
    found = collect(game, MAGRPO(num_generations=SIZE), Tables())
    assert len(theirs(game, found, "aligned", threshold=-0.2)) == 2
    assert len(ours(found)) == 2 * (1 + SIZE)


@pytest.mark.parametrize(("mode", "baseline"), [("mean", "mean"), ("raw", "none"), ("rloo", "leave_one_out")])
def test_baselines_are_equal_where_nothing_normalises_afterwards(mode, baseline):
    returns = [1.0, 2.0, 4.0, 0.5]
    trainer: Any = object.__new__(magrpo.MAGRPOTrainer)
    trainer.advantage_mode = mode
    found = trainer._compute_advantages(torch.tensor(returns)).tolist()
    assert found == pytest.approx(advantages(returns, baseline))


def test_their_remax_subtracts_the_maximum_and_ours_the_greedy_return():
    """D7: R - max R is never positive, and its expectation is not the gradient's direction."""
    returns = [1.0, 2.0, 4.0, 0.5]
    trainer: Any = object.__new__(magrpo.MAGRPOTrainer)
    trainer.advantage_mode = "max"
    assert trainer._compute_advantages(torch.tensor(returns)).tolist() == [-3.0, -2.0, 0.0, -3.5]
    assert advantages(returns, "greedy", 2.0) == (-1.0, 0.0, 2.0, -1.5)


def advantages(returns: list[float], baseline: Any, greedy: float | None = None) -> tuple[float, ...]:
    sample = collect(Game(agents=1), MAGRPO(num_generations=2), Tables()).groups[0].members[0].samples
    members = tuple(Member(sample, (value,)) for value in returns)
    group = Group(Key("t", 0, "0@0", "a"), "prompt", members, baseline=greedy)
    return MAGRPO(num_generations=4, baseline=baseline).advantages(group)
