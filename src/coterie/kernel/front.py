"""The front gathers questions to the engine into waves, and counts what they cost.

A wave leaves when every live branch waits for the engine, and is ordered by key; so what is computed together, and
with it every floating-point result, is the same in every run. Exact resume depends on it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from coterie.errors import EnvError, Unavailable
from coterie.kernel.engine import Engine, Request
from coterie.kernel.episode import Sample

T = TypeVar("T")
Samples = tuple[Sample, ...]
RETRIES = 2
"""How often a faulty wave or call is tried again before its branches are dropped."""


@dataclass(slots=True)
class Budget:
    """What a rollout cost: the counters every comparison uses."""

    prompt_tokens: int = 0
    sampled_tokens: int = 0
    engine_calls: int = 0
    engine_s: float = 0.0
    truncated: Counter[str] = field(default_factory=Counter[str])
    replies: Counter[str] = field(default_factory=Counter[str])
    overlong: Counter[str] = field(default_factory=Counter[str])
    """Questions that were not asked, by role: the prompt had outgrown the model's context."""
    dropped: Counter[str] = field(default_factory=Counter[str])
    retried: Counter[str] = field(default_factory=Counter[str])
    calls: Counter[str] = field(default_factory=Counter[str])
    call_timeouts: Counter[str] = field(default_factory=Counter[str])
    call_crashes: Counter[str] = field(default_factory=Counter[str])


class Front:
    """Gathers questions into waves. One for a rollout."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.budget = Budget()
        self._live = 1
        self._waiting: list[tuple[tuple[Request, ...], asyncio.Future[list[Samples]]]] = []
        self._wave: asyncio.Task[None] | None = None

    async def ask(self, requests: tuple[Request, ...]) -> list[Samples]:
        """The samples of one branch's requests, when their wave has been answered. Raises: Unavailable."""
        future: asyncio.Future[list[Samples]] = asyncio.get_running_loop().create_future()
        self._waiting.append((requests, future))
        self._leave_if_full()
        return await future

    async def together(self, branches: tuple[Coroutine[Any, Any, T], ...]) -> list[T | Unavailable]:
        """Runs branches side by side; one that meets a fault is counted and gives it back."""
        if not branches:
            return []
        left = len(branches)
        self._live += left - 1

        async def run(branch: Coroutine[Any, Any, T]) -> T | Unavailable:
            nonlocal left
            try:
                return await branch
            except Unavailable as fault:
                self.budget.dropped[fault.stage] += 1
                return fault
            finally:
                left -= 1
                if left:  # the last one hands its place back to the parent
                    self._live -= 1
                    self._leave_if_full()

        return await asyncio.gather(*(run(branch) for branch in branches))

    def _leave_if_full(self) -> None:
        if self._wave is None and self._waiting and len(self._waiting) == self._live:
            self._wave = asyncio.create_task(self._send())

    async def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        wave = sorted((request for requests, _ in waiting for request in requests), key=lambda request: request.key)
        try:
            _check_keys(wave)
            answers = await self._answer(wave)
        except BaseException as error:  # a bug in the engine: those who wait raise it
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        self._wave = None
        for requests, future in waiting:
            if future.done():  # a signal stops all of it, and who waited has left
                continue
            given = [answers[request.key] for request in requests]
            fault = next((answer for answer in given if isinstance(answer, Unavailable)), None)
            if fault is not None:
                future.set_exception(Unavailable(fault.stage, str(fault)))
            else:
                future.set_result([answer for answer in given if not isinstance(answer, Unavailable)])

    async def _answer(self, wave: list[Request]) -> dict[object, Samples | Unavailable]:
        answers: dict[object, Samples | Unavailable] = {}
        for policy in sorted({request.policy for request in wave}):
            mine = [request for request in wave if request.policy == policy]
            try:
                given = await self._generate(mine)
            except Unavailable as fault:
                answers.update((request.key, fault) for request in mine)
                continue
            for request, samples in zip(mine, given, strict=True):
                self._count(request, samples)
                answers[request.key] = samples
        return answers

    async def _generate(self, requests: list[Request]) -> list[Samples]:
        for _ in range(RETRIES):
            try:
                return await self._call(requests)
            except Unavailable as fault:
                self.budget.retried[fault.stage] += 1
        return await self._call(requests)

    async def _call(self, requests: list[Request]) -> list[Samples]:
        began = time.perf_counter()
        self.budget.engine_calls += 1
        try:
            return await self.engine.generate(requests)
        finally:
            self.budget.engine_s += time.perf_counter() - began

    def _count(self, request: Request, samples: Samples) -> None:
        self.budget.prompt_tokens += len(request.prompt_ids)
        self.budget.sampled_tokens += sum(len(sample.completion_ids) for sample in samples)
        self.budget.replies[request.role] += len(samples)
        self.budget.truncated[request.role] += sum(sample.finish == "length" for sample in samples)


def _check_keys(wave: list[Request]) -> None:
    for request, following in itertools.pairwise(wave):
        if request.key == following.key:
            raise EnvError(
                f"two episodes of one rollout are both called task '{request.key[0]}', episode {request.key[1]}; "
                "give every task of a split an id of its own"
            )
