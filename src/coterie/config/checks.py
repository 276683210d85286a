"""Checks of a config: what is unknown, cannot work together or has no effect is refused, and what is odd is remarked.

Each is a function of the config and of where its settings were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from coterie.config.fitting import warnings
from coterie.config.settings import Config, TrainConfig
from coterie.config.toml import ConfigSource
from coterie.errors import ConfigError, EnvError, nearest
from coterie.installed import starters
from coterie.kernel.environment import Environment, Split
from coterie.kernel.mistakes import remarks_of, task_of
from coterie.kernel.watchdog import Watch
from coterie.models.named import NAMED, remark


def checked(config: Config, source: ConfigSource) -> Config:
    """Returns the config with sizes that its data allow, and with remarks for its user.

    Raises:
        ConfigError: its settings cannot work together, or have no effect.
    """
    if not config.team.trained and config.memory.mode == "off":
        raise ConfigError(
            f"{source.place('policies', 'kind')}every policy is frozen or remote, so there is nothing to train; with "
            "memory.mode = 'on' memory alone would learn"
        )
    _check_ahead(config, source)
    _check_algorithm(config, source)
    for table, reasons in config.inert().items():
        for key, reason in reasons.items():
            if source.person_wrote(table, key) and source.table(table)[key]:
                raise ConfigError(f"{source.place(f'{table}.{key}')}{table}.{key} has no effect: {reason}")
    _check_learner(config, source)
    config = _sized(config, source)
    try:
        Watch(config.engine.play_timeout_s).task(partial(task_of, config.environment), "train", 0)
    except (ConfigError, EnvError) as error:
        raise ConfigError(f"{source.place('environment', str(error))}{error}") from error
    return config


def check_tables(source: ConfigSource) -> None:
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


def _check_ahead(config: Config, source: ConfigSource) -> None:
    """Raises ConfigError if rollouts are played ahead, and a setting may end the run before they are used."""
    runtime, train = config.runtime, config.train
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
    origins = {**config.origins, **{f"train.{key}": "there are no more tasks" for key in sizes}}
    return replace(config, train=train, origins=origins, remarks=(*remarks_of(config.environment), *remarks))


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
