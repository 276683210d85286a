"""Attention for packs without a full attention mask: almost no forbidden pair of tokens is computed.

A token of a pack sees the shared prefix and its own row up to itself. So causal attention is computed over the prefixes
of all packs, and then over the rows, each after a copy of the keys and values of its prefix. The copies exist only
during a forward or backward call. On CPUs the library's kernels are called directly, which also share keys between
heads without copies.

`install` replaces the attention of a network by this function. Without a pack it calls the library's attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "coterie"
"""Name of the function where transformers look for it."""
KEYWORD = "coterie_split"
"""The keyword that carries a Split, CAUSAL or SEEN through a network to its layers."""
CAUSAL = "causal"
"""Value of the keyword where each sequence is one row, from its beginning: no token sees the padding after it."""
SEEN = "seen"
"""Value of the keyword where each row asks for one token, and the mask says what it sees of a cache."""
HALVES = torch.bfloat16, torch.float16
FEWEST = 4
"""Minimum number of queries for the kernels for CPUs: fewer give other bits with another number of threads."""
TOKEN = 4
"""Pairs per number of the width, whose attention takes as long as a token takes in the rest of a layer."""
ROW = 1400
"""Pairs whose attention, with heads of 32 numbers, takes as long as one more row."""


@dataclass(frozen=True, slots=True)
class Split:
    """Packs in one line: the prefixes of G packs, together `before` tokens, then the M tokens of all their S rows.

    The longest prefix has P tokens, the longest row's part L, or FEWEST. Prefixes are padded before, rows behind.

    prefix: (G, P), of each place the index of its token; of padding, of the pack's first one. prefix_kept: (before,),
    of each token its place among the G x P. prefix_real: (G, P), False at padding. prefix_mask: (G, 1, P, P), added to
    scores; None: all prefixes are of one length. owner: (S,), the pack of each row. taken: (S, L), kept: (M,) and real:
    (S, L): the same of rows, whose padding has the row's last token. mask: (S, 1, L, P + L), or (1, 1, L, P + L) where
    it is one for all. even: all rows are of one length. longest: tokens of the longest prefix and row,
    which is how far back one may look. each: every pack's own; of one pack, none.
    """

    before: int
    prefix: torch.Tensor
    prefix_kept: torch.Tensor
    prefix_real: torch.Tensor
    prefix_mask: torch.Tensor | None
    owner: torch.Tensor
    taken: torch.Tensor
    kept: torch.Tensor
    real: torch.Tensor
    mask: torch.Tensor
    even: bool
    longest: int
    each: tuple[Split, ...]

    @classmethod
    def of(cls, packs: Sequence[tuple[int, Sequence[int]]], device: torch.device) -> Split:
        """Returns the line of packs, each with so many shared tokens, and rows that have so many beside them."""
        shared, lengths = [size for size, _ in packs], [size for _, rows in packs for size in rows]
        widest, longest = max(shared), max(FEWEST, *lengths)
        prefix, prefix_kept = _table(shared, widest, after=True)
        taken, kept = _table(lengths, longest)
        owner = torch.tensor([at for at, (_, rows) in enumerate(packs) for _ in rows])
        there = torch.arange(widest) >= widest - torch.tensor(shared)[:, None]
        real = torch.arange(longest) < torch.tensor(lengths)[:, None]
        seen = torch.ones(longest, widest + longest, dtype=torch.bool).tril(widest)[None]
        causal = None
        if min(shared) < widest:
            seen = seen & torch.cat([there[owner], torch.ones_like(real)], dim=1)[:, None]
            alone = torch.ones(widest, widest, dtype=torch.bool).tril() & (there[:, None] | ~there[:, :, None])
            causal = _added(alone)[:, None].to(device)
        tables = {
            "prefix": prefix, "prefix_kept": prefix_kept, "prefix_real": there, "owner": owner, "taken": taken,
            "kept": kept, "real": real, "mask": _added(seen)[:, None],
        }  # fmt: skip
        there = {name: table.to(device) for name, table in tables.items()}
        each = tuple(cls.of([pack], device) for pack in packs) if len(packs) > 1 else ()
        even, far = min(lengths) == longest, widest + max(lengths)
        return cls(before=sum(shared), prefix_mask=causal, even=even, longest=far, each=each, **there)


def _table(sizes: Sequence[int], longest: int, *, after: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns sequences, one after the other, as a table, see `Split`. after: padding is before them, not behind."""
    *starts, total = accumulate(sizes, initial=0)
    taken = [
        [min(start, total - 1) + (max(at - longest + size, 0) if after else min(at, size - 1)) for at in range(longest)]
        for start, size in zip(starts, sizes, strict=True)
    ]
    kept = [
        row * longest + at + (longest - size if after else 0) for row, size in enumerate(sizes) for at in range(size)
    ]
    return torch.tensor(taken, dtype=torch.long).view(len(sizes), longest), torch.tensor(kept, dtype=torch.long)


