"""The process of a program inside a sandbox. The program may take over the whole process.

A program that takes it over and answers by itself gains nothing: expected values never enter a sandbox, so its answer
must still be right. `serve` answers calls of a program's functions. It also runs test code whose `candidate` is in
another sandbox; the two communicate through the host, and each may call functions that the other has passed. `run` runs
a whole program and ends as Python ends.

Messages, a JSON line each. In: `call` (a function, by name or number), `answer` (to an `asked`), `look`, `on`. Out:
`loaded`, `returned`, `asked`, `held` (an assert), `seen`, `done`, or a failure.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import os
import sys
from _collections import deque  # pyright: ignore[reportMissingImports]

from coterie_worlds.sandbox.eye import Eye
from coterie_worlds.sandbox.plain import NotPlain, decode, encode
from coterie_worlds.sandbox.remote import PLAIN, Things
from coterie_worlds.sandbox.wire import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

LONGEST_MESSAGE = 500
"""Maximum number of characters of an error's message."""
CHANGED = (list, dict, set, bytearray, deque)
"""Types of arguments that a function may change."""


def serve(requests: int, answers: int, how: dict[str, Any]) -> None:
    """Loads a program, or runs test code, and answers until there are no more requests."""
    leave_by_name()
    with os.fdopen(requests, "rb") as incoming, os.fdopen(answers, "wb") as outgoing:
        side = Side(incoming, outgoing)
        try:
            getattr(side, how.pop("what"))(**how)
        except Over:
            return


def run(source: str) -> NoReturn:
    """Runs a whole program, and ends as Python does: threads are waited for, and `atexit` has its turn."""
    leave_by_name()
    sys.stdin = open(0, closefd=False, encoding="utf-8", errors="replace")  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False, encoding="utf-8", errors="replace")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, encoding="utf-8", errors="replace", buffering=1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    leave, names, streams = os._exit, fresh("__main__"), (sys.stdout, sys.stderr)
    code = status(lambda: exec(source, names))  # noqa: S102  (its purpose)
    threading = sys.modules.get("threading")
    wait, exits = getattr(threading, "_shutdown", None), atexit._run_exitfuncs  # noqa: SLF001

    def flush(*more: Any) -> None:
        for stream in (*more, *streams):
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()

    def clear() -> None:
        names.clear()  # finalises what is left: its files close, its __del__ methods run
        gc.collect()

    for last in (wait, exits, lambda: flush(sys.stdout, sys.stderr), clear, flush):
        failed = status(last) if last else 0
        code = code or failed
    leave(code)


def status(what: Callable[[], object]) -> int:
    """Runs a piece of a program, and returns its exit status."""
    try:
        what()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    else:
        return 0
    return 1


def leave_by_name() -> None:
    """Defines `exit` and `quit`, which Python's `site` would have made."""

    def leave(code: object = None) -> NoReturn:
        raise SystemExit(code)

    builtins.exit = builtins.quit = leave  # type: ignore[assignment]


