"""Tools: plain typed Python functions that a role may call, with arguments that nobody trusts.

    def price(item: str) -> int:
        '''Returns the price of an item.'''

    box = Toolbox(price)
    box.call("price", {"item": "red mug"})     # Observation("6", ok=True)
    box.call("price", {"items": 3})            # Observation("error: items: …", ok=False)

A tool's schema is read from its signature and its docstring; arguments are checked against it, strictly,
before the function sees them; whatever goes wrong becomes what the role observes. Bound methods are tools
too: state lives in an object that `play` makes, and a replay makes again.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from coterie.errors import ConfigError
from coterie.kernel.scene import JSON

LONGEST_OBSERVATION = 600
"""Characters of what a tool gives back that a role is shown."""
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Observation:
    """A role's view of a call. ok: the tool was there, took the arguments and did not fail."""

    text: str
    ok: bool


class Toolbox:
    """The tools of a role.

    Raises:
        ConfigError: a function's schema cannot be read, or two have one name.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        for function in functions:
            if not callable(
                function
            ):  # checked first: what is not a function may have no hash, and _arguments is cached
                raise ConfigError(f"tool {function!r:.80}: is no function or method; give them one by one")
            _arguments(*_plain(function))
        self._functions = {function.__name__: function for function in functions}
        if len(self._functions) < len(functions):
            raise ConfigError(f"two tools have one name, of {', '.join(one.__name__ for one in functions)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools that may be called."""
        return tuple(self._functions)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Every tool's name, description and parameters, as chat templates take them."""
        return [_schema(*_plain(function)) for function in self._functions.values()]

    def call(self, name: str, arguments: JSON) -> Observation:
        """Calls a tool; never raises for what a role wrote."""
        function = self._functions.get(name)
        if function is None:
            return _wrong(f"no tool {name!r}; there are {', '.join(self.names) or 'none'}")
        try:
            given = _arguments(*_plain(function)).model_validate_json(json.dumps(arguments), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            return _wrong(": ".join([".".join(map(str, first["loc"])) or "arguments", str(first["msg"])]))
        except (TypeError, ValueError, RecursionError) as error:
            return _wrong(f"arguments: {error}")
        try:
            result = function(
                **{str(field.alias): getattr(given, key) for key, field in type(given).model_fields.items()}
            )
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        except (
            Exception,
            SystemExit,
        ) as error:  # what a tool raises, or returns that is no JSON, is what the role sees
            return _wrong(str(error) or type(error).__name__)
        return Observation(_bounded(text), True)


def _wrong(message: str) -> Observation:
    return Observation(_bounded(f"error: {message}"), False)


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST_OBSERVATION else f"{text[:LONGEST_OBSERVATION]} …"


def _plain(function: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """Returns the function behind a bound method, the same for all objects, and whether there is one."""
    return getattr(function, "__func__", function), inspect.ismethod(function)


@lru_cache
def _schema(function: Callable[..., Any], bound: bool) -> dict[str, Any]:
    described = {"name": function.__name__, "description": inspect.cleandoc(function.__doc__ or "")}
    return {
        "type": "function",
        "function": {**described, "parameters": _arguments(function, bound).model_json_schema()},
    }


@lru_cache
def _arguments(function: Callable[..., Any], bound: bool) -> type[BaseModel]:
    """Returns the pydantic model of a function's arguments, by alias: a parameter may have any name.

    Args: bound: the first is a method's own object. Raises: ConfigError: one that cannot be told.
    """
    if not inspect.isfunction(function):
        raise ConfigError(f"tool {function!r}: is no function or method; write one that calls it")
    where = f"tool '{function.__name__}'"
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{where}: is asynchronous, and tools are called at once; write it without async")
    if not function.__doc__:
        raise ConfigError(f"{where}: write a docstring; it is what a role reads of it")
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    if parameters and parameters[0].name == "self":
        raise ConfigError(
            f"{where}: is a method without its object; give the method of an object, as in Toolbox(shop.buy)"
        )
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigError(f"{where}: its annotations cannot be read: {error}") from error
    fields = {f"argument_{at}": _field(parameter, hints, where) for at, parameter in enumerate(parameters)}
    try:
        model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except (PydanticUserError, TypeError, NameError) as error:
        raise ConfigError(f"{where}: its arguments are no JSON: {str(error).splitlines()[0]}") from error
    return model


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any], where: str) -> Any:
    """Returns a parameter's type and default, as pydantic takes them."""
    name = parameter.name
    if parameter.kind not in NAMED:
        raise ConfigError(f"{where}: parameter '{name}' cannot be given by name; write it out")
    if name not in hints:
        raise ConfigError(f"{where}: parameter '{name}' has no type; annotate it")
    kind = Annotated[hints[name], Field(alias=name)]
    if parameter.default is inspect.Parameter.empty:
        return kind, ...
    try:
        TypeAdapter(hints[name]).validate_python(parameter.default, strict=True)
    except ValidationError as error:
        raise ConfigError(f"{where}: parameter '{name}' has a default that is none of its type; change one") from error
    except (PydanticUserError, NameError):
        pass  # said of the whole signature
    return kind, parameter.default
