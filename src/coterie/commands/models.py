"""Verbs about models: made, planned, given away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import RunFolder, Sets, terminal
from coterie.kernel.safe import command
from coterie.report.output import say


def sft(
    environment: Annotated[str, typer.Argument(metavar="ENV", help="An environment's name or FILE.py:Class.")],
    out: Annotated[Path, typer.Option(help="The model folder to make.")],
    model: Annotated[str | None, typer.Option(help="A model to go on from; default: a new small one.")] = None,
    sets: Sets = None,
) -> None:
    """Build a starter from demonstrations: coterie sft plan_path --out my_starter --set sft.steps=500"""
    from coterie.config.resolve import load_sft
    from coterie.report.display import step_progress
    from coterie.run.sft import sft as build

    world, config, memory = load_sft(environment, sets or ())
    from coterie.report.terminal import let_output_break

    let_output_break()
    with step_progress(terminal(), config.steps) as progress:
        built = build(world, out, config, source=model, memory=memory, progress=progress)
    say(f"done: {out}, {built.size / 1e6:.2f} million parameters")


def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    step: Annotated[int | None, typer.Option(help="Which checkpoint; default: the best by validation.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Make adapters whole models.")] = False,
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="And upload it to the Hugging Face hub, as private.")
    ] = None,
) -> None:
    """Give a team away: a model folder a policy, and its config: coterie export RUN --out team"""
    from coterie.run.export import TEAM, push_to_hub
    from coterie.run.export import export as write

    folder = write(run, out, step=step, merge=merge)
    say(f"done: {folder}")
    say(f"train it on: {command('train', folder / TEAM)}")
    if push is not None:
        say(f"uploaded: {push_to_hub(folder, push)}")
