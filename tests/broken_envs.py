"""Environments that break the contract, each in one way; at module level, so that a second process can import them."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.scene import Reply, Scene
from coterie_worlds.games.plan_path import PlanPath
from tests.toys import Number, Sequential, Toy


class Teaching(PlanPath):
    """Writes lessons of its own, and keeps notes that they could not show."""

    def note(self, role: str, reply: Reply) -> str:
        return reply.finish


class Clock(Toy):
    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", f"it is {time.time()}")
        await scene.ask("b", "and now?")


class Forgetful(Toy):
    """Keeps beside its state how often it was told nothing, which shows in its last reward alone."""

    async def play(self, task, scene: Scene) -> None:
        scene.state()
        turns = 0
        for _ in scene.turns(self.max_turns):
            await scene.ask("a", "say")
            turns += 1
        scene.team_reward(turns)
        scene.succeed()


class Hour(Toy):
    """A clock too coarse to differ between two plays here."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", f"it is year {time.time() // 31_000_000}")


class SetOrder(Toy):
    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", " ".join({"north", "south", "east", "west", "up", "down"}))


class WrongRole(Toy):
    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("c", "who?")


class OwnTask(Toy):
    async def play(self, task: Number, scene: Scene) -> None:
        waiting = asyncio.ensure_future(asyncio.sleep(0.01))
        await scene.ask("a", "busy")
        waiting.cancel()


class OwnThread(Toy):
    async def play(self, task: Number, scene: Scene) -> None:
        timer = threading.Timer(0.2, lambda: None)
        timer.start()
        await scene.ask("a", "busy")
        timer.cancel()


@dataclass(frozen=True, slots=True)
class Listed(Task):
    number: int = 0
    left: list[int] = field(default_factory=lambda: [1, 2, 3])


class MutatedTask(Environment):
    roles = ("a",)

    def task(self, split: Split, index: int) -> Listed:
        return Listed(f"{split}-{index}", split, number=3 * index + ("train", "validation", "test").index(split))

    async def play(self, task: Listed, scene: Scene) -> None:
        await scene.ask("a", f"{task.left.pop() if task.left else None}")


class LateReward(Toy):
    async def play(self, task: Number, scene: Scene) -> None:
        for turn in scene.turns(2):
            if turn:
                scene.reward("a", 1.0)
            await scene.ask("a", "x")


class Leaking(Sequential):
    def task(self, split: Split, index: int) -> Number:
        return Number(f"{split}-{index}", split, number=index)


class Endless(Toy):
    async def play(self, task: Number, scene: Scene) -> None:
        while True:
            await scene.ask("a", "again")


class Crashing(Toy):
    """Parses with int(): a hostile reply raises."""

    async def play(self, task: Number, scene: Scene) -> None:
        reply = await scene.ask("a", "1 2 3")
        int(reply.text)


class OutOfRange(Toy):
    team_reward_range = (0.0, 1.0)

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "x")
        scene.team_reward(7.0)


class Impure(Toy):
    def task(self, split: Split, index: int) -> Number:
        return Number(f"{split}-{index}", split, number=id(object()) + time.perf_counter_ns())
