"""Running agents. Each run of an agent is a separate process. Its requests wait here until the team has answered.

`play` calls `turn` with an agent, its task and all answers so far, and gets the agent's next request. The result
depends only on the arguments, as for every `scene.call`. If an agent process waits at this point, it continues.
Otherwise, as for a branch, a new process is run from the beginning with the same answers. Every one of its requests
must then equal the earlier one.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import itertools
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie import ram
from coterie.errors import CallError, Unavailable
from coterie.gateway import host
from coterie.kernel.calls import InThread, Place, WorkerPool
from coterie.kernel.once import Once
from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON
from coterie.protocol.tools import finite

TICK_S = 0.01
CALM = 3
"""Number of ticks in a row, without a new question and with all threads asleep, after which an agent waits."""
RETRY_S = 10.0
"""Seconds that a client may take to come back for an answer that it did not wait for: clients wait up to 8 s."""
MOST_PARKED = 256
"""Maximum number of agents that wait at once for answers; others are run again when they are answered."""
SPARE = 0.2
"""Share of the machine's memory that stays free: fewer agents wait at once where they would take it."""
IDLE_S = 600.0
"""Seconds that an agent waits for answers until it is ended."""
ANY_S = 86_400.0
"""Seconds that a whole run of an agent may take; what bounds it is its patience between two answers."""


class Strayed(Exception):
    """Error of an agent that was run again and asked something else."""


class AgentMisused(Exception):
    """Error of an agent that gave what cannot be used."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent to run. place: its module, the module's file or nothing, and its function. ahead: imported only once.

    force: what is done where a client demands calls or a form: refuse, or ask for it in words.
    """

    place: tuple[str, str, str]
    roles: tuple[str, ...]
    patience_s: float
    ahead: bool = True
    force: str = "refuse"


@dataclass(eq=False, slots=True)
class Post:
    """One question of an agent.

    waits: how many requests wait for its answer: 0 where its client has left. had: the answer was delivered.
    """

    role: str
    digest: str
    ask: JSON
    answer: asyncio.Future[JSON]
    waits: int = 0
    had: bool = False
    left_at: float = 0.0

    @property
    def lost(self) -> bool:
        """True if nobody waits for the answer, and nobody had it."""
        return not self.waits and not self.had


@dataclass(eq=False)
class AgentRun:
    """One run of an agent, at work or waiting.

    said: what it is answered: role, digest and answer of every question, in order. asked: what the team is to
    answer next. rewards: role, value and the answer's id, or "" for the latest.
    """

    agent: Agent
    task: JSON
    seed: int
    said: list[list[JSON]]
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    posts: list[Post] = field(default_factory=list[Post])
    asked: list[Post] = field(default_factory=list[Post])
    rewards: list[list[JSON]] = field(default_factory=list[list[JSON]])
    pid: int = 0
    work: asyncio.Task[Any] | None = None
    moved_at: float = field(default_factory=time.monotonic)
    parked_at: float = 0.0
    _unused: list[list[JSON]] = field(default_factory=list[list[JSON]])

    def __post_init__(self) -> None:
        self._unused = list(self.said)

    def post(self, role: str, ask: JSON, again: bool) -> Post:
        """Returns a question as a post; the same one if a client asks again for an answer that it did not get.

        Args:
            again: the client says so. One that does not is taken at its word, unless it had left before the answer.
        """
        digest = digest_of(ask)
        same = [post for post in self.posts if (post.role, post.digest) == (role, digest)]
        for post in reversed(same):
            if post.lost:
                return post
        if same and again:
            return same[-1]
        self.moved_at = time.monotonic()
        post = Post(role, digest, ask, asyncio.get_running_loop().create_future())
        self.posts.append(post)
        for item in self._unused:
            if item[:2] == [role, digest]:
                self._unused.remove(item)
                post.answer.set_result(item[2])
                break
        return post

    @property
    def open(self) -> list[Post]:
        """Questions that have no answer yet, in an order that does not depend on which came first."""
        waiting = [post for post in self.posts if not post.answer.done()]
        return sorted(waiting, key=lambda post: (self.agent.roles.index(post.role), post.digest))

    @property
    def strayed(self) -> str:
        """Message about an agent that was run again and did not ask what it had asked; else ""."""
        if not self._unused:
            return ""
        role = self._unused[0][0]
        number = 1 + sum(item[0] == role for item in self.said) - sum(item[0] == role for item in self._unused)
        return (
            f"the agent was run again with the same answers, and question {number} of role '{role}' was another one: "
            "it depends on more than its task, its answers and its seed (a clock, a uuid, live tools). Its runs cannot "
            "be branched: take a method that compares whole episodes, such as algorithm.name = 'drmas'"
        )

    def waits_at(self, agent: Agent, task: JSON, seed: int, said: Sequence[list[JSON]]) -> bool:
        """Returns True if `said` begins with all that this run was answered, and then answers what it waits for."""
        asked = [[post.role, post.digest] for post in self.asked]
        return (
            (self.agent, self.task, self.seed) == (agent, task, seed)
            and len(said) == len(self.said) + len(asked)
            and said[: len(self.said)] == self.said
            and [item[:2] for item in said[len(self.said) :]] == asked
        )

    def goes_on(self, said: list[list[JSON]]) -> None:
        """Gives the agent the answers that it waits for."""
        for post, item in zip(self.asked, said[len(self.said) :], strict=True):
            post.answer.set_result(item[2])
        self.said, self.asked = said, []
        self.moved_at = time.monotonic()


