"""Programs that nearly solve a problem: one operator or constant of the solution changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from coterie.syntax import tree_of

OTHER: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
"""Operators, by the operator that each of them replaces."""


def mutations(source: str) -> Iterator[str]:
    """Yields the program with one change each, from its top; nothing if it does not parse, or nests too deep."""
    if (tree := tree_of(source)) is None:
        return
    for node in list(ast.walk(tree)):
        if (change := _change(node)) is not None:
            field, new = change
            old = getattr(node, field)
            setattr(node, field, new)
            try:
                yield ast.unparse(ast.fix_missing_locations(tree))
            except RecursionError:
                return
            setattr(node, field, old)


def _change(node: ast.AST) -> tuple[str, Any] | None:
    """Returns a field of a node and what it becomes; None where there is nothing to change."""
    change: tuple[str, Any] | None = None
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in OTHER:
            change = "op", OTHER[type(op)]()
        case ast.Compare(ops=[op, *others]) if type(op) in OTHER:
            change = "ops", [OTHER[type(op)](), *others]
        case ast.UnaryOp(op=ast.Not()):
            change = "op", ast.UAdd()
        case ast.Constant(value=bool(value)):
            change = "value", not value
        case ast.Constant(value=int(value) | float(value)):
            change = "value", value + 1
        case ast.Return(value=ast.expr()):
            change = "value", ast.Constant(None)
        case _:
            pass
    return change
