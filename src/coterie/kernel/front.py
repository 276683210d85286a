"""The front is between branches and the engine. It decides when requests are sent, and counts their cost.

`waves`: requests are collected until every live branch waits for the engine, and are then sent in the order of their
keys. So batches, and with them all floating-point results, are the same in every run. Exact resume depends on this.
`eager`: each request is sent at once, for an engine that does its own batching. Batches then depend on timing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from coterie.errors import EngineError, EnvError, Unavailable
from coterie.kernel.engine import RETRIES, Engine, FrontName, Request
from coterie.kernel.episode import Sample
from coterie.kernel.safe import one_line

Key = tuple[str, int, str, str]
T = TypeVar("T")
Samples = tuple[Sample, ...]
ROUNDING = 1e-3
"""Amount by which an engine's arithmetic may put a log-probability above 0."""
LEAST = -700.0
"""Smallest log-probability of a sampled token. Below it a probability is 0 in every float type. Some engines write
-9999 for one that they do not know."""


@dataclass(slots=True)
class Budget:
    """The cost of a rollout: the counters that every comparison uses."""

    prompt_tokens: int = 0
    sampled_tokens: int = 0
    engine_calls: int = 0
    engine_s: float = 0.0
    truncated: Counter[str] = field(default_factory=Counter[str])
    cut_tokens: Counter[str] = field(default_factory=Counter[str])
    """Tokens of the truncated replies."""
    replies: Counter[str] = field(default_factory=Counter[str])
    overlong: Counter[str] = field(default_factory=Counter[str])
    """Questions that were not asked, by role: the prompt had outgrown the model's context."""
    dropped: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    """The messages of the faults that caused dropped branches, and how often each came."""
    retried: Counter[str] = field(default_factory=Counter[str])
    calls: Counter[str] = field(default_factory=Counter[str])
    call_timeouts: Counter[str] = field(default_factory=Counter[str])
    call_crashes: Counter[str] = field(default_factory=Counter[str])

    def often(self) -> str:
        """Returns the commonest fault, for the end of a message, or ""."""
        return "".join(f"; most often: {said:.300}" for said, _ in self.faults.most_common(1))


class Front:
    """The sender of a rollout's requests to the engine. One per rollout; subclasses decide when to send."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.budget = Budget()
        self._tried_again = Counter(engine.tried_again)
        self._asked: set[Key] = set()
        self._busy = 0
        self._since = 0.0

    async def ask(self, requests: tuple[Request, ...]) -> list[Samples]:
        """Returns the samples of one branch's requests, in their order.

        Raises:
            Unavailable: one of them has none.
        """
        keys = [request.key for request in requests]
        for key in keys:
            if key in self._asked:
                raise EnvError(
                    f"two episodes of one rollout are both called task '{key[0]}', episode {key[1]}; "
                    "give every task of a split an id of its own"
                )
            self._asked.add(key)
        try:
            answers = await self._answers(requests)
        finally:
            self._asked.difference_update(keys)
        for answer in answers:
            if isinstance(answer, Unavailable):
                raise Unavailable(answer.stage, str(answer)) from answer
        return [answer for answer in answers if not isinstance(answer, Unavailable)]

    async def together(self, branches: tuple[Coroutine[Any, Any, T], ...]) -> list[T | Unavailable]:
        """Runs branches side by side; one that meets a fault is counted, and its result is the fault."""
        if not branches:
            return []
        left = len(branches)
        self._began(left - 1)

        async def run(branch: Coroutine[Any, Any, T]) -> T | Unavailable:
            nonlocal left
            try:
                return await branch
            except Unavailable as fault:
                self.budget.dropped[fault.stage] += 1
                self.budget.faults[one_line(str(fault))] += 1
                return fault
            finally:
                left -= 1
                if left:  # the last one hands its place back to the parent
                    self._ended()

        if left == 1:
            return [await run(*branches)]
        return await asyncio.gather(*map(run, branches))

    def _began(self, branches: int) -> None:
        """Takes note that so many more branches run."""

    def _ended(self) -> None:
        """Takes note that a branch has ended."""

    async def _answers(self, requests: tuple[Request, ...]) -> list[Samples | Unavailable]:
        raise NotImplementedError

    async def _answered(self, requests: list[Request]) -> dict[Key, Samples | Unavailable]:
        """Returns the engine's answers by key: policies are asked side by side, in order of name."""
        policies = sorted({request.policy for request in requests})
        wanted = [[request for request in requests if request.policy == policy] for policy in policies]
        answers: dict[Key, Samples | Unavailable] = {}
        for mine, given in zip(wanted, await asyncio.gather(*map(self._generated, wanted)), strict=True):
            if isinstance(given, Unavailable):
                answers.update((request.key, given) for request in mine)
                continue
            for request, samples in zip(mine, given, strict=True):
                answers[request.key] = samples
                if not isinstance(samples, Unavailable):
                    self._count(request, samples)
        return answers

    async def _generated(self, requests: list[Request]) -> Sequence[Samples | Unavailable] | Unavailable:
        """Returns the engine's answers, asked again after a fault; the fault, if it remains."""
        for again in reversed(range(RETRIES + 1)):
            try:
                self.budget.engine_calls += 1
                with self._timed():
                    given = await self.engine.generate(requests)
                self._count_tries()
                check_answers(self.engine, requests, given)
            except Unavailable as fault:
                if not again:
                    return fault
                self.budget.retried[fault.stage] += 1
                await self._restarted()
            else:
                return given
        raise AssertionError("the last try returns")

    async def _restarted(self) -> None:
        """Starts the engine again, if it was gone; if it does not start, the next try says so."""
        try:
            await self.engine.start()
        except Unavailable as fault:
            self.budget.retried[fault.stage] += 1

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Measures the time in which the engine is busy. Calls that overlap in time are counted once."""
        if not self._busy:
            self._since = time.perf_counter()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self.budget.engine_s += time.perf_counter() - self._since

    def _count_tries(self) -> None:
        """Counts the engine's own retries since this was last called."""
        count = self.engine.tried_again
        self.budget.retried.update(count - self._tried_again)
        self._tried_again = count

    def _count(self, request: Request, samples: Samples) -> None:
        prompt, sampled = self.engine.tokens(request, samples)
        self.budget.prompt_tokens += prompt
        self.budget.sampled_tokens += sampled
        self.budget.replies[request.role] += len(samples)
        cut = [len(sample.completion_ids) for sample in samples if sample.finish == "length"]
        self.budget.truncated[request.role] += len(cut)
        self.budget.cut_tokens[request.role] += sum(cut)


