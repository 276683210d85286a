"""The training loop. It does not depend on a particular algorithm, environment or model."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from coterie import ram
from coterie.checks.rehearsal import rehearse
from coterie.config.resolve import load_config
from coterie.config.settings import Config
from coterie.config.toml import flags
from coterie.errors import CheckpointError, ConfigError, EngineError, EnvError, LearnerLost, RolloutError, UpdateError
from coterie.kernel.cursor import PlayBug
from coterie.kernel.environment import Environment, Split
from coterie.kernel.group import Group
from coterie.kernel.mistakes import task_of
from coterie.kernel.safe import command, tell
from coterie.kernel.team import count_tasks, route
from coterie.kernel.tracker import Tracker
from coterie.run.credit import credited
from coterie.run.evaluate import evaluate_team
from coterie.run.exactness import exactness
from coterie.run.files import check_free, new_folder, set_aside
from coterie.run.folder import Run
from coterie.run.garbage import light_collection
from coterie.run.interrupts import Interrupts, Stop
from coterie.run.metrics import (
    add_budget,
    evaluation_metrics,
    memory_metrics,
    rollout_metrics,
    selection_metrics,
    step_times,
    update_metrics,
)
from coterie.run.plan import check_fits
from coterie.run.policies import pinned
from coterie.run.precision import precise
from coterie.run.records import Played, Progress
from coterie.run.rollout import Rollout, check_versions, step_tasks
from coterie.run.room import GB, Room
from coterie.run.trackers import Trackers, of_config
from coterie.run.weights import TeamModels
from coterie.seeds import seed_of

if TYPE_CHECKING:
    from coterie.memory.recall import Recall

LOSSES = 3
"""Number of times in a row that the learner's process ends after the same checkpoint until the run ends too."""


def train(
    config: Config | str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    *,
    resume: str | Path | None = None,
    anyway: bool = False,
    trackers: Sequence[Tracker] | None = None,
    model: str | None = None,
    kind: str | None = None,
    algorithm: str | None = None,
    lr: float | None = None,
    steps: int | None = None,
) -> Run:
    """Trains a team and returns the run.

    Args:
        config: a loaded config, or any source that `load_config` accepts; None: the config of the run to resume.
        out: the new run folder, which must not exist yet; None: a new folder under runs/.
        resume: the folder of a run to continue, instead of out; its config must equal `config`, except for settings
            that do not affect the steps made so far: `train.steps`, `train.stop_when_solved`, `train.stop_dead_steps`,
            `train.ranks`, `[runtime]`, trackers, and the limits of servers. A run that has ended early goes on if
            `train.steps` is raised.
        anyway: resume even if the result cannot be exact, and record this in the run.
        trackers: trackers that get the metrics, in addition to metrics.jsonl and the trackers of the config; None:
            the display in a notebook, and no further trackers elsewhere.
        model, kind, algorithm, lr, steps: settings of a source that is not loaded yet, as the options of
            `coterie train`: `policies.*.model`, `policies.*.kind`, `algorithm.name`, `optimizer.lr` and `train.steps`.

    Raises:
        CoterieError: the message is one line that says what to do.
        KeyboardInterrupt: a signal stopped the run, which was saved.
    """
    if resume and out:
        raise ConfigError("a run goes on in its own folder; give resume or out, not both")
    if config is None:
        if resume is None:
            raise ConfigError("say what to train: settings, or a run to resume")
        config = Run.open(Path(resume)).config
    given = flags({"model": model, "kind": kind, "algorithm": algorithm, "lr": lr, "steps": steps})
    if isinstance(config, Config) and given:
        raise ConfigError("a loaded config has its settings; give model, kind, algorithm, lr and steps to load_config")
    config = config if isinstance(config, Config) else load_config(config, given)
    named = of_config(config)
    folder, lost, there = Path(resume or out or new_folder(config.names["environment"])), 0, -1
    with Interrupts(config.train.grace_s) as interrupts:
        interrupts.beginning = True
        while True:
            opened = _continue(folder, config, anyway) if resume or lost else _begin(folder, config)
            try:
                return _trained(opened, config, interrupts, partial(Trackers, named=named, more=trackers))
            except LearnerLost as error:  # the run goes on by itself from its last checkpoint
                if not (folder / "config.toml").exists():  # it had not begun
                    raise
                saved = max(Run(folder).checkpoints.steps(), default=0)
                lost = lost + 1 if saved == there else 1
                if lost == LOSSES:
                    raise LearnerLost(f"{error}, {LOSSES} times after step {saved}; look at its memory") from error
                there, interrupts.whole = saved, True
                tell(f"{error}; going on after step {saved}")


