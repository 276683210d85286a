"""TextArena's games: `coterie train textarena:TicTacToe-v0`. Every seat is a role or moves at random; see `match.py`.

Games are created in their `-raw` version. Every line of another player's text is marked, so it cannot look like text of
the game.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Sequence
from typing import Any

from pydantic import model_validator

from coterie.errors import ConfigError, nearest
from coterie_worlds.foreign.match import Heard, Result, SelfPlay
from coterie_worlds.foreign.sealed import Sealed

TWO = """
    Alquerque Battleship Breakthrough Briscola Chopsticks ColonelBlotto ConnectFour Crusade GameOfPureStrategy
    GermanWhist Golf HighSociety IndianPoker IteratedMatchingPennies IteratedPrisonersDilemma IteratedRockPaperScissors
    IteratedTwoThirdsAverage IteratedUltimatumGame KuhnPoker LiarsDice LinesOfAction MarketEntryGame MemoryGame
    NewRecruit Nim Othello PigDice Poker PublicGoodsGame QuantumTicTacToe SantoriniBaseFixed SimpleBlindAuction
    SimpleNegotiation SimpleTak Snake SpiteAndMalice Stratego Surround Tak TicTacToe TruthAndDeception TwoDollar
    UltimateTicTacToe WildTicTacToe
"""
GAMES = {
    **dict.fromkeys(TWO.split(), 2),
    "ThreePlayerTicTacToe": 3, "ThreePlayerGOPS": 3, "ThreePlayerIPD": 3, "SecretMafia": 6,
}  # fmt: skip
"""Games that were played here, and their numbers of players."""
REFUSED = {
    **dict.fromkeys(
        ("Wordle", "Hangman", "WordLadder", "WordSearch", "DontSayIt", "LetterAuction", "WordChains", "Codenames"),
        "it fetches words of nltk from the network when it is made",
    ),
    **dict.fromkeys(("Debate", "GuessWho", "TwentyQuestions", "ScenarioPlanning"), "a model behind a key judges it"),
    "SettlersOfCatan": "it prints lines of its own into what a run shows",
    **dict.fromkeys(("ScorableGames", "UsedCarNegotiation"), "files of it are missing in the package"),
    **dict.fromkeys(
        ("Checkers", "Chess", "IteratedStagHunt", "ReverseTicTacToe", "UltimateTexasHoldem", "Klondike"),
        "its module has a syntax error on Python 3.11",
    ),
}
"""Games that are not played, and why."""
LISTED = re.compile(r"(?:[Aa]vailable [Mm]oves|[Vv]alid (?:[Mm]oves|actions)|[Aa]vailable [Aa]ctions(?: are)?): *(.+)")
KNOWN = {"TicTacToe", "WildTicTacToe", "ThreePlayerTicTacToe", "KuhnPoker", "SimpleTak", "Crusade", "PigDice"}
"""Games that list what may be done, at every move."""


class TextArena(SelfPlay):
    """A game of TextArena."""

    game: str = ""
    """TextArena id of the game, such as TicTacToe-v0."""

    @model_validator(mode="after")
    def _is_played_here(self) -> TextArena:
        if not self.game:
            raise ValueError("game: name one, as in textarena:TicTacToe-v0")
        name, dash, _ = self.game.partition("-v")
        if why := REFUSED.get(name):
            raise ValueError(f"game = '{self.game}' cannot be played: {why}")
        if name not in GAMES:
            raise ValueError(
                f"game = '{self.game}' is none that was played here{nearest(self.game, [f'{one}-v0' for one in GAMES])}"
            )
        if not dash or self.game.endswith(("-raw", "-train")):
            raise ValueError(f"game = '{self.game}': name it with its version and no more, such as {name}-v0")
        if ({"random", "mixed"} & {self.against, self.tested_against} or self.opening) and not self.choices():
            raise ValueError(
                f"{name} does not say what may be done, so chance cannot play: against is 'self' or 'past'"
            )
        return self

    def ready(self) -> None:
        """Raises ConfigError if TextArena is not installed, or has no such game."""
        if importlib.util.find_spec("textarena") is None:
            raise ConfigError("textarena is not installed: pip install 'coterie[textarena]'")
        there = importlib.import_module("textarena.envs.registration").ENV_REGISTRY
        if self.game not in there:
            raise ConfigError(f"environment.game: TextArena has no '{self.game}'{nearest(self.game, there)}")

    def seats(self) -> int:
        """Returns the number of players."""
        return GAMES[self.game.partition("-v")[0]]

    def choices(self) -> bool:
        """Returns True if the game lists what may be done."""
        return self.game.partition("-v")[0] in KNOWN

    def begun(self, seed: int) -> TextArenaGame:
        """Returns a game at its beginning."""
        return TextArenaGame(self.game, self.seats(), seed)


class TextArenaGame:
    """A game of TextArena under way."""

    def __init__(self, name: str, seats: int, seed: int) -> None:
        textarena: Any = importlib.import_module("textarena")
        self._sealed = Sealed(seed)
        with self._sealed():
            self._env: Any = textarena.make(f"{name}-raw")
            self._env.reset(num_players=seats, seed=seed)
        self._boards = textarena.ObservationType.GAME_BOARD
        self._seats = seats
        self._over: Result | None = None

    def turn(self) -> tuple[int, Sequence[Heard], Sequence[str]]:
        """Returns the seat that moves, what it is told since its last move, and the moves that the game lists."""
        with self._sealed():
            seat, told = self._env.get_observation()
        lists = [found[1] for sender, text, _ in told if sender < 0 and (found := LISTED.search(text))]
        moves = re.findall(r"\[[^\]]*\]", lists[-1]) if lists else []
        news = [
            Heard(LISTED.sub("", text).strip("\n") if moves and sender < 0 else text, sender, kind == self._boards)
            for sender, text, kind in told
        ]
        return seat, news, moves

    def move(self, text: str) -> bool:
        """Makes a move; returns False if it was none."""
        state = self._env.state
        seat, errors = state.current_player_id, getattr(state, "error_count", 0)
        with self._sealed():
            try:
                done, _ = self._env.step(text)
            except Exception as error:  # of a reply that a game did not think of
                self._over = Result({}, f"the game failed: {type(error).__name__}", wrong=seat)
                return False
            if done:
                rewards, told = self._env.close()
                wrong = bool(told[seat].get("invalid_move"))
                reason = str(next((its["reason"] for its in told.values() if its.get("reason")), ""))
                earned = {at: float(rewards.get(at, 0)) for at in range(self._seats)}
                self._over = Result(earned, reason, seat if wrong else -1)
                return not wrong
        return getattr(state, "error_count", 0) <= errors or state.current_player_id != seat

    def result(self) -> Result | None:
        """Returns the result, or None while the game goes on."""
        return self._over

    def close(self) -> None:
        """Does nothing: the game holds nothing to let go of."""
