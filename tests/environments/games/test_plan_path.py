"""plan_path: its tasks, its parser, and that its rewards cannot be farmed."""

import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.episode import Asked, Rewarded
from coterie.kernel.scene import Reply
from coterie_worlds.games.plan_path import (
    LESSONS,
    PLANNER_LESSONS,
    Maze,
    PlanPath,
    cells_by_name,
    content,
    distances,
    full_view,
    in_words,
    map_view,
    near_view,
    parse_route,
    progress,
    shortest,
    spell,
    straight,
    task_distances,
    walk,
    walk_of,
)
from tests.toys import run

OPEN = Maze("t", "train", size=4, walls=frozenset(), start=(0, 0), goal=(3, 3))
#  a1 b1 #  d1
#  a2 #  c2 d2
#  a3 b3 c3 #
#  #  b4 c4 d4
WALLED = Maze("w", "train", size=4, walls=frozenset({(0, 2), (1, 1), (2, 3), (3, 0)}), start=(0, 0), goal=(3, 3))


def says(text: str, finish="stop") -> Reply:
    return Reply("planner", text, finish)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 6, 10])
@pytest.mark.parametrize("split", SPLITS)
def test_every_task_has_a_goal_that_can_be_reached_and_is_not_near(size, split):
    environment = PlanPath(size=size)
    far = set()
    for index in range(40):
        task = environment.task(split, index)
        far.add(task_distances(task)[task.start])
        assert (task.id, task.split) == (f"{split}-{index}", split)
        assert task == environment.task(split, index)
        assert split_of(content(task)) == split
    assert min(far) == environment.min_distance


@pytest.mark.slow
def test_splits_are_disjoint_by_content():
    seen = [{repr(content(PlanPath().task(split, index))) for index in range(400)} for split in SPLITS]
    assert sum(map(len, seen)) == len(set.union(*seen))
    assert all(len(of_split) > 390 for of_split in seen)


def test_a_grid_that_cannot_be_made_says_what_to_change():
    with pytest.raises(ValueError, match="lower min_distance"):
        PlanPath(size=3, min_distance=30).task("train", 0)


def test_views_by_hand():
    assert map_view(WALLED, (0, 1)) == " a1 b1 # d1\n a2 # c2 d2\n a3 b3 c3 #\n # b4 c4 d4\nhere b1 goal d4"
    near = near_view(WALLED, (0, 1), says(" go a1\nevil "))
    assert near == " # # #\n a1 b1 #\n a2 # c2\nhere b1 goal d4\nproposal: go a1 evil"
    assert near_view(WALLED, (3, 3), says("")).startswith(" c3 # #\n c4 d4 #\n # # #\nhere d4 goal d4\n")
    assert full_view(WALLED, (0, 1), says("x")).endswith("here b1 goal d4\nproposal: x")


def test_the_planner_of_the_split_view_sees_nothing_far_away():
    task = PlanPath().task("train", 3)
    seen = near_view(task, task.start, says(""))
    far = [cell for cell in task_distances(task) if max(abs(cell[0] - task.start[0]), abs(cell[1] - task.start[1])) > 1]
    names = {f" {chr(97 + column)}{row + 1}" for row, column in far if (row, column) != task.goal}
    assert not any(f"{name} " in seen or f"{name}\n" in seen for name in names)


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("go a1 b1", ["a1", "b1"]),
        ("go", []),
        ("think\ngo a1\ngo b2  c3 ", ["b2", "c3"]),
        ("", None),
        ("gone a1", None),
        ("let us go a1", None),
        ("go a1\nthank you", ["a1"]),
        ("  go\ta1", ["a1"]),
        ("GO a1", None),
        ("go " + "a1 " * 9999, ["a1"] * 9999),
    ],
)
def test_the_last_line_that_begins_with_go_is_the_route(text, route):
    assert parse_route(text) == route


@pytest.mark.parametrize(
    ("text", "finish", "end", "legal"),
    [
        ("go a2 a3 b3", "stop", (2, 1), True),
        ("go a2 b2 b3", "stop", (1, 0), False),  # b2 is a wall: the walk ends before it
        ("go c3", "stop", (0, 0), False),  # no neighbour
        ("go a0", "stop", (0, 0), False),  # no such cell
        ("go", "stop", (0, 0), True),
        ("nonsense", "stop", (0, 0), False),
        ("go a2 a3 b3", "length", (0, 0), False),  # cut: nothing of it counts
        ("go a2 a1 a2 a1 a2 a1 a2 a1 a2", "stop", (0, 0), False),  # nine moves: the ninth is one too many
        ("go a2 a3 b3 b4 c4 d4 d1 d1", "stop", (3, 3), True),  # the walk ends at the goal
    ],
)
def test_walks_by_hand(text, finish, end, legal):
    assert walk(WALLED, (0, 0), says(text, finish), 8) == (end, legal)


