"""The comparisons of the three papers at our scale, with the controls they lack, at equal sampled tokens.

Writes docs/results/paper.md from docs/results/data/paper.jsonl, which holds the figures of every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import claims
from benchmarks.claims import Claim, Comparison
from benchmarks.contest import spread
from benchmarks.paper_rows import BUDGETS, GAMES, TABLE
from coterie.bench import Say

PAGE = Path("docs/results/paper.md")
TASKS = (*BUDGETS, "code", "writing", "assistants")
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "plan_path": {"before once": "5.0 / 12.0", "once": "11.0 / 47.0", "before published": "10.0 / 71.0",
                  "shared": "96.0 / 93.0", "published": "97.0 / 96.0"},
    "sokoban": {"before once": "0.0 / 9.0", "once": "3.0 / 14.0", "before published": "0.0 / 16.0",
                "shared": "10.0 / 96.0", "published": "11.5 / 98.0"},
    "sudoku": {"before once": "7.0 / 48.0", "once": "29.0 / 54.0", "before published": "69.0 / 72.0",
               "shared": "99.0 / 99.5", "published": "99.0 / 99.0"},
}  # fmt: skip
"""Success of Qwen3-1.7B and 8B in percent, from arXiv:2510.11062 (other sizes and prompts of the same games)."""


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the page and the claims, and returns success by row."""
    published = TABLE.publish(PAGE, page, say)
    claims.run(say)
    return published


def successes(row: str) -> list[float]:
    """Returns success of a row, by seed."""
    return [figures["success"] for figures in TABLE.found(row)]


def before(row: str) -> list[float]:
    """Returns success before training, once per finished seed: all seeds of a row begin with the same weights."""
    return [figures["start_success"] for figures in TABLE.found(row)]


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    done = [figures for name in TABLE.rows for figures in TABLE.found(name)]
    hours, beyond = TABLE.spent()
    lines = [
        "# Results: the papers' comparisons, with matched single agents",
        "",
        claims.against(CLAIMS),
        "",
        f"Written by `python -m benchmarks paper`: "
        f"{len(done)} runs, {hours:.1f} CPU hours without the sandboxes of code. By "
        f"their own counters all runs of a task sampled its budget and at most {beyond:.1%} more, because a run ends "
        "with a whole step. Success is that of greedy play on 1,000 test tasks (498 of code), which training never "
        "sees; intervals are 95 % intervals over seeds (Student's t). In games, AT-GRPO is our variant of it, as in "
        "the shipped configs: it goes on with a random reply and counts rewards until the next decision (horizon "
        "point). *As published*, it goes on with the best reply and counts rewards until the turn ends. In maths, "
        "where both answer at once and a turn has one decision, the variant is the published one. Budgets are smaller "
        "than those of the shipped configs, which reach [more](tasks.md). Each [claim](claims/index.md) has "
        "a page of its own.",
        "",
    ]
    for task in TASKS:
        lines += [f"## {task}", "", *_table(task), ""]
    return lines


def _table(task: str) -> list[str]:
    """Returns a task's table, a line per player: success before and after training, costs, published numbers."""
    published = PUBLISHED.get(task, {})
    lines = [
        "| | before training | after | by seed | with 5 votes | sampled in training (M tokens) | tokens per test task |"
        + (" published, 1.7B / 8B |" if published else ""),
        "|---|---|---|---|---|---|---|" + ("---|" if published else ""),
    ]
    for name in TABLE.rows:
        kind = name.removeprefix(f"{task}_")
        if kind != name and (found := TABLE.found(name)):
            values = [figures["success"] for figures in found]
            voted = [figures["votes"] for figures in found if "votes" in figures]
            before = published.get(f"before {kind}", "")
            cells = [
                TABLE.rows[name].title,
                f"{found[0]['start_success']:.3f}",
                f"**{spread(values)}**",
                ", ".join(f"{value:.3f}" for value in values),
                spread(voted) if voted else "",
                f"{fmean(figures['sampled_tokens'] for figures in found) / 1e6:.2f}",
                f"{fmean(figures['tokens'] for figures in found):.0f}",
            ]
            cells += [f"{f'{before}, then ' if before else ''}{published.get(kind, '')}"] if published else []
            lines.append(f"| {' | '.join(cells)} |")
    return lines


