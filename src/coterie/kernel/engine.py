"""The base class of engines. An engine samples the replies of a team's policies.

To add an engine, write a class in `engines/` and add a line to `registry.py`, or name your own class as
`FILE.py:Class`. A run creates the engine, starts it, sends it requests in waves, and closes it at the end.
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
"""Maximum value of a time limit in seconds (eleven days)."""
RETRIES = 2
"""Number of retries of an engine or a call after a fault. After that, the branches that wait for it are dropped."""
FrontName = Literal["waves", "eager"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the seeds of its samples.

    Attributes:
        key: sort key within a wave, so that the order does not depend on timing.
        policy: the policy that answers.
        role: the role that is asked.
        prompt: the prompt as text or messages.
        prompt_ids: the token ids of the prompt.
        seeds: one seed per sample.
        temperature: the sampling temperature; 0 selects the most likely token.
        top_p: the probability for nucleus sampling; 1 is the whole distribution.
        max_tokens: maximum number of tokens of one completion.
        stop: strings that end a completion.
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
    """Settings that all engines share."""

    exact: ClassVar[bool] = False
    """True if the log-probabilities equal the learner's, up to rounding, when both compute in the same data type."""
    found: ClassVar[tuple[str, ...]] = ()
    """Settings that the engine determines for its machine if they are None. The run's config records the values."""

    front: FrontName = "waves"
    """waves: requests are collected and answered together, in a reproducible order. eager: each request is sent at
    once."""
    max_tokens: int = Field(default=256, ge=1)
    """Maximum tokens per reply if the environment sets no limit."""
    call_timeout_s: float = Field(default=60.0, gt=0, le=LONGEST_S)
    """Time-out of one `scene.call`, in seconds. Programs in the sandbox have their own limits."""
    play_timeout_s: float = Field(default=PLAY_TIMEOUT_S, gt=0, le=LONGEST_S)
    """Maximum seconds that an environment's code may run between an answer and its next request. Above it, the run
    stops."""


class Engine:
    """Answers requests for the policies of a team. Subclasses implement `generate` and other methods as needed.

    The engine runs during the whole run in its own thread with its own event loop. It may have background tasks
    between `start` and `close`.

    Attributes:
        policies: the policies by name, each a `coterie.learning.policy.Policy`.
        config: the settings of `[engine]`.
        versions: for each policy, the version of the weights that it answers with.
        closing: True when the engine is being shut down. A long `generate` may then raise Unavailable.
    """

    apart: ClassVar[bool] = False
    """True if the engine has its own copy of the weights and does not use those of the given policies."""
    options: ClassVar[type[EngineConfig]] = EngineConfig
    """The class of the settings in `[engine]`. An engine with more settings uses a subclass of EngineConfig."""

    def __init__(self, policies: Mapping[str, Any], config: EngineConfig | None = None) -> None:
        """Creates the engine. Without a config, it uses the defaults of `options`."""
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
        """Returns the token ids of a prompt, ready for the role's reply."""
        return self.policies[policy].render(prompt, role)

    def context(self, policy: str) -> int:
        """Returns the maximum number of tokens of prompt and reply together."""
        return self.policies[policy].context

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """Returns the numbers of prompt tokens and of reply tokens of a request, as budgets count them."""
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
