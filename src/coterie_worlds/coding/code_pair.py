"""Code pair: `aux` and `main` write one function together; as published neither sees what the other writes.

The task is MAGRPO's (arXiv:2508.04652): `aux` writes a helper of that name, `main` the function that
is asked for, which may call it. Both are told the problem; their replies are put together and judged
as one. The joint reward of a turn is a sum of levels with the published weights, at most 4:

    structure    0.4 [aux is defined and returns]  +  0.6 [main is defined and returns], else stop
    syntax       0.5 [the two together compile], else stop
    tests        p, the share of hidden tests passed
    cooperation  p (0.5 [main needs what aux answers] + 1.0 [and does more than hand it on])

The published code looks for patterns in the text and rewards even comments. Here the tests are repeated with other
answers of aux, main's results have to change, and it may not undo what aux did; see `cooperation/evidence.py`. Two more
rules are ours: cooperation counts in proportion to p (there, one passed test unlocks all of it), and it does not count
after three time-outs.

`protocol` says who sees what: together (as published), pipeline (main sees what aux wrote), discussion (after both have
written, each sees what the other wrote and writes again). Only what is written last is judged.

A later turn shows each role its own last reply and feedback: nothing ("plain"), which levels were reached
("levels"), or an edit by another model ("expert"). Episodes end at the turn limit, or after a turn whose
levels sum to `stop_at`, in training and in evaluation. With several turns, the maximum reward of a turn is
subtracted from each turn: 4 (as in the published configs), or 2.1 with `solo`. Otherwise it would pay to finish late.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any, ClassVar, Literal, get_args
from urllib.request import Request, urlopen

from pydantic import Field, ValidationInfo, field_validator

from coterie.environments.talk import Example, Talk, marked
from coterie.errors import ConfigError, Unavailable
from coterie.kernel.environment import Lesson
from coterie.kernel.scene import Prompt, Scene
from coterie_worlds.coding.cooperation import AUX, UNUSED, Scheme, read, used
from coterie_worlds.coding.problems import (
    Problem,
    ProgramVerdict,
    answers_of,
    boxed,
    embedded,
    judge,
    program_of,
    verdict_of,
    whole,
)
from coterie_worlds.coding.problems.base import ProgrammingTask, quote
from coterie_worlds.sandbox import judged

BEST = 4.0
"""Maximum reward of a turn."""
BEST_ALONE = 2.1
"""Maximum reward of a turn without a partner."""
COOPERATION = 1.5
"""Maximum part of the reward that cooperation can be."""
MOST_TIMEOUTS = 3
"""Number of time-outs from which on cooperation is not paid."""
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
CONFIRMED_BY: dict[bool, frozenset[Scheme]] = {
    False: frozenset({"fallback"}),
    True: frozenset({"decorator", "coordinator", "strategy"}),
}
"""Schemes that are as they look; the key says if fewer tests pass when aux is disabled."""
MOST_INPUTS = 16
"""Maximum calls of test code that are played again."""
INSTRUCTIONS = {
    "aux": "Two programmers solve the user's task together{apart}. You write a helper function named aux that returns "
    "data useful for it; the other writes the function {name}, and may call aux(...){unseen}. "
    "So give aux the arguments that {name} has, and let it do what anybody would expect of a helper. ",
    "main": "Two programmers solve the user's task together{apart}. You write the function {name}; the other writes a "
    "helper aux(...){unseen}, which you may call and must not define. Use what it returns, "
    "and do your part on top. ",
    "solo": "You write the function {name} that the user's task describes. ",
}
"""Instructions for a model that was never taught its role, by role."""
UNSEEN = {"aux": " without having seen it", "main": " without having seen yours"}
SEEN = "If the other has written already, you are shown it: then write so that the two fit. "
SHORT = {
    "aux": "Write a helper function aux(x): it does the first step of the task{unseen}. ",
    "main": "Write the function {name}: it calls aux(x), a helper that does the first step of the task{unseen}, "
    "and does the other steps. ",
    "solo": "Write the function {name} that does the task, a step a line. ",
}
"""Instructions for embedded problems, which are chains of small steps, by role."""
UNSEEN_SHORT = ", and you cannot talk to who writes the other function"
SHORT_FORM = "Answer with the function alone."
EXAMPLE = "f(x) of a list: triple, mean"
EXAMPLES = {
    "aux": "def aux(x):\n    return [v * 3 for v in x]",
    "main": "def f(x):\n    x = aux(x)\n    return sum(x) / len(x)",
    "solo": "def f(x):\n    x = [v * 3 for v in x]\n    return sum(x) / len(x)",
}
"""An example of steps that no embedded problem has."""
FORM = "Answer with one fenced code block that holds the function and the imports it needs: no tests, no examples."


NO_VERDICT = ProgramVerdict(0, 0, 1)


@dataclass(frozen=True, slots=True)
class TurnReward:
    """The reward of a turn, level by level."""

    structure: float
    syntax: float = 0.0
    tests: float = 0.0
    cooperation: float = 0.0

    @property
    def total(self) -> float:
        """The joint reward."""
        return self.structure + self.syntax + self.tests + self.cooperation


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a turn: its reward, its verdict, and how main uses aux.

    uses: main needs what aux answers. hands_on: and does no more than hand it on. schemes: how it uses aux, as far as
    disabling aux confirms it. problem: what stopped the levels.
    """

    levels: TurnReward = TurnReward(0.0)
    verdict: ProgramVerdict = NO_VERDICT
    uses: bool = False
    hands_on: bool = False
    schemes: frozenset[Scheme] = frozenset()
    problem: str = ""

    @property
    def text(self) -> str:
        """The outcome as feedback: a diagnosis, with no word of a partner's."""
        if self.problem:
            return self.problem
        use = "" if self.uses else ", aux unused"
        return f"tests {self.verdict.passed} of {self.verdict.total}{use}"


