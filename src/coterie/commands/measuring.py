"""The command `coterie eval`: a team on held-out tasks, before training or after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.commands import AsJson, Sets, Trust, team_of, terminal, trusted
from coterie.commands.untrained import EvalOptions, evaluate_config, names_config, played_by
from coterie.errors import nearest
from coterie.report.evaluation import evaluation_json, evaluation_text
from coterie.report.output import kept_for_json, say

if TYPE_CHECKING:
    from coterie.run.ablation import Ablation
    from coterie.run.loaded import Loaded


MODES = ("off", "on", "placebo")
"""Values of --memory."""


def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|CONFIG",
            help="A run folder; or a TOML file, an environment's name or FILE.py:Class: its team before training.",
        ),
    ],
    sets: Sets = None,
    model: Annotated[
        str | None, typer.Option(help="Of a CONFIG: the model that its policies begin with, a folder or id.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="train, validation or test. Default: test; of a CONFIG: validation.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint. Default: the best by validation.")] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Number of tasks. Default: eval.tasks; of a CONFIG: 32.")
    ] = None,
    sampled: Annotated[
        int,
        typer.Option(
            min=0,
            help="Episodes per task at eval.temperature; 0: one greedy. Of a CONFIG: besides a greedy one, at "
            "train.temperature.",
        ),
    ] = 0,
    mute: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="Also measure with this role silent. May be repeated.")
    ] = None,
    swap: Annotated[
        list[str] | None, typer.Option(metavar="ROLE,ROLE", help="Also measure with two roles' policies exchanged.")
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=base|RUN", help="Also measure with a role's initial policy or another run's."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="MODE", help="Memory: on, off or placebo. Default: as in the run.")
    ] = None,
    votes: Annotated[
        int, typer.Option(min=1, help="Replies sampled per prompt; the majority reply is used. 1: no vote.")
    ] = 1,
    data: Annotated[
        str | None, typer.Option(help="Test on other data: a file, hub:owner/name, or the name of a benchmark.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Also write the episodes to this file: .json for Inspect, .jsonl for verifiers.")
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Measure a team on held-out tasks, without branching. Example: coterie eval RUN --mute proposer"""
    from coterie.errors import ConfigError
    from coterie.kernel.mistakes import check_split
    from coterie.run.folder import Run

    trusted(trust)
    untrained = names_config(target)
    split = split or ("test" if data is not None or not untrained else "validation")
    check_split(split, "--split")
    run = Path(target)
    if untrained:
        _check_untrained(target, step, replace, memory, votes)
    elif sets or model is not None:
        option = "--set" if sets else "--model"
        raise ConfigError(f"{option} is for a config, before training; {target} is a run, which has its own settings")
    if memory not in (None, *MODES):
        raise ConfigError(f"--memory {memory}: unknown{nearest(memory, MODES)}; it is {', '.join(MODES)}")
    ablations = _ablations({"mute": mute, "swap": swap, "replace": replace}, votes)
    if data is not None and split != "test":
        raise ConfigError(f"--data {data} replaces the test tasks; leave --split {split} out")
    measured = EvalOptions(split, tasks, sampled, ablations, data, log)  # pyright: ignore[reportArgumentType]
    if untrained:
        evaluate_config(played_by(target, sets or (), model), target, measured, as_json=as_json)
        return
    config = Run.open(run).config  # before torch is loaded, which takes seconds
    for ablation in ablations:
        ablation.check(config.team, config.environment.absent(split))  # pyright: ignore[reportArgumentType]
    _evaluate_run(run, step, measured, memory, votes, as_json=as_json)


def _ablations(asked: Mapping[str, Sequence[str] | None], votes: int) -> list[Ablation]:
    """Returns the ablations that options ask for. Raises ConfigError: one is malformed, or replies are voted on."""
    from coterie.errors import ConfigError
    from coterie.run.ablation import Ablation

    if votes > 1 and any(asked.values()):
        raise ConfigError("--votes measures the team as it is; ask for --mute, --swap and --replace without it")
    return [Ablation.parse(kind, text) for kind, texts in asked.items() for text in texts or ()]  # pyright: ignore[reportArgumentType]


def _evaluate_run(
    run: Path, step: int | None, wanted: EvalOptions, memory: str | None, votes: int, *, as_json: bool
) -> None:
    """Plays tasks with a trained team, and prints the results."""
    from coterie.report.logs import Held, writer
    from coterie.run.evaluate import at_k

    split, sampled, log = wanted.split, wanted.sampled, wanted.log
    write = writer(log) if log is not None else None
    loaded, console = team_of(run, step), terminal(stderr=True)
    for remark in (*(loaded.use(wanted.data) if wanted.data is not None else ()), *_doubts(loaded)):
        console.print(remark, markup=False, highlight=False, soft_wrap=True)
    if memory is not None:
        loaded.remember(memory)  # pyright: ignore[reportArgumentType]
    with kept_for_json(as_json), console.status("playing") as status:

        def progress(done: int, total: int) -> None:
            status.update(f"played {done} of {total} tasks")

        if votes > 1:
            evaluation = loaded.evaluate(split, tasks=wanted.tasks, sampled=sampled, votes=votes, progress=progress)
            changes = []
        else:
            evaluation, changes = loaded.compare(
                wanted.ablations, split, tasks=wanted.tasks, sampled=sampled, progress=progress
            )
    console.print(f"played by the checkpoint of step {loaded.progress.step}")
    if write is not None and log is not None:
        name, roles = loaded.config.names["environment"], loaded.config.team.roles
        write(log, Held(name, str(run), loaded.progress.step, loaded.config.environment, roles, evaluation))
        console.print(f"episodes: {log}", markup=False, highlight=False)
    passed = {k: at_k(evaluation.solved, sampled, k) for k in (1, 3, 5, 10) if k <= sampled}
    say((evaluation_json if as_json else evaluation_text)(evaluation, changes, passed, votes))


def _doubts(loaded: Loaded) -> Iterator[str]:
    """Yields a warning if the tasks of a team's environment are not what they must be."""
    from coterie.checks.rehearsal import LIMIT_S
    from coterie.checks.splits import wrong_tasks
    from coterie.kernel.watchdog import Watch

    if wrong := wrong_tasks(loaded.config.environment, Watch(loaded.config.engine.play_timeout_s), limit_s=LIMIT_S):
        yield f"warning: {wrong}"


def _check_untrained(target: str, step: int | None, replace: list[str] | None, memory: str | None, votes: int) -> None:
    """Raises ConfigError: an option needs a run, and this is a config."""
    from coterie.errors import ConfigError

    given = {
        "--step": step is not None,
        "--replace": bool(replace),
        "--memory": memory is not None,
        "--votes": votes > 1,
    }
    for option, there in given.items():
        if there:
            raise ConfigError(f"{option} is for a run; {target} is a config, whose team has not been trained yet")