AT_GRPO = "AT-GRPO (Stronger-MAS), arXiv:2510.11062"
SETTING = "Percent, Qwen3-1.7B / 8B, larger boards and longer prompts than here"
MAGRPO = "MAGRPO, arXiv:2508.04652 (code: HumanEval / CoopHumanEval, Qwen2.5-Coder-3B, pass@1 in percent)"
FOLLOW_UP = "its follow-up, arXiv:2601.21972 (writing: TLDR / arXiv, score in percent, second-hand)"
LARGER = "The same rows with models of 1.7 billion parameters and more on the published boards, five seeds a row."
REAL = "The same rows on HumanEval and TLDR with models of 1.7 to 3 billion parameters, the controls trained as well."
AT_ONCE = (
    "**In the episodes.** Two that write at once must agree, without a word, on who does which step. In a run of code "
    "that succeeds (seed 3), aux does the first step and main the others. In the one that fails (seed 4), both do the "
    "middle step, and training stays there: the tasks in which doing it twice changes nothing are solved. A role that "
    "sees what the other wrote need not guess."
)
MATCH = 0.02
"""Success by which one agent may be below a team and still match it."""


def _each(more: str, less: str, tasks: Sequence[str], published: Mapping[str, str] | None = None) -> list[Comparison]:
    """Returns comparisons of two rows on each task."""
    return [
        Comparison(task, successes(f"{task}_{more}"), successes(f"{task}_{less}"), (published or {}).get(task, ""))
        for task in tasks
    ]


def _trees(than: str, published: Mapping[str, str] | None = None) -> list[Comparison]:
    """Returns comparisons of a team trained with AT-GRPO with another row; in games also with AT-GRPO as published.

    published: of those that train it as published, by task.
    """
    ours = _each("roles", than, tuple(BUDGETS), {"maths": (published or {}).get("maths", "")})
    theirs = _each("published", than, GAMES, published)
    return [*ours, *(replace(each, label=f"{each.label}, AT-GRPO as published") for each in theirs)]


VARIANT = (
    "In games, AT-GRPO is our variant (random commit, horizon point) where nothing else is said. In maths, where both "
    "answer at once and a turn has one decision, it is the published one (greedy commit)."
)


def _between(label: str, more: str, less: str, published: str = "") -> Comparison:
    return Comparison(label, successes(more), successes(less), published)


def _alone() -> list[Comparison]:
    """Returns comparisons of one agent that gets what the team gets with the task's best team, whatever trained it."""
    rivals = {
        **dict.fromkeys(GAMES, ("naive", "shared", "roles", "published")),
        "maths": ("naive", "shared", "roles"),
        "code": ("magrpo", "pipeline", "discussion"),
        "writing": ("magrpo", "pipeline", "discussion"),
        "assistants": ("joyagents", "c3", "drmas", "mas_grpo"),
    }
    alone = {
        **{f"{task}_turns": f"{task}, four turns, GRPO" for task in GAMES},
        **{f"{task}_solo": f"{task}, four turns, AT-GRPO" for task in GAMES},
        "maths_solo": "maths, with the calculator",
        "code_solo": "code, one turn",
        "code_turns": "code, two turns with feedback",
        "writing_alone": "writing",
        "assistants_solo": "assistants, with every tool",
    }
    found: list[Comparison] = []
    for row, label in alone.items():
        task = row.rpartition("_")[0]
        best = max((successes(f"{task}_{team}") for team in rivals[task]), key=lambda values: fmean(values or [0.0]))
        found.append(Comparison(label, successes(row), best, margin=MATCH))
    return sorted(found, key=lambda each: each.label)


