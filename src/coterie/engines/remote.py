"""Policies that a server with OpenAI's protocol plays. They are never trained.

Such a server takes messages and returns text without token ids. So the rest of Coterie treats a whole reply as one
token, and the id of this token is the digest of the text.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from coterie.engines.answers import Answer, Answers, Cost, Purse
from coterie.engines.remote_config import HERE, RemoteConfig
from coterie.errors import ConfigError, CoterieError, EngineError, Unavailable
from coterie.kernel.engine import Engine, EngineConfig, Request
from coterie.kernel.episode import LoggedPrompt, Sample
from coterie.kernel.safe import one_line, tell
from coterie.kernel.stopping import cut
from coterie.models.rendering import System, Thinking, as_text

LONGEST_ANSWER = 4 << 20
"""Maximum bytes of a server's answer."""
LONGEST_WAIT_S, LONG_WAIT_S = 60.0, 5.0
"""Maximum seconds before a request is made again, whatever the server asks for, and the wait that is announced."""
AGAIN = frozenset({408, 409, 425, 429, *range(500, 600)})
"""HTTP statuses of faults that pass, after which a request is made again."""
REFUSED = frozenset({"remote_400", "remote_413", "remote_422"})
"""Faults of one request, which another try does not mend: its prompt is too long, or not to the server's liking."""
DIGEST = 7
"""Number of bytes of a text's digest, which is its token id."""
UNLIMITED = 1 << 30
"""Tokens of context that are assumed here, since only the server knows the limit."""


@dataclass(frozen=True, slots=True)
class RemotePolicy:
    """A policy that a server plays.

    model: what the server calls it. answers: where they are kept; None: nowhere. counted: those that are there already
    count in the budget.
    """

    name: str
    model: str
    config: RemoteConfig
    thinking: Thinking = "keep"
    system: System = "own"
    answers: Path | None = None
    counted: bool = False
    system_text: str | None = None
    vocabulary: ClassVar[int] = 1 << 8 * DIGEST
    """Number of possible token ids: a whole reply is one token, which is its digest."""


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


