"""Data as published: official splits, benchmarks, what is left out, and solutions that are tried before use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coterie import load_config
from coterie.environments.published import data as rows_of
from coterie.environments.published.sources import Source, source_of
from coterie.errors import ConfigError
from coterie.models import hub
from coterie_worlds.coding.code import Code
from coterie_worlds.coding.code_pair import CodePair
from coterie_worlds.coding.problems import golds
from coterie_worlds.coding.problems.data import BENCHMARKS, Problems
from coterie_worlds.sandbox import Box
from coterie_worlds.sandbox.backends import missing
from tests.environments.coding.rows import load, problems
from tests.environments.coding.test_problems import HUMANEVAL, MBPP, OWN, written
from tests.test_cli import call

HUMANEVAL_FILE = Path(__file__).parents[4] / "shared" / "data" / "humaneval.jsonl"
BOX = Box("process")
LONG = "Given a list of numbers in any order, return the sum of those that are even and larger than four, as an integer"


def own(number: int, **more) -> dict:
    return OWN | {"text": f"Double it, in the way of number {number}."} | more


def mbpp(number: int, **more) -> dict:
    return MBPP | {"task_id": number, "text": f"Write a function to double it, variant {number}."} | more


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows_of.load.cache_clear()
    yield
    rows_of.load.cache_clear()


# What is trained on, and what is tested on


def test_a_benchmark_trains_on_one_set_and_tests_on_all_of_the_other(tmp_path):
    train = written(tmp_path / "train.jsonl", *map(mbpp, range(40)))
    test = written(tmp_path / "test.jsonl", *(own(number) for number in range(9)))
    found = load(f"{train} -> {test}")
    assert [problem.text for problem in found.splits["test"]] == [own(number)["text"] for number in range(9)]
    assert len(found.splits["train"]) + len(found.splits["validation"]) == 40
    assert found.splits["validation"]
    assert {problem.split for problem in found.splits["test"]} == {"test"}
    assert found.rows == {train: 40, test: 9}
    assert len({problem.id for one in found.splits.values() for problem in one}) == 49


@pytest.mark.slow
@pytest.mark.skipif(not HUMANEVAL_FILE.exists(), reason=f"{HUMANEVAL_FILE} is not here")
def test_humaneval_as_a_user_would_all_official_rows_are_tests_and_none_is_trained_on(tmp_path):
    rows = [json.loads(line) for line in HUMANEVAL_FILE.read_text().splitlines()]
    train = written(tmp_path / "mbpp.jsonl", *map(mbpp, range(40)), mbpp(41, text=rows[7]["prompt"]))
    setting = f"environment.data={train} -> {HUMANEVAL_FILE}"
    code, out, err = call("train", "code_pair", "--dry-run", "--set", setting)
    assert (code, "test 164 (" in out) == (0, True), err
    env = CodePair(data=setting.removeprefix("environment.data="))
    found = env.rows()
    assert [problem.text for problem in found.splits["test"]] == [row["prompt"] for row in rows]
    assert rows_of.shared(found.splits["test"], [*found.splits["train"], *found.splits["validation"]], Problems()) == 0
    assert found.left == [(f"environment.data: {train}, row 41", found.left[0][1])]
    assert not any(found.lost.values()), "every one of the 164 official solutions passes its own tests"


def test_rows_of_the_test_set_are_left_out_of_training_and_counted(tmp_path):
    """The same words in other letters and blanks; nearly the same words; the same row twice."""
    train = [
        own(1), own(2), own(1, text="DOUBLE it,  in the way of number 1."),
        own(3, text="\uff24ouble it, in the way of number 7."), own(4, text=f"{LONG} please."),
        own(5, text=f"{LONG[:40]} that is something else."),
    ]  # fmt: skip
    test = [own(7), own(8, text=f"{LONG}."), own(9)]
    found = load(f"{written(tmp_path / 'a.jsonl', *train)} -> {written(tmp_path / 'b.jsonl', *test)}")
    kept = {problem.text for split in ("train", "validation") for problem in found.splits[split]}
    assert kept == {train[0]["text"], train[1]["text"], train[5]["text"]}
    assert sorted(reason for _, reason in found.left) == ["as a test row", "as a test row", "twice in train"]
    assert any("3 rows are left out: " in line for line in found.remarks())


@pytest.mark.slow
def test_a_file_that_is_trained_and_tested_on_is_not_trained_on(tmp_path):
    data = written(tmp_path / "one.jsonl", *map(mbpp, range(20)))
    found = load(f"{data} -> {data}")
    assert [len(found.splits[split]) for split in ("train", "validation", "test")] == [0, 0, 20]
    assert len(found.left) == 20
    code, _, err = call("train", "code_pair", "--dry-run", "--set", f"environment.data={data} -> {data}")
    assert code == 2
    assert "there are no train tasks" in err
    assert "20 as a test row" in err


def test_problems_that_differ_in_a_sign_alone_are_two(tmp_path):
    """HumanEval/56 and 61: brackets of another kind."""
    rows = [own(1, text='"()" is right'), own(1, text='"<>" is right')]
    found = load(f"{written(tmp_path / 'a.jsonl', own(2))} -> {written(tmp_path / 'b.jsonl', *rows)}")
    assert len(found.splits["test"]) == 2


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_names_sources_that_can_be_read(name):
    entry = BENCHMARKS[name]
    for text in filter(None, (entry.train, entry.validation, entry.test)):
        source = source_of(text)
        assert source.name
        assert source.split
    assert source_of(entry.test) not in (source_of(entry.train), entry.validation and source_of(entry.validation))


def test_a_source_of_the_hub_is_written_as_its_page_names_it():
    assert source_of("hub:a/b") == Source("hub:a/b", "a/b")
    whole = "hub:codeparrot/apps@refs/pr/5#all/train"
    assert source_of(whole) == Source(whole, "codeparrot/apps", "refs/pr/5", "all", "train")
    assert source_of("hub:a/b#c") == Source("hub:a/b#c", "a/b", "", "c")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("openai/openai_humaneval", "for a set of the hub write hub:openai/openai_humaneval"),
        ("humanevl", "did you mean 'humaneval'?"),
        ("rows.xlsx", "is no .jsonl, .json, .csv, .tsv, .parquet or .txt file"),
        ("rows.jsonl ->", "write what is tested on"),
        ("a.jsonl -> b.jsonl -> c.jsonl", "has two arrows; write TRAIN -> TEST"),
        ("https://where.example/rows.jsonl", "is an address; download it first"),
        ("~/gone.jsonl", str(Path.home())),
        ("hub:lighteval/code_generation_lite", "#release_v6/test: all 1,055, 4.3 GB"),
        ("gone.jsonl", "gone.jsonl cannot be read"),
    ],
)
def test_what_is_no_source_is_refused_in_a_line_that_says_what_to_write(data, words):
    with pytest.raises(ConfigError) as caught:
        load(data)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# Sets of the hub, through the library that reads them


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A hub in a folder: `load_dataset` reads what lies there."""
    datasets = pytest.importorskip("datasets")
    asked: list[tuple] = []
    real = datasets.load_dataset

    def load_dataset(path, *, name=None, revision=None, split=None):
        asked.append((path, name, revision, split))
        return real(str(tmp_path / path), split=split, cache_dir=str(tmp_path / "cached"))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(hub, "answers", lambda: True)

    def put(name: str, **splits) -> list[tuple]:
        (tmp_path / name).mkdir(parents=True)
        for split, rows in splits.items():
            written(tmp_path / name / f"{split}.jsonl", *rows)
        return asked

    return put


