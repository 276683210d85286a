"""maths: problems, agreement, what answers earn, many members, data."""

import json
from collections import Counter
from random import Random

import pytest

from coterie import load_config
from coterie.checks.conformance import check
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.episode import Noted
from coterie.kernel.scene import Reply, role_of
from coterie_worlds.maths.calculator import value, written
from coterie_worlds.maths.maths import CALCULATE, Maths
from coterie_worlds.maths.procedural import (
    KINDS,
    LARGEST,
    NAMES,
    THINGS,
    MathsProblem,
    mistaken,
    question,
    small,
    steps,
    straight_on,
)
from coterie_worlds.sandbox.backends import missing
from tests.toys import run

SIX = MathsProblem("t", "train", query="2 + 2 * 2", answer="6", kind="sum", expression="2 + 2 * 2")


def played(world: Maths, task: MathsProblem, *turns: dict[str, str]):
    cursor, left, seen = Cursor(world, task, 0), iter(turns), []

    async def go():
        while (point := await cursor.advance()) is not None:
            says = next(left)
            seen.append(dict(point.asked.prompts))
            cursor.answer({who: Reply(role_of(who), says[who]) for who in point.roles})

    run(go())
    return cursor.log, seen


@pytest.mark.slow
def test_problems_are_small_solved_by_their_expression_and_of_their_split():
    kinds = Counter()
    for split in SPLITS:
        for index in range(100):
            task = question(split, index, KINDS)
            kinds[task.kind] += 1
            assert split_of(task.query) == split
            assert written(value(task.expression)) == task.answer
            assert small(task.expression)
            assert 0 <= int(task.answer) <= LARGEST
            kinds["habit fails"] += value(mistaken(task)) != value(task.expression)
    assert kinds.pop("habit fails") > 290  # 2 - 2 times anything is 0, for everybody
    assert min(kinds.values()) > 70


def test_steps_and_habits_by_hand():
    assert steps("12 - 3 * ( 2 + 1 )") == ["2 + 1 = 3", "3 * 3 = 9", "12 - 9 = 3"]
    assert steps("( ( 6 * 5 ) - 7 ) - 9") == ["6 * 5 = 30", "30 - 7 = 23", "23 - 9 = 14"]
    assert steps("7") == []
    assert straight_on("2 + 2 * 2") == "( 2 + 2 ) * 2"
    equation = MathsProblem("t", "train", kind="equation", expression="( 30 - 15 ) / ( 8 - 5 )")
    assert mistaken(equation) == "30 - 15"
    assert mistaken(MathsProblem("t", "train", kind="story", expression="( 4 * 3 ) - 9")) == "4 * 3"


def test_agreement_ends_the_turns_and_only_the_final_answer_is_judged():
    log, seen = played(Maths(), SIX, {"reasoner": "2 * 2 = 4\n2 + 4 = 6\nanswer 6", "tool": "calc 2 + 2 * 2"})
    assert log.solved
    assert log.rewards() == {"reasoner": 0.0, "tool": 0.0, "team": 1.0}
    assert seen == [{"reasoner": "solve 2 + 2 * 2", "tool": "calc 2 + 2 * 2"}]


def test_two_who_agree_on_what_is_wrong_are_done_too():
    log, seen = played(Maths(), SIX, {"reasoner": "answer 8", "tool": "calc ( 2 + 2 ) * 2"})
    assert not log.solved
    assert len(seen) == 1
    assert log.rewards() == {"reasoner": pytest.approx(-0.8), "tool": pytest.approx(-0.8), "team": 0.0}


def test_a_right_answer_that_is_given_up_is_wrong():
    """D37: as published an episode is won by any turn's answer."""
    first = {"reasoner": "answer 6", "tool": "calc 1"}
    log, seen = played(Maths(), SIX, first, {"reasoner": "answer 7", "tool": "calc 2 + 2 * 2"})
    assert not log.solved
    assert seen[1]["reasoner"] == "solve 2 + 2 * 2\nreasoner 6\ntool 1"
    assert log.rewards()["reasoner"] == pytest.approx(0.0 - 0.8)