def _trained(
    opened: AbstractContextManager[tuple[Run, TeamModels, Progress]],
    config: Config,
    interrupts: Interrupts,
    trackers: Callable[[Run, Config], Trackers],
) -> Run:
    """Trains a run to its end. What stops it is raised again, after the run was saved as of its last whole step."""
    with opened as (run, models, progress), light_collection(), trackers(run, config) as told:
        try:
            _steps(run, models, progress, interrupts, told)
        except BaseException as error:  # the step that failed is lost, and none before it
            if isinstance(stop := interrupts.stop_of(error), Stop):
                with suppress(Stop):  # a scheduler may send the signal again
                    _save_whole(run, models, progress, interrupts, wanted=stop.save)
                raise Stop(f"{stop}; {_how_to_go_on(run)}", stop.number, save=False) from None
            with suppress(CheckpointError):  # what failed may have been writing itself
                _save_whole(run, models, progress, interrupts, wanted=progress.step > 0)
            raise
    return run


def _save_whole(run: Run, models: TeamModels, progress: Progress, interrupts: Interrupts, *, wanted: bool) -> None:
    """Saves the run after its last step, unless an update or a write was interrupted: the weights then fit no step."""
    there = run.checkpoints.steps()[-1:] == [progress.step] and progress.pending is None
    if wanted and interrupts.whole and not there:
        with interrupts.shielded():
            _save(run, models, progress)


def _how_to_go_on(run: Run) -> str:
    saved = run.checkpoints.steps()
    there = f"saved as of step {saved[-1]}" if saved else "nothing was trained yet"
    return f"{there}; go on with: {run.resume_command}"


def _steps(run: Run, models: TeamModels, progress: Progress, interrupts: Interrupts, told: Trackers) -> None:
    """Makes the steps until the last, or until a signal asks to stop. A pending validation comes first."""
    interrupts.beginning, saved = False, time.monotonic()
    while progress.pending is not None or not progress.over(models.config.train):
        if interrupts.number:
            if run.checkpoints.steps()[-1:] != [progress.step]:
                _save(run, models, progress)
            raise Stop(f"stopped after step {progress.step}", interrupts.number, save=False)
        if progress.pending is None:
            interrupts.busy = f"step {progress.step + 1}"
            _learn(run, models, progress, interrupts)
        else:
            interrupts.busy = f"the validation of step {progress.step}"
        late = time.monotonic() - saved > 60 * models.config.train.checkpoint_minutes
        if _conclude(run, models, progress, interrupts, told, save=late):
            saved = time.monotonic()


def _learn(run: Run, models: TeamModels, progress: Progress, interrupts: Interrupts) -> None:
    """Makes one rollout and its update; the metrics are pending until the step has been validated."""
    config, settings, algorithm = models.config, models.config.train, models.config.algorithm
    step, began = progress.step, time.perf_counter()
    rollout = _rollout(run, models, progress, step)
    collected, recall = rollout.played, rollout.recall
    staleness = check_versions(config, collected, step)
    all_groups = [group for task in collected for group in task.collected.groups]
    groups = algorithm.select(all_groups, Random(seed_of("select", settings.seed, step)))
    sampled = time.perf_counter()
    state = algorithm.start() if progress.credit is None else progress.credit
    earned, state = credited(algorithm, groups, state)
    experience = route(config.team, groups, earned, tasks=count_tasks(all_groups))
    trained = _as_trained(collected, groups, earned)
    with interrupts.shielded():
        models.engine.give_way()
        interrupts.whole = False
        try:
            learned = models.learner.update(experience, step, progress.spent(settings))
        except LearnerLost:
            raise
        except UpdateError as error:  # saves the episodes for inspection; a resumed run would sample the same ones
            interrupts.whole = error.untouched
            run.save_episodes(step + 1, trained)
            look = f"look at what spoilt it with: {command('play', run.folder, '--step', step + 1, '--tree')}"
            raise UpdateError(f"step {step + 1}: {error}; {look}", untouched=error.untouched) from error
        fault: Exception | None = None
        try:
            models.sync(step + 1)
        except Exception as error:  # the weights have changed anyway, so the step is still recorded
            fault = error
        add_budget(progress.budget, rollout.budget, learned)
        updated = time.perf_counter()
        line = {"step": step + 1, **rollout_metrics(trained, rollout.budget), **staleness}
        if recall:
            line |= _remember(config, progress, recall, collected)
        line |= selection_metrics(all_groups, groups) | update_metrics(experience, learned)
        line |= {f"budget/{name}": count for name, count in progress.budget.items()}
        progress.credit = state
        progress.dead_steps = 0 if line["groups/live"] else progress.dead_steps + 1
        progress.step, progress.pending = (
            step + 1,
            line | step_times(began, sampled, updated, rollout.budget, ahead=config.runtime.max_staleness > 0),
        )
        if step == 0 or progress.over(settings) or progress.step % settings.episodes_every == 0:
            run.save_episodes(progress.step, trained)
        interrupts.whole = True
        if fault:
            raise fault


