"""One step's rollout: its tasks, played with the algorithm's sampler, in this process or a worker's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from coterie.config.settings import Config
from coterie.errors import ConfigError, EngineError, Unavailable
from coterie.kernel.engine import Engine
from coterie.kernel.environment import Environment
from coterie.kernel.front import Budget
from coterie.kernel.group import Collected
from coterie.kernel.loops import drive
from coterie.kernel.play import Play
from coterie.run.records import Played
from coterie.seeds import seed_of

if TYPE_CHECKING:
    from coterie.memory.recall import Recall

Recalls: TypeAlias = "Callable[[int], Recall | None]"
"""A function from a step to what roles remember in its rollout."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Results of a step's tasks. lost: tasks that met a fault. recall: memory, as the prompts were told it."""

    played: tuple[Played, ...]
    lost: int
    budget: Budget
    recall: Recall | None

    @classmethod
    def whole(cls, parts: Sequence[Rollout]) -> Rollout:
        """Returns shares of one step's tasks as one rollout, in the order of their tasks' places."""
        first = parts[0]
        for part in parts[1:]:
            _add(first.budget, part.budget)
            if first.recall and part.recall:
                first.recall.join(part.recall)
        return cls(
            tuple(task for part in parts for task in part.played),
            sum(part.lost for part in parts),
            first.budget,
            first.recall,
        )


def task_index(environment: Environment, seed: int, position: int, tasks_per_step: int) -> int:
    """Returns the index of the train task at a position of a run: fresh ones for ever, or shuffled epochs.

    An epoch is whole steps long, so no step holds a task twice.
    """
    count = environment.count("train")
    if count is None:
        return (seed << 32) + position
    epoch, place = divmod(position, count - count % tasks_per_step)
    order = list(range(count))
    Random(seed_of("epoch", seed, epoch)).shuffle(order)
    return order[place]


def step_tasks(config: Config, step: int) -> list[int]:
    """Returns the indices of the train tasks of a step."""
    settings, count = config.train, config.train.tasks_per_step
    places = range(step * count, (step + 1) * count)
    return [task_index(config.environment, settings.seed, place, count) for place in places]


def play_tasks(
    config: Config,
    engine: Engine,
    step: int,
    indices: Sequence[int],
    recall: Recall | None,
    *,
    trial: bool = False,
) -> Rollout:
    """Plays train tasks of a step, and returns their rollout.

    Args:
        trial: an episode ends before a call with an external effect.

    Raises:
        ConfigError: the algorithm collects something else than `Collected`.
        PlayBug: an environment's `play` raised.
    """
    play = Play(config.environment, config.team, engine, seed=config.train.seed, step=step,
                sampling=config.sampling(), recall=recall, trial=trial)  # fmt: skip

    async def collect() -> list[Collected | Unavailable]:
        tasks = [play.task("train", index) for index in indices]
        return await play.together(*(config.algorithm.collect(play, task) for task in tasks))

    outcomes = drive(collect())
    kept = [(i, outcome) for i, outcome in zip(indices, outcomes, strict=True) if not isinstance(outcome, Unavailable)]
    for _, outcome in kept:
        if not isinstance(outcome, Collected):
            raise ConfigError(
                f"{type(config.algorithm).__name__}.collect gave {outcome!r:.80}; return a coterie.Collected"
            )
    played = tuple(Played("train", index, outcome) for index, outcome in kept)
    return Rollout(played, len(outcomes) - len(kept), play.budget, recall)


def check_versions(config: Config, played: Sequence[Played], step: int) -> dict[str, float]:
    """Refuses samples of too old weights, and returns metrics of how many training steps weights were behind.

    Returns:
        metrics, where weights may be behind at all.

    Raises:
        EngineError: an engine answered with weights older than `runtime.max_staleness` allows.
    """
    bound, learns = config.runtime.max_staleness, set(config.team.trained)
    samples = {
        sample.seed: sample
        for task in played for group in task.collected.groups for member in group.members for sample in member.samples
        if sample.policy in learns and not sample.silent
    }.values()  # fmt: skip
    behind = [step - sample.version for sample in samples]
    for sample, steps in zip(samples, behind, strict=True):
        if not 0 <= steps <= bound:
            raise EngineError(
                f"step {step + 1} holds a sample of policy '{sample.policy}' by weights of step {sample.version}, and "
                f"runtime.max_staleness = {bound}; the engine answered with weights that are not the run's"
            )
    return {"rollout/staleness": fmean(behind), "rollout/staleness_max": max(behind)} if bound and behind else {}


def _add(budget: Budget, more: Budget) -> None:
    """Adds the budget of a rollout that ran beside: all of it was spent, at the same time."""
    for name in (field.name for field in fields(Budget)):
        mine, theirs = getattr(budget, name), getattr(more, name)
        setattr(budget, name, max(mine, theirs) if name == "engine_s" else mine + theirs)
