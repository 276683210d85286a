"""sokoban: levels, the search, what a position is worth, and the caps that keep junk from solving it."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.episode import Rewarded
from coterie.kernel.scene import Reply
from coterie_worlds.games.boxes import (
    NotALevel,
    Position,
    board,
    canonical,
    drawn_board,
    picture,
    search,
    step,
)
from coterie_worlds.games.sokoban import (
    SLACK,
    TIMES,
    TOO_LONG,
    UNKNOWN,
    Level,
    Sokoban,
    cap,
    headlong,
    map_view,
    position,
    solution_moves,
    walk,
    worth,
)
from tests.toys import run

BOXOBAN = Path(__file__).parents[4] / "shared" / "data" / "boxoban_unfiltered_test.txt"
#  b2 c2 d2 e2      @ b2, $ c3, . e3
LEVEL = "######\n#@   #\n# $ .#\n#    #\n#    #\n######"
CORNER = "######\n#@   #\n#$  .#\n#    #\n#    #\n######"


def says(text: str, finish="stop") -> Reply:
    return Reply("planner", text, finish)


def second_simulator(text: str, path: list[tuple[int, int]]) -> bool:
    """Plays cells on the picture's own signs, sign by sign; whether every box ends on a goal."""
    rows = [list(line) for line in text.split("\n")]
    ((row, column),) = [(r, c) for r, line in enumerate(rows) for c, sign in enumerate(line) if sign in "@+"]
    rows[row][column] = "." if rows[row][column] == "+" else " "
    for there in path:
        down, right = there[0] - row, there[1] - column
        assert abs(down) + abs(right) == 1
        assert rows[there[0]][there[1]] != "#"
        if rows[there[0]][there[1]] in "$*":
            beyond = there[0] + down, there[1] + right
            assert rows[beyond[0]][beyond[1]] in " ."
            rows[beyond[0]][beyond[1]] = "*" if rows[beyond[0]][beyond[1]] == "." else "$"
            rows[there[0]][there[1]] = "." if rows[there[0]][there[1]] == "*" else " "
        row, column = there
    return not any("$" in line for line in rows)


@pytest.mark.slow
@pytest.mark.skipif(not BOXOBAN.exists(), reason="no shared data")
def test_every_boxoban_level_is_read_and_solved():
    levels = ["\n".join(part.strip("\n").split("\n")[1:]) for part in BOXOBAN.read_text().split(";")[1:]]
    assert len(levels) == 1000
    solved = 0
    for text in levels:
        it = board(text)
        assert len(it.goals) == 4
        path = search(it).solve(it.start)
        solved += path is not None and second_simulator(text, path)
    assert solved >= 950
    assert len({canonical(text) for text in levels[:200]}) == 200


@pytest.mark.slow
@pytest.mark.skipif(not BOXOBAN.exists(), reason="no shared data")
def test_boxoban_is_a_data_set_of_three_splits():
    world = Sokoban(data=str(BOXOBAN))
    sizes = {split: world.count(split) or 0 for split in SPLITS}
    assert sum(sizes.values()) + len(world.rows().left) == 1000
    assert sizes["train"] > 700
    names = {canonical(world.task(split, index).picture) for split in SPLITS for index in range(sizes[split])}
    assert len(names) == sum(sizes.values())
    assert "1000 rows" in world.rows().page()
    other, told = Sokoban().tested_on(str(BOXOBAN))
    assert other.count("test") == 1000 - len(world.rows().left)
    assert not any("trained on" in line for line in told)


