"""Two functions that are written apart, read off the syntax tree: what is defined, and how `main` uses `aux`.

A comment, a string or an unreachable line does not count as a call, and white space does not matter. The
four schemes are MAGRPO's (arXiv:2508.04652, sec. 5). The paper names them; how they are detected is ours.
Labels are not exclusive. `evidence.py` finds out by running whether aux is used at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Literal

from coterie.kernel.calls import InThread
from coterie.syntax import tree_of

Scheme = Literal["fallback", "decorator", "coordinator", "strategy"]
LONGEST_SOURCE = 20_000
"""Maximum characters that are parsed."""
DEEPEST = 100
"""Maximum levels of a tree that is looked at."""
AUX = "aux"
Function = ast.FunctionDef | ast.AsyncFunctionDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parsed(source: str, mode: str = "exec") -> Any:
    """Returns the tree of what a model wrote, or None; never one so deep that walking it would be too much."""
    tree = tree_of(source, mode) if len(source) <= LONGEST_SOURCE else None
    level = [tree] if tree else []
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return None if level else tree


def extracted(source: str, name: str, without: str = "") -> str:
    """Returns a function and the top-level definitions and imports it needs, in order; "" where it is not defined.

    Args:
        without: a name that is not taken even where it is needed.
    """
    tree = parsed(source)
    if tree is None:
        return ""
    variables = {name for statement in tree.body for name in _stored(statement)}
    defines = [(statement, _bound(statement, variables)) for statement in tree.body]
    if not any(isinstance(statement, Function) and statement.name == name for statement, _ in defines):
        return ""
    of_name: dict[str, list[ast.stmt]] = {}
    for statement, bound in defines:
        for one in bound:
            of_name.setdefault(one, []).append(statement)
    wanted, queue, seen = {name}, [name], set[ast.stmt]()
    while queue:
        new = [statement for statement in of_name.get(queue.pop(), ()) if statement not in seen]
        seen.update(new)
        nodes = (node for statement in new for node in ast.walk(statement))
        needed = {node.id for node in nodes if isinstance(node, ast.Name)} - wanted - {without}
        wanted |= needed
        queue += needed
    kept = [statement for statement, bound in defines if without not in bound and bound & (wanted | {"*"})]
    try:
        return "\n".join(ast.unparse(statement) for statement in kept if not _is_future(statement))
    except ValueError:  # a number of more digits than Python writes
        return ""


def returns(source: str, name: str) -> bool:
    """Returns True if a function of that name is defined and returns something."""
    function = _function(parsed(source), name)
    return function is not None and any(node.value is not None for node in _own(function, ast.Return))


@InThread
def read(helper: str, function: str, name: str) -> dict[str, Any]:
    """Returns the functions in two replies' programs, and how main uses aux.

    Returns:
        helper, function: what is taken of each, or "". returns: whether aux is defined and returns something, and
        whether main does. names_aux: main names it. schemes: how it uses it, if it does.
    """
    aux, main = extracted(helper, AUX), extracted(function, name, without=AUX)
    return {
        "helper": aux,
        "function": main,
        "returns": [returns(aux, AUX), returns(main, name)],
        "names_aux": bool(aux) and names_aux(main),
        "schemes": sorted(schemes(main, name)),
    }


def names_aux(source: str) -> bool:
    """Returns True if a program names aux at all."""
    tree = parsed(source)
    return tree is not None and any(isinstance(node, ast.Name) and node.id == AUX for node in ast.walk(tree))


def catches(source: str) -> bool:
    """Returns True if a program may go on where something raises."""
    tree = parsed(source)
    return tree is not None and any(isinstance(node, ast.Try | ast.TryStar | ast.With) for node in ast.walk(tree))


def schemes(source: str, name: str) -> frozenset[Scheme]:
    """Returns the schemes by which the function `name` of a program uses aux."""
    function = _function(parsed(source), name)
    if function is None:
        return frozenset()
    calls = [node for node in _reached(function) if _is_call(node)]
    given = _assigned(function)
    results = {name for name, values in given.items() if any(value in calls for value in values)}
    nodes = list(ast.walk(function))
    labels: set[Scheme] = set()
    if any(_falls_back(node, results) for node in nodes):
        labels.add("fallback")
    if any(_decides(node, results) for node in nodes):
        labels.add("strategy")
    if any(map(_spreads, nodes)) or (len({ast.dump(call) for call in calls}) > 1 and not labels):
        labels.add("coordinator")
    returned = any(_about(leave.value, results) for leave in _own(function, ast.Return))
    if (returned or not labels) and not labels & {"coordinator", "strategy"}:
        labels.add("decorator")
    return frozenset(labels)


def _stored(node: ast.AST) -> set[str]:
    """Returns the names that a node gives a value; a definition keeps its own to itself."""
    if isinstance(node, Function | ast.ClassDef):
        return set()
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _bound(statement: ast.stmt, variables: set[str]) -> set[str]:
    """Returns the names that a top-level statement defines; a loop or a call may fill any variable it names."""
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return _stored(statement)
    return variables & {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _function(tree: ast.Module | None, name: str) -> Function | None:
    functions = [node for node in tree.body if isinstance(node, Function) and node.name == name] if tree else []
    return functions[-1] if functions else None


def _own(function: Function, kind: type) -> list:
    """Returns the nodes of a kind in a function, not those of functions inside it."""
    matching, queue = [], list(function.body)
    while queue:
        node = queue.pop(0)
        matching += [node] if isinstance(node, kind) else []
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            queue = [*ast.iter_child_nodes(node), *queue]
    return matching


def _reached(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a node and what lies in it, without statements after a return and branches of a constant test."""
    yield node
    if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Constant):
        blocks = [node.body if node.test.value else node.orelse]
    else:
        blocks = [value for _, value in ast.iter_fields(node) if isinstance(value, list)]
        for _, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                yield from _reached(value)
    for block in blocks:
        for child in block:
            if isinstance(child, ast.AST):
                yield from _reached(child)
            if isinstance(child, ast.Return | ast.Raise | ast.Break | ast.Continue):
                break


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == AUX


