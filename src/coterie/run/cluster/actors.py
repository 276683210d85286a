"""The actors of a cluster: an engine, a rank of a learner, and a worker that plays environments. None owns state.

A killed actor restarts only with its constructor arguments; the run's process then restores its state.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import subprocess
import threading
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from safetensors.torch import load as unpacked

from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.errors import ConfigError, Unavailable
from coterie.kernel.engine import Engine, Request
from coterie.kernel.episode import Sample
from coterie.kernel.loops import Hosted
from coterie.learning.learner import LocalLearner
from coterie.learning.policy import Policy
from coterie.learning.ranks import Ranks
from coterie.memory.recall import Recall
from coterie.models.shapes import Shapes
from coterie.registry import find
from coterie.run.cluster.engine import Replicas
from coterie.run.cluster.pulse import Pulse
from coterie.run.policies import Policies
from coterie.run.ranks import TIMEOUT_S, Answer, RankStart, answer, learner_of, sendable
from coterie.run.rollout import play_tasks

Said = tuple[Literal["done", "unavailable", "raised"], Any]
"""An actor's answer: its result, the reason why it has none now, or an exception that ends the run."""


@dataclass(frozen=True, slots=True)
class Home:
    """Facts that every actor of a run is told.

    config: TOML of the run. device: what its models are on. folder: the run's process's. pulses: where parts say that
    they live; empty: nowhere. answer_s: what one answer may take.
    """

    config: str
    device: str
    folder: str
    pulses: str = ""
    answer_s: float = math.inf

    def settle(self) -> Config:
        """Changes to the folder in which the run's process works, if it is here, and returns the run's config."""
        with contextlib.suppress(OSError):  # another machine may not have it, and most runs name nothing there
            os.chdir(self.folder)
        config = load_config(tomllib.loads(self.config))
        return replace(config, train=config.train.model_copy(update={"device": self.device}))

    def pulse(self, part: str) -> Pulse:
        """Returns the pulse of an actor, which says from now on that the actor lives."""
        return Pulse(f"{self.pulses}/{part}" if self.pulses else "", self.answer_s)


class Replica:
    """An actor with an engine for the policies of a pool."""

    def __init__(self, home: Home, pool: Sequence[str], number: int) -> None:
        self._home = home
        self._name = f"{'+'.join(pool)}/{number} of process {os.getpid()}"
        self._pool = tuple(pool)
        self._policies: dict[str, Policy] = {}
        self._engine: Hosted | None = None
        self._held: dict[str, int] = {}
        self._waiting: list[tuple[Sequence[Request], asyncio.Future[Any]]] = []
        self._running = 0
        self._closed = False
        self._change = asyncio.Condition()
        self._turn = asyncio.Lock()
        self._beginning = asyncio.Lock()
        self._pulse = home.pulse(f"engine {'+'.join(pool)}/{number}")

    async def ready(self) -> tuple[int, dict[str, int]]:
        """Returns the id of this process, and the version of each policy's weights that it holds."""
        return os.getpid(), dict(self._held)

    async def begin(self) -> Said:
        """Loads the models and brings the engine up, unless it is up."""
        async with self._beginning:
            if self._engine is not None:
                return "done", None
            try:
                with self._pulse.at_work():
                    self._engine = await asyncio.to_thread(self._made)
            except Exception as error:
                return "raised", sendable(error)
            return "done", None

    async def end(self) -> None:
        """Shuts the engine down, with what it has started and written."""
        if self._engine is not None:
            await asyncio.to_thread(self._engine.shut)

    def _made(self) -> Hosted:
        config = self._home.settle()
        kind = find("engine", config.names["engine"], Engine)
        if kind.apart:  # the policies' own weights are only compared with
            config = replace(config, train=config.train.model_copy(update={"device": "cpu"}))
        make = Policies(config).make
        self._policies = {name: make(name, config.policies[name]) for name in self._pool}
        settings, share = config.engine, config.runtime.engine_gpus
        if hasattr(settings, "memory_share"):  # of the part of a GPU that is this engine's
            settings = settings.model_copy(update={"memory_share": share * getattr(settings, "memory_share", 1.0)})
        engine = Hosted(kind(self._policies, settings))
        engine.open()
        return engine

    async def take(self, policy: str, version: int, weights: bytes | None) -> Said:
        """Takes over a policy's weights when no request is in flight, so that every reply is of one version.

        Args:
            weights: None: those that it has, which are frozen.
        """
        assert self._engine is not None
        async with self._change:
            await self._change.wait_for(lambda: not self._closed)
            if self._held.get(policy, -1) >= version:  # what was sent to bring it up may come late
                return "done", None
            self._closed = True
            await self._change.wait_for(lambda: not self._running)
        self._held.pop(policy, None)
        try:
            with self._pulse.at_work():
                if weights is not None:
                    await asyncio.to_thread(self._policies[policy].model.put, unpacked(weights))
                await self._engine.sync(policy, version)
            self._held[policy] = version
        except Unavailable as fault:
            await self._restarted()
            return "unavailable", str(fault)
        except Exception as error:
            return "raised", sendable(error)
        finally:
            async with self._change:
                self._closed = False
                self._change.notify_all()
        return "done", None

    async def rest(self) -> None:
        """Lets the engine rest: nothing is asked of it until new weights come."""
        if self._engine is not None:
            await self._engine.rest()

    async def generate(self, requests: Sequence[Request]) -> Said:
        """Answers requests of one policy, as an engine does, and returns this engine's name with the answers."""
        async with self._change:
            await self._change.wait_for(lambda: not self._closed)
            if self._engine is None or self._held.keys() < set(self._pool):
                return "unavailable", "this engine does not hold the run's weights yet"
            self._running += 1
        try:
            with self._pulse.at_work():
                eager = self._engine.config.front == "eager"
                return "done", (self._name, await (self._engine.generate if eager else self._together)(requests))
        except Unavailable as fault:
            await self._restarted()
            return "unavailable", str(fault)
        except Exception as error:
            return "raised", sendable(error)
        finally:
            async with self._change:
                self._running -= 1
                self._change.notify_all()

    async def _together(self, requests: Sequence[Request]) -> Sequence[tuple[Sample, ...] | Unavailable]:
        """Answers all requests that have come while the engine was busy as one wave."""
        assert self._engine is not None
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((requests, future))
        async with self._turn:
            if not future.done():
                waiting, self._waiting = self._waiting, []
                await self._answer(waiting)
        return await future

    async def _answer(self, waiting: Sequence[tuple[Sequence[Request], asyncio.Future[Any]]]) -> None:
        assert self._engine is not None
        by_policy: dict[str, list[tuple[Sequence[Request], asyncio.Future[Any]]]] = {}
        for requests, future in waiting:
            by_policy.setdefault(requests[0].policy, []).append((requests, future))
        for parts in by_policy.values():
            try:
                wave = [request for requests, _ in parts for request in requests]
                given = iter(zip(wave, await self._engine.generate(wave), strict=True))
                for requests, future in parts:
                    future.set_result([next(given)[1] for _ in requests])
            except Exception as error:  # each of those that wait is told
                for _, future in parts:
                    if not future.done():
                        future.set_exception(error)

    async def _restarted(self) -> None:
        assert self._engine is not None
        with contextlib.suppress(Exception):  # the next question says so
            await self._engine.start()


