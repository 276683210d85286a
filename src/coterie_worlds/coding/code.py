"""Code: a coder writes a program while a tester writes a test for it. Then both see where they disagree.

The task is AT-GRPO's (arXiv:2510.11062): `coder` and `tester` speak at once, without seeing each
other's reply. The episode ends when the program of a turn passes the test of the turn, or at the turn
limit. Success depends only on the hidden tests of the last program.

What a turn is worth is below. p is the share of hidden tests that the program passes. The test is valid
if it can be parsed, and right if the golden solution passes it. k is the share of nearly right programs
(mutants of the solution) that the test detects:

    team   = p
    coder  = 0.1 [it runs on some input] + 0.1 [it runs on every input] + 0.8 p
    tester = 0.2 [valid] + 0.8 [right] + mutant_weight k [right]

A turn is paid what it is worth more than the turn before, which is ours: an episode earns what its last turn is worth,
however many there were. The rewards of team and coder are those in the paper's notes. In its published code the golden
solution never reaches the tester's reward, which is constant. k is ours, because a right test may still test nothing.
Without a golden solution the tester is rewarded only for validity, and `metric/unjudged` counts these cases.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from coterie.environments.talk import Talk
from coterie.kernel.environment import Lesson
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie_worlds.coding.cooperation import parsed
from coterie_worlds.coding.problems import (
    Problem,
    answers_of,
    boxed,
    embedded,
    examine,
    program_of,
    shown_of,
    tried,
    whole,
)
from coterie_worlds.coding.problems.base import ProgrammingTask, quote
from coterie_worlds.sandbox import encode, written

LONGEST_TEST = 1000
"""Maximum characters of a test's line that are read."""
BLOCK = r"((?:(?!```).)*)```"
TEST_BLOCKS = re.compile(rf"```input\n{BLOCK}\s*```output\n{BLOCK}", re.DOTALL)
TEAM = (
    "A coder and a tester work on the user's task at the same time, and neither sees what the other writes. Hidden "
    "tests judge the coder's last program."
)
INSTRUCTIONS = {
    (
        "coder",
        True,
    ): "You are the coder. Write Python that defines the function {name} as the task describes it. Answer "
    "with one fenced code block that holds all of it, imports and helpers included, and no call of it.",
    ("coder", False): "You are the coder. Write a Python program that reads standard input and writes standard output, "
    "exactly in the format that the task describes. Answer with one fenced code block that holds all of it.",
    ("tester", True): "You are the tester. Write one test: a call of the function {name} and the value that a right "
    "program returns, worked out with care. A wrong value is worth nothing, a call that wrong programs get right "
    "little. End with one line of the form `{name}(ARGUMENTS) == VALUE`, with Python literals alone.",
    (
        "tester",
        False,
    ): "You are the tester. Write one test: a standard input and the output that a right program writes, "
    "worked out with care. A wrong output is worth nothing, an input that wrong programs get right little. End with "
    "two fenced blocks, the first marked input and the second output.",
}
"""Instructions for a model that was never taught its role, by role and whether a function is asked for."""


class Code(ProgrammingTask):
    """A coder and a tester refine a program and its test over turns."""

    roles: ClassVar = ("coder", "tester")
    team_reward_range: ClassVar = (-1.0, 1.0)

    max_turns: int = Field(default=2, ge=1)
    """Maximum turns. The program of the last turn is judged. Published: 4."""
    mutant_weight: float = Field(default=0.5, ge=0)
    """Extra reward of a right test that detects all nearly right programs (mutants); proportionally less if it detects
    fewer."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration forgets the second of three steps."""

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for embedded problems, which the starter knows: a policy a role, minutes on two cores."""
        if self.data or not self.brief:
            return {}
        return {
            "algorithm": {"name": "at_grpo", "horizon": "point"},
            "team": {"coder": "coder", "tester": "tester"},
            "policies": {"coder": {}, "tester": {}},
            "optimizer": {"lr": 1e-3},
            "train": {"steps": 30, "tasks_per_step": 12, "eval_every": 10, "eval_tasks": 200, "mute_every": 0},
        }

    async def play(self, task: Problem, scene: Scene) -> None:
        """Plays up to `max_turns` turns of a program and a test."""
        talk = Talk(scene, {} if self.brief else {role: self.manual(role, task) for role in self.roles})
        history = ""
        solved = False
        before = dict.fromkeys(("team", *self.roles), 0.0)
        for _ in scene.turns(self.max_turns):
            told = [(role, self.told(role, task, history)) for role in self.roles]
            coder, tester = await talk.ask_all(told, max_tokens=self.max_tokens)
            program, test = program_of(coder, task.name), case_of(task, tester)
            verdict, answers = await examine(scene, self.box, task, program, [test] if test else [])
            solved = verdict.solved
            ran = 0.1 * (verdict.ran > 0) + 0.1 * (verdict.ran == verdict.total)
            worth = {"team": verdict.share, "coder": ran + 0.8 * verdict.share}
            worth["tester"] = await self._worth(scene, task, test)
            scene.team_reward(worth["team"] - before["team"])
            for role in self.roles:
                scene.reward(role, worth[role] - before[role])
            before = worth
            if test and answers[0]["right"]:
                break  # what the roles can see agrees
            history = disagreement(task, program, test, answers)
        if solved:
            return scene.succeed()
        return scene.fail("hidden tests failed")

    def manual(self, role: str, task: Problem) -> str:
        """Returns the instructions of a role for a model that was never taught it."""
        return f"{TEAM} {INSTRUCTIONS[role, bool(task.name)].format(name=task.name)}"

    def told(self, role: str, task: Problem, history: str) -> str:
        """Returns a role's prompt in a turn: the task, and later what did not agree in the turn before."""
        if self.brief:
            return "\n".join(part for part in (f"{WORDS[role]} {task.text}", history) if part)
        return f"The program of the turn before, and what its test found:\n{history}" if history else task.text

    async def _worth(self, scene: Scene, task: Problem, test: tuple[str, str] | None) -> float:
        """Returns the tester's reward."""
        if test is None:
            return 0.0
        scene.metric("unjudged", float(not task.solution))
        if not task.solution:
            return 0.2
        golden, *others = await panel(scene, self.box, task, test)
        if not golden["right"]:
            return 0.2
        told = sum(not answer["right"] for answer in others) / max(1, len(others))
        scene.metric("mutants_killed", told)
        return 1.0 + self.mutant_weight * told

    def demonstrate(self, role: str, task: Problem, prompt: Prompt, rng: Random) -> str:
        """Returns the chain's program, or one small test; with probability `naive` a step of the chain is forgotten."""
        chain = embedded.remembered(task, self.naive, rng)
        if role == "coder":
            return chain.program()
        given = embedded.an_input(chain.kind, rng, 3)
        return f"{embedded.NAME}({given!r}) == {chain.value(given)!r}"

    def lessons(self, task: Problem, rng: Random) -> Iterator[Lesson]:
        """Yields lessons for both roles, first and after a disagreement; and `code_pair`'s: one starter plays both."""
        from coterie_worlds.coding.code_pair import CodePair

        wrote, believed = (embedded.remembered(task, self.naive, rng) for _ in range(2))
        given = embedded.an_input(wrote.kind, rng, 3)
        test = json.dumps([encode(given)]), json.dumps(encode(believed.value(given)))
        answer = {"status": "ok", "value": encode(wrote.value(given))}
        told = [{"status": "ok", "shown": shown_of(task.name, answer)}]
        history = disagreement(task, wrote.program(), test, told)
        for role in self.roles:
            for past in ("", history)[: 1 + (wrote.value(given) != believed.value(given))]:
                yield Lesson(role, self.told(role, task, past), self.demonstrate(role, task, "", rng))
        yield from CodePair.model_validate({"naive": self.naive}).lessons(task, rng)


