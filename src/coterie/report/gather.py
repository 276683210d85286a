"""What a report shows, gathered from run folders: plain data for `page.html`."""

from __future__ import annotations

import importlib.resources
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import StrictUndefined
from markupsafe import Markup

from coterie.kernel.safe import plain
from coterie.report.charts import COLORS, Series, line_chart, tree_picture
from coterie.report.diagnose import WINDOW, history
from coterie.report.text import log_text, why_comparable
from coterie.run.ablation import BASE, Ablation, Change
from coterie.run.evaluate import Evaluation
from coterie.run.folder import Run
from coterie.run.loaded import Loaded, load
from coterie.run.records import Played

AUDITED = 3
"""Tasks of the last saved rollout whose groups are shown."""
SHARES = ("success", "share")
"""A metric whose name ends so is drawn from 0 to 1."""
Line = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and its name."""

    name: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Measured:
    """What the first run's team does at the end, its ablations, and one task at the start and now."""

    evaluation: Evaluation
    changes: Sequence[Change]
    index: int
    before: str
    after: str
    changed: bool


def report(folders: Sequence[Path], *, tasks: int = 200, progress: Callable[[str], None] = lambda line: None) -> str:
    """Runs as one HTML page that needs no network and runs no script.

    Args:
        tasks: validation tasks played to compare roles and the start with the end, in the first run; 0: nothing is
            played.

    Raises:
        CheckpointError: a folder is no run, or holds nothing yet.
    """
    runs = [Run.open(folder) for folder in folders]
    lines = [run.metrics() for run in runs]
    config = runs[0].config
    roles = tuple(config.team.roles)
    progress("reading rollouts")
    saved = {step: runs[0].episodes(step) for step in runs[0].saved_episodes()}
    latest = max(saved, default=0)
    measured = _measure(runs[0], tasks, progress) if tasks else None
    names = [_name(run.folder, runs) for run in runs]
    templates = Templates(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = importlib.resources.files("coterie.report").joinpath("page.html").read_text(encoding="utf-8")
    page = templates.from_string(source).render(
        runs=[
            {"name": name, "color": color, "last": _last(run_lines), "folder": str(run.folder), "about": _about(run)}
            for run, name, color, run_lines in zip(runs, names, itertools.cycle(COLORS), lines)
        ],
        config=config.toml(),
        title=f"{Path(config.names['environment']).name}, {config.names['algorithm']}",
        warnings=[
            (name, step, concern)
            for run, name, run_lines in zip(runs, names, lines, strict=True)
            for step, concern in history(run_lines, tuple(run.config.team.roles))
        ],
        sections=_sections(lines, names, roles, tuple(config.policies)),
        parts=_parts(saved, roles),
        lost=_lost(lines[0]) if lines[0] else {},
        latest=latest,
        audited=[_audit(played) for played in _most_telling(saved.get(latest, []))],
        measured=measured,
        window=WINDOW,
    )
    return plain(page)


def _name(folder: Path, runs: Sequence[Run]) -> str:
    """The folder's name, with its parent's where two are called alike."""
    alike = sum(run.folder.name == folder.name for run in runs) > 1
    return str(folder) if alike else folder.name


def _about(run: Run) -> dict[str, Any]:
    about = run.about()
    isolated = {"model-written code": about["isolation"]} if about.get("isolation") else {}
    return {**about.get("versions", {}), **about.get("hardware", {}), **isolated}


def _last(lines: Sequence[Line]) -> dict[str, float]:
    """The latest value of each metric."""
    last: dict[str, float] = {}
    for line in lines:
        last |= line
    return last


def _sections(
    lines: Sequence[Sequence[Line]], names: Sequence[str], roles: Sequence[str], policies: Sequence[str]
) -> list[tuple[str, list[Chart]]]:
    """Curves: the team's, each role's, each policy's, and cost; every run overlaid."""
    wanted = [
        ("Team", ["validation/success", "rollout/success", "validation/turns", "reward/team", "groups/live_share"]),
        *((f"Role {role}", _keys(lines, f"role/{role}/", [f"reward/{role}", f"mute/{role}/change"])) for role in roles),
        *((f"Policy {name}", _keys(lines, f"policy/{name}/", [])) for name in policies),
        ("Noted by the environment", _keys(lines, "metric/", [])),
        ("Time", ["time/step", "time/rollout", "time/update", "time/tokens_per_s"]),
    ]
    sections: list[tuple[str, list[Chart]]] = []
    for title, keys in wanted:
        charts = [Chart(key, svg) for key in keys if (svg := _chart(key, lines, names)) is not None]
        if charts:
            sections.append((title, charts))
    return sections


def _keys(lines: Sequence[Sequence[Line]], prefix: str, more: Sequence[str]) -> list[str]:
    """The metrics under a prefix, in the order they are logged."""
    keys = dict.fromkeys(key for run in lines for line in run for key in line if key.startswith(prefix))
    return [*more, *keys]


def _chart(key: str, lines: Sequence[Sequence[Line]], names: Sequence[str]) -> Markup | None:
    series: list[Series] = []
    for run, name, color in zip(lines, names, itertools.cycle(COLORS)):
        there = [line for line in run if _value(line, key) is not None]
        band = [(line[f"{key}_low"], line[f"{key}_high"]) for line in there if f"{key}_low" in line]
        if there:
            points = [(line["step"], _value(line, key) or 0.0) for line in there]
            series.append(Series(name, points, color, band if len(band) == len(points) else ()))
    if not series:
        return None
    return Markup(line_chart(series, key, share=key.endswith(SHARES)))  # noqa: S704  (ours, escaped there)


def _value(line: Line, key: str) -> float | None:
    if key == "groups/live_share" and line.get("groups/total"):
        return line["groups/live"] / line["groups/total"]
    return None if key.endswith(("_low", "_high")) else line.get(key)


def _parts(saved: Mapping[int, Sequence[Played]], roles: Sequence[str]) -> list[tuple[str, list[Chart]]]:
    """Each role's mean reward by part over its candidates, at the saved rollouts."""
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
        (role, [Chart(name, _drawn(Series(name, points, COLORS[0]))) for name, points in parts.items()])
        for role, parts in charts_of.items()
        if parts
    ]  # fmt: skip


