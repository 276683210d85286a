"""Comparison on plan_path at an equal budget: one adapter per role on a shared base, or one whole model per role.

Writes docs/results/lora.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.rows import FIVE, Row, Table
from coterie.bench import Say
from coterie.bench.demo_small import CONFIG

PAGE = Path("docs/results/lora.md")
BUDGET = ("train.steps=40", "train.tasks_per_step=24", "train.eval_every=10")
ADAPTERS = ("policies.scout.kind=lora", "policies.pilot.kind=lora", "optimizer.lr=3e-3")
"""Settings for adapters, with a learning rate several times that of whole weights."""
SMALL = tuple(f"policies.{name}.lora.{key}=4" for name in ("scout", "pilot") for key in ("rank", "alpha"))
TABLE = Table(
    Path("runs/bench-lora"),
    "benchmarks.lora",
    {
        "full": Row("one whole model per role", CONFIG, overrides=BUDGET, seeds=FIVE),
        "lora": Row("one adapter of rank 32 per role, one base", CONFIG, overrides=(*BUDGET, *ADAPTERS), seeds=FIVE),
        "small": Row("… the same with rank 4", CONFIG, overrides=(*BUDGET, *ADAPTERS, *SMALL)),
    },
)  # fmt: skip


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the results page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    return [
        "# Results: adapters",
        "",
        "Written by `python -m benchmarks lora`. "
        "plan_path on 6 x 6 grids with split view is trained with at_grpo as in the "
        "demo, from the shipped starter (0.9 million parameters). Success is that of greedy play on the same 1,000 "
        "test tasks, which training never sees; the checkpoint is chosen on 400 validation tasks. Intervals are 95 % "
        "intervals over seeds (Student's t). Every row plays 24 tasks per step for 40 steps; sampled and trained "
        "tokens are in millions per run. A run has one thread.",
        "",
        *TABLE.lines(),
        "",
        "The adapters' learning rate is 3e-3, three times the demo's. The whole models have the demo's rate, which was "
        "chosen for a run seven times as long. At 1e-2, the success of a team of adapters fell to zero.",
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 10, 20, 30, 40)),
        "",
    ]
