"""Episodes as Inspect keeps them: `inspect view` shows who was asked what, what came, and what it earned."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coterie import __version__
from coterie.kernel.environment import Task
from coterie.kernel.episode import Answered, Asked, Called, Log, LoggedPrompt, Noted, Returned, Rewarded, TurnBegan
from coterie.kernel.scene import Reply, role_of
from coterie.report.logs import Held, messages, said
from coterie.report.records import WRITER

ENDED = {"stop": "stop", "length": "max_tokens", "context": "model_length"}
"""Inspect's words for the ways in which a reply ends."""


def write(path: Path, held: Held) -> None:
    """Writes a log of one task of Inspect's: a sample is a task of the environment, an epoch an episode of it.

    Source: inspect_ai 0.3.285, `log/_log.py` and `event/`.
    """
    evaluation = held.evaluation
    now = datetime.now(UTC).isoformat(timespec="seconds")
    samples = [
        _sample(held.environment.task(evaluation.split, index), number, log, now)
        for index, number, log in held.episodes()
    ]
    accuracy = {"accuracy": {"name": "accuracy", "value": evaluation.success}}
    whole = {
        "version": 2,
        "status": "success",
        "eval": {
            "created": now,
            "task": f"coterie/{held.name}",
            "task_id": held.name,
            "run_id": held.run,
            "eval_id": f"{held.run}/{held.step}/{evaluation.split}",
            "dataset": {"name": f"{held.name}, {evaluation.split}", "samples": evaluation.tasks},
            "model": "+".join(dict.fromkeys(held.roles.values())),
            "model_roles": {role: {"model": policy} for role, policy in held.roles.items()},
            "config": {"epochs": max(1, evaluation.sampled)},
            "packages": {WRITER: __version__},
            "metadata": {"run": held.run, "step": held.step, "split": evaluation.split},
        },
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples) - evaluation.dropped,
            "scores": [{"name": "solved", "scorer": "solved", "metrics": accuracy}],
        },
        "stats": {"started_at": now, "completed_at": now},
        "samples": samples,
    }
    with path.open("x", encoding="utf-8") as file:
        json.dump(whole, file)


def _sample(task: Task, number: int, log: Log | None, now: str) -> dict[str, Any]:
    known = {"id": task.id, "epoch": number + 1, "target": task.answer}
    if log is None:
        lost = {"message": "the episode was lost to a fault", "traceback": "", "traceback_ansi": ""}
        return {**known, "input": task.query, "error": lost}
    answers = list(said(log))
    used = Counter[str]()
    for role, _, reply in answers:
        used[role] += len(reply.ids)
    score = {"value": "C" if log.solved else "I", "explanation": log.outcome.reason if log.outcome else ""}
    rewards = {f"reward of {name}": {"value": value} for name, value in log.rewards().items()}
    return {
        **known,
        "input": _chat(answers[0][1]) if answers else task.query,
        "messages": [each for role, prompt, reply in answers for each in (*_chat(prompt), _words(role, reply))],
        "output": _output(answers[-1][2]) if answers else {},
        "scores": {"solved": score, **rewards},
        "metadata": {
            "kind": task.kind,
            "metrics": {event.name: event.value for event in log.events if isinstance(event, Noted)},
        },
        "events": _events(log, score, now),
        "role_usage": {role: {"output_tokens": tokens, "total_tokens": tokens} for role, tokens in used.items()},
    }


def _events(log: Log, score: dict[str, Any], now: str) -> list[dict[str, Any]]:
    """Returns the events of an episode, in order, a turn as a span. Notes and the outcome stand beside them."""
    events: list[dict[str, Any]] = []
    turn, asked = "", Asked({})

    def happened(kind: str, **what: Any) -> None:
        events.append({"event": kind, "timestamp": now, "working_start": 0.0, "span_id": turn or None, **what})

    for event in log.events:
        match event:
            case TurnBegan():
                if turn:
                    happened("span_end", id=turn)
                turn = f"turn {event.number}"
                happened("span_begin", id=turn, name=turn, type="turn")
            case Asked():
                asked = event
            case Answered():
                for speaker, reply in event.replies.items():
                    role, config = role_of(speaker), {"max_tokens": asked.max_tokens}
                    happened(
                        "model", model=reply.policy or role, role=role, input=_chat(asked.prompts[speaker]), tools=[],
                        tool_choice="none", config=config, output=_output(reply),
                    )  # fmt: skip
            case Called():
                happened("info", source="coterie", data={"call": event.function, "args": event.args})
            case Returned():
                data = {"failed": list(event.error)} if event.error else {"returned": event.value}
                happened("info", source="coterie", data=data)
            case Rewarded():
                to = event.role or "team"
                happened("info", source="coterie", data={"reward": event.value, "name": event.name, "to": to})
            case _:
                pass
    if turn:
        happened("span_end", id=turn)
    turn = ""
    happened("score", score=score, scorer="solved")
    return events


def _chat(prompt: LoggedPrompt) -> list[dict[str, Any]]:
    """Returns a prompt's messages; developers become the system, as Inspect has none."""
    return [
        {"role": "system" if speaker == "developer" else speaker, "content": text} for speaker, text in messages(prompt)
    ]


def _words(role: str, reply: Reply) -> dict[str, Any]:
    return {"role": "assistant", "content": reply.text, "model": reply.policy, "metadata": {"role": role}}


def _output(reply: Reply) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": reply.text}, "stop_reason": ENDED[reply.finish]}
    return {"model": reply.policy, "choices": [choice], "completion": reply.text}
