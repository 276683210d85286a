"""MAS-GRPO, the naive baseline: it compares whole-team episodes of the same task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from coterie.algorithms.base import GroupBaseline
from coterie.kernel.environment import Task
from coterie.kernel.episode import Asked, Event, TurnBegan
from coterie.kernel.group import Collected, Member
from coterie.kernel.play import Drawn, Play
from coterie.sampling.episodes import WHOLE, Episode, by_role, by_team, collected, play_episodes


class MASGRPO(GroupBaseline):
    """GRPO over episodes of the whole team: one return for every sample of an episode.

    What AT-GRPO's paper (arXiv:2510.11062) compares with, with correct accounting: all samples of
    all roles and turns are trained, each once. Their prompts differ, which is its weakness: a
    sample is credited with everything that happened in its episode, before it too. `by` narrows what is
    compared, with the same returns: AT-GRPO's groups without its tree.
    """

    by: Literal["team", "role", "turn", "role_turn"] = "team"
    """Unit of comparison across the episodes of a task. team: whole episodes. role: the replies of a role in an
    episode; turn: the replies of a turn; role_turn: the replies of a role in a turn."""

    def adds_up(self) -> bool:
        """Returns True: an episode has one return, the rewards of all roles."""
        return True

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task."""
        played = await play_episodes(play, task, self.num_generations)
        lots: dict[tuple[str, str], list[Member]] = {}
        for role, episode, drawn in (by_role if "role" in self.by else by_team)(played):
            for path, part in _by_turn(episode, drawn).items() if "turn" in self.by else [(WHOLE, drawn)]:
                lots.setdefault((path, role), []).append(episode.member(part, self.team_weight))
        return collected(play, task, played, lots)


def _by_turn(episode: Episode, drawn: Sequence[Drawn]) -> dict[str, list[Drawn]]:
    """Returns samples of an episode by the path of their turn, in order."""
    turns = turns_of(episode.log.events)
    lots: dict[str, list[Drawn]] = {}
    for one in drawn:
        lots.setdefault(f"turn {turns[one.point]}", []).append(one)
    return lots


def turns_of(events: Sequence[Event]) -> list[int]:
    """Returns the turn of each decision point of an episode; -1 before the first turn mark."""
    turn, turns = -1, list[int]()
    for event in events:
        if isinstance(event, TurnBegan):
            turn = event.number
        elif isinstance(event, Asked):
            turns.append(turn)
    return turns
