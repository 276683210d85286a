"""Small networks of the usual shape, decoded without their modules.

A step of a small network is mostly the time of calling it: some hundred operations on a few numbers each. Networks like
Llama's and Qwen's are a dozen operations a layer when projections that read the same input are one, the weights of
norms are a part of what comes next, keys and values lie in memory set aside, and the angles of RoPE turn neighbouring
numbers, as complex ones. Such weights are copies, laid out so; `refresh` makes them again where the network's own have
moved.

`usual` says which networks are so; whether the numbers are the same is tested at load, as of any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import linear, silu
from transformers import PreTrainedModel

from coterie.models.attention import grouped, grouped_sums, weighed

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""A layer's number, its queries (B, T, H, D), keys and values (B, T, G, D), to what is attended, (B, T, H, D)."""

LAYERS = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer"}
"""Layers whose operations are those here."""
LARGE = 50_000_000
"""Of more parameters, a step is the time of reading them, and copies would cost memory for little."""
SHARED, LONG = 2, 8192
"""Rows a prompt, and tokens of all rows' prompts, from which on a prompt's keys and values are kept once, beside those
of each row's own tokens: fewer are read in less time than it takes to put two parts together."""
CHUNK = 2048
"""Tokens of prompts that are read at once: what is computed of them stays in a processor's cache."""
STATIC = {"default", "linear", "llama3", "yarn"}
"""Kinds of RoPE whose angles do not depend on how long a sequence has become."""


def usual(net: PreTrainedModel) -> bool:
    """Whether a network is small, of the usual shape and in float32; how far back its tokens look is not asked."""
    config: Any = net.config
    base: Any = net.base_model
    layers = getattr(base, "layers", ())
    if net.num_parameters() > LARGE or net.dtype != torch.float32 or net.device.type == "meta":
        return False
    return (
        {type(layer).__name__ for layer in layers} <= LAYERS
        and len(layers) > 0
        and config.hidden_act == "silu"
        and base.rotary_emb.rope_type in STATIC
        and 2 * len(base.rotary_emb.inv_freq) == layers[0].self_attn.head_dim
    )


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's weights, of H heads of D numbers, G of them for keys and values, and their biases where it has some.

    qkv: (W, (H + 2 G) D), with the weight of the norm before it. norms: (H + G, D), of queries and keys, None where
    they have none. out: (H D, W). gate_up: (W, 2 I), with its norm's. down: (I, W).
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


