"""Several processes that train together, each holding a part of every weight (FSDP2): `Ranks` for torch.distributed.

It uses gloo on CPUs and nccl on GPUs. Each rank has the same experience and computes some of the micro-batches.
Gradients are summed. So the result equals that of one process, up to the order of additions.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from coterie.learning.batch import Pack
from coterie.learning.ranks import RATE, Ranks
from coterie.models.load import Model, layers_of

T = TypeVar("T")


class Sharded(Ranks):
    """One rank of several. Made once a process; all of them have to be made at the same time.

    Args:
        rank, size: which of how many.
        meet: where they meet: file:// and a file that does not exist yet, in a folder that all of them see; or
            tcp://HOST:PORT, of the first.
        device: cpu or cuda; on cuda a rank takes the current GPU of its process.
        timeout_s: how long a rank waits for another before it ends with an error.
    """

    def __init__(self, rank: int, size: int, meet: str, *, device: str, timeout_s: float) -> None:
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(
            backend,
            init_method=meet,
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=timeout_s),
        )
        self.rank, self.size = rank, size
        self._mesh = init_device_mesh(device, (size,))

    def shard(self, model: Model) -> None:
        """Leaves this rank its part of a model's weights: layer by layer, and of what is outside the layers."""
        if isinstance(model.net, FSDPModule):  # the base of several adapters, as their reference
            return
        after = None if model.trained else True  # without a backward pass they would stay whole after the forward
        for part in (*layers_of(model.net), model.net):
            sharded: Any = fully_shard(part, mesh=self._mesh, reshard_after_forward=after)
            assert isinstance(sharded, FSDPModule)
            sharded.set_gradient_divide_factor(1.0)  # gradients are sums: rows have their weights already
            sharded.set_force_sum_reduction_for_comms(True)  # gloo cannot divide on the way

    def mine(self, batches: Sequence[list[Pack]]) -> Iterator[tuple[list[Pack], bool]]:
        """Yields every size-th micro-batch. A rank that would have one less repeats the first; that does not count.

        Otherwise the other ranks would wait for it for ever.
        """
        for start in range(0, len(batches), self.size):
            there = start + self.rank < len(batches)
            yield batches[start + self.rank if there else 0], there

    def gathered(self, part: T) -> list[T]:
        """Returns the results of all ranks, in their order."""
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, part)
        return parts

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a whole tensor of which each rank holds a part: all of them have to ask."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def kept(self, weights: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Returns whole weights on the first rank, on its CPU, gathered one after another: all ranks have to ask."""
        kept: dict[str, torch.Tensor] = {}
        for name, weight in weights.items():
            whole = self.whole(weight.detach())
            if self.rank == 0:
                kept[name] = whole.cpu()
        return kept

    def save(self, optimizer: torch.optim.Optimizer, path: Path) -> None:
        """Writes an optimizer's state into a folder, each rank its part."""
        path.mkdir(exist_ok=True)
        state = optimizer.state_dict()
        parts = {
            f"{at}.{name}": (value.to_local() if isinstance(value, DTensor) else value).contiguous()
            for at, entries in state["state"].items()
            for name, value in entries.items()
        }
        rate = {RATE: repr(state["param_groups"][0]["lr"])}
        save_file(parts, path / f"{self.rank:05d}.safetensors", rate)

    def part(self, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Returns this rank's part of an optimizer value; one of another shape, such as a step count, is whole."""
        if not isinstance(weight, DTensor) or value.shape != weight.shape:
            return value
        return distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements)