@pytest.mark.parametrize(
    ("reasoner", "tool", "earned"),
    [
        ("", "", (-1.0, -1.0)),
        ("six", "2 + 2", (-1.0, -1.0)),
        ("answer 5", "calc x", (-0.8, -0.9)),
        ("answer 5", "calc 1 / 0", (-0.8, -0.9)),
        ("answer", "calc error: 6", (-1.0, -0.9)),
        ("answer 6.0", "calc 12 / 2", (0.0, 0.0)),
        ("answer 1 answer 6", "calc 1\ncalc 6", (-0.8, 0.0)),
        ("answer [" + "[" * 3000, "calc " + "9" * 999, (-0.8, -0.9)),
    ],
)
def test_what_a_reply_earns(reasoner, tool, earned):
    log, _ = played(Maths(max_turns=1), SIX, {"reasoner": reasoner, "tool": tool})
    assert (log.rewards()["reasoner"], log.rewards()["tool"]) == pytest.approx(earned)


def test_no_longer_episode_earns_more():
    best, _ = played(Maths(max_turns=4), SIX, {"reasoner": "answer 6", "tool": "calc 6"})
    turn = {"reasoner": "answer 6", "tool": "calc 5"}
    drawn_out, seen = played(Maths(max_turns=4), SIX, turn, turn, turn, turn)
    assert len(seen) == 4
    assert sum(drawn_out.rewards().values()) < sum(best.rewards().values()) == 1.0


def test_several_reasoners_several_tool_users_and_a_judge():
    world = Maths(reasoners=2, tools=2, judge=True, max_turns=2)
    assert world.roles == ("reasoner", "tool", "judge")
    apart = {"reasoner#0": "answer 6", "reasoner#1": "answer 8", "tool#0": "calc 6", "tool#1": "calc 8"}
    log, seen = played(world, SIX, apart, apart, {"judge": "answer 6"})
    assert log.solved
    assert seen[2] == {"judge": "judge 2 + 2 * 2\nreasoner 6\nreasoner 8\ntool 6\ntool 8"}
    assert log.rewards()["judge"] == 0.0
    together = dict.fromkeys(("reasoner#0", "reasoner#1"), "answer 6") | dict.fromkeys(("tool#0", "tool#1"), "calc 6")
    log, seen = played(world, SIX, together, {"judge": "answer 8"})
    assert not log.solved


def test_what_makes_no_team_is_refused():
    with pytest.raises(ValueError, match="judge = true"):
        Maths(reasoners=2)
    with pytest.raises(ValueError, match="brief = false"):
        Maths(tool="python")
    with pytest.raises(ConfigError, match=r"environment\.tool"):
        load_config("maths", ["environment.tools=0", "environment.tool=python", "environment.brief=false"])


def test_instructions_say_who_one_is_and_the_form():
    for tool in ("calculator", "python"):
        world = Maths(brief=False, tool=tool, judge=True)
        for role in world.roles:
            manual = world.manual(role)
            assert f"You are the {role} of a team" in manual
            if role == "tool":
                assert ("Write the calculation" in manual) == (tool == "calculator")
                assert ("fenced code block" in manual) == (tool == "python")
            else:
                assert "The answer is NUMBER" in manual
                log, _ = played(
                    Maths(brief=False, tools=0, max_turns=1), SIX, {"reasoner": manual[manual.rindex("The answer") :]}
                )
                assert not log.solved
    assert "\\boxed{" in Maths(brief=False, data="gsm8k").manual("reasoner")


def test_a_small_model_is_shown_examples_of_problems_that_are_never_drawn_and_what_others_came_to():
    world = Maths(brief=False, max_tokens=32)
    log, seen = played(
        world,
        SIX,
        {"reasoner": "2 + 2 = 4. The answer is 8.", "tool": "2 + 2 * 2 = 9"},
        {"reasoner": "The answer is 6.", "tool": "6"},
    )
    assert log.solved
    first, later = seen[0]["tool"], seen[1]["reasoner"]
    assert [message.role for message in first] == ["system", *["user", "assistant"] * 3, "user"]
    assert later[-1].content == "2 + 2 * 2\n\nreasoner: 8\n\ntool: 6"
    assert not {"kim", "lee", "sue", "tom"} & set(NAMES)
    assert "mugs" not in THINGS
    for split in SPLITS:
        for index in range(50):
            told = Maths(kinds=("sum",)).task(split, index).query
            assert all(told != example for example, _ in world.examples("reasoner"))
    assert world.examples("judge")
    assert not Maths(brief=False, max_tokens=400).examples("reasoner")


