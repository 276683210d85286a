"""code: what a program and a test earn, when turns end, and what decides success."""

from __future__ import annotations

import json
from random import Random

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.checks.conformance import check
from coterie.engines.scripted import ScriptedEngine
from coterie.kernel.cursor import Cursor
from coterie.kernel.episode import Asked, Rewarded
from coterie.kernel.play import Play, Sampling
from coterie.kernel.scene import Reply
from coterie.kernel.team import Team
from coterie_worlds.coding.code import LONGEST_TEST, Code, case_of, disagreement
from coterie_worlds.coding.problems import Problem, embedded, program_of
from coterie_worlds.coding.problems.formats import instrumented
from coterie_worlds.sandbox.backends import missing
from coterie_worlds.sandbox.plain import decode
from tests.toys import one, run, scripted

pytestmark = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
SOLUTION = "def f(x):\n    return [v * 2 for v in x]"
MUTANTS = ("def f(x):\n    return [v + 2 for v in x]", "def f(x):\n    return x", "def f(x):\n    return x + x")
CASES = tuple((json.dumps([given]), json.dumps([2 * v for v in given])) for given in ([], [1], [2, 3], [0, 5]))
TASK = Problem("p-1", "train", text="double each", name="f", cases=CASES, solution=SOLUTION, mutants=MUTANTS)
RIGHT = "f([3]) == [6]"
PROGRAM = Problem(
    "p-2", "train", text="double it", cases=(('"1\\n"', '"2\\n"'), ('"5\\n"', '"10\\n"')),
    solution="print(int(input()) * 2)", mutants=("print(int(input()) + 2)",),
)  # fmt: skip


def play(task: Problem, *turns: tuple[str, str], **settings) -> Cursor:
    cursor = Cursor(Code(**settings), task, 0)
    for coder, tester in turns:
        assert run(cursor.advance()) is not None
        cursor.answer({"coder": Reply("coder", coder), "tester": Reply("tester", tester)})
    run(cursor.advance())
    return cursor


def earned(cursor: Cursor) -> list[tuple[str, float]]:
    return [(event.role or "team", round(event.value, 4)) for event in cursor.events if isinstance(event, Rewarded)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coder", "wanted"),
    [
        (SOLUTION, [("team", 1.0), ("coder", 1.0)]),
        ("def f(x):\n    return x", [("team", 0.25), ("coder", 0.1 + 0.1 + 0.2)]),  # the empty list alone
        ("def f(x):\n    return [2 * x[0]]", [("team", 0.25), ("coder", 0.1 + 0.2)]),  # fails on the empty list
        ("def g(x):\n    return x", [("team", 0.0), ("coder", 0.0)]),
        ("def f(x:", [("team", 0.0), ("coder", 0.0)]),
        ("", [("team", 0.0), ("coder", 0.0)]),
        ("import os\nos._exit(0)", [("team", 0.0), ("coder", 0.0)]),
    ],
)
def test_what_a_program_earns(coder, wanted):
    assert earned(play(TASK, (coder, RIGHT), max_turns=1))[:2] == [
        (role, pytest.approx(value)) for role, value in wanted
    ]


@pytest.mark.parametrize(
    ("tester", "wanted"),
    [
        ("f([3]) == [6]", 1.5),  # every mutant is told apart
        ("f([2]) == [4]", 1.0 + 0.5 * 2 / 3),  # 2 + 2 is 4
        ("f([]) == []", 1.0),  # right, and tests nothing
        ("f([3]) == [7]", 0.2),
        ("f(3) == 6", 0.2),  # the solution itself fails on it
        ("f([3]) == 6", 0.2),
        ("no test", 0.0),
        ("f([3]) == __import__('os').getpid()", 0.0),
        ("f(*[[3]]) == [6]", 0.0),
        ("f(x=[3]) == [6]", 0.0),
        ("f([3]) == [6] == [6]", 0.0),
        ("g([3]) == [6]", 0.0),
        ("f(" * 100 + ")" * 100 + " == 1", 0.0),
        ("f([3]) == [9]\nassert f([3]) == [6]", 1.5),  # the last one counts
        ("`f([3]) == [6]`", 1.5),
        ("f({1: (2, 3)}) == {4}", 0.2),
    ],
)
def test_what_a_test_earns(tester, wanted):
    """D30: the golden solution is really asked; as published this reward is constant."""
    assert earned(play(TASK, (SOLUTION, tester), max_turns=1))[2] == ("tester", pytest.approx(wanted, abs=1e-4))


