"""The results of the programming tasks: teams, baselines, turns, and how two roles cooperate.

Writes docs/results/code.md.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.contest import Contest, Entrant
from benchmarks.rows import FIVE, Row, Table
from coterie.bench import Say
from coterie.kernel.episode import Answered, Noted
from coterie.kernel.mistakes import task_of
from coterie.run.evaluate import at_k
from coterie.run.loaded import load

PAGE = Path("docs/results/code.md")
CODE, PAIR, SOLO = "configs/code.toml", "configs/code_pair.toml", "configs/code_pair_solo.toml"
TABLE = Table(
    Path("runs/bench-code"),
    "benchmarks.code",
    {
        "code": Row("code: coder and tester, at_grpo", CODE, seeds=FIVE),
        "pair": Row("code_pair: aux and main, magrpo", PAIR, seeds=FIVE),
        "pair_turns": Row("… two turns, feedback `levels`, 4 replies per node", PAIR, overrides=(
            "environment.max_turns=2", "algorithm.num_generations=4")),
        "pair_cross": Row("… all joint actions (`cross`) of 4 replies, leave-one-out", PAIR, overrides=(
            "algorithm.joint=cross", "algorithm.num_generations=4", "algorithm.baseline=leave_one_out")),
        "solo": Row("… one agent alone, grpo", SOLO, seeds=FIVE),
        "solo_turns": Row("… one agent alone, two turns with feedback, grpo", SOLO, None,
                          ("environment.max_turns=2",), FIVE),
    },
)  # fmt: skip
CONTEST = Contest(
    TABLE,
    Path("docs/results/code_contest.svg"),
    "The single agent has the same starter and the same validation problems. With 5 votes, it plays the most frequent "
    "of five sampled replies.",
    "No. One agent that writes the whole function does at least as well, with fewer tokens, and none of its seeds "
    "gets stuck. These problems are small enough for one agent, and two roles that do not see each other's text must "
    "also agree on what the helper does. A team is useful where parts are written separately anyway: by different "
    "models, by different owners, or at the same time.",
    (
        Entrant("team: aux and main", "pair"),
        Entrant("one agent, one turn", "solo"),
        Entrant("one agent, two turns with feedback", "solo_turns"),
        Entrant("one agent, one turn, 5 votes", "solo", 5),
    ),
)
STEPS = (0, 10, 20, 30)
SAMPLED, KS = 10, (1, 3, 5, 10)
SCHEMES = ("fallback", "decorator", "coordinator", "strategy")


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the results page, and returns success by row."""
    return CONTEST.publish(PAGE, page, say)


def page(say: Say) -> list[str]:
    """Returns the lines of the results page, from all finished runs."""
    return [
        "# Results: code and code_pair",
        "",
        "Written by `python -m benchmarks code`. "
        "Teams start from the shipped starter-code (0.92 million parameters) and "
        "train on the embedded problems. Success is that of greedy play on the 498 held-out problems (chains of "
        "steps), which training never sees; the checkpoint is chosen on 200 validation problems. Intervals are 95 % "
        "intervals over seeds (Student's t). Each run has one thread. The column `start` of the code_pair rows is "
        "the baseline *naive concatenation*: the functions of two untrained roles are put together. At evaluation it "
        "has the same budget as the trained team.",
        "",
        *TABLE.lines(),
        "",
        *CONTEST.section(say),
        "Share of the gap to a success of 1 that training closes, and minutes of training (several runs at once):",
        "",
        "| | gap closed | minutes |",
        "|---|---|---|",
        *_gaps(),
        "",
        "## Validation success by step",
        "",
        *TABLE.curves(STEPS),
        "",
        "## pass@k, accuracy@k, cooperation@k",
        "",
        f"Unbiased estimates for code_pair with magrpo, seed 0, from {SAMPLED} sampled episodes of each of 100 test "
        "problems. At the start, sampled play solves more than greedy play (column `start` above), because the "
        "starter makes its habitual mistake most often but not always ([decisions](../decisions.md)). accuracy@k is "
        "the largest share of hidden tests passed among k episodes, cooperation@k the largest cooperation level "
        "among them.",
        "",
        *_at_k(say),
        "",
        "## How aux and main cooperate over training",
        "",
        "Shares of the training episodes of code_pair in one turn, mean over seeds. *needed*: main needs the answers "
        "of aux. *handed on*: main only passes them on. *solved*: all hidden tests pass. The last four columns say "
        "how main uses aux ([environments](../environments.md#code_pair)), confirmed by disabling aux. "
        "[cooperation](cooperation.md) says which pairs the reward pays and how often it errs.",
        "",
        *_schemes(),
        "",
        _unneeded(),
        "",
        "## Programs",
        "",
        "The first two test problems that the untrained starter fails and the trained team of seed 0 solves.",
        "",
        *_examples(),
        "",
    ]


