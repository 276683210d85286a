"""Formats of the rows of public sets, and of one's own, and how they become problems.

A data set is recognised by its columns: HumanEval and CoopHumanEval, MBPP, APPS, TACO, CodeContests, LiveCodeBench,
BigCodeBench, or your own. Only hidden tests are kept. If a set marks the tests that the statement shows, these are left
out. `sources.py` reads the rows, and `data.py` selects them.

One's own rows: text, tests (a list of {"args": […], "value": …} with `name`, else of {"input": …,
"output": …}), and where there are any: id, name, preamble, solution.
"""

from __future__ import annotations

import ast
import base64
import json
import pickletools
import sys
import zlib
from collections.abc import Callable
from typing import Any

from coterie.environments.published.data import Unfit, told_by
from coterie.environments.published.sources import Row
from coterie_worlds.coding.problems import Problem
from coterie_worlds.sandbox import encode

LONGEST_TESTS = 64 << 20
"""Maximum bytes of a row's tests, if they come packed."""
PYTHON3 = 3
"""CodeContests' number for the language."""
TEXT = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
AROUND = ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP")
"""Operations that may stand around a string in a pickle; those of TEXT write the string."""


def format_of(row: Row, where: str) -> Callable[[Row], Problem]:
    """Returns a function that reads rows with these columns. Raises ConfigError: it knows no such columns."""
    return told_by(FORMATS, row, where)


def _humaneval(row: Row) -> Problem:
    prompt, name = _text(row, "prompt"), _text(row, "entry_point")
    tree = ast.parse(prompt)
    kept = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == name)]
    helpers = [ast.unparse(node) for node in kept]
    preamble, solution = "\n".join(helpers), ""
    if row.get("canonical_solution"):
        written = map(ast.unparse, ast.parse(prompt + _text(row, "canonical_solution")).body)
        solution = "\n".join(text for text in written if text not in helpers)
    return Problem(
        id=_text(row, "task_id"), split="train", text=prompt, name=name, preamble=preamble,
        check=instrumented(f"{preamble}\n{_text(row, 'test')}"),
        solution=solution,
    )  # fmt: skip


def _mbpp(row: Row) -> Problem:
    asserts = row["test_list"]
    defined = {node.name for node in ast.parse(_text(row, "code")).body if isinstance(node, ast.FunctionDef)}
    names = (node.id for node in ast.walk(ast.parse(asserts[0])) if isinstance(node, ast.Name))
    name = next((name for name in names if name in defined), "")
    if not name:
        raise ValueError("its first assert calls no function that its code defines")
    setup = "\n".join(row.get("test_imports") or [str(row.get("test_setup_code") or "")])
    hidden = asserts[1:] or asserts
    body = "\n".join(f"    {line}" for test in hidden for line in str(test).splitlines())
    text = str(row.get("text") or row["prompt"])
    text = f"{text}\nThe function is called {name}. For example: {asserts[0]}"
    return Problem(
        id=str(row["task_id"]), split="train", text=text, name=name,
        preamble=setup, check=instrumented(f"{setup}\ndef check(candidate):\n{body}"), solution=_text(row, "code"),
    )  # fmt: skip


def _apps(row: Row) -> Problem:
    tests = json.loads(row["input_output"] or "{}")
    name = str(tests.get("fn_name") or "")
    pairs = zip(tests.get("inputs", []), tests.get("outputs", []), strict=True)
    if name:
        cases = [(encode(given), _wanted(value)) for given, value in pairs]
    else:
        cases = [(_joined(given), _joined(value)) for given, value in pairs]
    solutions = row.get("solutions") or "[]"
    solutions = json.loads(solutions) if isinstance(solutions, str) else solutions
    return Problem(
        id=str(row.get("problem_id", "")), split="train", text=_text(row, "question"), name=name, cases=_dumped(cases),
        solution=str(solutions[0]) if solutions else "",
    )  # fmt: skip


def _code_contests(row: Row) -> Problem:
    hidden = [row["private_tests"], row.get("generated_tests") or {"input": [], "output": []}]
    cases = [pair for tests in hidden for pair in zip(tests["input"], tests["output"], strict=True)]
    known = row.get("solutions") or {"language": [], "solution": []}
    written = [code for language, code in zip(known["language"], known["solution"], strict=True) if language == PYTHON3]
    return Problem(
        id=_text(row, "name"), split="train", text=_text(row, "description"), cases=_dumped(cases),
        solution=str(written[0]) if written else "",
    )  # fmt: skip


def _live_code_bench(row: Row) -> Problem:
    tests = json.loads(_unpacked(_text(row, "private_test_cases")))
    name = str(json.loads(row.get("metadata") or "{}").get("func_name") or "")
    cases: list[tuple[Any, Any]] = [(str(test["input"]), str(test["output"])) for test in tests]
    if name:
        given = [[json.loads(line) for line in lines.splitlines()] for lines, _ in cases]
        cases = [(encode(args), encode(json.loads(value))) for args, (_, value) in zip(given, cases, strict=True)]
    text = "\n\n".join(part for part in (_text(row, "question_content"), row.get("starter_code")) if part)
    return Problem(id=str(row["question_id"]), split="train", text=text, name=name, cases=_dumped(cases))


