"""Small networks of the usual shape, computed without their modules.

The time of a small network is mostly call overhead: some hundred operations on a few numbers each. Networks like Llama
and Qwen need only a dozen operations per layer after three changes: projections with the same input are merged, norm
weights are folded into the next projection, and RoPE rotates neighbouring numbers as complex numbers. `merged` converts
the weights of a network; `through` computes with them. The engine (`engines.lean`) and the learner (`learning.lean`)
use both.

`usual` says which networks have this shape. As for all networks, a test at load checks that the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch.nn.functional import embedding, linear, silu
from transformers import PreTrainedModel

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""A layer's number, its queries (B, Q, H, D), keys and values (B, T, G, D), to what is attended, (B, Q, H, D)."""

LAYERS = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer"}
"""Layers whose operations are those here."""
LARGE = 50_000_000
"""Of more parameters, a step is the time of reading them, and copies would cost memory for little."""
STATIC = {"default", "linear", "llama3", "yarn"}
"""Kinds of RoPE whose angles do not depend on how long a sequence has become."""


def usual(net: PreTrainedModel) -> bool:
    """Whether a network is small, of the usual shape and in float32; how far back its tokens look is not asked."""
    config: Any = net.config
    base: Any = net.base_model
    if net.num_parameters() > LARGE or net.dtype != torch.float32 or net.device.type == "meta":
        return False
    return (
        usual_layers(net)
        and config.hidden_act == "silu"
        and 2 * len(base.rotary_emb.inv_freq) == base.layers[0].self_attn.head_dim
    )


def usual_layers(net: PreTrainedModel) -> bool:
    """Whether a network's layers are Llama's, Mistral's or Qwen's usual ones."""
    base: Any = net.base_model
    layers = getattr(base, "layers", ())
    kinds = {type(layer).__name__ for layer in layers}
    return len(layers) > 0 and kinds <= LAYERS and base.rotary_emb.rope_type in STATIC


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's weights, of H heads of D numbers, G of them for keys and values, and their biases where it has some.

    qkv: ((H + 2 G) D, W), with the weight of the norm before it. norms: (H + G, D), of queries and keys, None where
    they have none. out: (W, H D). gate_up: (2 I, W), with its norm's. down: (W, I).
    """

    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    norms: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Weights:
    """A network's weights. words: (V, W), of its embedding. head: (V, W), with the last norm's; its bias: (V,)."""

    words: torch.Tensor
    layers: tuple[Layer, ...]
    head: torch.Tensor
    head_bias: torch.Tensor | None

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Weights:
        """Each tensor, changed."""
        return _mapped(replace(self, layers=tuple(_mapped(layer, change) for layer in self.layers)), change)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All of them."""
        found = list[torch.Tensor]()
        self.mapped(lambda tensor: found.append(tensor) or tensor)
        return found


Tensors = TypeVar("Tensors", Layer, Weights)


