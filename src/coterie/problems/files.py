"""Problems from a file of one's own or a public set.

A set is told by its columns: HumanEval and CoopHumanEval, MBPP, APPS, TACO, CodeContests, LiveCodeBench, or
one's own. A file has a row a line (.jsonl), is one JSON array, or is parquet; anything else is a Hugging Face dataset's
id. Splits are decided by content, so a problem that is in two sets is in one split. Only hidden
tests are kept: those that a statement shows are not among them where the set tells them apart.

One's own rows: text, tests (a list of {"args": […], "value": …} with `name`, else of {"input": …,
"output": …}), and where there are any: id, name, preamble, solution.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any

from coterie.environment import SPLITS, Split, split_of
from coterie.errors import ConfigError
from coterie.problems import Problem
from coterie.problems.mutate import mutations
from coterie.sandbox import encode

LONGEST_LINE = 32 << 20
"""Bytes of a row."""
LONGEST_TESTS = 64 << 20
"""Bytes of a row's tests, where they come packed."""
LONGEST_ARRAY = 1 << 30
"""Bytes of a file that is one JSON array."""
MUTANTS = 4
PYTHON3 = 3
"""CodeContests' number for the language."""
MOST_PASSED_OVER = 0.2
"""Share of rows that may not be scored: above it the data is not what it is taken for."""
Row = Mapping[str, Any]


def problems(data: str, split: Split, *, functions: bool = False) -> tuple[Problem, ...]:
    """The problems of a split, in the order of the file.

    Args: functions: those alone that ask for a function, not for a whole program.
    Raises: ConfigError: no such file, or too many rows that cannot be scored; names file and row.
    """
    return _all(data, functions)[0][split]


def passed_over(data: str, *, functions: bool = False) -> str:
    """How many rows are no problem that could be scored, by reason; or nothing. Raises: as `problems`."""
    return _all(data, functions)[1]


@lru_cache(maxsize=4)
def _all(data: str, functions: bool) -> tuple[dict[Split, tuple[Problem, ...]], str]:
    found: dict[Split, list[Problem]] = {split: [] for split in SPLITS}
    lost: dict[str, list[str]] = {}
    build: Callable[[Row], Problem] | None = None
    total = number = 0
    for number, row in _rows(data):
        where = f"environment.data: {data}, row {number}"
        if build is None:
            build = _format(row, where)
        total += 1
        problem = _scored(build, row, functions=functions)
        if isinstance(problem, str):
            lost.setdefault(problem.partition(":")[0], []).append(f"{where}: {problem}")
            continue
        split = split_of((problem.name, problem.text))
        found[split].append(_placed(problem, split, number))
    if not number:
        raise ConfigError(f"environment.data: {data} has no rows")
    count = sum(map(len, lost.values()))
    reasons = ", ".join(f"{len(rows)} with {reason}" for reason, rows in lost.items())
    if count > MOST_PASSED_OVER * total:
        first = min((rows[0] for rows in lost.values()), key=len)
        more = f"; {count} of {total} rows cannot be scored ({reasons}): leave them out" if total > 1 else ""
        raise ConfigError(f"{first}{more}")
    told = f"{data}: {count} of {total} rows are passed over: {reasons}" if count else ""
    return {split: tuple(of_split) for split, of_split in found.items()}, told


def _scored(build: Callable[[Row], Problem], row: Row, *, functions: bool) -> Problem | str:
    """A row's problem, or why it cannot be scored."""
    try:
        problem = build(row)
    except (LookupError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError, StopIteration) as error:
        return f"not a problem: {type(error).__name__}: {str(error)[:100]}"
    if not (problem.cases or problem.check):
        return "no hidden test"
    if functions and not problem.name:
        return "a whole program, where a function is asked for"
    return problem


