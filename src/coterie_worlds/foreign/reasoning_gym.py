"""Tasks of the package reasoning-gym: `coterie train reasoning_gym:chain_sum --set policies.team.model=…`.

The package draws tasks from seeds and scores answers. A *reasoner* proposes an answer; a *checker* sees the question
and the proposal and gives the final answer, which alone counts. Scores are computed in another process, since the
package's functions may hang or fail on what a model writes; then the answer is wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from coterie.apart import MEMORY, limited
from coterie.errors import CallError, ConfigError, nearest
from coterie.kernel.environment import Environment, Split, Task, split_of
from coterie.kernel.mistakes import said
from coterie.kernel.scene import Message, Prompt, Reply, Scene
from coterie_worlds.foreign.sealed import Sealed

REASONER, CHECKER = "reasoner", "checker"
REFUSED = {
    "composite": "it mixes other tasks; name one of them",
    "game_of_life_halting": "its scorer takes every text for True",
    "coin_flip": "its scorer accepts wrong numbers",
    "propositional_logic": "its scorer takes a copy of a premise for a conclusion",
    "puzzle24": "its scorer does not compare the numbers of an answer with those that are given",
}
"""Tasks that are not played, and why."""
EVALUATED = (
    "binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication",
    "simple_integration", "spiral_matrix", "string_insertion",
)  # fmt: skip
"""Tasks whose scorer evaluates the answer as Python code."""
ARITHMETIC = frozenset({"countdown", "intermediate_integration", "polynomial_multiplication", "simple_integration"})
"""Those of them whose answers are formulas."""
NAME = re.compile(r"[^\W\d]\w*")
HARMLESS = re.compile(r"\w|[A-E]+|a?(?:sin|cos|tan)h?|exp|log|ln|sqrt|pi")
"""A name that may occur in an answer that is evaluated: no function among them does more than arithmetic."""
NO_NUMBER = re.compile(r"\b(?:nan|inf|infinity)\b", re.IGNORECASE)
"""Some scorers compare numbers such that these equal all others."""
REPEATED = re.compile(r"[\])\"'}]\s*\*\s*\d|\d\s*\*\s*[\[\"'{]")
"""A list or a text times a number, in an answer that is evaluated: gigabytes from a few characters."""
POWER = r"(?:\*\*|\^)\s*"
TOWER = re.compile(rf"{POWER}[\s(+-]*\d{{3}}|{POWER}[\s(+-]*\d+[\s)]*{POWER}|(?:\)\s*{POWER}.*){{4}}", re.DOTALL)
"""A power of hundreds, of a power, or of four expressions, in an answer that is evaluated."""
CUT = 0.25
"""Penalty of a proposal that is cut off."""
LONGEST_ANSWER = 2000
"""Maximum characters of an answer that is scored."""
LONGEST_PROPOSAL = 400
"""Maximum characters of a proposal that the checker is shown."""
ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)
CHUNK = 64
"""Tasks of one of the package's data sets: some draw all of theirs when they are made."""
FIRST = {"train": 0, "validation": 1 << 28, "test": 1 << 29}
"""The place in the stream of all tasks at which a split begins to look for its own."""
AGAIN = 1 << 26
"""Place from which training looks on if the task at a place belongs to another split; 64 places an index."""
PATIENCE = 3000
"""Places in a row without a new task, after which there is none."""


@dataclass(frozen=True, slots=True)
class Exercise(Task):
    """A task of the package. place: where it stands in the stream of all tasks; its query is the question."""

    place: int = 0


