"""The settings of a run: one class for each table of a config, and `Config`, the whole resolved config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from coterie.config.toml import to_toml
from coterie.engines.remote_config import RemoteConfig
from coterie.kernel.algorithm import Algorithm
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
"""Kinds of policies that learn nothing."""
DType = Literal["float32", "bfloat16"]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]
COLDEST = 0.01
"""Minimum temperature: float32 holds logits divided by it, and one token has all the probability long before."""
SHARED = "team"
"""Name of the policy that plays every role where the config names none."""


class LoraConfig(Settings):
    """An adapter, `[policies.NAME.lora]`: W x + (alpha / rank) B A x in place of W x, where A and B are trained."""

    rank: int = Field(default=32, ge=1, le=8192)
    """LoRA rank r: the rows of A and the columns of B."""
    alpha: float = Field(default=32.0, gt=0)
    """The output of the adapter is multiplied by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Names of the adapted layers, such as q_proj. Empty: every linear layer except the output layer."""


class PastConfig(Settings):
    """Pool of earlier versions of another policy of the run, `[policies.NAME.past]`; each step's rollout meets one."""

    every: int = Field(default=10, ge=1)
    """Steps between two snapshots in the pool. The first one is the start."""
    keep: int = Field(default=8, ge=1)
    """Number of latest snapshots in the pool. One of them is drawn for every step."""


class PolicyConfig(Settings):
    """A policy, `[policies.NAME]`, which plays one role or several."""

    kind: Kind = "full"
    """full: all weights belong to this policy and are trained. lora: an adapter is trained; its base may be shared with
    other policies. frozen: nothing is trained (an opponent, a judge, or an earlier version of a role). past: an earlier
    version of a trained policy of this run, drawn anew for every step; not trained. remote: a model on a server."""
    model: str
    """A shipped starter, a model folder, a Hugging Face id of a causal language model, or a policy of another run:
    RUN#STEP/POLICY for a step, RUN/POLICY for the best checkpoint by validation. If missing: the environment's starter.
    For remote: the server's name of the model. For past: the name of the policy, such as team."""
    chat_template: str = ""
    """File with a chat template (Jinja) that replaces the tokenizer's."""
    template: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Variables of the chat template, such as enable_thinking."""
    thinking: Thinking = "keep"
    """keep: a role's prompts contain its earlier replies as sampled, including the thinking text. strip: the text
    before </think> is removed, as templates of thinking models do. Prompts are then shorter, but earlier replies are
    tokenized again at every turn."""
    system: System = "own"
    """own: a system message stays a separate message. fold: it is put at the start of the first user message, for
    templates without a system role."""
    system_text: str | None = None
    """Text of a system message before every prompt that has none. none: what the chat template puts there by itself;
    SmolLM2's, for example, says that the model is a helpful assistant, in 20 tokens. "": an empty system message."""
    device: Device | None = None
    """Device of the weights. Same values as train.device, which is the default."""
    dtype: DType | None = None
    """Data type in which the network computes. Default: train.dtype."""
    temperature: float | None = Field(default=None, ge=COLDEST)
    """Sampling temperature in training. Default: train.temperature."""
    optimizer: dict[str, Any] = Field(default_factory=dict)
    """Settings that override [optimizer] for this policy, as a table [policies.NAME.optimizer]."""
    lora: LoraConfig = LoraConfig()
    """Settings of an adapter, as a table [policies.NAME.lora]."""
    past: PastConfig = PastConfig()
    """Settings of the pool of earlier versions of a policy, as a table [policies.NAME.past]."""
    remote: RemoteConfig = RemoteConfig()
    """Settings of a server, as a table [policies.NAME.remote]."""

    def inert(self) -> dict[str, str]:
        """Returns the settings that only other kinds of policies use, each with the reason why it has no effect."""
        reasons: dict[str, str] = {}
        if self.kind != "lora":
            reasons["lora"] = f"kind = '{self.kind}' has no adapter"
        if self.kind != "past":
            reasons["past"] = f"kind = '{self.kind}' is nobody's past"
        else:
            own = ("chat_template", "template", "thinking", "system", "system_text", "device", "dtype")
            reasons |= dict.fromkeys(own, "it is as the policy whose past it is")
        if self.kind in UNTRAINED:
            reasons["optimizer"] = f"kind = '{self.kind}' is never trained"
        if self.kind != "remote":
            return reasons | {"remote": f"kind = '{self.kind}' has no server"}
        return reasons | dict.fromkeys(("chat_template", "template", "device", "dtype"), "the server has its own")


