"""The gradient of each method where the policy decides how many turns there are, against the true one.

One agent says `go` or `stop`; who stops at turn t gets the payoff of t. The true gradient of the expected payoff is
known exactly. Every method plays the game many times with its own sampler and credit. Its expected update is compared
with the truth by direction: the learning rate and the optimizer take care of its length. Writes docs/results/turns.md.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.intervals import over_seeds
from coterie.bench import Say
from coterie.engines.scripted import ScriptedEngine
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.play import Play
from coterie.kernel.scene import Scene
from coterie.kernel.team import Team, route
from coterie.registry import find

PAGE = Path("docs/results/turns.md")
BATCHES, TASKS = 20, 200
GAMES: Mapping[str, tuple[float, ...]] = {
    "going on pays": (0.2, 0.4, 0.6, 1.0),
    "stopping pays": (1.0, 0.6, 0.4, 0.2),
    "only the end pays": (0.0, 0.0, 0.0, 1.0),
    "everything loses, going on least": (-1.0, -0.9, -0.8, -0.7),
    "a detour pays": (0.5, 0.2, 0.1, 0.9),
}
"""Games by name: payoffs of stopping at turn 0, 1 and 2, and of going on to the end."""
GOES = (0.5, 0.6, 0.7)
"""Probability of `go` at each turn."""
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mas_grpo, centred": ("mas_grpo", {"advantage": "center"}),
    "mas_grpo": ("mas_grpo", {}),
    "drmas, an episode counts once": ("drmas", {"count": "episode"}),
    "drmas, once per reply": ("drmas", {"count": "reply"}),
    "main_sub_grpo": ("main_sub_grpo", {}),
    "wideseek": ("wideseek", {}),
    "reinforce_pp": ("reinforce_pp", {}),
    "rae": ("rae", {}),
    "marshal": ("marshal", {}),
    "gigpo": ("gigpo", {}),
    "gigpo, no episode level (HGPO's)": ("gigpo", {"episode_weight": 0.0, "history": 2}),
    "at_grpo, horizon turn": ("at_grpo", {"horizon": "turn", "commit": "random"}),
    "at_grpo, greedy commit": ("at_grpo", {"horizon": "turn"}),
    "joyagents": ("joyagents", {}),
    "c3": ("c3", {}),
}


class Game(Environment):
    """An environment in which one agent goes on or stops."""

    roles: ClassVar = ("a",)
    payoffs: tuple[float, ...] = ()

    def task(self, split: Split, index: int) -> Task:
        """Returns a task; all tasks are the same game."""
        return Task(f"{split}-{index}", split)

    async def play(self, task: Task, scene: Scene) -> None:
        """Asks the agent in each turn until it stops, and rewards it with the payoff."""
        for turn in scene.turns(len(self.payoffs) - 1):
            if (await scene.ask("a", str(turn))).text == "s":
                scene.team_reward(self.payoffs[turn])
                return scene.fail("stopped")
        scene.team_reward(self.payoffs[-1])
        return scene.succeed()


def truth(payoffs: Sequence[float]) -> list[float]:
    """Returns the gradient of the expected payoff in the logit of `go`, a number a turn."""
    values = list(payoffs[-1:])  # of being at a turn, from the last
    for payoff, goes in zip(reversed(payoffs[:-1]), reversed(GOES), strict=True):
        values.insert(0, goes * values[0] + (1 - goes) * payoff)
    reached = [math.prod(GOES[:turn]) for turn in range(len(GOES))]
    return [reached[turn] * goes * (1 - goes) * (values[turn + 1] - payoffs[turn]) for turn, goes in enumerate(GOES)]


def update(algorithm: Algorithm, game: Game, tasks: Sequence[int]) -> list[float]:
    """Returns a method's update of the logit of `go`, a number a turn, for a policy gradient summed over replies."""

    def said(role: str, prompt: str, rng: Any) -> str:
        return "g" if rng.random() < GOES[int(prompt)] else "s"

    team = Team({"a": "p"})
    play = Play(game, team, ScriptedEngine(said), seed=tasks[0])

    async def collected() -> list[Any]:
        return await play.together(*(algorithm.collect(play, game.task("train", index)) for index in tasks))

    groups = [group for one in asyncio.run(collected()) for group in one.groups]
    earned, _ = algorithm.credit(groups, algorithm.start())
    moved = [0.0] * len(GOES)
    for graded in route(team, groups, earned)["p"]:
        turn = int(bytes(graded.sample.prompt_ids))
        moved[turn] += graded.weight * graded.advantage * ((graded.sample.text == "g") - GOES[turn])
    return moved


