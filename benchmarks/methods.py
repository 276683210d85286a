"""Comparison of methods on three tasks at equal sampled tokens: which way of giving credit pays where.

Writes docs/results/methods.md and its picture from docs/results/data/methods.jsonl and from those rows of `coterie
bench paper` that are runs of a method.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import claims, svg
from benchmarks.claims import Claim, Comparison, Versus
from benchmarks.contest import spread
from benchmarks.intervals import over_seeds
from benchmarks.paper_rows import CALLS, MASTER, PUBLISHED_TREE, SHORT, SUMMED, TREE, budgeted
from benchmarks.paper_rows import TABLE as PAPER
from benchmarks.rows import FIVE, Row, Table, with_ten
from coterie.bench import Say

PAGE = Path("docs/results/methods.md")
PICTURE = Path("docs/results/methods.svg")
TASKS = {
    "sokoban": "sokoban: several turns, local rewards, few successes at first",
    "maths": "maths: a calculation is asked for and used, one reward for both",
    "assistants": "assistants: a master that may call four specialists and their tools",
}


@dataclass(frozen=True, slots=True)
class Method:
    """A method, and the settings with which it is compared.

    tasks: of a step, relative to GRPO over episodes: steps of all methods then sample about as many tokens. known: the
    runs of `python -m benchmarks paper` that are this method's, by task. calling: algorithm and tasks for assistants,
    where they differ. loss: overrides for assistants. on: the tasks for which it is meant.
    """

    title: str
    algorithm: Mapping[str, Any]
    tasks: float = 1
    known: Mapping[str, str] = field(default_factory=dict[str, str])
    calling: tuple[Mapping[str, Any], float] | None = None
    loss: tuple[str, ...] = (SUMMED,)
    on: Collection[str] = tuple(TASKS)


HISTORY = {"name": "gigpo", "history": 2, "episode_weight": 0, "advantage": "standardize_population"}
METHODS = {
    "mas_grpo": Method("mas_grpo: episodes of a task", {"name": "mas_grpo"}, known={
        "sokoban": "sokoban_naive", "maths": "maths_naive", "assistants": "assistants_mas_grpo"}),
    "drmas": Method("drmas: a baseline per role", {"name": "drmas"}, known={"assistants": "assistants_drmas"}),
    "main_sub_grpo": Method("main_sub_grpo: calls of a role count once", {"name": "main_sub_grpo"}),
    "wideseek": Method("wideseek: roles have equal weight", {"name": "wideseek"}, loss=()),
    "reinforce_pp": Method("reinforce_pp: all episodes of the step", {"name": "reinforce_pp"}, 8),
    "rae": Method("rae: a running mean per role", {"name": "rae"}, 8),
    "marshal": Method("marshal: what follows a reply, over the step", {"name": "marshal"}, 8),
    "gigpo": Method("gigpo: episodes, and replies to one prompt", {"name": "gigpo"}),
    "gigpo_states": Method("gigpo without comparing episodes", HISTORY | {"history": 0}),
    "hgpo": Method("gigpo with a history of 2 (HGPO)", HISTORY),
    "at_grpo": Method("at_grpo: a tree, random commit", TREE, known={
        "sokoban": "sokoban_roles"}, calling=(TREE | {"horizon": "turn"}, 0.3)),
    "at_grpo_greedy": Method("at_grpo: greedy commit, horizon turn (the paper's)", PUBLISHED_TREE, known={
        "sokoban": "sokoban_published", "maths": "maths_roles"}, calling=(PUBLISHED_TREE, 0.3)),
    "gdpo": Method("gdpo: at_grpo, each reward by itself", TREE | {"name": "gdpo"}, on=("sokoban",)),
    "joyagents": Method("joyagents: alternatives at every decision", {"name": "joyagents"}, 1.2, {
        "assistants": "assistants_joyagents"}, loss=()),
    "joyagents_paper": Method("joyagents_paper: five groups of a task", {"name": "joyagents_paper"}, 1.2, loss=()),
    "c3": Method("c3: alternatives, each played on twice", {"name": "c3"}, 0.8, {
        "assistants": "assistants_c3"}, loss=()),
    "magrpo": Method("magrpo: replies of all roles at once", {"name": "magrpo"}, 0.7, on=("maths",)),
}  # fmt: skip


def _row(task: str, method: Method) -> Row:
    if task != "assistants":
        return budgeted(task, method.title, method.algorithm, method.tasks, apart=True, votes=1)
    budget = ("train.steps=1000", f"train.max_sampled_tokens={CALLS}", "train.eval_every=10", *SHORT)
    algorithm, tasks = method.calling or (method.algorithm, method.tasks)
    return Row(
        method.title, MASTER, algorithm, (*budget, f"train.tasks_per_step={round(40 * tasks)}", *method.loss), FIVE
    )


ROWS = {
    f"{task}_{name}": _row(task, method) for name, method in METHODS.items() for task in method.on
    if task not in method.known
}  # fmt: skip
CLOSE = ("sokoban_drmas", "sokoban_main_sub_grpo", "maths_drmas", "assistants_gigpo")
"""Rows that get ten seeds."""
TABLE = Table(
    Path("runs/bench-methods"),
    "benchmarks.methods",
    with_ten(ROWS, CLOSE),
    Path("docs/results/data/methods.jsonl"),
)


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the page and the picture, and returns success by row."""
    PAPER.make(say, [row for method in METHODS.values() for row in method.known.values()])
    published = TABLE.publish(PAGE, page, say)
    PICTURE.write_text(picture())
    claims.run(say)
    return published


