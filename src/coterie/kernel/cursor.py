"""The cursor: it drives `play`, and can replay it to the same point.

    cursor = Cursor(environment, task, seed)
    point = await cursor.advance()     # the open decision point, or None for ever at the end
    other = cursor.fork()              # the same log, the point unanswered
    cursor.answer({"planner": reply})  # exactly the point's roles

A fork is a replay: a new coroutine is driven along the log and must produce the same events. Any
difference is a broken contract. Replies and results of calls come from the log, so no outside function
runs twice. If `play` uses `scene.state`, the replay starts at the turn of the fork.
"""

from __future__ import annotations

import asyncio
import types
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar, get_args

from coterie.errors import CallError, EnvError, ExternalEffect, Unavailable
from coterie.kernel import calls
from coterie.kernel.bounds import LARGEST_METRIC, LARGEST_REWARD, as_json, checked_number, checked_text
from coterie.kernel.environment import Environment, Task
from coterie.kernel.episode import (
    NO_OUTCOME,
    Answered,
    Asked,
    Called,
    Ended,
    Event,
    Log,
    Noted,
    Point,
    Returned,
    Rewarded,
    TurnBegan,
    clean,
    logged,
    path_of,
)
from coterie.kernel.mistakes import place_in_code, recognised, said
from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON, Effect, Prompt, Reply, Scene, role_of
from coterie.kernel.watchdog import Stuck, Watch
from coterie.seeds import seed_of

Perform = Callable[[Callable[..., JSON], tuple[JSON, ...]], Awaitable[JSON]]
"""A function that runs a call live; it raises CallError or Unavailable."""
E = TypeVar("E", Asked, Rewarded)
VALUES = {Asked: attrgetter("prompts", "max_tokens", "stop"), Rewarded: attrgetter("role", "point", "value", "name")}
"""The fields that a replay compares, for the two kinds of events that are most frequent in it."""
SETTLED = {str, int, float, bool, bytes, type(None), Reply}
"""Types of values that cannot change."""
CHANGING = {list, dict, set}
"""Types of values that are changed in place."""
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.GeneratorType, types.CoroutineType)
LONGEST_EPISODE = 2000
"""Maximum number of decision points of an episode. An episode with more is taken for a loop that replies keep going."""
MOST_AT_ONCE = 256
"""Maximum number of prompts of one decision point. Replies may decide how many there are."""
NEVER_AWAITED = (
    "what {} makes was never awaited, so nothing was done; write `await` before it: `reply = await scene.ask(…)`"
)


class PlayBug(Exception):
    """`play` raised: a bug in the environment. log: the whole episode up to there; replaying it raises again."""

    def __init__(self, message: str, log: Log) -> None:
        super().__init__(message)
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        return PlayBug, (str(self), self.log), self.__dict__


async def perform_inline(function: Callable[..., JSON], args: tuple[JSON, ...]) -> JSON:
    """Runs a call at once, without a time limit; what it raises becomes a CallError."""
    try:
        return function(*args)
    except Unavailable:
        raise
    except Exception as error:  # whatever a tool raises is data for `play`
        raise CallError(type(error).__name__, str(error)) from error