def _added(seen: torch.Tensor) -> torch.Tensor:
    """Returns the mask that is added to scores: 0 where a key is seen."""
    return torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)


def pairs(shared: int, lengths: Sequence[int]) -> int:
    """Counts queries times keys that a pack's tokens see; for n tokens in a row n * n / 2, and not n / 2 more."""
    return shared * shared // 2 + sum(size * shared + size * size // 2 for size in lengths)


def splits(shared: int, lengths: Sequence[int], fewest: int, width: int) -> bool:
    """Returns True if a pack is computed faster by its rows than under a mask.

    A mask costs all pairs, of tokens of which none is computed twice; rows cost what each sees, what replies begin
    with alike once more for each, and a time of their own.

    Args:
        fewest: tokens under a mask.
        width: numbers of a token's queries, of all heads.
    """
    longest, rows = max(lengths), len(lengths)
    seen = rows * longest * (shared + longest) + shared * shared // 2
    twice = shared + sum(lengths) - fewest
    return seen + TOKEN * width * twice + ROW * rows < fewest * fewest


def install(net: PreTrainedModel) -> bool:
    """Has a network ask the function here for its attention. Returns True if it does."""
    if _asked_of(net) == "sdpa" and net._can_set_attn_implementation():  # noqa: SLF001
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        net.set_attn_implementation(NAME)
    return installed(net)


def installed(net: PreTrainedModel) -> bool:
    """Returns True if a network still asks the function here: another would take no notice of a pack's parts."""
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
    """Computes attention as transformers ask for it: by parts where the call is for a pack, else by the library.

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
    """Computes attention of one token a row, (B, 1, H, D): heads that share keys ask like tokens of one head.

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
    """Computes attention without repeating keys and values for the heads that share them.

    Args:
        query: (B, H, T, D).
        key, value: (B, G, T, D).
        mask: what is added to the scores; None: a token sees those before it.
    """
    if _on_cpu(query):  # which the library's own way there does not know how to
        count = query.shape[2]
        if mask is not None and count < FEWEST:
            query, mask = (pad(tensor, (0, 0, 0, FEWEST - count)) for tensor in (query, mask))
        return _flash()(query, key, value, 0.0, mask is None, attn_mask=mask, scale=scale)[0][:, :, :count]
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
    )