class CodePair(ProgrammingTask):
    """Two roles write a function together, unseen by each other."""

    team_reward_range: ClassVar = (-BEST, BEST)
    functions: ClassVar = True

    max_turns: int = Field(default=1, ge=1)
    """Maximum turns."""
    feedback: Literal["plain", "levels", "expert"] = "levels"
    """Feedback that a later turn shows in addition to a role's own last reply. plain: nothing; levels: which levels of
    the reward (structure, syntax, tests, cooperation) were reached; expert: an edit by another model."""
    solo: bool = False
    """Single-agent baseline: the role main writes the function alone."""
    stop_at: float | None = None
    """A turn whose levels (the parts of its reward) sum to at least this value ends the episode. none: the maximum of
    this sum."""
    expert_url: str = ""
    """For feedback "expert": the URL of an OpenAI-compatible server, such as http://localhost:8000/v1."""
    expert_model: str = ""
    """For feedback "expert": the name of the model on that server."""
    protocol: Literal["together", "pipeline", "discussion"] = "together"
    """Visibility of the texts. together: neither role sees the other's; pipeline: main sees what aux wrote; discussion:
    after both have written, each sees what the other wrote and writes again."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration forgets the second of three steps."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The roles aux and main, or main alone."""
        return ("main",) if self.solo else ("aux", "main")

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for embedded problems, which the starter knows: a policy a role, minutes on two cores."""
        if self.data or not self.brief:
            return {}
        train = {"steps": 30, "tasks_per_step": 16, "eval_every": 10, "eval_tasks": 200}
        tables = {"optimizer": {"lr": 1e-3}, "train": train}
        if self.solo:
            return {"algorithm": {"name": "grpo"}, **tables}
        name = "magrpo" if self.protocol == "together" else "mas_grpo"
        return {
            "algorithm": {"name": name, "num_generations": 8},
            "team": {"aux": "helper", "main": "writer"},
            "policies": {"helper": {}, "writer": {}},
            "optimizer": {"lr": 1e-3},
            "train": {**train, "mute_every": 0},
        }

    def inert(self) -> dict[str, str]:
        """Returns settings without effect: those of later turns without any, an expert's without the expert."""
        alone = "max_turns = 1 leaves no turn after it"
        inert = super().inert()
        inert |= dict.fromkeys(("feedback", "stop_at"), alone) if self.max_turns == 1 else {}
        inert |= {"protocol": "solo = true has nobody to see"} if self.solo else {}
        if self.max_turns == 1 or self.feedback != "expert":
            inert |= dict.fromkeys(("expert_url", "expert_model"), "only feedback = 'expert' asks one")
        return inert

    @field_validator("stop_at")
    @classmethod
    def _in_range(cls, value: float | None, info: ValidationInfo) -> float | None:
        best = BEST_ALONE if info.data.get("solo") else BEST
        if value is not None and not 0 < value <= best:
            raise ValueError(f"the joint reward of a turn is at least 0 and at most {best}; choose a value in between")
        return value

    @property
    def best(self) -> float:
        """Maximum reward of a turn under these settings."""
        return BEST_ALONE if self.solo else BEST

    def ready(self) -> None:
        """Raises ConfigError if programs cannot be isolated here, or an expert is wanted and not named."""
        super().ready()
        if self.max_turns > 1 and self.feedback == "expert" and not (self.expert_url and self.expert_model):
            raise ConfigError("environment.feedback = 'expert' needs environment.expert_url and expert_model")

    async def play(self, task: Problem, scene: Scene) -> None:
        """Plays up to `max_turns` turns in which every role writes its function."""
        manuals = {} if self.brief else {role: self.manual(role, task) for role in self.roles}
        talk = Talk(scene, manuals, examples={role: self.examples(role) for role in manuals})
        history = dict.fromkeys(self.roles, "")
        outcome = Outcome()
        for turn in scene.turns(self.max_turns):
            written = await self._written(talk, task, history)
            outcome = await self.judge(scene, task, written)
            for level in fields(TurnReward):
                scene.team_reward(getattr(outcome.levels, level.name), level.name)
            if self.max_turns > 1:
                scene.team_reward(-self.best, "turn")
            if outcome.levels.total >= (self.stop_at or self.best) or turn == self.max_turns - 1:
                break
            history = await self._feedback(scene, task, written, outcome)
        scene.metric("accuracy", outcome.verdict.share)
        scene.metric("cooperation", outcome.levels.cooperation / COOPERATION)
        scene.metric("aux_used", float(outcome.uses))
        scene.metric("aux_handed_on", float(outcome.hands_on))
        for scheme in SCHEMES:
            scene.metric(f"scheme/{scheme}", float(scheme in outcome.schemes))
        if outcome.verdict.solved:
            return scene.succeed()
        return scene.fail("hidden tests failed")

    async def _written(self, talk: Talk, task: Problem, history: Mapping[str, str]) -> dict[str, str]:
        """Asks the roles as the protocol says and returns the program of each."""
        names, written = {"aux": AUX, "main": task.name}, dict[str, str]()

        async def write(*roles: str) -> None:
            told = [(role, self.told(role, task, history[role], self._seen(role, written))) for role in roles]
            for reply in await talk.ask_all(told, max_tokens=self.max_tokens):
                written[reply.role] = program_of(reply, names[reply.role])

        if self.solo or self.protocol != "pipeline":
            await write(*self.roles)
            if not self.solo and self.protocol == "discussion":
                await write(*self.roles)
        else:
            for role in self.roles:
                await write(role)
        return written

    def _seen(self, role: str, written: Mapping[str, str]) -> str:
        """Returns the other's program as a role sees it, or nothing while there is none."""
        return next((quote(program) for other, program in written.items() if other != role), "")

    async def judge(self, scene: Scene, task: Problem, written: Mapping[str, str]) -> Outcome:
        """Returns the outcome of the roles' functions together, and what they earn by it."""
        parts = await scene.call(read, written.get("aux", ""), written["main"], task.name)
        aux_returns, main_returns = parts["returns"]
        structure = 0.4 * aux_returns + 0.6 * main_returns
        if not main_returns:
            return Outcome(TurnReward(structure), problem=f"no function {task.name}" if self.data else "no main")
        verdict, played = await _tried(scene, self.box, task, f"{parts['helper']}\n{parts['function']}")
        if verdict.broken.startswith("SyntaxError"):
            return Outcome(TurnReward(structure), problem="syntax error")
        evidence = UNUSED
        if parts["names_aux"] and verdict.passed and verdict.timeouts < MOST_TIMEOUTS:
            two = (parts["helper"], parts["function"])
            evidence = await boxed(scene, used, self.box, *two, task.name, task.preamble, played)
        paid = verdict.share * (0.5 + 1.0 * (not evidence["handed_on"])) * evidence["used"]
        seen = CONFIRMED_BY[evidence["needed"]].intersection(parts["schemes"]) if evidence["used"] else frozenset()
        levels = TurnReward(structure, 0.5, verdict.share, paid)
        return Outcome(levels, verdict, evidence["used"], evidence["handed_on"], seen)

    def manual(self, role: str, task: Problem) -> str:
        """Returns the instructions of a role for a model that was never taught it."""
        told = (INSTRUCTIONS if self.data else SHORT)["solo" if self.solo else role]
        form = FORM if self.data else SHORT_FORM
        if self.solo or self.protocol == "together":
            apart = " and cannot talk" if self.data else ""
            return told.format(name=task.name, apart=apart, unseen=UNSEEN[role] if self.data else UNSEEN_SHORT) + form
        return told.format(name=task.name, apart="", unseen="") + SEEN + form

    def examples(self, role: str) -> tuple[Example, ...]:
        """Returns a chat that shows the form of an answer, if problems are embedded."""
        return () if self.data else ((EXAMPLE, EXAMPLES["solo" if self.solo else role]),)

    def told(self, role: str, task: Problem, history: str, other: str = "") -> str:
        """Returns a role's prompt: the task, later its own last reply and feedback; and what it sees of the other's."""
        if self.brief:
            return "\n".join(part for part in (f"{'write' if self.solo else role} {task.text}", history, other) if part)
        told = f"Your last reply, and what came of it:\n{history}" if history else task.text
        return f"{told}\n\nThe other wrote:\n{marked(other)}" if other else told

    async def _feedback(
        self, scene: Scene, task: Problem, written: Mapping[str, str], outcome: Outcome
    ) -> dict[str, str]:
        """Returns what each role sees next turn: its own words, and the feedback."""
        if self.feedback == "expert":
            told = await scene.call(expert_edits, self.expert_url, self.expert_model, task.text, dict(written))
        else:
            told = dict.fromkeys(self.roles, outcome.text if self.feedback == "levels" else "")
        return {role: f"{quote(written[role])}\n{quote(told[role])}".rstrip() for role in self.roles}

    def demonstrate(self, role: str, task: Problem, prompt: Prompt, rng: Random) -> str:
        """Returns one way to share a chain's steps; which, the role does not know of its partner either.

        aux takes the first step, as a function of the whole or of one element, or the first two. main goes on
        from there; of three steps it believes with probability `naive` that aux has taken two.
        """
        if self.solo:
            return embedded.remembered(task, self.naive, rng).program()
        chain = embedded.chain_at(task)
        return (_aux if role == "aux" else _main)(chain, self.naive, rng)

    def lessons(self, task: Problem, rng: Random) -> Iterator[Lesson]:
        """Yields lessons for every role, at the first turn and after feedback of either kind."""
        for role in self.roles:
            yield Lesson(role, self.told(role, task, ""), self.demonstrate(role, task, "", rng))
            if rng.random() < 0.5:
                told = rng.choice(
                    ("", "no main", "syntax error", f"tests {rng.randrange(9)} of 8", "tests 1 of 8, aux unused")
                )
                history = f"{self.demonstrate(role, task, '', rng)}\n{told}".rstrip()
                yield Lesson(role, self.told(role, task, history), self.demonstrate(role, task, "", rng))


