"""rae, reinforce_pp and gigpo beside mas_grpo on plan_path, at one budget.

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
        "mas_grpo": Row("mas_grpo: episodes of a task compared", CONFIG, {"name": "mas_grpo"}, GROUPS),
        "gigpo": Row("gigpo: and replies to the same prompt", CONFIG, {"name": "gigpo"}, GROUPS),
        "reinforce_pp": Row("reinforce_pp: each role over the step", CONFIG, {"name": "reinforce_pp"}, ALONE),
        "rae": Row("rae: each role's running mean", CONFIG, {"name": "rae"}, ALONE),
        "rae_slow": Row("rae at a third of the rate", CONFIG, {"name": "rae"}, (*ALONE, "optimizer.lr=1e-4")),
    },
)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    return [
        "# Results: neighbours of the three methods",
        "",
        "Written by `coterie bench methods`. plan_path, 6 x 6 grids, split view, from the shipped starter (0.9 million "
        "parameters), a policy a role. Success is greedy play on the same 1,000 test tasks, which training never sees; "
        "the checkpoint is chosen by 400 validation tasks. Intervals are 95 % over seeds (Student's t). Every row "
        "plays 192 episodes a step for 40 steps; sampled and trained tokens are millions a run. A run has one thread.",
        "",
        *TABLE.lines(),
        "",
        "These are short runs: they show that each method learns, and what a step's 192 episodes are worth to it. "
        "They do not say which is best. A running mean does not know how hard a task is: what remains in rae's "
        "advantage is mostly that, and at the common rate one of its three seeds got worse; at a third of it all "
        "three learn.",
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 10, 20, 30, 40)),
        "",
    ]
