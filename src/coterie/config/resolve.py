"""Configuration: turns TOML files and dotted overrides into typed settings, once, at the start of a command.

A config has twelve tables: environment, algorithm, loss, memory, team, policies, optimizer, engine, runtime, train,
trackers and eval. Everything has a default. A setting that is unknown, cannot work or has no effect is refused before
any model is loaded. The message names the file, the line and what to do.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from coterie.config.fitting import ChosenDefault, as_tables, choices, one_each, taught, warnings
from coterie.config.settings import (
    SHARED,
    UNTRAINED,
    Config,
    EvalConfig,
    LoraConfig,
    PastConfig,
    PolicyConfig,
    RuntimeConfig,
    SFTConfig,
    TrainConfig,
)
from coterie.config.toml import EVERY, ConfigSource, read
from coterie.engines.remote import RemoteConfig
from coterie.errors import ConfigError, EnvError, nearest
from coterie.installed import starters
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.engine import Engine
from coterie.kernel.environment import SPLITS, Environment, Settings, Split
from coterie.kernel.mistakes import (
    check_answers,
    check_written,
    count_of,
    place_in_code,
    raised_at,
    remarks_of,
    said,
    task_of,
)
from coterie.kernel.team import Team
from coterie.kernel.tracker import Tracker
from coterie.kernel.watchdog import Watch
from coterie.learning.loss import Loss
from coterie.learning.optimizer import OptimizerConfig
from coterie.memory.store import MemoryConfig
from coterie.models.named import NAMED, remark
from coterie.registry import TABLES, about, find, known, whole_file, whole_folder, whole_name

C = TypeVar("C")
S = TypeVar("S", bound=Settings)
RECOMMENDED = {"algorithm", "loss", "team", "policies", "optimizer", "engine", "memory", "train", "eval"}
"""Names of the tables that an environment may recommend."""


def recommended(environment: Environment, written: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the settings that an environment recommends where a config says nothing else.

    Args:
        written: a config's tables.

    Returns:
        tables, without what the config decides: a team or policies of its own; the algorithm's settings where it
        names another; memory's where that is off; and how the starter learns, where the environment has one and the
        config names another model.
    """
    try:
        tables = {name: dict(table) for name, table in environment.recommended().items()}
    except Exception as error:  # a user's method may do anything
        raise ConfigError(
            f"{type(environment).__name__}.recommended: {said(error)} ({place_in_code(error, environment)}); return "
            "tables of settings"
        ) from error
    if unknown := tables.keys() - RECOMMENDED:
        raise ConfigError(
            f"{type(environment).__name__}.recommended names the table '{min(unknown)}'; it may name "
            f"{', '.join(sorted(RECOMMENDED))}"
        )
    policies = dict(written.get("policies", {}))
    if "team" in written or not policies.keys() - {EVERY} <= tables.get("policies", {}).keys():
        tables = {name: table for name, table in tables.items() if name not in ("team", "policies")}
    algorithm = dict(written.get("algorithm", {})).get("name")
    if algorithm not in (None, tables.get("algorithm", {}).get("name")):
        tables.pop("algorithm", None)
        tables.pop("loss", None)
    if dict(written.get("memory", {})).get("mode") == "off":
        tables.pop("memory", None)
    learners = [
        policy for policy in policies.values() if isinstance(policy, dict) and policy.get("kind") not in UNTRAINED
    ]
    starter = environment.starter  # where there is none, what is recommended is of any model
    if starter and any(policy.get("model", starter) != starter for policy in learners):
        tables = {name: table for name, table in tables.items() if name in ("team", "policies")}
        if "policies" in tables:
            tables["policies"] = {name: {} for name in tables["policies"]}
    return tables


def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """Reads and resolves a config.

    Args:
        source: a TOML file, the name of an environment (all defaults), `file.py:Class`, or the tables of a config as a
            mapping.
        overrides: strings such as `train.steps=200`, with values as in TOML; a value without quotes may be a string.

    Raises:
        ConfigError: the message is one line that says where the error is, what it is and what to do.
    """
    return resolve(read(source, overrides))


def load_environment(source: str | Mapping[str, Any], overrides: Sequence[str] = ()) -> Environment:
    """Returns an environment alone, from a config that has no other table.

    Raises:
        ConfigError: it cannot be made, or there are other tables.
    """
    written = read(source, overrides)
    for table in written.data:
        if table != "environment":
            raise ConfigError(f"{written.place(table)}unknown table '{table}'; it is about environment alone")
    return _world(written, {})