def test_official_splits_are_kept(shelf):
    """Of 20 official test rows, 17 landed in training."""
    shelf("x/set", train=[mbpp(at) for at in range(30)], test=[mbpp(at) for at in range(100, 120)])
    found = load("hub:x/set")
    assert {problem.id.split("-")[1] for problem in found.splits["test"]} == {str(at) for at in range(100, 120)}
    assert len(found.splits["train"]) + len(found.splits["validation"]) == 30
    assert found.splits["validation"]


def test_a_published_validation_split_is_the_validation(shelf):
    shelf("x/set", train=[mbpp(at) for at in range(30)], test=[mbpp(50)], validation=[mbpp(60), mbpp(61)])
    sizes = {split: len(one) for split, one in load("hub:x/set").splits.items()}
    assert sizes == {"train": 30, "validation": 2, "test": 1}


def test_the_test_rows_of_a_training_set_are_not_trained_on(shelf, tmp_path):
    shelf("x/set", train=[mbpp(at) for at in range(30)], test=[mbpp(at) for at in range(100, 120)])
    found = load(f"hub:x/set -> {written(tmp_path / 'b.jsonl', own(1))}")
    assert len(found.splits["test"]) == 1
    assert len(found.splits["train"]) + len(found.splits["validation"]) == 30


