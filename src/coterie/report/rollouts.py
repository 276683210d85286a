"""Rollouts that trainers have saved, as rows: who said something to which prompt, in which group, and what it earned.

A format is one function and one line of `FORMATS`. What a file does not say is not guessed in silence: a reading says
how its groups were found, and what the rewards are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError, first_line, nearest
from coterie.kernel.group import Key

Record = Mapping[str, Any]
LARGEST = 2 << 30
"""Bytes of a file that is read whole."""
ROLES = ("role", "agent", "agent_name", "agent_id", "agent_type", "speaker", "policy", "policy_id")
TURNS = ("turn", "turn_id", "turn_idx", "turn_index", "step_idx", "step_index", "round")
"""Names under which other trainers' users keep who spoke, and when."""
WITHIN = ("metadata", "extra_info", "info", "extra", "train_metadata")
"""Objects of a record in which such names stand too."""
SMALLEST = 2
"""Replies of a group that compares anything."""
ZERO = 1e-3
"""Advantages of one group sum to zero up to this, a reply; they are saved in half precision at times."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reply. group: in which its trainer compared it. prompt: as text. advantage: as trained, if that was saved."""

    group: str
    prompt: str
    reward: float
    role: str = ""
    turn: str = ""
    advantage: float | None = None


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What a file holds. grouped, rewarded: how groups and rewards were found. passed: records without a reward."""

    source: str
    rows: tuple[Row, ...]
    grouped: str
    rewarded: str
    passed: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person says of the columns. group: a column, or how many rows in a row are a group. reward: a column."""

    group: str = ""
    reward: str = ""


@dataclass(slots=True)
class _Columns:
    """Where the formats that are tables of columns keep things."""

    prompt: str
    rewards: tuple[str, ...]
    group: tuple[str, ...] = ()
    advantage: str = "advantage"
    step: str = "step"
    own: frozenset[str] = field(default_factory=frozenset[str])


def read(path: Path, asked: Asked = Asked()) -> Rollouts:
    """The rollouts of a file, or of a run folder of our own.

    Raises:
        ConfigError: it cannot be read, or is of no format that is known.
    """
    if path.is_dir():
        if asked != Asked():
            raise ConfigError("--group and --reward have no effect on a run folder, which says what it compared")
        return _ours(path)
    records = _records(path)
    if not records:
        raise ConfigError(f"{path} holds no records")
    for name, (fits, reader) in FORMATS.items():
        if fits(records[0]):
            try:
                return reader(f"{path}: {name}", records, asked)
            except (KeyError, TypeError, AttributeError) as error:
                raise ConfigError(f"{path}: a record of {name} is not like its first one: {said(error)}") from error
    raise ConfigError(
        f"{path} is of no known format: its first record has {', '.join(map(str, records[0])) or 'nothing'}; known are "
        "TRL's completions (prompt, completion), verl's dumps (input, output, score), slime's and miles' (samples), "
        "verifiers' results (prompt, completion, reward) and traces (nodes, rewards), and run folders of coterie"
    )


def said(error: Exception) -> str:
    """An error in few words."""
    return f"it has no {error}" if isinstance(error, KeyError) else first_line(error)


