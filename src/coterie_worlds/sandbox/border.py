"""The border: it validates everything that comes out of a sandbox.

Every line from inside is read here. It must have a known status and the fields of that status with their types.
Otherwise it is malformed, which counts as a failure of the program. No objects are built from the data.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Collection
from typing import Any

from coterie_worlds.sandbox.remote import OPERATIONS
from coterie_worlds.sandbox.values import is_plain

LONGEST_MESSAGE = 500
"""Maximum number of characters of a failure's message."""
FAILURES = ("error", "timeout", "memory", "output", "refused")
Message = dict[str, Any]
"""A message from a sandbox: its status, and the fields of that status."""
MALFORMED: Message = {"status": "refused", "message": "a malformed answer"}


def _of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _plain_list(value: Any) -> bool:
    return isinstance(value, list) and is_plain(value)


def _sites(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, list)
        and [type(part) for part in item[:3]] == [int, bool, int]
        and is_plain(item[3:])
        and len(item) == 5
        for item in value
    )


def _plain_table(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_plain, value.values()))


FAILURE = {"message?": _of(str), "kind?": _of(str), "name?": _of(str)}
MESSAGES: dict[str, dict[str, Callable[[Any], bool]]] = {
    "loaded": {},
    "returned": {"value": is_plain, "changed?": _plain_table},
    "asked": {
        "target": lambda value: value is None or (type(value) is int and value >= 0),
        "verb": lambda value: type(value) is str and value in OPERATIONS,
        "args": _plain_list,
        "kwargs": _plain_table,
    },
    "held": {"held": _of(bool)},
    "done": {"left": _of(str)},
    "seen": {"sites": _sites},
    **dict.fromkeys(FAILURES, FAILURE),
}
"""Fields of each status, with the check that each must pass; one with a question mark may be missing."""


def read(line: str | bytes, accepted: Collection[str]) -> Message:
    """Returns a program's line as a message of an accepted status, or a failure; all other fields are dropped."""
    try:
        return _read(parsed(line), accepted)
    except (ValueError, ArithmeticError, RecursionError):  # a value of a form that nobody thought of may raise anything
        return MALFORMED


def _read(raw: Any, accepted: Collection[str]) -> Message:
    status = raw.get("status") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(status, str) or status not in (*accepted, *FAILURES):
        return MALFORMED
    message: Message = {"status": status}
    for field, fits in MESSAGES[status].items():
        name = field.removesuffix("?")
        if name in raw and fits(raw[name]):
            message[name] = raw[name][:LONGEST_MESSAGE] if status in FAILURES else raw[name]
        elif name in raw or name == field:
            return MALFORMED
    return message


def parsed(line: str | bytes) -> Any:
    """Returns a line's JSON; None if it is none, or holds something that is no text or no number."""
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # a lone surrogate is not text
    except (ValueError, RecursionError):
        return None
    return value


def ended(raw: Any) -> Message:
    """Returns a keeper's report of a program's end as a message: a failure, an exit status, or minus a signal."""
    message = read(json.dumps(raw), ())
    code = raw.get("code") if isinstance(raw, dict) else None
    if type(code) is not int or message["status"] != "error":
        return message
    own = {"kind": "exit"} if code > 0 else {}
    return {"status": "error", "message": message.get("message") or ending(code), **own}


def ending(code: int) -> str:
    """Returns in words how a process ended, from its exit status or minus its signal: any of them."""
    if code >= 0:
        return f"it ended with exit status {code}"
    return f"it was ended by {NAMES.get(-code, f'signal {-code}')}"


NAMES = {int(number): number.name for number in signal.Signals}
