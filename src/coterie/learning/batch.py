"""A policy's experience as rows, and rows as packed micro-batches. No torch.

Everything that the gradient depends on is fixed here, before rows are split into micro-batches. A row holds
its advantage and the weight of each of its tokens, 1 / (the denominator of the step). So the gradient cannot
depend on micro-batches, order or padding.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from coterie.kernel.team import Graded
from coterie.learning.loss import Denominator, Loss

ROUNDING = 1e-4
"""Maximum difference, in nats, of two log-probabilities of one token that equal weights give in float32."""


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """One completion to train.

    rollout_logprobs: of the distribution it was sampled from, one a token. token_weight: what each
    of its tokens' losses is multiplied by. group: names it in errors. role: whose it is, for metrics.
    old_logprobs: of the weights before the rollout's first optimizer step, one a token, where they have
    moved since and the loss asks; else none. copies: how many replies it stands for, see `merged`.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    rollout_logprobs: tuple[float, ...]
    advantage: float
    token_weight: float
    temperature: float
    group: str
    role: str = ""
    old_logprobs: tuple[float, ...] = ()
    copies: int = 1

    @property
    def line(self) -> tuple[int, ...]:
        """Tokens that are computed: of prompt and completion, but the last, which predicts nothing."""
        return self.prompt_ids + self.completion_ids[:-1]

    @property
    def tokens(self) -> int:
        """Number of tokens that are computed: of prompt and completion, but the last."""
        return len(self.prompt_ids) + len(self.completion_ids) - 1


@dataclass(frozen=True, slots=True)
class RoleLearned:
    """A role's part in an update.

    entropy: mean over its trained tokens, nats. gradient: how hard its tokens pull at the logits:
    the norm of the loss's gradient there, summed over tokens. Unlike the weights' gradient it can be
    told apart where roles share a policy, and compared where they do not.
    """

    entropy: float
    gradient: float


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of an update of a policy: its metrics, and each role's part."""

    metrics: Mapping[str, float]
    roles: Mapping[str, RoleLearned]


@dataclass(frozen=True, slots=True, order=True)
class Pack:
    """Rows whose prompts begin alike, laid out as one line of tokens.

    shared: tokens of the prefix of all. At least one prompt token of each row stays outside it, so that a completion's
    first token is predicted inside the row's own part.
    """

    shared: int
    rows: tuple[Row, ...]

    @property
    def tokens(self) -> int:
        """Length of the line where the prefix is computed once, and each row's rest."""
        return self.shared + sum(row.tokens - self.shared for row in self.rows)

    @property
    def longest(self) -> int:
        """Number of tokens of the longest row, the prefix among them."""
        return max(row.tokens for row in self.rows)

    @property
    def alike(self) -> list[int]:
        """Number of first tokens of each row that equal those of the row before; 0 for the first row."""
        return [0, *(common(left.line, right.line) for left, right in pairwise(self.rows))]

    @property
    def fewest(self) -> int:
        """Length of the line if the common beginning of neighbouring rows is computed once, also inside replies."""
        return sum(row.tokens - alike for row, alike in zip(self.rows, self.alike, strict=True))


def trains(member: Graded, loss: Loss) -> bool:
    """Returns True if a reply has a gradient: an advantage, or a KL term that trains every one."""
    return bool(loss.kl or loss.advantage(member.advantage, len(member.sample.completion_ids)))


def rows_of(graded: Sequence[Graded], loss: Loss, *, groups: int | None = None) -> list[Row]:
    """Returns the rows of one policy and one optimizer step that have a gradient.

    The loss is sum over rows and tokens of token_weight x token loss, where token_weight is
    group weight x 1 / N with N the tokens of all replies given ("tokens"), 1 / (B x row length) with B their
    number ("sequences"), or 1 / (tasks x members of the group) ("tasks"). Replies without advantage are zeros
    in these means: they are counted, and left out of the rows unless a KL term trains them.

    Args:
        groups: number of all groups of the policy in the step, if `graded` holds only a part of them. The part is then
            scaled up to stand for all. None: `graded` holds all.
    """
    there = len({member.group for member in graded})
    scale = 1.0 if groups is None else groups / max(1, there)
    tokens = sum(len(member.sample.completion_ids) for member in graded)
    parts: dict[Denominator, Callable[[Graded], float]] = {
        "tokens": lambda _: 1 / tokens,
        "sequences": lambda member: 1 / (len(graded) * len(member.sample.completion_ids)),
        "tasks": lambda member: member.share * scale,
    }
    return [
        Row(
            prompt_ids=member.sample.prompt_ids,
            completion_ids=member.sample.completion_ids,
            rollout_logprobs=member.sample.logprobs,
            advantage=loss.advantage(member.advantage, len(member.sample.completion_ids)),
            token_weight=member.weight * parts[loss.denominator](member),
            temperature=member.sample.temperature,
            group=member.group,
            role=member.sample.role,
        )
        for member in graded
        if trains(member, loss)
    ]


