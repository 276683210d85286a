"""code: what a program and a test earn, when turns end, and what decides success."""

from __future__ import annotations

import json

import pytest

from coterie.algorithms.at_grpo import ATGRPO
from coterie.conformance import check
from coterie.cursor import Cursor
from coterie.engines.scripted import ScriptedEngine
from coterie.environments.code import Code, case_of
from coterie.episode import Asked, Rewarded
from coterie.play import Play, Sampling
from coterie.problems import Problem, literal
from coterie.problems.files import instrumented
from coterie.sandbox.backends import missing
from coterie.scene import Reply
from coterie.team import Team
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


def test_a_sandbox_that_is_too_slow_for_the_run_drops_the_branch_and_not_the_run():
    slow = ScriptedEngine(lambda *_: "while 1: pass")
    play = Play(
        Code(max_turns=1), Team({"coder": "p", "tester": "p"}), slow, seed=0, sampling=Sampling(call_timeout_s=0.1)
    )
    found = run(play.together(play.run(play.start(TASK))))
    assert "no result after" in str(found)
    assert play.budget.dropped == {"sandbox": 1}


def test_a_set_is_shown_alike_in_every_process():
    """Its order would be the hash seed's, and the prompt of the next turn with it."""
    wrote = "def f(x):\n    return set('abcdef')"
    cursor = play(TASK, (wrote, "f([1]) == {'b', 'a'}"), (SOLUTION, RIGHT))
    second = [event for event in cursor.events if isinstance(event, Asked)][1].prompts
    assert "f([1]) gave {'a', 'b', 'c', 'd', 'e', 'f'}, not {'a', 'b'}" in str(second["coder"])
    assert literal((1,)) == "(1,)"
    assert literal([{2: {3, 1}}, set()]) == "[{2: {1, 3}}, set()]"


def test_without_a_golden_solution_the_tester_earns_validity_alone():
    task = Problem("p-3", "train", text="double each", name="f", cases=CASES)
    assert earned(play(task, (SOLUTION, RIGHT)))[2] == ("tester", 0.2)


def test_a_replay_runs_no_program_again(monkeypatch):
    cursor = play(TASK, ("def f(x):\n    return x", RIGHT), (SOLUTION, RIGHT))
    monkeypatch.setattr("coterie.sandbox.pool", None)
    again = Cursor(Code(), TASK, 0, recorded=cursor.events)
    assert run(again.advance()) is None
    assert again.events == cursor.events


def test_it_keeps_the_contract():
    assert (report := check(Code(), tasks=1, horizon="point")).ok, report
