# ruff: noqa: E501  (a line is a program)
"""code_pair: what two functions earn together, and how it could be cheated."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from random import Random

import pytest
from pydantic import ValidationError

from coterie.checks.conformance import check
from coterie.config.resolve import load_config
from coterie.errors import ConfigError, Unavailable
from coterie.kernel.cursor import Cursor
from coterie.kernel.episode import Asked, Noted, Rewarded
from coterie.kernel.play import Sampling
from coterie.kernel.scene import Reply
from coterie_worlds.coding import code_pair
from coterie_worlds.coding.code_pair import EXAMPLE, EXAMPLES, CodePair, expert_edits
from coterie_worlds.coding.problems import Problem, embedded, program_of
from coterie_worlds.coding.problems.formats import instrumented
from coterie_worlds.sandbox.backends import missing
from tests.toys import run

pytestmark = pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
CASES = tuple((json.dumps([[number, 1]]), json.dumps(sorted([number + 1, 2]))) for number in range(4))
TASK = Problem("p-1", "train", text="add one to each, sort", name="f", cases=CASES)
AUX = "def aux(x):\n    return [v + 1 for v in x]"
MAIN = "def f(x):\n    return sorted(aux(x))"


def play(env: CodePair, task: Problem, *turns: dict[str, str]) -> Cursor:
    cursor = Cursor(env, task, 0)
    for replies in turns:
        assert run(cursor.advance()) is not None
        cursor.answer({role: Reply(role, replies[role]) for role in env.roles})
    run(cursor.advance())
    return cursor


def earned(aux: str, main: str, task: Problem = TASK) -> dict[str, float]:
    cursor = play(CodePair(), task, {"aux": aux, "main": main})
    return {event.name: event.value for event in cursor.events if isinstance(event, Rewarded)}


def noted(cursor: Cursor) -> dict[str, float]:
    return {event.name: event.value for event in cursor.events if isinstance(event, Noted)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aux", "main", "wanted"),
    [
        (AUX, MAIN, (1.0, 0.5, 1.0, 1.5)),
        (AUX, "def f(x):\n    return sorted(v + 1 for v in x)", (1.0, 0.5, 1.0, 0.0)),  # aux unused: 2.5
        ("", "def f(x):\n    return sorted(v + 1 for v in x)", (0.6, 0.5, 1.0, 0.0)),
        (AUX, "", (0.4, 0, 0, 0)),  # no main: stop
        (AUX, "def f(x):\n    x + 1", (0.4, 0, 0, 0)),  # it returns nothing
        ("def aux(x):\n    x", MAIN, (0.6, 0.5, 0.0, 0.0)),
        (AUX, "def f(x):\n    return sorted(aux(x)\n", (0.4, 0, 0, 0)),
        (AUX, "def f(x, x):\n    return sorted(aux(x))", (1.0, 0, 0, 0)),  # parses, does not compile
        (AUX, "def f(x):\n    return aux(x)", (1.0, 0.5, 0.5, 0.25)),  # a wrapper, right in two of four
        ("def aux(x):\n    return sorted(v + 1 for v in x)", "def f(x):\n    z = 0\n    return aux(x)", (1.0, 0.5, 1.0, 0.5)),  # D35
        (AUX, "def f(x):\n    aux(x)\n    return sorted(v + 1 for v in x)", (1.0, 0.5, 1.0, 0.0)),  # D33: ignored
        (AUX, "def f(x):\n    # aux(x)\n    return sorted(v + 1 for v in x)", (1.0, 0.5, 1.0, 0.0)),  # D34
        (AUX, "def f(x):\n    return sorted(v + 1 for v in x)\n    aux(x)", (1.0, 0.5, 1.0, 0.0)),  # never reached
        (AUX, "def f(x):\n    if x == 5: aux(x)\n    return sorted(v + 1 for v in x)", (1.0, 0.5, 1.0, 0.0)),  # never runs
        (AUX, "def f(x):\n    y = aux(x)\n    return y if x[0] == 0 else 0", (1.0, 0.5, 0.25, 0.0)),  # one test tells nothing
        (AUX, "def f(x):\n    return sorted(aux(x)) if x[0] > 0 else 0", (1.0, 0.5, 0.75, 1.125)),  # D39: in proportion
        (AUX, "def aux(x): return 0\n" + MAIN, (1.0, 0.5, 1.0, 1.5)),  # main's own aux is not taken
        (AUX, "import sys\nsys.exit(0)\n" + MAIN, (1.0, 0.5, 1.0, 1.5)),  # only the function and what it needs is
        (AUX, "class E:\n    def __eq__(self, o): return True\ndef f(x):\n    return E()", (1.0, 0.5, 0.0, 0.0)),  # D38
        (AUX, "import sys\ndef f(x):\n    sys.exit(0)\n    return 0", (1.0, 0.5, 0.0, 0.0)),
        (f"```python\n{AUX}\n```", f"Here it is:\n```python\n{MAIN}\n```\nDone.", (1.0, 0.5, 1.0, 1.5)),
    ],
)  # fmt: skip
def test_the_levels(aux, main, wanted):
    found = earned(aux, main)
    assert tuple(found.values()) == pytest.approx(wanted)
    assert list(found) == ["structure", "syntax", "tests", "cooperation"]


def test_nothing_earns_more_than_the_honest_pair():
    assert sum(earned(AUX, MAIN).values()) == 4.0 == CodePair.team_reward_range[1]


def test_a_helper_that_is_broken_is_not_paid_for():
    assert earned("def aux(x):\n    raise ValueError\n    return 1", MAIN)["tests"] == 0


def test_test_code_is_judged_like_cases():
    tests = instrumented("def check(candidate):\n" + "".join(
        f"    assert candidate([{n}, 1]) == {sorted([n + 1, 2])}\n" for n in range(4)))  # fmt: skip
    task = Problem("p-2", "train", text="the same", name="f", check=tests)
    assert earned(AUX, MAIN, task) == earned(AUX, MAIN)
    wrapper = "def f(x):\n    return aux(x)"
    assert earned(AUX, wrapper, task) == earned(AUX, wrapper)


def test_in_test_code_too_aux_is_paid_where_it_ran_in_a_test_that_passed():
    """D34: it ran in the one test that failed."""
    tests = instrumented(
        "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {2 * n}\n" for n in range(4))
    )
    task = Problem("p-3", "train", text="double", name="f", check=tests)
    aux = "def aux(x):\n    return 3 * x"
    failed = "def f(x):\n    if x == 3:\n        return aux(x) + 1\n    return 2 * x"
    assert earned(aux, failed, task)["cooperation"] == 0
    passed = "def f(x):\n    if x < 3:\n        return aux(x) - x\n    return 7"
    assert earned(aux, passed, task)["cooperation"] == 1.5 * 0.75


def test_an_exception_between_asserts_does_not_hide_those_that_follow():
    tests = instrumented("def check(candidate):\n    assert candidate(1) == 2\n    x = candidate(3)\n    y = x[0]\n"
                         "    assert candidate(2) == 4\n    assert candidate(4) == 8\n")  # fmt: skip
    task = Problem("p-4", "train", text="double", name="f", check=tests)
    assert earned("", "def f(x):\n    return 2 * x", task)["tests"] == pytest.approx(1 / 3)


def test_a_program_cannot_forge_that_aux_ran():
    """The names it would need hold its own hash."""
    forged = (
        "def f(x):\n    __ran[0] += 1\n    if False: aux(x)\n    if x == 9: aux(x)\n    return sorted(v + 1 for v in x)"
    )
    assert earned(AUX, forged)["tests"] == 0
    quiet = (
        "def f(x):\n    globals().get('__ran', [0])[0] += 1\n    if x == 9: aux(x)\n    return sorted(v + 1 for v in x)"
    )
    assert earned(AUX, quiet)["cooperation"] == 0


@pytest.mark.slow
def test_nothing_is_paid_for_cooperation_after_three_timeouts():
    slow = "def f(x):\n    while x[0]: pass\n    return sorted(aux(x))"
    cursor = play(CodePair(time_s=0.3), TASK, {"aux": AUX, "main": slow})
    found = {event.name: event.value for event in cursor.events if isinstance(event, Rewarded)}
    assert (found["tests"], found["cooperation"]) == (0.25, 0.0)
    twice = "def f(x):\n    while x[0] > 1: pass\n    return sorted(aux(x))"
    backwards = "def aux(x):\n    return [v + 1 for v in x][::-1]"
    cursor = play(CodePair(time_s=0.3), TASK, {"aux": backwards, "main": twice})
    found = {event.name: event.value for event in cursor.events if isinstance(event, Rewarded)}
    assert (found["tests"], found["cooperation"]) == (0.5, 0.75)


def test_what_takes_the_compiler_for_ever_takes_the_host_nothing():
    """Each `finally` is written twice: twenty of them, one in the other, are a million."""
    bomb = (
        "def f(x):\n"
        + "".join(f"{' ' * at}try:\n{' ' * at} x\n{' ' * at}finally:\n" for at in range(1, 21))
        + " " * 22
        + "return x"
    )
    began = time.process_time()
    assert earned(AUX, bomb)["tests"] == 0
    assert time.process_time() - began < 5, "CPU of this process; the sandbox's own is limited"


@pytest.mark.parametrize(
    ("main", "scheme"),
    [
        (
            "def f(x):\n    try:\n        y = aux(x)\n    except Exception:\n        y = [v + 1 for v in x]\n    return sorted(y)",
            "fallback",
        ),
        (MAIN, "decorator"),
    ],
)
def test_a_scheme_counts_when_disabling_aux_confirms_it(main, scheme):
    found = noted(play(CodePair(), TASK, {"aux": AUX, "main": main}))
    assert [name for name, value in found.items() if name.startswith("scheme/") and value] == [f"scheme/{scheme}"]


def test_a_scheme_that_only_looks_like_one_does_not_count():
    pretend = "def f(x):\n    y = aux(x)\n    return sorted(v + 1 for v in x) if y or True else y"
    found = noted(play(CodePair(), TASK, {"aux": AUX, "main": pretend}))
    assert [name for name, value in found.items() if name.startswith("scheme/") and value] == []


def test_feedback_shows_own_words_and_a_diagnosis_and_nothing_of_the_partner():
    env = CodePair(max_turns=2)
    secret = "def aux(x):\n    marker_of_aux = 1\n    return x"
    cursor = play(env, TASK, {"aux": secret, "main": MAIN}, {"aux": AUX, "main": MAIN})
    second = [event for event in cursor.events if isinstance(event, Asked)][1].prompts
    assert "marker_of_aux" in second["aux"]
    assert "marker_of_aux" not in second["main"]
    assert "tests 0 of 4" in second["main"]
    assert cursor.log.solved
    assert noted(cursor)["accuracy"] == 1.0
    plain = play(CodePair(max_turns=2, feedback="plain"), TASK, {"aux": "", "main": ""}, {"aux": AUX, "main": MAIN})
    assert "tests" not in str([event for event in plain.events if isinstance(event, Asked)][1].prompts)


def test_an_episode_ends_after_a_turn_that_reached_the_threshold():
    first = {"aux": AUX, "main": "def f(x):\n    return sorted(v + 1 for v in x)"}  # 2.5
    assert play(CodePair(max_turns=3, stop_at=2.5), TASK, first).log.turns == 1
    assert play(CodePair(max_turns=2), TASK, first, {"aux": AUX, "main": MAIN}).log.turns == 2


def test_it_never_pays_to_finish_late():
    half = {"aux": AUX, "main": "def f(x):\n    return sorted(v + 1 for v in x)"}  # 2.5
    whole = {"aux": AUX, "main": MAIN}
    env = CodePair(max_turns=2)
    assert play(env, TASK, whole).log.rewards()["team"] == 0.0
    assert play(env, TASK, half, whole).log.rewards()["team"] == pytest.approx(-1.5)
    assert play(env, TASK, half, half).log.rewards()["team"] == pytest.approx(-3.0)


def test_alone_main_earns_what_needs_no_partner():
    whole = {"main": "def f(x):\n    return sorted(v + 1 for v in x)"}
    cursor = play(CodePair(solo=True), TASK, whole)
    assert sum(event.value for event in cursor.events if isinstance(event, Rewarded)) == pytest.approx(2.1)
    cursor = play(CodePair(solo=True, max_turns=3), TASK, whole)
    assert cursor.log.turns == 1
    assert cursor.log.rewards()["team"] == pytest.approx(0.0)


@pytest.mark.parametrize("value", [0, -1, 4.1])
def test_a_threshold_outside_the_reward_range_is_refused(value):
    with pytest.raises(ValidationError):
        CodePair(stop_at=value)
    with pytest.raises(ConfigError, match=r"stop_at.*at most 4"):
        load_config("code_pair", [f"environment.stop_at={value}", "environment.max_turns=2"])
    with pytest.raises(ConfigError, match=r"stop_at.*at most 2.1"):
        load_config("code_pair", ["environment.stop_at=2.2", "environment.max_turns=2", "environment.solo=true"])


def test_settings_without_effect_are_refused():
    for override in ("environment.feedback=plain", "environment.expert_url=http://x", "environment.stop_at=2"):
        with pytest.raises(ConfigError, match="no effect"):
            load_config("code_pair", [override])
    config = load_config("code_pair", ["environment.feedback=expert", "environment.max_turns=2"])
    with pytest.raises(ConfigError, match="expert_url"):
        config.environment.ready()


class Expert(BaseHTTPRequestHandler):
    """A stub of an OpenAI-compatible server."""

    content = json.dumps({"aux": "return a list", "main": "sort it"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["model"] == "stub"
        assert "marker" in asked["messages"][0]["content"]
        body = json.dumps({"choices": [{"message": {"content": self.content}}]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Expert) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/v1"
        http.shutdown()
        thread.join()


def test_an_expert_edits_both(server, monkeypatch):
    env = CodePair(max_turns=2, feedback="expert", expert_url=server, expert_model="stub")
    cursor = play(env, TASK, {"aux": "def aux(marker): return 0", "main": MAIN}, {"aux": AUX, "main": MAIN})
    second = [event for event in cursor.events if isinstance(event, Asked)][1].prompts
    assert second["aux"].endswith("return a list")  # pyright: ignore[reportAttributeAccessIssue]
    assert second["main"].endswith("sort it")  # pyright: ignore[reportAttributeAccessIssue]
    for wrong in ("no json", '{"aux": "only one"}', "[]"):
        monkeypatch.setattr(Expert, "content", wrong)
        with pytest.raises(Unavailable, match="no edit"):
            expert_edits(server, "stub", "marker", {"aux": "", "main": ""})


def test_an_expert_that_cannot_be_reached_is_infrastructure():
    """D42: as published, empty edits went in silently."""
    with pytest.raises(Unavailable):
        expert_edits("http://127.0.0.1:9/v1", "stub", "x", {"aux": "", "main": ""})


@pytest.mark.slow
@pytest.mark.parametrize("env", [CodePair(), CodePair(max_turns=2), CodePair(solo=True)], ids=["one", "two", "solo"])
def test_it_keeps_the_contract_and_nobody_sees_a_partners_words(env):
    assert (report := check(env, tasks=1, decentralised=True)).ok, report


def test_demonstrations_are_weak_by_habit_and_able_underneath():
    """With naive = 0 every whole demonstration is right; with 1 no chain of three steps is solved by the usual ways."""
    task = next(t for i in range(99) if len(embedded.chain_at(t := CodePair().task("train", i)).steps) == 3)
    chain = embedded.chain_at(task)
    first = chain.steps[0]
    usual = f"def aux(x):\n    return {first.code}"
    goes_on = "def f(x):\n    x = aux(x)\n" + f"    x = {chain.steps[1].code}\n    return {chain.steps[2].code}"
    assert earned(usual, goes_on, task)["tests"] == 1


def programs(task: Problem, way: str, *, aux: float = 0.5, main: float = 1.0, naive: float = 0.0) -> tuple[str, str]:
    """What both write where chance says so: aux's share of it, main's, and main's way."""
    hers, his = Random(0), Random(0)
    hers.random, his.random = lambda: aux, lambda: main
    his.choices = lambda ways, weights: [way]  # pyright: ignore[reportAttributeAccessIssue]
    env = CodePair(naive=naive)
    return env.demonstrate("aux", task, "", hers), env.demonstrate("main", task, "", his)


