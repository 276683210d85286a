"""Ray as the runtime: each pool has engines and ranks, placed together; workers play environments.

A pool is a policy, or the adapters on one base. The run's process owns tasks, versions, ledger and checkpoints; what
runs elsewhere owns nothing. `max_staleness` rollouts are played ahead while ranks learn.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import os
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie.config.settings import Config, PolicyConfig, RuntimeConfig
from coterie.errors import ConfigError, RolloutError, UpdateError, first_line
from coterie.kernel.engine import Engine, EngineConfig
from coterie.kernel.safe import tell
from coterie.kernel.team import Graded
from coterie.learning.batch import Learned, trains
from coterie.learning.learner import Learner
from coterie.learning.policy import Policy
from coterie.memory.recall import Recall
from coterie.models.shapes import Shapes
from coterie.run.cluster.joining import (
    FOLDER,
    NOT_THERE,
    check_machine,
    check_there,
    library,
    on_loopback,
    own_group,
    own_signals,
    swept,
)
from coterie.run.cluster.pulse import Pulses
from coterie.run.ledger import Ledger, name_of
from coterie.run.policies import Policies
from coterie.run.pools import Pool, needed, pools_of
from coterie.run.rollout import Recalls, Rollout, step_tasks

SHORT = "/tmp"  # noqa: S108 a folder of its own is made there
END_S = 15.0
"""Seconds that engines may take to end."""
PATIENT_S = 5.0
"""Seconds that parts may wait for their place before the user is told."""
PLACE_S = 120.0
"""Seconds that parts may take to be placed."""
TRIES = 5
"""Maximum number of times that a share of a rollout is played, if its worker ends each time."""
WAIT_S = 0.5
"""Seconds between two checks whether a signal has come."""
TOKEN = ".ray/auth_token"  # noqa: S105 no token, but its file
"""File in which Ray keeps a cluster's token, beneath a user's home."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
}
"""Variables of the environment, set where they are not yet, so that Ray sends nothing and announces nothing."""
STORE = 200 << 20
"""Bytes of the object store of a cluster that is started here, beside weights."""


@dataclass(slots=True)
class _Share:
    """A share of a step's tasks that a worker plays."""

    step: int
    indices: list[int]
    recall: Recall | None
    worker: int
    ref: Any
    attempt: str
    tries: int = 1
    came: tuple[str, Any] | None = None


