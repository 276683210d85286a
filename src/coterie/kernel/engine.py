"""What an engine is: what answers for the policies of a team. Everything else is above it.

An engine is a class beside those in `engines/` and a line in `registry.py`, or one of your own, named as
`FILE.py:Class`. A run makes one, starts it, asks it wave by wave, and closes it at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from coterie.errors import Unavailable
from coterie.kernel.environment import Settings
from coterie.kernel.episode import LoggedPrompt, Sample
from coterie.kernel.watchdog import PLAY_TIMEOUT_S

LONGEST_S = 1e6
"""Seconds of a limit: eleven days."""
RETRIES = 2
"""How often an engine, or a call, is tried again after a fault before what waits for it is given up."""
FrontName = Literal["waves", "eager"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how often it is answered.

    key: orders a wave, so that its composition never depends on timing. seeds: one a sample.
    temperature: 0 takes the most likely token. top_p: nucleus, 1 for the whole distribution.
    max_tokens: of one completion. stop: strings that end it.
    """

    key: tuple[str, int, str, str]
    policy: str
    role: str
    prompt: LoggedPrompt
    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]


class EngineConfig(Settings):
    """How replies are sampled, by any engine."""

    exact: ClassVar[bool] = False
    """Whether the log-probabilities are the learner's own, up to the rounding of one arithmetic."""
    found: ClassVar[tuple[str, ...]] = ()
    """Settings that an engine finds for its machine where they are none; a run keeps what was found when it began."""

    front: FrontName = "waves"
    """waves: whatever waits is answered together, the same in every run; eager: a question leaves at once."""
    max_tokens: int = Field(default=256, ge=1)
    """Tokens of a reply where the environment sets no limit."""
    call_timeout_s: float = Field(default=60.0, gt=0, le=LONGEST_S)
    """Seconds that one scene.call may take; programs in the sandbox have limits of their own."""
    play_timeout_s: float = Field(default=PLAY_TIMEOUT_S, gt=0, le=LONGEST_S)
    """Seconds that an environment's own code may take from an answer to its next question, before the run stops."""


class Engine:
    """Answers requests for the policies of a team. Subclasses write `generate`, and what else they need.

    policies: by name, `coterie.learning.policy.Policy`. config: what `[engine]` says. versions: of the weights that
    each policy answers with. closing: somebody waits for the end; a long `generate` may stop with Unavailable.

    It runs on an event loop of its own, in a thread of its own, as long as the run: between `start` and `close` it may
    have tasks in the background.
    """

    apart: ClassVar[bool] = False
    """Whether it samples with weights of its own, not those of the policies it is given."""
    options: ClassVar[type[EngineConfig]] = EngineConfig
    """The settings of `[engine]`: a subclass of EngineConfig, where it has more."""

    def __init__(self, policies: Mapping[str, Any], config: EngineConfig | None = None) -> None:
        """Without a config, the defaults of its options."""
        self.policies = dict(policies)
        self.config = self.options() if config is None else config
        self.versions = dict.fromkeys(policies, 0)
        self.closing = False

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return type(self).__name__

    @property
    def tried_again(self) -> Counter[str]:
        """What it has tried again by itself since it was made, by a short name for each fault."""
        return Counter()

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """The token ids of a prompt, ready for the role's reply."""
        return self.policies[policy].render(prompt, role)

    def context(self, policy: str) -> int:
        """Tokens that prompt and reply may have together."""
        return self.policies[policy].context

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """Tokens of a request's prompt and of its samples, as budgets count them."""
        return len(request.prompt_ids), sum(len(sample.completion_ids) for sample in samples)

    async def start(self) -> None:
        """Brings up what is not up: before the first question, and again after every fault.

        An engine that had crashed comes back with the weights and versions of the latest `sync`.
        """

    async def generate(self, requests: Sequence[Request]) -> Sequence[tuple[Sample, ...] | Unavailable]:
        """One wave, all for one policy: for each request a sample for each of its seeds.

        In place of a request's samples it may give an Unavailable: the branch that asked is dropped, and no other.

        Equal requests get equal samples as long as the weights are the same. It may be asked again before it has
        answered.

        Raises:
            Unavailable: it cannot answer just now; it is started and asked again, twice, and then the branches that
                asked are dropped. Anything else is a bug, which ends the run.
        """
        raise NotImplementedError

    async def sync(self, policy: str, version: int) -> None:
        """Takes over a policy's weights as they are now, under a new version number."""
        self.versions[policy] = version

    async def rest(self) -> None:
        """Nothing will be asked until the next `sync`: memory may be given back."""

    async def close(self) -> None:
        """Lets go of what `start` brought up; closing twice does no harm."""