def _conclude(
    run: Run, models: TeamModels, progress: Progress, interrupts: Interrupts, told: Trackers, *, save: bool
) -> bool:
    """Finishes a step after its update: validation and probe where they are due, the line of metrics, a checkpoint.

    Args:
        save: a checkpoint is due in any case.

    Returns:
        True if there is a checkpoint of this step.
    """
    settings, best = models.config.train, progress.best_step
    began, step, line = time.perf_counter(), progress.step, dict(progress.pending or {})
    last = progress.over(settings)
    if last or step % settings.eval_every == 0:
        line |= _validate(run, models, progress)
        last = progress.over(settings)  # a validation may end the run
    period = settings.eval_every * settings.mute_every
    if step and period and (step % period == 0 or progress.early(settings)):
        line |= _mute(run, models, progress)
    if "time/step" in line:
        line["time/step"] += time.perf_counter() - began
    with interrupts.shielded():
        told.log(line)
        progress.pending = None
    with interrupts.shielded():
        save = save or last or best != progress.best_step or step % settings.checkpoint_every == 0
        if save:
            _save(run, models, progress)
    return save


@contextmanager
def _begin(folder: Path, config: Config) -> Iterator[tuple[Run, TeamModels, Progress]]:
    check_free(folder)
    for remark in rehearse(
        config.environment, play_timeout_s=config.engine.play_timeout_s, horizon=config.algorithm.reach
    ):
        tell(remark)
    config = precise(pinned(config))
    check_fits(config)
    if aside := set_aside(folder):
        tell(f"{folder} held a run that failed in its first step; it is kept as {aside}")
    with closing(TeamModels(config, training=True, folder=folder)) as models:
        config = models.config
        weights = [weight.numel() for policy in models.trained.values() for weight in policy.model.trained]
        if (room := Room.of(weights, config.train.keep_checkpoints)).most > GB:
            tell(room.told(folder))
        made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        run, progress = Run.create(folder, config, exactness(config) | models.exactness()), Progress()
        try:
            with run.locked(), models, _failure_noted(run, progress):
                models.past.add(0, models.save)
                yield run, models, progress
        except (ConfigError, EnvError, EngineError):  # a mistake that shows in the first rollout leaves nothing behind
            if progress.step == 0 and not (folder / "answers").exists():  # paid answers of a server are kept
                shutil.rmtree(folder)
                with suppress(OSError):  # another process has put something there
                    for parent in made[1:]:
                        parent.rmdir()
            raise


@contextmanager
def _continue(folder: Path, config: Config, anyway: bool) -> Iterator[tuple[Run, TeamModels, Progress]]:
    run = Run.open(folder)
    config = precise(pinned(config, run.config), run.config)
    run.check_goes_on(config)
    with run.locked(), ExitStack() as closed, ExitStack() as reading:
        run.failed_file.unlink(missing_ok=True)
        run.checkpoints.recover()
        run.check_begun()
        checkpoint, progress = (
            reading.enter_context(run.checkpoints.reading()) if run.checkpoints.steps() else (None, Progress())
        )
        models = closed.enter_context(closing(TeamModels(config, checkpoint, training=True, folder=folder)))
        lines = progress.step + (progress.pending is None)
        run.check_exact(exactness(config) | models.exactness(), progress.step, lines=lines, anyway=anyway)
        if config.tables() != run.config.tables():
            run.change(config, progress.step)
        if progress.early(config.train) and run.steps_changed_at(progress.step):  # it is to go on all the same
            progress.dead_steps, progress.successes = 0, []
        run.rewind(progress.step, lines=lines)
        reading.close()
        with models, _failure_noted(run, progress):
            models.sync(progress.step)
            yield run, models, progress


@contextmanager
def _failure_noted(run: Run, progress: Progress) -> Iterator[None]:
    """Notes an error that ends a run in its first step in its folder, which then does not block the next try."""
    try:
        yield
    except LearnerLost:  # it goes on
        raise
    except Exception as error:
        if progress.step == 0:
            run.note_failure(error)
        raise


def _rollout(run: Run, models: TeamModels, progress: Progress, step: int) -> Rollout:
    """Plays the step's tasks with the algorithm's sampler."""
    config = models.config

    def recall(step: int) -> Recall | None:
        return _recall(config, progress, seed_of(config.train.seed, step), training=True)

    with _bugs_kept(run, config.environment, "train", step_tasks(config, step)):
        rollout = models.rollout(step, recall)
    ram.give_back()  # before the update takes as much
    tasks = len(rollout.played) + rollout.lost
    if rollout.lost > config.train.max_dropped_share * tasks:
        raise RolloutError(
            f"step {step + 1} lost {rollout.lost} of {tasks} tasks to faults ({dict(rollout.budget.dropped)})"
            f"{rollout.budget.often()}; go on with: {run.resume_command}"
        )
    return rollout