def test_levels_of_a_file_are_played_and_those_that_nobody_can_solve_are_not(tmp_path):
    file = tmp_path / "levels.txt"
    turned = "\n".join(line[::-1] for line in LEVEL.split("\n"))
    bad = (CORNER, LEVEL.replace("$", " ").replace(".", "*"), "#####\n#@$ #\n#####")
    drawn = [Sokoban().task("train", index).picture for index in range(20)]
    file.write_text("; title\n" + "\n\n".join((LEVEL, turned, *drawn, *bad)) + "\n")
    world = Sokoban(data=str(file))
    reasons = Counter(reason for _, reason in world.rows().lost[str(file)])
    assert reasons == {
        "with every box on a goal": 1, "with a box that is lost": 1,
        "with not a problem: it has 1 boxes and 0 goals; as many of each, 1 to 8": 1,
    }  # fmt: skip
    kept = [one for its in world.rows().splits.values() for one in its]
    assert len(kept) == 1 + len(set(map(canonical, drawn)))  # a mirror image is the same level
    level = next(one for one in kept if one.picture == LEVEL)
    assert world.move(level, world.begin(level), says("go b3 c3 d3"))[0].boxes == board(LEVEL).goals
    assert world.inert().keys() >= {"size", "boxes", "walls", "min_pushes"}
    assert world.recommended() == {}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"#" * 70_000, "row 1: longer than"),
        (b"######\n\xff", "not UTF-8"),
        (b"\n;\n", "has no rows"),
    ],
)
def test_files_of_levels_that_cannot_be_read(tmp_path, content, wrong):
    (tmp_path / "levels.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=wrong):
        Sokoban(data=str(tmp_path / "levels.txt")).rows()


def test_a_board_of_many_positions_is_not_searched_to_play_on_it(monkeypatch):
    """Of some a search takes minutes, and play waits for it."""
    wide = [f"#  {'$ .' if row in (2, 4, 6) else '   '}      #" for row in range(9)]
    level = "\n".join(["#" * 14, *(row.ljust(13)[:13] + "#" for row in wide), "#@           #", "#" * 14])
    assert not search(board(level)).exact
    monkeypatch.setattr("coterie_worlds.games.boxes.Search.solve", None)
    assert cap(level) == UNKNOWN
    after, legal = Sokoban().move(Level("t", "train", picture=level), board(level).start, says("go c11 d11"))
    assert legal
    assert after.moved == 2


def test_moves_of_all_turns_count_against_the_cap():
    world, task = Sokoban(), Level("t", "train", picture=LEVEL)
    there_and_back = says("go c2 b2 c2 b2 c2 b2 c2 b2")
    at, _ = world.move(task, world.begin(task), there_and_back)
    at, legal = world.move(task, at, there_and_back)
    assert (at.moved, legal, world.ended(task, at)) == (16, True, "")
    at, legal = world.move(task, at, there_and_back)
    assert (legal, world.ended(task, at)) == (False, TOO_LONG)


def test_a_level_by_hand():
    it = board(LEVEL)
    assert it.start == Position((1, 1), frozenset({(2, 2)}))
    assert it.goals == {(2, 4)}
    # to a3 (row 2, column 1), then two pushes to the right: 1 + 2 moves, 2 pushes
    found = search(it)
    assert found.left(it.start) == 3
    assert found.pushes_left(found.mask(it.start.boxes)) == 2
    assert found.solve(it.start, weight=1) == [(2, 1), (2, 2), (2, 3)]
    assert solution_moves(LEVEL) == 3
    assert cap(LEVEL) == TIMES * 3 + SLACK == 19
    assert worth(LEVEL, it.start) == 0
    assert worth(LEVEL, Position((2, 2), frozenset({(2, 3)}))) == pytest.approx(2 / 3)
    assert worth(LEVEL, Position((2, 3), frozenset({(2, 4)}))) == 1


def test_a_box_at_a_wall_without_a_goal_is_lost():
    it = board(CORNER)
    assert search(it).left(it.start) is None
    assert search(it).solve(it.start) is None
    assert Sokoban().ended(Level("t", "train", picture=LEVEL), Position((3, 1), frozenset({(2, 1)}))) == "deadlock"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("#####\n#@$ #\n#####", "1 boxes and 0 goals"),
        ("#####\n# $.#\n#####", "0 players"),
        ("#####\n#@$.\n#####", "not closed"),
        ("#####\n#@#$#\n#.###\n#####", "out of reach"),
        ("#####\n#@$?#\n#####", "none of"),
        ("#" * 30, "larger"),
    ],
)
def test_what_is_no_level_says_why(text, wrong):
    with pytest.raises(NotALevel, match=wrong):
        board(text)


def test_exact_distances_agree_with_the_search_and_with_every_move():
    rng = Random(0)
    for _ in range(60):
        it = drawn_board(6, rng.randint(1, 2), 0.15, rng)
        if it is None:
            continue
        text, found = picture(it, it.start), search(it)
        assert found.exact
        left = found.left(it.start)
        path = found.solve(it.start, weight=1)
        assert (left is None) == (path is None)
        if left is None:
            continue
        assert second_simulator(text, path)
        assert second_simulator(text, found.shortest(it.start, rng))
        assert left <= len(path)
        around = [step(it, it.start, cell) for cell in it.floor]
        nexts = [value for after in around if after is not None and (value := found.left(after)) is not None]
        assert left == 0 or min(nexts) == left - 1