def _placed(problem: Problem, split: Split, number: int) -> Problem:
    """The problem with its split, an id of its own, and its solution's mutants."""
    near = tuple(islice(mutations(problem.solution), MUTANTS))
    return Problem(
        id=f"{number}-{problem.id}", split=split, query=problem.text, text=problem.text, name=problem.name,
        cases=problem.cases, check=problem.check, preamble=problem.preamble, solution=problem.solution, mutants=near,
    )  # fmt: skip


def _rows(data: str) -> Iterator[tuple[int, Row]]:
    if data.endswith((".jsonl", ".json")):
        return _lines(data)
    if data.endswith(".parquet"):
        return _parquet(data)
    return _hub(data)


def _lines(data: str) -> Iterator[tuple[int, Row]]:
    try:
        with Path(data).open("rb") as file:
            if file.read(64).lstrip()[:1] == b"[" and data.endswith(".json"):
                yield from _array(data, file)
                return
            file.seek(0)
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                where = f"environment.data: {data}, row {number}"
                if len(line) > LONGEST_LINE:
                    raise ConfigError(f"{where}: longer than {LONGEST_LINE >> 20} MiB; is it one row a line?")
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ConfigError(f"{where}: not JSON in UTF-8: {str(error)[:100]}") from error
                yield number, _object(row, where)
    except OSError as error:
        raise ConfigError(f"environment.data: {data} cannot be read: {error.strerror}") from error


def _array(data: str, file: IO[bytes]) -> Iterator[tuple[int, Row]]:
    """The rows of a file that is one JSON array."""
    file.seek(0)
    text = file.read(LONGEST_ARRAY + 1)
    if len(text) > LONGEST_ARRAY:
        raise ConfigError(f"environment.data: {data} is longer than {LONGEST_ARRAY >> 30} GiB; write one row a line")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"environment.data: {data} is not JSON in UTF-8: {str(error)[:100]}") from error
    for number, row in enumerate(rows, 1):
        yield number, _object(row, f"environment.data: {data}, row {number}")


