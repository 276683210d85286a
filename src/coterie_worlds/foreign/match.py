"""Self-play: every seat of a game is a player, and every player is a role, or moves at random.

A game of a library implements `Match`. This module plays it, builds the prompts, assigns seats and gives rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import Field, PrivateAttr

from coterie.environments.talk import marked
from coterie.errors import ConfigError, EnvError
from coterie.kernel.environment import SPLITS, Environment, Lesson, Split, Task
from coterie.kernel.safe import one_line
from coterie.kernel.scene import Message, Prompt, Scene
from coterie.seeds import seed_of
from coterie_worlds.foreign.sealed import Sealed

MOVES = "Moves: "
"""Beginning of the line on which a player is told its legal moves."""
OR = " | "
"""Separator of two moves, which may hold blanks."""
LONGEST = 4000
"""Maximum characters of a reply that a game is given."""
Opponent = Literal["self", "past", "random", "mixed"]


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that a player is told. sender: a seat, or -1: the game itself. board: how the game stands."""

    text: str
    sender: int = -1
    board: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a game. rewards: by seat. wrong: the seat whose invalid move ended it, or -1."""

    rewards: Mapping[int, float]
    reason: str
    wrong: int = -1


class Match(Protocol):
    """A game under way."""

    def turn(self) -> tuple[int, Sequence[Heard], Sequence[str]]:
        """Returns the seat that moves, what it is told since its last move, and its legal moves, if they are known."""
        ...

    def move(self, text: str) -> bool:
        """Makes a move; returns False if it was none: the same player is asked again, or has lost by it."""
        ...

    def result(self) -> Result | None:
        """Returns the result, or None while the game goes on."""
        ...

    def close(self) -> None:
        """Lets go of what the game holds; it is asked no more."""
        ...


@dataclass(frozen=True, slots=True)
class Round(Task):
    """A game as a task. number: of the task, by which players change seats."""

    number: int = 0
    seed: int = 0


class SelfPlay(Environment):
    """A game of another library."""

    argument: ClassVar = "game"

    game: str = ""
    """Name of the game."""
    against: Opponent = "self"
    """Opponents of player_0 in training. self: the other roles (player_1 and so on); past: earlier versions of
    player_0's policy; random: random moves; mixed: roles in half of the tasks, random moves in the other half."""
    tested_against: Literal["", "self", "random"] = ""
    """Opponents of player_0 in validation and test. Empty: random if the game lists its legal moves, otherwise self."""
    opening: int = Field(default=0, ge=0)
    """Maximum number of random opening moves of a training game. The number and the moves are drawn once per task.
    Without them, self-play would repeat the same game."""
    brief: bool = False
    """true: the prompt holds only the player's seat and the state of the game, without rules and history, for a small
    model that was trained on the game."""
    max_moves: int = Field(default=100, ge=1)
    """Maximum moves of all players together. Nobody wins a longer game."""
    max_tokens: int = Field(default=64, ge=1)
    """Maximum tokens per reply."""
    playouts: int = Field(default=0, ge=0)
    """`coterie sft` demonstrates the move with the highest return over this many random playouts. Playouts use hidden
    information that a player does not have. 0: a random legal move."""
    wrong_move: float = Field(default=0.25, ge=0)
    """Penalty for a reply that is not a legal move. If such a reply ends the game, its player loses 1 more, and nobody
    wins."""

    _known: dict[str, dict[str, float]] = PrivateAttr(default_factory=dict[str, dict[str, float]])
    """Total rewards of moves, by prompt: states of small games come again."""

    def seats(self) -> int:
        """Returns the number of players."""
        raise NotImplementedError

    def begun(self, seed: int) -> Match:
        """Returns a game at its beginning."""
        raise NotImplementedError

    def choices(self) -> bool:
        """Returns True if the legal moves are known, so that chance can play."""
        raise NotImplementedError

    @property
    def roles(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Players who are ever asked."""
        return tuple(player for player in self.players() if any(player not in self.by_chance(s) for s in SPLITS))

    def wanted(self) -> str:
        """Returns "past", a pool of past policies, if it is the opponent; else no requirement."""
        return "past" if self.against == "past" else ""

    def inert(self) -> dict[str, str]:
        """Returns the settings of opponents as without effect if one plays alone."""
        if not self.game or self.seats() != 1:
            return {}
        return {"against": "one role plays alone", "tested_against": "one role plays alone"}

    def recommended(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns an algorithm that judges self-play by a baseline a role, as SPIRAL does."""
        judged = {"algorithm": {"name": "rae"}}
        first, *others = self.players()
        if self.against != "past" or not others:
            return judged
        team = {first: "team", **dict.fromkeys(others, "past")}
        return judged | {"team": team, "policies": {"team": {}, "past": {"kind": "past", "model": "team"}}}

    def players(self) -> Sequence[str]:
        """Returns the names of all players."""
        return tuple(f"player_{number}" for number in range(self.seats()))

    def task(self, split: Split, index: int) -> Round:
        """Returns a game with chance of its own."""
        return Round(f"{split}-{index}", split, number=index, seed=seed_of("game", split, index) % 2**31)

    @property
    def rivals(self) -> bool:
        """True if two or more players play, and the opponents in training are not random moves alone."""
        return self.seats() > 1 and self.against != "random"

    def facing(self, *, chance: bool) -> Self:
        """Returns the game with other opponents in evaluation than its settings say."""
        if self.seats() == 1:
            raise ConfigError(f"{self.game} is played by one alone")
        if chance and not self.choices():
            raise ConfigError(f"{self.game} does not say what chance may do")
        return self.model_copy(update={"against": "self", "tested_against": "random" if chance else "self"})

    def by_chance(self, split: Split) -> Sequence[str]:
        """Returns the players that are no roles in a split, because chance moves for them."""
        tested = self.tested_against or ("random" if self.choices() else "self")
        return self.players()[1:] if (self.against if split == "train" else tested) == "random" else ()

    def absent(self, split: Split) -> Sequence[str]:
        """Returns the roles whose moves chance makes in a split."""
        return tuple(role for role in self.roles if role in self.by_chance(split))

    def remarks(self) -> tuple[str, ...]:
        """Returns a remark on the opponents against whom success is measured."""
        first, *others = self.players()
        if not others:
            return ()
        chance = self.by_chance("validation")
        return (f"success is that {first} wins against {'a player that moves by chance' if chance else 'the others'}",)

    async def play(self, task: Round, scene: Scene) -> None:
        """Plays one game."""
        match, count = self.begun(task.seed), self.seats()
        try:
            players = [self.players()[(seat + task.number) % count] for seat in range(count)]
            spoke = await self._moved(task, scene, match, players)
            return self._paid(scene, match.result(), players, spoke)
        finally:
            match.close()

    async def _moved(self, task: Round, scene: Scene, match: Match, players: Sequence[str]) -> set[str]:
        """Plays all moves; returns the players who made one that was not by chance."""
        told: dict[str, list[Message]] = {player: [] for player in players}
        chance = self.by_chance(task.split)
        if self.against == "mixed" and task.split == "train" and task.number // len(players) % 2:
            chance = self.players()[1:]
        first = Random(seed_of("opening", task.seed))
        opening = first.randint(0, self.opening) if task.split == "train" else 0
        spoke: set[str] = set()
        wrong = 0
        for number in scene.turns(0 if match.result() else self.max_moves):
            seat, news, moves = match.turn()
            player = players[seat]
            if number < opening or player in chance:
                self._drawn(match, moves, first if number < opening else scene.rng)
            else:
                reply = await scene.ask(player, self._told(told[player], seat, news, moves), max_tokens=self.max_tokens)
                told[player].append({"role": "assistant", "content": reply})
                spoke.add(player)
                if not match.move(reply.text[:LONGEST]):
                    wrong += 1
                    scene.reward(player, -self.wrong_move, "wrong_move")
            if match.result():
                break
        scene.metric("wrong_moves", wrong)
        return spoke

    def _drawn(self, match: Match, moves: Sequence[str], chance: Random) -> None:
        if not moves:
            raise EnvError(f"{self.game} does not say what chance may do; let roles have all seats and moves")
        move = chance.choice(list(moves))
        if not match.move(move):
            raise EnvError(f"{self.game} lists the move {move!r:.80} and does not take it")

    def _paid(self, scene: Scene, result: Result | None, players: Sequence[str], spoke: set[str]) -> None:
        """Gives the scene the rewards and the outcome of a game."""
        scene.metric("void", float(result is None or result.wrong >= 0))
        if result is None:
            return scene.fail("it took too many moves")
        lost = result.wrong >= 0
        for seat, player in enumerate(players):
            if player in spoke:
                scene.reward(player, -float(seat == result.wrong) if lost else result.rewards[seat], "result")
        if lost:
            return scene.fail("a move that is none")
        mine = players.index(self.players()[0])
        others = [reward for seat, reward in result.rewards.items() if seat != mine]
        scene.metric("drawn", float(bool(others) and result.rewards[mine] == max(others)))
        if self.won(result.rewards[mine], others):
            return scene.succeed()
        return scene.fail(one_line(result.reason)[:200])

    def won(self, mine: float, others: Sequence[float]) -> bool:
        """Returns True if a player has won by what it earned, beside what others did."""
        return mine > max(others) if others else mine >= 1

    def _told(self, told: list[Message], seat: int, news: Sequence[Heard], moves: Sequence[str]) -> Prompt:
        """Returns a player's prompt: all that it was told and said, or how the game stands."""
        can = [f"{MOVES}{OR.join(moves)}"] if moves else []
        if self.brief:
            boards = [heard.text for heard in news if heard.board] or [heard.text for heard in news]
            return "\n".join([f"You are {seat}", *boards[-1:], *can])
        lines = [
            heard.text if heard.sender < 0 else f"Player {heard.sender} said:\n{marked(heard.text)}"
            for heard in news
            if heard.sender != seat  # its own words stand above
        ]
        told.append({"role": "user", "content": "\n\n".join([*lines, *can])})
        return list(told)

    def demonstrate(self, role: str, task: Round, prompt: Prompt, rng: Random) -> str:
        """Returns a random legal move."""
        text = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
        _, known, moves = text.rpartition(f"\n{MOVES}")
        if not known:
            raise NotImplementedError(f"nobody knows what may be done in {self.game}")
        return rng.choice(moves.split(OR))

    def lessons(self, task: Round, rng: Random) -> Iterator[Lesson]:
        """Yields a move for every state of a game that chance plays: any move, or the one with the best `playouts`."""
        if not self.brief:
            raise NotImplementedError("a small model learns from brief prompts: set environment.brief = true")
        match, count, made = self.begun(task.seed), self.seats(), list[str]()
        while len(made) < self.max_moves and not match.result():
            seat, news, moves = match.turn()
            if not moves:
                raise NotImplementedError(f"nobody knows what may be done in {self.game}")
            prompt = str(self._told([], seat, news, moves))
            if self.playouts and prompt not in self._known:
                chance = Random(seed_of("playouts", self.game, prompt))
                self._known[prompt] = {
                    move: sum(self._ended(task.seed, [*made, move], seat, chance) for _ in range(self.playouts))
                    for move in moves
                }
            worth = self._known.get(prompt, dict.fromkeys(moves, 0.0))
            best = [move for move in moves if worth[move] == max(worth.values())]
            yield Lesson(self.players()[(seat + task.number) % count], prompt, rng.choice(best))
            made.append(rng.choice(moves))
            match.move(made[-1])

    def _ended(self, seed: int, made: Sequence[str], seat: int, chance: Random) -> float:
        """Returns a seat's reward in a game that repeats moves, then goes on by chance: libraries copy theirs badly."""
        with Sealed.alone(), closing(self.begun(seed)) as match:
            left = list(reversed(made))
            for _ in range(self.max_moves):
                if result := match.result():
                    return result.rewards.get(seat, -float(result.wrong == seat))
                moves = match.turn()[2]
                match.move(left.pop() if left else chance.choice(list(moves)))
        return 0.0
