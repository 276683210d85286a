"""A team for a table: columns, rewards by name, prompts as text with placeholders, a checked loop, and a judge."""

import csv
import json
import re

import pytest

from coterie import check, load_config, train
from coterie.algorithms.at_grpo import ATGRPO
from coterie.engines.scripted import ScriptedEngine
from coterie.environments.placeholders import filled, names
from coterie.environments.prompt_rows import guessed
from coterie.environments.prompts import Prompts
from coterie.errors import ConfigError, EnvError
from coterie.kernel.environment import SPLITS
from coterie.kernel.episode import Asked, Called, Noted, Rewarded, TurnBegan, check_seen
from coterie.kernel.play import Play, Sampling
from coterie.kernel.team import Team
from tests.environments.test_prompts import of, played, rewards, words
from tests.toys import one

ROWS = [(f"What is {n} + {n}?", str(2 * n)) for n in range(60)]
LOOP = {"roles": ("solver", "checker"), "rounds": 3, "accept": "checker", "rewards": ("number",)}


def table(path, rows=ROWS, header=("question", "answer")) -> str:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def world(tmp_path, rows=ROWS, header=("question", "answer"), **settings) -> Prompts:
    return Prompts(data=table(tmp_path / "qa.csv", rows, header), **settings)


def right(environment: Prompts) -> str:
    return environment.task("train", 0).answer


def noted(cursor) -> dict[str, float]:
    return {event.name: event.value for event in of(cursor, Noted)}


def shown(cursor) -> list[str]:
    """What each role was shown, in order; the roles' names are before it."""
    return [f"{role}: {words(text)}" for event in of(cursor, Asked) for role, text in event.prompts.items()]


# Columns.


@pytest.mark.parametrize(
    "header", [("Question", "Answer"), ("QUERY", "label"), ("problem", "solution"), ("input", "Ground Truth")]
)
def test_obvious_columns_are_guessed_in_any_case(tmp_path, header):
    environment = world(tmp_path, header=header, rewards="number")
    task = environment.task("train", 0)
    assert (json.loads(task.prompt), task.answer) in ROWS


def test_other_columns_are_named_and_keep_their_own_names_too(tmp_path):
    environment = Prompts(
        data=table(tmp_path / "qa.csv", ROWS, ("frage", "antwort")), rewards="number",
        columns={"question": "frage", "answer": "antwort"}, prompts={"writer": "{frage} {question}"},
    )  # fmt: skip
    question = environment.task("train", 0).question
    assert shown(played(environment, right(environment))) == [f"writer: {question} {question}"]
    assert json.loads(environment.task("train", 0).columns).keys() == {"frage", "antwort"}


def test_the_first_obvious_name_counts_and_no_column_is_both():
    assert guessed("answer", ["Solution", "answer"], set()) == "answer"
    assert guessed("question", ["input", "prompt"], set()) == "prompt"
    assert guessed("question", ["input"], {"input"}) == ""


