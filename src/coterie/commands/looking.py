"""Commands about what there is: names, data, players, environments, this machine and its speed."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.bench import BENCHES
from coterie.commands import AsJson, Sets, Trust, terminal, trusted
from coterie.errors import nearest
from coterie.kernel.safe import command
from coterie.report.output import kept_for_json, say

if TYPE_CHECKING:
    from coterie.config.settings import Config


def list_names(
    kind: Annotated[
        str | None, typer.Argument(help="environments, algorithms, losses, engines or trackers. Default: all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List environments, algorithms, losses, engines and trackers. Example: coterie list algorithms"""
    from coterie.errors import ConfigError
    from coterie.registry import PLURALS, summary

    lists = {plural: name for name, plural in PLURALS.items()}
    if kind is not None and kind not in lists:
        raise ConfigError(f"unknown list '{kind}'{nearest(kind, lists)}; there are {', '.join(lists)}")
    names = {plural: summary(name) for plural, name in lists.items() if kind in (None, plural)}
    if as_json:
        say(json.dumps(names))
        return
    for name, entries in names.items():
        say(name)
        for entry, text in entries.items():
            say(f"  {entry:14} {text}")


def show_data(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A file, hub:…, two of these as 'TRAIN -> TEST', or a benchmark.")
    ],
    environment: Annotated[
        str | None, typer.Option("--for", metavar="ENV", help="The environment that reads the data. Default: code.")
    ] = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Show rows, splits, hashes and left-out rows of a data set. Example: coterie data gsm8k --for maths"""
    from coterie.config.resolve import load_environment
    from coterie.environments.published.plays import PlaysRows
    from coterie.errors import ConfigError

    if not name.strip():
        raise ConfigError("which data? Write a file, hub:owner/name, TRAIN -> TEST, or a benchmark's name")
    try:
        world = load_environment({"environment": {"name": environment or "code", "data": name}}, sets or ())
    except ConfigError as error:
        if environment is not None:
            raise
        raise ConfigError(f"{error}; it was read for the environment code: for another one, add --for ENV") from error
    if not isinstance(world, PlaysRows):
        raise ConfigError(f"{environment} reads no data sets; `coterie check {environment}` says what it plays")
    data = world.rows()
    say(json.dumps(data.summary()) if as_json else data.page())


def matrix(
    players: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAYER...", help="RUN, RUN#STEP, a model's folder or Hugging Face id, or chance (random moves)."
        ),
    ],
    games: Annotated[int, typer.Option(min=1, help="Number of games per pair of players.")] = 200,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Play a game between all pairs of players. Example: coterie matrix RUN RUN#0 chance"""
    from coterie.run.matrix import matrix as play_all

    trusted(trust)
    console = terminal(stderr=True)
    with kept_for_json(as_json), console.status("playing") as status:
        found = play_all(
            players, games=games, progress=lambda done, cells: status.update(f"played {done} of {cells} pairs")
        )
    say(json.dumps(found.as_json()) if as_json else str(found))


def check(
    target: Annotated[
        str, typer.Argument(metavar="ENV|CONFIG", help="An environment's name, FILE.py:Class, or a TOML file.")
    ],
    sets: Sets = None,
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks to play from each split.")] = 3,
    decentralised: Annotated[
        bool, typer.Option("--decentralised", help="Also check that no role is shown another role's words.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Also check prompts with a model, a folder or id, and play train tasks: has RL a signal?"),
    ] = None,
    played: Annotated[
        bool, typer.Option("--play/--no-play", help="With --model: play a few train tasks, which loads its weights.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Test that an environment keeps its contract. Example: coterie check my_env.py:MyEnv"""
    from coterie.checks.conformance import check as prove
    from coterie.commands.untrained import played_by, signal_with
    from coterie.config.resolve import load_config
    from coterie.report.signal import signal_data, signal_text

    config, signal = load_config(target, sets or ()), None
    limits = config.engine.model_dump(include={"call_timeout_s", "play_timeout_s"}, exclude_unset=True)
    console = terminal(stderr=True)
    with kept_for_json(as_json), console.status("looking at what is written") as status:

        def progress(claim: str) -> None:
            status.update(f"checking: {claim}")
            if not console.is_terminal and not as_json:
                console.print(f"checking: {claim}", markup=False, highlight=False)

        report = prove(
            config.environment, tasks=tasks, horizon=config.algorithm.reach, decentralised=decentralised, **limits,
            progress=progress,
        )  # fmt: skip
        if model is not None and report.ok:
            from coterie.checks.conformance import Patience
            from coterie.checks.fits import fits

            watch = Patience(config.engine.play_timeout_s, config.engine.call_timeout_s)
            found = fits(config.environment, model, tasks=tasks, max_tokens=config.engine.max_tokens, watch=watch)
            report = dataclasses.replace(report, findings=(*report.findings, *found))
    if model is not None and report.ok and played:
        from coterie.models.load import weights_here

        with kept_for_json(as_json):
            if weights_here(model, "--model"):
                signal = signal_with(played_by(target, sets or (), model))
            else:
                text = f"no task is played, since the weights of {model} are not here; fetch them: hf download {model}"
                say(text, err=True)
    if as_json:
        findings = [dataclasses.asdict(finding) for finding in report.findings]
        heard = {"signal": signal_data(signal)} if signal else {}
        say(json.dumps({"ok": report.ok, "findings": findings, **heard}))
    else:
        say(str(report))
        if signal:
            say(signal_text(signal))
        elif model is None and report.ok and (own := _own_model(config)):
            again = command("check", target, "--model", own)
            say(f"the model was not looked at; does it understand the prompts, has RL a signal? {again}", err=True)
    raise typer.Exit(0 if report.ok else 1)


def _own_model(config: Config) -> str:
    """Returns the model that a config trains, if it is not the environment's starter; otherwise ""."""
    models = {config.policies[name].model for name in config.team.trained} - {config.environment.starter}
    return min(models, default="")


def doctor(as_json: AsJson = False) -> None:
    """Show versions, hardware and what can run on this machine. Example: coterie doctor"""
    from coterie.checks.doctor import examine

    findings = examine()
    if as_json:
        say(json.dumps([dataclasses.asdict(finding) for finding in findings]))
        return
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            say(area)
        advice = "" if finding.ok else f"; {finding.advice}"
        say(f"  {'ok     ' if finding.ok else 'missing'} {finding.name:14} {finding.text}{advice}")


def bench(
    name: Annotated[str | None, typer.Argument(help="Which one. Default: list all, with what they measure.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a demonstration and say what it has learned. Example: coterie bench demo"""
    if name is None:
        say(json.dumps(BENCHES) if as_json else "\n".join(f"{each:12} {text}" for each, text in BENCHES.items()))
        return
    from coterie.bench import run_bench
    from coterie.report.terminal import let_output_break

    let_output_break()
    figures: dict[str, Any] = run_bench(name, say=None if as_json else lambda line: say(line, err=True))
    say(json.dumps(figures) if as_json else "\n".join(f"{key}: {value}" for key, value in figures.items()))
