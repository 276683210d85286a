"""Results of sokoban, sudoku, maths and writing: each is trained from its starter with five seeds.

It also measures the effect of letting the roles of `writing` see each other's text. Writes docs/results/tasks.md.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.intervals import over_seeds
from benchmarks.rows import FIVE, Row, Table
from coterie.bench import Say
from coterie.kernel.episode import Answered, Asked, Log
from coterie.models.rendering import Renderer
from coterie.run.loaded import Loaded

PAGE = Path("docs/results/tasks.md")
WRITING = "configs/writing.toml"
PROTOCOLS = {
    "writing": "together: neither role sees the other's text",
    "writing_pipeline": "pipeline: the second role sees the first's text",
    "writing_discussion": "discussion: both roles see both texts and write again",
    "writing_alone": "alone: one role writes both parts",
}
EPISODES = {"name": "mas_grpo", "num_generations": 8}
"""GRPO over episodes; MAGRPO would play 64 texts a task where a role sees another's, 8 replies to each of 8."""


TABLE = Table(
    Path("runs/bench-tasks"),
    "benchmarks.tasks",
    {
        "sokoban": Row("sokoban: 6 x 6, one box, at least three pushes", "configs/sokoban.toml", seeds=FIVE),
        "sudoku": Row("sudoku: 4 x 4, seven givens", "configs/sudoku.toml", seeds=FIVE),
        "maths": Row("maths: sums, equations, word problems, a calculator", "configs/maths.toml", seeds=FIVE),
        "writing": Row("writing: solved at 0.9 of the best reward", WRITING, seeds=FIVE),
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
"""Number of texts that are timed, one after another, greedily."""


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the results page, and returns success by row."""
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    minutes = [row["cpu_minutes"] for name in TABLE.rows for row in TABLE.found(name)]
    return [
        "# Results: sokoban, sudoku, maths, writing",
        "",
        "Written by `python -m benchmarks tasks`. "
        "Each team is trained from its shipped starter (0.9 million parameters) "
        "with one policy per role, as `coterie train NAME` does it. Success is that of greedy play on 1,000 test "
        "tasks, which training never sees; the checkpoint is chosen on 400 validation tasks. Intervals are 95 % "
        "intervals over seeds (Student's t); sampled and trained tokens are in millions per run. `writing` counts no "
        f"turns, so its turns are 0. A run has one thread and takes {min(minutes):.1f} to {max(minutes):.1f} CPU "
        "minutes, including evaluations.",
        "",
        *TABLE.lines(),
        "",
        "## Validation success by step",
        "",
        *TABLE.curves((0, 20, 40, 60, 80, 100, 120, 140)),
        "",
        "## Writing: speed against quality",
        "",
        f"The same teams write {TEXTS} test texts. A row is a protocol: it says which role sees which text. Token "
        "counts are means per text, over all roles. *written*: all sampled tokens. *longest chain*: the tokens that "
        "must be sampled one after another, counting only the longest reply of roles that write at once. *read*: "
        "prompt tokens. *time*: the median time per text relative to `together`, on this machine, with texts written "
        "one after another and the protocols alternating. Tokens and times are those of each first seed.",
        "",
        *speed(),
        "",
        "Roles that write at the same time finish first; only a role that writes alone reads less. Seeing the "
        "other's text costs time and brings no gain here, because the roles can learn a fixed rule for which role "
        "tells which fact. In the discussion each role writes twice, so it was trained for half the steps; the "
        "number of written texts is the same. Pipeline and discussion are trained on whole episodes (`mas_grpo`). "
        "With `magrpo`, which plays 64 episodes per task there, the pipeline took seven times as long, and the "
        "discussion had learned nothing by step 75 (one seed of each, at a learning rate of 1e-3).",
        "",
    ]


def speed() -> list[str]:
    """Returns the table of speed against quality."""
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
        "| | success | 95 % interval over seeds | written (tokens) | longest chain (tokens) | read (tokens) | "
        "time, relative to `together` |",
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
    """Returns the tokens of an episode: written, written one after another, and read."""
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
