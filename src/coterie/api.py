"""The Python API behind the command line: evaluate and load. `train` is in `train.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from coterie.config import Config
from coterie.crew import Crew
from coterie.environment import Split
from coterie.episode import Log, text_of
from coterie.errors import ConfigError
from coterie.evaluate import Evaluation, evaluate_team
from coterie.play import Play
from coterie.runs import Run
from coterie.scene import Reply


class Loaded:
    """A run's team at one of its checkpoints.

    Args: run: the folder. step: which checkpoint; None: the best by validation.
    Raises: CheckpointError: no run, no such checkpoint, or a damaged one.
    """

    def __init__(self, run: Run, step: int | None = None) -> None:
        self.run = run
        self.config: Config = run.config
        if step is None:
            _, latest = run.read_checkpoint()
            step = latest.best_step
        folder, self.progress = run.read_checkpoint(step)
        self.crew = Crew(self.config, folder)

    def evaluate(
        self,
        split: Split = "test",
        *,
        tasks: int | None = None,
        sampled: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """Plain play on held-out tasks; see `evaluate_team`."""
        settings = self.config.eval
        return evaluate_team(
            self.config.environment,
            self.config.team,
            self.crew.engine,
            split=split,
            tasks=tasks or settings.tasks,
            sampled=sampled,
            sampling=self.crew.sampling(settings.temperature, settings.top_p),
            seed=self.config.train.seed,
            progress=progress,
        )

    def play(
        self,
        split: Split = "validation",
        index: int = 0,
        *,
        temperature: float = 0.0,
        seats: Mapping[str, Callable[[str], str]] | None = None,
    ) -> Log:
        """One plain episode.

        Args: temperature: 0 is greedy. seats: roles played by a function of the prompt, a person's say.
        Raises: ConfigError: a seat is no role.
        """
        taken = dict(seats or {})
        for role in taken:
            if role not in self.config.team.roles:
                raise ConfigError(f"unknown role '{role}'; the roles are {', '.join(self.config.team.roles)}")
        play = Play(
            self.config.environment,
            self.config.team,
            self.crew.engine,
            seed=self.config.train.seed,
            sampling=self.crew.sampling(temperature),
        )
        cursor = play.start(self.config.environment.task(split, index))

        async def drive() -> None:
            while (point := await cursor.advance()) is not None:
                answers = await play.ask(cursor, point)
                replies = {role: sample.reply() for role, (sample,) in answers.items()}
                for role in taken.keys() & replies.keys():
                    replies[role] = Reply(role, taken[role](text_of(point.asked.prompts[role])))
                cursor.answer(replies)

        asyncio.run(drive())
        return cursor.log


def load(run: str | Path, step: int | None = None) -> Loaded:
    """A run's team, at its best checkpoint by validation, or at a given step."""
    return Loaded(Run.open(Path(run)), step)


def evaluate(
    run: str | Path,
    split: Split = "test",
    *,
    step: int | None = None,
    tasks: int | None = None,
    sampled: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """What a run's team achieves on held-out tasks, greedy or sampled."""
    return load(run, step).evaluate(split, tasks=tasks, sampled=sampled, progress=progress)
