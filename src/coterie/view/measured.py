"""Results that the viewer computes on request: the ablations of a team, and log-probabilities by another checkpoint.

The viewer shows its pages without torch. Torch is loaded here, at the first request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coterie import ram
from coterie.errors import ConfigError, CoterieError
from coterie.kernel.group import Group
from coterie.kernel.mistakes import said
from coterie.view.shelf import Identity

if TYPE_CHECKING:
    from coterie.run.ablation import Change

MOST_TASKS = 10_000
"""The largest number of validation tasks that a page may request."""
KEPT = 100
"""The number of groups whose log-probabilities are kept."""
Place = tuple[Identity, int, int, int, int]
"""Place of replies: a run, the step of a saved rollout, a task and a group in it, and the step of a checkpoint."""


@dataclass(slots=True)
class Measure:
    """A measurement of the ablations of a team.

    tasks: the number of validation tasks. told: the progress, as text. step, success: of the checkpoint that plays.
    error: why the measurement failed, or "".
    """

    tasks: int
    told: str = "loading the team"
    step: int = 0
    success: float = 0.0
    changes: Sequence[Change] = ()
    error: str = ""
    done: bool = False


class MeasureCache:
    """All results that were computed since the viewer started."""

    def __init__(self) -> None:
        self._measures: dict[Identity, Measure] = {}
        self._later: OrderedDict[Place, list[list[float]]] = OrderedDict()

    @property
    def measures(self) -> Mapping[Identity, Measure]:
        """The latest measurement of each run."""
        return self._measures

    def begin(self, run: Identity, tasks: int) -> None:
        """Starts to measure a team's ablations in a new thread.

        Raises:
            ConfigError: the number of tasks is not allowed, or another measurement is running.
        """
        if not 0 < tasks <= MOST_TASKS:
            raise ConfigError(f"{tasks} tasks: ask for 1 to {MOST_TASKS}")
        if any(not measure.done for measure in self._measures.values()):
            raise ConfigError("a team is being measured already; wait until that is done")
        measure = self._measures[run] = Measure(tasks)
        threading.Thread(target=_measure, args=(run[0], measure), daemon=True, name="measuring").start()

    def ask(self, place: Place, group: Group) -> None:
        """Computes the log-probabilities of the group's replies with the checkpoint of `place`, and keeps them.

        Raises:
            ConfigError: a server plays the policy, or the members of the group are not single replies.
            CheckpointError: there is no such checkpoint.
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
        """Returns the log-probability of each token of each reply; None if `ask` has not computed them."""
        return self._later.get(place)


def _measure(folder: Path, measure: Measure) -> None:
    from coterie.run.ablation import every_ablation
    from coterie.run.loaded import load

    try:
        with closing(load(folder)) as team:
            ablations = every_ablation(team.config.team, team.config.environment.absent("validation"))
            if team.progress.step == 0:  # its weights are the initial ones
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
    except BaseException as error:  # environment code may raise anything; `exit()` in it must not end the viewer
        measure.error = said(error)
    finally:
        ram.give_back(collect=True)  # the models are in reference cycles
        measure.done = True
