"""Comparison of rae, reinforce_pp and gigpo with mas_grpo on plan_path, at an equal budget.

Writes docs/results/methods.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coterie.bench import Say
from coterie.bench.demo import CONFIG
from coterie.bench.rows import Row, Table

PAGE = Path("docs/results/methods.md")
BUDGET = ("train.steps=40", "train.eval_every=10")
GROUPS = (*BUDGET, "train.tasks_per_step=24")
"""Eight episodes of each task."""
ALONE = (*BUDGET, "train.tasks_per_step=192")
"""As many episodes, each of a task of its own."""
TABLE = Table(
    Path("runs/bench-methods"),
    "coterie.bench.methods",
    {
        "mas_grpo": Row("mas_grpo: compares episodes of a task", CONFIG, {"name": "mas_grpo"}, GROUPS),
        "gigpo": Row("gigpo: also compares replies to the same prompt", CONFIG, {"name": "gigpo"}, GROUPS),
        "reinforce_pp": Row("reinforce_pp: baseline per role, over the step", CONFIG, {"name": "reinforce_pp"}, ALONE),
        "rae": Row("rae: running-mean baseline per role", CONFIG, {"name": "rae"}, ALONE),
        "rae_slow": Row("rae, a tenth of the learning rate", CONFIG, {"name": "rae"}, (*ALONE, "optimizer.lr=1e-4")),
    },
)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    return [
        "# Results: gigpo, reinforce_pp and rae beside mas_grpo",
        "",
        "Written by `coterie bench methods`. plan_path on 6 x 6 grids with split view is trained from the shipped "
        "starter (0.9 million parameters), with one policy per role. Success is that of greedy play on the same 1,000 "
        "test tasks, which training never sees; the checkpoint is chosen on 400 validation tasks. Intervals are 95 % "
        "intervals over seeds (Student's t). Every row plays 192 episodes per step for 40 steps; sampled and trained "
        "tokens are in millions per run. A run has one thread.",
        "",
        *TABLE.lines(),
        "",
        "These runs are short. They show that each method learns, and how much it learns from 192 episodes per step. "
        "They do not show which method is best. mas_grpo has three of the five seeds of its row in "
        "[plan_path](plan_path.md), so its mean differs from the one there. rae's running mean does not know how "
        "hard a task is, so its advantages mostly contain the difficulty of tasks. At the common learning rate "
        "(1e-3) one of its three seeds got worse, so its best checkpoint is the start; at a tenth of that rate all "
        "three learn.",
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 10, 20, 30, 40)),
        "",
    ]
