"""Does each role earn its place: muted, swapped, replaced, and the paired interval."""

import pytest

from coterie import load, load_config, train
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import CheckpointError, ConfigError
from coterie.kernel.team import Team
from coterie.models.load import save_model
from coterie.run.ablation import Ablation, Change, paired
from coterie.run.evaluate import evaluate_team
from tests.toys import TEAM, Agree, Sequential, counting, tiny


# 10 of 100 lost, 2 gained: total -8, squares 12 + 1, n 102; middle -.078431; half 1.959964 sqrt(13 - 64/102) / 102
def test_the_paired_interval_by_hand():
    before = [1.0] * 12 + [0.0] * 88
    after = [0.0] * 10 + [1.0] * 2 + [1.0] * 2 + [0.0] * 86
    change, low, high = paired(before, after)
    assert change == pytest.approx(-0.08)
    assert (low, high) == pytest.approx((-0.146020, -0.010842), rel=0, abs=1e-5)


def test_where_nothing_changed_the_interval_still_has_a_width():
    change, low, high = paired([1.0] * 500, [1.0] * 500)
    assert change == 0.0
    assert -0.01 < low < 0.0 < high < 0.01


def test_the_interval_covers_the_true_change_about_as_often_as_it_says():
    from random import Random

    rng, covered = Random(0), 0
    for _ in range(1000):
        before = [float(rng.random() < 0.8) for _ in range(200)]
        after = [one if rng.random() < 0.9 else 1.0 - one for one in before]  # lost .08, gained .02: -.06
        _, low, high = paired(before, after)
        covered += low <= -0.06 <= high
    assert 930 <= covered <= 970


def test_tasks_are_the_unit_however_many_episodes_each():
    found = evaluate_team(Sequential(), TEAM, ScriptedEngine(counting()), tasks=3, sampled=4)
    assert len(found.by_task) == 3


@pytest.mark.parametrize(
    ("kind", "text"),
    [("mute", "a,b"), ("mute", ""), ("mute", "a=base"), ("swap", "a"), ("swap", "a,a"), ("swap", "a,b=base"),
     ("replace", "a"), ("replace", "a="), ("replace", "a,b=base")],
)  # fmt: skip
def test_an_ablation_that_is_not_written_well_says_how(kind, text):
    with pytest.raises(ConfigError, match=f"write it as --{kind} ROLE"):
        Ablation.parse(kind, text)


def test_a_change_that_names_no_role_or_changes_nothing_is_refused():
    with pytest.raises(ConfigError, match="unknown role 'c'; the roles are a, b"):
        Ablation.parse("mute", "c").check(TEAM)
    with pytest.raises(ConfigError, match="nothing to swap"):
        Ablation.parse("swap", "a,b").check(Team({"a": "team", "b": "team"}))


def test_a_muted_role_says_nothing_and_costs_no_engine_call():
    engine = ScriptedEngine(counting())
    muted = evaluate_team(Sequential(max_turns=1), TEAM, engine, tasks=2, seats=Ablation.parse("mute", "a").seats())
    assert {request.role for wave in engine.waves for request in wave} == {"b"}
    assert all(request.prompt == "b 0: a" for wave in engine.waves for request in wave)
    assert muted.rewards["a"] == 0.0


def test_swapped_roles_are_played_by_each_others_policy():
    engine = ScriptedEngine(counting())
    evaluate_team(Sequential(max_turns=1), Ablation.parse("swap", "a,b").team(TEAM), engine, tasks=1)
    assert [(request.role, request.policy) for wave in engine.waves for request in wave] == [("a", "pb"), ("b", "pa")]


def test_change_is_between_the_same_tasks():
    good = evaluate_team(Agree(), TEAM, ScriptedEngine.table({"a": "b", "b": "b"}), tasks=50)
    bad = evaluate_team(Agree(), TEAM, ScriptedEngine.table({"a": "a", "b": "b"}), tasks=50)
    found = Change.between("mute a", good, bad)
    assert (found.success, found.change) == (0.0, -1.0)
    assert found.low == -1.0
    assert found.high == pytest.approx(-0.8971, abs=1e-4)  # -50/52 + 1.959964 sqrt(51 - 2500/52) / 52


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation")
    save_model(tiny(0), folder / "model")
    sets = [f"policies.{policy}.model={folder / 'model'}" for policy in ("x", "y")]
    sets += ["team.a=x", "team.b=y", "train.steps=30", "train.tasks_per_step=8", "train.eval_tasks=10",
             "train.eval_every=30", "optimizer.lr=1e-2", "eval.tasks=40"]  # fmt: skip
    return train(load_config("tests/toys.py:Agree", sets), folder / "run")


@pytest.mark.slow
def test_replacing_a_role_by_its_start_takes_back_what_it_learned(run):
    loaded, started = load(run.folder, 30), load(run.folder, 0).evaluate(sampled=8)
    wanted = [Ablation.parse("replace", text) for text in ("a=base", "b=base", f"b={run.folder}")]
    learned, (without_a, without_b, best) = loaded.compare(wanted, sampled=8)
    assert learned.success > 0.7
    assert started.success < 0.5
    assert max(without_a.high, without_b.high) < -0.1
    with run.checkpoints.reading("best") as (folder, _):
        assert (
            folder.name == "step-00030"
        )  # greedy play was perfect from the start, and of equals the latest is the best
    assert best.success == learned.success


def test_a_replacement_that_is_not_there_is_refused_before_anything_is_played(run, tmp_path):
    loaded = load(run.folder)
    with pytest.raises(CheckpointError, match="is not a run folder"):
        loaded.compare([Ablation.parse("replace", f"a={tmp_path}")])
