"""The packed forward pass: log-probabilities of rows with a common prefix, which is computed only once.

A pack is one input row of the network. Small packs are placed side by side under an attention mask. Each pack is a tree
whose branches are the rows; rows share their common prefix of prompt or completion tokens. If a mask would cost more,
attention is computed in parts (`models.attention`): the common prefix, and each row's own part. Position ids count from
the start of each row. A network that does not accept such a mask computes its rows one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils.checkpoint import checkpoint

from coterie.kernel.episode import Sample
from coterie.learning.batch import Pack, Row
from coterie.learning.distribution import log_distribution
from coterie.learning.lean import LeanForward
from coterie.learning.loss import Loss, Tokens
from coterie.learning.masks import attention_masks, causal_mask, sees_all
from coterie.learning.policy import Policy
from coterie.models.attention import CAUSAL, KEYWORD, Split, grouped, installed, parts, splits
from coterie.models.lean import Attend
from coterie.models.load import Head, Model
from coterie.models.meter import at_once

Way = Literal["masks", "parts", "causal"]
"""Way to tell a network what a token sees: by masks; by packs' parts; not at all, where rows are alone."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A micro-batch as tensors. B packs, T longest, N trained tokens.

    predictor: flat index into (B x T) of the position that predicts each trained token. packs: what was laid out.
    way: how the network is told what a token sees.
    """

    ids: torch.Tensor  # (B, T)
    positions: torch.Tensor  # (B, T)
    ends: torch.Tensor  # (B, T), of each token's branch, see `attention_masks`
    predictor: torch.Tensor  # (N,)
    targets: torch.Tensor  # (N,)
    packs: tuple[Pack, ...]
    way: Way

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in their order."""
        return tuple(row for pack in self.packs for row in pack.rows)

    def spread(self, values: Sequence[float], device: torch.device) -> torch.Tensor:
        """Returns one number a row, repeated for each of its trained tokens, (N,) float32."""
        repeated = [value for value, row in zip(values, self.rows, strict=True) for _ in row.completion_ids]
        return torch.tensor(repeated, dtype=torch.float32).to(device)

    def tokens(self, logprobs: torch.Tensor, *, corrected: bool) -> Tokens:
        """Returns the data that a loss is computed from.

        Args:
            logprobs: (N,), of the trained tokens.
            corrected: whether the ratio compares with the learner's weights before the first optimizer step, and not
                with the engine. Rows without `old_logprobs` belong to that first step, so their own values are used.
        """
        device = logprobs.device
        rollout = torch.tensor([value for row in self.rows for value in row.rollout_logprobs], device=device)
        old = rollout
        if corrected:
            before = [value for row in self.rows for value in row.old_logprobs]
            old = torch.tensor(before, device=device) if before else logprobs.detach()
        return Tokens(
            logprobs=logprobs,
            old=old,
            rollout=rollout,
            advantages=self.spread([row.advantage for row in self.rows], device),
            rows=torch.tensor([at for at, row in enumerate(self.rows) for _ in row.completion_ids], device=device),
            lengths=torch.tensor([len(row.completion_ids) for row in self.rows], device=device),
        )


def lay_out(packs: Sequence[Pack], way: Way = "masks") -> Layout:
    """Lays packs out side by side, padded to the longest; by parts in one line, all prefixes first.

    Args:
        way: see `way_of`.
    """
    apart = way == "parts"
    lines = [_line(pack, [0, *(pack.shared for _ in pack.rows[1:])] if apart else pack.alike) for pack in packs]
    if apart:
        lines = [_joined(lines, [pack.shared for pack in packs])]
    longest = max(len(ids) for ids, *_ in lines)
    tables: list[list[list[int]]] = [[], [], []]
    predictor: list[int] = []
    for index, (ids, positions, ends, predicts) in enumerate(lines):
        padding = range(len(ids), longest)
        tables[0].append(ids + [0 for _ in padding])
        tables[1].append(positions + [0 for _ in padding])
        tables[2].append(ends + [place + 1 for place in padding])  # it sees itself
        predictor += [index * longest + place for place in predicts]
    targets = [token for pack in packs for row in pack.rows for token in row.completion_ids]
    return Layout(*map(torch.tensor, (*tables, predictor, targets)), packs=tuple(packs), way=way)


Line = tuple[list[int], list[int], list[int], list[int]]
"""Ids, positions, where branches end, and which places predict a trained token."""


def _joined(lines: Sequence[Line], shared: Sequence[int]) -> Line:
    """Joins lines to one: all shared prefixes, then the rest of each line. The ends of branches are not used then."""
    ids, positions = (
        [one for line, size in zip(lines, shared, strict=True) for one in line[at][:size]] for at in (0, 1)
    )
    predicts: list[int] = []
    for line, size in zip(lines, shared, strict=True):
        predicts += [place - size + len(ids) for place in line[3]]
        ids += line[0][size:]
        positions += line[1][size:]
    return ids, positions, [len(ids)] * len(ids), predicts


