"""Memory: notes from successful episodes, and the measured worth of each note.

A store is an immutable snapshot. All samples of an iteration see the same snapshot. When all rewards are
known, `evolve` computes the next one as a pure function of the snapshot and the episodes. JoyAgents-R1
(arXiv:2506.19846) adds and removes strategies by the rewards that train the policies. Its thresholds are
two standard deviations from the mean reward. A success rate between 0.21 and 0.79 never reaches them, so
our threshold is clamped. All alternatives at a node see the same notes, so rewards within a group cannot
rate a note. The worth of a note is therefore measured against episodes without notes.

The environment writes the text of a note about what a role did (`Environment.note`). Text of a user, a
tool or a model never passes from one task to another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from pydantic import Field, TypeAdapter

from coterie.kernel.environment import Settings, Task

PROBATION, ENOUGH, LOW_TWICE = 3, 6, 2
Mode = Literal["off", "on", "placebo"]
State = Literal["active", "quarantined"]


class MemoryConfig(Settings):
    """Settings of the memory, which shows roles notes from earlier tasks."""

    mode: Mode = "off"
    """on: prompts show relevant notes. placebo: prompts show as many notes, but with texts of unrelated notes. off: no
    notes are kept."""
    roles: tuple[str, ...] = ()
    """Roles with a memory. Empty: all roles."""
    top: int = Field(default=3, ge=1)
    """Maximum number of notes in a prompt."""
    relevance: float = Field(default=0.3, ge=0, le=1)
    """Minimum word overlap between the query of a note and the current query for the note to be relevant."""
    characters: int = Field(default=600, ge=1)
    """Maximum number of characters of all notes in a prompt."""
    mask: float = Field(default=0.2, gt=0, lt=1)
    """Share of training episodes without notes. They are the baseline against which the worth of notes is measured."""
    add: int = Field(default=4, ge=1)
    """Maximum number of new notes per role and training step."""
    capacity: int = Field(default=256, ge=1)
    """Maximum number of notes per role."""
    worth: float = Field(default=-0.1, ge=-1, le=1)
    """A note's worth is success with the note minus success without it. A note is deleted if its worth was not above
    this value twice in a row, after it was shown for six queries. 0: a note must help to stay. Below 0: a note stays
    unless it clearly harms."""
    half_life: float = Field(default=20.0, gt=0)
    """Half-life of the recency score of an unused note, in training steps."""

    def inert(self) -> dict[str, str]:
        """Returns all other settings as without effect if memory is off."""
        if self.mode != "off":
            return {}
        return dict.fromkeys((name for name in type(self).model_fields if name != "mode"), "memory.mode = 'off'")


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """A finished episode, as memory sees it.

    shown: entries by role, as their ids. did: what each role that acted did, in the environment's words.
    score: in [0, 1].
    """

    id: str
    task: Task
    masked: bool
    score: float
    shown: Mapping[str, tuple[str, ...]]
    did: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One note.

    key: the query it comes from, for retrieval alone. text: what is shown. utility: in [0, 1], 0.5 for no
    effect; 2 utility - 1 estimates what showing it adds to success. shown: queries that showed it. probation:
    queries it still has to be shown to before it is judged. low: evolutions in a row that it was low. sources:
    hashes of every query it comes from. origin: the latest of them, by split, task and episode.
    """

    id: str
    role: str
    key: str
    text: str
    born: int
    used: int
    utility: float = 0.5
    shown: int = 0
    probation: int = PROBATION
    low: int = 0
    sources: frozenset[str] = frozenset()
    origin: tuple[str, ...] = ()
    state: State = "active"

    def strength(self, iteration: int, half_life: float) -> float:
        """Returns the strength of an entry's claim to be kept, in [-1, 2]: recent use and utility, alike."""
        return 2 ** (-(iteration - self.used) / half_life) + 2 * self.utility - 1


@dataclass(frozen=True, slots=True)
class Store:
    """A memory snapshot. baselines: success without notes where a role acted, by "role", "role/kind"; moving means."""

    entries: tuple[Entry, ...] = ()
    iteration: int = 0
    baselines: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def digest(self) -> str:
        """Digest of the content: equal for equal stores, in every process."""
        plain = STORE.dump_python(self, mode="json")
        for entry in plain["entries"]:
            entry["sources"].sort()
        return blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).hexdigest()

    def of(self, role: str) -> tuple[Entry, ...]:
        """Returns a role's entries that may be shown."""
        return tuple(entry for entry in self.entries if entry.role == role and entry.state == "active")


STORE: TypeAdapter[Store] = TypeAdapter(Store)
