"""Tools: a schema from a signature, arguments that nobody trusts, errors that are seen and never raised."""

from __future__ import annotations

import sys
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from coterie.environments.tools import LONGEST_OBSERVATION, Observation, Toolbox
from coterie.errors import ConfigError


def price(item: str, count: int = 1) -> int:
    """What so many of an item cost."""
    return {"mug": 3}[item] * count


def choose(size: Literal["small", "large"]) -> dict[str, Any]:
    """One of two sizes."""
    return {"size": size}


class Colour(Enum):
    RED = "red"


def paint(colour: Colour, when: date, at: tuple[int, int]) -> str:
    """Types that JSON writes in its own way."""
    return f"{colour.value} {when.year} {at[1]}"


def odd(kind: str) -> Any:
    """Gives what is no JSON."""
    return {1} if kind == "set" else float("nan")


class Shop:
    opened = 0

    def __init__(self) -> None:
        self.sold = 0

    @classmethod
    def open(cls, count: int) -> int:
        """Opens some."""
        cls.opened += count
        return cls.opened

    def sell(self, count: int) -> str:
        """Sells some."""
        self.sold += count
        return f"{self.sold} sold"


async def later(item: str) -> str:
    """Too late."""
    return item


def few(count: Annotated[int, Field(ge=1, le=3)]) -> int:
    """One to three."""
    return count


def sized(size: int = "big") -> int:  # pyright: ignore[reportArgumentType]
    """A wrong default."""
    return size


BOX = Toolbox(price, choose)


def test_a_call_gives_what_the_function_does():
    assert BOX.call("price", {"item": "mug"}) == Observation("3", True)
    assert BOX.call("price", {"item": "mug", "count": 2}) == Observation("6", True)
    assert BOX.call("choose", {"size": "large"}) == Observation('{"size": "large"}', True)


def test_bounds_of_an_argument_are_kept():
    box = Toolbox(few)
    assert box.call("few", {"count": 3}).ok
    assert box.call("few", {"count": 4}).text == "error: count: Input should be less than or equal to 3"
    assert box.schemas[0]["function"]["parameters"]["properties"]["count"]["maximum"] == 3


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (later, "asynchronous"),
        (partial(price, count=2), "no function"),
        (len, "no f"),
        (Shop.sell, "without its object"),
        (sized, "'size' has a default that is none of its type"),
    ],
)
def test_what_cannot_be_a_tool(tool, message):
    with pytest.raises(ConfigError, match=message):
        Toolbox(tool)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("prize", {"item": "mug"}, "error: no tool 'prize'; there are price, choose"),
        ("price", {}, "error: item: Field required"),
        ("price", {"item": "mug", "x": 1}, "error: x: Extra inputs are not permitted"),
        ("price", {"item": 3}, "error: item: Input should be a valid string"),
        ("price", {"item": "mug", "count": "2"}, "error: count: Input should be a valid integer"),
        ("price", {"item": "mug", "count": True}, "error: count: Input should be a valid integer"),
        ("price", ["mug"], "error: arguments: Input should be"),
        ("price", None, "error: arguments: Input should be"),
        ("price", {"item": "rug"}, "error: 'rug'"),
        ("choose", {"size": "huge"}, "error: size: Input should be 'small' or 'large'"),
    ],
)
def test_whatever_is_wrong_is_seen_and_nothing_is_raised(name, arguments, said):
    found = BOX.call(name, arguments)
    assert not found.ok
    assert found.text.startswith(said)


def test_a_tool_that_would_leave_ends_nothing():
    def leave() -> None:
        """Ends the process."""
        sys.exit("enough")

    assert Toolbox(leave).call("leave", {}) == Observation("error: enough", ok=False)


def test_tools_in_a_list_are_told_to_come_one_by_one():
    def price() -> int:
        """What it costs."""
        return 3

    with pytest.raises(ConfigError, match="is no function or method; give them one by one"):
        Toolbox([price])  # pyright: ignore[reportArgumentType]