def test_one_published_split_is_what_it_is_used_for_whatever_its_name(shelf, tmp_path):
    """CoopHumanEval's test rows lie in a split called train."""
    asked = shelf("x/set", train=[own(at) for at in range(30)])
    rows = written(tmp_path / "b.jsonl", *map(mbpp, range(20)))
    assert len(load(f"{rows} -> hub:x/set@abc#c/train").splits["test"]) == 30
    assert asked[-1] == ("x/set", "c", "abc", "train")
    sizes = {split: len(one) for split, one in load("hub:x/set").splits.items()}
    assert sum(sizes.values()) == 30
    assert sizes["train"] < 30


def test_a_set_that_is_a_script_names_where_its_rows_are_instead(monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(hub, "answers", lambda: True)

    def refuse(*_, **__):
        raise RuntimeError("Dataset scripts are no longer supported, but found apps.py")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(ConfigError, match=r"it is a script, its rows are in hub:codeparrot/apps@refs/pr/5"):
        load("hub:codeparrot/apps")


# Solutions are tried


WRONG = {"solution": "def f(x): return 3 * x"}


def test_a_row_whose_own_solution_fails_is_passed_over(tmp_path):
    data = written(tmp_path / "rows.jsonl", *(own(at, **(WRONG if at == 4 else {})) for at in range(9)))
    env = Code(data=data, sandbox="process")
    assert sum(env.count(split) or 0 for split in ("train", "validation", "test")) == 8
    assert (
        f"environment.data: {data}: 1 of 9 rows are passed over: 1 with a solution that fails its tests"
        in env.remarks()
    )
    assert (
        sum(Code(data=data, check_solutions=False).count(split) or 0 for split in ("train", "validation", "test")) == 9
    )


def test_a_set_whose_solutions_fail_is_refused(tmp_path):
    data = written(tmp_path / "rows.jsonl", *(own(at, **WRONG) for at in range(3)), *map(own, range(3, 9)))
    with pytest.raises(
        ConfigError, match="row 1: a solution that fails its tests: 0 of 1 tests passed; 3 of 9 rows cannot be scored"
    ):
        Code(data=data, sandbox="process").count("train")


def test_each_solution_is_tried_once_and_again_where_it_changed(tmp_path, monkeypatch):
    tried: list[str] = []
    real = golds.solves
    monkeypatch.setattr(
        golds, "solves", lambda problem, program, box: tried.append(program) or real(problem, program, box)
    )
    for name, more in (("a", {}), ("b", {}), ("c", WRONG), ("d", WRONG)):
        data = written(tmp_path / f"{name}.jsonl", own(0), own(1), own(2, **more), *map(own, range(3, 6)))
        load(data, box=BOX)
    assert len(tried) == 6 + 0 + 1 + 0
    load(written(tmp_path / "e.jsonl", *map(own, range(6))), box=Box("process", time_s=9.0))
    assert len(tried) == 7 + 6, "under other limits it may be another outcome"


def test_an_outcome_that_the_clock_decided_is_not_kept(tmp_path):
    slow = {"solution": "def f(x):\n    while True: pass"}
    data = written(tmp_path / "rows.jsonl", own(0, **slow), *map(own, range(1, 9)))
    assert load(data, box=Box("process", time_s=0.3)).lost[data]
    assert len((tmp_path / "cache" / "coterie" / "solutions.jsonl").read_text().splitlines()) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solution", "why"),
    [
        ("def f(x):\n    while True: pass", "1 of 1 tests took longer than environment.time_s"),
        ("import numpy\ndef f(x): return 2 * x", "ModuleNotFoundError: No module named 'numpy'"),
        ("def f(x): return len(bytearray(1 << 30))", "more than environment.memory_mb"),
        ("def f(x): return 'a' * (9 << 20)", "more than environment.output_kb"),
        ("def f(x): return 3 * x", "0 of 1 tests passed"),
    ],
)
def test_a_solution_that_fails_says_how_and_is_remembered_so(solution, why, tmp_path):
    data = written(tmp_path / "rows.jsonl", own(0, solution=solution), *map(own, range(1, 9)))
    for _ in range(2):
        rows_of.load.cache_clear()
        ((_, reason),) = load(data, box=Box(time_s=0.5)).lost[data]
        assert reason.startswith("with a solution that fails its tests: ")
        assert why in reason


