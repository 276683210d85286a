"""Sources of rows: a file, or a data set of the Hugging Face hub.

    problems.jsonl                                  a row a line; or .json, one array; or .parquet
    questions.csv                                   a table whose first line names the columns; or .tsv
    levels.txt                                      blocks of lines, parted by blank ones or by `;` and a name
    hub:google-research-datasets/mbpp               all its splits
    hub:codeparrot/apps@refs/pr/5#all/train         owner/name, @revision, #config/split; all but the name may be left

A row keeps the name of the split it was published in, where there is one: what that name means is decided in `data.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from coterie.bounded import parquet
from coterie.environments.published.tables import table
from coterie.errors import ConfigError
from coterie.models import hub

Row = Mapping[str, Any]
LONGEST_LINE = 32 << 20
"""Maximum bytes of a row."""
LONGEST_BLOCK = 1 << 16
"""Maximum characters of a block."""
LONGEST_ARRAY = 1 << 30
"""Maximum bytes of a file that is one JSON array."""
HUB = re.compile(
    r"hub:(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?:#(?P<config>[\w.-]+)?(?:/(?P<split>[\w.-]+))?)?"
)
BARE = re.compile(r"[\w.-]+/[\w.-]+")
SCRIPTS = {
    "codeparrot/apps": "hub:codeparrot/apps@refs/pr/5",
    "livecodebench/code_generation_lite": "hub:lighteval/code_generation_lite#v6/test",
}
"""Sets that are scripts, which `datasets` runs no more, and where their rows lie instead."""
BLOCK = "level"
"""Name of the column that a block of a .txt file becomes."""
FILES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
MANY = {"lighteval/code_generation_lite": "#v6/test: one window of 175 problems; #release_v6/test: all 1,055, 4.3 GB"}
"""Sets that hold the same rows many times, and which part to ask for."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source of rows. text: as it was written. name, revision, config, split: of a set of the hub; "" if not said."""

    text: str
    name: str = ""
    revision: str = ""
    config: str = ""
    split: str = ""

    def rows(self) -> Iterator[tuple[str, int, Row]]:
        """Yields every row, with the name of its published split, or "", and its number there, from 1.

        Raises:
            ConfigError: it cannot be read, and why.
        """
        if self.name:
            yield from _of_hub(self)
        else:
            if Path(self.text).exists() and not Path(self.text).is_file():  # reading a pipe would wait forever
                raise ConfigError(f"environment.data: {self.text} cannot be read: it is no ordinary file")
            read = {".parquet": _parquet, ".txt": _blocks, ".csv": table, ".tsv": table}.get(
                Path(self.text).suffix, _lines
            )
            yield from (("", number, row) for number, row in read(self.text))

    def place(self, split: str, number: int) -> str:
        """Returns the place of a row in words, for a message."""
        return f"environment.data: {self.text}{f', {split}' if split and not self.split else ''}, row {number}"


def source_of(text: str) -> Source:
    """Returns the source of that name.

    Raises:
        ConfigError: it is none.
    """
    if "://" in text:
        raise ConfigError(f"environment.data: '{text}' is an address; download it first, and name the file")
    if text.endswith(FILES) and not text.startswith("hub:"):
        return Source(str(Path(text).expanduser()))
    if match := HUB.fullmatch(text):
        return Source(text, **{key: value or "" for key, value in match.groupdict().items()})
    hint = f"; for a set of the hub write hub:{text}" if BARE.fullmatch(text) and not Path(text).exists() else ""
    raise ConfigError(
        f"environment.data: '{text}' is no {', '.join(FILES[:-1])} or {FILES[-1]} file, and no "
        f"hub:owner/name@revision#config/split{hint}"
    )


