"""An engine that combines several engines: each serves some of the policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from coterie.errors import Unavailable
from coterie.kernel.engine import Engine, Request
from coterie.kernel.episode import LoggedPrompt, Sample


class RoutedEngine(Engine):
    """Takes every request to the engine of its policy.

    Args:
        engines: the first one's config and title are the whole's.
    """

    def __init__(self, *engines: Engine) -> None:
        self.engines = engines
        self._of: Mapping[str, Engine] = {policy: engine for engine in engines for policy in engine.policies}
        super().__init__(
            {name: policy for engine in engines for name, policy in engine.policies.items()}, engines[0].config
        )

    @property
    def title(self) -> str:
        """The first engine's."""
        return self.engines[0].title

    @property
    def tried_again(self) -> Counter[str]:
        """All of theirs."""
        return sum((engine.tried_again for engine in self.engines), Counter[str]())

    @property
    def closing(self) -> bool:
        """Whether somebody waits for the end."""
        return self.engines[0].closing

    @closing.setter
    def closing(self, closing: bool) -> None:
        for engine in self.engines:
            engine.closing = closing

    def render(self, policy: str, role: str, prompt: LoggedPrompt) -> tuple[int, ...]:
        """As the policy's engine does."""
        return self._of[policy].render(policy, role, prompt)

    def context(self, policy: str) -> int:
        """As the policy's engine has it."""
        return self._of[policy].context(policy)

    def tokens(self, request: Request, samples: Sequence[Sample]) -> tuple[int, int]:
        """As the policy's engine counts."""
        return self._of[request.policy].tokens(request, samples)

    async def start(self) -> None:
        """Brings up all of them."""
        for engine in self.engines:
            await engine.start()

    async def generate(self, requests: Sequence[Request]) -> Sequence[tuple[Sample, ...] | Unavailable]:
        """The policy's engine answers."""
        return await self._of[requests[0].policy].generate(requests)

    async def sync(self, policy: str, version: int) -> None:
        """The policy's engine takes over."""
        await self._of[policy].sync(policy, version)

    async def rest(self) -> None:
        """All of them may."""
        for engine in self.engines:
            await engine.rest()

    async def close(self) -> None:
        """Closes all of them."""
        for engine in self.engines:
            await engine.close()