def found(task: str, method: str) -> list[dict[str, Any]]:
    """Returns the figures of a method's runs on a task, by seed."""
    if known := METHODS[method].known.get(task):
        return PAPER.found(known)
    return TABLE.found(f"{task}_{method}") if task in METHODS[method].on else []


def successes(task: str, method: str) -> list[float]:
    """Returns success of a method on a task, by seed."""
    return [figures["success"] for figures in found(task, method)]


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    hours, beyond = TABLE.spent()
    taken = PAPER.spent([row for method in METHODS.values() for row in method.known.values()])[1]
    lines = [
        "# Results: methods on three tasks",
        "",
        *_answer(),
        "",
        f"![success of each method on three tasks]({PICTURE.name})",
        "",
        "Written by `python -m benchmarks methods`. "
        "Every row of a task samples the same number of tokens in training, from "
        f"the same starter, with one policy per role. By their own counters, runs end at most {max(beyond, taken):.1%} "
        "beyond the budget, because a run ends with a whole step. Success is that of greedy play on 1,000 test tasks, "
        "which training never sees; intervals are 95 % intervals over seeds (Student's t). Runs that are also rows of "
        f"[the papers' comparisons](paper.md) are taken from there; the others took {hours:.1f} CPU hours. All "
        "methods have the same learning rate on a task. It is the one of the shipped config and was not tuned for any "
        "of them, so a low number says that a method learns little at this rate, not that it cannot learn more.",
        "",
        "Two shipped methods have no row. `grpo` is for one agent ([the papers' comparisons](paper.md)). "
        "`hierarchical_grpo` compares attempts of a role at one prompt, of which these tasks have one each; it is "
        "compared on [a team of seven](ablations.md#two-to-seven-agents). `gdpo` is for several rewards, which only "
        "sokoban has. `magrpo` is for agents that answer at the "
        "same time, which only maths has; it is also compared on [code and writing](paper.md#code). On assistants, "
        "`at_grpo` has horizon turn with both rules of commit, because a call earns nothing before the answer that "
        "follows it: with horizon point the master learned not to call. On sokoban and maths, random commit has "
        "horizon point. On maths, where both answer at once and a turn has one decision, the horizons turn and point "
        "end alike.",
        "",
        "Every method has the loss that it has by default: on sokoban and maths a mean over tokens for most, a mean "
        "over replies for `wideseek` and `joyagents_paper`, and a sum for each task for `joyagents`, `c3` and "
        "`magrpo`. `joyagents` has a wider upper clip, `joyagents_paper` a small KL term, `magrpo` no clip. On "
        "assistants every row but `wideseek` and `joyagents_paper` has the sum for each task.",
        "",
    ]
    for task, title in TASKS.items():
        lines += [f"## {title}", "", *_table(task), ""]
    return lines


def _answer() -> list[str]:
    """Returns a line per task: its best method, and the others that are surely below it."""
    lines: list[str] = []
    for task in TASKS:
        there = {name: values for name in METHODS if len(values := successes(task, name)) >= len(FIVE)}
        if not there:
            continue
        best = max(there, key=lambda name: fmean(there[name]))
        below = [name for name in there if _versus(there[best], there[name]).verdict == "holds"]
        equal = [name for name in there if name != best and name not in below]
        fewer = [name for name, method in METHODS.items() if task in method.on and name not in there]
        lines.append(
            f"- **{task}**: `{best}` achieves most, {spread(there[best])}."
            + (f" Surely below it: {_names(below)}." if below else "")
            + (f" Not told from it with these seeds: {_names(equal)}." if equal else "")
            + (f" Left out, because seeds are missing: {_names(fewer)}." if fewer else "")
        )
    return lines