def test_that_no_row_has_a_solution_is_said(tmp_path):
    rows = [{key: value for key, value in own(at).items() if key != "solution"} for at in range(9)]
    found = load(written(tmp_path / "rows.jsonl", *rows), box=BOX)
    assert "environment.data: the rows' own answers are not tried: no row has one" in found.remarks()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"name": ""}, "tests is a list of objects with input and output; without a name it is a whole program"),
        ({"tests": ["assert f(1) == 2"]}, "tests is a list of objects with args and value"),
        ({"tests": [{"args": [1], "expected": 2}]}, "tests is a list of objects with args and value"),
        ({"tests": [{"args": 1, "value": 2}]}, "args is a list, of all arguments"),
    ],
)
def test_a_row_of_ones_own_that_is_none_is_told_what_is_wanted(row, words, tmp_path):
    with pytest.raises(ConfigError, match=f"row 1: not a problem: {words}"):
        load(written(tmp_path / "rows.jsonl", own(0, **row)))


def test_a_page_that_is_called_data_shows_how_it_begins(tmp_path):
    (tmp_path / "page.jsonl").write_text("<!DOCTYPE html>\n<html>")
    with pytest.raises(ConfigError, match=r"not JSON in UTF-8: .*; it begins '<!DOCTYPE html>'"):
        load(str(tmp_path / "page.jsonl"))


def test_a_starter_that_does_not_know_the_data_and_a_sandbox_without_walls_are_said(tmp_path):
    data = written(tmp_path / "rows.jsonl", *map(own, range(60)))
    sets = (f"environment.data={data}", "environment.sandbox=process")
    remarks = load_config("code", sets).remarks
    assert any("policies.team.model = 'starter-code' was taught code in brief, without data" in one for one in remarks)
    assert any("programs have your files, processes and network" in one for one in remarks)
    remarks = load_config("code", [*sets[:1], "policies.team.model=me/model"]).remarks
    assert not any("starter" in one or "network" in one for one in remarks)
    assert not load_config("code").remarks


def test_where_nothing_can_be_isolated_it_is_said_that_none_was_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(golds, "missing", lambda _: "no bubblewrap")
    data = written(tmp_path / "rows.jsonl", *map(own, range(9)))
    found = load(data, box=BOX)
    assert "environment.data: the rows' own answers are not tried: no bubblewrap" in found.remarks()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    data = written(tmp_path / "rows.jsonl", own(0, **WRONG), *map(own, range(1, 9)))
    assert len(load(data, box=BOX).lost[data]) == 1


