"""Games small enough to enumerate, tables as policies, and exact expectations of what the samplers make of them.

A policy is a table of logits, a row a prompt; a reply is the action's number. The gradient of log pi at a
prompt's logits is one-hot(action) - p.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from coterie.engines.scripted import ScriptedEngine
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.engine import Request
from coterie.kernel.episode import Sample, text_of
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.kernel.scene import Scene
from coterie.kernel.team import Team, route
from coterie.seeds import seed_of
from tests.toys import Number, Toy, one

Gradient = Counter[tuple[str, int]]
"""By prompt and action."""
Way = tuple[tuple[int, ...], ...]
"""The joint actions of one way a game can go."""


class Game(Toy):
    """Roles act at once and see their own past actions only; a table says what each joint history earns."""

    agents: int = 2
    actions: int = 2
    turns: int = 1
    seed: int = 0
    matrix: tuple[tuple[float, ...], ...] | None = None
    """Reward of the first turn, by the two actions."""
    ending: bool = False
    """Whether a turn in which everybody plays 0 ends the game."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple("abc"[: self.agents])

    def reward(self, way: Way) -> float:
        """Of the last turn of a way."""
        if self.matrix is not None:
            return self.matrix[way[-1][0]][way[-1][1]]
        return Random(seed_of("game", self.seed, way)).uniform(-1, 2)

    def over(self, way: Way) -> bool:
        return len(way) == self.turns or (self.ending and set(way[-1]) == {0})

    async def play(self, task: Number, scene: Scene) -> None:
        way: Way = ()
        for _ in scene.turns(self.turns):
            prompts = {role: prompt(role, way, at) for at, role in enumerate(self.roles)}
            replies = await scene.ask_all(prompts)
            way = (*way, tuple(int(replies[role].text) for role in self.roles))
            scene.team_reward(self.reward(way))
            if self.over(way):
                return


def prompt(role: str, way: Way, at: int) -> str:
    """What a role sees after some turns: its own actions."""
    return role + "".join(str(joint[at]) for joint in way)


@dataclass
class Tables:
    """Policies: logits by prompt, drawn from a seed unless given."""

    actions: int = 2
    seed: int = 0
    logits: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __call__(self, prompt: str) -> tuple[float, ...]:
        """Probabilities of the actions at a prompt."""
        if prompt not in self.logits:
            rng = Random(seed_of("logits", self.seed, prompt))
            self.logits[prompt] = tuple(rng.uniform(-1, 1) for _ in range(self.actions))
        weights = [math.exp(logit) for logit in self.logits[prompt]]
        return tuple(weight / sum(weights) for weight in weights)


def ways(game: Game, tables: Tables) -> Iterator[tuple[float, Way]]:
    """Every way a game can go, with its probability."""

    def go_on(chance: float, way: Way) -> Iterator[tuple[float, Way]]:
        if way and game.over(way):
            yield chance, way
            return
        shares = [tables(prompt(role, way, at)) for at, role in enumerate(game.roles)]
        for joint in itertools.product(range(game.actions), repeat=game.agents):
            yield from go_on(chance * math.prod(s[a] for s, a in zip(shares, joint, strict=True)), (*way, joint))

    yield from go_on(1.0, ())


def returned(game: Game, way: Way, discount: float) -> float:
    return sum(discount**turn * game.reward(way[: turn + 1]) for turn in range(len(way)))


def exact(game: Game, tables: Tables, discount: float = 1.0) -> Gradient:
    """The gradient of the expected discounted return at every logit, by enumeration."""
    total: Gradient = Counter()
    for chance, way in ways(game, tables):
        for turn, joint in enumerate(way):
            for at, role in enumerate(game.roles):
                push(total, tables, prompt(role, way[:turn], at), joint[at], chance * returned(game, way, discount))
    return total


def push(total: Gradient, tables: Tables, at: str, action: int, weight: float) -> None:
    """Adds weight x grad log pi(action)."""
    for other, share in enumerate(tables(at)):
        total[at, other] += weight * ((other == action) - share)


class Tabular(ScriptedEngine):
    """Plays tables: by each sample's own chance, the likeliest at temperature 0, or as `choose` says."""

    def __init__(self, tables: Tables, choose: Callable[[Sequence[float]], int] | None = None) -> None:
        super().__init__(lambda role, prompt, rng: "")
        self.tables = tables
        self.choose = choose

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        answers = await super().generate(requests)
        return [
            tuple(self._drawn(request, sample) for sample in samples)
            for request, samples in zip(requests, answers, strict=True)
        ]

    def _drawn(self, request: Request, sample: Sample) -> Sample:
        shares = self.tables(text_of(request.prompt))
        if request.temperature == 0:
            action = shares.index(max(shares))
        elif self.choose:
            action = self.choose(shares)
        else:
            action = Random(sample.seed).choices(range(len(shares)), shares)[0]
        return replace(sample, text=str(action), completion_ids=(action,), logprobs=(math.log(shares[action]),))


def estimate(found: Collected, algorithm: Algorithm, tables: Tables, roles: Sequence[str]) -> Gradient:
    """One task's gradient as the learner would take it: routed, weighted, summed over groups."""
    total: Gradient = Counter()
    team = Team(dict.fromkeys(roles, "p"))
    for graded in route(team, found.groups, [algorithm.advantages(group) for group in found.groups])["p"]:
        at = bytes(graded.sample.prompt_ids).decode()
        push(total, tables, at, int(graded.sample.text), graded.weight * graded.share * graded.advantage)
    return total


def play_with(game: Game, engine: ScriptedEngine, seed: int = 0) -> Play:
    return Play(game, Team(dict.fromkeys(game.roles, "p")), engine, seed=seed)


def collect(game: Game, algorithm: Algorithm, tables: Tables, index: int = 0, **kwargs: Any) -> Collected:
    play = play_with(game, Tabular(tables, **kwargs))
    return one(play, algorithm.collect(play, game.task("train", index)))


def expected(game: Game, algorithm: Algorithm, tables: Tables) -> Gradient:
    """The expectation of the estimate, exactly: every outcome of every draw is played, through the real sampler."""
    total: Gradient = Counter()
    for chance, found in outcomes(game, algorithm, tables):
        for at, value in estimate(found, algorithm, tables, game.roles).items():
            total[at] += chance * value
    return total


def outcomes(game: Game, algorithm: Algorithm, tables: Tables) -> Iterator[tuple[float, Collected]]:
    """Every way the draws of a sampler can fall, with its probability."""
    fixed: list[int] = []
    while True:
        taken: list[int] = []
        sizes: list[int] = []
        chance = 1.0

        def choose(shares: Sequence[float]) -> int:
            nonlocal chance
            action = fixed[len(taken)] if len(taken) < len(fixed) else 0  # noqa: B023  (played at once)
            taken.append(action)  # noqa: B023
            sizes.append(len(shares))  # noqa: B023
            chance *= shares[action]
            return action

        found = collect(game, algorithm, tables, choose=choose)
        yield chance, found
        while taken and taken[-1] == sizes[len(taken) - 1] - 1:
            taken.pop()
        if not taken:
            return
        fixed = [*taken[:-1], taken[-1] + 1]


def close(found: Mapping[tuple[str, int], float], wanted: Mapping[tuple[str, int], float], tolerance: float) -> bool:
    return all(abs(found.get(at, 0.0) - wanted.get(at, 0.0)) <= tolerance for at in {*found, *wanted})
