"""Reads saved rollouts of trainers as rows with role, prompt, reply, group and reward.

A format is one function and one line of `FORMATS`. Missing information is not guessed silently: the result says how
groups were found and what the rewards are.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from coterie.errors import ConfigError, first_line, nearest
from coterie.report.records import Record, check_trained, records_of
from coterie.run.trust import reading
from coterie.sampling.episodes import TEAM

if TYPE_CHECKING:
    from coterie.run.folder import Run

ROLES = ("role", "agent", "agent_name", "agent_id", "agent_type", "speaker", "policy", "policy_id")
TURNS = ("turn", "turn_id", "turn_idx", "turn_index", "step_idx", "step_index", "round")
"""Names under which users of other trainers keep the role of a reply, and its turn."""
WITHIN = ("metadata", "extra_info", "info", "extra", "train_metadata")
"""Names of the objects of a record in which roles and turns may stand too."""
SMALLEST = 2
"""Minimum number of replies of a group that compares anything."""
ZERO = 1e-3
"""Largest sum of a group's advantages, per reply, that counts as zero; they may be saved in half precision."""
LARGEST_GROUP = 1024
"""Maximum number of replies of a group that is looked for by its advantages."""
LARGEST_REWARD = 1e100
"""Largest size of a number that may be a reward: squares of larger ones have no end."""
MOST_COLUMNS = 1_000
"""Maximum number of different names in the records of a file."""
MOST_TEXT = 256 << 20
"""Maximum number of characters of a log's prompts, with the texts put back that it keeps apart."""


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One reply. group: in which its trainer compared it. prompt: as text. advantage: as trained, if that was saved."""

    group: str
    prompt: str
    reward: float
    role: str = ""
    turn: str = ""
    advantage: float | None = None


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of a file. grouped, rewarded: how each was found. passed: number of records without a reward."""

    source: str
    rows: tuple[RolloutRow, ...]
    grouped: str
    rewarded: str
    passed: int = 0


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """A person's choice of columns. group: a column, or the size of groups of rows in a row. reward: a column."""

    group: str = ""
    reward: str = ""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Names of the columns of a format that is a table."""

    prompt: str
    rewards: tuple[str, ...]
    group: tuple[str, ...]


def read(path: Path, asked: ColumnChoice = ColumnChoice()) -> Rollouts:
    """Returns the rollouts of a file, or of a run folder of our own.

    Raises:
        ConfigError: it cannot be read, or is of no format that is known.
    """
    if path.is_dir():
        if asked != ColumnChoice():
            raise ConfigError("--group and --reward have no effect on a run folder, which says what it compared")
        if not (path / "config.toml").is_file():
            names = sorted(one.name for one in path.iterdir() if one.suffix in (".jsonl", ".parquet", ".pt", ".json"))
            first = f", such as {path / names[0]}" if names else ""
            raise ConfigError(f"{path} is no run folder; name one file of rollouts{first}")
        return _ours(path)
    if path.suffix == ".eval":
        raise ConfigError(f"{path}: write it as JSON first: inspect log convert {path} --to json --output-dir .")
    records = records_of(path)
    if not records:
        raise ConfigError(f"{path} holds no records")
    _check_columns(path, records)
    check_trained(path, records[0], "info")
    for name, (fits, reader) in FORMATS.items():
        if fits(records[0]):
            try:
                found = reader(f"{path}: {name}", records, asked)
                if not found.rows:
                    raise ConfigError(
                        f"{path}: no record of {name} has a number as its reward; say where with --reward"
                    )
                return found
            except ConfigError:
                raise
            except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
                raise ConfigError(f"{path}: a record of {name} is not like its first one: {_why(error)}") from error
    raise ConfigError(
        f"{path} is of no known format: its first record has {', '.join(map(str, records[0])) or 'nothing'}; known are "
        "TRL's completions (prompt, completion), verl's dumps (input, output, score), slime's and miles' (samples), "
        "verifiers' results (prompt, completion, reward) and traces (nodes, rewards), Inspect's logs as JSON, and run "
        "folders of coterie"
    )


def _check_columns(path: Path, records: Sequence[Record]) -> None:
    """Raises ConfigError if records have too many different names."""
    names = set[str]()
    for record in records:
        names |= record.keys()
        if len(names) > MOST_COLUMNS:
            raise ConfigError(f"{path} has more than {MOST_COLUMNS:,} columns")


def _why(error: Exception) -> str:
    """Returns an error in few words."""
    return f"it has no {error}" if isinstance(error, KeyError) else first_line(error)


# Formats.


def _columns(source: str, records: Sequence[Record], asked: ColumnChoice, form: _Columns) -> Rollouts:
    """Returns the rollouts of a table of columns."""
    columns = dict.fromkeys(name for record in records for name in record)
    rewards = tuple(asked.reward.split("+")) if asked.reward else form.rewards
    if lacking := [name for name in rewards if name not in columns]:
        raise ConfigError(f"{source}: no column '{lacking[0]}'{nearest(lacking[0], columns)}; it has {_named(columns)}")
    groups, grouped = _groups(source, records, asked, form)
    roles, turns = _found(records, ROLES), _found(records, TURNS)
    rows: list[RolloutRow] = []
    for record, group, role, turn in zip(records, groups, roles, turns, strict=True):
        given = [value for value in (_number(record.get(name)) for name in rewards) if value is not None]
        if given:
            advantage = _number(record.get("advantage"))
            rows.append(RolloutRow(group, _text(record[form.prompt]), sum(given), role, turn, advantage))
    return Rollouts(source, tuple(rows), grouped, f"rewards: {' + '.join(rewards)}", len(records) - len(rows))


def _groups(source: str, records: Sequence[Record], asked: ColumnChoice, form: _Columns) -> tuple[list[str], str]:
    """Returns the group of each record, and how groups were found."""
    steps = [str(record.get("step", "")) for record in records]
    if re.fullmatch("[0-9]{1,6}", asked.group) and int(asked.group) >= SMALLEST:
        return _in_a_row(steps, int(asked.group)), f"groups: each {asked.group} in a row, as you say"
    if asked.group:
        columns = dict.fromkeys(name for record in records for name in record)
        if asked.group not in columns:
            lacks = f"no column '{asked.group:.80}'{nearest(asked.group, columns)}"
            raise ConfigError(f"{source}: {lacks}; it has {_named(columns)}")
        named, how = asked.group, "as you say"
    else:
        known = (name for name in form.group if any(record.get(name) is not None for record in records))
        named, how = next(known, ""), "its own"
    if named:
        without = sum(record.get(named) is None for record in records)
        names = [
            _text([step, at if record.get(named) is None else record[named]])
            for at, (step, record) in enumerate(zip(steps, records, strict=True))
        ]
        alone = f"; {without} have none, and are each alone" if without else ""
        return names, f"groups: by '{named}', {how}{alone}"
    if size := _by_sums(steps, [_number(record.get("advantage")) for record in records]):
        return (
            _in_a_row(steps, size),
            f"groups: each {size} in a row, found by their advantages, which sum to zero; --group SIZE if more",
        )
    prompts = [_text([step, record[form.prompt]]) for step, record in zip(steps, records, strict=True)]
    how = "so prompts cannot mix; say how with --group COLUMN or --group SIZE"
    return prompts, f"groups: by equal prompts, for the file does not say, {how}"


def _in_a_row(steps: Sequence[str], size: int) -> list[str]:
    """Returns each record's group, if `size` records of a step in a row are one."""
    seen: dict[str, int] = {}
    groups: list[str] = []
    for step in steps:
        groups.append(f"{step}/{seen.setdefault(step, 0) // size}")
        seen[step] += 1
    return groups


