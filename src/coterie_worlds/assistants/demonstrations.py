"""Demonstrations for `assistants`: the replies of an expert and of a beginner with bad habits."""

from __future__ import annotations

import json

from coterie_worlds.assistants import world as assistance
from coterie_worlds.assistants.world import plan, read, steps, tool_call

NO_ANSWER = "no answer"


def advised(asked: str, lines: list[str], *, sends: bool) -> bool:
    """Returns True if the notes of a prompt say what an expert would do here."""
    notes = [line for line in lines if line.startswith('{"note": ')]
    if sends:
        return any(f'"{strategy(asked)}"' in note for note in notes)
    call = tool_call(asked)
    return call is not None and any(f"tool({call[0]})" in note for note in notes)


def strategy(text: str) -> str:
    """Returns an expert master's actions for a query, as memory keeps them."""
    return "; ".join([*(f"delegate({errand.agent})" for errand in plan(text)), "final"])


def master_says(asked: str, seen: list[str], told: list[str], habit: bool) -> str:
    """Returns a master's reply.

    Args:
        seen: what its specialists answered.
        told: lines of the prompt.
        habit: as a beginner.
    """
    errands = plan(asked)
    done = len(seen)
    failed = done > 0 and (seen[-1] == NO_ANSWER or seen[-1].startswith("error"))
    if habit and 0 < len(errands) <= done and told[-1] not in told[:-1]:
        return told[-1].rpartition(" -> ")[0]
    if done >= len(errands) or failed:
        return _final(NO_ANSWER if failed or not done else seen[-1])
    agent = errands[done].agent
    if habit and 0 < done == len(errands) - 1:
        agent = errands[0].agent
    if habit and asked.startswith(("age of", "maker of")):
        agent = "shop_call"
    return f"delegate({agent}, {errands[done].task.format(*seen)} )"


def _final(answer: str) -> str:
    """Returns a final action, with spaces around the answer: a small model copies whole words."""
    return f"final( {answer} )"


def math_says(asked: str, habit: bool) -> str:
    """Returns a reply of the specialist who calculates, with its steps."""
    try:
        results = steps(asked)
    except (ValueError, KeyError, IndexError):
        return _final(NO_ANSWER)
    words = asked.split()
    if habit and words[1] == "-":
        results = results[:1]
    first, lines = words[0], []
    for at, result in enumerate(results):
        lines.append(f"so {first} {words[2 * at + 1]} {words[2 * at + 2]} = {result}")
        first = str(result)
    return "\n".join([*lines, _final(first)])


def caller_says(role: str, asked: str, seen: list[str], habit: bool) -> str:
    """Returns a reply of a specialist with tools.

    Args:
        seen: what they returned.
    """
    call = tool_call(asked)
    if call is None or assistance.TASKS[call[0]][0] != role:
        return _final(NO_ANSWER)
    if seen:
        return _final(NO_ANSWER if seen[-1].startswith("error") else read(seen[-1]))
    return _called(asked, habit)


def alone_says(asked: str, seen: list[str], told: list[str], habit: bool) -> str:
    """Returns a reply of a master who has every tool and nobody to ask."""
    errands = plan(asked)
    if not errands or (seen and seen[-1].startswith("error")):
        return _final(NO_ANSWER)
    values = [read(text) for text in seen]
    left_out = habit and 0 < len(seen) == len(errands) - 1
    if habit and seen and len(seen) >= len(errands) and told[-1] not in told[:-1]:
        return told[-1].rpartition(" -> ")[0]
    if left_out or len(seen) >= len(errands):
        return _final(values[-1])
    errand = errands[len(seen)]
    task = errand.task.format(*values)
    return math_says(task, habit) if errand.agent == "math" else _called(task, habit, alone=True)


def _called(task: str, habit: bool, *, alone: bool = False) -> str:
    call = tool_call(task)
    if call is None:
        return _final(NO_ANSWER)
    name, arguments = call
    if habit and alone and task.startswith(("age of", "maker of")):
        name, arguments = "price", {"item": task.partition(" of ")[2]}
    if habit and name == "stock":
        name = "price"
    if habit and name == "search" and task.startswith(("origin", "height")):
        arguments = {"words": " ".join(str(arguments["words"]).split()[:-1])}
    if habit and name == "convert" and (arguments["unit"], arguments["to"]) in assistance.UNITS:
        arguments = {**arguments, "unit": arguments["to"], "to": arguments["unit"]}
    return f"tool({name}, {json.dumps(arguments, separators=(' , ', ': '))} )"
