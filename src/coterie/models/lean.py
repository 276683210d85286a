"""Networks of the usual shape, computed without their modules.

The time of a small network is mostly call overhead: some hundred operations on a few numbers each. Networks like Llama
and Qwen need only a dozen operations per layer after three changes: projections with the same input are merged, norm
weights are folded into the next projection, and RoPE rotates neighbouring numbers as complex numbers. `merged` converts
the weights of a network; `through` computes with them. The engine (`engines.lean`) and the learner (`learning.lean`)
use both.

`usual` says which networks have this shape. As for all networks, a test at load checks that the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch.nn.functional import embedding, linear, silu
from transformers import PreTrainedModel

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""A function from a layer, queries (B, Q, H, D), keys and values (B, T, G, D), to what is attended, (B, Q, H, D)."""

LAYERS = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer"}
"""Classes of layers whose operations are those here."""
LARGE = 50_000_000
"""Maximum number of parameters of a network whose step is mostly the time of its calls."""
STATIC = {"default", "linear", "llama3", "yarn"}
"""Kinds of RoPE whose angles do not depend on how long a sequence has become."""


def usual(net: PreTrainedModel) -> bool:
    """Returns True if a network has the usual shape and its weights are here; how far tokens look back is not asked."""
    config: Any = net.config
    base: Any = net.base_model
    return (
        net.device.type != "meta"
        and usual_layers(net)
        and config.hidden_act == "silu"
        and 2 * len(base.rotary_emb.inv_freq) == base.layers[0].self_attn.head_dim
    )


def usual_layers(net: PreTrainedModel) -> bool:
    """Returns True if a network's layers are Llama's, Mistral's or Qwen's usual ones."""
    base: Any = net.base_model
    layers = getattr(base, "layers", ())
    kinds = {type(layer).__name__ for layer in layers}
    return len(layers) > 0 and kinds <= LAYERS and base.rotary_emb.rope_type in STATIC


