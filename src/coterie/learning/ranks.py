"""The interface to the processes that train one team. This module has the case of one process; `fsdp.py` has several.

The gradient does not depend on the number of processes: rows get their weights before they are distributed, and
gradients are summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open

from coterie.learning.batch import Pack
from coterie.models.load import Model

T = TypeVar("T")
RATE = "lr"
"""Key of the latest learning rate in the metadata of a rank's optimizer file."""


class Ranks:
    """The processes that train together; here one alone, whose part is the whole.

    rank, size: which of how many.
    """

    rank, size = 0, 1

    def shard(self, model: Model) -> None:
        """Leaves this rank its part of a model's weights; called before an optimizer is made of them."""

    def mine(self, batches: Sequence[list[Pack]]) -> Iterator[tuple[list[Pack], bool]]:
        """Yields a rank's own micro-batches, as many as every other has, each with False if it only fills a gap."""
        for batch in batches:
            yield batch, True

    def gathered(self, part: T) -> list[T]:
        """Returns the results of all ranks, in their order."""
        return [part]

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a whole tensor of which each rank may hold a part."""
        return tensor

    def kept(self, weights: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Returns whole weights, by name, where this rank is the one that writes them; else none."""
        return weights

    def save(self, optimizer: torch.optim.Optimizer, path: Path) -> None:
        """Writes an optimizer's state: here to PATH.pt; where there are several ranks, each its part into a folder."""
        torch.save(optimizer.state_dict(), _whole_file(path))

    def load(self, optimizer: torch.optim.Optimizer, path: Path) -> None:
        """Loads an optimizer's state, however many ranks have written it and however many there are now.

        Args:
            path: as it was given to `save`.
        """
        rate, found = _read_parts(path) if path.is_dir() else _read_whole(_whole_file(path))
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        state: dict[int, dict[str, torch.Tensor]] = {}
        for at, name, value in found:
            state.setdefault(at, {})[name] = self.part(value, weights[at])
        groups = [{**group, "lr": rate} for group in optimizer.state_dict()["param_groups"]]
        optimizer.load_state_dict({"state": state, "param_groups": groups})

    def part(self, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Returns the part that this rank holds of a value that an optimizer keeps for a weight."""
        return value


def _whole_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.pt")


Values = Iterator[tuple[int, str, torch.Tensor]]
"""The values that an optimizer keeps: index of the weight, name of the value, and the value."""


def _read_whole(file: Path) -> tuple[float, Values]:
    """Returns the learning rate of the latest step, and all values, of an optimizer's file."""
    saved = torch.load(file, weights_only=True, map_location="cpu")
    values = ((at, name, value) for at, entries in saved["state"].items() for name, value in entries.items())
    return saved["param_groups"][0]["lr"], values


def _read_parts(folder: Path) -> tuple[float, Values]:
    """Returns the learning rate of the latest step, and all values, of an optimizer's folder."""
    files = sorted(folder.glob("*.safetensors"))
    with safe_open(files[0], "pt") as first:
        return float(first.metadata()[RATE]), _put_together(files)


def _put_together(files: Sequence[Path]) -> Values:
    """Joins the parts of each value in the order of ranks. A value without dimensions is the same on all ranks."""
    with ExitStack() as opened:
        parts = [opened.enter_context(safe_open(file, "pt")) for file in files]
        for key in parts[0].keys():  # noqa: SIM118 no mapping
            at, name = key.split(".")
            values = [part.get_tensor(key) for part in parts]
            yield int(at), name, torch.cat(values) if values[0].dim() else values[0]
