"""The results of plan_path: algorithms at an equal budget, with seeds and intervals.

Writes docs/results/plan_path.md and docs/run.svg.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.contest import Contest, Entrant
from benchmarks.rows import FIVE, Row, Table
from coterie.bench import Say
from coterie.bench.demo_small import CONFIG

PAGE = Path("docs/results/plan_path.md")
PICTURE = Path("docs/run.svg")
ONE_POLICY = "configs/plan_path_shared.toml"
ALONE = ("environment.solo=true", "train.tasks_per_step=112")
"""Settings of one agent with the map, at twice the tasks a step: it samples about as many tokens as the team."""
SHORT = ("train.steps=40", "train.tasks_per_step=24")
"""Settings of a budget at which every method can be compared in minutes."""
TABLE = Table(
    Path("runs/bench-plan_path"),
    "benchmarks.plan_path",
    {
        "demo": Row("at_grpo, horizon point, random commit, a policy per role (the demo)", CONFIG, seeds=FIVE),
        "solo": Row("one agent with the map, grpo, four turns, twice the tasks", ONE_POLICY, {"name": "grpo"},
                    ALONE, FIVE),
        "once": Row("one agent with the map, grpo, one turn, twice the tasks", ONE_POLICY, {"name": "grpo"},
                    (*ALONE, "environment.max_turns=1"), FIVE),
        "full": Row("the demo, but both see the map (view full)", CONFIG, overrides=("environment.view=full",)),
        "short": Row("40 steps of 24 tasks: at_grpo as in the demo", CONFIG, overrides=SHORT, seeds=FIVE),
        "short_mas": Row("… mas_grpo", CONFIG, {"name": "mas_grpo"}, SHORT, FIVE),
        "short_solo": Row("… grpo, solo", ONE_POLICY, {"name": "grpo"}, (*SHORT, "environment.solo=true"), FIVE),
        "short_turn": Row("… at_grpo, horizon turn", CONFIG, None, (*SHORT, "algorithm.horizon=turn"), FIVE),
        "short_shared": Row("… at_grpo, one shared policy", ONE_POLICY, None, SHORT, FIVE),
        "short_greedy": Row("… at_grpo, greedy commit (the paper's rule)", CONFIG, None,
                            (*SHORT, "algorithm.commit=greedy"), FIVE),
    },
)  # fmt: skip
CONTEST = Contest(
    TABLE,
    Path("docs/results/plan_path_contest.svg"),
    "The single agent is the planner alone. It sees the map that the team's proposer sees, and it has the same "
    "starter. Over four turns it gets the same feedback as the team (where it stands now). It trains on twice the "
    "tasks per step, so that it samples about as many tokens in training as the team. With 5 votes, it plays the most "
    "frequent of five sampled replies.",
    "No. Per sampled token, one agent that sees the map learns faster, and it ends at least as high. In the split "
    "view the planner does not see the map, so the proposer must first tell it what it needs. A team is useful where "
    "no single agent sees everything or may do everything: with different views, tools or models, or with a part that "
    "belongs to somebody else. This task measures whether such a team learns to communicate at all, and what its two "
    "roles achieve with one budget; it is not an argument for two roles.",
    (
        Entrant("team of two", "demo"),
        Entrant("one agent, four turns", "solo"),
        Entrant("one agent, one turn", "once"),
        Entrant("one agent, four turns, 5 votes", "solo", 5),
    ),
)


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the page, and returns success by row."""
    published = CONTEST.publish(PAGE, page, say)
    PICTURE.write_text(picture())
    return published


def page(say: Say) -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    return [
        "# Results: plan_path",
        "",
        "Written by `python -m benchmarks plan_path`. "
        "Teams train on 6 x 6 grids with split view, from the shipped starter "
        "(0.9 million parameters). Success is that of greedy play on the same 1,000 test tasks, which training never "
        "sees; the checkpoint is chosen on 400 validation tasks. Intervals are 95 % intervals over seeds (Student's "
        "t). In the mean number of turns, an unsolved task counts as 4, the limit. The rows above `40 steps of 24 "
        "tasks` have the demo's budget; that row and those below have a smaller one. Rows of one budget have the "
        "same steps, tasks and replies per group, except that the single agent may have twice the tasks. The cost is "
        "given in sampled and trained tokens (millions per run). Here a run has one thread. With two threads, as in "
        "`make demo-small`, sums are computed in another order, so the numbers differ.",
        "",
        *TABLE.lines(),
        "",
        *CONTEST.section(say),
        "## Validation success by step",
        "",
        *TABLE.curves((0, 20, 40, 80, 120)),
        "",
    ]


def picture() -> str:
    """Returns the demo's validation success over training as an SVG, a thin line a seed and their mean."""
    runs = [run.metrics() for run in TABLE.runs("demo")]
    curves = [
        [(line["step"], line["validation/success"]) for line in run if "validation/success" in line] for run in runs
    ]
    curves.append([(points[0][0], fmean(success for _, success in points)) for points in zip(*curves, strict=True)])
    last = curves[-1][-1][0]

    def place(step: float, success: float) -> str:
        return f"{60 + 560 * step / last:.1f},{20 + 220 * (1 - success):.1f}"

    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 290" font-family="sans-serif" font-size="13">',
        '<rect width="640" height="290" fill="#ffffff"/>',
    ]
    for success in (0.0, 0.25, 0.5, 0.75, 1.0):
        (x, y), (right, _) = (place(step, success).split(",") for step in (0, last))
        lines.append(f'<line x1="{x}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>')
        lines.append(f'<text x="52" y="{float(y) + 4}" text-anchor="end" fill="#444444">{success:.0%}</text>')
    for points in curves:
        mean = points is curves[-1]
        style = 'stroke="#1f6feb" stroke-width="3"' if mean else 'stroke="#9ec3ff" stroke-width="1"'
        lines.append(f'<polyline fill="none" {style} points="{" ".join(place(*point) for point in points)}"/>')
    for step in (0, last // 2, last):
        x = place(step, 0).split(",")[0]
        lines.append(f'<text x="{x}" y="258" text-anchor="middle" fill="#444444">{step:.0f}</text>')
    title = "Success on validation grids, greedy, by training step: five seeds and their mean"
    lines.append(f'<text x="340" y="280" text-anchor="middle" fill="#111111">{title}</text></svg>')
    return "\n".join(lines) + "\n"