def _simultaneous() -> list[Comparison]:
    """Returns comparisons of two agents at once with the papers' rivals; pipeline and discussion are not trained."""
    return [
        _between("code: than one agent", "code_magrpo", "code_solo", "54.8 and 45.1 / 68.2 and 62.5"),
        Comparison("code: than an untrained pipeline", successes("code_magrpo"), before("code_pipeline"),
                   "54.8 and 53.4 / 68.2 and 57.2"),
        Comparison("code: than an untrained discussion", successes("code_magrpo"), before("code_discussion"),
                   "54.8 and 41.2 / 68.2 and 40.9"),
        _between("writing: than one agent", "writing_magrpo", "writing_alone", "93.5 and 91.7 / 93.1 and 91.0"),
        Comparison("writing: than an untrained pipeline", successes("writing_magrpo"), before("writing_pipeline"),
                   "93.5 and 21.7 / 93.1 and 57.0"),
        Comparison("writing: than an untrained discussion", successes("writing_magrpo"), before("writing_discussion"),
                   "93.5 and 22.3 / 93.1 and 54.3"),
    ]  # fmt: skip


def _turns() -> list[Comparison]:
    """Returns comparisons of the turns before and after training, as shares of the most that an episode may have."""
    return [
        Comparison(
            task,
            [figures["start_turns"] / TURNS for figures in found],
            [figures["turns"] / TURNS for figures in found],
        )
        for task in GAMES
        if (found := TABLE.found(f"{task}_roles"))
    ]


def _validated(row: str, point: int) -> list[float]:
    """Returns validation success of a row's runs at a point of their curves: 0, the start; -1, the end."""
    return [figures["curve"][point][2] for figures in TABLE.found(row)]


def _grown(task: str, row: str) -> list[float]:
    """Returns the growth of the leading role's share of the gradient from the first to the last third, by seed.

    The leading role of a task is the one with the larger share at first, a mean over the runs with one policy.
    """
    runs = [figures["shares"] for figures in TABLE.found(f"{task}_shared")]
    if not runs:
        return []
    leads = max(runs[0], key=lambda role: fmean(shares[role][0] for shares in runs))
    return [figures["shares"][leads][2] - figures["shares"][leads][0] for figures in TABLE.found(f"{task}_{row}")]