# d(a1) = 6 in the open 4 x 4 grid. To b1: d = 5, progress 1/6, local -5/6. Back from b1 to a1: -1/5 - 1 = -1.2.
# An illegal move costs 0.2 more.
def test_progress_by_hand():
    assert progress(OPEN, (0, 0), (0, 1), True, 8) == pytest.approx(-5 / 6)
    assert progress(OPEN, (0, 1), (0, 0), True, 8) == pytest.approx(-1.2)
    assert progress(OPEN, (0, 0), (0, 0), False, 8) == pytest.approx(-1.2)
    assert progress(OPEN, (0, 0), (3, 3), True, 8) == 0
    # with 4 moves a reply, 4 nearer is all that can be made: 4/4 - 1 = 0
    assert progress(OPEN, (0, 0), (2, 2), True, 4) == 0
    # one step from the goal, 4 steps away from it: -4/1, held at -1: -2
    assert progress(OPEN, (3, 2), (0, 1), True, 8) == -2


MOVES = [f"{column}{row}" for column in "abcdef" for row in range(1, 7)]
replies = st.one_of(
    st.lists(st.sampled_from(MOVES), max_size=12).map(lambda words: " ".join(["go", *words])),
    st.text(max_size=30),
    st.sampled_from(["here", "shortest", "back and forth"]),
)


def episode(environment: PlanPath, task: Maze, hands) -> tuple[float, bool]:
    cursor = Cursor(environment, task, 0)

    async def go():
        while (point := await cursor.advance()) is not None:
            (role,) = point.roles
            cursor.answer({role: hands(role, point.asked.prompts[role])})

    run(go())
    return sum(cursor.log.rewards().values()), cursor.log.solved


def perfect(environment, task):
    rng = Random(0)
    return lambda role, prompt: Reply(
        role, environment.model_copy(update={"naive": 0.0}).demonstrate(role, task, prompt, rng)
    )


@pytest.mark.slow
@pytest.mark.parametrize("environment", [PlanPath(), PlanPath(view="full"), PlanPath(solo=True), PlanPath(max_moves=2)])
@given(index=st.integers(0, 30), said=st.lists(replies, min_size=1, max_size=8), mix=st.integers(0, 255))
def test_no_behaviour_over_an_episode_earns_more_than_shortest_paths(environment, index, said, mix):
    """D26: the published reward pays for walking to and fro."""
    task = environment.task("train", index)
    expert = perfect(environment, task)
    best, solved = episode(environment, task, expert)
    assert solved or environment.max_moves == 2
    turn = iter(range(10_000))

    def hands(role, prompt):
        at = next(turn)
        if mix >> (at % 8) & 1:
            return expert(role, prompt)
        text = said[at % len(said)]
        if text == "shortest":
            text = spell(shortest(task, task.start, Random(at)))
        if text == "back and forth":
            here = prompt.split("here ")[1].split()[0]
            text = f"go {here} {here}"
        return Reply(role, text, "length" if text == "here" else "stop")

    earned, _ = episode(environment, task, hands)
    assert earned <= best + 1e-9
    assert best <= 1.0


def test_a_turn_pays_each_role_for_the_walk_that_it_says():
    cursor = Cursor(PlanPath(max_turns=2, max_tokens=9), OPEN, 0)
    said = (("proposer", "go a2 a3"), ("planner", "go b1 z9"))  # two nearer; one nearer, and no such cell
    then = (("proposer", "go z9"), ("planner", "go b2 b3"))
    for role, text in (*said, *then):
        point = run(cursor.advance())
        assert (point.roles, point.asked.max_tokens) == ((role,), 9)
        cursor.answer({role: Reply(role, text)})
    run(cursor.advance())
    earned = [(event.role, event.value) for event in cursor.events if isinstance(event, Rewarded)]
    assert earned == [
        ("proposer", pytest.approx(2 / 6 - 1)),
        ("planner", pytest.approx(1 / 6 - 1 - 0.2)),
        (None, 0.0),
        ("proposer", pytest.approx(0 - 1 - 0.2)),
        ("planner", pytest.approx(2 / 5 - 1)),
        (None, 0.0),
    ]


