# ruff: noqa: E501  (a line is a row)
"""Problems: what is embedded, what is read from files, and how programs are judged."""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import tomllib
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.checks.conformance import check
from coterie.config.resolve import load_config
from coterie.environments.published import sources
from coterie.errors import ConfigError
from coterie.kernel.environment import SPLITS
from coterie.kernel.scene import Reply
from coterie_worlds.coding.code import Code
from coterie_worlds.coding.code_pair import CodePair
from coterie_worlds.coding.problems import Problem, embedded, formats, program_of, right
from coterie_worlds.coding.problems.mutate import mutations
from coterie_worlds.sandbox.plain import NotPlain, decode, encode
from coterie_worlds.sandbox.values import is_plain, same
from tests.environments.coding.rows import load, problems

# embedded ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_held_out_chains_are_never_trained_and_none_comes_twice():
    texts = {split: [embedded.problem(split, at).text for at in range(len(embedded.chains(split)))] for split in SPLITS[1:]}  # fmt: skip
    trained = {embedded.problem("train", at).text for at in range(500)}
    assert not trained & {*texts["validation"], *texts["test"]}
    assert not {*texts["validation"]} & {*texts["test"]}
    assert all(len(set(of)) == len(of) for of in texts.values())
    assert [len(embedded.chains(split)) for split in SPLITS] == [3938, 533, 498]  # as docs/environments.md says


def test_a_solution_solves_and_each_mutant_fails():
    for index in range(40):
        problem = embedded.problem("train", index)
        assert len(problem.cases) == embedded.CASES
        assert passes(problem.solution, problem)
        assert problem.mutants
        chain = embedded.chain_at(problem)
        for mutant in problem.mutants:
            names: dict = {}
            exec(mutant, names)
            inputs = [embedded.an_input(chain.kind, embedded.Random(seed), 6) for seed in range(200)]
            assert any(outcome(names["f"], one) != chain.value(one) for one in inputs)


def passes(program: str, problem: Problem) -> bool:
    """In this process: these programs are our own."""
    names: dict = {}
    exec(program, names)
    return all(
        same(json.loads(wanted), encode(names["f"](*decode(json.loads(args))))) for args, wanted in problem.cases
    )


def outcome(function, value):
    try:
        return function(value)
    except Exception as error:  # a mutant may fail on some inputs
        return type(error)


def test_the_forgetful_chain_has_two_steps_and_mostly_fails():
    wrong = 0
    for index in range(60):
        problem = embedded.problem("train", index)
        chain = embedded.chain_at(problem)
        forgotten = embedded.forgetful(chain)
        assert len(forgotten.steps) == 2
        wrong += not passes(forgotten.program(), problem)
    assert wrong > 30


# values -----------------------------------------------------------------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])) | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.slow
@given(plain)
def test_plain_values_cross_as_they_are(value):
    crossed = decode(json.loads(json.dumps(encode(value))))
    assert repr(crossed) == repr(value)


@given(st.sets(st.integers()), st.frozensets(st.text("ab")))
def test_sets_cross_too(left, right_):
    assert decode(json.loads(json.dumps(encode([left, right_])))) == [left, right_]


@pytest.mark.parametrize(
    "value", [object(), type("L", (list,), {})([print]), type("E", (), {"__eq__": lambda *_: True})(), print, iter([])]
)
def test_other_values_do_not(value):
    with pytest.raises(NotPlain):
        encode(value)


@pytest.mark.parametrize(
    "data", [{}, {"a": 1, "b": 2}, {"tuple": 3}, {"what": []}, {"dict": [[1]]}, {"dict": [[[], 1]]}, {"set": [[]]},
             {"bytes": ["\u20ac"]}, {"bytes": []}, {"float": ["1.0"]}, {"float": []}, {"complex": ["x"]}, {"complex": [1, 2, 3]}],
)  # fmt: skip
def test_data_that_nobody_wrote_is_no_value(data):
    assert not is_plain(data) or data in ({"dict": [[[], 1]]}, {"set": [[]]})  # nothing is hashed out here
    with pytest.raises(NotPlain):
        decode(data)