def _blocks(data: str) -> Iterator[tuple[int, Row]]:
    """Yields the blocks of a text file."""
    number, block = 0, ""
    try:
        with Path(data).open(encoding="utf-8") as file:
            while line := file.readline(LONGEST_BLOCK):
                if line.strip() and not line.startswith(";"):
                    block += line
                    if len(block) > LONGEST_BLOCK:
                        raise ConfigError(
                            f"environment.data: {data}, row {number + 1}: longer than {LONGEST_BLOCK} signs"
                        )
                elif block:
                    number += 1
                    yield number, {BLOCK: block.rstrip()}
                    block = ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"environment.data: {data}, after row {number}: not UTF-8") from error
    except OSError as error:
        raise ConfigError(f"environment.data: {data} cannot be read: {error.strerror}") from error
    if block:
        yield number + 1, {BLOCK: block.rstrip()}


def _lines(data: str) -> Iterator[tuple[int, Row]]:
    try:
        with Path(data).open("rb") as file:
            if file.read(64).lstrip()[:1] == b"[" and data.endswith(".json"):
                yield from _array(data, file)
                return
            file.seek(0)
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                where = f"environment.data: {data}, row {number}"
                if len(line) > LONGEST_LINE:
                    raise ConfigError(f"{where}: longer than {LONGEST_LINE >> 20} MiB; is it one row a line?")
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    said = f"{str(error)[:100]}; it begins {line[:40].decode('utf-8', 'replace').strip()!r}"
                    raise ConfigError(f"{where}: not JSON in UTF-8: {said}") from error
                yield number, _object(row, where)
    except OSError as error:
        raise ConfigError(f"environment.data: {data} cannot be read: {error.strerror}") from error


def _array(data: str, file: IO[bytes]) -> Iterator[tuple[int, Row]]:
    """Yields the rows of a file that is one JSON array."""
    file.seek(0)
    text = file.read(LONGEST_ARRAY + 1)
    if len(text) > LONGEST_ARRAY:
        raise ConfigError(f"environment.data: {data} is longer than {LONGEST_ARRAY >> 30} GiB; write one row a line")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"environment.data: {data} is not JSON in UTF-8: {str(error)[:100]}") from error
    for number, row in enumerate(rows, 1):
        yield number, _object(row, f"environment.data: {data}, row {number}")


def _object(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a row is an object, not {type(row).__name__}")
    return row


def _parquet(data: str) -> Iterator[tuple[int, Row]]:
    number = 0
    try:
        for number, row in enumerate(parquet(Path(data)), 1):
            yield number, row
    except ImportError as error:
        raise ConfigError(f"environment.data: {data} needs pyarrow: pip install coterie[data]") from error
    except OSError as error:
        raise ConfigError(f"environment.data: {data} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        where = f"environment.data: {data}{f', after row {number}' if number else ''}"
        raise ConfigError(f"{where} cannot be read as parquet: {error}") from error


def _of_hub(source: Source) -> Iterator[tuple[str, int, Row]]:
    if source.name in MANY and not source.config:
        raise ConfigError(f"environment.data: {source.text} holds the same rows many times; add {MANY[source.name]}")
    try:
        import datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(f"environment.data: {source.text} needs datasets: pip install coterie[data]") from error
    if not hub.answers():  # otherwise the library tries each file five times; a dataset cached here needs no network
        datasets.config.HF_HUB_OFFLINE = True  # pyright: ignore[reportAttributeAccessIssue]
    try:
        loaded = datasets.load_dataset(
            source.name, name=source.config or None, revision=source.revision or None, split=source.split or None
        )
    except Exception as error:  # the library raises anything, from network errors to its own
        instead = SCRIPTS.get(source.name)
        hint = f"; it is a script, its rows are in {instead}" if instead and not source.revision else ""
        raise ConfigError(
            f"environment.data: {source.text} could not be loaded: {type(error).__name__}: {str(error)[:200]}{hint}"
        ) from error
    parts = {source.split: loaded} if source.split else loaded
    for split, part in parts.items():  # pyright: ignore[reportAttributeAccessIssue]
        for number, row in enumerate(part, 1):
            yield str(split), number, dict(row)