def load_sft(
    environment: str, overrides: Sequence[str] = (), model: str | None = None
) -> tuple[Environment, SFTConfig, MemoryConfig, list[ChosenDefault]]:
    """Returns an environment, settings to learn its demonstrations, and the choices in them that fit the model.

    The tables are environment, sft and memory.
    """
    source = read(environment, overrides)
    tables = ("environment", "sft", "memory")
    for table in source.data:
        if table not in tables:
            raise ConfigError(f"{source.place(table)}unknown table '{table}'{nearest(table, tables)}")
    world = _world(source, {})
    memory = _memory(source, world)
    if memory.mode != "off" and type(world).lessons is not Environment.lessons:
        raise ConfigError(
            f"{source.place('memory.mode')}memory.mode = '{memory.mode}' has no effect: this environment writes its "
            "`lessons` itself, and they show no notes; set memory.mode = 'off'"
        )
    chosen = taught(source, model)
    config = _settings(source, "sft", SFTConfig).model_copy(update={each.path[4:]: each.value for each in chosen})
    return world, config, memory, chosen


def _sized(config: Config, source: ConfigSource) -> Config:
    """Returns the config with at most as many tasks as there are. Raises ConfigError if a person asked for more."""
    wanted: tuple[tuple[Split, str], ...] = (
        ("train", "tasks_per_step"), ("validation", "eval_tasks"), ("validation", "mute_tasks")
    )  # fmt: skip
    sizes: dict[str, int] = {}
    for split, key in wanted:
        tasks = getattr(config.train, key)
        count = config.environment.count(split)
        if count and count < tasks and not source.person_wrote("train", key):
            sizes[key] = count
        elif count == 0:
            none = f"{type(config.environment).__name__}.count('{split}') is 0"
            said = "; ".join(remarks_of(config.environment)) or none
            said = f"give more rows, or TRAIN -> TEST; {said}" if getattr(config.environment, "data", "") else said
            none = f"there are no {split} tasks, and a run needs some: {said}"
            raise ConfigError(f"{source.place('environment', none)}{none}")
        elif count is not None and count < tasks and key != "mute_tasks":  # of which `inert` speaks
            where = source.place(f"train.{key}")
            raise ConfigError(f"{where}train.{key} = {tasks}, but there are {count} {split} tasks; lower it")
    told = {key: count for key, count in sizes.items() if key != "mute_tasks"}
    remarks = [f"train.{key} = {count}: there are no more" for key, count in told.items()]
    if config.engine.front == "eager":
        remarks.append("engine.front = 'eager': what is computed together depends on timing, so a resume is not exact")
    remarks += _out_of_its_world(config)
    remarks += config.servers()
    remarks += warnings(source, config.environment.starter)
    remarks += [
        remark(name) for name in dict.fromkeys(policy.model for policy in config.policies.values()) if name in NAMED
    ]
    made = config.train.steps // config.train.eval_every
    if config.train.mute_every > made and config.train.mute_every != TrainConfig.model_fields["mute_every"].default:
        remarks.append(
            f"train.mute_every = {config.train.mute_every} counts validations, and this run makes {made} after its "
            "start: no role is probed"
        )
    train = config.train.model_copy(update=sizes)
    return replace(config, train=train, remarks=(*remarks_of(config.environment), *remarks))


def _out_of_its_world(config: Config) -> Iterator[str]:
    """Yields remarks on policies that begin as a starter that was not taught this environment, or these settings."""
    world = config.environment
    for name, policy in config.policies.items():
        if world.starter and policy.model in starters() and policy.model != world.starter:
            yield (
                f"policies.{name}.model = '{policy.model}' was taught another environment, in other words; the one "
                f"that knows {config.names['environment']} is '{world.starter}'"
            )
    if type(world).recommended is Environment.recommended or world.recommended():
        return
    for name, policy in config.policies.items():
        if policy.model == world.starter:
            yield (
                f"policies.{name}.model = '{policy.model}' was taught {config.names['environment']} in brief, without "
                "data and in its usual size, and these settings ask for more; name a model that can write what is "
                "asked, such as a Hugging Face id"
            )


def _memory(source: ConfigSource, environment: Environment) -> MemoryConfig:
    """Returns the memory settings. Raises ConfigError if a role does not exist, or the environment keeps nothing."""
    memory = _settings(source, "memory", MemoryConfig)
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


