"""Ablations of teams at equal sampled tokens: what each part of a method, and each role, is worth.

Writes docs/results/ablations.md from docs/results/data/ablations.jsonl and the rows of `python -m benchmarks paper`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import claims, joined, over_time, paper
from benchmarks.ablation_rows import GROUPED, LATE, TABLE
from benchmarks.claims import Claim, Comparison
from benchmarks.contest import spread
from benchmarks.joined import PUT_TOGETHER
from benchmarks.over_time import kept
from benchmarks.paper_rows import TABLE as PAPER
from coterie.bench import Say

PAGE = Path("docs/results/ablations.md")


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the results page, and returns success by row."""
    PAPER.make(say, ["plan_path_roles"])
    TABLE.make(say)
    joined.play(say)
    PAGE.write_text("\n".join(page()))
    claims.run(say)
    return TABLE.success()


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    hours, beyond = TABLE.spent()
    lines = [
        "# Results: ablations",
        "",
        claims.against(CLAIMS),
        "",
        f"Written by `python -m benchmarks ablations` ({hours:.1f} CPU hours), with rows of "
        "[the papers' comparisons](paper.md). All rows of a section sample the same number of tokens in training, by "
        f"their own counters {beyond:.1%} more at most, because a run ends with a whole step. Success is that of "
        "greedy play on 1,000 test tasks, which training never sees; intervals are 95 % intervals over seeds "
        "(Student's t).",
        "",
    ]
    for title, words, rows in SECTIONS:
        lines += [f"## {title}", "", words, "", "| | before training | after | by seed |", "|---|---|---|---|"]
        lines += [_line(*row) for row in rows() if row[2]]
        lines.append("")
    return [*lines, *over_time.lines()]


Told = tuple[str, Sequence[float], Sequence[float]]
"""A line of a table: title, success before training by seed (empty: as above), success after it by seed."""


def _line(title: str, start: Sequence[float], after: Sequence[float]) -> str:
    by_seed = ", ".join(f"{value:.3f}" for value in after)
    return f"| {title} | {f'{start[0]:.3f}' if start else ''} | **{spread(after)}** | {by_seed} |"


def _own(*names: str) -> list[Told]:
    return [(TABLE.rows[name].title, [figures["start_success"] for figures in TABLE.found(name)], successes(name))
            for name in names]  # fmt: skip


def _of_paper(title: str, name: str) -> Told:
    return title, paper.before(name), paper.successes(name)


def _apart(view: str, together: Told) -> list[Told]:
    return [
        together,
        *_own(f"{view}alone_proposer", f"{view}alone_planner"),
        ("both trained alone, then joined", [], successes(f"{view}joined")),
        ("trained together, policies swapped", [], successes(f"{view}swapped")),
    ]


def _compared() -> list[Told]:
    rows: list[Told] = []
    for task in GROUPED:
        rows += [
            _of_paper(f"{task}: whole episodes of the team", f"{task}_naive"),
            *((f"{task}: {title}", start, after) for title, start, after in _own(f"{task}_by_role_turn")),
            _of_paper(f"{task}: at_grpo's tree", f"{task}_roles"),
        ]  # fmt: skip
    return rows