def _records(path: Path) -> list[Record]:
    """All records of a file, by its ending."""
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path} has more than {LARGEST >> 30} GiB; audit a part of it")
        if path.suffix == ".parquet":
            return _parquet(path)
        if path.suffix in (".pt", ".pth"):
            return _tensors(path)
        with path.open("rb") as file:
            return [_object(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def _object(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, line {number}: no JSON object: {first_line(error)}") from error
    if not isinstance(record, dict):
        raise ConfigError(f"{path}, line {number}: a record is an object, not {type(record).__name__}")
    return record


def _parquet(path: Path) -> list[Record]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"{path} needs pyarrow: pip install 'coterie[data]'") from error
    try:
        return parquet.read_table(path).to_pylist()
    except Exception as error:  # of a column, whatever its type raises
        raise ConfigError(f"{path} cannot be read: {first_line(error)}") from error


def _tensors(path: Path) -> list[Record]:
    """A dump of slime's: one object with a list of samples. Only plain data is loaded; nothing in it runs."""
    import torch

    try:
        whole = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a pickle that holds more than data, or is none
        raise ConfigError(f"{path} cannot be read as plain data: {first_line(error)}") from error
    samples = whole.get("samples") if isinstance(whole, dict) else None
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise ConfigError(f"{path} has no list of samples, as slime's and miles' dumps have")
    return [{"slime_sample": True, **sample} for sample in samples]


# Formats.


def _columns(source: str, records: Sequence[Record], asked: Asked, form: _Columns) -> Rollouts:
    """Rows of a table of columns."""
    rewards = (asked.reward,) if asked.reward else tuple(name for name in form.rewards if name in records[0])
    if not rewards or any(name not in records[0] for name in rewards):
        raise ConfigError(
            f"{source}: no column '{' + '.join(rewards) or 'reward'}'{nearest(asked.reward, records[0])}; name one "
            f"with --reward, of {', '.join(records[0])}"
        )
    groups, grouped = _groups(source, records, asked, form)
    rows: list[Row] = []
    for record, group in zip(records, groups, strict=True):
        values = [_number(record[name]) for name in rewards]
        given = [value for value in values if value is not None]
        if given:
            advantage = _number(record.get(form.advantage))
            names = _text(record[form.prompt]), sum(given), _found(record, ROLES), _found(record, TURNS)
            rows.append(Row(group, *names, advantage))
    return Rollouts(source, tuple(rows), grouped, f"rewards: {' + '.join(rewards)}", len(records) - len(rows))


def _groups(source: str, records: Sequence[Record], asked: Asked, form: _Columns) -> tuple[list[str], str]:
    """Of each record its group, and how it was found."""
    steps = [str(record.get(form.step, "")) for record in records]
    if asked.group.isdigit() and int(asked.group) >= SMALLEST:
        return _in_a_row(steps, int(asked.group)), f"groups: each {asked.group} in a row, as you say"
    if asked.group:
        if asked.group not in records[0]:
            raise ConfigError(
                f"{source}: no column '{asked.group}'{nearest(asked.group, records[0])}; it has {', '.join(records[0])}"
            )
        named, how = asked.group, "as you say"
    else:
        named, how = next((name for name in form.group if records[0].get(name) is not None), ""), "its own"
    if named:
        return [
            f"{step}/{_text(record[named])}" for step, record in zip(steps, records, strict=True)
        ], f"groups: by '{named}', {how}"
    if size := _by_sums(steps, [_number(record.get(form.advantage)) for record in records]):
        return _in_a_row(steps, size), f"groups: each {size} in a row, found by their advantages, which sum to zero"
    prompts = [f"{step}/{_text(record[form.prompt])}" for step, record in zip(steps, records, strict=True)]
    return prompts, "groups: by equal prompts, for the file does not say; say it with --group COLUMN or --group SIZE"


def _in_a_row(steps: Sequence[str], size: int) -> list[str]:
    """Each `size` records of a step in a row are a group."""
    seen: dict[str, int] = {}
    groups: list[str] = []
    for step in steps:
        groups.append(f"{step}/{seen.setdefault(step, 0) // size}")
        seen[step] += 1
    return groups


def _by_sums(steps: Sequence[str], advantages: Sequence[float | None]) -> int:
    """The smallest size of groups in a row whose advantages all sum to zero, not all being zero; 0: there is none."""
    known = [advantage for advantage in advantages if advantage is not None]
    if len(known) < len(advantages) or not any(abs(advantage) > ZERO for advantage in known):
        return 0
    for size in range(SMALLEST, len(known) + 1):
        sums: dict[str, list[float]] = {}
        for group, advantage in zip(_in_a_row(steps, size), known, strict=True):
            sums.setdefault(group, []).append(advantage)
        if all(len(lot) == size and abs(sum(lot)) <= ZERO * size for lot in sums.values()):
            return size
    return 0


def _trl(source: str, records: Sequence[Record], asked: Asked) -> Rollouts:
    """TRL's `log_completions`: each reward function is a column, and so is whatever else was logged."""
    known = {"step", "advantage", *ROLES, *TURNS}
    rewards = tuple(
        name
        for name in records[0]
        if name not in known
        and all(_number(record.get(name)) is not None or record.get(name) is None for record in records)
    )
    return _columns(source, records, asked, _Columns("prompt", rewards, ("group", "group_id")))


def _verl(source: str, records: Sequence[Record], asked: Asked) -> Rollouts:
    """What verl writes to `trainer.rollout_data_dir`."""
    return _columns(source, records, asked, _Columns("input", ("score",), ("uid", "group_id")))


def _slime(source: str, records: Sequence[Record], asked: Asked) -> Rollouts:
    """What slime and miles write with `--save-debug-rollout-data`."""
    flat = [_with_reward(record) for record in records if not record.get("remove_sample")]
    if not flat:
        raise ConfigError(f"{source}: every sample is marked as removed")
    rewards = tuple(name for name in flat[0] if name == "reward")
    read = _columns(source, flat, asked, _Columns("prompt", rewards, ("group_index",)))
    return Rollouts(read.source, read.rows, read.grouped, read.rewarded, read.passed + len(records) - len(flat))


def _with_reward(record: Record) -> Record:
    """A sample whose rewards, where there are several, are columns."""
    reward = record.get("reward")
    return (
        {**record, **{f"reward.{name}": value for name, value in reward.items()}}
        if isinstance(reward, dict)
        else record
    )


def _verifiers(source: str, records: Sequence[Record], asked: Asked) -> Rollouts:
    """Results of verifiers' classic environments."""
    return _columns(source, records, asked, _Columns("prompt", ("reward",), ("example_id",)))


def _traces(source: str, records: Sequence[Record], asked: Asked) -> Rollouts:
    """Traces of verifiers' environments of agents, alone or an episode's together."""
    if asked != Asked():
        raise ConfigError(f"{source}: --group and --reward have no effect on traces, which are compared by task")
    rows: list[Row] = []
    passed = 0
    for record in (trace for line in records for trace in line.get("traces", [line])):
        agent, task = record.get("agent") or {}, record.get("task") or {}
        rewards = [
            score * (_number(reward.get("weight")) or 0.0 if reward.get("weight") is not None else 1.0)
            for reward in (record.get("rewards") or {}).values()
            if reward and (score := _number(reward.get("score"))) is not None
        ]
        if not rewards or agent.get("trainable") is False:
            passed += 1
            continue
        first: list[Any] = []
        for node in record["nodes"]:
            if node["message"].get("role") == "assistant":
                break
            first.append(node["message"])
        rows.append(
            Row(_text(task.get("key") or task.get("hash")), _text(first), sum(rewards), str(agent.get("name", "")))
        )
    return Rollouts(
        source, tuple(rows), "groups: by the task's key", "rewards: all that were scored, by weight", passed
    )


def _ours(folder: Path) -> Rollouts:
    """The episodes that a run has saved."""
    from coterie.run.folder import Run

    run = Run.open(folder)
    rows: list[Row] = []
    for step in run.saved_episodes():
        for played in run.episodes(step):
            for group, earned in zip(played.collected.groups, played.advantages, strict=False):
                for member, advantage in zip(group.members, earned, strict=True):
                    key, sample = Key(*group.key), member.samples[0]
                    prompt = key.task if group.scope == "task" else " ".join(map(str, sample.prompt_ids))
                    turn = "" if group.scope == "task" else str(key.point)
                    name = "/".join(map(str, (step, *key)))
                    rows.append(
                        Row(
                            name,
                            prompt,
                            member.value,
                            sample.role if group.scope == "prompt" else key.role,
                            turn,
                            advantage,
                        )
                    )
    if not rows:
        raise ConfigError(f"{folder} has saved no episodes; train.episodes_every says when")
    return Rollouts(f"{folder}: a run of coterie", tuple(rows), "groups: its own", "rewards: what each was compared by")


FORMATS: dict[str, tuple[Callable[[Record], bool], Callable[[str, Sequence[Record], Asked], Rollouts]]] = {
    "slime's or miles' samples": (lambda first: "slime_sample" in first, _slime),
    "verifiers' traces": (lambda first: "nodes" in first or "traces" in first, _traces),
    "verifiers' results": (lambda first: {"prompt", "completion", "example_id"} <= first.keys(), _verifiers),
    "TRL's completions": (lambda first: {"prompt", "completion"} <= first.keys(), _trl),
    "verl's rollouts": (lambda first: {"input", "output"} <= first.keys(), _verl),
}
"""How each is known by its first record, and read."""


def _found(record: Record, names: Iterable[str]) -> str:
    """What stands under one of the names, in the record or in an object of it."""
    places = [record, *(record[name] for name in WITHIN if isinstance(record.get(name), dict))]
    return next((str(place[name]) for place in places for name in names if place.get(name) is not None), "")


def _number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return None


def _text(value: object) -> str:
    """A prompt or a name as text; messages as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)


def lots(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows of each group, in the order of their first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    yield from groups.values()