class Agents:
    """The agents of this process, and the endpoint that they ask: both live on a loop in a thread of their own."""

    def __init__(self) -> None:
        from coterie.gateway.door import Door  # needs an extra

        self.loop = asyncio.new_event_loop()
        self.runs: dict[str, AgentRun] = {}
        self._parked: list[AgentRun] = []
        self._pools: dict[Agent, WorkerPool] = {}
        self._numbers = itertools.count()
        self.door = Door(self.runs)
        threading.Thread(target=self._serve, daemon=True, name="gateway").start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.door.serve())

    def close(self) -> None:
        """Ends every agent."""
        for pool in self._pools.values():
            pool.close()

    async def turn(self, agent: Agent, task: JSON, seed: int, said: list[list[JSON]], told: int) -> JSON:
        """Returns an agent's next questions, or its result, as the module's `turn` does."""
        run = self._waiting(agent, task, seed, said) or self._started(agent, task, seed, said)
        try:
            await self._calm(run)
            ended = await self._ended(run) if run.work and run.work.done() else None
            if run.strayed:
                raise Strayed(run.strayed)
        except BaseException:
            self._close(run)
            raise
        news = {"rewards": run.rewards[told:]}
        if ended is not None:
            self._close(run)
            return {**news, **ended}
        run.asked = run.open
        run.parked_at = time.monotonic()
        self._parked.append(run)
        return {**news, "asks": [[post.role, post.digest, post.ask] for post in run.asked]}

    def _waiting(self, agent: Agent, task: JSON, seed: int, said: list[list[JSON]]) -> AgentRun | None:
        """Returns a run that waits for these answers, which it now has; None if there is none."""
        for run in self._too_many():
            self._parked.remove(run)
            self._close(run)
        for run in self._parked:
            if run.waits_at(agent, task, seed, said):
                self._parked.remove(run)
                run.goes_on(said)
                return run
        return None

    def _too_many(self) -> list[AgentRun]:
        """Returns the runs to end: those nobody asked after, and the latest of too many, which have longest to wait."""
        now = time.monotonic()
        idle = [run for run in self._parked if now - run.parked_at > IDLE_S]
        others = self._parked[len(idle) :]
        short = ram.free() < SPARE * ram.total()
        return idle + others[min(MOST_PARKED, max(0, len(others) - short)) :]

    def _started(self, agent: Agent, task: JSON, seed: int, said: list[list[JSON]]) -> AgentRun:
        """Starts an agent from its beginning; it is given what it was answered as it asks."""
        if agent not in self._pools:
            ahead = {host.AGENT: json.dumps(agent.place)} if agent.ahead else {}
            self._pools[agent] = WorkerPool(most=0, env={**os.environ, **host.QUIET, **ahead})
        run = AgentRun(agent, task, seed, said)
        self.runs[run.token] = run
        url = f"{self.door.url}/e/{run.token}"
        args = [list(agent.place), task, seed, list(agent.roles), url, run.key]
        place = Place(host.__name__, host.__file__, host.run.__name__)
        run.work = self.loop.create_task(
            self._pools[agent].run(place, tuple(args), ANY_S, started=lambda pid: setattr(run, "pid", pid))
        )
        return run

    async def _calm(self, run: AgentRun) -> None:
        """Waits until an agent has ended, or waits for answers itself: all that it asks at once has come.

        Raises:
            Unavailable: it does neither, or did not wait for an answer.
        """
        calm, seen = 0, 0
        assert run.work is not None
        while calm < CALM and not run.work.done():
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            lost = [post for post in run.posts if post.lost]
            waits = run.open and not lost and run.pid and asleep(run.pid)
            answered = all(post.had for post in run.posts if post.answer.done())
            calm = calm + 1 if waits and answered and seen == len(run.posts) else 0
            seen = len(run.posts)
            if lost and now - min(post.left_at for post in lost) > RETRY_S:
                raise Unavailable("client_lost", f"a client of role '{lost[0].role}' did not wait for its answer")
            if now - run.moved_at > run.agent.patience_s:
                raise Unavailable(
                    "agent_hang",
                    f"the agent asked nothing and did not end in {run.agent.patience_s:g} s; environment.patience_s "
                    "says how long it may take",
                )

    async def _ended(self, run: AgentRun) -> dict[str, JSON]:
        """Returns the result of an agent that has ended.

        Raises:
            Unavailable: it failed, or left an answer that it had asked for.
        """
        assert run.work is not None
        try:
            result = await run.work
        except CallError as error:
            stage = "agent_crash" if error.kind == "crash" else "agent_error"
            raise Unavailable(stage, f"the agent failed: {one_line(error.message)}") from error
        if not finite(result):
            raise AgentMisused(f"{run.agent.place[2]} returned {result!r:.80}: numbers that JSON can write, no others")
        if any(not post.had for post in run.posts):
            raise Unavailable("client_lost", "the agent ended before it had all of its answers")
        return {"result": result}

    def _close(self, run: AgentRun) -> None:
        """Ends an agent; whoever still asks is refused."""
        self.runs.pop(run.token, None)
        if run.work and not run.work.done():
            run.work.cancel()
        for post in run.posts:
            post.answer.cancel()


