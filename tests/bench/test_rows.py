"""Tables of runs: what is made once, what is made again, and what a kill leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import claims as bench_claims
from benchmarks import joined, rows, run_bench
from benchmarks.figures import keep, lines_of
from benchmarks.rows import Row, Table
from coterie.errors import ConfigError
from coterie.run.ablation import Ablation
from coterie.run.folder import Run
from coterie_worlds.games.plan_path import PlanPath

ROW = Row("a row", "configs/plan_path.toml", seeds=(0, 1))
BUDGET = replace(ROW, overrides=("train.max_sampled_tokens=1000",))


def figures(name, seed, row, **more):
    return {
        "row": name,
        "seed": seed,
        "digest": row.digest,
        "success": 0.5,
        "cpu_minutes": 30,
        "sampled_tokens": 1040,
        **more,
    }


class Made(Table):
    """Runs are not made but noted."""

    def _subprocess(self, job):
        name, seed = job
        line = figures(name, seed, self.rows[name])
        keep(self.file, line)
        return line


def table(tmp_path, **rows):
    return Made(tmp_path, "nobody", rows)


def made(table):
    said = []
    table.make(said.append)
    return said[0].split(" runs")[0]


def test_what_is_there_is_not_made_again(tmp_path):
    assert made(table(tmp_path, a=ROW, b=ROW)) == "4 of 4"
    assert made(table(tmp_path, a=ROW, b=ROW)) == "0 of 4"
    assert made(table(tmp_path, a=replace(ROW, seeds=(0, 1, 2)), b=ROW)) == "1 of 5"
    assert [found["seed"] for found in table(tmp_path, a=ROW).found("a")] == [0, 1]


@pytest.mark.parametrize(
    "other",
    [
        replace(ROW, overrides=("train.steps=3",)),
        replace(ROW, algorithm={"name": "mas_grpo"}),
        replace(ROW, config="configs/sokoban.toml"),
        replace(ROW, votes=5),
    ],
)
def test_a_row_that_has_changed_is_made_again(tmp_path, other):
    made(table(tmp_path, a=ROW))
    assert made(table(tmp_path, a=other)) == "2 of 2"
    assert len(table(tmp_path, a=ROW).found("a")) == 2, "and the figures of what it was are still there"


def test_a_config_as_a_table_is_that_config(tmp_path):
    assert replace(ROW, config=ROW.tables()).digest == ROW.digest


def test_half_a_line_is_no_run(tmp_path):
    made(table(tmp_path, a=ROW))
    file = tmp_path / "figures.jsonl"
    by_seed = sorted(file.read_text().splitlines(), key=lambda line: json.loads(line)["seed"])
    file.write_text("\n".join(by_seed)[:-30])
    assert [found["seed"] for found in table(tmp_path, a=ROW).found("a")] == [0]
    assert made(table(tmp_path, a=ROW)) == "1 of 2"
    assert [found["seed"] for found in table(tmp_path, a=ROW).found("a")] == [0, 1]


def test_seeds_after_one_that_is_missing_are_not_told(tmp_path):
    file = tmp_path / "figures.jsonl"
    three = replace(ROW, seeds=(0, 1, 2))
    file.write_text("".join(f"{json.dumps(figures('a', seed, three))}\n" for seed in (0, 2)))
    assert [found["seed"] for found in table(tmp_path, a=three).found("a")] == [0]
    assert made(table(tmp_path, a=three)) == "1 of 3"
    assert [found["seed"] for found in table(tmp_path, a=three).found("a")] == [0, 1, 2]


def test_lines_that_are_none_of_a_run_are_left_out(tmp_path):
    lines = ("[]", "null", '{"row": "a", "seed": 0}', "no line at all", json.dumps(figures("a", 1, ROW)))
    (tmp_path / "figures.jsonl").write_text("\n".join(lines))
    assert made(table(tmp_path, a=ROW)) == "1 of 2"


def test_of_two_lines_of_a_seed_the_later_counts(tmp_path):
    lines = [figures("a", 0, ROW), figures("a", 0, ROW) | {"success": 0.7}, figures("a", 1, ROW)]
    (tmp_path / "figures.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [found["success"] for found in table(tmp_path, a=ROW).found("a")] == [0.7, 0.5]


def test_a_table_that_another_process_makes_is_left_alone(tmp_path):
    waiting = table(tmp_path, a=ROW)
    with waiting._locked(), pytest.raises(ConfigError, match="another process makes runs"):
        waiting.make(print)


def test_a_row_whose_runs_depend_on_something_else_is_another_row():
    assert replace(ROW, of="a better starter").digest != ROW.digest


def test_a_row_is_another_if_its_starter_or_what_is_recommended_changes(monkeypatch):
    before = ROW.digest
    monkeypatch.setattr(rows, "_weights", lambda name: "others")
    assert (starter := replace(ROW).digest) != before
    monkeypatch.setattr(PlanPath, "recommended", lambda world: {"optimizer": {"lr": 0.5}})
    assert replace(ROW).digest not in (before, starter)


def test_the_seed_stands_where_an_override_says_so():
    row = Row("a row", {"environment": {"name": "relay"}, "algorithm": {"name": "mas_grpo"}},
              overrides=("environment.seed={seed}",))  # fmt: skip
    assert [row.resolved(seed).environment.model_dump()["seed"] for seed in (0, 3)] == [0, 3]


BRIEF = Row(
    "a row",
    {"environment": {"name": "relay"}, "algorithm": {"name": "mas_grpo"}},
    overrides=("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "eval.tasks=2"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the run a-0, and its figures."""
    folder = tmp_path_factory.mktemp("table")
    return folder, Table(folder, "nobody", {"a": BRIEF}).train("a", 0)