def test_a_list_of_all_answers_earns_nothing_in_ordinary_words_either():
    """Every answer that a problem may have, in all the ways that are read."""
    every = range(LARGEST + 1)
    lists = (
        " ".join(map(str, every)),
        ", ".join(map(str, every)),
        "\n".join(map(str, every)),
        " ".join(f"{number}." for number in every),
        " ".join(f"The answer is {number}." for number in every),
        "The answer is " + " or ".join(map(str, every)),
        " = ".join(map(str, every)) + " or 6",
    )
    for text in lists:
        log, _ = played(Maths(brief=False, max_turns=1), SIX, {"reasoner": text, "tool": text})
        assert log.rewards()["reasoner"] == -1.0, text[:40]
        assert log.rewards()["tool"] <= -0.8, text[:40]


def test_a_chat_shows_what_others_found_whole_and_no_gold():
    world = Maths(brief=False, max_tokens=400)
    wrong = {"reasoner": "I think\n\\boxed{8}", "tool": "calc 7"}
    log, seen = played(world, SIX, wrong, {"reasoner": "\\boxed{6}", "tool": "calc 6"})
    assert log.solved
    last = seen[1]["reasoner"][-1].content
    assert "A reasoner wrote:\n> I think\n> \\boxed{8}\n(its answer is 8)" in last
    assert "A tool wrote:\n> calc 7\n(which comes to 7)" in last
    for prompts in seen:
        for prompt in prompts.values():
            assert not any(" 6" in str(message.content) for message in prompt if message.role != "system")


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
@pytest.mark.parametrize(
    ("program", "earned", "solved"),
    [
        ("```python\nprint(2 + 2 * 2)\n```", 0.0, True),
        ("```python\nprint('so')\nprint(6)\n```", 0.0, True),
        ("```python\nprint(6)\nraise ValueError(6)\n```", -0.9, False),  # D31: of what fails nothing is an answer
        ("```python\nwhile True: pass\n```", -0.9, False),
        ("", -1.0, False),
    ],
)
def test_programs_run_in_the_sandbox(program, earned, solved):
    world = Maths(brief=False, tool="python", max_turns=1, time_s=1)
    log, _ = played(world, SIX, {"reasoner": "\\boxed{6}" if solved else "\\boxed{1}", "tool": program})
    assert log.rewards()["tool"] == pytest.approx(earned)
    assert log.solved == solved


def written_rows(path, *rows) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.slow
def test_rows_of_every_set_become_questions_and_those_that_cannot_be_are_counted(tmp_path):
    rows = {
        "gsm8k": [{"question": f"How many are {n} and 1?", "answer": f"so\n#### {n + 1}"} for n in range(30)],
        "math": [{"problem": f"Find {n}.", "answer": f"\\frac{{{n}}}{{7}}", "unique_id": f"t/{n}"} for n in range(30)],
        "olympiad": [
            {"question": f"Solve {n}.", "final_answer": [f"${n}$", "$x$"], "is_multiple_answer": bool(n % 2)}
            for n in range(30)
        ],
        "aime": [{"problem": f"Find it, {n}.", "answer": n} for n in range(30)],
    }
    for name, its in rows.items():
        world = Maths(data=written_rows(tmp_path / f"{name}.jsonl", *its), brief=False)
        assert sum(world.count(split) or 0 for split in SPLITS) == 30, name
        assert check(world, tasks=1).ok
    bad = [*rows["gsm8k"], {"question": "", "answer": "#### 1"}, {"question": "q", "answer": ""}]
    told = Maths(data=written_rows(tmp_path / "bad.jsonl", *bad)).remarks()
    assert any("2 of 32 rows are passed over" in line for line in told)


def test_a_training_set_and_a_test_set_share_nothing(tmp_path):
    train = [{"question": f"How many are {n} and {n}?", "answer": str(2 * n)} for n in range(40)]
    test = [*train[:3], {"question": "Another one?", "answer": "7"}]
    world = Maths(data=f"{written_rows(tmp_path / 'a.jsonl', *train)} -> {written_rows(tmp_path / 'b.jsonl', *test)}")
    assert world.count("test") == 4
    assert (world.count("train") or 0) + (world.count("validation") or 0) == 37
    other, told = Maths(data=str(tmp_path / "a.jsonl")).tested_on(str(tmp_path / "b.jsonl"))
    assert other.count("test") == 4
    assert any("are in what the run was trained on" in line for line in told)


