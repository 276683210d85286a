"""`Play`, the interface for samplers. It starts cursors, samples replies of the team and runs branches in parallel."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from coterie.errors import ConfigError, Unavailable
from coterie.kernel import calls
from coterie.kernel.cursor import Cursor
from coterie.kernel.engine import Engine, FrontName, Request
from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.episode import LoggedPrompt, Point, Sample, episode_of, path_of, text_of
from coterie.kernel.front import FRONTS, RETRIES, Budget, Front, Samples, T
from coterie.kernel.mistakes import task_of
from coterie.kernel.scene import JSON, Reply, role_of
from coterie.kernel.team import Team
from coterie.kernel.watchdog import PLAY_TIMEOUT_S, Watch
from coterie.seeds import seed_of

Seats = Mapping[str, Callable[[str], str]]
"""Roles that no policy plays, each with a function that answers its prompts: a person, or silence."""


class Reminder(Protocol):
    """The part of the memory that adds notes to the prompts of roles."""

    def told(self, prompt: LoggedPrompt, role: str, task: Task, episode: int) -> LoggedPrompt:
        """Returns the prompt with what is remembered, or the same object if nothing is."""
        ...

    def unseen(self, role: str, task: Task, episode: int) -> None:
        """Records that the notes did not fit into a prompt of the episode, which was sent without them."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings for the sampling of replies.

    temperature: 0 takes the most likely token. own: temperatures of single policies, which override it. top_p: nucleus
    sampling; 1 is the whole distribution. max_tokens: limit of a reply if the environment sets none. call_timeout_s:
    limit of one `scene.call`. play_timeout_s: limit of `play` from an answer to its next request. front: when requests
    are sent to the engine.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    call_timeout_s: float = 60.0
    play_timeout_s: float = PLAY_TIMEOUT_S
    front: FrontName = "waves"
    own: Mapping[str, float] = field(default_factory=dict[str, float])

    def of(self, policy: str) -> float:
        """Returns a policy's temperature."""
        return self.own.get(policy, self.temperature)


def majority(samples: Samples) -> Sample:
    """Returns the first sample whose text is the most frequent.

    Source:
        self-consistency, arXiv:2203.11171; it votes on final answers, this on whole replies.
    """
    count = Counter(sample.text for sample in samples)
    return max(samples, key=lambda sample: count[sample.text])


class Drawn(NamedTuple):
    """A sample of an episode: the number of its point, the speaker there, and what was sampled."""

    point: int
    speaker: str
    sample: Sample


