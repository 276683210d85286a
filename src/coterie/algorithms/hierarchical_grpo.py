"""Hierarchical GRPO: attempts at one problem are compared within an episode, proposals across episodes (prime-rl)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from coterie.algorithms.base import GroupBaseline
from coterie.algorithms.credit import Credit
from coterie.errors import ConfigError, nearest
from coterie.kernel.environment import Environment, Task
from coterie.kernel.episode import Rewarded
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from coterie.sampling.episodes import WHOLE, Episode, by_role, collected, play_episodes


class HierarchicalGRPO(GroupBaseline):
    """Two levels of groups: roles that attempt something several times, and roles that set or judge it.

    Replies of a role in `attempts` to one prompt of an episode are compared with each other, each by its own local
    rewards. Every other role is compared with itself in the other episodes of the task, by the team's rewards and its
    own local ones. An attempt without another one at the same prompt is not trained.

    prime-rl's: the two levels, A = r - mean, 0 for one alone. Ours: any `advantage`; that attempts are those at equal
    prompts. It fits environments that ask a role several times at once, such as `maths` with several reasoners.
    """

    attempts: tuple[str, ...] = Field(min_length=1)
    """Roles whose replies to one prompt are compared within an episode, such as ["reasoner"]."""
    advantage: Credit = "center"
    """Function that turns the returns of a group into advantages."""

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError: a role in `attempts` does not exist, or is named twice."""
        for role in self.attempts:
            if self.attempts.count(role) > 1:
                raise ConfigError(f"algorithm.attempts names '{role}' twice; name it once")
            if role not in environment.roles:
                raise ConfigError(
                    f"algorithm.attempts names '{role}'{nearest(role, environment.roles)}; the roles are "
                    f"{', '.join(environment.roles)}"
                )

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task; groups them by attempted prompt, and by each other role."""
        played = await play_episodes(play, task, self.num_generations)
        lots: dict[tuple[str, str], list[Member]] = {}
        for role, episode, drawn in by_role(played):
            if role not in self.attempts:
                lots.setdefault((WHOLE, role), []).append(episode.member(drawn, self.team_weight, role))
        found = collected(play, task, played, lots)
        attempts = [group for episode in played for group in self._within(play, task, episode)]
        return replace(found, groups=(*found.groups, *attempts))

    def _within(self, play: Play, task: Task, episode: Episode) -> Iterator[Group]:
        """Yields groups of two and more attempts at one prompt of an episode, each with its own local rewards."""
        earned: defaultdict[tuple[int, str], float] = defaultdict(float)
        for event in episode.log.events:
            if isinstance(event, Rewarded) and event.role:
                earned[event.point or 0, event.role] += event.value
        lots: dict[tuple[str, tuple[int, ...]], list[Member]] = {}
        for one in episode.drawn:
            if one.sample.role in self.attempts:
                member = Member((one.sample,), (earned[one.point, one.speaker],), episode=episode.number)
                lots.setdefault((one.sample.role, one.sample.prompt_ids), []).append(member)
        for number, ((role, _), members) in enumerate(lots.items()):
            if len(members) > 1:
                yield Group(Key(task.id, 0, f"attempts {episode.number}.{number}", role), "prompt", tuple(members))
            else:
                play.budget.dropped["lone"] += 1
