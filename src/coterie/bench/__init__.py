"""Benchmarks of this machine: speed, memory, and whether a team learns here. Those of the docs are in `benchmarks/`.

Each benchmark is a module with `run(say) -> figures`. `say` takes lines of progress; figures are a flat dict.
Alternatives are compared in one process, in turns. Times are medians, and the ratio of the medians is reported.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from coterie.errors import ConfigError, CoterieError, nearest

Say = Callable[[str], None]
BENCHES = {
    "decode": "tokens per second of the embedded engine, without and with a network's modules",
    "demo": "what `make demo` shows: a team of two adapters over a real model, before and after training",
    "demo_small": "what `make demo-small` shows: a team of starters before and after a few minutes of training",
    "memory": "peak memory of a demo step",
    "plan": "memory that `coterie plan` predicts, compared with the measured memory",
    "rollout": "tokens per second compared with padded model.generate",
    "smoke": "twenty steps; fails unless success rises",
    "startup": "seconds until `coterie --help` answers",
    "update": "gradient and time of the shared-prefix update, compared with rows",
}


def run_bench(name: str, say: Say | None = None) -> dict[str, Any]:
    """Runs one benchmark.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in BENCHES:
        raise ConfigError(
            f"unknown benchmark '{name}'{nearest(name, BENCHES)}; there are {', '.join(BENCHES)}; those that train "
            "tables of runs are in a checkout: python -m benchmarks"
        )
    with files_told():
        return importlib.import_module(f"{__name__}.{name}").run(say or (lambda line: None))


@contextmanager
def files_told() -> Iterator[None]:
    """Tells of a file that a benchmark cannot use in a line.

    Raises:
        ConfigError: there is one.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, CoterieError) or error.filename is None:
            raise
        raise ConfigError(f"{error.filename} cannot be used: {error.strerror}") from error


BUSY_PERCENT = 15
"""Percentage of all cores' time above which other processes count as somebody's work."""


def alone() -> None:
    """Raises ConfigError if other processes use this machine, because timings would then be wrong."""
    if (taken := psutil.cpu_percent(interval=1.0)) > BUSY_PERCENT:
        raise ConfigError(f"other processes take {taken:.0f} % of this machine; times are measured on an idle one")


def processor() -> str:
    """Returns the name of this machine's processor, by its maker where the system tells it."""
    with suppress(OSError, IndexError):
        return Path("/proc/cpuinfo").read_text().partition("model name")[2].split("\n")[0].split(":")[1].strip()
    return platform.processor() or platform.machine()
