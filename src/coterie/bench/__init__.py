"""Demonstrations: teams that learn on this machine in minutes. Benchmarks of the docs are in `benchmarks/`.

Each is a module with `run(say) -> figures`. `say` takes lines of progress; figures are a flat dict.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from coterie.errors import ConfigError, CoterieError, nearest

Say = Callable[[str], None]
BENCHES = {
    "demo": "what `make demo` shows: a team of two adapters over a real model, before and after training",
    "demo_small": "what `make demo-small` shows: a team of starters before and after a few minutes of training",
}


def run_bench(name: str, say: Say | None = None) -> dict[str, Any]:
    """Runs one demonstration.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in BENCHES:
        raise ConfigError(
            f"unknown benchmark '{name}'{nearest(name, BENCHES)}; there are {', '.join(BENCHES)}; others are in a "
            "checkout: python -m benchmarks"
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
