"""Predicts memory by kind and time of a run before it starts, per policy and in total, from tensor shapes only.

The sampling and learning code is run on tensors without data, and the created tensors are counted. So features of a
model family, packs, checkpointing and adapters are counted correctly, and the model need not fit on this machine.
Temporary memory of kernels and other use of the device are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from coterie.checks.machines import Machine, here
from coterie.config.settings import Config
from coterie.errors import ConfigError
from coterie.installed import starters
from coterie.kernel.engine import Engine
from coterie.learning.policy import Policy
from coterie.models.adapters import Adapted
from coterie.models.lean import LARGE
from coterie.models.load import layers_of
from coterie.models.memory import GIB
from coterie.models.shapes import Shapes
from coterie.registry import find
from coterie.run.asked import Requests, asked_by
from coterie.run.measured import KEPT, Measured, Share
from coterie.run.past import whose
from coterie.run.policies import Policies, pick_device
from coterie.run.pools import pools_of
from coterie.run.precision import precise

CONTEXT = 0.7 * GIB
"""Bytes of a CUDA device that its driver takes for a process, which no allocator sees."""
SPACES, GRAPHS = 0.36 * GIB, 0.38 * GIB
"""Bytes of a CUDA device that libraries set aside for their products, and that recorded graphs of a network keep beside
it; fitted to networks of 27 million parameters on an H200."""
LATER, KERNELS = 0.12 * GIB, 0.15 * GIB
"""Bytes of a processor's memory that libraries take once they compute, and keep of bfloat16 kernels for shapes they
met, where they have such kernels: with AVX-512."""
SLACK = {"cuda": {"full": 0.1, "lora": 0.1}, "cpu": {"full": 0.2, "lora": 0.7}, "mps": {"full": 0.2, "lora": 0.7}}
"""Share of passing memory that an allocator cannot give again, because what stays lies between, by kind of policy.

Of processors it is measured, `python -m benchmarks plan`: an adapter makes short-lived numbers beside each that stays.
"""
USABLE = 0.97
"""Share of a device's memory above which a run is refused."""
SMALL = 1 << 30
"""Bytes of a model's files up to which a run begins without a check that it fits."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Memory that one device is asked for. process: bytes that Python and its libraries take there."""

    machine: Machine
    device: str
    process: int
    shares: tuple[Share, ...]
    remarks: tuple[str, ...]

    @property
    def sampling(self) -> int:
        """Bytes that are taken while policies are sampled from, one after the other."""
        return self._whole(0, max(share.of("cache") * self._slack("full") for share in self.shares))

    @property
    def learning(self) -> int:
        """Bytes that are taken while policies learn: all gradients are there until all weights are moved."""
        gradients = sum(share.of("gradients") for share in self.shares)
        passing = [share.of("activations") * self._slack(share.kind) for share in self.shares]
        return self._whole(gradients, max(passing) + max(share.of("gathered") for share in self.shares))

    @property
    def peak(self) -> int:
        """Maximum number of bytes that are taken at one time."""
        return max(self.sampling, self.learning)

    @property
    def fits(self) -> bool:
        """True if the device has enough memory."""
        return self.peak <= USABLE * self.machine.memory

    def _slack(self, kind: str) -> float:
        return 1 + SLACK[self.machine.kind].get(kind, 0.0)

    def _whole(self, gradients: int, passing: float) -> int:
        return int(self.process + sum(share.of(*KEPT) for share in self.shares) + gradients + passing)


def plan(
    config: Config, machine: Machine | None = None, *, asked: Requests | None = None, process: int | None = None
) -> list[Plan]:
    """Returns plans of what a run takes of each device that its policies name.

    Args:
        machine: what every device is but the processor, which is this one's; None: this one's devices.
        asked: what a step asks; None: found out with roles that say nothing sensible, at full length.
        process: bytes that Python and its libraries take here; None: what they take now.

    Raises:
        ConfigError: a model's shape cannot be had, or there is no such device here.
    """
    config = precise(config, machine=None if config.train.device == "cpu" else machine)
    process = process_bytes() if process is None else process
    shapes, policies = _shaped(config)
    remarks = [
        f"{name} is played by a server, and takes nothing here"
        for name, policy in config.policies.items()
        if policy.kind == "remote"
    ]
    if config.memory.mode != "off":
        remarks.append("notes that roles are shown are not counted in their prompts")
    if unread := [name for name, policy in policies.items() if policy.tokenizer is None]:
        remarks.append(
            f"there is no tokenizer of {', '.join(unread)} here: three letters of a prompt are taken for a token"
        )
    if asked is None:
        asked = asked_by(config, policies, config.sampling())
        if asked.cut:
            remarks.append(
                "of an episode only what is asked before its first scene.call is known: nothing outside runs"
            )
        if not asked.waves:
            remarks.append("no role was asked anything, so that only weights and what training keeps are known")
    plans: list[Plan] = []
    for device, each in _devices(config, machine, shapes, policies, process, asked):
        shares = tuple(map(each.share, each.policies))
        whole = Plan(each.machine, device, each.process, shares, (*remarks, *each.remarks))
        if config.train.ranks > 1 or _on_gpus(config, whole):
            plans += _apart(config, whole, policies)
        elif config.runtime.name == "ray":
            said = "a cluster's parts share a processor's memory; this is one process that is all of them"
            plans.append(replace(whole, remarks=(*whole.remarks, said)))
        else:
            plans.append(whole)
    return plans