@pytest.mark.parametrize(("view", "sees"), [("split", near_view), ("full", full_view)])
def test_the_planner_is_shown_its_view_and_the_proposal(view, sees):
    cursor = Cursor(PlanPath(size=4, view=view), WALLED, 0)
    point = run(cursor.advance())
    assert point.asked.prompts == {"proposer": map_view(WALLED, (0, 0))}
    cursor.answer({"proposer": Reply("proposer", "go a2")})
    assert run(cursor.advance()).asked.prompts == {"planner": sees(WALLED, (0, 0), says("go a2"))}


def test_an_empty_or_cut_reply_never_beats_honest_failure():
    honest = progress(WALLED, (0, 0), *walk(WALLED, (0, 0), says("go"), 8), 8)
    for text, finish in [("", "stop"), ("go a2 a3", "length"), ("", "length"), ("\x00", "stop")]:
        assert progress(WALLED, (0, 0), *walk(WALLED, (0, 0), says(text, finish), 8), 8) < honest


def test_the_prompt_shows_the_live_position():
    """D27: the published prompt showed the start for ever."""
    cursor = Cursor(PlanPath(max_turns=2), OPEN, 0)

    async def go():
        prompts = []
        while (point := await cursor.advance()) is not None:
            prompts.append(next(iter(point.asked.prompts.values())))
            cursor.answer({role: Reply(role, "go a2 b2") for role in point.roles})
        return prompts

    prompts = run(go())
    assert all("here a1 goal d4" in prompt for prompt in prompts[:2])
    assert all("here b2 goal d4" in prompt for prompt in prompts[2:])


def test_running_out_of_turns_is_not_success():
    """D25: the published task counted a reached step limit as solved."""
    cursor = Cursor(PlanPath(max_turns=3), OPEN, 0)

    async def go():
        while (point := await cursor.advance()) is not None:
            cursor.answer({role: Reply(role, "go") for role in point.roles})

    run(go())
    assert not cursor.log.solved
    assert cursor.log.outcome.reason == "turn limit"
    assert cursor.log.turns == 3


def test_no_prompt_is_itself_a_valid_answer():
    for index in range(50):
        task = PlanPath().task("train", index)
        for prompt in (map_view(task, task.start), near_view(task, task.start, says(""))):
            assert parse_route(prompt) is None


def test_lessons_are_of_train_tasks_only_and_from_many_places():
    environment = PlanPath()
    starts = set()
    for index in range(60):
        task = environment.task("train", index)
        for lesson in environment.lessons(task, Random(index)):
            words = lesson.prompt.split("here ")[1].split()
            here, goal = ((int(word[1:]) - 1, ord(word[0]) - 97) for word in (words[0], words[2]))
            assert split_of((task.size, sorted(task.walls), here, goal)) == "train"
            starts.add((here, goal) == (task.start, task.goal))
    assert False in starts


def drawn(seed: int, random: float) -> Random:
    """Chance whose share is always the same; what it picks is chance all the same."""
    rng = Random(seed)
    rng.random = lambda: random
    return rng


@pytest.mark.parametrize("longer", [False, True])
def test_a_lesson_is_of_a_pair_of_cells_and_half_of_them_of_the_longer_of_two(longer):
    environment, kept, switched = PlanPath(naive=0.0), 0, 0
    for index in range(60):
        task = environment.task("train", index)
        free = [(row, column) for row in range(6) for column in range(6) if (row, column) not in task.walls]
        rng = Random(index)
        mazes = [replace(task, start=start, goal=goal) for start, goal in (rng.sample(free, 2), rng.sample(free, 2))]
        far = [task_distances(maze).get(maze.start, 0) for maze in mazes]
        maze = mazes[far[1] > far[0]] if longer else mazes[0]
        if maze.start not in task_distances(maze) or split_of(content(maze)) != "train":
            continue
        kept, switched = kept + 1, switched + (maze is mazes[1])
        lesson = next(environment.lessons(task, drawn(index, 0.4 if longer else 0.6)))
        assert (lesson.role, lesson.prompt) == ("proposer", map_view(maze, maze.start))
        end, legal = walk(maze, maze.start, Reply("proposer", lesson.reply), 8)
        assert legal
        assert task_distances(maze)[end] == max(0, task_distances(maze)[maze.start] - 8)
    assert kept > 30
    assert (switched > 5) == longer


def test_a_pair_of_cells_that_is_no_train_task_is_passed_over():
    environment = PlanPath(solo=True)
    counts = [len(list(environment.lessons(environment.task("train", at), Random(at)))) for at in range(40)]
    assert max(counts) <= LESSONS
    assert sum(counts) / 40 > LESSONS / 2