class Waves(Front):
    """The front that collects requests until every live branch waits, and sends them ordered by key."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._live = 1
        self._waiting: list[tuple[tuple[Request, ...], asyncio.Future[list[Samples | Unavailable]]]] = []
        self._wave: asyncio.Task[None] | None = None

    def _began(self, branches: int) -> None:
        self._live += branches

    def _ended(self) -> None:
        self._live -= 1
        self._leave_if_full()

    async def _answers(self, requests: tuple[Request, ...]) -> list[Samples | Unavailable]:
        future: asyncio.Future[list[Samples | Unavailable]] = asyncio.get_running_loop().create_future()
        self._waiting.append((requests, future))
        self._leave_if_full()
        return await future

    def _leave_if_full(self) -> None:
        if self._wave is None and self._waiting and len(self._waiting) == self._live:
            self._wave = asyncio.create_task(self._send())

    async def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        wave = sorted((request for requests, _ in waiting for request in requests), key=lambda request: request.key)
        try:
            answers = await self._answered(wave)
        except BaseException as error:  # a bug in the engine is raised in every coroutine that waits for it
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        self._wave = None
        for requests, future in waiting:
            if not future.done():  # a signal stops everything, and the waiting coroutines have left
                future.set_result([answers[request.key] for request in requests])


class Eager(Front):
    """The front that sends each request at once."""

    async def _answers(self, requests: tuple[Request, ...]) -> list[Samples | Unavailable]:
        answers = await self._answered(list(requests))
        return [answers[request.key] for request in requests]


FRONTS: dict[FrontName, type[Front]] = {"waves": Waves, "eager": Eager}


def check_answers(engine: Engine, requests: list[Request], given: Sequence[Samples | Unavailable]) -> None:
    """Raises EngineError: the engine's answers do not fit the requests."""
    name = engine.title
    if len(given) != len(requests):
        raise EngineError(f"engine {name} answered {len(given)} of {len(requests)} requests; return samples for each")
    for request, samples in zip(requests, given, strict=True):
        if isinstance(samples, Unavailable):
            continue
        if len(samples) != len(request.seeds):
            raise EngineError(
                f"engine {name} answered a request for {len(request.seeds)} samples with {len(samples)}; return one "
                "for each of its seeds"
            )
        vocabulary = getattr(engine.policies.get(request.policy), "vocabulary", 1 << 31)
        for sample, seed in zip(samples, request.seeds, strict=True):
            for mistake in _mistakes(sample, request, seed, vocabulary):
                raise EngineError(f"engine {name} gave {mistake}")


def _mistakes(sample: Sample, request: Request, seed: int, vocabulary: int) -> Iterator[str]:
    """Yields the mistakes in a sample, each with how it is mended. vocabulary: tokens are below it."""
    if not _is_plain(sample):
        yield (
            f"{sample!r:.80}; give a coterie.Sample whose ids are a tuple of int, whose log-probabilities are a tuple "
            "of float and whose text is a string"
        )
    if (sample.role, sample.policy, sample.prompt_ids) != (request.role, request.policy, request.prompt_ids):
        yield "a sample of another role, policy or prompt than was asked for"
    if (sample.seed, sample.temperature) != (seed, request.temperature):
        yield (
            f"a sample of seed {sample.seed} and temperature {sample.temperature}; asked for were {seed} and "
            f"{request.temperature}"
        )
    if sample.finish not in ("stop", "length", "string"):
        yield f"finish {sample.finish!r:.80}; say 'stop', 'length' or 'string'"
    if not sample.completion_ids:
        yield "a sample without tokens; its stop token is one"
    elif not 0 <= min(sample.completion_ids) <= max(sample.completion_ids) < vocabulary:
        yield f"tokens outside the vocabulary, which are 0 to {vocabulary - 1}"
    if len(sample.completion_ids) > request.max_tokens:
        yield (
            f"{len(sample.completion_ids)} tokens where {request.max_tokens} were allowed; cut a reply there, with "
            "finish 'length'"
        )
    if not all(LEAST <= value <= ROUNDING for value in sample.logprobs):
        yield f"a log-probability that is above 0, or below {LEAST:g}, which no engine draws, or no number"


def _is_plain(sample: object) -> bool:
    return (
        isinstance(sample, Sample)
        and isinstance(sample.text, str)
        and isinstance(sample.completion_ids, tuple)
        and isinstance(sample.logprobs, tuple)
        and set(map(type, sample.completion_ids)) <= {int}
        and set(map(type, sample.logprobs)) <= {float}
    )
