"""Growth of a step's time with a team's roles, turns, replies and tasks, and with prompts and networks.

Writes docs/results/growth.md. One quantity grows at a time, and the others keep their values in `Size`. The method is
AT-GRPO on an environment in which each role speaks in each turn and every reply is trained. Work is counted in
operations: a forward pass for sampled tokens, a forward and a backward pass for trained tokens, including attention.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from benchmarks.peers import save_network, words, worth
from benchmarks.update import SIZES
from coterie.bench import Say
from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.safe import plain
from coterie.kernel.scene import Scene
from coterie.kernel.tracker import Line, Tracker
from coterie.models.attention import pairs

PAGE = Path("docs/results/growth.md")
VOCABULARY = 448
WARM, STEPS = 1, 3
"""Number of steps that are not timed, and of those that are."""
NETWORKS = {
    **SIZES,
    "107M": {"width": 576, "inner": 1536, "layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64},
}
"""Shapes of networks; the largest is SmolLM2's of 135 million parameters, without 28 million for words."""


@dataclass(frozen=True)
class Size:
    """The quantities that make up a step. reply: tokens of each reply."""

    roles: int = 2
    turns: int = 2
    replies: int = 8
    tasks: int = 4
    prompt: int = 100
    network: str = "0.85M"
    reply: int = 16

    @property
    def groups(self) -> int:
        """Number of prompts of a step."""
        return self.roles * self.turns * self.tasks

    @property
    def operations(self) -> float:
        """Operations of a step: a forward pass of all tokens to sample, three to train, two operations per product."""
        shape = NETWORKS[self.network]
        queries, both = shape["heads"] * shape["head_dim"], 2 * shape["kv_heads"] * shape["head_dim"]
        layer = shape["width"] * (2 * queries + both) + 3 * shape["width"] * shape["inner"]
        tokens = self.prompt + self.replies * (self.reply - 1)
        attention = 2 * queries * pairs(self.prompt, [self.reply - 1] * self.replies)
        head = shape["width"] * VOCABULARY * self.replies * self.reply
        return 4 * 2 * self.groups * (shape["layers"] * (layer * tokens + attention) + head)


GROWTH: dict[str, tuple[Any, ...]] = {
    "roles": (1, 2, 4, 8),
    "turns": (1, 4, 16, 64),
    "replies": (2, 8, 32),
    "tasks": (1, 4, 16),
    "prompt": (100, 400, 1000, 4000),
    "network": tuple(NETWORKS),
}


class Round(Environment):
    """An environment in which each role speaks each turn, and is rewarded for it."""

    roles: ClassVar = ("a",)
    turns: int = 1
    prompt: int = 100
    """Tokens of a prompt."""
    reply: int = 16
    """Tokens of a reply, at most."""

    def task(self, split: Split, index: int) -> Task:
        """Returns a task whose query is its number; each split has numbers of its own."""
        number = 3 * index + ("train", "validation", "test").index(split)
        return Task(f"{split}-{index}", split, query=str(number))

    async def play(self, task: Task, scene: Scene) -> None:
        """Asks the roles one after the other in each turn, and rewards every reply."""
        scene.state()  # nothing passes from one turn to the next
        for turn in scene.turns(self.turns):
            for at, role in enumerate(self.roles):
                asked = words(at, int(task.query) * self.turns + turn, self.prompt)
                scene.reward(role, worth((await scene.ask(role, asked, max_tokens=self.reply)).text))
        scene.succeed()


class Round2(Round):
    """The same environment with two roles."""

    roles: ClassVar = tuple("ab")


class Round4(Round):
    """The same environment with four roles."""

    roles: ClassVar = tuple("abcd")


class Round8(Round):
    """The same environment with eight roles."""

    roles: ClassVar = tuple("abcdefgh")


ROUNDS = {len(each.roles): each for each in (Round, Round2, Round4, Round8)}


