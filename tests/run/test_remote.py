"""Teams with a policy that a server plays, in one run with every other kind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from coterie import Ablation, load, load_config, train
from coterie.engines.answers import Spent
from coterie.errors import CheckpointError, ConfigError, EngineError, RolloutError
from coterie.models.load import save_model
from coterie.run.folder import Run
from coterie.run.weights import spending
from tests.runs import cut_back, untimed, weights
from tests.servers import FakeServer, serving
from tests.toys import tiny

SETS = ["team.a=whole", "team.b=adapter", "team.c=fixed", "team.d=server", "policies.adapter.kind=lora",
        "policies.adapter.lora.rank=2", "policies.fixed.kind=frozen", "policies.server.kind=remote",
        "policies.server.model=gpt", "train.steps=4", "train.tasks_per_step=4", "train.eval_tasks=10",
        "train.eval_every=2", "train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes_every=1",
        "algorithm.num_generations=4", "optimizer.lr=1e-2"]  # fmt: skip
WORDS = ("even", "odd")


def answering(body: dict, number: int) -> str:
    return WORDS[body.get("seed", 0) % 2]


@pytest.fixture(scope="module")
def server():
    with serving(answering) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("remote") / "tiny"
    save_model(tiny(scale=2.0), made)
    return made


def mixed(server: FakeServer, folder: Path, *sets: str):
    models = [f"policies.{name}.model={folder}" for name in ("whole", "adapter", "fixed")]
    url = f"policies.server.remote.url={server.url}"
    return load_config("tests/toys.py:Crowd", [*SETS, *models, url, *sets])


@pytest.fixture(scope="module")
def made(server, folder, tmp_path_factory) -> Run:
    return train(mixed(server, folder), tmp_path_factory.mktemp("remote") / "run")


@pytest.mark.slow
def test_one_run_of_four_kinds_trains_two_and_goes_on_exactly_asking_nothing_twice(server, folder, made, tmp_path):
    assert {name.split("/")[1] for name in weights(made.folder, 4)} == {"whole", "adapter"}
    line = made.metrics()[-1]
    assert {name.split("/")[1] for name in line if name.startswith("policy/")} == {"whole", "adapter"}
    before = weights(made.folder, 0)
    assert all(weights(made.folder, 4)[name] != content for name, content in before.items())
    assert any("even" in text or "odd" in text for text in said(made, "d"))
    asked = len(server.asked)
    again = tmp_path / "run"
    shutil.copytree(made.folder, again)
    cut_back(again, 1)
    train(mixed(server, folder), resume=again)
    assert untimed(again) == untimed(made.folder)
    assert weights(again, 4) == weights(made.folder, 4)
    assert len(server.asked) == asked
    assert (again / "answers/server.jsonl").read_bytes() == (made.folder / "answers/server.jsonl").read_bytes()


def said(run: Run, role: str) -> set[str]:
    logs = [log for played in run.episodes(2) for log in played.collected.logs]
    return {reply.text for log in logs for event in log.events if event.kind == "answered"
            for speaker, reply in event.replies.items() if speaker == role}  # fmt: skip


@pytest.mark.slow
def test_it_answers_every_ablation_and_what_was_asked_is_not_paid_again(made, server, tmp_path):
    wanted = [("mute", "d"), ("swap", "a,d"), ("swap", "c,d"), ("replace", "b=base"), ("replace", f"c={made.folder}"),
              ("replace", f"d={made.folder}")]  # fmt: skip
    run = Run(shutil.copytree(made.folder, tmp_path / "run"))
    ablations = [Ablation.parse(kind, text) for kind, text in wanted]
    before, after = load(run).ablate(ablations, tasks=6)
    assert [one.tasks for one in after] == [6] * len(wanted)
    asked = len(server.asked)
    assert load(run).ablate(ablations, tasks=6) == (before, after)
    assert len(server.asked) == asked
    (told,) = spending(run)
    assert re.fullmatch(r"policy server: \d+ calls, [\d,]+ \+ [\d,]+ tokens, 0\.0000 USD", told)


@pytest.mark.slow
def test_a_whole_team_may_be_replaced_by_a_server(made, server, folder, tmp_path):
    alone = [one for one in SETS if "server" not in one]
    models = [f"policies.{name}.model={folder}" for name in ("whole", "adapter", "fixed")]
    run = train(
        load_config("tests/toys.py:Crowd", [*alone, *models, "team.d=fixed", "train.steps=1"]), tmp_path / "run"
    )
    asked = len(server.asked)
    evaluation, (change,) = load(run).compare([Ablation.parse("replace", f"d={made.folder}")], tasks=6)
    assert change.change == 0 == change.success - evaluation.success
    assert len(server.asked) == asked + 1  # a greedy question, equal for all tasks


@pytest.mark.slow
def test_a_spent_budget_ends_the_run_with_everything_saved_and_it_goes_on_with_more(folder, tmp_path):
    with serving(answering) as server:
        whole = train(mixed(server, folder), tmp_path / "whole")
        calls = len(server.asked)
        with pytest.raises(Spent, match=r"budget_calls = .*go on"):
            train(mixed(server, folder, f"policies.server.remote.budget_calls={calls - 3}"), tmp_path / "run")
        run = Run.open(tmp_path / "run")
        assert run.checkpoints.steps()[-1] >= 2
        assert len(server.asked) == 2 * calls - 3
        with pytest.raises(Spent):
            train(run.config, resume=run.folder)
        config = mixed(server, folder, f"policies.server.remote.budget_calls={calls}")
        train(config, resume=run.folder)
        assert len(server.asked) == 2 * calls
        assert run.config.policies["server"].remote.budget_calls == calls
        assert weights(run.folder, 4) == weights(whole.folder, 4)
        assert untimed(run.folder) == untimed(whole.folder)
        with pytest.raises(CheckpointError, match=r"policies\.server\.remote\.omit"):
            train(mixed(server, folder, 'policies.server.remote.omit=["seed"]'), resume=run.folder)


@pytest.mark.long
def test_a_budget_that_is_spent_in_the_first_step_keeps_what_was_paid_for(folder, tmp_path):
    with serving(answering) as server:
        with pytest.raises(Spent):
            train(mixed(server, folder, "policies.server.remote.budget_calls=3"), tmp_path / "run")
        assert len((tmp_path / "run/answers/server.jsonl").read_text().splitlines()) == 3
        train(mixed(server, folder, "policies.server.remote.budget_calls=900"), resume=tmp_path / "run")
        assert len({json.dumps(body) for body in server.asked}) == len(server.asked)


@pytest.mark.slow
def test_failures_are_counted_by_name_and_too_many_end_the_run(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("coterie.engines.remote.random.uniform", lambda low, high: 0.001)
    with serving(lambda body, number: 503 if number % 3 == 0 else answering(body, number)) as server:
        run = train(mixed(server, folder, "train.steps=2"), tmp_path / "run")
        assert sum(line.get("rollout/retried/remote_503", 0) for line in run.metrics()) > 0
        assert not any("rollout/dropped/remote_503" in line for line in run.metrics())
    with serving(lambda body, number: 400 if number == 2 else answering(body, number)) as server:
        run = train(mixed(server, folder, "train.steps=1", "train.max_dropped_share=0.9"), tmp_path / "some")
        assert run.metrics()[1]["rollout/dropped/remote_400"] >= 1
    with serving(lambda body, number: 503) as server:
        with pytest.raises(RolloutError, match="remote_503"):
            train(mixed(server, folder, "policies.server.remote.retries=1"), tmp_path / "none")
        with pytest.raises(RolloutError, match="remote_503"):
            train(mixed(server, folder, "policies.server.remote.retries=1"), resume=tmp_path / "none")


@pytest.mark.slow
def test_a_key_that_is_wrong_leaves_no_run_behind_and_is_in_no_file(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    key = "policies.server.remote.key_variable=MY_KEY"
    with serving(lambda body, number: 401) as server, pytest.raises(EngineError, match="answers 401"):
        train(mixed(server, folder, key), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with serving(answering) as server:
        run = train(mixed(server, folder, key, "train.steps=1"), tmp_path / "run")
    assert not [file for file in run.folder.rglob("*") if file.is_file() and b"sk-secret" in file.read_bytes()]
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigError, match="MY_KEY"):
        load(run).evaluate(tasks=2)


@pytest.mark.parametrize(
    ("sets", "told"),
    [(["policies.server.remote.url="], r"policies\.server\.remote\.url is missing"),
     (["policies.server.model="], r"policies\.server\.model is missing"),
     (["policies.server.device=cpu"], r"policies\.server\.device has no effect: the server has its own"),
     (["policies.server.optimizer.lr=1"], r"policies\.server\.optimizer has no effect"),
     (["policies.whole.remote.retries=1"], r"policies\.whole\.remote has no effect: kind = 'full' has no server"),
     (["policies.server.remote.budget_usd=1"], r"policies\.server\.remote\.budget_usd has no effect: .*prompt_usd"),
     (["policies.server.remote.budget_call=1"], "unknown key 'policies.server.remote.budget_call'; did you mean"),
     (["policies.server.remote.url=nowhere"], r"policies\.server\.remote\.url = 'nowhere'.*https://HOST/v1"),
     (["policies.server.remote.key_variable=sk-1234"], r"policies\.server\.remote\.key_variable"),
     (["team.a=server", "team.b=server", "team.c=server"], "nothing to train|plays no role")],
)  # fmt: skip
def test_mistakes_are_one_line(sets, told, server, folder):
    with pytest.raises(ConfigError, match=told) as error:
        mixed(server, folder, *sets)
    assert "\n" not in str(error.value)


def test_a_server_that_is_named_changes_nothing_of_what_is_recommended(server):
    """To name a learner's model does: how the starter learns is no advice for another."""
    sets = ["team.proposer=a", "team.planner=b", "policies.a.kind=remote", "policies.a.model=gpt",
            f"policies.a.remote.url={server.url}"]  # fmt: skip
    alone = load_config(
        "plan_path", ["team.proposer=a", "team.planner=b", "policies.a.kind=frozen", "policies.b.kind=full"]
    )
    assert load_config("plan_path", [*sets, "policies.b.kind=full"]).optimizer == alone.optimizer
