"""Commands for models: build a starter, plan a run, export a team."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import AsJson, RunFolder, Sets, Trust, terminal, trusted
from coterie.kernel.safe import command
from coterie.report.output import kept_for_json, say


def sft(
    environment: Annotated[str, typer.Argument(metavar="ENV", help="An environment's name or FILE.py:Class.")],
    out: Annotated[Path, typer.Option(help="The model folder to create.")],
    model: Annotated[str | None, typer.Option(help="A model to continue from. Default: a new small model.")] = None,
    sets: Sets = None,
) -> None:
    """Train a small starter model on demonstrations. Example: coterie sft plan_path --out my_starter"""
    from coterie.config.resolve import load_sft
    from coterie.report.display import step_progress
    from coterie.run.sft import sft as build

    world, config, memory, chosen = load_sft(environment, sets or (), model)
    from coterie.report.terminal import let_output_break

    let_output_break()
    for each in chosen:
        say(str(each))
    with step_progress(terminal(), config.steps) as (looking, progress):
        built = build(world, out, config, source=model, memory=memory, progress=progress, looking=looking)
    say(f"done: {out}, {built.size / 1e6:.2f} million parameters")


def plan(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file, an environment's name, FILE.py:Class.")],
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plan for this GPU, such as h100-80. Default: this machine.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model of every trained policy: a folder, a name or a Hugging Face id.")
    ] = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Predict a run's memory and time. Example: coterie plan configs/gpu/plan_path_qwen3.toml --gpu h100-80"""
    from coterie.checks.machines import gpu as named
    from coterie.commands.untrained import played_by

    resolved = played_by(config, sets or (), model)
    machine = None if gpu is None else named(gpu)
    from coterie.report.planned import as_data, planned_text, total_text
    from coterie.run.plan import check_planned
    from coterie.run.plan import plan as planned

    with kept_for_json(as_json), terminal(stderr=True).status("predicting memory and time"):
        plans = planned(resolved, machine)
    say(
        json.dumps(as_data(plans)) if as_json else "\n\n".join([*map(planned_text, plans), total_text(plans, resolved)])
    )
    with terminal(stderr=True).status("looking for settings that would fit"):
        check_planned(resolved, plans, machine)


def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="The folder to create.")],
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint. Default: the best by validation.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Merge adapters into their base models.")] = False,
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Also upload it to a private Hugging Face repository.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Export each policy as a model folder, with a team config. Example: coterie export RUN --out team"""
    from coterie.run.export import TEAM, push_to_hub
    from coterie.run.export import export as write

    trusted(trust)
    folder = write(run, out, step=step, merge=merge)
    say(f"done: {folder}")
    say(f"train it on: {command('train', folder / TEAM)}")
    if push is not None:
        say(f"uploaded: {push_to_hub(folder, push)}")
