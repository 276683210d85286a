"""OpenEnv's environments, in this process: `coterie train openenv:my_env.py:make`. The library is not needed for it.

`make(**options)` returns an environment: `reset(seed=…)` and `step(action)` give observations with `done` and `reward`,
and `step` says by its annotation what an action is, a class of pydantic's. One role, `player_0`, moves. It is told the
observation's other fields, and says an action: as a JSON object, or, where an action is one text, as it is.

A client of a served environment is refused. A branch must restart its episode with the same seed, but over plain HTTP
every request may reach another instance of the environment.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, Self, get_type_hints

from pydantic import BaseModel, PrivateAttr, RootModel, ValidationError, model_validator

from coterie.errors import ConfigError
from coterie.kernel.mistakes import said
from coterie.kernel.safe import one_line
from coterie.kernel.scene import JSON, Prompt
from coterie_worlds.foreign.match import Heard, Result, Round
from coterie_worlds.foreign.own_game import Alone, Read
from coterie_worlds.foreign.sealed import Sealed

OWN = ("done", "reward", "metadata")
"""Fields of an observation, and of an action, that no player is told or says."""
FORM = "Answer with a JSON object of these: "
"""Beginning of the line on which a player is told what an action is."""
DEFINED = "$defs"
"""Key of a schema that holds the kinds to which it refers."""
DEEP, MOST, TRIES = 4, 100, 20
"""Limits of random actions: nesting level, items or letters, and attempts until one is valid."""


class OpenEnv(Alone):
    """An environment that is written as OpenEnv's are."""

    form: ClassVar = "openenv:FILE.py:FUNCTION, which makes an environment"

    _form: type[BaseModel] | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _is_its_own(self) -> Self:
        if not self.own:
            raise ValueError(f"game = '{self.game}' is no function; name it as {self.form}")
        return self

    def inert(self) -> dict[str, str]:
        """Returns settings without effect: nobody else plays, and nobody knows what may be done."""
        return super().inert() | dict.fromkeys(("opening", "playouts"), "what may be done is not listed")

    def ready(self) -> None:
        """Raises ConfigError if the environment, made once to see what it is, cannot be played."""
        try:
            made = self.own_game()
            action_of(made)
            seen = made.reset(seed=0)
            if not hasattr(seen, "done") or not hasattr(seen, "model_dump"):
                raise TypeError(f"reset gave {seen!r:.80}, which is no model of pydantic's with a field done")
            getattr(made, "close", lambda: None)()
        except Exception as error:  # a user's function may raise anything
            raise ConfigError(f"environment.game = '{self.game}' cannot be played: {said(error)}") from error

    def begun(self, seed: int) -> OpenEnvGame:
        """Returns an episode at its beginning."""
        game = OpenEnvGame(self.own_game, seed)
        self._form = game.action
        return game

    def demonstrate(self, role: str, task: Round, prompt: Prompt, rng: Random) -> str:
        """Returns a random valid action, or a random word of the prompt if an action is one text."""
        text = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
        form = re.search(rf"^{re.escape(FORM)}(.*)$", text, re.MULTILINE)
        if not form:
            return rng.choice(text.split() or [""])
        told = json.loads(form[1])
        for _ in range(TRIES):
            action = {name: _any(kind, told, rng) for name, kind in told.items() if name != DEFINED}
            with suppress(ValidationError):
                if self._form:
                    self._form.model_validate(action)
                return json.dumps(action)
        raise NotImplementedError(f"no action of {self.game} can be made up from its schema")


def action_of(made: Any) -> type[BaseModel]:
    """Returns the class of an environment's actions. Raises: TypeError: it cannot be played here, or tells none."""
    if not callable(getattr(made, "step", None)) or not callable(getattr(made, "reset", None)):
        raise TypeError("it has no reset and step")
    if inspect.iscoroutinefunction(made.step) or hasattr(made, "base_url") or hasattr(made, "from_docker_image"):
        raise TypeError("it is a client of one that is served; make the environment itself")
    kind = get_type_hints(made.step).get("action")
    if kind is None:
        raise TypeError("annotate the action of step with its class, as in step(self, action: MyAction)")
    if not (inspect.isclass(kind) and issubclass(kind, BaseModel)) or issubclass(kind, RootModel):
        raise TypeError(f"the action of step is {kind!r:.80}, which is no model of pydantic's with fields")
    return kind