class Play:
    """The play of one rollout: environment, team, front and seeds."""

    def __init__(
        self,
        environment: Environment,
        team: Team,
        engine: Engine,
        *,
        seed: int,
        step: int = 0,
        sampling: Sampling = Sampling(),
        seats: Seats | None = None,
        recall: Reminder | None = None,
        votes: int = 1,
        trial: bool = False,
        front: Front | None = None,
    ) -> None:
        """Creates the play of one rollout.

        Args:
            seed: the run's.
            step: whose rollout this is; both enter every sample's seed.
            recall: memory.
            votes: replies that `run` draws at every question; what most of them say is the answer.
            trial: before a call with an external effect an episode ends, with an Unavailable.
            front: one that several share; None: one of its own, as `sampling` names it.
        """
        self.environment = environment
        self.recall = recall
        self.team = team
        self.sampling = sampling
        self._seed = seed
        self._step = step
        self._seats = seats or {}
        self._votes = votes
        self._trial = trial
        self._front = front or FRONTS[sampling.front](engine)
        self._watch = Watch(sampling.play_timeout_s)
        self._slots = asyncio.Semaphore(calls.AT_ONCE)

    @property
    def budget(self) -> Budget:
        """Cost of the rollout so far."""
        return self._front.budget

    def task(self, split: Split, index: int) -> Task:
        """Returns a task of the environment.

        Raises:
            Stuck: the task never comes.
        """
        return self._watch.task(partial(task_of, self.environment), split, index)

    def start(self, task: Task, episode: int = 0) -> Cursor:
        """Returns a cursor before an episode of a task; equal numbers give equal chance."""
        return Cursor(
            self.environment,
            task,
            seed_of("episode", self._seed, self._step, task.id, episode),
            name=str(episode),
            perform=self.perform,
            trial=self._trial,
            watch=self._watch,
        )

    def key(self, cursor: Cursor, point: Point, speaker: str) -> tuple[str, int, str, str]:
        """Returns the key of a place where samples are drawn: (task, episode, path, role)."""
        path = path_of(cursor.id, point.index, speaker)
        return cursor.task.id, episode_of(cursor.id), path, role_of(speaker)

    async def ask(
        self,
        cursor: Cursor,
        point: Point,
        draws: int = 1,
        *,
        roles: Sequence[str] | None = None,
        temperature: float | None = None,
    ) -> dict[str, Samples]:
        """Samples the replies of each speaker at an open point, except of roles in `seats`, which no policy plays.

        One whose prompt has outgrown its model's context is not asked: its samples are silent.

        Args:
            draws: samples a speaker.
            roles: of these speakers alone.
            temperature: instead of the run's.

        Raises:
            Unavailable: the engine failed, retries included.
            ConfigError: the first prompt of an episode does not fit.
        """
        asked = [speaker for speaker in roles or point.roles if role_of(speaker) not in self._seats]
        requests = {speaker: self._request(cursor, point, speaker, draws, temperature) for speaker in asked}
        sent = {speaker: request for speaker, request in requests.items() if request is not None}
        answers = dict(zip(sent, await self._front.ask(tuple(sent.values())) if sent else [], strict=True))
        for speaker in requests.keys() - answers.keys():
            role = role_of(speaker)
            self.budget.overlong[role] += 1
            answers[speaker] = (Sample(role, self.team.roles[role], -1, (), (), (), "context", ""),) * draws
        return {speaker: answers[speaker] for speaker in asked}

    def learning(self, speakers: Iterable[str]) -> list[str]:
        """Returns the speakers whose policy is trained. For the others one reply is enough: nobody learns from more."""
        return [speaker for speaker in speakers if self.team.learns(role_of(speaker))]

    async def run(
        self, cursor: Cursor, until: Callable[[Point], bool] | None = None, *, temperature: float | None = None
    ) -> list[Drawn]:
        """Plays on with the current team to the end, or to the first point where `until` holds.

        Args:
            temperature: instead of the run's.

        Returns:
            what it drew; the log is the cursor's.
        """
        drawn: list[Drawn] = []
        with self._watch:
            while (point := await cursor.advance()) is not None and not (until and until(point)):
                answers = await self.ask(cursor, point, self._votes, temperature=temperature)
                chosen = {speaker: majority(samples) for speaker, samples in answers.items()}
                drawn += [Drawn(point.index, *choice) for choice in chosen.items() if not choice[1].silent]
                replies = {speaker: sample.reply() for speaker, sample in chosen.items()}
                for speaker in point.roles:
                    _, episode, _, role = self.key(cursor, point, speaker)
                    if role in self._seats:
                        asked = point.asked.prompts[speaker]
                        told = self.recall.told(asked, role, cursor.task, episode) if self.recall else asked
                        replies[speaker] = Reply(role, self._seats[role](text_of(told)))
                cursor.answer(replies)
        return drawn

    async def together(self, *branches: Coroutine[Any, Any, T]) -> list[T | Unavailable]:
        """Runs branches side by side; samplers run nothing in parallel in another way.

        Returns:
            a result for each; one that met a fault is counted as dropped and gives the fault.
        """
        with self._watch:
            return await self._front.together(branches)

    def _request(
        self, cursor: Cursor, point: Point, speaker: str, draws: int, temperature: float | None
    ) -> Request | None:
        """Returns a speaker's request; None if what was said so far has made its prompt too long."""
        key = self.key(cursor, point, speaker)
        role = key[-1]
        policy = self.team.roles[role]
        engine = self._front.engine
        prompt = point.asked.prompts[speaker]
        prompt_ids = engine.render(policy, role, prompt)
        max_tokens = point.asked.max_tokens or self.sampling.max_tokens
        context = engine.context(policy)
        told = self.recall.told(prompt, role, cursor.task, key[1]) if self.recall else prompt
        if self.recall and told is not prompt:
            told_ids = engine.render(policy, role, told)
            if len(told_ids) + max_tokens <= context:
                prompt, prompt_ids = told, told_ids
            else:  # notes never make a prompt too long: it goes without
                self.budget.dropped["notes"] += 1
                self.recall.unseen(role, cursor.task, key[1])
        if len(prompt_ids) + max_tokens > context:
            if point.index:
                return None
            limit = "what play passes as max_tokens" if point.asked.max_tokens else "engine.max_tokens"
            raise ConfigError(
                f"the prompt of role '{role}' has {len(prompt_ids)} tokens and its reply may have {max_tokens}, but "
                f"policy '{policy}' has a context of {context}; shorten the prompt, lower {limit}, or give "
                f"policies.{policy}.model a longer context"
            )
        return Request(
            key=key,
            policy=policy,
            role=role,
            prompt=prompt,
            prompt_ids=prompt_ids,
            seeds=tuple(seed_of("sample", self._seed, self._step, *key, draw) for draw in range(draws)),
            temperature=self.sampling.of(policy) if temperature is None else temperature,
            top_p=self.sampling.top_p,
            max_tokens=max_tokens,
            stop=point.asked.stop,
        )

    async def perform(self, function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
        """Runs a function given to `scene.call`; the call is retried if its infrastructure is unavailable.

        Raises:
            CallError: it failed.
            Unavailable: what it needs is not there.
        """
        self.budget.calls[function.__qualname__] += 1
        for _ in range(RETRIES):
            try:
                return await self._call(function, args)
            except Unavailable as fault:
                self.budget.retried[fault.stage] += 1
        return await self._call(function, args)

    async def _call(self, function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
        try:
            async with self._slots:  # the clock starts with the function, not with its place in a queue
                return await calls.run(function, args, self.sampling.call_timeout_s)
        except calls.TimedOut:
            self.budget.call_timeouts[function.__qualname__] += 1
            raise
        except calls.Crashed:
            self.budget.call_crashes[function.__qualname__] += 1
            raise
