"""Episodes that are played in the viewer: with a person, without one, or forked at a decision with another answer."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Split
from coterie.kernel.episode import Answered, Log, Point, text_of
from coterie.kernel.loops import drive
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply, role_of
from coterie.run.loaded import Loaded, load
from coterie.view.shelf import Identity, identity_of

TEAMS = 2
"""Number of teams that are kept loaded."""
SITTINGS = 100
"""Number of episodes that are kept."""


@dataclass(frozen=True, slots=True)
class EpisodeOptions:
    """An episode that is to be played. seat: the role that the person takes; "": none."""

    folder: Path
    step: int | None = None
    split: Split = "validation"
    task: int = 0
    seat: str = ""
    temperature: float = 0.0


@dataclass(slots=True)
class Sitting:
    """An episode under way, or over. before: the sitting that it was forked from, and the decision where."""

    id: str
    wanted: EpisodeOptions
    play: Play
    cursor: Cursor
    made: int
    """The step of the checkpoint that plays."""
    before: tuple[str, int] | None = None
    asked: dict[str, str] = field(default_factory=dict[str, str])
    """Prompts that the person is asked to answer now, by speaker."""
    meant: Mapping[str, Reply] = field(default_factory=dict[str, Reply])
    """Replies that were given at the decision of a fork before it was forked."""
    point: Point | None = None

    @property
    def log(self) -> Log:
        """The whole episode so far."""
        return Log(self.cursor.id, self.cursor.task.id, self.cursor.seed, self.cursor.events)

    def go_on(self) -> None:
        """Plays the episode until the person is asked, or to the end."""
        seat = self.wanted.seat

        def mine(point: Point) -> bool:
            return seat != "" and seat in map(role_of, point.roles)

        drive(self.play.run(self.cursor, until=mine))
        self._open(drive(self.cursor.advance()), seat)

    def answer(self, point: int, texts: Mapping[str, str]) -> None:
        """Answers a decision with a person's texts, by speaker; others are asked, or say what they said before a fork.

        Raises:
            ConfigError: that is not what is asked now, or somebody has no answer.
        """
        if self.point is None or self.point.index != point:
            raise ConfigError("this is not what is asked now; look at the episode as it is")
        if self.asked.keys() - texts.keys():
            raise ConfigError(f"there is no answer for {', '.join(sorted(self.asked.keys() - texts.keys()))}")
        others = [speaker for speaker in self.point.roles if speaker not in self.asked]
        answers = drive(self.play.ask(self.cursor, self.point, roles=others)) if others else {}
        replies = {speaker: samples[0].reply() for speaker, samples in answers.items()}
        for speaker in self.asked:
            text, meant = texts[speaker], self.meant.get(speaker)
            replies[speaker] = meant if meant and meant.text == text else Reply(role_of(speaker), text)
        self.cursor.answer(replies)
        self.meant = {}
        self.go_on()

    def _open(self, point: Point | None, seat: str) -> None:
        self.point = point
        self.asked = {}
        if point is not None:
            prompts = point.asked.prompts.items()
            self.asked = {speaker: text_of(prompt) for speaker, prompt in prompts if seat in ("*", role_of(speaker))}

    def fork(self, at: int, name: str) -> Sitting:
        """Returns the same episode at a decision, where the person answers for everybody who was asked.

        Raises:
            ConfigError: there is no such decision.
        """
        answers = [event for event in self.cursor.events if isinstance(event, Answered)]
        if not 0 <= at < len(answers):
            raise ConfigError(f"this episode has no decision {at}")
        cursor = self.cursor.fork(at, name)
        other = Sitting(name, self.wanted, self.play, cursor, self.made, (self.id, at), meant=answers[at].replies)
        other._open(drive(cursor.advance()), "*")
        return other


class Tables:
    """All sittings, which are episodes at play, and the teams that play them."""

    def __init__(self) -> None:
        self._teams: OrderedDict[tuple[Identity, int | None], Loaded] = OrderedDict()
        self._sittings: OrderedDict[str, Sitting] = OrderedDict()

    def begin(self, wanted: EpisodeOptions) -> Sitting:
        """Begins a new episode, and plays it until the person is asked, or to the end.

        Raises:
            ConfigError, CheckpointError: it cannot be played.
        """
        team = self._team(wanted.folder, wanted.step)
        seats = (wanted.seat,) if wanted.seat else ()
        play, cursor = team.begin(wanted.split, wanted.task, temperature=wanted.temperature, seats=seats)
        sitting = Sitting(secrets.token_hex(6), wanted, play, cursor, team.progress.step)
        sitting.go_on()
        return self._kept(sitting)

    def fork(self, sitting: Sitting, at: int) -> Sitting:
        """Forks an episode at a decision, see `Sitting.fork`."""
        return self._kept(sitting.fork(at, secrets.token_hex(6)))

    def get(self, name: str) -> Sitting | None:
        """Returns a sitting that is still kept; None for others."""
        return self._sittings.get(name)

    def _kept(self, sitting: Sitting) -> Sitting:
        self._sittings[sitting.id] = sitting
        while len(self._sittings) > SITTINGS:
            self._sittings.popitem(last=False)
        return sitting

    def _team(self, folder: Path, step: int | None) -> Loaded:
        key = identity_of(folder), step
        if key not in self._teams:
            self._teams[key] = load(folder, step)
            while len(self._teams) > TEAMS:
                self._teams.popitem(last=False)
        self._teams.move_to_end(key)
        return self._teams[key]
