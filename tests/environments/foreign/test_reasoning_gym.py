"""reasoning_gym: tasks of a package. Those tests that draw one need the extra `reasoning_gym`."""

import pytest

from coterie.checks.conformance import check
from coterie.config.resolve import load_config
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS
from coterie.kernel.scene import Reply
from coterie_worlds.foreign import reasoning_gym as adapter
from coterie_worlds.foreign.reasoning_gym import ReasoningGym, answer_of, may_be_scored, scored
from tests.toys import run

SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
HOSTILE = ("", "?", "nan", "x" * 2000, "[" * 500, "(" * 300 + "1", "0x", "٣", "True False", "9**9**9**", "\x00", "{}")


def needed() -> None:
    """Skips a test where the package is not installed."""
    pytest.importorskip("reasoning_gym", reason="needs the extra: pip install 'coterie[reasoning_gym]'")


def sums(**settings) -> ReasoningGym:
    """Sums of two numbers."""
    needed()
    return ReasoningGym(game="chain_sum", options=SUMS, **settings)


def played(world: ReasoningGym, proposal: Reply, verdict: Reply) -> Cursor:
    """An episode on the first test task with these replies."""
    cursor = Cursor(world, world.task("test", 0), 0)
    for role, reply in (("reasoner", proposal), ("checker", verdict)):
        assert list(run(cursor.advance()).asked.prompts) == [role]
        cursor.answer({role: reply})
    assert run(cursor.advance()) is None
    return cursor


def gold(world: ReasoningGym) -> str:
    """The answer to the first test task."""
    return world.demonstrate("checker", world.task("test", 0), "", None)


@pytest.mark.parametrize("dense", [True, False])
def test_the_team_is_paid_for_the_checkers_answer_and_the_reasoner_for_its_own(dense):
    world = sums(dense=dense)
    right = gold(world)
    for proposal, verdict, proposed, earned in (
        (right, "7777", 1.0, 0.0),
        ("7777", right, 0.0, 1.0),
        (right, f"Answer: {right}", 1.0, 1.0),
    ):
        log = played(world, Reply("reasoner", proposal), Reply("checker", verdict)).log
        assert log.rewards() == {"team": earned} | ({"reasoner": proposed} if dense else {})
        assert log.solved == bool(earned)


def test_alone_the_reasoners_answer_is_the_final_one():
    world = sums(solo=True)
    right = world.demonstrate("reasoner", world.task("test", 0), "", None)
    for said, earned in ((right, 1.0), ("Answer: 7777", 0.0)):
        cursor = Cursor(world, world.task("test", 0), 0)
        assert list(run(cursor.advance()).asked.prompts) == ["reasoner"]
        cursor.answer({"reasoner": Reply("reasoner", said)})
        assert run(cursor.advance()) is None
        assert (cursor.log.rewards(), cursor.log.solved) == ({"team": earned}, bool(earned))
    with pytest.raises(ConfigError, match="answer_tokens has no effect: solo = true has no checker"):
        load_config("reasoning_gym:chain_sum", ["environment.solo=true", "environment.answer_tokens=8"])


def test_the_reasoner_is_paid_for_its_own_reply_only_where_it_has_a_reward():
    needed()
    assert ReasoningGym(game="chain_sum").recommended()["algorithm"]["horizon"] == "point"
    assert ReasoningGym(game="chain_sum", dense=False).recommended() == {}


def test_replies_that_were_cut_cost_or_earn_nothing():
    world = sums()
    log = played(world, Reply("reasoner", "so we", "length"), Reply("checker", gold(world))).log
    assert log.rewards() == {"team": 1.0, "reasoner": -0.25}
    log = played(world, Reply("reasoner", "x"), Reply("checker", gold(world), "length")).log
    assert log.rewards() == {"team": 0.0, "reasoner": 0.0}


def test_a_list_of_answers_earns_nothing_unless_the_packages_partial_scores_are_asked_for():
    world = sums()
    several = " ".join([*map(str, range(-9, 200)), gold(world)])
    assert played(world, Reply("reasoner", several), Reply("checker", several)).log.rewards() == {
        "team": 0.0,
        "reasoner": 0.0,
    }
    partly = played(sums(partial=True), Reply("reasoner", "x"), Reply("checker", f"{gold(world)} or so")).log
    assert 0 < partly.rewards()["team"] < 1
    assert partly.rewards()["reasoner"] < partly.rewards()["team"]
    assert not partly.solved


@pytest.mark.parametrize(
    ("text", "finish", "answer"),
    [
        ("12", "stop", "12"),
        ("It is six plus six.\nAnswer: 12\n", "stop", "12"),
        ("answer : 3 Answer: 4", "stop", "4"),
        ("Answer:\n1 2\n3 4", "stop", "1 2\n3 4"),
        ("12", "length", ""),
        ("9" * 2001, "stop", ""),
    ],
)
def test_the_answer_stands_behind_the_last_answer_mark(text, finish, answer):
    assert answer_of(Reply("checker", text, finish)) == answer


