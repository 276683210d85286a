"""Episodes as verifiers keeps them: a line each in `traces.jsonl`, a trace for each role, a branch for each prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coterie import __version__
from coterie.kernel.environment import Task
from coterie.kernel.episode import Log, Noted
from coterie.report.logs import Held, messages, said
from coterie.report.records import WRITER


def write(path: Path, held: Held) -> None:
    """Writes one line per episode."""
    with path.open("x", encoding="utf-8") as file:
        for index, _, log in held.episodes():
            task = held.environment.task(held.evaluation.split, index)
            file.write(json.dumps(_episode(held, task, log)) + "\n")


def _episode(held: Held, task: Task, log: Log | None) -> dict[str, Any]:
    """Returns an episode as verifiers keeps it. Source: verifiers 0.4.0, `v1/episode.py` and `v1/trace.py`."""
    played = {"type": "Task", "data": {"name": task.id}, "key": task.id}
    ended = log.outcome if log else None
    found = {"solved": log.solved, "reason": ended.reason if ended else ""} if log else {}
    return {
        "id": log.id if log else task.id,
        "env": {"id": held.name},
        "task": played,
        "ok": log is not None,
        "errors": [] if log else [{"type": "Unavailable", "message": "the episode was lost to a fault"}],
        "traces": [_trace(held, played, role, log) for role in held.roles] if log else [],
        "info": {WRITER: __version__, **found},
    }


def _trace(held: Held, task: dict[str, Any], role: str, log: Log) -> dict[str, Any]:
    """Returns the trace of one role: its prompts and replies, and the rewards of it and of the team."""
    nodes: list[dict[str, Any]] = []
    for who, prompt, reply in said(log):
        if who != role:
            continue
        parent = None
        for speaker, text in [*messages(prompt), ("assistant", reply.text)]:
            known = {"tool_call_id": "call"} if speaker == "tool" else {}
            nodes.append({"message": {"role": speaker, "content": text, **known}, "sampled": False})
            nodes[-1] |= {} if parent is None else {"parent": parent}
            parent = len(nodes) - 1
        nodes[-1]["sampled"] = True
    earned = log.rewards()
    return {
        "version": 1,
        "id": f"{log.id}/{role}",
        "task": task,
        "agent": {"name": role, "config": {"model": held.roles[role]}},
        "nodes": nodes,
        "rewards": {name: {"score": earned[name]} for name in ("team", role) if name in earned},
        "metrics": {event.name: event.value for event in log.events if isinstance(event, Noted)},
        "is_completed": True,
        "ok": True,
    }
