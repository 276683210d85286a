"""Relay: two roles know parts of one map, and together follow a path that may pass through both parts.

On the map an arrow leads from every place to another one. The question is where a number of hops from a start leads.
Each role sees the arrows of some places; together they see all. They speak in turns, and each says the path as far as
it can. With `solo` one agent plays alone, with as many arrows as a role has.

The environment is made for the question when a team pays. It has two dials: `shares`, how many arrows one role alone
knows, and `hops`, how many facts an answer joins. `knows_enough` is the share of tasks that one role can answer by what
it knows. A third dial, how good an agent is by itself, is the model that it starts with.

Rewards: the team gets 1, at the end of a turn, if the whole path stands there and is right. A role gets what the path
is worth after its reply minus what it was worth before, and 0.2 less for a reply that is no path. A path is worth
(right hops before the first wrong one - 1 if a wrong one follows) / hops. On the last turn a wrong hop costs nothing:
who does not know may guess there, and should not before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import comb
from random import Random
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from coterie.environments.talk import Talk
from coterie.kernel.environment import Environment, Lesson, Split, Task, split_of
from coterie.kernel.scene import Prompt, Reply, Scene
from coterie.seeds import seed_of

FIRST, SECOND = "first", "second"
PLACES = "abcdefghijklmnop"
LESSONS = 8
"""Number of demonstrations on one map."""
MALFORMED = 0.2
"""Penalty of a reply that is no path."""
ASKED = re.compile(r"^from (\w) hops (\d+)( last)?\nso far (.*)$", re.MULTILINE)
INSTRUCTIONS = (
    "On a map an arrow leads from every place to another one. You are asked where a number of hops from a place leads. "
    "You see some of the arrows, each as the place it starts at and the place it leads to{others}. Say the path as far "
    "as you know it: the start and the places after it, separated by spaces, on one line that begins with `path`, such "
    "as, on another map, `path x y z`. A path with a wrong place in it loses; only where the prompt says `last` does a "
    "guess cost nothing."
)
OTHERS = "; your partner sees the others, you speak in turns, and each sees the path that the other said"


@dataclass(frozen=True, slots=True)
class Journey(Task):
    """A question: where a number of hops from a start leads.

    arrows: where the arrow of each place of PLACES leads. known: the places whose arrow each role sees.
    """

    arrows: str = ""
    start: str = ""
    hops: int = 0
    known: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The right path: the start and the place that each hop leads to."""
        path = self.start
        while len(path) <= self.hops:
            path += self.arrows[PLACES.index(path[-1])]
        return path