TURNS = 4
"""Maximum number of turns of an episode of the games."""
CLAIMS = (
    Claim(
        "team_beats_one_turn", "A team that is trained beats one agent that answers once",
        f"{AT_GRPO}, its main tables: a team trained with AT-GRPO against one agent trained with GRPO. {SETTING}.",
        ("team, AT-GRPO", "one agent, one turn"),
        lambda: _trees("once", {
            "plan_path": "97.0 and 11.0 / 96.0 and 47.0", "sokoban": "11.5 and 3.0 / 98.0 and 14.0",
            "sudoku": "99.0 and 29.0 / 99.0 and 54.0", "maths": "AIME24: 13.3 and 10.0 / 57.0 and 18.3"}),
        "paper", LARGER,
        f"**Which AT-GRPO.** {VARIANT}\n\n**What it leaves out.** One agent that answers once has neither the team's "
        "turns nor, in maths, its "
        "calculator. With these, [one agent matches the team](one_agent_matches.md).",
    ),
    Claim(
        "one_agent_matches", "One agent with the team's turns, tools and tokens matches the team",
        "Critics of multi-agent systems (arXiv:2604.02460, 2601.12307), for prompted models: at equal budgets of "
        "tokens one agent does as well. The papers that train teams have no such row.",
        ("one agent", "the best of the teams"), _alone, "paper", LARGER,
        "**What is not equal.** The best team is the best one of [the page](../paper.md), chosen by these same "
        "numbers, which favours the team; for each game there are two single agents, which favours the agent. The "
        "agent with two turns of code sees how its first program fared, which no team of code does. The agent of "
        "assistants begins with a starter of its own, made from demonstrations of the same beginner, as it is asked in "
        "another way; it solves more before training. The agent of writing has the learning rate of its shipped "
        "config, 0.0003, and the teams 0.0005, because it writes both parts and falls apart at more.",
    ),
    Claim(
        "grouping_by_turn", "A team learns more from groups by agent and turn, sampled as a tree, than from whole "
        "episodes",
        f"{AT_GRPO}: with GRPO over episodes of the team, trained 8B teams fall below untrained ones (CodeContests "
        "10.3 after 17.6, OlympiadBench 53.2 after 56.5; these numbers reached us second-hand).",
        ("AT-GRPO", "GRPO over episodes"),
        lambda: _trees("naive"), "paper", LARGER, f"**Which AT-GRPO.** {VARIANT}",
    ),
    Claim(
        "episodes_harm", "GRPO over whole episodes makes a team worse than it was untrained",
        f"{AT_GRPO}: CodeContests 10.3 after 17.6, OlympiadBench 53.2 after 56.5, in percent, Qwen3-8B, second-hand.",
        ("untrained", "trained with GRPO over episodes"),
        lambda: [Comparison(task, _validated(f"{task}_naive", 0), _validated(f"{task}_naive", -1)) for task in BUDGETS],
        "paper", LARGER,
        "**In the curves and episodes.** In sudoku success falls first in six of ten seeds: at step 10 it is below its "
        "start. Every reply of an episode is paid alike, so for some steps the planner learns bad replies with good "
        "ones, and some become endless repetitions. Three of the six rise again, to 0.37, 0.52 and 0.73; the other "
        "three (seeds 1, 4 and 5) are still below their start when their tokens are spent. In the other tasks no run "
        "ends below its start.",
        measured="Success on 300 validation tasks before the first step and after the last one (other pages test the "
        "checkpoint that was best on validation, which by choice is hardly ever worse than the start)",
    ),
    Claim(
        "policy_per_role", "A policy for each role beats one policy for all roles",
        f"{AT_GRPO}: better on code, mixed on maths and games. {SETTING}.",
        ("a policy per role", "one policy"),
        lambda: _each("roles", "shared", tuple(BUDGETS), {
            "plan_path": "97.0 and 96.0 / 96.0 and 93.0", "sokoban": "11.5 and 10.0 / 98.0 and 96.0",
            "sudoku": "99.0 and 99.0 / 99.0 and 99.5", "maths": "AIME24: 13.3 and 16.7 / 57.0 and 50.0"}),
        "paper", LARGER, f"**Which AT-GRPO.** {VARIANT}",
    ),
    Claim(
        "shared_is_captured", "The role with the larger gradient gains on the other if they share a policy",
        "arXiv:2605.24202 (abstract): a shared policy is captured by the role with the most gradient.",
        ("growth of the leading role's share, one policy", "a policy per role"),
        lambda: [Comparison(task, _grown(task, "shared"), _grown(task, "roles")) for task in BUDGETS],
        "paper", LARGER,
        "**How to read it.** A share that grows more with one policy than with a policy per role is a step towards "
        "being captured, and not yet that: [the shares](../ablations.md#who-captures-a-shared-policy) of no role "
        "reach nine tenths.",
        measured="By how much the leading role's share of the gradient grows from the first to the last third of "
        "training. The leading role is the one with the larger share at first where one policy serves both",
    ),
    Claim(
        "fewer_turns", "A team needs fewer turns as training goes on",
        f"{AT_GRPO}: a figure, without numbers, for Plan-Path.",
        ("turns before training", "turns after it"), _turns, "paper", LARGER,
        measured="Turns of an episode on test tasks, as a share of the four that it may have",
    ),
    Claim(
        "two_at_once", "Two agents that answer at once beat one agent, a pipeline and a discussion",
        f"{MAGRPO}; {FOLLOW_UP}. Their pipelines and discussions are prompted, not trained.",
        ("two at once, MAGRPO", "the other"), _simultaneous, "paper", REAL, AT_ONCE,
    ),
    Claim(
        "two_at_once_trained", "Two agents that answer at once beat a pipeline and a discussion that are trained too",
        f"The control that is missing there: {MAGRPO}.",
        ("two at once, MAGRPO", "the other, trained"),
        lambda: [
            _between(f"{task}: {other}", f"{task}_magrpo", f"{task}_{other}")
            for task in ("code", "writing")
            for other in ("pipeline", "discussion")
        ],
        "paper", REAL, AT_ONCE,
    ),
    Claim(
        "node_wise", "Comparing alternatives at single decisions beats comparing whole episodes",
        "JoyAgents-R1, arXiv:2506.19846 (no table is public); C3, arXiv:2603.06859.",
        ("node-wise", "GRPO over episodes"),
        lambda: [
            _between("joyagents", "assistants_joyagents", "assistants_mas_grpo"),
            _between("c3", "assistants_c3", "assistants_mas_grpo"),
        ],
        "paper",
        "Their data with their models: neither is public. Here, the rows with larger models and longer episodes.",
    ),
)  # fmt: skip