SECTIONS: tuple[tuple[str, str, Callable[[], list[Told]]], ...] = (
    (
        "Roles alone, joined, swapped",
        "plan_path, both roles see the map. A role alone is trained with at_grpo while its partner stays as it was. "
        "Two roles that were trained alone have had the budget twice. Swapped: each role is played with the other's "
        "policy.",
        lambda: _apart("", _of_paper("trained together", "plan_path_roles")),
    ),
    (
        "The same where only one role sees the map",
        "plan_path as it is shipped: the proposer sees the map, the planner only the cells around it and the proposal.",
        lambda: _apart("split_", *_own("split_roles")),
    ),
    (
        "What is compared",
        "The sampler is that of GRPO: eight whole episodes of a task, and each reply has the return of its episode. "
        "What differs is with what it is compared: with all episodes, or with those in which its agent spoke in its "
        "turn too. There is no third way in these games, in which both agents speak once in every turn: groups by "
        "agent then make the same update as whole episodes, and groups by turn the same as groups by agent and turn. "
        "The last row of a game samples a tree instead.",
        _compared,
    ),
    (
        "How at_grpo samples",
        "plan_path. The commit rule chooses the reply with which play goes on; the horizon is how far a reply's "
        "rewards are counted; replies per point times tasks per step is constant.",
        lambda: [
            _of_paper("random commit, horizon point, 8 replies per point", "plan_path_roles"),
            *_own("greedy", "turn"),
            _of_paper("greedy commit, horizon turn (the paper's)", "plan_path_published"),
            *_own("width_4", "width_16"),
        ],
    ),
    (
        "Outcomes only",
        "at_grpo, horizon turn, random commit. Outcome only: a reply is paid if the game is solved, and not for "
        "progress.",
        lambda: [
            (f"{task}: {title}", start, after)
            for task in ("plan_path", "sokoban", "sudoku")
            for title, (_, start, after) in zip(
                ("local rewards", "outcome only"),
                _own("turn" if task == "plan_path" else f"{task}_dense", f"{task}_outcome"),
                strict=True,
            )
        ],
    ),
    (
        "Two to seven agents",
        "maths: reasoners and tool users, from three agents on a judge.",
        lambda: [
            _of_paper("2 agents: mas_grpo", "maths_naive"),
            _of_paper("2 agents: at_grpo", "maths_roles"),
            *((f"{size} agents: {method}", start, after)
              for size in (3, 5, 7)
              for method, (_, start, after) in zip(
                  ("mas_grpo", "at_grpo"), _own(f"maths_{size}_grpo", f"maths_{size}_at_grpo"), strict=True)),
            *(("7 agents: hierarchical_grpo", start, after) for _, start, after in _own("maths_7_hierarchical")),
        ],
    ),
    (
        "How many groups are trained",
        "assistants with joyagents: of each query the K groups with the largest variance of rewards, or all.",
        lambda: [
            *_own("joyagents_1", "joyagents_2", "joyagents_5"),
            _of_paper("all", "assistants_joyagents"),
        ],
    ),
)  # fmt: skip


AT_GRPO = "AT-GRPO (Stronger-MAS), arXiv:2510.11062"
LARGER = "The same rows with models of 1.7 billion parameters and more, on the published tasks, five seeds a row."


def successes(row: str) -> list[float]:
    """Returns success of a row of this table, or of a team that was put together after training, by seed."""
    if row in PUT_TOGETHER:
        return joined.successes(row)
    return [figures["success"] for figures in TABLE.found(row)]


def _joint() -> list[float]:
    return paper.successes("plan_path_roles")


def _together(row: str, title: str, published: str) -> list[Comparison]:
    """Returns comparisons of the team trained together with another: both roles see the map, and one does."""
    return [
        Comparison(f"both see the map{title}", _joint(), successes(row), published),
        Comparison(f"one sees the map{title}", successes("split_roles"), successes(f"split_{row}")),
    ]


def _parts() -> list[Comparison]:
    return [Comparison(task, successes(f"{task}_by_role_turn"), paper.successes(f"{task}_naive")) for task in GROUPED]


def _outcome_only() -> list[Comparison]:
    published = {"plan_path": "89.0 and 93.0", "sokoban": "93.0 and 96.0", "sudoku": "99.5 and 99.5"}
    return [
        Comparison(task, successes(f"{task}_outcome"), successes(f"{task}_dense" if task != "plan_path" else "turn"),
                   numbers, margin=0.05)
        for task, numbers in published.items()
    ]  # fmt: skip


def _larger_teams(less: int, more: int, published: Mapping[str, str]) -> list[Comparison]:
    return [
        Comparison(f"{more} against {less} agents, {title}", successes(f"maths_{more}_{name}"),
                   successes(f"maths_{less}_{name}"), published[name])
        for name, title in (("grpo", "GRPO over episodes"), ("at_grpo", "AT-GRPO"))
    ]  # fmt: skip


def _gain(size: int) -> list[float]:
    """Returns AT-GRPO's success minus that of GRPO over episodes, with so many agents, by seed."""
    pairs = zip(successes(f"maths_{size}_at_grpo"), successes(f"maths_{size}_grpo"), strict=False)
    return [tree - whole for tree, whole in pairs]


