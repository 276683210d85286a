"""Instrumentation of a program: each expression with a value is wrapped in a call that records it (`eye.py`)."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie_worlds.coding.cooperation.reading import AUX, parsed

Role = Literal["steers", "repeats", "value"]
"""Effect of an expression: it chooses what comes next, it may do so again and again, or neither."""


@dataclass(slots=True)
class Sites:
    """The expressions of a watched program, by number.

    held: those that may be held, each with what it does. passing: those that are the variable of a loop. given: those
    that are a parameter.
    """

    held: dict[int, Role] = field(default_factory=dict)
    passing: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)


STEERS = ("get", "pop", "setdefault", "index", "find", "remove", "startswith", "endswith")
"""Methods whose arguments choose what comes next, as a subscript does."""


def watched(source: str, eye: str) -> tuple[str, Sites]:
    """Returns a program that reports the values of its expressions, and what is known of these."""
    tree = parsed(source)
    if tree is None:
        return source, Sites()
    eyes = _Eyes(eye)
    eyes.loops = {
        part.id
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
        for part in ast.walk(node.target)
        if isinstance(part, ast.Name)
    }
    eyes.parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return ast.unparse(ast.fix_missing_locations(eyes.visit(tree))), eyes.sites


class _Eyes(ast.NodeTransformer):
    """A transformer that puts every expression with a value into a call of the eye."""

    def __init__(self, eye: str) -> None:
        self.eye = eye
        self.count = 0
        self.sites = Sites()
        self.loops: set[str] = set()
        self.parameters: set[str] = set()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, old in ast.iter_fields(node):
            if name in UNWATCHED.get(type(node), ()):
                continue
            if isinstance(old, list):
                setattr(node, name, [self.child(node, name, child) for child in old])
            elif isinstance(old, ast.AST):
                setattr(node, name, self.child(node, name, old))
        return node

    def child(self, parent: ast.AST, name: str, node: Any) -> Any:
        """Returns a child with eyes inside, and on itself if it is a value."""
        if not isinstance(node, ast.AST) or isinstance(node, ast.pattern):
            return node
        role = _role(parent, name) if isinstance(node, ast.expr) else "value"
        plain = not isinstance(node, ast.Name | ast.Attribute) and not _calls_aux(node)
        seen = self.generic_visit(node)
        if not isinstance(node, VALUES) or not isinstance(getattr(node, "ctx", LOAD), ast.Load):
            return seen
        if (isinstance(parent, ast.Call) and name == "func") or (
            isinstance(parent, ast.FormattedValue) and name != "value"
        ):
            return seen
        if isinstance(node, ast.Tuple) and isinstance(parent, ast.Subscript):
            return seen
        self.count += 1
        if plain or role != "value":
            self.sites.held[self.count] = role
        if isinstance(node, ast.Name) and node.id in self.loops:
            self.sites.passing.add(self.count)
        if isinstance(node, ast.Name) and node.id in self.parameters:
            self.sites.given.add(self.count)
        called = ast.Name(self.eye, LOAD)
        return ast.Call(called, [ast.Constant(self.count), seen], [])  # pyright: ignore[reportArgumentType]


LOAD = ast.Load()
VALUES = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr, ast.NamedExpr,
)  # fmt: skip
UNWATCHED: dict[type, tuple[str, ...]] = {
    ast.FunctionDef: ("decorator_list", "returns"),
    ast.AsyncFunctionDef: ("decorator_list", "returns"),
    ast.ClassDef: ("decorator_list", "bases", "keywords"),
    ast.arg: ("annotation",),
    ast.AnnAssign: ("annotation",),
    ast.ExceptHandler: ("type",),
    ast.Delete: ("targets",),
}
"""Fields in which nothing is a value of the program's."""


def _role(parent: ast.AST, name: str) -> Role:
    """Returns the effect of an expression at a place of the tree."""
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return "steers" if name == "args" and parent.func.attr in STEERS else "value"
    if isinstance(parent, ast.While) and name == "test":
        return "repeats"
    return "steers" if (type(parent), name) in STEERING else "value"


STEERING = {
    (ast.If, "test"), (ast.IfExp, "test"), (ast.Assert, "test"), (ast.comprehension, "ifs"),
    (ast.BoolOp, "values"), (ast.Subscript, "slice"), (ast.Match, "subject"), (ast.match_case, "guard"),
}  # fmt: skip


def _calls_aux(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == AUX