class Relay(Environment):
    """Two roles follow a path through a map of which each knows a part."""

    team_reward_range: ClassVar = (0.0, 1.0)
    starter: ClassVar[str] = "starter-relay"

    places: int = Field(default=8, ge=4, le=len(PLACES))
    """Number of places on the map. With 4 or 5 there are few different problems."""
    shares: tuple[int, ...] = Field(default=(4, 5, 6, 7, 8), min_length=1)
    """Numbers of arrows that one role sees; each task has one of them. Two roles see all arrows between them."""
    hops: tuple[int, ...] = Field(default=(1, 2, 3, 4), min_length=1)
    """Lengths of the path; each task has one of them."""
    solo: bool = False
    """One agent plays alone, with the arrows of one role. Its tasks are those of the team."""
    seed: int = Field(default=0, ge=0)
    """Seed of maps and questions. Another one draws others, in every split."""
    max_turns: int = Field(default=3, ge=1)
    """Maximum turns of an episode. In a turn each role speaks once."""
    max_tokens: int = Field(default=24, ge=4)
    """Maximum tokens per reply. A reply that is cut off is no path."""
    brief: bool = True
    """true: short prompts, for a small model that was trained on the task. false: prompts with instructions."""
    naive: float = Field(default=0.6, ge=0, le=1)
    """Probability that a demonstration follows only one arrow and then goes on along the alphabet."""

    @property
    def roles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Both roles, or the first alone."""
        return (FIRST,) if self.solo else (FIRST, SECOND)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        least = 1 if self.solo else -(-self.places // 2)
        for share in self.shares:
            if not least <= share <= self.places:
                raise ValueError(
                    f"shares has {share}, but a role sees {least} to {self.places} arrows if places = {self.places}"
                )
        for hops in self.hops:
            if not 1 <= hops < self.places:
                raise ValueError(f"hops has {hops}: a path on {self.places} places has 1 to {self.places - 1}")
        words = max(self.hops) + 1 + (not self.brief)  # without `brief` a reply begins with the word path
        if self.max_tokens <= words:
            raise ValueError(
                f"max_tokens = {self.max_tokens}, but a path of {words} words and its end need {words + 1} or more"
            )
        return self

    def recommended(self) -> dict[str, dict[str, Any]]:
        """Returns settings for the starter: one policy for both roles, a minute on two cores."""
        if not self.brief:
            return {}
        return {
            "algorithm": {"name": "grpo"} if self.solo else {"name": "at_grpo", "horizon": "point", "commit": "random"},
            "optimizer": {"lr": 1e-3},
            "train": {"steps": 60, "tasks_per_step": 32},
        }

    def task(self, split: Split, index: int) -> Journey:
        """Returns a map and a question of the split by content; neither depends on what the roles see of it."""
        rng = Random(seed_of("relay", self.seed, self.places, self.hops, split, index))
        share = Random(seed_of("relay share", self.seed, self.shares, split, index)).choice(self.shares)
        while True:
            order = rng.sample(PLACES[: self.places], self.places)
            arrows = dict(zip(order, [*order[1:], order[0]], strict=True))  # one round trip: no path meets itself
            hops, start = rng.choice(self.hops), rng.choice(order)
            mixed = rng.sample(order, len(order))
            known = "".join(sorted(mixed[:share])), "".join(sorted([*mixed[share:], *mixed[: 2 * share - len(mixed)]]))
            task = Journey(
                f"{split}-{index}",
                split,
                kind=f"{share} of {self.places} known, {hops} hops",
                arrows="".join(arrows[place] for place in sorted(arrows)),
                start=start,
                hops=hops,
                known=known[: len(self.roles)],
            )
            if split_of(content(task)) == split:
                return task

    async def play(self, task: Journey, scene: Scene) -> None:
        """Plays turns in which each role says the path, until the whole path is said."""
        other = "" if self.solo else OTHERS
        talk = Talk(scene, {} if self.brief else dict.fromkeys(self.roles, INSTRUCTIONS.format(others=other)))
        path = task.start
        for turn in scene.turns(self.max_turns):
            last = turn + 1 == self.max_turns
            for role in self.roles:
                reply = await talk.ask(role, self.told(task, role, path, last=last), max_tokens=self.max_tokens)
                said = self.said(task, reply)
                after = said or path
                change = worth(task, after, last=last) - worth(task, path, last=last)
                scene.reward(role, change - (0.0 if said else MALFORMED))
                scene.metric(f"readable/{role}", float(bool(said)))
                path = after
            whole = len(path) > task.hops
            scene.team_reward(float(path == task.path))
            if whole:
                return scene.succeed() if path == task.path else scene.fail("a wrong path")
        return scene.fail("no whole path")

    def told(self, task: Journey, role: str, path: str, *, last: bool) -> str:
        """Returns the prompt of a role: its arrows, the question, whether it is the last turn, and the path so far."""
        known = task.known[self.roles.index(role)]
        arrows = " ; ".join(f"{place} {task.arrows[PLACES.index(place)]}" for place in known)
        return f"{arrows}\nfrom {task.start} hops {task.hops}{' last' * last}\nso far {' '.join(path)}"

    def said(self, task: Journey, reply: Reply) -> str:
        """Returns the path that a reply says, "" if it says none."""
        lines = reply.text.strip().splitlines() if reply.finish == "stop" else []
        words = lines[-1].split() if lines else []
        if words[:1] == ["path"]:
            words = words[1:]
        elif not self.brief:
            return ""
        places = PLACES[: self.places]
        fine = 0 < len(words) <= task.hops + 1 and all(len(word) == 1 and word in places for word in words)
        return "".join(words) if fine and words[0] == task.start else ""

    def demonstrate(self, role: str, task: Journey, prompt: Prompt, rng: Random) -> str:
        """Returns the path as far as the role knows; with probability `naive` one hop, and then along the alphabet.

        On the last turn, what the role does not know is guessed along the alphabet too.
        """
        seen = str(prompt)
        _, _, last, path = ASKED.findall(seen)[-1]
        path, known = path.replace(" ", ""), task.known[self.roles.index(role)]
        hasty = rng.random() < self.naive
        path = task.start if hasty else agreed(task, path, known)
        while len(path) <= task.hops and path[-1] in known and not (hasty and len(path) > 1):
            path += task.arrows[PLACES.index(path[-1])]
        while len(path) <= task.hops and (hasty or last):
            path += PLACES[(PLACES.index(path[-1]) + 1) % self.places]
        return " ".join(["path"] * (not self.brief) + [*path])

    def lessons(self, task: Journey, rng: Random) -> Iterator[Lesson]:
        """Yields lessons on several questions about the task's map, each a train task of its own.

        A role is at the start, or where a part of the path was said, right or with a wrong place at its end.
        """
        for _ in range(LESSONS):
            asked = replace(task, start=rng.choice(PLACES[: self.places]), hops=rng.choice(self.hops))
            if split_of(content(asked)) != "train":
                continue
            role = rng.choice(self.roles)
            far = rng.choice((0, rng.randint(0, asked.hops)))
            wrong = rng.random() < 0.2 and far > 0
            so_far = asked.path[: far + 1 - wrong] + (rng.choice(PLACES[: self.places]) if wrong else "")
            seen = self.told(asked, role, so_far, last=rng.random() < 0.3)
            yield Lesson(role, seen, self.demonstrate(role, asked, seen, rng))


def content(task: Journey) -> tuple[object, ...]:
    """Returns the parts that make two journeys the same problem, whatever is seen of it."""
    return task.arrows, task.start, task.hops


def agreed(task: Journey, path: str, known: str) -> str:
    """Returns the part of a path before the first hop that a role knows to be wrong."""
    for at in range(1, len(path)):
        if path[at - 1] in known and path[at] != task.arrows[PLACES.index(path[at - 1])]:
            return path[:at]
    return path


def worth(task: Journey, path: str, *, last: bool) -> float:
    """Returns a path's worth: right hops, less one if a wrong one follows, over all; if last, that costs nothing."""
    right = next((at for at in range(1, len(path)) if path[at] != task.path[at]), len(path)) - 1
    return (right - (right + 1 < len(path) and not last)) / task.hops


def knows_enough(places: int, share: int, hops: int) -> float:
    """Returns the share of tasks of which one role knows every hop: `hops` arrows of `places`, among its `share`."""
    return comb(places - hops, share - hops) / comb(places, share) if share >= hops else 0.0
