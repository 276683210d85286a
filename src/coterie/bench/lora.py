"""An adapter a role over one base, beside a whole model a role: plan_path at one budget.

Writes docs/results/lora.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coterie.bench import Say
from coterie.bench.demo import CONFIG
from coterie.bench.rows import FIVE, Row, Table

PAGE = Path("docs/results/lora.md")
BUDGET = ("train.steps=40", "train.tasks_per_step=24", "train.eval_every=10")
ADAPTERS = ("policies.scout.kind=lora", "policies.pilot.kind=lora", "optimizer.lr=3e-3")
"""Adapters take a rate several times that of whole weights."""
SMALL = tuple(f"policies.{name}.lora.{key}=4" for name in ("scout", "pilot") for key in ("rank", "alpha"))
TABLE = Table(
    Path("runs/bench-lora"),
    "coterie.bench.lora",
    {
        "full": Row("a whole model a role", CONFIG, overrides=BUDGET, seeds=FIVE),
        "lora": Row("an adapter of rank 32 a role, over one base", CONFIG, overrides=(*BUDGET, *ADAPTERS), seeds=FIVE),
        "small": Row("… of rank 4", CONFIG, overrides=(*BUDGET, *ADAPTERS, *SMALL)),
    },
)  # fmt: skip


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    return [
        "# Results: adapters",
        "",
        "Written by `coterie bench lora`. plan_path, 6 x 6 grids, split view, at_grpo as in the demo, from the shipped "
        "starter (0.9 million parameters). Success is greedy play on the same 1,000 test tasks, which training never "
        "sees; the checkpoint is chosen by 400 validation tasks. Intervals are 95 % over seeds (Student's t). Every "
        "row plays 24 tasks a step for 40 steps; sampled and trained tokens are millions a run. A run has one thread.",
        "",
        *TABLE.lines(),
        "",
        "The adapters' rate is 3e-3, three times the demo's, which the whole models have and which was chosen for a "
        "run seven times as long; at 1e-2 a team of adapters fell to nothing.",
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 10, 20, 30, 40)),
        "",
    ]