def digest_of(ask: JSON) -> str:
    """Returns a digest that names a question: the same in every process."""
    written = json.dumps(ask, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def asleep(pid: int) -> bool:
    """Returns True if every thread of a process and of its children sleeps, or if the system does not say."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # it has just ended
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] in "RD":
                    return False
                if not all(asleep(int(child)) for child in (thread / "children").read_text().split()):
                    return False
    return True


@Once
def agents() -> Agents:
    """Returns the one `Agents` of this process, made when it is first asked for."""
    made = Agents()
    atexit.register(made.close)
    os.register_at_fork(after_in_child=agents.forget)
    return made


@InThread
def turn(agent: Mapping[str, Any], task: JSON, seed: int, said: list[list[JSON]], told: int) -> JSON:
    """Runs an agent until it has ended or asks again, and returns its result or its questions.

    Args:
        agent: the fields of `Agent`.
        seed: of its chance.
        said: role, digest and answer of all that it asked so far.
        told: how many of its rewards are known.

    Returns:
        `rewards`, those that came since, each role, value and the id of an answer; and `asks`, each role, digest and
        question; or, where it has ended, its `result`.

    Raises:
        Unavailable: it failed, hangs, or did not wait for an answer.
        Strayed: it does not ask what it asked. Misused: it returned what is no JSON.
    """
    kind = Agent(tuple(agent["place"]), tuple(agent["roles"]), agent["patience_s"], agent["ahead"], agent["force"])
    here = agents()
    return asyncio.run_coroutine_threadsafe(here.turn(kind, task, seed, said, told), here.loop).result()
