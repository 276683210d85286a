"""The trackers of a run: metrics.jsonl first, then the others. A tracker that fails does not stop the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from coterie.config.settings import Config
from coterie.errors import ConfigError, CoterieError
from coterie.kernel.mistakes import said
from coterie.kernel.safe import one_line, tell
from coterie.kernel.tracker import Line, Tracker
from coterie.registry import find
from coterie.run.folder import Run


class JSONL(Tracker):
    """Tracker that writes metrics.jsonl, which a run cannot do without: every page and every resume reads it."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def log(self, line: Line) -> None:
        """Appends a line, whole and flushed.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        self._run.log(line)


def of_config(config: Config) -> dict[str, Tracker]:
    """Returns the trackers that a config names, by what it calls them.

    Raises:
        ConfigError: one of them lacks what it needs.
    """
    trackers = {
        label: find("tracker", config.names[f"trackers.{label}"], Tracker)(settings)
        for label, settings in config.trackers.items()
    }
    for tracker in trackers.values():
        tracker.ready()
    return trackers


class Trackers:
    """All trackers that are told of a run's metrics, as long as this is entered."""

    def __init__(self, run: Run, config: Config, named: Mapping[str, Tracker], more: Sequence[Tracker] | None) -> None:
        """Takes the trackers that the config names and `more`; if that is None, the display too in a notebook."""
        if more is None:
            more = [find("tracker", "display", Tracker)()] if in_notebook() else []
        self._run = run
        self._config = config
        self._first = JSONL(run)
        self._others = [*named.items(), *((f"{number}", tracker) for number, tracker in enumerate(more))]

    def __enter__(self) -> Trackers:
        waiting, self._others = self._others, []
        for name, tracker in waiting:
            try:
                tracker.begin(self._run.folder, self._config.tables(), self._run.metrics())
                self._others.append((name, tracker))
            except CoterieError:
                self.__exit__()
                raise
            except (Exception, SystemExit) as error:  # a user's tracker may raise anything
                self.__exit__()
                raise ConfigError(
                    f"tracker '{name}' ({type(tracker).__name__}) did not begin: {said(error)}; mend it, or leave "
                    f"[trackers.{name}] out"
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        for tracker in list(self._others):
            self._safely(*tracker, "end")

    def log(self, line: Line) -> None:
        """Tells every tracker of a step's metrics."""
        self._first.log(line)
        for tracker in list(self._others):
            self._safely(*tracker, "log", dict(line))  # its own: what one does to it, the others do not see

    def _safely(self, name: str, tracker: Tracker, method: str, *args: Line) -> None:
        """Calls a method of a tracker; one that fails is reported once, and hears no more."""
        try:
            getattr(tracker, method)(*args)
        except (Exception, SystemExit) as error:
            self._others.remove((name, tracker))
            text = f"tracker '{name}' ({type(tracker).__name__}) failed, and hears no more of this run: {said(error)}"
            tell(one_line(text))


def in_notebook() -> bool:
    """Returns True if this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config