def _holds(node: ast.AST | None) -> bool:
    """Returns True if a call of aux lies in a node."""
    return node is not None and any(map(_is_call, ast.walk(node)))


def _assigned(function: Function) -> dict[str, list[ast.expr]]:
    """Returns the values that every local name is given."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                assigned.setdefault(target.id, []).append(value)
    return assigned


def _about(node: ast.AST | None, results: set[str]) -> bool:
    """Returns True if an expression is of aux, or of a name that holds what it returned."""
    return node is not None and (
        _holds(node) or any(isinstance(part, ast.Name) and part.id in results for part in ast.walk(node))
    )


def _falls_back(node: ast.AST, results: set[str]) -> bool:
    """Returns True if a node tries aux, and does something else where that fails."""
    if isinstance(node, ast.Try) and any(map(_holds, node.body)):
        return any(not any(map(_holds, handler.body)) and _does(handler.body) for handler in node.handlers)
    return isinstance(node, ast.If | ast.IfExp) and _is_validity(node.test, results)


def _decides(node: ast.AST, results: set[str]) -> bool:
    """Returns True if what aux returns chooses a branch or an element."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return _about(node.test, results) and not _is_validity(node.test, results)
    if isinstance(node, COMPREHENSIONS):
        return any(_about(test, results) for loop in node.generators for test in loop.ifs)
    if isinstance(node, ast.Match):
        return _about(node.subject, results)
    return _passes_aux_to(node, "filter")


def _spreads(node: ast.AST) -> bool:
    """Returns True if a node calls aux for each of many."""
    if isinstance(node, COMPREHENSIONS):
        return _holds(node.value) or _holds(node.key) if isinstance(node, ast.DictComp) else _holds(node.elt)
    if isinstance(node, LOOPS):
        return any(map(_holds, node.body))
    return _passes_aux_to(node, "map")


def _passes_aux_to(node: ast.AST, name: str) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name and node.args):
        return False
    return isinstance(node.args[0], ast.Name) and node.args[0].id == AUX


def _does(body: list[ast.stmt]) -> bool:
    """Returns True if a handler gives another answer: it returns or binds something."""
    return any(isinstance(node, ast.Return | ast.Assign) for statement in body for node in ast.walk(statement))


def _is_validity(test: ast.expr, results: set[str]) -> bool:
    """Returns True if a test only looks if aux returned something: `y is None`, `not y`, `not isinstance(y, …)`."""

    def of_aux(node: ast.AST) -> bool:
        return _is_call(node) or (isinstance(node, ast.Name) and node.id in results)

    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot):
        return of_aux(test.left)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "isinstance":
            return bool(inner.args) and of_aux(inner.args[0])
        return isinstance(inner, ast.Name) and inner.id in results
    return False
