"""The commands of the command line, and the options and helpers that they share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.report.output import say

if TYPE_CHECKING:
    from rich.console import Console

    from coterie.run.loaded import Loaded

Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Play a run that somebody else made, with the code, servers and variables that it names."
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def trusted(trust: bool) -> None:
    """Has this process trust the runs that it is given, where a user said so."""
    if trust:
        from coterie.run.trust import trusting

        trusting()


def tracked(name: str) -> str:
    """Returns the override that adds a tracker to a run. Settings that a config already has for this tracker stay."""
    from coterie.config.toml import Meant

    return Meant(f"trackers.{re.sub('[^A-Za-z0-9_-]', '_', name)}.name={name}", f"--tracker {name}")


def terminal(stderr: bool = False) -> Console:
    """Returns a console for people, on standard output or standard error."""
    from coterie.report.terminal import SafeConsole

    return SafeConsole(stderr=stderr, highlight=False)


def team_of(run: Path, step: int | None) -> Loaded:
    """Returns a run's team; says which servers play in it, and if its environment has changed since the training."""
    from coterie.run.loaded import load

    loaded = load(run, step)
    for line in loaded.config.servers():
        say(f"coterie: {line}", err=True)
    if loaded.changed:
        say("coterie: the environment's files have changed since the run was trained", err=True)
    return loaded
