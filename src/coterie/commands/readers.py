"""Commands that only read. A run may be anybody's: nothing that it names is imported, reached or sent."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import AsJson, RunFolder, Trust, terminal, trusted
from coterie.errors import nearest
from coterie.kernel.safe import one_line
from coterie.report.output import say


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders. Their curves share one chart.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file. Default: report.html in the first run.")] = None,
    tasks: Annotated[
        int, typer.Option(min=0, help="Validation tasks to play, to measure roles and progress. 0: none.")
    ] = 0,
    trust: Trust = False,
) -> None:
    """Write runs as one HTML page of curves, warnings, groups and roles. Example: coterie report RUN"""
    from coterie.errors import ConfigError
    from coterie.run.files import write_whole
    from coterie.run.folder import Run

    page = out or runs[0] / "report.html"
    if page.is_dir():
        raise ConfigError(f"--out {page} is a folder; name a file, such as {page / 'report.html'}")
    trusted(trust)
    for run in map(Run.open, runs):  # checked before torch is loaded, which takes seconds
        if tasks:
            run.check_trusted()
    from coterie.report.gather import report as build
    from coterie.report.pace import steps_of
    from coterie.report.story import glance
    from coterie.run.trust import reading

    console = terminal(stderr=True)
    with reading(*runs):
        with console.status("reading") as status:
            text = build(runs, tasks=tasks, progress=status.update)
        write_whole(page, text, "choose another place with --out")
        for run in map(Run.open, runs):
            say(f"{run.folder}:")
            lines = run.metrics()
            for line in glance(lines, tuple(run.tables["team"]), steps_of(lines, run.tables["train"])):
                say(f"  {line}")
    say(f"open in a browser: {page}")


def show_memory(
    run: RunFolder,
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint. Default: the latest.")] = None,
    role: Annotated[str | None, typer.Option(help="Show only the notes of this role.")] = None,
    trust: Trust = False,
) -> None:
    """Show the notes of each role, their origin and their worth. Example: coterie memory RUN"""
    from coterie.errors import ConfigError
    from coterie.kernel.mistakes import task_of
    from coterie.memory.store import MemoryConfig
    from coterie.report.text import memory_text
    from coterie.run.folder import Run
    from coterie.run.trust import is_allowed

    trusted(trust)
    opened = Run.open(run)
    roles = opened.tables["team"]
    if role is not None and role not in roles:
        raise ConfigError(f"--role {role}: unknown{nearest(role, roles)}; the team has {', '.join(roles)}")
    with opened.checkpoints.reading("latest" if step is None else step) as (_, progress):
        pass
    kept = MemoryConfig.model_validate(opened.tables.get("memory", {}))
    if not is_allowed(run):  # its environment is not made
        say(memory_text(progress.memory, kept, role, None))
        say(f"not compared with validation queries: {run} was not made by you; --trust makes its environment")
        return
    config = opened.config
    queries = [task_of(config.environment, "validation", index).query for index in range(config.train.eval_tasks)]
    say(memory_text(progress.memory, kept, role, queries))


def inspect(
    target: Annotated[str, typer.Argument(metavar="RUN|CONFIG", help="A run folder or a TOML file.")],
    as_json: AsJson = False,
) -> None:
    """List the code, commands, servers, variables, files and downloads that a run or config names. It uses none."""
    from coterie.config.toml import read
    from coterie.errors import ConfigError
    from coterie.run import trust
    from coterie.run.folder import Run

    folder = Path(target)
    if not folder.is_dir() and not target.endswith(".toml"):
        raise ConfigError(f"{target} is not a run folder and no TOML file; name one that is here")
    run = Run.open(folder) if folder.is_dir() else None
    beside = folder if run else folder.parent
    names = list(trust.named(run.tables if run else read(target, ()).data, beside))
    rows = [{**dataclasses.asdict(one), "sha256": trust.contents_of(one.value, beside)} for one in names]
    mine = run is not None and trust.is_mine(folder)
    if as_json:
        say(json.dumps({"yours": mine if run else None, "names": rows}))
        return
    for row in rows:
        say(one_line(f"{row['kind']:9} {row['where']} = {row['value']}"))
        for file, digest in row["sha256"].items():
            say(one_line(f"{'':9} {file}: SHA-256 {digest}"))
    if not rows:
        say("it names no code, command, server, variable, file or download")
    if run:
        say(_whose(folder, mine=mine, names=bool(rows)))


def _whose(folder: Path, *, mine: bool, names: bool) -> str:
    """Returns a line that says if a run was made by the user, and what that means for who wants to play it."""
    if mine:
        return f"{folder} was made by you"
    left = (
        "if that is what you want, add --trust to the command that plays it"
        if names
        else "it is played without --trust"
    )
    return f"{folder} was not made by you, or its config has changed since; {left}"


def ledger(run: RunFolder) -> None:
    """Check that a cluster run trained or dropped each sample exactly once. Example: coterie ledger RUN"""
    from coterie.run.folder import Run
    from coterie.run.ledger import audit

    lines = Run(run).metrics() if (run / "metrics.jsonl").exists() else []
    told = audit(run, int(max((line["step"] for line in lines), default=0)))
    say(str(told))
    raise typer.Exit(1 if told.odd else 0)


def audit_rollouts(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|RUN", help="Rollout file of TRL, verl, slime, miles, verifiers or Inspect; or a run."
        ),
    ],
    group: Annotated[
        str,
        typer.Option(
            help="Column with a reply's group, or the number of consecutive rows per group. Default: as saved."
        ),
    ] = "",
    reward: Annotated[str, typer.Option(help="The reward column. Default: the one of the file's format.")] = "",
    as_json: AsJson = False,
) -> None:
    """Find groups that mix roles, turns or prompts in saved rollouts. Example: coterie audit completions.parquet"""
    from coterie.report.audit import audit
    from coterie.report.rollouts import ColumnChoice, read

    found = audit(read(file, ColumnChoice(group, reward)))
    say(json.dumps(found.as_json()) if as_json else str(found))
    raise typer.Exit(0 if found.ok else 1)
