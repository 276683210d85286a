"""REINFORCE++: a baseline and a scale from the whole step (arXiv:2501.03262)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.algorithms.base import State
from coterie.algorithms.credit import standardize_weighted
from coterie.algorithms.episodic import Episodic
from coterie.kernel.group import Group


class ReinforcePP(Episodic):
    """Every episode against all of the step: A = (R - mean) / deviation, over the step's tokens of a role.

    The paper's: one episode a prompt will do, and no critic; mean and deviation are of the batch, a value a token;
    a clipped ratio. Ours: a role has mean and deviation of its own, for returns of roles are of different
    kinds; R is the team's rewards and the role's local ones; KL is a term of the loss (`loss.kl`) and not of R.
    """

    def credit(self, groups: Sequence[Group], state: State) -> tuple[list[tuple[float, ...]], State]:
        """Each role's returns over the step, standardised; a member counts as often as it has tokens."""
        by_member: dict[tuple[int, int], float] = {}
        for role in sorted({group.key.role for group in groups}):
            places = [
                (at, number)
                for at, group in enumerate(groups)
                if group.key.role == role
                for number in range(len(group.members))
            ]
            members = [groups[at].members[number] for at, number in places]
            tokens = [sum(len(sample.completion_ids) for sample in member.samples) for member in members]
            earned = standardize_weighted([member.value for member in members], tokens)
            by_member |= dict(zip(places, earned, strict=True))
        credit = (
            tuple(by_member[at, number] for number in range(len(group.members))) for at, group in enumerate(groups)
        )
        return list(credit), state
