"""Defaults that fit what is trained: functions of a model's kind, size and device, each with its reason.

The defaults of the settings' classes fit the shipped starters, of under a million parameters. Where a policy is trained
that has more than 50 million, other values take their place, unless the config or its environment says otherwise. They
are our own choice: at 135 million parameters they were tried (docs/real_models.md), above that they follow what is
usual. A hub's model whose name does not tell its size counts as one of 135 million. This module does not import torch;
sizes are read from files' headers, or from a model's name.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from coterie.config.settings import SHARED, UNTRAINED
from coterie.config.toml import EVERY, ConfigSource
from coterie.errors import ConfigError
from coterie.installed import starters
from coterie.models.files import ADAPTER_CONFIG, GGUF, base_of
from coterie.models.named import NAMED
from coterie.registry import past_policy

LARGE = 50_000_000
"""Number of parameters above which a model has these defaults."""
TRIED = 135e6
"""Number of parameters of the model with which these defaults were tried."""
LORA_LR, FULL_LR = 3e-4, 1e-5
"""Learning rates of adapters and of all weights, for a model of TRIED parameters."""
TAUGHT = 2.0
"""Factor on the learning rate of all weights for demonstrations, whose gradients vary less than those of rewards."""
LEAST_FULL_LR = 1e-6
"""Minimum learning rate of all weights: that of large models, as published runs have it."""
CREATIVE = 1e9
"""Number of parameters below which replies at temperature 1 are mostly noise."""
FAR = 10.0
"""Times the fitting learning rate above which, and below whose inverse by the square, a warning is given."""
FEW_STEPS = 200
"""Maximum number of steps of a run that validates and saves every few steps."""
LONGEST_HEADER = 100 << 20
"""Maximum number of bytes of a safetensors header that is read."""


@dataclass(frozen=True, slots=True)
class ChosenDefault:
    """A default that was chosen: its setting, such as optimizer.lr, its value and the reason."""

    path: str
    value: Any
    reason: str

    def __str__(self) -> str:
        value = json.dumps(self.value) if not isinstance(self.value, float) else f"{self.value:g}"
        return f"{self.path} = {value}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LargePolicy:
    """A trained policy of more than LARGE parameters. size: None: not known. cpu: it is trained on a processor.

    lr_written: it has a learning rate of its own in the config.
    """

    name: str
    model: str
    kind: str
    size: int | None
    cpu: bool
    lr_written: bool = False

    @property
    def parameters(self) -> float:
        """Number of parameters; if it is not known, that of the model with which the defaults were tried."""
        return float(self.size or TRIED)

    @property
    def called(self) -> str:
        """Size of the model in a few words."""
        return f"{self.size / 1e6:,.0f} million parameters" if self.size else "a model of unknown size"

    @property
    def lr(self) -> tuple[float, str]:
        """Fitting learning rate, and the reason for it."""
        relative = TRIED / self.parameters
        if self.kind == "lora":
            return _rounded(LORA_LR * relative**0.4), f"adapters on {self.called}"
        return _rounded(max(LEAST_FULL_LR, FULL_LR * relative)), f"all weights of {self.called}"


def taught(source: ConfigSource, model: str | None) -> list[ChosenDefault]:
    """Returns the learning rate on demonstrations that fits a large model, where the tables of `source` say none."""
    if not model or not is_large(model) or "lr" in source.table("sft"):
        return []
    lr, reason = LargePolicy("", model, "full", parameters(model), cpu=True).lr
    return [ChosenDefault("sft.lr", _rounded(TAUGHT * lr), reason)]


def learners(data: Mapping[str, Any], starter: str) -> list[LargePolicy]:
    """Returns the policies of a config's tables that are trained and large.

    Args:
        starter: the model of a policy that names none.
    """
    wanted = str(data.get("train", {}).get("device", "auto"))
    found: list[LargePolicy] = []
    for name, table in _trained(data).items():
        model = str(table.get("model", starter))
        size = parameters(model)
        if is_large(model):
            device = str(table.get("device", wanted))
            cpu = device == "cpu" or (device == "auto" and not Path("/dev/nvidiactl").exists())
            own = table.get("optimizer")
            written = isinstance(own, Mapping) and "lr" in own
            found.append(LargePolicy(name, model, str(table.get("kind", "lora")), size, cpu, written))
    return found


def _trained(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the tables of the policies that are trained."""
    policies = {name: table for name, table in (data.get("policies") or {}).items() if name != EVERY} or {SHARED: {}}
    return {
        name: table
        for name, table in policies.items()
        if isinstance(table, Mapping) and table.get("kind", "") not in UNTRAINED
    }


