"""Configuration: turns TOML files and dotted overrides into typed settings, once, at the start of a command.

A config has twelve tables: environment, algorithm, loss, memory, team, policies, optimizer, engine, runtime, train,
trackers and eval. Everything has a default. A setting that is unknown, cannot work or has no effect is refused before
any model is loaded. The message names the file, the line and what to do.

There are three passes: `merge.py` puts the defaults of others below what was written, `build.py` makes typed settings
of the tables, and `checks.py` refuses what cannot work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.config.build import (
    class_of,
    memory_of,
    named,
    policies_of,
    runtime_of,
    settings_of,
    team_of,
    trackers_of,
    validated,
    world_of,
)
from coterie.config.checks import check_tables, checked
from coterie.config.fitting import ChosenDefault, taught
from coterie.config.merge import Merged, merge
from coterie.config.settings import UNTRAINED, Config, EvalConfig, SFTConfig, TrainConfig
from coterie.config.toml import ConfigSource, read
from coterie.errors import ConfigError, nearest
from coterie.kernel.engine import Engine
from coterie.kernel.environment import Environment
from coterie.learning.loss import Loss
from coterie.learning.optimizer import OptimizerConfig
from coterie.memory.store import MemoryConfig
from coterie.registry import about


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
    return world_of(written, {})


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
    world = world_of(source, {})
    memory = memory_of(source, world)
    if memory.mode != "off" and type(world).lessons is not Environment.lessons:
        raise ConfigError(
            f"{source.place('memory.mode')}memory.mode = '{memory.mode}' has no effect: this environment writes its "
            "`lessons` itself, and they show no notes; set memory.mode = 'off'"
        )
    chosen = taught(source, model)
    config = settings_of(source, "sft", SFTConfig).model_copy(update={each.path[4:]: each.value for each in chosen})
    return world, config, memory, chosen


def resolve(source: ConfigSource) -> Config:
    """Returns the config with typed settings that some tables give, in three passes: merged, made, checked."""
    check_tables(source)
    merged = merge(source)
    return checked(_made(merged), merged.source)


def _made(merged: Merged) -> Config:
    """Returns the typed settings of all tables. Raises ConfigError if one of them cannot be made by itself."""
    source, environment, names = merged.source, merged.environment, merged.names
    team = team_of(source, environment)
    policies = policies_of(source, team, environment.starter)
    frozen = frozenset(name for name, policy in policies.items() if policy.kind in UNTRAINED)
    memory = memory_of(source, environment)
    engine, content = class_of(source, "engine", "engine", Engine, names, "transformers")
    return Config(
        environment=environment,
        algorithm=merged.algorithm,
        runtime=runtime_of(source, policies),
        train=settings_of(source, "train", TrainConfig),
        loss=named(source, "loss", Loss, names, "clip"),
        memory=memory,
        team=replace(team, frozen=frozen),
        policies=policies,
        optimizer=settings_of(source, "optimizer", OptimizerConfig),
        engine=validated(source, "engine", engine.options, content),
        trackers=trackers_of(source, names),
        eval=settings_of(source, "eval", EvalConfig),
        names=names,
        chosen=tuple(map(str, merged.chosen)),
        origins=_origins(source, environment),
    )


def _origins(source: ConfigSource, environment: Environment) -> dict[str, str]:
    """Returns who set each value; ARGUMENT of `NAME:ARGUMENT` was set with the name."""
    origins = source.origins()
    name, argument = source.table("environment").get("name", ""), environment.argument
    if argument and about("environment", str(name))[1]:
        origins[f"environment.{argument}"] = origins["environment.name"]
    return origins