@pytest.mark.slow
def test_the_planner_has_its_share_of_lessons_in_both_views():
    environment = PlanPath(naive=0.0)
    lessons = [one for at in range(200) for one in environment.lessons(environment.task("train", at), Random(at))]
    own = [lesson for lesson in lessons if lesson.role == "planner"]
    assert len(own) / (len(lessons) - len(own)) == pytest.approx(PLANNER_LESSONS, abs=0.05)
    lines = [lesson.prompt.count("\n") for lesson in own]  # of three rows or of six, then where one is, the proposal
    assert set(lines) == {4, 7}
    assert lines.count(4) / len(lines) == pytest.approx(0.5, abs=0.1)
    taken = [lesson.reply == lesson.prompt.split("proposal: ")[1] for lesson in own]
    assert 0.5 < sum(taken) / len(taken) < 1
    assert {lesson.role for lesson in PlanPath(solo=True).lessons(environment.task("train", 0), Random(0))} == {
        "planner"
    }


def test_half_of_the_proposals_of_lessons_ignore_the_walls():
    environment = PlanPath(naive=0.0, view="full")
    blind = Counter()
    for at in range(200):
        task = environment.task("train", at)
        for lesson in environment.lessons(task, Random(at)):
            if lesson.role == "planner":
                here, goal = WHERE.search(lesson.prompt).groups()
                maze = replace(task, start=cells_by_name(6)[here], goal=cells_by_name(6)[goal])
                blind[walk(maze, maze.start, Reply("proposer", lesson.prompt.split("proposal: ")[1]), 8)[1]] += 1
    assert 0.1 < blind[False] / blind.total() < 0.5  # of the blind half, some meet no wall


WHERE = re.compile(r"here (\S+) goal (\S+)")


def test_the_planner_takes_what_it_can_see_to_be_good():
    """In the split view: a proposal whose first step is open; in the full view: one that leads nearer."""
    rng = Random(0)
    taken = {"split": ("go a2", "go b1"), "full": ("go a2",)}  # b1 is a dead end; b2 is a wall
    for view in taken:
        environment = PlanPath(size=4, view=view, naive=0.0)
        for text in ("go a2", "go b1", "go b2", "go a2 a1"):  # the last leads to where one is
            seen = environment.planner_sees(WALLED, (0, 0), says(text))
            said = environment.demonstrate("planner", WALLED, seen, rng)
            assert (said == text) == (text in taken[view]), (view, text)
    heard = near_view(WALLED, (0, 0), says("go b2"))
    blind = {PlanPath(size=4, naive=0.0).demonstrate("planner", WALLED, heard, Random(seed)) for seed in range(20)}
    assert {(len(said.split()), said.split()[-1]) for said in blind} == {(1 + 6, "d4")}  # straight, in any order
    assert {walk(WALLED, (0, 0), says(said), 8)[1] for said in blind} >= {False}  # walls or not
    assert len(blind) > 5
    seeing = environment.demonstrate("planner", WALLED, full_view(WALLED, (0, 0), says("go b2")), rng)  # pyright: ignore[reportPossiblyUnboundVariable]
    assert walk(WALLED, (0, 0), says(seeing), 8) == ((3, 3), True)


def test_a_habit_goes_along_the_row_then_the_column_as_far_as_a_reply_may():
    environment = PlanPath(size=4, naive=1.0, max_moves=5)
    for role in environment.roles:
        assert environment.demonstrate(role, WALLED, map_view(WALLED, (0, 0)), Random(0)) == "go b1 c1 d1 d2 d3"


def test_the_demonstrator_is_imperfect_by_design_and_perfect_without_it():
    def solves(environment, task):
        rng = Random(1)
        return episode(
            environment, task, lambda role, prompt: Reply(role, environment.demonstrate(role, task, prompt, rng))
        )[1]

    rates = {}
    for naive in (0.0, 0.6, 1.0):
        environment = PlanPath(naive=naive)
        rates[naive] = sum(solves(environment, environment.task("train", index)) for index in range(80)) / 80
    assert rates[0.0] == 1.0
    assert rates[1.0] < 0.6
    assert rates[1.0] < rates[0.6]


def test_a_straight_line_is_as_long_as_the_manhattan_distance():
    for rng in (None, Random(0)):
        route = straight((0, 0), (3, 2), rng)
        assert len(route) == 5
        assert route[-1] == (3, 2)
    assert straight((0, 0), (1, 2))[:2] == [(0, 1), (0, 2)]
    assert straight((2, 1), (0, 0)) == [(2, 0), (1, 0), (0, 0)]


