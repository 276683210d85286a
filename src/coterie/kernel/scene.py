"""The interface of environments: `Scene` and `Reply`.

`play` is a coroutine, and a cursor drives it step by step. `ask`, `ask_all` and `call` suspend it until an
answer comes. All other methods are recorded at once. The scene does not know policies, groups or
training. `cursor.py` drives, forks and replays episodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import currentframe
from random import Random
from types import CodeType, SimpleNamespace
from typing import Any, Literal, Protocol, TypedDict, TypeVar, overload

from coterie.errors import EnvError

Finish = Literal["stop", "length", "context"]
Effect = Literal["none", "external"]
T = TypeVar("T")
JSON = Any
"""JSON data: None, bool, int, float, str, and lists and string-keyed dicts of them."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of one role.

    Attributes:
        role: the role that replied.
        text: the text of the reply, without the stop string.
        finish: "stop" (the reply ended by itself), "length" (it was cut at the token limit) or "context" (the prompt
            was too long for the model, so the role was not asked and the text is empty).
        ids: the sampled token ids without the stop token. Later prompts contain a role's own replies as these ids.
        policy: the policy whose tokenizer made the ids.
    """

    role: str
    text: str
    finish: Finish = "stop"
    ids: tuple[int, ...] = ()
    policy: str = ""

    def __deepcopy__(self, memo: object) -> Reply:
        """Returns the reply itself, since it is immutable."""
        return self


class Message(TypedDict):
    """One chat message. The content of a role's own earlier message may be the `Reply` object."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | Reply


Prompt = str | Sequence[Message]


class Chance(Random):
    """The random generator of an episode. It must not be copied, because a copy would not be reseeded."""

    def __deepcopy__(self, memo: object) -> Chance:
        raise EnvError("scene.rng stands in scene.state, which need not keep it: leave it out, and ask scene for it")


class Stage(Protocol):
    """The interface that a scene uses. The cursor implements it."""

    async def ask(
        self, prompts: Mapping[str, Prompt], max_tokens: int | None, stop: tuple[str, ...]
    ) -> Mapping[str, Reply]: ...
    async def call(self, function: Callable[..., JSON], args: tuple[JSON, ...], effect: Effect) -> JSON: ...
    def state(self, first: dict[str, Any]) -> SimpleNamespace: ...
    def first_turn(self, limit: int) -> int: ...
    def turn(self, number: int) -> None: ...
    def reward(self, role: str | Reply | None, value: float, name: str) -> None: ...
    def outcome(self, solved: bool, reason: str) -> None: ...
    def metric(self, name: str, value: float) -> None: ...


