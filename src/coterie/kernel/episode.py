"""Episodes as logs: everything that `play` asked and recorded, and every answer to it.

This module defines the events, the `Log` that holds them, and two functions of a log: `value`, the return
of one decision under a horizon, and `check_seen`, which refuses a reward that the horizon does not count.
`cursor.py` writes logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from coterie.errors import EnvError
from coterie.kernel.scene import JSON, Effect, Reply, role_of

Horizon = Literal["point", "turn", "episode"]
SampleFinish = Literal["stop", "string", "length", "context"]
"""Reason why sampling ended: a stop token, a stop string, the token limit, or a prompt that did not fit (nothing was
sampled)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled reply, with all values that training needs from the engine.

    Attributes:
        role: the role that replied.
        policy: the policy that sampled the reply.
        version: the version of its weights.
        prompt_ids: the token ids of the prompt.
        completion_ids: the token ids of the reply, including the stop token.
        logprobs: natural log-probabilities under the sampled distribution, one per completion token.
        finish: how the reply ended: "stop" (a stop token), "string" (a stop string), "length" (the token limit) or
            "context" (the prompt did not fit, so nothing was sampled).
        text: the text without the stop string.
        seed: the seed that reproduces the sample: that of its place and draw, so it tells samples of a run apart.
        temperature: the divisor of the logits; 0 for greedy decoding.
    """

    role: str
    policy: str
    version: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: SampleFinish
    text: str
    seed: int = 0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if len(self.logprobs) != len(self.completion_ids):
            raise ValueError(f"{len(self.completion_ids)} tokens but {len(self.logprobs)} log-probabilities")

    def reply(self) -> Reply:
        """Returns the reply as the environment sees it."""
        ids = self.completion_ids[:-1] if self.finish == "stop" else self.completion_ids
        return Reply(self.role, self.text, "stop" if self.finish == "string" else self.finish, ids, self.policy)

    @property
    def silent(self) -> bool:
        """True if nothing was sampled because the prompt did not fit. Such a sample is not trained."""
        return self.finish == "context"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A chat message as the log keeps it."""

    role: str
    content: str | Reply


LoggedPrompt = str | tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A decision point: `play` asks one or several roles.

    prompts: by speaker: the role, or `role#2` for the third of several prompts that one role is asked at once.
    """

    prompts: Mapping[str, LoggedPrompt]
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    kind: Literal["asked"] = "asked"


@dataclass(frozen=True, slots=True)
class Answered:
    """The replies at a decision point. chance: the number the episode's chance was reseeded with, if it was."""

    replies: Mapping[str, Reply]
    chance: int | None = None
    kind: Literal["answered"] = "answered"


@dataclass(frozen=True, slots=True)
class Called:
    """A call of `play` to something outside, named by module and function."""

    function: str
    args: JSON
    effect: Effect = "none"
    kind: Literal["called"] = "called"


@dataclass(frozen=True, slots=True)
class Returned:
    """The result of a call; or, in error, the kind and the message of its failure, and the line that raised it."""

    value: JSON = None
    error: tuple[str, str] | None = None
    place: str = ""
    kind: Literal["returned"] = "returned"


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """The beginning of a turn."""

    number: int
    kind: Literal["turn"] = "turn"


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A reward. role and point: the speaker and point whose sample it is bound to; both None: the whole team's."""

    role: str | None
    point: int | None
    value: float
    name: str
    kind: Literal["reward"] = "reward"


@dataclass(frozen=True, slots=True)
class Noted:
    """A metric that `play` records."""

    name: str
    value: float
    kind: Literal["metric"] = "metric"


NO_OUTCOME = "not solved"
"""The reason of an episode whose `play` returned without an outcome."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of an episode."""

    solved: bool
    reason: str
    kind: Literal["ended"] = "ended"


Event = Asked | Answered | Called | Returned | TurnBegan | Rewarded | Noted | Ended


@dataclass(frozen=True, slots=True)
class Log:
    """The events of one branch of an episode.

    id: the number of the episode, then a name for each fork on the way, with "/" between. parent: the log it was forked
    from and the point where, or None. events: all of them, or, with a parent, those after the fork. seed: what the
    episode's chance starts from. environment and task say what was played.
    """

    id: str
    task: str
    seed: int
    events: tuple[Event, ...]
    parent: tuple[str, int] | None = None

    @property
    def episode(self) -> int:
        """Number of the episode among those of its task."""
        return episode_of(self.id)

    @property
    def outcome(self) -> Ended | None:
        """Outcome of the episode; None before its end."""
        return next((event for event in reversed(self.events) if isinstance(event, Ended)), None)

    @property
    def solved(self) -> bool:
        """True if the environment said that the episode is solved; by default it is not."""
        outcome = self.outcome
        return outcome is not None and outcome.solved

    @property
    def turns(self) -> int:
        """Number of turns that were begun."""
        return sum(isinstance(event, TurnBegan) for event in self.events)

    def rewards(self) -> dict[str, float]:
        """Returns the sums of the rewards: one for each role, and "team"."""
        sums: dict[str, float] = {}
        for event in self.events:
            if isinstance(event, Rewarded):
                name = role_of(event.role) if event.role else "team"
                sums[name] = sums.get(name, 0.0) + event.value
        return sums

    def replies(self) -> Iterator[tuple[int, Reply]]:
        """Yields every reply with the number of its point."""
        answers = (event for event in self.events if isinstance(event, Answered))
        for point, answer in enumerate(answers):
            for reply in answer.replies.values():
                yield point, reply


