"""The engines of a cluster as one engine: a request goes to the least busy replica in the pool of its policy."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coterie.errors import EngineError, Unavailable
from coterie.kernel.engine import Engine, EngineConfig, Request
from coterie.kernel.episode import Sample
from coterie.run.ledger import LedgerLine, entries
from coterie.run.ranks import packed

if TYPE_CHECKING:
    from coterie.learning.policy import Policy

BACK_S = 300.0
"""Seconds within which an engine that has ended must come back."""
DOWN_S = 5.0
"""Seconds for which an engine that did not answer is not asked, where there are others."""
LOOK_S = 0.5
"""Seconds between two checks whether engines are up."""
DEATHS, WITHIN_S = 3, 600.0
"""Number of deaths of engines that end a run, and the seconds within which they must come."""


class Replicas(Engine):
    """An engine that asks the engines of a cluster, and notes what they have answered."""

    def __init__(
        self, policies: Mapping[str, Policy], config: EngineConfig, pools: Mapping[str, Sequence[Any]]
    ) -> None:
        """Takes the policies and, in `pools`, for each policy handles of the replicas that answer for it."""
        super().__init__(policies, config)
        self._pools = {name: tuple(pools[name]) for name in policies}
        self._load: Counter[Any] = Counter()
        self._down: dict[Any, float] = {}
        self._answered: dict[str, LedgerLine] = {}

    @property
    def answered(self) -> list[LedgerLine]:
        """Ledger entries of all samples that were answered; one that was asked for again counts as it came last."""
        return list(self._answered.values())

    async def start(self) -> None:
        """Waits until every pool has an engine that can answer. Raises Unavailable if one has none for minutes."""
        end = time.monotonic() + BACK_S
        for name, replicas in self._pools.items():
            while not any(await asyncio.gather(*(self._is_up(replica, name) for replica in replicas))):
                if time.monotonic() > end:
                    raise Unavailable("engine", f"no engine of policy '{name}' came back within {BACK_S:g} s")
                await asyncio.sleep(LOOK_S)

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...] | Unavailable]:
        """Splits a wave of requests among the replicas of its policy's pool, and returns all answers."""
        replicas = self._pools[requests[0].policy]
        shares: dict[Any, list[int]] = {}
        for at, request in enumerate(requests):
            mine = min(self._up(replicas), key=lambda replica: self._load[replica])
            shares.setdefault(mine, []).append(at)
            self._load[mine] += len(request.seeds)
        answers: dict[int, tuple[Sample, ...] | Unavailable] = {}

        async def ask(replica: Any, places: list[int]) -> None:
            try:
                who, given = await self._asked(replica, replicas, [requests[at] for at in places])
            finally:
                self._load[replica] -= sum(len(requests[at].seeds) for at in places)
            for at, samples in zip(places, given, strict=True):
                answers[at] = samples
                if not isinstance(samples, Unavailable):
                    self._answered.update((entry.id, entry) for entry in entries(requests[at], samples, who))

        await asyncio.gather(*(ask(replica, places) for replica, places in shares.items()))
        return [answers[at] for at in range(len(requests))]

    async def _asked(
        self, first: Any, replicas: Sequence[Any], requests: Sequence[Request]
    ) -> tuple[str, Sequence[tuple[Sample, ...] | Unavailable]]:
        """Returns a replica's name and its answers, of `first` if it can. Raises Unavailable if none can answer."""
        fault: Any = ""
        for replica in (first, *(other for other in self._up(replicas) if other is not first)):
            said: Any
            try:
                kind, said = await replica.generate.remote(requests)
            except _ray_error() as error:
                kind, said = "unavailable", f"an engine has ended ({type(error).__name__})"
            if kind == "raised":
                raise said
            if kind == "done":
                return said
            self._down[replica], fault = time.monotonic() + DOWN_S, said
        raise Unavailable("engine", fault)

    def _up(self, replicas: Sequence[Any]) -> Sequence[Any]:
        """Returns the replicas that have answered lately, or all of them if none has."""
        now = time.monotonic()
        return [replica for replica in replicas if self._down.get(replica, 0.0) <= now] or replicas

    async def _is_up(self, replica: Any, policy: str) -> bool:
        with contextlib.suppress(_ray_error()):
            return policy in (await replica.ready.remote())[1]
        return False


