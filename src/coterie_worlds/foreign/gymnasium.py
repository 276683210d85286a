"""Gymnasium's environments: `coterie train gymnasium:FrozenLake-v1`, or one of your own: `gymnasium:FILE.py:FUNCTION`.

One role, `player_0`, moves. Its prompt shows the observation if it is text, otherwise the text rendering of the
environment, otherwise the few numbers of the observation. The role answers with the number of an action, or with any
text if actions are texts.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.errors import ConfigError, nearest
from coterie.kernel.mistakes import said
from coterie_worlds.foreign.match import Heard, Result
from coterie_worlds.foreign.own_game import NONE, Alone, Read
from coterie_worlds.foreign.sealed import Sealed

MOST = 64
"""Maximum count of numbers in an observation that is told."""


@dataclass(frozen=True, slots=True)
class Known:
    """Facts on an environment that only the library's documentation has. words: of its actions, in their order."""

    rules: str
    words: Sequence[str]
    state: Callable[[Any, Any], str] | None = None
    """Function of the environment and an observation that tells the state; None: it is told as of any other."""


def _taxi(game: Any, seen: Any) -> str:
    row, column, passenger, goal = game.decode(seen)
    places = [f"{name} at {row} {column}" for name, (row, column) in zip("RGYB", game.locs, strict=True)]
    waits = "in the taxi" if passenger == 4 else f"at {'RGYB'[passenger]}"
    board = HERE.sub(r"\1", game.render()).strip().rsplit("\n  (", 1)[0]
    return f"{board}\n{', '.join(places)}\nTaxi at {row} {column}, passenger {waits}, wants to {'RGYB'[goal]}"


def _blackjack(game: Any, seen: Any) -> str:
    mine, dealer, ace = map(int, seen)
    return f"You hold {mine}{' with an ace as 11' if ace else ''}; the dealer shows {dealer}"


KNOWN = {
    "FrozenLake": Known("Walk from S to G over F; H is a hole. You are in brackets.", ("left", "down", "right", "up")),
    "CliffWalking": Known("Walk from x to T; C is a cliff. A step costs 1.", ("up", "right", "down", "left")),
    "Taxi": Known(
        "Fetch the passenger, and bring it where it wants to be. Places are a row and a column; | is a wall.",
        ("south", "north", "east", "west", "pick up", "drop off"), _taxi,
    ),
    "Blackjack": Known("Come near to 21, not beyond it.", ("stick", "hit"), _blackjack),
}  # fmt: skip
HERE = re.compile(r"\x1b\[[0-9;]+m(.*?)\x1b\[0m")
"""Pattern of what a rendering colours: where somebody stands."""


class Gymnasium(Alone):
    """An environment of Gymnasium, or one that is written as those are: discrete actions, or texts."""

    form: ClassVar = "gymnasium:FrozenLake-v1, or your own, gymnasium:FILE.py:FUNCTION"

    def ready(self) -> None:
        """Raises ConfigError if Gymnasium is not installed, or an environment cannot be made or told in words."""
        if importlib.util.find_spec("gymnasium") is None:
            raise ConfigError("gymnasium is not installed: pip install 'coterie[gymnasium]'")
        gymnasium: Any = importlib.import_module("gymnasium")
        try:
            made = self._made()
        except Exception as error:  # a user's function may raise anything
            near = nearest(self.game, gymnasium.registry) if isinstance(error, gymnasium.error.Error) else ""
            raise ConfigError(f"environment.game = '{self.game}' cannot be made: {said(error)}{near}") from error
        if not isinstance(made.action_space, gymnasium.spaces.Discrete | gymnasium.spaces.Text):
            raise ConfigError(f"environment.game = '{self.game}': actions are {made.action_space}, which no word is")
        if getattr(made, "render_mode", None) != "ansi" and (size := _numbers(made.observation_space)) > MOST:
            raise ConfigError(f"environment.game = '{self.game}' shows {size} numbers and no text")
        made.close()

    def begun(self, seed: int) -> GymnasiumGame:
        """Returns a game at its beginning."""
        return GymnasiumGame(self._made, KNOWN.get(self.game.partition("-v")[0]), seed)

    def _made(self) -> Any:
        """Returns an environment; one of the library's shows itself as text where it can."""
        if self.own:
            return self.own_game()
        make = importlib.import_module("gymnasium").make
        made = make(self.game, disable_env_checker=True, **copy.deepcopy(self.options))
        if "ansi" not in made.metadata["render_modes"] or "render_mode" in self.options:
            return made
        return make(self.game, disable_env_checker=True, render_mode="ansi", **copy.deepcopy(self.options))


def _numbers(space: Any) -> int:
    """Returns the number of numbers in an observation; a text has none."""
    if isinstance(parts := getattr(space, "spaces", None), Mapping | Sequence):
        return sum(map(_numbers, parts.values() if isinstance(parts, Mapping) else parts))
    return 0 if hasattr(space, "character_set") else math.prod(space.shape or ())


class GymnasiumGame:
    """An environment of Gymnasium under way, as a `Match`."""

    def __init__(self, made: Callable[[], Any], known: Known | None, seed: int) -> None:
        self._sealed, self._read, self._known = Sealed(seed), Read(), known
        self._earned, self._begun = 0.0, False
        self._over: Result | None = None
        with self._sealed():
            self._env: Any = made()
            self._seen, _ = self._env.reset(seed=seed)
            space = self._env.action_space
            actions = [int(space.start) + at for at in range(space.n)] if hasattr(space, "n") else []
            words = known.words if known else [str(action) for action in actions]
            self._moves = dict(zip(words, actions, strict=True))

    def turn(self) -> tuple[int, Sequence[Heard], Sequence[str]]:
        """Returns seat 0, what the player is told since its last move, and the moves that it can name."""
        with self._sealed():
            shown = self._shown()
        news = [Heard(NONE)] if self._read.wrong else []
        if not self._begun and self._known:
            news.append(Heard(f"{self._known.rules} Write your move in brackets."))
        self._begun = True
        return 0, [*news, Heard(shown, board=True)], [f"[{move}]" for move in self._moves]

    def move(self, text: str) -> bool:
        """Makes a move if a reply names one; returns False if it does not."""
        able = self._env.action_space
        action = (
            self._read.move(text, self._moves) if self._moves else self._read.counted(text if text in able else None)
        )
        if action is None:
            self._over = self._read.lost(0)
            return False
        with self._sealed():
            self._seen, reward, out, cut, _ = self._env.step(action)
        self._earned += float(reward)
        if out or cut:
            self._over = Result({0: self._earned}, f"its rewards were {self._earned:g}")
        return True

    def result(self) -> Result | None:
        """Returns the result, or None while the game goes on."""
        return self._over

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _shown(self) -> str:
        """Returns the state of the game as text."""
        if self._known and self._known.state:
            return self._known.state(self._env.unwrapped, self._seen)
        if isinstance(self._seen, str):
            return self._seen
        if getattr(self._env, "render_mode", None) == "ansi":
            return HERE.sub(r"[\1]", str(self._env.render())).strip()
        return str(self._seen)
