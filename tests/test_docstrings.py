"""First lines of docstrings: each is read alone, in an editor's hint and in the API reference."""

import ast
from collections.abc import Iterator

import pytest

from tests.test_docs import ROOT

RIDDLES = {
    "As", "How", "If", "Its", "Of", "That", "Unless", "What", "When", "Where", "Whether", "Which", "Who", "Whose",
}  # fmt: skip
"""First words of a line that is not understood without what stands around it."""
PROMPTS = {("world.py", "price"), ("world.py", "stock"), ("calculator.py", "calculate")}
"""Functions whose docstrings models read, as descriptions of tools: shipped starters were trained with them."""

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def texts(code: str) -> Iterator[tuple[str, int, str]]:
    """Yields the docstrings of modules, classes, functions, constants and fields: name, line and text."""
    for node in ast.walk(ast.parse(code)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):  # a lambda, or a choice in an expression
            continue
        for before, here in zip([None, *body], body, strict=False):
            if before is None and not isinstance(node, DOCUMENTED):
                continue
            match before, here:
                case None | ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                    yield getattr(node, "name", ""), here.lineno, text


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('"""Of a module."""', [("", 1, "Of a module.")]),
        ('def f():\n    """What it is."""\n    "no docstring"', [("f", 2, "What it is.")]),
        ('class A:\n    x: int = 1\n    """Its x."""', [("A", 3, "Its x.")]),
        ('X = 1\n"""How many."""', [("", 2, "How many.")]),
        ("f(lambda: 1 if x else 2)", []),
    ],
)
def test_docstrings_of_all_kinds_are_found(code, found):
    assert list(texts(code)) == found


def test_first_lines_stand_alone():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for folder in ("src", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line, text in texts(path.read_text(encoding="utf-8"))
        if text.split()[0].strip(",.") in RIDDLES and (path.name, name) not in PROMPTS
    ]
    assert not found, "\n".join(found)