class ReasoningGym(Environment):
    """A task of reasoning-gym: a reasoner proposes an answer, a checker gives the final one."""

    argument: ClassVar = "game"
    team_reward_range: ClassVar = (0.0, 1.0)

    game: str = ""
    """Name of the task in reasoning-gym, such as chain_sum."""
    options: Mapping[str, Any] = {}
    """Settings of the task, such as max_terms = 2. They set its difficulty."""
    examples: int = Field(default=2, ge=0, le=8)
    """Number of solved training tasks that each role sees as earlier turns of its chat."""
    partial: bool = False
    """true: the team's reward is the score of reasoning-gym. false: it is 1 for the full score and 0 otherwise. Many
    scorers give part of the score to an answer that only contains the right one, or to any text."""
    dense: bool = True
    """true: the reasoner gets a reward of its own. false: it has none but what a reply that is cut off costs."""
    proposal_tokens: int = Field(default=32, ge=4)
    """Maximum tokens of the reasoner's reply. A reply that is cut off costs the reasoner 0.25."""
    answer_tokens: int = Field(default=16, ge=2)
    """Maximum tokens of the checker's reply. A reply that is cut off has no answer."""

    solo: bool = False
    """Single-agent baseline: the reasoner's answer is the final one."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The reasoner and the checker, or the reasoner alone."""
        return (REASONER,) if self.solo else (REASONER, CHECKER)

    def inert(self) -> dict[str, str]:
        """Returns the settings of the checker, and the reasoner's own reward, as without effect where it is alone."""
        return dict.fromkeys(("answer_tokens", "dense"), "solo = true has no checker") if self.solo else {}

    @model_validator(mode="after")
    def _is_played_here(self) -> Self:
        if not self.game:
            raise ValueError("game: name a task, as in reasoning_gym:chain_sum")
        if why := REFUSED.get(self.game):
            raise ValueError(f"game = '{self.game}' cannot be played: {why}")
        for key in ("seed", "size"):
            if key in self.options:
                raise ValueError(f"options: {key} cannot be set; tasks are drawn from seeds of the environment")
        return self

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings that pay each role for its own reply; the checker sees the reasoner's best proposal."""
        return {"algorithm": {"name": "at_grpo", "horizon": "point"}} if self.dense and not self.solo else {}

    def ready(self) -> None:
        """Raises ConfigError: the package is not installed, has no such task, or the options do not fit it."""
        check_installed()
        known = importlib.import_module("reasoning_gym.factory").DATASETS
        if self.game not in known:
            raise ConfigError(f"environment.game: reasoning-gym has no '{self.game}'{nearest(self.game, known)}")
        fields = {field.name for field in dataclasses.fields(known[self.game][1])} - {"seed", "size"}
        for key in self.options:
            if key not in fields:
                raise ConfigError(
                    f"environment.options: {self.game} has no '{key}'{nearest(key, fields)}; it has "
                    f"{', '.join(sorted(fields))}"
                )
        try:
            entry(self.game, self.written_options(), 0)
        except Exception as error:  # the package checks options with assertions and in other ways
            raise ConfigError(f"environment.options do not fit {self.game}: {said(error)}") from error

    def task(self, split: Split, index: int) -> Exercise:
        """Returns the task at a place of a split; held-out tasks do not repeat."""
        options = self.written_options()
        if split == "train":
            place = trained(self.game, options, index)
        else:
            place = held_out(self.game, options, split).at(index)
        question = str(entry(self.game, options, place)["question"])
        return Exercise(f"{split}-{index}", split, query=question, kind=self.game, place=place)

    def written_options(self) -> str:
        """Returns the options as JSON, in one order: what tasks depend on."""
        return json.dumps(dict(self.options), sort_keys=True)

    async def play(self, task: Exercise, scene: Scene) -> None:
        """Plays one exercise: a proposal, then the final answer."""
        verdict = proposal = await scene.ask(REASONER, self.for_reasoner(task), max_tokens=self.proposal_tokens)
        score = proposed = await self._score(scene, task, proposal)
        scene.metric("proposal_right", float(proposed >= 1.0))
        if proposal.finish != "stop":
            scene.reward(proposal, -CUT)
        elif self.dense and not self.solo:
            scene.reward(proposal, proposed if self.partial else float(proposed >= 1.0))
        if not self.solo:
            verdict = await scene.ask(CHECKER, self.for_checker(task, proposal.text), max_tokens=self.answer_tokens)
            score = await self._score(scene, task, verdict)
        right = score >= 1.0
        scene.metric("score", score)
        scene.team_reward(score if self.partial else float(right))
        return scene.succeed() if right else scene.fail("a wrong answer" if answer_of(verdict) else "no answer")

    async def _score(self, scene: Scene, task: Exercise, reply: Reply) -> float:
        """Returns the package's score of a reply's answer; 0 for none, or if its function fails."""
        answer = answer_of(reply)
        if not answer or not may_be_scored(self.game, answer):
            return 0.0
        try:
            return float(await scene.call(scored, self.game, self.written_options(), task.place, answer))
        except CallError:  # it took too long, or ended its process
            return 0.0

    def for_reasoner(self, task: Exercise) -> Prompt:
        """Returns the reasoner's prompt: the question, after solved ones."""
        chat: list[Message] = []
        for question, answer in self._solved():
            chat += [user(asked_proposal(question)), Message(role="assistant", content=f"Answer: {answer}")]
        return [*chat, user(asked_proposal(task.query))]

    def for_checker(self, task: Exercise, proposal: str) -> Prompt:
        """Returns the checker's prompt: the question and the proposal. Of the solved examples, every other is wrong."""
        solved, chat = self._solved(), list[Message]()
        for at, (question, answer) in enumerate(solved):
            shown = f"Answer: {solved[at - 1][1] if at % 2 else answer}"
            chat += [user(asked_verdict(question, shown)), Message(role="assistant", content=answer)]
        return [*chat, user(asked_verdict(task.query, proposal))]

    def _solved(self) -> tuple[tuple[str, str], ...]:
        return solved(self.game, self.written_options(), self.examples)

    def demonstrate(self, role: str, task: Exercise, prompt: Prompt, rng: Random) -> str:
        """Returns the answer of the package, if it names one."""
        answer = entry(self.game, self.written_options(), task.place)["answer"]
        if answer is None:
            raise NotImplementedError(f"reasoning-gym names no answer to {self.game}")
        return f"Answer: {answer}" if role == REASONER else str(answer)


def user(text: str) -> Message:
    """Returns a message to a role."""
    return {"role": "user", "content": text}