def grouped_sums(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes attention of few queries to all keys, and the log-sum-exp of scores, (B, H, T, D) and (B, H, T).

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
    """Returns the mean of values (..., K, D) by the softmax of scores (..., T, K), and their log-sum-exp, (..., T).

    Scores are overwritten.
    """
    top = scores.amax(dim=-1, keepdim=True)
    shares = scores.sub_(top).exp_()
    sums = shares.sum(dim=-1, keepdim=True)
    return (shares @ value).div_(sums), (top + sums.log())[..., 0]


def parts(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, split: Split, scale: float) -> torch.Tensor:
    """Computes packs' attention by parts, (1, H, Q, D).

    Args:
        query: (1, H, Q, D), of all their tokens, or of those after the prefixes alone.
        key, value: (1, G, T, D), of all.
    """
    kind = query.device.type
    if torch.is_autocast_enabled(kind):  # it knows the library's attention, and none of its kernels
        query, key, value = (tensor.to(torch.get_autocast_dtype(kind)) for tensor in (query, key, value))
    if _on_cpu(query) and query.shape[-1] == value.shape[-1]:
        return _ByRows.apply(query, key, value, split, scale)  # pyright: ignore[reportReturnType]
    return _anywhere(query, key, value, split, scale)


def _anywhere(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, split: Split, scale: float) -> torch.Tensor:
    """Computes packs' attention by the library, on any device; pack by pack, because one length needs no mask there."""
    asked, before = query.shape[2] - len(split.kept), split.before
    if not split.each:
        keys, values = key[:, :, :before], value[:, :, :before]
        found: list[torch.Tensor] = []
        if asked:
            first = query[:, :, :before]
            found.append(
                scaled_dot_product_attention(first, keys, values, is_causal=True, scale=scale, enable_gqa=True)
            )
        mine, keys, values = _rows(query[:, :, asked:], split), _after(keys, key, split), _after(values, value, split)
        found.append(_line(_last(mine, keys, values, split, scale), split.kept))
        return torch.cat(found, dim=2)
    cut = zip(_cut(query, split), _cut(key, split), _cut(value, split), split.each, strict=True)
    each = [_anywhere(*mine, scale) for mine in cut]
    if not asked:
        return torch.cat(each, dim=2)
    halves = [out.tensor_split([one.before], dim=2) for out, one in zip(each, split.each, strict=True)]
    return torch.cat([half for side in zip(*halves, strict=True) for half in side], dim=2)


def _cut(tensor: torch.Tensor, split: Split) -> Sequence[torch.Tensor]:
    """Splits (1, H, T, D), of all tokens or of those after the prefixes alone, into each pack's own."""
    count = len(split.kept)
    rows = tensor[:, :, -count:].split([len(one.kept) for one in split.each], dim=2)
    if tensor.shape[2] == count:
        return rows
    prefixes = tensor[:, :, :-count].split([one.before for one in split.each], dim=2)
    return [torch.cat(both, dim=2) for both in zip(prefixes, rows, strict=True)]


def _last(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, split: Split, scale: float) -> torch.Tensor:
    """Computes attention of one pack's rows, (S, H, L, D), to what is before them and themselves, (S, G, P + L, D)."""
    dim = query.shape[-1]
    if query.is_cuda and query.dtype in HALVES and dim == value.shape[-1] and dim <= 256 and dim % 8 == 0:
        flash = torch.ops.aten._scaled_dot_product_flash_attention  # noqa: SLF001  (it has no other name)
        return flash(query, key, value, 0.0, True, False, scale=scale)[0]
    mask = split.mask.to(query.dtype)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)


def _prefixes(tensor: torch.Tensor, split: Split) -> torch.Tensor:
    """Returns the prefixes' part of all tokens, (1, H, T, D), as (G, H, P, D); without a copy where there is one."""
    before = tensor[:, :, : split.before]
    return before if len(split.prefix) == 1 else before[0].transpose(0, 1)[split.prefix].transpose(1, 2)


def _after(prefixes: torch.Tensor, tensor: torch.Tensor, split: Split) -> torch.Tensor:
    """Puts each row's own of all tokens, (1, H, T, D), after its prefix's: (S, H, P + L, D)."""
    rows = len(split.taken)
    each = prefixes.expand(rows, -1, -1, -1) if len(prefixes) == 1 else prefixes[split.owner]
    return torch.cat([each, _rows(tensor[:, :, split.before :], split)], dim=2)