@pytest.mark.parametrize(
    ("wanted", "found", "answer"),
    [
        (1, 1, True), (1, 1.0, True), (1, True, False), (True, 1, False), (True, True, True), (0.1, 0.1 + 1e-9, True),
        (3, 3.0000001, False), (math.nan, math.nan, True), ([1, 2], (1, 2), True), ([1], [1, 1], False), ("1", 1, False),
        ({"a": [1]}, {"a": [1.0]}, True), ({"a": 1}, {"b": 1}, False), (None, None, True), (None, 0, False), ({1}, {1}, True),
        ({1}, [1], False), (1.0, 1 + 0j, True), (0.5, 10**400, False), (0.5, -(10**400), False), (0.5, math.inf, False), (math.inf, math.inf, True), (1, 10**400, False), ("a", "a", True),
    ],
)  # fmt: skip
def test_equality_is_by_type_too(wanted, found, answer):
    assert same(encode(wanted), json.loads(json.dumps(encode(found)))) is answer


def test_standard_output_is_compared_word_by_word():
    problem = Problem("p", "train", cases=(('"1"', '"a  b\\n"'),))
    assert right("", problem.cases[0][1], {"status": "ok", "output": "a b\n\n"})
    assert not right("", problem.cases[0][1], {"status": "ok", "output": "ab"})
    assert not right("", problem.cases[0][1], {"status": "timeout"})


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("x = 1", "x = 1"),
        ("```python\nx = 1\n```", "x = 1\n"),
        ("first\n```\na\n```\nthen\n```py\nb\n```\n", "b\n"),
        ("```python\nx = '```'\n```", "x = '```'\n"),
        ("```python\nx = 1\n", "x = 1\n\n"),
        ("```python\r\nx = 1\r\ny = 2\r\n```\r\n", "x = 1\ny = 2\n"),
        ("1. So:\n   ```python\n   if x:\n       y = 1\n   ```\n", "if x:\n    y = 1\n"),
        ("~~~\nx = 1\n~~~", "x = 1\n"),
        ("````\n```\nx\n```\n````", "```\nx\n```\n"),
        ("```\nprint(input())\n```\nUse it so:\n```\n$ echo 3 | python a.py\n```", "print(input())\n"),
    ],
)
def test_a_program_is_the_last_fenced_block_that_fits_or_everything(text, program):
    assert program_of(Reply("coder", text)) == program
    assert program_of(Reply("coder", text, finish="length")) == ""


def test_mutations_change_one_thing_each():
    found = list(mutations("def f(x):\n    return x + 1 if x < 3 and not x else True"))
    assert len(found) == len(set(found)) == 8  # return, and, not, <, +, 1, 3, True
    assert list(mutations("def f(:")) == []


# files ------------------------------------------------------------------------------------------

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "import math\n\ndef half(x):\n    return x // 2\n\ndef f(x: int) -> int:\n    \"\"\" doubles\n    >>> f(1)\n    2\n    \"\"\"\n",
    "entry_point": "f",
    "canonical_solution": "    return x * 2\n",
    "test": "METADATA = {}\n\ndef check(candidate):\n    for x in range(3):\n        assert candidate(x) == half(4 * x), 'no'\n",
}  # fmt: skip
MBPP = {
    "task_id": 2, "text": "Write a function to double.", "code": "def double(x):\n    return x * 2",
    "test_list": ["assert double(1) == 2", "assert double(3) == 6"], "test_setup_code": "", "challenge_test_list": [],
}  # fmt: skip
APPS = {
    "problem_id": 0, "question": "Double it.", "solutions": json.dumps(["print(int(input()) * 2)"]),
    "input_output": json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["2\n", "4\n"]}), "difficulty": "introductory",
    "url": "", "starter_code": "",
}  # fmt: skip
APPS_CALL = APPS | {
    "input_output": json.dumps({"fn_name": "double", "inputs": [[1], [2]], "outputs": [[2], [4]]}),
    "solutions": json.dumps(["class Solution:\n    def double(self, x):\n        return x * 2"]),
}
CONTESTS = {
    "name": "p", "description": "Double it.", "public_tests": {"input": ["9\n"], "output": ["18\n"]},
    "private_tests": {"input": ["1\n"], "output": ["2\n"]}, "generated_tests": {"input": ["2\n"], "output": ["4\n"]},
    "solutions": {"language": [2, 3], "solution": ["int main() {}", "print(int(input()) * 2)"]},
}  # fmt: skip
HIDDEN = [{"input": "1\n[2]", "output": "3", "testtype": "functional"}]
LIVE = {
    "question_id": "1", "question_title": "t", "question_content": "Add.", "starter_code": "class Solution:",
    "public_test_cases": "[]", "metadata": json.dumps({"func_name": "add"}),
    "private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(json.dumps(HIDDEN)))).decode(),
}  # fmt: skip
OWN = {"text": "Double it.", "name": "f", "tests": [{"args": [1], "value": 2}], "solution": "def f(x): return 2 * x"}


