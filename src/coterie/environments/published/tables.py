"""Tables of text: .csv and .tsv files as spreadsheets write them, a row at a time.

The first line names the columns. In a .csv file they are separated by commas, semicolons or tabs: the separator under
which the rows have as many cells as the first line. Cells in double quotes may contain separators and line breaks. A
byte order mark, a line `sep=;` as Excel writes it, and empty lines are skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO

from coterie.errors import ConfigError

SEPARATORS = (",", ";", "\t")
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs"}
LONGEST_LINE = 1 << 20
"""Maximum characters of a line. A cell is bounded by the csv module, at 131,072 characters."""
SAMPLE = 200
"""Lines from which the separator is guessed."""
MOST_COLUMNS = 1000
OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK": "a spreadsheet or another archive"}
"""Formats of files that begin with these bytes."""


def table(data: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yields the rows of a .csv or .tsv file, numbered from 1, each as text by column.

    Raises:
        ConfigError: it cannot be read; the line says where.
    """
    where = f"environment.data: {data}"
    try:
        with Path(data).open("rb") as raw:
            begins = raw.read(2)
        if other := OTHER_ENCODINGS.get(begins):
            raise ConfigError(f"{where} is {other}; save it as CSV in UTF-8")
        with Path(data).open(encoding="utf-8-sig", newline="") as file:
            yield from _rows(file, where, SEPARATORS if data.endswith(".csv") else ("\t",))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not UTF-8; save it as CSV in UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error


def _rows(file: IO[str], where: str, separators: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    lines = _lines(file, where)
    sample = list(islice(lines, SAMPLE))
    skipped = 0
    if sample and (written := re.fullmatch(r"sep=(.)\r?\n?", sample[0])):
        separators, skipped = (written[1],), 1
    ended = len(sample) < SAMPLE
    separator = _separator(sample[skipped:], separators, ended=ended)
    records = csv.reader(chain(sample[skipped:], lines), delimiter=separator, strict=True, skipinitialspace=True)
    number = 0
    columns: list[str] = []
    try:
        for record in records:
            if not any(map(str.strip, record)):
                continue
            if not columns:
                columns = _columns(record, where)
                continue
            number += 1
            if any(map(str.strip, record[len(columns) :])):
                raise ConfigError(
                    f"{where}, line {records.line_num + skipped}: {len(record)} cells, but the first line names "
                    f"{len(columns)} columns separated by {NAMES.get(separator, repr(separator))}; put cells that "
                    'contain a separator in double quotes, "like, this"'
                )
            cells = [*record, *[""] * (len(columns) - len(record))]
            yield number, {column: cell for column, cell in zip(columns, cells, strict=False) if column}
    except csv.Error as error:
        line = f"{where}, line {records.line_num + skipped}"
        if "unexpected end" in str(error) or "field larger" in str(error):
            raise ConfigError(
                f"{line}, after row {number}: a cell that begins with a double quote does not end; {MEND}"
            ) from error
        raise ConfigError(f"{line}: {error}; {MEND}") from error


MEND = 'a double quote inside a quoted cell is written twice, "like ""this"""'


def _lines(file: IO[str], where: str) -> Iterator[str]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise ConfigError(f"{where}, line {number}: longer than {LONGEST_LINE >> 20} MiB; is it a table of text?")
        if "\0" in line:
            raise ConfigError(f"{where}, line {number}: it holds a null character, which no text has; is it a table?")
        yield line


def _separator(sample: Sequence[str], separators: Sequence[str], *, ended: bool) -> str:
    """Returns the separator with which most records of the sample have as many cells as the first, at least two."""

    def fitness(separator: str) -> tuple[float, int]:
        widths: list[int] = []
        try:
            records = csv.reader(iter(sample), delimiter=separator, strict=True, skipinitialspace=True)
            widths.extend(len(record) for record in records if any(map(str.strip, record)))
        except csv.Error as error:
            if ended or "unexpected end" not in str(error):  # else the sample alone ends inside a cell
                return 0.0, 0
        if not widths or widths[0] < 2:
            return 0.0, 0
        return widths.count(widths[0]) / len(widths), widths[0]

    return max(separators, key=fitness)  # the first of equals


def _columns(record: Sequence[str], where: str) -> list[str]:
    columns = [name.strip() for name in record]
    if len(columns) > MOST_COLUMNS:
        raise ConfigError(f"{where}: {len(columns)} columns, and {MOST_COLUMNS} are the most")
    for name in columns:
        if name and columns.count(name) > 1:
            raise ConfigError(f"{where}: two columns are called '{name}'; give each a name of its own")
    return columns
