"""Toy environments, a tiny random model and the scripted team that tests share.

Torch is loaded where a model is made: a process that plays a toy alone, as `coterie check` starts, does without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from coterie.engines.scripted import ScriptedEngine
from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.loops import Hosted
from coterie.kernel.play import Play, Sampling
from coterie.kernel.scene import Reply, Scene
from coterie.kernel.team import Team
from coterie.kernel.tracker import Line, Tracker
from coterie.learning.optimizer import OptimizerConfig
from tests.outside import double, fail

if TYPE_CHECKING:
    from coterie.learning.policy import Policy
    from coterie.models.load import Model


@dataclass(frozen=True, slots=True)
class Number(Task):
    number: int = 0


class Toy(Environment):
    """Tasks are numbers."""

    roles: ClassVar = ("a", "b")
    starter: ClassVar[str] = "starter"
    max_turns: int = 2

    def task(self, split: Split, index: int) -> Number:
        offset = {"train": 0, "validation": 1, "test": 2}[split]
        return Number(f"{split}-{index}", split, number=3 * index + offset)


class Sequential(Toy):
    """a then b each turn; the prompt shows everything said; a reply is worth its number."""

    async def play(self, task: Number, scene: Scene) -> None:
        said: list[str] = []
        for turn in scene.turns(self.max_turns):
            for role in ("a", "b"):
                reply = await scene.ask(role, f"{role} {turn}: {' '.join(said)}")
                said.append(f"{role}{reply.text}")
                scene.reward(role, worth(reply.text))
            scene.team_reward(sum(worth(word[1:]) for word in said) / 10)
        scene.succeed()


class Simultaneous(Toy):
    """Both speak at once; the team earns 1 when they agree."""

    async def play(self, task: Number, scene: Scene) -> None:
        said = ""
        for turn in scene.turns(self.max_turns):
            replies = await scene.ask_all({"a": f"a {turn} {said}", "b": f"b {turn} {said}"})
            said = " ".join(reply.text for reply in replies.values())
            for role, reply in replies.items():
                scene.reward(role, worth(reply.text))
            scene.team_reward(float(replies["a"].text == replies["b"].text))
        scene.succeed()


class Looping(Toy):
    """Asks until the reply is 0 or ten have come; chance is drawn on the way; ends by itself."""

    async def play(self, task: Number, scene: Scene) -> None:
        for _ in range(10):
            reply = await scene.ask("a", f"{task.number} {scene.rng.randrange(1000)}")
            scene.metric("length", len(reply.text))
            if reply.text == "0":
                break

    def absent(self, split: Split) -> tuple[str, ...]:
        return ("b",)


class Carrying(Toy):
    """Its state passes from turn to turn, and is changed in place; chance is drawn before, in and after the turns."""

    max_turns: int = 3

    async def play(self, task: Number, scene: Scene) -> None:
        secret = scene.rng.randrange(1000)
        state = scene.state(said=[], best=0.0, turns=([],))
        for _ in scene.turns(0):
            pass
        for turn in scene.turns(self.max_turns):
            if turn:
                scene.reward("b", state.best)
            for role in ("a", "b"):
                reply = await scene.ask(role, f"{secret} {turn} {scene.rng.randrange(1000)} {state.said} {state.turns}")
                state.said.append(role + reply.text)
                found = await scene.call(double, int(worth(reply.text)))
                state.best = max(state.best, found)
                scene.reward(role, worth(reply.text) + state.best / 100)
            state.turns[0].append(turn)
            if state.best == 10:
                break
        for _ in scene.turns(2):
            last = await scene.ask("a", f"{state.said} {scene.rng.randrange(1000)}")
            scene.reward("a", worth(last.text))
        scene.team_reward(state.best)
        scene.succeed()


class Tools(Toy):
    """Calls outside: one that works, one that fails; results reach the prompt."""

    effect: str = "none"

    async def play(self, task: Number, scene: Scene) -> None:
        from coterie import CallError

        first = await scene.ask("a", "start")
        found = await scene.call(double, int(worth(first.text)), effect=self.effect)  # pyright: ignore[reportArgumentType]
        try:
            await scene.call(fail, found)
        except CallError as error:
            second = await scene.ask("b", f"{found} {error}")
            scene.reward("b", worth(second.text))
        scene.succeed()


class Acting(Toy):
    """An odd token changes the world."""

    async def play(self, task, scene: Scene) -> None:
        said = worth((await scene.ask("a", "start")).text)
        if said % 2:
            await scene.call(double, int(said), effect="external")
        scene.reward("a", said)
        scene.succeed()


class Agree(Toy):
    """A bandit for two: a is rewarded for an even token, b for matching it, the team for both."""

    max_turns: int = 1

    async def play(self, task: Number, scene: Scene) -> None:
        for _ in scene.turns(1):
            first = await scene.ask("a", "pick", max_tokens=1)
            scene.reward("a", parity(first.text))
            second = await scene.ask("b", f"match {int(parity(first.text))}", max_tokens=1)
            scene.reward("b", float(parity(second.text) == parity(first.text)))
            both = parity(first.text) == 1 == parity(second.text)
            scene.team_reward(float(both))
            if both:
                scene.succeed()


class Crowd(Toy):
    """Four roles. a sees a bit and b, who hears a, must say it: both are needed. c is paid for what
    nobody needs: redundant. d is paid nothing: dead."""

    roles: ClassVar = ("a", "b", "c", "d")

    async def play(self, task: Number, scene: Scene) -> None:
        bit = task.number // 3 % 2
        first = await scene.ask("a", TEXTS[bit], max_tokens=1)
        heard = TEXTS[2 + int(parity(first.text))] if first.text else "user"
        scene.reward("a", float(parity(first.text) == bit))
        second = await scene.ask("b", heard, max_tokens=1)
        solved = bool(second.text) and parity(second.text) == bit
        scene.reward("b", float(bool(second.text) and parity(second.text) == parity(first.text)))
        scene.team_reward(float(solved))
        third = await scene.ask("c", "here", max_tokens=1)
        scene.reward("c", parity(third.text))
        await scene.ask("d", "goal", max_tokens=1)
        if solved:
            scene.succeed()


def parity(text: str) -> float:
    return float(sum(text.encode()) % 2 == 0)


def worth(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0.0


TEAM = Team({"a": "pa", "b": "pb"})


def counting(low: int = 0, high: int = 9) -> Callable[[str, str, Random], str]:
    """A script that says a random number, by the sample's own seed."""
    return lambda role, prompt, rng: str(rng.randint(low, high))


