"""Data of one's own for `assistants`: queries, a knowledge base, a shop."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError
from coterie.kernel.environment import SPLITS, Split, split_of
from coterie_worlds.assistants import world as assistance
from coterie_worlds.assistants.actions import LONGEST, bytes_of, plain
from coterie_worlds.assistants.world import Query

MOST = 10**9
"""Maximum of a price or a stock."""


# One's own data ----------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def queries(data: str) -> dict[Split, tuple[Query, ...]]:
    """Returns the queries of a file, split by content.

    Raises:
        ConfigError: names the file and the row.
    """
    by_split: dict[Split, list[Query]] = {split: [] for split in SPLITS}
    for number, row in _rows("data", data, {"query": str, "answer": str}):
        split = split_of(plain(row["query"]))
        if not plain(row["answer"]) or bytes_of(row["answer"]) > LONGEST:
            raise ConfigError(f"environment.data: {data}, row {number}: an answer has 1 to {LONGEST} bytes")
        kind = row.get("kind", "")
        if not isinstance(kind, str):
            raise ConfigError(f"environment.data: {data}, row {number}: 'kind' is text, or is left out")
        by_split[split].append(Query(f"{number}", split, query=row["query"], answer=row["answer"], kind=kind))
    return {split: tuple(of_split) for split, of_split in by_split.items()}


@lru_cache(maxsize=4)
def sentences(data: str) -> tuple[str, ...]:
    """Returns the sentences of a knowledge base; without a file the embedded ones.

    Raises:
        ConfigError: names the file and the row.
    """
    if not data:
        return assistance.sentences()
    return tuple(row["text"] for _, row in _rows("knowledge", data, {"text": str}))


@lru_cache(maxsize=4)
def catalogue(data: str) -> tuple[tuple[str, int, int], ...]:
    """Returns the items of a shop as name, price and stock; without a file the embedded ones.

    Raises:
        ConfigError: names the file and the row.
    """
    if not data:
        return assistance.catalogue()
    rows = [row for _, row in _rows("catalogue", data, {"item": str, "price": int, "stock": int})]
    if len({row["item"] for row in rows}) < len(rows):
        raise ConfigError(f"environment.catalogue: {data} names an item twice")
    return tuple((row["item"], row["price"], row["stock"]) for row in rows)


def _rows(setting: str, data: str, columns: Mapping[str, type]) -> Iterator[tuple[int, dict[str, Any]]]:
    where = f"environment.{setting}: {data}"
    if Path(data).exists() and not Path(data).is_file():  # reading a pipe would wait forever
        raise ConfigError(f"{where} cannot be read: it is no ordinary file")
    try:
        text = Path(data).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read as UTF-8 text: {error}") from error
    number = 0
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}, row {number}: not JSON: {str(error)[:100]}") from error
        for column, kind in columns.items():
            if not isinstance(row, dict) or type(row.get(column)) is not kind:
                raise ConfigError(f"{where}, row {number}: needs '{column}', of type {kind.__name__}")
            if kind is int and not 0 <= row[column] <= MOST:
                raise ConfigError(f"{where}, row {number}: '{column}' is from 0 to {MOST}")
        yield number, row
    if not number:
        raise ConfigError(f"{where} has no rows")
