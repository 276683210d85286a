"""The processes that train one team together. Here: one, which is all of them; several are in `fsdp.py`.

What a gradient is does not depend on how many there are: rows have their weights before they are dealt out, and
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


class Ranks:
    """One process alone: its part is the whole."""

    def shard(self, model: Model) -> None:
        """Leaves this rank its part of a model's weights. Before an optimizer is made of them."""

    def mine(self, batches: Sequence[list[Pack]]) -> Iterator[tuple[list[Pack], bool]]:
        """A rank's own micro-batches, as many as every other has; and whether each counts, or fills a gap."""
        for batch in batches:
            yield batch, True

    def gathered(self, part: T) -> list[T]:
        """What every rank found, in their order."""
        return [part]

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of which each rank may hold a part."""
        return tensor

    def kept(self, weights: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Whole weights, by name, where this rank is the one that writes them; else none."""
        return weights

    def save(self, optimizer: torch.optim.Optimizer, path: Path) -> None:
        """Writes an optimizer's state: here to PATH.pt; where there are several ranks, each its part into a folder."""
        torch.save(optimizer.state_dict(), _whole_file(path))

    def load(self, optimizer: torch.optim.Optimizer, path: Path) -> None:
        """Takes an optimizer's state back, however many ranks have written it and however many there are now.

        Args:
            path: as it was given to `save`.
        """
        found = _read_parts(path) if path.is_dir() else _read_whole(_whole_file(path))
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        state: dict[int, dict[str, torch.Tensor]] = {}
        for at, name, value in found:
            state.setdefault(at, {})[name] = self.part(value, weights[at])
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def part(self, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """What a rank holds of what an optimizer keeps of a weight."""
        return value


def _whole_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.pt")


def _read_whole(file: Path) -> Iterator[tuple[int, str, torch.Tensor]]:
    """What an optimizer keeps of its weights: of which, under what name, and the value."""
    state = torch.load(file, weights_only=True, map_location="cpu")["state"]
    return ((at, name, value) for at, entries in state.items() for name, value in entries.items())


def _read_parts(folder: Path) -> Iterator[tuple[int, str, torch.Tensor]]:
    """The same from a folder: parts of a weight follow one another by rank; what has no size is everybody's."""
    with ExitStack() as opened:
        files = [opened.enter_context(safe_open(file, "pt")) for file in sorted(folder.glob("*.safetensors"))]
        for key in files[0].keys():  # noqa: SIM118 no mapping
            at, name = key.split(".")
            parts = [file.get_tensor(key) for file in files]
            yield int(at), name, torch.cat(parts) if parts[0].dim() else parts[0]
