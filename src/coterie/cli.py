"""The command line: each command parses its arguments, calls one function of the library and prints the result.

Heavy modules are imported only when they are needed, so that `coterie --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from coterie.commands import (
    AsJson,
    RunFolder,
    Sets,
    Trust,
    looking,
    measuring,
    models,
    new,
    readers,
    serving,
    team_of,
    terminal,
    tracked,
    trusted,
)
from coterie.installed import starters
from coterie.kernel.safe import command, plain
from coterie.registry import TRACKERS
from coterie.report.output import interrupted, say, serve

if TYPE_CHECKING:
    from coterie.config.settings import Config
    from coterie.run.folder import Run


class Commands(TyperGroup):
    """All commands. Typer drops the message of what Ctrl-C raises; a run's says how to go on."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; if a signal stopped a run in it, the message of that run is printed last."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            from coterie.run.interrupts import Stop

            if isinstance(error, Stop):
                interrupted(str(error), 128 + error.number)
            raise


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Train teams of language-model agents: coterie train errand --model smollm2"""
    if version:
        say(metadata.version("coterie"))
        raise typer.Exit


@app.command()
def train(
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="A TOML file, an environment's name, or FILE.py:Class.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of every trained policy: smollm2, a folder, a .gguf file or a hub's id.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="lora: train adapters; full: train all weights. Default: by the model's size.")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="The algorithm: see coterie list algorithms.")] = None,
    lr: Annotated[
        float | None, typer.Option(help="Peak learning rate. Default: by kind and size of the model.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of training steps.")] = None,
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to create. Default: under runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="The run folder to resume.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="With --resume: continue even if it cannot be exact. The run records this.")
    ] = False,
    test: Annotated[
        bool, typer.Option("--test/--no-test", help="At the end, test the first and the best checkpoint.")
    ] = True,
    tracker: Annotated[
        list[str] | None,
        typer.Option(help=f"Also log to this tracker: {', '.join(TRACKERS)}. May be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved config, run one tiny step, and save nothing.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Train a team. Example: coterie train errand --model smollm2"""
    from coterie.config.resolve import load_config
    from coterie.config.toml import flags

    _check_asked(config, resume, out, anyway=anyway)
    from coterie.run.files import check_free
    from coterie.run.folder import Run

    trusted(trust)
    old = None if resume is None else Run.open(resume)
    if old is not None:
        old.check_trusted()
    given = flags({"model": model, "kind": kind, "algorithm": algorithm, "lr": lr, "steps": steps})
    overrides = [*given, *map(tracked, tracker or ()), *(sets or ())]
    resolved = old.config_with(overrides) if old and config is None else load_config(str(config), overrides)
    if out is not None:
        check_free(out)  # before torch is loaded, which takes seconds
    _check_models(resolved)
    finished = old is not None and resolved.train.steps in old.checkpoints.steps()
    if dry_run:
        from coterie.report.planned import try_out

        for text in try_out(resolved, old, lambda doing: say(f"{doing} …", err=True)):
            say(text)
        return
    from coterie.report.display import Display
    from coterie.report.terminal import let_output_break
    from coterie.run.train import train as run_training
    from coterie.run.weights import spending

    let_output_break()
    for line in _notes(resolved, begins=resume is None):
        say(line)
    run = run_training(resolved, out, resume=resume, anyway=anyway, trackers=[Display(console=terminal())])
    say(f"done: {run.folder}")
    for line in spending(run):
        say(line)
    if ended := _ended(run, finished=finished):
        say(ended)
    if test:
        say(_tested(run))
    say(f"measure it on held-out tasks: {command('eval', run.folder)}")


def _notes(config: Config, *, begins: bool) -> Iterator[str]:
    """Yields the remarks of a config and, where a run begins, the defaults that were chosen."""
    yield from config.remarks
    if config.chosen and begins:
        yield "chosen to fit the model; what you set yourself counts:"
        yield from (f"  {choice}" for choice in config.chosen)


def _ended(run: Run, *, finished: bool) -> str:
    """Returns a line on how a run has ended, "" if it just made its steps. finished: all had been made before."""
    if ended := _ended_early(run):
        return ended
    if budget := run.config.train.max_sampled_tokens:
        return _spent(run, budget)
    made = run.config.train.steps
    more = f"for more: {run.resume_command} --set train.steps={2 * made}"
    return f"all its {made} steps were made before; {more}" if finished else ""


def _ended_early(run: Run) -> str:
    """Returns the reason why a run ended before its last step, and how it goes on; "" if it did not."""
    train = run.config.train
    with run.checkpoints.reading() as (_, progress):
        reason = progress.early(train) if progress.step < train.steps else ""
    more = f"for more: {run.resume_command} --set train.steps={2 * train.steps}"
    return f"ended after step {progress.step} of {train.steps}: {reason}; {more}" if reason else ""


def _spent(run: Run, budget: int) -> str:
    """Returns a line on how much of its token budget a run has spent, and how it goes on."""
    last = run.metrics()[-1]
    sampled, step = int(last.get("budget/sampled_tokens", 0)), int(last["step"])
    if sampled >= budget:
        return f"its budget of {budget:,} sampled tokens is spent: {sampled:,} by step {step}; more is a new run"
    return (
        f"all its {step} steps were made, and {sampled:,} of {budget:,} sampled tokens are spent; to spend the others: "
        f"{run.resume_command} --set train.steps={math.ceil(1.2 * step * budget / max(1, sampled))}"
    )