def test_types_beyond_jsons_own():
    given = {"colour": "red", "when": "2026-01-02", "at": [3, 4]}
    assert Toolbox(paint).call("paint", given) == Observation("red 2026 4", True)
    assert not Toolbox(paint).call("paint", {**given, "colour": "blue"}).ok
    assert Toolbox(odd).call("odd", {"kind": "set"}).text.startswith("error: Object of type set")


def test_what_a_tool_gives_is_bounded():
    def flood() -> str:
        """Much."""
        return "x" * 10**6

    assert len(Toolbox(flood).call("flood", {}).text) <= LONGEST_OBSERVATION + 2


def test_methods_keep_their_objects_state():
    one, other = Shop(), Shop()
    assert Toolbox(one.sell).call("sell", {"count": 2}).text == "2 sold"
    assert Toolbox(one.sell).call("sell", {"count": 1}).text == "3 sold"
    assert other.sold == 0
    assert Toolbox(Shop.open).call("open", {"count": 2}).text == "2"
    assert Toolbox(Shop.open).schemas[0]["function"]["parameters"]["required"] == ["count"]


def test_a_parameter_may_have_any_name():
    def awkward(_x: int, model_config: int, schema: int = 3) -> int:
        """Adds."""
        return _x + model_config + schema

    box = Toolbox(awkward)
    assert box.call("awkward", {"_x": 1, "model_config": 2}).text == "6"
    assert box.call("awkward", {"_x": 1, "model_config": 2, "schema": 9}).text == "12"
    assert list(box.schemas[0]["function"]["parameters"]["properties"]) == ["_x", "model_config", "schema"]
    assert box.call("awkward", {"_x": 1}).text == "error: model_config: Field required"


def test_what_json_cannot_write_is_seen_too():
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    for arguments in (deep, {"count": 10**5000}, {"count": {1}}):
        assert Toolbox(Shop().sell).call("sell", arguments).text.startswith("error: ")


def test_the_schema_is_the_signatures():
    (first, second) = BOX.schemas
    assert first["function"]["name"] == "price"
    assert first["function"]["description"] == "What so many of an item cost."
    assert first["function"]["parameters"]["required"] == ["item"]
    assert first["function"]["parameters"]["properties"]["count"]["type"] == "integer"
    assert second["function"]["parameters"]["properties"]["size"]["enum"] == ["small", "large"]


def untyped(item):
    """No type."""


def many(*items: str):
    """Not by name."""


def positional(item: str, /):
    """Not by name."""


def strange(item: Shop):
    """No JSON."""


def unknown(item: Nowhere):  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    """No such type."""


def silent(item: str):
    pass


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (untyped, "parameter 'item' has no type; annotate it"),
        (many, "parameter 'items' cannot be given by name"),
        (positional, "parameter 'item' cannot be given by name"),
        (strange, "its arguments are no JSON"),
        (unknown, "its annotations cannot be read"),
        (silent, "write a docstring"),
    ],
)
def test_a_tool_whose_schema_cannot_be_read_is_one_line_at_start(function, message, tmp_path):
    with pytest.raises(ConfigError, match=f"tool '{function.__name__}': {message}") as caught:
        Toolbox(function)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="two tools have one name"):
        Toolbox(price, price)


def test_a_tool_of_a_users_environment_is_refused_before_anything_is_played(tmp_path):
    from coterie.config.resolve import load_config

    file = tmp_path / "mine.py"
    file.write_text(
        "from coterie import Environment\nfrom coterie.environments.tools import Toolbox\n\n"
        "def look(where):\n    'Looks.'\n\n"
        "class Mine(Environment):\n    roles = ('a',)\n    tools = Toolbox(look)\n"
    )
    with pytest.raises(ConfigError, match="parameter 'where' has no type"):
        load_config(f"{file}:Mine")
