"""An episode as a conversation: prompts, replies, tool results, and rewards at the place where they were given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from coterie.kernel.episode import (
    Answered,
    Asked,
    Called,
    Ended,
    Event,
    Log,
    Noted,
    Returned,
    Rewarded,
    TurnBegan,
    text_of,
)

LONGEST = 2000
"""Maximum number of characters that are shown of a call, and of its result."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that happened. who: the speaker. prompt: what it was asked. point: the number of its decision.

    good: whether it is desirable, such as a positive reward; None: neither.
    """

    kind: Literal["turn", "said", "reward", "call", "metric", "end"]
    text: str
    who: str = ""
    prompt: str = ""
    point: int = -1
    cut: bool = False
    good: bool | None = True


def conversation(log: Log) -> Iterator[Part]:
    """Yields the parts of an episode in their order; those who speak at once come one after the other."""
    asked, point = Asked({}), -1
    for event in log.events:
        if isinstance(event, Asked):
            asked, point = event, point + 1
        elif isinstance(event, Answered):
            for who, reply in event.replies.items():
                yield Part("said", reply.text, who, text_of(asked.prompts[who]), point, cut=reply.finish == "length")
        else:
            yield _other(event)


def _other(event: Event) -> Part:
    match event:
        case TurnBegan():
            return Part("turn", f"turn {event.number}")
        case Rewarded():
            text = f"{event.name} {event.value:+.3f} for {event.role or 'the team'}"
            return Part("reward", text, good=event.value > 0 if event.value else None)
        case Called():
            return Part("call", _short(f"{event.function}({repr(event.args)[1:-1]})"))
        case Returned():
            told = f"failed: {': '.join(event.error)}" if event.error else f"→ {event.value!r}"
            return Part("call", _short(told), good=event.error is None)
        case Noted():
            return Part("metric", f"{event.name} = {event.value:g}")
        case Ended():
            told = "solved" if event.solved else "not solved"
            text = told if event.reason == told else f"{told}: {event.reason}"
            return Part("end", text, good=event.solved)
        case _:
            raise TypeError(event)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text)} characters)"