def _gaps() -> list[str]:
    lines: list[str] = []
    for name, row in TABLE.rows.items():
        if rows := TABLE.found(name):
            before, after = (fmean(finished[key] for finished in rows) for key in ("start_success", "success"))
            minutes = fmean(finished["training_minutes"] for finished in rows)
            lines.append(f"| {row.title} | {(after - before) / (1 - before):.0%} | {minutes:.1f} |")
    return lines


def _at_k(say: Say) -> list[str]:
    lines = [f"| | {' | '.join(f'{what}@{k}' for what in ('pass', 'accuracy', 'cooperation') for k in KS)} |",
             "|---|" + "---|" * (3 * len(KS))]  # fmt: skip
    for title, step in (("start", 0), ("trained", None)):
        evaluation = load(TABLE.runs("pair")[0].folder, step).evaluate(tasks=100, sampled=SAMPLED)
        values = (evaluation.solved, evaluation.noted["accuracy"], evaluation.noted["cooperation"])
        cells = [f"{at_k(solved, SAMPLED, k):.3f}" for solved in values for k in KS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
        say(f"pass@k, {title}: done")
    return lines


def _schemes() -> list[str]:
    runs = [run.metrics() for run in TABLE.runs("pair")]
    shown = {"needed": "metric/aux_used", "handed on": "metric/aux_handed_on", "solved": "rollout/success"}
    shown |= {scheme: f"metric/scheme/{scheme}" for scheme in SCHEMES}
    lines = ["| steps | " + " | ".join(shown) + " |", "|---|" + "---|" * len(shown)]
    for first in range(1, STEPS[-1], 10):
        within = [line for run in runs for line in run if first <= line["step"] < first + 10]
        cells = [f"{fmean(line[metric] for line in within):.2f}" for metric in shown.values()]
        lines.append(f"| {first} to {first + 9} | {' | '.join(cells)} |")
    return lines


def _unneeded() -> str:
    """Returns a sentence with the tasks that main solved while aux's answers changed nothing."""
    queries: list[str] = []
    solved = 0
    for run in TABLE.runs("pair"):
        world = run.config.environment
        for played in run.episodes(STEPS[-1]):
            for log in played.collected.logs:
                solved += log.solved
                noted = {event.name: event.value for event in log.events if isinstance(event, Noted)}
                if log.solved and not noted["aux_used"]:
                    queries.append(task_of(world, played.split, played.index).query)
    return (
        f"In step {STEPS[-1]}, {len(queries)} of {solved} solved episodes did not need aux. Their tasks: "
        + "; ".join(f"`{query}`" for query in sorted(set(queries)))
        + ". In these tasks, main's later steps undo the effect of aux or make it irrelevant, so that main "
        "passes most tests without aux too."
    )


def _examples() -> list[str]:
    folder = TABLE.runs("pair")[0].folder
    before, after = load(folder, 0), load(folder)
    lines: list[str] = []
    for index in range(60):
        logs = before.play("test", index), after.play("test", index)
        if logs[0].solved or not logs[1].solved:
            continue
        lines += [f"`{task_of(before.config.environment, 'test', index).query}`", ""]
        for title, log in zip(("Start", "Trained"), logs, strict=True):
            (answered,) = [event for event in log.events if isinstance(event, Answered)]
            texts = [reply.text for reply in answered.replies.values()]
            lines += [f"{title}:", "", "```python", *"\n\n".join(texts).splitlines(), "```", ""]
        if lines.count("Start:") == 2:
            break
    return lines