class Rank:
    """An actor with a learner of a pool's policies, alone or as one of several ranks."""

    def __init__(self, home: Home, part: str) -> None:
        self._home = home
        self._pulse = home.pulse(part)
        self._ranks = Ranks()
        self._learner: LocalLearner | None = None

    def meeting(self) -> str:
        """Returns an address of this rank's machine where ranks may meet."""
        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def begin(self, place: RankStart) -> Answer:
        """Meets the other ranks, if there are any, and loads the models of the policies that they learn."""
        try:
            self._home.settle()
            if place.size > 1:
                from coterie.learning.fsdp import Sharded

                self._ranks = Sharded(place.rank, place.size, place.meet, device=place.device, timeout_s=TIMEOUT_S)
            with self._pulse.at_work():
                self._learner = learner_of(place, self._ranks)
        except Exception as error:
            return "failed", sendable(error)
        return "done", None

    def asked(self, method: str, *args: Any) -> Answer:
        """Calls a method of the learner, as all ranks do alike, and returns its answer."""
        assert self._learner is not None
        try:
            with self._pulse.at_work():
                return answer(self._learner, self._ranks, method, args)
        except Exception as error:
            return "failed", sendable(error)


class Worker:
    """An actor that plays environments."""

    def __init__(self, home: Home, part: str) -> None:
        self._home = home
        self._pulse = home.pulse(part)
        self._made = threading.local()
        self._loading = threading.Lock()  # a file of somebody's own is half loaded while another thread would read it

    def rollout(
        self, step: int, indices: Sequence[int], recall: Recall | None, pools: Mapping[str, Sequence[Any]]
    ) -> Said:
        """Plays tasks of a step, and returns their rollout with every sample that was drawn for them.

        Args:
            pools: for each policy the replicas that answer for it.
        """
        try:
            config, policies = self._settled()
            engine = Replicas(policies, config.engine, pools)
            return "done", (play_tasks(config, engine, step, indices, recall), engine.answered)
        except BaseException as error:  # a bug of the environment's, an `exit()` in it too: the run tells it
            return "raised", sendable(error)

    def pid(self) -> int:
        """Returns the id of this process."""
        return os.getpid()

    def _settled(self) -> tuple[Config, dict[str, Policy]]:
        """Returns config and policies of this thread alone: threads that shared a tokenizer would mix up its state."""
        if not hasattr(self._made, "parts"):
            with self._loading:
                self._made.parts = self._loaded()
        return self._made.parts

    def _loaded(self) -> tuple[Config, dict[str, Policy]]:
        config = self._home.settle()
        check_exit_codes()
        config.environment.ready()
        load = Policies(config, Shapes().load).load  # tokenizers, and no numbers
        return config, {name: load(name, config.policies[name], "cpu") for name in config.team.policies}


def check_exit_codes() -> None:
    """Raises ConfigError if the cluster hides exit codes: a program that crashed would seem to have ended well."""
    if subprocess.run(["sh", "-c", "exit 3"], check=False).returncode != 3:
        raise ConfigError(
            "this cluster hides how programs end: it was started with "
            "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper; start it without"
        )
