"""A rehearsal: one task played in silence, so that a mistake in `play` shows before a run begins."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from coterie.errors import EnvError, Unavailable
from coterie.kernel.cursor import Cursor, PlayBug
from coterie.kernel.environment import Environment
from coterie.kernel.loops import drive
from coterie.kernel.mistakes import task_of
from coterie.kernel.scene import JSON, Reply, role_of
from coterie.kernel.watchdog import Watch
from coterie.seeds import seed_of

REPLAYS = 65
"""Replays of an episode: from its beginning, and from each of its first turns."""


def rehearse(environment: Environment, *, play_timeout_s: float) -> None:
    """Plays one train task with roles that say nothing, so that a mistake in `play` shows before a run begins.

    It ends at the first call: nothing outside is run. A bug that is none of a beginner's is left for the run, which
    keeps what led to it.

    Args:
        play_timeout_s: that `play` may run without coming back.

    Raises:
        EnvError: one line about a mistake.
        ConfigError: this machine cannot play it.
    """
    environment.ready()
    task = task_of(environment, "train", 0)
    watch, here = Watch(play_timeout_s), Path.cwd()
    cursor = Cursor(environment, task, seed_of("rehearse", task.id), perform=_no_call, watch=watch)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with contextlib.suppress(PlayBug, Unavailable):
            drive(_rehearsed(cursor, watch))
            replayed(cursor)
    _stayed(here)
    for warning in seen:
        if "never awaited" in str(warning.message):
            raise EnvError(f"play of task {task.id}: {str(warning.message).splitlines()[0]}; write `await` before it")


def replayed(cursor: Cursor) -> None:
    """Plays a whole episode again: from its beginning, and from each of its first turns whose state was given.

    Raises:
        EnvError: it says something else.
    """
    for again in itertools.islice(cursor.replays(), REPLAYS):
        if drive(again.advance()) is not None or again.events != cursor.events:
            raise EnvError(f"task {cursor.task.id}: the replay goes on after the log's end")


def _stayed(here: Path) -> None:
    """Raises EnvError: `play` has changed the working folder, which is taken back."""
    if (there := Path.cwd()) != here:
        os.chdir(here)
        raise EnvError(f"play has changed the working folder to {there}; a run's files are found from where it began")


async def _rehearsed(cursor: Cursor, watch: Watch) -> None:
    with watch:
        while (point := await cursor.advance()) is not None:
            cursor.answer({speaker: Reply(role_of(speaker), "", "length") for speaker in point.roles})


async def _no_call(function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
    raise Unavailable("rehearsal", "nothing outside runs in a rehearsal")
