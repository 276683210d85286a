"""What games share: who is told what, that the rules are enough to play by, programs, and pay that cannot be farmed."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import load_config
from coterie.checks.conformance import check
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS
from coterie.kernel.episode import ChatMessage, Rewarded
from coterie.kernel.scene import Reply
from coterie.models.rendering import Renderer, as_text
from coterie_worlds.games.plan_path import PlanPath
from coterie_worlds.games.sokoban import Sokoban
from coterie_worlds.games.sudoku import Sudoku
from coterie_worlds.sandbox.backends import missing
from tests.environments.games import players
from tests.toys import run, tiny

GAMES = (PlanPath, Sokoban, Sudoku)
TOLD = {"brief": False, "max_tokens": 400}


def played(world, task, hand) -> Cursor:
    cursor = Cursor(world, task, 0)

    async def go():
        while (point := await cursor.advance()) is not None:
            ((role, prompt),) = point.asked.prompts.items()
            cursor.answer({role: hand(role, prompt)})

    run(go())
    return cursor


@pytest.mark.slow
@pytest.mark.parametrize("solo", [False, True])
@pytest.mark.parametrize("game", GAMES)
def test_who_reads_the_prompt_alone_can_play(game, solo):
    """A scripted player that is given nothing but the messages, and answers by the form that they name."""
    world = game(**TOLD, solo=solo, **({} if game is Sudoku else {"view": "full", "max_moves": 40}))
    for index in range(12):
        task = world.task("test", index)
        cursor = played(world, task, lambda role, prompt: Reply(role, players.answer(prompt)))
        assert cursor.log.solved, (index, cursor.log.outcome)


@pytest.mark.parametrize("game", [Sokoban, Sudoku])
def test_the_example_of_a_prompt_solves_nothing_and_is_no_legal_answer(game):
    world = game(**TOLD)
    for role in world.roles:
        manual = world.manual(role)
        (example,) = re.findall(r"in another grid, `([^`]+)`|on another board, `([^`]+)`", manual)
        example = "".join(example)
        for index in range(20):
            task = world.task("train", index)
            board = world.begin(task)
            after, legal = world.move(task, board, Reply(role, f"I think\n{example}"))
            assert after == board
            assert not legal


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("tool", [False, True])
def test_each_role_is_told_who_it_is_in_which_form_to_answer_and_how_long_it_may(game, tool):
    world = game(**TOLD, tool=tool)
    for role in world.roles:
        manual = world.manual(role)
        assert f"You are the {role}" in manual
        assert f"up to {world.max_turns} turns" in manual
        assert {PlanPath: "up, down, left or right", Sokoban: "`go`", Sudoku: "cells and their digits"}[game] in manual
        assert ("Python" in manual) == (role == "tool")
    assert "proposal may be wrong" in world.manual("planner")


@pytest.mark.parametrize("game", [PlanPath, Sudoku])
def test_a_small_model_is_shown_right_answers_to_boards_that_are_no_tasks(game):
    world = game(brief=False, max_tokens=16, **({"givens": 13} if game is Sudoku else {"min_distance": 2}))
    for role in world.roles:
        answers = [answer for _, answer in world.examples(role)]
        assert len(set(answers)) == 4  # no direction and no digit more often than others
        assert world.manual(role).endswith(world.form())
    drawn = {
        world.shown(task, world.begin(task)) for split in SPLITS for task in (world.task(split, i) for i in range(60))
    }
    assert not drawn & {told for told, _ in world.examples(world.roles[0])}
    cursor = Cursor(world, world.task("train", 0), 0)
    point = run(cursor.advance())
    roles = [message.role for message in point.asked.prompts[world.roles[0]]]
    assert roles == ["system", *["user", "assistant"] * 4, "user"]
    assert world.examples("tool") == ()
    assert game(**TOLD).examples("planner") == ()


def test_a_planner_of_the_split_view_is_told_that_it_sees_little():
    assert "only the cells around you" in PlanPath(**TOLD).manual("planner")
    assert "only the cells around you" not in PlanPath(**TOLD, view="full").manual("planner")
    assert "only the cells around you" not in PlanPath(**TOLD).manual("proposer")


@pytest.mark.parametrize("game", GAMES)
def test_a_conversation_shows_the_board_as_it_is_and_the_roles_own_replies(game):
    world = game(**TOLD, max_turns=3)
    task = world.task("train", 1)
    seen: dict[str, list] = {}

    def hand(role, prompt):
        seen.setdefault(role, []).append(prompt)
        return Reply(role, "nothing of the kind")

    played(world, task, hand)
    last = seen["planner"][-1]
    assert [message.role for message in last] == ["system", *["user", "assistant"] * 2, "user"]
    assert [message.content for message in last if message.role == "assistant"] == [
        Reply("planner", "nothing of the kind")
    ] * 2
    assert last[1].content == last[3].content  # nothing was played


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_chat_templates_with_and_without_a_system_role_render_it(game):
    world = game(**TOLD)
    task = world.task("train", 0)
    prompts = []
    played(world, task, lambda role, prompt: prompts.append((role, prompt)) or Reply(role, "x"))
    for role, prompt in prompts:
        folded = as_text(prompt, role, "keep", "fold")
        assert [message["role"] for message in folded][:1] == ["user"]
        assert world.manual(role) in folded[0]["content"]
        assert len(Renderer(tiny().tokenizer, "p")(prompt, role)) > 50


def test_no_starter_writes_programs_and_a_lone_planner_has_no_tool_user():
    for settings in ({"tool": True}, {"tool": True, "brief": False, "solo": True}):
        with pytest.raises(ValueError, match="tool = true needs brief = false"):
            PlanPath(**settings)
    assert "sandbox" in PlanPath().inert()
    assert "sandbox" not in PlanPath(**TOLD, tool=True).inert()
    with pytest.raises(ConfigError, match="time_s"):
        load_config("plan_path", ["environment.time_s=3"])


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
@pytest.mark.parametrize("game", [GAMES[0], *(pytest.param(game, marks=pytest.mark.long) for game in GAMES[1:])])
def test_a_program_proposes_what_it_prints(game):
    world = game(**TOLD, tool=True, **({} if game is Sudoku else {"view": "full", "max_moves": 40}))
    task = world.task("train", 3)
    answer = players.answer((ChatMessage("user", world.shown(task, world.begin(task))),))
    good = played(
        world,
        task,
        lambda role, prompt: Reply(role, f"```python\nprint({answer!r})\n```" if role == "tool" else answer),
    )
    assert good.log.solved
    assert good.log.rewards()["tool"] == pytest.approx(0.0)
    bad = played(
        world,
        task,
        lambda role, prompt: Reply(
            role, f"```python\nprint({answer!r})\nraise ValueError\n```" if role == "tool" else answer
        ),
    )
    assert bad.log.rewards()["tool"] < -0.2
    assert check(world, tasks=1).ok


@pytest.mark.slow
@pytest.mark.parametrize("game", [Sokoban, Sudoku])
@given(index=st.integers(0, 20), seed=st.integers(0, 10**6), mix=st.integers(0, 255))
def test_no_answers_earn_more_than_a_solution(game, index, seed, mix):
    world = game(solo=True, brief=True, **({"max_moves": 40} if game is Sokoban else {}))
    task = world.task("train", index)
    rng = Random(seed)
    expert = world.model_copy(update={"naive": 0.0})
    best = played(world, task, lambda role, prompt: Reply(role, expert.demonstrate(role, task, prompt, rng)))
    assert best.log.solved
    assert sum(best.log.rewards().values()) == pytest.approx(2.0)
    turns = iter(range(100))

    def hand(role, prompt):
        if mix >> (next(turns) % 8) & 1:
            return Reply(role, expert.demonstrate(role, task, prompt, rng))
        return Reply(role, players.junk(world, task, rng))

    other = played(world, task, hand)
    assert sum(other.log.rewards().values()) <= 2.0 + 1e-9
    if not other.log.solved:
        assert sum(other.log.rewards().values()) < 1.0


@pytest.mark.parametrize("game", GAMES)
def test_without_local_rewards_only_the_outcome_is_paid(game):
    world = game(dense=False, naive=0.0)
    task = world.task("test", 0)
    cursor = played(world, task, lambda role, prompt: Reply(role, world.demonstrate(role, task, prompt, Random(0))))
    assert {event.role for event in cursor.events if isinstance(event, Rewarded)} == {None}
    assert cursor.log.rewards() == {"team": float(cursor.log.solved)}


def test_without_local_rewards_the_recommended_horizon_reaches_the_outcome():
    assert load_config("sokoban").algorithm.model_dump()["horizon"] == "point"
    assert load_config("sokoban", ["environment.dense=false"]).algorithm.model_dump()["horizon"] == "turn"