def test_a_line_in_random_order_turns_anywhere():
    assert {tuple(straight((0, 0), (1, 1), Random(seed))) for seed in range(20)} == {
        ((0, 1), (1, 1)),
        ((1, 0), (1, 1)),
    }
    assert straight((2, 2), (0, 0), drawn(0, 0.9))[:2] == [(2, 1), (2, 0)]
    assert straight((0, 0), (2, 1), drawn(0, 0.6))[0] == (1, 0)  # two of three moves are along the column
    assert straight((0, 0), (2, 1), drawn(0, 0.7))[0] == (0, 1)
    assert straight((0, 0), (0, 2), drawn(0, 0.0)) == [(0, 1), (0, 2)]


def test_what_has_no_effect_on_a_planner_that_is_alone():
    alone, both = PlanPath(solo=True).inert(), PlanPath().inert()
    assert alone.keys() - both.keys() == {"view"}
    assert alone["view"].startswith("solo = true ")
    assert both.keys() == {"sandbox", "time_s", "memory_mb"}


def test_distances_by_hand():
    found = distances(4, WALLED.walls, (3, 3))
    assert found[0, 0] == 6
    assert found[0, 1] == 7
    assert found[0, 3] == 5  # d2 c2 c3 c4 d4
    assert (0, 2) not in found


def test_solo_has_one_role_that_sees_the_map():
    environment = PlanPath(solo=True)
    assert environment.roles == ("planner",)
    cursor = Cursor(environment, OPEN, 0)
    point = run(cursor.advance())
    assert point.asked.prompts == {"planner": map_view(OPEN, (0, 0))}
    assert isinstance(point.asked, Asked)


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("up, up, right", ["up", "up", "right"]),
        ("U U R", ["up", "up", "right"]),
        ("↑↑→", ["up", "up", "right"]),
        ("Go up twice, then 1 right.", ["up", "up", "right"]),
        ("2 up and 1 right", ["up", "up", "right"]),
        ("The wall is left of me.\nup", ["up"]),
        ("left", ["left"]),
        ("up or right", None),
        ("not up", None),
        ("I would go up because right is a wall", None),
        ("a1 b1", None),
        ("", None),
        ("and then", None),
    ],
)
def test_directions_are_read_in_words_and_anything_else_is_none(text, moves):
    assert in_words(Reply("planner", text)) == moves


def test_directions_that_are_cut_are_none():
    assert in_words(Reply("planner", "up", "length")) is None


def test_a_walk_in_words_ends_where_its_last_move_leads():
    maze = Maze("m", "train", size=3, start=(2, 0), goal=(0, 0))
    assert walk_of(maze, (2, 0), ["up", "up"], 4) == ((0, 0), True)
    assert walk_of(maze, (2, 0), ["up", "up", "right"], 4) == ((0, 1), True), "it went on past the goal"
    assert walk_of(maze, (2, 0), ["up", "left", "up"], 4) == ((1, 0), False)
    assert walk_of(maze, (2, 0), ["up", "up"], 1) == ((2, 0), False)


def test_a_tour_of_the_whole_grid_gains_nothing():
    """A list of moves that crosses every goal, from wherever it is legal, is paid for its end alone."""
    world = PlanPath(size=3, min_distance=2, walls=0.0, max_moves=8, brief=False, max_tokens=64)
    around = ["right", "right", "down", "down", "left", "left", "up", "up"]
    for index in range(40):
        task = world.task("train", index)
        for turn in range(8):
            tour = ", ".join(around[turn:] + around[:turn])
            end, legal = world.move(task, task.start, Reply("planner", tour))
            if legal:
                assert end == task.start  # all the way round
                assert world.local("planner", task, task.start, end, legal) == -1.0


def test_what_a_small_model_is_told_is_what_the_names_of_cells_tell():
    maze = Maze("m", "train", size=3, walls=frozenset({(1, 1)}), start=(0, 1), goal=(2, 0))
    world = PlanPath(size=3, brief=False, max_tokens=16)
    assert world.shown(maze, maze.start) == (
        " a1 b1 c1\n a2 # c2\n a3 b3 c3\nhere b1 goal a3\nOpen: left, right. The goal is 1 left and 2 down."
    )
    seen = world.planner_sees(maze, (0, 1), Reply("proposer", "left"))
    assert seen.endswith("here b1 goal a3\nOpen: left, right. The goal is 1 left and 2 down.\nproposal: left")
    assert "a3 b3" not in seen