class PolicyServer:
    """One policy's server, and the answers that it has given."""

    def __init__(self, policy: RemotePolicy) -> None:
        self.policy = policy
        self.config = policy.config
        self.answers = Answers(policy.answers)
        config, spent = policy.config, self.answers.cost if policy.counted else Cost()
        self.purse = Purse(config.limits, (config.prompt_usd, config.completion_usd), spent, policy.name)
        self.tried_again = Counter[str]()
        """Number of calls that were made again, by fault."""
        self._http: Any = None
        self._client: Any = None
        self._key = ""
        self._asking: dict[str, asyncio.Task[Answer]] = {}
        self._slots = asyncio.Semaphore(config.concurrency)
        self._ended: CoterieError | None = None
        self._told_until = 0.0

    def start(self) -> None:
        """Makes the HTTP client; nothing is asked yet.

        Raises:
            ConfigError: the key is not there, or the library that asks.
        """
        if self._client is not None:
            return
        config, where = self.config, f"policies.{self.policy.name}"
        try:
            self._http = importlib.import_module("httpx2")
        except ImportError as error:
            raise ConfigError(
                f"{where}: kind = 'remote' needs HTTPX2; install it: pip install 'coterie[remote]'"
            ) from error
        self._key = os.environ.get(config.key_variable, "").strip()
        if config.key_variable and not self._key:
            raise ConfigError(
                f"{where}.remote.key_variable = '{config.key_variable}': this variable of the environment is not set; "
                f"give it the server's key: export {config.key_variable}=…"
            )
        self._client = self._http.AsyncClient(
            timeout=config.timeout_s,
            follow_redirects=False,  # a key is for one server
            trust_env=urlsplit(config.url).hostname not in HERE,  # a proxy does not know this machine
            limits=self._http.Limits(max_connections=config.concurrency),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
        )

    async def close(self) -> None:
        """Closes the connections to the server."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def body(self, request: Request, seed: int) -> dict[str, Any]:
        """Returns the body of a request to the server."""
        own: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": request.temperature}
        own |= {"top_p": request.top_p} if request.top_p < 1 else {}
        own |= {"seed": seed % 2**31} if request.temperature else {}
        own |= {"stop": list(request.stop)} if request.stop else {}
        taken = {name: value for name, value in own.items() if name not in self.config.omit}
        messages = as_text(
            request.prompt, request.role, self.policy.thinking, self.policy.system, self.policy.system_text
        )
        return {"model": self.policy.model, "messages": messages, **taken, **self.config.extra}

    def known(self, request: Request, seed: int) -> Answer | None:
        """Returns the answer that the server has given to a request, if it has."""
        return self.answers[_digest(self.body(request, seed), seed if request.temperature else 0)]

    async def answer(self, request: Request, seed: int) -> Answer:
        """Returns the server's answer to a request, new or kept: equal requests are asked once.

        Raises:
            Unavailable: there is no answer, retries included.
            Spent: a budget does not allow to ask.
            EngineError: there will never be one.
            CheckpointError: the answer cannot be kept.
        """
        body = self.body(request, seed)
        name = _digest(body, seed if request.temperature else 0)
        if (known := self.answers[name]) is not None:
            return known
        if name not in self._asking:
            task = asyncio.create_task(self._asked(name, json.dumps(body).encode(), request.max_tokens))
            self._asking[name] = task
            task.add_done_callback(lambda task: task.cancelled() or task.exception())  # who asked may have gone
            task.add_done_callback(lambda _: self._asking.pop(name))
        return await asyncio.shield(self._asking[name])

    async def _asked(self, name: str, content: bytes, max_tokens: int) -> Answer:
        """Calls the server until one call is answered."""
        worst = Cost(1, len(content), max_tokens)  # a token is a byte at least
        for left in reversed(range(self.config.retries + 1)):
            async with self._slots:
                if self._ended is not None:
                    raise self._ended
                try:
                    async with self.purse.holding(worst) as costs:
                        answer, wait_s = await self._called(name, content, worst)
                        costs.append(answer.cost)
                        self.answers.add(answer)
                except CoterieError as error:  # so it is for those who wait, too
                    self._ended = error
                    raise
            if not answer.fault:
                return answer
            if answer.fault in REFUSED or not left:
                raise Unavailable(answer.fault, f"policies.{self.policy.name}: {answer.text}")
            self.tried_again[answer.fault] += 1
            pause_s = 2.0 ** (self.config.retries - left) * random.uniform(0.25, 0.5)
            pause_s = min(LONGEST_WAIT_S, max(wait_s, pause_s))
            self._tell(pause_s, answer)
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns")

    def _tell(self, pause_s: float, answer: Answer) -> None:
        """Says that nothing will happen for a while, once for all requests that wait then."""
        now = time.monotonic()
        if pause_s >= LONG_WAIT_S and now >= self._told_until:
            self._told_until = now + pause_s
            tell(
                f"policies.{self.policy.name}: {self.config.url} says {answer.fault.removeprefix('remote_')}; "
                f"asking again in {pause_s:.0f} s"
            )

    async def _called(self, name: str, content: bytes, worst: Cost) -> tuple[Answer, float]:
        """Returns the result of one call, and for how many seconds the server asks to be left alone.

        A call that has no end may have been paid for all the same.

        Raises:
            EngineError: the server wants another key, address or model.
        """
        http, told = self._http, b""
        try:
            async with (
                asyncio.timeout(self.config.timeout_s),
                self._client.stream(
                    "POST",
                    f"{self.config.url}/chat/completions",
                    content=content,
                    headers={"Content-Type": "application/json"},
                ) as response,
            ):
                async for part in response.aiter_bytes():
                    told += part
                    if len(told) > LONGEST_ANSWER:
                        return Answer(name, worst, f"more than {LONGEST_ANSWER} bytes", fault="remote_size"), 0.0
        except (TimeoutError, http.TimeoutException):
            return Answer(name, worst, f"no answer in {self.config.timeout_s:g} s", fault="remote_timeout"), 0.0
        except http.ConnectError as error:
            return Answer(name, Cost(1), self._said(str(error)), fault="remote_connection"), 0.0
        except (http.HTTPError, http.StreamError) as error:
            return Answer(name, worst, self._said(str(error)), fault="remote_connection"), 0.0
        status, said = response.status_code, self._said(told.decode(errors="replace"))
        if status == 200:
            return self._read(name, told, worst), 0.0
        if status in AGAIN or f"remote_{status}" in REFUSED:
            return Answer(name, Cost(1), said, fault=f"remote_{status}"), _seconds(response.headers.get("retry-after"))
        raise EngineError(
            f"policies.{self.policy.name}: {self.config.url} answers {status} {said}; look at its remote.url, "
            f"remote.key_variable and model = '{self.policy.model}'"
        )

    def _read(self, name: str, told: bytes, worst: Cost) -> Answer:
        """Reads a body as a chat completion; one that is none is a fault."""
        try:
            completion = json.loads(told)
            choice, usage = completion["choices"][0], completion.get("usage")
            text, finish = choice["message"].get("content") or "", choice.get("finish_reason")
            cost = Cost(1, **_Usage.model_validate(usage).model_dump()) if usage else worst
            text = text.encode(errors="replace").decode()  # half a surrogate is no text
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            return Answer(name, worst, f"no chat completion: {type(error).__name__}", fault="remote_answer")
        return Answer(name, cost, text, "length" if finish == "length" else "stop")

    def _said(self, text: str) -> str:
        """Returns a server's words as a part of one line, without the key, which they may contain."""
        return one_line(text.replace(self._key, "…") if self._key else text)[:200]


