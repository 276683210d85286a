"""What is worked out for a page when somebody asks: what each role is worth, and what other weights say of replies.

The pages are shown without torch; it is loaded here when first asked for.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.errors import ConfigError, CoterieError
from coterie.kernel.group import Group
from coterie.kernel.mistakes import said
from coterie.view.shelf import Stamp

if TYPE_CHECKING:
    from coterie.run.ablation import Change

MOST_TASKS = 10_000
"""Validation tasks that a page may ask for."""
KEPT = 100
"""Groups whose replies other weights were asked of."""
Run = tuple[Path, Stamp]
"""A folder, and what tells its run from a later one there."""
Place = tuple[Run, int, int, int, int]
"""A run, a saved rollout, a task and a group there, and the checkpoint that is asked."""


@dataclass(slots=True)
class Measure:
    """The ablations of a team, on so many validation tasks. told: how far it is. error: why it ended early."""

    tasks: int
    told: str = "loading the team"
    step: int = 0
    success: float = 0.0
    changes: Sequence[Change] = ()
    error: str = ""
    done: bool = False


class Measured:
    """All that was worked out since the viewer began."""

    def __init__(self) -> None:
        self._measures: dict[Run, Measure] = {}
        self._later: OrderedDict[Place, list[list[float]]] = OrderedDict()

    @property
    def measures(self) -> Mapping[Run, Measure]:
        """The latest of each run."""
        return self._measures

    def begin(self, run: Run, tasks: int) -> None:
        """Begins to measure, in a thread of its own.

        Raises:
            ConfigError: too many tasks or none, or another run is measured.
        """
        if not 0 < tasks <= MOST_TASKS:
            raise ConfigError(f"{tasks} tasks: ask for 1 to {MOST_TASKS}")
        if any(not measure.done for measure in self._measures.values()):
            raise ConfigError("a team is being measured already; wait until that is done")
        measure = self._measures[run] = Measure(tasks)
        threading.Thread(target=_measure, args=(run[0], measure), daemon=True, name="measuring").start()

    def ask(self, place: Place, group: Group) -> None:
        """Asks the checkpoint what it says of the group's replies.

        Raises:
            ConfigError: its policy has no weights here, or its members are not single replies. CheckpointError: there
                is no such checkpoint.
        """
        if place in self._later:
            return
        if any(len(member.samples) != 1 for member in group.members):
            raise ConfigError("the members of this group are whole episodes; ask of a group of replies to one prompt")
        from coterie.run.loaded import load

        team = load(place[0][0], place[-1])
        with closing(team):
            self._later[place] = [team.logprobs(member.samples[0]) for member in group.members]
        while len(self._later) > KEPT:
            self._later.popitem(last=False)

    def later(self, place: Place) -> list[list[float]] | None:
        """What the checkpoint said: the log-probability of each token of each reply; None: it was not asked."""
        return self._later.get(place)


def _measure(folder: Path, measure: Measure) -> None:
    from coterie.run.ablation import every_ablation
    from coterie.run.loaded import load

    try:
        with closing(load(folder)) as team:
            ablations = every_ablation(team.config.team, team.config.environment.absent("validation"))
            if team.progress.step == 0:  # its weights are those that it began with
                ablations = [one for one in ablations if one.kind != "replace"]
            names = iter(["the team as it is", *map(str, ablations)])
            name = next(names)

            def progress(done: int, total: int) -> None:
                nonlocal name
                measure.told = f"{name}: {done} of {total} tasks"
                name = next(names, name) if done == total else name

            evaluation, changes = team.compare(ablations, "validation", tasks=measure.tasks, progress=progress)
            measure.step, measure.success, measure.tasks = team.progress.step, evaluation.success, evaluation.tasks
            measure.changes = changes
    except CoterieError as error:
        measure.error = str(error)
    except BaseException as error:  # an environment's code may raise anything, and `exit()` in it ends no viewer
        measure.error = said(error)
    finally:
        gc.collect()  # models stand in cycles
        measure.done = True
