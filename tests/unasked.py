"""Environments that a second process imports at once: roles that are seldom asked, and tasks that repeat."""

from dataclasses import replace

from tests.outside import double
from tests.toys import Toy


class OnlyA(Toy):
    """b is a role that nobody asks."""

    async def play(self, task, scene):
        reply = await scene.ask("a", "pick")
        scene.reward("a", float(len(reply.text)))
        scene.succeed()


class Rarely(OnlyA):
    """b is asked when a has said nothing."""

    async def play(self, task, scene):
        if not (await scene.ask("a", "pick one")).text:
            await scene.ask("b", "what would a say?")
        scene.succeed()


class Absent(OnlyA):
    def absent(self, split):
        return ("b",)


class Shown(OnlyA):
    """What is demonstrated does not have it asked either."""

    def demonstrate(self, role, task, prompt, rng):
        return "yes"


class Outside(OnlyA):
    """What follows a call is not played in a rehearsal."""

    async def play(self, task, scene):
        await scene.ask("a", "pick")
        await scene.call(double, 2)
        await scene.ask("b", "and you?")


class Again(Toy):
    """Every other test task is the one before."""

    def task(self, split, index):
        task = super().task(split, index)
        return replace(task, number=super().task(split, index // 2).number) if split == "test" else task

    async def play(self, task, scene):
        for role in self.roles:
            await scene.ask(role, f"{task.number}")