def _on_gpus(config: Config, whole: Plan) -> bool:
    """Returns True if a cluster's parts have GPUs of their own; on a processor they share its memory."""
    return config.runtime.name == "ray" and whole.machine.kind == "cuda"


def _apart(config: Config, whole: Plan, policies: Mapping[str, Policy]) -> Iterator[Plan]:
    """Yields plans of an engine and a rank of each pool, where they are apart; else of the run's process and a rank."""
    ranks, runtime = config.train.ranks, config.runtime
    by_name = {share.policy: share for share in whole.shares}
    if not _on_gpus(config, whole):
        both = tuple(_rank(share, ranks, policies, beside=True) for share in whole.shares)
        said = f"the run's process and one of its {ranks} ranks; another rank has no more than its part of the weights"
        yield replace(whole, shares=both, remarks=(*whole.remarks, said))
        return
    for pool in pools_of(config):
        title = ", ".join(pool.policies)
        apart = find("engine", config.names["engine"], Engine).apart
        engine = tuple(_engine(by_name[name], runtime.engines, policies[name], apart=apart) for name in pool.policies)
        room = replace(whole.machine, memory=int(whole.machine.memory * runtime.engine_gpus))
        yield replace(whole, machine=room, device=f"{runtime.engines} engines of {title}, each", shares=engine)
        if pool.trained:
            rank = tuple(_rank(by_name[name], ranks, policies) for name in pool.trained)
            room = replace(whole.machine, memory=int(whole.machine.memory * runtime.rank_gpus))
            yield replace(whole, machine=room, device=f"{ranks} ranks of {title}, each", shares=rank)


def _engine(share: Share, engines: int, policy: Policy, *, apart: bool) -> Share:
    """Returns a policy's part of an engine of its pool. apart: it has its own weights, the policy's are elsewhere."""
    memory = {kind: share.of(kind) for kind in ("weights", "copy", "cache")}
    if apart:
        memory |= {"weights": 0, "copy": share.of("weights") * policy.dtype.itemsize // 4 if share.kind == "full"
                   else share.of("weights")}  # fmt: skip
    return share.with_times(1 / engines, 0.0, trained=0, memory=memory)


