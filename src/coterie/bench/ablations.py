"""Ablations of teams at equal sampled tokens: what each part of a method, and each role, is worth.

Writes docs/results/ablations.md from docs/results/data/ablations.jsonl and the rows of `coterie bench paper`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.bench import Say
from coterie.bench.contest import spread
from coterie.bench.paper import CALLS, MASTER, TREE, budgeted
from coterie.bench.paper import TABLE as PAPER
from coterie.bench.rows import FIVE, Row, Table
from coterie.run.ablation import Ablation
from coterie.run.loaded import load

PAGE = Path("docs/results/ablations.md")
PLAYED = Path("docs/results/data/ablations_played.jsonl")
TURN = {"name": "at_grpo", "horizon": "turn", "commit": "random"}
GAMES = ("plan_path", "sokoban")


def _team(task: str, title: str, algorithm: Mapping[str, Any], tasks: float = 1, **world: Any) -> Row:
    return budgeted(task, title, algorithm, tasks, apart=True, votes=1, **world)


def _grouping() -> dict[str, Row]:
    titles = {"role": "by agent", "turn": "by turn", "role_turn": "by agent and turn"}
    return {
        f"{task}_by_{by}": _team(task, f"episodes compared {title}", {"name": "mas_grpo", "by": by})
        for task in GAMES
        for by, title in titles.items()
    }


def _sampler() -> dict[str, Row]:
    return {
        "greedy": _team("plan_path", "greedy commit", TREE | {"commit": "greedy"}),
        "turn": _team("plan_path", "horizon turn", TURN),
        "greedy_turn": _team("plan_path", "greedy commit, horizon turn (the paper's)", TURN | {"commit": "greedy"}),
        "width_4": _team("plan_path", "4 replies per point", TREE | {"num_generations": 4}, 2),
        "width_16": _team("plan_path", "16 replies per point", TREE | {"num_generations": 16}, 0.5),
    }


def _outcomes() -> dict[str, Row]:
    return {
        f"{task}_{name}": _team(task, title, TURN, dense=dense)
        for task in ("plan_path", "sokoban", "sudoku")
        for name, title, dense in (("dense", "local rewards", True), ("outcome", "outcome only", False))
        if (task, name) != ("plan_path", "dense")  # which is the row `turn`
    }


def _alone() -> dict[str, Row]:
    return {
        f"alone_{role}": replace(
            _team("plan_path", f"only the {role} learns", TREE), overrides=(f"policies.{other}s.kind=frozen",)
        )
        for role, other in (("proposer", "planner"), ("planner", "proposer"))
    }


def _sizes() -> dict[str, Row]:
    teams = {
        3: {"judge": True},
        5: {"judge": True, "reasoners": 2, "tools": 2},
        7: {"judge": True, "reasoners": 3, "tools": 3},
    }
    methods = {"grpo": {"name": "mas_grpo"}, "at_grpo": {"name": "at_grpo", "horizon": "point"}}
    attempts = {"name": "hierarchical_grpo", "attempts": ["reasoner"]}
    return {
        f"maths_{size}_{name}": _team("maths", f"{size} agents", method, 2 / size, **world)
        for size, world in teams.items()
        for name, method in methods.items()
    } | {"maths_7_hierarchical": _team("maths", "7 agents, attempts compared", attempts, 2 / 7, **teams[7])}


def _chosen() -> dict[str, Row]:
    budget = (f"train.max_sampled_tokens={CALLS}", "train.steps=1000", "train.eval_every=10", "train.eval_tasks=200")
    chosen = {"name": "joyagents", "selection": "raw_var", "floor": 0}
    return {f"joyagents_{top}": Row(f"K = {top}", MASTER, chosen | {"top_k": top}, budget, FIVE) for top in (1, 2, 5)}


TABLE = Table(
    Path("runs/bench-ablations"),
    "coterie.bench.ablations",
    {**_grouping(), **_sampler(), **_outcomes(), **_alone(), **_sizes(), **_chosen()},
    Path("docs/results/data/ablations.jsonl"),
)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    PAPER.make(say, ["plan_path_roles"])
    TABLE.make(say)
    play(say)
    PAGE.write_text("\n".join(page()))
    return TABLE.success()


def played() -> dict[str, dict[int, float]]:
    """Success of teams that were put together after training, by seed."""
    lines = map(json.loads, PLAYED.read_text().splitlines()) if PLAYED.exists() else ()
    found: dict[str, dict[int, float]] = {}
    for line in lines:
        found.setdefault(line["team"], {})[line["seed"]] = line["success"]
    return found


def play(say: Say) -> None:
    """Plays the teams that are missing: roles that were trained alone and then joined, and roles that were swapped."""
    for seed in FIVE:
        joined = Ablation("replace", ("planner",), str(TABLE.folder / f"alone_planner-{seed}"))
        for team, folder, change in (
            ("joined", TABLE.folder / f"alone_proposer-{seed}", joined),
            ("swapped", PAPER.folder / f"plan_path_roles-{seed}", Ablation("swap", ("proposer", "planner"))),
        ):
            if seed not in played().get(team, {}):
                _, (after,) = load(folder).ablate([change])
                line = json.dumps({"team": team, "seed": seed, "success": after.success})
                with PLAYED.open("a") as file:
                    file.write(f"{line}\n")
                say(f"{team}, seed {seed}: {after.success:.3f}")


def page() -> Sequence[str]:
    """The results page, from the figures of all finished runs."""
    return ["# Results: ablations", "", *TABLE.lines(), "", *_together(played()), ""]


def _together(teams: Mapping[str, Mapping[int, float]]) -> Iterable[str]:
    return [f"- {team}: {spread(list(successes.values()))}" for team, successes in teams.items()]