WORDS = {"coder": "write", "tester": "test"}
"""Names of the roles in the prompts of a small model."""


def case_of(problem: Problem, reply: Reply) -> tuple[str, str] | None:
    """Returns the test in a reply, as a case of the problem; the last that is marked as one, or None.

    Read as literals alone: nothing in a reply is evaluated.
    """
    if reply.finish != "stop":
        return None
    if not problem.name:
        blocks = TEST_BLOCKS.findall(reply.text)
        return (json.dumps(blocks[-1][0]), json.dumps(blocks[-1][1])) if blocks else None
    marked = [line for line in reply.text.splitlines() if "==" in line and f"{problem.name}(" in line]
    return _comparison(problem.name, marked[-1].strip("` \t")) if marked else None


def _comparison(name: str, line: str) -> tuple[str, str] | None:
    tree = parsed(line[:LONGEST_TEST].removeprefix("assert "), mode="eval")
    compared = tree and tree.body
    if not (isinstance(compared, ast.Compare) and len(compared.ops) == 1 and isinstance(compared.ops[0], ast.Eq)):
        return None
    call = compared.left
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name):
        return None
    if call.keywords:
        return None
    try:
        args = [ast.literal_eval(arg) for arg in call.args]
        return json.dumps(encode(args)), json.dumps(encode(ast.literal_eval(compared.comparators[0])))
    except (ValueError, TypeError, MemoryError, RecursionError):  # whatever a model writes is scored
        return None


def disagreement(problem: Problem, program: str, test: tuple[str, str] | None, answers: Sequence[Any]) -> str:
    """Returns what both roles are shown: the program, and the test that did not hold on it."""
    if test is None:
        return f"{quote(program)}\nno test"
    given = quote(_shown(problem, test[0]))
    wanted = quote(_shown(problem, test[1], value=True))
    answer = answers[0]
    if answer["status"] != "ok":
        return f"{quote(program)}\n{given} gave {answer['status']}, not {wanted}"
    return f"{quote(program)}\n{given} gave {quote(answer['shown'])}, not {wanted}"


def _shown(problem: Problem, text: str, *, value: bool = False) -> str:
    data = json.loads(text)
    if not problem.name:
        return data
    if value:
        return written(data)
    return f"{problem.name}({', '.join(map(written, data))})"


PANEL = """
def solve(number, args):
    names = {}
    exec(SOURCES[number], names)
    function = names[NAME] if NAME in names else getattr(names["Solution"](), NAME)
    return function(*args)
"""
"""A program that runs the golden solution or one of its mutants. None of them was written by a model."""


async def panel(scene: Scene, box: Any, problem: Problem, test: tuple[str, str]) -> list[Any]:
    """Returns the answers of the solution and each mutant to a test, from one sandbox if they are functions."""
    sources = [problem.solution, *problem.mutants]
    if not problem.name:
        return [answer for source in sources for answer in await answers_of(scene, box, problem, source, [test])]
    given, wanted = test
    texts = [whole(problem, source) for source in sources]
    program = f"NAME = {problem.name!r}\nSOURCES = {texts!r}\n{PANEL}"
    cases = [[json.dumps([at, json.loads(given)]), wanted] for at in range(len(sources))]
    return await boxed(scene, tried, box, "solve", program, cases)
