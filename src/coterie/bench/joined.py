"""Teams that are put together after training: roles that were trained alone and then joined, and roles swapped."""

from __future__ import annotations

import json
from pathlib import Path

from coterie.bench import Say
from coterie.bench.ablation_rows import CLOSE, TABLE
from coterie.bench.paper import TABLE as PAPER
from coterie.bench.rows import FIVE, TEN, lines_of
from coterie.run.ablation import Ablation
from coterie.run.loaded import load

PLAYED = Path("docs/results/data/ablations_played.jsonl")
PUT_TOGETHER = ("joined", "swapped", "split_joined", "split_swapped")
"""Teams that are put together; those that begin with `split_`, where only one role sees the map."""


def played() -> dict[str, dict[int, float]]:
    """Success of teams that were put together after training, by seed."""
    found: dict[str, dict[int, float]] = {}
    for line in lines_of(PLAYED, "team", "of", "seed", "success"):
        if line["of"] == _parts_of(line["team"]):
            found.setdefault(line["team"], {})[line["seed"]] = line["success"]
    return found


def _parts_of(team: str) -> str:
    """Digests of the rows whose policies a team has."""
    view = team.removesuffix("joined").removesuffix("swapped")
    if team.endswith("joined"):
        return " ".join(TABLE.rows[f"{view}alone_{role}"].digest for role in ("proposer", "planner"))
    return (TABLE.rows["split_roles"] if view else PAPER.rows["plan_path_roles"]).digest


def play(say: Say) -> None:
    """Plays the teams that are missing."""
    wanted = [(team, seed) for team in PUT_TOGETHER for seed in (TEN if team in CLOSE else FIVE)]
    missing = [(team, seed) for team, seed in wanted if seed not in played().get(team, {})]
    for team, seed in missing:
        folder, change = put_together(team, seed)
        _, (after,) = load(folder).ablate([change])
        with PLAYED.open("a") as file:
            line = {"team": team, "of": _parts_of(team), "seed": seed, "success": after.success}
            file.write(json.dumps(line) + "\n")
        say(f"{team}, seed {seed}: {after.success:.3f}")


def put_together(team: str, seed: int) -> tuple[Path, Ablation]:
    """A run, and what is changed in its team before it plays."""
    view = team.removesuffix("joined").removesuffix("swapped")
    if team.endswith("joined"):
        planner = TABLE.trained(f"{view}alone_planner", seed)
        return TABLE.trained(f"{view}alone_proposer", seed), Ablation("replace", ("planner",), str(planner))
    together = TABLE.trained("split_roles", seed) if view else PAPER.trained("plan_path_roles", seed)
    return together, Ablation("swap", ("proposer", "planner"))