def _as_trained(
    collected: Sequence[Played], groups: Sequence[Group], earned: Sequence[tuple[float, ...]]
) -> list[Played]:
    """Returns the tasks with the weight and advantages that each group was trained with: 0 where it was not chosen."""
    trained = enumerate(zip(groups, earned, strict=True))
    chosen = {group.key: (place, group.weight, tuple(credit)) for place, (group, credit) in trained}

    def one_task(task: Played) -> Played:
        episodes = [
            (group, *chosen.get(group.key, (-1, 0.0, (0.0,) * len(group.members)))) for group in task.collected.groups
        ]
        weighed = tuple(replace(group, weight=weight) for group, _, weight, _ in episodes)
        places, credit = tuple(place for _, place, _, _ in episodes), tuple(credit for *_, credit in episodes)
        return replace(task, collected=replace(task.collected, groups=weighed), advantages=credit, places=places)

    return [one_task(task) for task in collected]


@contextmanager
def _bugs_kept(run: Run, environment: Environment, split: Split, indices: Iterable[int]) -> Iterator[None]:
    """Saves the log of the episode if `play` raises, and adds to the exception how to replay it."""
    try:
        yield
    except PlayBug as bug:
        index = next(index for index in indices if task_of(environment, split, index).id == bug.log.task)
        run.save_bug(split, index, bug.log)
        bug.add_note(f"Play the episode again up to there: {command('play', run.folder, '--bug')}")
        bug.add_note(f"When it is mended, go on from the last checkpoint: {run.resume_command} --anyway")
        raise


def _validate(run: Run, models: TeamModels, progress: Progress) -> dict[str, float]:
    """Measures plain greedy success on the validation tasks, and remembers the best so far."""
    config, began = models.config, time.perf_counter()
    tasks = config.train.eval_tasks
    with _bugs_kept(run, config.environment, "validation", range(tasks)), models.evaluated(progress.step):
        evaluation = evaluate_team(
            config.environment, config.team, models.engine, tasks=tasks, sampling=config.sampling(1.0),
            recall=_recall(config, progress), max_dropped_share=config.train.max_dropped_share,
        )  # fmt: skip
    if evaluation.success >= progress.best_success:  # a tie goes to the latest: the start is not best by chance
        progress.best_step, progress.best_success = progress.step, evaluation.success
    progress.validated(evaluation.success)
    return {**evaluation_metrics(evaluation), "time/eval": time.perf_counter() - began}


def _mute(run: Run, models: TeamModels, progress: Progress) -> dict[str, float]:
    """Returns metrics of what muting each role costs now, paired over validation tasks; none if it cannot be asked."""
    config = models.config
    if config.inert()["train"]:
        return {}
    from coterie.run.ablation import Ablation, Change

    line: dict[str, float] = {}
    tasks = config.train.mute_tasks
    asked = [role for role in config.team.roles if role not in config.environment.absent("validation")]
    with _bugs_kept(run, config.environment, "validation", range(tasks)), models.evaluated(progress.step):
        before, *after = [
            evaluate_team(
                config.environment, config.team, models.engine, tasks=tasks, sampling=config.sampling(1.0),
                seats=ablation.seats() if ablation else None, recall=_recall(config, progress),
                max_dropped_share=config.train.max_dropped_share,
            )
            for ablation in (None, *(Ablation("mute", (role,)) for role in asked))
        ]  # fmt: skip
    for role, evaluation in zip(asked, after, strict=True):
        line |= Change.between(f"mute {role}", before, evaluation).metrics(f"mute/{role}")
    return line


def _recall(config: Config, progress: Progress, seed: int = 0, *, training: bool = False) -> Recall | None:
    """Returns what roles remember now; None if they have no memory."""
    if config.memory.mode == "off":
        return None
    from coterie.memory.recall import Recall

    return Recall(progress.memory, config.memory, training, seed)


def _remember(config: Config, progress: Progress, recall: Recall, collected: Sequence[Played]) -> dict[str, float]:
    """Updates the memory once, after all rewards of the step are known. Returns its metrics."""
    from coterie.memory.evolve import evolve, told_by

    environment = config.environment
    episodes = [
        told_by(environment, recall, task_of(environment, task.split, task.index), log)
        for task in collected
        for log in task.collected.logs
    ]
    progress.memory, counts = evolve(progress.memory, episodes, config.memory)
    return memory_metrics(progress.memory, episodes, counts)


def _save(run: Run, models: TeamModels, progress: Progress) -> None:
    run.checkpoints.save(progress, models.write, models.config.train.keep_checkpoints)
    models.past.trim(run.checkpoints.steps())
