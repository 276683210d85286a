"""Checks the tasks of an environment: `task` is pure, ids are unique, and no task is in two splits."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import partial

from coterie.kernel.environment import SPLITS, Environment, Split, Task
from coterie.kernel.mistakes import task_of
from coterie.kernel.watchdog import Watch

SOME_TASKS, MOST_TASKS = 50, 2000
"""Maximum numbers of a split's tasks that are compared: of endlessly many, and of those that are counted."""


def wrong_tasks(environment: Environment, watch: Watch, *, limit_s: float = float("inf")) -> str:
    """Says in one line what is wrong with the tasks of an environment, or returns "".

    Tasks that hold nothing but an id are not compared: their content is drawn in `play`.

    Args:
        watch: stops a `task` that does not return.
        limit_s: seconds after which no further task is looked at; the first of each split always are.

    Raises:
        EnvError: `task` raised, or returned no task.
    """
    began = time.monotonic()
    ids: dict[str, str] = {}
    contents: dict[str, tuple[Split, int]] = {}
    for split, index in _places(environment):
        if index and time.monotonic() - began > limit_s:
            break
        task, place = watch.task(partial(task_of, environment), split, index), f"task({split!r}, {index})"
        if task != task_of(environment, split, index):
            return f"{place} differs when asked again; let it depend on settings, split and index only"
        if task.split != split:
            return f"{place} says its split is {task.split!r}; give it its own, {split!r}"
        if ids.setdefault(task.id, place) != place:
            return f"{place} has the id '{task.id}' of another task; give each an id of its own"
        content = content_of(task)
        first = contents.setdefault(content, (split, index)) if content else (split, index)
        if first[0] != split:
            (earlier, _), (later, at) = sorted(((split, index), first), key=lambda found: SPLITS.index(found[0]))
            return (
                f"task({later!r}, {at}) is also a {earlier} task: {content[:100]}; make each split of other tasks, so "
                "that success is measured on what was not trained"
            )
    return ""


def _places(environment: Environment) -> Iterator[tuple[Split, int]]:
    """Yields the tasks that are compared, by index: the first of every split, then the second."""
    most: dict[Split, int] = {}
    for split in SPLITS:
        count = environment.count(split)
        most[split] = SOME_TASKS if count is None else min(count, MOST_TASKS)
    for index in range(max(most.values())):
        for split in SPLITS:
            if index < most[split]:
                yield split, index


def content_of(task: Task) -> str:
    """Returns all that a task holds beside its id and split; "" if that is nothing."""
    fields = [field for field in dataclasses.fields(task) if field.name not in ("id", "split")]
    values = [getattr(task, field.name) for field in fields]
    return "" if all(value == "" for value in values) else repr(values)


def how_many_differ(environment: Environment, watch: Watch, *, tasks: int, limit_s: float) -> str:
    """Says how many of the first test tasks are different.

    Args:
        tasks: looked at, at most.
        limit_s: seconds after which no further task is looked at.
    """
    count, began = environment.count("test"), time.monotonic()
    seen: list[Task] = []
    for index in range(tasks if count is None else min(tasks, count)):
        if time.monotonic() - began > limit_s:
            break
        seen.append(watch.task(partial(task_of, environment), "test", index))
    different = len({content_of(task) or task.id for task in seen})
    return f"{'all' if different == len(seen) else f'{different:,}'} of the first {len(seen):,}"
