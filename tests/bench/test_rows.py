"""Tables of runs: what is made once, what is made again, and what a kill leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coterie.bench import rows
from coterie.bench.rows import Row, Table
from coterie.environments.games.plan_path import PlanPath
from coterie.errors import ConfigError
from coterie.run.folder import Run

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
        self.keep(line)
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
    first, cut = map(json.loads, file.read_text().splitlines())
    file.write_bytes(file.read_bytes()[:-30])
    assert [found["seed"] for found in table(tmp_path, a=ROW).found("a")] == [first["seed"]] != [cut["seed"]]
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


def test_what_is_kept_of_a_run(tmp_path):
    brief = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "eval.tasks=2")
    row = Row("a row", {"environment": {"name": "relay"}, "algorithm": {"name": "mas_grpo"}}, overrides=brief)
    made_of = Table(tmp_path, "nobody", {"a": row}).train("a", 0)
    last = Run(tmp_path / "a-0").metrics()[-1]
    assert made_of["sampled_tokens"] == last["budget/sampled_tokens"] > last["budget/trained_tokens"] > 0
    assert made_of["curve"][0][:2] == (0, 0)
    assert made_of["digest"] == row.digest
    assert set(made_of["shares"]) == {"first", "second"}


def test_what_was_spent_and_beyond_the_budget(tmp_path):
    made(table(tmp_path, a=BUDGET, b=ROW))
    assert table(tmp_path, a=BUDGET, b=ROW).spent() == (2.0, pytest.approx(0.04))


def test_a_run_that_ended_early_is_not_compared(tmp_path):
    line = figures("a", 0, BUDGET, sampled_tokens=999)
    (tmp_path / "figures.jsonl").write_text(f"{json.dumps(line)}\n")
    with pytest.raises(ConfigError, match="a, seed 0 ended with its budget unspent"):
        table(tmp_path, a=BUDGET).spent()