async def _tried(scene: Scene, box: Any, task: Problem, program: str) -> tuple[ProgramVerdict, list[list[str]]]:
    """Returns the verdict and what was asked, as pairs of JSON: arguments, and the value, or "" if the test failed."""
    if task.check:
        answer = await boxed(scene, judged, box, task.check, whole(task, program), task.name, MOST_INPUTS)
        return verdict_of(answer), answer.get("calls", [])
    answers = await answers_of(scene, box, task, program, task.cases)
    passed = [given["right"] for given in answers]
    asked = [[given, wanted if held else ""] for (given, wanted), held in zip(task.cases, passed, strict=True)]
    return judge(answers), asked


def _aux(chain: embedded.Chain, naive: float, rng: Random) -> str:
    first, second = chain.steps[:2]
    draw = rng.random()
    if draw < 0.2 and (first.each or first.test):
        return f"def {AUX}(v):\n    return {first.each or first.test}"
    if draw > 0.8:
        return f"def {AUX}(x):\n    x = {first.code}\n    return {second.code}"
    return f"def {AUX}(x):\n    return {first.code}"


def _main(chain: embedded.Chain, naive: float, rng: Random) -> str:
    first, *rest = chain.steps
    if rng.random() < (naive if len(rest) == 2 else naive / 4):
        return _lines([f"x = {AUX}(x)"], rest[1:])
    way = rng.choices(("whole", "each", "fallback", "alone"), (5, 2, 1, 1))[0]
    if way == "each" and first.each:
        return _lines([f"x = {first.code.replace(first.each + ' for', f'{AUX}(v) for')}"], rest)
    if way == "each" and first.test:
        return _lines([f"x = {first.code.replace(f'if {first.test}', f'if {AUX}(v)')}"], rest)
    if way == "fallback":
        return _lines(["try:", f"    x = {AUX}(x)", "except Exception:", f"    x = {first.code}"], rest)
    if way == "alone":
        return chain.program()
    return _lines([f"x = {AUX}(x)"], rest)


