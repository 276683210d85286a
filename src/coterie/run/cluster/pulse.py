"""Heartbeats of the parts of a cluster: each counts up in the cluster's store, and one that stops is killed.

Ray notices a process that has ended. It waits without end for one that is stopped, that holds the interpreter in one
call, or whose work does not return.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from coterie.run.lookout import LOOK_S, Lookout

BEAT_S = LOOK_S / 2
"""Seconds between two heartbeats of a part."""


class Pulse:
    """The heartbeat of a part of a cluster, which stops if one piece of its work has taken too long.

    Args:
        key: where it is said; empty: nowhere.
        limit_s: what one piece of work may take.
    """

    def __init__(self, key: str, limit_s: float) -> None:
        self._key = key
        self._limit_s = limit_s
        self._numbers = itertools.count()
        self._began: dict[int, float] = {}
        if key:
            threading.Thread(target=self._beat, name="coterie-pulse", daemon=True).start()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Times a piece of work for as long as it lasts; several may be under way."""
        number = next(self._numbers)
        self._began[number] = time.monotonic()
        try:
            yield
        finally:
            del self._began[number]

    @property
    def overdue(self) -> bool:
        """True if a piece of work has taken too long."""
        return any(time.monotonic() - began > self._limit_s for began in list(self._began.values()))

    def _beat(self) -> None:
        import ray
        from ray.experimental.internal_kv import _internal_kv_put

        node = ray.get_runtime_context().get_node_id()
        for count in itertools.count():
            if not self.overdue:
                with contextlib.suppress(Exception):  # a store that is away for a moment
                    _internal_kv_put(self._key, f"{node} {os.getpid()} {count}")
            time.sleep(BEAT_S)


class Pulses:
    """A listener to the pulses of a run's parts, which kills parts that stay silent."""

    def __init__(self) -> None:
        self.prefix = f"coterie-{uuid.uuid4().hex}"
        self._lookout: Lookout | None = None

    def open(self, parts: Sequence[str]) -> None:
        """Begins to look after parts, each from its first heartbeat."""
        self._lookout = Lookout(parts, self._heard, _kill)
        self._lookout.open()

    def close(self) -> None:
        """Kills the parts of this machine, and silent ones elsewhere: one that hangs does not end when Ray asks it."""
        if self._lookout is None:
            return
        for name, said in self._lookout.close().items():
            with contextlib.suppress(Exception):  # the cluster may have gone
                if _is_here(said) or self._heard(name) == said:
                    _kill(said)
                _store()._internal_kv_del(f"{self.prefix}/{name}")  # noqa: SLF001
        self._lookout = None

    def _heard(self, name: str) -> str:
        return (_store()._internal_kv_get(f"{self.prefix}/{name}") or b"").decode()  # noqa: SLF001


def _store() -> Any:
    import ray.experimental.internal_kv as store

    return store


def _is_here(said: str) -> bool:
    import ray

    return said.split(maxsplit=1)[0] == ray.get_runtime_context().get_node_id()


def _kill(said: str) -> None:
    """Kills a part on its machine; Ray's own way asks the process, which does not answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node, pid, _ = said.split()
    if _is_here(said):
        end(int(pid))
        return
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    with contextlib.suppress(Exception):  # the machine is gone, and the part with it
        ray.remote(num_cpus=0, max_retries=0)(end).options(scheduling_strategy=there).remote(int(pid))


def end(pid: int) -> None:
    """Kills a process of Ray's of this machine, if it is there."""
    with contextlib.suppress(psutil.Error, IndexError):
        process = psutil.Process(pid)
        if process.cmdline()[0].startswith("ray::"):
            process.send_signal(signal.SIGKILL)