def resolve(source: ConfigSource) -> Config:
    """Returns the config with typed settings that some tables give, after every check."""
    _check_tables(source)
    names: dict[str, str] = {}
    environment = _world(source, names)
    source = source.with_defaults(recommended(environment, source.data), f"{type(environment).__name__}.recommended")
    apart = one_each(source.data, environment.roles, environment.starter)
    if apart:
        team = {"team": apart.value, "policies": {role: {} for role in environment.roles}}
        source = source.with_defaults(team, "the defaults that fit the model")
    if EVERY in source.data.get("policies", {}):
        source = source.spread(_trained(source))
    source, environment = _instructed(source, environment, names)
    fitting = choices(source, environment.starter)
    source = source.with_defaults(as_tables(fitting), "the defaults that fit the model")
    algorithm = _named(source, "algorithm", Algorithm, names, "at_grpo")
    source = source.with_defaults({"loss": _recipe(source, algorithm)}, f"algorithm {names['algorithm']}")
    team = _team(source, environment)
    policies = _policies(source, team, environment.starter)
    team = replace(team, frozen=frozenset(name for name, policy in policies.items() if policy.kind in UNTRAINED))
    memory = _memory(source, environment)
    if not team.trained and memory.mode == "off":
        raise ConfigError(
            f"{source.place('policies', 'kind')}every policy is frozen or remote, so there is nothing to train; with "
            "memory.mode = 'on' memory alone would learn"
        )
    engine, content = _class(source, "engine", "engine", Engine, names, "transformers")
    runtime = _runtime(source, policies)
    train = _settings(source, "train", TrainConfig)
    _check_ahead(runtime, train, source)
    if runtime.max_staleness:
        source = source.with_defaults({"loss": {"correction": "token_truncate"}}, "runtime.max_staleness")
    config = Config(
        environment=environment,
        algorithm=algorithm,
        loss=_named(source, "loss", Loss, names, "clip"),
        memory=memory,
        team=team,
        policies=policies,
        optimizer=_settings(source, "optimizer", OptimizerConfig),
        engine=_validated(source, "engine", engine.options, content),
        runtime=runtime,
        train=train,
        trackers=_trackers(source, names),
        eval=_settings(source, "eval", EvalConfig),
        names=names,
        chosen=tuple(str(choice) for choice in (apart, *fitting) if choice),
    )
    _check_algorithm(config, source)
    for table, reasons in config.inert().items():
        for key, reason in reasons.items():
            if source.person_wrote(table, key) and source.table(table)[key]:
                raise ConfigError(f"{source.place(f'{table}.{key}')}{table}.{key} has no effect: {reason}")
    _check_learner(config, source)
    config = _sized(config, source)
    try:
        Watch(config.engine.play_timeout_s).task(partial(task_of, environment), "train", 0)
    except (ConfigError, EnvError) as error:
        raise ConfigError(f"{source.place('environment', str(error))}{error}") from error
    return config


def _check_tables(source: ConfigSource) -> None:
    """Raises ConfigError if a table is unknown, or if a key stands where a table must be."""
    known = (
        "environment", "algorithm", "loss", "memory", "team", "policies", "optimizer", "engine", "runtime", "train",
        "trackers", "eval",
    )  # fmt: skip
    for table, content in source.data.items():
        if table not in known and not isinstance(content, dict):
            raise ConfigError(
                f"{source.place(table)}'{table}' stands in no table; write it below one of [{'], ['.join(known)}]"
            )
        if table not in known:
            raise ConfigError(f"{source.place(table)}unknown table '{table}'{nearest(table, known)}")
        if not isinstance(content, dict):
            raise ConfigError(f"{source.place(table)}'{table}' is a table; write [{table}] and its keys below")


def _runtime(source: ConfigSource, policies: Mapping[str, PolicyConfig]) -> RuntimeConfig:
    """Returns the settings of the runtime. Raises ConfigError if a policy cannot be placed by it."""
    runtime = _settings(source, "runtime", RuntimeConfig)
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


