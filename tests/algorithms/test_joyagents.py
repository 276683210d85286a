"""Runs of joyagents: exact resume with memory, who is trained and who is left alone, policies of different sizes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from coterie import load, load_config, train
from coterie.errors import ConfigError
from coterie.memory.recall import PREFACE
from coterie.models.load import save_model
from coterie.report.text import log_text, tree_text
from coterie.run.folder import Run
from tests.run.test_runs import cut_back, untimed, weights
from tests.test_cli import call
from tests.toys import tiny

SETTINGS = [
    "algorithm.name=joyagents",
    "team.a=x",
    "team.b=y",
    "train.steps=4",
    "train.tasks_per_step=20",
    "train.eval_tasks=5",
    "train.eval_every=2",
    "train.mute_every=0",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=9",
    "train.episodes_every=1",
    "optimizer.lr=1e-2",
]
CHOSEN = ["algorithm.selection=signal", "algorithm.continuations=2", "algorithm.num_generations=4"]
MEMORY = ["memory.mode=on", "memory.relevance=0.2"]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[str]:
    """Two sizes, two vocabularies."""
    folder = tmp_path_factory.mktemp("models")
    save_model(tiny(scale=2.0), folder / "small")
    save_model(tiny(1, hidden=48, layers=3, vocabulary=384, scale=2.0), folder / "large")
    return [f"policies.x.model={folder / 'large'}", f"policies.y.model={folder / 'small'}"]


def config(models: list[str], *more: str, env: str = "Noting"):
    return load_config(f"tests/toys.py:{env}", [*SETTINGS, *models, *more])


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(config(models, *MEMORY, *CHOSEN), folder)
    return folder


@pytest.mark.slow
def test_a_team_of_two_sizes_remembers_what_succeeded(whole):
    run = load(whole, 4)
    assert len({model.size for model in (policy.model for policy in run.models.policies.values())}) == 2
    store = run.progress.memory
    assert store.iteration == 4
    assert {entry.role for entry in store.entries} == {"a", "b"}
    assert {entry.text for entry in store.entries} <= {"a even", "a odd", "b even", "b odd"}
    assert all(entry.origin[0] == "train" for entry in store.entries)
    (last,) = [line for line in untimed(whole) if line["step"] == 4]
    assert last["memory/entries"] == len(store.entries)
    assert 0 < last["memory/notes"] <= 3
    assert {"memory/success_on", "memory/success_masked", "selection/signal", "role/a/selected"} <= last.keys()


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 3])
def test_a_run_killed_and_resumed_has_the_same_memory(whole, models, tmp_path, step):
    """Invariant 20: policies, optimizers, memory and counters together."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    cut_back(folder, step)
    train(config(models, *MEMORY, *CHOSEN), resume=folder)
    assert untimed(folder) == untimed(whole)
    assert weights(folder, 4) == weights(whole, 4)
    assert load(folder, 4).progress.memory.digest == load(whole, 4).progress.memory.digest


@pytest.mark.slow
def test_playing_and_evaluating_leave_the_store_as_it_is(whole):
    """Invariant 15."""
    run = load(whole, 4)
    before = run.progress.memory.digest
    on = run.evaluate(tasks=20)
    run.remember("off")
    off = run.evaluate(tasks=20)
    run.remember("placebo")
    placebo = run.evaluate(tasks=20)
    run.play()
    assert run.progress.memory.digest == before == load(whole, 4).progress.memory.digest
    assert on.by_kind.keys() == off.by_kind.keys() == placebo.by_kind.keys() == {"k0", "k1", "k2"}
    run.remember("on")
    assert run.evaluate(tasks=20) == on


def test_an_episode_is_shown_with_its_notes_to_people_too(whole):
    run = load(whole, 4)
    heard: list[str] = []

    def say(prompt: str) -> str:
        heard.append(prompt)
        return "2"

    noted = next(at for at in range(50) if PREFACE in log_text(run.play(index=at)))
    shown = log_text(run.play(index=noted))
    assert '{"note": ' in shown
    run.play(index=noted, seats={"a": say, "b": say})
    assert PREFACE in "".join(heard)
    run.remember("off")
    assert PREFACE not in log_text(run.play(index=noted))


def test_a_task_that_is_not_there_is_one_line(whole, monkeypatch):
    run = load(whole, 4)
    monkeypatch.setattr(type(run.config.environment), "count", lambda self, split: 3)
    assert run.play(index=2).outcome
    with pytest.raises(ConfigError, match="there is no validation task 3: there are 3, from 0"):
        run.play(index=3)


