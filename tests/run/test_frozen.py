"""Policies that are never trained: bit-identical afterwards, sampled once, and from wherever a past self lies."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch

from coterie import Ablation, load, load_config, train
from coterie.errors import ConfigError
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Key, Member
from coterie.kernel.team import Team, route
from coterie.models.load import save_model
from coterie.registry import past_policy
from coterie.run.folder import Run
from coterie.run.records import Progress
from coterie.run.weights import TeamModels
from tests.runs import cut_back, untimed, weights
from tests.toys import tiny

SETS = ["team.a=x", "team.b=y", "train.steps=4", "train.tasks_per_step=4", "train.eval_tasks=10", "train.eval_every=2",
        "train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes_every=1", "algorithm.num_generations=4",
        "optimizer.lr=1e-2"]  # fmt: skip
FROZEN = "policies.y.kind=frozen"


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("frozen") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return [*SETS, f"policies.x.model={folder}", f"policies.y.model={folder}"]


@pytest.fixture(scope="module")
def first(sets, tmp_path_factory) -> Run:
    """A run of an adapter and a whole model."""
    config = load_config("tests/toys.py:Agree", [*sets, "policies.y.kind=lora", "policies.y.lora.rank=2"])
    return train(config, tmp_path_factory.mktemp("frozen") / "a run")


@pytest.fixture(scope="module")
def made(sets, tmp_path_factory) -> Run:
    return train(load_config("tests/toys.py:Agree", [*sets, FROZEN]), tmp_path_factory.mktemp("frozen") / "run")


@pytest.mark.slow
def test_it_is_never_trained_and_never_kept_and_the_run_goes_on_exactly(sets, made, tmp_path):
    assert {name.split("/")[1] for name in weights(made.folder, 4)} == {"x"}
    assert not any(name.startswith("policy/y") for line in made.metrics() for name in line)
    assert any(name.startswith("policy/x") for line in made.metrics() for name in line)
    for played in made.episodes(2):
        assert {group.key.role for group in played.collected.groups} == {"a"}
    folder = tmp_path / "run"
    shutil.copytree(made.folder, folder)
    cut_back(folder, 1)
    train(load_config("tests/toys.py:Agree", [*sets, FROZEN]), resume=folder)
    assert untimed(folder) == untimed(made.folder)
    assert weights(folder, 4) == weights(made.folder, 4)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["at_grpo", "mas_grpo", "magrpo", "joyagents", "rae", "gigpo"])
def test_every_way_of_sampling_trains_the_others_alone(algorithm, sets, tmp_path):
    models = TeamModels(load_config("tests/toys.py:Agree", [*sets, FROZEN]))
    before = copy.deepcopy(models.policies["y"].model.net.state_dict())
    run = train(
        load_config("tests/toys.py:Agree", [*sets, FROZEN, f"algorithm.name={algorithm}", "train.steps=1"]),
        tmp_path / "run",
    )
    samples = [
        sample
        for played in run.episodes(1)
        for group in played.collected.groups
        for member in group.members
        for sample in member.samples
    ]
    assert {sample.role for sample in samples} == {"a"}
    again = TeamModels(run.config).policies["y"].model.net
    assert all(torch.equal(weight, before[name]) for name, weight in again.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [pytest.param("point", marks=pytest.mark.long), "turn"])
def test_a_frozen_reply_is_drawn_once_in_a_tree(horizon, sets, tmp_path):
    """Sequential: one role after the other. Where both learn, every point has four draws."""
    settings = [*sets, "train.steps=1", f"algorithm.horizon={horizon}"]
    both = train(load_config("tests/toys.py:Sequential", settings), tmp_path / "both")
    one = train(load_config("tests/toys.py:Sequential", [*settings, FROZEN]), tmp_path / "one")
    line, other = both.metrics()[-1], one.metrics()[-1]
    assert other["budget/sampled_tokens"] < 0.8 * line["budget/sampled_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize(("frozen", "role"), [("scout", "planner"), ("pilot", "proposer")])
def test_a_tree_goes_on_over_frozen_points(frozen, role, tmp_path):
    """Two roles in turn, several times. What stands for the story at one point is not taken for another."""
    settings = [f"policies.{frozen}.kind=frozen", "train.steps=1", "train.tasks_per_step=3", "train.eval_tasks=4",
                "algorithm.num_generations=3"]  # fmt: skip
    run = train(load_config("configs/plan_path.toml", settings), tmp_path / "run")
    groups = [group for played in run.episodes(1) for group in played.collected.groups]
    assert len({group.point for group in groups}) > 1
    assert {group.key.role for group in groups} == {role}


@pytest.mark.slow
def test_an_opponent_is_a_past_self_of_any_kind(sets, first, tmp_path):
    for kind, source in (("full", f"{first.folder}#2/x"), ("lora", f"{first.folder}/y")):
        frozen = [*sets, FROZEN, f"policies.y.model={source}", "train.steps=1"]
        config = load_config("tests/toys.py:Agree", frozen)
        net = TeamModels(config).policies["y"].model.net
        with first.checkpoints.reading(2 if kind == "full" else "best") as (folder, _):
            theirs = TeamModels(first.config, folder).policies["x" if kind == "full" else "y"].model.net
        assert all(torch.equal(weight, theirs.state_dict()[name]) for name, weight in net.state_dict().items())
        assert not any(weight.requires_grad for weight in net.parameters())
        train(config, tmp_path / kind)
        assert load(tmp_path / kind).evaluate(tasks=4).tasks == 4


def test_a_run_begins_with_what_another_learned(sets, first, tmp_path):
    config = load_config("tests/toys.py:Agree", [*sets, f"policies.x.model={first.folder}#4/x"])
    begun = TeamModels(config).policies["x"].model
    with first.checkpoints.reading(4) as (folder, _):
        learned = TeamModels(first.config, folder).policies["x"].model
    assert begun.origin == learned.origin
    assert len(begun.trained) == len(list(begun.net.parameters()))


def test_mistakes_are_one_line(sets, first):
    def models(*more):
        return TeamModels(load_config("tests/toys.py:Agree", [*sets, *more]))

    with pytest.raises(ConfigError, match=r"has no policy 'planner'; it has x, y"):
        models(FROZEN, f"policies.y.model={first.folder}/planner")
    with pytest.raises(ConfigError, match=r"is lora, no whole model; kind = 'frozen' plays it"):
        models(f"policies.x.model={first.folder}/y")
    with pytest.raises(ConfigError, match="every policy is frozen or remote, so there is nothing to train"):
        models(FROZEN, "policies.x.kind=frozen")
    with pytest.raises(ConfigError, match=r"optimizer.* has no effect.* never trained"):
        models(FROZEN, "policies.y.optimizer.lr=1e-3")


@pytest.mark.slow
def test_ablations_across_kinds(made, first):
    team = load(made)
    written = {"swap": ["a,b"], "mute": ["b"], "replace": [f"b={first.folder}", "b=base", "a=base"]}
    changes = [Ablation.parse(kind, text) for kind, texts in written.items() for text in texts]
    before, after = team.ablate(changes, tasks=10)
    assert len(after) == 5
    assert after[3] == before  # what is frozen is what it was at the start


def test_what_names_a_run(first, tmp_path):
    past = past_policy(f"{first.folder}#12/x")
    assert past is not None
    assert (past.run, past.step, past.policy) == (first.folder, 12, "x")
    assert str(past) == f"{first.folder.resolve()}#12/x"
    assert past_policy(f"{first.folder}/x") is not None
    assert past_policy("Qwen/Qwen3-0.6B") is None
    assert past_policy("starter") is None


def test_samples_of_the_frozen_train_nobody():
    team = Team({"a": "p", "b": "q"}, frozenset({"q"}))
    samples = [Sample(role, policy, 0, (1,), (2,), (-1.0,), "stop", "") for role, policy in team.roles.items()]
    group = Group(
        Key("t", 0, "*", "team"), "task", (Member(tuple(samples), (1.0,), {}), Member(tuple(samples), (0.0,), {}))
    )
    routed = route(team, [group], [(1.0, -1.0)])
    assert {name: [one.sample.role for one in graded] for name, graded in routed.items()} == {"p": ["a"]}


@pytest.mark.slow
def test_a_past_self_is_pinned_to_its_step_and_that_checkpoint_stays(sets, first, tmp_path):
    source = Run(shutil.copytree(first.folder, tmp_path / "source"))
    best = load(source).progress.step
    config = load_config("tests/toys.py:Agree", [*sets, FROZEN, f"policies.y.model={source.folder}/x"])
    run = train(config, tmp_path / "run")
    assert run.config.policies["y"].model == f"{source.folder.resolve()}#{best}/x"
    before = load(run).evaluate(tasks=10)
    train(
        load_config("tests/toys.py:Agree", [*sets, FROZEN, f"policies.y.model={source.folder}#1/x"]), tmp_path / "other"
    )
    for step in (5, 6):
        source.checkpoints.save(Progress(step=step), lambda folder: (folder / "x").write_text("x"), keep=1)
    assert {0, 1, best, 6} <= set(source.checkpoints.steps())
    assert not {3, 5} & set(source.checkpoints.steps())
    cut_back(run.folder, 2)
    train(config, resume=run.folder)  # it still says RUN/x
    assert load(run).evaluate(tasks=10) == before


@pytest.mark.parametrize(
    ("model", "told"),
    [("{run}#77/x", r"has no checkpoint of step 77; there are 0, 1, 2, 3, 4$"),
     ("{run}", "is a run; name one of its .*#STEP/x"),
     ("{run}#2", "is a run; name one of its policies"), ("runs/nope/x", "no such folder here, and no such run"),
     ("{run}#two/x", "is a run; name one of its policies"), ("{run}#2/z", "has no policy 'z'; it has x, y")],
)  # fmt: skip
def test_a_run_that_is_not_there_is_told_by_the_setting_that_names_it(model, told, sets, first, tmp_path):
    with pytest.raises(ConfigError, match=told) as caught:
        train(
            load_config("tests/toys.py:Agree", [*sets, FROZEN, f"policies.y.model={model.format(run=first.folder)}"]),
            tmp_path / "run",
        )
    assert "policies.y.model" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_damage_elsewhere_is_told_by_the_setting_that_names_it(sets, first, tmp_path):
    source = Run(shutil.copytree(first.folder, tmp_path / "source"))
    (source.checkpoints.path(2) / "policies/x/config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"policies\.y\.model = .*is cut or changed; put it back from a copy$"):
        train(
            load_config("tests/toys.py:Agree", [*sets, FROZEN, f"policies.y.model={source.folder}#2/x"]),
            tmp_path / "run",
        )
