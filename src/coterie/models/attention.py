"""Attention of a pack without its mask: nothing is computed that a mask would forbid.

A token of a pack sees the shared prefix and its own row's part up to itself. So a pack's attention is three exact ones
without any mask: the prefix causally on itself, every row's tokens on the whole prefix, and each row's part causally on
itself. The last two are put together by their log-sum-exp, forward and backward: a token's attention over two sets of
keys is their attentions' mean, weighed by exp(log-sum-exp), and each part's own backward pass is exact when it is given
the outcome and the log-sum-exp of both together.

`install` makes a network's attention the function here, which is the library's own where no pack is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "coterie"
"""What the function is called where transformers look for it."""
KEYWORD = "coterie_split"
"""The keyword that carries a Split, CAUSAL or SEEN through a network to its layers."""
CAUSAL = "causal"
"""Said in its place where each sequence is one row, from its beginning: padding comes after it, and is seen by none."""
SEEN = "seen"
"""Said in its place where each row asks for one token, and the mask says what it sees of a cache."""
HALVES = torch.bfloat16, torch.float16
TOKEN = 4
"""Times the width: the pairs whose attention takes as long as a token takes in the rest of a layer."""
WORTH = 2e7
"""Products of a query's number and a key's that a layer's attention makes in the time that taking it apart costs."""


@dataclass(frozen=True, slots=True)
class Split:
    """One pack's parts: a prefix of `shared` tokens, then M tokens of S rows, of which the longest has L.

    taken: (S, L), for each place of a row's part its index among the M; at padding the last of the row's own. kept:
    (M,), for each of the M its place among the S x L. real: (S, L), False at padding. even: there is none.
    """

    shared: int
    taken: torch.Tensor
    kept: torch.Tensor
    real: torch.Tensor
    even: bool

    @property
    def longest(self) -> int:
        """Tokens of the longest row, with the prefix: how far back its last one looks."""
        return self.shared + self.taken.shape[1]

    @classmethod
    def of(cls, shared: int, lengths: Sequence[int], device: torch.device) -> Split:
        """The parts of a pack whose rows have so many tokens beside the prefix."""
        longest, starts = max(lengths), accumulate(lengths, initial=0)
        taken = [
            [start + min(at, size - 1) for at in range(longest)] for start, size in zip(starts, lengths, strict=False)
        ]
        kept = [row * longest + at for row, size in enumerate(lengths) for at in range(size)]
        real = [[at < size for at in range(longest)] for size in lengths]
        tables = (torch.tensor(table, device=device) for table in (taken, kept, real))
        return cls(shared, *tables, even=min(lengths) == longest)


def pairs(shared: int, lengths: Sequence[int]) -> int:
    """Queries times keys that a pack's tokens see; of n tokens in a row n * n / 2, and not half a token more each."""
    return shared * shared // 2 + sum(size * shared + size * size // 2 for size in lengths)


def splits(shared: int, lengths: Sequence[int], fewest: int, width: int) -> bool:
    """Whether a pack is computed faster in parts than under a mask.

    A mask costs all pairs, of tokens of which none is computed twice; parts cost the pairs that are seen, what replies
    begin with alike once more for each, and a fixed time.

    Args:
        fewest: tokens under a mask.
        width: numbers of a token's queries, of all heads.
    """
    twice = shared + sum(lengths) - fewest
    return (fewest**2 - pairs(shared, lengths) - TOKEN * width * twice) * width > WORTH


def install(net: PreTrainedModel) -> bool:
    """Has a network ask the function here for its attention. Returns whether it does."""
    if _asked_of(net) == "sdpa" and net._can_set_attn_implementation():  # noqa: SLF001
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        net.set_attn_implementation(NAME)
    return installed(net)


def installed(net: PreTrainedModel) -> bool:
    """Whether a network still asks the function here: another would take no notice of a pack's parts."""
    return _asked_of(net) == NAME