class TrainConfig(Settings):
    """Settings of a run's training, `[train]`."""

    seed: int = Field(default=0, ge=0)
    """Random seed of tasks and samples. Runs with the same seed are equal under the conditions in docs/concepts.md."""
    steps: int = Field(default=120, ge=1)
    """Number of training steps. A step is one rollout and the updates on it (`optimizer.updates_per_step`)."""
    max_sampled_tokens: int | None = Field(default=None, ge=1)
    """Budget of sampled tokens, for comparisons at equal cost. Training ends after the step that reaches it, or after
    train.steps. The schedule of the learning rate follows whichever of the two is further. Default: no budget."""
    stop_when_solved: float | None = Field(default=None, gt=0, le=1)
    """Training ends when two validations in a row have at least this success, 0 to 1. Default: it makes all steps."""
    stop_dead_steps: int | None = Field(default=None, ge=1)
    """Training ends after so many steps in a row in which no group had different returns, since nothing is learned from
    them. Default: it makes all steps."""
    tasks_per_step: int = Field(default=16, ge=1)
    """Number of tasks per rollout."""
    temperature: float = Field(default=1.0, ge=COLDEST)
    """Temperature of sampling and of the learner's log-probabilities."""
    device: Device = "auto"
    """auto: the first available of cuda, mps and cpu. cuda:1: the second GPU."""
    ranks: int = Field(default=1, ge=1, le=1024)
    """Number of processes that train together with FSDP2. Each holds a shard of every trained weight; on CUDA each has
    its own GPU. 1: one process trains with whole weights."""
    deterministic: bool = True
    """Use only deterministic kernels. Exact resume needs them. A model is refused if it needs a kernel that has no
    deterministic version."""
    dtype: DType | Literal["auto"] = "float32"
    """Data type in which networks compute. Trained weights are always float32. auto: the faster type on train.device;
    it is measured at the start of the run and saved in the config. Small networks on a CPU use float32."""
    eval_every: int = Field(default=20, ge=1)
    """Steps between validations; validation chooses the best checkpoint."""
    eval_tasks: int = Field(default=400, ge=1)
    """Validation tasks, always the same."""
    mute_every: int = Field(default=5, ge=0)
    """Number of validations between two mute probes; there is one too where a run ends early. A probe mutes each
    role to find roles that do not contribute. 0: never."""
    mute_tasks: int = Field(default=500, ge=1)
    """Validation tasks of a mute probe. The default is lowered to as many as there are."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Steps between checkpoints."""
    checkpoint_minutes: float = Field(default=10.0, gt=0)
    """Minutes after which the next step ends with a checkpoint, whatever checkpoint_every says."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Number of latest checkpoints to keep, in addition to the start and the best. If the best is older than these, it
    keeps no optimizers."""
    grace_s: float = Field(default=5.0, ge=0)
    """Seconds that a step may continue after SIGTERM, SIGUSR1 or SIGHUP. Then it is abandoned and the run is saved."""
    episodes_every: int = Field(default=20, ge=1)
    """Steps between saved rollouts; the first and the last are always saved."""
    max_mismatch: float = Field(default=0.3, gt=0)
    """Maximum mean difference between the log-probabilities of engine and learner in a step, in nats. Above it, the run
    stops."""
    max_dropped_share: float = Field(default=0.2, ge=0, le=1)
    """Maximum share of a step's tasks that may be lost to infrastructure faults. Above it, the run stops."""


class RuntimeConfig(Settings):
    """Settings of the processes and machines that execute the parts of a run, `[runtime]`."""

    name: Literal["local", "ray"] = "local"
    """local: everything runs in this process, except the ranks. ray: engines, learners and environments run as
    processes of a Ray cluster."""
    address: str = ""
    """Address of a running Ray cluster, such as 10.0.0.1:6379. Empty: the run starts and ends one here."""
    engines: int = Field(default=1, ge=1, le=1024)
    """Number of engines per pool. A pool is one policy, or all adapters on one base."""
    workers: int = Field(default=1, ge=1, le=1024)
    """Number of processes that play environments. Each plays a share of a rollout's tasks."""
    max_staleness: int = Field(default=0, ge=0, le=64)
    """Maximum number of training steps by which the sampling weights may lag behind the learner. This many rollouts are
    played ahead. 0: rollout and training alternate."""
    cpus: int = Field(default=1, ge=1, le=1024)
    """Number of CPUs, and of compute threads, per engine and per rank."""
    engine_gpus: float = Field(default=1.0, gt=0, le=1)
    """Share of a GPU per engine, if there are GPUs."""
    rank_gpus: float = Field(default=1.0, gt=0, le=1)
    """Share of a GPU per rank of a learner, if there are GPUs."""
    answer_minutes: float = Field(default=60.0, gt=0)
    """Minutes that one answer of an engine, or one update of a rank, may take. What takes longer hangs: it is killed,
    and its work is done again."""

    def inert(self) -> dict[str, str]:
        """Returns the settings that one process has no use for, if they are not the defaults, each with the reason."""
        if self.name == "ray":
            return {}
        known = type(self).model_fields
        asked = (key for key in known if key != "name" and getattr(self, key) != known[key].default)
        return dict.fromkeys(asked, "runtime.name = 'local' has one process")


