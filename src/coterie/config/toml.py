"""Reading and writing of TOML: settings with their source locations, overrides, and configs as files."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from coterie.apart import Apart, Refused
from coterie.bounded import content
from coterie.errors import ConfigError
from coterie.kernel.safe import command, one_line
from coterie.registry import about

LARGEST = 1 << 20
"""Maximum number of bytes of a config."""
DEEPEST, MOST, INTEGER_BITS = 16, 4000, 64
"""Maximum number of tables within each other in a config, and of its values."""
LONGEST = 300
"""Maximum number of characters of an override that a message repeats."""
EVERY = "*"
"""Name in `policies.*.model` that stands for every policy that is trained."""
OTHER_FORMATS = (".json", ".yaml", ".yml", ".cfg", ".ini")
"""Endings of files in which other programs keep their configs."""


class ConfigSource:
    """Settings that a person wrote, and where: for messages, and to find the files that they name.

    folder: where its file lies, if it is one.
    """

    def __init__(
        self,
        data: dict[str, Any],
        places: Mapping[str, str],
        folder: Path | None = None,
        defaults: frozenset[tuple[str, str]] = frozenset(),
        origins: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.folder = folder
        self._places = places
        self._defaults = defaults
        self._origins = places if origins is None else origins

    def origins(self) -> dict[str, str]:
        """Returns who set each setting, by its path: the line of a file, an option, or who recommends it.

        "" stands for a default that a run's own config has written out.
        """
        return {path: self._origin(path) for path, _ in leaves(self.data)}

    def _origin(self, path: str) -> str:
        """Returns who set a value: it, or a table that it stands in."""
        while path:
            if path in self._origins:
                return self._origins[path]
            path = path.rpartition(".")[0]
        return "given"

    def table(self, path: str) -> Mapping[str, Any]:
        """Returns the content of a table, such as `train` or `trackers.mine`."""
        content: Any = self.data
        for part in path.split("."):
            content = content.get(part, {})
        return content

    def person_wrote(self, table: str, key: str) -> bool:
        """Returns True if a setting was written by a person, and is nobody's default."""
        return key in self.table(table) and (table, key) not in self._defaults

    def with_defaults(
        self, tables: Mapping[str, Mapping[str, Any]], where: str, reasons: Mapping[str, str] | None = None
    ) -> ConfigSource:
        """Returns these settings, with defaults where they have none; each setting of a policy counts by itself.

        Args:
            where: who says so, for messages.
            reasons: why, by the path of a setting or of the table that it stands in.
        """
        names = {**self.data, **tables}
        merged = {name: {**tables.get(name, {}), **self.data.get(name, {})} for name in names}
        for name, policy in dict(merged.get("policies", {})).items():
            theirs = tables.get("policies", {}).get(name)
            if theirs and isinstance(policy, dict):
                merged["policies"][name] = _filled(policy, theirs)
        added = {(name, key) for name, table in tables.items() for key in table if key not in self.data.get(name, {})}
        places = {f"{name}.{key}": where for name, key in added}
        written = {path for path, _ in leaves(self.data)}
        why = {f"{path}.": reason for path, reason in (reasons or {}).items()}
        origins = {
            path: next((reason for start, reason in why.items() if f"{path}.".startswith(start)), where)
            for path, _ in leaves(tables)
            if path not in written
        }
        return ConfigSource(
            merged, {**places, **self._places}, self.folder, self._defaults | added, {**origins, **self._origins}
        )

    def spread(self, names: Sequence[str]) -> ConfigSource:
        """Returns these settings, with [policies."*"] written to each of some policies, and none of that name."""
        policies = dict(self.data.get("policies", {}))
        every = policies.pop(EVERY)
        places, origins = dict(self._places), dict(self._origins)
        for name in names:
            own = policies.get(name, {})
            policies[name] = _filled(every, own) if isinstance(own, dict) else every
            for known in (places, origins):
                theirs = {key: place for key, place in known.items() if key.startswith(f"policies.{EVERY}.")}
                known |= {key.replace(EVERY, name, 1): place for key, place in theirs.items()}
        return ConfigSource({**self.data, "policies": policies}, places, self.folder, self._defaults, origins)

    def place(self, path: str, told: str | None = None) -> str:
        """Returns `file:line: ` of a dotted key, else of a key in it, else of the table around it, or "".

        Args:
            told: a message about the whole table. A key is blamed only if it is the only one that the message names.
        """
        words = None if told is None else set(re.findall(r"\w+", told))
        while path:
            inside = [
                place
                for key, place in self._places.items()
                if f"{key}.".startswith(f"{path}.") and (words is None or key.rpartition(".")[2] in words)
            ]
            one = inside[0] if inside and (told is None or len(inside) == 1) else ""
            if written := self._places.get(path) or one:
                return f"{written}: "
            path = path.rpartition(".")[0]
        return ""


