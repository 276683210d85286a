"""PettingZoo's games: `coterie train pettingzoo:tictactoe_v3`, or one of your own: `pettingzoo:my_game.py:env`.

Every seat is a role or moves at random; see `match.py`. PettingZoo's games use arrays. This module defines prompts and
move names for the classic games. A game of your own can define both in two methods:

    def describe(self, agent) -> str           # how it stands, as that agent may know it
    def moves(self, agent) -> dict[str, int]   # what it may do: a word, and the action that it stands for

Without them, the prompt shows the observation, if it is text or a few numbers, and moves are numbers.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import PrivateAttr, model_validator

from coterie.errors import ConfigError, EnvError, nearest
from coterie.kernel.mistakes import said
from coterie_worlds.foreign.match import Heard, Result
from coterie_worlds.foreign.own_game import NONE, OwnGame, Read, readable
from coterie_worlds.foreign.sealed import Sealed

MOST = 64
"""Maximum count of numbers in an observation that is told as it is."""


@dataclass(frozen=True, slots=True)
class Classic:
    """The words for a game. state, word: functions of the game and a seat; word: of an action too."""

    rules: str
    state: Callable[[Any, int], str]
    word: Callable[[Any, int, int], str]


def _tictactoe(game: Any, seat: int) -> str:
    cells = [{0: str(at), 1: "X", 2: "O"}[value] for at, value in enumerate(game.board.squares)]
    return "\n".join(" | ".join(cells[row::3]) for row in range(3))


def _connect_four(game: Any, seat: int) -> str:
    rows = [" ".join(".XO"[value] for value in game.board[at : at + 7]) for at in range(0, 42, 7)]
    return "\n".join([*rows, "0 1 2 3 4 5 6"])


def _hand(game: Any, seat: int) -> str:
    shown = game.env.get_state(seat)["raw_obs"]
    public = shown.get("public_cards", [shown["public_card"]] if shown.get("public_card") else [])
    hand = [shown["hand"]] if isinstance(shown["hand"], str) else shown["hand"]
    mine = int(shown.get("my_chips", shown["all_chips"][seat]))
    others = [str(int(chips)) for at, chips in enumerate(shown["all_chips"]) if at != seat]
    table = " ".join(public) or "none"
    return f"Your hand: {' '.join(hand)}\nOn the table: {table}\nChips in: yours {mine}, others' {' '.join(others)}"


def _last(game: Any, seat: int) -> str:
    name = game._moves[int(game.observe(game.possible_agents[seat]))]  # noqa: SLF001
    return f"The other's last move: {name}"


def _stones(game: Any, seat: int) -> str:
    planes = game.observe(game.possible_agents[seat])["observation"]
    marks = [["X" if mine else "O" if theirs else "." for mine, theirs in row] for row in planes[:, :, :2]]
    return "\n".join(" ".join(row) for row in marks)


def _point(game: Any, seat: int, action: int) -> str:
    size = game.observe(game.possible_agents[seat])["observation"].shape[0]
    return "pass" if action == size * size else f"{action // size} {action % size}"


def _chess_move(game: Any, seat: int, action: int) -> str:
    utils: Any = importlib.import_module("pettingzoo.classic.chess.chess_utils")
    return utils.action_to_move(game.board, action, seat).uci()


def _number(game: Any, seat: int, action: int) -> str:
    return str(action)


def _bet(game: Any, seat: int, action: int) -> str:
    known = game.env.actions
    return known[action] if isinstance(known, list) else known(action).name.lower().replace("_", " ")


CLASSICS = {
    "tictactoe_v3": Classic(
        "Tic-tac-toe. Seat 0 is X, seat 1 is O. A move is the number of a free cell; three of yours in a line win.",
        _tictactoe, _number,
    ),
    "connect_four_v3": Classic(
        "Connect four. Seat 0 is X, seat 1 is O. A move is the number of a column, into which your disc falls; four "
        "of yours in a line win.",
        _connect_four, _number,
    ),
    "rps_v2": Classic(
        "Rock, paper, scissors, again and again; both choose before either sees. Each round is worth 1.",
        _last, lambda game, seat, action: game._moves[action],  # noqa: SLF001
    ),
    "leduc_holdem_v4": Classic(
        "Leduc hold'em: six cards, J Q K in two suits. Each has one; after the first round of bets one is laid open. "
        "A pair with it wins, then the higher card.",
        _hand, _bet,
    ),
    "texas_holdem_v4": Classic("Texas hold'em with fixed bets. The best five cards win the chips.", _hand, _bet),
    "texas_holdem_no_limit_v6": Classic("Texas hold'em without limit. The best five cards win.", _hand, _bet),
    "chess_v6": Classic(
        "Chess. Seat 0 is White. A move is the field that a piece leaves and the one that it goes to, as in e2e4.",
        lambda game, seat: f"{game.board}\n{game.board.fen()}", _chess_move,
    ),
    "go_v5": Classic(
        "Go. Your stones are X. A move is a row and a column from the top left, or pass; the larger area wins.",
        _stones, _point,
    ),
}  # fmt: skip
REFUSED = {"hanabi_v5": "it needs open_spiel, and was not tried"}


class PettingZoo(OwnGame):
    """A game of PettingZoo, or one that is written as those are."""

    form: ClassVar = "pettingzoo:tictactoe_v3, or your own, pettingzoo:FILE.py:FUNCTION"

    _names: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _is_played_here(self) -> Self:
        if why := REFUSED.get(self.game):
            raise ValueError(f"game = '{self.game}' cannot be played: {why}")
        if not self.own and self.game not in CLASSICS:
            raise ValueError(f"game = '{self.game}' is none that was played here{nearest(self.game, CLASSICS)}")
        return self

    def ready(self) -> None:
        """Raises ConfigError if PettingZoo is not installed, or a game, made once to see, cannot be played."""
        if importlib.util.find_spec("pettingzoo") is None:
            raise ConfigError("pettingzoo is not installed: pip install 'coterie[pettingzoo]'")
        if not self._seated():
            raise ConfigError(f"environment.game = '{self.game}' has no players: its possible_agents are none")
        game = self.begun(0)
        if not game.result():
            game.turn()  # as its players see it

    def seats(self) -> int:
        """Returns the number of players."""
        return int(self.options.get("num_players", 2)) if self.game in CLASSICS else len(self._seated())

    def choices(self) -> bool:
        """Returns True: it is always known what may be done."""
        return True

    def begun(self, seed: int) -> PettingZooGame:
        """Returns a game at its beginning."""
        return PettingZooGame(self._made, CLASSICS.get(self.game), seed)

    def _made(self) -> Any:
        """Returns a game, of the kind that asks one after the other."""
        if not self.own:
            with warnings.catch_warnings(action="ignore"):  # of the library to those who write it
                return importlib.import_module("pettingzoo").make(
                    "aec", f"classic/{self.game}", **copy.deepcopy(self.options)
                )
        made = self.own_game()
        if hasattr(made, "agent_iter"):
            return made
        return importlib.import_module("pettingzoo.utils.conversions").parallel_to_aec(made)

    def _seated(self) -> Sequence[str]:
        """Returns the names of the players. Raises: ConfigError: no such game can be made."""
        if not self._names:
            try:
                self._names = tuple(self._made().possible_agents)
            except Exception as error:  # a user's function may raise anything
                raise ConfigError(f"environment.game = '{self.game}' cannot be made: {said(error)}") from error
        return self._names


class PettingZooGame:
    """A game of PettingZoo under way: `last`, `step`, and `step(None)` of those who are out, until nobody is left."""

    def __init__(self, made: Callable[[], Any], classic: Classic | None, seed: int) -> None:
        self._sealed, self._classic = Sealed(seed), classic
        with self._sealed():
            self._env: Any = made()
            self._env.reset(seed=seed)
            self._seats = {agent: seat for seat, agent in enumerate(self._env.possible_agents)}
            self._earned = dict.fromkeys(self._seats.values(), 0.0)
            self._new = set(self._seats.values())
            self._read = Read()
            self._seen: Any = None
            self._able: Mapping[str, int] = {}
            self._over: Result | None = None
            self._go_on()

    def _go_on(self) -> None:
        """Goes on to whoever can move. The last rewards are read where those who are out are passed over."""
        while self._env.agents:
            agent = self._env.agent_selection
            self._seen, reward, out, cut, _ = self._env.last()
            self._earned[self._seats[agent]] += float(reward)
            if not (out or cut):
                return
            self._env.step(None)
        self._over = Result(self._earned, "the game is over")

    def turn(self) -> tuple[int, Sequence[Heard], Sequence[str]]:
        """Returns the seat that moves, what it is told since its last move, and its legal moves."""
        seat = self._seats[self._env.agent_selection]
        with self._sealed():
            news = [Heard(self._state(seat), board=True)]
            self._able = self._moves(seat)
        if seat in self._new and self._classic:
            news.insert(0, Heard(f"{self._classic.rules} You are seat {seat}. Write your move in brackets."))
        if self._read.wrong:
            news.insert(0, Heard(NONE))
        self._new.discard(seat)
        return seat, news, [f"[{move}]" for move in self._able]

    def move(self, text: str) -> bool:
        """Makes a move if a reply names one; returns False if it does not."""
        seat = self._seats[self._env.agent_selection]
        with self._sealed():
            action = self._read.move(text, self._able)
            if action is None:
                self._over = self._read.lost(seat)
                return False
            self._able = {}
            self._env.step(action)
            self._go_on()
        return True

    def result(self) -> Result | None:
        """Returns the result, or None while the game goes on."""
        return self._over

    def close(self) -> None:
        """Closes the game."""
        self._env.close()

    def _state(self, seat: int) -> str:
        """Returns the state of the game as text."""
        game = self._env.unwrapped
        if self._classic:
            return self._classic.state(game, seat)
        if hasattr(game, "describe"):
            return str(game.describe(self._env.agent_selection))
        seen = self._seen["observation"] if isinstance(self._seen, Mapping) else self._seen
        if getattr(seen, "size", 1) > MOST:
            raise ConfigError(
                f"an observation of {seen.size} numbers says nothing in words; write describe(self, agent), which "
                "tells how the game stands"
            )
        return str(seen)

    def _moves(self, seat: int) -> Mapping[str, int]:
        """Returns the legal moves: words, and their actions."""
        game, agent = self._env.unwrapped, self._env.agent_selection
        if not self._classic and hasattr(game, "moves"):
            return self._own_moves(game.moves(agent), self._env.action_space(agent))
        mask = self._seen.get("action_mask") if isinstance(self._seen, Mapping) else None
        able = range(self._env.action_space(agent).n) if mask is None else [int(at) for at in mask.nonzero()[0]]
        word = self._classic.word if self._classic else _number
        return {word(game, seat, action): action for action in able}

    def _own_moves(self, told: Any, space: Any) -> Mapping[str, int]:
        """Returns the legal moves that a user's game lists. Raises: EnvError: one is no move of the game."""
        if not isinstance(told, Mapping) or not told:
            raise EnvError(f"moves(self, agent) gave {told!r:.80}; give words and their actions, as in {{'left': 0}}")
        for word, action in told.items():
            if not space.contains(action):
                raise EnvError(f"moves(self, agent): the move {word!r:.80} is {action!r:.80}, which {space} has not")
        return {readable(str(word)): action for word, action in told.items()}
