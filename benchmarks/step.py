"""The share of a step's time that the kernel takes, that is, everything except engine and learner.

It is measured at the size of the demo and with episodes of 64 decisions. The time of one fork at the last decision is
also measured, replayed from its own turn and from the beginning.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random
from statistics import median
from typing import Any

from coterie.bench import Say
from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.errors import Unavailable
from coterie.kernel.cursor import Cursor
from coterie.kernel.group import Group
from coterie.kernel.mistakes import task_of
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply, Scene
from coterie.kernel.team import route
from coterie.run.garbage import light_collection
from coterie.run.weights import TeamModels
from coterie_worlds.games.plan_path import Maze, PlanPath, map_view, progress, walk

STEPS = 6
DECISIONS = 64
FORKS = 300


class Wander(PlanPath):
    """plan_path that never ends before its last turn, for measuring long episodes."""

    async def play(self, task: Maze, scene: Scene) -> None:
        """Plays as plan_path does, but the goal is not the end."""
        state = scene.state(here=task.start)
        for _ in scene.turns(self.max_turns):
            here = state.here
            idea = await scene.ask("proposer", map_view(task, here), max_tokens=self.max_tokens)
            end, legal = walk(task, here, idea, self.max_moves)
            scene.reward("proposer", progress(task, here, end, legal, self.max_moves))
            answer = await scene.ask("planner", self.planner_sees(task, here, idea), max_tokens=self.max_tokens)
            end, legal = walk(task, here, answer, self.max_moves)
            scene.reward("planner", progress(task, here, end, legal, self.max_moves))
            state.here = end if end != task.goal else task.start


def run(say: Say) -> dict[str, Any]:
    """Returns the kernel's share of a step, median over steps, in percent, and the time of forks."""
    demo = load_config("configs/plan_path.toml")
    wander = Wander.model_validate({"max_turns": DECISIONS // 2})
    return {
        "demo_kernel_percent": _share(demo, demo.environment, STEPS, say),
        "decisions_64_kernel_percent": _share(demo, wander, 2, say),
        **_forks(wander),
    }


def _forks(environment: Wander) -> dict[str, float]:
    """Returns the microseconds of a fork at the last decision, medians of interleaved pairs."""
    task = environment.task("train", 0)
    whole, rng = Cursor(environment, task, 0), Random(0)

    async def play() -> None:
        while (point := await whole.advance()) is not None:
            ((role, prompt),) = point.asked.prompts.items()
            whole.answer({role: Reply(role, environment.demonstrate(role, task, str(prompt), rng))})

    asyncio.run(play())
    last = whole.fork(DECISIONS - 1)
    asyncio.run(last.advance())
    took: dict[str, list[float]] = {"fork_us": [], "fork_from_the_beginning_us": []}
    for _ in range(FORKS):
        pair = whole.fork(DECISIONS - 1), Cursor(environment, task, 0, recorded=last.events)
        for name, cursor in zip(took, pair, strict=True):
            began = time.perf_counter()
            with suppress(StopIteration):  # it waits for nothing
                cursor.advance().send(None)
            took[name].append(1e6 * (time.perf_counter() - began))
    return {name: round(median(times), 1) for name, times in took.items()}


def _share(config: Config, environment: PlanPath | Any, steps: int, say: Say) -> float:
    models = TeamModels(config)
    models.engine.open()
    with light_collection():
        shares = [_step(config, environment, models, step, say) for step in range(steps)]
    return round(median(shares), 1)


def _step(config: Config, environment: PlanPath | Any, models: TeamModels, step: int, say: Say) -> float:
    began = time.perf_counter()
    play = Play(environment, config.team, models.engine, seed=0, step=step, sampling=models.config.sampling(1.0))

    groups: list[Group] = []

    async def collect() -> None:
        rng = Random(step)
        tasks = [task_of(environment, "train", rng.randrange(1 << 30)) for _ in range(config.train.tasks_per_step)]
        for collected in await play.together(*(config.algorithm.collect(play, task) for task in tasks)):
            assert not isinstance(collected, Unavailable)
            groups.extend(collected.groups)

    asyncio.run(collect())
    experience = route(config.team, groups, config.algorithm.credit(groups, {})[0])
    learning = time.perf_counter()
    models.learner.update(experience, step)
    ended = time.perf_counter()
    kernel = (learning - began) - play.budget.engine_s
    share = 100 * kernel / (ended - began)
    say(f"step {step + 1}: {ended - began:.2f} s, kernel {share:.1f} %")
    return share
