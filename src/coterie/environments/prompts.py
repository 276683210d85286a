"""Prompts: rows of a data set, and reward functions as TRL calls them, unchanged.

    coterie train prompts:questions.jsonl --set environment.rewards=rewards.py:accuracy --set policies.team.model=…

A row has a `prompt`, a string or messages, as TRL's data sets do, or `messages` that end with an assistant's, as chat
data does; its other columns go to the reward functions. One role answers, or several, one after the other: each is
shown the prompt and what those before it wrote, and what the last one writes is the team's completion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from coterie.environments import own_code
from coterie.environments.mcp import Session, check_server, whole_command, words_of
from coterie.environments.published.data import Benchmark, Reader, Unfit, told_by
from coterie.environments.published.plays import PlaysRows
from coterie.environments.published.sources import Row
from coterie.environments.rewards import judged
from coterie.environments.talk import marked
from coterie.errors import CallError, ConfigError, EnvError, Unavailable, nearest
from coterie.kernel.environment import Task
from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON, Message, Prompt, Reply, Scene
from coterie.protocol.tools import parsed, told

SPEAKERS = ("system", "user", "assistant")
NO_COLUMNS = ("prompt", "messages", "completion", "completion_ids")
"""What is no column of a reward function's: it is given as itself."""
FORM = "write a reward function as FILE.py:FUNCTION or package.module:FUNCTION"


@dataclass(frozen=True, slots=True)
class PromptTask(Task):
    """A row.

    prompt: its messages, or its string, as JSON. columns: its others, as JSON; nothing
    where a person asked. shown: a completion that the data shows, or nothing.
    """

    prompt: str = "[]"
    columns: str = ""
    shown: str = ""


@dataclass(frozen=True)
class Prompted(Reader[PromptTask]):
    """Rows as prompts."""

    benchmarks: ClassVar[Mapping[str, Benchmark]] = {}

    def format_of(self, row: Row, where: str) -> Callable[[Row], PromptTask]:
        """By its columns."""
        return told_by(FORMATS, row, where)

    def words(self, item: PromptTask) -> tuple[str, str]:
        """The prompt."""
        return "", item.prompt

    def content(self, item: PromptTask) -> list[Any]:
        """All of it."""
        return [item.prompt, item.columns, item.shown]


