"""Maths: reasoners and tool users work on a problem, and go on until their answers agree.

The task is AT-GRPO's (arXiv:2510.11062). In the first turn all roles see only the problem; later they also see what the
others said. The episode ends when all answers of a turn agree, or at the turn limit. Only the final answer is judged:
the judge's if there is one, otherwise the first reasoner's. (As published, an episode is also won when the answer of
any turn is the gold answer.) A tool user's expression goes to a calculator, or its program to the sandbox. If it fails,
the tool user has no answer.

Rewards, none of which a longer episode can add to:

    team     = 1 if the final answer is right, once, at the end
    reasoner = 0.2 [an answer can be read] + 0.8 [it is right] - 1
    tool     = 0.1 [there is an expression, or a program] + 0.1 [it comes to something] + 0.8 [that is right] - 1
    judge    = as a reasoner

The weights are those in the paper's notes. Subtracting 1 is ours: each turn then costs the part that it lacks, so the
best policy is to agree early on the right answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coterie.environments.published.plays import PlaysData
from coterie.environments.talk import Example, Talk, marked
from coterie.kernel.environment import Lesson, Split
from coterie.kernel.episode import Log
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie_worlds.coding.problems import program_of
from coterie_worlds.maths import procedural
from coterie_worlds.maths.calculator import calculate
from coterie_worlds.maths.equal import alike, same
from coterie_worlds.maths.procedural import MathsProblem, mistaken, steps
from coterie_worlds.maths.questions import Questions
from coterie_worlds.maths.replies import stated, worked
from coterie_worlds.programs import RunsPrograms
from coterie_worlds.sandbox import runs

REASONER, TOOL, JUDGE = "reasoner", "tool", "judge"
LONGEST_QUOTE = 2000
"""Maximum characters of what another said that a role is shown."""
LONGEST_ANSWER = 400
"""Maximum characters of an answer that are read."""
LONG = 128
"""Tokens of a reply from which on roles are shown what the others wrote, and not only what it came to."""
NOTHING = "nothing"
BRIEF = {REASONER: "solve", TOOL: "calc", JUDGE: "judge"}
"""Names of the roles in the prompts of a small model."""
ANSWER = re.compile(r"^[ \t]*answer[ \t](.*)$", re.MULTILINE)
CALCULATE = re.compile(r"^[ \t]*calc[ \t]+([^ \t\n].*)$", re.MULTILINE)
FOUND = re.compile(r"^(?:tool |\(which comes to )([^\s)]+)\)?$", re.MULTILINE)
"""Pattern of a tool user's result in a prompt."""
BOX = "End your reply with the answer alone in \\boxed{...}, such as, to another problem, \\boxed{x_{30}}."
PLAIN = "End with: The answer is NUMBER."
INSTRUCTIONS = {
    REASONER: "Solve the problem step by step. ",
    JUDGE: "You see what the others found, and give the final answer. ",
    "calculator": "You have a calculator. Write the calculation that solves the problem, in numbers, brackets and "
    "+ - * / // % ** alone.",
    "python": "You write a Python program that works out the answer and prints it, and nothing after it. Nothing is "
    "given to it; the standard library is there. Reply with one fenced code block.",
}
"""Instructions for a model that was never taught its role, by role or tool."""
TEAM = "You are the {role} of a team. "
LATER = "Find out who is right, and answer again."
"""Request to a role in a later turn, under what the others found."""
ALONE = "kim has 5 mugs . lee has 3 more mugs than kim . how many mugs has lee ?"
OTHER = "sue has 6 mugs . tom has 2 times the mugs of sue . how many mugs has tom ?"
FINDINGS = f"{OTHER}\n\nreasoner: 8\n\ntool: 12"
EXAMPLES = {
    REASONER: (("2 + 3 * ( 4 - 1 )", "4 - 1 = 3. 3 * 3 = 9. 2 + 9 = 11. The answer is 11."),
               (ALONE, "5 + 3 = 8. The answer is 8."), (FINDINGS, "The answer is 12.")),
    TOOL: (("2 + 3 * ( 4 - 1 )", "2 + 3 * ( 4 - 1 )"), (ALONE, "5 + 3"), (FINDINGS, "6 * 2")),
    JUDGE: ((FINDINGS, "The answer is 12."),),
}  # fmt: skip
"""Chats about problems that are never drawn: of these names and things there are none."""


