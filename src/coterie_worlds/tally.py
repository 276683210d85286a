"""Tally: a lead decides how many counters share a row, so the team sets its own size.

A row consists of cells, and some are marked: `x . x x .`. The lead is told the length of the row and says how many
counters share it. Each counter sees one piece and says how many marks it holds. The task is solved if the numbers add
up to the marks of the row. Counters make errors on long pieces, and each has a cost, so the lead must learn what they
can do. This is the shipped example of a role with several prompts at once and of a team whose size changes.

Rewards: a counter gets 0 for a right number and -1 for a wrong one. The lead gets -`cost` for each counter, even if the
row has too few cells for all of them, and -1 if it says no number. The team gets 1 if the task is solved.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from coterie.environments.talk import Talk
from coterie.kernel.environment import Environment, Split, Task, split_of
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie.seeds import seed_of

MOST = 6
"""Counters that the lead may ask for."""
INSTRUCTIONS = {
    "lead": "A row of cells, some marked with an x, others with a dot, is cut up for a number of counters; each counts "
    "the marks of its piece, and the team succeeds where their numbers add up to the marks of the row. You are told "
    f"how long the row is, and say how many counters there are: 1 to {MOST}. Each costs something, and errs more often "
    "the longer its piece is. Answer with the number alone.",
    "counter": "You are shown cells, some marked with an x, others with a dot. Answer with the number of marks alone.",
}
"""Instructions for a model that was never taught its role, by role."""


@dataclass(frozen=True, slots=True)
class TallyRow(Task):
    """A row of cells, in order: x is marked, . is not."""

    cells: str = ""


class Tally(Environment):
    """A lead says how many counters share a row; each counts the marks of its piece."""

    roles: ClassVar = ("lead", "counter")
    team_reward_range: ClassVar = (0.0, 1.0)
    starter: ClassVar[str] = "starter-tally"

    shortest: int = Field(default=6, ge=4, le=60)
    """Minimum number of cells in a row. It must be at least 4, so that every split has rows."""
    longest: int = Field(default=24, ge=4, le=60)
    """Maximum number of cells in a row."""
    cost: float = Field(default=0.02, ge=0)
    """Amount by which each counter reduces the lead's reward."""
    brief: bool = True
    """true: short prompts, for a small model that was trained on the task. false: prompts with instructions."""
    naive: float = Field(default=0.7, ge=0, le=1)
    """Probability that a counter in a demonstration counts only the first four cells of its piece."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.longest < self.shortest:
            raise ValueError(f"longest = {self.longest} is below shortest = {self.shortest}")
        return self

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for the starter: a policy a role, a minute on two cores."""
        if not self.brief:
            return {}
        return {
            "algorithm": {"name": "at_grpo", "advantage": "center"},
            "team": {role: role for role in self.roles},
            "policies": {role: {} for role in self.roles},
            "optimizer": {"lr": 5e-4, "warmup_steps": 5},
            "train": {"steps": 40, "tasks_per_step": 16, "eval_every": 10, "eval_tasks": 400, "mute_every": 0},
        }

    def task(self, split: Split, index: int) -> TallyRow:
        """Returns a row whose content belongs to the split."""
        rng = Random(seed_of("tally", split, index))
        while True:
            cells = "".join(rng.choice("x.") for _ in range(rng.randint(self.shortest, self.longest)))
            if split_of(cells) == split:
                return TallyRow(f"{split}-{index}", split, cells=cells)

    async def play(self, task: TallyRow, scene: Scene) -> None:
        """Plays a row: the lead says a number, then as many counters count at once."""
        talk = Talk(scene, {} if self.brief else INSTRUCTIONS)
        said = await talk.ask("lead", f"{len(task.cells)} cells. How many counters?", max_tokens=4)
        count = number(said)
        scene.metric("readable/lead", float(count >= 0))
        if not 1 <= count <= MOST:
            scene.reward("lead", -1.0)
            return scene.fail("the lead said no number of counters")
        scene.reward("lead", -self.cost * count)
        pieces = cut(task.cells, count)
        replies = await talk.ask_all([("counter", f"Count x: {' '.join(piece)}") for piece in pieces], max_tokens=4)
        answers = [number(reply) for reply in replies]
        for piece, reply, its in zip(pieces, replies, answers, strict=True):
            scene.reward(reply, float(its == piece.count("x")) - 1)
            scene.metric("readable/counter", float(its >= 0))
        solved = all(its >= 0 for its in answers) and sum(answers) == task.cells.count("x")
        scene.metric("counters", count)
        scene.team_reward(float(solved))
        return scene.succeed() if solved else scene.fail("the numbers do not add up")

    def demonstrate(self, role: str, task: TallyRow, prompt: Prompt, rng: Random) -> str:
        """Returns the lead's number, mostly small; or a counter's, the right one or that of its first four cells."""
        if role == "lead":
            return str(rng.choice((1, 1, 2, 2, 3, 4, 5, 6)))
        piece = str(prompt).rpartition(":")[2].split()
        return str((piece[:4] if rng.random() < self.naive else piece).count("x"))


def number(reply: Reply) -> int:
    """Returns the number that a reply is, or -1: nothing else may stand beside it, and it must not have been cut."""
    said = reply.text.strip() if reply.finish == "stop" else ""
    return int(said) if said.isascii() and said.isdigit() and len(said) <= 2 else -1


def cut(cells: str, count: int) -> list[str]:
    """Returns a row in `count` pieces, as equal as can be, the first ones longer; fewer if it has fewer cells."""
    count = min(count, len(cells))
    size, more = divmod(len(cells), count)
    ends = [at * size + min(at, more) for at in range(count + 1)]
    return [cells[begin:end] for begin, end in itertools.pairwise(ends)]
