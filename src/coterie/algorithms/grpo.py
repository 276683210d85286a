"""GRPO: one role, one policy (DeepSeekMath, arXiv:2402.03300), over one or several turns."""

from __future__ import annotations

from coterie.algorithms.base import GroupBaseline
from coterie.errors import ConfigError
from coterie.kernel.environment import Environment, Task
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from coterie.sampling.episodes import TEAM, WHOLE, by_team, collected, play_episodes


class GRPO(GroupBaseline):
    """GRPO of a single agent: `num_generations` episodes of a task are compared.

    With one turn groups and advantages are the paper's: replies to one prompt. Its loss is
    `loss.denominator = "sequences"` with a KL term; the defaults are a mean over tokens, and none. With several turns
    the episode is the unit, as in multi-turn trainers. It is the matched single-agent baseline of a team environment.
    """

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError: the environment has several roles."""
        if len(environment.roles) > 1:
            raise ConfigError(
                f"{type(self).__name__} trains one role, but this environment has {len(environment.roles)} "
                f"({', '.join(environment.roles)}); set environment.solo = true where there is one, or use at_grpo"
            )

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays `num_generations` episodes of a task."""
        played = await play_episodes(play, task, self.num_generations)
        members = [episode.member(drawn, self.team_weight) for _, episode, drawn in by_team(played)]
        return collected(play, task, played, {(WHOLE, TEAM): members})