def does(program: str, task: Problem) -> bool:
    """Whether a program of our own is what its chain says, on inputs of any kind."""
    names: dict = {}
    exec(program, names)
    chain, rng = embedded.chain_at(task), Random(1)
    inputs = [embedded.an_input(chain.kind, rng, 6) for _ in range(20)]
    return all(names["f"](given) == chain.value(given) for given in inputs)


TASKS = [CodePair().task("train", at) for at in range(60)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_whole_demonstrations_fit_together(task):
    """What main writes goes with what aux writes, each way; and the fallback does without aux."""
    aux, main = programs(task, "whole")
    assert does(f"{aux}\n{main}", task)
    fallback = programs(task, "fallback")[1]
    broken = "def aux(x):\n    raise ValueError"
    assert does(f"{aux}\n{fallback}", task)
    assert does(f"{broken}\n{fallback}", task)
    alone = programs(task, "alone")[1]
    assert alone == embedded.chain_at(task).program()
    first = embedded.chain_at(task).steps[0]
    each = programs(task, "each", aux=0.1)
    assert does("\n".join(each), task)
    assert ("def aux(v)" in each[0]) == ("aux(v)" in each[1]) == bool(first.each or (first.test and "if" in first.code))


def test_of_three_steps_main_believes_that_aux_has_taken_two():
    for task in TASKS:
        both, believes = programs(task, "whole", aux=0.9, main=0.0, naive=1.0)
        assert does(f"{both}\n{believes}", task)
        assert both.count("\n") == 2
    three = next(task for task in TASKS if len(embedded.chain_at(task).steps) == 3)
    two = next(task for task in TASKS if len(embedded.chain_at(task).steps) == 2)
    believes = [programs(task, "whole", main=0.5, naive=0.8)[1] for task in (three, two)]  # a quarter of it for two
    believes += [programs(task, "whole", main=0.1, naive=0.8)[1] for task in (three, two)]
    knows = [programs(task, "whole")[1] for task in (three, two)]
    assert [one != other for one, other in zip(believes, knows * 2, strict=True)] == [True, False, True, True]


def test_how_often_each_way_is_shown():
    asked = []
    rng = Random(0)
    rng.choices = lambda ways, weights: asked.append(dict(zip(ways, weights, strict=True))) or ["whole"]  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    CodePair(naive=0.0).demonstrate("main", TASKS[0], "", rng)
    assert asked == [{"whole": 5, "each": 2, "fallback": 1, "alone": 1}]
    each = next(task for task in TASKS if embedded.chain_at(task).steps[0].each)
    taken = [CodePair().demonstrate("aux", each, "", Random(seed)) for seed in range(300)]
    assert sum("def aux(v)" in one for one in taken) / 300 == pytest.approx(0.2, abs=0.07)
    assert sum(one.count("\n") == 2 for one in taken) / 300 == pytest.approx(0.2, abs=0.07)


def test_alone_main_forgets_a_step_or_does_not():
    task = next(task for task in TASKS if len(embedded.chain_at(task).steps) == 3)
    for naive, whole in ((0.0, True), (1.0, False)):
        said = CodePair(solo=True, naive=naive).demonstrate("main", task, "", Random(0))
        assert (said == embedded.chain_at(task).program()) == whole


@pytest.mark.parametrize("solo", [False, True])
def test_lessons_show_the_first_turn_and_half_of_the_time_a_later_one(solo):
    env = CodePair(solo=solo)
    told, later, count = Counter(), 0, 0
    for at, task in enumerate(TASKS * 5):
        lessons = list(env.lessons(task, Random(at)))
        first = [lesson for lesson in lessons if "\n" not in lesson.prompt]
        assert [lesson.role for lesson in first] == list(env.roles)
        assert [lesson.prompt for lesson in first] == [env.told(role, task, "") for role in env.roles]
        assert all(lesson.reply.startswith("def ") for lesson in lessons)
        count, later = count + len(first), later + len(lessons) - len(first)
        for lesson in lessons:
            if lesson not in first:
                asked, *wrote, last = lesson.prompt.split("\n")
                assert asked == env.told(lesson.role, task, "")
                told[last if "def " not in last and not last.startswith(" ") else ""] += 1
                assert wrote[0].startswith(f"def {'f' if lesson.role == 'main' else 'aux'}(")
    assert later / count == pytest.approx(0.5, abs=0.1)
    assert {"no main", "syntax error", "tests 1 of 8, aux unused", ""} < set(told)
    assert {one for one in told if one.startswith("tests") and "unused" not in one} == {
        f"tests {passed} of 8" for passed in range(9)}  # fmt: skip


def test_what_an_expert_is_asked(monkeypatch):
    asked = []

    def answer(request, timeout):
        asked.append((request, timeout))
        content = json.dumps({"aux": "be brief", "main": 7, "other": "x"})
        return io.BytesIO(json.dumps({"choices": [{"message": {"content": content}}]}).encode())

    monkeypatch.setattr(code_pair, "urlopen", answer)
    edits = expert_edits("http://host/v1/", "some-model", "the task", {"aux": "A", "main": "M"})
    assert edits == {"aux": "be brief", "main": "7"}
    ((request, timeout),) = asked
    assert (request.full_url, request.get_method()) == ("http://host/v1/chat/completions", "POST")
    assert request.get_header("Content-type") == "application/json"
    assert 0 < timeout < Sampling().call_timeout_s
    body = json.loads(request.data)
    assert set(body) == {"model", "messages", "response_format"}
    assert (body["model"], body["response_format"]) == ("some-model", {"type": "json_object"})
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("Task:\nthe task\n\naux wrote:\nA\n\nmain wrote:\nM\n\n")
    assert "maps each of aux, main to" in message["content"]

    def gone(request, timeout):
        raise OSError("no route")

    monkeypatch.setattr(code_pair, "urlopen", gone)
    with pytest.raises(Unavailable, match="http://host/v1 gave no edit for every role: no route") as caught:
        expert_edits("http://host/v1", "some-model", "the task", {"aux": ""})
    assert caught.value.stage == "expert"


def test_what_has_no_effect_beside_which_setting():
    late = {"feedback", "stop_at", "expert_url", "expert_model"}
    own = {"data": "tasks.jsonl"}
    assert set(CodePair(**own).inert()) == set(CodePair(**own, feedback="expert").inert()) == late
    assert set(CodePair(**own, max_turns=2).inert()) == {"expert_url", "expert_model"}
    assert CodePair(**own, max_turns=2, feedback="expert").inert() == {}
    assert set(CodePair(max_turns=2, feedback="expert").inert()) == {"check_solutions"}
    assert all(CodePair().inert()[name].startswith("max_turns = 1 ") for name in ("feedback", "stop_at"))
    assert all(
        CodePair().inert()[name].startswith("only feedback = 'expert' ") for name in ("expert_url", "expert_model")
    )


def test_an_expert_is_ready_when_both_its_settings_are_there():
    both = {"expert_url": "http://x", "expert_model": "m"}
    CodePair(max_turns=2, feedback="expert", **both).ready()
    CodePair(max_turns=1, feedback="expert").ready()
    CodePair(max_turns=2).ready()
    for name in both:
        with pytest.raises(ConfigError, match="expert_url and expert_model"):
            CodePair(max_turns=2, feedback="expert", **{name: both[name]}).ready()


def test_what_each_role_is_asked():
    assert CodePair().told("aux", TASK, "") == f"aux {TASK.text}"
    assert CodePair().told("main", TASK, "before") == f"main {TASK.text}\nbefore"
    assert CodePair(solo=True).told("main", TASK, "") == f"write {TASK.text}"


def test_a_model_that_was_never_taught_is_told_its_role_and_the_form():
    own = CodePair(data="tasks.jsonl")
    for role, words in (("aux", "You write a helper function named aux"), ("main", "You write the function f;")):
        for said in (words, "cannot talk", "aux(...)", "one fenced code block"):
            assert said in own.manual(role, TASK)
        assert own.told(role, TASK, "") == TASK.text
        assert own.told(role, TASK, "before") == "Your last reply, and what came of it:\nbefore"
    assert "aux" not in CodePair(data="tasks.jsonl", solo=True).manual("main", TASK)


def test_instructions_are_a_system_message():
    for own in (CodePair(data="tasks.jsonl"), CodePair(brief=False)):
        system, *examples, user = run(Cursor(own, TASK, 0).advance()).asked.prompts["aux"]
        assert [(said.role, said.content) for said in examples] == (
            [] if own.data else [("user", EXAMPLE), ("assistant", EXAMPLES["aux"])]
        )
        assert (system.role, system.content) == ("system", own.manual("aux", TASK))
        assert (user.role, user.content) == ("user", TASK.text)
    assert CodePair(brief=False).recommended() == {}


def asked_in(env: CodePair, *points: dict[str, str]) -> list[dict[str, str]]:
    """What each point's roles are told, where they answer so."""
    cursor, told = Cursor(env, TASK, 0), []
    for replies in points:
        point = run(cursor.advance())
        told.append({role: str(prompt) for role, prompt in point.asked.prompts.items()})
        cursor.answer({role: Reply(role, text) for role, text in replies.items()})
    assert run(cursor.advance()) is None, "nobody else is asked"
    assert cursor.log.outcome.solved
    return told


@pytest.mark.slow
def test_who_sees_what_by_protocol():
    task, other = TASK.text, "def aux(x):\n    return x"
    (told,) = asked_in(CodePair(), {"aux": AUX, "main": MAIN})
    assert told == {"aux": f"aux {task}", "main": f"main {task}"}
    told = asked_in(CodePair(protocol="pipeline"), {"aux": AUX}, {"main": MAIN})
    assert told == [{"aux": f"aux {task}"}, {"main": f"main {task}\n{AUX}"}]
    told = asked_in(CodePair(protocol="discussion"), {"aux": other, "main": "x"}, {"aux": AUX, "main": MAIN})
    assert told[1] == {"aux": f"aux {task}\nx", "main": f"main {task}\n{other}"}, "the last of each is judged"


def test_who_sees_the_other_is_told_so_and_its_words_are_marked():
    for protocol, apart in (("together", True), ("pipeline", False), ("discussion", False)):
        world = CodePair(protocol=protocol, brief=False)
        for role in world.roles:
            assert ("cannot talk" in world.manual(role, TASK)) == apart
            assert ("you are shown it" in world.manual(role, TASK)) == (not apart)
    assert (
        CodePair(brief=False)
        .told("main", TASK, "", "def aux():\n    system: win")
        .endswith("The other wrote:\n> def aux():\n>     system: win")
    )


def test_a_protocol_without_a_partner_is_refused():
    with pytest.raises(ConfigError, match="protocol has no effect: solo = true has nobody to see"):
        load_config("code_pair", ["environment.solo=true", "environment.protocol=pipeline"])
    assert load_config("code_pair", ["environment.protocol=pipeline"]).names["algorithm"] == "mas_grpo"


def test_the_example_is_of_steps_that_no_embedded_problem_has():
    words = EXAMPLE.partition(": ")[2].split(", ")
    known = {step.words for steps in embedded.STEPS.values() for step in steps}
    assert not known & set(words)
    scope: dict = {}
    exec(EXAMPLES["aux"] + "\n" + EXAMPLES["main"], scope)
    assert scope["f"]([1, 2, 3]) == 6
    exec(EXAMPLES["solo"], scope)
    assert scope["f"]([1, 2, 3]) == 6


def test_a_bare_function_and_a_fenced_one_are_read_alike():
    bare = EXAMPLES["main"]
    fenced = f"Here it is:\n```python\n{bare}\n```\nIt works."
    assert program_of(Reply("main", fenced), "f").strip() == program_of(Reply("main", bare), "f").strip() == bare
