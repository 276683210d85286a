"""`coterie eval --log`: episodes for Inspect and for verifiers, read by both where they are installed."""

import importlib.util
import itertools
import json

import pytest

from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError
from coterie.kernel.environment import Environment, Task
from coterie.kernel.team import Team
from coterie.report.audit import audit
from coterie.report.logs import Held, writer
from coterie.report.rollouts import ColumnChoice, read
from coterie.run.evaluate import evaluate_team


class Talk(Environment):
    """A lead is asked, then two workers at once; the second task is lost."""

    roles = ("lead", "worker")

    def task(self, split, index):
        return Task(f"{split}-{index}", split, answer="yes", query="what?")

    async def play(self, task, scene):
        if task.id.endswith("1"):
            await scene.call(lost)
        for turn in scene.turns(1):
            first = await scene.ask("lead", f"lead, turn {turn}?")
            messages = [{"role": "system", "content": "You work."}, {"role": "user", "content": first}]
            await scene.ask_all([("worker", messages), ("worker", "and you?")])
        scene.reward("lead", 0.5, "cost")
        scene.team_reward(1.0)
        scene.metric("length", 3)
        scene.succeed()


def lost():
    from coterie.errors import Unavailable

    raise Unavailable("there", "it is gone")


def by_another(path):
    """A log as a trainer's library would have written it."""
    path.write_text(path.read_text().replace('"coterie"', '"another"'))
    return path


@pytest.fixture(scope="module")
def held():
    team = Team({"lead": "a", "worker": "b"})
    engine = ScriptedEngine(lambda role, prompt, rng: f"I am {role} \x1b[31m")
    settings = {"split": "test", "tasks": 2, "sampled": 2, "max_dropped_share": 0.5}
    return Held("talk", "runs/it", 7, Talk(), team.roles, evaluate_team(Talk(), team, engine, **settings))


def test_inspects_log_has_every_call_with_its_role_and_what_it_earned(held, tmp_path):
    path = tmp_path / "log.json"
    writer(path)(path, held)
    log = json.loads(path.read_text())
    assert [(sample["id"], sample["epoch"], "error" in sample) for sample in log["samples"]] == [
        ("test-0", 1, False), ("test-0", 2, False), ("test-1", 1, True), ("test-1", 2, True),
    ]  # fmt: skip
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == held.evaluation.success == 0.5
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (4, 2)
    sample = log["samples"][0]
    assert sample["scores"] == {
        "solved": {"value": "C", "explanation": "solved"},
        "reward of lead": {"value": 0.5}, "reward of team": {"value": 1.0},
    }  # fmt: skip
    calls = [event for event in sample["events"] if event["event"] == "model"]
    assert [(call["role"], call["model"], call["span_id"]) for call in calls] == [
        ("lead", "a", "turn 0"), ("worker", "b", "turn 0"), ("worker", "b", "turn 0"),
    ]  # fmt: skip
    words = "I am lead \x1b[31m"
    assert calls[0]["output"]["completion"] == words
    assert calls[1]["input"] == [{"role": "system", "content": "You work."}, {"role": "user", "content": words}]
    assert sample["role_usage"]["worker"]["output_tokens"] == 2 * len("I am worker \x1b[31m")
    assert sample["metadata"]["metrics"] == {"length": 3}
    assert sample["target"] == "yes"


def test_verifiers_traces_have_a_branch_for_every_prompt(held, tmp_path):
    path = tmp_path / "traces.jsonl"
    writer(path)(path, held)
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(episode["ok"], len(episode["traces"])) for episode in episodes] == [(True, 2)] * 2 + [(False, 0)] * 2
    lead, worker = episodes[0]["traces"]
    assert lead["rewards"] == {"team": {"score": 1.0}, "lead": {"score": 0.5}}
    assert worker["rewards"] == {"team": {"score": 1.0}}
    nodes = [(node["message"]["role"], node.get("parent"), node["sampled"]) for node in worker["nodes"]]
    assert nodes == [
        ("system", None, False), ("user", 0, False), ("assistant", 1, True),
        ("user", None, False), ("assistant", 3, True),
    ]  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"traces.jsonl holds episodes of `coterie eval`: nothing was trained on them"
    ):
        read(path)
    rows = read(by_another(path)).rows
    assert [(row.role, row.reward) for row in rows] == [("lead", 1.5), ("worker", 1.0)] * 2