def _mapped(weights: Tensors, change: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
    there = {field.name: getattr(weights, field.name) for field in fields(weights)}
    return replace(weights, **{name: change(one) for name, one in there.items() if isinstance(one, torch.Tensor)})


def merged(net: PreTrainedModel) -> Weights:
    """The weights of a network that is `usual`, laid out for `through`; differentiable."""
    base: Any = net.base_model
    head: Any = net.get_output_embeddings()
    layers = tuple(map(_layer, base.layers))
    return Weights(base.embed_tokens.weight, layers, _scaled(base.norm.weight, _weight(head)), head.bias)


def _layer(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    dim, scale = attention.head_dim, float(attention.scaling)

    def turned(weight: torch.Tensor) -> torch.Tensor:
        """(heads x D, ...): the pairs that RoPE turns become neighbours."""
        return weight.unflatten(0, (-1, 2, dim // 2)).transpose(1, 2).flatten(0, 2)

    def projected(
        part: Any, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return change(_weight(part)), None if part.bias is None else change(part.bias)

    norms = None
    if hasattr(attention, "q_norm"):
        heads, groups = (len(_weight(part)) // dim for part in (attention.q_proj, attention.k_proj))
        norms = torch.cat([
            (turned(attention.q_norm.weight) * scale).expand(heads, -1),
            turned(attention.k_norm.weight).expand(groups, -1),
        ])  # fmt: skip
        query = projected(attention.q_proj, turned)
    else:
        query = projected(attention.q_proj, lambda tensor: turned(tensor) * scale)
    key, value = projected(attention.k_proj, turned), projected(attention.v_proj, lambda tensor: tensor)
    return Layer(
        qkv=_scaled(layer.input_layernorm.weight, query[0], key[0], value[0]),
        qkv_bias=_joined(query[1], key[1], value[1]),
        norms=norms,
        out=_weight(attention.o_proj),
        out_bias=attention.o_proj.bias,
        gate_up=_scaled(layer.post_attention_layernorm.weight, _weight(mlp.gate_proj), _weight(mlp.up_proj)),
        gate_up_bias=_joined(mlp.gate_proj.bias, mlp.up_proj.bias),
        down=_weight(mlp.down_proj),
        down_bias=mlp.down_proj.bias,
    )


def _scaled(norm: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Weights (each O, W) below one another, with those of the norm (W,) that comes before them."""
    return _Scaled.apply(norm, *weights)  # pyright: ignore[reportReturnType]


class _Scaled(torch.autograd.Function):
    """In one reading of the weights, and its gradient in two."""

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


def _weight(part: Any) -> torch.Tensor:
    """A projection's weights, with what its adapter adds."""
    if hasattr(part, "get_delta_weight"):
        return part.base_layer.weight + sum(part.get_delta_weight(name) for name in part.active_adapters)
    return part.weight


def _joined(*biases: torch.Tensor | None) -> torch.Tensor | None:
    return None if biases[0] is None else torch.cat([bias for bias in biases if bias is not None])


class Operations(NamedTuple):
    """What lies between products of matrices.

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
    """See Operations."""
    return states * inverse_norm(states, least)


def inverse_norm(states: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """1 / sqrt(mean square + least) of (..., W), (..., 1)."""
    norms = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
    return torch.addcmul(least, norms, norms, value=1 / states.shape[-1]).rsqrt_()


def turned(
    mixed: torch.Tensor, norms: torch.Tensor | None, least: torch.Tensor, turns: torch.Tensor, both: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Operations."""
    pairs, values = mixed[:, :, :both], mixed[:, :, both:]
    if norms is not None:
        pairs = normed(pairs, least) * norms
    return turned_by(pairs, turns), values


def turned_by(pairs: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Neighbouring numbers (..., D), turned as complex ones (..., D / 2)."""
    return torch.view_as_real(torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * turns).flatten(-2)


def gated(gate_up: torch.Tensor) -> torch.Tensor:
    """See Operations."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate).mul_(up)


DECODED = Operations(normed, turned, gated)
"""Without a gradient."""


class Network:
    """How a network of the usual shape computes, whatever its weights are.

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
        self._turns = torch.empty(0)

    def turns(self, places: int) -> torch.Tensor:
        """How RoPE turns the pairs of a head at each of the first so many places, (places, 1, D / 2) complex."""
        if places > len(self._turns):
            base: Any = self.net.base_model
            words = base.embed_tokens.weight
            each = torch.arange(places, device=words.device)[None]
            cosine, sine = (half[0, :, : self.dim // 2] for half in base.rotary_emb(words, each))
            self._turns = torch.complex(cosine.float(), sine.float())[:, None].detach()
        return self._turns[:places]

    def through(
        self, weights: Weights, ids: torch.Tensor, turns: torch.Tensor, attend: Attend, first: int
    ) -> torch.Tensor:
        """The last hidden states, normed, of the tokens from `first` on, (B (T - first), W).

        Of those before it the last layer computes keys and values alone.

        Args:
            ids: (B, T).
            turns: (B, T, 1, D / 2), or what spreads to that.
        """
        normed, turned, gated = self._operations
        (batch, length), both = ids.shape, self.heads + self.groups
        hidden = embedding(ids.flatten(), weights.words, self._padding)
        for number, layer in enumerate(weights.layers):
            mixed = linear(normed(hidden, self._least), layer.qkv, layer.qkv_bias)
            mixed = mixed.view(batch, length, -1, self.dim)
            pairs, values = turned(mixed, layer.norms, self._least, turns, both)
            queries, keys = pairs[:, :, : self.heads], pairs[:, :, self.heads :]
            if first and layer is weights.layers[-1]:
                queries, hidden = queries[:, first:], hidden.view(batch, length, -1)[:, first:].flatten(0, 1)
            attended = attend(number, queries, keys, values)
            hidden = _added(hidden, attended.reshape(len(hidden), -1), layer.out, layer.out_bias)
            inner = gated(linear(normed(hidden, self._least), layer.gate_up, layer.gate_up_bias))
            hidden = _added(hidden, inner, layer.down, layer.down_bias)
        return normed(hidden, self._least)

    def logits(self, weights: Weights, states: torch.Tensor) -> torch.Tensor:
        """Of states that are normed, (..., W)."""
        return self._finish(linear(states, weights.head, weights.head_bias))


def _added(hidden: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    hidden = torch.addmm(hidden, states, weight.t())
    return hidden if bias is None else hidden + bias
