"""What runs inside a sandbox: it loads a program and answers requests about it, a JSON line each.

This file is sent as source to a bare interpreter, so it imports the standard library alone. It is not
trusted by the host: the program it runs may take it over, and then answers in its place. That gains
nothing, because no expected value ever enters the sandbox: whoever answers must still be right.

Requests: `load` (run a program's top level), `call` (one of its functions), `run` (the program with a
standard input), `check` (test code whose `candidate` is answered by the host). Values cross as plain
data: None, bool, int, float, str, list, tuple, set, dict, bytes and complex, of exactly these types.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

DEEPEST = 64
"""Levels of nesting of a plain value."""
LONGEST_MESSAGE = 500
"""Characters of an error's message."""
LARGEST_BITS = 10_000
"""Of an integer: JSON writes it in decimal, which Python bounds."""
MOST_HASHED = 2_000
"""Items of a set or dict: chosen to collide, more of them would take seconds to put together."""
MODULE = "__main__"


class NotPlain(ValueError):
    """A value that is not plain data."""


def encode(value: Any, depth: int = 0) -> Any:
    """A plain value as JSON. Raises: NotPlain: of another type, a subclass included, or nested too deep."""
    kind = type(value)
    if depth > DEEPEST:
        raise NotPlain(f"nested more than {DEEPEST} deep")
    if value is None or kind is bool or (kind is float and value - value == 0):
        return value
    if kind is int:
        if value.bit_length() > LARGEST_BITS:
            raise NotPlain(f"an integer of more than {LARGEST_BITS} bits")
        return value
    if kind is list:
        return [encode(item, depth + 1) for item in value]
    if kind not in SPLIT:
        raise NotPlain(f"a value of type {kind.__name__} is not plain data")
    return SPLIT[kind](value, depth + 1)