class Maths(PlaysData, RunsPrograms):
    """Reasoners and tool users solve problems, and go on until they agree."""

    team_reward_range: ClassVar = (0.0, 1.0)
    starter: ClassVar[str] = "starter-maths"

    data: str = ""
    """Questions with answers: a .jsonl, .json, .csv or .parquet file, hub:owner/name@revision#config/split, TRAIN ->
    TEST of two such sources, or a benchmark (gsm8k, math500, aime24, aime25, olympiad). Empty: problems are
    generated."""
    kinds: tuple[Literal["sum", "equation", "story"], ...] = Field(default=procedural.KINDS, min_length=1)
    """Kinds of generated problems. A kind that is listed twice is drawn twice as often."""
    reasoners: int = Field(default=1, ge=0, le=9)
    """Number of reasoners. With none, one tool user works alone."""
    tools: int = Field(default=1, ge=0, le=9)
    """Number of tool users."""
    judge: bool = False
    """Add a judge, who gives the final answer."""
    tool: Literal["calculator", "python"] = "calculator"
    """The tool of the tool users."""
    max_turns: int = Field(default=2, ge=1)
    """Maximum turns. After the last turn the final answer counts even without agreement. Published: 4."""
    max_tokens: int = Field(default=64, ge=4)
    """Maximum tokens per reply. A reply that is cut off has no answer."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration makes a typical mistake, such as to ignore the order of operations."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Roles with at least one member."""
        there = {REASONER: self.reasoners, TOOL: self.tools, JUDGE: self.judge}
        return tuple(role for role, count in there.items() if count)

    @property
    def members(self) -> tuple[str, ...]:
        """The role of each reasoner and tool user, one entry a member."""
        return (REASONER,) * self.reasoners + (TOOL,) * self.tools

    @model_validator(mode="after")
    def _possible(self) -> Maths:
        if self.tool == "python" and self.brief and self.tools:
            raise ValueError("tool = 'python' needs brief = false: no starter writes programs")
        if not self.members:
            raise ValueError("reasoners = 0 and tools = 0: somebody has to work; set one of them")
        if not self.reasoners and self.tools > 1 and not self.judge:
            raise ValueError(f"tools = {self.tools} need a reasoner, or judge = true: somebody has to give the answer")
        if self.reasoners > 1 and not self.judge:
            raise ValueError(f"reasoners = {self.reasoners} need judge = true: somebody has to give the final answer")
        return self

    @property
    def long(self) -> bool:
        """True if replies are long enough to reason in; shorter ones mean a small model."""
        return self.max_tokens >= LONG

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for drawn problems, which the starter knows: a policy a role, minutes on two cores."""
        if self.data or not self.brief:
            return {}
        return {
            "algorithm": {"name": "at_grpo", "horizon": "point"} if len(self.roles) > 1 else {"name": "grpo"},
            "team": {role: role for role in self.roles},
            "policies": {role: {} for role in self.roles},
            "optimizer": {"lr": 1e-3},
            "train": {"steps": 80, "tasks_per_step": 40},
        }

    def inert(self) -> dict[str, str]:
        """Returns settings without effect: `kinds` with data, the sandbox's without programs, `tool` without a user."""
        inert: dict[str, str] = {}
        if not self.runs_programs():
            inert |= dict.fromkeys(("sandbox", "time_s", "memory_mb"), "no role writes programs")
        if self.data:
            inert["kinds"] = "data holds the questions"
        return inert | ({} if self.tools else {"tool": "tools = 0"})

    def runs_programs(self) -> bool:
        """Returns True if tool users write programs."""
        return self.tools > 0 and self.tool == "python"

    def reader(self) -> Questions:
        """Returns a reader of questions with an answer."""
        return Questions()

    def drawn(self, split: Split, index: int) -> MathsProblem:
        """Returns the problem at a place of a split."""
        return procedural.question(split, index, self.kinds)

    async def play(self, task: MathsProblem, scene: Scene) -> None:
        """Plays turns until all answers agree, or up to the turn limit."""
        manuals = {} if self.brief else {role: self.manual(role) for role in self.roles}
        talk = Talk(scene, manuals, examples={role: self.examples(role) for role in self.roles})
        found: list[str] = []
        said: list[str] = []
        for _ in scene.turns(self.max_turns):
            texts = [(role, self.told(role, task, said)) for role in self.members]
            replies = await talk.ask_all(texts, max_tokens=self.max_tokens)
            found = [await self._judged(scene, task, reply) for reply in replies]
            said = [self._quoted(reply, answer) for reply, answer in zip(replies, found, strict=True)]
            if all(answer and alike(answer, found[0]) for answer in found):
                break
        final = found[0]
        if self.judge:
            verdict = await talk.ask(JUDGE, self.told(JUDGE, task, said), max_tokens=self.max_tokens)
            final = await self._judged(scene, task, verdict)
        right = bool(final) and await scene.call(same, task.answer, final, task.query)
        scene.metric("agreed", float(all(answer and alike(answer, found[0]) for answer in found)))
        scene.team_reward(float(right))
        return scene.succeed() if right else scene.fail("a wrong answer" if final else "no answer")

    def asked(self, text: str) -> MathsProblem:
        """Returns a person's problem as a task."""
        if not text.strip():
            raise ValueError("ask a problem")
        return MathsProblem("asked", "test", query=text)

    def answer(self, task: MathsProblem, log: Log) -> str:
        """Returns the last reply of the role whose answer counts: the judge, or the first of those who were asked."""
        counts = JUDGE if self.judge else self.members[0]
        return next((reply.text for _, reply in reversed([*log.replies()]) if reply.role == counts), "")

    async def _judged(self, scene: Scene, task: MathsProblem, reply: Reply) -> str:
        """Returns a reply's answer, "" if there is none; its role is paid for it."""
        if reply.role == TOOL:
            written, answer = await self._worked_out(scene, reply)
            paid = 0.1 * written + 0.1 * bool(answer)
        else:
            answer = self.answer_of(reply)
            paid = 0.2 * bool(answer)
        right = bool(answer) and await scene.call(same, task.answer, answer, task.query)
        scene.reward(reply, paid + 0.8 * right - 1.0)
        scene.metric(f"readable/{reply.role}", float(bool(answer)))
        return answer

    async def _worked_out(self, scene: Scene, reply: Reply) -> tuple[bool, str]:
        """Returns True if a reply has something to work out, and the result, "" if that fails."""
        if reply.finish != "stop":
            return False, ""
        if self.tool == "calculator":
            expressions = CALCULATE.findall(reply.text)
            if not self.brief and (calculation := worked(reply.text)):
                expressions = [calculation]
            try:
                return bool(expressions), calculate(expressions[-1]) if expressions else ""
            except ValueError:
                return True, ""
        program = program_of(reply)
        if not program.strip():
            return False, ""
        (ran,) = await scene.call(runs, self.box, program, [""])
        lines = ran["output"].strip().splitlines() if ran["status"] == "ok" else []
        return True, lines[-1].strip()[:LONGEST_ANSWER] if lines else ""

    def answer_of(self, reply: Reply) -> str:
        """Returns the answer that a reply ends with: its last line of that form, or as `stated` reads plain words."""
        if reply.finish != "stop":
            return ""
        if not self.brief:
            return stated(reply.text)[:LONGEST_ANSWER]
        lines = ANSWER.findall(reply.text)
        return lines[-1].strip()[:LONGEST_ANSWER] if lines else ""

    def _quoted(self, reply: Reply, answer: str) -> str:
        """Returns what the others are shown of a reply."""
        if self.brief:
            return f"{reply.role} {' '.join(answer.split()) or NOTHING}"
        if not self.long:
            return f"{reply.role}: {' '.join(answer.split()) or NOTHING}"
        came_to = "its answer is" if reply.role == REASONER else "which comes to"
        words = reply.text if len(reply.text) <= LONGEST_QUOTE else f"… {reply.text[-LONGEST_QUOTE:]}"
        return f"A {reply.role} wrote:\n{marked(words)}\n({came_to} {' '.join(answer.split()) or NOTHING})"

    def told(self, role: str, task: MathsProblem, said: Sequence[str]) -> str:
        """Returns the prompt of a role: the problem, and what was said in the turn before."""
        if self.brief:
            return "\n".join((f"{BRIEF[role]} {task.query}", *said))
        return "\n\n".join((task.query, *said, LATER) if said and self.long else (task.query, *said))

    def manual(self, role: str) -> str:
        """Returns the instructions of a role for a model that was never taught the task."""
        how = INSTRUCTIONS[self.tool if role == TOOL else role]
        if role != TOOL:
            how += BOX if self.data else PLAIN
        return how if len(self.members) == 1 and not self.judge else f"{TEAM.format(role=role)}{how}"

    def examples(self, role: str) -> Sequence[Example]:
        """Returns chats that show a role the form of an answer, if problems are drawn and replies are short."""
        return () if self.data or self.long or (role == TOOL and self.tool == "python") else EXAMPLES[role]

    def demonstrate(self, role: str, task: MathsProblem, prompt: Prompt, rng: Random) -> str:
        """Returns an expert's steps or expression; with probability `naive` those of somebody with a bad habit.

        Where a tool user found something else, every other expert takes that for the answer.
        """
        if self.data:
            raise NotImplementedError("questions of data come without demonstrations")
        habit = rng.random() < self.naive
        expression = mistaken(task) if habit and role != JUDGE else task.expression
        if role == TOOL:
            return f"calc {expression}"
        found = [one for one in FOUND.findall(str(prompt)) if one != NOTHING]
        if found and not habit and rng.random() < 0.5:
            return self._final(found[-1])
        worked = steps(expression)
        answer = worked[-1].rpartition(" = ")[2] if worked else expression
        return "\n".join([*worked, self._final(answer)])

    def _final(self, answer: str) -> str:
        return f"answer {answer}" if self.brief else f"\\boxed{{{answer}}}"

    def lessons(self, task: MathsProblem, rng: Random) -> Iterator[Lesson]:
        """Yields lessons for every role but the judge at the first turn, and for every role where two may not agree."""
        for role in self.roles:
            if role != JUDGE:
                yield Lesson(role, self.told(role, task, ()), self.demonstrate(role, task, "", rng))
        said = []
        for role in self.members:
            answer = calculate(mistaken(task) if rng.random() < 0.5 else task.expression)
            said.append(self._quoted(Reply(role, ""), "" if rng.random() < 0.1 else answer))
        for role in self.roles:
            seen = self.told(role, task, said)
            yield Lesson(role, seen, self.demonstrate(role, task, seen, rng))