def _drawn(series: Series) -> Markup:
    return Markup(line_chart([series], series.label))  # noqa: S704  (ours, escaped there)


def _lost(lines: Sequence[Line]) -> dict[str, str]:
    """Counters over the whole run: dropped, retried, without spread, cut, clipped."""
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
    """The tasks with the most live groups."""
    return sorted(played, key=lambda task: -sum(group.live for group in task.collected.groups))[:AUDITED]


def _audit(played: Played) -> dict[str, Any]:
    """A task's tree: at each group what its members share, said, earned and were credited with."""
    groups: list[dict[str, Any]] = []
    for group, earned in zip(played.collected.groups, played.advantages, strict=True):
        most = max((abs(value) for value in earned), default=0.0) or 1.0
        members = [
            {
                "text": "\n".join(sample.text for sample in member.samples),
                "value": member.value,
                "parts": ", ".join(f"{name} {value:+.2f}" for name, value in sorted(member.parts.items())),
                "advantage": advantage,
                "strength": round(100 * abs(advantage) / most),
                "committed": number == group.committed,
            }
            for number, (member, advantage) in enumerate(zip(group.members, earned, strict=True))
        ]
        groups.append(
            {
                "key": " / ".join(map(str, group.key)), "role": group.key.role, "path": group.key.path,
                "why": why_comparable(group), "scope": group.scope, "live": group.live, "members": members,
            }
        )  # fmt: skip
    logs = played.collected.logs
    columns = [
        [(member["value"], member["advantage"], member["committed"]) for member in group["members"]] for group in groups
    ]
    return {
        "picture": Markup(tree_picture(columns, "a training tree")),  # noqa: S704  (numbers)
        "task": logs[0].task if logs else "?",
        "solved": any(log.solved for log in logs),
        "groups": groups,
        "logs": [log_text(log) for log in logs],
    }


def _measure(run: Run, tasks: int, progress: Callable[[str], None]) -> Measured:
    """Plays: the best checkpoint, its ablations, and a task that was not solved at the start."""
    now, start = load(run.folder), load(run.folder, 0)
    count = now.config.environment.count("validation")
    tasks = tasks if count is None else min(tasks, count)
    progress("playing the start")
    earlier = start.evaluate("validation", tasks=tasks)
    progress("playing the best checkpoint, muted, replaced and swapped")
    evaluation, changes = now.compare(every_ablation(now), "validation", tasks=tasks)
    flipped = [index for index in range(tasks) if evaluation.solved[index] and not earlier.solved[index]]
    index = flipped[0] if flipped else 0
    shown = [log_text(team.play("validation", index)) for team in (start, now)]
    return Measured(evaluation, changes, index, *shown, changed=now.changed)


def every_ablation(loaded: Loaded) -> list[Ablation]:
    """Each role muted and replaced by its start, and each two with policies of their own swapped; of validation."""
    team = loaded.config.team
    roles = [role for role in team.roles if role not in loaded.config.environment.absent("validation")]
    if len(roles) == 1:
        return [Ablation("replace", (role,), BASE) for role in roles]
    return [
        *(Ablation("mute", (role,)) for role in roles),
        *(Ablation("replace", (role,), BASE) for role in roles),
        *(
            Ablation("swap", pair)
            for pair in itertools.combinations(roles, 2)
            if team.roles[pair[0]] != team.roles[pair[1]]
        ),
    ]
