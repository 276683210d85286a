"""The tasks that came last, each from its starter: sokoban, sudoku, maths, writing, five seeds.

Writes docs/results/tasks.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coterie.bench import Say
from coterie.bench.rows import FIVE, Row, Table

PAGE = Path("docs/results/tasks.md")
TABLE = Table(
    Path("runs/bench-tasks"),
    "coterie.bench.tasks",
    {
        "sokoban": Row("sokoban: 6 x 6, one box, three pushes or more", "configs/sokoban.toml", seeds=FIVE),
        "sudoku": Row("sudoku: 4 x 4, seven givens", "configs/sudoku.toml", seeds=FIVE),
        "maths": Row("maths: sums, equations, stories, a calculator", "configs/maths.toml", seeds=FIVE),
        "writing": Row("writing: 0.9 of the best reward or more", "configs/writing.toml", seeds=FIVE),
    },
)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    return [
        "# Results: sokoban, sudoku, maths, writing",
        "",
        "Written by `coterie bench tasks`. Each team of two from its shipped starter (0.9 million parameters), a "
        "policy a role, as `coterie train NAME` has it. Success is greedy play on 1,000 test tasks, which training "
        "never sees; the checkpoint is chosen by 400 validation tasks. Intervals are 95 % over seeds (Student's t); "
        "sampled and trained tokens are millions a run. A run has one thread.",
        "",
        *TABLE.lines(),
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 20, 40, 60, 80, 100, 120, 140)),
        "",
    ]
