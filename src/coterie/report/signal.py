"""Prints the learning signal of a team as text and as JSON, and a few episodes to read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

from coterie.kernel.episode import Log, text_of
from coterie.kernel.safe import one_line
from coterie.report.logs import said
from coterie.run.evaluate import Evaluation, readable_share
from coterie.run.signal import Signal

EXAMPLES, REPLIES = 3, 4
"""Number of episodes that are shown, and of replies of each."""
PROMPT, REPLY = 160, 240
"""Number of characters of a prompt's end, and of a reply, that are shown."""


def signal_text(signal: Signal) -> str:
    """Returns the learning signal as a few lines for people; the last one is the verdict."""
    time = "" if signal.tasks == signal.wanted else f" of {signal.wanted}, then the time was over"
    lost = f", {signal.lost} lost to faults" if signal.lost else ""
    played = f"{signal.tasks} train tasks{time}, played as a training step plays them{lost}"
    solved = round(signal.success * signal.episodes)
    lines = [
        f"{played}: {signal.groups} groups of replies",
        f"  {solved} of {signal.episodes} main episodes solved"
        + (", which go on with the best of each group's replies: the team alone solves fewer" if signal.best else ""),
    ]
    for name, role in signal.roles.items():
        spread = f", returns spread by {role.spread:.2f}" if role.live else ""
        lines.append(
            f"  {name}: {role.live} of {role.groups} groups have different returns, {role.team} different team rewards"
            f"{spread}; {role.cut:.0%} of replies cut"
        )
    if signal.differs:
        named = ", ".join(f"{name} {count}" for name, count in signal.differs.items())
        lines.append(f"  groups that differ, by reward: {named}")
    if signal.cut:
        lines.append(f"  groups that differ only by which replies were cut: {signal.cut}")
    if signal.readable is not None:
        lines.append(f"  {signal.readable:.0%} of the replies with which episodes went on could be read")
    for policy, nats in signal.entropy.items():
        lines.append(f"  {policy}: {nats:.2f} nats a sampled token")
    return "\n".join([*lines, signal.verdict])


def signal_data(signal: Signal) -> dict[str, Any]:
    """Returns the learning signal and its verdict as plain data."""
    return {**dataclasses.asdict(signal), "verdict": signal.verdict}


def readable_text(evaluation: Evaluation) -> str:
    """Returns a line about the replies that could be read, or nothing if the environment does not note that."""
    share = readable_share(evaluation.logs)
    return "" if share is None else f"  readable: {share:.0%} of replies"


def examples_text(evaluation: Evaluation) -> str:
    """Returns a few episodes as text, one of each ending: the ends of their prompts, and the replies."""
    lines: list[str] = []
    for log in _examples(evaluation):
        assert log.outcome is not None, "an episode that was played to its end has one"
        lines.append("an episode, solved" if log.solved else f"an episode, not solved: {log.outcome.reason}")
        spoken = list(said(log))
        for role, prompt, reply in spoken[:REPLIES]:
            cut = " (cut)" if reply.finish == "length" else ""
            lines.append(f"  {role} is asked: {_end(text_of(prompt))}")
            lines.append(f"  {role}{cut}: {_beginning(reply.text)}")
        if len(spoken) > REPLIES:
            lines.append(f"  … and {len(spoken) - REPLIES} more replies")
    return "\n".join(lines)


def _examples(evaluation: Evaluation) -> Iterator[Log]:
    """Yields the first episode of each ending: a solved one first, then the commonest endings."""
    logs = [log for log in evaluation.logs if log is not None]
    endings = Counter((log.solved, log.outcome.reason) for log in logs if log.outcome)
    for ending in sorted(endings, key=lambda ending: (not ending[0], -endings[ending]))[:EXAMPLES]:
        yield next(log for log in logs if log.outcome and (log.solved, log.outcome.reason) == ending)


def _end(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= PROMPT else f"… {text[-PROMPT:]}"


def _beginning(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= REPLY else f"{text[:REPLY]} …"