class Prompts(PlaysRows):
    """Rows of a data set, and reward functions as TRL calls them."""

    argument: ClassVar = "data"

    roles: tuple[str, ...] = ("writer",)  # pyright: ignore[reportIncompatibleVariableOverride]
    """Roles in the order in which they write. Each sees the prompt and the earlier replies. The last reply is the
    team's completion."""
    instructions: Mapping[str, str] = {}
    """Instructions at the start of a role's prompt, by role."""
    rewards: tuple[str, ...] = ()
    """Reward functions for the last role's completion, as FILE.py:FUNCTION. Their weighted sum is the team reward."""
    reward_weights: tuple[float, ...] = ()
    """One weight per function in `rewards`. Empty: every weight is 1."""
    role_rewards: Mapping[str, tuple[str, ...]] = {}
    """Reward functions for a role's own completion, by role. Only that role receives these rewards."""
    tools: Mapping[str, str] = {}
    """MCP servers by role, each as a command or a URL. The role may call their tools before it answers."""
    max_calls: int = Field(default=8, ge=1)
    """Maximum tool calls per role. A reply that asks for one more call counts as the role's answer."""
    solved_at: float = 1.0
    """A task counts as solved if the team reward is at least this value."""
    max_tokens: int = Field(default=256, ge=1)
    """Maximum tokens per reply."""

    _places: dict[str, list[JSON]] = PrivateAttr(default_factory=dict[str, list[JSON]])
    """Where each function was found: a file that is edited under a run changes nothing in it."""

    @field_validator("rewards", mode="before")
    @classmethod
    def _one_is_a_list(cls, rewards: Any) -> Any:
        return (rewards,) if isinstance(rewards, str) else rewards

    @field_validator("rewards")
    @classmethod
    def _found_from_everywhere(cls, rewards: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(own_code.whole, rewards))

    @field_validator("tools")
    @classmethod
    def _servers_found_from_everywhere(cls, tools: Mapping[str, str]) -> Mapping[str, str]:
        return {role: whole_command(server) for role, server in tools.items()}

    @field_validator("role_rewards")
    @classmethod
    def _all_found_from_everywhere(cls, rewards: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        return {role: tuple(map(own_code.whole, names)) for role, names in rewards.items()}

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        if not self.data:
            raise ValueError("data: name the rows, as in prompts:questions.jsonl")
        if not self.roles:
            raise ValueError("roles: name at least one")
        if len(set(self.roles)) < len(self.roles):
            raise ValueError("roles: each speaks once; give every one a name of its own")
        for setting in ("instructions", "role_rewards", "tools"):
            for role in getattr(self, setting):
                if role not in self.roles:
                    raise ValueError(f"{setting}: no role '{role}'{nearest(role, self.roles)}")
        if self.reward_weights and len(self.reward_weights) != len(self.rewards):
            raise ValueError(f"reward_weights: {len(self.reward_weights)} for {len(self.rewards)} of rewards")
        for name in self._functions():
            module = own_code.module_of(name, FORM)
            self._places[name] = [module.__name__, module.__file__ or "", name.rpartition(":")[2]]
        return self

    def _functions(self) -> list[str]:
        return [*self.rewards, *(name for names in self.role_rewards.values() for name in names)]

    def reader(self) -> Prompted:
        """Rows with a prompt."""
        return Prompted()

    def content(self) -> str:
        """The data, and the reward functions' files."""
        files = [str(file) for _, file, _ in self._places.values()]
        files += [part for server in self.tools.values() for part in words_of(server)[1:] if Path(part).is_file()]
        return "\n".join([super().content(), *map(own_code.content_of, files)])

    def ready(self) -> None:
        """Raises ConfigError: nothing is rewarded, or the data cannot be read."""
        if not self._functions():
            raise ConfigError("environment.rewards: name what is rewarded, such as rewards.py:accuracy")
        for role, server in self.tools.items():
            check_server(server, f"environment.tools.{role}")
        self.rows()

    def inert(self) -> dict[str, str]:
        """What needs tools."""
        return super().inert() | ({} if self.tools else {"max_calls": "no role has tools"})

    def recommended(self) -> Mapping[str, Mapping[str, Any]]:
        """One role alone is trained with GRPO."""
        return {"algorithm": {"name": "grpo"}} if len(self.roles) == 1 else {}

    async def play(self, task: PromptTask, scene: Scene) -> None:
        """Every role writes once."""
        said: dict[str, Reply] = {}
        for role in self.roles:
            said[role] = await self._spoken(scene, role, self._told(role, task, said))
        if not task.columns:
            return scene.fail("nobody rewards what a person asked")
        for role, names in self.role_rewards.items():
            for value in await self._judged(scene, task, said[role], names):
                scene.reward(said[role], value or 0.0, "rewards")
        values = await self._judged(scene, task, said[self.roles[-1]], self.rewards)
        weights = self.reward_weights or (1.0,) * len(values)
        reward = sum(weight * value for weight, value in zip(weights, values, strict=True) if value is not None)
        scene.team_reward(reward)
        return scene.succeed() if reward >= self.solved_at else scene.fail("rewarded too little")

    async def _spoken(self, scene: Scene, role: str, messages: list[Message]) -> Reply:
        """What a role writes, after what its tools have told it."""
        if role not in self.tools:
            return await scene.ask(role, messages, max_tokens=self.max_tokens)
        session, wrong = Session(scene, self.tools[role]), 0
        first = [str(messages.pop(0)["content"])] if messages[0]["role"] == "system" else []
        messages.insert(0, {"role": "system", "content": "\n\n".join([*first, told(await session.tools())])})
        made = 0
        while True:
            reply = await scene.ask(role, messages, max_tokens=self.max_tokens)
            _, calls = parsed(reply.text, "call")
            if not calls or made + len(calls) > self.max_calls:
                scene.metric(f"tools/{role}", made)
                scene.metric(f"tools_failed/{role}", wrong)
                return reply
            messages.append({"role": "assistant", "content": reply})
            made += len(calls)
            for call in calls:
                seen = await session.call(call.name, call.arguments)
                wrong += not seen.ok
                messages.append({"role": "tool", "content": seen.text if seen.ok else f"error: {seen.text}"})

    def _told(self, role: str, task: PromptTask, said: Mapping[str, Reply]) -> list[Message]:
        """A role's prompt: the row's, what it is told first, and what the others wrote."""
        given = json.loads(task.prompt)
        turns = [dict(turn) for turn in given] if isinstance(given, list) else [{"role": "user", "content": given}]
        if first := self.instructions.get(role):
            if turns[0]["role"] == "system":
                turns[0]["content"] = f"{first}\n\n{turns[0]['content']}"
            else:
                turns.insert(0, {"role": "system", "content": first})
        for who, reply in said.items():
            turns[-1]["content"] += f"\n\nThe {who} wrote:\n{marked(reply.text)}"
        return [Message(role=turn["role"], content=turn["content"]) for turn in turns]

    async def _judged(
        self, scene: Scene, task: PromptTask, reply: Reply, names: Sequence[str]
    ) -> Sequence[float | None]:
        """What reward functions say of a reply."""
        if not names:
            return ()
        prompt, columns = json.loads(task.prompt), json.loads(task.columns)
        completion: JSON = reply.text if isinstance(prompt, str) else [{"role": "assistant", "content": reply.text}]
        functions: JSON = [self._places[name] for name in names]
        try:
            found: Any = await scene.call(judged, functions, prompt, completion, list(reply.ids), columns)
        except CallError as error:
            if error.kind in ("timeout", "crash"):  # of what a model wrote, perhaps: nobody earns by it
                raise Unavailable(f"reward_{error.kind}", f"{', '.join(names)}: {one_line(error.message)}") from error
            raise EnvError(error.message) from error
        values: list[float | None] = found["rewards"]
        if all(value is None for value in values):
            raise EnvError(f"{', '.join(names)}: none of them applies to task {task.id}; leave the row out")
        for name, value in zip(names, values, strict=True):
            if value is not None:
                scene.metric(f"reward_{name.rpartition(':')[2]}", value)
        for name, value in found["metrics"].items():
            scene.metric(name, value)
        return values

    def asked(self, text: str) -> PromptTask:
        """A prompt of a person's."""
        return PromptTask("asked", "test", prompt=json.dumps(text))

    def demonstrate(self, role: str, task: PromptTask, prompt: Prompt, rng: Random) -> str:
        """What the data shows, of the one who writes."""
        if len(self.roles) > 1:
            raise NotImplementedError("rows show what one role writes; this team has several")
        if not task.shown:
            raise NotImplementedError(f"task {task.id} shows no completion")
        return task.shown


def _prompted(row: Row) -> PromptTask:
    """A row of TRL's kinds."""
    prompt, shown = row["prompt"], row.get("completion", "")
    if isinstance(shown, list):
        (shown,) = (turn["content"] for turn in _turns(shown, "completion"))
    if isinstance(prompt, str):
        if not prompt.strip():
            raise Unfit("its prompt is empty")
        return _task(row, prompt, str(shown))
    return _task(row, _asked(_turns(prompt, "prompt")), str(shown))


def _chat(row: Row) -> PromptTask:
    """A conversation, whose last words are shown."""
    turns = _turns(row["messages"], "messages")
    if turns and turns[-1]["role"] == "assistant":
        return _task(row, _asked(turns[:-1]), turns[-1]["content"])
    return _task(row, _asked(turns), "")


def _asked(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    if not turns or turns[-1]["role"] != "user":
        raise Unfit("its prompt does not end with a user's message")
    return turns


def _turns(messages: Any, column: str) -> list[dict[str, str]]:
    """Messages of text. Raises Unfit: they are none."""
    if not isinstance(messages, list):
        raise Unfit(f"its {column} is neither text nor a list of messages")
    turns: list[dict[str, str]] = []
    for message in messages:
        speaker, content = message.get("role"), message.get("content")
        if isinstance(content, list) and all(part.get("type") == "text" for part in content):
            content = "".join(part["text"] for part in content)
        if speaker not in SPEAKERS or not isinstance(content, str):
            raise Unfit(f"its {column} has a message of {speaker!r:.40} that is no text of {', '.join(SPEAKERS)}")
        turns.append({"role": speaker, "content": content})
    return turns


def _task(row: Row, prompt: str | list[dict[str, str]], shown: str) -> PromptTask:
    columns = {name: value for name, value in row.items() if name not in NO_COLUMNS}
    try:
        written = json.dumps(columns, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Unfit(f"its columns cannot be written as JSON: {error}") from error
    name = row.get("id")
    return PromptTask(
        "" if name is None else str(name), "train", prompt=json.dumps(prompt), columns=written, shown=shown
    )


FORMATS: dict[tuple[str, ...], tuple[str, Callable[[Row], PromptTask]]] = {
    ("messages",): ("chat data", _chat),
    ("prompt",): ("TRL's", _prompted),
}
"""By columns."""
