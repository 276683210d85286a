"""The first pass over a config: what its author wrote, and below it the defaults of world, model and algorithm.

Every setting knows its origin: the line of a file, an option, or who recommends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.config.build import named, settings_of, world_of
from coterie.config.fitting import ChosenDefault, as_tables, choices, one_each
from coterie.config.settings import SHARED, UNTRAINED, RuntimeConfig
from coterie.config.toml import EVERY, ConfigSource
from coterie.errors import ConfigError
from coterie.installed import starters
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.environment import Environment
from coterie.kernel.mistakes import place_in_code, said
from coterie.learning.loss import Loss
from coterie.registry import whole_folder

RECOMMENDED = {"algorithm", "loss", "team", "policies", "optimizer", "engine", "memory", "train", "eval"}
"""Names of the tables that an environment may recommend."""
FITTING = "the defaults that fit the model"


@dataclass(frozen=True, slots=True)
class Merged:
    """Tables of a config with every default that is not its classes' own, and what had to be made to know them.

    names: for each table with a `name`, the name as it was written. chosen: the defaults that fit the model.
    """

    source: ConfigSource
    environment: Environment
    algorithm: Algorithm
    names: dict[str, str]
    chosen: tuple[ChosenDefault, ...]


def merge(source: ConfigSource) -> Merged:
    """Returns what was written, with the defaults of others below it.

    Raises:
        ConfigError: the environment or the algorithm cannot be made, or its defaults cannot be read.
    """
    names: dict[str, str] = {}
    environment = world_of(source, names)
    source = source.with_defaults(recommended(environment, source.data), f"{type(environment).__name__}.recommended")
    apart = one_each(source.data, environment.roles, environment.starter)
    if apart:
        team = {"team": apart.value, "policies": {role: {} for role in environment.roles}}
        source = source.with_defaults(team, FITTING, {f"team.{role}": apart.reason for role in apart.value})
    if EVERY in source.data.get("policies", {}):
        source = source.spread(_trained(source))
    source, environment = _instructed(source, environment, names)
    fitting = choices(source, environment.starter)
    reasons = {choice.path: choice.reason for choice in fitting}
    source = source.with_defaults(as_tables(fitting), FITTING, reasons)
    algorithm = named(source, "algorithm", Algorithm, names, "at_grpo")
    source = source.with_defaults({"loss": _recipe(source, algorithm)}, f"algorithm {names['algorithm']}")
    if settings_of(source, "runtime", RuntimeConfig).max_staleness:
        source = source.with_defaults({"loss": {"correction": "token_truncate"}}, "runtime.max_staleness")
    return Merged(source, environment, algorithm, names, tuple(choice for choice in (apart, *fitting) if choice))


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


def _instructed(
    source: ConfigSource, environment: Environment, names: dict[str, str]
) -> tuple[ConfigSource, Environment]:
    """Returns source and environment with instructions in prompts, where models need some; otherwise as they are."""
    untaught = _untaught(source, environment)
    if not untaught:
        return source, environment
    source = source.with_defaults({"environment": {"brief": False}}, f"policies.{untaught}.model")
    return source, world_of(source, names)


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


def _trained(source: ConfigSource) -> list[str]:
    """Returns the policies that a config's tables name, as far as they are trained."""
    policies = {name: table for name, table in source.data.get("policies", {}).items() if name != EVERY}
    names = dict.fromkeys([*dict(source.data.get("team", {})).values(), *policies] or [SHARED])
    kinds = {name: policies.get(name, {}) for name in names if isinstance(name, str)}
    return [name for name, table in kinds.items() if not isinstance(table, dict) or table.get("kind") not in UNTRAINED]