def read(
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    written: bytes | None = None,
    *,
    own: bool = False,
) -> ConfigSource:
    """Reads settings that a person wrote: a TOML file, tables, or the name of an environment, and overrides on top.

    Args:
        written: what the file holds, if it was read.
        own: it is a run's own, and says behind each value who set it.

    Raises:
        ConfigError: it cannot be read, or an override is none.
    """
    places: dict[str, str] = {}
    origins: dict[str, str] = {}
    folder: Path | None = None
    if isinstance(source, Mapping):
        data = _copied(_tables(source))
    elif str(source).endswith(".toml"):
        path = Path(source)
        folder = path.parent
        try:
            text = (content(path, LARGEST) if written is None else written).decode(
                "utf-8-sig"
            )  # some editors write a byte order mark
            data = _parsed(text)
        except FileNotFoundError as error:
            raise ConfigError(f"{path} does not exist; give a .toml file or the name of an environment") from error
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error
        lines = _lines(text)
        places = {key: f"{path}:{line}" for key, line in lines.items()}
        origins = dict(places)
        if own:
            comments = [_comment(line) for line in text.split("\n")]
            origins = {key: comments[line - 1] for key, line in lines.items()}
    elif (Path(source) / "config.toml").is_file():
        raise ConfigError(f"{source} is the folder of a run; go on with: {command('train', '--resume', source)}")
    elif Path(source).suffix.lower() in OTHER_FORMATS and not about("environment", str(source))[1]:
        raise ConfigError(f"{source}: a config is a TOML file, as in configs/; write it as {Path(source).stem}.toml")
    else:
        data = {"environment": {"name": str(source)}}
    _override(data, overrides, (places, origins))
    return ConfigSource(data, places, folder, origins=origins)


def _override(data: dict[str, Any], overrides: Sequence[str], known: Sequence[dict[str, str]]) -> None:
    """Sets overrides in tables, and where they stand in each dict of places. Raises ConfigError: one is none."""
    if isinstance(overrides, str):
        raise ConfigError(f"overrides = {overrides!r} is one string; write a list: [{overrides!r}]")
    for override in overrides:
        key, separator, value = override.partition("=")
        parts = key.strip().split(".")
        if not separator or len(parts) < 2 or not all(parts):
            raise ConfigError(f"--set {override}: write it as table.key=value, for example train.steps=200")
        table: Any = data
        for part in parts[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"--set {override}: '{part}' is a value, not a table")
        table[parts[-1]] = _value(value)
        for places in known:
            _forget(places, key.strip())
            places[key.strip()] = one_line(getattr(override, "option", f"--set {override}"))[:LONGEST]


def _forget(places: dict[str, str], path: str) -> None:
    """Takes away the places of a setting and of all that stood in it."""
    for key in [key for key in places if f"{key}.".startswith(f"{path}.")]:
        del places[key]


def _comment(line: str) -> str:
    """Returns the comment behind a value, as `to_toml` writes it; "" if there is none."""
    at = line.find("  # ")
    while at >= 0:
        with contextlib.suppress(tomllib.TOMLDecodeError, RecursionError):  # else the mark stands in the value
            tomllib.loads(line[:at])
            return line[at + 4 :]
        at = line.find("  # ", at + 1)
    return ""


def _tables(given: Mapping[Any, Any]) -> Mapping[str, Mapping[str, Any]]:
    for name, table in given.items():
        if not isinstance(name, str) or not isinstance(table, Mapping):
            told = one_line(f"{name!r} is {table!r}")[:LONGEST]
            raise ConfigError(f"a config has named tables, but {told}; give tables such as {{'train': {{'steps': 3}}}}")
    return given


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of tables, into which overrides are written without the caller's being changed."""
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tables.items()}