@pytest.mark.parametrize(
    ("header", "settings", "says"),
    [
        (
            ("frage", "antwort"), {},
            r"no column is obviously the question or the answer; the columns are frage, antwort; write "
            r'environment.columns = \{question = "frage", answer = "antwort"\}, with the names that are right',
        ),
        (("question", "antwort"), {}, r"obviously the answer; .*\{question = \"question\", answer = \"antwort\"\}"),
        (
            ("question", "answer"), {"columns": {"answer": "anser"}},
            "environment.columns.answer = 'anser', but the columns are question, answer; did you mean 'answer'",
        ),
        (
            ("question", "answer"), {"prompts": {"writer": "{quesion}"}},
            r"environment.prompts.writer: \{quesion\} names nothing; did you mean 'question'\?; there are "
            r"\{question\}, \{writer\}; a brace itself is written twice",
        ),
        (("question", "answer"), {"prompts": {"writer": "{answer}"}}, r"\{answer\} shows the answer to a role"),
        (("question", "label"), {"prompts": {"writer": "{label}"}}, r"\{label\} shows the answer to a role"),
        (
            ("question", "answer"), {"rewards": "judge", "judge_prompt": "{reply} {hint}"},
            r"environment.judge_prompt: \{hint\} names nothing",
        ),
        (("question", "answer"), {"rewards": "regex"}, "no column is obviously the pattern"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_have_what_is_needed_says_what_to_write(tmp_path, header, settings, says):
    with pytest.raises(ConfigError, match=says) as found:
        world(tmp_path, header=header, **{"rewards": "number", **settings}).rows()
    assert "\n" not in str(found.value)


def test_an_answer_that_does_not_suit_the_reward_is_passed_over_and_many_are_refused(tmp_path):
    environment = world(tmp_path, [*ROWS, ("What is it?", "many")], rewards="number")
    assert any("1 of 61 rows are passed over: 1 with not a problem" in line for line in environment.rows().remarks())
    with pytest.raises(ConfigError, match="its answer is not one number, which reward 'number' compares with"):
        world(tmp_path / "more", [("What is it?", "many")] * 3, rewards="number").rows()


def test_a_question_that_occurs_twice_is_in_one_split(tmp_path):
    rows = [(f"{' ' * again}Question  {number}?", "1") for number in range(100) for again in range(3)]
    environment = world(tmp_path, rows, rewards="number")
    questions = [
        "".join(task.question.split()) for split in SPLITS for task in environment.rows().splits[split]
    ]  # fmt: skip
    assert len(questions) == len(set(questions)) == 100


def test_rows_that_differ_in_a_column_that_is_shown_are_different_questions(tmp_path):
    rows = [("Is it so?", str(number), f"text {number}") for number in range(50)]
    columns = ("question", "answer", "text")
    asked = {"prompts": {"writer": "{text}: {question}"}, "rewards": "number"}
    kept = world(tmp_path, rows, columns, **asked).rows().splits
    assert sum(map(len, kept.values())) == 50
    alike = world(tmp_path / "alike", rows, columns, rewards="number").rows().splits
    assert sum(map(len, alike.values())) == 1


# Rewards by name.


@pytest.mark.parametrize(
    ("name", "settings", "good", "bad"),
    [
        ("exact", {}, "{}.", "It is {}"), ("number", {}, "It is {}.", "{} or 1"),
        ("contains", {}, "It is {}.", "It is {}, which is what you get if you add these"),
        ("json", {}, "{}", '"{}"'), ("regex", {"pattern": r"\d+!"}, "{}!", "{}"),
    ],
)  # fmt: skip
def test_a_reward_is_named_without_python(tmp_path, name, settings, good, bad):
    environment = world(tmp_path, rewards=name, **settings)
    for reply, earned in ((good, 1.0), (bad, 0.0)):
        cursor = played(environment, reply.replace("{}", right(environment) or "7"))
        assert rewards(cursor) == [(None, earned)]
        assert noted(cursor)[f"reward_{name}"] == earned
        assert cursor.log.solved == bool(earned)


def test_rewards_by_name_and_functions_are_summed_in_their_order(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("def short(completions, **_): return [-float(len(completions[0]))]")
    environment = world(tmp_path, rewards=("exact", f"{file}:short"), reward_weights=(10.0, 1.0))
    assert rewards(played(environment, right(environment))) == [(None, 10.0 - len(right(environment)))]


def test_a_pattern_may_stand_in_the_row_and_a_slow_one_earns_nothing(tmp_path):
    rows = [(f"Say {n} times a.", f"(a|aa)+{n}") for n in range(60)]
    environment = world(tmp_path, rows, ("question", "pattern"), rewards="regex")
    number = environment.task("train", 0).pattern.removeprefix("(a|aa)+")
    assert rewards(played(environment, f"aaa{number}")) == [(None, 1.0)]
    assert rewards(played(environment, "a" * 200 + "!", limit_s=30.0)) == [(None, 0.0)]
    with pytest.raises(ConfigError, match="its pattern is no regular expression"):
        world(tmp_path / "bad", [("Say a.", "(")], ("question", "pattern"), rewards="regex").rows()
    with pytest.raises(ValueError, match="pattern is no regular expression"):
        world(tmp_path / "other", rewards="regex", pattern="(")


def test_a_reply_of_contains_that_names_another_answer_of_the_table_earns_nothing(tmp_path):
    rows = [(f"Is {n} even?", ("yes", "no")[n % 2]) for n in range(60)]
    environment = world(tmp_path, rows, rewards="contains")
    assert rewards(played(environment, f"{right(environment)}, sir")) == [(None, 1.0)]
    assert rewards(played(environment, "yes no")) == [(None, 0.0)]


# Prompts as text.


def test_placeholders_are_filled_once_and_braces_stay():
    values = {"question": "{answer} {{x}} }", "my column": "b"}
    assert names("{question}{{no}} {my column}\n{question}") == ["question", "my column"]
    assert filled("{{{question}}} {my column}{nobody}", values) == "{{answer} {{x}} }} b"


def test_a_line_of_roles_that_have_not_spoken_is_left_out():
    text = "{question}\nYou said {solver}, they {checker}.\n{question} {solver}.\nEnd."
    values = {"question": "Q", "solver": "7", "checker": ""}
    assert filled(text, values | {"solver": ""}, ("solver", "checker")) == "Q\nQ .\nEnd."
    assert filled(text, values, ("checker",)) == "Q\nYou said 7, they .\nQ 7.\nEnd."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a { b", "prompts.writer: a single { in 'a { b'; write {name} for a value, and {{ for the sign"),
        ("a } b", "a single } in 'a } b'"), ("{}", "{} in '{}' names nothing"), ("{a\n}", "a single {"),
    ],
)  # fmt: skip
def test_a_brace_that_belongs_to_nothing_is_told(tmp_path, text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        world(tmp_path, prompts={"writer": text})


def test_a_role_is_shown_its_text_and_nothing_that_a_reply_says_is_expanded(tmp_path):
    environment = world(
        tmp_path, roles=("drafter", "editor"), rewards="number", instructions={"editor": "Edit {this}."},
        prompts={"drafter": "Q: {question}", "editor": "{question}\nDraft: {drafter}\nMine: {editor}\n{{}}"},
    )  # fmt: skip
    question = environment.task("train", 0).question
    asked = shown(played(environment, " {question} {nobody}\n", "7"))
    assert asked == [
        f"drafter: Q: {question}", f"editor: Edit {{this}}.\n{question}\nDraft: {{question}} {{nobody}}\n{{}}",
    ]  # fmt: skip


def test_of_messages_the_last_is_replaced_by_the_text(tmp_path):
    turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}]
    rows = [{"prompt": [*turns, {"role": "user", "content": f"And {n}?"}], "answer": n} for n in range(60)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = Prompts(data=str(file), rewards="number", prompts={"writer": "<{question}>"})
    task = environment.task("train", 0)
    assert shown(played(environment, "7")) == [f"writer: Hi.\nHo.\n<And {task.answer}?>"]


def test_a_person_can_ask_unless_roles_are_shown_columns(tmp_path):
    assert world(tmp_path, prompts={"writer": "{question}!"}, rewards="number").asked("Who?").question == "Who?"
    other = world(tmp_path, [(*row, "x") for row in ROWS], ("question", "answer", "hint"), prompts={"writer": "{hint}"})
    with pytest.raises(ValueError, match="this team's prompts show hint of a table too"):
        other.asked("Who?")


# Rounds.


def test_the_team_goes_round_until_the_checker_accepts(tmp_path):
    environment = world(tmp_path, **LOOP, checker_tokens=8)
    cursor = played(environment, "x", "no", right(environment), "ACCEPT")
    # the last answer is worth 1, the first 0; the checker earns 1 for accepting it
    assert rewards(cursor) == [(None, 0.0), ("checker", 0.0), (None, 1.0), ("checker", 1.0)]
    assert [event.name for event in cursor.events if isinstance(event, Rewarded) and event.role] == [
        "verdict/wrong",
        "verdict/right",
    ]
    assert cursor.log.solved
    assert [event.max_tokens for event in of(cursor, Asked)] == [256, 8, 256, 8]
    assert len(of(cursor, TurnBegan)) == 2
    assert noted(cursor) | {"reward_number": 1.0, "rounds": 2.0, "accepted": 1.0} == noted(cursor)
    assert "The solver wrote:\n> x\n\nThe checker" not in shown(cursor)[1]
    assert shown(cursor)[2].endswith("You wrote:\n> x\n\nThe checker wrote:\n> no")


@pytest.mark.parametrize(
    ("replies", "earned", "solved"),
    [
        (("right", "yes"), [(None, 1.0), ("checker", 1.0)], True),
        (("wrong", "yes"), [(None, 0.0), ("checker", -1.0)], False),
        (("right", "no", "wrong", "maybe", "wrong", ""), [
            (None, 1.0), ("checker", -1.0), (None, -1.0), ("checker", -1.0), (None, 0.0), ("checker", -1.0)
        ], False),
        (("wrong", "no") * 3, [(None, 0.0), ("checker", 0.0)] * 3, False),
    ],
)  # fmt: skip
def test_rewards_of_rounds_add_up_to_the_last_answers_and_rejecting_never_pays(tmp_path, replies, earned, solved):
    environment = world(tmp_path, **LOOP)
    cursor = played(environment, *(right(environment) if reply == "right" else reply for reply in replies))
    assert rewards(cursor) == earned
    assert sum(value for role, value in earned if role is None) == float(solved)
    assert cursor.log.solved == solved
    check_seen(cursor.events, "point")


def test_without_a_checkers_reward_it_earns_nothing_of_its_own(tmp_path):
    environment = world(tmp_path, **LOOP, checker_reward=0)
    assert rewards(played(environment, right(environment), "yes")) == [(None, 1.0)]


def test_every_reply_of_a_loop_is_valued_by_what_it_earned_before_the_next(tmp_path):
    environment = world(tmp_path, **LOOP)
    team = Team({"solver": "a", "checker": "b"})
    engine = ScriptedEngine(
        lambda role, prompt, rng: (
            rng.choice([right(environment), "x"]) if role == "solver" else rng.choice(["yes", "no"])
        )
    )
    play = Play(environment, team, engine, seed=0, sampling=Sampling())
    collected = one(play, ATGRPO(horizon="point", commit="random").collect(play, environment.task("train", 0)))
    first, second = collected.groups[:2]
    for member in first.members:
        assert member.returns == (float(member.samples[0].text != "x"),)
    committed = first.members[first.committed].samples[0].text
    for member in second.members:
        accepted = member.samples[0].text == "yes"
        assert member.returns == (accepted * (1.0 if committed != "x" else -1.0),)


def test_the_teams_answer_is_the_last_of_the_role_that_answers(tmp_path):
    environment = world(tmp_path, **LOOP)
    cursor = played(environment, "one", "no", "two", "yes")
    assert environment.answer(None, cursor.log) == "two"
    other = world(
        tmp_path, roles=("solver", "critic", "checker"), accept="checker", answerer="solver", rewards="number"
    )
    cursor = played(other, right(other), "hm", "no")
    assert rewards(cursor) == [(None, 1.0), ("checker", -1.0)]
    assert not of(cursor, TurnBegan)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rounds": 2}, 'rounds = 2 needs a role that may end them; write accept = "writer"'),
        ({"accept": "writer"}, 'accept = "writer": nobody else answers'),
        ({"accept": "chekcer", "roles": ("a", "checker")}, "accept: no role 'chekcer'; did you mean 'checker'"),
        ({"accept": "a", "roles": ("a", "b")}, 'accept = "a": who checks speaks last'),
        ({"answerer": "b", "accept": "b", "roles": ("a", "b")}, "nobody else answers"),
        ({"columns": {"qestion": "x"}}, "'qestion' is no purpose; did you mean 'question'"),
        (
            {"rewards": ("exat",)},
            "'exat' is no reward; write exact, number, contains, regex, json, judge, or a function",
        ),
        ({"judge_prompt": "{question}", "rewards": "judge"}, "judge_prompt: it does not show the {reply}"),
        ({"role_rewards": {"writer": ("judge",)}}, "role_rewards: the judge judges the team's answer"),
        ({"prompts": {"wirter": "x"}}, "prompts: no role 'wirter'; did you mean 'writer'"),
        ({"prompts": {"writer": "Answer."}}, "prompts.writer: it shows nothing of the task; write {question}"),
        ({**LOOP, "prompts": {"solver": "Not {solver}.", "checker": "?"}}, "prompts.solver: it shows nothing of the"),
    ],
)
def test_what_does_not_fit_together_is_told_in_a_line(tmp_path, settings, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        world(tmp_path, **settings)


@pytest.mark.parametrize("setting", ["checker_reward = 1", 'pattern = "a"', 'json_keys = ["a"]', "judge_tokens = 3"])
def test_a_setting_that_nothing_uses_is_refused(tmp_path, setting):
    key, _, value = setting.partition(" = ")
    with pytest.raises(ConfigError, match=f"environment.{key} has no effect"):
        config(tmp_path, f"environment.{key}={value}")


# The judge.


def test_a_judge_says_what_an_answer_is_worth_and_is_shown_it_as_data(tmp_path):
    environment = world(tmp_path, rewards="judge")
    assert environment.roles == ("writer", "judge")
    task = environment.task("train", 0)
    cursor = played(environment, "It is\nignore this: {answer}", "Yes.")
    assert rewards(cursor) == [(None, 1.0)]
    asked = shown(cursor)[1]
    assert (
        f"Question: {task.question}\nCorrect answer: {task.answer}\nReply:\n> It is\n> ignore this: {{answer}}\n"
        in asked
    )
    assert rewards(played(environment, "x", "I cannot say yes")) == [(None, 0.0)]


def test_a_judge_is_never_trained(tmp_path):
    with pytest.raises(
        ConfigError, match=r"role 'judge' grades the others and is played by policy 'team', which is tr"
    ):
        config(tmp_path, 'environment.rewards=["judge"]')
    sets = ['environment.rewards=["judge"]', "team.writer=team", "team.judge=judge", "policies.judge.model=x/y"]
    with pytest.raises(ConfigError, match="which is trained; write judge = "):
        config(tmp_path, *sets)
    judged = config(tmp_path, *sets, "policies.judge.kind=frozen")
    assert judged.team.trained == ("team",)
    with pytest.raises(ConfigError, match="ends before the judge has spoken"):
        config(tmp_path, *sets, "policies.judge.kind=frozen", "algorithm.horizon=point")


def config(tmp_path, *sets: str):
    name = f"prompts:{table(tmp_path / 'qa.csv')}"
    return load_config(
        name,
        ["policies.team.model=x/y", *([] if "rewards" in " ".join(sets) else ["environment.rewards=number"]), *sets],
    )


# Where a mistake is.


def test_a_mistake_in_a_reward_function_is_placed_in_its_file(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "def raises(completions, **_):\n    return [1 / 0]\n\n\n"
        "def lacks(completions, colour, **_):\n    return [1.0]\n\n\n"
        "def alone(completions, **_):\n    return 1.0\n"
    )
    for name, line in (("raises", 2), ("lacks", 5)):
        with pytest.raises(Exception, match=rf"{name} raised .*\({re.escape(str(file))}:{line}\)$"):
            played(world(tmp_path, rewards=f"{file}:{name}"), "x")
    with pytest.raises(EnvError, match=rf"alone returned 1.0; .*\({re.escape(str(file))}:9\)$"):
        played(world(tmp_path, rewards=f"{file}:alone"), "x")
    file.write_text("import json\n\njson.nothing\n")
    with pytest.raises(ValueError, match=rf"does not import: AttributeError: .*\({re.escape(str(file))}:3\)"):
        world(tmp_path, rewards=f"{file}:x")


@pytest.mark.parametrize(
    ("target", "sets", "says"),
    [
        ("prompts", (), "environment: data is missing; name the table, as in prompts:qa.csv"),
        ("prompts:", (), "environment: data is missing; name the table, as in prompts:qa.csv"),
        ("prompts:gone.csv", (), "environment.data: gone.csv cannot be read: No such file"),
        ("prompts:qa.csv", ("environment.prompts.writer={nobody}",), r"environment.prompts.writer: \{nobody\} names "),
        ("prompts:qa.csv", ("environment.columns.question=x",), "--set environment.columns.question=x: environment"),
        ("prompts:qa.csv", ("environment.rewards=own.py:f",), "own.py does not exist"),
    ],
)  # fmt: skip
def test_what_costs_nothing_is_checked_before_a_model_is_looked_for(tmp_path, monkeypatch, target, sets, says):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "qa.csv")
    with pytest.raises(ConfigError, match=says):
        train(load_config(target, ["policies.team.model=no/such", *(sets or ("environment.rewards=number",))]), "run")


def test_a_table_beside_a_config_is_found_from_everywhere(tmp_path, monkeypatch):
    folder = tmp_path / "there"
    table(folder / "qa.csv")
    (folder / "team.toml").write_text(
        '[environment]\nname = "prompts"\ndata = "qa.csv"\nrewards = "number"\n[policies.team]\nmodel = "x"'
    )
    monkeypatch.chdir(tmp_path)
    assert load_config("there/team.toml").environment.data == str(folder / "qa.csv")  # pyright: ignore


@pytest.mark.slow
def test_a_loop_with_rewards_by_name_keeps_the_contract(tmp_path):
    report = check(
        world(tmp_path, **{**LOOP, "rewards": ("number", "regex"), "pattern": ".*"}), tasks=1, horizon="point"
    )
    assert report.ok, str(report)
    report = check(world(tmp_path, **{**LOOP, "rewards": ("judge",)}), tasks=1)
    assert report.ok, str(report)


def test_named_rewards_make_no_call_but_a_pattern_does(tmp_path):
    assert not of(played(world(tmp_path, rewards=("exact", "number", "contains", "json")), "1"), Called)
    (called,) = of(played(world(tmp_path, rewards="regex", pattern="1"), "1"), Called)
    assert called.args == ["1", "1"]
