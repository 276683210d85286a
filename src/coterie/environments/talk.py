"""Prompts for roles: short texts for a starter, or a chat with instructions for a model without training on the task.

    talk = Talk(scene, {} if self.brief else INSTRUCTIONS)
    reply = await talk.ask("planner", board)

With instructions, a role's prompt is its own conversation: the instructions as a system message, then examples if there
are some, then the messages to the role and its replies, turn by turn. Examples are chat turns, because a small model
copies the form of an answer from a chat sooner than from a description. Without instructions, every prompt is only the
current text, as in the training of starters. If a chat template has no system role, `policies.NAME.system = "fold"`
puts the instructions at the start of the first user message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.kernel.scene import Message, Prompt, Reply, Scene


def instructed(settings: Any) -> Any:
    """Returns settings with `brief` off if they name data and not `brief`; for a validator before all others.

    A starter was taught drawn tasks; whoever brings data has, as a rule, a model that was never taught any.
    """
    if isinstance(settings, dict) and settings.get("data") and "brief" not in settings:
        return {**settings, "brief": False}
    return settings


def marked(text: str) -> str:
    """Returns another's words for a chat: every line is marked, so that none reads as anybody else's."""
    return "\n".join(f"> {line}" for line in text.splitlines())


Example = tuple[str, str]
"""A text that a role might be told, and an answer in the form that is wanted."""
NO_EXAMPLES: Mapping[str, Sequence[Example]] = {}


class Talk:
    """The conversations of an episode: one a role, or one a member where a role is asked several prompts at once.

    Args:
        instructions: what each role is told first; none: prompts are brief.
        examples: pairs of what a role might be told and what it would answer, shown as a chat after its instructions.
        said: where the conversations are kept, by role and member; of an environment that has a `scene.state`, in it.
    """

    def __init__(
        self,
        scene: Scene,
        instructions: Mapping[str, str],
        said: dict[tuple[str, int], list[Message]] | None = None,
        *,
        examples: Mapping[str, Sequence[Example]] = NO_EXAMPLES,
    ) -> None:
        self._scene = scene
        self._examples = examples
        self._instructions = instructions
        self._said = {} if said is None else said

    async def ask(self, role: str, text: str, *, max_tokens: int | None = None) -> Reply:
        """Asks one role and returns its reply."""
        reply = await self._scene.ask(role, self._prompt(role, 0, text), max_tokens=max_tokens)
        self._heard(role, 0, reply)
        return reply

    async def ask_all(self, texts: Sequence[tuple[str, str]], *, max_tokens: int | None = None) -> list[Reply]:
        """Asks several at once, and none sees another's reply; the members of a role keep their order.

        Args:
            texts: pairs of a role and what it is told.
        """
        seen: Counter[str] = Counter()
        members: list[int] = []
        for role, _ in texts:
            members.append(seen[role])
            seen[role] += 1
        prompts = [
            (role, self._prompt(role, member, text)) for (role, text), member in zip(texts, members, strict=True)
        ]
        replies = await self._scene.ask_all(prompts, max_tokens=max_tokens)
        for (role, _), member, reply in zip(texts, members, replies, strict=True):
            self._heard(role, member, reply)
        return replies

    def _prompt(self, role: str, member: int, text: str) -> Prompt:
        if not self._instructions:
            return text
        if (role, member) not in self._said:
            self._said[role, member] = self._first(role)
        said = self._said[role, member]
        said.append({"role": "user", "content": text})
        return list(said)

    def _first(self, role: str) -> list[Message]:
        """Returns a role's instructions and examples, the beginning of its conversation."""
        first = [Message(role="system", content=self._instructions[role])]
        for told, answer in self._examples.get(role, ()):
            first += [Message(role="user", content=told), Message(role="assistant", content=answer)]
        return first

    def _heard(self, role: str, member: int, reply: Reply) -> None:
        if self._instructions:
            self._said[role, member].append({"role": "assistant", "content": reply})