class EvalConfig(Settings):
    """Settings of `coterie eval` and of the final test, `[eval]`."""

    tasks: int = Field(default=1000, ge=1)
    """Number of held-out tasks. They are always the same tasks."""
    temperature: float = Field(default=1.0, ge=COLDEST)
    """Sampling temperature of `coterie eval RUN` with `--sampled` or `--votes`. Evaluation is greedy otherwise. Configs
    are sampled as in training."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling probability (top-p) of `coterie eval RUN` with `--sampled` or `--votes`."""


class SFTConfig(Settings):
    """Settings of `coterie sft`, which trains a starter model."""

    steps: int = Field(default=1000, ge=1)
    """Optimizer steps."""
    tasks_per_step: int = Field(default=32, ge=1)
    """Number of training tasks whose demonstrations form one batch."""
    lr: float = Field(default=3e-3, gt=0)
    """Peak learning rate. It rises over the first 50 steps (a quarter of the steps if that is less) and then falls
    linearly to 0."""
    seed: int = Field(default=0, ge=0)
    """Random seed of initial weights, tasks and demonstrations."""
    hidden_size: int = Field(default=128, ge=8)
    """Width of a new model."""
    layers: int = Field(default=4, ge=1)
    """Layers of a new model."""
    heads: int = Field(default=4, ge=1)
    """Attention heads of a new model."""
    vocabulary: int = Field(default=512, ge=260)
    """Maximum vocabulary size of a new tokenizer."""
    context: int = Field(default=1024, ge=16)
    """Context length of a new model, in tokens."""
    dtype: DType = "bfloat16"
    """Data type of the computation. Weights are float32."""


@dataclass(frozen=True, slots=True)
class Config:
    """The resolved config of a run.

    trackers: the settings of each tracker, by its name in this config. names: for each table with a `name`, the name as
    it was written. remarks: notes for the user, one line each. chosen: defaults that fit what is trained, each with its
    reason, one line each. origins: who set a setting, by its path; one that is not there has its class's default.
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
    chosen: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def tables(self) -> dict[str, dict[str, Any]]:
        """Returns all resolved settings as plain data, without those that have no effect."""
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
        """Returns the resolved config as a TOML file that gives the same run."""
        return to_toml(self.tables())

    def explained(self) -> str:
        """Returns the same file, with a comment behind each value that is no default of its class: who set it."""
        return to_toml(self.tables(), origins=self.origins)

    def servers(self) -> Iterator[str]:
        """Yields a line for each server that will be asked, with the variable whose key it is sent."""
        asked = {
            f"policy '{name}' is played by": (policy.remote.url, policy.remote.key_variable)
            for name, policy in self.policies.items()
            if policy.kind == "remote"
        }
        engine = self.engine.model_dump(include={"url", "key_variable"})
        asked["vLLM is asked at"] = engine.get("url", ""), engine.get("key_variable", "")
        for what, (url, variable) in asked.items():
            if url:
                yield f"{what} {url}" + (f", with the key in {variable}" if variable else "")

    def optimizer_of(self, policy: str) -> OptimizerConfig:
        """Returns the optimizer settings of a policy: those of `[optimizer]`, and its own in place of them."""
        own = self.policies[policy].optimizer
        return (
            OptimizerConfig.model_validate({**self.optimizer.model_dump(exclude_unset=True), **own})
            if own
            else self.optimizer
        )

    def sampling(self, temperature: float | None = None, top_p: float = 1.0) -> Sampling:
        """Returns the sampling settings of this run. temperature: None: as in training, each policy at its own."""
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
        """Returns the settings that others leave without effect, by table, each with the reason."""
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
        elif count is not None and count < self.train.mute_tasks:
            mute["mute_every"] = (
                f"the validation split has {count} tasks, and {self.train.mute_tasks} are needed; set it to 0"
            )
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