def _lines(begin: Sequence[str], rest: Sequence[embedded.Step]) -> str:
    """Returns a function that begins as told and takes the remaining steps."""
    if not rest:
        *begin, last = begin
        return "\n".join([f"def {embedded.NAME}(x):", *(f"    {line}" for line in begin), f"    return {last[4:]}"])
    body = [*begin, *(f"x = {step.code}" for step in rest[:-1]), f"return {rest[-1].code}"]
    return "\n".join([f"def {embedded.NAME}(x):", *(f"    {line}" for line in body)])


def expert_edits(url: str, model: str, text: str, written: dict[str, str]) -> dict[str, str]:
    """Returns an edit for each role, by a model behind an OpenAI-compatible server.

    Raises:
        Unavailable: it cannot be reached, or does not answer with an edit for every role.
    """
    asked = (
        f"Task:\n{text}\n\n" + "\n\n".join(f"{role} wrote:\n{code}" for role, code in written.items()) + "\n\n"
        f"Answer with one JSON object that maps each of {', '.join(written)} to one short advice on its own function."
    )
    body = {
        "model": model,
        "messages": [{"role": "user", "content": asked}],
        "response_format": {"type": "json_object"},
    }
    request = Request(  # noqa: S310  (a person's own setting)
        f"{url.rstrip('/')}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urlopen(request, timeout=50) as answer:  # noqa: S310
            content = json.loads(answer.read(1 << 20))["choices"][0]["message"]["content"]
        edits = json.loads(content)
        return {role: str(edits[role]) for role in written}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise Unavailable("expert", f"{url} gave no edit for every role: {error}") from error
