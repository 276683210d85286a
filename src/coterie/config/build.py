"""Typed settings of a config's tables: classes by their names, settings by their fields, and a team by its policies.

Each function makes one table, or raises ConfigError with the place of the mistake.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from coterie.config.settings import SHARED, UNTRAINED, LoraConfig, PastConfig, PolicyConfig, RuntimeConfig
from coterie.config.toml import ConfigSource
from coterie.engines.remote_config import RemoteConfig
from coterie.errors import ConfigError, EnvError, nearest
from coterie.installed import is_ours
from coterie.kernel.environment import SPLITS, Environment, Settings
from coterie.kernel.mistakes import check_answers, check_written, count_of, raised_at, said
from coterie.kernel.team import Team
from coterie.kernel.tracker import Tracker
from coterie.learning.loss import Loss
from coterie.learning.optimizer import OptimizerConfig
from coterie.memory.store import MemoryConfig
from coterie.registry import TABLES, about, find, known, shipped, whole_file, whole_folder, whole_name

C = TypeVar("C")
S = TypeVar("S", bound=Settings)


def world_of(source: ConfigSource, names: dict[str, str]) -> Environment:
    """Returns the environment. Raises ConfigError if it is not there, or cannot be used as it is written."""
    environment = named(source, "environment", Environment, names, None)
    try:
        check_written(environment)
        check_answers(environment)
        for split in SPLITS:
            count_of(environment, split)
    except EnvError as error:
        raise ConfigError(f"{source.place('environment.name')}{error}") from error
    except ConfigError as error:
        raise ConfigError(f"{source.place(*_blamed(str(error)))}{error}") from error
    return environment


def team_of(source: ConfigSource, environment: Environment) -> Team:
    """Returns who plays each role; without [team], one policy plays all. Raises ConfigError: one has none."""
    roles = dict(source.data.get("team", {})) or dict.fromkeys(environment.roles, SHARED)
    for role, policy in roles.items():
        if role not in environment.roles:
            raise ConfigError(
                f"{source.place(f'team.{role}')}unknown role 'team.{role}'{nearest(role, environment.roles)}; "
                f"the roles are {', '.join(environment.roles)}"
            )
        if not isinstance(policy, str):
            raise ConfigError(f"{source.place(f'team.{role}')}team.{role} = {policy!r}: name a policy")
    for role in environment.roles:
        if role not in roles:
            raise ConfigError(f"{source.place('team')}role '{role}' has no policy; add {role} = \"…\" under [team]")
    return Team({role: roles[role] for role in environment.roles})


def policies_of(source: ConfigSource, team: Team, starter: str) -> dict[str, PolicyConfig]:
    """Returns the settings of the team's policies. Raises ConfigError: one is not defined, or plays no role."""
    written = dict(source.data.get("policies", {}))
    if not source.data.get("team"):
        written.setdefault(SHARED, {})
    for role, policy in team.roles.items():
        if policy not in written:
            hint = nearest(policy, written) or f'; add [policies.{policy}] with model = "{starter or "…"}"'
            where = source.place(f"team.{role}")
            raise ConfigError(f"{where}role '{role}' is played by policy '{policy}', which is not defined{hint}")
    for name, content in written.items():
        if not isinstance(content, dict):
            raise ConfigError(f"{source.place(f'policies.{name}')}'policies.{name}' is a table: [policies.{name}]")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ConfigError(
                f"{source.place(f'policies.{name}')}policy '{name}' becomes a folder: use letters, digits, _ and -"
            )
        if name not in team.policies:
            raise ConfigError(
                f"{source.place(f'policies.{name}')}policy '{name}' plays no role{nearest(name, team.policies)}; "
                "name it under [team], or remove it"
            )
    found = {name: _policy(source, f"policies.{name}", written[name], starter) for name in team.policies}
    trained = [name for name, policy in found.items() if policy.kind not in UNTRAINED]
    for name, policy in found.items():
        if policy.kind == "past" and policy.model not in trained:
            raise ConfigError(
                f"{source.place(f'policies.{name}.model')}policies.{name}.model = '{policy.model}' is no policy of "
                f"this run that learns{nearest(policy.model, trained)}; name the one whose past it is"
            )
    return found