def _asked_of(net: PreTrainedModel) -> str:
    config: Any = net.config.get_text_config()
    return config._attn_implementation  # noqa: SLF001  (it has no other name)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers ask for it: by parts where the call is for a pack, else the library's.

    Args:
        query: (B, H, T, D).
        key, value: (B, G, T, D), each for H / G heads.
        attention_mask: of a pack, ignored. Where what is said is SEEN, (B, 1, 1, T).

    Returns:
        (B, T, H, D), and no weights.

    Raises:
        ValueError: the layer does more than a pack's parts can: it caps scores, has sinks or looks back over a window.
    """
    split: Split | str | None = others.pop(KEYWORD, None)
    if split is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    odd = [name for name in ("softcap", "s_aux", "position_bias") if others.get(name) is not None]
    longest = query.shape[2] if isinstance(split, str) else split.longest
    if odd or (others.get("sliding_window") or longest) < longest:
        raise ValueError(f"this layer's attention cannot do without a mask: {', '.join(odd) or 'sliding_window'}")
    if split == SEEN:
        return _of_one(query, key, value, attention_mask, scaling), None
    if isinstance(split, str):
        return sdpa_attention_forward(module, query, key, value, None, scaling=scaling, **others)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return parts(query, key, value, split, scale).transpose(1, 2), None


def _of_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """Attention of one token a row, (B, 1, H, D): heads that share keys ask for them as tokens of one head would.

    Args:
        query: (B, H, 1, D).
        key, value: (B, G, T, D).
        mask: (B, 1, 1, T).
    """
    asked = query.unflatten(1, (key.shape[1], -1))[:, :, :, 0]
    return scaled_dot_product_attention(asked, key, value, attn_mask=mask, scale=scale).flatten(1, 2)[:, None]


def grouped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Attention whose keys and values are not repeated for the heads that share them.

    Args:
        query: (B, H, T, D).
        key, value: (B, G, T, D).
        mask: what is added to the scores; None: a token sees those before it.
    """
    if _on_cpu(query):  # which the library's own way there does not know how to
        return _flash()(query, key, value, 0.0, mask is None, attn_mask=mask, scale=scale)[0]
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
    )