def _check_algorithm(config: Config, source: ConfigSource) -> None:
    """Raises ConfigError if the algorithm cannot train this team, or would learn nothing from what its roles earn."""
    if (kind := config.environment.wanted()) and kind not in {policy.kind for policy in config.policies.values()}:
        raise ConfigError(
            f"{source.place('environment.against')}environment.against = '{kind}' has no effect: no policy of the team "
            f"is of kind = '{kind}'; name one in [policies], or leave [team] out"
        )
    for role in config.environment.judges():
        if config.team.learns(role):
            policy = config.team.roles[role]
            raise ConfigError(
                f"{source.place(f'team.{role}')}role '{role}' grades the others and is played by policy '{policy}', "
                f'which is trained; write {role} = "{role}" under [team], and [policies.{role}] with kind = '
                '"frozen" or "remote"'
            )
    algorithm, where = config.algorithm, source.place("algorithm.name")
    if config.environment.rivals and algorithm.adds_up():
        own = "algorithm.own = true, or " if "own" in type(algorithm).model_fields else ""
        raise ConfigError(
            f"{where}algorithm '{config.names['algorithm']}' adds up what roles earn, and here one's gain is another's "
            f"loss; set {own}algorithm.name = 'rae'"
        )
    try:
        algorithm.check(config.environment, config.team)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error


def _check_ahead(runtime: RuntimeConfig, train: TrainConfig, source: ConfigSource) -> None:
    """Raises ConfigError if rollouts are played ahead, and a setting may end the run before they are used."""
    ends = {
        "max_sampled_tokens": "the budget allows them", "stop_when_solved": "the run ends",
        "stop_dead_steps": "the run ends",
    }  # fmt: skip
    for key, until in ends.items():
        if runtime.max_staleness and getattr(train, key) is not None:
            raise ConfigError(
                f"{source.place(f'train.{key}')}with runtime.max_staleness = {runtime.max_staleness}, rollouts are "
                f"played before it is known whether {until}; leave out one of the two"
            )


def _check_learner(config: Config, source: ConfigSource) -> None:
    """Raises ConfigError if the loss does not correct for samples of older weights, or ranks cannot work together."""
    runtime, ranks = config.runtime, config.train.ranks
    if runtime.rank_gpus < 1 and ranks > 1:
        raise ConfigError(
            f"{source.place('runtime.rank_gpus')}runtime.rank_gpus = {runtime.rank_gpus:g} would put several of "
            f"train.ranks = {ranks} on one GPU, which cannot exchange gradients there; set one of the two to 1"
        )
    updates = {name: config.optimizer_of(name).updates_per_step for name in config.policies}
    most = max(updates, key=lambda name: updates[name])
    own = f"policies.{most}." if "updates_per_step" in config.policies[most].optimizer else ""
    older = {
        f"{own}optimizer.updates_per_step": (updates[most], 1), "runtime.max_staleness": (runtime.max_staleness, 0)
    }  # fmt: skip
    for key, (value, none) in older.items():
        if not config.loss.corrects and value > none:
            raise ConfigError(
                f"{source.place(key)}{key} = {value} trains on samples of older weights, which loss.name = "
                f"'{config.names['loss']}' does not correct; set loss.name = \"clip\", or {key.rpartition('.')[2]} = "
                f"{none}"
            )


def _world(source: ConfigSource, names: dict[str, str]) -> Environment:
    """Returns the environment. Raises ConfigError if it is not there, or cannot be used as it is written."""
    environment = _named(source, "environment", Environment, names, None)
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


def _blamed(told: str) -> tuple[str, str | None]:
    """Returns the setting that a message begins with, `environment.data: …`; else the table, to look for its keys."""
    named = re.match(r"environment\.[\w.-]+", told)
    return (named[0].rstrip("."), None) if named else ("environment", told)


def _instructed(
    source: ConfigSource, environment: Environment, names: dict[str, str]
) -> tuple[ConfigSource, Environment]:
    """Returns source and environment with instructions in prompts, where models need some; otherwise as they are."""
    untaught = _untaught(source, environment)
    if not untaught:
        return source, environment
    source = source.with_defaults({"environment": {"brief": False}}, f"policies.{untaught}.model")
    return source, _world(source, names)


