"""Files of figures: a line a run, or a line a team that was put together, from which results pages are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from coterie.errors import ConfigError

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
KEEPING = Lock()


class _Figures(BaseModel, extra="allow", strict=True):
    """Schema of a line of figures: the fields that it must have, and those that it may have."""

    seed: Count
    success: Share
    cpu_minutes: Amount = 0.0
    sampled_tokens: Count = 0
    trained_tokens: Count = 0
    start_success: Share = 0.0
    votes: Share = 0.0
    start_votes: Share = 0.0
    by_kind: dict[str, Share] = {}
    turns: Amount = 0.0
    start_turns: Amount = 0.0
    tokens: Amount = 0.0
    live: Share = 0.0
    entropy: Amount = 0.0
    curve: list[tuple[Count, Count, Share]] = []
    turns_curve: list[Amount] = []
    shares: dict[str, tuple[Share, Share, Share]] = {}
    mute: dict[str, Annotated[float, Field(ge=-1, le=1)]] = {}

    @model_validator(mode="after")
    def _as_long(self) -> _Figures:
        if self.turns_curve and len(self.turns_curve) != len(self.curve):
            raise ValueError("curve and turns_curve are not of one length")
        return self


def keep(file: Path, figures: Mapping[str, Any]) -> None:
    """Adds a line to a file, below half a line that a kill may have left there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with KEEPING, file.open("a") as lines:
        cut_off = file.read_bytes()[-1:] not in (b"", b"\n")
        lines.write("\n" * cut_off + json.dumps(figures) + "\n")


def lines_of(file: Path, **wanted: str) -> dict[int, dict[str, Any]]:
    """Returns the lines of a file that have these values, by seed. Of two lines of one seed the later counts.

    A line that was cut off by a kill is none.

    Raises:
        ConfigError: such a line holds what no run can have achieved.
    """
    if not file.exists():
        return {}
    seen = file.stat()
    found: dict[int, dict[str, Any]] = {}
    for number, line in _read(file, seen.st_mtime_ns, seen.st_size):
        if all(line.get(key) == value for key, value in wanted.items()):
            _check(f"{file}, line {number}", line)
            found[line["seed"]] = line
    return found


def _check(where: str, line: Mapping[str, Any]) -> None:
    try:
        _Figures.model_validate_json(json.dumps(line))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the line"
        raise ConfigError(f"{where}: {place}: {first['msg']}; take the line out, and its run is made again") from None


@lru_cache(maxsize=16)
def _read(file: Path, changed: int, size: int) -> list[tuple[int, dict[str, Any]]]:
    """Returns the lines and their numbers; `changed` and `size` make the cache read a changed file again."""
    lines: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        with suppress(ValueError):
            if isinstance(read := json.loads(line), dict):
                lines.append((number, read))
    return lines