def _by_sums(steps: Sequence[str], advantages: Sequence[float | None]) -> int:
    """Returns the smallest size of groups in a row whose advantages, not all zero, sum to zero; 0: there is none."""
    known = [advantage for advantage in advantages if advantage is not None]
    if len(known) < len(advantages) or not any(abs(advantage) > ZERO for advantage in known):
        return 0
    counts = Counter(steps)
    for size in range(SMALLEST, min(LARGEST_GROUP, *counts.values()) + 1):
        if all(count % size == 0 for count in counts.values()) and _sum_to_zero(steps, known, size):
            return size
    return 0


def _sum_to_zero(steps: Sequence[str], advantages: Sequence[float], size: int) -> bool:
    """Returns True if advantages of each `size` records of a step in a row sum to zero; the first others end it."""
    sums: dict[str, tuple[int, float]] = {}
    for step, advantage in zip(steps, advantages, strict=True):
        seen, total = sums.get(step, (0, 0.0))
        sums[step] = seen + 1, total + advantage
        if seen + 1 == size:
            if abs(total + advantage) > ZERO * size:
                return False
            del sums[step]
    return True


def _trl(source: str, records: Sequence[Record], asked: ColumnChoice) -> Rollouts:
    """Reads TRL's `log_completions`: each reward function is a column, and so is whatever else was logged."""
    known = {"step", "advantage", "prompt", "completion", asked.group, *ROLES, *TURNS}
    columns = dict.fromkeys(name for record in records for name in record)
    numbers = [
        name
        for name in columns
        if name not in known and all(isinstance(record.get(name), int | float | None) for record in records)
    ]
    if len(numbers) != 1 and not asked.reward:
        which = f"which of {', '.join(numbers)} are rewards? Name" if numbers else "it has no column of numbers; name"
        raise ConfigError(f"{source}: {which} them, such as --reward {'+'.join(numbers[:2]) or 'COLUMN'}")
    return _columns(source, records, asked, _Columns("prompt", tuple(numbers), ("group", "group_id")))