# BigCodeBench


TESTS = """import unittest
class TestCases(unittest.TestCase):
    def setUp(self):
        self.given = [1, 2]
    def test_sum(self):
        self.assertEqual(task_func(self.given), 3)
    def test_empty(self):
        self.assertEqual(task_func([]), 0)
    def test_wrong(self):
        with self.assertRaises(TypeError):
            task_func(5)
"""
BIG = {
    "task_id": "BigCodeBench/0", "instruct_prompt": "Sum a list.", "complete_prompt": "def task_func(x):",
    "code_prompt": "import math\ndef task_func(x):\n", "canonical_solution": "    return sum(x)\n", "test": TESTS,
    "entry_point": "task_func", "libs": "['math']",
}  # fmt: skip


@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
def test_a_row_of_bigcodebench_is_judged_by_its_unittests(tmp_path):
    found = load(f"{written(tmp_path / 'a.jsonl', own(0))} -> {written(tmp_path / 'b.jsonl', BIG)}", box=Box())
    (problem,) = found.splits["test"]
    assert golds.solves(problem, problem.solution, Box()).passed == 3
    wrong = golds.solves(problem, "def task_func(x): return sum(x) or 1", Box())
    assert (wrong.passed, wrong.total) == (2, 3)


def test_a_row_that_needs_a_package_is_passed_over_where_none_is_named(tmp_path):
    rows = [BIG | {"instruct_prompt": f"Sum a list, {at}."} for at in range(9)]
    needs = BIG | {"libs": "['pandas', 'math']"}
    data = written(tmp_path / "b.jsonl", *rows, needs)
    (lost,) = load(data).lost[data]
    assert lost == (
        f"environment.data: {data}, row 10", "with packages that environment.libraries does not name: pandas"
    )  # fmt: skip
    assert not load(data, libraries=("pandas",)).lost[data]


# Looking at data, and testing on other data


def test_data_is_shown_with_rows_splits_hashes_and_reasons(tmp_path):
    train = written(tmp_path / "a.jsonl", *map(own, range(9)), own(30, tests=[]), own(40))
    test = written(tmp_path / "b.jsonl", own(40), own(41))
    code, said, _ = call("data", f"{train} -> {test}", "--set", "environment.check_solutions=false")
    assert code == 0
    found = load(f"{train} -> {test}")
    assert f"11 rows   {train}" in said
    for split in ("train", "validation", "test"):
        assert f"{len(found.splits[split])} {split}" in said
        assert found.digest(split) in said
    assert f"1 passed over with no hidden test; such as {train}, row 10" in said
    assert f"1 left out    as a test row; such as {train}, row 11" in said
    untried = ("--set", "environment.check_solutions=false", "--json")
    assert json.loads(call("data", f"{train} -> {test}", *untried)[1]) == found.summary()


def test_data_is_shown_as_another_environment_reads_it(tmp_path):
    rows = written(
        tmp_path / "rows.jsonl", *({"question": f"What is {n} + {n}?", "answer": f"{2 * n}"} for n in range(9))
    )
    assert f"9 rows   {rows}" in call("data", rows, "--for", "maths")[1]
    code, _, err = call("data", rows, "--for", "tally")
    assert (code, "environment.data" in err) == (2, True)
    code, _, err = call("data", rows)
    assert (code, "its columns are answer, question; a row needs" in err) == (2, True)


@pytest.mark.slow
def test_data_is_shown_as_it_is_under_other_settings(tmp_path):
    solution = "import numpy\ndef f(x): return 2 * x"
    data = written(tmp_path / "rows.jsonl", own(0, solution=solution), *map(own, range(1, 9)))
    assert "No module named 'numpy'" in call("data", data)[1]
    assert "passed over" not in call("data", data, "--set", 'environment.libraries=["numpy"]')[1]
    code, _, err = call("data", data, "--set", "train.steps=3")
    assert (code, "it is about environment alone" in err) == (2, True)


