"""Whole episodes: every task is played several times, and an algorithm compares its episodes, or parts of them.

`play_episodes` returns what was played. An algorithm says in its own file which samples are members of which group,
and what their returns are; `collected` makes the groups. Prompts differ between the members, so the scope of such a
group is "task".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coterie.errors import Unavailable
from coterie.kernel.environment import Task
from coterie.kernel.episode import Log
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Drawn, Play

TEAM = "team"
"""Name of the whole team, in keys and in rewards."""
WHOLE = "*"
"""Path of a group that compares whole episodes, or all replies of a role in them."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode of a task: its number, its log, and the samples that somebody learns from, in order."""

    number: int
    log: Log
    drawn: tuple[Drawn, ...]

    def member(self, drawn: Iterable[Drawn], team_weight: float, role: str = TEAM) -> Member:
        """Returns samples of the episode as one member of a group.

        Its return is team_weight x (team rewards) + (local rewards).

        Args:
            drawn: one sample or more.
            role: whose local rewards count; TEAM: those of all roles.
        """
        totals = self.log.rewards()
        parts = {name: (team_weight if name == TEAM else 1.0) * total for name, total in totals.items()}
        counted = {name: value for name, value in parts.items() if role == TEAM or name in (TEAM, role)}
        return Member(tuple(one.sample for one in drawn), (sum(counted.values()),), counted, self.number)

    def replies(self, drawn: Iterable[Drawn], team_weight: float, role: str = TEAM) -> list[Member]:
        """Returns each sample as a member of its own, all with the return of the episode. Arguments as in `member`."""
        whole = self.member((), team_weight, role)
        return [replace(whole, samples=(one.sample,)) for one in drawn]


async def play_episodes(play: Play, task: Task, num_generations: int) -> list[Episode]:
    """Plays episodes of a task and returns those that were played to their end.

    Raises:
        Unavailable: none of them.
    """
    outcomes = await play.together(*(_episode(play, task, number) for number in range(num_generations)))
    played = [outcome for outcome in outcomes if not isinstance(outcome, Unavailable)]
    if not played:
        raise Unavailable("task", f"no episode of task {task.id} could be played")
    return played


async def _episode(play: Play, task: Task, number: int) -> Episode:
    cursor = play.start(task, number)
    drawn = await play.run(cursor)
    learning = set(play.learning(decision.speaker for decision in drawn))
    return Episode(number, cursor.log, tuple(decision for decision in drawn if decision.speaker in learning))


def by_team(episodes: Iterable[Episode]) -> Iterator[tuple[str, Episode, Sequence[Drawn]]]:
    """Yields all samples of each episode, under the name of the whole team."""
    yield from ((TEAM, episode, episode.drawn) for episode in episodes if episode.drawn)


def by_role(episodes: Iterable[Episode]) -> Iterator[tuple[str, Episode, Sequence[Drawn]]]:
    """Yields the samples of each role in each episode, in the order in which the roles spoke first."""
    for episode in episodes:
        lots: dict[str, list[Drawn]] = {}
        for one in episode.drawn:
            lots.setdefault(one.sample.role, []).append(one)
        yield from ((role, episode, drawn) for role, drawn in lots.items())


def collected(
    play: Play,
    task: Task,
    episodes: Sequence[Episode],
    lots: Mapping[tuple[str, str], Sequence[Member]],
    *,
    least: int = 2,
) -> Collected:
    """Makes a group of scope "task" of each lot of members.

    Args:
        lots: by path and role of the group's key.
        least: number of members below which a group is dropped, and its samples counted as lone; 1 for a method whose
            baseline comes from elsewhere.
    """
    groups: list[Group] = []
    for (path, role), members in sorted(lots.items()):
        if len(members) >= least:
            groups.append(Group(Key(task.id, 0, path, role), "task", tuple(members)))
        elif members:
            play.budget.dropped["lone"] += sum(len(member.samples) for member in members)
    return Collected(tuple(groups), tuple(episode.log for episode in episodes))