class RemoteEngine(Engine):
    """The engine of policies that servers play, a server for each."""

    def __init__(self, policies: Mapping[str, RemotePolicy], config: EngineConfig | None = None) -> None:
        super().__init__(policies, config)
        self.servers = {name: PolicyServer(policy) for name, policy in policies.items()}

    @property
    def tried_again(self) -> Counter[str]:
        """Number of calls that were made again, by fault."""
        return sum((server.tried_again for server in self.servers.values()), Counter[str]())

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """Returns a prompt's digest, as one token."""
        remote = self.policies[policy]
        return (_token(json.dumps(as_text(prompt, role, remote.thinking, remote.system, remote.system_text))),)

    def context(self, policy: str) -> int:
        """Returns a context without limit, in effect: the server knows its own, and refuses what is too long."""
        return UNLIMITED

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """Returns the numbers of prompt tokens and of reply tokens as the server counted them."""
        server = self.servers[request.policy]
        known = [server.known(request, sample.seed) for sample in samples]
        costs = [answer.cost for answer in known if answer is not None]
        return sum(cost.prompt_tokens for cost in costs), sum(cost.completion_tokens for cost in costs)

    async def start(self) -> None:
        """Makes the HTTP clients of all servers."""
        for server in self.servers.values():
            server.start()

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...] | Unavailable]:
        """Asks for every sample by a request of its own, side by side; what was paid for is waited for."""
        given = await asyncio.gather(*map(self._samples, requests), return_exceptions=True)
        answers = [samples for samples in given if isinstance(samples, tuple | Unavailable)]
        for error in given:
            if isinstance(error, BaseException) and not isinstance(error, Unavailable):
                raise error
        return answers

    async def close(self) -> None:
        """Closes the connections to all servers."""
        for server in self.servers.values():
            await server.close()

    async def _samples(self, request: Request) -> tuple[Sample, ...]:
        server = self.servers[request.policy]
        answers = await asyncio.gather(
            *(server.answer(request, seed) for seed in request.seeds), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return tuple(self._sample(request, seed, answer) for seed, answer in zip(request.seeds, answers, strict=True)
                     if isinstance(answer, Answer))  # fmt: skip

    def _sample(self, request: Request, seed: int, answer: Answer) -> Sample:
        """Returns a reply as one token, up to the first stop string, for servers that go on."""
        text, stop = cut(answer.text, request.stop)
        return Sample(
            role=request.role,
            policy=request.policy,
            version=self.versions[request.policy],
            prompt_ids=request.prompt_ids,
            completion_ids=(_token(answer.text),),
            logprobs=(0.0,),
            finish="string" if stop else answer.finish,
            text=text,
            seed=seed,
            temperature=request.temperature,
        )


def _digest(body: Mapping[str, Any], seed: int) -> str:
    return hashlib.sha256(json.dumps([body, seed], sort_keys=True).encode()).hexdigest()


def _token(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:DIGEST])


def _seconds(header: str | None) -> float:
    """Returns the seconds that Retry-After says; 0 where it says a date, or nothing."""
    return float(header) if header and header.isascii() and header.isdigit() else 0.0
