"""GRPO: one role, one policy (DeepSeekMath, arXiv:2402.03300), over one or several turns."""

from __future__ import annotations

from coterie.algorithms.mas_grpo import MASGRPO
from coterie.errors import ConfigError
from coterie.kernel.environment import Environment
from coterie.kernel.team import Team


class GRPO(MASGRPO):
    """GRPO of a single agent: `num_generations` episodes of a task are compared.

    With one turn groups and advantages are the paper's: replies to one prompt. Its loss is
    `loss.denominator = "sequences"` with a KL term; the defaults are a mean over tokens, and none. With several turns
    the episode is the unit, as in multi-turn trainers. It is the matched single-agent baseline of a team environment.
    """

    def check(self, environment: Environment, team: Team) -> None:
        """Raises ConfigError: the environment has several roles."""
        if len(environment.roles) > 1:
            raise ConfigError(
                f"algorithm 'grpo' trains one role, but this environment has {len(environment.roles)} "
                f"({', '.join(environment.roles)}); set environment.solo = true where there is one, or use at_grpo"
            )