def _verl(source: str, records: Sequence[Record], asked: ColumnChoice) -> Rollouts:
    """Reads the records that verl writes to `trainer.rollout_data_dir`."""
    return _columns(source, records, asked, _Columns("input", ("score",), ("uid", "group_id")))


def _slime(source: str, records: Sequence[Record], asked: ColumnChoice) -> Rollouts:
    """Reads the samples that slime and miles write with `--save-debug-rollout-data`."""
    flat = [_with_reward(record) for record in records]  # one that is removed is compared all the same, and not trained
    several = [name for name in flat[0] if name.startswith("reward.")]
    if several and not asked.reward:
        raise ConfigError(f"{source}: which of {', '.join(several)} is the reward? Name it with --reward")
    return _columns(source, flat, asked, _Columns("prompt", ("reward",), ("group_index",)))


def _with_reward(record: Record) -> Record:
    """Returns a sample whose rewards, if it has several, are columns."""
    reward = record.get("reward")
    several = reward if isinstance(reward, dict) else {}
    return {**record, **{f"reward.{name}": value for name, value in several.items()}}


def _verifiers(source: str, records: Sequence[Record], asked: ColumnChoice) -> Rollouts:
    """Reads the results of verifiers' classic environments."""
    return _columns(source, records, asked, _Columns("prompt", ("reward",), ("example_id",)))


def _traces(source: str, records: Sequence[Record], asked: ColumnChoice) -> Rollouts:
    """Reads the traces of verifiers' environments of agents, alone or an episode's together."""
    if asked != ColumnChoice():
        raise ConfigError(f"{source}: --group and --reward have no effect on traces, which are compared by task")
    rows: list[RolloutRow] = []
    passed = 0
    for record in (trace for line in records for trace in line.get("traces", [line])):
        agent, task = record.get("agent") or {}, record.get("task") or {}
        scored = [reward for reward in (record.get("rewards") or {}).values() if reward]
        worth = [_number(reward.get("score", math.nan) * reward.get("weight", 1.0)) for reward in scored]
        rewards = [value for value in worth if value is not None]
        if not rewards or agent.get("trainable") is False:
            passed += 1
            continue
        first: list[Any] = []
        for node in record["nodes"]:
            if node["message"].get("role") == "assistant":
                break
            first.append(node["message"])
        rows.append(
            RolloutRow(
                _text(task.get("key") or task.get("hash")), _text(first), sum(rewards), str(agent.get("name", ""))
            )
        )
    return Rollouts(
        source, tuple(rows), "groups: by the task's key", "rewards: all that were scored, by weight", passed
    )


GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Values of Inspect's grades, as it counts them."""


def _inspect(source: str, records: Sequence[Record], asked: ColumnChoice) -> Rollouts:
    """Reads the samples of a log of Inspect's: a role's part of each is a row, its epochs are a group."""
    if asked.group:
        raise ConfigError(f"{source}: --group has no effect on a log of Inspect's, whose epochs are compared by sample")
    names = dict.fromkeys(name for record in records for name in record.get("scores") or {})
    if len(names) != 1 and not asked.reward:
        which = f"which of {', '.join(names)} is the reward? Name it" if names else "it has no scores; name one"
        raise ConfigError(f"{source}: {which} with --reward")
    if asked.reward and asked.reward not in names:
        raise ConfigError(f"{source}: no score '{asked.reward}'{nearest(asked.reward, names)}; it has {_named(names)}")
    name = asked.reward or next(iter(names))
    rows: list[RolloutRow] = []
    passed, left = 0, MOST_TEXT
    for record in records:
        value = ((record.get("scores") or {}).get(name) or {}).get("value")
        reward = _number(GRADES.get(value, value) if isinstance(value, str) else value)
        if reward is None:
            passed += 1
            continue
        kept = record.get("attachments") or {}
        calls = _played(record.get("events") or ())
        first = {event.get("role") or "": event["input"] for event in reversed(calls)} or {"": record["input"]}
        for role, prompt in sorted(first.items()):
            text = _whole(_said(prompt), kept, left)
            left -= len(text)
            rows.append(RolloutRow(_text(record["id"]), text, reward, role))
    return Rollouts(source, tuple(rows), "groups: the epochs of a sample", f"rewards: the score {name}", passed)


