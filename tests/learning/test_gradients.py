"""Policy gradients on small games, against their exact values by enumeration.

Policies are tables: a prompt's reply is "1" with probability P[prompt], else "0", so that the
gradient of log pi at the prompt's logit is (reply - P). The real samplers and credit make the
estimates; every exact value below is a sum over all the ways a game can go.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean, stdev
from typing import Any, ClassVar

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.base import GroupBaseline
from coterie.algorithms.grpo import GRPO
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.engines.scripted import ScriptedEngine
from coterie.kernel.group import Group
from coterie.kernel.play import Play
from coterie.kernel.scene import Scene
from coterie.kernel.team import Team, route
from coterie.learning.batch import rows_of
from coterie.learning.loss import Clip
from tests.toys import Number, Toy, run

SAMPLES = 2000
pytestmark = pytest.mark.slow
P = {"a": 0.3, "a0": 0.3, "a1": 0.6, "b": 0.7, "b0": 0.4, "b1": 0.8, "stop": 0.7}
TEAM_TABLE = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 0.4, (1, 1): 3.0}
Gradient = Mapping[str, float]
Way = list[tuple[str, str, int]]
"""One way a game can go: (role, prompt, reply) at each point."""


def earned(way: Way) -> tuple[list[float], list[float]]:
    """A game's local reward at each point, and its team reward at the end of each turn of two points."""
    local = [0.5 * reply if role == "a" else -0.25 * reply for role, _, reply in way]
    team = [TEAM_TABLE[way[start][2], way[start + 1][2]] for start in range(0, len(way), 2)]
    return local, team


class Relay(Toy):
    """a, then b, who hears a; a hears what b said in the turn before."""

    max_turns: int = 1

    async def play(self, task: Number, scene: Scene) -> None:
        heard = ""
        for _ in scene.turns(self.max_turns):
            first = await scene.ask("a", f"a{heard}")
            scene.reward("a", 0.5 * int(first.text))
            second = await scene.ask("b", f"b{first.text}")
            scene.reward("b", -0.25 * int(second.text))
            scene.team_reward(TEAM_TABLE[int(first.text), int(second.text)])
            heard = second.text


class AtOnce(Toy):
    """a and b at once."""

    async def play(self, task: Number, scene: Scene) -> None:
        for _ in scene.turns(1):
            replies = await scene.ask_all({"a": "a", "b": "b"})
            first, second = (int(replies[role].text) for role in "ab")
            scene.reward("a", 0.5 * first)
            scene.reward("b", -0.25 * second)
            scene.team_reward(TEAM_TABLE[first, second])


class Stopping(Toy):
    """One role decides how long it goes on: "1" stops and earns 1, "0" costs 0.2; three turns at most."""

    roles: ClassVar = ("a",)

    async def play(self, task: Number, scene: Scene) -> None:
        for _ in scene.turns(3):
            reply = await scene.ask("a", "stop")
            scene.team_reward(1.0 if reply.text == "1" else -0.2)
            if reply.text == "1":
                return


def collected(environment: Toy, algorithm: GroupBaseline) -> list[tuple[Group, ...]]:
    """Groups of each of many tasks."""
    engine = ScriptedEngine(lambda role, prompt, rng: str(int(rng.random() < P[prompt])))
    play = Play(environment, Team({role: role for role in environment.roles}), engine, seed=1)

    async def collect() -> Any:
        return await play.together(*(algorithm.collect(play, environment.task("train", i)) for i in range(SAMPLES)))

    return [one.groups for one in run(collect())]


def estimate(groups: tuple[Group, ...], algorithm: GroupBaseline) -> Counter[str]:
    """One task's gradient at the logits: A (reply - P), a mean over each group's members."""
    gradient: Counter[str] = Counter()
    for group in groups:
        for member, advantage in zip(group.members, algorithm.advantages(group), strict=True):
            for sample in member.samples:
                prompt = bytes(sample.prompt_ids).decode()
                gradient[prompt] += advantage * (int(sample.text) - P[prompt]) / len(group.members)
    return gradient


def agree(found: list[Counter[str]], exact: Gradient) -> bool:
    """Whether the mean of the estimates is within three standard errors everywhere."""
    apart = []
    for prompt in exact:
        values = [one[prompt] for one in found]
        error = stdev(values) / math.sqrt(len(values))
        assert error < 0.05
        apart.append(abs(fmean(values) - exact[prompt]) / error)
    return max(apart) < 3


def estimates(environment: Toy, algorithm: GroupBaseline) -> list[Counter[str]]:
    return [estimate(groups, algorithm) for groups in collected(environment, algorithm)]


