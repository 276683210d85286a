"""Gathers the contents of a report from run folders: plain data for `templates/report.html`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from coterie.config.toml import to_toml
from coterie.kernel.safe import plain
from coterie.report.charts import COLORS
from coterie.report.conversation import conversation
from coterie.report.curves import Chart, drawn, latest_of, sections
from coterie.report.diagnose import WINDOW, history
from coterie.report.looks import style, templates
from coterie.report.pace import steps_of
from coterie.report.story import story
from coterie.report.text import log_text
from coterie.report.trees import seen
from coterie.run.ablation import Change, every_ablation
from coterie.run.evaluate import Evaluation
from coterie.run.folder import Run
from coterie.run.records import Played

AUDITED = 3
"""Number of tasks of the last saved rollout whose groups are shown."""
Line = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TeamMeasured:
    """Measurements of the first run's team at the end, its ablations, and one task at the start and now."""

    evaluation: Evaluation
    changes: Sequence[Change]
    index: int
    before: str
    after: str
    changed: bool


def report(folders: Sequence[Path], *, tasks: int = 0, progress: Callable[[str], None] = lambda line: None) -> str:
    """Returns runs as one HTML page that needs no network and runs no script.

    Args:
        tasks: validation tasks played to compare roles and the start with the end, in the first run; 0: nothing is
            played.

    Raises:
        CheckpointError: a folder is no run, or holds nothing yet.
    """
    runs = [Run.open(folder) for folder in folders]
    lines = [run.metrics() for run in runs]
    tables = [run.tables for run in runs]
    roles, policies = tuple(tables[0]["team"]), tuple(tables[0]["policies"])
    progress("reading rollouts")
    saved = {step: runs[0].episodes(step) for step in runs[0].saved_episodes()}
    latest = max(saved, default=0)
    measured = _measure(runs[0], tasks, progress) if tasks else None
    names = [_name(run.folder, runs) for run in runs]
    page = (
        templates()
        .get_template("report.html")
        .render(
            css=Markup(style()),  # noqa: S704  (ours)
            stories=[
                (name, story(run_lines, tuple(theirs["team"]), steps_of(run_lines, theirs["train"])))
                for theirs, name, run_lines in zip(tables, names, lines, strict=True)
            ],
            runs=[
                {
                    "name": name,
                    "color": color,
                    "last": latest_of(run_lines),
                    "folder": str(run.folder),
                    "about": _about(run),
                }
                for run, name, color, run_lines in zip(runs, names, itertools.cycle(COLORS), lines)
            ],
            config=to_toml(tables[0]),
            title=title_of(tables[0]),
            warnings=[
                (name, step, concern)
                for theirs, name, run_lines in zip(tables, names, lines, strict=True)
                for step, concern in history(run_lines, tuple(theirs["team"]))
            ],
            sections=list(sections(lines, names, roles, policies)),
            rewards=_parts(saved, roles),
            lost=_lost(lines[0]) if lines[0] else {},
            latest=latest,
            audited=[
                (tree, [list(conversation(log)) for log in tree.logs])
                for tree in map(seen, _most_telling(saved.get(latest, [])))
            ],
            measured=measured,
            window=WINDOW,
        )
    )
    return plain(page)


def _name(folder: Path, runs: Sequence[Run]) -> str:
    """Returns the name of a run's folder, or its whole path where two have the same name."""
    alike = sum(run.folder.name == folder.name for run in runs) > 1
    return str(folder) if alike else folder.name


def _about(run: Run) -> dict[str, Any]:
    about = run.about()
    isolated = {"model-written code": about["isolation"]} if about.get("isolation") else {}
    return {**about.get("versions", {}), **about.get("hardware", {}), **isolated}


def _parts(saved: Mapping[int, Sequence[Played]], roles: Sequence[str]) -> list[tuple[str, list[Chart]]]:
    """Returns curves of each role's mean reward by part over its candidates, at the saved rollouts."""
    charts_of: dict[str, dict[str, list[tuple[float, float]]]] = {role: {} for role in roles}
    for step, played in sorted(saved.items()):
        for role in roles:
            members = [
                member
                for episode in played
                for group in episode.collected.groups
                for member in group.members
                if any(sample.role == role for sample in member.samples)
            ]
            for name in sorted({name for member in members for name in member.parts}):
                mean = fmean(member.parts.get(name, 0.0) for member in members)
                charts_of[role].setdefault(name, []).append((step, mean))
    return [
        (role, [drawn(name, points) for name, points in parts.items()])
        for role, parts in charts_of.items()
        if parts
    ]  # fmt: skip


def _lost(lines: Sequence[Line]) -> dict[str, str]:
    """Returns counters over the whole run: dropped, retried, without spread, cut, clipped."""
    counts: dict[str, float] = {}
    for line in lines:
        for key, value in line.items():
            if key.startswith(("rollout/dropped/", "rollout/retried/")):
                counts[key] = counts.get(key, 0.0) + value
    total, live = (sum(line.get(f"groups/{what}", 0) for line in lines) for what in ("total", "live"))
    rows = {"groups drawn": f"{total:.0f}", "groups without spread, not trained": f"{total - live:.0f}"}
    rows |= {key: f"{count:.0f}" for key, count in sorted(counts.items())}
    for ending in ("truncated_share", "clip_share"):
        for key in dict.fromkeys(key for line in lines for key in line if key.endswith(f"/{ending}")):
            rows[f"{key}, mean"] = f"{fmean(line[key] for line in lines if key in line):.2%}"
    return rows


def _most_telling(played: Sequence[Played]) -> list[Played]:
    """Returns the tasks with the most live groups."""
    return sorted(played, key=lambda task: -sum(group.live for group in task.collected.groups))[:AUDITED]


def _measure(run: Run, tasks: int, progress: Callable[[str], None]) -> TeamMeasured:
    """Plays the best checkpoint, its ablations, and a task that was not solved at the start."""
    from coterie.run.loaded import load  # which loads torch

    now, start = load(run.folder), load(run.folder, 0)
    count = now.config.environment.count("validation")
    tasks = tasks if count is None else min(tasks, count)
    progress("playing the start")
    earlier = start.evaluate("validation", tasks=tasks)
    progress("playing the best checkpoint, muted, replaced and swapped")
    evaluation, changes = now.compare(
        every_ablation(now.config.team, now.config.environment.absent("validation")), "validation", tasks=tasks
    )
    flipped = [index for index in range(tasks) if evaluation.solved[index] and not earlier.solved[index]]
    index = flipped[0] if flipped else 0
    shown = [log_text(team.play("validation", index)) for team in (start, now)]
    return TeamMeasured(evaluation, changes, index, *shown, changed=now.changed)


def title_of(tables: Mapping[str, Any]) -> str:
    """Returns the environment and the algorithm of a run, by its config as it is written."""
    return f"{Path(str(tables['environment'].get('name'))).name}, {tables['algorithm'].get('name')}"
