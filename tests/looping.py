"""Environments that run on without coming back, each in its own way; at module level, for a second process."""

from __future__ import annotations

import os
import re
from typing import Any

from coterie.kernel.scene import Scene
from tests.toys import Agree, Number, Toy


def count_for_ever() -> None:
    number = 0
    while True:
        number += 1


class Looping(Toy):
    """Loops after a's answer."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "pick")
        count_for_ever()


class LoopingAgree(Agree):
    """Loops after both have answered, where they answered alike: a model's words decide."""

    async def play(self, task: Number, scene: Scene) -> None:
        await super().play(task, scene)
        while True:
            pass


class Stubborn(Toy):
    """Catches every Exception that comes its way."""

    async def play(self, task: Number, scene: Scene) -> None:
        while True:
            try:
                count_for_ever()
            except Exception:
                continue


class LoopsAtOnce(Toy):
    """Its `play` is no coroutine, and never comes back."""

    def play(self, task: Number, scene: Scene) -> Any:
        count_for_ever()


class Backtracking(Toy):
    """A regular expression that lets no other thread run."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "pick")
        re.match(r"(a+)+$", "a" * 64 + "b")


class LoopsElsewhere(Toy):
    """Only in the second process of `check`, by its hash seed."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "pick")
        if os.environ.get("PYTHONHASHSEED") == "4242":
            count_for_ever()


class LoopingTask(Toy):
    def task(self, split, index):
        count_for_ever()
        return super().task(split, index)

    async def play(self, task, scene) -> None:
        await scene.ask("a", "never")