def test_a_picture_is_read_as_it_was_written_and_its_eight_images_are_one_level():
    rng = Random(1)
    for _ in range(30):
        level = drawn_board(7, 2, 0.2, rng)
        if level is None:
            continue
        text = picture(level, level.start)
        it = board(text)
        assert (it.size, it.floor, it.goals, it.start) == (level.size, level.floor, level.goals, level.start)
        assert picture(it, it.start) == text
        rows = text.split("\n")
        turned = "\n".join("".join(line) for line in zip(*rows, strict=True))
        mirrored = "\n".join(line[::-1] for line in rows)
        assert canonical(text) == canonical(turned) == canonical(mirrored)
        moved = picture(it, it.start._replace(player=next(iter(it.floor - it.start.boxes - {it.start.player}))))
        assert canonical(moved) != canonical(text)


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_tasks_take_pushes_and_belong_to_their_split(split):
    world = Sokoban()
    for index in range(40):
        task = world.task(split, index)
        it = board(task.picture)
        found = search(it)
        assert (found.pushes_left(found.mask(it.start.boxes)) or 0) >= world.min_pushes
        assert found.left(it.start)
        assert split_of(canonical(task.picture)) == split
        assert task == world.task(split, index)


@pytest.mark.slow
def test_levels_that_cannot_be_drawn_say_what_to_change():
    with pytest.raises(ValueError, match="lower min_pushes"):
        Sokoban(size=5, min_pushes=30).task("train", 0)


@pytest.mark.parametrize(
    ("text", "finish", "end", "legal"),
    [
        ("go b3 c3 d3", "stop", ((2, 3), (2, 4)), True),
        ("go b3 c3 d3 c3", "stop", ((2, 2), (2, 4)), True),  # where the walk ends counts
        ("go b3 c3 d3 e3", "stop", ((2, 3), (2, 4)), False),  # the wall is behind it
        ("go c2 c3", "stop", ((2, 2), (3, 2)), True),  # pushes down
        ("go a2", "stop", ((1, 1), (2, 2)), False),
        ("go c3", "stop", ((1, 1), (2, 2)), False),  # no neighbour
        ("go b3 c3 d3", "length", ((1, 1), (2, 2)), False),
        ("", "stop", ((1, 1), (2, 2)), False),
        ("go " + "b3 b2 " * 5, "stop", ((1, 1), (2, 2)), False),  # ten moves are too many, and none is played
    ],
)
def test_walks_by_hand(text, finish, end, legal):
    world, task = Sokoban(max_moves=8), Level("t", "train", picture=LEVEL)
    after, might = world.move(task, world.begin(task), says(text, finish))
    assert (after.player, *after.boxes, might) == (*end, legal)


def test_more_moves_than_a_level_can_need_are_not_played_and_lose():
    """250 moves at random would solve a third of the easy levels."""
    world, task = Sokoban(max_moves=400), Level("t", "train", picture=LEVEL)
    rng = Random(0)
    for _ in range(50):
        names = [f"{rng.choice('bcde')}{rng.randint(2, 5)}" for _ in range(250)]
        after, legal = world.move(task, world.begin(task), says(" ".join(["go", *names])))
        assert (after.player, after.boxes, legal) == ((1, 1), frozenset({(2, 2)}), False)
        assert world.ended(task, after) == TOO_LONG
    solving = "go b3 " + "b2 b3 " * 8 + "c3 d3"
    after, _ = world.move(task, world.begin(task), says(solving))  # nineteen moves are as many as may be
    assert world.ended(task, after) == "solved"
    longer, _ = world.move(task, world.begin(task), says("go b3 " + "b2 b3 " * 9 + "c3 d3"))
    assert world.ended(task, longer) == TOO_LONG


def test_prompts_by_hand():
    it = board(LEVEL)
    assert map_view(LEVEL, it.start) == (
        " b2 c2 d2 e2\n b3 c3 d3 e3\n b4 c4 d4 e4\n b5 c5 d5 e5\nhere b2 box c3 goal e3"
    )
    near = " # # #\n # b2 c2\n # b3 c3\nhere b2 box c3 goal e3"
    assert map_view(LEVEL, it.start, near=True) == near
    world, task = Sokoban(), Level("t", "train", picture=LEVEL)
    assert world.planner_sees(task, it.start, says("go\nb3")) == f"{near}\nproposal: go b3"
    assert position(task, f"box\n{near}") == it.start


def test_demonstrators_solve_or_walk_headlong():
    task = Level("t", "train", picture=LEVEL)
    it = board(LEVEL)
    seen = map_view(LEVEL, it.start)
    assert Sokoban(naive=0.0).demonstrate("proposer", task, seen, Random(0)) == "go b3 c3 d3"
    assert headlong(it, it.start)[:2] == [(1, 2), (2, 2)]
    blind = Sokoban(naive=1.0).demonstrate("proposer", task, seen, Random(0))
    assert walk(LEVEL, it.start, blind.split()[1:])[0].boxes == {(4, 2)}
    takes = Sokoban(naive=0.0, view="full")
    assert takes.demonstrate("planner", task, f"{seen}\nproposal: go b3 c3", Random(0)) == "go b3 c3"
    assert takes.demonstrate("planner", task, f"{seen}\nproposal: go c2", Random(0)) == "go b3 c3 d3"