def ways(turns: int) -> Iterator[tuple[float, Way]]:
    """Every way Relay can go, with its probability."""
    for replies in itertools.product((0, 1), repeat=2 * turns):
        way: Way = []
        chance = 1.0
        for place, reply in enumerate(replies):
            role = "ab"[place % 2]
            heard = "" if place == 0 else str(replies[place - 1])
            prompt = f"{role}{heard}"
            way.append((role, prompt, reply))
            chance *= P[prompt] if reply else 1 - P[prompt]
        yield chance, way


def exactly(turns: int, worth: Callable[[Way, int], float]) -> Counter[str]:
    """Sum over ways of probability x sum over points of (reply - P) x what the point is credited with."""
    gradient: Counter[str] = Counter()
    for chance, way in ways(turns):
        for place, (_, prompt, reply) in enumerate(way):
            gradient[prompt] += chance * (reply - P[prompt]) * worth(way, place)
    return gradient


def whole(way: Way, _: int) -> float:
    """The episode's return, everything in it."""
    local, team = earned(way)
    return sum(local) + sum(team)


def to_turn_end(way: Way, place: int) -> float:
    """What the decision earns itself, and what the team earns in its turn."""
    local, team = earned(way)
    return local[place] + team[place // 2]


def to_next_point(way: Way, place: int) -> float:
    """The same, up to the next decision: the team's reward comes after b."""
    local, team = earned(way)
    return local[place] + (team[place // 2] if place % 2 else 0.0)


# the oracle itself: the whole return's gradient is the derivative of the expected return, by finite differences
def test_enumeration_gives_the_derivative_of_the_expected_return(monkeypatch):
    exact = exactly(2, whole)
    for prompt in exact:
        logit, values = math.log(P[prompt] / (1 - P[prompt])), []
        for step in (1e-5, -1e-5):
            with monkeypatch.context() as patch:
                patch.setitem(P, prompt, 1 / (1 + math.exp(-logit - step)))
                values.append(sum(chance * whole(way, 0) for chance, way in ways(2)))
        assert exact[prompt] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "turns", "worth"),
    [
        (MASGRPO(advantage="leave_one_out", num_generations=2), 2, whole),
        (ATGRPO(advantage="leave_one_out", num_generations=2, commit="random", horizon="turn"), 1, to_turn_end),
        pytest.param(
            ATGRPO(advantage="leave_one_out", num_generations=2, commit="random", horizon="turn"), 2, to_turn_end,
            marks=pytest.mark.long,
        ),
        pytest.param(
            ATGRPO(advantage="leave_one_out", num_generations=2, commit="random", horizon="point"), 2, to_next_point,
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_in_sequence_leave_one_out_is_unbiased_for_what_the_horizon_sees(algorithm, turns, worth):
    assert agree(estimates(Relay(max_turns=turns), algorithm), exactly(turns, worth))


@pytest.mark.parametrize("joint", ["aligned", "per_role"])
@pytest.mark.parametrize("horizon", [pytest.param("turn", marks=pytest.mark.long), "point"])
def test_at_once_leave_one_out_is_unbiased_for_each_role(joint, horizon):
    algorithm = ATGRPO(advantage="leave_one_out", num_generations=2, commit="random", horizon=horizon, joint=joint)
    exact: Counter[str] = Counter()
    for first, second in itertools.product((0, 1), repeat=2):
        chance = (P["a"] if first else 1 - P["a"]) * (P["b"] if second else 1 - P["b"])
        team = TEAM_TABLE[first, second]
        exact["a"] += chance * (first - P["a"]) * (team + 0.5 * first)
        exact["b"] += chance * (second - P["b"]) * (team - 0.25 * second)
    assert agree(estimates(AtOnce(), algorithm), exact)


def test_at_once_whole_episodes_are_unbiased_too():
    algorithm = MASGRPO(advantage="leave_one_out", num_generations=2)
    exact: Counter[str] = Counter()
    for first, second in itertools.product((0, 1), repeat=2):
        chance = (P["a"] if first else 1 - P["a"]) * (P["b"] if second else 1 - P["b"])
        both = TEAM_TABLE[first, second] + 0.5 * first - 0.25 * second
        exact["a"] += chance * (first - P["a"]) * both
        exact["b"] += chance * (second - P["b"]) * both
    assert agree(estimates(AtOnce(), algorithm), exact)


@pytest.mark.long
def test_a_horizon_leaves_out_what_comes_after_it():
    """Under "turn" the first turn is blind to the second: a bias against the whole return, and the docs say so."""
    found = estimates(
        Relay(max_turns=2), ATGRPO(advantage="leave_one_out", num_generations=2, commit="random", horizon="turn")
    )
    assert not agree(found, exactly(2, whole))


@pytest.mark.parametrize("size", [2, *(pytest.param(size, marks=pytest.mark.long) for size in (3, 6))])
def test_the_mean_as_baseline_shrinks_the_gradient_by_one_over_the_group(size):
    algorithm = ATGRPO(advantage="center", num_generations=size, commit="random", horizon="turn")
    exact = {prompt: value * (size - 1) / size for prompt, value in exactly(1, to_turn_end).items()}
    assert agree(estimates(Relay(), algorithm), exact)


def stop_ways() -> Iterator[tuple[float, list[int], float]]:
    """Ways of Stopping: probability, replies, return."""
    p = P["stop"]
    yield p, [1], 1.0
    yield (1 - p) * p, [0, 1], 0.8
    yield (1 - p) ** 2 * p, [0, 0, 1], 0.6
    yield (1 - p) ** 3, [0, 0, 0], -0.6


def test_grpo_over_episodes_whose_length_the_policy_decides_is_unbiased_where_tokens_are_summed():
    p = P["stop"]
    exact = {
        "stop": sum(chance * sum(reply - p for reply in replies) * worth for chance, replies, worth in stop_ways())
    }
    assert agree(estimates(Stopping(), GRPO(advantage="leave_one_out", num_generations=2)), exact)


def test_dividing_by_the_tokens_of_a_small_step_is_biased_by_exactly_what_enumeration_says():
    """The denominator counts the step's tokens: where a policy decides how many, it is correlated with the return."""
    algorithm, p = GRPO(advantage="leave_one_out", num_generations=2), P["stop"]
    found: list[Counter[str]] = []
    for groups in collected(Stopping(), algorithm):
        graded = route(Team({"a": "a"}), groups, [algorithm.advantages(group) for group in groups])["a"]
        rows = rows_of(graded, Clip(denominator="tokens", kl=0.1))
        pull = sum(
            row.token_weight * row.advantage * (int(one.sample.text) - p) for row, one in zip(rows, graded, strict=True)
        )
        found.append(Counter({"stop": pull}))

    def expected(denominator: Callable[[int], float]) -> float:
        total = 0.0
        for (c1, first, r1), (c2, second, r2) in itertools.product(stop_ways(), repeat=2):
            pull = (r1 - r2) * (sum(reply - p for reply in first) - sum(reply - p for reply in second))
            total += c1 * c2 * pull / denominator(len(first) + len(second))
        return total

    tokens = 2  # a reply is its byte and the end
    mean = sum(c1 * c2 * (len(f) + len(s)) for (c1, f, _), (c2, s, _) in itertools.product(stop_ways(), repeat=2))
    assert agree(found, {"stop": expected(lambda length: tokens * length)})
    assert not agree(found, {"stop": expected(lambda _: tokens * mean)})


def committed(prompt: str, wins: int, size: int) -> float:
    """The probability that the best of `size` draws at a prompt is "1", where "1" or "0" is the better."""
    p = P[prompt]
    return 1 - (1 - p) ** size if wins else p**size


def test_a_greedy_commit_trains_the_next_role_on_better_prompts_than_play_gives():
    """The bias of the paper's rule, exactly: b's prompts are drawn from a's best of K, not from a."""
    size = 4
    algorithm = ATGRPO(advantage="leave_one_out", num_generations=size, commit="greedy", horizon="point")
    found = estimates(Relay(), algorithm)
    plain = exactly(1, to_next_point)
    chance = committed("a", 1, size)  # a earns 0.5 for "1" and nothing for "0"
    biased = dict(plain) | {"b1": plain["b1"] * chance / P["a"], "b0": plain["b0"] * (1 - chance) / (1 - P["a"])}
    assert agree(found, biased)
    assert not agree(found, plain)


def test_dividing_by_the_deviation_weighs_prompts_by_how_seldom_they_vary():
    """standardize is not the gradient of the return: its expectation is that of a sum over group outcomes."""
    size, p = 4, P["b1"]
    algorithm = ATGRPO(advantage="standardize", num_generations=size, commit="random", horizon="point")
    found = estimates(Relay(), algorithm)
    gap = (TEAM_TABLE[1, 1] - 0.25) - TEAM_TABLE[1, 0]  # between b's two replies after "1"
    expected = 0.0
    for ones in range(1, size):
        deviation = math.sqrt(ones * (size - ones) / (size * (size - 1)))  # of `ones` ones, divided by size - 1
        high, low = (1 - ones / size) / deviation, (0 - ones / size) / deviation
        chance = math.comb(size, ones) * p**ones * (1 - p) ** (size - ones)
        expected += chance * (ones * high * (1 - p) + (size - ones) * low * (0 - p)) / size
    assert gap > 0
    assert agree(found, {"b1": P["a"] * expected})
    assert not agree(found, {"b1": exactly(1, to_next_point)["b1"]})
