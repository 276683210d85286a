"""Selection: which of a step's groups are trained. Pure functions of groups.

The returns of a group vary for two reasons: the group's decision, and the chance after it. Let m_j be the
true value of alternative j, n_j its number of continuations, R_j their mean return and s_j^2 their variance:

    U      = 1/(A-1) sum_j (R_j - mean)^2            its expectation is signal + noise
    noise  = 1/A sum_j s_j^2 / n_j
    signal = U - noise                               unbiased for 1/(A-1) sum_j (m_j - mean)^2

(random-effects analysis of variance, with unequal n_j and s_j). "raw_var" ranks by the variance of all
returns, as JoyAgents-R1 does (arXiv:2506.19846, "largest reward fluctuation"), with one return per reply. For
rewards of 0 and 1 this variance depends only on the success rate. "signal" ranks by the signal above. An estimate
of a small signal is often below zero; such estimates are never set to zero before they are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, variance
from typing import Literal

from coterie.errors import GroupError
from coterie.kernel.group import Group, Key

Rule = Literal["all_live", "raw_var", "signal", "shrunk", "random_live", "sample"]
RANKED: tuple[Rule, ...] = ("raw_var", "signal", "random_live", "sample")
"""Rules that choose a number of groups."""
Among = Literal["query", "policy", "batch"]
UNKNOWN = 1e9
"""Offset that ranks groups of unknown signal behind all others."""
LEAST_WEIGHT = 0.05
"""Least weight of a live group under "sample", as a share of the largest; with 0 some would never be drawn."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The variance of a group's returns: between its alternatives, and by chance.

    alternatives: distinct ones; equal replies are pooled. spread: U. noise: the part of U that chance
    after the decision explains, in expectation; None where one continuation each cannot tell.
    """

    alternatives: int
    spread: float
    noise: float | None

    @property
    def signal(self) -> float | None:
        """Unbiased estimate of the variance of the alternatives' values; it can be below zero by chance."""
        return None if self.noise is None else self.spread - self.noise

    @property
    def reliability(self) -> float:
        """Share of the spread that is signal, in [0, 1]; 0 where the signal is unknown."""
        if not self.spread or self.signal is None:
            return 0.0
        return max(0.0, self.signal) / self.spread


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings of the selection of groups.

    rule: see `select`. among: the sets ("lots") in which groups are ranked: those of one base episode, of one policy,
    or of the step. top_k: maximum number of groups per lot; None: half of its live groups, or as many as the floors
    need. floor: number of best live groups of each policy that are always selected. last_exact: rewards after the
    last decision are deterministic.
    """

    rule: Rule
    top_k: int | None = None
    among: Among = "batch"
    floor: int = 0
    last_exact: bool = False


def variation(group: Group, *, last_exact: bool = False) -> Variation:
    """Computes the variance of a group's returns: between its alternatives, and by chance.

    Equal replies are one alternative with all their returns. An alternative with one return takes the
    pooled variance of the others; where none has two, noise is known only if nothing is decided after
    the group (`group.last`) and `last_exact` says that scoring has no chance of its own.
    """
    pooled: dict[tuple[tuple[int, ...], ...], list[float]] = {}
    for member in group.members:
        reply = tuple(sample.completion_ids for sample in member.samples)
        if not group.pooled or reply not in pooled:
            pooled.setdefault(reply, []).extend(member.returns)
    alternatives = len(pooled)
    if alternatives < 2:
        return Variation(alternatives, 0.0, 0.0)
    spread = variance(fmean(returns) for returns in pooled.values())
    if group.last and last_exact:
        return Variation(alternatives, spread, 0.0)
    measured = [returns for returns in pooled.values() if len(returns) > 1]
    if not measured:
        return Variation(alternatives, spread, None)
    within = sum((len(own) - 1) * variance(own) for own in measured) / sum(len(own) - 1 for own in measured)
    noise = fmean((variance(own) if len(own) > 1 else within) / len(own) for own in pooled.values())
    return Variation(alternatives, spread, noise)


def select(groups: Sequence[Group], choice: Choice, rng: Random) -> list[Group]:
    """Returns the groups to train on, in the order given, some with another weight.

    all_live     every group whose returns differ and that has two distinct alternatives
    raw_var      the k whose returns vary most (the paper's)
    signal       the k with the largest signal above zero
    shrunk       all live, each weighted by its reliability: the best linear predictor of m_j - mean
    random_live  any k: the control that every claim for a ranking needs
    sample       each with its own probability, min(1, k w / sum w) for w the signal, at least
                 LEAST_WEIGHT of the largest, and weighted by 1 / probability: the gradient of all_live
                 in expectation (where the loss's denominator does not depend on what is chosen: "tasks"),
                 which a hard choice on the same rewards is not

    Under a ranking, each policy's `floor` best live groups come first, whatever their score.

    Args:
        rng: for random_live and sample; what it draws does not depend on the groups' order.

    Raises:
        GroupError: a lot's floors need more than `top_k`.
    """
    variations = {group.key: variation(group, last_exact=choice.last_exact) for group in groups}
    live = [group for group in groups if group.live and variations[group.key].alternatives > 1]
    if choice.rule == "all_live":
        return live
    if choice.rule == "shrunk":
        shrunk = [replace(group, weight=group.weight * variations[group.key].reliability) for group in live]
        return [group for group in shrunk if group.weight]
    lots: dict[object, list[Group]] = {}
    for group in sorted(live, key=_tie):
        lots.setdefault(_lot(group, choice.among), []).append(group)
    if choice.rule == "sample":
        drawn: dict[Key, Group] = {}
        for lot in lots.values():
            drawn |= _sampled(lot, variations, choice, rng)
        return [drawn[group.key] for group in live if group.key in drawn]
    score = _scores(live, variations, choice.rule, rng)
    chosen = {group.key for lot in lots.values() for group in _best(lot, score, choice)}
    return [group for group in live if group.key in chosen]


def _lot(group: Group, among: Among) -> object:
    match among:
        case "query":
            return group.key.task, group.key.episode
        case "policy":
            return group.policy
        case "batch":
            return None


def _tie(group: Group) -> tuple[object, ...]:
    """Returns a sort key for groups of one score: the larger first, then the earlier in its episode, then by name."""
    return -len(group.members), group.point or 0, group.key


def _count(lot: Sequence[Group], choice: Choice) -> int:
    policies = len({group.policy for group in lot})
    count = choice.top_k or max(policies * max(1, choice.floor), math.ceil(len(lot) / 2))
    if count < policies * choice.floor:
        raise GroupError(f"top_k = {count} is less than a floor of {choice.floor} for each of {policies} policies")
    return count


def _scores(
    live: Sequence[Group], variations: Mapping[Key, Variation], rule: Rule, rng: Random
) -> Callable[[Group], float]:
    if rule == "raw_var":
        return lambda group: variance(value for member in group.members for value in member.returns)
    if rule == "random_live":
        chance = {group.key: rng.random() for group in sorted(live, key=_tie)}
        return lambda group: chance[group.key]

    def signal(group: Group) -> float:
        """Returns a group's signal; if it is unknown, a number less than any signal, ordered by U."""
        told = variations[group.key]
        return told.spread - UNKNOWN if told.signal is None else told.signal

    return signal


def _best(lot: Sequence[Group], score: Callable[[Group], float], choice: Choice) -> list[Group]:
    """Returns the lot's best groups, ties as they stand: each policy's floor, then those that score above zero."""
    ranked = sorted(lot, key=score, reverse=True)
    count = _count(lot, choice)
    first: list[Group] = []
    for policy in sorted({group.policy for group in lot}):
        first += [group for group in ranked if group.policy == policy][: choice.floor]
    rest = [group for group in ranked if score(group) > 0 and not any(group is taken for taken in first)]
    return first + rest[: count - len(first)]


def _sampled(
    lot: Sequence[Group], variations: Mapping[Key, Variation], choice: Choice, rng: Random
) -> dict[Key, Group]:
    """Selects each group by a draw of its own, weighted by 1 / probability (Horvitz and Thompson)."""
    signals = {group.key: max(0.0, variations[group.key].signal or 0.0) for group in lot}
    least = LEAST_WEIGHT * max(signals.values()) or 1.0
    weights = {key: max(least, signal) for key, signal in signals.items()}
    share = _count(lot, choice) / sum(weights.values())
    drawn: dict[Key, Group] = {}
    for group in lot:
        probability = min(1.0, share * weights[group.key])
        if rng.random() < probability:
            drawn[group.key] = replace(group, weight=group.weight / probability)
    return drawn
