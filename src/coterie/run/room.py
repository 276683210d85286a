"""The disk that a run's checkpoints take, forecast before there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from coterie.errors import ConfigError

WEIGHT, AVERAGES = 4, 8
"""Bytes of a trained weight in a checkpoint, and of its two averages in the optimizer."""
GB = 10**9


@dataclass(frozen=True, slots=True)
class Room:
    """Disk space that checkpoints take, in bytes.

    one: of a checkpoint. least: of all that are there at one time, while one is written. most: the same where the best
    is none of the latest, and keeps its weights alone.
    """

    one: int
    least: int
    most: int

    @classmethod
    def of(cls, trained: Iterable[int], keep: int) -> Room:
        """Returns the space for so many trained weights in all, with the latest `keep` checkpoints and the start."""
        weights = sum(trained)
        one = weights * (WEIGHT + AVERAGES)
        least = weights * WEIGHT + (keep + 1) * one
        return cls(one, least, least + weights * WEIGHT)

    @property
    def text(self) -> str:
        """The space in words: for each checkpoint, and for all together."""
        return f"checkpoints take {self.one / GB:.2g} GB each, {self.most / GB:.2g} GB together at the most"

    def told(self, folder: Path) -> str:
        """Returns the space in words, with what is free where the folder will be.

        Raises:
            ConfigError: that is too little.
        """
        free = shutil.disk_usage(next(parent for parent in folder.absolute().parents if parent.exists())).free
        if self.least > free:
            raise ConfigError(
                f"{self.text}, and {free / GB:.2g} GB are free for {folder}: make room, choose another disk with "
                "--out, lower train.keep_checkpoints, or train adapters (policies.NAME.kind = 'lora')"
            )
        return f"{self.text}, of {free / GB:.2g} GB that are free"
