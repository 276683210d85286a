"""What a run is told: the tables of a config as classes, and the whole, resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from coterie.algorithms.base import Algorithm
from coterie.config.toml import to_toml
from coterie.engines.remote import RemoteConfig
from coterie.kernel.engine import EngineConfig
from coterie.kernel.environment import Environment, Settings
from coterie.kernel.play import Sampling
from coterie.kernel.team import Team
from coterie.learning.loss import Loss
from coterie.learning.optimizer import OptimizerConfig
from coterie.memory.store import MemoryConfig
from coterie.models.rendering import System, Thinking

Kind = Literal["full", "lora", "frozen", "past", "remote"]
UNTRAINED = ("frozen", "past", "remote")
"""Kinds that nothing is learned by."""
DType = Literal["float32", "bfloat16"]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]
MUTE_TASKS = 500
"""Validation tasks of a mute probe."""
COLDEST = 0.01
"""Temperature of sampling: float32 holds logits divided by it, and one token has all the probability long before."""
SHARED = "team"
"""The policy that plays every role where the config names none."""


class LoraConfig(Settings):
    """An adapter, `[policies.NAME.lora]`: W x + (alpha / rank) B A x in place of W x, where A and B are trained."""

    rank: int = Field(default=32, ge=1, le=8192)
    """Rows of A and columns of B."""
    alpha: float = Field(default=32.0, gt=0)
    """The adapter counts alpha / rank times."""
    targets: tuple[str, ...] = ()
    """Names of the layers that are adapted, such as q_proj; none: every linear layer but the output layer."""


class PastConfig(Settings):
    """What another policy of the run was, `[policies.NAME.past]`: a pool, of which each step's rollout meets one."""

    every: int = Field(default=10, ge=1)
    """Steps between two of the pool, from the start on."""
    keep: int = Field(default=8, ge=1)
    """The latest ones, of which one is drawn."""


class PolicyConfig(Settings):
    """What plays a role or several."""

    kind: Kind = "full"
    """full: all its weights are its own, and trained; lora: an adapter is, on a base that it may share with others;
    frozen: nothing is: an opponent, a judge, or what a role was before; past: nothing is: it is what a trained policy
    of the run was, drawn anew for every step; remote: a server plays it."""
    model: str
    """A shipped starter, a folder, a Hugging Face id of a causal language model, or a policy of a run: RUN#STEP/POLICY
    as it was at a step, RUN/POLICY at the best by validation; none: the environment's starter. Of a server: what it
    calls the model. Of the past: the policy's name, such as team."""
    chat_template: str = ""
    """A file that holds a chat template (Jinja), in place of the tokenizer's own."""
    template: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Variables of the chat template, such as enable_thinking."""
    thinking: Thinking = "keep"
    """keep: a role's earlier replies stand in its prompts as they were sampled, thoughts included; strip: without what
    stands before </think>, as templates of thinking models have it: shorter prompts, tokenized again at every turn."""
    system: System = "own"
    """own: a system message is one; fold: it begins the first user's message, for templates that have none."""
    device: Device | None = None
    """Where its weights are: as train.device, which it is where nothing is said."""
    dtype: DType | None = None
    """What its network computes in: as train.dtype, which it is where nothing is said."""
    temperature: float | None = Field(default=None, ge=COLDEST)
    """Of its replies in training: as train.temperature, which it is where nothing is said."""
    optimizer: dict[str, Any] = Field(default_factory=dict)
    """Settings of [optimizer] that are its own, as a table [policies.NAME.optimizer]."""
    lora: LoraConfig = LoraConfig()
    """Settings of an adapter, as a table [policies.NAME.lora]."""
    past: PastConfig = PastConfig()
    """Settings of a pool of what another policy was, as a table [policies.NAME.past]."""
    remote: RemoteConfig = RemoteConfig()
    """Settings of a server, as a table [policies.NAME.remote]."""

    def inert(self) -> dict[str, str]:
        """What other kinds have: an adapter, an optimizer, a server, a network of one's own."""
        reasons: dict[str, str] = {}
        if self.kind != "lora":
            reasons["lora"] = f"kind = '{self.kind}' has no adapter"
        if self.kind != "past":
            reasons["past"] = f"kind = '{self.kind}' is nobody's past"
        else:
            own = ("chat_template", "template", "thinking", "system", "device", "dtype")
            reasons |= dict.fromkeys(own, "it is as the policy whose past it is")
        if self.kind in UNTRAINED:
            reasons["optimizer"] = f"kind = '{self.kind}' is never trained"
        if self.kind != "remote":
            return reasons | {"remote": f"kind = '{self.kind}' has no server"}
        return reasons | dict.fromkeys(("chat_template", "template", "device", "dtype"), "the server has its own")


