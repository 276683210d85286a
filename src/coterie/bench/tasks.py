"""The tasks that came last, each from its starter: sokoban, sudoku, maths, writing, five seeds.

And what it costs and buys in `writing` that roles see each other's text. Writes docs/results/tasks.md.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from coterie.bench import Say
from coterie.bench.intervals import over_seeds
from coterie.bench.rows import FIVE, Row, Table
from coterie.kernel.episode import Answered, Asked, Log
from coterie.models.rendering import Renderer
from coterie.run.loaded import Loaded

PAGE = Path("docs/results/tasks.md")
WRITING = "configs/writing.toml"
PROTOCOLS = {
    "writing": "together: neither sees the other's",
    "writing_pipeline": "pipeline: the second sees the first's",
    "writing_discussion": "discussion: both see both, and write again",
    "writing_alone": "alone: one writes both parts",
}
EPISODES = {"name": "mas_grpo", "num_generations": 8}
"""Where a role sees what was written MAGRPO would play 64 texts a task, of eight replies to each of eight."""


TABLE = Table(
    Path("runs/bench-tasks"),
    "coterie.bench.tasks",
    {
        "sokoban": Row("sokoban: 6 x 6, one box, three pushes or more", "configs/sokoban.toml", seeds=FIVE),
        "sudoku": Row("sudoku: 4 x 4, seven givens", "configs/sudoku.toml", seeds=FIVE),
        "maths": Row("maths: sums, equations, stories, a calculator", "configs/maths.toml", seeds=FIVE),
        "writing": Row("writing: 0.9 of the best reward or more", WRITING, seeds=FIVE),
        "writing_pipeline": Row("writing, pipeline, mas_grpo", WRITING, EPISODES, ("environment.protocol=pipeline",)),
        "writing_discussion": Row(  # each writes twice: as many texts as the others
            "writing, discussion, mas_grpo, 40 steps",
            WRITING,
            EPISODES,
            ("environment.protocol=discussion", "train.steps=40"),
        ),
        "writing_alone": Row("writing, one role, grpo", "configs/writing_alone.toml"),
    },
)
TEXTS = 60
"""Texts that are timed, one after another, greedily."""


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    minutes = [row["cpu_minutes"] for name in TABLE.rows for row in TABLE.found(name)]
    return [
        "# Results: sokoban, sudoku, maths, writing",
        "",
        "Written by `coterie bench tasks`. Each team from its shipped starter (0.9 million parameters), a policy a "
        "role, as `coterie train NAME` has it. Success is greedy play on 1,000 test tasks, which training never sees; "
        "the checkpoint is chosen by 400 validation tasks. Intervals are 95 % over seeds (Student's t); sampled and "
        "trained tokens are millions a run. A run has one thread, evaluations included: "
        f"{min(minutes):.1f} to {max(minutes):.1f} CPU minutes.",
        "",
        *TABLE.lines(),
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 20, 40, 60, 80, 100, 120, 140)),
        "",
        "## Writing: speed against quality",
        "",
        f"The same teams on {TEXTS} test texts, by who sees what. Tokens are a text's, of all roles: what is written, "
        "what is written one after another where roles write at once (what a text waits for, however many machines "
        "there are), and what is read. Seconds are this machine's, of one text after another, all protocols in turn, "
        "against those of `together`; the median, with the policies of each first seed.",
        "",
        *speed(),
        "",
        "Roles that write at once are done first and read least after one who writes alone; seeing the other's text "
        "costs time and buys nothing here, where who tells which fact can be agreed on beforehand. A discussion was "
        "trained for half the steps, as many texts. Pipeline and discussion are trained with whole episodes "
        "(`mas_grpo`): with `magrpo`, which plays 64 of them a task there, the pipeline took seven times as long "
        "and a discussion had found nothing by step 75 (one seed of each, at a rate of 1e-3).",
        "",
    ]


def speed() -> list[str]:
    """The table of speed against quality."""
    teams = {name: Loaded(TABLE.runs(name)[0]) for name in PROTOCOLS if TABLE.found(name)}
    tokens: dict[str, list[tuple[int, int, int]]] = {name: [] for name in teams}
    seconds: dict[str, list[float]] = {name: [] for name in teams}
    for index in range(TEXTS):
        for name, team in teams.items():
            began = time.perf_counter()
            log = team.play("test", index)
            seconds[name].append(time.perf_counter() - began)
            tokens[name].append(spent(team, log))
    lines = [
        "| | success | 95 % over seeds | written | one after another | read | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    first = median(seconds["writing"])
    for name in teams:
        mean, low, high = over_seeds([row["success"] for row in TABLE.found(name)])
        counts = (fmean(one) for one in zip(*tokens[name], strict=True))
        cells = (
            PROTOCOLS[name],
            f"{mean:.3f}",
            f"{max(0.0, low):.3f} to {min(1.0, high):.3f}",
            *(f"{count:.0f}" for count in counts),
            f"{median(seconds[name]) / first:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spent(team: Loaded, log: Log) -> tuple[int, int, int]:
    """Tokens of an episode: written, written one after another, and read."""
    render = {
        role: Renderer(team.models.policies[policy].model.tokenizer, policy)
        for role, policy in team.config.team.roles.items()
    }
    replies = [
        [len(reply.ids) + 1 for reply in event.replies.values()] for event in log.events if isinstance(event, Answered)
    ]
    asked = [event.prompts for event in log.events if isinstance(event, Asked)]
    read = sum(
        len(render[role](prompt)) for prompts in asked for role, prompt in prompts.items() if isinstance(prompt, str)
    )
    return sum(map(sum, replies)), sum(map(max, replies)), read