def _line(pack: Pack, alike: Sequence[int]) -> Line:
    """Returns a pack's tokens in their order, as a line.

    Args:
        alike: how many of each row's tokens are those of the row before.
    """
    ids, positions, ends, predicts, path = (list[int]() for _ in range(5))
    for row, common in zip(pack.rows, alike, strict=True):
        for place in path[common:]:
            ends[place] = len(ids)
        path = path[:common] + list(range(len(ids), len(ids) + row.tokens - common))
        ids += row.line[common:]
        positions += range(common, row.tokens)
        ends += [0] * (row.tokens - common)
        predicts += path[len(row.prompt_ids) - 1 :]
    for place in path:
        ends[place] = len(ids)
    return ids, positions, ends, predicts


@dataclass(frozen=True, slots=True)
class Scores:
    """The network's scores of N trained tokens, float32; only logprobs have a gradient.

    entropy: nats, of the distribution the token was drawn from. steepness: the norm of the gradient
    of the token's log-probability at the logits, |one_hot - p|, in [0, sqrt 2): 0 for a certain token.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor
    steepness: torch.Tensor


def score(model: Model, layout: Layout, dtype: torch.dtype, lean: LeanForward | None = None) -> Scores:
    """Returns the log-probability of each trained token, and entropy and steepness where it was sampled.

    Args:
        layout: one row alone, where the model does not pack.
        dtype: what the network computes in; float32, or bfloat16 by autocast.
        lean: the network without its modules, which then compute nothing; in float32.
    """
    device = model.device
    targets = layout.targets.to(device)
    temperatures = layout.spread([row.temperature for row in layout.rows], device)

    def read(states: torch.Tensor, head: Head) -> torch.Tensor:
        """Returns the scores from the states that predict a trained token, (N, H)."""
        size = at_once(model.config.vocab_size)
        each = zip(*(tensor.split(size) for tensor in (states, targets, temperatures)), strict=True)
        chunks = [_chunk(head, model.vocabulary, *part, again=len(states) > size) for part in each]
        return torch.stack([torch.cat(tensors) for tensors in zip(*chunks, strict=True)])

    if lean is not None:
        scores = read(*_lean_states(lean, model, layout))
    else:
        predictor = layout.predictor.to(device)
        inputs: dict[str, Any] = {}
        if model.packs:
            inputs = {"position_ids": layout.positions.to(device), **_seen(model, layout, dtype)}
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            scores = model.read(
                layout.ids.to(device), lambda hidden, head: read(hidden.flatten(0, 1)[predictor], head), **inputs
            )
    logprobs, entropy, steepness = scores.unbind()
    return Scores(logprobs, entropy.detach(), steepness.detach())


def logprobs_of(policy: Policy, sample: Sample) -> list[float]:
    """Returns the log-probability of each token of a reply by a policy's weights, in nats, at its sampling temperature.

    A greedy reply is scored at temperature 1. top_p is not applied, as in training.
    """
    row = Row(sample.prompt_ids, sample.completion_ids, sample.logprobs, 0.0, 0.0, sample.temperature or 1.0, "")
    packs = [Pack(0, (row,))]
    with torch.no_grad():
        found = score(policy.model, lay_out(packs, way_of(policy.model, packs)), policy.dtype)
    return found.logprobs.tolist()


def _lean_states(lean: LeanForward, model: Model, layout: Layout) -> tuple[torch.Tensor, Head]:
    """Returns the states that predict a trained token, (N, H), and the function that makes logits of them.

    The output of the last layer for tokens before the first of these is not needed.
    """
    device, (_, longest) = model.device, layout.ids.shape
    line, place = layout.predictor // longest, layout.predictor % longest
    first = sum(pack.shared for pack in layout.packs) if layout.way == "parts" else int(place.min())
    weights, attend = lean.weights, _attend(model, layout, first)
    states = lean.states(weights, layout.ids.to(device), layout.positions.to(device), attend, first)
    asked = (line * (longest - first) + place - first).to(device)
    return states[asked], lambda states: lean.logits(weights, states)


def _attend(model: Model, layout: Layout, first: int) -> Attend:
    """Returns the attention of tokens to what they see; the last layer's, from `first` on alone."""
    device, longest = model.device, layout.ids.shape[1]
    if layout.way == "parts":
        split = _split(layout.packs, device)
        return _heads_first(lambda query, key, value: parts(query, key, value, split, 1.0))
    if layout.way == "causal":
        end = causal_mask(longest, first, device)
        return _heads_first(
            lambda query, key, value: grouped(query, key, value, None if query.shape[2] == longest else end, 1.0)
        )
    mask = _mask(model, layout, torch.float32)
    assert isinstance(mask, torch.Tensor)
    return _heads_first(lambda query, key, value: grouped(query, key, value, mask[:, :, -query.shape[2] :], 1.0))