def _versus(more: Sequence[float], less: Sequence[float]) -> Versus:
    return Comparison("", more, less).common().versus


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(task: str) -> list[str]:
    """Returns a task's table, a line per method: success, and the difference from GRPO over episodes."""
    lines = [
        "| method | start | success | by seed | more than mas_grpo, points | steps | trained share of the tokens | "
        "entropy at the end (nats) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    plain = successes(task, "mas_grpo")
    for name, method in METHODS.items():
        if not (runs := found(task, name)):
            continue
        values = successes(task, name)
        more = str(_versus(values, plain)) if name != "mas_grpo" and plain else ""
        trained = over_seeds([figures["trained_tokens"] / figures["sampled_tokens"] for figures in runs])[0]
        cells = (
            method.title,
            f"{runs[0]['start_success']:.3f}",
            f"**{spread(values)}**",
            ", ".join(f"{value:.3f}" for value in values),
            more,
            f"{over_seeds([figures['curve'][-1][0] for figures in runs])[0]:.0f}",
            f"{trained:.0%}",
            f"{over_seeds([figures['entropy'] for figures in runs])[0]:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def picture() -> str:
    """Returns the success of all methods as an SVG: a panel per task."""
    left, width, gap, top = 330, 170, 40, 40
    parts = [
        svg.text(left - 8, top + svg.LINE * (line + 0.5) + 4, method.title, size=12, anchor="end")
        for line, method in enumerate(METHODS.values())
    ]
    for number, task in enumerate(TASKS):
        dots = [svg.Dot("", *over_seeds(values)) if (values := successes(task, name)) else None for name in METHODS]
        x = left + number * (width + gap)
        parts.append(svg.text(x + width / 2, top - 14, task, size=14, bold=True, anchor="middle"))
        parts += svg.panel(dots, x, top, width, (0, 0.25, 0.5, 0.75, 1))
    height = top + svg.LINE * len(METHODS) + 50
    parts.append(svg.text(20, height - 10, "Success on 1,000 test tasks and its 95 % interval over seeds, at "
                          "equal sampled tokens", size=12))  # fmt: skip
    return svg.picture(left + 3 * (width + gap), height, parts)


def _better(method: str, than: str, tasks: Collection[str] = tuple(TASKS)) -> Callable[[], list[Comparison]]:
    return lambda: [Comparison(task, successes(task, method), successes(task, than)) for task in tasks]


LARGER = (
    "The same rows with larger models on the paper's tasks, five seeds a row, a learning rate tuned for each method."
)
CLAIMS = (
    Claim(
        "baseline_per_role", "A baseline per role is better than one for the team",
        "Dr. MAS, arXiv:2602.08847.", ("drmas", "mas_grpo"), _better("drmas", "mas_grpo"), "methods", LARGER,
    ),
    Claim(
        "calls_count_once", "Calls of a sub-agent should together count once",
        "An idea of M-GRPO, arXiv:2511.13288 (no figures that could be confirmed). That calls share one weight is our "
        "way to it; the paper duplicates or drops trajectories.",
        ("main_sub_grpo", "drmas"), _better("main_sub_grpo", "drmas"), "methods", LARGER,
    ),
    Claim(
        "agents_weigh_the_same", "Agents of an episode should weigh the same, however much they say",
        "WideSeek-R1, arXiv:2602.04634. That all calls of a role are one agent is our reading.",
        ("wideseek", "mas_grpo"), _better("wideseek", "mas_grpo"), "methods", LARGER,
        "**What else differs.** The loss is part of the method: a mean over replies here, and over tokens (on "
        "assistants, a sum for each task) in the other row.",
    ),
    Claim(
        "same_prompts", "Comparing replies to the same prompt in a task's episodes improves on comparing episodes",
        "GiGPO, arXiv:2505.10978.", ("gigpo", "mas_grpo"), _better("gigpo", "mas_grpo"), "methods", LARGER,
    ),
    Claim(
        "same_histories", "Groups nested by what happened before improve on groups by the prompt alone",
        "HGPO, arXiv:2602.22817.", ("gigpo with a history of 2", "without a history"),
        _better("hgpo", "gigpo_states", ("sokoban", "assistants")),
        "methods", LARGER,
        "Both rows compare replies to equal prompts only, as HGPO does, and not whole episodes. Maths is left out: the "
        "only earlier prompt that a reply has there is the problem, which all episodes of a task share, so a history "
        "divides no group and both rows learn the same.",
    ),
    Claim(
        "what_follows", "Crediting a reply with what follows it improves on crediting it with its episode",
        "MARSHAL's idea, arXiv:2510.15414.", ("marshal", "reinforce_pp"), _better("marshal", "reinforce_pp"),
        "methods", LARGER,
    ),
)  # fmt: skip
