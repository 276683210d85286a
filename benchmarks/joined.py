"""Teams that are put together after training: roles that were trained alone and then joined, and roles swapped."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.ablation_rows import TABLE
from benchmarks.figures import keep, lines_of
from benchmarks.paper_rows import TABLE as PAPER
from benchmarks.rows import Row
from coterie.bench import Say
from coterie.run.ablation import Ablation
from coterie.run.loaded import load

PLAYED = Path("docs/results/data/ablations_played.jsonl")
PUT_TOGETHER = ("joined", "swapped", "split_joined", "split_swapped")
"""Names of the teams that are put together; in those that begin with `split_`, only one role sees the map."""


def successes(team: str) -> list[float]:
    """Returns a team's success by seed, from the first seed up to the first that is missing."""
    by_seed = _played(team)
    return [by_seed[seed]["success"] for seed in takewhile(by_seed.__contains__, _seeds(team))]


def _played(team: str) -> dict[int, dict[str, Any]]:
    return lines_of(PLAYED, team=team, of=_parts_of(team))


def _seeds(team: str) -> tuple[int, ...]:
    """Returns the seeds of all rows from which a team takes its policies."""
    return min((row.seeds for row in _rows_of(team)), key=len)


def _parts_of(team: str) -> str:
    return " ".join(row.digest for row in _rows_of(team))


def _rows_of(team: str) -> list[Row]:
    """Returns the rows from which a team takes its policies."""
    view = team.removesuffix("joined").removesuffix("swapped")
    if team.endswith("joined"):
        return [TABLE.rows[f"{view}alone_{role}"] for role in ("proposer", "planner")]
    return [TABLE.rows["split_roles"] if view else PAPER.rows["plan_path_roles"]]


def play(say: Say) -> None:
    """Plays the teams that are missing, and saves their success."""
    missing = [(team, seed) for team in PUT_TOGETHER for seed in _seeds(team) if seed not in _played(team)]
    for team, seed in missing:
        folder, change = put_together(team, seed)
        _, (after,) = load(folder).ablate([change])
        keep(PLAYED, {"team": team, "of": _parts_of(team), "seed": seed, "success": after.success})
        say(f"{team}, seed {seed}: {after.success:.3f}")


def put_together(team: str, seed: int) -> tuple[Path, Ablation]:
    """Returns the folder of a run, and the change of its team that makes the wanted one."""
    view = team.removesuffix("joined").removesuffix("swapped")
    if team.endswith("joined"):
        planner = TABLE.trained(f"{view}alone_planner", seed)
        return TABLE.trained(f"{view}alone_proposer", seed), Ablation("replace", ("planner",), str(planner))
    together = TABLE.trained("split_roles", seed) if view else PAPER.trained("plan_path_roles", seed)
    return together, Ablation("swap", ("proposer", "planner"))
