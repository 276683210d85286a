"""Plain evaluation: every role answers once, no tree, no prefix chosen by reward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coterie.checks.splits import content_of
from coterie.errors import ConfigError, RolloutError, Unavailable
from coterie.kernel.engine import Engine
from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.episode import Log, Noted
from coterie.kernel.loops import drive
from coterie.kernel.play import Play, Sampling, Seats
from coterie.kernel.team import Team

if TYPE_CHECKING:
    from coterie.memory.recall import Recall

Z95 = 1.959964
"""The 97.5 % point of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of a team on tasks of a split.

    success: share solved; success_low, success_high: its 95 % interval (Wilson), over tasks.
    turns: mean turns used, `turn_limit` where unsolved. rewards: mean of an episode, by role and
    "team". outcomes: how often each ending came. dropped: episodes lost to faults; they count as
    not solved. tokens: sampled in an episode, by all roles. solved: each episode, task by task. noted:
    the environment's metrics, the last of each episode, 0 where it noted none. kinds: each task's. logs: each
    episode's, task by task; None: it was dropped. They are not compared. distinct: how many of the tasks differ in more
    than their id: an interval over tasks of which many are equal is too narrow.
    """

    split: Split
    tasks: int
    sampled: int
    success: float
    success_low: float
    success_high: float
    turns: float
    rewards: dict[str, float]
    truncated: dict[str, float]
    outcomes: dict[str, int]
    dropped: int
    tokens: float
    solved: tuple[bool, ...]
    noted: dict[str, tuple[float, ...]]
    kinds: tuple[str, ...] = ()
    logs: tuple[Log | None, ...] = field(default=(), repr=False, compare=False)
    distinct: int = 0

    @property
    def by_kind(self) -> dict[str, float]:
        """Success of each kind of task; empty if there is only one kind."""
        scores: dict[str, list[float]] = {}
        for kind, share in zip(self.kinds, self.by_task, strict=True):
            scores.setdefault(kind, []).append(share)
        return {kind: sum(shares) / len(shares) for kind, shares in sorted(scores.items())} if len(scores) > 1 else {}

    @property
    def by_task(self) -> tuple[float, ...]:
        """Success of each task: the share of its episodes that were solved."""
        episodes = len(self.solved) // self.tasks
        return tuple(
            sum(self.solved[start : start + episodes]) / episodes for start in range(0, len(self.solved), episodes)
        )


def at_k(values: Sequence[float], episodes: int, k: int) -> float:
    """Returns the expected best of k episodes of a task, a mean over tasks; for solved episodes this is pass@k.

    Args:
        values: of every episode, task by task.
        episodes: of a task, at least k.

    Source:
        unbiased without replacement, as pass@k = 1 - C(n - m, k) / C(n, k), arXiv:2107.03374.
    """
    if not 1 <= k <= episodes:
        raise ValueError(f"the best of {k} needs {k} episodes a task, not {episodes}")
    shares = [math.comb(at, k - 1) / math.comb(episodes, k) for at in range(episodes)]
    tasks = [sorted(values[start : start + episodes]) for start in range(0, len(values), episodes)]
    return sum(share * value for task in tasks for share, value in zip(shares, task, strict=True)) / len(tasks)


READABLE = "readable"
"""Metric by which an environment says if a reply could be read (1) or not (0); `readable/ROLE` too."""


def readable_share(logs: Iterable[Log | None]) -> float | None:
    """Returns the share of replies that an environment could read; None if it notes no metric `readable`."""
    values = [
        event.value
        for log in logs
        for event in (log.events if log else ())
        if isinstance(event, Noted) and event.name.partition("/")[0] == READABLE
    ]
    return sum(values) / len(values) if values else None


def wilson(share: float, trials: int) -> tuple[float, float]:
    """Returns the 95 % Wilson interval of a share.

    Args:
        share: successes / trials, or a mean over trials of values in [0, 1].
        trials: at least 1.
    """
    middle = share + Z95**2 / (2 * trials)
    half = Z95 * math.sqrt(share * (1 - share) / trials + Z95**2 / (4 * trials**2))
    scale = 1 + Z95**2 / trials
    return max(0.0, min(share, (middle - half) / scale)), min(1.0, max(share, (middle + half) / scale))  # rounding


def evaluate_team(
    environment: Environment,
    team: Team,
    engine: Engine,
    *,
    split: Split = "validation",
    tasks: int = 200,
    sampled: int = 0,
    sampling: Sampling = Sampling(),  # noqa: B008  (frozen)
    seed: int = 0,
    seats: Seats | None = None,
    recall: Recall | None = None,
    votes: int = 1,
    max_dropped_share: float = 0.2,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Plays the first `tasks` tasks of a split, and returns the team's results.

    Args:
        sampled: episodes a task at the sampling's temperature; 0: one, greedy.
        seed: of sampling.
        seats: roles that no policy plays.
        recall: memory, which playing does not change.
        votes: replies drawn at every question, at the sampling's temperature; what most of them say is the answer.
        max_dropped_share: of the episodes, that may be lost to faults; those that are count as not solved.
        progress: called with (tasks done, tasks).

    Raises:
        ConfigError: the split has fewer tasks, or none are asked for.
        RolloutError: more were lost: it would measure the engine, not the team.
    """
    for name, value, least in (("tasks", tasks, 1), ("votes", votes, 1), ("sampled", sampled, 0)):
        if value < least:
            raise ConfigError(f"{name} = {value}; it is at least {least}")
    count = environment.count(split)
    if count is not None and count < tasks:
        raise ConfigError(f"the {split} split has {count} tasks, not {tasks}; ask for fewer")
    if not sampled and votes == 1:
        sampling = replace(sampling, temperature=0.0, top_p=1.0)
    play = Play(environment, team, engine, seed=seed, step=-1, sampling=sampling, seats=seats, recall=recall,
                votes=votes)  # fmt: skip
    episodes = max(1, sampled)
    chunk = max(1, environment.side_by_side // episodes)

    kinds: list[str] = []
    contents: set[str] = set()

    async def parts() -> list[Log | None]:
        logs: list[Log | None] = []
        for start in range(0, tasks, chunk):
            drawn = [play.task(split, index) for index in range(start, min(tasks, start + chunk))]
            kinds.extend(task.kind for task in drawn)
            contents.update(content_of(task) or task.id for task in drawn)
            logs += await _play_all(play, drawn, episodes)
            if progress:
                progress(len(kinds), tasks)
        return logs

    logs = drive(parts())
    lost = logs.count(None)
    if lost > max_dropped_share * len(logs):
        raise RolloutError(
            f"{lost} of {len(logs)} {split} episodes were lost to faults ({dict(play.budget.dropped)}), more than "
            f"train.max_dropped_share = {max_dropped_share:g}{play.budget.often()}"
        )
    return replace(_summary(split, tuple(kinds), sampled, logs, play), distinct=len(contents))


async def _play_all(play: Play, tasks: Sequence[Task], episodes: int) -> list[Log | None]:
    async def one(task: Task, episode: int) -> Log:
        cursor = play.start(task, episode)
        await play.run(cursor)
        return cursor.log

    played = await play.together(*(one(task, episode) for task in tasks for episode in range(episodes)))
    return [None if isinstance(log, Unavailable) else log for log in played]


def _summary(split: Split, kinds: tuple[str, ...], sampled: int, logs: list[Log | None], play: Play) -> Evaluation:
    kept = [log for log in logs if log is not None]
    limit = max((log.turns for log in kept), default=0)
    solved = [log is not None and log.solved for log in logs]
    success = sum(solved) / len(solved)
    low, high = wilson(success, len(kinds))
    outcomes: dict[str, int] = {"dropped": len(logs) - len(kept)} if len(kept) < len(logs) else {}
    rewards: dict[str, float] = {}
    for log in kept:
        assert log.outcome is not None, "an episode that was played to its end has one"
        outcomes[log.outcome.reason] = outcomes.get(log.outcome.reason, 0) + 1
        for name, total in log.rewards().items():
            rewards[name] = rewards.get(name, 0.0) + total / len(kept)
    last = [
        {event.name: event.value for event in log.events if isinstance(event, Noted)} if log else {} for log in logs
    ]
    budget = play.budget
    return Evaluation(
        split=split,
        tasks=len(kinds),
        sampled=sampled,
        success=success,
        success_low=low,
        success_high=high,
        turns=sum(log.turns if log is not None and log.solved else limit for log in logs) / len(logs),
        rewards=rewards,
        truncated={role: budget.truncated[role] / budget.replies[role] for role in sorted(budget.replies)},
        outcomes=outcomes,
        dropped=len(logs) - len(kept),
        tokens=budget.sampled_tokens / len(logs),
        solved=tuple(solved),
        noted={
            name: tuple(rewards.get(name, 0.0) for rewards in last)
            for name in sorted({name for rewards in last for name in rewards})
        },
        kinds=kinds,
        logs=tuple(logs),
    )
