"""A store of server answers by request: a resumed run does not send and pay for the same request twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from coterie.errors import CheckpointError, CoterieError


class Spent(CoterieError, RuntimeError):
    """A budget is spent: nothing more is asked."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of requests, as the server counts."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, or a call that brought none. request: what was asked, as a digest. fault: why there is no reply."""

    request: str
    cost: Cost
    text: str = ""
    finish: Literal["stop", "length", "string"] = "stop"
    fault: str = ""


LINE: TypeAdapter[Answer] = TypeAdapter(Answer)


class Answers:
    """The answers of one policy's server, in a file that only grows.

    Args:
        file: RUN/answers/POLICY.jsonl; None: they are kept as long as the process lives. Its folder is made with the
            first answer, the run's is not.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.cost = Cost()
        self._by_request: dict[str, Answer] = {}
        if file is not None and file.exists():
            self._read(file)

    def __getitem__(self, request: str) -> Answer | None:
        return self._by_request.get(request)

    def add(self, answer: Answer) -> None:
        """Keeps an answer before anybody sees it.

        Raises:
            CheckpointError: it cannot be written.
        """
        self._count(answer)
        if self.file is None:
            return
        try:
            self.file.parent.mkdir(exist_ok=True)
            with self.file.open("ab", buffering=0) as file:
                file.write(LINE.dump_json(answer) + b"\n")
        except OSError as error:
            raise CheckpointError(
                f"{self.file} cannot be written: {error.strerror}; what a server answers is kept there"
            ) from error

    def _count(self, answer: Answer) -> None:
        self.cost += answer.cost
        if not answer.fault:
            self._by_request[answer.request] = answer

    def _read(self, file: Path) -> None:
        """Reads the file; a half-written last line is taken away. Raises CheckpointError: another line is damaged."""
        with file.open("rb+") as opened:
            content = opened.read()
            *lines, rest = content.split(b"\n")
            if rest:
                opened.truncate(len(content) - len(rest))
        for number, line in enumerate(lines, 1):
            try:
                self._count(LINE.validate_json(line))
            except ValueError as error:
                raise CheckpointError(
                    f"{file}:{number} is damaged: it is no answer; remove the line, or put the file back"
                ) from error


class Purse:
    """The budget of a policy. A request is let through if all that is under way could be paid at its worst.

    Args:
        limits: calls, tokens and dollars, where there is a limit.
        prices: dollars of a million tokens, of prompts and of completions.
        spent: so far.
        name: the policy's, for messages.
    """

    def __init__(self, limits: Mapping[str, float], prices: tuple[float, float], spent: Cost, name: str) -> None:
        self.limits = limits
        self.prices = prices
        self.spent = spent
        self.name = name
        self._held = Cost()
        self._changed = asyncio.Condition()

    def usd(self, cost: Cost) -> float:
        """Returns a cost in dollars."""
        return (cost.prompt_tokens * self.prices[0] + cost.completion_tokens * self.prices[1]) / 1e6

    @contextlib.asynccontextmanager
    async def holding(self, worst: Cost) -> AsyncIterator[list[Cost]]:
        """Holds back the worst cost of a request, until its true cost is known.

        Yields:
            a list to put the true cost into.

        Raises:
            Spent: not even the worst cost is left, with nothing under way.
        """
        async with self._changed:
            while reached := self._reached(self.spent + self._held + worst):
                if self._held == Cost():
                    raise Spent(
                        f"policies.{self.name}: its budget is spent: {self.spent.calls} calls, "
                        f"{self.spent.prompt_tokens} + {self.spent.completion_tokens} tokens, "
                        f"{self.usd(self.spent):.4f} USD, and one request more could pass "
                        f"policies.{self.name}.remote.budget_{reached} = {self.limits[reached]:g}; raise it and go on"
                    )
                await self._changed.wait()
            self._held += worst
        costs: list[Cost] = []
        try:
            yield costs
        finally:
            self._held += Cost(-worst.calls, -worst.prompt_tokens, -worst.completion_tokens)
            self.spent = sum(costs, self.spent)
            async with self._changed:
                self._changed.notify_all()

    def _reached(self, cost: Cost) -> str | None:
        """Returns the name of the limit that a cost would pass; None if it would pass none."""
        tokens = cost.prompt_tokens + cost.completion_tokens
        would = {"calls": cost.calls, "tokens": tokens, "usd": self.usd(cost)}
        return next((name for name, limit in self.limits.items() if would[name] > limit), None)
