"""Environments whose training goes wrong, each in one way."""

from __future__ import annotations

from typing import ClassVar

from coterie.errors import CallError
from coterie.kernel.scene import Scene
from tests.outside import double, killed, spin
from tests.toys import Agree, Number, Toy, parity


class Mute(Toy):
    """No reward, and no outcome."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "pick", max_tokens=1)


class Endless(Toy):
    """Replies are as long as they may be, and never what is wanted."""

    async def play(self, task: Number, scene: Scene) -> None:
        reply = await scene.ask("a", "pick")
        scene.team_reward(float(parity(reply.text)))
        scene.fail("never enough")


class Certain(Toy):
    """Every token pays its own amount, and nothing succeeds: the policy learns to say one of them, always."""

    roles: ClassVar = ("a",)

    async def play(self, task: Number, scene: Scene) -> None:
        reply = await scene.ask("a", "pick", max_tokens=1)
        letters = [ord(letter) for letter in reply.text or "z"]
        scene.reward("a", -sum(abs(letter - ord("a")) + (letter < ord("a")) / 2 for letter in letters))
        scene.fail("by design")


class Fated(Agree):
    """Whatever is said, every other task succeeds; what pays has nothing to do with it."""

    async def play(self, task: Number, scene: Scene) -> None:
        reply = await scene.ask("a", "pick", max_tokens=1)
        scene.reward("a", float(parity(reply.text)))
        if task.number % 2:
            scene.succeed()


class Perverse(Agree):
    """What pays is to fail."""

    async def play(self, task: Number, scene: Scene) -> None:
        reply = await scene.ask("a", "pick", max_tokens=1)
        scene.reward("a", float(not parity(reply.text)))
        if parity(reply.text):
            return scene.succeed()
        return scene.fail("it pays")


class Crowded(Toy):
    """a speaks twenty times as often as b, who shares its policy."""

    async def play(self, task: Number, scene: Scene) -> None:
        for turn in range(20):
            reply = await scene.ask("a", f"a {turn}", max_tokens=1)
            scene.reward("a", float(parity(reply.text)))
        reply = await scene.ask("b", "b", max_tokens=1)
        scene.reward("b", float(parity(reply.text)))
        scene.fail("by design")


class Growing(Toy):
    """Every prompt repeats all that was said."""

    async def play(self, task: Number, scene: Scene) -> None:
        said = "x"
        for _ in range(12):
            reply = await scene.ask("a", said, max_tokens=8)
            said += reply.text + "some more words"
        scene.reward("a", float(len(said)))
        scene.succeed()


class Tooled(Agree):
    """Both use tools: one ends its process, one never comes back; play sees an error and goes on."""

    async def play(self, task: Number, scene: Scene) -> None:
        replies = []
        for role, tool in (("a", killed), ("b", spin if task.number % 7 == 0 else double)):
            replies.append(await scene.ask(role, f"pick {task.number % 3}", max_tokens=1))
            try:
                await scene.call(tool, *([1] if tool is double else []))
            except CallError as error:
                scene.metric(f"failed/{error.kind}", 1.0)
        agreed = parity(replies[0].text) == parity(replies[1].text)
        scene.team_reward(float(agreed))
        if agreed:
            scene.succeed()


class Crashing(Toy):
    """A tool that ends its process, which play does not expect."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "pick", max_tokens=1)
        await scene.call(killed)
        scene.succeed()
