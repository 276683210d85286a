"""The results of `assistants`: node-wise training against its neighbours, and against one agent.

Writes docs/results/joyagents.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.contest import Contest, Entrant
from benchmarks.rows import FIVE, Row, Table, interval
from coterie.bench import Say
from coterie.run.evaluate import Evaluation
from coterie.run.folder import Run
from coterie.run.loaded import load

PAGE = Path("docs/results/joyagents.md")
CONFIG, SOLO = "configs/assistants.toml", "configs/assistants_solo.toml"
WHOLE = {"num_generations": 8}
"""Settings for whole episodes: the number per task that gave the best gradient."""
MATCHED = ("train.tasks_per_step=40", "loss.denominator=tasks")
"""Settings with so many queries per step that whole episodes ask as many replies as 64 queries of joyagents."""
TWICE = ("train.tasks_per_step=46",)
"""Settings that match replies in the same way where alternatives are played twice."""
ROWS = {
    "joyagents": Row("joyagents", CONFIG, seeds=FIVE),
    "c3": Row("c3, played twice", CONFIG, {"name": "c3"}, TWICE, (0, 1)),
    "drmas": Row("drmas, 8 episodes", CONFIG, {"name": "drmas", **WHOLE}, MATCHED),
    "mas_grpo": Row("mas_grpo, 8 episodes", CONFIG, {"name": "mas_grpo", **WHOLE}, MATCHED, FIVE),
    "paper": Row("joyagents_paper, our rewards", CONFIG, {"name": "joyagents_paper"}, seeds=(0, 1)),
    "solo": Row("one agent with every tool, grpo", SOLO, seeds=FIVE),
}
WHY = [
    "With about the same number of replies, methods that compare alternatives of single decisions and methods that "
    "compare whole episodes cannot be distinguished: the intervals overlap. joyagents trains on a tenth of the "
    "replies that it samples, because most replies only continue an alternative; methods with whole episodes train "
    "on half. A trained reply of joyagents carries more signal ([gradient quality](allocation.md)). c3 had a sixth "
    "fewer replies than mas_grpo, and one of its two seeds failed, so it is not a fair comparison yet. Voting among "
    "five sampled replies (next table) makes the single agent slightly worse than greedy play.",
]
TABLE = Table(Path("runs/bench-joyagents"), "benchmarks.joyagents", ROWS)
CONTEST = Contest(
    TABLE,
    Path("docs/results/joyagents_contest.svg"),
    "The single agent is the master alone, with the tools of all roles, from a starter that was made in the same way. "
    "Each of its tool calls is one turn. With 5 votes, it takes the most frequent of five sampled replies at every "
    "call.",
    "No. One agent with every tool learns faster and ends higher, with half the tokens at evaluation. It delegates "
    "nothing, so there are fewer decisions that can go wrong. For the same reason it starts higher too. A team is "
    "useful where one agent may not or cannot have every tool: with different models, different permissions, prompts "
    "that do not fit together, or parts that belong to somebody else.",
    (
        Entrant("team of five, joyagents", "joyagents"),
        Entrant("team of five, mas_grpo", "mas_grpo"),
        Entrant("one agent with every tool", "solo"),
        Entrant("one agent with every tool, 5 votes", "solo", 5),
    ),
)
STEPS = (0, 10, 20, 30)


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the results page, and returns success by row."""
    return CONTEST.publish(PAGE, page, say)


def page(say: Say) -> list[str]:
    """Returns the lines of the results page, from all finished runs."""
    return [
        "# Results: assistants",
        "",
        "Written by `python -m benchmarks joyagents`. Teams start from the shipped starter-assistants (0.92 million "
        "parameters), with one policy per role, and train on the embedded queries. Success is that of greedy play on "
        "1,000 held-out queries, which training never sees; the checkpoint is chosen on 300 validation queries. "
        "Intervals are 95 % intervals over seeds (Student's t). A run has one thread; several runs ran at once. The "
        "scripted expert solves every query.",
        "",
        "`replies` counts the replies sampled in training, of all roles, in thousands. All rows but the single agent "
        "got about the same number, c3 somewhat fewer. `trained` counts the replies, in thousands, that contributed "
        "to a gradient. Seeds are numbered from 0; `by seed` has one value for each. *played twice*: each "
        "alternative reply has two continuations. `joyagents_paper` is the published method as far as it is known "
        "([page](../algorithms/joyagents_paper.md)), here with our rewards.",
        "",
        *_results(),
        "",
        *WHY,
        "",
        *CONTEST.section(say),
        "## Validation success by step",
        "",
        *TABLE.curves(STEPS),
        "",
        "## Success by skill, and calls per query",
        "",
        "Greedy play on the same 1,000 queries, means over seeds. The first six columns give the share solved, the "
        "last six the calls of the whole team per query. `together` are queries that need several skills.",
        "",
        *_kinds(say),
        "",
    ]


def _results() -> list[str]:
    lines = [
        "| | start | success | 95 % interval over seeds | by seed | share of the gap to 1 closed | queries | replies | "
        "trained | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in TABLE.rows.items():
        if rows := TABLE.found(name):
            before, after = (fmean(finished[key] for finished in rows) for key in ("start_success", "success"))
            runs = TABLE.runs(name)
            queries = runs[0].config.train.steps * runs[0].config.train.tasks_per_step
            cells = (
                row.title,
                f"{before:.3f}",
                f"**{after:.3f}**",
                interval([finished["success"] for finished in rows]),
                ", ".join(f"{finished['success']:.3f}" for finished in rows),
                f"{(after - before) / (1 - before):.0%}",
                f"{queries}",
                f"{fmean(run.metrics()[-1]['budget/replies'] for run in runs) / 1000:.1f}",
                f"{fmean(_trained(run) for run in runs) / 1000:.1f}",
                f"{fmean(finished['training_minutes'] for finished in rows):.1f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _trained(run: Run) -> float:
    """Returns the number of replies that contributed to a gradient."""
    return sum(value for line in run.metrics() for key, value in line.items() if key.endswith("/trained_sequences"))


def _kinds(say: Say) -> list[str]:
    lines: list[str] = []
    for heading, name, step in (("start", "joyagents", 0), *((row.title, name, None) for name, row in ROWS.items())):
        runs = TABLE.runs(name)[: 1 if step == 0 else None]
        if evaluations := [load(run.folder, step).evaluate() for run in runs]:
            say(f"by skill, {heading}: done")
            kinds = list(evaluations[0].by_kind)
            if not lines:
                head = " | ".join([*kinds, "all"] * 2)
                lines += [f"| | {head} |", "|---|" + "---|" * (2 * len(kinds) + 2)]
            cells = [f"{fmean(evaluation.by_kind[kind] for evaluation in evaluations):.2f}" for kind in kinds]
            cells += [f"{fmean(evaluation.success for evaluation in evaluations):.2f}"]
            cells += [f"{fmean(fmean(_calls(evaluation, kind)) for evaluation in evaluations):.2f}" for kind in kinds]
            cells += [f"{fmean(fmean(evaluation.noted['calls']) for evaluation in evaluations):.2f}"]
            lines.append(f"| {heading} | {' | '.join(cells)} |")
    return lines


def _calls(evaluation: Evaluation, kind: str) -> Sequence[float]:
    counts = zip(evaluation.kinds, evaluation.noted["calls"], strict=True)
    return [count for played, count in counts if played == kind]