def scripted(environment: Environment, script: Any = None, team: Team = TEAM, **kwargs: Any) -> Play:
    return Play(environment, team, ScriptedEngine(script or counting()), seed=kwargs.pop("seed", 0), **kwargs)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def one(play: Play, coroutine: Any) -> Any:
    """Runs one branch the way the loop does."""

    async def wrapped() -> Any:
        (result,) = await play.together(coroutine)
        return result

    return asyncio.run(wrapped())


TEXTS = ("user\npick\nassistant\nsystem\n", "match 0 1", "go a1 b2 c3 d4", "here a1 goal f6 proposal: # # #")


@lru_cache(maxsize=8)
def tokenizer(vocabulary: int = 320) -> Any:
    from coterie.run.sft import new_tokenizer

    return new_tokenizer(list(TEXTS) * 3, vocabulary)


def tiny(
    seed: int = 0,
    *,
    hidden: int = 32,
    layers: int = 2,
    vocabulary: int = 320,
    scale: float = 1.0,
    context: int = 512,
    keys: int = 1,
) -> Model:
    """A random network of Qwen3 shape.

    Args:
        scale: of its weights; above 1 its distribution is far from flat.
        keys: heads of keys and values.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from coterie.models.load import prepare

    torch.manual_seed(seed)
    words = tokenizer(vocabulary)
    net = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=-(-len(words) // 64) * 64,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=keys,
            head_dim=hidden // 2,
            max_position_embeddings=context,
            tie_word_embeddings=True,
            pad_token_id=words.pad_token_id,
            bos_token_id=None,
            eos_token_id=words.eos_token_id,
        )
    )
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return prepare(net, words)


GREEDY = Sampling(temperature=0.0)


class Noting(Agree):
    """Agree, with words for memory and queries of three kinds."""

    def task(self, split: Split, index: int) -> Number:
        number = super().task(split, index).number
        return Number(f"{split}-{index}", split, query=f"number {number} of many", number=number, kind=f"k{index % 3}")

    def note(self, role: str, reply: Reply) -> str:
        return f"{role} {'even' if parity(reply.text) else 'odd'}"


class Flat(Agree):
    """Everything earns the same."""

    async def play(self, task: Number, scene: Scene) -> None:
        await scene.ask("a", "pick", max_tokens=1)
        await scene.ask("b", "match", max_tokens=1)
        scene.team_reward(1.0)


def policies(models: Mapping[str, Model], **optimizer: Any) -> dict[str, Policy]:
    """Models as policies of their names, all moved alike."""
    from coterie.learning.policy import Policy

    config = OptimizerConfig(**optimizer)
    return {name: Policy(name, model, optimizer=config) for name, model in models.items()}


class Hears(Tracker):
    """Calls a function with every line of metrics."""

    def __init__(self, hear: Callable[[Line], None]) -> None:
        super().__init__()
        self._hear = hear

    def log(self, line: Line) -> None:
        self._hear(line)


class Here(Hosted):
    """An engine on the loop that asks, so that a signal strikes where it is."""

    def open(self) -> None:
        """It is here."""

    def give_way(self) -> None:
        """It has no memory to give."""

    def take_over(self, version: int) -> None:
        """It knows no weights, and whose they are."""
        self.engine.versions.update(dict.fromkeys(self.engine.versions, version))

    async def _brought(self, begin):
        return await begin()
