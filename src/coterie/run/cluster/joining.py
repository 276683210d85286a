"""Joining a cluster of Ray, or starting one of our own: what is checked before, and what Ray must be kept from."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from coterie.config.settings import Config
from coterie.errors import ConfigError, first_line

TESTED = "2.60."
"""Prefix of the versions of Ray that this was tested with."""
NOT_THERE = "no Ray cluster could be joined there"
REACH_S = 10.0
"""Seconds within which a cluster must be reached."""
FOLDER = "coterie-ray-"
"""Prefix of the folders of clusters that are started here; the id of the process that has them follows."""
GREETING, SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5), b"\4"
"""Bytes that open a connection by HTTP/2, as Ray speaks it, and the kind of frame that comes back."""


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Puts the run's handler of SIGTERM back: Ray's own would end a run that is saving."""
    mine = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if mine else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Has Ray's servers listen on loopback alone, as they do where Ray knows no clusters, on macOS and Windows.

    It has no setting for it: 127.0.0.1 as a node's address is turned into one that others reach.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    known, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = known


@contextlib.contextmanager
def own_group() -> Iterator[None]:
    """Puts Ray's processes into a group of their own: a scheduler's signal to the run's would end them at once."""
    services: Any = importlib.import_module("ray._private.services")
    before = services.ConsolePopen
    services.ConsolePopen = functools.partial(before, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = before


def swept(parent: Path) -> None:
    """Removes the folders that clusters of killed processes have left."""
    for folder in parent.glob(f"{FOLDER}*-*"):
        pid = folder.name.removeprefix(FOLDER).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdecimal() and folder.stat().st_uid == os.getuid() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def check_there(address: str) -> None:
    """Raises ConfigError if an address is malformed or no Ray listens there; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    form = "it is HOST:PORT, as `ray start --head` prints it, with nothing before"
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"runtime.address = '{address}' is no address: {form}")
    if "/" in host:
        raise ConfigError(f"runtime.address = '{address}' is no address: {form}")
    try:
        with socket.create_connection((host, int(port)), timeout=REACH_S) as there:
            there.settimeout(REACH_S)
            there.sendall(GREETING)
            if there.recv(9)[3:4] != SETTINGS:
                raise OSError("what listens there is not Ray")
    except OSError as error:
        raise ConfigError(f"runtime.address = '{address}': {NOT_THERE} ({first_line(error)}); {form}") from error


def check_machine(config: Config) -> None:
    """Raises ConfigError if an engine's setting, or a device, cannot be used on a cluster."""
    wanted, ahead = config.train.device, config.runtime.max_staleness
    if wanted not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"train.device = '{wanted}', but runtime.name = 'ray' places parts itself: auto, cpu or cuda")
    if ahead and getattr(config.engine, "sleep", False):
        raise ConfigError(
            f"engine.sleep has no effect with runtime.max_staleness = {ahead}: engines are asked while policies learn; "
            "leave one of the two out"
        )
    if getattr(config.engine, "url", ""):
        raise ConfigError(
            "engine.url is of one server, and runtime.name = 'ray' gives each engine of a pool weights of its own; "
            "leave it out"
        )


def library() -> Any:
    """Returns the module `ray`. Raises ConfigError if it is not installed, or of a version that was not tested."""
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
    except ImportError as error:
        raise ConfigError("runtime.name = 'ray' needs Ray; install it: pip install 'coterie[ray]'") from error
    if not ray.__version__.startswith(TESTED):
        raise ConfigError(
            f"Ray {ray.__version__} was not tested with this; install it as 'coterie[ray]' has it, {TESTED}*"
        )
    return ray