def fresh(name: str) -> dict[str, Any]:
    """Returns the names of a new module."""
    module = type(sys)(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    return module.__dict__


class Over(BaseException):
    """Raised when nobody asks any more."""


class Side:
    """One of the two sides that speak with each other: a program, or the tests of one."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.names: dict[str, Any] = {}
        self.things = Things(self.ask, objects=False)
        self.crossing = False
        self.eye = Eye()

    def load(
        self, source: str, crossing: bool = False, objects: bool = False, partner: str = "", eye: str = ""
    ) -> None:
        """Runs a program's top level under the name "program", then answers calls.

        Args:
            crossing: functions and iterators may cross, and what a call changed is sent back.
            objects: so may objects.
            partner: the name of a function that lives on the other side.
            eye: the name under which it tells what its expressions are.
        """
        self.crossing = crossing
        self.things.objects = objects
        self.names = fresh("program")
        if partner:
            self.names[partner] = lambda *args, **kwargs: self.ask(None, args, kwargs)
        if eye:
            self.names[eye] = self.eye.see

        def top() -> dict[str, Any]:
            exec(source, self.names)  # noqa: S102
            return {"status": "loaded"}

        self.say(guarded(top))
        while True:
            self.answer(self.hear())

    def check(self, source: str, name: str) -> None:
        """Runs test code that defines `check(candidate)`; each of its asserts has become a call of `__record__`."""
        self.crossing = True
        names = fresh("tests")
        names["__record__"] = self.record

        def candidate(*args: Any, **kwargs: Any) -> Any:
            return self.ask(None, args, kwargs)

        def tests() -> dict[str, Any]:
            names[name] = candidate
            exec(source, names)  # noqa: S102
            names[name] = candidate  # the tests' own text may hold a prompt that defines it
            try:
                names["check"](candidate)
            except Exception as error:  # a statement between two asserts: the rest cannot be tried
                return {"status": "done", "left": type(error).__name__}
            return {"status": "done", "left": ""}

        self.say(guarded(tests))

    def record(self, test: Callable[[], Any]) -> None:
        """Tells the host whether an assert held."""
        try:
            held = bool(test())
        except Exception:
            held = False
        self.say({"status": "held", "held": held})
        self.hear()

    def ask(self, target: int | None, args: Any, kwargs: dict[str, Any], verb: str = "call") -> Any:
        """Has the other side call something, and returns the result. Raises what was raised there."""
        self.say({
            "status": "asked", "target": target, "verb": verb,
            "args": [encode(arg, self.things.hold) for arg in args],
            "kwargs": {key: encode(arg, self.things.hold) for key, arg in kwargs.items()},
        })  # fmt: skip
        while "answer" not in (message := self.hear()):
            self.answer(message)
        answer = message["answer"]
        for place, new in answer.get("changed", {}).items():
            change(kwargs[place] if place in kwargs else args[int(place)], decode(new, self.things.proxy))
        if answer["status"] == "returned":
            return decode(answer["value"], self.things.proxy)
        kind = getattr(builtins, str(answer.get("kind")), None)
        if verb == "call" and kind in (StopIteration, StopAsyncIteration):
            kind = RuntimeError  # as in a generator: it would end what the tests go through, and look like success
        raised = kind if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError
        raise raised(answer.get("message") or f"it gave {answer['status']}")

    def answer(self, message: dict[str, Any]) -> None:
        """Makes the call that the other side asks for, or tells which values were seen."""
        if "look" in message:
            return self.say(guarded(lambda: self.eye.report(message["look"])))
        return self.say(guarded(lambda: self.called(**message["call"])))

    def called(self, args: Any, kwargs: Any, name: str = "", target: int | None = None, verb: str = "call") -> Any:
        """Makes one call: of a function by its name, of that method of a class `Solution`, or of a given thing."""
        proxy = self.things.proxy if self.crossing else None
        hold = self.things.hold if self.crossing else None
        args = [decode(arg, proxy) for arg in args]
        kwargs = {key: decode(arg, proxy) for key, arg in kwargs.items()}
        if target is not None and verb == PLAIN:
            value, hold = self.things.given[target], None
        elif target is not None:
            value = self.things.used(target, verb, args, kwargs)
        else:
            method = name not in self.names and "Solution" in self.names
            function = getattr(self.names["Solution"](), name) if method else self.names[name]
            places = {str(at): arg for at, arg in enumerate(args)} | kwargs if self.crossing else {}
            before = {at: encode(arg, hold) for at, arg in places.items() if isinstance(arg, CHANGED)}
            value = function(*args, **kwargs)
            after = {at: encode(places[at], hold) for at in before}
            changed = {at: new for at, new in after.items() if new != before[at]}
            if changed:
                return {"status": "returned", "value": encode(value, hold), "changed": changed}
        return {"status": "returned", "value": encode(value, hold)}

    def hear(self) -> dict[str, Any]:
        """Returns the next message.

        Raises:
            Over: there are no more.
        """
        line = self.incoming.readline()
        if not line:
            raise Over
        return loads(line.decode())

    def say(self, message: dict[str, Any]) -> None:
        """Sends one message as a line."""
        self.outgoing.write(dumps(message).encode() + b"\n")
        self.outgoing.flush()


def change(given: Any, new: Any) -> None:
    """Puts the new content of a changed argument into the original object."""
    if isinstance(given, list | bytearray):
        given[:] = new
    else:
        given.clear()
        (given.extend if isinstance(given, deque) else given.update)(new)


def guarded(what: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns the answer to a request; whatever it raises becomes its answer."""
    try:
        return what()
    except MemoryError:
        return {"status": "memory"}
    except NotPlain as error:
        return {"status": "refused", "message": str(error)}
    except Over:
        raise
    except BaseException as error:  # SystemExit too: a program that leaves has not answered
        if isinstance(error, OSError) and error.errno == 27:  # file too large: its limit is the output's
            return {"status": "output"}
        kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins")
        try:
            message = str(error)
        except BaseException:
            message = ""
        return {"status": "error", "kind": kind, "name": text(type(error).__name__), "message": text(message)}


def text(words: str) -> str:
    """Returns words, cut, as text that a line can hold."""
    return words[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()