@types.coroutine
def _suspend(event: Asked | Called) -> Generator[Asked | Called, Any, Any]:
    return (yield event)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A snapshot of an episode at the beginning of a turn.

    events, points: how many there were. state: the state of `play`. The other fields are those of the cursor.
    """

    events: int
    points: int
    spoke: dict[str, tuple[int, dict[str, Reply]]]
    external: bool
    overlong: str
    chance: tuple[Any, ...] | None
    state: dict[str, Any]


def _copied(state: dict[str, Any], memo: dict[int, Any] | None = None) -> dict[str, Any]:
    """A deep copy of a state.

    Args:
        memo: as in `copy.deepcopy`: by the id of an object, the object that stands for it in the copy.

    Raises:
        EnvError: the state contains something that cannot be copied, or that the copy would share with it.
    """
    if all(map(_settled, state.values())):
        return dict(state)
    for name, value in state.items():
        if isinstance(value, FUNCTIONS):
            raise EnvError(f"scene.state.{name} is a function, whose variables cannot be copied: keep data")
    try:
        return deepcopy(state, memo)
    except (TypeError, RecursionError, AttributeError) as error:
        raise EnvError(f"scene.state cannot be copied: {type(error).__name__}: {error}; keep data") from error


def _put(kept: dict[str, Any], state: dict[str, Any]) -> None:
    """Sets a state to the kept values.

    Lists, dicts and sets are changed in place, because variables of `play` from before its turns may refer to them.
    """
    places = {
        name: state[name]
        for name, value in kept.items()
        if type(value) in CHANGING and type(state.get(name)) is type(value)
    }
    if not len({id(value) for value in places.values()}) == len({id(kept[name]) for name in places}) == len(places):
        places = {}  # two names share one value, now or in what was kept: it is not known which of them `play` uses
    memo = {id(kept[name]): value for name, value in places.items()}
    for name, value in places.items():
        whole = kept[name]
        value.clear()
        if isinstance(value, dict):
            value.update((deepcopy(key, memo), deepcopy(item, memo)) for key, item in whole.items())
        elif isinstance(value, list):
            value.extend(deepcopy(item, memo) for item in whole)
        else:
            value.update(deepcopy(item, memo) for item in whole)
    after = _copied(kept, memo)
    state.clear()
    state.update(after)


def _settled(value: object) -> bool:
    """Returns True if nothing in a value can change: most states are cells and texts, and need no copy."""
    return type(value) in SETTLED or (type(value) in (tuple, frozenset) and all(map(_settled, value)))  # pyright: ignore


class Cursor:
    """A cursor on one branch of one episode: it drives `play`."""

    def __init__(
        self,
        environment: Environment,
        task: Task,
        seed: int,
        *,
        name: str = "0",
        perform: Perform = perform_inline,
        recorded: tuple[Event, ...] = (),
        parent: tuple[str, int] | None = None,
        trial: bool = False,
        watch: Watch | None = None,
    ) -> None:
        """Creates a cursor before the first event; with `recorded`, it replays those first.

        Args:
            seed: the episode's chance.
            name: the branch.
            parent: the log and point it forks from.
            trial: the branch only values a reply: it stops before a call with an external effect.
            watch: while it is entered, it stops a `play` that does not return to the scene.
        """
        self.environment = environment
        self.task = task
        self.seed = seed
        self.id = name
        self._perform = perform
        self._recorded = recorded
        self._parent = parent
        self._trial = trial
        self._watch = watch or Watch()
        self._events: list[Event] = []
        self._roles = frozenset(environment.roles)
        self._spoke: dict[str, tuple[int, dict[str, Reply]]] = {}
        """Latest replies of each role: their point, and the replies by speaker."""
        self._points: list[int] = []
        self._state: types.SimpleNamespace | None = None
        self._kept: list[_Kept] = []
        """A snapshot of each turn of the first loop over `scene.turns`, if `play` has declared its state."""
        self._loops = 0
        self._late = ""
        self._from: _Kept | None = None
        """The snapshot with which a replay starts; None once it has been used."""
        self._turn = -1
        self._external = False
        self._ended = False
        self._overlong = ""
        self._function: Callable[..., JSON] | None = None
        self._open: Point | None = None
        self._answer: Answered | None = None
        self._finished = False
        self._scene = Scene(self, seed)
        self._coroutine: Coroutine[Any, Any, None] | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, from the episode's beginning."""
        return tuple(self._events)

    def since(self, point: int) -> tuple[Event, ...]:
        """Returns the events from a decision point on."""
        return tuple(self._events[self._points[point] :])

    @property
    def log(self) -> Log:
        """The branch as a log; with a parent, only what came after the fork."""
        events = self.events[len(self._recorded) :] if self._parent else self.events
        return Log(self.id, self.task.id, self.seed, events, self._parent)

    async def advance(self) -> Point | None:
        """Plays on to the next decision point.

        Returns:
            the open point, again if it is not answered yet; None at the end, for ever.

        Raises:
            EnvError: the contract is broken.
            PlayBug: `play` raised.
            Unavailable: a call could not be made.
        """
        if self._finished or (self._open is not None and self._answer is None):
            return self._open
        given: Any = None
        coroutine = self._coroutine or self._start()
        if self._answer is not None:
            given, self._answer, self._open = self._answer.replies, None, None
        failure: CallError | None = None
        while True:
            try:
                resume = coroutine.throw if failure else coroutine.send
                event = self._watch.over(self._whereabouts, resume, failure or given)
            except StopIteration as end:
                return self._finish(end.value)
            except (Stuck, Unavailable, KeyboardInterrupt):  # a person's Ctrl-C is not the environment's error
                raise
            except BaseException as error:  # a bug, whatever it is: `exit()` in it, or a library's panic, ends no run
                raise self._told(error) from error
            given = failure = None
            if isinstance(event, Asked):
                self._open = Point(self.asked, self._turn, path_of(self.id, self.asked), event, self._external)
                return self._open
            if not isinstance(event, Called):
                if isinstance(event, asyncio.Future):
                    event.add_done_callback(
                        lambda left: left.cancelled() or left.exception()
                    )  # else asyncio warns of it
                    event.cancel()
                frame = getattr(coroutine, "cr_frame", None)
                where = f"{frame.f_code.co_filename}:{frame.f_lineno}: " if frame else ""
                raise EnvError(
                    f"{where}play of task {self.task.id} awaited something that is not the scene's; it may await "
                    "scene.ask, scene.ask_all (roles that speak at once) and scene.call only"
                )
            returned = await self._run_call(event)
            self._events.append(returned)
            if returned.error is None:
                given = returned.value
            else:
                failure = CallError(*returned.error, returned.place)

    def answer(self, replies: Mapping[str, Reply], chance: int | None = None) -> None:
        """Answers the open point.

        Args:
            replies: exactly one for each role asked.
            chance: reseeds `scene.rng` from (episode seed, point, chance); None leaves it, so siblings share their
                chance.

        Raises:
            ValueError: no point is open, or the roles differ.
        """
        if self._open is None or self._answer is not None:
            raise ValueError("no decision point is open")
        if set(replies) != set(self._open.roles):
            raise ValueError(f"asked {sorted(self._open.roles)}, answered {sorted(replies)}")
        self._answer = Answered(dict(replies), chance)
        self._events.append(self._answer)
        self._apply(self._answer)

    @property
    def acted(self) -> bool:
        """True if the episode has changed the world."""
        return self._external

    def fork(self, at: int | None = None, branch: str = "", *, trial: bool = False) -> Cursor:
        """Returns a cursor on the same log up to a decision point, which is unanswered.

        Args:
            at: the point's number; None: the open one.
            branch: extends the id, so that what is drawn on the fork is drawn by seeds of its own.
            trial: it raises Unavailable before a call with an external effect.
        """
        if self._coroutine is None and self._recorded:
            raise ValueError("a fork is forked once it stands at its point: advance it first")
        wanted = self.asked if at is None else at
        if not 0 <= wanted < len(self._points):
            raise ValueError(f"no decision point {wanted} in this episode")
        fork = Cursor(
            self.environment,
            self.task,
            self.seed,
            name=f"{self.id}/{branch}",
            perform=self._perform,
            recorded=tuple(self._events[: self._points[wanted] + 1]),
            parent=(self.id, wanted),
            trial=trial,
            watch=self._watch,
        )
        fork._begin(self, bisect_right(self._kept, self._points[wanted], key=attrgetter("events")) - 1)
        return fork

    def replays(self) -> Iterator[Cursor]:
        """Yields cursors that replay all that was: from the beginning, then from every turn whose state was kept."""
        for turn in range(-1, len(self._kept)):
            again = Cursor(self.environment, self.task, self.seed, recorded=self.events, watch=self._watch)
            again._begin(self, turn)
            yield again

    def _begin(self, other: Cursor, turn: int) -> None:
        """Takes all that was before a turn from another cursor of the episode; -1: nothing."""
        if turn < 0:
            return
        self._late = f", in a branch that began with turn {turn}: what passes from turn to turn must be in scene.state"
        self._kept, kept = other._kept[:turn], other._kept[turn]
        self._from = kept
        self._events, self._points = other._events[: kept.events], other._points[: kept.points]
        self._spoke, self._external, self._overlong = dict(kept.spoke), kept.external, kept.overlong

    def _start(self) -> Coroutine[Any, Any, None]:
        """Starts `play` and returns its coroutine. Raises: EnvError: it is no coroutine."""
        try:
            coroutine: object = self._watch.over(self._whereabouts, self.environment.play, self.task, self._scene)
        except (Stuck, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._told(error) from error
        if not isinstance(coroutine, Coroutine):
            self._scene.never_awaited()
            raise EnvError(f"play of task {self.task.id} is no coroutine; write `async def play`, without yield")
        self._coroutine = coroutine
        return coroutine

    def _told(self, error: BaseException) -> EnvError | PlayBug:
        """Returns the error for an exception of `play`: a recognised mistake, or a bug with the log that led to it."""
        play = f"play of task {self.task.id}"
        if place := self._scene.never_awaited():
            return EnvError(f"{play}: {NEVER_AWAITED.format(place)}")
        if isinstance(error, EnvError):
            return EnvError(f"{place_in_code(error, self.environment)}: {error}")
        if mistake := recognised(error, self.environment):
            return EnvError(f"{play}: {mistake}")
        whole = Log(self.id, self.task.id, self.seed, self.events)
        place = place_in_code(error, self.environment)
        if isinstance(error, CallError) and error.place:
            place += f", in a call of {error.place}"
        place += self._late
        return PlayBug(f"{play} raised {said(error)} ({place})", whole)

    # What the scene calls.

    async def ask(
        self, prompts: Mapping[str, Prompt], max_tokens: int | None, stop: tuple[str, ...]
    ) -> Mapping[str, Reply]:
        if not prompts or not self._roles.issuperset(map(role_of, prompts)):
            raise EnvError(f"play asked {sorted(prompts)}; the roles are {sorted(self._roles)}")
        if len(prompts) > MOST_AT_ONCE:
            raise EnvError(
                f"play of task {self.task.id} asked {len(prompts)} prompts at once, more than {MOST_AT_ONCE}; bound "
                "what a model's words decide"
            )
        if len(self._points) >= LONGEST_EPISODE:
            raise EnvError(
                f"play of task {self.task.id} has more than {LONGEST_EPISODE} decision points; bound its loops"
            )
        stop = tuple(checked_text(text, "a stop string") for text in stop)
        limited = max_tokens is None or (isinstance(max_tokens, int) and max_tokens >= 1)
        if not limited or not all(stop):
            raise EnvError(
                f"play asked with max_tokens = {max_tokens!r} and stop = {stop}; a whole number of at least 1 token, "
                "no empty stop"
            )
        asked = self._again(Asked, prompts, max_tokens, stop) or Asked(
            {role: logged(prompt) for role, prompt in prompts.items()}, max_tokens, stop
        )
        self._points.append(len(self._events))
        self._say(asked)
        replayed = self._next_recorded()
        if replayed is None:
            replies = await _suspend(asked)
        else:
            assert isinstance(replayed, Answered)
            self._apply(replayed)
            replies = replayed.replies
        return replies

    async def call(self, function: Callable[..., JSON], args: tuple[JSON, ...], effect: Effect) -> JSON:
        if effect not in get_args(Effect):
            raise EnvError(f"scene.call with effect = {effect!r:.80}; an effect is {' or '.join(get_args(Effect))}")
        called = Called(calls.named(function), as_json(list(args), "arguments"), effect)
        self._say(called)
        self._external |= effect == "external"
        replayed = self._next_recorded()
        if replayed is None:
            if self._trial and effect == "external":
                raise ExternalEffect(f"{called.function} would change the world")
            self._function = function
            return await _suspend(called)
        assert isinstance(replayed, Returned)
        if replayed.error is not None:
            raise CallError(*replayed.error, replayed.place)
        return as_json(replayed.value, "result")

    def state(self, first: dict[str, Any]) -> types.SimpleNamespace:
        if self._state is not None or len(self._events) > (self._from.events if self._from else 0):
            raise EnvError("scene.state comes once, before anything is said")
        self._state = types.SimpleNamespace(**_copied(first))
        return self._state

    def first_turn(self, limit: int) -> int:
        self._loops += limit > 0
        if self._from is None or not limit:
            return 0
        if self._from.chance is not None:
            self._scene.rng.setstate(self._from.chance)
        if self._state is not None:
            _put(self._from.state, vars(self._state))
        self._from = None
        return len(self._kept)

    def turn(self, number: int) -> None:
        self._turn = number
        if self._state is not None and self._loops == 1:  # another loop numbers its turns anew
            self._kept.append(
                _Kept(
                    len(self._events),
                    len(self._points),
                    dict(self._spoke),
                    self._external,
                    self._overlong,
                    self._scene.chance.getstate() if self._scene.chance else None,
                    _copied(vars(self._state)),
                )
            )
        self._say(TurnBegan(number))

    def reward(self, role: str | Reply | None, value: float, name: str) -> None:
        value = checked_number(value, f"the reward '{name}' of {role or 'the team'}", LARGEST_REWARD)
        name = one_line(checked_text(name, "a reward's name"))
        speaker, point = (None, None) if role is None else self._rewarded(role, name)
        again = self._again(Rewarded, speaker, point, value, name)
        self._say(again or Rewarded(speaker, point, value, name))

    def outcome(self, solved: bool, reason: str) -> None:
        reason = one_line(checked_text(reason, "the reason of scene.fail"))
        self._say(Ended(False, self._overlong) if self._overlong else Ended(solved, reason))
        self._ended = True

    def metric(self, name: str, value: float) -> None:
        value = checked_number(value, f"the metric '{name}'", LARGEST_METRIC)
        self._say(Noted(one_line(checked_text(name, "a metric's name")), value))

    # Helpers.

    def _rewarded(self, whose: str | Reply, name: str) -> tuple[str, int]:
        """Returns the speaker that a reward is for, and its point. Raises: EnvError: none, or several."""
        role = whose.role if isinstance(whose, Reply) else whose
        if role not in self._roles:
            raise EnvError(f"the reward '{name}' is for role {role!r:.80}; the roles are {sorted(self._roles)}")
        if role not in self._spoke:
            raise EnvError(f"the reward '{name}' is for role '{role}', which has not spoken")
        point, latest = self._spoke[role]
        speakers = [speaker for speaker, reply in latest.items() if not isinstance(whose, Reply) or reply is whose]
        if not speakers:
            raise EnvError(f"the reward '{name}' is for a reply that is none of the latest of role '{role}'")
        if len(speakers) > 1:
            raise EnvError(
                f"the reward '{name}' is for role '{role}', which spoke {len(latest)} times at once; say for which: "
                "scene.reward(reply, …)"
            )
        return speakers[0], point

    def _whereabouts(self) -> str:
        """Returns a text that says which piece of `play` runs: after which answer or call."""
        told = next((event for event in reversed(self._events) if isinstance(event, Answered | Returned)), None)
        since = "from its beginning"
        if isinstance(told, Answered):
            roles = ", ".join(f"'{role}'" for role in sorted(told.replies))
            since = f"after the answer of role {roles} at point {self.asked}"
        elif told is not None:
            called = next(event for event in reversed(self._events) if isinstance(event, Called))
            since = f"after the call of {called.function} that followed point {self.asked}"
        return f"play of task {self.task.id}, episode {self.id}, {since},"

    @property
    def asked(self) -> int:
        """Number of the latest decision point, -1 before the first."""
        return len(self._points) - 1

    def _again(self, kind: type[E], *values: object) -> E | None:
        """Returns the recorded event if a replay says the same, so that it need not be built again; else None."""
        at = len(self._events)
        if at < len(self._recorded):
            event = self._recorded[at]
            if isinstance(event, kind) and VALUES[kind](event) == values:
                return event
        return None

    def _say(self, event: Event) -> None:
        if self._state is not None and not self._kept and not isinstance(event, TurnBegan | Ended):
            raise EnvError(f"play says {event} before its first turn; with scene.state, all is said in scene.turns")
        if self._ended and not isinstance(event, Noted | Rewarded):
            raise EnvError(f"play goes on after the outcome with {event}; return after scene.succeed() or scene.fail()")
        at = len(self._events)
        if at < len(self._recorded) and self._recorded[at] is not event and self._recorded[at] != event:
            raise EnvError(
                f"play of task {self.task.id} is not deterministic: event {at} was {self._recorded[at]}, "
                f"and is {event} when replayed; it may depend on its settings, task, scene.rng and the scene only"
                + self._late
            )
        self._events.append(event)

    def _next_recorded(self) -> Event | None:
        at = len(self._events)
        if at == len(self._recorded) or at > len(self._recorded):
            return None
        self._events.append(self._recorded[at])
        return self._recorded[at]

    def _apply(self, answer: Answered) -> None:
        spoke: dict[str, dict[str, Reply]] = {}
        for speaker, reply in answer.replies.items():
            spoke.setdefault(role_of(speaker), {})[speaker] = reply
        self._spoke |= {role: (self.asked, replies) for role, replies in spoke.items()}
        for role, reply in answer.replies.items():
            if reply.finish == "context":  # whatever `play` makes of the silence, the episode is no success
                self._overlong = f"the prompt of {role} outgrew the context"
        if answer.chance is not None:
            self._scene.rng.seed(seed_of(self.seed, self.asked, answer.chance))

    async def _run_call(self, called: Called) -> Returned:
        assert self._function is not None
        try:
            return Returned(as_json(await self._perform(self._function, tuple(called.args)), "result"))
        except CallError as error:
            return Returned(error=(clean(error.kind), clean(error.message)), place=clean(error.place))

    def _finish(self, returned: object) -> None:
        if place := self._scene.never_awaited():
            raise EnvError(f"play of task {self.task.id}: {NEVER_AWAITED.format(place)}")
        if returned is not None:
            raise EnvError(
                f"play of task {self.task.id} returned {returned!r:.80}, which nobody reads; "
                "give rewards with scene.reward or scene.team_reward, and return nothing"
            )
        self._finished = True
        self._open = None
        if not self._ended:
            self.outcome(False, NO_OUTCOME)
        if len(self._events) < len(self._recorded):
            raise EnvError(
                f"play of task {self.task.id} is not deterministic: it ended before event "
                f"{len(self._events)}, {self._recorded[len(self._events)]}, of the replayed log"
            )
