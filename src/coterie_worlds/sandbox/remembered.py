"""A cache of program results, because replies to one prompt are often equal.

Only outcomes that depend on the program alone are cached. Outcomes that a time limit, a signal or the machine
influenced are not, nor are those of programs that may read anything except their arguments. The cache is bounded in
bytes.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable

from coterie.syntax import tree_of
from coterie_worlds.sandbox.border import Message

MOST_BYTES = 64 << 20
LONGEST_PROGRAM = 20_000
"""Maximum number of characters of a program whose results are cached."""
PURE = frozenset(
    [
        "__future__",
        "abc",
        "array",
        "bisect",
        "calendar",
        "cmath",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "re",
        "statistics",
        "string",
        "textwrap",
        "typing",
        "unicodedata",
    ]
)
"""Modules that give the same results for the same arguments."""
OTHERS = sys.stdlib_module_names - PURE
"""Modules that a pure one may hold under their names."""
ASIDE = frozenset(
    [
        "id",
        "locals",
        "hash",
        "object",
        "open",
        "input",
        "exec",
        "eval",
        "compile",
        "globals",
        "vars",
        "getattr",
        "setattr",
        "delattr",
        "dir",
        "breakpoint",
        "__import__",
    ]
)
"""Names by which a program may look at more than its arguments."""
REACHING = frozenset(
    [
        *(
            "now",
            "today",
            "utcnow",
            "fromtimestamp",
            "astimezone",
            "timestamp",
        ),  # these read the clock or the time zone
        *("attrgetter", "methodcaller", "Formatter", "format_map", "get_type_hints", "ForwardRef", "singledispatch"),
        *("singledispatchmethod", "make_dataclass", "update_wrapper"),  # these read attributes that a string names
        *(
            "register",
            "runtime_checkable",
        ),  # these let a class claim any object, whose fields a match pattern then reads
        *("__instancecheck__", "__subclasscheck__", "__subclasshook__"),
        *("buffer_info", "chdir"),  # these show an address in memory, or change the working folder
        *("bltns", "samples"),  # enum shows Python's own names, and statistics.NormalDist draws by chance
        *("gi_frame", "gi_code", "gi_yieldfrom", "cr_frame", "cr_code", "cr_await", "ag_frame", "ag_code", "ag_await"),
        *("f_back", "f_builtins", "f_code", "f_globals", "f_locals", "tb_frame", "tb_next"),
    ]
)
"""Attributes, and names that modules give, by which a program may look at more than its arguments."""
SPECIAL = frozenset(["__init__", "__name__", "__class__"])
"""Special attributes of Python that lead to nothing else."""
ALONE = frozenset(["type", "wraps"])
"""Functions that take names as texts, unless they are called with one argument."""
READS = re.compile(r"\{[^{}:!]*[.\[]")
"""Pattern of a field in a format that reads an attribute or an item."""


class ResultCache:
    """A cache of texts by key, the least recently used forgotten first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: OrderedDict[str, str] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> str | None:
        """Returns the text that is kept under a key, or None."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: str, text: str) -> None:
        """Keeps a text, and forgets others until there is room."""
        with self._lock:
            self._bytes -= self._size(key, self._held.pop(key, None))
            self._held[key] = text
            self._bytes += self._size(key, text)
            while self._bytes > self._most:
                self._bytes -= self._size(*self._held.popitem(last=False))

    def __len__(self) -> int:
        return len(self._held)

    @staticmethod
    def _size(key: str, text: str | None) -> int:
        return 0 if text is None else 4 * (len(key) + len(text))  # a character takes four bytes at most


def decided(program: str, answers: Iterable[Message]) -> bool:
    """Returns True if answers are the program's own doing alone, and would be the same again."""
    own = all(answer["status"] in ("ok", "refused") or "kind" in answer for answer in answers)
    return own and by_itself(program)


def by_itself(program: str) -> bool:
    """Returns True if a program looks at nothing but its arguments: no chance, no time, no files."""
    if len(program) > LONGEST_PROGRAM:
        return False
    tree = tree_of(program)
    if tree is None:
        return True  # a text that does not parse fails to load everywhere alike
    nodes = list(ast.walk(tree))
    modules = {name for node in nodes for name in _modules(node)}
    # Private attributes are an object's own, unless a module might stand where the object does.
    dotted = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    passed_on = any(isinstance(node, ast.Name) and node.id in modules and id(node) not in dotted for node in nodes)
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call) and _takes_one(node)}
    named = any(_name(node) in ALONE and id(node) not in called for node in nodes)
    return not (named or any(_looks_aside(node, modules, passed_on) for node in nodes))


def _takes_one(call: ast.Call) -> bool:
    return len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred)


def _name(node: ast.AST) -> str:
    """Returns the name by which a node refers to something; "" if it has none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.alias(name=name, asname=str()):
            return name  # an import under another name is judged by the module's own
        case _:
            return ""


def _modules(node: ast.AST) -> list[str]:
    """Returns the names that an import gives to modules."""
    if isinstance(node, ast.Import):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names if alias.name in PURE]
    return []


def _looks_aside(node: ast.AST, modules: set[str], passed_on: bool) -> bool:
    match node:
        case ast.Import(names=names):
            aside = not {alias.name.partition(".")[0] for alias in names} <= PURE
        case ast.ImportFrom(module=module, names=names):
            given = {alias.name for alias in names}
            aside = (module or "").partition(".")[0] not in PURE or not given.isdisjoint(OTHERS | REACHING | {"*"})
            aside = aside or any(name.startswith("_") for name in given)
        case ast.Name(id=name):
            aside = name in ASIDE or name.startswith("__")
        case ast.Attribute(value=value, attr="format"):  # a format string reads whatever attributes it names
            aside = not (isinstance(value, ast.Constant) and isinstance(value.value, str)) or bool(
                READS.search(value.value)
            )
        case ast.FunctionDef(name=name):
            aside = name in REACHING
        case ast.Attribute(value=value, attr=name):
            of_module = passed_on or (isinstance(value, ast.Name) and value.id in modules)
            aside = _reaches(name) or (name.startswith("_") and name not in SPECIAL and of_module)
        case ast.MatchClass(kwd_attrs=names):
            aside = any(name.startswith("_") or _reaches(name) for name in names)
        case _:
            aside = False
    return aside


def _reaches(name: str) -> bool:
    """Returns True if an attribute of that name may lead elsewhere."""
    special = name.startswith("__") and name not in SPECIAL
    return special or name in REACHING or not OTHERS.isdisjoint((name, name.strip("_")))
