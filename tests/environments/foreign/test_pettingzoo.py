"""PettingZoo's games. Those that play one need the extra `pettingzoo`."""

import importlib
import random
import sys
from random import Random

import pytest

from coterie import check, load_config
from coterie.errors import ConfigError, EnvError
from coterie_worlds.foreign.match import Result
from coterie_worlds.foreign.pettingzoo import CLASSICS, PettingZoo

OPTIONS = {"go_v5": {"board_size": 5}, "rps_v2": {"max_cycles": 4}, "texas_holdem_v4": {"num_players": 3}}
OWN = '''
import numpy
from gymnasium import spaces
from pettingzoo import {base}


class Raw({base}):
    """Each says a number; the larger one wins. Of the first kind, one after the other; of the second, both at once."""

    metadata = {{"name": "larger_v0"}}

    def __init__(self, words=False, large=3):
        self.possible_agents = ["left", "right"]
        self.large = large
        self.render_mode = None
        if words:
            self.describe = lambda agent: f"say a number, {{agent}}"
            self.moves = lambda agent: {{"one": 0, "two": 1}}

    def observation_space(self, agent):
        return spaces.Box(0, 1, (self.large,))

    def action_space(self, agent):
        return spaces.Discrete(3)
'''
AEC = (
    OWN.format(base="AECEnv")
    + """
    def reset(self, seed=None, options=None):
        self.agents, self.said = list(self.possible_agents), {}
        self.agent_selection = "left"
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent):
        return numpy.zeros(self.large)

    def step(self, action):
        if self.terminations[self.agent_selection]:
            return self._was_dead_step(action)
        self.said[self.agent_selection] = action
        self.agent_selection = "right" if self.agent_selection == "left" else "left"
        if len(self.said) == 2:
            gap = self.said["left"] - self.said["right"]
            self.rewards = {"left": gap, "right": -gap}
            self.terminations = dict.fromkeys(self.agents, True)
            self._accumulate_rewards()


def env(**settings):
    return Raw(**settings)
"""
)
PARALLEL = (
    OWN.format(base="ParallelEnv")
    + """
    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {agent: numpy.zeros(self.large) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        gap = actions["left"] - actions["right"]
        seen = {agent: numpy.zeros(self.large) for agent in self.agents}
        over, self.agents = dict.fromkeys(self.agents, True), []
        return seen, {"left": gap, "right": -gap}, over, dict.fromkeys(over, False), {agent: {} for agent in over}


def env(**settings):
    return Raw(**settings)
"""
)


def classic(name: str) -> PettingZoo:
    pytest.importorskip("pettingzoo", reason="needs the extra pettingzoo: pip install 'coterie[pettingzoo]'")
    return PettingZoo(game=name, options=OPTIONS.get(name, {}))


def own(tmp_path, source: str, **options) -> PettingZoo:
    pytest.importorskip("pettingzoo", reason="needs the extra pettingzoo: pip install 'coterie[pettingzoo]'")
    (tmp_path / "larger.py").write_text(source)
    return PettingZoo(game=f"{tmp_path}/larger.py:env", options=options)


def log(environment: PettingZoo, foreign: int, most: int = 100) -> list:
    """A game in which some replies are no move; others draw in between."""
    import numpy

    chance, outside, game, told = Random(5), Random(foreign), environment.begun(11), []
    for _ in range(most):
        random.seed(outside.random())
        numpy.random.seed(outside.randrange(99))
        seat, news, moves = game.turn()
        word = chance.choice([*moves, *moves, "so " + moves[0], "none"])
        before = random.getstate()
        told.append((seat, [heard.text for heard in news], list(moves), word, game.move(word)))
        assert random.getstate() == before, "the process's own chance"
        if game.result():
            break
    return [*told, game.result()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLASSICS)
def test_every_classic_says_the_same_whatever_others_draw_and_passes_pettingzoos_own_tests(name):
    environment = classic(name)
    assert log(environment, 1) == log(environment, 2)
    assert environment.seats() == len(environment._seated())
    tests = importlib.import_module("pettingzoo.test")
    tests.api_test(environment._made(), num_cycles=30)
    tests.seed_test(environment._made, num_cycles=10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_parallel_classic_passes_pettingzoos_own_tests():
    classic("rps_v2")
    tests, make = importlib.import_module("pettingzoo.test"), importlib.import_module("pettingzoo").make
    tests.parallel_api_test(make("parallel", "classic/rps_v2"), num_cycles=30)
    tests.parallel_seed_test(lambda: make("parallel", "classic/rps_v2"), num_cycles=10)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSICS)