def test_what_is_kept_of_a_run(trained):
    folder, made_of = trained
    last = Run(folder / "a-0").metrics()[-1]
    assert made_of["sampled_tokens"] == last["budget/sampled_tokens"] > last["budget/trained_tokens"] > 0
    assert made_of["curve"][0][:2] == (0, 0)
    assert made_of["digest"] == BRIEF.digest
    assert set(made_of["shares"]) == {"first", "second"}
    assert "mute" not in made_of, "no role was muted"


@pytest.mark.parametrize(
    ("changed", "more", "again"),
    [
        ({}, 0, False),
        ({}, 1, True),
        ({"config": {**BRIEF.tables(), "algorithm": {"name": "drmas"}}}, 0, True),
        ({"overrides": (*BRIEF.overrides, "train.dtype=auto")}, 0, False),  # as the machine chose
        ({"overrides": (*BRIEF.overrides, "train.dtype=bfloat16")}, 0, True),
        ({"overrides": (*BRIEF.overrides, "train.stop_when_solved=0.9")}, 0, True),
    ],
)
def test_a_run_is_trained_again_unless_its_folder_is_what_the_figures_are_of(trained, tmp_path, changed, more, again):
    """Other tokens than the figures say, or another row's folder."""
    folder, made_of = trained
    row = replace(BRIEF, **changed)
    asked = []

    class Asked(Made):
        def _subprocess(self, job):
            asked.append(job)
            return {}

    there = Asked(folder, "nobody", {"a": row}, tmp_path / "figures.jsonl")
    keep(there.file, made_of | {"digest": row.digest, "sampled_tokens": made_of["sampled_tokens"] + more})
    assert there.trained("a", 0) == folder / "a-0"
    assert asked == [("a", 0)] * again
    if again:
        with there._locked(), pytest.raises(ConfigError, match="another process makes runs"):
            there.trained("a", 0)


@pytest.mark.parametrize(
    ("overrides", "starts"), [((), [None, {"start_success": 0.25}]), (("x={seed}",), [None, None])]
)
def test_the_start_is_played_once_where_all_seeds_have_one(tmp_path, monkeypatch, overrides, starts):
    given = []

    def trains(config, folder, start):
        given.append(start)
        return {"success": 0.5, "start_success": 0.25}

    monkeypatch.setattr(rows, "before_and_after", trains)
    monkeypatch.setattr(rows, "_told", lambda run: {"sampled_tokens": 1})
    monkeypatch.setattr(Row, "resolved", lambda row, seed: None)
    monkeypatch.setattr(Row, "digest", "d")
    makes = Table(tmp_path, "nobody", {"a": replace(ROW, overrides=overrides)})
    for seed in (0, 1):
        keep(makes.file, makes.train("a", seed))
    assert given == starts


def test_votes_are_of_the_trained_team_and_its_start(tmp_path, monkeypatch):
    def plays(folder, step=None):
        return SimpleNamespace(evaluate=lambda votes: SimpleNamespace(success=0.2 if step == 0 else 0.6))

    monkeypatch.setattr(rows, "load", plays)
    monkeypatch.setattr(rows, "before_and_after", lambda config, folder, start: {"success": 0.5})
    monkeypatch.setattr(rows, "_told", lambda run: {})
    line = Table(tmp_path, "nobody", {"a": replace(ROW, votes=5)}).train("a", 0)
    assert (line["start_votes"], line["votes"]) == (0.2, 0.6)


