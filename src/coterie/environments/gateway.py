"""Gateway: trains an existing agent without changes. The team answers the agent's model requests and learns from them.

    # my_agent.py
    roles = ("planner", "solver")

    def tasks(split):                     # "train", "validation" or "test"; or tasks = [...], which is split
        return [{"question": "…", "gold": "…"}, …]

    def run(task, team):                  # may be async
        client = OpenAI(base_url=team.planner.base_url, api_key=team.planner.api_key)
        …
        return 1.0                        # or {"reward": 1.0, "solved": True, "rewards": {"planner": 0.5}}

    coterie train gateway:my_agent.py:run --set policies.team.model=Qwen/Qwen3-0.6B

`coterie.gateway` runs the agent and receives its requests. This module turns each request into a decision of its role.
Earlier replies of the role that come back unchanged keep their sampled tokens. Everything else is tokenized as text.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from coterie.environments import own_code
from coterie.errors import CallError, ConfigError, EnvError, nearest
from coterie.gateway.agents import turn
from coterie.kernel.environment import Environment, Split, Task, split_of
from coterie.kernel.scene import JSON, Message, Reply, Scene
from coterie.protocol.tools import ToolCall, parsed, told

SEATED = ("roles", "seed")
"""Attributes of `team` besides the roles; no role may have one of these names."""


@dataclass(frozen=True, slots=True)
class Work(Task):
    """A task of an agent. given: what the agent gets, as JSON."""

    given: str = "null"


class Gateway(Environment):
    """An agent of yours, as it is: what it asks of a model is answered, and learned, by a team."""

    argument: ClassVar = "agent"
    side_by_side: ClassVar = 64  # each is a process

    agent: str = ""
    """FILE.py:FUNCTION or package.module:FUNCTION, called as `run(task, team)`. The same module defines `roles` and
    `tasks`."""
    max_tokens: int = Field(default=256, ge=1)
    """Maximum tokens per reply. A client may ask for fewer."""
    patience_s: float = Field(default=120.0, gt=0)
    """Maximum seconds between an answer and the agent's next request or its end."""
    force: Literal["refuse", "ask"] = "refuse"
    """Reaction to a client that forces a tool call or an answer format. refuse: the request is refused; ask: the
    prompt asks the model for it."""
    ahead: bool = True
    """true: import the agent once and fork a process for every run. false: import it again in every process, for an
    agent that reads its model's address from environment variables at import."""

    _home: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _found_from_everywhere(cls, settings: Any) -> Any:
        if isinstance(settings, dict) and isinstance(settings.get("agent"), str):
            return {**settings, "agent": own_code.whole(settings["agent"])}
        return settings

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        module, name = self._read(), self.agent.rpartition(":")[2]
        self._home = module.__name__
        if not getattr(module, "roles", None):
            raise ValueError(f'{self.agent}: beside {name} write roles = ("planner", "solver"), who asks a model')
        if not isinstance(module.roles, list | tuple):
            raise ValueError(
                f'{self.agent}: roles = {module.roles!r:.80}; write a tuple: roles = ("planner", "solver")'
            )
        for role in module.roles:
            if not str(role).isidentifier() or str(role).startswith("_") or role in SEATED:
                raise ValueError(
                    f"{self.agent}: the role {role!r} cannot be written as team.ROLE; give it another, of letters, "
                    f"digits and _, and not {' or '.join(SEATED)}"
                )
        if getattr(module, "tasks", None) is None:
            raise ValueError(f"{self.agent}: beside {name} write tasks(split), a list of what it is given")
        _check_called(self.agent, getattr(module, name), f"{name}(task, team)", 2)
        if callable(module.tasks):
            _check_called(self.agent, module.tasks, "tasks(split)", 1)
        return self

    @property
    def roles(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Roles that ask a model, as the agent's module lists them."""
        return self._module().roles

    def _module(self) -> ModuleType:
        """Returns the agent's module as it was when this was made: a later edit of its file changes nothing in it."""
        return sys.modules.get(self._home) or self._read()

    def _read(self) -> ModuleType:
        return own_code.module_of(self.agent, "name your agent: gateway:FILE.py:FUNCTION or gateway:MODULE:FUNCTION")

    def content(self) -> str:
        """Returns the text of the agent's file."""
        return own_code.content_of(self._module().__file__)

    def ready(self) -> None:
        """Raises ConfigError if starlette and uvicorn, with which the gateway listens, are not installed."""
        if not all(map(importlib.util.find_spec, ("starlette", "uvicorn"))):
            raise ConfigError("the gateway needs starlette and uvicorn: pip install 'coterie[serve]'")

    def recommended(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns an algorithm that compares whole runs, each role with itself: that asks nothing of an agent."""
        return {"algorithm": {"name": "drmas"}}

    def count(self, split: Split) -> int | None:
        """Returns the number of tasks that the agent's module has for a split."""
        return len(self._tasks(split))

    def task(self, split: Split, index: int) -> Work:
        """Returns the task at an index of a split; after the last one they begin again."""
        tasks = self._tasks(split)
        return Work(f"{split}-{index}", split, given=tasks[index % len(tasks)])

    def _tasks(self, split: Split) -> Sequence[str]:
        return _given(self._module(), split)

    async def play(self, task: Work, scene: Scene) -> None:
        """Plays the agent's run: it asks, the team answers, until it ends."""
        module = self._module()
        agent: dict[str, JSON] = {
            "place": [module.__name__, module.__file__ or "", self.agent.rpartition(":")[2]],
            "roles": list(self.roles), "patience_s": self.patience_s, "ahead": self.ahead, "force": self.force,
        }  # fmt: skip
        given, seed = json.loads(task.given), scene.rng.getrandbits(31)
        talk, said, rewards = Words(), list[list[JSON]](), 0
        while True:
            try:
                news = await scene.call(turn, agent, given, seed, said, rewards)
            except CallError as error:
                raise EnvError(error.message) from error
            rewards += len(news["rewards"])
            for role, value, call in news["rewards"]:
                scene.reward(talk.spoken(call) or role, value, "posted")
            if "asks" not in news:
                break
            talk.counted(news["asks"], said)
            said = said + await self._answered(scene, news["asks"], talk)
        for name, count in talk.counts.items():
            scene.metric(f"gateway_{name}", count)
        self._judge(scene, news["result"], talk, rewards)

    async def _answered(self, scene: Scene, asks: Sequence[list[Any]], talk: Words) -> list[list[JSON]]:
        """Returns the answers to simultaneous questions, in their order; those of equal limits are asked together."""
        answers: dict[int, JSON] = {}
        lots: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for at, (_, _, ask) in enumerate(asks):
            limit = min(ask.get("max_tokens", self.max_tokens), self.max_tokens)
            lots.setdefault((limit, tuple(ask.get("stop", ()))), []).append(at)
        for (limit, stop), lot in lots.items():
            prompts = [(asks[at][0], talk.prompt(asks[at][0], asks[at][2])) for at in lot]
            replies = await scene.ask_all(prompts, max_tokens=limit, stop=stop)
            for at, reply in zip(lot, replies, strict=True):
                answers[at] = talk.heard(asks[at][2], reply)
        return [[role, digest, answers[at]] for at, (role, digest, _) in enumerate(asks)]

    def _judge(self, scene: Scene, result: JSON, talk: Words, rewarded: int) -> None:
        """Gives the scene the rewards, the metrics and the success that the agent returned."""
        where = f"{self.agent} returned {result!r:.80}"
        judged = _verdict(result, where)
        if judged.reward is None and not judged.rewards and not rewarded:
            raise EnvError(f"{where} and gave no reward; return a number, or an object with 'reward' or 'rewards'")
        for role, value in judged.rewards.items():
            if role not in self.roles:
                raise EnvError(f"{where}: no role '{role}'{nearest(role, self.roles)}")
            if latest := talk.latest(role):  # one that was not asked has nothing to earn it
                scene.reward(latest, float(value), "returned")
        if judged.reward is not None:
            scene.team_reward(float(judged.reward))
        for name, value in judged.metrics.items():
            scene.metric(name, float(value))
        solved = (judged.reward or 0) >= 1 if judged.solved is None else judged.solved
        return scene.succeed() if solved else scene.fail(judged.reason)


def _check_called(agent: str, function: Callable[..., Any], form: str, arguments: int) -> None:
    """Raises ValueError if the function cannot be called in this form, or is a class or a generator."""
    if inspect.isclass(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"{agent}: write {form} as a function that returns, without yield; it may be async")
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError as error:
        raise ValueError(f"{agent}: write {form}, with these arguments ({error})") from error
    except ValueError as error:  # of what is not written in Python
        raise ValueError(f"{agent}: write {form} in Python ({error})") from error


class Verdict(BaseModel):
    """An object that an agent may return instead of a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    reward: bool | float | None = None
    solved: bool | None = None
    reason: str = "the agent did not solve it"
    rewards: dict[str, bool | float] = {}
    metrics: dict[str, bool | float] = {}


def _verdict(result: JSON, where: str) -> Verdict:
    """Returns an agent's result as a verdict. Raises: EnvError: it cannot be read. where: how a message begins."""
    judged = result if isinstance(result, dict) else {"reward": result}
    try:
        return Verdict.model_validate(judged)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        known = key in Verdict.model_fields
        what = f"'{key}' is of another kind" if known else f"unknown '{key}'{nearest(key, Verdict.model_fields)}"
        raise EnvError(
            f"{where}: {what}; return a number, or an object of reward (a number), solved (true or false), reason (a "
            "string), rewards and metrics (numbers by name)"
        ) from error


class Words:
    """A record of an episode's replies, so that a role's own words, when they come back, are its own tokens."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._replies: dict[str, Reply] = {}
        self._numbers: Counter[str] = Counter()
        self._said: dict[tuple[str, str], Reply] = {}
        self._asked: set[tuple[str, str]] = set()

    def counted(self, asks: Sequence[list[Any]], said: Sequence[list[JSON]]) -> None:
        """Counts what a user may not have meant: questions that were answered before, and sampling settings."""
        before = {(role, digest) for role, digest, _ in said}
        self.counts["repeated"] += sum((role, digest) in before for role, digest, _ in asks)
        self.counts["ignored"] += sum("ignored" in ask for _, _, ask in asks)

    def spoken(self, name: str) -> Reply | None:
        """Returns the reply whose answer had this id, or None."""
        return self._replies.get(name)

    def latest(self, role: str) -> Reply | None:
        """Returns a role's last reply, or None."""
        return self._replies.get(f"{role}_{self._numbers[role] - 1}")

    def prompt(self, role: str, ask: Mapping[str, Any]) -> list[Message]:
        """Returns the messages of a question, as a scene takes them."""
        messages: list[Message] = []
        before = Conversation()
        for message in ask["turns"]:
            speaker, text, calls, _ = message
            content: str | Reply = "\n".join(filter(None, [text, *(ToolCall(*call).text for call in calls)]))
            known = (role, before.key) in self._asked
            before.add(message)
            if speaker == "assistant":
                content = self._own((role, before.key), content, known=known)
            messages.append({"role": speaker, "content": content})
        self._asked.add((role, before.key))
        if extra := _extra(ask):
            first = messages[0] if messages[0]["role"] == "system" else None
            head = [str(first["content"])] if first else []
            messages[: 1 if first else 0] = [{"role": "system", "content": "\n\n".join([*head, extra])}]
        return messages

    def _own(self, key: tuple[str, str], text: str, *, known: bool) -> str | Reply:
        """Returns the role's reply if it really said these words at this point; else the text.

        Args:
            known: the role was asked what stands before the words.
        """
        reply = self._said.get(key)
        self.counts["own_words_kept" if reply else "own_words_changed" if known else "words_of_others"] += 1
        return reply or text

    def heard(self, ask: Mapping[str, Any], reply: Reply) -> JSON:
        """Returns the answer to a question, as an agent is given it, and remembers the reply."""
        role = reply.role
        name = f"{role}_{self._numbers[role]}"
        self._numbers[role] += 1
        self._replies[name] = reply
        text, calls = parsed(reply.text, f"call_{name}") if ask.get("tools") else (reply.text, ())
        plain = [[call.id, call.name, call.arguments] for call in calls]
        after = Conversation()
        for message in ask["turns"]:
            after.add(message)
        after.add(["assistant", text, plain, ""])
        self._said[role, after.key] = reply
        return {"text": text, "calls": plain, "finish": reply.finish, "tokens": len(reply.ids), "id": name}


class Conversation:
    """A growing list of messages, of which a hash alone is kept."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, turn: JSON) -> None:
        """Adds a message."""
        self._hash.update(json.dumps(turn, sort_keys=True).encode() + b"\n")

    @property
    def key(self) -> str:
        """Hash of the messages, the same for the same messages."""
        return self._hash.hexdigest()


def _extra(ask: Mapping[str, Any]) -> str:
    """Returns what a model is told besides the messages: its tools, and the demands on its answer."""
    parts = [told(ask["tools"])] if ask.get("tools") else []
    if choice := ask.get("choice"):
        which = choice.removeprefix("function ") if choice.startswith("function ") else ""
        parts.append(f"You must call the function {which}." if which else "You must call a function.")
    if (form := ask.get("form")) is not None:
        schema = f" of this schema: {json.dumps(form.get('schema', form))}" if form else ""
        parts.append(f"Answer with a JSON object only{schema}")
    return "\n\n".join(parts)


@cache
def _given(module: ModuleType, split: Split) -> tuple[str, ...]:
    """Returns the tasks of a split, each as JSON: those that the agent's module gives for it, or its share of all."""
    tasks: Callable[[str], Sequence[JSON]] | Sequence[JSON] = module.tasks
    where = f"tasks('{split}')" if callable(tasks) else "tasks"
    given: Any = tasks(split) if callable(tasks) else tasks
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise EnvError(f"{module.__file__}: {where} is {given!r:.80}; make it a list of what the agent is given")
    try:
        written = [json.dumps(task, sort_keys=True, allow_nan=False) for task in given]
    except (TypeError, ValueError) as error:
        raise EnvError(
            f"{module.__file__}: {where} must be JSON, as strings, numbers, lists and dicts are: {error}"
        ) from error
    return tuple(task for task in written if callable(tasks) or split_of(task) == split)
