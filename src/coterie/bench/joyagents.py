"""The results of `assistants`: node-wise training against its neighbours, selection, and memory.

Writes docs/results/joyagents.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.api import load
from coterie.bench import Say
from coterie.bench.rows import Row, Table
from coterie.evaluate import Evaluation, wilson

PAGE = Path("docs/results/joyagents.md")
CONFIG = "configs/assistants.toml"
MEMORY = ("memory.mode=on", "memory.relevance=0.2")
WHOLE = {"denominator": "tasks", "num_generations": 36}
"""Episodes of a task that ask as many replies as joyagents does."""
TABLE = Table(
    Path("runs/bench-joyagents"),
    "coterie.bench.joyagents",
    {
        "joyagents": Row("joyagents", CONFIG),
        "memory": Row("… with memory", CONFIG, overrides=MEMORY),
        "placebo": Row("… with the placebo", CONFIG, overrides=(*MEMORY, "memory.mode=placebo")),
        "c3": Row("c3", CONFIG, {"name": "c3", "bases": 2, "nodes": "per_agent"}),
        "drmas": Row("drmas", CONFIG, {"name": "drmas", **WHOLE}),
        "mas_grpo": Row("mas_grpo", CONFIG, {"name": "mas_grpo", **WHOLE}),
        "paper": Row("joyagents_paper", CONFIG, {"name": "joyagents_paper"}),
        **{
            rule: Row(f"… selection = {rule}", CONFIG, overrides=(f"algorithm.selection={rule}",))
            for rule in ("all_live", "random_live", "raw_var", "shrunk")
        },
    },
)
STEPS = (0, 10, 20, 30)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    TABLE.make(say)
    PAGE.write_text("\n".join(page(say)))
    return TABLE.success()


def page(say: Say) -> list[str]:
    """The results page, from all finished runs."""
    return [
        "# Results: assistants",
        "",
        "Written by `coterie bench joyagents`. Embedded queries, from the shipped starter-assistants (0.92 million "
        "parameters), a policy a role, greedy play on 2,000 held-out queries, which training never sees; the "
        "checkpoint is chosen by 300 validation queries. Intervals are 95 % (Wilson) over all queries of all seeds; "
        "one thread a run. The scripted expert solves every query.",
        "",
        *TABLE.lines(),
        "",
        "## Validation success by step",
        "",
        *TABLE.curves(STEPS),
        "",
        "## By skill, and calls a query",
        "",
        "Greedy, 1,000 held-out queries, seed 0: share solved, and calls of the whole team.",
        "",
        *_kinds(say),
        "",
        "## With and without notes",
        "",
        "The same trained teams, 1,000 held-out queries, mean over seeds: with memory as trained, without, and with "
        "each note another's.",
        "",
        *_memory(say),
        "",
    ]


def _kinds(say: Say) -> list[str]:
    lines: list[str] = []
    for name, row in TABLE.rows.items():
        runs = TABLE.runs(name)
        if not runs:
            continue
        for title, step in ((f"{row.title}, start", 0), (row.title, None)):
            if step == 0 and name != "joyagents":
                continue
            found = load(runs[0].folder, step).evaluate(tasks=1000)
            say(f"by skill, {title}: done")
            if not lines:
                kinds = " | ".join(found.by_kind)
                lines += [f"| | {kinds} | all | {kinds} | all |", "|---|" + "---|" * (2 * len(found.by_kind) + 2)]
            calls = {kind: fmean(_of(found, kind)) for kind in found.by_kind}
            cells = [f"{share:.2f}" for share in (*found.by_kind.values(), found.success)]
            cells += [f"{count:.1f}" for count in (*calls.values(), fmean(found.noted["calls"]))]
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def _of(found: Evaluation, kind: str) -> Sequence[float]:
    return [count for count, one in zip(found.noted["calls"], found.kinds, strict=True) if one == kind]


def _memory(say: Say) -> list[str]:
    lines = ["| trained with | on | off | placebo |", "|---|---|---|---|"]
    for name in ("memory", "placebo"):
        shares: dict[str, list[float]] = {}
        for one in TABLE.runs(name):
            loaded = load(one.folder)
            for mode in ("on", "off", "placebo"):
                loaded.remember(mode)
                shares.setdefault(mode, []).append(loaded.evaluate(tasks=1000).success)
                say(f"memory, {one.folder.name}, {mode}: done")
        if shares:
            cells = [_interval(values, 1000 * len(values)) for values in shares.values()]
            lines.append(f"| {TABLE.rows[name].title} | {' | '.join(cells)} |")
    return lines


def _interval(values: Sequence[float], trials: int) -> str:
    low, high = wilson(fmean(values), trials)
    return f"{fmean(values):.3f} ({low:.3f} to {high:.3f})"