def _said(schema: dict[str, Any]) -> str:
    """Returns a schema's fields that are a player's, and what they refer to, as JSON."""
    whole = (
        schema[DEFINED][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    )  # the class refers to itself
    told: dict[str, Any] = {name: kind for name, kind in whole["properties"].items() if name not in OWN}
    return json.dumps(told | ({DEFINED: schema[DEFINED]} if DEFINED in schema else {}))


def _any(kind: dict[str, Any], told: dict[str, Any], rng: Random, depth: int = 0) -> JSON:
    """Returns a random value of a JSON Schema. A type that is not known here becomes a word.

    Args:
        told: the definitions to which `$ref` points.
        depth: the nesting level; from `DEEP` on, the value is as small as possible.
    """
    small = depth >= DEEP
    while "$ref" in kind or "anyOf" in kind or "oneOf" in kind:
        name, several = kind.get("$ref", "").rpartition("/")[2], kind.get("anyOf") or kind.get("oneOf") or []
        least = next((one for one in several if one.get("type") == "null"), several[0] if several else {})
        kind = told[DEFINED][name] if name else least if small else rng.choice(several)
    if "enum" in kind or "const" in kind:
        return rng.choice(kind.get("enum") or [kind["const"]])
    fields, fewest = kind.get("properties", {}), min(kind.get("minItems", 0), MOST)
    items = kind.get("prefixItems") or [kind.get("items", {})] * min(
        fewest + (0 if small else rng.randrange(2)), kind.get("maxItems", MOST)
    )
    letters = min(kind.get("minLength", 0), MOST)
    makers: dict[str, Callable[[], JSON]] = {
        "integer": lambda: _number(kind, rng),
        "number": lambda: _number(kind, rng),
        "boolean": lambda: rng.random() < 0.5,
        "null": lambda: None,
        "array": lambda: [_any(item, told, rng, depth + 1) for item in items],
        "object": lambda: {name: _any(field, told, rng, depth + 1) for name, field in fields.items()},
    }
    word = ("word" * (letters // 4 + 1))[: max(letters, min(4, kind.get("maxLength", 4)))]
    return makers.get(kind.get("type", ""), lambda: word)()


def _number(kind: dict[str, Any], rng: Random) -> float:
    """Returns a random number within the bounds of a schema, whole if possible. An open range is 10 wide."""
    low, high = kind.get("minimum", kind.get("exclusiveMinimum")), kind.get("maximum", kind.get("exclusiveMaximum"))
    least: float = low if low is not None else (high - 10 if high is not None else 0)
    most: float = high if high is not None else least + 10
    step = kind.get("multipleOf", 1)
    above, below = "exclusiveMinimum" in kind, "exclusiveMaximum" in kind
    first = math.floor(least / step) + 1 if above else math.ceil(least / step)
    last = math.ceil(most / step) - 1 if below else math.floor(most / step)
    return rng.randint(first, last) * step if first <= last else rng.uniform(least, most)


class OpenEnvGame:
    """An episode of OpenEnv under way, as a `Match`."""

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        self._sealed, self._read = Sealed(seed), Read()
        self._earned, self._why = 0.0, ""
        self._over: Result | None = None
        with self._sealed():
            self._env = make()
            self.action = action_of(self._env)
            self._take(self._env.reset(seed=seed))
        fields = {name: field for name, field in self.action.model_fields.items() if name not in OWN}
        one = next(iter(fields.values())) if len(fields) == 1 else None
        name = (one.validation_alias or one.alias or next(iter(fields))) if one and one.annotation is str else None
        self._text = name if isinstance(name, str) else None

    def _take(self, seen: Any) -> None:
        """Takes in the observation after an action, or at the beginning."""
        self._seen = seen
        self._earned += float(getattr(seen, "reward", None) or 0)
        if seen.done:
            self._over = Result({0: self._earned}, f"its rewards were {self._earned:g}")

    def turn(self) -> tuple[int, Sequence[Heard], Sequence[str]]:
        """Returns seat 0, what the player is told since its last move, and no list of moves."""
        told = [Heard(f"That is no action: {self._why}")] if self._read.wrong else []
        if self._text is None:
            schema = self.action.model_json_schema()
            told.append(Heard(f"{FORM}{_said(schema)}"))
        return 0, [*told, Heard(self._shown(), board=True)], ()

    def _shown(self) -> str:
        """Returns an observation without what it earned: one text as it is, others as JSON."""
        seen = self._seen.model_dump(mode="json", exclude=set(OWN))
        return next(iter(seen.values())) if [*map(type, seen.values())] == [str] else json.dumps(seen)

    def move(self, text: str) -> bool:
        """Makes a move if a reply is an action; returns False if it is none."""
        try:
            action = self.action.model_validate({self._text: text} if self._text else self._written(text))
        except (ValueError, RecursionError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            self._why = one_line(": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]])))
            self._read.counted(None)
            self._over = self._read.lost(0)
            return False
        self._read.counted(action)
        with self._sealed():
            self._take(self._env.step(action))
        return True

    def _written(self, text: str) -> dict[str, Any]:
        """Returns a reply's fields, without those that are no player's. Raises: ValueError: it is no object."""
        found = re.search(r"\{.*\}", text, re.DOTALL)
        given = json.loads(found[0] if found else text)
        if not isinstance(given, dict):
            raise ValueError("write a JSON object")
        return {name: value for name, value in given.items() if name not in OWN}

    def result(self) -> Result | None:
        """Returns the result, or None while the episode goes on."""
        return self._over

    def close(self) -> None:
        """Closes the environment, if it can be closed."""
        getattr(self._env, "close", lambda: None)()
