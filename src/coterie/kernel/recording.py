"""Events of a branch of an episode: each is recorded, or compared with the recorded one while it is replayed."""

from __future__ import annotations

from operator import attrgetter
from typing import TypeVar

from coterie.errors import EnvError
from coterie.kernel.episode import Answered, Asked, Called, Event, Returned, Rewarded

E = TypeVar("E", Asked, Rewarded)
VALUES = {Asked: attrgetter("prompts", "max_tokens", "stop"), Rewarded: attrgetter("role", "point", "value", "name")}
"""The fields that a replay compares, for the two kinds of events that are most frequent in it."""


class Recording:
    """Events of a branch so far, and those of an earlier one that it must repeat first.

    points: numbers of the events that are questions. late: end of a message about a difference, for a branch that did
    not start at the beginning.
    """

    def __init__(self, play: str, recorded: tuple[Event, ...]) -> None:
        """Begins with nothing said.

        Args:
            play: what is played, for messages.
            recorded: the events to repeat.
        """
        self.events: list[Event] = []
        self.points: list[int] = []
        self.recorded = recorded
        self.late = ""
        self._play = play

    def take(self, other: Recording, events: int, points: int, turn: int) -> None:
        """Takes the first events and points of another branch, before a turn."""
        self.events, self.points = other.events[:events], other.points[:points]
        self.late = f", in a branch that began with turn {turn}: what passes from turn to turn must be in scene.state"

    def again(self, kind: type[E], *values: object) -> E | None:
        """Returns the recorded event if a replay says the same, so that it need not be built again; else None."""
        at = len(self.events)
        if at < len(self.recorded):
            event = self.recorded[at]
            if isinstance(event, kind) and VALUES[kind](event) == values:
                return event
        return None

    def add(self, event: Event) -> None:
        """Adds an event of `play`. Raises: EnvError: the recorded one differs."""
        at = len(self.events)
        if at < len(self.recorded) and self.recorded[at] is not event and self.recorded[at] != event:
            raise EnvError(
                f"{self._play} is not deterministic: event {at} was {self.recorded[at]}, "
                f"and is {event} when replayed; it may depend on its settings, task, scene.rng and the scene only"
                + self.late
            )
        if isinstance(event, Asked):
            self.points.append(at)
        self.events.append(event)

    def next_recorded(self) -> Event | None:
        """Adds the next recorded event, an answer or a result, and returns it; None if all were repeated."""
        at = len(self.events)
        if at >= len(self.recorded):
            return None
        self.events.append(self.recorded[at])
        return self.recorded[at]

    def check_end(self) -> None:
        """Raises EnvError if not all recorded events were repeated."""
        if (at := len(self.events)) < len(self.recorded):
            raise EnvError(
                f"{self._play} is not deterministic: it ended before event {at}, {self.recorded[at]}, of the replayed "
                "log"
            )

    def whereabouts(self) -> str:
        """Returns a text that says after which answer or call `play` is."""
        told = next((event for event in reversed(self.events) if isinstance(event, Answered | Returned)), None)
        point = len(self.points) - 1
        if isinstance(told, Answered):
            roles = ", ".join(f"'{role}'" for role in sorted(told.replies))
            return f"after the answer of role {roles} at point {point}"
        if told is not None:
            called = next(event for event in reversed(self.events) if isinstance(event, Called))
            return f"after the call of {called.function} that followed point {point}"
        return "from its beginning"
