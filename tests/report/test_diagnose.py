"""Warnings: what a healthy run does not get, and what a team with a redundant and a dead role gets."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import load_config, train
from coterie.config.settings import TrainConfig
from coterie.errors import ConfigError
from coterie.models.load import save_model
from coterie.report.diagnose import WINDOW, WarningWatch, concerns, history
from tests.toys import tiny

ROLES = ("a", "b")


def steps(count: int = WINDOW, **changed: float) -> list[dict[str, float]]:
    """Lines of a healthy run, with what is changed; `__` stands for `/`."""
    line = {"groups/total": 20, "groups/live": 8}
    for role in ROLES:
        line |= {f"role/{role}/live_groups": 4, f"role/{role}/gradient_share": 0.5, f"role/{role}/advantage_share": 0.5}
    line |= {name.replace("__", "/"): value for name, value in changed.items()}
    return [{"step": step + 1, **line} for step in range(count)]


def kinds(lines) -> list[tuple[str, str]]:
    return [(one.kind, one.role) for one in concerns(lines, ROLES)]


def test_a_healthy_run_has_no_warning():
    assert kinds(steps()) == []


def test_a_role_without_a_live_group_for_ten_steps_or_for_all_of_five_is_dead_and_one_earlier_is_not():
    assert kinds(steps(role__a__live_groups=0)) == [("dead", "a")]
    assert kinds(steps(5, role__a__live_groups=0)) == [("dead", "a")]
    assert kinds(steps(4, role__a__live_groups=0)) == []
    assert kinds([*steps(5), *steps(9, role__a__live_groups=0)]) == []
    assert kinds([*steps(5), *steps(10, role__a__live_groups=0)]) == [("dead", "a")]


def test_a_role_that_is_never_asked_is_told_at_the_first_step():
    lines = [{key: value for key, value in line.items() if not key.startswith("role/b/")} for line in steps()]
    assert kinds(lines[:1]) == kinds(lines) == [("unasked", "b")]
    assert kinds([*lines[:5], *steps(1)]) == []


def test_a_run_without_a_live_group_is_told_at_the_first_step_what_to_do():
    dead = {"groups/live": 0, "role/a/live_groups": 0, "role/b/live_groups": 0}
    lines = [{**line, **dead} for line in steps()]
    (concern,) = concerns(lines[:1], ROLES)
    assert str(concern).startswith(
        "0 of 20 groups had different returns so far, so nothing is learned: the tasks are too hard"
    )
    (concern,) = concerns(lines, ROLES)
    assert concern.text.startswith("0 of 400 groups")
    assert kinds([*lines[:3], *steps(1)]) == []
    same = {"role/a/same_share": 0.9, "role/b/same_share": 0.9}
    assert "raise train.temperature" in concerns([{**lines[0], **same}], ROLES)[0].advice
    assert "use harder ones" in concerns([{**lines[0], "rollout/success": 1.0}], ROLES)[0].advice
    assert kinds([{**lines[0], "rollout/no_reward": 1.0}]) == [("no_reward", "")]


def test_a_dominant_role_has_nearly_all_of_the_gradient_or_of_the_advantage():
    assert kinds(steps(role__a__gradient_share=0.95)) == [("dominant", "a")]
    assert kinds(steps(role__b__advantage_share=0.95)) == [("dominant", "b")]
    assert kinds(steps(role__a__gradient_share=0.85)) == []
    assert kinds(steps(10, role__a__gradient_share=0.95)) == [("dominant", "a")]
    assert kinds(steps(9, role__a__gradient_share=0.95)) == []


def test_beside_a_dead_role_dominance_says_nothing_new():
    assert kinds(steps(role__a__live_groups=0, role__b__gradient_share=1.0)) == [("dead", "a")]


def test_memory_that_never_learns_is_named():
    assert kinds(steps(memory__skipped=1)) == [("no_memory", "")]
    assert kinds([*steps(memory__skipped=1)[:-1], *steps(1)]) == []


def test_mostly_dead_groups_are_counted_over_the_window():
    assert kinds(steps(groups__live=1)) == [("mostly_dead", "")]
    assert kinds([*steps(10, groups__live=1), *steps(10)]) == []
    assert kinds(steps(5, groups__live=1)) == [("mostly_dead", "")]
    assert kinds(steps(4, groups__live=1)) == []


@pytest.mark.parametrize(("low", "lazy"), [(-0.019, True), (-0.021, False), (-0.4, False), (0.001, True)])
def test_a_role_is_lazy_when_muting_it_surely_costs_less_than_two_points(low, lazy):
    probe = {"step": 21, "mute/a/change": low + 0.01, "mute/a/change_low": low, "mute/a/change_high": low + 0.02}
    assert kinds([*steps(), probe]) == ([("lazy", "a")] if lazy else [])


def test_the_latest_probe_counts():
    def probe(step: int, low: float) -> dict[str, float]:
        return {"step": step, "mute/a/change": low, "mute/a/change_low": low, "mute/a/change_high": low}

    assert kinds([probe(1, 0.0), probe(2, -0.5)]) == []
    assert kinds([probe(1, -0.5), probe(2, 0.0)]) == [("lazy", "a")]


def test_history_names_the_step_at_which_each_arose_once():
    lines = [*steps(30, groups__live=1), *steps(30), *steps(30, groups__live=1)]
    lines = [{**line, "step": number + 1} for number, line in enumerate(lines)]
    arose = [(step, one.kind) for step, one in history(lines, ROLES)]
    assert [kind for _, kind in arose] == ["mostly_dead", "mostly_dead"]
    assert arose[0][0] == 5


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crowd")
    save_model(tiny(0), folder / "model")
    sets = [f"policies.{role}.model={folder / 'model'}" for role in "abcd"]
    sets += [f"team.{role}={role}" for role in "abcd"]
    sets += ["train.steps=40", "train.tasks_per_step=16", "train.eval_tasks=50", "train.eval_every=20",
             "train.mute_every=1", "optimizer.lr=1e-2"]  # fmt: skip
    return train(load_config("tests/toys.py:Crowd", sets), folder / "run")


@pytest.mark.slow
def test_the_redundant_role_is_called_lazy_the_dead_one_dead_and_healthy_ones_neither(crowd):
    lines = crowd.metrics()
    assert lines[-1]["validation/success"] > 0.9
    found = {(one.kind, one.role) for one in concerns(lines, "abcd")}
    assert found == {("lazy", "c"), ("dead", "d")}


@pytest.mark.slow
def test_what_muting_costs_stands_in_the_metrics(crowd):
    last = crowd.metrics()[-1]
    assert last["mute/a/change_high"] < -0.3
    assert last["mute/b/change_high"] < -0.8
    assert last["mute/c/change"] == 0.0


def test_a_probe_that_cannot_be_made_is_refused_where_it_was_asked_for():
    with pytest.raises(ConfigError, match="mute_every has no effect: a team of one"):
        load_config("plan_path", ["environment.solo=true", "train.mute_every=2"])
    config = load_config("plan_path", ["environment.solo=true"])
    assert "mute_every" in config.inert()["train"]
    assert TrainConfig().mute_tasks == 500


def policy(count: int, **changed: float) -> list[dict[str, float]]:
    """Lines of a run whose one policy is as told."""
    told = {f"policy/p/{name}": value for name, value in {"grad_norm": 1.0, "entropy": 0.5, **changed}.items()}
    return [line | told for line in steps(count)]


def test_each_threshold_of_a_policy_from_both_sides():
    assert ("spike", "p") in kinds([*policy(11), *policy(1, grad_norm=101.0)])
    assert kinds([*policy(11), *policy(1, grad_norm=99.0)]) == []
    assert ("stuck", "p") in kinds([*policy(3), *policy(5, grad_norm=0.0)])
    assert kinds([*policy(3), *policy(4, grad_norm=0.0)]) == []
    dead = [line | {"groups/live": 0} for line in policy(5, grad_norm=0.0)]
    assert ("stuck", "p") not in kinds(dead), "a KL term alone begins at zero"
    assert ("exploded", "p") in kinds([*policy(1), *policy(5, entropy=2.1)])
    assert kinds([*policy(1), *policy(5, entropy=1.9)]) == []
    assert kinds([*policy(1, entropy=0.8), *policy(5, entropy=2.3)]) == [], "not three times the first"
    assert ("collapsed", "p") in kinds([*policy(5), *policy(1, entropy=0.019)])
    assert kinds([*policy(5), *policy(1, entropy=0.021)]) == []
    assert ("mismatch", "p") in kinds(policy(1, mismatch=0.11))
    assert kinds(policy(1, mismatch=0.09)) == []
    assert kinds([*policy(4, mismatch=0.09), *policy(1, mismatch=0.2)]) == [], "a single step of five"
    assert ("mismatch", "p") in kinds([*policy(2, mismatch=0.09), *policy(3, mismatch=0.11)])
    assert ("corrected", "p") in kinds(policy(1, correction_cut=0.11))
    assert kinds(policy(1, correction_cut=0.09)) == []


def test_cut_and_overlong_replies_from_both_sides():
    assert kinds(steps(5, role__a__truncated_share=0.51)) == [("cut", "a")]
    assert kinds(steps(5, role__a__truncated_share=0.49)) == []
    assert kinds(steps(4, role__a__truncated_share=0.79)) == []
    assert kinds(steps(1, role__a__truncated_share=0.81)) == [("cut", "a")]
    (concern,) = concerns(steps(1, role__a__truncated_share=0.93, role__a__cut_tokens=8.0), ROLES)
    assert (
        "its replies of up to 8 tokens: 93% are cut at the token limit: raise the limit (environment.max_tokens"
        in str(concern)
    )
    assert kinds(steps(5, role__a__truncated_share=1.0, role__a__cut_tokens=1.0)) == [], "a choice of one token"
    assert kinds([*steps(2), *steps(3, rollout__overlong__a=1)]) == [("overlong", "a")]
    assert kinds([*steps(3), *steps(2, rollout__overlong__a=1)]) == []


def test_replies_that_are_all_equal_are_told():
    assert kinds(steps(1, role__a__same_share=0.96)) == [("alike", "a")]
    assert kinds(steps(1, role__a__same_share=0.94)) == []
    assert kinds(steps(5, role__a__same_share=0.81)) == [("alike", "a")]
    assert kinds(steps(5, role__a__same_share=0.79)) == []


def test_a_validation_that_stays_below_its_start_has_diverged():
    assert kinds(validated(0.5, 0.44, 0.44)) == [("diverged", "")]
    assert kinds(validated(0.5, 0.44)) == []
    assert kinds(validated(0.5, 0.44, 0.46)) == []
    assert kinds(validated(0.5, 0.8, 0.44, 0.44)) == [("diverged", ""), ("fallen", "")]
    (concern,) = concerns(validated(0.5, 0.44, 0.44), ROLES)
    assert str(concern).startswith(
        "validation has diverged: 0.440, from 0.500 at step 0, and it stays below: the learning rate"
    )


def validated(*successes: float) -> list[dict[str, float]]:
    return [
        {"step": 20 * at, "validation/success": one, "validation/success_low": one - 0.05,
         "validation/success_high": one + 0.05}
        for at, one in enumerate(successes)
    ]  # fmt: skip


def test_a_curve_that_is_flat_or_falls():
    assert kinds(validated(0.5, 0.5, 0.51, 0.49, 0.5)) == [("flat", "")]
    assert kinds(validated(0.5, 0.5, 0.51, 0.49)) == []
    assert kinds(validated(0.5, 0.5, 0.51, 0.49, 0.56)) == []
    assert kinds(validated(0.95, 0.95, 0.95, 0.95, 0.95)) == []
    assert kinds(validated(0.5, 0.8, 0.69)) == [("fallen", "")]
    assert kinds(validated(0.5, 0.8, 0.71)) == []


def test_a_policys_own_start_is_remembered_if_it_is_trained_later_than_others():
    """Its entropy rises from 0.5 to 2.9: more than three times that of its start, and above 2."""
    watch, told = WarningWatch(("a",)), set()
    for step in range(1, 400):
        line = {"step": step, "groups/total": 10.0, "groups/live": 5.0, "role/a/live_groups": 5.0}
        if step > 12:
            line["policy/q/entropy"] = 0.5 + 2.4 * step / 400
        if step % 10 == 0:
            line |= {"validation/success": 0.5, "validation/success_low": 0.4, "validation/success_high": 0.6}
        told |= {(one.kind, one.role) for one in watch.see(line)}
    assert ("exploded", "q") in told


def watched(lines) -> set[str]:
    watch = WarningWatch(("a",))
    return {one.kind for line in lines for one in watch.see(line)}


def test_validations_far_apart_and_a_live_group_long_ago_are_remembered():
    whole = {"groups/total": 10.0, "groups/live": 5.0, "role/a/live_groups": 5.0}
    flat = {"validation/success": 0.5, "validation/success_low": 0.4, "validation/success_high": 0.6}
    lines = [{"step": step, **whole, **(flat if step % 150 == 0 else {})} for step in range(750)]
    assert watched(lines) == {"flat"}
    dead = {"groups/total": 10.0, "groups/live": 0.0, "role/a/live_groups": 0.0}
    lines = [{"step": step, **(whole if step == 8 else dead)} for step in range(300)]
    first = lines.index({"step": 8, **whole})
    watch = WarningWatch(("a",))
    told = [{one.kind for one in watch.see(line)} for line in lines]
    assert "no_signal" in set().union(*told[:first])
    assert "no_signal" not in set().union(*told[first:])


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_what_is_kept_of_a_long_run_raises_what_the_whole_of_it_does(seed):
    """Of 300 steps, in which things go well and badly for a while."""
    rng = Random(seed)
    lines: list[dict[str, float]] = [{"step": 0.0}]
    mood = {"entropy": 1.0, "norm": 1.0, "live": 5.0, "success": 0.5, "outcome": 1.0}
    for step in range(1, 301):
        if rng.random() < 0.05:
            mood = {
                "entropy": rng.choice([0.001, 0.5, 9.0]), "norm": rng.choice([0.0, 1.0, 500.0]),
                "live": rng.choice([0.0, 5.0]), "success": rng.random(), "outcome": rng.choice([0.5, 1.0]),
            }  # fmt: skip
        line = {
            "step": float(step), "groups/total": 10.0, "groups/live": mood["live"], "role/a/live_groups": mood["live"],
            "policy/a/entropy": mood["entropy"], "policy/a/grad_norm": mood["norm"] * rng.uniform(0.5, 2.0),
            "rollout/no_outcome": mood["outcome"], "role/a/truncated_share": rng.random(),
        }  # fmt: skip
        if step % 10 == 0:
            success = mood["success"]
            line |= {
                "validation/success": success,
                "validation/success_low": success - 0.05,
                "validation/success_high": success + 0.05,
            }
        if step in (33, 293):
            line |= {"mute/a/change": -0.1, "mute/a/change_low": rng.choice([-0.2, -0.01]), "mute/a/change_high": 0.0}
        lines.append(line)
    watch, known = WarningWatch(("a",)), set()
    for count, line in enumerate(lines, 1):
        now = concerns(lines[:count], ("a",))
        assert watch.see(line) == [one for one in now if (one.kind, one.role) not in known], count
        known = {(one.kind, one.role) for one in now}
