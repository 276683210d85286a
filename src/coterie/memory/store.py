"""Memory: what roles note down from episodes that succeeded, and what those notes turn out to be worth.

A store is an immutable snapshot. All that an iteration samples sees one; when every reward is in,
`evolve` makes the next, a pure function of the snapshot and the iteration's episodes. JoyAgents-R1
(arXiv:2506.19846) adds and removes strategies by the rewards that train the policies; its thresholds are
two deviations from the mean reward, which a success rate between 0.21 and 0.79 never reaches, so ours is
clamped. All siblings of a node see the same notes, so the reward within a group says nothing of them: a
note's worth is measured against episodes in which memory is masked.

What a note says is the environment's own words about what a role did (`Environment.note`), never the
model's text: what a user, a tool or a model wrote does not pass from one task to another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from pydantic import Field, TypeAdapter

from coterie.kernel.environment import Settings

PROBATION, ENOUGH, LOW_TWICE = 3, 6, 2
Mode = Literal["off", "on", "placebo"]
State = Literal["active", "quarantined"]


class MemoryConfig(Settings):
    """What roles remember from one task to the next."""

    mode: Mode = "off"
    """on: roles are shown notes; placebo: as many notes, each another's; off: nothing is kept."""
    roles: tuple[str, ...] = ()
    """Who remembers; none named: everybody."""
    top: int = Field(default=3, ge=1)
    """Notes that a prompt shows, at most."""
    relevance: float = Field(default=0.3, ge=0, le=1)
    """A note is relevant when its query and this one share that much of their words."""
    characters: int = Field(default=600, ge=1)
    """Of all notes in a prompt."""
    mask: float = Field(default=0.2, gt=0, lt=1)
    """Share of train episodes that play without notes, so that their worth can be told."""
    add: int = Field(default=4, ge=1)
    """New entries of a role in an iteration, at most."""
    capacity: int = Field(default=256, ge=1)
    """Entries of a role, at most."""
    worth: float = Field(default=-0.1, ge=-1, le=1)
    """A note goes that is worth no more than this in two iterations running: success with it less success without.
    0: a note stays as long as it does good; below: as long as it does no harm that could not be chance."""
    half_life: float = Field(default=20.0, gt=0)
    """Iterations without use after which an entry's claim to be kept has halved."""

    def inert(self) -> dict[str, str]:
        """Nothing else has an effect where memory is off."""
        if self.mode != "off":
            return {}
        return dict.fromkeys((name for name in type(self).model_fields if name != "mode"), "memory.mode = 'off'")


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
        """How strong its claim to be kept is, in [-1, 2]: recent use and utility, alike."""
        return 2 ** (-(iteration - self.used) / half_life) + 2 * self.utility - 1


@dataclass(frozen=True, slots=True)
class Store:
    """A snapshot. baselines: success without notes where a role acted, by "role" and "role/kind", moving averages."""

    entries: tuple[Entry, ...] = ()
    iteration: int = 0
    baselines: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def digest(self) -> str:
        """Names the content: equal for equal stores, in every process."""
        plain = STORE.dump_python(self, mode="json")
        for entry in plain["entries"]:
            entry["sources"].sort()
        return blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).hexdigest()

    def of(self, role: str) -> tuple[Entry, ...]:
        """A role's entries that may be shown."""
        return tuple(entry for entry in self.entries if entry.role == role and entry.state == "active")


STORE: TypeAdapter[Store] = TypeAdapter(Store)
