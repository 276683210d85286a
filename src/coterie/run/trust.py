"""Trust in the folders of runs: whose a run is, and what playing it would run, reach or send.

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

from coterie.bounded import content
from coterie.config.toml import LARGEST
from coterie.errors import CheckpointError, ConfigError, CoterieError, first_line
from coterie.installed import starters
from coterie.kernel.safe import command, one_line
from coterie.models.files import GGUF, base_of
from coterie.models.named import NAMED, ORIGIN
from coterie.models.named import home as models
from coterie.registry import known, past_policy
from coterie.run.files import write_whole

SIGNATURE = "owner"
"""File of a run folder with its maker's signature."""
IMPORTING = frozenset({"gateway", "pettingzoo", "gymnasium", "textarena", "openenv"})
"""Environments whose first setting names code."""
CODE = re.compile(r"\.py(?::|$)|^\s*[A-Za-z_][\w.]*:[A-Za-z_]\w*\s*$")
"""Pattern of a text that names code: a file of Python, or package.module:NAME."""
CLASS = re.compile(r"(?:environment|algorithm|loss|engine|trackers\.[^.]+)\.name")
"""Pattern of settings that name a class."""
REWARDS = re.compile(r"environment\.(?:rewards|role_rewards\..+|agent)")
"""Pattern of settings whose texts are code, unless they name a reward of ours."""
QUIET = frozenset({"display", "tensorboard"})
"""Trackers that reach nobody."""
LARGEST_CODE = 64 << 20
"""Maximum number of bytes of a file of code or of a command."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Something beyond data that a setting names.

    Attributes:
        kind: code, command, server, variable, file, download, service or programs.
        where: the setting, such as environment.name.
        value: its text.
    """

    kind: str
    where: str
    value: str

    def __str__(self) -> str:
        does = {
            "code": "run the code {}", "command": "start the command {}", "server": "connect to {}",
            "variable": "send the variable {} of your environment", "download": "download {}", "file": "read {}",
            "service": "report to the service {}", "programs": "give programs your files and network (sandbox = '{}')",
        }  # fmt: skip
        return does[self.kind].format(one_line(self.value)[:200])


_trusting = False
"""True if this process was told to trust the folders that it is given."""
_made: set[Path] = set()
"""Folders of runs that this process made: where no key can be kept, they are this user's all the same."""


def trusting() -> None:
    """Trusts the folders that this process is given from now on, and remembers what they name."""
    global _trusting  # noqa: PLW0603  (one word of a user holds for the whole command)
    _trusting = True


def home() -> Path:
    """Returns the folder in which a user's key and word are kept."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "coterie"


def sign(folder: Path, config: str, at: Path | None = None) -> None:
    """Signs the config of a run that this user makes or changes. at: where the run will be, if it is not there yet."""
    _made.add((at or folder).resolve())
    with contextlib.suppress(OSError, CheckpointError):  # then others of this user's processes will ask
        write_whole(folder / SIGNATURE, _signature(config.encode(), _key()), "")


def check(folder: Path, tables: Mapping[str, Any], config: bytes | None = None) -> None:
    """Refuses to make the live objects of a run that names what this user has not allowed.

    Args:
        tables: of its config.
        config: the same as it was read; None: it is read again.

    Raises:
        ConfigError: it is somebody else's, and names something.
    """
    names = [one for one in named(tables, folder) if one.value not in NAMED]  # those are pinned, whoever names them
    if not names or is_mine(folder, config):
        return
    digest = _digest(names, folder)
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


def is_mine(folder: Path, config: bytes | None = None) -> bool:
    """Returns True if this user made a run, and its config is as it was then. config: what it is, if it was read."""
    if folder.resolve() in _made:
        return True
    try:
        now = content(folder / "config.toml", LARGEST) if config is None else config
        wanted = _signature(now, (home() / "key").read_bytes())
        return hmac.compare_digest(content(folder / SIGNATURE, 100), wanted.encode())
    except (OSError, ValueError):
        return False


def is_allowed(folder: Path) -> bool:
    """Returns True if code that only reads may make a run's objects: this user made the run, or trusts it now."""
    return _trusting or is_mine(folder)


@contextlib.contextmanager
def reading(*folders: Path) -> Iterator[None]:
    """Turns any error that the files of somebody else's run cause in the code that reads them into one line."""
    try:
        yield
    except CoterieError:
        raise
    except Exception as error:
        if all(map(is_mine, folders)):
            raise
        told = f"{type(error).__name__}: {first_line(error)}"
        raise CheckpointError(
            f"{folders[0]} holds something that no run writes, and cannot be read ({told})"
        ) from error