def _check_models(config: Config) -> None:
    """Raises ConfigError: the path of a model that is played here leads nowhere, or no hub has it."""
    from coterie.models.files import check_there
    from coterie.models.named import NAMED
    from coterie.registry import past_policy

    ours, asked = ("", *starters(), *NAMED), set[str]()
    for name, policy in config.policies.items():
        source, where = policy.model, f"policies.{name}.model"
        if policy.kind == "remote" or source in ours or source in asked or past_policy(source) is not None:
            continue
        asked.add(source)
        check_there(where, source)
        if not Path(source).exists():
            from coterie.models import hub, shapes  # which load torch

            shapes.read_config(source, where, source, afar=not hub.answers())


def _check_asked(config: str | None, resume: Path | None, out: Path | None, *, anyway: bool) -> None:
    """Raises ConfigError: the arguments of a training exclude each other, or none says what to train."""
    from coterie.errors import ConfigError

    if config is None and resume is None:
        raise ConfigError("say what to train: a TOML file, an environment such as errand, or --resume RUN")
    if resume is not None and out is not None:
        raise ConfigError("--resume goes on in its own folder; leave --out away")
    if resume is not None and config is not None and not config.endswith(".toml"):
        raise ConfigError(f"--resume goes on with the run's own config; leave {config!r} away")
    if anyway and resume is None:
        raise ConfigError("--anyway has no effect without --resume; leave it away")


def _tested(run: Run) -> str:
    """Plays a run's test tasks, at the start and at the best checkpoint, and returns the result as text."""
    from coterie.commands.untrained import doing
    from coterie.run.loaded import headline

    with doing("playing test tasks, at the start and at the best checkpoint (--no-test leaves them out)") as progress:
        return str(headline(run, lambda _, done, total: progress(done, total)))


app.command(name="eval")(measuring.evaluate)


@app.command()
def play(
    run: RunFolder,
    step: Annotated[
        int | None,
        typer.Option(help="Step of the checkpoint. Default: the best by validation. With --tree: of a saved rollout."),
    ] = None,
    task: Annotated[int, typer.Option(min=0, help="Index of the task in the rollout (--tree) or split.")] = 0,
    tree: Annotated[
        bool, typer.Option("--tree", help="Show a saved training tree: prompts, replies, returns, advantages.")
    ] = False,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "validation",
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature; 0 is greedy.")] = 0.0,
    seat: Annotated[str | None, typer.Option("--as", metavar="ROLE", help="Play this role yourself.")] = None,
    bug: Annotated[bool, typer.Option("--bug", help="Replay the episode whose exception stopped the run.")] = False,
    trust: Trust = False,
) -> None:
    """Show one episode or a training tree. Example: coterie play RUN --step 40 --tree"""
    from coterie.errors import ConfigError
    from coterie.kernel.mistakes import check_index, check_split
    from coterie.report.text import log_text, tree_text
    from coterie.run.folder import Run
    from coterie.run.trust import reading

    check_split(split, "--split")
    trusted(trust)
    opened = Run.open(run)
    if (tree or bug) and (seat or temperature):
        raise ConfigError(
            f"--as and --temperature have no effect with {'--tree' if tree else '--bug'}; leave them away"
        )
    if bug:
        opened.replay_bug()
        raise ConfigError(
            f"the episode in {run / 'bug.json'} plays without an exception now; go on with what was mended: "
            f"{opened.resume_command} --anyway"
        )
    if tree:
        if step is None:
            saved = ", ".join(map(str, opened.saved_episodes())) or "none yet"
            raise ConfigError(f"--tree shows a saved rollout: say which with --step; there are {saved}")
        played = opened.episodes(step)
        if task >= len(played):
            raise ConfigError(f"step {step} played {len(played)} tasks; --task is 0 to {len(played) - 1}")
        with reading(run):
            say(tree_text(played[task]))
        return
    check_index(opened.config.environment, split, task)  # pyright: ignore[reportArgumentType]  # before torch is loaded
    asked: list[str] = []
    loaded = team_of(run, step)
    title = f"{split} task {task}, played by the checkpoint of step {loaded.progress.step}"

    def ask(prompt: str) -> str:
        say(prompt if asked else f"{title}\n{prompt}")
        asked.append(prompt)
        return typer.prompt(plain(f"{seat}"), default="", show_default=False)

    log = loaded.play(split, task, temperature=temperature, seats={seat: ask} if seat else None)  # pyright: ignore[reportArgumentType]
    say(log_text(log) if asked else f"{title}\n{log_text(log)}")
    if seat and not asked:
        say(f"{seat} was never asked in this episode")


@app.command()
def update(
    run: RunFolder,
    step: Annotated[int, typer.Option(min=1, help="The step. Its episodes and the checkpoint before it must exist.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the new weights. Default: they are only compared with the run's.")
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Recompute one update from saved episodes, without sampling. Example: coterie update RUN --step 1"""
    from coterie.run.folder import Run

    trusted(trust)
    opened = Run.open(run)
    opened.check_trusted()
    opened.episodes(step)  # checked before torch is loaded, which takes seconds
    from coterie.run.update import update as again

    remade = again(opened, step, out)
    say(json.dumps(dataclasses.asdict(remade)) if as_json else str(remade))
    raise typer.Exit(1 if remade.differs else 0)


for name, verb in {
    "report": readers.report,
    "memory": readers.show_memory,
    "new": new.new,
    "plan": models.plan,
    "export": models.export,
    "serve": serving.serve,
    "view": serving.view,
    "sft": models.sft,
    "list": looking.list_names,
    "data": looking.show_data,
    "ledger": readers.ledger,
    "matrix": looking.matrix,
    "check": looking.check,
    "audit": readers.audit_rollouts,
    "doctor": looking.doctor,
    "inspect": readers.inspect,
    "bench": looking.bench,
}.items():
    app.command(name=name)(verb)


def main() -> None:
    """Runs the command line: the entry point of `coterie`."""
    serve(app)


if __name__ == "__main__":
    main()