def test_an_audit_reads_inspects_log_a_role_apart(held, tmp_path):
    path = tmp_path / "log.json"
    writer(path)(path, held)
    with pytest.raises(ConfigError, match=r"log.json holds episodes of `coterie eval`: .*coterie audit RUN"):
        read(path)
    by_another(path)
    with pytest.raises(ConfigError, match=r"which of solved, reward of lead, reward of team is the reward"):
        read(path)
    with pytest.raises(ConfigError, match="no score 'solve'; did you mean 'solved'"):
        read(path, ColumnChoice(reward="solve"))
    found = read(path, ColumnChoice(reward="solved"))
    assert [(row.group, row.role, row.reward) for row in found.rows] == [
        ("test-0", "lead", 1.0), ("test-0", "worker", 1.0),
    ] * 2  # fmt: skip
    assert found.passed == 2
    assert [mixed.what for mixed in audit(found).mixed] == [("prompts", "roles")]


def test_what_scored_a_sample_is_no_reply_and_long_texts_are_put_back(tmp_path):
    def model(text, span, **keys):
        return {"event": "model", "span_id": span, "input": [{"role": "user", "content": text, "id": text}], **keys}

    events = [
        {"event": "span_begin", "id": "s", "type": "solver"},
        {"event": "span_begin", "id": "r", "type": "scorer", "parent_id": "s"},
        {"event": "span_begin", "id": "q", "parent_id": "r"},
        model("attachment://ab12", "s"), model("judge", "q"), model("judge", "s", role="grader"),
    ]  # fmt: skip
    sample = {"epoch": 1, "input": "x", "attachments": {"ab12": "long"}, "events": events}
    samples = [{**sample, "id": 3, "scores": {"match": {"value": grade}}} for grade in ("C", "I", "P", 0.25, "odd")]
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"eval": {}, "samples": samples}))
    found = read(path)
    assert [(row.role, row.prompt, row.reward) for row in found.rows] == [
        ("", '[["user", "long"]]', reward) for reward in (1.0, 0.0, 0.5, 0.25)
    ]
    assert found.passed == 1


def test_texts_that_a_log_keeps_apart_are_put_back_once_and_within_bounds(tmp_path):
    """Each of six texts names the next one fifty times: put back over and over they would make 50^6 words."""
    kept = {name: f"attachment://{after} " * 50 for name, after in itertools.pairwise("abcdef0")}
    sample = {"id": 1, "epoch": 1, "input": "attachment://a", "scores": {"s": {"value": 1}}, "attachments": kept}
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"eval": {}, "samples": [sample]}))
    assert read(path).rows[0].prompt == kept["a"]
    many = {"input": "attachment://a " * 20_000, "attachments": {"a": "x" * 100_000}}
    path.write_text(json.dumps({"eval": {}, "samples": [sample | many]}))
    with pytest.raises(ConfigError, match="the prompts have more than 268,435,456 characters"):
        read(path)


def test_what_cannot_be_written_or_read_is_told_before_anything_is_played(tmp_path):
    (tmp_path / "there.json").write_text("{}")
    for path, says in (
        ("a.txt", "ends in .json, for Inspect, or in .jsonl"),
        ("there.json", "is there already"),
        ("no/a.json", "there is no folder"),
    ):
        with pytest.raises(ConfigError, match=says):
            writer(tmp_path / path)
    for name, says in (("there.json", "has no eval and samples"), ("a.eval", "inspect log convert")):
        with pytest.raises(ConfigError, match=says):
            read(tmp_path / name)


@pytest.mark.skipif(importlib.util.find_spec("inspect_ai") is None, reason="Inspect is not installed")
def test_inspect_reads_what_is_written_and_writes_what_is_read(held, tmp_path):
    from inspect_ai.log import read_eval_log, write_eval_log  # pyright: ignore[reportMissingImports]

    path, again = tmp_path / "log.json", tmp_path / "again.json"
    writer(path)(path, held)
    log = read_eval_log(str(path))
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
    assert [event.role for event in log.samples[0].events if event.event == "model"] == ["lead", "worker", "worker"]
    write_eval_log(log, str(again))
    asked = ColumnChoice(reward="solved")
    assert read(again, asked).rows == read(path, asked).rows


@pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed")
def test_verifiers_reads_what_is_written(held, tmp_path):
    from verifiers.v1.episode import WireEpisode  # pyright: ignore[reportMissingImports]

    path = tmp_path / "traces.jsonl"
    writer(path)(path, held)
    first, *_ = [WireEpisode.model_validate_json(line) for line in path.read_text().splitlines()]
    assert {name: len(trace.branches) for name, (trace,) in first.by_agent.items()} == {"lead": 1, "worker": 2}
    assert {name: trace.reward for name, (trace,) in first.by_agent.items()} == {"lead": 1.5, "worker": 1.0}
