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
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from operator import attrgetter
from typing import Any, get_args

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
from coterie.kernel.recording import Recording
from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON, Effect, Prompt, Reply, Scene, role_of
from coterie.kernel.snapshots import Turns
from coterie.kernel.watchdog import Stuck, Watch
from coterie.seeds import seed_of

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


@types.coroutine
def _suspend(event: Asked | Called) -> Generator[Asked | Called, Any, Any]:
    return (yield event)


class Cursor:
    """A cursor on one branch of one episode: it drives `play`."""

    def __init__(
        self,
        environment: Environment,
        task: Task,
        seed: int,
        *,
        name: str = "0",
        perform: calls.Perform = calls.perform_inline,
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
        self._parent = parent
        self._trial = trial
        self._watch = watch or Watch()
        self._past = Recording(f"play of task {task.id}", recorded)
        self._roles = frozenset(environment.roles)
        self._spoke: dict[str, tuple[int, dict[str, Reply]]] = {}
        """Latest replies of each role: their point, and the replies by speaker."""
        self._turns = Turns()
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
        return tuple(self._past.events)

    def since(self, point: int) -> tuple[Event, ...]:
        """Returns the events from a decision point on."""
        return tuple(self._past.events[self._past.points[point] :])

    @property
    def log(self) -> Log:
        """The branch as a log; with a parent, only what came after the fork."""
        events = self.events[len(self._past.recorded) :] if self._parent else self.events
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
            self._past.events.append(returned)
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
        self._past.events.append(self._answer)
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
        if self._coroutine is None and self._past.recorded:
            raise ValueError("a fork is forked once it stands at its point: advance it first")
        wanted = self.asked if at is None else at
        if not 0 <= wanted < len(self._past.points):
            raise ValueError(f"no decision point {wanted} in this episode")
        fork = Cursor(
            self.environment,
            self.task,
            self.seed,
            name=f"{self.id}/{branch}",
            perform=self._perform,
            recorded=tuple(self._past.events[: self._past.points[wanted] + 1]),
            parent=(self.id, wanted),
            trial=trial,
            watch=self._watch,
        )
        fork._begin(self, bisect_right(self._turns.kept, self._past.points[wanted], key=attrgetter("events")) - 1)
        return fork

    def replays(self) -> Iterator[Cursor]:
        """Yields cursors that replay all that was: from the beginning, then from every turn whose state was kept."""
        for turn in range(-1, len(self._turns.kept)):
            again = Cursor(self.environment, self.task, self.seed, recorded=self.events, watch=self._watch)
            again._begin(self, turn)
            yield again

    def _begin(self, other: Cursor, turn: int) -> None:
        """Takes all that was before a turn from another cursor of the episode; -1: nothing."""
        if turn < 0:
            return
        kept = self._turns.take(other._turns, turn)
        self._past.take(other._past, kept.events, kept.points, turn)
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
        place += self._past.late
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
        if len(self._past.points) >= LONGEST_EPISODE:
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
        asked = self._past.again(Asked, prompts, max_tokens, stop) or Asked(
            {role: logged(prompt) for role, prompt in prompts.items()}, max_tokens, stop
        )
        self._say(asked)
        replayed = self._past.next_recorded()
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
        replayed = self._past.next_recorded()
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
        return self._turns.declare(first, len(self._past.events))

    def first_turn(self, limit: int) -> int:
        return self._turns.begin(limit, self._scene.rng)

    def turn(self, number: int) -> None:
        self._turn = number
        if self._turns.kept_here:
            past, chance = self._past, self._scene.chance
            self._turns.keep(
                events=len(past.events),
                points=len(past.points),
                spoke=dict(self._spoke),
                external=self._external,
                overlong=self._overlong,
                chance=chance.getstate() if chance else None,
            )
        self._say(TurnBegan(number))

    def reward(self, role: str | Reply | None, value: float, name: str) -> None:
        value = checked_number(value, f"the reward '{name}' of {role or 'the team'}", LARGEST_REWARD)
        name = one_line(checked_text(name, "a reward's name"))
        speaker, point = (None, None) if role is None else self._rewarded(role, name)
        again = self._past.again(Rewarded, speaker, point, value, name)
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
        """Returns a text that says which piece of `play` runs."""
        return f"play of task {self.task.id}, episode {self.id}, {self._past.whereabouts()},"

    @property
    def asked(self) -> int:
        """Number of the latest decision point, -1 before the first."""
        return len(self._past.points) - 1

    def _say(self, event: Event) -> None:
        turns = self._turns
        if turns.state is not None and not turns.kept and not isinstance(event, TurnBegan | Ended):
            raise EnvError(f"play says {event} before its first turn; with scene.state, all is said in scene.turns")
        if self._ended and not isinstance(event, Noted | Rewarded):
            raise EnvError(f"play goes on after the outcome with {event}; return after scene.succeed() or scene.fail()")
        self._past.add(event)

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
        self._past.check_end()
