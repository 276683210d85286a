"""Opponents out of a policy's own past: which one is met, that it stays what it was, and a run that goes on."""

from __future__ import annotations

import shutil

import pytest
import torch

from coterie import Ablation, load, load_config, train
from coterie.config.settings import PastConfig, PolicyConfig
from coterie.errors import CheckpointError, ConfigError
from coterie.models.load import load_model, save_model
from coterie.report.gather import report
from coterie.run.dry import dry_run
from coterie.run.past import PastSelves, pool
from coterie.run.plan import plan
from coterie.run.policies import Policies
from tests.runs import cut_back, untimed, weights
from tests.toys import Hears, tiny

SETS = ["team.a=x", "team.b=before", "policies.before.kind=past", "policies.before.model=x",
        "policies.before.past={every=2, keep=3}", "train.steps=7", "train.tasks_per_step=4", "train.eval_tasks=5",
        "train.eval_every=9", "train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes_every=1",
        "algorithm.num_generations=4", "optimizer.lr=1e-2"]  # fmt: skip


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("past") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return [*SETS, f"policies.x.model={folder}"]


def numbers(folder) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in load_model(str(folder)).net.parameters()])


def trained(sets: list[str], folder, **more):
    """A run, and by step what the other seat was after it."""
    met: dict[int, torch.Tensor] = {}
    put = PastSelves.put

    def watched(self, step, policies):
        put(self, step, policies)
        met[step] = torch.cat([weight.detach().flatten() for weight in policies["before"].model.net.parameters()])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PastSelves, "put", watched)
        run = train(load_config("tests/toys.py:Agree", sets), **({"out": folder} if not more else {"resume": folder}))
    return run, met


@pytest.fixture(scope="module")
def made(sets, tmp_path_factory):
    return trained(sets, tmp_path_factory.mktemp("past") / "run")


@pytest.mark.parametrize(
    ("step", "every", "keep", "held"),
    [(0, 10, 8, [0]), (9, 10, 8, [0]), (10, 10, 8, [0, 10]), (35, 10, 2, [20, 30]), (3, 1, 1, [3])],
)
def test_what_a_pool_holds_after_a_step(step, every, keep, held):
    policy = PolicyConfig(kind="past", model="x", past=PastConfig(every=every, keep=keep))
    assert pool(step, policy) == held


@pytest.mark.slow
def test_every_step_meets_one_of_the_pool_as_it_was(made):
    run, met = made
    then = {step: numbers(run.checkpoints.path(step) / "policies" / "x") for step in range(8)}
    drawn = {}
    for step, weights_met in met.items():
        (drawn[step],) = [at for at, held in then.items() if torch.equal(held, weights_met)]
        assert drawn[step] in [at for at in (0, 2, 4, 6) if at <= step][-3:]
    assert list(met) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert len({step - at for step, at in drawn.items()}) > 2, "not always the same distance"


@pytest.mark.slow
def test_it_is_never_trained_and_a_run_that_goes_on_meets_the_same(sets, made, tmp_path):
    run, met = made
    assert {name.split("/")[1] for name in weights(run.folder, 7)} == {"x"}
    assert not any(name.startswith("policy/before") for line in run.metrics() for name in line)
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    cut_back(folder, 3)
    _, again = trained(sets, folder, resume=True)
    assert {step: held.tolist() for step, held in again.items()} == {
        step: held.tolist() for step, held in met.items() if step >= 3
    }
    assert untimed(folder) == untimed(run.folder)
    assert weights(folder, 7) == weights(run.folder, 7)


@pytest.mark.slow
def test_what_no_checkpoints_pool_holds_is_forgotten_and_what_has_gone_is_named(sets, made, tmp_path):
    run, _ = made
    there = ["step-00000", "step-00002", "step-00004", "step-00006"]
    assert sorted(folder.name for folder in (run.folder / "past/before").iterdir()) == there
    PastSelves(run.config, run.folder).trim([3, 7])
    assert sorted(folder.name for folder in (run.folder / "past/before").iterdir()) == there, "3 may meet 0"
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    more = load_config("tests/toys.py:Agree", [*sets, "train.steps=8"])
    for name in there[1:]:
        (folder / "past/before" / name / "model.safetensors").write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"step-0000[246] is damaged, which policies.before plays after step 7"):
        train(more, resume=folder)
    for name in there[1:]:
        shutil.rmtree(folder / "past/before" / name)
    with pytest.raises(CheckpointError, match=r"step-0000[246] is missing, which policies.before plays after step 7"):
        train(more, resume=folder)
    PastSelves(run.config, run.folder).trim([7])
    assert sorted(folder.name for folder in (run.folder / "past/before").iterdir()) == there[1:]