def _heads_first(attend: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> Attend:
    """Adapts an attention of (B, H, T, D) to tensors of (B, T, H, D), as a network asks for it."""
    return lambda _, *tensors: attend(*(tensor.transpose(1, 2) for tensor in tensors)).transpose(1, 2)


def merges(loss: Loss) -> bool:
    """Returns True if a loss lets equal replies be trained as one row, see `batch.merged`. Random replies test it.

    So a user's own loss needs no setting for it. If the loss raises here, replies are not merged, and it raises again
    in training.
    """
    chance = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    rows, copies, length = 32, 3, 2
    logprobs, old, rollout, reference = (-some(rows, length).abs() for _ in range(4))

    def losses(which: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Returns the weighted loss of each token, (replies, length)."""
        batch = Tokens(
            logprobs=logprobs[which].flatten().requires_grad_(),
            old=old[which].flatten(),
            rollout=rollout[which].flatten(),
            advantages=advantages.repeat_interleave(length),
            rows=torch.arange(len(which)).repeat_interleave(length),
            lengths=torch.full((len(which),), length),
        )
        each = loss(batch, reference[which].flatten() if loss.kl else None)
        return each.detach().view(-1, length) * weights[:, None]

    each = torch.arange(rows)
    weights = some(rows, copies).abs()
    advantages = some(rows, 1).sign() * (2 * some(rows, copies)).exp()
    whole = weights.sum(dim=1)
    try:
        apart = losses(each.repeat_interleave(copies), advantages.flatten(), weights.flatten())
        together = losses(each, (weights * advantages).sum(dim=1) / whole, whole)
    except Exception:  # whatever somebody's own loss raises
        return False
    return torch.allclose(apart.view(rows, copies, length).sum(dim=1), together, rtol=1e-9)


def way_of(model: Model, packs: Sequence[Pack]) -> Way:
    """Returns the way in which a micro-batch is laid out for a model: one that is exact, and the fastest."""
    if all(by_parts(model, pack) for pack in packs):
        return "parts"
    return "causal" if all(len(pack.rows) == 1 for pack in packs) and _maskless(model, packs) else "masks"


def by_parts(model: Model, pack: Pack) -> bool:
    """Returns True if a pack's attention is made of parts."""
    if len(pack.rows) == 1 or not _maskless(model, [pack]):
        return False
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return splits(pack.shared, _lengths(pack), pack.fewest, config.num_attention_heads * head_dim)


def _maskless(model: Model, packs: Sequence[Pack]) -> bool:
    """Returns True if each token sees all that is before it in its own sequence, and the network can be told so."""
    longest = max(row.tokens for pack in packs for row in pack.rows)
    return model.splits and installed(model.net) and sees_all(model.config, longest)


def _split(packs: Sequence[Pack], device: torch.device) -> Split:
    return Split.of([(pack.shared, _lengths(pack)) for pack in packs], device)


def _lengths(pack: Pack) -> list[int]:
    return [row.tokens - pack.shared for row in pack.rows]


def _seen(model: Model, layout: Layout, dtype: torch.dtype) -> dict[str, Any]:
    """Returns the arguments that tell a network what each token sees."""
    if layout.way == "masks":
        return {"attention_mask": _mask(model, layout, dtype)}
    said = CAUSAL
    if layout.way == "parts":
        said = _split(layout.packs, model.device)
    return {"attention_mask": torch.zeros(1, 1, 1, 1, device=model.device), KEYWORD: said}  # 4-D: no mask is made of it


def _mask(model: Model, layout: Layout, dtype: torch.dtype) -> torch.Tensor | dict[str, torch.Tensor]:
    return attention_masks(model.config, layout.ends.to(model.device), layout.positions.to(model.device), dtype)


def _chunk(
    head: Head,
    vocabulary: int,
    states: torch.Tensor,
    targets: torch.Tensor,
    temperatures: torch.Tensor,
    *,
    again: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores one chunk. again: its logits are made again in the backward pass instead of being kept."""

    def compute(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        distribution = log_distribution(head(states), temperatures[:, None], vocabulary)
        logprobs = distribution.gather(-1, targets[:, None])[:, 0]
        with torch.no_grad():
            shares = distribution.exp()
            entropy = -(shares * distribution).sum(dim=-1)
            steepness = (1 - 2 * logprobs.exp() + torch.einsum("nv,nv->n", shares, shares)).clamp(min=0).sqrt()
        return logprobs, entropy, steepness

    if again:
        return checkpoint(compute, states, use_reentrant=False)  # pyright: ignore[reportReturnType]
    return compute(states)
