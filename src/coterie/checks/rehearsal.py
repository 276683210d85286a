"""A rehearsal: what `coterie check` finds in a second is found before a run begins, without a model.

The tasks of the splits are compared, and a few of them are played with several kinds of replies. An episode ends at its
first call: nothing outside is run. What takes longer, such as a second process, is left to `coterie check`.
"""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence

from coterie.checks.playing import Hand, begun, hands, play_through, silent
from coterie.checks.splits import wrong_tasks
from coterie.errors import EnvError, Unavailable
from coterie.kernel.cursor import Cursor, PlayBug
from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.episode import Asked, Horizon, Rewarded, check_seen
from coterie.kernel.loops import drive
from coterie.kernel.mistakes import make_ready, task_of
from coterie.kernel.scene import JSON, role_of
from coterie.kernel.watchdog import Watch

REPLAYS = 65
"""Maximum number of replays of an episode: from its beginning, and from each of its first turns."""
TASKS = 3
"""Number of tasks of a split that a rehearsal plays."""
LIMIT_S = 1.0
"""Seconds after which a rehearsal compares no further tasks, and after which it plays no further episodes."""
PLAYED: tuple[Split, ...] = ("train", "validation")
"""Splits that a run plays before its end."""
REWARD_RANGE = "team rewards lie in team_reward_range"


def rehearse(environment: Environment, *, play_timeout_s: float, horizon: Horizon = "episode") -> tuple[str, ...]:
    """Plays a few tasks without a model, so that a mistake in the environment shows before a run begins.

    Args:
        play_timeout_s: that `play` may run without coming back.
        horizon: the horizon after which no local reward may come.

    Returns:
        remarks for the user, one line each, such as a role that nobody asked.

    Raises:
        EnvError: one line about a mistake.
        ConfigError: this machine cannot play it.
    """
    make_ready(environment)
    watch = Watch(play_timeout_s)
    if wrong := wrong_tasks(environment, watch, limit_s=LIMIT_S):
        raise EnvError(f"{wrong}; coterie check shows more")
    asked, whole, began = set[str](), 0, time.monotonic()
    for number, (split, index, hand) in enumerate(_episodes(environment)):
        if number and time.monotonic() - began > LIMIT_S:
            return ()
        cursor, ended = _rehearsed(environment, task_of(environment, split, index), hand, watch, horizon)
        asked |= roles_asked(cursor)
        whole += ended
        if not ended:  # a call would have gone on, and may ask others
            asked |= set(environment.roles)
    wrong = never_asked(environment, asked, PLAYED, whole)
    return (f"warning: {wrong}",) if wrong else ()


def _episodes(environment: Environment) -> Iterator[tuple[Split, int, Hand]]:
    """Yields the episodes to play: at first a train task in silence, then each kind of reply to each task."""
    yield "train", 0, silent
    kinds = hands(environment)
    for index in range(TASKS):
        for split in PLAYED:
            count = environment.count(split)
            for hand in kinds if count is None or index < count else ():
                yield split, index, hand


def _rehearsed(environment: Environment, task: Task, hand: Hand, watch: Watch, horizon: Horizon) -> tuple[Cursor, bool]:
    """Returns an episode, and True if it came to its end. Raises EnvError if it breaks the contract of `play`."""
    cursor, before, ended = begun(environment, task, watch, _no_call), copy.deepcopy(task), False
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            play_through(cursor, hand, watch)
            ended = True
            if task == before:  # else a replay differs of it
                replayed(cursor)
        except Unavailable:
            pass
        except PlayBug as bug:
            raise EnvError(
                f"{bug}{_after(cursor)}; mend it there: whatever roles reply is scored, and raises nothing"
            ) from bug
    for warning in seen:
        if "never awaited" in str(warning.message):
            raise EnvError(f"play of task {task.id}: {str(warning.message).splitlines()[0]}; write `await` before it")
    if task != before:
        raise EnvError(f"play has changed its task {task.id}; copy what play alters")
    if wrong := out_of_range(cursor):
        raise EnvError(f"{wrong}; mend the reward, or the range")
    if ended:
        check_seen(cursor.events, horizon)
    return cursor, ended


def _after(cursor: Cursor) -> str:
    """Quotes the last reply, for a message about what followed it."""
    replies = [reply for _, reply in cursor.log.replies()]
    return f" after '{role_of(replies[-1].role)}' replied {replies[-1].text[:40]!r}" if replies else ""


def replayed(cursor: Cursor) -> None:
    """Plays a whole episode again: from its beginning, and from each of its first turns whose state was given.

    Raises:
        EnvError: it says something else.
    """
    for again in itertools.islice(cursor.replays(), REPLAYS):
        if drive(again.advance()) is not None or again.events != cursor.events:
            raise EnvError(f"task {cursor.task.id}: the replay goes on after the log's end")


def out_of_range(cursor: Cursor) -> str:
    """Says which team reward of an episode lies outside of the environment's range, or returns ""."""
    bounds = cursor.environment.team_reward_range
    for event in cursor.events:
        if isinstance(event, Rewarded) and event.role is None and bounds and not bounds[0] <= event.value <= bounds[1]:
            return f"task {cursor.task.id}: the team reward {event.value} is outside {bounds}"
    return ""


def roles_asked(cursor: Cursor) -> set[str]:
    """Returns the roles that an episode asked."""
    return {role_of(speaker) for event in cursor.events if isinstance(event, Asked) for speaker in event.prompts}


def never_asked(environment: Environment, asked: Collection[str], splits: Sequence[Split], episodes: int) -> str:
    """Says which roles were not asked in episodes of some splits, though they are absent from none; or returns ""."""
    absent = set.intersection(*(set(environment.absent(split)) for split in splits))
    missing = [role for role in environment.roles if role not in asked and role not in absent]
    if not missing:
        return ""
    names = ", ".join(f"'{role}'" for role in missing)
    return (
        f"{'role' if len(missing) == 1 else 'roles'} {names} {'was' if len(missing) == 1 else 'were'} asked nothing in "
        f"{episodes} episodes, and would learn nothing: have play ask it, or leave it out of roles"
    )


async def _no_call(function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
    raise Unavailable("rehearsal", "nothing outside runs in a rehearsal")
