"""Base class of the games: a proposer suggests moves, a planner decides, and the planner's moves are played.

The roles are AT-GRPO's (arXiv:2510.11062). There the proposer is a tool user, and its program prints the proposal
(`tool = true`); a starter writes the proposal directly. Prompts show the current board. Only the planner's moves change
it. Running out of turns is never a success. The form of answers is ours. So are the rewards: unlike the published ones,
they cannot be exploited.

These are the rewards, unless a game defines its own. w(s) is the value of a board s: 0 at the start, 1 if it is solved,
and never more. s is the board before a reply and s' the board after it:

    planner  = w(s') - w(s)  - 0.2 [the reply is malformed or a move is illegal]
    proposer = w(s') - 1     - 0.2 [...]        of a proposal, which is only imagined
    team     = 1 when the board is solved, once

A game may set a higher penalty than 0.2, where a legal reply can lose more than that. The planner's rewards add up to
the value of the last board, whatever the path. The proposer's rewards are never above 0. So no list of moves, however
long, earns more than a solution. With `dense = false` only the team is rewarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from coterie.environments.talk import Example, Talk
from coterie.kernel.scene import Reply, Scene
from coterie_worlds.programs import RunsPrograms

ILLEGAL = 0.2
"""Penalty of a malformed reply or an illegal move."""
LONGEST_QUOTE = 200
"""Maximum characters of a proposal that the planner is shown."""
PLANNER, PROPOSER, TOOL = "planner", "proposer", "tool"
SOLVED = "solved"
LONG = 128
"""Tokens of a reply from which on a role is told that it may think first."""


class Game(RunsPrograms):
    """A board that two roles work on in turns; or the planner alone."""

    team_reward_range: ClassVar = (0.0, 1.0)
    minutes: ClassVar[Mapping[str, int]] = {}
    """Settings of `train` with which its starter learns in minutes on two cores."""

    max_turns: int = Field(default=4, ge=1)
    """Maximum turns of an episode. An episode without a solution then ends as unsolved."""
    max_tokens: int = Field(default=32, ge=4)
    """Maximum tokens per reply. A reply that is cut off counts as malformed."""
    solo: bool = False
    """Single-agent baseline: the planner plays alone and sees the whole board."""
    brief: bool = True
    """true: short prompts, for a small model that was trained on the game. false: prompts that explain the rules."""
    dense: bool = True
    """true: each reply has a local reward, by what it makes of the board. false: only the outcome is rewarded."""
    tool: bool = False
    """true: the first role writes a Python program, and the program's output is its proposal, as published. false: it
    writes the proposal itself."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The role that proposes and the planner, or the planner alone."""
        return (PLANNER,) if self.solo else (TOOL if self.tool else PROPOSER, PLANNER)

    @model_validator(mode="after")
    def _told(self) -> Game:
        if self.tool and (self.brief or self.solo):
            raise ValueError(
                "tool = true needs brief = false, for no starter writes programs, and solo = false; set them"
            )
        return self

    @property
    def long(self) -> bool:
        """True if replies are long enough to reason in; shorter ones mean a small model."""
        return self.max_tokens >= LONG

    def known(self) -> bool:
        """Returns True if the environment's starter was taught boards like these."""
        return True

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for a starter: a policy a role, random commits; greedy ones rarely show where errors lead.

        Without local rewards the first role is paid at the end of a turn, so the horizon is no shorter.
        """
        if not (self.brief and self.known()):
            return {}
        tables = {"optimizer": {"lr": 1e-3}, "train": dict(self.minutes)}
        if self.solo:
            return {"algorithm": {"name": "grpo"}, **tables}
        return {
            "algorithm": {"name": "at_grpo", "horizon": "point" if self.dense else "turn", "commit": "random"},
            "team": {PROPOSER: "scout", PLANNER: "pilot"},
            "policies": {"scout": {}, "pilot": {}},
            **tables,
        }

    def inert(self) -> dict[str, str]:
        """Returns the settings of the sandbox as without effect if no role writes programs."""
        return {} if self.tool else dict.fromkeys(("sandbox", "time_s", "memory_mb"), "tool = false runs no programs")

    def runs_programs(self) -> bool:
        """Returns True if a tool user plays."""
        return self.tool

    async def play(self, task: Any, scene: Scene) -> None:
        """Plays up to `max_turns` turns of a proposal and what the planner makes of it."""
        state = scene.state(board=self.begin(task), said={})
        manuals = {} if self.brief else {role: self.manual(role) for role in self.roles}
        examples = {role: self.examples(role) for role in manuals}
        talk = Talk(scene, manuals, state.said, examples=examples)
        for _ in scene.turns(self.max_turns):
            board = state.board
            seen = self.shown(task, board)
            if not self.solo:
                role = self.roles[0]
                idea = await talk.ask(role, seen, max_tokens=self.max_tokens)
                if self.tool:
                    idea = await self._printed(scene, idea)
                if self.dense:
                    scene.reward(role, self.local(role, task, board, *self.move(task, board, idea)))
                seen = self.planner_sees(task, board, idea)
            answer = await talk.ask(PLANNER, seen, max_tokens=self.max_tokens)
            after, legal = self.move(task, board, answer)
            if self.dense:
                scene.reward(PLANNER, self.local(PLANNER, task, board, after, legal))
            state.board = after
            ending = self.ended(task, after)
            scene.team_reward(float(ending == SOLVED))
            if ending == SOLVED:
                return scene.succeed()
            if ending:
                return scene.fail(ending)
        return scene.fail("turn limit")

    async def _printed(self, scene: Scene, reply: Reply) -> Reply:
        """Returns a program's output as if its role had said it; its status in brackets if it did not end well."""
        from coterie_worlds.coding.problems import program_of
        from coterie_worlds.sandbox import runs

        program = program_of(reply)
        (answer,) = await scene.call(runs, self.box, program, [""]) if program else [{"status": "no program"}]
        ok = answer["status"] == "ok"
        scene.metric("programs_ok", float(ok))
        return Reply(reply.role, answer["output"] if ok else f"({answer['status']})")

    def manual(self, role: str) -> str:
        """Returns the instructions of a role for a model that was never taught the game.

        The role is told that it may think if its replies are long enough for it.
        """
        limit = f"up to {self.max_turns} turns" if self.max_turns > 1 else "one turn"
        answer = f"{'Think if you like, then end' if self.long else 'Answer'} with {self.form()}"
        if self.solo:
            return f"{self.rules()} You have {limit}. {answer}"
        if role == PLANNER:
            first = self.roles[0]
            return (
                f"{self.rules()} You are the planner: your answers are played, in {limit}. The {first} makes a "
                f"proposal, and a proposal may be wrong. {self.sight()}{answer}"
            )
        if role == PROPOSER:
            return (
                f"{self.rules()} You are the proposer: the planner hears your answer, and decides, in {limit}. {answer}"
            )
        return (
            f"{self.rules()} You are the {TOOL}, in {limit}: you write a Python program that works out a proposal for "
            "the planner and prints it. Nothing is given to it, so the board must stand in the program; the standard "
            f"library is there. Reply with one fenced code block. What it prints ends with {self.form()}"
        )

    def examples(self, role: str) -> Sequence[Example]:
        """Returns chats that show a role the form of an answer; by default none."""
        return ()

    def planner_sees(self, task: Any, board: Any, idea: Reply) -> str:
        """Returns the planner's prompt after a proposal."""
        return f"{self.shown(task, board)}\nproposal: {quote(idea)}"

    def local(self, role: str, task: Any, before: Any, after: Any, legal: bool) -> float:
        """Returns a role's reward for a reply, by the formula of the module's docstring."""
        was = self.worth(task, before) if role == PLANNER else 1.0
        return self.worth(task, after) - was - (0.0 if legal else self.penalty(task))

    def penalty(self, task: Any) -> float:
        """Returns the penalty of a malformed reply or an illegal move."""
        return ILLEGAL

    def sight(self) -> str:
        """Returns a sentence that tells the planner what it sees, if that is not everything."""
        return ""

    def rules(self) -> str:
        """Returns the rules of the game, in sentences."""
        raise NotImplementedError

    def form(self) -> str:
        """Returns the form of an answer, as the end of a sentence; an example in it solves nothing."""
        raise NotImplementedError

    def begin(self, task: Any) -> Any:
        """Returns the board at the start: a value, never changed."""
        raise NotImplementedError

    def move(self, task: Any, board: Any, reply: Reply) -> tuple[Any, bool]:
        """Returns the board that a reply leads to, and whether all of it was well-formed and legal."""
        raise NotImplementedError

    def worth(self, task: Any, board: Any) -> float:
        """Returns the worth of a board: 0 at the start, 1 only if it is solved, never more."""
        raise NotImplementedError

    def ended(self, task: Any, board: Any) -> str:
        """Returns SOLVED, the reason why the game is lost, or nothing while it goes on."""
        raise NotImplementedError

    def shown(self, task: Any, board: Any) -> str:
        """Returns the whole board, as text."""
        raise NotImplementedError


def quote(reply: Reply) -> str:
    """Returns another role's words, on one line and bounded."""
    return " ".join(reply.text[:LONGEST_QUOTE].split())