def test_an_arrow_without_quotes_is_explained():
    code, _, err = call("data", "a.jsonl", "-")
    assert (code, "quote what holds an arrow, as in 'A -> B'" in err) == (2, True)


def test_a_hash_is_of_the_content_alone(tmp_path):
    rows = [own(at) for at in range(20)]
    one, again = (load(written(tmp_path / f"{name}.jsonl", *rows)) for name in "ab")
    other = load(written(tmp_path / "c.jsonl", *rows[:-1], own(19, tests=[{"args": [1], "value": 3}])))
    assert [one.digest(split) for split in one.splits] == [again.digest(split) for split in again.splits]
    assert [one.digest(split) for split in one.splits] != [other.digest(split) for split in other.splits]


def test_a_run_rests_on_the_rows_of_both_sources(tmp_path):
    """Else it would go on with other rows, and call itself exact."""
    from coterie.config.resolve import load_config
    from coterie.run.exactness import exactness

    train = written(tmp_path / "a.jsonl", *map(own, range(40)))
    found: set[str] = set()
    for rows in ([own(50), own(51)], [own(50), own(51, tests=[{"args": [2], "value": 4}])], [own(50), own(51)]):
        rows_of.load.cache_clear()
        setting = f"environment.data={train} -> {written(tmp_path / 'b.jsonl', *rows)}"
        sets = [setting, "environment.sandbox=process", "policies.team.model=x", "train.tasks_per_step=2"]
        found.add(exactness(load_config("code", sets))["environment"])
    assert len(found) == 2


@pytest.mark.parametrize(
    ("data", "tested"),
    [
        ("b.jsonl", "-> b.jsonl"), ("a.jsonl -> b.jsonl", "-> b.jsonl"), ("hub:x/y", "-> hub:x/y"),
        ("humaneval", f"-> {BENCHMARKS['humaneval'].test}"),
    ],
)  # fmt: skip
def test_what_of_data_is_tested_on(data, tested):
    assert rows_of.held_out(data, BENCHMARKS) == tested


def test_other_data_is_tested_on_whole_and_what_was_trained_on_is_told(tmp_path):
    train = written(tmp_path / "a.jsonl", *map(own, range(40)))
    other = written(tmp_path / "b.jsonl", *(problem_row(problem) for problem in problems(train, "train")[:3]), own(99))
    env, told = Code(data=train, sandbox="process").tested_on(other)
    assert env.count("test") == 4
    assert told[-1] == "3 of these 4 test problems are in what the run was trained on"
    _, told = Code(sandbox="process").tested_on(other)
    assert not any("trained on" in line for line in told)


def problem_row(problem) -> dict:
    return OWN | {"text": problem.text}


def test_an_environment_without_data_of_others_says_so():
    from coterie_worlds.games.plan_path import PlanPath

    with pytest.raises(ConfigError, match="PlanPath plays no data of others"):
        PlanPath().tested_on("x.jsonl")


def test_a_row_whose_split_is_for_nothing_here_is_not_used(shelf):
    """MBPP's ten rows for prompts."""
    shelf("x/set", train=[mbpp(at) for at in range(30)], test=[mbpp(50)], prompt=[mbpp(70), mbpp(71)])
    found = load("hub:x/set")
    assert not {"70", "71"} & {problem.id.split("-")[1] for one in found.splits.values() for problem in one}


def test_the_example_that_mbpp_shows_is_not_a_hidden_test(tmp_path):
    """Its text names no function: without a test nobody could call it."""
    row = MBPP | {"test_list": ["assert double(1) == 2", "assert double(5) == 10"]}
    found = load(f"{written(tmp_path / 'a.jsonl', own(0))} -> {written(tmp_path / 'b.jsonl', row)}")
    (problem,) = found.splits["test"]
    assert "For example: assert double(1) == 2" in problem.text
    assert "double(5)" in problem.check
    assert "double(1)" not in problem.check


