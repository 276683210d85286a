"""JoyAgents-R1: node-wise groups, of which the most informative are trained (arXiv:2506.19846).

The paper's training code is not public. What its text and reviews state is marked as the paper's below;
everything else is ours. Its memory is available for any algorithm, in the config table `[memory]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from coterie.algorithms.credit import Credit
from coterie.algorithms.node_wise import NodeWise
from coterie.algorithms.selection import RANKED, Among, Choice, Rule, select
from coterie.errors import ConfigError
from coterie.kernel.environment import Environment
from coterie.kernel.group import Group
from coterie.kernel.team import Team

BY_SIGNAL: tuple[Rule, ...] = ("signal", "shrunk", "sample")
"""Rules that need to know what chance does after a decision."""


class JoyAgents(NodeWise):
    """Node-wise groups, all of which are trained unless another rule is chosen.

    The paper's: alternatives at nodes of an initial trajectory, and an update from the K groups that stand
    out. The defaults differ from the paper in five ways. Every live group is trained, because its samples are
    already paid for (`selection`). If groups are ranked, a `floor` keeps some for each policy; ranking by "signal"
    needs two continuations to tell the effect of the decision from chance. Every decision of one base episode is
    a node with four alternatives, which gave the best gradient (`python -m benchmarks allocation`). Credit is
    leave-one-out, without a division by the deviation. The loss sums over tokens, so that neither the length of a
    reply nor the number of turns is weighted.
    """

    advantage: Credit = "leave_one_out"
    """Function that turns the returns of a group into advantages."""
    selection: Rule = "all_live"
    """Rule that selects the groups to train on. all_live: no selection. raw_var: groups with the largest variance of
    returns. signal: groups with the largest variance due to the decision. shrunk: all live groups, weighted by the
    share of their variance that is due to the decision. random_live: random live groups. sample: each live group with
    a probability; its weight is the inverse."""
    top_k: int | None = Field(default=None, ge=1)
    """Maximum number of groups to select from each set that `among` names. none: half of its live groups (groups whose
    returns differ), and at least one per policy."""
    among: Among = "batch"
    """Set in which groups are ranked: those of one base episode (query), of one policy, or of the step (batch)."""
    floor: int = Field(default=1, ge=0)
    """Number of best live groups per policy that are always selected."""
    noise: Literal["measured", "last_exact"] = "measured"
    """Estimate of the noise of a group. Noise is the part of the variance of its returns that comes from chance after
    the decision; the rest is its signal. measured: noise is estimated from several continuations. last_exact: rewards
    are deterministic, so groups without a later decision have no noise. With one continuation the signal of the other
    groups is unknown, and only `floor` can select them.
    """

    loss: ClassVar[Mapping[str, Any]] = {"name": "clip", "epsilon_high": 0.28, "denominator": "tasks"}
    """A reply's tokens are summed: no length or turn weighs more than another."""

    def inert(self) -> dict[str, str]:
        """Returns the settings that the selection rule does not use, each with a reason."""
        inert: dict[str, str] = {}
        if self.selection not in RANKED:
            inert |= dict.fromkeys(("top_k", "among", "floor"), f"selection = '{self.selection}' does not rank")
        elif self.selection == "sample":
            inert["floor"] = "selection = 'sample' gives every live group a probability"
        if self.selection not in BY_SIGNAL:
            inert["noise"] = f"selection = '{self.selection}' does not ask for it"
        return super().inert() | inert

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError: noise cannot be estimated, or top_k is too small for every policy's floor."""
        if self.continuations == 1 and (
            self.selection == "shrunk" or (self.selection in BY_SIGNAL and self.noise == "measured")
        ):
            raise ConfigError(
                f"selection = '{self.selection}' needs to know how much of a group's variance is chance, which one "
                "continuation cannot tell; set algorithm.continuations = 2, or selection = 'raw_var', or, for 'signal' "
                "where scoring has no chance, algorithm.noise = 'last_exact'"
            )
        policies = 1 if self.among == "policy" else len(team.trained)
        if self.selection in ("raw_var", "signal", "random_live") and (self.top_k or policies * self.floor) < (
            policies * self.floor
        ):
            raise ConfigError(
                f"top_k = {self.top_k} is less than algorithm.floor = {self.floor} for each of {policies} policies; "
                f"raise top_k to {policies * self.floor}, or set floor = 0"
            )

    def select(self, groups: Sequence[Group], rng: Random) -> Sequence[Group]:
        """Returns the groups that the rule selects. "all_live" keeps flat ones, as zeros in the mean of the loss."""
        if self.selection == "all_live":
            return groups
        floor = 0 if self.selection == "sample" else self.floor
        choice = Choice(self.selection, self.top_k, self.among, floor, self.noise == "last_exact")
        return select(groups, choice, rng)


class JoyAgentsPaper(JoyAgents):
    """JoyAgents-R1 as far as it is public: the five groups of each query whose rewards vary most.

    The paper's: an initial trajectory and alternatives at its nodes, the variance of a group's rewards as
    the score, the K = 5 of its best run, and GRPO's standardized advantage. Not published, and ours: every
    decision is a node, 4 alternatives, one continuation by the current team, the base's reply among them,
    K counted for each base episode, no floor, the clip of 0.2, the KL weight of 0.001.
    """

    advantage: Credit = "standardize"
    """Function that turns the returns of a group into advantages."""
    selection: Rule = "raw_var"
    """Rule that selects the groups to train on. all_live: no selection. raw_var: groups with the largest variance of
    returns. signal: groups with the largest variance due to the decision. shrunk: all live groups, weighted by the
    share of their variance that is due to the decision. random_live: random live groups. sample: each live group with
    a probability; its weight is the inverse."""
    top_k: int | None = Field(default=5, ge=1)
    """Maximum number of groups to select from each set that `among` names."""
    among: Among = "query"
    """Set in which groups are ranked: those of one base episode (query), of one policy, or of the step (batch)."""
    floor: int = Field(default=0, ge=0)
    """Number of best live groups per policy that are always selected."""

    loss: ClassVar[Mapping[str, Any]] = {"name": "clip", "kl": 0.001, "denominator": "sequences"}
    """A mean over sequences of their tokens' mean."""