def asked_proposal(question: str) -> str:
    """Returns a question to the reasoner."""
    return f"{question.strip()}\nThink briefly, then write 'Answer:' and the answer."


def asked_verdict(question: str, proposal: str) -> str:
    """Returns a question to the checker."""
    shown = " ".join(proposal.split())[:LONGEST_PROPOSAL]
    return f"{question.strip()}\nA student wrote: {shown}\nWrite only the right answer."


def answer_of(reply: Reply) -> str:
    """Returns the text after the last `Answer:` of a reply, or all of it; "" if it was cut off or is too long."""
    text = ANSWER.split(reply.text)[-1].strip() if reply.finish == "stop" else ""
    return text if len(text) <= LONGEST_ANSWER else ""


def may_be_scored(game: str, answer: str) -> bool:
    """Returns False for an answer that a scorer must not see: code, where it is evaluated, or no number."""
    if NO_NUMBER.search(answer) or (game in EVALUATED and (TOWER.search(answer) or _repeats(game, answer))):
        return False
    return game not in EVALUATED or all(map(HARMLESS.fullmatch, NAME.findall(answer)))


def _repeats(game: str, answer: str) -> bool:
    """Returns True if an answer repeats a list or a text. Round brackets are those of arithmetic."""
    return bool(REPEATED.search(answer.replace(")", "") if game in ARITHMETIC else answer))


def scored(game: str, options: str, place: int, answer: str) -> float:
    """Returns the score of an answer, from 0 to 1, with or without a period at its end."""
    task, data = entry(game, options, place), dataset(game, options, place // CHUNK)
    scores = [0.0]
    for text in {answer, answer.removesuffix(".")}:
        # a scorer may raise anything at an answer that it was not written for
        with contextlib.suppress(Exception), quiet(place), limited(MEMORY):
            scores.append(float(data.score_answer(text, task)))
    return max(score for score in scores if 0.0 <= score <= 1.0)


def check_installed() -> None:
    """Raises ConfigError: the package is not installed."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError("reasoning-gym is not installed: pip install 'coterie[reasoning_gym]'")


@lru_cache(maxsize=32)
def dataset(game: str, options: str, chunk: int) -> Any:
    """Returns a data set of the package: `CHUNK` tasks that follow from its number."""
    check_installed()
    with quiet(chunk):
        create = importlib.import_module("reasoning_gym").create_dataset
        return create(game, seed=chunk * CHUNK, size=CHUNK, **json.loads(options))


@lru_cache(maxsize=4096)
def entry(game: str, options: str, place: int) -> dict[str, Any]:
    """Returns the package's record of a task: `question`, `answer` and what its scorer needs."""
    data = dataset(game, options, place // CHUNK)
    with quiet(place):
        return data[place % CHUNK]


@contextlib.contextmanager
def quiet(seed: int) -> Iterator[None]:
    """Keeps anything from being printed, and the process's own random generators as they are, while it lasts."""
    with contextlib.redirect_stdout(io.StringIO()), Sealed(seed)():
        yield


def trained(game: str, options: str, index: int) -> int:
    """Returns the place of a training task: at the index, or else the first that belongs to training among others."""
    again = AGAIN + index * CHUNK % (FIRST["validation"] - AGAIN)
    for place in (index % AGAIN, *range(again, again + CHUNK)):
        if split_of(str(entry(game, options, place)["question"])) == "train":
            return place
    raise ConfigError(f"reasoning_gym:{game} has too few different tasks with these options; make it harder")


class HeldOut:
    """The held-out tasks of a split, each once, found one after the other."""

    def __init__(self, game: str, options: str, split: Split) -> None:
        self._game, self._options, self._split = game, options, split
        self._places: list[int] = []
        self._questions: set[str] = set()
        self._next = FIRST[split]

    def at(self, index: int) -> int:
        """Returns the place of a task by its index. Raises: ConfigError: there are not so many."""
        while len(self._places) <= index:
            self._places.append(self._found())
        return self._places[index]

    def _found(self) -> int:
        for place in range(self._next, self._next + PATIENCE):
            question = str(entry(self._game, self._options, place)["question"])
            if split_of(question) == self._split and question not in self._questions:
                self._questions.add(question)
                self._next = place + 1
                return place
        raise ConfigError(
            f"reasoning_gym:{self._game} has only {len(self._places)} different {self._split} tasks with these "
            "options; make it harder, or ask for fewer"
        )


@cache
def held_out(game: str, options: str, split: Split) -> HeldOut:
    """Returns the held-out tasks of a split, for a task of the package and its options."""
    return HeldOut(game, options, split)


@cache
def solved(game: str, options: str, count: int) -> tuple[tuple[str, str], ...]:
    """Returns the first training tasks with an answer, as pairs of a question and the answer."""
    pairs: list[tuple[str, str]] = []
    for index in range(4 * count):
        task = entry(game, options, trained(game, options, AGAIN // 2 + index))
        if task["answer"] is not None and len(pairs) < count:
            pairs.append((str(task["question"]), str(task["answer"])))
    return tuple(pairs)