def test_rows_of_humaneval_and_ones_own_make_one_benchmark(tmp_path):
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    data = f"{written(tmp_path / 'a.jsonl', *map(own, range(20)))} -> {written(tmp_path / 'b.jsonl', HUMANEVAL)}"
    assert len(problems(data, "test")) == 1
    assert rows_of.named(data, BENCHMARKS) == data


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
def test_a_run_is_tested_on_other_data(tmp_path):
    small = ("train.steps=1", "train.tasks_per_step=2", "train.eval_every=1", "train.eval_tasks=2", "eval.tasks=2")
    run = tmp_path / "run"
    code, _, err = call("train", "code", "--out", str(run), *(word for one in small for word in ("--set", one)))
    assert code == 0, err
    code, out, err = call("eval", str(run), "--data", written(tmp_path / "rows.jsonl", own(1), own(2), own(3)))
    assert code == 0, err
    assert "environment.data: test 3 (" in err
    assert "2 tasks, greedy" in out


def test_rows_that_are_no_text_are_passed_over_and_ids_are_one_line(tmp_path):
    rows = [*map(own, range(9)), own(10) | {"text": "\ud800 what"}, own(11) | {"id": "a\nb"}]
    data = written(tmp_path / "rows.jsonl", *rows)
    found = load(data)
    assert [why for _, why in found.lost[data]] == ["with a lone surrogate, which is no text"]
    assert not any("\n" in problem.id for its in found.splits.values() for problem in its)


def test_what_many_rows_share_is_looked_up_among_few():
    preamble = " ".join(f"word{n}" for n in range(40))
    alike = rows_of.Alike([("", f"{preamble} {n}") for n in range(500)])
    assert max(map(len, alike._with.values())) == rows_of.MOST_HOLDERS
    assert alike.has(("", f"{preamble} 7"))
    assert alike.has(("", f"{preamble} 9999"))
    assert not alike.has(("", " ".join(f"other{n}" for n in range(40))))


@pytest.mark.parametrize(
    "sets",
    [
        ("sudoku", "environment.size=9", "environment.givens=40"), ("sokoban", "environment.boxes=2"),
        ("plan_path", "environment.size=10"), ("tally", "environment.brief=false"),
        ("maths", "environment.brief=false"),
    ],
)  # fmt: skip
def test_a_starter_that_was_taught_other_boards_or_words_is_said(sets):
    name, *overrides = sets
    assert any(f"was taught {name} in brief" in one for one in load_config(name, overrides).remarks)
    assert not load_config(name).remarks


def test_data_comes_with_instructions_where_nothing_else_is_said(tmp_path):
    data = written(tmp_path / "rows.jsonl", *map(own, range(60)))
    sets = [f"environment.data={data}", "environment.sandbox=process"]
    for more, brief in (([], False), (["environment.brief=false"], False), (["environment.brief=true"], True)):
        world = load_config("code", [*sets, *more]).environment
        assert isinstance(world, Code)
        assert world.brief == brief
        assert world.recommended() == {}
    assert Code(sandbox="process").tested_on(data)[0].brief


def test_data_that_leaves_a_split_empty_says_what_to_do(tmp_path):
    rows = written(tmp_path / "rows.jsonl", own(0))
    said = call("data", rows, "--set", "environment.check_solutions=false")[1]
    assert said.count("nothing; give more rows, or TRAIN -> TEST") == 2
    assert "which data?" in call("data", "")[2]
    code, _, err = call("data", "GSM8K", "--for", "maths")
    assert (code, "did you mean 'gsm8k'?" in err) == (2, True)
    assert "benchmarks by name" not in call("data", "levels", "--for", "sokoban")[2]
    (tmp_path / "t.txt").write_text("a\n\nb")
    assert "a .txt file holds levels" in call("data", str(tmp_path / "t.txt"))[2]