def test_every_classic_keeps_the_contract(name):
    report = check(classic(name).model_copy(update={"max_moves": 20}), tasks=1, horizon="episode")
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "earned"),
    [
        ("tictactoe_v3", "[0] [3] [1] [4] [2]", (1, -1)),
        ("tictactoe_v3", "[0] [1] [2] [4] [3] [5] [7] [6] [8]", (0, 0)),
        ("connect_four_v3", "[0] [1] [0] [1] [0] [1] [6] [1]", (-1, 1)),
        ("rps_v2", "[ROCK] [PAPER] [ROCK] [PAPER] [ROCK] [SCISSORS] [ROCK] [ROCK]", (-1, 1)),
        ("go_v5", "[2 2] [pass] [pass]", (1, -1)),
        ("chess_v6", "[f2f3] [e7e5] [g2g4] [d8h4]", (-1, 1)),
    ],
)
def test_a_game_to_its_end_and_what_each_has_earned(name, words, earned):
    """The last rewards come on steps of those who are out; a loop that ends before them misses the winner's."""
    game = classic(name).begun(0)
    for at, word in enumerate(words.replace("] [", "]\n[").split("\n")):
        seat, news, moves = game.turn()
        assert seat == at % 2
        assert word in moves
        assert news[-1].board
        assert game.result() is None
        assert game.move(f"I take {word}")
    assert game.result() == Result(dict(enumerate(map(float, earned))), "the game is over")


@pytest.mark.slow
def test_what_a_player_is_told():
    game = classic("tictactoe_v3").begun(0)
    (rules, board), moves = game.turn()[1:]
    assert rules.text.endswith("You are seat 0. Write your move in brackets.")
    assert (board.text, board.board) == ("0 | 3 | 6\n1 | 4 | 7\n2 | 5 | 8", True)
    assert moves == [f"[{cell}]" for cell in range(9)]
    game.move("[4]")
    assert game.turn()[1][-1].text == "0 | 3 | 6\n1 | X | 7\n2 | 5 | 8"
    game.move("[1]")
    (again,) = game.turn()[1]
    assert again.text == "0 | 3 | 6\nO | X | 7\n2 | 5 | 8", "the rules are told once"
    game = classic("rps_v2").begun(0)
    for word, told in (("[ROCK]", "None"), ("[PAPER]", "None"), ("[ROCK]", "PAPER"), ("[ROCK]", "ROCK")):
        assert game.turn()[1][-1].text == f"The other's last move: {told}", "of the round before, not of this one"
        game.move(word)
    cards = classic("leduc_holdem_v4").begun(1)
    _, news, moves = cards.turn()
    assert news[-1].text.startswith("Your hand: ")
    assert {"[call]", "[raise]"} <= set(moves)
    assert "On the table: none\nChips in: yours 1, others' 2" in news[-1].text


@pytest.mark.slow
def test_a_reply_that_is_no_move_is_asked_again_and_the_second_loses():
    game = classic("tictactoe_v3").begun(0)
    game.turn()
    assert not game.move("[9]")
    seat, news, _ = game.turn()
    assert (seat, news[0].text) == (0, "That is none of the moves.")
    assert game.move("[0]")
    game.turn()
    assert not game.move("[0]")
    assert game.result() is None, "wrong moves of others are not its own"
    game.turn()
    assert not game.move("[1] or [0]")
    assert game.result() == Result({}, "a move that is none", wrong=1)


@pytest.mark.slow
@pytest.mark.parametrize("source", [AEC, PARALLEL], ids=["AEC", "parallel"])
def test_a_game_of_ones_own_of_either_kind(source, tmp_path):
    environment = own(tmp_path, source)
    assert environment.seats() == 2
    game = environment.begun(0)
    assert game.turn() == (0, game.turn()[1], ["[0]", "[1]", "[2]"])
    assert game.turn()[1][0].text == "[0. 0. 0.]"
    assert game.move("2")
    assert game.turn()[0] == 1
    assert game.move("[0]")
    assert game.result() == Result({0: 2.0, 1: -2.0}, "the game is over")
    report = check(environment, tasks=1, horizon="episode")
    assert report.ok, str(report)
    assert "class Raw" in environment.content()


