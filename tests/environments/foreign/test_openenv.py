"""OpenEnv's environments, by duck typing: what is here is written as its own are, and needs nothing of it."""

import json
from random import Random

import pytest

from coterie import check, load_config
from coterie.errors import ConfigError
from coterie_worlds.foreign.match import Result
from coterie_worlds.foreign.openenv import OpenEnv

OWN = '''
import random

from pydantic import BaseModel, Field


class Seen(BaseModel):
    hint: str
    done: bool = False
    reward: float | None = None
    metadata: dict = {}


class Say(BaseModel):
    text: str
    metadata: dict = {}


class Bid(BaseModel):
    amount: int = Field(ge=0)
    why: str = ""


class Guess:
    """A number from 0 to 9, in three tries."""

    def __init__(self, most=3):
        self.most = most

    def reset(self, seed=None, episode_id=None, **more):
        self.number, self.tries = random.Random(seed).randrange(10), 0
        return Seen(hint="guess a number")

    def step(self, action: Say, timeout_s=None, **more):
        self.tries += 1
        right = action.text == str(self.number)
        hint = "right" if right else "larger" if action.text < str(self.number) else "smaller"
        return Seen(hint=hint, done=right or self.tries == self.most, reward=float(right))


class Auction(Guess):
    def step(self, action: Bid, timeout_s=None, **more):
        return Seen(hint="sold", done=True, reward=action.amount / 10)


class Served(Guess):
    base_url = "http://localhost:8000"


class Silent(Guess):
    def step(self, action):
        return Seen(hint="")


class Point(BaseModel):
    x: int


class Nested(BaseModel):
    at: Point
    reward: float = 0.0
    metadata: dict = {}


class Points(Guess):
    def step(self, action: Nested, timeout_s=None, **more):
        return Seen(hint=str(action.model_dump()), done=True, reward=float(action.at.x) + action.reward)


class Over(Guess):
    def reset(self, seed=None, episode_id=None, **more):
        return Seen(hint="", done=True, reward=2.0)


class Plain(Guess):
    def reset(self, seed=None, episode_id=None, **more):
        return type("Seen", (), {"done": False, "reward": 0.0})()


class Nothing:
    pass
'''


def own(tmp_path, name: str, **options) -> OpenEnv:
    (tmp_path / "mine.py").write_text(OWN)
    return OpenEnv(game=f"{tmp_path}/mine.py:{name}", options=options)


def test_an_action_of_one_text_is_a_reply_as_it_is(tmp_path):
    environment = own(tmp_path, "Guess")
    environment.ready()
    game = environment.begun(3)
    seat, (seen,), moves = game.turn()
    assert (seat, seen.text, seen.board, moves) == (0, "guess a number", True, ())
    number = int(game._env.number)
    assert game.move(str((number + 1) % 10))
    assert game.turn()[1][-1].text in ("larger", "smaller")
    assert game.result() is None
    assert game.move(str(number))
    assert game.result() == Result({0: 1.0}, "its rewards were 1")
    assert environment.begun(3)._env.number == number, "by its seed"
    short = own(tmp_path, "Guess", most=1).begun(3)
    short.move("x")
    assert short.result() == Result({0: 0.0}, "its rewards were 0")


def test_another_action_is_a_json_object_and_what_is_none_is_asked_again(tmp_path):
    game = own(tmp_path, "Auction").begun(0)
    _, (form, seen), _ = game.turn()
    assert form.text.startswith('Answer with a JSON object of these: {"amount": ')
    assert seen.text == "guess a number"
    assert not game.move('I bid {"amount": -1}')
    assert game.turn()[1][0].text == "That is no action: amount: Input should be greater than or equal to 0"
    assert game.move('I bid {"amount": 4, "why": "so"}.')
    assert game.result() == Result({0: 0.4}, "its rewards were 0.4")
    game = own(tmp_path, "Auction").begun(0)
    assert not game.move("four")
    assert not game.move("[4]")
    assert game.result() == Result({}, "a move that is none", wrong=0)


def test_what_is_no_players_is_neither_told_nor_taken(tmp_path):
    game = own(tmp_path, "Points").begun(0)
    form = game.turn()[1][0].text
    assert '"reward"' not in form
    assert '"metadata"' not in form
    assert '"x"' in form, "what is referred to is told too"
    assert game.move('{"at": {"x": 3}, "reward": 99, "metadata": {"a": 1}}')
    assert game.result() == Result({0: 3.0}, "its rewards were 3")
    game = own(tmp_path, "Points").begun(0)
    assert not game.move('{"at": ' + '{"x": ' * 5000 + "1" + "}" * 5001)
    assert not game.move("[1]")
    assert game.result().wrong == 0
    assert own(tmp_path, "Over").begun(0).result() == Result({0: 2.0}, "its rewards were 2")


