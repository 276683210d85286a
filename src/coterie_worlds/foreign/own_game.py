"""Base classes for libraries of games: a game is named in the library, or created by FILE.py:FUNCTION."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, PrivateAttr, model_validator

from coterie.environments import own_code
from coterie.errors import EnvError
from coterie_worlds.foreign.match import OR, Result, SelfPlay

NONE = "That is none of the moves."
"""Message to a player that is asked again after a reply that was no move."""
ALLOWED = 2
"""Number of replies in a row that are no move, with the last of which a player loses."""
T = TypeVar("T")


class OwnGame(SelfPlay):
    """A game that a library knows, or one of a user's own."""

    form: ClassVar[str]
    """Form in which a game is named on the command line."""

    game: str = ""
    """Name of the game, or a function that creates it: FILE.py:FUNCTION or package.module:FUNCTION."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function that creates the game."""

    _home: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _found_from_everywhere(cls, settings: Any) -> Any:
        if isinstance(settings, dict) and isinstance(settings.get("game"), str):
            return {**settings, "game": own_code.whole(settings["game"])}
        return settings

    @model_validator(mode="after")
    def _can_be_found(self) -> Self:
        if not self.game:
            raise ValueError(f"game: name one, as in {self.form}")
        if self.own:
            self._home = own_code.module_of(self.game, self.form).__name__
        return self

    @property
    def own(self) -> bool:
        """True if the game is a user's own."""
        return self.game.rpartition(":")[2].isidentifier() and ":" in self.game

    def own_game(self) -> Any:
        """Returns a game, made by the user's function."""
        module = sys.modules.get(self._home) or own_code.module_of(self.game, self.form)  # as it was, if it is edited
        return getattr(module, self.game.rpartition(":")[2])(**copy.deepcopy(self.options))

    def content(self) -> str:
        """Returns the text of the file of a user's own game; nothing for a game of the library."""
        return own_code.content_of(getattr(sys.modules.get(self._home), "__file__", None))


class Alone(OwnGame):
    """A game of one player, who has solved it if its rewards are enough."""

    solved_at: float = 1.0
    """A task counts as solved if the game's rewards sum to at least this value."""

    def seats(self) -> int:
        """Returns the number of players, one."""
        return 1

    def choices(self) -> bool:
        """Returns False: nobody plays by chance."""
        return False

    def won(self, mine: float, others: Sequence[float]) -> bool:
        """Returns True if the player's rewards are enough."""
        return mine >= self.solved_at


def readable(word: str) -> str:
    """Returns a word of a move, as a reply can say it. Raises: EnvError: none can."""
    if not word.strip() or word != word.strip() or any(mark in word for mark in ("[", "]", "\n", OR)):
        raise EnvError(f"no reply can say the move {word!r:.80}: it has brackets, blanks at an end, or more lines")
    return word


class Read:
    """A reader of moves in replies: the last word in brackets, or all that was said."""

    def __init__(self) -> None:
        self.wrong = 0
        """Replies in a row that were no move."""

    def move(self, text: str, moves: Mapping[str, T]) -> T | None:
        """Returns the action that a reply stands for; None if it is no move."""
        bracketed = re.findall(r"\[([^\[\]]*)\]", text)
        return self.counted(moves.get((bracketed[-1] if bracketed else text).strip()))

    def counted(self, action: T | None) -> T | None:
        """Returns an action, and counts the replies in a row without one."""
        self.wrong = 0 if action is not None else self.wrong + 1
        return action

    def lost(self, seat: int) -> Result | None:
        """Returns the result of a game for a player with too many replies without a move; else None."""
        return Result({}, "a move that is none", wrong=seat) if self.wrong >= ALLOWED else None
