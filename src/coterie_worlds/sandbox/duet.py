"""A duet: two programs, each in its own sandbox. One may call a function of the other, and the host sees every call.

The host records the partner's answers, out of reach of both programs, and can replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from coterie_worlds.sandbox.border import FAILURES, Message
from coterie_worlds.sandbox.remote import NAMING, OPERATIONS, PASSED, PLAIN
from coterie_worlds.sandbox.trial import DEEPEST, MOST_TIMEOUTS, TOO_MUCH, call_of
from coterie_worlds.sandbox.values import acting, same
from coterie_worlds.sandbox.worker import SandboxWorker

MOST_CALLS = 1_000
"""Maximum number of calls of one test."""
MOST_ITEMS = 1_000
"""Maximum number of items that are drawn from an iterator of the partner alone."""
PASSING = ("returned", "asked", "loaded")
HANDING = ("call", "send", "setattr", "setitem")
"""Verbs with which a side hands something over; with the others it only looks."""
SILENT = ("hash",)
"""Verbs whose answers a program does not see."""
NOTHING: Message = {"status": "returned", "value": None}
"""The reply of a method that only changes its object, and so says nothing."""


@dataclass(frozen=True, slots=True)
class PartnerAnswer:
    """An answer of the partner to a call, with the call's arguments.

    args: of the call, before those of the call that gave the function. values: what it returned, and what its arguments
    were afterwards.
    """

    args: tuple[Any, ...]
    values: tuple[Any, ...]

    @property
    def changes(self) -> bool:
        """True if an argument is another after the call."""
        return any(map(self.changes_at, range(len(self.args))))

    def changes_at(self, at: int) -> bool:
        """Returns True if an argument, by its number, is another afterwards."""
        return at + 1 < len(self.values) and at < len(self.args) and not same(self.args[at], self.values[at + 1])


Swap = Callable[[int, Sequence[Any], Message], Message]
"""A function that replaces an answer, given its place among all, the call's arguments and the true answer."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call of the caller's function, with all that the partner answered in it.

    answer: how it ended. told: what the partner answered, in truth, first while the caller was loaded. drawn: what its
    iterators gave, each as one.
    """

    answer: Message
    told: tuple[PartnerAnswer, ...] = ()
    drawn: tuple[PartnerAnswer, ...] = ()


class Duet:
    """A function in one sandbox that may call a function in another.

    Where the partner hands back what the caller has just told it, in answer to a callback, it has answered nothing.

    Args:
        caller, partner: unused sandboxes.
        text, other: their programs.
        watched: the partner's, with eyes.
        name: the caller's function.
        called: the partner's, which the caller may call.
        eye: see `Worker.look`.
    """

    def __init__(
        self, caller: SandboxWorker, partner: SandboxWorker, *, text: str, other: str, name: str, called: str, eye: str,
        watched: str = "",
    ):  # fmt: skip
        self.caller = caller
        self.partner = partner
        self.text = text
        self.other = other
        self.watched = watched
        self.name = name
        self.called = called
        self.eye = eye
        self._late = 0
        self._left = 0
        self._swap: Swap | None = None
        self._told: list[PartnerAnswer] = []
        self._said: list[Any] = []
        self._outer: list[list[Any]] = []
        self._given: dict[int, tuple[Any, ...]] = {}
        self._drawn: dict[int, list[Any]] = {}
        self._at_load: tuple[list[PartnerAnswer], dict[int, tuple[Any, ...]]] = ([], {})

    def begin(self, swap: Swap | None = None, *, watch: bool = False) -> bool:
        """Loads both programs anew, with no memory of what was played before; returns True if both load.

        Args:
            swap: of what the caller asks for while it is loaded, as a table, or a decorator.
            watch: load the partner with eyes.
        """
        self._late = 0
        self._swap, self._told, self._said, self._left = swap, [], [], MOST_CALLS
        self._given, self._drawn = {}, {}
        other = self.partner.load(
            self.watched if watch else self.other, crossing=True, objects=True, eye=self.eye if watch else ""
        )
        if other["status"] != "loaded":
            return False
        message = self.caller.load(self.text, crossing=True, objects=True, partner=self.called, eye=self.eye)
        loaded = self._settled(self.caller, message, 0)["status"] == "loaded"
        self._at_load = (list(self._told), dict(self._given))
        return loaded

    @property
    def dead(self) -> bool:
        """True if one of the sandboxes answers no more, which says nothing of the programs."""
        return self.caller.dead or self.partner.dead

    def play(self, args: Sequence[Any], swap: Swap | None = None, most: int = MOST_CALLS) -> Exchange:
        """Calls the caller's function with some arguments, as `encode` writes them. most: calls of the partner's."""
        told, given = self._at_load
        self._swap, self._told, self._said, self._left = swap, list(told), [], most
        self._given, self._drawn, self._outer = dict(given), {}, []
        if self._late >= MOST_TIMEOUTS:
            return Exchange({"status": "timeout"})
        message = self.caller.call(PASSING, name=self.name, args=args, kwargs={})
        answer = self._settled(self.caller, message, 0)
        if answer["status"] == "returned":
            answer = {**answer, "value": self._home(answer["value"])}
        self._late += answer["status"] == "timeout"
        drawn = [PartnerAnswer(self._given.get(number, ()), (items,)) for number, items in self._drawn.items()]
        return Exchange(answer, tuple(self._told), tuple(drawn))

    def directly(self, args: Sequence[Any]) -> list[Any]:
        """Calls the partner alone with some arguments; it may call nothing.

        Returns:
            what it gives, or what comes of a function or an iterator that it gives, and what the arguments are
            afterwards.
        """
        message = self.partner.call(name=self.called, args=args, kwargs={})
        if message["status"] != "returned":
            return []
        value = message["value"]
        match value:
            case {"function": [target]}:
                value = self.partner.call(target=target, args=[], kwargs={}).get("value")
            case {"iterator": [target]}:
                drawn = (self.partner.call(target=target, verb="next", args=[], kwargs={}) for _ in range(MOST_ITEMS))
                returned = takewhile(lambda item: item["status"] == "returned", drawn)
                value = [item["value"] for item in returned]
        return [value, *after(args, message)]

    def _settled(self, side: SandboxWorker, message: Message, depth: int) -> Message:
        """Returns a side's last message, once all that it asks of the other has been answered."""
        while message["status"] == "asked":
            self._left -= 1
            if depth > DEEPEST or self._left < 0 or self._late >= MOST_TIMEOUTS:
                reply = TOO_MUCH
            else:
                reply = self._asked(message, depth) if side is self.caller else self._asked_back(message, depth)
                self._late += reply["status"] == "timeout"
            message = side.tell({"answer": reply}, PASSING, fresh=False)
        return message

    def _asked(self, asked: Message, depth: int) -> Message:
        """Returns the reply to a question of the caller's."""
        said = len(self._said)
        self._outer.append(asked["args"])
        reply = self._settled(self.partner, self.partner.call(PASSING, **call_of(asked, self.called)), depth + 1)
        self._outer.pop()
        back = len(self._said) > said and same(self._said[-1], reply.get("value"))
        return reply if back else self._heard(asked, reply)

    def _asked_back(self, asked: Message, depth: int) -> Message:
        """Returns the reply to the partner's use of a thing it was given: what it hands over is an answer too."""
        outer = self._outer[-1] if self._outer else []
        names = 1 if asked["verb"] in NAMING else 0
        handed = asked["args"][names:] if asked["verb"] in HANDING else []
        if not all(any(same(arg_before, arg) for arg_before in outer) for arg in handed):
            told: Message = {"status": "returned", "value": {"tuple": handed}}
            self._told.append(PartnerAnswer(tuple(outer), (told["value"],)))
            if self._swap is not None:
                told = self._swap(len(self._told) - 1, outer, told)
            if told["status"] in FAILURES:
                return told
            match told["value"]:
                case {"tuple": args}:
                    asked = {**asked, "args": [*asked["args"][:names], *args]}
        reply = self._settled(self.caller, self.caller.call(PASSING, **call_of(asked, self.called)), depth + 1)
        self._said.append(reply.get("value"))
        return reply

    def _heard(self, asked: Message, reply: Message) -> Message:
        """Notes the partner's answer, and returns what the caller is told."""
        target, verb = asked["target"], asked["verb"]
        given = () if target is None else self._given.get(target, ())
        if verb in SILENT or (target is not None and reply == NOTHING):
            return reply
        own = asked["args"][1 if verb in NAMING else 0 :]
        args = (*own, *asked["kwargs"].values(), *given)
        drawn = self._drawn.setdefault(target or 0, []) if verb == "next" else []
        if reply["status"] not in FAILURES:
            values = (reply["value"], *after(own, reply))
            drawn.append(reply["value"])
            for number in acting(list(values)):
                self._given.setdefault(number, args)
            self._told.append(PartnerAnswer(args, values))
        # Two objects, or two attributes of one, are told apart: else all of them would be replaced alike.
        which = (*args, target, *asked["args"]) if verb in OPERATIONS.keys() - PASSED.keys() else args
        return reply if self._swap is None else self._swap(len(self._told) - 1, which, reply)

    def _home(self, value: Any) -> Any:
        """Returns a result in which the partner's own objects are replaced by their data, where they have some."""
        match value:
            case {"object": [int(number)]} if number < 0 < self._left:
                self._left -= 1
                message = self.partner.call(target=-1 - number, verb=PLAIN, args=[], kwargs={})
                return message.get("value", value)
            case dict():
                return {kind: self._home(content) for kind, content in value.items()}
            case list():
                return [self._home(item) for item in value]
            case _:
                return value


def after(args: Sequence[Any], reply: Message) -> list[Any]:
    """Returns the arguments of a call, by place, as they are once it has returned."""
    return [reply.get("changed", {}).get(str(at), arg) for at, arg in enumerate(args)]