def _rows(tensor: torch.Tensor, split: Split) -> torch.Tensor:
    """Returns (1, H, M, D), or (1, H, M), as (S, H, L, D), or (S, H, L); without a copy where all are of one length."""
    if split.even:
        return tensor[0].unflatten(1, split.taken.shape).transpose(0, 1)
    return tensor[0].transpose(0, 1)[split.taken].transpose(1, 2)


def _line(tensor: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Returns (S, H, L, D), or (S, H, L), as (1, H, M, D), or (1, H, M): the M that are kept, in their order."""
    flat = tensor.transpose(1, 2).flatten(0, 1)
    return (flat if len(flat) == len(kept) else flat[kept]).transpose(0, 1)[None]


def _on_cpu(tensor: torch.Tensor) -> bool:
    """Returns True if the kernels for CPUs are meant; they have a form for tensors without numbers, too."""
    return tensor.device.type == "cpu"


def _flash() -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001


class _ByRows(torch.autograd.Function):
    """Packs' attention by the library's kernels for CPUs."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, split: Split, scale: float
    ) -> torch.Tensor:
        asked = query.shape[2] - len(split.kept)
        out = torch.empty_like(query)
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        keys, values = _prefixes(key, split), _prefixes(value, split)
        if asked:
            causal = split.prefix_mask is None
            found, found_sums = _flash()(
                _prefixes(query, split), keys, values, 0.0, causal, attn_mask=split.prefix_mask, scale=scale
            )
            out[:, :, :asked] = _line(found, split.prefix_kept)
            sums[:, :, :asked] = _line(found_sums, split.prefix_kept)
        mine = _rows(query[:, :, asked:], split)
        found, found_sums = _flash()(
            mine, _after(keys, key, split), _after(values, value, split), 0.0, False, attn_mask=split.mask, scale=scale
        )
        out[:, :, asked:], sums[:, :, asked:] = _line(found, split.kept), _line(found_sums, split.kept)
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.split, ctx.scale = split, scale
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        back: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
        split, scale = ctx.split, ctx.scale
        query, key, value, out, sums = ctx.saved_tensors
        asked, widest = query.shape[2] - len(split.kept), split.prefix.shape[1]
        of_queries = gradient, query, out, sums
        grad, mine, *after = (_rows(tensor[:, :, asked:], split) for tensor in of_queries)
        if not split.even:
            grad = grad * split.real[:, None, :, None]
        keys, values = _prefixes(key, split), _prefixes(value, split)
        grads = list(
            back(
                grad, mine, _after(keys, key, split), _after(values, value, split), *after, 0.0, False,
                attn_mask=split.mask, scale=scale,
            )
        )  # fmt: skip
        whole = [_line(grads[0], split.kept), *(_line(each[:, :, widest:], split.kept) for each in grads[1:])]
        before = [_of_packs(each[:, :, :widest], split) for each in grads[1:]]
        queries: list[torch.Tensor] = []
        if asked:
            grad, mine, *after = (_prefixes(tensor, split) for tensor in of_queries)
            causal = split.prefix_mask is None
            if not causal:
                grad = grad * split.prefix_real[:, None, :, None]
            own = back(grad, mine, keys, values, *after, 0.0, causal, attn_mask=split.prefix_mask, scale=scale)
            queries = [_line(own[0], split.prefix_kept)]
            before = [one + two for one, two in zip(before, own[1:], strict=True)]
        each = zip((queries, *([_line(one, split.prefix_kept)] for one in before)), whole, strict=True)
        return *(torch.cat([*begin, end], dim=2) for begin, end in each), None, None


def _of_packs(tensor: torch.Tensor, split: Split) -> torch.Tensor:
    """Sums the gradients that the rows of each pack give, (S, G, P, D), as (packs, G, P, D)."""
    packs = len(split.prefix)
    if packs == 1:
        return tensor.sum(dim=0, keepdim=True)
    return tensor.new_zeros(packs, *tensor.shape[1:]).index_add_(0, split.owner, tensor)
