"""Snapshots of `play` at the beginnings of its turns, with which a replay starts at the turn of its fork."""

from __future__ import annotations

import types
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

from coterie.errors import EnvError
from coterie.kernel.scene import Reply

SETTLED = {str, int, float, bool, bytes, type(None), Reply}
"""Types of values that cannot change."""
CHANGING = {list, dict, set}
"""Types of values that are changed in place."""
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.GeneratorType, types.CoroutineType)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An episode at the beginning of a turn.

    events, points: how many there were. chance: of `scene.rng`. state: the state of `play`. The other fields are those
    of the cursor.
    """

    events: int
    points: int
    spoke: dict[str, tuple[int, dict[str, Reply]]]
    external: bool
    overlong: str
    chance: tuple[Any, ...] | None
    state: dict[str, Any]


class Turns:
    """The state that `play` declares, and a snapshot of each turn of its first loop over `scene.turns`.

    start: the snapshot with which a replay starts; None once it has been used.
    """

    def __init__(self) -> None:
        self.state: types.SimpleNamespace | None = None
        self.kept: list[Snapshot] = []
        self.start: Snapshot | None = None
        self._loops = 0

    def declare(self, first: dict[str, Any], events: int) -> types.SimpleNamespace:
        """Returns the state of `play`.

        Args:
            events: how many there are.

        Raises:
            EnvError: there are some already, or a state; or it cannot be copied.
        """
        if self.state is not None or events > (self.start.events if self.start else 0):
            raise EnvError("scene.state comes once, before anything is said")
        self.state = types.SimpleNamespace(**copied(first))
        return self.state

    def begin(self, limit: int, rng: Random) -> int:
        """Returns the number of the first turn of a loop; a replay's state and chance are those of its snapshot."""
        self._loops += limit > 0
        if self.start is None or not limit:
            return 0
        if self.start.chance is not None:
            rng.setstate(self.start.chance)
        if self.state is not None:
            put(self.start.state, vars(self.state))
        self.start = None
        return len(self.kept)

    def keep(self, **before: Any) -> None:
        """Keeps the state at the beginning of a turn, with what was before it: the other fields of a snapshot."""
        assert self.state is not None
        self.kept.append(Snapshot(**before, state=copied(vars(self.state))))

    def take(self, other: Turns, turn: int) -> Snapshot:
        """Starts at a turn of another branch, whose snapshot is returned."""
        self.kept, self.start = other.kept[:turn], other.kept[turn]
        return self.start

    @property
    def kept_here(self) -> bool:
        """True if a turn that begins is kept: another loop numbers its turns anew."""
        return self.state is not None and self._loops == 1


def copied(state: dict[str, Any], memo: dict[int, Any] | None = None) -> dict[str, Any]:
    """Returns a deep copy of a state.

    Args:
        memo: as in `copy.deepcopy`: by the id of an object, the object that stands for it in the copy.

    Raises:
        EnvError: the state contains something that cannot be copied, or that the copy would share with it.
    """
    if all(map(_settled, state.values())):
        return dict(state)
    for name, value in state.items():
        if isinstance(value, FUNCTIONS):
            raise EnvError(f"scene.state.{name} is a function, whose variables cannot be copied: keep data")
    try:
        return deepcopy(state, memo)
    except (TypeError, RecursionError, AttributeError) as error:
        raise EnvError(f"scene.state cannot be copied: {type(error).__name__}: {error}; keep data") from error


def put(kept: dict[str, Any], state: dict[str, Any]) -> None:
    """Sets a state to the kept values.

    Lists, dicts and sets are changed in place, because variables of `play` from before its turns may refer to them.
    """
    places = {
        name: state[name]
        for name, value in kept.items()
        if type(value) in CHANGING and type(state.get(name)) is type(value)
    }
    if not len({id(value) for value in places.values()}) == len({id(kept[name]) for name in places}) == len(places):
        places = {}  # two names share one value, now or in what was kept: it is not known which of them `play` uses
    memo = {id(kept[name]): value for name, value in places.items()}
    for name, value in places.items():
        whole = kept[name]
        value.clear()
        if isinstance(value, dict):
            value.update((deepcopy(key, memo), deepcopy(item, memo)) for key, item in whole.items())
        elif isinstance(value, list):
            value.extend(deepcopy(item, memo) for item in whole)
        else:
            value.update(deepcopy(item, memo) for item in whole)
    after = copied(kept, memo)
    state.clear()
    state.update(after)


def _settled(value: object) -> bool:
    """Returns True if nothing in a value can change: most states are cells and texts, and need no copy."""
    return type(value) in SETTLED or (type(value) in (tuple, frozenset) and all(map(_settled, value)))  # pyright: ignore