@pytest.mark.slow
@pytest.mark.parametrize("tests", [[RIGHT], ["f([3]) == [7]", RIGHT], ["", "no test", "f([3]) == [7]", RIGHT]])
def test_an_episode_earns_what_its_last_turn_is_worth(tests):
    """However it is drawn out: a wrong test, or none, for another turn pays nothing."""
    rewards = play(TASK, *((SOLUTION, test) for test in tests), max_turns=4).log.rewards()
    assert rewards == pytest.approx({"team": 1.0, "coder": 1.0, "tester": 1.5})


def test_a_mutant_that_never_ends_is_told_apart_and_spoils_nothing():
    endless = "def f(x):\n    while True: pass"
    task = Problem("p-4", "train", text="double each", name="f", cases=CASES, solution=SOLUTION, mutants=(endless,))
    assert earned(play(task, (SOLUTION, RIGHT), time_s=0.5))[2] == ("tester", 1.5)


def test_a_solution_may_be_a_method_of_a_class():
    solution = "class Solution:\n    def f(self, x):\n        return [v * 2 for v in x]"
    task = Problem("p-5", "train", text="double each", name="f", cases=CASES, solution=solution, mutants=MUTANTS)
    assert earned(play(task, (solution, RIGHT))) == [("team", 1.0), ("coder", 1.0), ("tester", 1.5)]


def test_a_test_that_was_cut_is_none():
    assert case_of(TASK, Reply("tester", RIGHT, finish="length")) is None


def test_the_testers_reward_varies_within_a_group():
    env = Code()
    replies = {"tester": ["f([]) == []", "f([3]) == [6]", "f([3]) == [7]", "none"]}
    taken = iter(range(1000))
    engine = ScriptedEngine(lambda role, prompt, rng: replies[role][next(taken) % 4] if role in replies else SOLUTION)
    play_ = scripted(env, engine.script, Team(dict.fromkeys(env.roles, "p")))
    found = one(play_, ATGRPO(num_generations=4, horizon="point").collect(play_, TASK))
    (tester,) = [group for group in found.groups if group.key.role == "tester"][:1]
    assert len({member.parts["local"] for member in tester.members}) == 4
    assert tester.live


def test_turns_end_when_what_the_roles_can_see_agrees_and_only_the_last_program_counts():
    wrong = "def f(x):\n    return x"
    agreed = play(TASK, (wrong, "f([]) == []"))  # a bad program, and a test that does not find it
    assert (agreed.log.turns, agreed.log.solved) == (1, False)
    refined = play(TASK, (wrong, RIGHT), (SOLUTION, RIGHT))
    assert (refined.log.turns, refined.log.solved) == (2, True)
    lost = play(TASK, (SOLUTION, "f([3]) == [7]"), (wrong, "f([3]) == [7]"))  # right once is not right
    assert (lost.log.turns, lost.log.solved) == (2, False)


def test_both_see_the_disagreement_and_no_hidden_test():
    cursor = play(TASK, ("def f(x):\n    return x", "f([7]) == [14]"), ("", ""))
    _, second = [event.prompts for event in cursor.events if isinstance(event, Asked)]
    for role in ("coder", "tester"):
        assert "f([7]) gave [7], not [14]" in second[role]
        assert "return x" in second[role]
        assert "[2, 3]" not in second[role]
        assert SOLUTION not in second[role]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coder", "said"),
    [
        ("def f(x):\n    while True: pass", "gave timeout"),
        ("", "gave error"),
        ("def f(x):\n    return object()", "gave refused"),
    ],
)
def test_a_program_that_fails_is_shown_as_its_status(coder, said):
    cursor = play(TASK, (coder, RIGHT), ("", ""), time_s=0.5)
    assert said in [event.prompts for event in cursor.events if isinstance(event, Asked)][1]["coder"]


def test_whole_programs_read_and_write():
    test = "```input\n4\n```\n```output\n8\n```"
    cursor = play(PROGRAM, ("```python\nprint(int(input()) * 2)\n```", test))
    assert cursor.log.solved
    assert earned(cursor) == [("team", 1.0), ("coder", 1.0), ("tester", 1.5)]
    cursor = play(PROGRAM, ("print(7)", "no blocks"), max_turns=1)
    assert earned(cursor) == [("team", 0.0), ("coder", 0.2), ("tester", 0.0)]