class TrainConfig(Settings):
    """The run."""

    seed: int = Field(default=0, ge=0)
    """Draws tasks and samples; two runs with one seed are equal."""
    steps: int = Field(default=120, ge=1)
    """Rollouts, each followed by an update."""
    tasks_per_step: int = Field(default=16, ge=1)
    """Tasks of one rollout."""
    temperature: float = Field(default=1.0, ge=COLDEST)
    """Of sampling and of the learner's log-probabilities alike."""
    device: Device = "auto"
    """auto: cuda, then mps, then cpu; cuda:1: the second of several."""
    ranks: int = Field(default=1, ge=1, le=1024)
    """Processes that train together, each with a part of every trained weight (FSDP2); on CUDA each has a GPU. 1: this
    process trains alone, with whole weights."""
    deterministic: bool = True
    """On CUDA: kernels that give the same numbers every time, without which no resume is exact; a model that needs one
    that there is not is refused. A CPU's always do."""
    dtype: DType | Literal["auto"] = "float32"
    """What networks compute in; trained weights are float32. auto: what is faster on train.device, measured when the
    run begins, and kept in its config; float32 for small networks on a processor."""
    eval_every: int = Field(default=20, ge=1)
    """Steps between validations; validation chooses the best checkpoint."""
    eval_tasks: int = Field(default=400, ge=1)
    """Validation tasks, always the same."""
    mute_every: int = Field(default=5, ge=0)
    """Validations between probes that mute each role over 500 tasks, to find lazy ones; 0: never."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Latest checkpoints kept, beside the start and the best."""
    grace_s: float = Field(default=5.0, ge=0)
    """Seconds that a step may go on after SIGTERM or SIGHUP, before it is given up and the run saved."""
    episodes_every: int = Field(default=20, ge=1)
    """Steps between saved rollouts; the first and the last are always saved."""
    max_mismatch: float = Field(default=0.3, gt=0)
    """Nats by which the log-probabilities of engine and learner may differ in a step's mean before the run stops."""
    max_dropped_share: float = Field(default=0.2, ge=0, le=1)
    """Share of a step's tasks that may be lost to faults before the run stops."""


class RuntimeConfig(Settings):
    """Where a run's parts are."""

    name: Literal["local", "ray"] = "local"
    """local: this process, and ranks beside it; ray: engines, learners and environments are processes of a cluster."""
    address: str = ""
    """Of a Ray cluster that runs, such as 10.0.0.1:6379; none: one is started here, and ends with the run."""
    engines: int = Field(default=1, ge=1, le=1024)
    """Engines of each pool; a pool is a policy, or the adapters on one base."""
    workers: int = Field(default=1, ge=1, le=1024)
    """Processes that play a rollout's environments, each a share of its tasks."""
    max_staleness: int = Field(default=0, ge=0, le=64)
    """Updates by which the weights that sample may be behind those that learn: so many rollouts are played ahead. 0:
    rollout and update take turns."""
    cpus: int = Field(default=1, ge=1, le=1024)
    """CPUs of each engine and rank, and threads that it computes with."""
    engine_gpus: float = Field(default=1.0, gt=0, le=1)
    """Share of a GPU that an engine has, where there are GPUs."""
    rank_gpus: float = Field(default=1.0, gt=0, le=1)
    """Share of a GPU that a rank of a learner has, where there are GPUs."""

    def inert(self) -> dict[str, str]:
        """What one process has no use for; what is said of it anyway is as it is."""
        if self.name == "ray":
            return {}
        known = type(self).model_fields
        asked = (key for key in known if key != "name" and getattr(self, key) != known[key].default)
        return dict.fromkeys(asked, "runtime.name = 'local' has one process")


class EvalConfig(Settings):
    """How `coterie eval` and the final test measure."""

    tasks: int = Field(default=1000, ge=1)
    """Held-out tasks, always the same."""
    temperature: float = Field(default=1.0, ge=COLDEST)
    """Of sampled evaluation; plain evaluation is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of sampled evaluation."""


class SFTConfig(Settings):
    """How a starter is made."""

    steps: int = Field(default=1000, ge=1)
    """Optimizer steps."""
    tasks_per_step: int = Field(default=32, ge=1)
    """Train tasks whose demonstrations make one step."""
    lr: float = Field(default=3e-3, gt=0)
    """Peak learning rate; it rises over 50 steps and falls linearly to 0."""
    seed: int = Field(default=0, ge=0)
    """Draws weights, tasks and demonstrations."""
    hidden_size: int = Field(default=128, ge=8)
    """Width of a new model."""
    layers: int = Field(default=4, ge=1)
    """Layers of a new model."""
    heads: int = Field(default=4, ge=1)
    """Attention heads of a new model."""
    vocabulary: int = Field(default=512, ge=260)
    """Tokens of a new tokenizer, at most."""
    context: int = Field(default=1024, ge=16)
    """Longest sequence of a new model, tokens."""
    dtype: DType = "bfloat16"
    """What training computes in; weights are float32."""


