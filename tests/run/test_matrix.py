"""Who beats whom: each cell is an evaluation of the two, and nothing else."""

from __future__ import annotations

import json

import pytest

from coterie import load, load_config, train
from coterie.errors import ConfigError
from coterie.models.load import save_model
from coterie.run.ablation import Ablation, every_ablation
from coterie.run.matrix import Cell, Matrix, matrix
from tests.environments.foreign.test_match import Count, Counting
from tests.test_cli import call
from tests.toys import parity, tiny

GAME = "tests/run/test_matrix.py:Any"


class Adds(Count):
    """Whatever is said is a move: an even word is 1, an odd one 2."""

    def move(self, text: str) -> bool:
        return super().move(text if text in ("1", "2") else str(1 + int(parity(text))))


class Any(Counting):
    def begun(self, seed: int) -> Adds:
        return Adds(self.drawn)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return str(folder)


@pytest.fixture(scope="module")
def runs(start, tmp_path_factory):
    """Of one policy for both seats, and of one for each."""
    sets = [
        "train.steps=2",
        "train.tasks_per_step=2",
        "train.eval_tasks=2",
        "environment.max_tokens=1",
        "optimizer.lr=1e-2",
    ]
    folder = tmp_path_factory.mktemp("matrix")
    shared = train(load_config(GAME, [*sets, f"policies.team.model={start}"]), folder / "shared")
    apart = [*sets, *(f"policies.{name}.model={start}" for name in "xy"), "team.player_0=x", "team.player_1=y"]
    return shared, train(load_config(GAME, [*apart, "train.seed=1"]), folder / "apart")


@pytest.mark.slow
def test_a_cell_is_an_evaluation_of_the_two(runs, start):
    shared, apart = (str(run.folder) for run in runs)
    found = matrix([shared, f"{apart}#0", start, "chance"], games=30)
    assert len(found.cells) == 3 * 4
    against_chance = load(shared).evaluate(tasks=30, sampled=1)
    assert found.cells[shared, "chance"] == Cell(
        against_chance.success, against_chance.success_low, against_chance.success_high,
        sum(against_chance.noted["drawn"]) / 30,
    )  # fmt: skip
    assert 0 < found.cells[shared, "chance"].won < 1
    assert found.cells[f"{apart}#0", shared] == found.cells[start, shared], "it began as that model"
    assert found.cells[shared, f"{apart}#0"] == found.cells[shared, start]


@pytest.mark.slow
def test_it_is_printed_for_people_and_for_programs(runs):
    shared = str(runs[0].folder)
    code, out, _ = call("matrix", shared, f"{shared}#0", "chance", "--games", "4")
    assert code == 0
    assert "won by the row's player [95 % interval], drawn" in out
    assert f"A: {shared}\nB: {shared}#0\nC: chance\n4 games a cell" in out
    code, out, _ = call("matrix", shared, "chance", "--games", "4", "--json")
    told = json.loads(out)
    assert told["players"] == [shared, "chance"]
    assert set(told["won"][shared]["chance"]) == {"won", "low", "high", "drawn", "void"}


@pytest.mark.slow
def test_mistakes_are_one_line(runs, start, tmp_path):
    shared = str(runs[0].folder)
    for players, says in (
        (["chance", start], "name a run among the players"),
        ([shared, shared], "a player is named twice"),
        ([shared, f"{shared}#x"], "after # stands the number of a step"),
        ([shared, f"{shared}#"], "after # stands the number of a step"),
        ([shared, f"{shared}#²"], "after # stands the number of a step"),
        ([shared, f"{shared}/"], "a player is named twice"),
        ([shared, f"{shared}#7"], "7"),
        ([shared, "chanse"], "there is no run and no model of that name; did you mean 'chance'"),
        ([shared, "runs/none#3"], "runs/none#3: there is no run and no model of that name"),
    ):
        with pytest.raises(ConfigError, match=says):
            matrix(players, games=2)
    sets = [f"policies.team.model={start}", "train.steps=1", "train.tasks_per_step=1", "train.eval_tasks=1"]
    team = train(load_config("tests/toys.py:Agree", sets), tmp_path / "team")
    with pytest.raises(ConfigError, match="Agree is no game of players against each other"):
        matrix([str(team.folder)], games=2)
    with pytest.raises(ConfigError, match="is no game of players"):
        matrix([shared, str(team.folder)], games=2)


@pytest.mark.slow
def test_a_person_has_the_seat_of_one_whom_chance_plays_where_it_is_tested(runs, start, tmp_path):
    asked: list[str] = []

    def says(prompt: str) -> str:
        asked.append(prompt)
        return "2"

    load(runs[0].folder).play("validation", 0, seats={"player_1": says})
    assert asked
    sets = ["train.steps=1", "train.tasks_per_step=1", "train.eval_tasks=1", "environment.against=random"]
    alone = train(load_config(GAME, [*sets, f"policies.team.model={start}"]), tmp_path / "alone")
    load(alone.folder).play("validation", 0, seats={"player_1": says})
    assert len(asked) > 1
    with pytest.raises(ConfigError, match="--mute player_1: nobody asks 'player_1' there: chance makes its moves"):
        load(runs[0].folder).compare([Ablation("mute", ("player_1",))], "validation", tasks=1)
    team = load(runs[0].folder).config
    assert every_ablation(team.team, team.environment.absent("validation")) == [
        Ablation("replace", ("player_0",), "base")
    ]
    found = matrix([str(alone.folder), start], games=4)
    assert len(found.cells) == 4, "a run whose team had one role plays any seat"
    with pytest.raises(ConfigError, match="unknown role 'player_2'; the roles are player_0, player_1"):
        load(alone.folder).play("validation", 0, seats={"player_2": says})


@pytest.mark.slow
def test_a_player_is_what_a_run_trained_whichever_seat_that_was(start, tmp_path):
    sets = [f"policies.{name}.model={start}" for name in "xy"]
    sets += ["policies.x.kind=frozen", "team.player_0=x", "team.player_1=y", "optimizer.lr=1e-1", "train.steps=2"]
    sets += ["train.tasks_per_step=4", "train.eval_tasks=2", "environment.max_tokens=1"]
    run = str(train(load_config(GAME, sets), tmp_path / "run").folder)
    found = matrix([f"{run}#2", start, "chance"], games=20)
    assert found.cells[f"{run}#2", "chance"] != found.cells[start, "chance"], "it is y that learned"


def test_a_table_names_players_by_letters():
    cell = Cell(0.5, 0.25, 0.75, 0.125)
    void = Cell(0.5, 0.25, 0.75, 0.125, 0.25)
    table = str(Matrix(("x", "chance"), {("x", "x"): cell, ("x", "chance"): void}, 8))
    assert table == (
        "won by the row's player [95 % interval], drawn\n\n"
        "     A                           B\n"
        "A    0.500 [0.250, 0.750] 0.125  0.500 [0.250, 0.750] 0.125\n\n"
        "A: x\nB: chance\nA against B: 25.0% of games were nobody's, by no move\n"
        "8 games a cell, sampled; seats change in turn"
    )
