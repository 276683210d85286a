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
    """One prompt and the seeds of its samples.

    key: determines the order within a wave, so that the order does not depend on timing. seeds: one seed per sample.
    temperature: 0 selects the most likely token. top_p: the nucleus; 1 is the whole distribution. max_tokens: maximum
    number of tokens of one completion. stop: strings that end a completion.
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
    """Answers requests for the policies of a team. Subclasses implement `generate` and other methods as needed.

    policies: the policies by name, each a `coterie.learning.policy.Policy`. config: the settings of `[engine]`.
    versions: for each policy, the version of the weights that it answers with. closing: True when the engine is being
    shut down; a long `generate` may then raise Unavailable.

    The engine runs during the whole run in its own thread with its own event loop. It may have background tasks
    between `start` and `close`.
    """

    apart: ClassVar[bool] = False
    """Whether the engine has its own copy of the weights and does not use those of the given policies."""
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
        """The name of the engine in messages."""
        return type(self).__name__

    @property
    def tried_again(self) -> Counter[str]:
        """Number of automatic retries since the engine was created, by a short name of each fault."""
        return Counter()

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """The token ids of a prompt, ready for the role's reply."""
        return self.policies[policy].render(prompt, role)

    def context(self, policy: str) -> int:
        """Maximum number of tokens of prompt and reply together."""
        return self.policies[policy].context

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """Tokens of a request's prompt and of its samples, as budgets count them."""
        return len(request.prompt_ids), sum(len(sample.completion_ids) for sample in samples)

    async def start(self) -> None:
        """Starts everything that is not running. It is called before the first request and again after every fault.

        After a crash, the engine must have the weights and versions of the latest `sync`.
        """

    async def generate(self, requests: Sequence[Request]) -> Sequence[tuple[Sample, ...] | Unavailable]:
        """Answers one wave of requests, all for the same policy. It returns one sample for each seed of each request.

        Instead of the samples of a request it may return an Unavailable; then only the branch of this request is
        dropped.

        Equal requests must get equal samples as long as the weights are the same. The method may be called again
        before an earlier call has returned.

        Raises:
            Unavailable: the engine cannot answer now. It is then started and asked again, at most twice; after that,
                the branches of these requests are dropped. Any other exception is a bug and ends the run.
        """
        raise NotImplementedError

    async def sync(self, policy: str, version: int) -> None:
        """Loads the current weights of a policy and gives them a new version number."""
        self.versions[policy] = version

    async def rest(self) -> None:
        """Called when there will be no requests until the next `sync`; the engine may free memory."""

    async def close(self) -> None:
        """Releases everything that `start` created. It may be called twice."""
