"""REINFORCE++: a baseline and a scale from the whole step (arXiv:2501.03262)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.algorithms.episodic import Episodic, over_the_step, standardize_weighted
from coterie.kernel.algorithm import State
from coterie.kernel.group import Group, Member


class ReinforcePP(Episodic):
    """A baseline and a scale from all of the step: A = (R - mean) / deviation, over the step's tokens of a role.

    The paper's: one episode a prompt will do, and no critic; mean and deviation are of the batch, a value a token;
    a clipped ratio. Ours: a role has mean and deviation of its own, for returns of roles are of different
    kinds; R is the team's rewards and the role's local ones; KL is a term of the loss (`loss.kl`) and not of R.
    """

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Standardises each role's returns over the step; a member counts as often as it has tokens."""
        return over_the_step(groups, _standardized), state


def _standardized(members: Sequence[Member]) -> list[float]:
    tokens = [sum(len(sample.completion_ids) for sample in member.samples) for member in members]
    return standardize_weighted([member.value for member in members], tokens)
