"""Gymnasium's environments. Those that play one need the extra `gymnasium`."""

import random
from random import Random

import pytest

from coterie import check
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from coterie_worlds.foreign.gymnasium import Gymnasium, _numbers
from coterie_worlds.foreign.match import Result
from tests.toys import one

OWN = '''
import gymnasium
from gymnasium import spaces


class Echo(gymnasium.Env):
    """Say the word."""

    def __init__(self, kind="text"):
        self.action_space = {
            "text": spaces.Text(5), "from": spaces.Discrete(2, start=3), "box": spaces.Box(0, 1),
        }[kind]
        self.observation_space = spaces.Text(20) if kind != "wide" else None

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return "say ab", {}

    def step(self, action):
        return "and?", float(action in ("ab", 4)), action in ("ab", 4), False, {}


def make(**settings):
    return Echo(**settings)
'''


def gym(name: str, **options) -> Gymnasium:
    pytest.importorskip("gymnasium", reason="needs the extra gymnasium: pip install 'coterie[gymnasium]'")
    return Gymnasium(game=name, options=options)


def own(tmp_path, **options) -> Gymnasium:
    (tmp_path / "echo.py").write_text(OWN)
    return gym(f"{tmp_path}/echo.py:make", **options)


def log(environment: Gymnasium, foreign: int) -> list:
    chance, outside, game, told = Random(5), Random(foreign), environment.begun(11), []
    for _ in range(60):
        random.seed(outside.random())
        _, news, moves = game.turn()
        word = chance.choice([*moves, *moves, "none"])
        told.append(([heard.text for heard in news], word, game.move(word)))
        if game.result():
            break
    return [*told, game.result()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1", "CartPole-v1"])
def test_it_says_the_same_whatever_others_draw_and_keeps_the_contract(name):
    environment = gym(name)
    environment.ready()
    assert log(environment, 1) == log(environment, 2)
    report = check(environment.model_copy(update={"max_moves": 20}), tasks=1)
    assert report.ok, str(report)


@pytest.mark.slow
def test_a_walk_over_the_lake_and_what_it_is_told():
    environment = gym("FrozenLake-v1", is_slippery=False)
    game = environment.begun(0)
    _, (rules, lake), moves = game.turn()
    assert rules.text == "Walk from S to G over F; H is a hole. You are in brackets. Write your move in brackets."
    assert (lake.text, lake.board) == ("[S]FFF\nFHFH\nFFFH\nHFFG", True)
    assert moves == ["[left]", "[down]", "[right]", "[up]"]
    assert game.move("so [down]")
    assert [heard.text for heard in game.turn()[1]] == ["(Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"]
    for word in ("down", "right", "right", "down", "right"):
        assert game.result() is None
        assert game.move(f"[{word}]")
    assert game.result() == Result({0: 1.0}, "its rewards were 1")


@pytest.mark.slow
def test_what_is_told_of_a_taxi_and_of_cards():
    taxi = gym("Taxi-v4").begun(7).turn()[1][-1].text
    assert taxi.endswith("R at 0 0, G at 0 4, Y at 4 0, B at 4 3\nTaxi at 3 0, passenger at Y, wants to G")
    assert "\x1b" not in taxi
    assert gym("Blackjack-v1").begun(7).turn()[1][-1].text == "You hold 19; the dealer shows 10"


@pytest.mark.slow
def test_a_task_is_solved_from_a_sum_of_rewards_and_a_second_wrong_reply_ends_it():
    words = ["down", "down", "right", "right", "down", "right"]
    for wanted, solved in ((1.0, True), (1.5, False)):
        environment = gym("FrozenLake-v1", is_slippery=False).model_copy(update={"solved_at": wanted})
        left = list(words)
        play = Play(environment, Team({"player_0": "p"}), ScriptedEngine(lambda *_: f"[{left.pop(0)}]"), seed=0)  # noqa: B023
        cursor = play.start(environment.task("train", 0), 0)
        one(play, play.run(cursor))
        assert cursor.log.solved == solved
    game = environment.begun(0)
    assert not game.move("[over]")
    assert game.turn()[1][0].text == "That is none of the moves."
    assert not game.move("[over]")
    assert game.result() == Result({}, "a move that is none", wrong=0)


@pytest.mark.slow
def test_one_of_ones_own_of_texts_and_of_numbers(tmp_path):
    game = own(tmp_path).begun(0)
    assert [heard.text for heard in game.turn()[1]] == ["say ab"]
    assert game.turn()[2] == []
    assert game.move("no")
    assert not game.move("too long a text")
    assert game.move("ab")
    assert game.result() == Result({0: 1.0}, "its rewards were 1")
    game = own(tmp_path, kind="from").begun(0)
    assert game.turn()[2] == ["[3]", "[4]"]
    assert game.move("[4]")
    assert game.result() == Result({0: 1.0}, "its rewards were 1")
    report = check(own(tmp_path), tasks=1)
    assert report.ok, str(report)


@pytest.mark.slow
def test_observations_of_many_numbers_are_counted_whatever_they_stand_in():
    spaces = pytest.importorskip("gymnasium", reason="needs the extra gymnasium").spaces
    box = spaces.Box(0, 1, (5, 10))
    for space, count in (
        (box, 50), (spaces.Dict({"a": box, "b": spaces.Discrete(9)}), 51), (spaces.Tuple((box, box)), 100),
        (spaces.MultiBinary(70), 70), (spaces.Text(9), 0), (spaces.Discrete(500), 1),
    ):  # fmt: skip
        assert _numbers(space) == count


@pytest.mark.slow
def test_what_cannot_be_told_in_words_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be made: NameNotFound.*FrozenLake"):
        gym("FrozenLak-v1").ready()
    with pytest.raises(ConfigError, match=r"actions are Box.*, which no word is"):
        own(tmp_path, kind="box").ready()
    with pytest.raises(ConfigError, match="cannot be made: KeyError"):
        own(tmp_path, kind="none").ready()


@pytest.mark.parametrize(
    ("settings", "says"),
    [({}, "game: name one, as in gymnasium:FrozenLake-v1"), ({"game": "nowhere.py:make"}, "nowhere.py does not exist")],
)
def test_one_that_is_not_there_is_told_in_a_line(settings, says):
    with pytest.raises(ValueError, match=says):
        Gymnasium(**settings)


def test_without_gymnasium_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'coterie\\[gymnasium\\]'"):
        Gymnasium(game="FrozenLake-v1").ready()
