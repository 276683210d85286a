# ruff: noqa: E501  (a line is a program)
"""What `main` does with `aux`, read off the tree: the published patterns in text cannot tell (D34, D36)."""

from __future__ import annotations

import ast

import pytest

from coterie_worlds.coding.cooperation import extracted, names_aux, parsed, returns, schemes

HEAD = "def f(x):\n"


def written(body: str) -> str:
    return HEAD + "\n".join(f"    {line}" for line in body.splitlines())


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("# aux(x)\nreturn x + 1", False),  # D34: a comment
        ('"""aux(x)"""\nreturn x', False),
        ("s = 'aux(x)'\nreturn s", False),
        ("return auxiliary(x)", False),
        ("return self.aux(x)", False),
        ("return aux (x)", True),
        ("return sorted(x, key=aux)", True),
    ],
)
def test_what_is_no_name_is_no_name(body, names):
    assert names_aux(written(body)) is names


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("try:\n    return aux(x)\nexcept Exception:\n    return x + 1", {"fallback", "decorator"}),
        ("try:\n    y = aux(x)\nexcept Exception:\n    y = x\nreturn y + 1", {"fallback", "decorator"}),
        ("y = aux(x)\nif y is None:\n    y = sorted(x)\nreturn y", {"fallback", "decorator"}),
        ("y = aux(x)\nif not isinstance(y, list):\n    return x\nreturn y", {"fallback", "decorator"}),
        ("try:\n    return aux(x)\nexcept Exception:\n    pass\nreturn 0", {"decorator"}),
        ("if not x:\n    return True\nreturn aux(x) == x", {"decorator"}),
        ("return sorted(aux(x))", {"decorator"}),
        ("y = aux(x)\nx = y * 2\nreturn x", {"decorator"}),
        ("return ''.join(aux(c) for c in x)", {"coordinator"}),
        ("out = []\nfor v in x:\n    out.append(aux(v))\nreturn out", {"coordinator"}),
        ("return list(map(aux, x)) + [aux(0)]", {"coordinator"}),
        ("return aux(x[:2]) + aux(x[2:])", {"coordinator"}),
        ("return x if aux(x) else 0", {"strategy"}),
        ("if aux(x):\n    return 1\nreturn 2", {"strategy"}),
        ("ok = aux(x)\nif ok:\n    return 1\nreturn 2", {"strategy"}),
        ("return [v for v in x if aux(v)]", {"strategy"}),
        ("return list(filter(aux, x)) if aux(1) else []", {"strategy"}),
        ("match aux(x):\n    case 1: return 2\nreturn 3", {"strategy"}),
    ],
)
def test_the_four_schemes(body, found):
    assert schemes(written(body), "f") == found


def test_extraction_keeps_what_the_function_needs_and_nothing_else():
    """D36: nested functions, decorators, several lines of signature, helpers, constants."""
    source = (
        "import math\nimport sys\nfrom functools import cache\nLIMIT = math.pi // 1\nUNUSED = 4\nprint('hello')\n"
        "def helper(v):\n    return v + LIMIT\n"
        "@cache\ndef f(\n    x: int,\n    y: int = 2,\n) -> int:\n    def inner(v):\n        return helper(v)\n    return inner(x) + y\n"
        "def test(): assert f(1) == 6\n"
    )
    found = extracted(source, "f")
    for kept in (
        "import math",
        "from functools import cache",
        "LIMIT = math.pi // 1",
        "def helper",
        "@cache",
        "def inner",
    ):
        assert kept in found
    for left in ("UNUSED", "print", "def test", "sys"):
        assert left not in found
    names: dict = {}
    exec(found, names)
    assert names["f"](1) == 6


def test_extraction_keeps_what_fills_a_table_and_drops_tests_and_futures():
    """D36: a loop that fills what the function reads is part of it; a call of the function is not."""
    source = (
        "from __future__ import annotations\ntable = []\nfor i in range(3):\n    table.append(i)\n"
        "other = []\nother.append(1)\nprint(f(3))\nassert f(1)\ndef f(x):\n    return table[x]"
    )
    kept = "table = []\nfor i in range(3):\n    table.append(i)\ndef f(x):\n    return table[x]"
    assert ast.unparse(ast.parse(extracted(source, "f"))) == ast.unparse(ast.parse(kept))


def test_main_cannot_import_an_aux_over_its_partners():
    assert "aux" not in extracted("from copy import copy as aux\ndef f(x):\n    return len(x)", "f", without="aux")


def test_main_cannot_bring_an_aux_of_its_own():
    found = extracted("def aux(x):\n    return 1\ndef f(x):\n    return aux(x)\n", "f", without="aux")
    assert "def aux" not in found
    assert "def f" in found
    assert (
        extracted("aux = print\ndef f(x):\n    return aux(x)\n", "f", without="aux") == "def f(x):\n    return aux(x)"
    )


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("def f(x):\n    return x", True),
        ('def f(x):\n    """return x"""', False),  # the word is not the thing
        ("def f(x):\n    return", False),
        ("def f(x):\n    def g(): return 1", False),
        ("def f(x):\n    if x: return 1", True),
        ("def g(x): return 1", False),
        ("def f(x: return", False),
    ],
)
def test_a_function_returns_or_it_does_not(source, answer):
    assert returns(source, "f") is answer


@pytest.mark.parametrize(
    "hostile",
    ["(" * 5000, "-" * 19_000 + "1", "a." * 9000 + "b", "\0", "\ud800", "[" * 150, "x" * 30_000, "def f(x):\n\treturn 1\n        return 2", "f(" * 90 + ")" * 90, "def f(x):\n    return x" + "+1" * 400, "def f(x):\n    return " + "-" * 900 + "x", "def f(x):\n    return x" + ".a" * 900, "def f(x):\n    return aux(x)" + "+aux(1)" * 400],
)  # fmt: skip
def test_hostile_text_is_parsed_to_nothing_or_something_and_never_raises(hostile):
    assert (extracted(hostile, "f") == "") == (not returns(hostile, "f") and "def f" not in ast_of(hostile))
    assert schemes(hostile, "f") <= {"decorator"}
    assert not names_aux(hostile)


def test_a_number_too_long_to_write_again_is_no_function():
    """Hexadecimal has no limit of digits when it is read, and Python's when it is written."""
    assert extracted("def f(x):\n    return 0x" + "f" * 3600, "f") == ""


def ast_of(source: str) -> str:
    tree = parsed(source)
    return ast.unparse(tree) if tree else ""


def test_each_statement_is_walked_a_few_times_however_many_names_it_holds(monkeypatch):
    """Once for every name, 16 KB of a reply took 12 seconds of the run's loop."""
    names = [f"a{number}" for number in range(500)]
    source = f"{' = '.join(names)} = 0\nprint({', '.join(names)})\ndef f(x):\n    return a1\n"
    walked: list[ast.AST] = []
    walk = ast.walk
    with monkeypatch.context() as patch:
        patch.setattr(
            "coterie_worlds.coding.cooperation.reading.ast.walk", lambda node: walked.append(node) or walk(node)
        )
        found = extracted(source, "f")
    assert found.splitlines()[0].startswith("a0 = a1 = a2")
    assert found.splitlines()[1].startswith("print(a0, a1")
    assert len(walked) <= 5 * 3