LOGS: TypeAdapter[Log] = TypeAdapter(Log)
"""The adapter that reads and writes logs as JSON."""


def episode_of(branch: str) -> int:
    """Returns the number of the episode that a branch belongs to: its id begins with it, and names each fork after."""
    return int(branch.partition("/")[0])


def path_of(branch: str, point: int, speaker: str = "") -> str:
    """Returns the name of a decision point of a branch, or of what one of its speakers is asked there."""
    return f"{branch}@{point}{speaker.removeprefix(role_of(speaker))}"


@dataclass(frozen=True, slots=True)
class Point:
    """A decision point: who is asked what, and where in the episode.

    index: 0, 1, … along the episode. turn: the turn it lies in, -1 outside turns. path: see `path_of`.
    after_external: something in the world has changed, so no branch may start here.
    """

    index: int
    turn: int
    path: str
    asked: Asked
    after_external: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """Speakers at this point: roles, or `role#0`, `role#1`, … where one is asked several times."""
        return tuple(self.asked.prompts)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of one decision. parts: each reward by name, weighted; total: their sum."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


def value(
    events: Sequence[Event], point: int, role: str | None, horizon: Horizon, team_weight: float = 1.0, *, first: int = 0
) -> Value:
    """Computes the value of a role's decision: team_weight x (team rewards) + (its local rewards), in its window.

    The window opens with the point's answer and closes at the next decision point ("point"), the
    next turn mark ("turn") or the end ("episode"). Local rewards bound to later samples of that
    role count under "episode" only; those of its other replies at the same point never do.

    Args:
        events: a branch to its end, from the episode's beginning or from decision `first` on.
        point: which decision.
        role: its speaker; None for the team as one, with every role's local rewards of the window.
        team_weight: alpha of AT-GRPO, without unit.

    Raises:
        ValueError: the point has no answer in these events.

    Source:
        arXiv:2510.11062, eq. of the mixed reward; the horizon makes "that turn's" explicit.
    """
    parts: dict[str, float] = {}
    for event in _window(events, point - first, horizon):
        if not isinstance(event, Rewarded):
            continue
        if event.role is None:
            parts[f"team/{event.name}"] = parts.get(f"team/{event.name}", 0.0) + team_weight * event.value
        elif role is None:
            parts[f"{event.role}/{event.name}"] = parts.get(f"{event.role}/{event.name}", 0.0) + event.value
        elif role_of(event.role) == role_of(role) and (
            event.role == role if event.point == point else horizon == "episode"
        ):
            parts[event.name] = parts.get(event.name, 0.0) + event.value
    return Value(sum(parts.values()), parts)


def _window(events: Sequence[Event], point: int, horizon: Horizon) -> Iterator[Event]:
    asked = -1
    opened = False
    for event in events:
        if isinstance(event, Asked):
            asked += 1
            if opened and horizon == "point":
                return
        elif isinstance(event, Answered) and asked == point:
            opened = True
        elif isinstance(event, TurnBegan) and opened and horizon == "turn":
            return
        if opened:
            yield event
    if not opened:
        raise ValueError("the point has no answer in these events")


def check_seen(events: Sequence[Event], horizon: Horizon) -> None:
    """Raises EnvError for a local reward that comes after its sample's window has closed.

    Such a reward would be a silent zero. The message names the role, the point and the horizon
    that would count it.
    """
    if horizon == "episode":
        return
    asked, turn = -1, 0
    turn_of: dict[int, int] = {}
    for event in events:
        if isinstance(event, Asked):
            asked += 1
            turn_of[asked] = turn
        elif isinstance(event, TurnBegan):
            turn += 1
        elif isinstance(event, Rewarded) and event.point is not None:
            in_turn = turn_of[event.point] == turn
            if (horizon == "turn" and not in_turn) or (horizon == "point" and event.point != asked):
                needed = "turn" if in_turn else "episode"
                raise EnvError(
                    f"the reward '{event.name}' of role '{event.role}' comes after its horizon: it belongs to "
                    f"point {event.point}, but horizon '{horizon}' has closed; give it earlier, or use "
                    f'horizon "{needed}"'
                )


def text_of(prompt: LoggedPrompt) -> str:
    """Returns a prompt as a person reads it."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(
        f"[{message.role}] {message.content.text if isinstance(message.content, Reply) else message.content}"
        for message in prompt
    )


SPEAKERS = ("system", "developer", "user", "assistant", "tool")
"""Roles that a chat message may have."""


def logged(prompt: Any) -> LoggedPrompt:
    """Returns a prompt as the log keeps it: a string, or a frozen copy of the messages.

    Raises:
        EnvError: it is neither, or a message lacks its role or content.
    """
    if isinstance(prompt, str):
        return clean(prompt)
    try:
        messages = tuple(ChatMessage(message["role"], message["content"]) for message in prompt)
    except (TypeError, KeyError) as error:
        raise EnvError(
            f"a prompt is a string or a list of messages such as {{'role': 'user', 'content': …}}, not {prompt!r:.80}"
        ) from error
    for message in messages:
        if message.role not in SPEAKERS:
            raise EnvError(f"a message is of role {message.role!r:.80}; chat templates know {', '.join(SPEAKERS)}")
    if not messages or not all(isinstance(message.content, str | Reply) for message in messages):
        raise EnvError("a prompt needs at least one message, and each content must be a string or a Reply")
    return tuple(
        message if isinstance(message.content, Reply) else ChatMessage(message.role, clean(message.content))
        for message in messages
    )


def clean(text: str) -> str:
    """Returns text that can be written as UTF-8: a lone surrogate, which JSON can smuggle in, becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
