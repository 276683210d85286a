"""Games between all pairs of players: policies of runs, their earlier checkpoints, other models and random moves."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from coterie.config.settings import UNTRAINED, Config, PolicyConfig
from coterie.errors import ConfigError, nearest
from coterie.kernel.environment import Split
from coterie.kernel.team import Team
from coterie.registry import Past
from coterie.run.evaluate import evaluate_team
from coterie.run.folder import Run
from coterie.run.policies import pinned
from coterie.run.weights import TeamModels

SAME = {"game", "options", "brief"}
"""Settings in which games must be equal for their players to meet."""
CHANCE = "chance"
"""Name of the player that draws its moves from those it may make."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Results of one player against another: shares of games; low, high: the 95 % interval of won (Wilson).

    void: games that nobody won, since a reply was no move, or they took too long.
    """

    won: float
    low: float
    high: float
    drawn: float
    void: float = 0.0


@dataclass(frozen=True, slots=True)
class Matrix:
    """Results of all players: a cell for each row's player against each column's. games: of each cell."""

    players: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    games: int

    def as_json(self) -> dict[str, object]:
        """Returns players and cells as plain data."""
        rows = {
            row: {column: dataclasses.asdict(cell) for (mine, column), cell in self.cells.items() if mine == row}
            for row, _ in self.cells
        }
        return {"players": self.players, "games": self.games, "won": rows}

    def __str__(self) -> str:
        """Returns a table; players are named by letters, which are explained below it."""
        letters = {player: f"{chr(65 + at % 26)}{at // 26 or ''}" for at, player in enumerate(self.players)}
        lines = ["won by the row's player [95 % interval], drawn", ""]
        lines.append("     " + "".join(f"{letters[column]:<28}" for column in self.players))
        for row in self.players:
            if row != CHANCE:
                cells = [self.cells[row, column] for column in self.players]
                told = [f"{cell.won:.3f} [{cell.low:.3f}, {cell.high:.3f}] {cell.drawn:.3f}" for cell in cells]
                lines.append(f"{letters[row]:<5}" + "".join(f"{each:<28}" for each in told))
        void = [
            f"{letters[row]} against {letters[column]}: {cell.void:.1%} of games were nobody's, by no move"
            for (row, column), cell in self.cells.items()
            if cell.void > 0.02
        ]
        named = [f"{letter}: {player}" for player, letter in letters.items()]
        return "\n".join(
            [*map(str.rstrip, lines), "", *named, *void, f"{self.games} games a cell, sampled; seats change in turn"]
        )


def matrix(
    players: Sequence[str],
    *,
    games: int = 200,
    split: Split = "test",
    progress: Callable[[int, int], None] | None = None,
) -> Matrix:
    """Plays each player against each, in the environment of the first run among them.

    Args:
        players: RUN, its best by validation; RUN#STEP; a model's folder or Hugging Face id; or "chance".
        progress: called with (cells done, cells).

    Raises:
        ConfigError: none is a run, one is named twice, or the environment is no game.
        CheckpointError: no such run or checkpoint.
    """
    if len({str(Path(name)) for name in players}) < len(players):
        raise ConfigError("a player is named twice; name each once")
    runs = {name: run for name in players if (run := _run(name))}
    if not runs:
        raise ConfigError(
            f"{', '.join(players)}: none is the folder of a run; name a run among the players: its environment is what "
            "they play"
        )
    base = next(iter(runs.values())).config
    game = base.environment.facing(chance=False)
    for name, run in runs.items():
        if run.config.environment.facing(chance=False).model_dump(include=SAME) != game.model_dump(include=SAME) or (
            run.config.names["environment"] != base.names["environment"]
        ):
            raise ConfigError(f"{name} is a run of another game than {next(iter(runs))}")
    roles = tuple(game.roles)
    policies: dict[str, PolicyConfig] = {}

    def seat(name: str, role: str) -> str:
        """Returns the policy that plays a role for a player; one that plays several is there once."""
        wanted = _policy(name, runs.get(name), role, roles[0])
        label = next((label for label, known in policies.items() if known == wanted), f"p{len(policies)}")
        policies.setdefault(label, wanted)
        return label

    seated = {name: {role: seat(name, role) for role in roles} for name in players if name != CHANCE}
    team = Team({f"{name} {role}": label for name, seats in seated.items() for role, label in seats.items()})
    config = pinned(replace(base, environment=game, team=team, policies=policies), keep=False)
    cells: dict[tuple[str, str], Cell] = {}
    with closing(TeamModels(config)) as models, models:
        for row in seated:
            for column in players:
                seats = seated.get(column, {}) | {roles[0]: seated[row][roles[0]]}
                cells[row, column] = _played(config, models, seats, column == CHANCE, games, split)
                if progress:
                    progress(len(cells), len(seated) * len(players))
    return Matrix(tuple(players), cells, games)


def _played(
    config: Config, models: TeamModels, team: Mapping[str, str], chance: bool, games: int, split: Split
) -> Cell:
    found = evaluate_team(
        config.environment.facing(chance=chance), Team(team), models.engine, split=split, tasks=games, sampled=1,
        sampling=config.sampling(config.eval.temperature, config.eval.top_p),
        max_dropped_share=config.train.max_dropped_share,
    )  # fmt: skip
    drawn, void = (sum(found.noted.get(name, (0.0,))) / found.tasks for name in ("drawn", "void"))
    return Cell(found.success, found.success_low, found.success_high, drawn, void)


def _run(name: str) -> Run | None:
    """Returns the run that a player comes from; None if it is no run's."""
    folder = Path(name.partition("#")[0])
    return Run.open(folder) if name != CHANCE and (folder / "config.toml").exists() else None


def _policy(name: str, run: Run | None, role: str, first: str) -> PolicyConfig:
    """Returns the policy that plays a role for a player: its own, else the first role's, else any that was trained."""
    if run is None:
        meant = nearest(name, (CHANCE,))
        if not Path(name).exists() and ("#" in name or meant):
            raise ConfigError(f"{name}: there is no run and no model of that name{meant}")
        return PolicyConfig(kind="frozen", model=name)
    team, policies = run.config.team.roles, run.config.policies
    seats = [*(team[one] for one in (role, first) if one in team), *team.values()]
    policy = next((one for one in seats if policies[one].kind not in UNTRAINED), "")
    if not policy:
        raise ConfigError(f"{name} trained nobody; name the models that play in it")
    theirs, (_, sharp, step) = policies[policy], name.partition("#")
    if sharp and not re.fullmatch(r"[0-9]+", step):
        raise ConfigError(f"{name}: after # stands the number of a step")
    model = str(Past(run.folder, int(step) if step else None, policy))
    how = {key: getattr(theirs, key) for key in ("template", "thinking", "system", "system_text")}
    return PolicyConfig(kind="frozen", model=model, **how)