def _untaught(source: ConfigSource, environment: Environment) -> str:
    """Returns a policy that needs instructions, if `brief` is not written and no policy knows the short prompts.

    A model that is named, such as by its Hugging Face id, was never taught the prompts of a starter. A folder may hold
    what `coterie sft` or a run made, so it does not decide.
    """
    brief = type(environment).model_fields.get("brief")
    if not environment.starter or brief is None or brief.default is not True or "brief" in source.table("environment"):
        return ""
    policies = source.data.get("policies", {})
    learners = {
        name: str(policy.get("model", environment.starter))
        for name, policy in (policies.items() if isinstance(policies, dict) else ())
        if isinstance(policy, dict) and policy.get("kind") not in UNTRAINED
    }
    for model in learners.values():
        whole = whole_folder(model, source.folder)
        if model in starters() or whole != model or Path(whole).is_dir() or model.count("/") > 1:
            return ""
    return next(iter(learners), "")


def _recipe(source: ConfigSource, algorithm: Algorithm) -> dict[str, Any]:
    """Returns the settings of the algorithm's loss; if the config names another loss, those that any loss has."""
    recipe = dict(algorithm.loss)
    if source.data.get("loss", {}).get("name", recipe.get("name")) == recipe.get("name"):
        return recipe
    return {key: value for key, value in recipe.items() if key in Loss.model_fields}


def _trackers(source: ConfigSource, names: dict[str, str]) -> dict[str, Settings]:
    """Returns the settings of each tracker. Raises ConfigError if there is no such tracker."""
    trackers: dict[str, Settings] = {}
    for label, content in source.data.get("trackers", {}).items():
        path = f"trackers.{label}"
        if not isinstance(content, dict):
            raise ConfigError(f"{source.place(path)}'{path}' is a table: [{path}]")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", label):
            raise ConfigError(f"tracker '{label}': call it by letters, digits, _ and -")
        tracker, settings = _class(source, path, "tracker", Tracker, names, label)
        trackers[label] = _validated(source, path, tracker.options, settings)
    return trackers


def _with_argument(name: str, cls: type, argument: str, content: dict[str, Any]) -> dict[str, Any]:
    """Returns a table's settings with the argument in its name. Raises ConfigError if its class takes no argument."""
    setting = getattr(cls, "argument", "")
    if not setting:
        raise ConfigError(f"'{name}:{argument}': {name} is about nothing; write {name}")
    if setting in content:
        raise ConfigError(f"'{name}:{argument}' sets {setting}, which is written beside it; leave one away")
    return {**content, setting: argument}


def _class(
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


def _named(source: ConfigSource, table: str, base: type[S], names: dict[str, str], default: str | None) -> S:
    """Returns the settings of the class that a table names."""
    cls, content = _class(source, table, table, base, names, default)
    return _validated(source, table, cls, content, base)


def _settings(source: ConfigSource, table: str, kind: type[S]) -> S:
    return _validated(source, table, kind, source.data.get(table, {}))


def _validated(
    source: ConfigSource,
    path: str,
    kind: type[S],
    content: Mapping[str, Any],
    base: type[Settings] | None = None,
) -> S:
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
        if kind.__module__.partition(".")[0] in ("coterie", "coterie_worlds"):  # a bug of ours
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


def _where_else(table: str, key: str, base: type[Settings] | None) -> str:
    """Returns a hint at the table whose setting a key is that this table does not know, or ""."""
    if base is not None:
        owners = [name for name in TABLES[table] if key in find(table, name, base).model_fields]
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


def _trained(source: ConfigSource) -> list[str]:
    """Returns the policies that a config's tables name, as far as they are trained."""
    policies = {name: table for name, table in source.data.get("policies", {}).items() if name != EVERY}
    names = dict.fromkeys([*dict(source.data.get("team", {})).values(), *policies] or [SHARED])
    kinds = {name: policies.get(name, {}) for name in names if isinstance(name, str)}
    return [name for name, table in kinds.items() if not isinstance(table, dict) or table.get("kind") not in UNTRAINED]


def _team(source: ConfigSource, environment: Environment) -> Team:
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


def _policies(source: ConfigSource, team: Team, starter: str) -> dict[str, PolicyConfig]:
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


def _policy(source: ConfigSource, where: str, content: Mapping[str, Any], starter: str) -> PolicyConfig:
    for table, kind in (("lora", LoraConfig), ("past", PastConfig), ("remote", RemoteConfig)):
        if isinstance(own := content.get(table), dict):
            _validated(source, f"{where}.{table}", kind, own)
    if content.get("kind") == "remote":
        _check_server(source, where, content)
    policy = _validated(source, where, PolicyConfig, {"model": starter, **content})
    _validated(source, f"{where}.optimizer", OptimizerConfig, policy.optimizer)
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
