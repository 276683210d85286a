"""Base classes of environments that play generated tasks or the tasks of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import field_validator, model_validator

from coterie.environments.published.data import ARROW, Data, Reader, held_out, known, load
from coterie.environments.talk import instructed
from coterie.kernel.environment import Environment, Split


class PlaysRows(Environment):
    """An environment whose tasks come from `data`; see `data.py`."""

    data: str = ""
    """Data set: a .jsonl, .json, .csv or .parquet file, hub:owner/name@revision#config/split, or TRAIN -> TEST of two
    such sources."""

    @field_validator("data")
    @classmethod
    def _data_found_from_everywhere(cls, data: str) -> str:
        parts = [part.strip() for part in data.split(ARROW)]
        return f" {ARROW} ".join(str(Path(part).resolve()) if Path(part).is_file() else part for part in parts).strip()

    def reader(self) -> Reader[Any]:
        """Returns the reader that makes a row a task."""
        raise NotImplementedError

    def rows(self) -> Data[Any]:
        """Returns the data that `data` names. Raises ConfigError: it cannot be read or scored."""
        return load(self.data, self.reader())

    def task(self, split: Split, index: int) -> Any:
        """Returns the task at a place of a split."""
        return self.rows().splits[split][index]

    def count(self, split: Split) -> int | None:
        """Returns the number of tasks in a split of the data."""
        return len(self.rows().splits[split])

    def content(self) -> str:
        """Returns the digests of the data's splits, wherever its rows come from."""
        data = self.rows() if self.data else None
        return " ".join(map(data.digest, data.splits)) if data else ""

    def remarks(self) -> tuple[str, ...]:
        """Returns remarks on what the data holds and which rows are passed over."""
        return (*(self.rows().remarks() if self.data else ()), *super().remarks())

    def tested_on(self, data: str) -> tuple[Self, tuple[str, ...]]:
        """Returns the environment with test tasks of other data, and remarks for the user.

        The tasks are all of a single source, those behind an arrow, or a benchmark's. Roles are told them as they are
        told their own.

        Raises:
            ConfigError: it cannot be read or scored.
        """
        reader = self.reader()
        other = self.model_copy(update={"data": held_out(data, reader.benchmarks)})
        return other, (*other.remarks(), *known(other.rows(), self.rows() if self.data else None))


class PlaysData(PlaysRows):
    """An environment whose tasks are drawn, or come from `data`."""

    data: str = ""
    """Data set: a .jsonl, .json, .csv or .parquet file, hub:owner/name@revision#config/split, TRAIN -> TEST of two such
    sources, or the name of a benchmark. Empty: tasks are generated."""
    brief: bool = True
    """true: short prompts, for a small model that was trained on the generated tasks. false: prompts with instructions.
    The default with `data` is false."""

    @model_validator(mode="before")
    @classmethod
    def _instructed(cls, settings: Any) -> Any:
        return instructed(settings)

    def drawn(self, split: Split, index: int) -> Any:
        """Returns the task at an index of a split if there is no data."""
        raise NotImplementedError

    def task(self, split: Split, index: int) -> Any:
        """Returns the task at a place of a split."""
        return super().task(split, index) if self.data else self.drawn(split, index)

    def count(self, split: Split) -> int | None:
        """Returns the number of tasks in a split of the data; None for drawn tasks, which have no end."""
        return super().count(split) if self.data else None