def written(path, *rows, encoding="utf-8") -> str:
    path.write_bytes(
        b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode(encoding) for row in rows) + b"\n"
    )
    return str(path)


def only(data: str) -> Problem:
    (problem,) = (one for split in SPLITS for one in problems(data, split))
    return problem


@pytest.mark.parametrize(
    "row",
    [HUMANEVAL, MBPP, APPS, APPS_CALL, CONTESTS, OWN],
    ids=["humaneval", "mbpp", "apps", "apps-call", "contests", "own"],
)
def test_each_set_is_told_by_its_columns_and_its_solution_passes(row, tmp_path):
    from coterie_worlds.sandbox.backends import missing

    problem = only(written(tmp_path / "rows.jsonl", row))
    assert problem.solution
    assert problem.mutants
    if missing("bubblewrap"):
        pytest.skip(missing("bubblewrap"))
    assert solved(problem, problem.solution)
    assert not solved(problem, problem.mutants[0])


@pytest.mark.parametrize(
    "test",
    ["assert math.isclose(double(1), 2)", "assert set(double((1,))) == {1}", "assert 2 == double(1)"],
)
def test_the_function_that_is_asked_for_is_the_one_its_code_defines(test, tmp_path):
    """The sanitized rows of MBPP compare what other functions make of it."""
    assert only(written(tmp_path / "rows.jsonl", MBPP | {"test_list": [test]})).name == "double"


@pytest.mark.slow
def test_problems_of_ones_own_have_no_demonstrations(tmp_path):
    data = written(tmp_path / "rows.jsonl", *(OWN | {"id": "7", "text": f"{at}"} for at in range(60)))
    env = Code(data=data, sandbox="process")
    with pytest.raises(NotImplementedError):
        env.demonstrate("coder", env.task("train", 0), "", Random(0))
    assert check(env, tasks=1).ok


def solved(problem: Problem, program: str) -> bool:
    from coterie_worlds.coding.problems import examine
    from coterie_worlds.sandbox import Box
    from tests.toys import run

    class Scene:
        async def call(self, function, *args):
            return function(*args)

    verdict, _ = run(examine(Scene(), Box().json(), problem, program))  # pyright: ignore[reportArgumentType]
    return verdict.solved


def test_live_code_bench_is_unpacked_without_running_anything(tmp_path, capsys):
    problem = only(written(tmp_path / "a.jsonl", LIVE))
    assert (problem.name, problem.cases) == ("add", (("[1, [2]]", "3"),))

    class Evil:
        def __reduce__(self):
            return print, ("owned",)

    packed = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(ConfigError, match=r"row 1: not a problem: .*the packed tests are no text"):
        problems(written(tmp_path / "b.jsonl", LIVE | {"private_test_cases": packed}), "train")
    assert "owned" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "packed",
    [b"not zlib", zlib.compress(b""), zlib.compress(b"\x80\x04X\x03\0\0\0{}]r\0\0\0\x7f0N."), zlib.compress(b"junk")],
    ids=["no zlib", "cut", "a place far up in the memo", "no pickle"],
)
def test_tests_that_are_packed_in_an_odd_way_are_no_problem_of_the_row_alone(packed, tmp_path):
    odd = LIVE | {"private_test_cases": base64.b64encode(packed).decode()}
    data = written(tmp_path / "a.jsonl", *(LIVE | {"question_content": f"Add {at}."} for at in range(9)), odd)
    ((_, reason),) = load(data).lost[data]
    assert reason.startswith("with not a problem: ")


