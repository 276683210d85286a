"""Recomputes one update of a run from its saved episodes, without playing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from coterie.config.settings import Config
from coterie.errors import CheckpointError
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group
from coterie.kernel.team import Graded, Team, count_tasks, route
from coterie.run.exactness import exactness
from coterie.run.files import check_free
from coterie.run.folder import Run
from coterie.run.metrics import update_metrics
from coterie.run.records import Played
from coterie.run.weights import TeamModels


@dataclass(frozen=True, slots=True)
class Updated:
    """Result of an update that was made again.

    metrics: of the update, by the names of docs/metrics.md. differs: what is not the run's own, by name: a policy's
    weights, where the run has a checkpoint of that step, and metrics; empty: equal to the bit. compared: with which.
    """

    step: int
    metrics: Mapping[str, float]
    compared: str
    differs: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"step {self.step} once more, from its episodes:"]
        lines += [f"  {name}: {value:g}" for name, value in self.metrics.items() if name.startswith("policy/")]
        if not self.metrics and not self.differs:
            lines.append("nothing was trained in this step, then and now")
        elif self.differs:
            lines.append(f"not what the run did: {', '.join(self.differs)} ({self.compared} compared)")
        else:
            lines.append(f"equal to the bit to what the run did ({self.compared} compared)")
        return "\n".join(lines)


def update(run: Run | str | Path, step: int, out: Path | None = None) -> Updated:
    """Repeats one update of a run, from the weights of the previous step and the saved rollout of this step.

    Args:
        run: a run or its folder.
        step: the step to repeat.
        out: a folder for the weights and optimizer states, as in a checkpoint; None: they are discarded.

    Raises:
        CheckpointError: the step's episodes or the previous checkpoint were not kept, or the environment files,
            models or versions that they depend on have changed.
        UpdateError: the update gives numbers that are not finite, or the log-probabilities of engine and learner differ
            by more than `train.max_mismatch`.
    """
    run = run if isinstance(run, Run) else Run.open(Path(run))
    if out is not None:
        check_free(out)
    played = run.episodes(step)
    whole = [begun for begun in run.checkpoints.steps() if run.checkpoints.goes_on(begun)]
    if step - 1 not in whole:
        there = ", ".join(str(begun + 1) for begun in whole if begun + 1 in run.saved_episodes())
        raise CheckpointError(
            f"{run.folder} has no checkpoint with optimizers of step {step - 1}, where step {step} began; what can be "
            f"made again: {there or 'nothing'} (train.checkpoint_every, keep_checkpoints and episodes_every say which)"
        )
    config = _as_of(run, step)
    with run.checkpoints.reading(step - 1) as (checkpoint, before):
        models = TeamModels(config, checkpoint, training=True)
    with closing(models.learner) as learner:
        here = exactness(config) | models.exactness()
        rests = {name: pair for name, pair in run.differences(here).items() if name not in ("environment", "config")}
        if rests:
            said = "; ".join(f"{name} {was}, here {now}" for name, (was, now) in rests.items())
            raise CheckpointError(f"{run.folder} cannot be made again exactly: it was run with {said}")
        experience = experience_of(config.team, played)
        learned = learner.update(experience, step - 1, before.spent(config.train))
        metrics = update_metrics(experience, learned)
        if out is not None:
            models.write(out)
        compared, differs = _compared(run, step, models, metrics)
        return Updated(step, metrics, compared, differs)


def experience_of(team: Team, played: Sequence[Played]) -> dict[str, list[Graded]]:
    """Returns each policy's experience of a saved step, as it was trained."""
    same: dict[Sample, Sample] = {}
    saved = [
        (place, _with(group, same), earned)
        for entry in played
        for group, earned, place in zip(entry.collected.groups, entry.advantages, entry.places, strict=True)
    ]
    trained = sorted((entry for entry in saved if entry[0] >= 0), key=lambda entry: entry[0])
    return route(
        team,
        [group for _, group, _ in trained],
        [earned for *_, earned in trained],
        tasks=count_tasks([group for _, group, _ in saved]),
    )


def _with(group: Group, same: dict[Sample, Sample]) -> Group:
    """Returns a group whose samples are the same objects in every group: one that stands in several is trained once."""
    members = (
        replace(member, samples=tuple(same.setdefault(sample, sample) for sample in member.samples))
        for member in group.members
    )
    return replace(group, members=tuple(members))


def _as_of(run: Run, step: int) -> Config:
    """Returns the run's config with the number of steps that its schedule ran over at a step."""
    config = run.config
    changes = [change for change in run.about().get("steps_changed", ()) if change["step"] >= step]
    if not changes:
        return config
    return replace(config, train=config.train.model_copy(update={"steps": changes[0]["from"]}))


def _compared(run: Run, step: int, models: TeamModels, metrics: Mapping[str, float]) -> tuple[str, tuple[str, ...]]:
    """Returns the name of what an update was compared with, and the names of what differs."""
    line = next((line for line in run.metrics() if line["step"] == step), {})
    told = dict.fromkeys([*metrics, *(name for name in line if name.startswith("policy/"))])
    differs = [name for name in told if line.get(name) != metrics.get(name)]
    if step not in run.checkpoints.steps():
        return "metrics", tuple(differs)
    with run.checkpoints.reading(step) as (folder, _):
        for name, policy in models.trained.items():
            theirs = policy.model.saved(folder / "policies" / name)
            mine = models.learner.weights(name)
            if not all(torch.equal(mine[key].cpu(), value) for key, value in theirs.items()):
                differs.insert(0, f"weights of {name}")
    return "weights and metrics", tuple(differs)
