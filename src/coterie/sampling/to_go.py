"""Rewards to go: what a role earned from each of its replies to the end of an episode."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from coterie.kernel.episode import Asked, Event, Rewarded
from coterie.kernel.group import Member
from coterie.kernel.play import Drawn
from coterie.sampling.episodes import Episode


def members_to_go(episode: Episode, drawn: Sequence[Drawn], team_weight: float, discount: float) -> list[Member]:
    """Returns each sample of a role as a member, with the rewards that followed it as its return: see `to_go`."""
    places = [(one.point, one.speaker) for one in drawn]
    after = to_go(episode.log.events, places, team_weight, discount)
    return [Member((one.sample,), (left,), episode=episode.number) for one, left in zip(drawn, after, strict=True)]


def to_go(
    events: Sequence[Event], decisions: Sequence[tuple[int, str]], team_weight: float, discount: float
) -> list[float]:
    """Returns a role's rewards from each decision on: what it earned, and discount x (what its next point came to).

    What a decision earned is team_weight x (team rewards) + (its own local rewards), given before the role's next
    point; where it said several things at once, a point came to its team rewards and the local ones of all of them.

    Args:
        decisions: the point and speaker of each, in order.
    """
    points = sorted({point for point, _ in decisions})
    team, local = [0.0] * len(points), dict.fromkeys(decisions, 0.0)
    asked = -1
    for event in events:
        if isinstance(event, Asked):
            asked += 1
        elif isinstance(event, Rewarded) and event.role is None:
            if (at := bisect_right(points, asked) - 1) >= 0:
                team[at] += team_weight * event.value
        elif isinstance(event, Rewarded) and (decision := (event.point or 0, event.role or "")) in local:
            local[decision] += event.value
    later = 0.0
    after: dict[int, float] = {}
    for at, point in reversed(list(enumerate(points))):
        after[point] = team[at] + discount * later
        later = after[point] + sum(value for (where, _), value in local.items() if where == point)
    return [local[point, speaker] + after[point] for point, speaker in decisions]
