"""`coterie new`: the environment that it writes works and is tested; the team that it writes suits its table."""

import csv
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coterie import check, load_config
from coterie.commands.new_team import fitting
from coterie.environments.prompts import Prompts
from coterie.errors import ConfigError
from coterie.kernel.environment import SPLITS, Environment
from coterie.registry import find
from tests.test_cli import call


@pytest.mark.slow
def test_what_it_writes_keeps_the_contract_and_passes_its_own_tests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("new", "environment", "my_world")
    assert code == 0
    assert out.splitlines()[:2] == ["wrote my_world.py", "wrote test_my_world.py"]
    assert len(Path("my_world.py").read_text().splitlines()) < 45
    assert "NewEnvironment" not in Path("my_world.py").read_text() + Path("test_my_world.py").read_text()
    report = check(find("environment", "my_world.py:MyWorld", Environment)(), tasks=1)
    assert report.ok, report
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_my_world.py"], capture_output=True, check=False
    )
    assert tested.returncode == 0, tested.stdout


def test_it_overwrites_nothing_and_says_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("test_mine.py").write_text("mine")
    for words, said in (
        (("environment", "mine"), "test_mine.py exists"),
        (("environment", "My-World"), "no name for a module"),
        (("environment", "sokoban"), "already"),
        (("algorithm", "x"), "unknown; there are environment, team"),
        (("environment", "../x"), "no name for a module"),
        *((("environment", name), "a name of Python's") for name in ("json", "class", "none", "task", "random")),
    ):
        code, _, err = call("new", *words)
        assert code == 2
        assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]


def table(path, rows, header=("Question", "Answer")):
    with Path(path).open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


SUMS = [(f"What is {n} + {n}?", 2 * n) for n in range(90)]


def test_a_team_for_a_table_resolves_and_says_what_comes_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("qa.csv", SUMS)
    code, out, err = call("new", "team", "qa.csv")
    assert code == 0, err
    assert out.splitlines()[0] == "wrote team.toml: question 'Question', answer 'Answer', reward number"
    assert "coterie check team.toml --model smollm2\n" in out
    assert "coterie train team.toml --model smollm2\n" in out
    config = load_config("team.toml")
    environment = config.environment
    assert isinstance(environment, Prompts)
    assert (environment.rewards, environment.max_tokens, environment.accept) == (("number",), 16, "checker")
    assert set(config.team.trained) == {"solver", "checker"}
    assert environment.prompts["solver"].endswith("\nAnswer with one number.\n")
    assert config.environment.count("train") + environment.count("validation") + environment.count("test") == 90
    code, _, err = call("new", "team", "qa.csv")
    assert (code, err) == (2, "coterie: team.toml exists; choose another name with --out, or remove it\n")


def test_a_context_is_shown_and_tells_questions_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(f"The cat is in room {n}.", "Where is the cat?", f"room {n}", "b", 1) for n in range(60)]
    columns = ("Context", "question", "Correct Answer", "note", "Label")
    Path("qa.jsonl").write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    code, out, err = call("new", "team", "qa.jsonl")
    assert code == 0, err
    assert "question 'question', answer 'Correct Answer'" in out
    assert "each role is shown the column 'Context' above the question\n" in out
    assert "nobody is shown 'note', 'Label': {NAME} in a prompt shows a column\n" in out
    environment = load_config("team.toml").environment
    assert isinstance(environment, Prompts)
    for role in ("solver", "checker"):
        assert environment.prompts[role].startswith("{Context}\n{question}\n")
    assert sum(environment.count(split) or 0 for split in SPLITS) == 60


def test_a_table_is_no_run_and_a_command_makes_a_team_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("qa.csv", SUMS)
    code, _, err = call("eval", "qa.csv")
    assert (code, err) == (2, "coterie: qa.csv is a table; make a team for it: coterie new team qa.csv\n")
    Path("team.toml").write_text("")
    assert "missing.csv" in call("new", "team", "missing.csv")[2], "before the file that is in the way"


