"""What a run is told: the tables of a config as classes, and the whole, resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from coterie.algorithms.base import Algorithm
from coterie.config.toml import to_toml
from coterie.kernel.environment import Environment, Settings
from coterie.kernel.team import Team
from coterie.kernel.watchdog import PLAY_TIMEOUT_S
from coterie.learning.optimizer import OptimizerConfig
from coterie.memory.store import MemoryConfig

Device = Literal["auto", "cpu", "cuda", "mps"]
MUTE_TASKS = 500
"""Validation tasks of a mute probe."""
COLDEST = 0.01
"""Temperature of sampling: float32 holds logits divided by it, and one token has all the probability long before."""
LONGEST_S = 1e6
"""Seconds of a limit: eleven days."""
SHARED = "team"
"""The policy that plays every role where the config names none."""


class PolicyConfig(Settings):
    """Weights under training."""

    model: str
    """A shipped starter, a folder, or a Hugging Face id of a causal language model; none: the environment's starter."""
    template: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Variables of the chat template, such as enable_thinking."""


class EngineConfig(Settings):
    """How replies are sampled."""

    rows: int = Field(1024, ge=1)
    """Samples decoded at once."""
    max_tokens: int = Field(256, ge=1)
    """Tokens of a reply where the environment sets no limit."""
    call_timeout_s: float = Field(60.0, gt=0, le=LONGEST_S)
    """Seconds that one scene.call may take; programs in the sandbox have limits of their own."""
    play_timeout_s: float = Field(PLAY_TIMEOUT_S, gt=0, le=LONGEST_S)
    """Seconds that an environment's own code may take from an answer to its next question, before the run stops."""


class TrainConfig(Settings):
    """The run."""

    seed: int = Field(0, ge=0)
    """Draws tasks and samples; two runs with one seed are equal."""
    steps: int = Field(120, ge=1)
    """Rollouts, each followed by an update."""
    tasks_per_step: int = Field(16, ge=1)
    """Tasks of one rollout."""
    temperature: float = Field(1.0, ge=COLDEST)
    """Of sampling and of the learner's log-probabilities alike."""
    device: Device = "auto"
    """auto: cuda, then mps, then cpu."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What networks compute in; trained weights are float32."""
    eval_every: int = Field(20, ge=1)
    """Steps between validations; validation chooses the best checkpoint."""
    eval_tasks: int = Field(400, ge=1)
    """Validation tasks, always the same."""
    mute_every: int = Field(5, ge=0)
    """Validations between probes that mute each role over 500 tasks, to find lazy ones; 0: never."""
    checkpoint_every: int = Field(20, ge=1)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(2, ge=1)
    """Latest checkpoints kept, beside the start and the best."""
    grace_s: float = Field(5.0, ge=0)
    """Seconds that a step may go on after SIGTERM or SIGHUP, before it is given up and the run saved."""
    episodes_every: int = Field(20, ge=1)
    """Steps between saved rollouts; the first and the last are always saved."""
    max_dropped_share: float = Field(0.2, ge=0, le=1)
    """Share of a step's tasks that may be lost to faults before the run stops."""


class EvalConfig(Settings):
    """How `coterie eval` and the final test measure."""

    tasks: int = Field(1000, ge=1)
    """Held-out tasks, always the same."""
    temperature: float = Field(1.0, ge=COLDEST)
    """Of sampled evaluation; plain evaluation is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus of sampled evaluation."""


class SFTConfig(Settings):
    """How a starter is made."""

    steps: int = Field(1000, ge=1)
    """Optimizer steps."""
    tasks_per_step: int = Field(32, ge=1)
    """Train tasks whose demonstrations make one step."""
    lr: float = Field(3e-3, gt=0)
    """Peak learning rate; it rises over 50 steps and falls linearly to 0."""
    seed: int = Field(0, ge=0)
    """Draws weights, tasks and demonstrations."""
    hidden_size: int = Field(128, ge=8)
    """Width of a new model."""
    layers: int = Field(4, ge=1)
    """Layers of a new model."""
    heads: int = Field(4, ge=1)
    """Attention heads of a new model."""
    vocabulary: int = Field(512, ge=260)
    """Tokens of a new tokenizer, at most."""
    context: int = Field(1024, ge=16)
    """Longest sequence of a new model, tokens."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """What training computes in; weights are float32."""


@dataclass(frozen=True, slots=True)
class Config:
    """A run, resolved. names: what environment and algorithm were called. remarks: what a person should know of it."""

    environment: Environment
    algorithm: Algorithm
    memory: MemoryConfig
    team: Team
    policies: Mapping[str, PolicyConfig]
    optimizer: OptimizerConfig
    engine: EngineConfig
    train: TrainConfig
    eval: EvalConfig
    names: Mapping[str, str]
    remarks: tuple[str, ...] = ()

    def tables(self) -> dict[str, dict[str, Any]]:
        """Everything resolved as plain data, without settings that have no effect."""
        return {
            "environment": {"name": self.names["environment"], **_effective(self.environment)},
            "algorithm": {"name": self.names["algorithm"], **_effective(self.algorithm, self.idle_clip())},
            "memory": _effective(self.memory),
            "team": dict(self.team.roles),
            "policies": {name: _effective(policy) for name, policy in self.policies.items()},
            "optimizer": _effective(self.optimizer),
            "engine": _effective(self.engine),
            "train": _effective(self.train, {"mute_every": why} if (why := self.mute_hindrance()) else {}),
            "eval": _effective(self.eval),
        }

    def toml(self) -> str:
        """The resolved config as a TOML file that gives the same run."""
        return to_toml(self.tables())

    def mute_hindrance(self) -> str:
        """Why no role can be muted in this run, or nothing."""
        if len(self.team.roles) < 2:
            return "a team of one has nobody to do without"
        count = self.environment.count("validation")
        if count is not None and count < MUTE_TASKS:
            return f"the validation split has {count} tasks, and {MUTE_TASKS} are needed"
        return ""

    def idle_clip(self) -> dict[str, str]:
        """Clip bounds that cannot matter, with why."""
        if self.optimizer.updates_per_step > 1 or self.train.dtype != "float32":
            return {}
        reason = "optimizer.updates_per_step = 1 keeps the ratio at 1, which is never clipped"
        return dict.fromkeys(("epsilon", "epsilon_high"), reason)


def _effective(settings: Settings, idle: Mapping[str, str] | None = None) -> dict[str, Any]:
    left_out = {**settings.inert(), **(idle or {})}
    return {key: value for key, value in settings.model_dump(mode="json").items() if key not in left_out}