def named(tables: Mapping[str, Any], folder: Path) -> Iterator[Mention]:
    """Yields what a config names beyond data: nothing of it is imported, resolved or asked.

    Args:
        folder: in which the config lies. Files in it are data that came with it.
    """
    classes = [(kind, kind, tables.get(kind)) for kind in ("environment", "algorithm", "loss", "engine")]
    trackers = {name: {"name": name, **table} for name, table in _tables(tables.get("trackers"))}
    classes += [("tracker", f"trackers.{name}", table) for name, table in trackers.items()]
    for kind, where, table in classes:
        if isinstance(table, Mapping):
            yield from _class(str(table.get("name", "")), kind, where, table)
    for name, tracker in trackers.items():
        if tracker["name"] not in QUIET:
            yield Mention("service", f"trackers.{name}", str(tracker["name"]))
    for name, policy in _tables(tables.get("policies")):
        model = str(policy.get("model", ""))
        if policy.get("kind") != "remote" and not _is_here(model, folder):
            yield Mention("download", f"policies.{name}.model", model)
    for where, value in _texts(tables):
        if kind := _kind(where, value, folder):
            yield Mention(kind, where, value)


def _kind(where: str, value: str, folder: Path) -> str:
    """Returns the kind of what a setting's text names, by its setting and its form; "" if it is data."""
    from coterie.environments.named_rewards import NAMED as NAMED_REWARDS

    key = where.rpartition(".")[2]
    unread = key == "data" and not all(_is_read(part.strip(), folder) for part in value.split("->"))
    forms = {
        "command": where.startswith("environment.tools."),
        "variable": key == "key_variable",
        "programs": where == "environment.sandbox" and value != "bubblewrap",
        "server": "://" in "".join(value.split()) or key == "address",
        "code": (REWARDS.fullmatch(where) and value not in NAMED_REWARDS)
        or (CODE.search(value) and not CLASS.fullmatch(where)),
        "download": "hub:" in value or unread,
        "file": any(_is_outside(file, folder) for file in _meant(value, folder)),
    }
    return next((kind for kind, found in forms.items() if found), "")


def _is_read(data: str, folder: Path) -> bool:
    """Returns True if a data set is a file here: a name without an ending is a benchmark's, whatever lies here."""
    return bool(Path(data).suffix) and bool(_files(data, folder))


def _files(value: str, folder: Path) -> list[Path]:
    """Returns the files and folders that a text may stand for: beside the config, and from here."""
    found: list[Path] = []
    for file in (folder / value, Path(value).expanduser()):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # no name of a file, or nobody's home
            if file.exists():
                found.append(file.resolve())
    return found


def _meant(value: str, folder: Path) -> list[Path]:
    """Returns the files that a setting may mean. A name without a slash is one beside the config, or none."""
    if "/" not in value:
        return [file for file in _files(value, folder) if (folder / value).is_symlink()]
    runs = [past.run.resolve() for name in (value, str(folder / value)) if (past := past_policy(name))]
    return [*_files(value, folder), *runs]


def _is_outside(file: Path, folder: Path) -> bool:
    return not file.is_relative_to(folder.resolve())


def _is_here(model: str, folder: Path) -> bool:
    """Returns True if a model, and what it is an adapter of, is on this machine."""
    if model in NAMED:
        return (models() / model / ORIGIN).is_file()
    if model in ("", *starters()) or ("/" in model and (past_policy(model) or past_policy(str(folder / model)))):
        return True
    there = [file for file in _files(model, folder) if file.is_dir() or file.suffix == GGUF]
    try:
        bases = [base for file in there if file.is_dir() and (base := base_of(file))]
    except (ConfigError, OSError, ValueError):  # loading it will say what is wrong
        bases = []
    return bool(there) and all(base != model and _is_here(base, folder) for base in bases)


def _class(name: str, kind: str, where: str, table: Mapping[str, Any]) -> Iterator[Mention]:
    """Yields the class of a table, if it is none of ours or of an installed package, or imports what it is given."""
    if name and name not in known(kind):
        yield Mention("code", f"{where}.name", name)
    elif name in IMPORTING:
        given = next((value for key, value in table.items() if key != "name" and isinstance(value, str) and value), "")
        yield Mention("code", f"{where}.name", f"{name}:{given}")


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


def _digest(names: list[Mention], folder: Path) -> str:
    """Returns a digest of what is named, with the contents of files of code and commands, and of where the run lies.

    Code may import what lies beside it, so it is trusted for one folder.
    """
    whole = hashlib.sha256(str(folder.resolve()).encode())
    for one in sorted(names, key=str):
        contents = sorted(contents_of(one.value, folder).values())
        whole.update(repr((one.kind, one.where, one.value, contents)).encode())
    return whole.hexdigest()


def contents_of(value: str, folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of the files that a value names, of code or in a command: beside the config, and from here.

    Returns:
        by whole path.

    Raises:
        ConfigError: a file is larger than code is.
    """
    found: dict[str, str] = {}
    for word in (re.sub(r"\.py:.*", ".py", value), *re.sub(r"\.py:\S*", ".py", value).split()):
        for file in filter(Path.is_file, _files(word, folder)):
            if file.stat().st_size > LARGEST_CODE:
                raise ConfigError(f"{file} has {file.stat().st_size:,} bytes; {LARGEST_CODE:,} are the most for code")
            found[str(file)] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def _signature(config: bytes, key: bytes) -> str:
    return hmac.new(key, b"coterie run\0" + config, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """Returns the key of this user, which is made if there is none."""
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
