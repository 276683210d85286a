"""Watches the parts of a run: one that does not answer is reported, and then killed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.kernel.safe import tell

LOOK_S = 2.0
"""Seconds between two looks at the parts of a run."""
SILENT_S, HUNG_S = 60.0, 120.0
"""Seconds of silence after which a part is reported, and after which it is killed."""


@dataclass(slots=True)
class _Part:
    """A part under watch. said: heard of it last. silent_s: since then. waited: it has begun, and was not killed."""

    said: str = ""
    silent_s: float = 0.0
    waited: bool = False


class Lookout:
    """A thread that looks after the parts of a run, from `open` to `close`.

    Args:
        names: the parts.
        heard: what one says just now, which differs from what it said before if it lives; empty: it has not begun.
        kill: ends one, by what it said last.
    """

    def __init__(self, names: Sequence[str], heard: Callable[[str], str], kill: Callable[[str], None]) -> None:
        self._parts = {name: _Part() for name in names}
        self._heard = heard
        self._kill = kill
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coterie-lookout", daemon=True)

    def open(self) -> None:
        """Begins to look after the parts."""
        self._thread.start()

    def close(self) -> dict[str, str]:
        """Stops looking, and returns what each part that had begun said last."""
        self._over.set()
        self._thread.join()
        return {name: part.said for name, part in self._parts.items() if part.said}

    def look(self) -> None:
        """Looks at every part once. Looks are counted, not seconds: after a stop of this process nobody is late."""
        for name, part in self._parts.items():
            with contextlib.suppress(Exception):  # who cannot be heard of just now is not late
                self._note(name, part, self._heard(name))

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def _note(self, name: str, part: _Part, said: str) -> None:
        if said != part.said:
            part.said, part.silent_s, part.waited = said, 0.0, True
        elif part.waited:
            before, part.silent_s = part.silent_s, part.silent_s + LOOK_S
            if before < SILENT_S <= part.silent_s:
                tell(f"{name} has not answered for {SILENT_S:g} s; after {HUNG_S:g} s it is killed")
            if part.silent_s >= HUNG_S:
                tell(f"{name} has not answered for {HUNG_S:g} s, and is killed")
                part.waited = False
                self._kill(said)