def _object(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a row is an object, not {type(row).__name__}")
    return row


def _parquet(data: str) -> Iterator[tuple[int, Row]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"environment.data: {data} needs pyarrow: pip install coterie[data]") from error
    try:
        table = parquet.read_table(data)
    except (OSError, ValueError) as error:
        raise ConfigError(f"environment.data: {data} cannot be read as parquet: {str(error)[:100]}") from error
    yield from enumerate(table.to_pylist(), 1)


def _hub(data: str) -> Iterator[tuple[int, Row]]:
    try:
        import datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(
            f"environment.data: {data} is no .jsonl or .parquet file; for a dataset's id: pip install coterie[data]"
        ) from error
    try:
        loaded = datasets.load_dataset(data)
    except Exception as error:  # the library raises anything, from network errors to its own
        raise ConfigError(f"environment.data: no dataset '{data}' could be loaded: {str(error)[:100]}") from error
    number = 0
    for part in loaded.values():  # pyright: ignore[reportAttributeAccessIssue]
        for row in part:
            number += 1
            yield number, dict(row)


def _format(row: Row, where: str) -> Callable[[Row], Problem]:
    """The set whose columns these are."""
    for columns, build in FORMATS.items():
        if set(columns) <= row.keys():
            return build
    wanted = " or ".join(", ".join(columns) for columns in FORMATS)
    raise ConfigError(f"{where}: its columns are {', '.join(sorted(row)) or 'none'}; wanted are {wanted}")


def _humaneval(row: Row) -> Problem:
    prompt, name = _text(row, "prompt"), _text(row, "entry_point")
    tree = ast.parse(prompt)
    kept = [one for one in tree.body if not (isinstance(one, ast.FunctionDef) and one.name == name)]
    helpers = [ast.unparse(one) for one in kept]
    preamble, solution = "\n".join(helpers), ""
    if row.get("canonical_solution"):
        written = map(ast.unparse, ast.parse(prompt + _text(row, "canonical_solution")).body)
        solution = "\n".join(one for one in written if one not in helpers)
    return Problem(
        id=_text(row, "task_id"), split="train", text=prompt, name=name, preamble=preamble,
        check=instrumented(f"{preamble}\n{_text(row, 'test')}"),
        solution=solution,
    )  # fmt: skip


def _mbpp(row: Row) -> Problem:
    asserts = row["test_list"]
    defined = {one.name for one in ast.parse(_text(row, "code")).body if isinstance(one, ast.FunctionDef)}
    names = (node.id for node in ast.walk(ast.parse(asserts[0])) if isinstance(node, ast.Name))
    name = next((name for name in names if name in defined), "")
    if not name:
        raise ValueError("its first assert calls no function that its code defines")
    setup = "\n".join(row.get("test_imports") or [str(row.get("test_setup_code") or "")])
    body = "\n".join(f"    {line}" for one in asserts for line in str(one).splitlines())
    text = str(row.get("text") or row["prompt"])
    return Problem(
        id=str(row["task_id"]), split="train", text=f"{text}\nThe function is called {name}.", name=name,
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
    cases: list[tuple[Any, Any]] = [(str(one["input"]), str(one["output"])) for one in tests]
    if name:
        given = [[json.loads(line) for line in lines.splitlines()] for lines, _ in cases]
        cases = [(encode(args), encode(json.loads(value))) for args, (_, value) in zip(given, cases, strict=True)]
    text = "\n\n".join(part for part in (_text(row, "question_content"), row.get("starter_code")) if part)
    return Problem(id=str(row["question_id"]), split="train", text=text, name=name, cases=_dumped(cases))


def _own(row: Row) -> Problem:
    name = str(row.get("name") or "")
    if name:
        cases = [(encode(list(one["args"])), encode(one["value"])) for one in row["tests"]]
    else:
        cases = [(str(one["input"]), str(one["output"])) for one in row["tests"]]
    return Problem(
        id=str(row.get("id", "")), split="train", text=_text(row, "text"), name=name, cases=_dumped(cases),
        preamble=str(row.get("preamble") or ""), solution=str(row.get("solution") or ""),
    )  # fmt: skip


FORMATS: dict[tuple[str, ...], Callable[[Row], Problem]] = {
    ("task_id", "prompt", "entry_point", "test"): _humaneval,
    ("task_id", "code", "test_list"): _mbpp,
    ("question", "input_output"): _apps,
    ("name", "description", "private_tests"): _code_contests,
    ("question_id", "question_content", "private_test_cases"): _live_code_bench,
    ("text", "tests"): _own,
}


def instrumented(source: str) -> str:
    """Test code in which every assert is a call of `__record__`, so that asserts are counted and none hides another."""

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
    """APPS wraps most values in a list of one, and nothing says which: either is right, as in its own checker."""
    alone = isinstance(value, list) and len(value) == 1
    return {"either": [encode(value), encode(value[0])]} if alone else encode(value)


def _joined(text: Any) -> str:
    """APPS gives standard input as text or as lines."""
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _dumped(cases: Any) -> tuple[tuple[str, str], ...]:
    return tuple((json.dumps(given), json.dumps(wanted)) for given, wanted in cases)


class _TextOnly(pickle.Unpickler):
    """LiveCodeBench packs its tests as a pickled string: a string is all that is taken out of it."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"the packed tests ask for {module}.{name}; they are not read")


def _unpacked(text: str) -> str:
    try:
        json.loads(text)
    except ValueError:
        inflating = zlib.decompressobj()
        packed = inflating.decompress(base64.b64decode(text), LONGEST_TESTS)
        if inflating.unconsumed_tail:
            raise ValueError(f"the packed tests are more than {LONGEST_TESTS >> 20} MiB") from None
        loaded = _TextOnly(io.BytesIO(packed)).load()
        if not isinstance(loaded, str):
            raise TypeError("the packed tests are no text") from None
        return loaded
    return text