@dataclass(frozen=True, slots=True)
class Product:
    """A linear layer: its weight (O, I), its bias (O,) if it has one, and an adapter that is not part of the weight.

    first: (R, I), second: (O, R): the adapter adds second first x, with its scale in `second`; None: there is none.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    first: torch.Tensor | None = None
    second: torch.Tensor | None = None

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the output (..., O) for states (..., I), in their type, computed in the type of the weight."""
        read = states.to(self.weight.dtype)
        found = linear(read, self.weight, self.bias).to(states.dtype)
        if self.first is not None and self.second is not None:
            found += linear(linear(read, self.first), self.second)  # in the type of the states, or rounding eats it
        return found

    def added(self, hidden: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Returns hidden (N, O) and this layer's output for states (N, I), added up."""
        if self.weight.dtype != states.dtype or self.first is not None:
            return hidden + self(states)
        hidden = torch.addmm(hidden, states, self.weight.t())
        return hidden if self.bias is None else hidden + self.bias


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's weights, of H heads of D numbers, G of them for keys and values.

    qkv: ((H + 2 G) D, W), with the weight of the norm before it. norms: (H + G, D), of queries and keys, None where
    they have none. out: (W, H D). gate_up: (2 I, W), with its norm's. down: (W, I).
    """

    qkv: Product
    norms: torch.Tensor | None
    out: Product
    gate_up: Product
    down: Product


@dataclass(frozen=True, slots=True)
class LeanWeights:
    """A network's weights. words: (V, W), of its embedding. head: (V, W), with the last norm's."""

    words: torch.Tensor
    layers: tuple[Layer, ...]
    head: Product

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> LeanWeights:
        """Returns the same weights, each tensor changed."""
        return _mapped(self, change)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors of the weights."""
        found = list[torch.Tensor]()
        self.mapped(lambda tensor: found.append(tensor) or tensor)
        return found


Part = TypeVar("Part")


def _mapped(part: Part, change: Callable[[torch.Tensor], torch.Tensor]) -> Part:
    """Returns the same record, tuple or tensor, each tensor in it changed."""
    if isinstance(part, torch.Tensor):
        return change(part)  # pyright: ignore[reportReturnType]
    if isinstance(part, tuple):
        return tuple(_mapped(inner, change) for inner in part)  # pyright: ignore[reportReturnType]
    if isinstance(part, LeanWeights | Layer | Product):
        inside = {field.name: _mapped(getattr(part, field.name), change) for field in fields(part)}
        return replace(part, **inside)
    return part


Change = Callable[[torch.Tensor], torch.Tensor]
Bases = dict[int, torch.Tensor]
"""Weights of frozen networks as they are laid out, by the id of the weight that they begin with."""


def merged(
    net: PreTrainedModel, lay: Change | None = None, head: Change | None = None, bases: Bases | None = None
) -> LeanWeights:
    """Returns the weights of a network that is `usual`, laid out for `through`; differentiable.

    Args:
        lay: how a layer's weight is kept, such as in another type; what is beside it is kept in the same type.
        head: the same for the output layer.
        bases: adapters stay beside the weights that they add to, and frozen weights are laid out once for all networks
            that are given the same bases. None: adapters are part of the weights, which in bfloat16 would round most of
            what an adapter adds away.
    """
    base: Any = net.base_model
    out: Any = net.get_output_embeddings()
    layers = tuple(_layer(layer, lay or _as_is, bases) for layer in base.layers)
    words, head = base.embed_tokens.weight, head or _as_is
    return LeanWeights(head(words), layers, _joined(base.norm.weight, ((out, _as_is),), head, bases))


def _layer(layer: Any, lay: Change, bases: Bases | None) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    dim, scale = attention.head_dim, float(attention.scaling)

    def turned(weight: torch.Tensor) -> torch.Tensor:
        """Reorders a weight, (heads x D, ...): the pairs that RoPE turns become neighbours."""
        return weight.unflatten(0, (-1, 2, dim // 2)).transpose(1, 2).flatten(0, 2)

    def scaled(weight: torch.Tensor) -> torch.Tensor:
        return turned(weight) * scale

    def joined(norm: torch.Tensor | None, *parts: tuple[Any, Change]) -> Product:
        return _joined(norm, parts, lay, bases)

    norms, query = None, scaled
    if hasattr(attention, "q_norm"):
        heads, groups = (len(_base(part).weight) // dim for part in (attention.q_proj, attention.k_proj))
        norms = torch.cat([
            scaled(attention.q_norm.weight.float()).expand(heads, -1),
            turned(attention.k_norm.weight.float()).expand(groups, -1),
        ])  # fmt: skip
        query = turned
    return Layer(
        qkv=joined(
            layer.input_layernorm.weight,
            (attention.q_proj, query),
            (attention.k_proj, turned),
            (attention.v_proj, _as_is),
        ),
        norms=norms,
        out=joined(None, (attention.o_proj, _as_is)),
        gate_up=joined(layer.post_attention_layernorm.weight, (mlp.gate_proj, _as_is), (mlp.up_proj, _as_is)),
        down=joined(None, (mlp.down_proj, _as_is)),
    )


def _as_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _joined(
    norm: torch.Tensor | None, parts: Sequence[tuple[Any, Change]], lay: Change, bases: Bases | None
) -> Product:
    """Puts projections of one input below one another, with the weights of the norm before them (W,), if there is one.

    Args:
        parts: each projection, and how its rows are changed.
    """
    norm = None if norm is None else norm.float()
    begin = _base(parts[0][0]).weight
    weight = None if bases is None or begin.requires_grad else bases.get(id(begin))
    if weight is None:
        weights = [change(_weight(part, apart=bases is not None)) for part, change in parts]
        weight = lay(weights[0] if norm is None else _scaled(norm, *weights))
        if bases is not None and not begin.requires_grad:
            bases[id(begin)] = weight
    biases = [change(bias) for part, change in parts if (bias := _base(part).bias) is not None]
    bias = torch.cat(biases).to(weight.dtype) if len(biases) > 1 else biases[0].to(weight.dtype) if biases else None
    adapters = [_adapter(part, change) for part, change in parts] if bases is not None else []
    if not any(adapters):
        return Product(weight, bias)
    firsts = [adapter[0] for adapter in adapters if adapter]
    seconds = [
        adapter[1] if adapter else torch.empty(len(_base(part).weight), 0, device=weight.device)
        for adapter, (part, _) in zip(adapters, parts, strict=True)
    ]
    first = torch.cat(firsts) if norm is None else _scaled(norm, *firsts)
    return Product(weight, bias, first.to(weight.dtype), torch.block_diag(*seconds).to(weight.dtype))


def _adapter(part: Any, change: Change) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Returns a projection's adapters beside one another, (R, I) and (O, R) with their scale; None: it has none."""
    names = part.active_adapters if hasattr(part, "lora_A") else ()
    if not names:
        return None
    second = [change(part.lora_B[name].weight) * part.scaling[name] for name in names]
    return torch.cat([part.lora_A[name].weight for name in names]), torch.cat(second, dim=1)


def _scaled(norm: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Puts weights (each O, W) below one another, times those of the norm (W,) that comes before them."""
    return _Scaled.apply(norm, *weights)  # pyright: ignore[reportReturnType]


class _Scaled(torch.autograd.Function):
    """The function behind `_scaled`, in one reading of the weights, with its gradient in two."""

    @staticmethod
    def forward(ctx: Any, norm: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(norm, *weights)
        found = norm.new_empty(sum(map(len, weights)), len(norm))
        for weight, part in zip(weights, found.split([len(weight) for weight in weights]), strict=True):
            torch.mul(weight, norm, out=part)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        norm, *weights = ctx.saved_tensors
        parts = gradient.split([len(weight) for weight in weights])
        products = [(part * weight).sum(dim=0) for part, weight in zip(parts, weights, strict=True)]
        return torch.stack(products).sum(dim=0), *(part * norm for part in parts)


def _base(part: Any) -> Any:
    """Returns the linear layer itself, also where an adapter is around it."""
    return part.base_layer if hasattr(part, "base_layer") else part


def _weight(part: Any, *, apart: bool) -> torch.Tensor:
    """Returns a projection's weights, with what its adapter adds unless that stays apart."""
    weight = _base(part).weight
    if apart or not hasattr(part, "get_delta_weight"):
        return weight
    return weight + sum(part.get_delta_weight(name) for name in part.active_adapters)


class Operations(NamedTuple):
    """The operations between products of matrices.

    normed: states (..., W) and what is added to their mean square, to states of mean square 1. turned: queries, keys
    and values side by side (B, T, H + 2 G, D), weights of norms (H + G, D) or None, that addend, the turns (B, T, 1,
    D / 2) or what spreads to that, and H + G, to queries and keys (B, T, H + G, D), normed and turned, and values (B,
    T, G, D). gated: gate and up side by side (..., 2 I), to SwiGLU (..., I).
    """

    normed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    turned: Callable[
        [torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]
    ]
    gated: Callable[[torch.Tensor], torch.Tensor]


def normed(states: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Returns states with mean square 1, see Operations."""
    return states * inverse_norm(states, least)


def inverse_norm(states: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Returns 1 / sqrt(mean square + least) of (..., W), (..., 1)."""
    norms = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
    return torch.addcmul(least, norms, norms, value=1 / states.shape[-1]).rsqrt_()


def turned(
    mixed: torch.Tensor, norms: torch.Tensor | None, least: torch.Tensor, turns: torch.Tensor, both: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns queries and keys, normed and turned, and values, see Operations."""
    pairs, values = mixed[:, :, :both], mixed[:, :, both:]
    if norms is not None:
        pairs = normed(pairs, least) * norms
    return turned_by(pairs, turns), values


def turned_by(pairs: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turns neighbouring numbers (..., D) as complex ones, by (..., D / 2)."""
    return torch.view_as_real(torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * turns).flatten(-2)


def gated(gate_up: torch.Tensor) -> torch.Tensor:
    """Returns SwiGLU of gate and up, see Operations."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate).mul_(up)


DECODED = Operations(normed, turned, gated)
"""Operations without a gradient, for decoding."""


class Network:
    """The computation of a network of the usual shape, whatever its weights are.

    Args:
        net: one that is `usual`.
        finish: what it does to its logits after the output layer.
        operations: between products of matrices.
    """

    def __init__(
        self,
        net: PreTrainedModel,
        finish: Callable[[torch.Tensor], torch.Tensor],
        operations: Operations = DECODED,
    ) -> None:
        config: Any = net.config
        base: Any = net.base_model
        self.net = net
        self.heads: int = config.num_attention_heads
        self.groups: int = config.num_key_value_heads
        self.dim: int = base.layers[0].self_attn.head_dim
        self._padding: int | None = base.embed_tokens.padding_idx  # a word that is never trained as an input
        self._finish = finish
        self._operations = operations
        self._least = torch.tensor(config.rms_norm_eps, device=net.device)
        self.dtype = self._least.dtype  # float32, whatever the weights are
        self._turns = torch.empty(0)

    def turns(self, places: int) -> torch.Tensor:
        """Returns RoPE's turns of the pairs of a head at each of the first places, (places, 1, D / 2) complex."""
        if places > len(self._turns):
            base: Any = self.net.base_model
            each = torch.arange(places, device=self._least.device)[None]
            cosine, sine = (half[0, :, : self.dim // 2] for half in base.rotary_emb(self._least, each))
            self._turns = torch.complex(cosine.float(), sine.float())[:, None].detach()
        return self._turns[:places]

    def through(
        self, weights: LeanWeights, ids: torch.Tensor, turns: torch.Tensor, attend: Attend, first: int
    ) -> torch.Tensor:
        """Returns the last hidden states, normed, of the tokens from `first` on, (B (T - first), W).

        Of those before it the last layer computes keys and values alone.

        Args:
            ids: (B, T).
            turns: (B, T, 1, D / 2), or what spreads to that.
        """
        normed, turned, gated = self._operations
        (batch, length), both = ids.shape, self.heads + self.groups
        hidden = embedding(ids.flatten(), weights.words, self._padding).to(self.dtype)
        for number, layer in enumerate(weights.layers):
            mixed = layer.qkv(normed(hidden, self._least)).view(batch, length, -1, self.dim)
            pairs, values = turned(mixed, layer.norms, self._least, turns, both)
            queries, keys = pairs[:, :, : self.heads], pairs[:, :, self.heads :]
            if first and layer is weights.layers[-1]:
                queries, hidden = queries[:, first:], hidden.view(batch, length, -1)[:, first:].flatten(0, 1)
            attended = attend(number, queries, keys, values)
            hidden = layer.out.added(hidden, attended.reshape(len(hidden), -1))
            hidden = layer.down.added(hidden, gated(layer.gate_up(normed(hidden, self._least))))
        return normed(hidden, self._least)

    def logits(self, weights: LeanWeights, states: torch.Tensor) -> torch.Tensor:
        """Returns the logits of states that are normed, (..., W)."""
        return self._finish(weights.head(states))