def one_each(data: Mapping[str, Any], roles: Sequence[str], starter: str) -> ChosenDefault | None:
    """Returns a team of an adapter a role, where a config names no team and its model is large; else None."""
    policies = dict(data.get("policies") or {})
    every = policies.pop(EVERY, None) or {}
    if data.get("team") or policies or len(roles) < 2 or every.get("kind", "lora") != "lora":
        return None
    if not is_large(str(every.get("model", starter))) or not all(re.fullmatch(r"[\w-]+", role) for role in roles):
        return None
    return ChosenDefault(
        "team", {role: role for role in roles}, "an adapter a role over one base, so that roles can differ"
    )


def choices(source: ConfigSource, starter: str) -> list[ChosenDefault]:
    """Returns the defaults that fit the policies of a config, where it does not say otherwise itself."""
    large = learners(source.data, starter)
    if not large:
        return []
    one_rate = len({each.lr for each in large}) == 1 and len(large) == len(_trained(source.data))
    made = (*_policies(source, large, one_rate=one_rate), *_run(max(large, key=lambda one: one.parameters), source))
    return [left for choice in made if (left := _unwritten(choice, source))]


def _unwritten(choice: ChosenDefault, source: ConfigSource) -> ChosenDefault | None:
    """Returns what a config leaves open of a choice; of a table, the keys that are not written. None: nothing."""
    table, _, key = choice.path.rpartition(".")
    written = source.table(table).get(key)
    if isinstance(choice.value, dict) and isinstance(written, Mapping):
        return replace(choice, value={key: value for key, value in choice.value.items() if key not in written})
    return choice if written is None else None


def _policies(source: ConfigSource, large: list[LargePolicy], *, one_rate: bool) -> Iterator[ChosenDefault]:
    """Yields the kind, adapter and optimizer settings of each policy."""
    for each in large:
        path = f"policies.{each.name}"
        yield ChosenDefault(
            f"{path}.kind", "lora", f"{each.called}: an adapter takes a tenth of the memory of all weights"
        )
        if each.kind == "lora" and not (Path(each.model) / ADAPTER_CONFIG).exists():
            yield ChosenDefault(
                f"{path}.lora", {"rank": 16, "alpha": 32.0}, "adapters of this size learned where it was tried"
            )
        if not one_rate and "lr" not in source.table("optimizer"):
            yield ChosenDefault(f"{path}.optimizer.lr", *each.lr)
    if one_rate and not all(each.lr_written for each in large):
        yield ChosenDefault("optimizer.lr", *large[0].lr)
    yield ChosenDefault("optimizer.warmup_steps", 2, "AdamW's averages are unsettled in the first steps")
    yield ChosenDefault("optimizer.schedule", "constant", "a run may end early, or go on")


def _run(each: LargePolicy, source: ConfigSource) -> Iterator[ChosenDefault]:
    """Yields the settings of a step and of evaluation, of the largest policy."""
    train = source.table("train")
    yield ChosenDefault("train.dtype", "auto", "the faster type of this machine for large products")
    if each.parameters < CREATIVE:
        yield ChosenDefault("train.temperature", 0.7, f"{each.called}: at 1.0 most replies are noise")
        yield ChosenDefault("eval.temperature", train.get("temperature", 0.7), "as in training")
    yield ChosenDefault("train.keep_checkpoints", 1, "a checkpoint may be large")
    if not source.table("runtime").get("max_staleness"):  # else rollouts are played before a step has ended
        yield ChosenDefault(
            "train.stop_when_solved", 0.98, "steps are costly, and teach nothing once the task is solved"
        )
        yield ChosenDefault("train.stop_dead_steps", 10, "the same, if nothing is learned")
    if not each.cpu:
        yield ChosenDefault("train.eval_tasks", 200, "a real model on a GPU")
        yield ChosenDefault("train.mute_tasks", 200, "as many as a validation has")
        yield ChosenDefault("eval.tasks", 500, "a real model on a GPU")
        return
    slow = "a real model on a processor takes seconds a task"
    yield ChosenDefault("train.steps", 40, "a real model on a processor takes half a minute a step or more")
    steps = train.get("steps", 0)
    if isinstance(steps, int) and steps <= FEW_STEPS:
        yield ChosenDefault("train.eval_every", 5, "few steps")
        yield ChosenDefault("train.checkpoint_every", 10, "few steps")
        yield ChosenDefault("train.episodes_every", 5, "few steps")
    yield ChosenDefault("train.eval_tasks", 64, slow)
    yield ChosenDefault("train.mute_tasks", 64, slow)
    yield ChosenDefault("eval.tasks", 200, slow)
    yield ChosenDefault("optimizer.tokens_per_microbatch", 512, "activations of 2,048 tokens would take gigabytes")
    yield ChosenDefault("engine.max_tokens", 64, "where an environment sets no limit: a processor samples slowly")


