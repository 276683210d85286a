"""Estimates the requests of a step to each policy without a model: roles give meaningless replies of maximum length.

No outside function is run. An episode ends at its first `scene.call`, so later requests are not known.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from coterie.config.settings import Config
from coterie.errors import EnvError, Unavailable
from coterie.kernel.cursor import PlayBug
from coterie.kernel.engine import Engine, Request
from coterie.kernel.episode import LoggedPrompt, Sample, text_of
from coterie.kernel.group import Collected
from coterie.kernel.loops import drive
from coterie.kernel.play import Play, Sampling
from coterie.kernel.scene import JSON
from coterie.learning.policy import Policy

LETTERS = 3
"""Letters that count as a token where there is no tokenizer; English has about four, grids and programs fewer."""
WORD = "la "
TASKS = 2
"""Number of tasks of a step that are played; the others are taken to ask as much."""


@dataclass(slots=True)
class Requests:
    """Requests that some tasks of a step make to each policy.

    tasks: how many. waves: questions that are answered side by side. samples: replies that it learns from. cut: whether
    an episode ended at a call.
    """

    tasks: int
    waves: dict[str, list[list[Request]]] = field(default_factory=dict[str, list[list[Request]]])
    samples: dict[str, list[Sample]] = field(default_factory=dict[str, list[Sample]])
    cut: bool = False


class Estimate(Engine):
    """An engine that gives every request a reply of maximum length, and keeps the requests."""

    def __init__(self, policies: Mapping[str, Policy], config: Config) -> None:
        super().__init__(policies, config.engine)
        self.asked = Requests(min(TASKS, config.train.tasks_per_step))

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """Returns a prompt's tokens; where there is no tokenizer here, as many as its letters make likely."""
        model = self.policies.get(policy)
        if model is not None and model.tokenizer is not None:
            return super().render(policy, role, prompt)
        text = text_of(prompt)
        return tuple(zlib.crc32(text[at : at + LETTERS].encode()) % 1000 for at in range(0, len(text), LETTERS))

    def context(self, policy: str) -> int:
        """Returns the context length of a policy's model; for one on a server, where it is not known, 2**30."""
        return super().context(policy) if policy in self.policies else 1 << 30

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """Returns replies to all requests, each as long as it may be."""
        self.asked.waves.setdefault(requests[0].policy, []).append(list(requests))
        return [tuple(self.answer(request, seed) for seed in request.seeds) for request in requests]

    def answer(self, request: Request, seed: int) -> Sample:
        """Returns a meaningless reply, as long as it may be."""
        size = request.max_tokens
        return Sample(
            role=request.role,
            policy=request.policy,
            version=0,
            prompt_ids=request.prompt_ids,
            completion_ids=tuple(Random(seed).choices(range(100), k=size)),
            logprobs=(0.0,) * size,
            finish="length",
            text=WORD * size,
            seed=seed,
            temperature=request.temperature,
        )


class RecordingEngine(Engine):
    """An engine that passes requests on to another one, and keeps requests and replies."""

    def __init__(self, engine: Engine, tasks: int) -> None:
        super().__init__(engine.policies, engine.config)
        self.engine = engine
        self.asked = Requests(tasks)

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """Returns a prompt's tokens as the other engine renders them."""
        return self.engine.render(policy, role, prompt)

    def context(self, policy: str) -> int:
        """Returns the context length that the other engine gives a policy."""
        return self.engine.context(policy)

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """Returns the numbers of prompt tokens and of reply tokens, as the other engine counts them."""
        return self.engine.tokens(request, samples)

    async def start(self) -> None:
        """Starts the other engine."""
        await self.engine.start()

    async def generate(self, requests: Sequence[Request]) -> Sequence[tuple[Sample, ...] | Unavailable]:
        """Returns the other engine's answers, and keeps them with their requests."""
        answers = await self.engine.generate(requests)
        said = [sample for samples in answers if not isinstance(samples, Unavailable) for sample in samples]
        self.asked.waves.setdefault(requests[0].policy, []).append(list(requests))
        self.asked.samples.setdefault(requests[0].policy, []).extend(said)
        return answers


class Inside(Play):
    """Play in which nothing outside runs: an episode ends at its first `scene.call`."""

    left = False

    async def perform(self, function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
        """Raises Unavailable in place of the call, which ends the episode."""
        self.left = True
        raise Unavailable("plan", "nothing outside runs before a run does")


def asked_by(config: Config, policies: Mapping[str, Policy], sampling: Sampling) -> Requests:
    """Returns the requests that tasks of a step make if every reply is as long as it may be.

    A policy that nobody asked, because nothing sensible was said, is taken to be asked what all the others are.

    Args:
        policies: those that have weights here, which may be shapes alone.
    """
    engine = Estimate(policies, config)
    asked = engine.asked
    play = Inside(config.environment, config.team, engine, seed=config.train.seed, sampling=sampling)

    async def collect() -> list[Collected | Unavailable]:
        tasks = [play.task("train", index) for index in range(asked.tasks)]
        return await play.together(*(config.algorithm.collect(play, task) for task in tasks))

    try:
        played = [one for one in drive(collect()) if isinstance(one, Collected)]
    except PlayBug as bug:
        raise EnvError(f"{bug}: in a plan roles say 'la la la', and play must bear whatever is said") from bug
    asked.cut = play.left
    samples = {
        sample.seed: sample
        for one in played
        for group in one.groups
        for member in group.members
        for sample in member.samples
    }
    everything = [wave for waves in asked.waves.values() for wave in waves]
    for name in policies:
        waves = asked.waves.setdefault(name, everything)
        trained = [sample for sample in samples.values() if sample.policy == name]
        asked.samples[name] = trained or [
            engine.answer(request, seed) for wave in waves for request in wave for seed in request.seeds
        ]
    return asked
