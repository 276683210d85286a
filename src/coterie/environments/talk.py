"""How roles are told their tasks: in a starter's few words, or as a chat, to a model that was never taught them.

    talk = Talk(scene, {} if self.brief else INSTRUCTIONS)
    reply = await talk.ask("planner", board)

With instructions a role's prompt is its own conversation: the instructions as a system message, then what it was told
and what it said, turn by turn. Without, every prompt is the text alone, which is what starters were taught. Where a
chat template has no system role, `policies.NAME.system = "fold"` begins the first user's message with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from coterie.kernel.scene import Message, Prompt, Reply, Scene


class Talk:
    """The conversations of an episode, one a role.

    Args:
        instructions: what each role is told first; none: prompts are brief.
    """

    def __init__(self, scene: Scene, instructions: Mapping[str, str]) -> None:
        self._scene = scene
        self._said: dict[str, list[Message]] = {
            role: [{"role": "system", "content": text}] for role, text in instructions.items()
        }

    async def ask(self, role: str, text: str, *, max_tokens: int | None = None) -> Reply:
        """One role speaks."""
        reply = await self._scene.ask(role, self._prompt(role, text), max_tokens=max_tokens)
        self._heard(role, reply)
        return reply

    async def ask_all(self, texts: Mapping[str, str], *, max_tokens: int | None = None) -> Mapping[str, Reply]:
        """Roles speak at once; none sees another's reply."""
        prompts = {role: self._prompt(role, text) for role, text in texts.items()}
        replies = await self._scene.ask_all(prompts, max_tokens=max_tokens)
        for role, reply in replies.items():
            self._heard(role, reply)
        return replies

    def _prompt(self, role: str, text: str) -> Prompt:
        if not self._said:
            return text
        self._said[role].append({"role": "user", "content": text})
        return list(self._said[role])

    def _heard(self, role: str, reply: Reply) -> None:
        if self._said:
            self._said[role].append({"role": "assistant", "content": reply})
