"""Assistants: a master answers a user's query by sending errands to four specialists.

The team is JoyAgents-R1's (arXiv:2506.19846): a `master` that routes and aggregates; `qa`, which searches a
knowledge base; `shop_call` and `general_call`, which have typed tools; `math`. The paper's data and action
format are not public: the queries (`world.py`), the grammar and the limits are ours.

Every call ends with one line that is exactly one action; what stands before it is thought:

    delegate(AGENT, TASK)   only by the master: a specialist does the task and returns its answer
    tool(NAME, JSON)        by a specialist: a call of one of its own tools, with arguments by name
    final(TEXT)             the answer to whoever asked

With `solo` the master is alone and has every tool: the single-agent baseline.

Any other reply is an error, which the role may correct `max_repair` times. A role sees only its own actions
and their results; a specialist also sees its task. The limits are CALLS_A_TASK calls per delegation,
MASTER_CALLS calls of the master (with `solo`: all), `max_calls` per episode, and `max_transcript` bytes of
what a role did and saw. An episode that reaches a limit is wrong.

Rewards, of the team, once an episode is over; only the final answer is judged:

    answer = 1 if the final answer is the gold one
    format = format_weight * the share of calls that were one action
    cost   = -cost_weight * (calls - 1) / (max_calls - 1), where the answer is right: being cheap and wrong never pays

The weights together must be less than 1, so that no shape of an episode outweighs its answer; the
published ones, 1 and 1, are another setting.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coterie.environments.talk import Talk, instructed
from coterie.environments.tools import Toolbox
from coterie.kernel.environment import Environment, Split
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie_worlds.assistants import world as assistance
from coterie_worlds.assistants.actions import Action, bytes_of, cut, one_line, parsed, plain, quoted
from coterie_worlds.assistants.data import catalogue, queries, sentences
from coterie_worlds.assistants.demonstrations import (
    NO_ANSWER,
    advised,
    alone_says,
    caller_says,
    master_says,
    math_says,
)
from coterie_worlds.assistants.world import KINDS, SKILLS, Knowledge, Query, Shop
from coterie_worlds.maths.calculator import calculate
from coterie_worlds.maths.equal import same

MASTER = "master"
MASTER_CALLS, CALLS_A_TASK = 8, 4
"""Maximum calls of the master in an episode, and of a specialist for one task."""
OWNERS = {"calculate": "math", **{tool: owner for tool, (owner, _) in assistance.TASKS.items()}}
"""Role that owns each tool."""
MALFORMED = "error: end with one action"
INSTRUCTIONS = {
    MASTER: "You answer a user's query with the help of specialists. End your reply with one line that is one action: "
    "delegate(AGENT, TASK), where AGENT is one of {agents}, or final(ANSWER).",
    "qa": "You answer a task by searching a knowledge base.",
    "shop_call": "You do a task with the tools of a shop.",
    "general_call": "You do a task with general tools.",
    "math": "You solve a task step by step, with a calculator where it helps.",
}
ALONE = "You answer a user's query with tools, step by step."
USER = "[user] "
"""Beginning of a text in a chat that tells a role something."""
HOW = "End your reply with one line that is one action: tool(NAME, JSON_ARGUMENTS) or final(ANSWER). Tools: {tools}"


@dataclass(slots=True)
class Count:
    """A count of the calls that an episode has used."""

    calls: int = 0
    well_formed: int = 0
    limit: int = 0
    by_role: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def over(self) -> bool:
        """True if no more calls may be made."""
        return self.calls >= self.limit


class Assistants(Environment):
    """A master and four specialists answer queries, with tools and a shop of the episode's own."""

    team_reward_range: ClassVar = (-1.0, 1.0)

    data: str = ""
    """Queries: a .jsonl file of objects with `query`, `answer` and optionally `kind`. Empty: embedded queries."""
    knowledge: str = ""
    """Knowledge base: a .jsonl file of objects with `text`. Empty: the embedded one."""
    catalogue: str = ""
    """Shop catalogue: a .jsonl file of objects with `item`, `price` and `stock`. Empty: the embedded one."""
    kinds: tuple[Literal["qa", "shop_call", "general_call", "math", "together"], ...] = Field(
        default=KINDS, min_length=1
    )
    """Kinds of embedded queries to train on, with equal probability. A kind listed twice is drawn twice as often."""
    brief: bool = True
    """true: short prompts, for a small model that was trained on the grammar. false: prompts with instructions and tool
    schemas. The default with `data` is false."""
    solo: bool = False
    """Single-agent baseline: the master has every tool and no specialists."""
    max_calls: int = Field(default=14, ge=2)
    """Maximum model calls per episode."""
    max_repair: int = Field(default=1, ge=0)
    """Maximum consecutive malformed calls that a role may correct."""
    max_transcript: int = Field(default=700, ge=100)
    """Maximum bytes of a role's transcript for one task. Transcript, task and reply should fit the model's context."""
    format_weight: float = Field(default=0.1, ge=0)
    """Reward of an episode in which all calls are well-formed; proportionally less otherwise."""
    cost_weight: float = Field(default=0.3, ge=0)
    """Penalty of a right episode of maximum length; proportionally less for shorter ones."""
    published_weights: bool = False
    """true: format_weight and cost_weight are 1, as far as the paper's weights are known. Format and cost can then
    outweigh the answer."""
    max_tokens: int = Field(default=48, ge=4)
    """Maximum tokens per call. A call that is cut off counts as malformed."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration follows a bad habit, such as to send a question to the wrong specialist."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The master and its specialists; or the master alone."""
        return (MASTER,) if self.solo else (MASTER, *SKILLS)

    @property
    def starter(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name of the starter that knows the team's grammar, or the lone master's."""
        return "starter-assistants-solo" if self.solo else "starter-assistants"

    @model_validator(mode="before")
    @classmethod
    def _instructed(cls, settings: Any) -> Any:
        return instructed(settings)

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for embedded queries, which the starter knows: a policy a role, minutes on two cores."""
        if self.data or not self.brief:
            return {}
        train = {"steps": 30, "tasks_per_step": 64, "eval_every": 10, "eval_tasks": 300}
        tables = {"optimizer": {"lr": 3e-4}, "train": train}
        if self.solo:
            algorithm = {"name": "grpo", "num_generations": 8}
            return {"algorithm": algorithm, "loss": {"denominator": "tasks"}, **tables}
        return {
            "algorithm": {"name": "joyagents"},
            "team": {role: role for role in self.roles},
            "policies": {role: {} for role in self.roles},
            "optimizer": {"lr": 3e-4},
            "train": {**train, "mute_every": 0},
        }

    def inert(self) -> dict[str, str]:
        """Returns weights as without effect if the published ones are taken, and `kinds` if queries are one's own."""
        inert: dict[str, str] = {}
        if self.published_weights:
            inert |= dict.fromkeys(("format_weight", "cost_weight"), "published_weights = true sets both to 1")
        if self.data:
            inert["kinds"] = "data holds the queries"
        return inert

    @model_validator(mode="after")
    def _one_world(self) -> Assistants:
        for name in () if self.data else ("knowledge", "catalogue"):
            if getattr(self, name):
                raise ValueError(f"{name} needs data: the embedded queries are about the embedded world")
        return self

    @model_validator(mode="after")
    def _answers_first(self) -> Assistants:
        if self.format_weight + self.cost_weight >= 1:
            raise ValueError(
                f"format_weight + cost_weight = {self.format_weight + self.cost_weight:g} lets shape outweigh the "
                "answer, which is worth 1; lower one of them"
            )
        return self

    def task(self, split: Split, index: int) -> Query:
        """Returns the query at a place of a split."""
        return queries(self.data)[split][index] if self.data else assistance.query(split, index, self.kinds)

    def count(self, split: Split) -> int | None:
        """Returns the number of queries in a split; None for embedded ones to train on, which are unlimited."""
        if self.data:
            return len(queries(self.data)[split])
        return None if split == "train" else assistance.HELD_OUT[split]

    def ready(self) -> None:
        """Raises ConfigError if the knowledge base or the shop cannot be read."""
        sentences(self.knowledge)
        catalogue(self.catalogue)

    async def play(self, task: Query, scene: Scene) -> None:
        """Plays one query."""
        shop = Shop(catalogue(self.catalogue))
        tools = self.tools(shop)
        count = Count(limit=self.max_calls)
        limit = self.max_calls if self.solo else MASTER_CALLS
        answer = await self._work(scene, MASTER, f"query: {one_line(task.query)}", limit, tools, count)
        right = answer is not None and plain(answer) == plain(task.answer)
        if not right and answer is not None and self.data:  # $18 is 18.0
            right = await scene.call(same, task.answer, answer, task.query)
        format_weight, cost_weight = (1.0, 1.0) if self.published_weights else (self.format_weight, self.cost_weight)
        scene.team_reward(float(right), "answer")
        scene.team_reward(format_weight * (count.well_formed / max(1, count.calls)), "format")
        scene.team_reward(-cost_weight * right * (count.calls - 1) / (self.max_calls - 1), "cost")
        scene.metric("calls", count.calls)
        for name in self.roles:
            scene.metric(f"calls/{name}", count.by_role.get(name, 0))
        if right:
            return scene.succeed()
        return scene.fail("no answer in time" if answer is None else "a wrong answer")

    def tools(self, shop: Shop) -> dict[str, Toolbox]:
        """Returns each role's tools, over an episode's shop."""
        toolboxes = {
            "math": (calculate,),
            "qa": (Knowledge(sentences(self.knowledge)).search,),
            "shop_call": (shop.price, shop.stock, shop.buy),
            "general_call": (assistance.convert, assistance.weekday, assistance.distance),
        }
        if self.solo:
            return {MASTER: Toolbox(*(tool for several in toolboxes.values() for tool in several))}
        return {role: Toolbox(*toolboxes.get(role, ())) for role in self.roles}

    async def _work(
        self, scene: Scene, role: str, task: str, limit: int, tools: dict[str, Toolbox], count: Count
    ) -> str | None:
        """Calls a role until it has an answer and returns that; None if it never has one."""
        talk = Talk(scene, {} if self.brief else {role: self.manual(role, tools[role])})
        told = [task]
        broken = 0
        for _ in range(limit):
            if count.over or broken > self.max_repair or sum(map(bytes_of, told[1:])) > self.max_transcript:
                return None
            seen = "\n".join([role, *told]) if self.brief else told[-1]
            reply = await talk.ask(role, seen, max_tokens=self.max_tokens)
            count.calls += 1
            count.by_role[role] = count.by_role.get(role, 0) + 1
            action = self.action_of(role, reply)
            broken = broken + 1 if action is None else 0
            if action is None:
                told.append(f"{quoted(reply.text)} -> {MALFORMED}")
                continue
            count.well_formed += 1
            if action.kind == "final":  # the whole answer is judged, but only its beginning is passed on
                return action.text if role == MASTER else cut(action.text)
            if action.kind == "tool":
                seen = tools[role].call(action.name, action.arguments).text
            else:
                seen = await self._work(scene, action.name, f"task: {action.text}", CALLS_A_TASK, tools, count)
            told.append(f"{action} -> {quoted(seen or NO_ANSWER)}")
        return None

    def action_of(self, role: str, reply: Reply) -> Action | None:
        """Returns a reply's action if allowed: masters delegate to specialists, specialists use tools; else None."""
        action = parsed(reply.text) if reply.finish == "stop" else None
        if action is None or action.kind == "final":
            return action
        if action.kind == "delegate":
            return action if self._sends(role) and action.name in SKILLS else None
        return None if self._sends(role) else action

    def _sends(self, role: str) -> bool:
        return role == MASTER and not self.solo

    def manual(self, role: str, tools: Toolbox) -> str:
        """Returns instructions for a model that was never taught its role; its task and actions follow them."""
        asked = ALONE if self.solo else INSTRUCTIONS[role].format(agents=", ".join(SKILLS))
        return asked if self._sends(role) else f"{asked} {HOW.format(tools=json.dumps(tools.schemas))}"

    def note(self, role: str, reply: Reply) -> str:
        """Returns the action without what was written in it: an agent of the team, a tool of the role, or final."""
        action = self.action_of(role, reply)
        if action is None:
            return ""
        if action.kind == "final":
            return "final"
        if action.kind == "tool":
            owner = OWNERS.get(action.name)
            return f"tool({action.name})" if owner == role or (owner and self.solo) else ""
        return f"delegate({action.name})"

    def demonstrate(self, role: str, task: Query, prompt: Prompt, rng: Random) -> str:
        """Returns an expert's action, or with probability `naive` that of a bad habit if one is known.

        Habits: the master sends `age` and `maker` to the shop, the last of several errands to who did the first,
        and asks for the last one twice; qa leaves the fact out of its search for `origin` and `height`; shop_call
        looks up the price for the stock; general_call swaps the units of a conversion to a smaller one; math
        forgets the rest of a sum after a minus. A master alone has the habits of all: `price` for `age` and `maker`,
        the last of several errands left out, the last call made twice. Notes in the prompt that say what to do are
        followed.
        """
        if self.data:
            raise NotImplementedError("queries of one's own come without demonstrations")
        lines = [line for line in str(prompt).splitlines() if line]
        if not self.brief:
            lines = [line.removeprefix(USER) for line in lines if line.startswith(USER)]
        told = lines[-1 - sum(" -> " in line for line in lines) :]
        asked = told[0].partition(": ")[2]
        habit = rng.random() < self.naive and not advised(asked, lines[: -len(told)], sends=self._sends(role))
        seen = [line.rpartition(" -> ")[2] for line in told[1:]]
        if self.solo:
            return alone_says(asked, seen, told[1:], habit)
        if role == MASTER:
            return master_says(asked, seen, told[1:], habit)
        if role == "math":
            return math_says(asked, habit)
        return caller_says(role, asked, seen, habit)