class Meant(str):
    """An override that another option stands for; a mistake in it is said of that option."""

    __slots__ = ("option",)
    option: str

    def __new__(cls, override: str, option: str) -> Self:
        """Makes an override that knows the option that stands for it, as it was written."""
        meant = super().__new__(cls, override)
        meant.option = option
        return meant


FLAGS = {
    "model": f"policies.{EVERY}.model",
    "kind": f"policies.{EVERY}.kind",
    "algorithm": "algorithm.name",
    "lr": "optimizer.lr",
    "steps": "train.steps",
}
"""Settings that everybody changes, by the names that they have as options and keywords."""


def flags(values: Mapping[str, Any]) -> list[str]:
    """Returns the overrides that options such as --model stand for; None: the option was not given."""
    return [
        Meant(f"{FLAGS[name]}={json.dumps(value)}", f"--{name} {value}")
        for name, value in values.items()
        if value is not None
    ]


def _value(text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text  # more lines would be more keys


def _parsed(text: str) -> dict[str, Any]:
    """Returns what a config says.

    Raises:
        ValueError: it is no TOML, or says more than a config has; the library takes gigabytes for a key of many parts.
        RecursionError: its values are too deep for the library.
    """
    if text.count(".") > MOST or any(line.count(".") > 2 * DEEPEST for line in text.split("\n")):  # keys, perhaps
        reader = Apart(f"{__name__}:parsed_apart")
        try:
            (data,) = reader.ask(text)
        except Refused as error:
            raise ValueError(str(error)) from error
        finally:
            reader.close()
    else:
        data = tomllib.loads(text)
    left, values = [(data, 0)], 0
    while left:
        value, depth = left.pop()
        if isinstance(value, dict | list):
            inner = list(value.values()) if isinstance(value, dict) else value
            if isinstance(value, dict) and (odd := next((key for key in value if key != one_line(key)), None)):
                raise ValueError(f"a key is no single line of text: {one_line(odd)[:LONGEST]}")
            values += len(inner)
            left += [(each, depth + 1) for each in inner]
        if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
            raise ValueError(f"an integer has more than {INTEGER_BITS} bits")
        if depth > DEEPEST or values > MOST:
            raise ValueError(f"it has more than {MOST:,} values, or more than {DEEPEST} tables within each other")
    return data


def parsed_apart(text: str) -> Iterator[dict[str, Any]]:
    """Yields what a config says; runs in a process of its own."""
    yield tomllib.loads(text)


def _lines(text: str) -> dict[str, int]:
    """Returns the line of every table and key, as far as a line-wise look can tell."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(r"\s*\[([\w.\-* \"]+)\]", line):
            table = header[1].replace(" ", "").replace('"', "")
            lines.setdefault(table, number)
        elif key := re.match(r"\s*([\w.\-\"]+)\s*=", line):
            name = key[1].replace('"', "")
            lines.setdefault(f"{table}.{name}" if table else name, number)
    return lines


def leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every setting of a table, and of the tables in it, by its whole name."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def to_toml(tables: Mapping[str, Any], path: str = "", origins: Mapping[str, str] | None = None) -> str:
    """Returns tables of numbers, strings, booleans and lists as TOML; None is left out.

    Args:
        origins: comments behind values, by their paths.
    """
    lines: list[str] = []
    plain = {key: value for key, value in tables.items() if not isinstance(value, dict) and value is not None}
    if path and (plain or not tables):
        lines.append(f"[{path}]")
    for key, value in plain.items():
        origin = one_line((origins or {}).get(f"{path}.{key}", ""))[:LONGEST]
        written = f"{_bare(key)} = {json.dumps(value, ensure_ascii=False)}"
        lines.append(f"{written}  # {origin}" if origin else written)
    if lines:
        lines.append("")
    text = "\n".join(lines) + ("\n" if lines else "")
    for key, value in tables.items():
        if isinstance(value, dict) and (value or not path):
            text += to_toml(value, f"{path}.{_bare(key)}" if path else _bare(key), origins)
    return text


def _filled(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a table with defaults for what it lacks, also in the tables in it."""
    inner = {
        key: _filled(table[key], value)
        for key, value in defaults.items()
        if isinstance(value, dict) and isinstance(table.get(key), dict)
    }
    return {**defaults, **table, **inner}


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)