def test_lessons_are_of_train_levels_from_many_places():
    world, starts = Sokoban(naive=0.0), set()
    for index in range(20):
        task = world.task("train", index)
        for lesson in world.lessons(task, Random(index)):
            at = position(task, lesson.prompt)
            assert split_of(canonical(picture(board(task.picture), at))) == "train"
            starts.add(at)
            if lesson.role == "proposer":
                end, legal = walk(task.picture, at, lesson.reply.split()[1:])
                assert legal
                before, after = (search(board(task.picture)).left(its) for its in (at, end))
                assert before is not None
                assert after == max(0, before - world.max_moves)
    assert len(starts) > 60


#  ##########
#  #@       #      four boxes, and so much floor that not all positions are looked at
HALL = "\n".join(
    ("##########", "#@$$  .. #", *["#        #"] * 3, "#  $   $ #", "#  .   . #", *["#        #"] * 2, "##########")
)


def test_a_box_is_not_pushed_into_another():
    it = board(HALL)
    assert step(it, it.start, (1, 2)) is None
    assert step(it, it.start, (2, 1)).player == (2, 1)
    pushed = step(it, Position((4, 3), it.start.boxes), (5, 3))
    assert pushed.boxes == it.start.boxes - {(5, 3)} | {(6, 3)}


def test_a_box_has_to_be_brought_away_from_a_wall_by_a_player_behind_it():
    found = search(board(CORNER))
    assert found.pushes_left(found.mask(frozenset({(2, 1)}))) is None  # along the wall there is no goal
    assert found.pushes_left(found.mask(frozenset({(2, 2)}))) == 2


def test_boxes_that_hold_each_other_at_a_wall_are_lost_unless_both_are_on_goals():
    it = board(HALL)
    found = search(it)
    assert not found.exact

    def held(*cells):
        others = frozenset({(5, 3), (5, 7)})
        boxes = found.mask(frozenset(cells) | others)
        return found._frozen(found.at(cells[0]), boxes), found.left(Position((8, 8), frozenset(cells) | others))

    assert held((1, 2), (1, 3)) == ("off", None)
    assert held((1, 6), (1, 5)) == ("off", None)  # one of the two is on a goal
    assert held((1, 6), (1, 7)) == ("on", 2)  # one push for each of the others
    assert held((1, 2), (1, 4))[0] == ""
    assert search(it).solve(it.start._replace(boxes=frozenset({(1, 2), (1, 3), (5, 3), (5, 7)}))) is None


def test_a_turn_pays_the_proposer_for_what_it_names_and_the_planner_for_what_it_changes():
    cursor = Cursor(Sokoban(), Level("t", "train", picture=LEVEL), 0)
    for role, text in (("proposer", "go b3"), ("planner", "go b3 c3 z9"), ("proposer", "go b9"), ("planner", "go d3")):
        point = run(cursor.advance())
        assert point.roles == (role,)
        cursor.answer({role: Reply(role, text)})
    assert run(cursor.advance()) is None
    assert [(event.role, event.value) for event in cursor.events if isinstance(event, Rewarded)] == [
        ("proposer", pytest.approx(1 / 3 - 1)),
        ("planner", pytest.approx(2 / 3 - 0.2)),
        (None, 0.0),
        ("proposer", pytest.approx(2 / 3 - 1 - 0.2)),
        ("planner", pytest.approx(1 / 3)),
        (None, 1.0),
    ]


def test_a_search_ends_after_so_many_positions():
    it = board(LEVEL)
    assert search(it).solve(it.start, nodes=1) is None
    assert search(it).solve(it.start, nodes=50) is not None


def test_a_position_that_is_farther_than_the_start_is_worth_nothing():
    far = Position((4, 4), frozenset({(2, 2)}))
    assert (search(board(LEVEL)).left(far) or 0) > 3
    assert worth(LEVEL, far) == 0
    assert UNKNOWN == 400


def test_levels_with_as_few_pushes_as_may_be_are_drawn_too():
    fewest = {search(it).pushes_left(search(it).mask(it.start.boxes)) for index in range(60)
              for it in (board(Sokoban().task("train", index).picture),)}  # fmt: skip
    assert min(one or 0 for one in fewest) == 3
