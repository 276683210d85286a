"""Records of a file of saved rollouts, which is read by its ending: JSON lines, parquet, tensors, a log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from coterie.apart import MEMORY, Apart, Refused
from coterie.bounded import parquet
from coterie.errors import ConfigError, first_line

Record = Mapping[str, Any]
LARGEST = 2 << 30
"""Maximum number of bytes of a file, which is read whole."""
MOST = 2_000_000
"""Maximum number of records of a file."""
WRITER = "coterie"
"""Name under which a log of `coterie eval` gives the version that wrote it."""


def records_of(path: Path) -> list[Record]:
    """Returns all records of a file, which is read by its ending."""
    try:
        if not path.is_file():
            raise ConfigError(f"{path} is no file" if path.exists() else f"{path} is not there")
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path} has more than {LARGEST >> 30} GiB; audit a part of it")
        if path.suffix == ".parquet":
            return _parquet(path)
        if path.suffix in (".pt", ".pth"):
            return _tensors(path)
        if path.suffix == ".json":
            return _log(path)
        with path.open("rb") as file:
            return [as_record(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def as_record(path: Path, number: int, line: bytes) -> Record:
    """Returns a line of a file as an object. Raises ConfigError: it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, line {number}: no JSON object: {first_line(error)}") from error
    if not isinstance(record, dict):
        raise ConfigError(f"{path}, line {number}: a record is an object, not {type(record).__name__}")
    return record


def _parquet(path: Path) -> list[Record]:
    try:
        records: list[Record] = list(islice(parquet(path), MOST + 1))
    except ImportError as error:
        raise ConfigError(f"{path} needs pyarrow: pip install 'coterie[data]'") from error
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if len(records) > MOST:
        raise ConfigError(f"{path} has more than {MOST:,} records; audit a part of it")
    return records


def _tensors(path: Path) -> list[Record]:
    reader = Apart("coterie.report.tensors:samples", memory=MEMORY + 4 * path.stat().st_size)
    try:
        return [{"slime_sample": True, **sample} for sample in reader.ask(str(path.absolute()))]
    except Refused as error:
        raise ConfigError(f"{path} cannot be read as plain data: {error}") from error
    finally:
        reader.close()


def _log(path: Path) -> list[Record]:
    """Returns the samples of a log of Inspect's, whose long texts stand apart from where they are used."""
    whole = as_record(path, 1, path.read_bytes())
    samples = whole.get("samples")
    if "eval" not in whole or not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise ConfigError(f"{path} has no eval and samples, as a log of Inspect's has")
    check_trained(path, whole["eval"], "packages")
    return [{"inspect_sample": True, **sample} for sample in samples]


def check_trained(path: Path, record: object, key: str) -> None:
    """Raises ConfigError if an evaluation of our own wrote a record. key: under which the record says so."""
    told = record.get(key) if isinstance(record, dict) else None
    if isinstance(told, dict) and WRITER in told:
        raise ConfigError(
            f"{path} holds episodes of `coterie eval`: nothing was trained on them, so they are in no group; audit the "
            "run: coterie audit RUN"
        )