@pytest.mark.slow
def test_a_game_of_ones_own_may_say_how_it_stands_and_what_may_be_done(tmp_path):
    game = own(tmp_path, AEC, words=True).begun(0)
    assert (game.turn()[1][0].text, game.turn()[2]) == ("say a number, left", ["[one]", "[two]"])
    assert game.move("[two]")
    game.turn()
    assert game.move("[one]")
    assert game.result().rewards == {0: 1.0, 1: -1.0}
    wide = own(tmp_path, AEC, large=65)
    with pytest.raises(ConfigError, match=r"65 numbers says nothing in words; write describe\(self, agent\)"):
        wide.ready()


@pytest.mark.slow
def test_words_of_a_game_of_ones_own_can_be_said_or_are_refused(tmp_path):
    odd = AEC.replace('{"one": 0, "two": 1}', "{0: 0, 1: 1}")
    game = own(tmp_path, odd, words=True).begun(0)
    assert game.turn()[2] == ["[0]", "[1]"]
    assert game.move("[1]"), "a number is a word"
    for word in ("[a]", "a | b", "a\nb", " a", ""):
        (tmp_path / "more").mkdir(exist_ok=True)
        bad = AEC.replace('"one": 0', f"{word!r}: 0")
        with pytest.raises(EnvError, match="no reply can say the move"):
            own(tmp_path / "more", bad, words=True).begun(0).turn()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "says"),
    [
        ('["one"]', r"moves\(self, agent\) gave \['one'\]; give words and their actions"),
        ("{}", r"gave \{\}; give words"),
        ('{"one": 3}', r"the move 'one' is 3, which Discrete\(3\) has not"),
    ],
)
def test_moves_of_a_game_of_ones_own_are_moves_of_the_game(told, says, tmp_path):
    game = own(tmp_path, AEC.replace('{"one": 0, "two": 1}', told), words=True).begun(0)
    with pytest.raises(EnvError, match=says):
        game.turn()


@pytest.mark.slow
def test_options_are_each_games_own_and_games_are_closed(tmp_path):
    source = (
        AEC
        + "\n\nCLOSED = []\n\n\ndef grows(seen):\n    seen.append(1)\n    game = Raw()\n"
        + ("    game.close = lambda: CLOSED.append(len(seen))\n    return game\n")
    )
    (tmp_path / "grows.py").write_text(source)
    environment = PettingZoo(game=f"{tmp_path}/grows.py:grows", options={"seen": []})
    for _ in range(2):
        environment.begun(0).close()
    assert environment.options == {"seen": []}
    assert sys.modules[environment._home].CLOSED == [1, 1]


@pytest.mark.slow
def test_a_game_of_one_of_nobody_and_one_that_is_over_at_its_beginning(tmp_path):
    alone = own(tmp_path, AEC.replace('["left", "right"]', '["left"]').replace("len(self.said) == 2", "False"))
    assert alone.roles == ("player_0",)
    assert "against" in alone.inert()
    assert alone.won(1.0, ())
    assert not alone.won(0.5, ())
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="has no players"):
        own(tmp_path / "none", AEC.replace('["left", "right"]', "[]")).ready()
    (tmp_path / "over").mkdir()
    over = own(tmp_path / "over", AEC.replace("(self.agents, False)", "(self.agents, True)", 1))
    over.ready()
    assert over.begun(0).result() == Result({0: 0.0, 1: 0.0}, "the game is over")
    report = check(over, tasks=1, horizon="episode")
    assert "play ends, whatever roles say" in str(report)


@pytest.mark.slow
def test_a_game_that_cannot_be_made_is_told_in_a_line(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be made: TypeError.*colour"):
        own(tmp_path, AEC, colour=1).ready()
    environment = load_config("pettingzoo:tictactoe_v3", ["policies.team.model=x/y", "environment.options={a=1}"])
    with pytest.raises(ConfigError, match="tictactoe_v3' cannot be made: TypeError"):
        environment.environment.ready()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "game: name one, as in pettingzoo:tictactoe_v3, or your own"),
        ({"game": "hanabi_v5"}, "'hanabi_v5' cannot be played: it needs open_spiel"),
        ({"game": "tictacto_v3"}, "is none that was played here; did you mean 'tictactoe_v3'"),
        ({"game": "nowhere.py:env"}, "nowhere.py does not exist"),
    ],
)
def test_a_game_that_is_not_there_is_told_in_a_line(settings, says):
    with pytest.raises(ValueError, match=says):
        PettingZoo(**settings)


def test_without_pettingzoo_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'coterie\\[pettingzoo\\]'"):
        PettingZoo(game="tictactoe_v3").ready()