def test_columns_that_nobody_knows_and_benchmarks_without_their_library(tmp_path):
    with pytest.raises(ConfigError, match="its columns are x"):
        Maths(data=written_rows(tmp_path / "x.jsonl", {"x": 1})).remarks()
    with pytest.raises(ConfigError, match="gsm8k"):
        Maths(data="gsm9k").remarks()


def test_demonstrations_solve_and_teach_both_turns():
    world, solved = Maths(naive=0.0), 0
    for index in range(40):
        task = world.task("validation", index)
        replies = {
            role: world.demonstrate(role, task, world.told(role, task, ()), Random(index)) for role in world.roles
        }
        log, _ = played(world, task, replies)
        solved += log.solved
        lessons = list(world.lessons(task, Random(index)))
        assert [lesson.role for lesson in lessons] == ["reasoner", "tool"] * 2
        assert "\ntool " in lessons[-1].prompt
    assert solved == 40


@pytest.mark.slow
def test_it_keeps_the_contract():
    assert check(Maths()).ok
    assert check(Maths(reasoners=3, tools=2, judge=True), tasks=1).ok


@pytest.mark.parametrize("answer", [None, True, [3], {"a": 1}, float("nan"), float("inf")])
def test_an_answer_of_a_row_is_text_or_a_number(tmp_path, answer):
    rows = [*({"question": f"What is {n}?", "answer": n} for n in range(9)), {"question": "x", "answer": answer}]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    ((_, why),) = Maths(data=str(data)).rows().lost[str(data)]
    assert why == "with not a problem: its answer is no text and no number"
    assert Maths(data=str(data)).content()


def test_the_question_itself_is_no_answer():
    world = Maths()
    for index in range(30):
        task = world.task("test", index)
        log, _ = played(world, task, *[{"reasoner": f"answer {task.expression}", "tool": "calc 0"}] * 2)
        assert not log.solved


def test_an_empty_expression_is_none():
    assert CALCULATE.findall("calc \ncalc  \t\ncalc 1 + 1") == ["1 + 1"]


def test_data_comes_with_instructions(tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"question": f"{n}?", "answer": n}) for n in range(30)))
    world = Maths(data=str(tmp_path / "rows.jsonl"))
    assert not world.brief
    assert Maths(data=world.data, brief=True).brief
    assert Maths().tested_on(world.data)[0].brief  # a team is asked as it was taught
    point = run(Cursor(world, world.task("train", 0), 0).advance())
    assert [getattr(message, "role", "") for message in point.asked.prompts["reasoner"]] == ["system", "user"]


def test_silence_is_no_agreement_and_what_was_cut_no_answer():
    silent = {"reasoner": "hm", "tool": "hm"}
    log, seen = played(Maths(max_turns=3), SIX, silent, silent, silent)
    assert len(seen) == 3
    world = Maths()
    assert world.answer_of(Reply("reasoner", "answer 6", "length")) == ""
    assert world.answer_of(Reply("reasoner", "answer 6")) == "6"
    cursor = Cursor(world, SIX, 0)
    run(cursor.advance())
    cursor.answer({"reasoner": Reply("reasoner", "answer 6"), "tool": Reply("tool", "calc 6", "length")})
    point = run(cursor.advance())  # the tool said nothing, so they do not agree
    assert point is not None
    assert log.rewards()["team"] == 0


def test_the_end_of_a_long_reply_is_what_others_see():
    told = Maths(brief=False, max_tokens=4000)._quoted(Reply("reasoner", "x" * 5000 + " so \\boxed{6}"), "6")
    assert "so \\boxed{6}" in told
    assert len(told) < 2200


def test_whether_they_agreed_is_noted():
    for tool, agreed in (("calc 6", 1.0), ("calc 7", 0.0)):
        says = {"reasoner": "answer 6", "tool": tool}
        cursor = Cursor(Maths(max_turns=1), SIX, 0)
        point = run(cursor.advance())
        cursor.answer({who: Reply(role_of(who), says[who]) for who in point.roles})
        run(cursor.advance())
        assert [event.value for event in cursor.events if isinstance(event, Noted) and event.name == "agreed"] == [
            agreed
        ]