def _played(events: Sequence[Record]) -> list[Record]:
    """Returns the calls of models in a sample, in order, but for those by which it was scored."""
    spans = {event.get("id"): event for event in events if event.get("event") == "span_begin"}

    def scoring(span: Record | None) -> bool:
        return span is not None and (span.get("type") == "scorer" or scoring(spans.get(span.get("parent_id"))))

    calls = [event for event in events if event.get("event") == "model" and event.get("role") != "grader"]
    return [event for event in calls if not scoring(spans.get(event.get("span_id")))]


def _said(prompt: object) -> object:
    """Returns messages reduced to role and content: other fields, such as ids, may differ where messages are equal."""
    if not isinstance(prompt, list):
        return prompt
    return [[message.get("role"), message.get("content")] for message in prompt]


def _whole(prompt: object, kept: Mapping[str, object], most: int) -> str:
    """Returns a prompt as text, with the long texts that are kept apart put back; what these name is left as it is.

    Raises:
        ValueError: it has more than `most` characters.
    """
    text, pattern = _text(prompt), "attachment://([0-9a-f]{1,64})"
    names = re.findall(pattern, text)
    texts = {name: str(kept.get(name, name)) for name in set(names)}
    if len(text) + sum(len(texts[name]) for name in names) > most:
        raise ValueError(f"the prompts have more than {MOST_TEXT:,} characters with the texts that it keeps apart")
    return re.sub(pattern, lambda found: texts[found[1]], text)


def _rows_of(run: Run, step: int) -> Iterator[RolloutRow]:
    """Yields the members of the groups of a step. Whole episodes of one task are compared as such."""
    for played in run.episodes(step):
        for group, earned in zip(played.collected.groups, played.advantages, strict=False):
            for member, advantage in zip(group.members, earned, strict=True):
                key, whole = group.key, group.scope == "task"
                prompt = key.task if whole else " ".join(map(str, member.samples[0].prompt_ids))
                roles = {key.role} if key.role == TEAM else {sample.role for sample in member.samples}
                turn = "" if group.point is None else str(group.point)
                name = "/".join(map(str, (step, *key)))
                yield RolloutRow(name, prompt, member.value, "+".join(sorted(roles)), turn, advantage)


def _ours(folder: Path) -> Rollouts:
    """Returns the rollouts that a run of our own has saved."""
    from coterie.run.folder import Run

    run = Run.open(folder)
    with reading(folder):
        rows = [row for step in run.saved_episodes() for row in _rows_of(run, step)]
    if not rows:
        raise ConfigError(f"{folder} has saved no episodes; train.episodes_every says when")
    return Rollouts(f"{folder}: a run of coterie", tuple(rows), "groups: its own", "rewards: what each was compared by")


FORMATS: dict[str, tuple[Callable[[Record], bool], Callable[[str, Sequence[Record], ColumnChoice], Rollouts]]] = {
    "slime's or miles' samples": (lambda first: "slime_sample" in first, _slime),
    "Inspect's samples": (lambda first: "inspect_sample" in first, _inspect),
    "verifiers' traces": (lambda first: "nodes" in first or "traces" in first, _traces),
    "verifiers' results": (lambda first: {"prompt", "completion", "example_id"} <= first.keys(), _verifiers),
    "TRL's completions": (lambda first: {"prompt", "completion"} <= first.keys(), _trl),
    "verl's rollouts": (lambda first: {"input", "output"} <= first.keys(), _verl),
}
"""Formats by name: a check of the first record, and the function that reads all."""


def _named(columns: Iterable[str]) -> str:
    """Returns columns in a line."""
    return shorten(", ".join(map(str, columns)), 400, placeholder=", …")


def _found(records: Sequence[Record], names: Iterable[str]) -> list[str]:
    """Returns each record's text under the names, in it or in an object of it: all that vary, or else the first."""
    found: dict[str, list[str]] = {}
    for within in ("", *WITHIN):
        for name in names:
            places = [record.get(within) if within else record for record in records]
            values = [
                _text(place[name]) if isinstance(place, dict) and place.get(name) is not None else ""
                for place in places
            ]
            if any(values):
                found[f"{within}.{name}"] = values
    vary = [values for values in found.values() if len(set(values)) > 1] or list(found.values())[:1]
    return ["/".join(dict.fromkeys(filter(None, each))) for each in zip(*vary, strict=True)] or [""] * len(records)


def _number(value: object) -> float | None:
    """Returns a number that statistics can take, or None."""
    if isinstance(value, bool | int | float) and abs(value) <= LARGEST_REWARD:  # NaN is not
        return float(value)
    return None


def _text(value: object) -> str:
    """Returns a prompt or a name as text; messages as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)


def lots(rows: Iterable[RolloutRow]) -> Iterator[list[RolloutRow]]:
    """Yields the rows of each group, in the order of their first."""
    groups: dict[str, list[RolloutRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    yield from groups.values()