class Scene:
    """The interface through which `play` asks roles, makes calls and gives rewards."""

    __slots__ = ("_in_turn", "_made", "_seed", "_stage", "_waiting", "chance")

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._in_turn = False
        self._made = 0
        self._waiting: dict[int, tuple[Coroutine[Any, Any, Any], CodeType, int]] = {}
        self._seed = seed
        self.chance: Random | None = None
        """The generator that `rng` returns; None until `rng` is used for the first time."""

    @property
    def rng(self) -> Random:
        """The only random number generator that `play` may use; a sampler may reseed it between decisions."""
        if self.chance is None:
            self.chance = Chance(self._seed)
        return self.chance

    def ask(
        self, role: str, prompt: Prompt, *, max_tokens: int | None = None, stop: str | Sequence[str] = ()
    ) -> Coroutine[Any, Any, Reply]:
        """Asks one role. Use `await` to get the reply.

        Args:
            prompt: a string (one user message) or chat messages.
            max_tokens: maximum number of tokens of the reply; None: the limit in the engine's config.
            stop: strings that end the reply; they are not part of its text.
        """
        return self._noted(self._one(self._made, role, prompt, max_tokens, stop))

    @overload
    def ask_all(
        self, prompts: Mapping[str, Prompt], *, max_tokens: int | None = None, stop: str | Sequence[str] = ()
    ) -> Coroutine[Any, Any, Mapping[str, Reply]]: ...

    @overload
    def ask_all(
        self, prompts: Sequence[tuple[str, Prompt]], *, max_tokens: int | None = None, stop: str | Sequence[str] = ()
    ) -> Coroutine[Any, Any, list[Reply]]: ...

    def ask_all(
        self,
        prompts: Mapping[str, Prompt] | Sequence[tuple[str, Prompt]],
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> Coroutine[Any, Any, Mapping[str, Reply] | list[Reply]]:
        """Asks several roles at the same time; none sees another's reply. Use `await` to get the replies.

        Args:
            prompts: one prompt for each role, `{role: prompt}`; or a list of `(role, prompt)`, in which a role may
                occur several times, like the sub-agents of an orchestrator. The list may have any length, also 0.

        Returns:
            the replies by role; for a list of prompts, a list of replies in the same order.
        """
        if isinstance(prompts, Mapping):
            return self._noted(self._all(self._made, prompts, max_tokens, stop))
        return self._noted(self._list(self._made, _listed(prompts), max_tokens, stop))

    def call(self, function: Callable[..., JSON], *args: JSON, effect: Effect = "none") -> Coroutine[Any, Any, JSON]:
        """Calls an external function, such as a sandbox, a retrieval or a service. Use `await` to get the result.

        In training and evaluation the function runs in a worker process, which imports the function's module and
        serves many calls. Module-level state stays in that worker: this process and other workers do not see it, and
        it is lost when a call crashes or takes too long. Printed output goes to standard error.

        Args:
            function: a module-level function. Its result must depend only on its arguments.
            args: JSON values.
            effect: "external" if the call has an external side effect; decision points after such a call are never
                branched.

        Returns:
            the function's result as JSON; a replay returns the same result.

        Raises:
            CallError: the function raised an exception (`kind` is its name), took too long ("timeout") or ended its
                process ("crash"). `play` never sees Unavailable.
        """
        return self._noted(self._outside(self._made, function, args, effect))

    def state(self, **first: Any) -> SimpleNamespace:
        """Declares the state that passes between turns, so that a branch need not be played from the beginning.

        This is important for long episodes: a branch at decision 60 then costs as much as a branch at decision 2.

        Args:
            first: the values before the first turn. They are copied at every turn, so they may be changed in place.

        Returns:
            an object with these values as attributes: `state = scene.state(board=…)`, then `state.board = …`.
            Everything that `play` keeps between turns must be stored in it, except `scene.rng`. Everything that
            `play` asks, calls or reports must be inside `scene.turns`.
        """
        return self._stage.state(first)

    def turns(self, limit: int) -> Iterator[int]:
        """Yields 0, 1, … limit - 1 and logs each turn; must not nest.

        With `state`, a branch is replayed from the beginning of its own turn, not from the beginning of the episode.
        """
        if not isinstance(limit, int) or limit < 0:
            raise ValueError(f"scene.turns({limit!r:.80}): give the number of turns, a whole one")
        if self._in_turn:
            raise ValueError(
                "scene.turns does not nest: use one loop of turns, and plain loops inside; one that was left "
                "stays open while its iterator is kept"
            )
        self._in_turn = True
        try:
            for number in range(self._stage.first_turn(limit), limit):
                self._stage.turn(number)
                yield number
        finally:
            self._in_turn = False

    def reward(self, role: str | Reply, value: float, name: str = "local") -> None:
        """Gives a local reward to the latest reply of a role.

        Args:
            role: the role; or the reply itself, if the role has just given several replies at the same time.
        """
        self._stage.reward(role, value, name)

    def team_reward(self, value: float, name: str = "team") -> None:
        """Gives a reward to the whole team; it does not belong to a single reply."""
        self._stage.reward(None, value, name)

    def succeed(self) -> None:
        """Ends the episode as solved. Afterwards `play` may only give rewards and record metrics."""
        self._stage.outcome(True, "solved")

    def fail(self, reason: str) -> None:
        """Ends the episode as not solved, with a reason. Afterwards `play` may only give rewards and record metrics."""
        self._stage.outcome(False, reason)

    def metric(self, name: str, value: float) -> None:
        """Records a number as a metric of the episode."""
        self._stage.metric(name, value)

    def never_awaited(self) -> str:
        """Returns the place of the first `ask` or `call` that was not awaited, as `file.py:12`, or "".

        Its coroutine is closed, so Python does not warn about it.
        """
        places = [f"{code.co_filename}:{line}" for _, code, line in self._waiting.values()]
        for coroutine, _, _ in self._waiting.values():
            coroutine.close()
        self._waiting.clear()
        return places[0] if places else ""

    def _noted(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Notes a coroutine that has to be awaited, and where in `play` it was made."""
        frame = currentframe()
        assert frame is not None
        assert frame.f_back is not None
        assert frame.f_back.f_back is not None
        caller = frame.f_back.f_back
        self._waiting[self._made] = (coroutine, caller.f_code, caller.f_lineno)
        self._made += 1
        return coroutine

    async def _one(
        self, number: int, role: str, prompt: Prompt, max_tokens: int | None, stop: str | Sequence[str]
    ) -> Reply:
        del self._waiting[number]
        return (await self._stage.ask(_by_role({role: prompt}), max_tokens, _stops(stop)))[role]

    async def _all(
        self, number: int, prompts: Mapping[str, Prompt], max_tokens: int | None, stop: str | Sequence[str]
    ) -> Mapping[str, Reply]:
        del self._waiting[number]
        return await self._stage.ask(_by_role(prompts), max_tokens, _stops(stop))

    async def _list(
        self, number: int, prompts: Sequence[tuple[str, Prompt]], max_tokens: int | None, stop: str | Sequence[str]
    ) -> list[Reply]:
        del self._waiting[number]
        speakers = _speakers(prompts)
        if not speakers:
            return []
        asked = {speaker: prompt for speaker, (_, prompt) in zip(speakers, prompts, strict=True)}
        replies = await self._stage.ask(asked, max_tokens, _stops(stop))
        return [replies[speaker] for speaker in speakers]

    async def _outside(
        self, number: int, function: Callable[..., JSON], args: tuple[JSON, ...], effect: Effect
    ) -> JSON:
        del self._waiting[number]
        return await self._stage.call(function, args, effect)


def role_of(speaker: str) -> str:
    """Returns the role of a speaker. The speaker `worker#2` is the third one of the role `worker` at one point."""
    return speaker.partition("#")[0]


def _listed(prompts: Iterable[tuple[str, Prompt]]) -> list[tuple[str, Prompt]]:
    """Returns the pairs (role, prompt) of any iterable, as a list.

    Raises:
        EnvError: it does not consist of such pairs.
    """
    given: Any = prompts
    listed: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    if isinstance(given, str) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in listed):
        raise EnvError(f"scene.ask_all takes {{role: prompt}}, or a list of (role, prompt), not {prompts!r:.80}")
    return listed


def _by_role(prompts: Mapping[str, Prompt]) -> Mapping[str, Prompt]:
    """Returns prompts as they are, one a role.

    Raises:
        EnvError: one is for a numbered speaker, which only a list makes.
    """
    numbered = [role for role in prompts if "#" in str(role)]
    if numbered:
        raise EnvError(
            f"play asked {numbered[0]!r:.80}, which is no role; a list of (role, prompt) asks a role several times"
        )
    return prompts


def _speakers(prompts: Sequence[tuple[str, Prompt]]) -> list[str]:
    """Returns a name for each reply: the role, numbered where it is asked several times."""
    counts = Counter(role for role, _ in prompts)
    _by_role(dict.fromkeys(counts, ""))
    seen: Counter[str] = Counter()
    speakers: list[str] = []
    for role, _ in prompts:
        speakers.append(f"{role}#{seen[role]}" if counts[role] > 1 else role)
        seen[role] += 1
    return speakers


def _stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)
