"""State of an unfinished training on demonstrations, in a folder beside the one that it makes, to go on from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from coterie.bounded import content
from coterie.errors import ConfigError
from coterie.memory.store import Store
from coterie.run.files import files_in, flush, whole

LARGEST = 256 << 20
"""Maximum number of bytes of the state that is kept beside weights: notes."""


@dataclass(frozen=True)
class Reached:
    """State of a training. of: a digest of what it depends on. steps: number made. store: what roles remember."""

    of: str
    steps: int
    store: Store


REACHED: TypeAdapter[Reached] = TypeAdapter(Reached)


class Unfinished:
    """The folder of an unfinished training.

    Args:
        out: the one that the training makes.
        of: a digest of what the training depends on.
    """

    def __init__(self, out: Path, of: str) -> None:
        self.folder = out.with_name(f"{out.name}.unfinished")
        self._of = of

    def reached(self) -> Reached | None:
        """Returns the state that was saved; None if there is none.

        Raises:
            ConfigError: it is of another training, or damaged.
        """
        with suppress(OSError):  # the one before, where the next was not yet in its place
            self._old.rename(self.folder)
        if not self.folder.exists():
            return None
        advice = "remove it, or choose another folder with --out"
        try:
            found = REACHED.validate_json(content(self.folder / "reached.json", LARGEST))
        except (OSError, ValidationError, ValueError) as error:
            raise ConfigError(f"{self.folder} is no training that could go on; {advice}") from error
        if found.of != self._of:
            raise ConfigError(f"{self.folder} holds a training with other settings; {advice}")
        return found

    def save(self, steps: int, store: Store, write: Callable[[Path], None]) -> None:
        """Saves the state after some steps: it is written aside, and put in the place of the one before.

        Args:
            write: called with the folder to fill.

        Raises:
            CheckpointError: it cannot be written.
        """
        aside = self.folder.with_name(f".{self.folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        with whole(self.folder, "run the same command again", aside):
            aside.mkdir(parents=True)
            write(aside)
            (aside / "reached.json").write_bytes(REACHED.dump_json(Reached(self._of, steps, store)))
            for file in (*files_in(aside), aside):
                flush(file)
            if self.folder.exists():
                self.folder.rename(self._old)
            aside.rename(self.folder)
            flush(self.folder.parent)
        shutil.rmtree(self._old, ignore_errors=True)

    def remove(self) -> None:
        """Removes the folder, since the training is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _old(self) -> Path:
        return self.folder.with_name(f".old-{self.folder.name}")
