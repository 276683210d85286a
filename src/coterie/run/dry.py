"""A dry run: one tiny step with the run's own models, to compare what it takes with the plan. Nothing is kept."""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from coterie.checks.rehearsal import rehearse
from coterie.config.settings import Config
from coterie.kernel.loops import drive
from coterie.kernel.play import Play
from coterie.run.asked import RecordingEngine
from coterie.run.folder import Run
from coterie.run.measured import graded
from coterie.run.plan import CONTEXT, Plan, plan, process_bytes, with_optimizer
from coterie.run.policies import pick_device, pinned
from coterie.run.precision import precise
from coterie.run.weights import TeamModels

TASKS = 2
"""Number of tasks of a dry run's tiny step."""
UPDATES = 2
"""Number of updates of a dry run's tiny step: the optimizer's averages are made in the first."""
STILL = 1e-12
"""A learning rate by which no weight moves, so that the second update still fits what was sampled."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Memory and time that the tiny step of a dry run took, beside what was planned.

    plans: of this step, a device each. measured: bytes at the peak, in the same order. rollout_s, update_s: seconds.
    """

    tasks: int
    plans: tuple[Plan, ...]
    measured: tuple[int, ...]
    rollout_s: float
    update_s: float


def resolved(config: Config, old: Run | None = None) -> Config:
    """Returns a run's config as the run would keep it, after every check that needs no model.

    Args:
        old: the run that would go on.

    Raises:
        CoterieError: what would stop the run at its beginning.
    """
    before = old.config if old else None
    config = precise(pinned(config, before, keep=False), before)
    if old:
        old.check_goes_on(config)
    pick_device(config.train.device)
    remarks = rehearse(config.environment, play_timeout_s=config.engine.play_timeout_s, horizon=config.algorithm.reach)
    return replace(config, remarks=(*config.remarks, *remarks))


def dry_run(config: Config, tasks: int = TASKS, progress: Callable[[str], None] = lambda _: None) -> DryRun:
    """Plays one rollout of a few tasks, and makes two updates as if every reply had taught something.

    The second update is there because the optimizer's averages are only made in the first. What would change the world
    is not done: an episode ends before it.

    Args:
        tasks: of the tiny step, at most those of a step.
        progress: called with what is done next, before it is done.

    Raises:
        CoterieError: what would stop the run at its beginning.
    """
    settings, process = config.train, process_bytes()
    tasks = min(tasks, settings.tasks_per_step)
    train = settings.model_copy(update={"tasks_per_step": tasks, "eval_tasks": tasks})
    config = replace(config, train=train, eval=config.eval.model_copy(update={"tasks": tasks}))
    progress("loading the models")
    models = TeamModels(with_optimizer("lr", STILL)(config), training=True)
    with models:
        engine = RecordingEngine(models.engine, tasks)
        sampling = config.sampling()
        play = Play(config.environment, config.team, engine, seed=settings.seed, sampling=sampling, trial=True)
        progress(f"sampling {tasks} {'task' if tasks == 1 else 'tasks'}")
        began = time.perf_counter()
        drive(_collected(config, play, tasks))
        sampled = time.perf_counter()
        experience = {name: graded(engine.asked.samples.get(name, [])) for name in config.team.trained}
        for step in range(UPDATES):
            progress(f"updating, {step + 1} of {UPDATES}")
            models.learner.update(experience, step)
        updated = time.perf_counter()
        models.sync(1)
    plans = tuple(plan(models.config, asked=engine.asked, process=process))
    measured = tuple(_peak(one) for one in plans)
    return DryRun(tasks, plans, measured, sampled - began, (updated - sampled) / UPDATES)


async def _collected(config: Config, play: Play, tasks: int) -> None:
    chosen = [play.task("train", index) for index in range(tasks)]
    await play.together(*(config.algorithm.collect(play, task) for task in chosen))


def _peak(plan: Plan) -> int:
    if plan.machine.kind == "cuda":
        return int(torch.cuda.max_memory_reserved(plan.device) + CONTEXT)
    return resident()


def resident() -> int:
    """Returns the peak memory of this process so far, in bytes.

    On Linux by its own address space: `getrusage` begins with what the process had that started this one.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    if own := re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE):
        return int(own[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