def test_figures_of_a_run_are_those_of_its_metrics():
    """Told of its last line or of all; shares are of the first, second and last third."""
    lines = [{"step": 0, "validation/success": 0.3, "validation/turns": 2.0}] + [
        {"step": step, "groups/total": 4, "groups/live": live, "role/a/gradient_share": share,
         "policy/x/entropy": 0.2, "policy/y/entropy": 0.6,
         "budget/sampled_tokens": 100 * step, "budget/trained_tokens": 70 * step, "budget/replies": 9 * step}
        for step, live, share in zip(range(1, 7), (4, 4, 4, 4, 4, 1), (0.1, 0.2, 0.3, 0.5, 0.7, 0.9), strict=True)
    ]  # fmt: skip
    lines[3] |= {"validation/success": 0.8, "validation/turns": 1.5}
    lines[6] |= {"validation/success": 0.1, "validation/turns": 3.0}
    lines[2] |= {"mute/a/change": -0.4}
    run = SimpleNamespace(metrics=lambda: lines, config=SimpleNamespace(team=SimpleNamespace(roles={"a": "x"})))
    assert rows._told(run) == {
        "sampled_tokens": 600,
        "trained_tokens": 420,
        "replies": 54,
        "live": 0.25,
        "entropy": 0.4,
        "curve": [(0, 0, 0.3), (3, 300, 0.8), (6, 600, 0.1)],
        "turns_curve": [2.0, 1.5, 3.0],
        "shares": {"a": [0.15, 0.4, 0.8]},
        "mute": {"a": -0.4},
    }


def test_a_row_without_an_algorithm_is_trained_as_its_environment_recommends():
    row = Row("a row", {"environment": {"name": "errand"}})
    assert row.resolved(0).tables()["algorithm"]["horizon"] == "point"
    assert replace(row, algorithm={"name": "drmas"}).resolved(0).tables()["algorithm"]["name"] == "drmas"


def test_each_seed_is_trained_as_that_seed():
    row = Row(
        "a row", {"environment": {"name": "relay"}, "algorithm": {"name": "drmas"}}, None, ("environment.seed={seed}",)
    )
    tables = row.resolved(3).tables()
    assert (tables["train"]["seed"], tables["environment"]["seed"]) == (3, 3)


@pytest.mark.parametrize(
    "more",
    [
        {"success": 1.7},
        {"success": True},
        {"success": float("nan")},
        {"success": None},
        {"seed": -1},
        {"seed": True},
        {"sampled_tokens": 1.5},
        {"cpu_minutes": -1},
        {"votes": 2},
        {"curve": [[0, 0, 0.5]], "turns_curve": [1.0, 2.0]},
        {"shares": {"a": [0.5]}},
    ],
)
def test_figures_that_no_run_can_have_are_refused_in_a_line(tmp_path, more):
    keep(tmp_path / "figures.jsonl", figures("a", 0, ROW))
    keep(tmp_path / "figures.jsonl", figures("a", 1, ROW) | more)
    with pytest.raises(ConfigError, match=r"figures\.jsonl, line 2: .*; take the line out, and its run is made again$"):
        table(tmp_path, a=ROW).found("a")


def test_a_row_is_made_once_if_it_is_named_twice(tmp_path):
    said = []
    table(tmp_path, a=ROW).make(said.append, ["a", "a"])
    assert said[0].startswith("2 of 2 runs")


def test_a_training_that_fails_is_named_and_ends_the_others(tmp_path):
    said = []
    with pytest.raises(ConfigError, match="a, seed 0 failed; what it said is above"):
        Table(tmp_path, "benchmarks.none", {"a": ROW}).make(said.append)
    assert said[-1] == "stopped; runs that had ended are kept, and the same command makes the others"
    assert rows.STOPPED.is_set()
    assert not rows.RUNNING


def test_a_training_that_begins_while_the_others_are_ended_ends_too(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "TRAINS", "import time; time.sleep(5); print('{}')")
    rows.STOPPED.set()
    with pytest.raises(ConfigError, match="a, seed 0 failed"):
        Table(tmp_path, "nobody", {"a": ROW})._subprocess(("a", 0))


def test_the_cost_of_what_is_missing_is_told_from_the_seeds_that_are_there(tmp_path):
    said = []
    keep(tmp_path / "figures.jsonl", figures("a", 0, ROW))
    table(tmp_path, a=replace(ROW, seeds=(0, 1, 2))).make(said.append)
    assert said[0] == f"2 of 3 runs to do, in {tmp_path}, about 60 minutes of CPU time"