def as_tables(chosen: list[ChosenDefault]) -> dict[str, dict[str, Any]]:
    """Returns choices as tables of a config."""
    found: dict[str, Any] = {}
    for choice in chosen:
        *tables, key = choice.path.split(".")
        reduce(lambda table, name: table.setdefault(name, {}), tables, found)[key] = choice.value
    return found


def warnings(source: ConfigSource, starter: str) -> Iterator[str]:
    """Yields a sentence for each value of a person's that is far from what fits."""
    for each in learners(source.data, starter):
        own = dict(source.table(f"policies.{each.name}.optimizer")).get("lr")
        lr = own if own is not None else source.table("optimizer").get("lr")
        fitting, _ = each.lr
        if (
            isinstance(lr, int | float)
            and not isinstance(lr, bool)
            and lr > 0
            and not 1 / FAR**2 <= lr / fitting <= FAR
        ):
            times = f"{lr / fitting:.0f} times" if lr > fitting else f"a {fitting / lr:.0f}th of"
            yield (
                f"warning: the learning rate of policy '{each.name}' is {lr:g}, {times} what fits kind = '{each.kind}' "
                f"with {each.called}; write {fitting:g}, or no rate"
            )


def is_large(model: str) -> bool:
    """Returns True if a model has more than LARGE parameters, or is a hub's, a GGUF or an adapter of unknown size."""
    size, path = parameters(model), Path(model)
    if size is not None:
        return size > LARGE
    return path.suffix == GGUF or (path / ADAPTER_CONFIG).exists() or ("/" in model and not path.is_dir())


def parameters(model: str) -> int | None:
    """Returns how many parameters a model has, as far as files here or its name tell; 0: a starter; None: not known."""
    if model in starters() or not model:
        return 0
    if model in NAMED:
        return NAMED[model].parameters
    if (past := past_policy(model)) is not None:
        folders = sorted(past.run.glob(f"checkpoints/*/policies/{past.policy}"))
        return _in_folder(folders[-1]) if folders else None
    if (path := Path(model)).is_dir():
        return _in_folder(path)
    if path.suffix == GGUF:
        return _by_name(path.stem)
    cache = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "hub"
    snapshots = sorted(cache.glob(f"models--{model.replace('/', '--')}/snapshots/*")) if model.count("/") == 1 else []
    return (_in_folder(snapshots[-1]) if snapshots else None) or _by_name(model)


def _by_name(name: str) -> int | None:
    """Returns the parameters in a name such as Qwen3-0.6B or Mixtral-8x7B; the most, for 1M may be a context."""
    found = re.findall(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([BbMm])(?![A-Za-z0-9])", name)
    sizes = [int(times or 1) * float(size) * (1e9 if unit in "Bb" else 1e6) for times, size, unit in found]
    return int(max(sizes)) if sizes else None


def _in_folder(folder: Path) -> int | None:
    """Returns the sum over a folder's safetensors headers, of an adapter its base's; None where none can be read."""
    try:
        if (base := base_of(folder)) is not None:
            return None if (Path(base) / ADAPTER_CONFIG).exists() else parameters(base)
        files = sorted(folder.glob("*.safetensors"))
        return sum(map(_in_file, files)) if files else None
    except (OSError, ValueError, TypeError, KeyError, struct.error, AttributeError, ConfigError):
        return None  # loading it will say what is wrong


def _in_file(file: Path) -> int:
    with file.open("rb") as begin:
        (length,) = struct.unpack("<Q", begin.read(8))
        if length > LONGEST_HEADER:
            raise ValueError(f"{file}: a header of {length} bytes")
        header = json.loads(begin.read(length))
    total = 0
    for name, about in header.items():
        if name != "__metadata__":
            count = 1
            for size in about["shape"]:
                count *= int(size)
            total += count
    return total


def _rounded(value: float) -> float:
    """Returns a rate with two digits."""
    return float(f"{value:.1e}")