def cosine(one: Sequence[float], two: Sequence[float]) -> float:
    """Returns the cosine of two directions; 0 where one has no length."""
    length = math.hypot(*one) * math.hypot(*two)
    return sum(a * b for a, b in zip(one, two, strict=True)) / length if length else 0.0


def measured(name: str, settings: Mapping[str, Any], payoffs: tuple[float, ...]) -> list[list[float]]:
    """Returns a method's update on each batch of tasks."""
    kind, game = find("algorithm", name, Algorithm), Game(payoffs=payoffs)
    several = {"num_generations": 4} if kind.model_fields["num_generations"].default > 1 else {}
    algorithm = kind(**{**several, **settings})
    return [update(algorithm, game, range(TASKS * batch, TASKS * (batch + 1))) for batch in range(BATCHES)]


def run(say: Say) -> dict[str, Any]:
    """Plays all games with all methods, writes the page, and returns each update's cosine with the truth."""
    figures: dict[str, Any] = {}
    lines = [f"| | {' | '.join(GAMES)} |", "|---|" + "---|" * len(GAMES)]
    for title, (name, settings) in METHODS.items():
        cells: list[str] = []
        for game, payoffs in GAMES.items():
            batches = measured(name, settings, payoffs)
            right = truth(payoffs)
            whole = cosine([fmean(turn) for turn in zip(*batches, strict=True)], right)
            figures[f"{title}: {game}"] = round(whole, 4)
            cells.append(_cell(batches, right, whole))
        lines.append(f"| {title} | {' | '.join(cells)} |")
        say(f"{title}: {'; '.join(cells)}")
    PAGE.write_text("\n".join([*HEAD, *lines, *TAIL, ""]))
    return figures


def _cell(batches: Sequence[Sequence[float]], right: Sequence[float], whole: float) -> str:
    """Returns the cosine of the mean update with its 95 % interval, and the turns at which its sign is surely wrong."""
    wrong = [
        str(turn)
        for turn, moved in enumerate(zip(*batches, strict=True))
        if math.prod(over_seeds(moved)[1:]) > 0 and fmean(moved) * right[turn] < 0
    ]
    return f"{whole:.3f} ± {margin(batches, right):.3f}" + (f", wrong sign at turn {', '.join(wrong)}" if wrong else "")


def margin(batches: Sequence[Sequence[float]], right: Sequence[float]) -> float:
    """Returns half the 95 % interval of the cosine of the mean update, leaving out a batch at a time (jackknife)."""

    def of(some: Sequence[Sequence[float]]) -> float:
        return cosine([fmean(turn) for turn in zip(*some, strict=True)], right)

    count, whole = len(batches), of(batches)
    without = [of([*batches[:index], *batches[index + 1 :]]) for index in range(count)]
    _, low, high = over_seeds([count * whole - (count - 1) * one for one in without])
    return (high - low) / 2


HEAD = [
    "# Results: the gradient where the policy decides how many turns there are",
    "",
    "Written by `python -m benchmarks turns`. One agent is asked up to three times and says `go` or `stop`. It gets "
    "the payoff of the turn at which it stops, or the last payoff if it goes on to the end. So an episode has as many "
    f"turns as the policy wants. The policy goes on with probability {', '.join(map(str, GOES))}. The true gradient "
    f"of the expected payoff in the three logits is computed by hand. Each method plays {BATCHES * TASKS:,} tasks "
    "with its own sampler (groups of 4) and its own credit.",
    "",
    "A cell is the cosine between the method's mean update and the true gradient, with its 95 % interval over "
    f"{BATCHES} batches (jackknife): 1 is the right direction. A turn has a wrong sign if the update makes `go` surely "
    "less probable there although going on pays, or the reverse.",
    "",
    *[f"- {game}: {', '.join(map(str, payoffs))}" for game, payoffs in GAMES.items()],
    "",
]
TAIL = [
    "",
    "Three things decide. **What a reply is credited with.** Methods that credit a reply with the return of its "
    "episode, or with what followed it, point in the right direction, however many turns there are. AT-GRPO values "
    "a reply until its turn ends, so it cannot see that going on pays later. Where stopping pays at once, it prefers "
    "to stop, even if going on pays more; where only the end pays, it learns only at the last turn. It needs rewards "
    "that say at each turn how good the new state is, as those of the shipped games do. **Which replies count how "
    "much.** A weight of 1 / (replies of the role in the episode) (`main_sub_grpo`, `wideseek`) makes short episodes "
    "count more, one by one: the direction is off, although no sign is wrong here. **Scaling by the deviation of a "
    "group** of four changes the direction a little, and comparing replies in small groups (HGPO's, without the "
    "episode level) changes it more: a group in which all returns are equal teaches nothing, and which groups "
    "these are depends on the turn.",
]