@dataclass(frozen=True, slots=True)
class Config:
    """A run, resolved.

    trackers: the settings of each, by what it is called here. names: what everything was called that has a name, by its
    table. remarks: what a person should know of it.
    """

    environment: Environment
    algorithm: Algorithm
    loss: Loss
    memory: MemoryConfig
    team: Team
    policies: Mapping[str, PolicyConfig]
    optimizer: OptimizerConfig
    engine: EngineConfig
    runtime: RuntimeConfig
    train: TrainConfig
    trackers: Mapping[str, Settings]
    eval: EvalConfig
    names: Mapping[str, str]
    remarks: tuple[str, ...] = ()

    def tables(self) -> dict[str, dict[str, Any]]:
        """Everything resolved as plain data, without settings that have no effect."""
        inert = self.inert()
        return {
            "environment": {"name": self.names["environment"], **_effective(self.environment)},
            "algorithm": {"name": self.names["algorithm"], **_effective(self.algorithm)},
            "loss": {"name": self.names["loss"], **_effective(self.loss, inert["loss"])},
            "memory": _effective(self.memory),
            "team": dict(self.team.roles),
            "policies": {name: _effective(policy) for name, policy in self.policies.items()},
            "optimizer": _effective(self.optimizer, inert["optimizer"]),
            "engine": {"name": self.names["engine"], **_effective(self.engine)},
            "runtime": _effective(self.runtime),
            "train": _effective(self.train, inert["train"]),
            "trackers": {
                name: {"name": self.names[f"trackers.{name}"], **_effective(settings)}
                for name, settings in self.trackers.items()
            },
            "eval": _effective(self.eval),
        }

    def toml(self) -> str:
        """The resolved config as a TOML file that gives the same run."""
        return to_toml(self.tables())

    def optimizer_of(self, policy: str) -> OptimizerConfig:
        """How a policy is moved: what `[optimizer]` says, and what it says itself."""
        own = self.policies[policy].optimizer
        return (
            OptimizerConfig.model_validate({**self.optimizer.model_dump(exclude_unset=True), **own})
            if own
            else self.optimizer
        )

    def sampling(self, temperature: float | None = None, top_p: float = 1.0) -> Sampling:
        """How replies are drawn in this run. temperature: None: as in training, each policy at its own."""
        own = {name: policy.temperature for name, policy in self.policies.items() if policy.temperature is not None}
        return Sampling(
            self.train.temperature if temperature is None else temperature,
            top_p,
            self.engine.max_tokens,
            self.engine.call_timeout_s,
            self.engine.play_timeout_s,
            self.engine.front,
            own if temperature is None else {},
        )

    def inert(self) -> dict[str, dict[str, str]]:
        """Settings that other tables leave without effect, by table, each with why."""
        optimizers = {name: self.optimizer_of(name) for name in self.team.trained}
        bounds: dict[str, str] = {}
        once = all(optimizer.updates_per_step == 1 for optimizer in optimizers.values())
        fine = all((self.policies[name].dtype or self.train.dtype) == "float32" for name in optimizers)
        current = fine and self.engine.exact and not self.runtime.max_staleness
        if once and (current or self.loss.correction != "none"):
            reason = "optimizer.updates_per_step = 1 keeps the ratio at 1, which is never clipped"
            bounds = dict.fromkeys(self.loss.bounds, reason)
        mute: dict[str, str] = {}
        count = self.environment.count("validation")
        if len(self.team.roles) < 2:
            mute["mute_every"] = "a team of one has nobody to do without; set it to 0"
        elif count is not None and count < MUTE_TASKS:
            mute["mute_every"] = f"the validation split has {count} tasks, and {MUTE_TASKS} are needed; set it to 0"
        ends = {
            name: {"min_lr_share": "schedule = 'constant' never falls"} if optimizer.schedule == "constant" else {}
            for name, optimizer in optimizers.items()
        }
        own = (
            set.intersection(*(set(self.policies[name].optimizer) for name in self.team.trained))
            if optimizers
            else set()
        )
        shared = {"min_lr_share": "schedule = 'constant' never falls"} if all(ends.values()) else {}
        shared |= dict.fromkeys(own, "every policy has one of its own")
        mine = {f"policies.{name}.optimizer": inert for name, inert in ends.items()}
        if self.train.ranks > 1:
            placed = {"device": f"train.ranks = {self.train.ranks} puts a part of it on every rank's device"}
            mine |= {f"policies.{name}": placed for name in self.team.trained}
        return {"loss": bounds, "train": mute, "optimizer": shared, **mine}


def _effective(settings: Settings, inert: Mapping[str, str] | None = None) -> dict[str, Any]:
    left_out = {**settings.inert(), **(inert or {})}
    return {key: value for key, value in settings.model_dump(mode="json").items() if key not in left_out}