TESTED = Problem(
    "p-4", "train", text="double each", name="f", solution=SOLUTION,
    check=instrumented("def check(candidate):\n    " + "\n    ".join(
        f"assert candidate([{n}]) == [{2 * n}]" for n in range(4))),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coder", "share", "ran"),
    [
        (SOLUTION, 1.0, 0.2),
        ("def f(x):\n    return x", 0.25, 0.2),
        ("def f(x):\n    return [2 * x[0]] if x[0] else 1 / 0", 0.75, 0.1),
        (
            "def f(x):\n    while x[0] == 2: pass\n    return [2 * x[0]]",
            0.75,
            0.1,
        ),  # one that never ends is one that fails
        ("def f(x):\n    raise ValueError", 0.0, 0.0),
        ("def g(x):\n    return x", 0.0, 0.0),
        ("def f(x:", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_test_code_pays_for_what_ran_and_nothing_for_what_did_not(coder, share, ran):
    found = earned(play(TESTED, (coder, RIGHT), max_turns=1, time_s=0.5))[:2]
    assert found == [("team", share), ("coder", pytest.approx(ran + 0.8 * share))]


def test_an_empty_program_has_not_run():
    assert earned(play(PROGRAM, ("", "no blocks"), max_turns=1)) == [("team", 0.0), ("coder", 0.0), ("tester", 0.0)]


def test_a_program_that_never_ends_is_judged_whatever_the_limit_of_calls():
    slow = ScriptedEngine(lambda *_: "while 1: pass")
    play = Play(
        Code(max_turns=1, time_s=0.2), Team({"coder": "p", "tester": "p"}), slow, seed=0,
        sampling=Sampling(call_timeout_s=0.1),
    )  # fmt: skip
    cursor = play.start(TASK)
    run(play.together(play.run(cursor)))
    assert cursor.log.solved is False
    assert not play.budget.dropped


def test_a_set_is_shown_alike_in_every_process():
    """Its order would be the hash seed's, and the prompt of the next turn with it."""
    wrote = "def f(x):\n    return set('abcdef')"
    cursor = play(TASK, (wrote, "f([1]) == {'b', 'a'}"), (SOLUTION, RIGHT))
    second = [event for event in cursor.events if isinstance(event, Asked)][1].prompts
    assert "f([1]) gave {'a', 'b', 'c', 'd', 'e', 'f'}, not {'a', 'b'}" in str(second["coder"])


def test_without_a_golden_solution_the_tester_earns_validity_alone():
    task = Problem("p-3", "train", text="double each", name="f", cases=CASES)
    assert earned(play(task, (SOLUTION, RIGHT)))[2] == ("tester", 0.2)


def test_a_replay_runs_no_program_again(monkeypatch):
    cursor = play(TASK, ("def f(x):\n    return x", RIGHT), (SOLUTION, RIGHT))
    monkeypatch.setattr("coterie_worlds.sandbox.pool", None)
    again = Cursor(Code(), TASK, 0, recorded=cursor.events)
    assert run(again.advance()) is None
    assert again.events == cursor.events


def test_what_each_role_is_asked():
    assert Code().told("coder", TASK, "") == f"write {TASK.text}"
    assert Code().told("tester", TASK, "before") == f"test {TASK.text}\nbefore"


@pytest.mark.parametrize(
    ("role", "task", "words"),
    [
        ("coder", TASK, ("You are the coder", "defines the function f", "one fenced code block")),
        ("coder", PROGRAM, ("You are the coder", "reads standard input and writes standard output", "one fenced code")),
        (
            "tester",
            TASK,
            ("You are the tester", "a call of the function f", "one line of the form `f(ARGUMENTS) == VALUE`"),
        ),
        (
            "tester",
            PROGRAM,
            ("You are the tester", "a standard input and the output", "first marked input and the second"),
        ),
    ],
)
def test_a_model_that_was_never_taught_is_told_its_role_the_form_and_the_kind_of_problem(role, task, words):
    env = Code(data="tasks.jsonl")
    cursor = Cursor(env, task, 0)
    point = run(cursor.advance())
    system, user = point.asked.prompts[role]
    assert (system.role, user.role) == ("system", "user")
    for said in (*words, "neither sees what the other writes"):
        assert said in system.content
    assert user.content == task.text
    assert env.told(role, task, "before") == "The program of the turn before, and what its test found:\nbefore"


def test_the_second_turn_is_a_chat_with_a_roles_own_words_before():
    cursor = Cursor(Code(brief=False, sandbox="process"), TASK, 0)
    run(cursor.advance())
    cursor.answer({"coder": Reply("coder", "def f(x): return 0"), "tester": Reply("tester", "f([1]) == 9")})
    point = run(cursor.advance())
    for role, said in (("coder", "def f(x): return 0"), ("tester", "f([1]) == 9")):
        chat = point.asked.prompts[role]
        assert [message.role for message in chat] == ["system", "user", "assistant", "user"]
        assert chat[2].content.text == said
        assert "f([1]) gave 0, not 9" in chat[3].content


def test_what_is_asked_for_is_what_is_read():
    """The forms that the instructions name, as a model would follow them."""
    program = Reply("coder", "Here it is:\n```python\ndef f(x):\n    return x\n```\nIt works.")
    assert program_of(program, "f").strip() == "def f(x):\n    return x"
    assert case_of(TASK, Reply("tester", "Let me think.\n\nf([1]) == 2")) == ("[[1]]", "2")
    blocks = "```input\n1 2\n```\n\n```output\n3\n```"
    assert case_of(PROGRAM, Reply("tester", blocks)) == (json.dumps("1 2\n"), json.dumps("3\n"))


def test_demonstrations_are_of_the_chain_or_of_one_with_a_step_forgotten():
    task = next(task for at in range(99) if len(embedded.chain_at(task := Code().task("train", at)).steps) == 3)
    whole, forgotten = embedded.chain_at(task), embedded.forgetful(embedded.chain_at(task))
    for naive, chain in ((0.0, whole), (1.0, forgotten)):
        assert Code(naive=naive).demonstrate("coder", task, "", Random(0)) == chain.program()
        test = Code(naive=naive).demonstrate("tester", task, "", Random(0))
        given, wanted = case_of(task, Reply("tester", test))  # pyright: ignore[reportGeneralTypeIssues]
        ((value),) = json.loads(given)
        assert chain.value(decode(value)) == decode(json.loads(wanted))
        assert len(str(value)) < 20


def test_lessons_show_both_roles_the_first_turn_and_a_disagreement_where_there_is_one():
    env, later = Code(naive=0.5), 0
    for at in range(60):
        task = env.task("train", at)
        lessons = [lesson for lesson in env.lessons(task, Random(at)) if lesson.role in env.roles]
        first = [lesson for lesson in lessons if "\n" not in lesson.prompt]
        assert [(lesson.role, lesson.prompt) for lesson in first] == [
            (role, env.told(role, task, "")) for role in env.roles
        ]
        assert [lesson.role for lesson in lessons if lesson not in first] in ([], list(env.roles))
        for lesson in lessons:
            assert lesson.reply.startswith("def f(x):") if lesson.role == "coder" else " == " in lesson.reply
            if lesson not in first:
                later += 1
                asked, *wrote, said = lesson.prompt.split("\n")
                assert asked == env.told(lesson.role, task, "")
                assert wrote[0] == "def f(x):"
                gave, wanted = said.partition(" gave ")[2].split(", not ")
                assert gave != wanted
    assert 0 < later < 120
    assert {lesson.role for lesson in env.lessons(env.task("train", 0), Random(0))} == {
        "coder",
        "tester",
        "aux",
        "main",
    }


def test_a_test_of_a_whole_program_is_two_blocks_and_the_last_pair_counts():
    said = "```input\n1\n```\n```output\n2\n```\nor\n```input\n3\n```\n\n```output\n4\n```"
    assert case_of(PROGRAM, Reply("tester", said)) == ('"3\\n"', '"4\\n"')
    assert case_of(PROGRAM, Reply("tester", "```input\n1\n```")) is None
    assert case_of(PROGRAM, Reply("tester", RIGHT)) is None


def test_a_line_of_a_test_is_read_up_to_a_bound():
    line = f"f([{'1, ' * 330}1]) == 1"
    assert case_of(TASK, Reply("tester", line[: LONGEST_TEST + 1])) is None
    short = "f([1]) == 1"
    assert case_of(TASK, Reply("tester", short.ljust(LONGEST_TEST) + " and more")) == case_of(
        TASK, Reply("tester", short)
    )


@pytest.mark.parametrize("said", ["f([1]) < 2", "f([1]) != 2", "[f([1])] == [2]", "f([1]) == x", "(f)([1]) + 1 == 2"])
def test_what_is_no_comparison_of_a_call_is_no_test(said):
    assert case_of(TASK, Reply("tester", f"{said}  # f(== f(")) is None


def test_what_both_are_shown_by_hand():
    case = json.dumps([[3]]), json.dumps([6])
    assert disagreement(TASK, "code", None, []) == "code\nno test"
    assert disagreement(TASK, "code", case, [{"status": "error"}]) == "code\nf([3]) gave error, not [6]"
    assert disagreement(TASK, "code", case, [{"status": "ok", "shown": "[3]"}]) == "code\nf([3]) gave [3], not [6]"
    case = json.dumps("4\n"), json.dumps("8\n")
    shown = disagreement(PROGRAM, "code", case, [{"status": "ok", "shown": "7\n"}])
    assert shown == "code\n4\n gave 7\n, not 8\n"


@pytest.mark.slow
def test_it_keeps_the_contract():
    assert (report := check(Code(), tasks=1, horizon="point")).ok, report


def test_a_block_ends_at_the_next_fence():
    """Where it might end at any, 200,000 characters of openings took half a minute."""
    blocks = "```input\n1 2\n```\n\n```output\n3\n```"
    assert case_of(PROGRAM, Reply("tester", "```input\n" * 20_000 + blocks)) == (json.dumps("1 2\n"), json.dumps("3\n"))
    assert case_of(PROGRAM, Reply("tester", "```input\n1```" * 20_000)) is None