def test_only_what_the_missing_rows_begin_with_is_made(tmp_path):
    begun = []
    there = Made(tmp_path, "nobody", {"a": ROW, "b": ROW}, begin=lambda say, names: begun.append(names))
    keep(there.file, figures("a", 0, ROW))
    there.make(print, ["a"])
    assert begun == [{"a"}]


def test_a_folder_that_cannot_be_written_is_told_in_a_line(tmp_path, monkeypatch):
    (tmp_path / "in the way").write_text("")
    monkeypatch.setattr(bench_claims, "FOLDER", tmp_path / "in the way" / "claims")
    with pytest.raises(ConfigError, match="is not there; run this in a checkout"):
        run_bench("claims")
    monkeypatch.setattr(bench_claims, "in_checkout", lambda folder: None)
    with pytest.raises(ConfigError, match=r"in the way.* cannot be used: Not a directory"):
        run_bench("claims")


@pytest.fixture
def playing(tmp_path, monkeypatch):
    """Teams are put together of named folders, and achieve 0.25 more in each seed."""
    asked = []

    def loaded(folder):
        def ablate(changes):
            asked.append((str(folder), *changes))
            return SimpleNamespace(success=0.99), [SimpleNamespace(success=int(str(folder)[-1]) / 4)]

        return SimpleNamespace(ablate=ablate)

    monkeypatch.setattr(joined, "PLAYED", tmp_path / "played.jsonl")
    monkeypatch.setattr(Table, "trained", lambda table, name, seed: Path(f"{name}-{seed}"))
    monkeypatch.setattr(joined, "load", loaded)
    monkeypatch.setattr(joined, "_seeds", lambda team: (0, 1, 2))
    return asked


def test_teams_are_put_together_of_what_was_trained(playing):
    joined.play(print)
    assert [asked for asked in playing if asked[0].endswith("0")] == [
        ("alone_proposer-0", Ablation("replace", ("planner",), "alone_planner-0")),
        ("plan_path_roles-0", Ablation("swap", ("proposer", "planner"))),
        ("split_alone_proposer-0", Ablation("replace", ("planner",), "split_alone_planner-0")),
        ("split_roles-0", Ablation("swap", ("proposer", "planner"))),
    ]
    assert joined.successes("joined") == [0.0, 0.25, 0.5], "of the team after the change"


def test_a_team_that_is_put_together_has_the_seeds_that_all_its_rows_have(monkeypatch):
    rows = [replace(ROW, seeds=(0, 1, 2)), replace(ROW, seeds=(0, 1))]
    monkeypatch.setattr(joined, "_rows_of", lambda team: rows if team == "joined" else rows[:1])
    assert joined._seeds("joined") == (0, 1)
    assert joined._seeds("swapped") == (0, 1, 2)


def test_half_a_line_of_a_team_costs_its_own_seed_alone(playing):
    joined.play(print)
    whole = joined.PLAYED.read_text().splitlines()
    joined.PLAYED.write_text("\n".join([*whole[:1], whole[1][:30], *whole[2:-1], whole[-1][:30]]))
    assert joined.successes("joined") == [0.0], "what is after a missing seed is not told"
    joined.play(print)
    assert [joined.successes(team) for team in joined.PUT_TOGETHER] == [[0.0, 0.25, 0.5]] * 4
    assert lines_of(joined.PLAYED, team="joined").keys() == {0, 1, 2}


def test_a_team_of_rows_that_were_others_is_put_together_again(playing, monkeypatch):
    joined.play(print)
    known = len(playing)
    joined.play(print)
    assert len(playing) == known
    monkeypatch.setattr(joined, "_parts_of", lambda team: "others")
    assert joined.successes("joined") == []
    joined.play(print)
    assert len(playing) == 2 * known


def test_what_was_spent_and_beyond_the_budget(tmp_path):
    made(table(tmp_path, a=BUDGET, b=ROW))
    assert table(tmp_path, a=BUDGET, b=ROW).spent() == (2.0, pytest.approx(0.04))


def test_a_run_that_ended_early_is_not_compared(tmp_path):
    line = figures("a", 0, BUDGET, sampled_tokens=999)
    (tmp_path / "figures.jsonl").write_text(f"{json.dumps(line)}\n")
    with pytest.raises(ConfigError, match="a, seed 0 ended with its budget unspent"):
        table(tmp_path, a=BUDGET).spent()