def test_rows_whose_questions_are_equal_are_told_from_few_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("same.csv", [("Is it good?", "yes" if n % 2 else "no") for n in range(60)])
    code, _, err = call("new", "team", "same.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "1 different row is too few" in err
    assert "59 of the first 60 repeat one: what tells them apart belongs into the question, or into a column" in err
    table("few.csv", SUMS[:3])
    code, _, err = call("new", "team", "few.csv")
    assert (code, err.endswith("give some dozens of rows\n")) == (2, True)


@pytest.mark.slow
def test_a_team_for_a_table_keeps_the_contract(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("qa.csv", SUMS)
    assert call("new", "team", "qa.csv")[0] == 0
    code, out, _ = call("check", "team.toml", "--tasks", "1")
    assert code == 0, out


def test_a_team_finds_its_table_beside_it_whatever_the_columns_are_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a b").mkdir()
    Path("a b/rows.jsonl").write_text(
        "".join(json.dumps({"Query": q, 'la"bel': a, "label": a}) + "\n" for q, a in SUMS)
    )
    assert call("new", "team", "a b/rows.jsonl", "--out", "a b/my.toml")[0] == 0
    written = tomllib.loads(Path("a b/my.toml").read_text())["environment"]
    assert (written["data"], written["columns"]) == ("rows.jsonl", {"question": "Query", "answer": "label"})
    assert load_config("a b/my.toml").environment.count("train")


@pytest.mark.parametrize(
    ("answers", "reward", "form", "tokens"),
    [
        (["7", "-3.5", "1,200 mugs"], "number", "Answer with one number.", 16),
        (['{"a": 1}', "[2]"], "json", "Answer with JSON alone.", 32),
        (["yes", "No", "Yes"], "exact", "Answer with one of these: yes, No.", 16),
        ([f"word{n}" for n in range(9)], "exact", "Answer with one word.", 16),
        ([f"word{n} of five at most" for n in range(9)], "exact", "Answer with at most 5 words.", 16),
        (["a long answer that nobody would give word for word"], "contains", "Answer in at most 22 words.", 48),
        (["3", "four"], "exact", "Answer with one of these: 3, four.", 16),
        (["x" * 9000], "exact", "Answer with one word.", 512),
        (["<", ">", "=", "!="], "exact", "Answer with one of these: <, >, =, !=.", 16),
        (["\N{GRINNING FACE}", "\N{CRYING FACE}"], "exact", "Answer with one of these: \U0001f600, \U0001f622.", 16),
        (["C", "C++", "C#", "Java"], "exact", "Answer with one of these: C, C++, C#, Java.", 16),
        (["x < 5", "x > 5", "x = 5"], "exact", "Answer with one of these: x < 5, x > 5, x = 5.", 16),
        (["5 km", "5 miles", "5 m"], "exact", "Answer with one of these: 5 km, 5 miles, 5 m.", 16),
        (["not 5", "version 5", "under 5"], "exact", "Answer with one of these: not 5, version 5, under 5.", 16),
        (["5", "5%"], "exact", "Answer with one of these: 5, 5%.", 16),
        (["-$5", "$5"], "exact", "Answer with one of these: -$5, $5.", 16),
        (["5-5", "6"], "exact", "Answer with one of these: 5-5, 6.", 16),
        (["5 km", "7 KM.", "1,000 km"], "number", "Answer with one number.", 16),
        (["$5", "$ 7"], "number", "Answer with one number.", 16),
        (["5%", "-.7 %"], "number", "Answer with one number.", 16),
        (["7", "7.0", "1/2"], "number", "Answer with one number.", 16),
        (
            ["the big brown dog bites the small man", "the small man bites the big brown dog"],
            "exact",
            "Answer with one of these: "
            "the big brown dog bites the small man, the small man bites the big brown dog.",
            24,
        ),
    ],
)  # fmt: skip
def test_what_suits_answers_is_chosen_by_their_kind(answers, reward, form, tokens):
    # the long answer has 9 words besides its article: 2 x 9 + 4 = 22; 2 x 50 characters / 3 + 8 = 41, in eights 48
    chosen = fitting(answers)
    assert (chosen.reward, chosen.form, chosen.max_tokens) == (reward, form, tokens)


@pytest.mark.parametrize("answers", [["$5", "\u20ac5"], ["(1, 2)", "[1, 2]"], ["it's", "its"], ["re-sign", "re sign"]])
def test_answers_that_no_named_reward_tells_apart_are_refused(answers):
    with pytest.raises(ConfigError, match=r"'exact' does not tell the answers .* apart; .*docs/rewards\.md") as found:
        fitting([*answers, "another"])
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("odd", ["\x07", "\x7f", "\u0085", "\\", '"""', "\N{GRINNING FACE}"])
def test_a_team_can_be_read_whatever_its_answers_and_its_table_are_called(tmp_path, monkeypatch, odd):
    monkeypatch.chdir(tmp_path)
    table(f"a\n{odd}b.csv", [(f"Question {n}?", (f"yes{odd}", "no")[n % 2]) for n in range(90)])
    code, _, err = call("new", "team", f"a\n{odd}b.csv", "--out", f"a\n{odd}.toml")
    assert code == 0, err
    environment = load_config(f"a\n{odd}.toml").environment
    assert isinstance(environment, Prompts)
    assert {"yes" + odd.strip(), "no"} == set(environment.prompts["solver"].split(": ")[1].rstrip(".\n").split(", "))


def test_a_table_whose_name_no_file_can_hold_is_refused_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("qa\udcff.csv", SUMS)
    code, _, err = call("new", "team", "qa\udcff.csv")
    assert (code, "cannot be written as TOML" in err, err.count("\n")) == (2, True, 1), err
    assert not Path("team.toml").exists()


def test_braces_and_quotes_of_answers_stay_signs_in_the_team(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("qa.csv", [(f"Question {n}?", ('{x} "y"', "\\\\n")[n % 2]) for n in range(90)])
    code, _, err = call("new", "team", "qa.csv")
    assert code == 0, err
    text = load_config("team.toml").environment.prompts["solver"]  # pyright: ignore
    assert (
        'Answer with one of these: {{x}} "y", \\\\n.' in text or 'Answer with one of these: \\\\n, {{x}} "y".' in text
    )


def test_a_long_answer_comes_with_advice_on_a_judge(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("qa.csv", [(f"Question {n}?", f"an answer of more than five words, number {n}") for n in range(90)])
    assert call("new", "team", "qa.csv")[0] == 0
    assert re.search(r"^# .*write \[\"judge\"\] instead", Path("team.toml").read_text(), re.MULTILINE)
    assert load_config("team.toml").environment.rewards == ("contains",)  # pyright: ignore


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        (None, (), "qa.csv cannot be read: No such file"),
        ("", (), "qa.csv has no rows"),
        (
            "Frage,Antwort\n1,2\n",
            (),
            "no column is obviously the question or the answer; the columns are Frage, Antwort; "
            "rename them to question and answer\n",
        ),
        (
            "question,answer\n1,\n",
            (),
            "none of the first 1 rows has a question in 'question' and an answer in 'answer'",
        ),
        ("question,answer\n1,2\n", (), "1 different row is too few: none belongs to"),
        (
            "question,answer\n" + "1,2\n" * 200,
            (),
            "which a row's content decides; rows with equal questions count once, and 99 of the first 100",
        ),
        ("question,answer\n1,2\n", ("--out", "team.yaml"), "a team is a TOML file; write team.toml"),
        ("question,answer\n1,2\n", ("--out", "no/team.toml"), "cannot be written"),
    ],
)
def test_a_table_that_makes_no_team_is_told_in_a_line_and_nothing_is_written(
    tmp_path, monkeypatch, content, words, says
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        rows = "".join(f"{n},{n}\n" for n in range(90)) if "no/" in str(words) else ""
        Path("qa.csv").write_text(content + rows)
    code, _, err = call("new", "team", "qa.csv", *words)
    assert (code, says in err, err.count("\n")) == (2, True, 1), err
    assert not list(tmp_path.glob("*.toml"))
    assert call("new", "environment", "mine", "--out", "x.toml")[0] == 2