def merged(rows: Sequence[Row]) -> list[Row]:
    """Merges replies that are equal into one row each: of one role, to one prompt, sampled alike.

    Exact for a loss that is linear in advantages of one sign (`forward.merges`), so advantages above and below 0 stay
    apart: the sum of w_i A_i f is (sum of w_i) x (their weighted mean of A_i) x f, and KL's part has the weight
    sum of w_i. What an engine reports of equal replies differs by rounding, by their neighbours in a batch: a row has
    the mean, in which each counts by its part in the sum, so that what is lost is of the second order; a reply that is
    further away than ROUNDING, as one of older weights, stays a row of its own.
    """
    alike: dict[tuple[object, ...], list[list[Row]]] = {}
    for row in rows:
        sign = (row.advantage > 0) - (row.advantage < 0)
        key = (row.prompt_ids, row.completion_ids, row.temperature, row.role, sign)
        lots = alike.setdefault(key, [])
        lot = next((lot for lot in lots if _near(lot[0].rollout_logprobs, row.rollout_logprobs)), None)
        if lot is None:
            lots.append([row])
        else:
            lot.append(row)
    return [_one(lot) for lots in alike.values() for lot in lots]


def _near(left: Sequence[float], right: Sequence[float]) -> bool:
    return all(abs(a - b) <= ROUNDING for a, b in zip(left, right, strict=True))


def _one(lot: Sequence[Row]) -> Row:
    weight = sum(row.token_weight for row in lot)
    if len(lot) == 1 or not weight:
        return replace(lot[0], copies=len(lot))
    parts = [row.token_weight * (abs(row.advantage) or 1.0) for row in lot]
    each = zip(*(row.rollout_logprobs for row in lot), strict=True)
    return replace(
        lot[0],
        rollout_logprobs=tuple(sum(map(operator.mul, parts, values)) / sum(parts) for values in each),
        advantage=sum(row.token_weight * row.advantage for row in lot) / weight,
        token_weight=weight,
        copies=len(lot),
    )  # fmt: skip


def pack(rows: Sequence[Row], longest: int, by_parts: Callable[[Pack], bool] = lambda _: False) -> list[Pack]:
    """Packs rows together whose prompts begin alike; each distinct prompt is computed once.

    A row joins when at least half of its prompt is shared and the layout stays within `longest` tokens, which under a
    mask are fewer than by parts. Independent of the order of `rows`.

    Args:
        by_parts: whether a pack's attention is made of parts.
    """
    packs: list[Pack] = []
    for row in sorted(rows):
        if packs:
            last = packs[-1]
            shared = min(last.shared, common(last.rows[0].prompt_ids, row.prompt_ids))
            joined = Pack(shared, (*last.rows, row))
            if 2 * shared >= len(row.prompt_ids) and (
                joined.tokens <= min(longest, last.tokens + row.tokens)
                or (joined.fewest <= longest and not by_parts(joined))
            ):
                packs[-1] = joined
                continue
        packs.append(Pack(len(row.prompt_ids) - 1, (row,)))
    return packs


def alone(rows: Sequence[Row]) -> list[list[Pack]]:
    """Puts each row in a micro-batch of its own, for a network that does not pack."""
    return [[Pack(len(row.prompt_ids) - 1, (row,))] for row in sorted(rows)]


def microbatches(
    packs: Sequence[Pack], tokens_per_microbatch: int, by_parts: Callable[[Pack], bool] = lambda _: False
) -> list[list[Pack]]:
    """Puts packs of like length together, as many as the budget holds; none is padded by more than a quarter.

    Packs under a mask lie side by side, and (number of packs) x (longest pack) stays within the budget. Packs whose
    attention is computed by parts lie in one line, and the sum of their tokens stays within it. A pack that is longer
    than the budget is alone in its micro-batch.

    Args:
        by_parts: whether a pack's attention is made of parts.
    """
    lines = [(by_parts(pack), pack) for pack in packs]
    side_by_side = [(pack.fewest, pack) for apart, pack in lines if not apart]
    in_a_line = [(pack.longest, pack) for apart, pack in lines if apart]

    def wide(batch: list[Pack], pack: Pack) -> bool:
        return (len(batch) + 1) * pack.fewest <= tokens_per_microbatch

    def long(batch: list[Pack], pack: Pack) -> bool:
        return sum(one.tokens for one in (*batch, pack)) <= tokens_per_microbatch

    return [*_batched(side_by_side, wide), *_batched(in_a_line, long)]


def _batched(packs: list[tuple[int, Pack]], fits: Callable[[list[Pack], Pack], bool]) -> Iterator[list[Pack]]:
    """Yields batches of packs whose sizes differ by a quarter at most, each of which fits beside those before it."""
    batch: list[Pack] = []
    least = 0
    for size, pack in sorted(packs):
        if batch and fits(batch, pack) and 4 * size <= 5 * least:
            batch.append(pack)
            continue
        if batch:
            yield batch
        batch, least = [pack], size
    if batch:
        yield batch


def common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Returns the length of the common prefix."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
