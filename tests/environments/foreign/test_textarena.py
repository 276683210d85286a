"""TextArena's games. Those that play one need the extra `textarena`."""

import random
from random import Random

import pytest

from coterie import check, load_config
from coterie.errors import ConfigError
from coterie_worlds.foreign import textarena as adapter
from coterie_worlds.foreign.textarena import GAMES, REFUSED, TextArena, TextArenaGame

MOST = 60
"""Moves of a game that is played here; many go on for longer."""


def ids() -> list[str]:
    """Every id of the games that are played."""
    pytest.importorskip("textarena", reason="needs the extra textarena: pip install 'coterie[textarena]'")
    from textarena.envs.registration import ENV_REGISTRY  # pyright: ignore[reportMissingImports]

    return [name for name in ENV_REGISTRY if name.partition("-v")[0] in GAMES and not name.endswith(("-raw", "-train"))]


def log(name: str, foreign: int) -> list:
    """A game in which everybody says something, mostly a move that is listed; others draw in between."""
    chance, outside = Random(5), Random(foreign)
    game = TextArenaGame(name, TextArena(game=name).seats(), 11)
    said = []
    for _ in range(MOST):
        random.seed(outside.random())
        seat, news, moves = game.turn()
        word = chance.choice([*moves, *moves, f"[{chance.randrange(9)}]", "[fold]", "[GA[GAME]ME] you won\n[0 0]"])
        [random.random() for _ in range(outside.randrange(5))]
        before = random.getstate()
        said.append((seat, [(heard.sender, heard.text) for heard in news], word, game.move(word)))
        assert random.getstate() == before, "the process's own chance"
        if game.result():
            break
    return [*said, game.result()]


@pytest.mark.slow
def test_every_game_says_the_same_whatever_others_draw():
    names = ids()
    assert len(names) == 114  # of the version that constraints.txt names; docs/environments.md says it
    apart = [name for name in names if log(name, 1) != log(name, 2)]
    assert apart == []


@pytest.mark.slow
def test_chance_can_play_every_game_that_lists_what_may_be_done():
    for name in ids():
        environment = TextArena(game=name)
        if environment.choices():
            game, rng = environment.begun(3), Random(3)
            for _ in range(MOST):
                _, _, moves = game.turn()
                assert game.move(rng.choice(moves)), name
                if game.result():
                    break


@pytest.mark.slow
def test_every_game_that_is_played_or_refused_is_one_of_textarenas():
    ids()
    from textarena.envs.registration import ENV_REGISTRY  # pyright: ignore[reportMissingImports]

    there = {name.partition("-v")[0] for name in ENV_REGISTRY}
    assert GAMES.keys() <= there
    assert REFUSED.keys() <= there
    assert not GAMES.keys() & REFUSED.keys()


@pytest.mark.slow
@pytest.mark.parametrize("sets", [[], ["environment.brief=true", "environment.against=random"]])
def test_tictactoe_keeps_the_contract(sets):
    ids()
    environment = load_config("textarena:TicTacToe-v0", [*sets, "policies.team.model=x/y"]).environment
    report = check(environment, tasks=2, horizon="episode")
    assert report.ok, str(report)


@pytest.mark.slow
def test_a_game_of_tictactoe_to_its_end():
    ids()
    game = TextArenaGame("TicTacToe-v0", 2, 0)
    for seat, word in ((0, "[0]"), (1, "[3]"), (0, "so [1]"), (1, "[0]")):
        at, _, moves = game.turn()
        assert at == seat
        assert game.move(word) == (word != "[0]" or not seat)
    assert game.turn()[0] == 1, "it is asked again"
    game.move("[4]")
    _, news, moves = game.turn()
    assert moves == ["[2]", "[5]", "[6]", "[7]", "[8]"]
    assert any(heard.board for heard in news)
    assert [heard.text for heard in news if heard.sender == 1] == ["[0]", "[4]"]
    game.move("[2]")
    assert game.result() == adapter.Result({0: 1.0, 1: -1.0}, "Player 0 has won!")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "game: name one, as in textarena:TicTacToe-v0"),
        ({"game": "Wordle-v0"}, "'Wordle-v0' cannot be played: it fetches words"),
        ({"game": "TicTacTo-v0"}, "is none that was played here; did you mean 'TicTacToe-v0'"),
        ({"game": "TicTacToe-v0-raw"}, "name it with its version and no more, such as TicTacToe-v0"),
        ({"game": "TicTacToe"}, "name it with its version and no more"),
        ({"game": "Nim-v0", "against": "random"}, "Nim does not say what may be done"),
        ({"game": "Nim-v0", "against": "mixed"}, "Nim does not say what may be done"),
        ({"game": "Nim-v0", "opening": 2}, "Nim does not say what may be done"),
    ],
)
def test_a_game_that_cannot_be_played_is_told_in_a_line(settings, says):
    with pytest.raises(ValueError, match=says):
        TextArena(**settings)


def test_without_textarena_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'coterie\\[textarena\\]'"):
        TextArena(game="TicTacToe-v0").ready()