CLAIMS = (
    Claim(
        "joined", "Roles that are trained alone and then joined do not make a team",
        f"{AT_GRPO}, Plan-Path, Qwen3-1.7B, percent. There, a role alone is trained as a single agent; here, its "
        "partner stays as it was.",
        ("trained together", "trained alone, then joined"),
        lambda: _together("joined", "", "96.0 and 16.0"), "ablations", LARGER,
        "**In the episodes.** Both roles begin with one model that knows the language of both, so a proposal means the "
        "same to roles that have learned apart, and they fit together at once. They learn different things, though. A "
        "planner that learns beside an untrained proposer sees many bad proposals. If it sees the map, it learns to "
        "leave most of these and to answer with a route of its own. A planner that learns together with its proposer "
        "sees few bad ones, and follows most of them into the wall. Two roles that were trained alone have had the "
        "budget twice.",
    ),
    Claim(
        "one_role_trained", "A team of which only one role is trained does worse than one that is trained together",
        f"{AT_GRPO}, Plan-Path, Qwen3-1.7B, percent. There, the role is trained as a single agent; here, its partner "
        "stays as it was.",
        ("both trained", "one trained"),
        lambda: [
            *_together("alone_proposer", ": only the proposer trained", "96.0 and 11.0"),
            *_together("alone_planner", ": only the planner trained", "96.0 and 14.5"),
        ],
        "ablations", LARGER,
    ),
    Claim(
        "swapped", "Trained roles do worse in each other's place",
        f"{AT_GRPO}, Plan-Path, Qwen3-1.7B, percent.",
        ("trained together", "with the policies swapped"),
        lambda: [
            Comparison("both see the map", _joint(), successes("swapped"), "96.0 and 6.0"),
            Comparison("one sees the map", successes("split_roles"), successes("split_swapped")),
        ],
        "ablations", LARGER,
        "**In the episodes.** The model with which both roles begin has learned both of them, and training in one role "
        "does not destroy what it knows of the other. So a swapped team plays far above the untrained one.",
    ),
    Claim(
        "grouping", "Comparing replies of one agent and turn is what makes a team learn",
        f"{AT_GRPO}: the reason for its groups. Here the sampler stays that of GRPO, whole episodes, and only what is "
        "compared with what changes.",
        ("by agent and turn", "whole episodes"), _parts, "ablations", LARGER,
    ),
    Claim(
        "greedy", "The best reply of a group, not a random one, should be the one with which play goes on",
        f"{AT_GRPO}: its algorithm; no number.",
        ("greedy commit", "random commit"),
        lambda: [
            Comparison("plan_path, horizon point", successes("greedy"), _joint()),
            Comparison("plan_path, horizon turn", paper.successes("plan_path_published"), successes("turn")),
        ],
        "ablations", LARGER,
    ),
    Claim(
        "outcome_only", "Without local rewards, outcomes alone teach almost as much",
        f"{AT_GRPO}, an ablation that reached us second-hand, Qwen3-8B, percent.",
        ("outcomes only", "local rewards"), _outcome_only, "ablations", LARGER,
    ),
    Claim(
        "more_agents", "A team with more agents achieves more",
        f"{AT_GRPO}, AIME24, Qwen3-8B, percent, second-hand: reasoners, tool users and a judge.",
        ("more agents", "fewer"),
        lambda: [
            *_larger_teams(3, 5, {"grpo": "23.8 and 18.2", "at_grpo": "28.6 and 18.2"}),
            *_larger_teams(5, 7, {"grpo": "34.1 and 23.8", "at_grpo": "47.7 and 28.6"}),
        ],
        "ablations", LARGER,
        "**How to read it.** All sizes sample the same number of tokens in training, so a larger team plays fewer "
        "episodes. The published teams are trained for the same number of steps, in which a larger team samples more.",
    ),
    Claim(
        "grouping_and_size", "AT-GRPO gains more, the more agents there are",
        f"{AT_GRPO}, AIME24, Qwen3-8B, percent, second-hand.",
        ("gain with more agents", "with fewer"),
        lambda: [
            Comparison(f"{more} against {less} agents", _gain(more), _gain(less), numbers)
            for more, less, numbers in ((5, 3, "4.8 and 0.0"), (7, 5, "13.6 and 4.8"), (7, 3, "13.6 and 0.0"))
        ],
        "ablations", LARGER, measured="What AT-GRPO achieves more than GRPO over episodes with as many agents",
    ),
    Claim(
        "policies_collapse", "Policies of their own collapse late, a shared one does not",
        "arXiv:2605.24202 (abstract): isolated policies peak higher, but collapse late more often, with models of 0.6 "
        "to 4 billion parameters on three workflows.",
        ("one policy, last less highest", "a policy per role, the same"),
        lambda: [Comparison(task, kept(f"{task}_shared_late"), kept(f"{task}_roles_late")) for task in LATE],
        "ablations", LARGER,
        measured="Validation success after the last step less its highest value, with three times the budget and a "
        "learning rate that does not fall",
    ),
    Claim(
        "five_groups", "An update from the five groups whose rewards differ most is better than from all",
        "JoyAgents-R1, arXiv:2506.19846: K = 5 is the best of 1, 2, 5 and all; the numbers are not public.",
        ("K = 5", "the other"),
        lambda: [
            Comparison("K = 1", successes("joyagents_5"), successes("joyagents_1")),
            Comparison("K = 2", successes("joyagents_5"), successes("joyagents_2")),
            Comparison("all groups", successes("joyagents_5"), paper.successes("assistants_joyagents")),
        ],
        "ablations", "Their data and models, which are not public.",
    ),
)  # fmt: skip