class Cluster:
    """A run's part of a Ray cluster, which it starts itself or joins."""

    def __init__(self, config: Config, folder: Path) -> None:
        """Joins or starts a cluster, and places engines, ranks and workers.

        Raises:
            ConfigError: Ray is not here, the cluster cannot be reached, or it has too little.
        """
        check_machine(config)
        self.config = config
        self._folder = folder
        self._ray = library()
        self._temporary: Path | None = None
        self._placed: list[Any] = []
        self._workers: list[Any] = []
        self._replicas: dict[str, list[Any]] = {}
        self._ranks: dict[tuple[str, ...], list[Any]] = {}
        self._open: dict[int, list[_Share]] = {}
        self._drawn: dict[int, list[str]] = {}
        self._ended: set[int] = set()
        self._pulses = Pulses()
        self._ledger: Ledger | None = None
        self._engine: Any = None
        self._joined = False
        self.pools = pools_of(config)
        self._joined = self._connected()
        try:
            self._place()
        except BaseException:
            self.close()
            raise

    def policy(self, name: str, policy: PolicyConfig, folder: Path | None) -> Policy:
        """Returns a policy whose weights, those that checkpoints hold, are on this machine's processor."""
        return self._policies.load(name, policy, "cpu", folder)

    def engine(self, policies: Mapping[str, Policy], settings: EngineConfig) -> Engine:
        from coterie.run.cluster.engine import Pools

        self._engine = Pools(policies, settings, self._replicas)
        return self._engine

    def learner(self, policies: Mapping[str, Policy], checkpoint: Path | None) -> Learner:
        from coterie.run.cluster.learner import PooledLearner
        from coterie.run.ranks import RankStart

        checkpoint = checkpoint.absolute() if checkpoint else None
        place = RankStart(self._home.config, (), 0, 1, "", self._home.device, checkpoint)
        return PooledLearner(policies, self._ranks, place, self._settle)

    def rollout(self, engine: Engine, step: int, recall: Recalls) -> Rollout:
        """Returns a step's rollout; the steps that may be played ahead are under way when it returns.

        Raises:
            RolloutError: workers end whatever is done.
        """
        if self._ledger is None:
            self._ledger = Ledger(self._folder, step, self.config.runtime.max_staleness)
        last = min(step + self.config.runtime.max_staleness, self.config.train.steps - 1)
        for ahead in range(step, last + 1):
            if ahead not in self._open:
                self._open[ahead] = list(self._sent(ahead, recall(ahead)))
        shares = self._open[step]
        parts = self._come(shares)
        del self._open[step]
        rollout = Rollout.whole(parts)
        if again := sum(share.tries - 1 for share in shares):
            rollout.budget.retried["worker"] += again
        return rollout

    def about(self) -> str:
        """Returns the device, the numbers of engines and workers, and the maximum staleness, in words."""
        runtime = self.config.runtime
        parts = f"{runtime.engines} engines, {runtime.workers} workers"
        return f"{runtime.name} on {self._home.device}, {parts}, max_staleness {runtime.max_staleness}"

    def close(self) -> None:
        """Ends what this run has placed, and the cluster too if it was started here."""
        ray = self._ray
        if self._ledger:
            self._ledger.close()
            self._ledger = None
        if ray.is_initialized():  # whoever asks it otherwise has it start a cluster
            self._cleared()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _cleared(self) -> None:
        """Ends engines, ranks and workers, and the connection that this run made, with a cluster that it started."""
        ray = self._ray
        engines = {engine for engines in self._replicas.values() for engine in engines}
        with contextlib.suppress(Exception):  # some have ended
            ray.wait([engine.end.remote() for engine in engines], num_returns=len(engines), timeout=END_S)
        for actor in (*engines, *self._workers, *itertools.chain(*self._ranks.values())):
            with contextlib.suppress(Exception):
                ray.kill(actor)
        for group in self._placed:
            with contextlib.suppress(Exception):
                ray.util.remove_placement_group(group)
        self._replicas, self._ranks, self._workers, self._placed, self._open = {}, {}, [], [], {}
        self._pulses.close()
        if not self._joined:
            ray.shutdown()

    def _connected(self) -> bool:
        """Returns True if this process was connected; else connects it, without an address to a cluster of its own."""
        ray, runtime = self._ray, self.config.runtime
        if ray.is_initialized():
            if runtime.address:
                raise ConfigError(
                    f"runtime.address = '{runtime.address}', but this process has joined a Ray cluster already; leave "
                    "the address out, or call ray.shutdown()"
                )
            return True
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        if runtime.address and (Path.home() / TOKEN).exists():  # Ray looks for it itself where it finds the address
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        logging.getLogger("ray").setLevel(logging.ERROR)  # it announces its tokens
        started: dict[str, Any] = {"address": runtime.address}
        if runtime.address:
            check_there(runtime.address)
        else:
            short = SHORT if Path(SHORT).is_dir() else None  # a socket's path has 107 letters at most
            swept(Path(short or tempfile.gettempdir()))
            self._temporary = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=short))
            started = {  # Ray lets anybody into its folder, so it stands in one that nobody else may enter
                "address": "local", "include_dashboard": False, "_temp_dir": str(self._temporary / "r"),
                "num_cpus": max(needed(self.config)[0], os.cpu_count() or 1),  # parts share what cores there are
                "object_store_memory": STORE + 3 * self._weights(),
            }  # fmt: skip
        try:
            alone = contextlib.nullcontext() if runtime.address else on_loopback()
            with warnings.catch_warnings(), own_signals(), own_group(), alone:
                warnings.simplefilter("ignore")
                ray.init(**started, log_to_driver=False, configure_logging=False)
        except Exception as error:
            self.close()
            if not runtime.address:
                raise ConfigError(f"Ray did not start ({first_line(error)})") from error
            raise ConfigError(
                f"runtime.address = '{runtime.address}': {NOT_THERE} ({first_line(error)}); where it asks for a token, "
                f"put the head's ~/{TOKEN} into the same place here"
            ) from error
        return False

    def _weights(self) -> int:
        """Returns the bytes of weights that go from ranks to engines after an update."""
        load, total = Policies(self.config, Shapes().load).load, 0
        for name in self.config.team.trained:
            weights = load(name, self.config.policies[name], "cpu").model.weights()
            total += sum(weight.numel() * weight.itemsize for weight in weights.values())
        return total

    def _device(self, resources: Mapping[str, float]) -> str:
        """Returns the device that models are on, cuda or cpu. Raises ConfigError if the cluster has too little."""
        cpus, gpus = needed(self.config)
        wanted = self.config.train.device
        device = "cuda" if wanted == "cuda" or (wanted == "auto" and resources.get("GPU")) else "cpu"
        asked = {"CPU": float(cpus), **({"GPU": gpus} if device == "cuda" else {})}
        for kind, count in asked.items():
            if resources.get(kind, 0.0) < count:
                raise ConfigError(
                    f"the cluster has {resources.get(kind, 0.0):g} {kind}s, and this run asks for {count:g}: "
                    f"{_many(len(self.pools), 'pool')} of {_many(self.config.runtime.engines, 'engine')} and "
                    f"{_many(self.config.train.ranks, 'rank')}, and {_many(self.config.runtime.workers, 'worker')}; "
                    + (
                        "lower runtime.engines, train.ranks or runtime.workers, share GPUs by runtime.engine_gpus and "
                        "runtime.rank_gpus, or let adapters share a base"
                        if resources.get(kind)
                        else "train.device = 'cpu' asks for none"
                    )
                )
        return device

    def _place(self) -> None:
        """Places engines, ranks and workers; nothing is loaded yet."""
        ray = self._ray
        from coterie.run.cluster.actors import Home, Rank, Replica, Worker

        config, runtime = self.config, self.config.runtime
        device = self._device(ray.cluster_resources())
        here = replace(config, train=config.train.model_copy(update={"device": "cpu"}))
        self._policies = Policies(here)
        self._home = Home(config.toml(), device, str(Path.cwd()), self._pulses.prefix, 60 * runtime.answer_minutes)
        parts: list[str] = []
        gpu = float(device == "cuda")
        engine, rank = (
            {"CPU": float(runtime.cpus), "GPU": gpu * share} for share in (runtime.engine_gpus, runtime.rank_gpus)
        )
        groups: list[tuple[Pool, Any, list[str]]] = []
        for pool in self.pools:
            count = config.train.ranks if pool.trained else 0
            pairs = itertools.zip_longest(["engine"] * runtime.engines, ["rank"] * count)
            kinds = [kind for pair in pairs for kind in pair if kind]  # those that share a GPU stand side by side
            groups.append((pool, self._group([engine if kind == "engine" else rank for kind in kinds], "PACK"), kinds))
        crowd = self._group([{"CPU": 1.0} for _ in range(runtime.workers)], "SPREAD")
        for pool, group, kinds in groups:
            self._wait_for(group, f"the pool of {', '.join(pool.policies)}")
            for number, kind in enumerate(kinds):
                if kind == "engine":
                    options = {"max_restarts": -1, "max_concurrency": 1000, **self._in(group, number, engine)}
                    made = ray.remote(Replica).options(**options).remote(self._home, pool.policies, number)
                    parts.append(f"engine {'+'.join(pool.policies)}/{number}")
                    for name in pool.policies:
                        self._replicas.setdefault(name, []).append(made)
                else:
                    parts.append(f"rank {'+'.join(pool.trained)}/{number}")
                    made = ray.remote(Rank).options(**self._in(group, number, rank)).remote(self._home, parts[-1])
                    self._ranks.setdefault(pool.trained, []).append(made)
        self._wait_for(crowd, "the workers")
        threads = _worker_threads(runtime)
        for number in range(runtime.workers):
            options = {"max_restarts": -1, "max_concurrency": threads, **self._in(crowd, number, {"CPU": 1.0})}
            parts.append(f"worker {number}")
            self._workers.append(ray.remote(Worker).options(**options).remote(self._home, parts[-1]))
        self._pulses.open(parts)

    def _group(self, bundles: Sequence[Mapping[str, float]], strategy: str) -> Any:
        """Reserves room in the cluster for parts that are placed together."""
        group = self._ray.util.placement_group(
            [{kind: count for kind, count in bundle.items() if count} for bundle in bundles], strategy=strategy
        )
        self._placed.append(group)
        return group

    def _in(self, group: Any, number: int, bundle: Mapping[str, float]) -> dict[str, Any]:
        """Returns the options by which Ray places a part in a group."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        where = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        return {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0.0), "scheduling_strategy": where}

    def _wait_for(self, group: Any, what: str) -> None:
        began = time.monotonic()
        end, told = began + PLACE_S, False
        while not group.wait(timeout_seconds=WAIT_S):
            if not told and time.monotonic() > began + PATIENT_S:
                told = True
                tell(f"{what} waits for room in the cluster, {PLACE_S:g} s at most; `ray status` says who has it")
            if time.monotonic() > end:
                raise ConfigError(
                    f"{what} could not be placed within {PLACE_S:g} s: the cluster has no room for it just now; see "
                    "`ray status`"
                )

    def _sent(self, step: int, recall: Recall | None) -> Iterator[_Share]:
        """Sends a step's tasks to the workers, as many to each, and yields the shares."""
        tasks, count = step_tasks(self.config, step), len(self._workers)
        for number in range(count):
            indices = tasks[number * len(tasks) // count : (number + 1) * len(tasks) // count]
            if indices:
                share = _Share(step, indices, recall, number, None, "")
                self._send(share)
                yield share

    def _send(self, share: _Share) -> None:
        if share.worker in self._ended:  # what is sent to one that is being started anew is lost
            self._wait_until_up(self._workers[share.worker])
            self._ended.discard(share.worker)
        share.attempt = uuid.uuid4().hex[:12]
        assert self._ledger is not None
        self._ledger.write("sent", step=share.step, attempt=share.attempt, worker=share.worker, tasks=share.indices)
        asked = share.step, share.indices, share.recall, self._replicas
        share.ref = self._workers[share.worker].rollout.remote(*asked)

    def _come(self, shares: Sequence[_Share]) -> list[Rollout]:
        """Waits for shares and returns their rollouts; any share whose worker has ended is played again at once."""
        while any(share.came is None for share in shares):
            waiting = {share.ref: share for step in self._open.values() for share in step if share.came is None}
            done, _ = self._ray.wait(list(waiting), timeout=WAIT_S)
            if self._engine.failed:
                raise self._engine.failed
            for ref in done:
                self._take(waiting[ref])
            for share in shares:
                if share.came and share.came[0] == "raised":
                    raise share.came[1]
        brought = [(share, *share.came[1]) for share in shares if share.came]
        for share, _, answered in brought:
            self._noted(share, answered)
        return [part for _, part, _ in brought]

    def _take(self, share: _Share) -> None:
        """Keeps a worker's answer until its step is asked for; has the share played again if the worker has ended."""
        try:
            share.came = self._ray.get(share.ref)
        except self._ray.exceptions.RayTaskError as error:  # nobody has ended: what came back cannot be read
            lost = RolloutError(f"step {share.step + 1}: a worker's answer was lost: {first_line(error)}")
            lost.__cause__ = error
            share.came = "raised", lost
        except self._ray.exceptions.RayError as error:
            self._lost(share, type(error).__name__)

    def _lost(self, share: _Share, why: str) -> None:
        assert self._ledger is not None
        self._ledger.write("lost", step=share.step, attempt=share.attempt, reason=f"its worker has ended ({why})")
        if share.tries == TRIES:
            raise RolloutError(
                f"step {share.step + 1}: workers have ended {TRIES} times while they played tasks {share.indices}; "
                "look at their memory, or play them here with runtime.name = 'local'"
            )
        share.tries += 1
        self._ended.add(share.worker)
        share.worker = (share.worker + 1) % len(self._workers)
        self._send(share)

    def _wait_until_up(self, worker: Any) -> None:
        """Waits for a worker that is being started anew."""
        end = time.monotonic() + PLACE_S
        while time.monotonic() < end:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(worker.pid.remote(), timeout=max(1.0, end - time.monotonic()))
                return
            time.sleep(WAIT_S)

    def _noted(self, share: _Share, answered: Sequence[Any]) -> None:
        assert self._ledger is not None
        self._ledger.write("done", step=share.step, attempt=share.attempt, samples=answered)
        self._drawn.setdefault(share.step, []).extend(entry.id for entry in answered)

    def _settle(self, step: int, experience: Mapping[str, Sequence[Graded]], learned: Mapping[str, Learned]) -> None:
        """Writes to the ledger which of a step's samples were trained, and why the others were dropped.

        Raises:
            UpdateError: a learner has trained more or fewer than it was given.
        """
        assert self._ledger is not None
        loss = self.config.loss
        trained = {
            name: [name_of(graded.sample) for graded in experience[name] if trains(graded, loss)] for name in learned
        }
        for name, ids in trained.items():
            count = learned[name].metrics["trained_sequences"]
            if count != len(ids):
                raise UpdateError(
                    f"policy '{name}' was given {len(ids)} samples to learn from, and has learned from {count:g}",
                    untouched=False,
                )
        used = {each for ids in trained.values() for each in ids}
        compared = {name_of(graded.sample) for graded_ones in experience.values() for graded in graded_ones}
        dropped: dict[str, list[str]] = {}
        for each in self._drawn.pop(step, []):
            if each not in used:
                why = "no advantage" if each in compared else "played on, or not chosen"
                dropped.setdefault(why, []).append(each)
        self._ledger.write("settled", step=step, trained=trained, dropped=dropped)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"


def _worker_threads(runtime: RuntimeConfig) -> int:
    """Returns the number of shares that a worker can play side by side.

    One rollout at a time is played in its main thread, where the watchdog can end whatever it does. Where rollouts run
    ahead it has a thread for every share that it may be given, should all others end.
    """
    return (runtime.max_staleness + 1) * runtime.workers if runtime.max_staleness else 1