def test_rows_that_nest_or_repeat_cost_what_they_say(tmp_path):
    """Each took minutes, or ended in a traceback."""
    deep = OWN | {"text": "Deep.", "solution": f"def f(x): return {'1+' * 600}1"}
    dead = "\n    ".join(["x.a"] * 2000)
    long = OWN | {"text": "Long.", "solution": f"def f(x): return 2 * x\ndef g(x):\n    {dead}"}
    marks = OWN | {"text": "\u0315\u0300" * 40_000}
    prompt = HUMANEVAL | {"prompt": "-" * 20_000, "text": "x", "tests": []}
    rows = [OWN | {"text": f"Double {at}."} for at in range(20)]
    data = written(tmp_path / "rows.jsonl", *rows, deep, long, marks)
    assert sum(len(one) for one in load(data).splits.values()) == 23
    with pytest.raises(ConfigError, match="row 1: not a problem: "):
        load(written(tmp_path / "prompt.jsonl", prompt))


def test_public_tests_are_not_scored(tmp_path):
    """D38 of AT-GRPO: the tests a statement prints are not hidden."""
    problem = only(written(tmp_path / "rows.jsonl", CONTESTS))
    assert "9\\n" not in str(problem.cases)
    assert len(problem.cases) == 2


def test_parquet_reads_as_jsonl_does(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [HUMANEVAL, HUMANEVAL | {"entry_point": "g", "prompt": HUMANEVAL["prompt"].replace("def f", "def g")}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    for split in SPLITS:
        assert problems(str(tmp_path / "rows.parquet"), split) == problems(written(tmp_path / "rows.jsonl", *rows), split)  # fmt: skip


def test_splits_are_by_content_and_cover_everything(tmp_path):
    rows = [OWN | {"text": f"Problem {number}."} for number in range(200)]
    data = written(tmp_path / "a.jsonl", *rows)
    again = written(tmp_path / "b.jsonl", *reversed(rows))
    sizes = {split: len(problems(data, split)) for split in SPLITS}
    assert sum(sizes.values()) == 200
    assert all(sizes.values())
    for split in SPLITS:
        assert {one.text for one in problems(data, split)} == {one.text for one in problems(again, split)}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no rows"),
        ([b"\n\n"], "has no rows"),
        ([{"question": "x"}], "row 1: its columns are question; a row needs"),
        ([OWN, {"tests": []}], "row 2: not a problem: it has no 'text'"),
        ([OWN | {"text": 3}], "row 1: not a problem: TypeError: text is int, not text"),
        ([OWN, OWN | {"tests": "many"}], "row 2: not a problem"),
        ([OWN | {"tests": []}], "row 1: no hidden test"),
        ([OWN | {"name": ["f"]}], "row 1: not a problem: name is that of a function"),
        ([OWN | {"name": "f g"}], "row 1: not a problem: name is that of a function"),
        ([{"x" * 300_000: 1}], "row 1: its columns are xxx"),
        ([HUMANEVAL | {"prompt": "def f():\n    pass\n" + "\x1b[2J" * 90_000}], "row 1: not a problem"),
        ([OWN, b"{not json"], "row 2: not JSON in UTF-8"),
        ([OWN, b'{"text": "\xff\xfe"}'], "row 2: not JSON in UTF-8"),
        ([b"[1, 2]"], "row 1: a row is an object, not list"),
        ([b"[" * 100_000], "row 1: not JSON"),
        ([HUMANEVAL | {"prompt": "def f(:"}], "row 1: not a problem: SyntaxError"),
        ([APPS | {"input_output": "{"}], "row 1: not a problem"),
        (
            [CONTESTS | {"private_tests": {"input": ["1"], "output": []}, "generated_tests": None}],
            "row 1: not a problem",
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_row(rows, message, tmp_path):
    data = written(tmp_path / "rows.jsonl", *rows)
    with pytest.raises(ConfigError) as caught:
        load_config("code", [f"environment.data={data}"])
    assert message in str(caught.value)
    assert "rows.jsonl" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000


def test_one_enormous_line_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LONGEST_LINE", 1000)
    with pytest.raises(ConfigError, match="row 2: longer than"):
        problems(written(tmp_path / "rows.jsonl", OWN, OWN | {"text": "x" * 2000}), "train")


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.parquet", "folder.jsonl", "pipe.jsonl", "pipe.parquet"])
def test_a_file_that_cannot_be_read_is_one_line(name, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    for pipe in ("pipe.jsonl", "pipe.parquet"):
        os.mkfifo(tmp_path / pipe)
    with pytest.raises(ConfigError, match="cannot be read"):
        problems(str(tmp_path / name), "train")


def test_a_small_file_says_that_a_split_is_too_small(tmp_path):
    data = written(tmp_path / "rows.jsonl", OWN)
    with pytest.raises(ConfigError, match="tasks"):
        load_config("code", [f"environment.data={data}"])


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\ndef f(x):\n    return 1\n```\nExample:\n```python\nprint(f(3))\n```", "def f(x):\n    return 1\n"),
        ("```\ndef g(): pass\n```\n```\nclass Solution:\n    def f(self): pass\n```\n```\nf()\n```",
         "class Solution:\n    def f(self): pass\n"),
        ("```\ndef fast(): pass\n```\n```\nno function\n```", "no function\n"),
    ],
)  # fmt: skip
def test_an_example_of_its_use_does_not_hide_a_function(text, program):
    assert program_of(Reply("coder", text), "f") == program


@pytest.mark.parametrize(
    ("expected", "found", "answer"),
    [
        ("0.333333", "0.3333333333333333", True), ("0.5", "1/2", False), ("3.0", "3", True), ("3", "3.0", False),
        ("1e5", "100000", True), ("1.5 2", "1.5000001  2\n", True), ("1.5", "1.6", False), ("1.5 2", "1.5", False),
        ("YES", "yes", False), ("1.0", "nan", False), ("1.0", "9" * 5000, False), (".5", "0.5", True), (".", ".0", False),
        ("1.0", "inf", False), ("1.0", "1_0", False), ("1.0", "1e99999", False),
    ],
)  # fmt: skip
def test_numbers_with_a_fraction_are_compared_as_numbers(expected, found, answer):
    assert right("", json.dumps(expected), {"status": "ok", "output": found}) is answer


@pytest.mark.slow
def test_a_long_reply_is_read_in_time_that_grows_with_its_length():
    """Every line is looked at once: were it every pair of them, this would take hours."""
    for text in (
        "```\n" * 50_000,
        "`" * 200_000,
        " " * 200_000,
        "```x`y\n" * 30_000,
        "~~~\n```\n" * 30_000,
        "~" * 200_000 + "`",
    ):
        program_of(Reply("coder", text), "f")
        program_of(Reply("coder", text))


def test_rows_that_cannot_be_scored_are_passed_over_and_counted(tmp_path):
    rows = [OWN | {"text": f"Problem {number}."} for number in range(60)]
    bad = [OWN | {"tests": []}, OWN | {"text": 3}, OWN | {"tests": []}]
    data = written(tmp_path / "rows.jsonl", *rows[:9], *bad, *rows[9:])
    assert sum(len(problems(data, split)) for split in SPLITS) == 60
    told = f"environment.data: {data}: 3 of 63 rows are passed over: 2 with no hidden test, 1 with not a problem"
    assert Code(data=data).remarks()[1:] == (told,)
    assert Code().remarks() == ()
    config = load_config("code", [f"environment.data={data}", "policies.team.model=x", "train.tasks_per_step=2"])
    assert config.remarks[1] == told


def test_data_of_which_much_cannot_be_scored_is_refused(tmp_path):
    rows = [OWN | {"text": f"Problem {number}."} for number in range(6)]
    data = written(tmp_path / "rows.jsonl", *rows, *[OWN | {"tests": []}] * 2)
    with pytest.raises(
        ConfigError, match=r"row 7: no hidden test; 2 of 8 rows cannot be scored \(2 with no hidden test"
    ):
        problems(data, "train")


def test_sizes_default_to_what_there_is_and_it_is_said(tmp_path):
    rows = [OWN | {"text": f"Problem {number}."} for number in range(200)]
    data = written(tmp_path / "rows.jsonl", *rows)
    count = len(problems(data, "validation"))
    sets = [f"environment.data={data}", "policies.p.model=x", "team.coder=p", "team.tester=p"]
    config = load_config("code", sets)
    assert config.train.eval_tasks == count
    assert config.remarks[1:] == (f"train.eval_tasks = {count}: there are no more",)
    again = load_config(tomllib.loads(config.toml()))
    assert (again.train, again.remarks) == (config.train, config.remarks[:1])
    with pytest.raises(ConfigError, match=f"train.eval_tasks = 400, but there are {count} validation tasks; lower it"):
        load_config("code", [*sets, "train.eval_tasks=400"])


def test_a_pair_of_functions_is_given_no_whole_programs(tmp_path):
    whole = {"text": "Print it.", "tests": [{"input": "1", "output": "1"}]}
    rows = [OWN | {"text": f"Problem {number}."} for number in range(60)]
    data = written(tmp_path / "rows.jsonl", whole, *rows)
    pair = CodePair(data=data)
    assert all(pair.task(split, at).name for split in SPLITS for at in range(pair.count(split) or 0))
    assert "1 with a whole program, where a function is asked for" in pair.remarks()[1]
    assert sum(Code(data=data).count(split) or 0 for split in SPLITS) == 61
    with pytest.raises(ConfigError, match="row 1: a whole program, where a function is asked for"):
        CodePair(data=written(tmp_path / "whole.jsonl", whole)).count("train")


@pytest.mark.slow
def test_packed_tests_that_inflate_without_end_are_not_read(tmp_path):
    """Half a megabyte of these would be 512 of memory."""
    packed = base64.b64encode(zlib.compress(bytes(formats.LONGEST_TESTS + 1))).decode()
    with pytest.raises(ConfigError, match="row 1: not a problem: ValueError: the packed tests are more than 64 MiB"):
        problems(written(tmp_path / "rows.jsonl", LIVE | {"private_test_cases": packed}), "train")


def test_a_file_may_be_one_array(tmp_path):
    rows = [OWN | {"text": f"Problem {number}."} for number in range(30)]
    (tmp_path / "rows.json").write_text(json.dumps(rows, indent=1))
    for split in SPLITS:
        array, lines = str(tmp_path / "rows.json"), written(tmp_path / "rows.jsonl", *rows)
        assert problems(array, split) == problems(lines, split)
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(ConfigError, match=r"bad.json, row 1: a row is an object, not int"):
        problems(str(tmp_path / "bad.json"), "train")
    (tmp_path / "cut.json").write_text('[{"text": ')
    with pytest.raises(ConfigError, match=r"cut.json is not JSON in UTF-8"):
        problems(str(tmp_path / "cut.json"), "train")


def test_taco_reads_as_apps_does(tmp_path):
    taco = {key: value for key, value in APPS.items() if key != "problem_id"} | {
        "tags": "[]",
        "time_limit": "1 seconds",
    }
    (apps,) = [one for split in SPLITS for one in problems(written(tmp_path / "a.jsonl", APPS), split)]
    (found,) = [one for split in SPLITS for one in problems(written(tmp_path / "t.jsonl", taco), split)]
    assert (found.text, found.cases, found.solution) == (apps.text, apps.cases, apps.solution)


def test_a_list_of_one_may_be_the_value_or_hold_it(tmp_path):
    """APPS does not say which; its own checker takes either."""
    row = APPS | {"input_output": json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [[5]]})}
    (problem,) = [one for split in SPLITS for one in problems(written(tmp_path / "a.jsonl", row), split)]
    answers = [
        right(problem.name, problem.cases[0][1], {"status": "ok", "value": value}) for value in ([5], 5, [[5]], [6])
    ]
    assert answers == [True, True, False, False]