def memory_of(source: ConfigSource, environment: Environment) -> MemoryConfig:
    """Returns the memory settings. Raises ConfigError if a role does not exist, or the environment keeps nothing."""
    memory = settings_of(source, "memory", MemoryConfig)
    for role in memory.roles:
        if role not in environment.roles:
            raise ConfigError(
                f"{source.place('memory.roles')}memory.roles names '{role}'{nearest(role, environment.roles)}; "
                f"the roles are {', '.join(environment.roles)}"
            )
    if memory.mode != "off" and type(environment).note is Environment.note:
        raise ConfigError(
            f"{source.place('memory.mode')}memory.mode = '{memory.mode}', but this environment keeps nothing: write "
            "its method `note`, which says in words of its own what a reply did, or set memory.mode = 'off'"
        )
    return memory


def runtime_of(source: ConfigSource, policies: Mapping[str, PolicyConfig]) -> RuntimeConfig:
    """Returns the settings of the runtime. Raises ConfigError if a policy cannot be placed by it."""
    runtime = settings_of(source, "runtime", RuntimeConfig)
    for name, policy in policies.items() if runtime.name == "ray" else ():
        if policy.kind == "remote":
            raise ConfigError(
                f"{source.place(f'policies.{name}.kind')}policies.{name} is played by a server, which only "
                "runtime.name = 'local' asks and pays; set runtime.name so"
            )
        if policy.device:
            raise ConfigError(
                f"{source.place(f'policies.{name}.device')}policies.{name}.device = '{policy.device}', but "
                "runtime.name = 'ray' places policies itself; leave it out"
            )
    return runtime


def trackers_of(source: ConfigSource, names: dict[str, str]) -> dict[str, Settings]:
    """Returns the settings of each tracker. Raises ConfigError if there is no such tracker."""
    trackers: dict[str, Settings] = {}
    for label, content in source.data.get("trackers", {}).items():
        path = f"trackers.{label}"
        if not isinstance(content, dict):
            raise ConfigError(f"{source.place(path)}'{path}' is a table: [{path}]")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", label):
            raise ConfigError(f"tracker '{label}': call it by letters, digits, _ and -")
        tracker, settings = class_of(source, path, "tracker", Tracker, names, label)
        trackers[label] = validated(source, path, tracker.options, settings)
    return trackers


def named(source: ConfigSource, table: str, base: type[S], names: dict[str, str], default: str | None) -> S:
    """Returns the settings of the class that a table names."""
    cls, content = class_of(source, table, table, base, names, default)
    return validated(source, table, cls, content, base)


def class_of(
    source: ConfigSource, path: str, kind: str, base: type[C], names: dict[str, str], default: str | None
) -> tuple[type[C], dict[str, Any]]:
    """Returns the class that a table names, and the table's other settings; the class's name is noted in `names`."""
    content = dict(source.table(path))
    name = content.pop("name", default)
    if not isinstance(name, str):
        raise ConfigError(
            f"{source.place(f'{path}.name')}{path}.name is {name!r}; name one of {', '.join(known(kind))}, or "
            "FILE.py:Class"
        )
    try:
        name, argument = about(kind, name)
        name = whole_name(name, source.folder)
        cls = find(kind, name, base)
        if argument:
            content = _with_argument(name, cls, argument, content)
        setting = getattr(cls, "argument", "")
        if isinstance(file := content.get(setting), str):
            content[setting] = whole_file(file, source.folder)
    except ConfigError as error:
        raise ConfigError(f"{source.place(f'{path}.name')}{error}") from error
    names[path] = f"{name}:{cls.__name__}" if name.endswith(".py") else name
    return cls, content


def settings_of(source: ConfigSource, table: str, kind: type[S]) -> S:
    """Returns the settings of a table that has no name."""
    return validated(source, table, kind, source.data.get(table, {}))


