"""Programs that nearly solve a problem: one operator or constant of the solution changed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

OTHER: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
"""What an operator becomes."""


def mutations(source: str) -> Iterator[str]:
    """The program with one change each, from its top; nothing where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for number in range(sum(1 for _ in ast.walk(tree))):
        changed = copy.deepcopy(tree)
        node = next(node for at, node in enumerate(ast.walk(changed)) if at == number)
        if _change(node):
            yield ast.unparse(ast.fix_missing_locations(changed))


def _change(node: ast.AST) -> bool:
    """Changes a node in place; whether there was something to change."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OTHER:
        node.op = OTHER[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        node.ops[0] = OTHER[type(node.ops[0])]()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.op = ast.UAdd()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        node.value += 1
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.Constant(None)
    else:
        return False
    return True