def grouped_sums(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of few queries to all keys, with the log-sum-exp of the scores, (B, H, T, D) and (B, H, T).

    Shapes as in `grouped`. Without a gradient; on CPUs the library's kernel is made for many queries.
    """
    groups = key.shape[1]
    each = query.shape[1] // groups
    scores = query.unflatten(1, (groups, each)).flatten(2, 3) @ key.transpose(2, 3)
    if mask is not None:
        scores += mask
    found, sums = weighed(scores, value)
    return found.unflatten(2, (each, -1)).flatten(1, 2), sums.unflatten(2, (each, -1)).flatten(1, 2)


def weighed(scores: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of values (..., K, D) by the softmax of scores (..., T, K), and their log-sum-exp, (..., T).

    Scores are overwritten.
    """
    top = scores.amax(dim=-1, keepdim=True)
    shares = scores.sub_(top).exp_()
    sums = shares.sum(dim=-1, keepdim=True)
    return (shares @ value).div_(sums), (top + sums.log())[..., 0]


def parts(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, split: Split, scale: float) -> torch.Tensor:
    """A pack's attention, (1, H, Q, D).

    Args:
        query: (1, H, Q, D), of all its tokens, or of those after the prefix alone.
        key, value: (1, G, T, D), of all.
    """
    kind = query.device.type
    if torch.is_autocast_enabled(kind):  # it knows the library's attention, and none of its kernels
        query, key, value = (tensor.to(torch.get_autocast_dtype(kind)) for tensor in (query, key, value))
    if _on_cpu(query) and query.shape[-1] == value.shape[-1]:
        return _Merged.apply(query, key, value, split, scale)  # pyright: ignore[reportReturnType]
    return _cached(query, key, value, split, scale)


def _cached(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, split: Split, scale: float) -> torch.Tensor:
    """By the library's attention alone, on any device: each row's part sees the prefix and itself, side by side."""
    shared, rows = split.shared, len(split.taken)
    asked = query.shape[2] - len(split.kept)
    parts: list[torch.Tensor] = []
    if asked:
        first, second, third = (tensor[:, :, :shared] for tensor in (query, key, value))
        parts.append(scaled_dot_product_attention(first, second, third, is_causal=True, scale=scale, enable_gqa=True))
    mine = _rows(query[:, :, asked:], split)
    keys, values = (_rows(tensor[:, :, shared:], split) for tensor in (key, value))
    keys, values = (
        torch.cat([tensor[:, :, :shared].expand(rows, -1, -1, -1), own], dim=2)
        for tensor, own in ((key, keys), (value, values))
    )
    parts.append(_flat(_last(mine, keys, values, scale), split))
    return torch.cat(parts, dim=2)


def _last(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention of a sequence's last tokens, (B, H, L, D), to all, (B, G, T, D): each sees those up to itself."""
    dim = query.shape[-1]
    if query.is_cuda and query.dtype in HALVES and dim == value.shape[-1] and dim <= 256 and dim % 8 == 0:
        flash = torch.ops.aten._scaled_dot_product_flash_attention  # noqa: SLF001  (it has no other name)
        return flash(query, key, value, 0.0, True, False, scale=scale)[0]
    longest, whole = query.shape[2], key.shape[2]
    seen = torch.ones(longest, whole, dtype=torch.bool, device=query.device).tril(whole - longest)
    return scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scale, enable_gqa=True)


def _rows(tensor: torch.Tensor, split: Split) -> torch.Tensor:
    """(1, H, M, D), or (1, H, M), as (S, H, L, D), or (S, H, L); without a copy where all are of one length."""
    if split.even:
        return tensor[0].unflatten(1, split.taken.shape).transpose(0, 1)
    return tensor[0].transpose(0, 1)[split.taken].transpose(1, 2)


def _flat(tensor: torch.Tensor, split: Split) -> torch.Tensor:
    """(S, H, L, D), or (S, H, L), as (1, H, M, D), or (1, H, M)."""
    flat = tensor.transpose(1, 2).flatten(0, 1)
    return (flat if split.even else flat[split.kept]).transpose(0, 1)[None]


def _on_cpu(tensor: torch.Tensor) -> bool:
    """Whether the kernels for CPUs are meant; they have a form for tensors without numbers, too."""
    return tensor.device.type == "cpu"


def _flash() -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001


class _Merged(torch.autograd.Function):
    """By the library's kernels for CPUs, which give their log-sum-exp."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, split: Split, scale: float
    ) -> torch.Tensor:
        flash = _flash()
        shared, asked = split.shared, query.shape[2] - len(split.kept)
        out = torch.empty_like(query)
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        before = key[:, :, :shared], value[:, :, :shared]
        after = query[:, :, asked:], key[:, :, shared:], value[:, :, shared:]
        own, own_sums = flash(*(_rows(tensor, split) for tensor in after), 0.0, True, scale=scale)
        own, own_sums = _flat(own, split), _flat(own_sums, split)
        if asked:
            out[:, :, :asked], sums[:, :, :asked] = flash(query[:, :, :asked], *before, 0.0, True, scale=scale)
        if shared:
            seen, seen_sums = flash(after[0], *before, 0.0, False, scale=scale)
            whole = torch.logaddexp(seen_sums, own_sums)
            share = (own_sums - whole).exp()[..., None].to(own.dtype)
            own = torch.lerp(seen, own, share)
            own_sums = whole
        out[:, :, asked:], sums[:, :, asked:] = own, own_sums
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.split, ctx.scale = split, scale
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        back: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
        split, scale = ctx.split, ctx.scale
        query, key, value, out, sums = ctx.saved_tensors
        shared, asked = split.shared, query.shape[2] - len(split.kept)
        of_queries, of_keys = (gradient, query, out, sums), (key, value)
        grad, query, out, sums = (tensor[:, :, asked:] for tensor in of_queries)
        own = [
            _rows(tensor, split) for tensor in (grad, query, *(tensor[:, :, shared:] for tensor in of_keys), out, sums)
        ]
        if not split.even:
            own[0] = own[0] * split.real[:, None, :, None]
        after = [_flat(tensor, split) for tensor in back(*own, 0.0, True, scale=scale)]
        before = [tensor[:, :, :shared] for tensor in of_keys]
        prefix: list[torch.Tensor] = []
        if shared:
            seen = back(grad, query, *before, out, sums, 0.0, False, scale=scale)
            after[0] += seen[0]
            prefix = list(seen[1:])
        first: list[torch.Tensor] = []
        if asked:
            grad, query, out, sums = (tensor[:, :, :asked] for tensor in of_queries)
            mine = back(grad, query, *before, out, sums, 0.0, True, scale=scale)
            first = [mine[0]]
            prefix = [one + two for one, two in zip(prefix, mine[1:], strict=True)]
        each = zip((first, prefix[:1], prefix[1:]), after, strict=True)
        return *(torch.cat([*begin, end], dim=2) for begin, end in each), None, None