KINDS = """
from enum import Enum
from typing import Literal, Optional

from pydantic import BaseModel, Field


class Color(Enum):
    RED = "red"


class Corner(BaseModel):
    x: int = Field(gt=2, le=4)


class Move(BaseModel):
    color: Color
    to: list[Corner] = Field(min_length=1)
    share: float = Field(ge=0, lt=0.5)
    pass_on: bool
    word: Optional[str] = None
    kind: Literal["a"] = "a"


class Kinds:
    def reset(self, seed=None, **more):
        return Seen(hint="go")

    def step(self, action: Move, **more):
        if action.pass_on:
            raise IndexError("nobody to pass on to")
        return Seen(hint="", done=True, reward=1.0)
"""


def test_what_is_demonstrated_are_actions_of_every_kind_and_a_check_makes_them(tmp_path):
    (tmp_path / "kinds.py").write_text(OWN + KINDS)
    environment = OpenEnv(game=f"{tmp_path}/kinds.py:Kinds")
    game = environment.begun(0)
    told = [{"role": "user", "content": "\n\n".join(heard.text for heard in game.turn()[1])}]
    rng = Random(0)
    made = [json.loads(environment.demonstrate("player_0", None, told, rng)) for _ in range(50)]
    for action in made:
        game.action.model_validate(action)
    assert {action["word"] for action in made} == {"word", None}
    assert {corner["x"] for action in made for corner in action["to"]} == {3, 4}
    found = str(check(environment, tasks=1))
    assert "play ends, whatever roles say, and raises nothing: play of task train-0 raised IndexError" in found
    assert f"{tmp_path}/kinds.py:" in found, "the line is in the file of who wrote it"
    assert own(tmp_path, "Guess").demonstrate("player_0", None, "larger", rng) == "larger"


MORE = """
from typing import Optional

from pydantic import BaseModel, Field, RootModel


class Named(BaseModel):
    said: str = Field(alias="from")


class Tree(BaseModel):
    value: int = Field(ge=-9, le=-5)
    first: Optional["Tree"] = None
    second: Optional["Tree"] = None
    third: Optional["Tree"] = None


class Exact(BaseModel):
    pair: tuple[int, int]
    share: float = Field(ge=0.25, le=0.75)
    word: str = Field(min_length=10)
    sevens: int = Field(multiple_of=7)
    two: list[int] = Field(min_length=2, max_length=2)
    none: list[int] = Field(max_length=0)


class Rooted(RootModel[int]):
    pass


class Aliased(Guess):
    def step(self, action: Named, **more):
        return Seen(hint="", done=True, reward=float(action.said == "me"))


class Wood(Guess):
    def step(self, action: Tree, **more):
        return Seen(hint="", done=True, reward=1.0)


class Strict(Guess):
    def step(self, action: Exact, **more):
        return Seen(hint="", done=True, reward=1.0)


class Whole(Guess):
    def step(self, action: Rooted, **more):
        return Seen(hint="")


class Plainly(Guess):
    def step(self, action: int, **more):
        return Seen(hint="")
"""


def test_actions_with_other_names_bounds_and_themselves_inside_are_played(tmp_path):
    (tmp_path / "more.py").write_text(OWN + MORE)
    made = {name: OpenEnv(game=f"{tmp_path}/more.py:{name}") for name in ("Aliased", "Wood", "Strict")}
    game = made["Aliased"].begun(0)
    assert game.move("me")
    assert game.result() == Result({0: 1.0}, "its rewards were 1"), "one text is said as it is, whatever its name"
    for name in ("Wood", "Strict"):
        made[name].ready()
        game, rng = made[name].begun(0), Random(0)
        prompt = "\n".join(heard.text for heard in game.turn()[1])
        for _ in range(200):
            game.action.model_validate_json(made[name].demonstrate("player_0", None, prompt, rng))
    for name in ("Whole", "Plainly"):
        with pytest.raises(ConfigError, match=r"the action of step is .*, which is no model of pydantic's with fields"):
            OpenEnv(game=f"{tmp_path}/more.py:{name}").ready()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Guess", "Auction", "Over", "Points"])
def test_the_contract_holds(name, tmp_path):
    report = check(own(tmp_path, name), tasks=1)
    failed = [finding.claim for finding in report.findings if not finding.ok]
    assert failed == (["some role is asked"] if name == "Over" else []), str(report)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Served", "it is a client of one that is served; make the environment itself"),
        ("Silent", "annotate the action of step with its class"),
        ("Nothing", "it has no reset and step"),
        ("Plain", "reset gave .*, which is no model of pydantic's with a field done"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_line(name, says, tmp_path):
    with pytest.raises(ConfigError, match=f"mine.py:{name}' cannot be played: TypeError: {says}"):
        own(tmp_path, name).ready()


def test_a_name_is_no_environment_and_nobody_else_plays(tmp_path):
    with pytest.raises(ValueError, match="game = 'echo_env' is no function; name it as openenv:FILE"):
        OpenEnv(game="echo_env")
    (tmp_path / "mine.py").write_text(OWN)
    with pytest.raises(ConfigError, match=r"environment.against has no effect: one role plays alone"):
        load_config(f"openenv:{tmp_path}/mine.py:Guess", ["environment.against=random", "policies.team.model=x"])