@pytest.mark.parametrize(
    ("game", "answer", "may"),
    [
        ("countdown", "4*(85 - 1)/14", True),
        ("n_queens", "_ Q _\nQ _ _", True),
        ("string_insertion", "['A', 'B', 'E']", True),
        ("simple_integration", "7*X**9 - 2*sin(X) + C", True),
        ("countdown", "__import__('os').getpid()", False),
        ("countdown", "open('x', 'w')", False),
        ("intermediate_integration", "eval(chr(49))", False),
        ("binary_matrix", "[[0]]*2*10**8", False),
        ("string_insertion", "'a' * 10", False),
        ("countdown", "(3 + 4)*5", True),
        ("countdown", "9**9**9", False),
        ("countdown", "2**999", False),
        ("intermediate_integration", "(((((9)**9)**9)**9)**9)", False),
        ("intermediate_integration", "(X + 1)**2/2 + (X - 2)**3/3 + C", True),
        ("spiral_matrix", "[exit(1)]", False),
        ("chain_sum", "exit(1)", True),  # its scorer only compares
        ("complex_arithmetic", "nan", False),
        ("complex_arithmetic", "3 + Infinity", False),
    ],
)
def test_what_a_scorer_would_run_as_code_or_takes_for_any_number_is_not_scored(game, answer, may):
    assert may_be_scored(game, answer) == may


@pytest.mark.parametrize("game", ["chain_sum", "prime_factorization", "boxnet", "game_of_life", "polynomial_equations"])
def test_no_answer_raises_and_none_of_these_is_right(game):
    needed()
    for answer in HOSTILE:
        assert 0.0 <= scored(game, "{}", 5, answer) < 1.0, answer


def test_a_period_at_the_end_of_an_answer_does_no_harm():
    world = sums()
    place = world.task("test", 0).place
    assert scored("chain_sum", world.written_options(), place, f"{gold(world)}.") == 1.0


def test_splits_are_disjoint_and_held_out_tasks_do_not_repeat():
    world = sums(examples=0)
    parts = [[world.task(split, index).query for index in range(300)] for split in SPLITS]
    assert len({*parts[1], *parts[2]}) == 600
    assert not {*parts[0]} & {*parts[1], *parts[2]}


def test_tasks_do_not_depend_on_the_order_in_which_they_are_asked_for():
    world = sums()
    forward = [world.task("test", index) for index in range(5)]
    adapter.held_out.cache_clear()
    adapter.entry.cache_clear()
    adapter.entry.cache_clear()
    adapter.dataset.cache_clear()
    assert [world.task("test", index) for index in (4, 3, 2, 1, 0)] == forward[::-1]


def test_a_task_with_few_questions_says_how_many_there_are():
    needed()
    tiny = ReasoningGym(game="chain_sum", options={**SUMS, "max_digits": 1, "min_terms": 2})
    with pytest.raises(ConfigError, match=r"has only \d+ different test tasks with these options; make it harder"):
        tiny.task("test", 1000)


def test_examples_are_training_tasks_and_every_other_proposal_in_them_is_wrong():
    world = sums(examples=2)
    chat = world.for_checker(world.task("test", 0), "Answer: 5")
    assert [message["role"] for message in chat] == ["user", "assistant", "user", "assistant", "user"]
    first, second = chat[1]["content"], chat[3]["content"]
    assert first != second
    assert f"A student wrote: Answer: {first}\n" in chat[0]["content"]
    assert f"A student wrote: Answer: {first}\n" in chat[2]["content"]
    assert len(world.for_reasoner(world.task("test", 0))) == 5
    assert len(sums(examples=0).for_reasoner(world.task("test", 0))) == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "game: name a task, as in reasoning_gym:chain_sum"),
        ({"game": "game_of_life_halting"}, "cannot be played: its scorer takes every text for True"),
        ({"game": "chain_sum", "options": {"seed": 3}}, "options: seed cannot be set"),
    ],
)
def test_what_cannot_be_played_is_told_in_a_line(settings, says):
    with pytest.raises(ValueError, match=says):
        ReasoningGym(**settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"game": "chain_sun"}, "reasoning-gym has no 'chain_sun'; did you mean 'chain_sum'"),
        ({"game": "chain_sum", "options": {"max_term": 3}}, "chain_sum has no 'max_term'; did you mean 'max_terms'"),
        ({"game": "chain_sum", "options": {"max_terms": 1}}, "options do not fit chain_sum: .*max_terms"),
        ({"game": "chain_sum", "options": {"max_terms": "x"}}, "options do not fit chain_sum"),
    ],
)
def test_unknown_names_and_options_that_do_not_fit_are_refused_before_play(settings, says):
    needed()
    with pytest.raises(ConfigError, match=says):
        ReasoningGym(**settings).ready()


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'coterie\\[reasoning_gym\\]'"):
        ReasoningGym(game="chain_sum").ready()
    adapter.entry.cache_clear()
    adapter.dataset.cache_clear()
    with pytest.raises(ConfigError, match="pip install 'coterie\\[reasoning_gym\\]'"):
        load_config("reasoning_gym:chain_sum")


@pytest.mark.slow
def test_it_keeps_the_contract():
    report = check(sums(), tasks=2)
    assert report.ok, report


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves files open
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_packages_own_answers_are_right_in_every_task_that_is_played():
    needed()
    from reasoning_gym.factory import DATASETS  # pyright: ignore[reportMissingImports]

    assert adapter.REFUSED.keys() <= DATASETS.keys()
    assert set(adapter.EVALUATED) <= DATASETS.keys()
    for game in sorted(DATASETS.keys() - adapter.REFUSED.keys() - {"knight_swap"}):  # a minute a data set
        world = ReasoningGym(game=game)
        world.ready()
        answer = adapter.entry(game, "{}", 1)["answer"]
        if answer is not None and len(str(answer)) <= adapter.LONGEST_ANSWER:
            assert may_be_scored(game, str(answer)), game
            assert scored(game, "{}", 1, str(answer)) == 1.0, game
