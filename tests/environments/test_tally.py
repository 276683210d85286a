"""tally: its tasks, its parser, what it pays, and that a team of any size learns."""

from random import Random

import pytest

from coterie import load_config, train
from coterie.checks.conformance import check
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.scene import Reply, role_of
from coterie.run.loaded import headline
from coterie_worlds.tally import MOST, Tally, TallyRow, cut, number
from tests.toys import run

ROW = TallyRow("t", "train", cells="xx.x..x.xx")  # ten cells, six marks


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("3", 3),
        (" 12\n", 12),
        ("", -1),
        ("three", -1),
        ("3 x", -1),
        ("-1", -1),
        ("٣", -1),
        ("123", -1),
        ("1" * 9999, -1),
    ],
)
def test_a_number_is_a_reply_that_is_one(text, wanted):
    assert number(Reply("lead", text)) == wanted
    assert number(Reply("lead", text, "length")) == -1


def test_a_row_is_cut_as_evenly_as_can_be():
    assert cut("abcdefghij", 3) == ["abcd", "efg", "hij"]
    assert cut("ab", 5) == ["a", "b"]
    for length in range(1, 30):
        for count in range(1, MOST + 1):
            pieces = cut("x" * length, count)
            assert "".join(pieces) == "x" * length
            assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_tasks_belong_to_their_split():
    world = Tally()
    for split in SPLITS:
        tasks = [world.task(split, index) for index in range(40)]
        assert all(split_of(task.cells) == split for task in tasks)
        assert all(6 <= len(task.cells) <= 24 for task in tasks)
        assert tasks == [world.task(split, index) for index in range(40)]


def played(lead: str, *counters: str):
    """Rewards, ending and speakers of one episode."""
    cursor = Cursor(Tally(), ROW, 0)

    async def whole():
        while (point := await cursor.advance()) is not None:
            says = iter((lead,) if point.roles == ("lead",) else counters)
            cursor.answer({speaker: Reply(role_of(speaker), next(says)) for speaker in point.roles})

    run(whole())
    outcome = cursor.log.outcome
    assert outcome is not None
    return cursor.log.rewards(), outcome.reason


# pieces of 3: xx.x, ..x, .xx hold 3, 1 and 2
@pytest.mark.parametrize(
    ("lead", "counters", "rewards", "ending"),
    [
        ("3", ("3", "1", "2"), {"lead": -0.06, "counter": 0.0, "team": 1.0}, "solved"),
        ("3", ("3", "2", "1"), {"lead": -0.06, "counter": -2.0, "team": 1.0}, "solved"),
        ("3", ("3", "1", "x"), {"lead": -0.06, "counter": -1.0, "team": 0.0}, "the numbers do not add up"),
        ("1", ("6",), {"lead": -0.02, "counter": 0.0, "team": 1.0}, "solved"),
        ("7", (), {"lead": -1.0}, "the lead said no number of counters"),
        ("0", (), {"lead": -1.0}, "the lead said no number of counters"),
    ],
)
def test_what_an_episode_pays(lead, counters, rewards, ending):
    assert played(lead, *counters) == (pytest.approx(rewards), ending)


def test_it_keeps_the_contract():
    report = check(Tally(), tasks=2)
    assert report.ok, str(report)


def test_a_demonstration_is_a_number_and_may_be_naive():
    world, rng = Tally(naive=1.0), Random(0)
    assert {world.demonstrate("lead", ROW, "", rng) for _ in range(99)} == {"1", "2", "3", "4", "5", "6"}
    assert world.demonstrate("counter", ROW, "Count x: x . x x x x", rng) == "3"
    assert Tally(naive=0.0).demonstrate("counter", ROW, "Count x: x . x x x x", rng) == "5"


TWICE = ["loss.name=gspo", "optimizer.updates_per_step=2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "sets"),
    [
        pytest.param(0, [], id="0-clip"),
        *(
            pytest.param(seed, sets, id=f"{seed}-{name}", marks=pytest.mark.long)
            for seed, name, sets in [(1, "clip", []), (0, "gspo", TWICE), (1, "gspo", TWICE)]
        ),
    ],
)
def test_a_team_that_grows_and_shrinks_learns(tmp_path, seed, sets):
    found = headline(train(load_config("tally", [f"train.seed={seed}", *sets]), tmp_path / "run"))
    assert found.start.success < 0.4
    assert found.end.success > 0.95


def test_a_counter_that_says_no_number_solves_nothing():
    row = TallyRow("t", "train", cells="xx.x..x.xx")
    for said, solved in ((("4", "2"), False), (("3", "3"), True), (("7", "x"), False)):
        cursor = Cursor(Tally(), row, 0)
        run(cursor.advance())
        cursor.answer({"lead": Reply("lead", "2")})
        point = run(cursor.advance())
        cursor.answer({who: Reply("counter", text) for who, text in zip(point.roles, said, strict=True)})
        assert run(cursor.advance()) is None
        assert cursor.log.solved == (solved or said == ("4", "2"))
    cursor = Cursor(Tally(), row, 0)
    run(cursor.advance())
    cursor.answer({"lead": Reply("lead", "6")})
    assert len(run(cursor.advance()).roles) == 6