@pytest.mark.slow
def test_where_it_is_validated_it_is_as_the_policy_whose_past_it_is(sets, tmp_path, monkeypatch):
    from coterie.run import train as module

    seen, evaluate = [], module.evaluate_team

    def watched(environment, team, engine, **more):
        nets = [engine.engine.policies[name].model.net for name in ("x", "before")]
        seen.append([torch.cat([each.detach().flatten() for each in net.parameters()]) for net in nets])
        return evaluate(environment, team, engine, **more)

    monkeypatch.setattr(module, "evaluate_team", watched)
    train(load_config("tests/toys.py:Agree", [*sets, "train.eval_every=3"]), tmp_path / "run")
    assert len(seen) == 4
    assert all(torch.equal(now, before) for now, before in seen)
    assert not torch.equal(seen[0][0], seen[1][0])


@pytest.mark.slow
def test_a_run_that_is_opened_plays_it_as_it_is(made):
    run, _ = made
    models = load(run.folder, step=3).models
    for one, other in zip(*(models.policies[name].model.net.parameters() for name in ("x", "before")), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_it_is_replaced_by_the_start_and_by_another_runs_and_reported(made, tmp_path):
    run, _ = made
    for source in ("base", str(run.folder)):
        load(run.folder).compare([Ablation.parse("replace", f"b={source}")], tasks=3)
    assert "<html" in report([run.folder], tasks=2)


@pytest.mark.slow
def test_an_adapter_has_a_past(sets, tmp_path):
    lora = [*sets, "policies.x.kind=lora", "policies.x.lora.rank=2", "train.steps=3"]
    seen: list[float] = []
    run = train(
        load_config("tests/toys.py:Agree", lora), tmp_path / "run", trackers=[Hears(lambda line: seen.append(1))]
    )
    assert len(seen) == len(run.metrics())
    assert sorted(folder.name for folder in (run.folder / "past/before").iterdir()) == ["step-00000", "step-00002"]
    assert (run.folder / "past/before/step-00002/adapter_config.json").exists()


@pytest.mark.slow
def test_it_computes_as_the_one_whose_past_it_is_and_is_planned_without_an_optimizer(sets):
    config = load_config("tests/toys.py:Agree", [*sets, "policies.x.dtype=bfloat16", "policies.x.system=fold"])
    policy = Policies(config).make("before", config.policies["before"])
    assert (policy.kind, policy.dtype, policy.system) == ("past", torch.bfloat16, "fold")
    before, theirs = plan(config)[0].shares
    assert (before.policy, before.parameters, before.trained) == ("before", theirs.parameters, 0)
    assert before.of("weights") == theirs.of("weights")
    assert before.of("averages") == 0 < theirs.of("averages")


@pytest.mark.slow
def test_a_dry_run_keeps_none(sets, tmp_path, monkeypatch):
    config = load_config("tests/toys.py:Agree", sets)
    monkeypatch.chdir(tmp_path)
    dry_run(config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_exported_team_has_it_as_it_is(made, tmp_path):
    from coterie.run.export import export

    run, _ = made
    export(run, tmp_path / "out")
    assert torch.equal(numbers(tmp_path / "out/before"), numbers(tmp_path / "out/x"))
    text = (tmp_path / "out/team.toml").read_text()
    assert 'kind = "frozen"' in text
    assert "past" not in text


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["policies.before.model=z"], r"policies.before.model = 'z' is no policy of this run that learns"),
        (["policies.before.model=before"], r"policies.before.model = 'before' is no policy of this run that learns"),
        (
            ["policies.before.optimizer.lr=1"],
            r"policies.before.optimizer has no effect: kind = 'past' is never trained",
        ),
        (
            ["policies.before.dtype=bfloat16"],
            r"policies.before.dtype has no effect: it is as the policy whose past it is",
        ),
        (["policies.before.past={every=0}"], r"policies.before.past.every"),
        (["policies.x.past={every=3}"], r"policies.x.past has no effect: kind = 'full' is nobody's past"),
    ],
)
def test_mistakes_are_one_line(sets, says):
    with pytest.raises(ConfigError, match=says):
        load_config("tests/toys.py:Agree", [*SETS, "policies.x.model=m", *sets])