def run(say: Say) -> dict[str, Any]:
    """Writes the page. Returns, for each quantity, the largest ratio of the growth of time to the growth of work."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    told: dict[str, list[tuple[Size, float]]] = {}
    known: dict[Size, float] = {}
    for figure, size in sizes():
        if size not in known:
            known[size] = _seconds(size)
        told.setdefault(figure, []).append((size, known[size]))
        say(f"{figure} {getattr(size, figure)}: {known[size]:.2f} s a step")
    PAGE.write_text(plain("\n".join(page(told))))
    return {figure: round(max(grown(each)), 2) for figure, each in told.items()}


def sizes() -> Iterator[tuple[str, Size]]:
    """Yields each quantity that grows, and the whole step at each of its values."""
    for figure, values in GROWTH.items():
        for value in values:
            yield figure, replace(Size(), **{figure: value})


def grown(measured: list[tuple[Size, float]]) -> list[float]:
    """Returns, for each size but the first, the growth of its step's time divided by the growth of its work."""
    (first, began), *others = measured
    return [(took / began) / (size.operations / first.operations) for size, took in others]


def page(told: dict[str, list[tuple[Size, float]]]) -> list[str]:
    """Returns the lines of the results page."""
    base = Size()
    lines = [
        "# Results: how a step's time grows",
        "",
        f"Written by `python -m benchmarks growth`. "
        f"The base case is AT-GRPO with {base.roles} roles that share a network of "
        f"{base.network} parameters, {base.turns} turns, {base.replies} replies to each prompt of {base.prompt} "
        f"tokens, {base.reply} tokens per reply and {base.tasks} tasks per step; every reply is trained. One quantity "
        f"grows at a time. Times are medians of {STEPS} steps on {len(os.sched_getaffinity(0))} cores. Work is the "
        "number of operations of matrix products and attention. The last column divides the growth of time by the "
        "growth of work: it is 1 where both grow equally, and below 1 where time grows less.",
        "",
        "| quantity | value | seconds per step | time relative to the first row | work relative to the first row | "
        "time growth / work growth |",
        "|---|---|---|---|---|---|",
    ]
    for figure, measured in told.items():
        first, began = measured[0]
        for (size, took), ratio in zip(measured, [1.0, *grown(measured)], strict=True):
            more = size.operations / first.operations
            lines.append(
                f"| {figure} | {getattr(size, figure)} | {took:.2f} | {took / began:.1f} | {more:.1f} | {ratio:.2f} |"
            )
    return [*lines, ""]


def _seconds(size: Size) -> float:
    """Returns the median seconds of a training step of this size."""
    from coterie.run.train import train

    ended = _Ended(size.groups * size.replies)
    steps = WARM + STEPS + 1  # the last has a validation
    with tempfile.TemporaryDirectory() as folder:
        save_network(Path(folder) / "network", NETWORKS[size.network])
        train(
            {
                "environment": {
                    "name": f"benchmarks.growth:{ROUNDS[size.roles].__name__}",
                    "turns": size.turns, "prompt": size.prompt, "reply": size.reply,
                },
                "algorithm": {"name": "at_grpo", "num_generations": size.replies, "horizon": "point"},
                "team": dict.fromkeys(ROUNDS[size.roles].roles, "all"),
                "policies": {"all": {"model": str(Path(folder) / "network")}},
                "optimizer": {"lr": 1e-6, "tokens_per_microbatch": 8192},
                "train": {
                    "steps": steps, "tasks_per_step": size.tasks, "eval_every": steps, "eval_tasks": 1,
                    "mute_every": 0, "checkpoint_every": steps, "episodes_every": steps, "device": "cpu",
                },
            },
            Path(folder) / "run",
            trackers=[ended],
        )  # fmt: skip
    times = ended.times[WARM - 1 : WARM + STEPS]
    return median(after - before for before, after in pairwise(times))


class _Ended(Tracker):
    """A tracker that notes the times at which steps end, and asserts that all their replies were trained."""

    def __init__(self, replies: int) -> None:
        super().__init__()
        self.replies = replies
        self.times: list[float] = []

    def log(self, line: Line) -> None:
        if line["step"]:
            self.times.append(time.perf_counter())
            assert line["policy/all/trained_sequences"] == self.replies, line