def decode(value: Any, depth: int = 0) -> Any:
    """The plain value of some JSON. Raises: NotPlain: nothing that `encode` writes."""
    if depth > DEEPEST + 2:
        raise NotPlain(f"nested more than {DEEPEST} deep")
    if isinstance(value, list):
        return [decode(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    try:
        ((kind, content),) = value.items()
        if kind in HASHED and len(content) > MOST_HASHED:
            raise NotPlain(f"a {kind} of more than {MOST_HASHED} items")
        return BUILD[kind]([decode(item, depth + 1) for item in content])
    except NotPlain:
        raise
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise NotPlain("unknown data") from error


def _items(value: Any, depth: int) -> Any:
    return {type(value).__name__: [encode(item, depth) for item in value]}


def _unordered(value: Any, depth: int) -> Any:
    """A set's items, the same in every process."""
    return {type(value).__name__: sorted((encode(item, depth) for item in value), key=json.dumps)}


SPLIT: dict[type, Callable[[Any, int], Any]] = {
    str: lambda text, _: text.encode("utf-8", "replace").decode(),
    float: lambda number, _: {"float": [repr(number)]},
    tuple: _items,
    set: _unordered,
    frozenset: _unordered,
    dict: lambda table, depth: {"dict": [[encode(key, depth), encode(item, depth)] for key, item in table.items()]},
    bytes: lambda data, _: {"bytes": [data.decode("latin-1")]},
    complex: lambda number, depth: {"complex": [encode(number.real, depth), encode(number.imag, depth)]},
}
HASHED = ("set", "frozenset", "dict")
BUILD: dict[str, Callable[[list[Any]], Any]] = {
    "float": lambda parts: {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[parts[0]],
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda pairs: {key: item for key, item in pairs},  # noqa: C416  (a pair of another length is an error)
    "bytes": lambda parts: parts[0].encode("latin-1"),
    "complex": lambda parts: complex(*parts),
}


class OutOfTime(BaseException):
    """The request's time is over."""


class Inside:
    """One program in one sandbox.

    Args: settings: time_s of a request, output_bytes, and what `confine` takes.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.folder = os.getcwd()  # noqa: PTH109  (pathlib would be one more thing to start)
        self.requests = os.fdopen(os.dup(0), "rb")
        self.answers = os.fdopen(os.dup(1), "wb")
        self.names: dict[str, Any] = {}
        self.records: list[bool] = []
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)

    def serve(self) -> None:
        """Answers requests until there are no more."""
        signal.signal(signal.SIGALRM, self._alarm)
        self.say({"status": "ready"})
        for line in self.requests:
            request = json.loads(line)
            self.say(self.guarded(getattr(self, request.pop("do")), request))

    def say(self, answer: dict[str, Any]) -> None:
        """Sends one line."""
        self.answers.write(json.dumps(answer).encode() + b"\n")
        self.answers.flush()

    def guarded(self, what: Callable[..., dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
        """Runs a request within its time; whatever it raises becomes its answer."""
        signal.setitimer(signal.ITIMER_REAL, self.settings["time_s"])
        try:
            return {"status": "ok", **what(**request)}
        except OutOfTime:
            return {"status": "timeout"}
        except MemoryError:
            return {"status": "memory"}
        except NotPlain as error:
            return {"status": "refused", "message": str(error)}
        except BaseException as error:  # SystemExit too: a program that leaves has not answered
            if isinstance(error, OSError) and error.errno == 27:  # file too large: its limit is the output's
                return {"status": "output"}
            try:
                message = f"{type(error).__name__}: {error}"
            except BaseException:
                message = type(error).__name__
            return {"status": "error", "message": message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def load(self, source: str) -> dict[str, Any]:
        """Runs a program's top level under the name "program"."""
        self.names = self._fresh("program")
        exec(compile(source, "program.py", "exec"), self.names)  # noqa: S102  (this is what a sandbox is for)
        return {}

    def call(self, name: str, args: Any, kwargs: Any = None) -> dict[str, Any]:
        """One call of a function that was loaded, or of a method of that name of a class `Solution`."""
        method = name not in self.names and "Solution" in self.names
        function = getattr(self.names["Solution"](), name) if method else self.names[name]
        value = encode(function(*decode(args), **decode(kwargs or {"dict": []})))
        if len(json.dumps(value)) > self.settings["output_bytes"]:
            return {"status": "output"}
        return {"value": value}

    def run(self, source: str, stdin: str) -> dict[str, Any]:
        """A whole program with a standard input; what it writes to standard output."""
        for number, text in ((0, stdin), (1, "")):
            with open(f"{self.folder}/{number}", "w+b") as file:  # noqa: PTH123
                file.write(text.encode())
                file.seek(0)
                os.dup2(file.fileno(), number)
        sys.stdin = open(0, closefd=False, encoding="utf-8", errors="replace")  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False, encoding="utf-8", errors="replace")  # noqa: SIM115
        left = None
        try:
            exec(compile(source, "program.py", "exec"), self._fresh(MODULE))  # noqa: S102
        except SystemExit as error:
            left = error.code
        sys.stdout.flush()
        limit = self.settings["output_bytes"]
        text = os.pread(1, limit + 1, 0)
        if len(text) > limit:
            return {"status": "output"}
        if left not in {None, 0}:
            return {"status": "error", "message": f"exit {left}"[:LONGEST_MESSAGE]}
        return {"output": text.decode("utf-8", "replace")}

    def check(self, source: str, name: str) -> dict[str, Any]:
        """Test code that defines `check(candidate)`: how many of its assertions held.

        Each `assert` has become a call of `__record__`, and has the request's time for itself. A candidate
        is answered by the host: the program that is tested runs in a sandbox of its own.

        Returns: held: whether each assert did. left: why those after the last could not be tried, if so.
        """
        self.records = []
        names = self._fresh("tests")
        names["__record__"] = self._record
        names[name] = self._candidate
        exec(compile(source, "tests.py", "exec"), names)  # noqa: S102
        names[name] = self._candidate  # the tests' own text may hold a prompt that defines it
        left = ""
        try:
            names["check"](self._candidate)
        except (Exception, OutOfTime) as error:  # a statement between two asserts: the rest cannot be tried
            left = type(error).__name__
        return {"held": self.records, "left": left}

    def _record(self, test: Callable[[], Any]) -> None:
        signal.setitimer(signal.ITIMER_REAL, self.settings["time_s"])
        try:
            held = bool(test())
        except (Exception, OutOfTime):
            held = False
        self.records.append(held)

    def _candidate(self, *args: Any, **kwargs: Any) -> Any:
        signal.setitimer(signal.ITIMER_REAL, 0)  # the candidate's time is its own sandbox's
        self.say({"status": "asked", "at": len(self.records), "args": encode(list(args)), "kwargs": encode(kwargs)})
        answer = json.loads(self.requests.readline())
        signal.setitimer(signal.ITIMER_REAL, self.settings["time_s"])
        if answer["status"] != "ok":
            raise RuntimeError(f"the candidate gave {answer['status']}")
        return decode(answer["value"])

    def _alarm(self, number: int, frame: Any) -> None:
        raise OutOfTime

    @staticmethod
    def _fresh(name: str) -> dict[str, Any]:
        module = type(sys)(name)
        sys.modules[name] = module
        return module.__dict__


def confine(limits: dict[str, int], uid: int | None) -> None:
    """Gives up what is not needed: another user where this is root, and limits that cannot be raised again."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for name, most in limits.items():
        which = getattr(resource, name)
        resource.setrlimit(which, (most, most))


def main() -> None:
    """Serves, as the settings on the command line say."""
    settings = json.loads(sys.argv[1])
    sys.path[:0] = settings["libraries"]
    confine(settings["limits"], settings["uid"])
    Inside(settings).serve()