def _own(row: Row) -> Problem:
    name, tests = row.get("name") or "", row["tests"]
    if not (isinstance(name, str) and (name.isidentifier() or not name)):
        raise Unfit("name is that of a function")
    wanted = {"args", "value"} if name else {"input", "output"}
    if not isinstance(tests, list) or not all(isinstance(test, dict) and wanted <= test.keys() for test in tests):
        without = "" if name else "; without a name it is a whole program"
        raise Unfit(f"tests is a list of objects with {' and '.join(sorted(wanted))}{without}")
    if name and not all(isinstance(test["args"], list) for test in tests):
        raise Unfit("args is a list, of all arguments")
    if name:
        cases = [(encode(test["args"]), encode(test["value"])) for test in tests]
    else:
        cases = [(str(test["input"]), str(test["output"])) for test in tests]
    return Problem(
        id=str(row.get("id", "")), split="train", text=_text(row, "text"), name=name, cases=_dumped(cases),
        preamble=str(row.get("preamble") or ""), solution=str(row.get("solution") or ""),
    )  # fmt: skip


def _big_code_bench(row: Row) -> Problem:
    name, code = _text(row, "entry_point"), _text(row, "code_prompt")
    wanted = ast.literal_eval(row.get("libs") or "[]")
    tests = _text(row, "test")
    return Problem(
        id=_text(row, "task_id"), split="train", text=_text(row, "instruct_prompt"), name=name,
        check=f"{tests}\n{CASES_OF_UNITTEST}", solution=code + _text(row, "canonical_solution"),
        libraries=tuple(sorted({str(module).partition(".")[0] for module in wanted} - sys.stdlib_module_names)),
    )  # fmt: skip


CASES_OF_UNITTEST = """
def check(candidate):
    import unittest

    for test in unittest.defaultTestLoader.loadTestsFromTestCase(TestCases):
        result = unittest.TestResult()
        test.run(result)
        __record__(result.wasSuccessful)
"""
"""Each test of a `TestCases` counts as an assert."""
FORMATS: dict[tuple[str, ...], tuple[str, Callable[[Row], Problem]]] = {
    ("task_id", "prompt", "entry_point", "test"): ("HumanEval", _humaneval),
    ("task_id", "instruct_prompt", "code_prompt", "entry_point", "test"): ("BigCodeBench", _big_code_bench),
    ("task_id", "code", "test_list"): ("MBPP", _mbpp),
    ("question", "input_output"): ("APPS", _apps),
    ("name", "description", "private_tests"): ("CodeContests", _code_contests),
    ("question_id", "question_content", "private_test_cases"): ("LiveCodeBench", _live_code_bench),
    ("text", "tests"): ("your own", _own),
}
"""Columns that tell a set, its name, and what makes a problem of its rows."""


def instrumented(source: str) -> str:
    """Returns test code with calls of `__record__` as asserts, so that all are counted and none hides another."""

    class Recorder(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.stmt:
            nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            held = ast.Lambda(args=nothing, body=node.test)
            return ast.Expr(ast.Call(func=ast.Name("__record__", ast.Load()), args=[held], keywords=[]))

    return ast.unparse(ast.fix_missing_locations(Recorder().visit(ast.parse(source))))


def _text(row: Row, column: str) -> str:
    value = row[column]
    if not isinstance(value, str):
        raise TypeError(f"{column} is {type(value).__name__}, not text")
    return value


def _wanted(value: Any) -> Any:
    """Returns a value of APPS, most of which are wrapped in a list of one: either is right, as in its own checker."""
    alone = isinstance(value, list) and len(value) == 1
    return {"either": [encode(value), encode(value[0])]} if alone else encode(value)


def _joined(text: Any) -> str:
    """Returns standard input or output as text; APPS gives it as text or as lines."""
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _dumped(cases: Any) -> tuple[tuple[str, str], ...]:
    return tuple((json.dumps(given), json.dumps(wanted)) for given, wanted in cases)


def _unpacked(text: str) -> str:
    """Returns LiveCodeBench's tests, which it packs as a pickled string: it is read, and nothing is unpickled."""
    try:
        json.loads(text)
    except ValueError:
        inflating = zlib.decompressobj()
        packed = inflating.decompress(base64.b64decode(text), LONGEST_TESTS)
        if inflating.unconsumed_tail:
            raise ValueError(f"the packed tests are more than {LONGEST_TESTS >> 20} MiB") from None
        read = [(opcode.name, held) for opcode, held, _ in pickletools.genops(packed)]
        texts = [str(held) for name, held in read if name in TEXT]
        if len(texts) != 1 or not {name for name, _ in read} <= {*TEXT, *AROUND}:
            raise ValueError("the packed tests are no text") from None
        return texts[0]
    return text
