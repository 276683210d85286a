"""Small networks of the usual shape, trained without their modules: see `models.lean`.

The operations between matrix products are fused: they save less for the backward pass, and read and write less memory,
than the library's single operations. `lent` lays out the weights once per optimizer step and returns their gradients at
the end of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import silu

from coterie.learning.masks import kinds_of
from coterie.models.lean import Attend, LeanWeights, Network, Operations, gated, inverse_norm, merged, turned_by, usual
from coterie.models.load import Model

LARGE = 8_000_000
"""Maximum number of parameters. In larger networks the matrix products take most of the time, and copies of the weights
would cost memory for little."""


class LeanForward:
    """A network's forward, with a gradient.

    Args:
        model: one that `can_lean`.
    """

    def __init__(self, model: Model) -> None:
        self._network = Network(model.net, model.finish, TRAINED)
        self._lent: LeanWeights | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lays the weights out once, for everything that is computed inside the `with` block.

        At its end, the gradients of all weights are in the network's parameters. The parameters must not change inside
        the block. Parameters that are used without a copy get their gradients at once.
        """
        with torch.enable_grad():
            own = merged(self._network.net)
        self._lent = own.mapped(_leaf)
        try:
            yield
            pairs = zip(own.tensors, self._lent.tensors, strict=True)
            moved = {tensor: leaf.grad for tensor, leaf in pairs if leaf is not tensor and leaf.grad is not None}
        finally:
            self._lent = None
        if moved:
            torch.autograd.backward(list(moved), list(moved.values()))

    @property
    def weights(self) -> LeanWeights:
        """Weights that are lent; outside of `lent`, those of the network, laid out for this one use."""
        return self._lent or merged(self._network.net)

    def states(
        self, weights: LeanWeights, ids: torch.Tensor, positions: torch.Tensor, attend: Attend, first: int
    ) -> torch.Tensor:
        """Returns the last hidden states, normed, (B (T - first), W), of the tokens from `first` on.

        Args:
            ids, positions: (B, T).
        """
        turns = self._network.turns(int(positions.max()) + 1)
        return self._network.through(weights, ids, turns[positions], attend, first)

    def logits(self, weights: LeanWeights, states: torch.Tensor) -> torch.Tensor:
        """Returns the logits of normed states, (..., V)."""
        return self._network.logits(weights, states)


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_leaf else tensor.detach().requires_grad_()


def can_lean(model: Model) -> bool:
    """Returns True if a network can be trained without its modules: all weights, which this process holds whole."""
    return (
        model.lean
        and model.packs
        and model.size <= LARGE
        and usual(model.net)
        and model.net.dtype == torch.float32
        and len(kinds_of(model.config)) == 1
        and len({weight.requires_grad for weight in model.net.parameters()}) == 1
        and all(type(weight) is torch.nn.Parameter for weight in model.net.parameters())
    )


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
        inverse = inverse_norm(states, least)
        found = states * inverse
        ctx.save_for_backward(found, inverse)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found, inverse = ctx.saved_tensors
        return _back(gradient, found, inverse, gradient * found), None


def _back(gradient: torch.Tensor, found: torch.Tensor, inverse: torch.Tensor, product: torch.Tensor) -> torch.Tensor:
    """Returns the gradient at x of y = x / rms(x), from that at y: (g - y mean(g y)) / rms. product: g y."""
    along = product.sum(dim=-1, keepdim=True)
    return torch.addcmul(gradient, found, along, value=-1 / found.shape[-1]).mul_(inverse)


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mixed: torch.Tensor, norms: torch.Tensor | None, least: torch.Tensor, turns: torch.Tensor, both: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        pairs, values = mixed[:, :, :both], mixed[:, :, both:].clone()
        if norms is None:
            ctx.save_for_backward(turns)
            return turned_by(pairs, turns), values
        inverse = inverse_norm(pairs, least)
        found = pairs * inverse
        ctx.save_for_backward(turns, found, inverse, norms)
        return turned_by(found * norms, turns), values

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, values: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        turns, *normed = ctx.saved_tensors
        gradient, norms = turned_by(gradient.contiguous(), turns.conj()), None
        if normed:
            found, inverse, weights = normed
            product = gradient * found
            norms = product.sum(dim=(0, 1))
            gradient = _back(gradient * weights, found, inverse, product.mul_(weights))
        return torch.cat([gradient, values], dim=2), norms, None, None, None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate_up)
        return gated(gate_up)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        found = torch.empty_like(gate_up)
        for_gate, for_up = found.chunk(2, dim=-1)
        torch.mul(silu(gate), gradient, out=for_up)
        torch.ops.aten.silu_backward.grad_input(gradient * up, gate, grad_input=for_gate)
        return found


TRAINED = Operations(_Normed.apply, _Turned.apply, _Gated.apply)  # pyright: ignore[reportArgumentType]
"""Operations with a gradient, for training."""