def _rank(share: Share, ranks: int, policies: Mapping[str, Policy], *, beside: bool = False) -> Share:
    """Returns a policy's part of one of its pool's ranks. beside: the run's process is on the same device."""
    model = policies[share.policy].model
    base = model.base if isinstance(model, Adapted) else model
    memory = {kind: share.of(kind) // ranks for kind in ("reference", "averages", "gradients")}
    memory["activations"] = share.of("activations")
    size = share.of("weights")
    if ranks > 1:  # adapters on one base share it no longer
        size = sum(map(nbytes, model.net.parameters()))
        memory["gathered"] = gathered(base.net)
    memory["weights"] = size // ranks
    if beside:
        memory |= {"weights": share.of("weights") + size // ranks, "copy": share.of("copy"), "cache": share.of("cache")}
    return share.with_times(1.0 if beside else 0.0, 1 / ranks, memory=memory)


def gathered(net: torch.nn.Module) -> int:
    """Returns the bytes of weights that are whole for a moment on every rank: two layers, and all outside of layers."""
    layers = [sum(map(nbytes, part.parameters())) for part in layers_of(net)]
    whole = sum(map(nbytes, net.parameters()))
    return whole - sum(layers) + 2 * max(layers, default=0)


def nbytes(tensor: torch.Tensor) -> int:
    """Returns the bytes that a tensor's numbers take, wherever they are."""
    return tensor.numel() * tensor.itemsize


def process_bytes() -> int:
    """Returns the bytes of the machine's memory that this process takes now."""
    return psutil.Process().memory_info().rss


def check_fits(config: Config) -> None:
    """Refuses a run, before a large model is loaded, if its weights and what training keeps of them cannot fit.

    Raises:
        ConfigError: they cannot.
    """
    if config.train.ranks > 1 or config.runtime.name == "ray":  # it is for several devices, not all of them here
        return
    if all(policy.kind in ("past", "remote") or _small(policy.model) for policy in config.policies.values()):
        return
    process = process_bytes()
    for _, each in _devices(config, None, *_shaped(config), process, Requests(1)):
        taken = each.process + sum(sum(memory.values()) for memory in each.fixed.values())
        if taken > USABLE * each.machine.memory:
            raise ConfigError(
                f"weights, and what training keeps of them, take {taken / GIB:.1f} GiB, and {each.machine.name} has "
                f"{each.machine.memory / GIB:.1f}; what would fit is said by coterie plan"
            )


def check_planned(config: Config, plans: Sequence[Plan], machine: Machine | None = None) -> None:
    """Refuses a run that does not fit its devices, and says what would fit.

    Raises:
        ConfigError: a device has too little memory.
    """
    worst = max(plans, key=lambda plan: plan.peak / plan.machine.memory)
    if worst.fits:
        return
    tried = [(said, plan(changed, machine)) for said, changed in _changes(config)]
    fitting = [f"{said} ({_most(plans)})" for said, plans in tried if all(plan.fits for plan in plans)]
    fitting = fitting[:-1] or fitting  # all of them together is for where none does alone
    least, plans = min(tried, key=lambda one: max(plan.peak for plan in one[1]))
    raise ConfigError(
        f"{worst.machine.name} has {worst.machine.memory / GIB:.1f} GiB, and the run takes {worst.peak / GIB:.1f} at "
        f"its peak; "
        + (
            f"it fits with {', or '.join(fitting)}"
            if fitting
            else f"even {least} leaves {_most(plans)}: take smaller models, or put policies on several devices"
        )
    )


def _most(plans: Sequence[Plan]) -> str:
    return f"{max(plan.peak for plan in plans) / GIB:.1f} GiB"


def _changes(config: Config) -> Iterator[tuple[str, Config]]:
    """Yields changes that have a run take less memory, each alone and all together, with their names."""
    everything = config
    changes: tuple[tuple[str, Callable[[Config], Config]], ...] = (
        ("optimizer.checkpointing=true", with_optimizer("checkpointing", True)),
        ("optimizer.tokens_per_microbatch=1024", with_optimizer("tokens_per_microbatch", 1024)),
        ("policies.NAME.kind='lora' for every policy that is whole", _with_adapters),
    )
    for said, change in changes:
        changed = change(config)
        if changed != config:
            yield said, changed
        everything = change(everything)
    yield "all of these", everything


def with_optimizer(key: str, value: Any) -> Callable[[Config], Config]:
    """Returns a function that sets a setting of the optimizer of every policy."""

    def change(config: Config) -> Config:
        policies = {
            name: policy.model_copy(update={"optimizer": {**policy.optimizer, key: value}})
            for name, policy in config.policies.items()
        }
        return replace(config, policies=policies)

    return change


def _with_adapters(config: Config) -> Config:
    changed = {
        name: policy.model_copy(update={"kind": "lora"}) if policy.kind == "full" else policy
        for name, policy in config.policies.items()
    }
    return replace(config, policies=changed)


def _small(model: str) -> bool:
    """Returns True if a model is a starter or a folder of little weight."""
    return model in starters() or (
        Path(model).is_dir() and sum(file.stat().st_size for file in Path(model).glob("*.safetensors")) < SMALL
    )


def _shaped(config: Config) -> tuple[Shapes, dict[str, Policy]]:
    """Returns what computes with shapes, and the policies that have weights here, as shapes without numbers."""
    shapes = Shapes()
    load = Policies(config, shapes.load).load
    policies = {name: load(name, policy, "cpu") for name, policy in config.policies.items() if policy.kind != "remote"}
    for policy in policies.values():
        policy.model = shapes.counted(policy.model)
    return shapes, policies


def has_halves() -> bool:
    """Returns True if libraries have bfloat16 kernels for this processor; otherwise PyTorch's loops compute it."""
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001  (it has no other name)


def _devices(
    config: Config,
    machine: Machine | None,
    shapes: Shapes,
    policies: Mapping[str, Policy],
    process: int,
    asked: Requests,
) -> Iterator[tuple[str, Measured]]:
    """Yields each device of a run, with measurements of its policies."""
    devices: dict[str, dict[str, Policy]] = {}
    for name, policy in policies.items():
        wanted = config.policies[whose(name, config.policies[name])].device or config.train.device
        planned = machine is not None and wanted != "cpu"
        device = wanted.replace("auto", "cuda") if planned else pick_device(wanted)
        devices.setdefault("cuda:0" if device == "cuda" else device, {})[name] = policy
    for device, there in devices.items():
        on = here(device) if machine is None or (device == "cpu" and machine.kind != "cpu") else machine
        halves = any(policy.dtype == torch.bfloat16 for policy in there.values())
        if on.kind == "cuda":
            large = any(policy.model.size > LARGE for policy in there.values())
            taken = int(CONTEXT + SPACES + GRAPHS * (halves or large))  # others are decoded without
        else:
            taken = int(process + LATER + KERNELS * (has_halves() and halves))
        yield device, Measured(config, there, shapes, on, taken, asked)
