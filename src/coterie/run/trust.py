"""Whose run a folder is, and what playing it would run, reach or send.

A folder from somebody else is data: its curves, rollouts, notes and warnings are read without importing, connecting or
sending anything. To play it, its environment must be made, and a config may name code, commands, servers and variables
of the environment. That needs the user's word, `--trust`, once for what is named, the contents of files included.

Runs that this user made are known by a signature under a key of the user's, in $XDG_CONFIG_HOME/coterie, so nobody is
asked about their own work. A config that a user names on the command line is run as a script is: see docs/trust.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError
from coterie.kernel.environment import STARTERS
from coterie.kernel.safe import command, one_line
from coterie.models.named import NAMED
from coterie.registry import TABLES, installed

SIGNATURE = "owner"
"""The file of a run folder with its maker's signature."""
IMPORTING = frozenset({"gateway", "pettingzoo", "gymnasium", "textarena", "openenv"})
"""Environments whose first setting names code."""
CODE = re.compile(r"\.py(?::|$)|^\s*[A-Za-z_][\w.]*:[A-Za-z_]\w*\s*$")
"""A file of Python, or package.module:NAME."""
QUIET = frozenset({"display", "tensorboard"})
"""Trackers that reach nobody."""
LARGEST_CODE = 10 << 20
"""Bytes of a code file whose contents are part of what is trusted."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a config names. kind: code, command, server, variable, download or service. where: the setting."""

    kind: str
    where: str
    value: str

    def __str__(self) -> str:
        does = {
            "code": "run the code {}", "command": "start the command {}", "server": "connect to {}",
            "variable": "send the variable {} of your environment", "download": "download {}",
            "service": "report to the service {}",
        }  # fmt: skip
        return does[self.kind].format(one_line(self.value)[:200])


_trusting = False
"""Whether this process was told to trust the folders that it is given."""
_made: set[Path] = set()
"""Folders of runs that this process made: where no key can be kept, they are this user's all the same."""


def trusting() -> None:
    """Trusts the folders that this process is given from now on, and remembers what they name."""
    global _trusting  # noqa: PLW0603  (one word of a user holds for the whole command)
    _trusting = True


def home() -> Path:
    """The folder in which a user's key and word are kept."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "coterie"


def sign(folder: Path, config: str, at: Path | None = None) -> None:
    """Signs the config of a run that this user makes or changes. at: where the run will be, if it is not there yet."""
    _made.add((at or folder).resolve())
    with contextlib.suppress(OSError):  # then others of this user's processes will ask
        (folder / SIGNATURE).write_text(_signature(config.encode(), _key()))


def check(folder: Path, tables: Mapping[str, Any]) -> None:
    """Refuses to make the live objects of a run that names what this user has not allowed.

    Args:
        tables: of its config.

    Raises:
        ConfigError: it is somebody else's, and names something.
    """
    names = list(named(tables))
    if not names or is_mine(folder):
        return
    digest = _digest(names)
    if digest in _trusted():
        return
    if _trusting:
        _remember(digest, folder)
        return
    told = ", ".join(dict.fromkeys(map(str, names)))
    raise ConfigError(
        f"{folder} was not made by you, and to play it would {told}; look at it with {command('inspect', folder)}, and "
        "if that is what you want, say --trust"
    )


def is_mine(folder: Path) -> bool:
    """Returns True if this user made a run, and its config is as it was then."""
    if folder.resolve() in _made:
        return True
    try:
        written = (folder / "config.toml").read_bytes()
        wanted = _signature(written, (home() / "key").read_bytes())
        return hmac.compare_digest((folder / SIGNATURE).read_bytes()[:100], wanted.encode())
    except OSError:
        return False


def named(tables: Mapping[str, Any]) -> Iterator[Named]:
    """Yields what a config names beyond data: nothing of it is imported, resolved or asked."""
    kinds = {"environment": "environment", "algorithm": "algorithm", "loss": "loss", "engine": "engine"}
    for table, kind in kinds.items():
        yield from _classes(tables.get(table), kind, table)
    for name, tracker in _tables(tables.get("trackers")):
        yield from _classes(tracker, "tracker", f"trackers.{name}")
        if tracker.get("name", "display") not in QUIET:
            yield Named("service", f"trackers.{name}", str(tracker.get("name")))
    for name, policy in _tables(tables.get("policies")):
        model = str(policy.get("model", ""))
        remote = policy.get("kind") == "remote"
        if not remote and "/" in model and model not in NAMED | dict.fromkeys(STARTERS) and not Path(model).exists():
            yield Named("download", f"policies.{name}.model", model)
    for where, value in _texts(tables):
        key = where.rpartition(".")[2]
        if where.startswith("environment.tools."):
            yield Named("command", where, value)
        elif key == "key_variable":
            yield Named("variable", where, value)
        elif "://" in value or key == "address":
            yield Named("server", where, value)
        elif "hub:" in value:
            yield Named("download", where, value)
        elif CODE.search(value) and not where.endswith(".name"):
            yield Named("code", where, value)


def _classes(table: object, kind: str, where: str) -> Iterator[Named]:
    """Yields what a table's name stands for, if that is no class of ours or of an installed package."""
    if not isinstance(table, Mapping):
        return
    name = str(table.get("name", ""))
    if name and name not in TABLES[kind] and name not in installed(kind):
        yield Named("code", f"{where}.name", name)
    elif name in IMPORTING:
        others = [str(value) for key, value in table.items() if key != "name" and isinstance(value, str) and value]
        yield Named("code", f"{where}.name", f"{name}:{others[0] if others else ''}")


def _tables(content: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(content, Mapping):
        yield from ((str(name), table) for name, table in content.items() if isinstance(table, Mapping))


def _texts(content: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yields every text of a config that is not empty, with its setting."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _texts(value, f"{where}.{key}" if where else str(key))
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _texts(value, where)
    elif isinstance(content, str) and content:
        yield where, content


def _digest(names: list[Named]) -> str:
    """A digest of what is named, with the contents of the files of code and of commands."""
    whole = hashlib.sha256()
    for one in sorted(names, key=str):
        whole.update(repr((one.kind, one.where, one.value)).encode())
        whole.update(repr(contents_of(one.value)).encode())
    return whole.hexdigest()


def contents_of(value: str) -> dict[str, str]:
    """SHA-256 of the files that a value names, of code or in a command, by their names."""
    found: dict[str, str] = {}
    for word in re.sub(r"\.py:\S*", ".py", value).split():
        with contextlib.suppress(OSError, ValueError):  # too long a name, or one with a zero
            if (file := Path(word)).is_file():
                with file.open("rb") as code:
                    found[word] = hashlib.sha256(code.read(LARGEST_CODE)).hexdigest()
    return found


def _signature(config: bytes, key: bytes) -> str:
    return hmac.new(key, b"coterie run\0" + config, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """The key of this user, which is made if there is none."""
    file = home() / "key"
    with contextlib.suppress(FileNotFoundError):
        return file.read_bytes()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = file.with_name(f".key-{os.getpid()}")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(secrets.token_bytes(32))
    with contextlib.suppress(FileExistsError):
        os.link(made, file)  # whoever is first
    made.unlink()
    return file.read_bytes()


def _trusted() -> frozenset[str]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return frozenset(line.split(" ")[0] for line in (home() / "trusted").read_text().splitlines())
    return frozenset()


def _remember(digest: str, folder: Path) -> None:
    with contextlib.suppress(OSError):
        home().mkdir(parents=True, exist_ok=True, mode=0o700)
        with (home() / "trusted").open("a") as file:
            file.write(f"{digest} {one_line(str(folder.resolve()))}\n")