def test_notes_are_prompt_tokens_of_every_sample_of_their_episode(whole):
    """Invariant 1: one prompt a group, notes included, or masked for all of it."""
    with_notes, without = 0, 0
    policies = load(whole, 4).models.policies
    for played in Run(whole).episodes(4):
        for group in played.collected.groups:
            prompts = {member.samples[0].prompt_ids for member in group.members}
            assert len(prompts) == 1
            words = policies[group.policy].tokenizer.decode(list(*prompts))
            with_notes += "unverified hints" in words
            without += "unverified hints" not in words
    assert with_notes
    assert without


def test_a_tree_says_which_groups_were_trained(whole):
    (last,) = [line for line in untimed(whole) if line["step"] == 4]
    played = Run(whole).episodes(4)
    groups = [group for one in played for group in one.collected.groups]
    assert 0 < sum(group.weight > 0 for group in groups) == last["selection/groups"] < len(groups)
    lines = "\n".join(map(tree_text, played)).splitlines()
    assert sum(line.endswith("; not trained") for line in lines) == sum(group.weight == 0 for group in groups)


@pytest.mark.slow
def test_a_policy_without_a_selected_group_is_bit_identical(models, tmp_path):
    """Invariant 11: weights and optimizer; and the run says so."""
    run = train(
        config(
            models,
            "algorithm.selection=raw_var",
            "algorithm.top_k=1",
            "algorithm.floor=0",
            "train.steps=1",
            "train.tasks_per_step=4",
        ),
        tmp_path / "run",
    )
    (line,) = [line for line in run.metrics() if line["step"] == 1]
    idle = [role for role in ("a", "b") if line[f"role/{role}/selected"] == 0]
    assert len(idle) == 1
    policy, other = ("x", "y") if idle == ["a"] else ("y", "x")
    start, end = weights(tmp_path / "run", 0), weights(tmp_path / "run", 1)
    assert start[f"policies/{policy}/model.safetensors"] == end[f"policies/{policy}/model.safetensors"]
    assert start[f"policies/{other}/model.safetensors"] != end[f"policies/{other}/model.safetensors"]
    state = torch.load(run.checkpoints.path(1) / f"optimizers/{policy}.pt", weights_only=True)
    assert state["state"] == {}


@pytest.mark.slow
def test_without_a_live_group_nothing_is_trained(models, tmp_path):
    """Invariant 9."""
    run = train(config(models, *CHOSEN, "train.steps=1", env="Flat"), tmp_path / "run")
    (line,) = [line for line in run.metrics() if line["step"] == 1]
    assert (line["groups/live"], line["selection/groups"]) == (0, 0)
    assert weights(tmp_path / "run", 0) == weights(tmp_path / "run", 1)


@pytest.mark.slow
def test_memory_works_with_any_algorithm(models, tmp_path):
    run = train(config(models, *MEMORY, "algorithm.name=mas_grpo", "train.steps=2"), tmp_path / "run")
    assert load(run.folder).config.memory.mode == "on"
    with Run(run.folder).checkpoints.reading(2) as (_, progress):
        assert progress.memory.entries


@pytest.mark.slow
def test_what_cannot_be_remembered(models, tmp_path):
    run = train(config(models, "train.steps=1"), tmp_path / "run")
    with pytest.raises(ConfigError, match="remembers nothing"):
        load(run.folder).remember("on")


@pytest.mark.slow
def test_what_is_remembered_is_shown(whole, models, tmp_path):
    code, out, _ = call("memory", str(whole))
    assert code == 0
    store = load(whole, 4).progress.memory
    assert out.startswith(f"{len(store.entries)} entries after 4 steps, {store.digest[:12]}")
    assert "success without notes, a/k0: " in out
    assert "  a even" in out
    assert "for: number" in out
    assert "from 1 of train train-" in out
    assert "from nearly one of 5 validation queries: " in out
    assert "b even" not in call("memory", str(whole), "--role", "a")[1]
    assert (
        call("memory", str(whole), "--role", "aa")[2]
        == "coterie: --role aa: unknown; did you mean 'a'?; the team has a, b\n"
    )
    code, out, _ = call("eval", str(whole), "--tasks", "20", "--memory", "placebo")
    assert code == 0
    assert "by kind: k0" in out
    code, _, error = call("eval", str(whole), "--memory", "of")
    assert (code, error) == (2, "coterie: --memory of: unknown; did you mean 'off'?; it is off, on, placebo\n")
    plain = train(config(models, "train.steps=1"), tmp_path / "run")
    assert "remembers nothing" in call("memory", str(plain.folder))[1]