class Pools(Replicas):
    """The engine of the run's process, which gives weights to a cluster's engines, and again to one that is new."""

    def __init__(
        self, policies: Mapping[str, Policy], config: EngineConfig, pools: Mapping[str, Sequence[Any]]
    ) -> None:
        super().__init__(policies, config, pools)
        self.failed: Exception | None = None
        self._names: dict[Any, list[str]] = {}
        for name, replicas in self._pools.items():
            for replica in replicas:
                self._names.setdefault(replica, []).append(name)
        self._current: dict[str, tuple[int, Any]] = {}
        self._pids: dict[Any, int] = {}
        self._deaths: deque[float] = deque(maxlen=DEATHS)
        self._tending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Brings up every engine that is not up, with the latest weights, and goes on looking after them."""
        for name in self.policies.keys() - self._current.keys():
            self._current[name] = self.versions[name], self._packed(name)
        end = time.monotonic() + BACK_S
        waiting = set(self._names)
        while waiting:
            for replica in list(waiting):
                with contextlib.suppress(_ray_error()):  # it is being started anew
                    await self._brought_up(replica)
                    waiting.discard(replica)
            if waiting and time.monotonic() > end:
                raise Unavailable("engine", f"{len(waiting)} engines have not come back within {BACK_S:g} s")
            await asyncio.sleep(LOOK_S if waiting else 0)
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend())

    async def sync(self, policy: str, version: int) -> None:
        """Gives a policy's weights to the engines of its pool; one that has ended gets them when it is back."""
        self._current[policy] = version, self._packed(policy)
        await asyncio.gather(*(self._given(replica, policy) for replica in self._pools[policy]))
        await super().sync(policy, version)

    async def rest(self) -> None:
        """Lets engines free memory, where they are asked nothing while ranks learn."""
        with contextlib.suppress(_ray_error()):
            await asyncio.gather(*(replica.rest.remote() for replica in self._names))

    async def close(self) -> None:
        """Stops looking after engines, which end with the cluster's part of the run."""
        if self._tending is not None:
            self._tending.cancel()
            self._tending = None
        self._current.clear()

    def _packed(self, policy: str) -> Any:
        """Puts a policy's weights into the cluster; returns None for a frozen one, which engines load themselves."""
        import ray

        if self.policies[policy].kind == "frozen":
            return None
        return ray.put(packed(self.policies[policy].model.weights()))

    async def _given(self, replica: Any, policy: str) -> None:
        version, weights = self._current[policy]
        with contextlib.suppress(_ray_error()):
            kind, said = await replica.take.remote(policy, version, weights)
            if kind == "raised":
                raise said
            if kind == "unavailable":
                raise Unavailable("engine", said)

    async def _brought_up(self, replica: Any) -> None:
        pid, held = await replica.ready.remote()
        if self._pids.setdefault(replica, pid) != pid:
            self._pids[replica] = pid
            self._died()
        behind = [name for name in self._names[replica] if held.get(name, -1) < self._current[name][0]]
        if not behind:
            return
        kind, said = await replica.begin.remote()
        if kind == "raised":
            raise said
        for name in behind:
            await self._given(replica, name)

    def _died(self) -> None:
        self._deaths.append(time.monotonic())
        if len(self._deaths) == DEATHS and self._deaths[-1] - self._deaths[0] < WITHIN_S:
            raise EngineError(
                f"{DEATHS} engines have ended within {WITHIN_S / 60:g} minutes; look at their logs and their memory"
            )

    async def _tend(self) -> None:
        """Looks after engines until the end, and keeps an error that ends the run for whoever waits for a rollout."""
        while self.failed is None:
            await asyncio.sleep(LOOK_S)
            for replica in self._names:
                try:
                    await self._brought_up(replica)
                except (Unavailable, _ray_error()):
                    continue
                except Exception as error:
                    self.failed = error


def _ray_error() -> type[Exception]:
    """Returns the class of exceptions that Ray raises if an actor, or something that it had, is gone."""
    import ray.exceptions

    return ray.exceptions.RayError