def validated(
    source: ConfigSource,
    path: str,
    kind: type[S],
    content: Mapping[str, Any],
    base: type[Settings] | None = None,
) -> S:
    """Returns settings with a table's values.

    Args:
        base: the base class of their kind, to know whose setting an unknown key is.

    Raises:
        ConfigError: a key is unknown or missing, or a value cannot be or has no effect.
    """
    try:
        settings = kind(**content)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        where = f"{path}.{key}" if key else path
        if first["type"] == "extra_forbidden":
            hint = _where_else(path, key, base) or nearest(key, kind.model_fields)
            raise ConfigError(
                f"{source.place(where)}unknown key '{where}'{hint or '; known: ' + ', '.join(kind.model_fields)}"
            ) from error
        if first["type"] == "missing":
            about = (kind.model_fields[key].description or "").removesuffix(".")
            raise ConfigError(f"{source.place(path)}{where} has no default; set it. {about}") from error
        found = f" = {first['input']!r:.300}" if key else ""
        raise ConfigError(
            f"{source.place(where, None if key else _plain(first))}{where}{found}: {_plain(first)}"
        ) from error
    except Exception as error:
        if is_ours(kind.__module__):  # a bug of ours
            raise
        where, raised = raised_at(error, str(inspect.getfile(kind))), said(error)
        raise ConfigError(
            f"{source.place(path, raised)}{path}: {kind.__name__} cannot be made: it raised {raised} ({where}); "
            "settings are annotated fields, and need no __init__"
        ) from error
    for key, reason in settings.inert().items():
        if key in settings.model_fields_set:
            raise ConfigError(
                f"{source.place(f'{path}.{key}')}{path}.{key} has no effect: {reason}; remove one of the two"
            )
    return settings


def _blamed(told: str) -> tuple[str, str | None]:
    """Returns the setting that a message begins with, `environment.data: …`; else the table, to look for its keys."""
    named = re.match(r"environment\.[\w.-]+", told)
    return (named[0].rstrip("."), None) if named else ("environment", told)


def _policy(source: ConfigSource, where: str, content: Mapping[str, Any], starter: str) -> PolicyConfig:
    for table, kind in (("lora", LoraConfig), ("past", PastConfig), ("remote", RemoteConfig)):
        if isinstance(own := content.get(table), dict):
            validated(source, f"{where}.{table}", kind, own)
    if content.get("kind") == "remote":
        _check_server(source, where, content)
    policy = validated(source, where, PolicyConfig, {"model": starter, **content})
    validated(source, f"{where}.optimizer", OptimizerConfig, policy.optimizer)
    if policy.kind in ("past", "remote"):
        return policy
    found = {
        "model": whole_folder(policy.model, source.folder),
        "chat_template": whole_file(policy.chat_template, source.folder),
    }
    return policy.model_copy(update=found)


def _check_server(source: ConfigSource, where: str, content: Mapping[str, Any]) -> None:
    """Raises ConfigError if it is not said where the server is, or what it calls the model."""
    if not content.get("model"):
        raise ConfigError(f"{source.place(where)}{where}.model is missing: name the model as its server calls it")
    if not dict(content.get("remote", {})).get("url"):
        raise ConfigError(
            f"{source.place(where)}{where}.remote.url is missing: say where the server is, such as "
            "http://localhost:8000/v1"
        )


def _with_argument(name: str, cls: type, argument: str, content: dict[str, Any]) -> dict[str, Any]:
    """Returns a table's settings with the argument in its name. Raises ConfigError if its class takes no argument."""
    setting = getattr(cls, "argument", "")
    if not setting:
        raise ConfigError(f"'{name}:{argument}': {name} is about nothing; write {name}")
    if setting in content:
        raise ConfigError(f"'{name}:{argument}' sets {setting}, which is written beside it; leave one away")
    return {**content, setting: argument}


def _where_else(table: str, key: str, base: type[Settings] | None) -> str:
    """Returns a hint at the table whose setting a key is that this table does not know, or ""."""
    if base is not None:
        owners = [name for name in shipped(table) if key in find(table, name, base).model_fields]
        if owners:
            return f"; it is a setting of {', '.join(owners)}"
    parent, _, _ = table.rpartition(".")
    if parent == "policies" and key in OptimizerConfig.model_fields:
        return f"; it is {table}.optimizer.{key}"
    if parent == "policies" and key in RemoteConfig.model_fields:
        return f"; it is {table}.remote.{key}"
    if table == "algorithm" and any(key in find("loss", name, Loss).model_fields for name in TABLES["loss"]):
        return f"; it is loss.{key}"
    return ""


def _plain(error: Any) -> str:
    if error["type"] == "tuple_type":
        one = error["input"]
        shown = f"[{one}, …]" if isinstance(one, int | float) else '["…", "…"]'
        return f"it is a list; write it as {shown}"
    if error["type"] == "too_short" and isinstance(error["input"], list | tuple):
        return f"the list is empty; it has at least {error['ctx']['min_length']}"
    if error["type"] == "model_type":
        return "it is a table; write its settings as {key = value}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:]
