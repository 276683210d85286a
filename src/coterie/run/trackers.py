"""The trackers of a run: metrics.jsonl first, then whatever else is told; one that fails stops nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from coterie.config.settings import Config
from coterie.errors import ConfigError, CoterieError
from coterie.kernel.mistakes import said
from coterie.kernel.safe import one_line
from coterie.kernel.tracker import Line, Tracker
from coterie.registry import find
from coterie.run.folder import Run


class JSONL(Tracker):
    """metrics.jsonl, which a run cannot do without: every page and every resume reads it."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def log(self, line: Line) -> None:
        """Appends a line, whole and flushed. Raises: CheckpointError: the folder cannot be written."""
        self._run.log(line)


class Trackers:
    """All that are told of a run's metrics, as long as this is entered."""

    def __init__(self, run: Run, config: Config, more: Sequence[Tracker] | None) -> None:
        """Args: more: beside those of the config; None: the display, where this is a notebook."""
        if more is None:
            more = [find("tracker", "display", Tracker)()] if in_notebook() else []
        self._run = run
        self._config = config
        self._first = JSONL(run)
        named = {
            label: find("tracker", config.names[f"trackers.{label}"], Tracker)(settings)
            for label, settings in config.trackers.items()
        }
        self._others = named | {f"{number}": one for number, one in enumerate(more)}

    def __enter__(self) -> Trackers:
        tables, lines = self._config.tables(), self._run.metrics()
        for name, tracker in self._others.items():
            try:
                tracker.begin(self._run.folder, tables, lines)
            except CoterieError:
                raise
            except Exception as error:  # somebody's code, which may do anything
                raise ConfigError(
                    f"tracker '{name}' ({type(tracker).__name__}) did not begin: {said(error)}; mend it, or leave "
                    f"[trackers.{name}] out"
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._others):
            self._safely(name, "end")

    def log(self, line: Line) -> None:
        """Tells them of a step."""
        self._first.log(line)
        for name in list(self._others):
            self._safely(name, "log", line)

    def _safely(self, name: str, method: str, *args: Line) -> None:
        """Calls a tracker; one that fails is told of once, and hears no more."""
        try:
            getattr(self._others[name], method)(*args)
        except Exception as error:
            tracker = self._others.pop(name)
            text = f"tracker '{name}' ({type(tracker).__name__}) failed, and hears no more of this run: {said(error)}"
            os.write(2, f"\ncoterie: {one_line(text)}\n".encode())


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config