class Lean:
    """A network's copy that decodes rows side by side: `start`, then `step` by step, and `keep` when some have ended.

    Args:
        net: one that is `usual`.
        finish: what it does to its logits after the output layer.
    """

    def __init__(self, net: PreTrainedModel, finish: Callable[[torch.Tensor], torch.Tensor]) -> None:
        config, base = net.config, net.base_model
        layers: Any = base.layers
        self._net = net
        self._finish = finish
        self._heads: int = config.num_attention_heads
        self._groups: int = config.num_key_value_heads
        self._dim: int = layers[0].self_attn.head_dim
        self._least = torch.tensor(config.rms_norm_eps, device=net.device)
        self._seen: list[tuple[int, int]] = []
        self._layers: list[Layer] = []
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def refresh(self) -> None:
        """Copies the network's weights, where they are others than those that were copied."""
        seen = [(id(weight), weight._version) for weight in self._net.parameters()]  # noqa: SLF001
        if seen == self._seen:
            return
        self._seen = seen
        base: Any = self._net.base_model
        self._layers = [self._layer(layer) for layer in base.layers]
        self._words = base.embed_tokens.weight
        head: Any = self._net.get_output_embeddings()
        self._head, self._head_bias = _weight(head) * base.norm.weight, head.bias

    @property
    def copies(self) -> list[torch.Tensor]:
        """The weights that it has of its own."""
        each = (getattr(layer, name) for layer in self._layers for name in ("qkv", "norms", "out", "gate_up", "down"))
        return [self._head, *(tensor for tensor in each if tensor is not None)]

    def _layer(self, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        turned = torch.arange(self._dim).view(2, -1).t().flatten()  # the pairs that RoPE turns become neighbours
        scale = float(attention.scaling)

        def projected(part: Any, turn: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
            weight, bias = _weight(part).unflatten(0, (-1, self._dim)), part.bias
            bias = None if bias is None else bias.unflatten(0, (-1, self._dim))
            if turn:
                weight, bias = weight[:, turned], None if bias is None else bias[:, turned]
            return weight.flatten(0, 1), None if bias is None else bias.flatten()

        query, key, value = (
            projected(part, turn)
            for part, turn in ((attention.q_proj, True), (attention.k_proj, True), (attention.v_proj, False))
        )
        norms = None
        if hasattr(attention, "q_norm"):
            norms = torch.cat([
                (attention.q_norm.weight[turned] * scale).expand(self._heads, -1),
                attention.k_norm.weight[turned].expand(self._groups, -1),
            ])  # fmt: skip
        else:
            query = query[0] * scale, None if query[1] is None else query[1] * scale
        gate_up = torch.cat([_weight(mlp.gate_proj), _weight(mlp.up_proj)])
        return Layer(
            (torch.cat([query[0], key[0], value[0]]) * layer.input_layernorm.weight).t().contiguous(),
            _joined(query[1], key[1], value[1]),
            norms,
            _weight(attention.o_proj).t().contiguous(),
            attention.o_proj.bias,
            (gate_up * layer.post_attention_layernorm.weight).t().contiguous(),
            _joined(mlp.gate_proj.bias, mlp.up_proj.bias),
            _weight(mlp.down_proj).t().contiguous(),
            mlp.down_proj.bias,
        )

    def start(self, ids: torch.Tensor, mask: torch.Tensor | None, repeat: torch.Tensor, room: int) -> torch.Tensor:
        """Reads prompts, and sets memory aside for the rows that go on from them.

        Args:
            ids: (P, T), of prompts, padded before them.
            mask: (P, T), 0 where there is padding; None: there is none.
            repeat: (R,), each row's prompt.
            room: tokens that a row may take beside.

        Returns:
            (R, V), what comes next.
        """
        (prompts, length), rows = ids.shape, len(repeat)
        places = torch.arange(length + room, device=ids.device)
        self._turns, turns = self._turning(places), None
        self._padding = mask if mask is None else length - mask.sum(dim=1)
        if self._padding is not None:
            turns = self._turns[(places[:length] - self._padding[:, None]).clamp(min=0)]
        self._read = length if rows >= SHARED * prompts and rows * length >= LONG else 0
        self._filled = length - self._read
        size = rows * self._groups, self._filled + room, self._dim
        self._keys, self._values = ([self._words.new_empty(size) for _ in self._layers] for _ in range(2))
        table = prompts, self._groups, length, self._dim
        self._shared = [(self._words.new_empty(table), self._words.new_empty(table)) for _ in self._layers]
        some = max(1, CHUNK // length)
        parts = [self._read_some(ids, mask, turns, slice(at, at + some)) for at in range(0, prompts, some)]
        if not self._read:
            for slabs, kept in zip((self._keys, self._values), zip(*self._shared, strict=True), strict=True):
                for slab, each in zip(slabs, kept, strict=True):
                    slab[:, :length] = each[repeat].flatten(0, 1)
            self._shared = []
        self._prompts, self._blank = repeat, None
        if self._padding is not None:
            self._padding = self._padding[repeat]
            self._blank = _blank(places >= self._padding[:, None])
        self._arrange()
        return self._logits(torch.cat(parts))[repeat]

    def _read_some(
        self, ids: torch.Tensor, mask: torch.Tensor | None, turns: torch.Tensor | None, which: slice
    ) -> torch.Tensor:
        """Reads some of the prompts, no more than a processor keeps at hand. Returns their last states, (some, W)."""
        ids, length = ids[which], ids.shape[1]
        blank = None
        if mask is not None:
            before = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
            blank = _blank(mask[which, None, None].bool() & before)

        def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            kept, kept_values = (tensor[which] for tensor in self._shared[layer])
            kept[:], kept_values[:] = keys.transpose(1, 2), values.transpose(1, 2)
            asked = queries.transpose(1, 2)
            if queries.shape[1] < length:  # the last alone
                found, _ = grouped_sums(asked, kept, kept_values, None if blank is None else blank[:, :, -1:])
            else:
                found = grouped(asked, kept, kept_values, blank, 1.0)
            return found.transpose(1, 2)

        return self._through(ids, self._turns[:length] if turns is None else turns[which], attend)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """One more token of each row.

        Args:
            ids: (R,).

        Returns:
            (R, V), what comes next.
        """
        at, rows = self._filled, len(ids)
        place = self._read + at
        turns = self._turns[place] if self._padding is None else self._turns[place - self._padding][:, None]
        self._filled += 1
        table = rows * self._groups, -1, self._dim
        blank = None
        if self._blank is not None and not self._read:
            blank = self._blank[:, : at + 1].repeat_interleave(self._groups, dim=0)[:, None]

        def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            kept, kept_values = self._keys[layer], self._values[layer]
            kept[:, at], kept_values[:, at] = keys.reshape(-1, self._dim), values.reshape(-1, self._dim)
            scores = queries.reshape(table).bmm(kept[:, : at + 1].transpose(1, 2))
            if blank is not None:
                scores += blank
            seen = kept_values[:, : at + 1]
            if not self._read:
                return scores.softmax(dim=-1).bmm(seen).view(rows, self._heads, self._dim)
            found, own = weighed(scores, seen)
            before, sums = self._before(layer, queries[:, 0])
            share = (sums - own.view(rows, self._heads)).sigmoid_()
            return torch.lerp(found.view(rows, self._heads, self._dim), before, share[..., None])

        return self._logits(self._through(ids[:, None], turns, attend))

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with some of the rows; those that change their place are copied.

        Args:
            rows: (K,), their numbers, in the order in which they are from now on.
        """
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        for slabs in (self._keys, self._values):
            for at, slab in enumerate(slabs):
                there = slab.view(-1, self._groups, *slab.shape[1:])
                there[moved, :, : self._filled] = there[rows[moved], :, : self._filled]
                slabs[at] = slab[: len(rows) * self._groups]
        self._prompts = self._prompts[rows]
        if self._padding is not None and self._blank is not None:
            self._padding, self._blank = self._padding[rows], self._blank[rows]
        self._arrange()

    def _arrange(self) -> None:
        """Puts rows that share a prompt side by side, in a table of prompts; those whose rows have ended leave it."""
        if not self._read:
            return
        kept, inverse, counts = self._prompts.unique(return_inverse=True, return_counts=True)
        if len(kept) < len(self._shared[0][0]):
            self._shared = [(keys[kept], values[kept]) for keys, values in self._shared]
            self._prompts = inverse
        self._table = len(kept), int(counts.max())
        order = inverse.argsort(stable=True)
        within = torch.arange(len(inverse), device=inverse.device) - (counts.cumsum(0) - counts)[inverse[order]]
        self._places = torch.empty_like(inverse)
        self._places[order] = inverse[order] * self._table[1] + within
        first = order[counts.cumsum(0) - counts]
        self._prompt_blank = None if self._blank is None else self._blank[first, None, None, : self._read]

    def _before(self, layer: int, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What each row attends to in its prompt, (R, H, D), and the log-sum-exp of its scores there, (R, H).

        Args:
            queries: (R, H, D).
        """
        prompts, most = self._table
        table = queries.new_zeros(prompts * most, self._heads, self._dim)
        table[self._places] = queries
        table = table.view(prompts, most, self._heads, self._dim).transpose(1, 2)
        found, sums = grouped_sums(table, *self._shared[layer], self._prompt_blank)
        return found.transpose(1, 2).flatten(0, 1)[self._places], sums.transpose(1, 2).flatten(0, 1)[self._places]

    def clear(self) -> None:
        """Gives back what rows have taken."""
        self._keys, self._values, self._shared = [], [], []

    def _turning(self, places: torch.Tensor) -> torch.Tensor:
        """How RoPE turns the pairs of a head at each place, (places, 1, D / 2), complex."""
        rotary: Any = self._net.base_model.rotary_emb
        cosine, sine = (half[0, :, : self._dim // 2] for half in rotary(self._words, places[None]))
        return torch.complex(cosine.float(), sine.float())[:, None]

    def _through(self, ids: torch.Tensor, turns: torch.Tensor, attend: Attend) -> torch.Tensor:
        """The hidden states of the last tokens, (B, W), normed; of the others the last layer computes keys and values.

        Args:
            ids: (B, T).
            turns: (B, T, 1, D / 2), or what spreads to that.
        """
        hidden = self._words[ids.flatten()]
        both = self._heads + self._groups
        for number, layer in enumerate(self._layers):
            mixed = _affine(self._normed(hidden), layer.qkv, layer.qkv_bias).view(*ids.shape, -1, self._dim)
            pairs, values = mixed[:, :, :both], mixed[:, :, both:]
            if layer.norms is not None:
                pairs = self._normed(pairs) * layer.norms
            pairs = torch.view_as_complex(pairs.view(*pairs.shape[:-1], -1, 2)) * turns
            pairs = torch.view_as_real(pairs).flatten(-2)
            queries, keys = pairs[:, :, : self._heads], pairs[:, :, self._heads :]
            if ids.shape[1] > 1 and layer is self._layers[-1]:
                queries, hidden = queries[:, -1:], hidden.view(*ids.shape, -1)[:, -1]
            attended = attend(number, queries, keys, values)
            hidden = torch.addmm(hidden, attended.reshape(len(hidden), -1), layer.out)
            if layer.out_bias is not None:
                hidden += layer.out_bias
            gate, up = _affine(self._normed(hidden), layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
            hidden = torch.addmm(hidden, silu(gate).mul_(up), layer.down)
            if layer.down_bias is not None:
                hidden += layer.down_bias
        return self._normed(hidden)

    def _normed(self, states: torch.Tensor) -> torch.Tensor:
        norms = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
        return states * torch.addcmul(self._least, norms, norms, value=1 / states.shape[-1]).rsqrt_()

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        return self._finish(linear(states, self._head, self._head_bias))


def _affine(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return states @ weight if bias is None else torch.addmm(bias, states, weight)


def _blank(seen: torch.Tensor) -> torch.Tensor:
    """What is added to scores: the least number where nothing is seen, so that even a row of nothing has a mean."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)


def _weight(part: Any) -> torch.Tensor:
    """A projection's weights, with what its adapter adds."""
    if hasattr(part, "get_delta_weight"):
        return part.base_layer.weight + sum(part.get_delta_weight(name) for name in part.active_adapters)
    return part.weight


def _joined(*biases: torch.Tensor | None) -> torch.Tensor | None:
    return None if biases[0] is None else torch.cat([bias for bias in biases if bias is not None])
