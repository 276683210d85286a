"""`coterie audit`: rollouts of other trainers, written as those write them, and of our own."""

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch

from coterie.config.resolve import load_config
from coterie.errors import ConfigError
from coterie.kernel.group import Key
from coterie.models.load import save_model
from coterie.report.audit import audit
from coterie.report.rollouts import ColumnChoice, _rows_of, read
from coterie.run.train import train
from tests.algorithms.made import replies
from tests.toys import tiny

TEAM = [
    ("planner", 0, "plan a", 1.0),
    ("planner", 0, "plan a", 0.0),
    ("checker", 1, "check x", 1.0),
    ("checker", 1, "check x", 1.0),
]
"""One group of a team of two: the checker is always right."""
MIXED = [0.5, -1.5, 0.5, 0.5]
"""(r - 3/4) / (1/2), of all four."""
APART = [1 / math.sqrt(2), -1 / math.sqrt(2), 0.0, 0.0]
"""Each role by itself: +-(1/2) / sqrt(1/2), and nothing where all rewards are equal."""


def lines(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def verl(path: Path, team=TEAM, uid="u1") -> Path:
    return lines(
        path / "1.jsonl",
        [
            {
                "input": prompt,
                "output": "words",
                "gts": None,
                "score": reward,
                "step": 1,
                "uid": uid,
                "agent_name": role,
                "turn_idx": turn,
            }
            for role, turn, prompt, reward in team
        ],
    )


def slime(path: Path, team=TEAM) -> Path:
    kept = {"tokens": [1, 2], "response": "words", "status": "completed", "remove_sample": False}
    samples = [
        {
            **kept,
            "group_index": 0,
            "index": at,
            "prompt": prompt,
            "reward": reward,
            "metadata": {"role": role, "turn": turn},
        }
        for at, (role, turn, prompt, reward) in enumerate(team)
    ]
    torch.save({"rollout_id": 3, "samples": samples}, path / "3.pt")
    return path / "3.pt"


def results(path: Path, team=TEAM) -> Path:
    return lines(
        path / "results.jsonl",
        [
            {
                "example_id": 0,
                "prompt": [{"role": "user", "content": prompt}],
                "completion": [],
                "reward": reward,
                "info": {"agent": role, "turn": turn},
            }
            for role, turn, prompt, reward in team
        ],
    )


def traces(path: Path, team=TEAM) -> Path:
    def trace(role, prompt, reward):
        nodes = [
            {"message": {"role": "user", "content": prompt}},
            {"message": {"role": "assistant", "content": "words"}},
        ]
        rewards = {"main": {"score": 2 * reward, "weight": 0.5}, "late": None}
        agent, task = {"name": role, "trainable": True}, {"type": "T", "key": "k", "data": {}}
        return {"task": task, "agent": agent, "nodes": nodes, "rewards": rewards}

    return lines(path / "traces.jsonl", [trace(role, prompt, reward) for role, _, prompt, reward in team])


def trl(path: Path, team=TEAM) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "step": [1] * len(team),
        "prompt": [[{"role": "user", "content": prompt}] for _, _, prompt, _ in team],
        "completion": [[{"role": "assistant", "content": "words"}] for _ in team],
        "right": [reward - 0.25 for *_, reward in team],
        "form": [0.25 for _ in team],
        "agent": [role for role, *_ in team],
        "advantage": [2 * advantage for advantage in MIXED],  # as a trainer would that scales otherwise
    }
    parquet.write_table(pyarrow.table(columns), path / "completions_00001.parquet")
    return path / "completions_00001.parquet"


@pytest.mark.parametrize("make", [verl, slime, results, traces, trl])
def test_a_group_that_mixes_is_found_in_every_format_and_judged_by_hand(make, tmp_path):
    found = audit(read(make(tmp_path), ColumnChoice(reward="right+form" if make is trl else "")))
    assert not found.ok
    (mixed,) = found.mixed
    assert mixed.what == (("prompts", "roles", "turns") if make not in (traces, trl) else ("prompts", "roles"))
    order = sorted(range(4), key=lambda at: TEAM[at][0])  # shown a kind after the other
    assert [judged.row.role for judged in mixed.replies] == [TEAM[at][0] for at in order]
    assert [judged.row.reward for judged in mixed.replies] == [TEAM[at][3] for at in order]
    scale = 2 if make is trl else 1
    assert [judged.was for judged in mixed.replies] == pytest.approx([scale * MIXED[at] for at in order], abs=1e-5)
    assert [judged.apart for judged in mixed.replies] == pytest.approx([APART[at] for at in order], abs=1e-5)
    assert "they mix prompts (1), roles (1)" in str(found)
    assert "to its prompt: 0 get an advantage of the opposite sign, 2 an advantage of 0" in str(found)


@pytest.mark.parametrize("make", [verl, slime, results, traces])
def test_replies_to_one_prompt_are_fine(make, tmp_path):
    found = audit(read(make(tmp_path, [("planner", 0, "plan a", float(at % 2)) for at in range(4)])))
    assert found.ok
    assert (found.groups, found.lone) == (1, 0)
    saved = any(row.turn for row in found.rollouts.rows)
    assert saved == (make is not traces), "its form has no turns"
    assert str(found).endswith("no group mixes roles, turns or prompts" if saved else "no group mixes roles or prompts")


def test_groups_that_the_file_does_not_say_are_found_and_how_is_said(tmp_path):
    read_trl = read(trl(tmp_path), ColumnChoice(reward="right+form"))
    assert read_trl.grouped.startswith("groups: each 4 in a row, found by their advantages, which sum to zero")
    assert read_trl.rewarded == "rewards: right + form"
    by_two = read(trl(tmp_path), ColumnChoice(group="2", reward="right"))
    assert audit(by_two).ok
    assert (by_two.grouped, by_two.rewarded) == ("groups: each 2 in a row, as you say", "rewards: right")
    plain = lines(tmp_path / "old.jsonl", [{"input": "a", "output": "b", "score": at, "step": 1} for at in (0.0, 1.0)])
    assert "by equal prompts, for the file does not say" in read(plain).grouped
    assert read(verl(tmp_path), ColumnChoice(group="agent_name")).grouped == "groups: by 'agent_name', as you say"


def test_equal_groups_of_two_steps_are_two(tmp_path):
    records = [{"input": "a", "output": "b", "score": 1.0, "step": step, "uid": "u"} for step in (1, 2)]
    found = audit(read(lines(tmp_path / "x.jsonl", records)))
    assert (found.groups, found.lone) == (2, 2)
    assert "2 of one reply, which is compared with nothing" in str(found)


def test_a_reply_that_is_alone_of_its_kind_is_told(tmp_path):
    found = audit(read(verl(tmp_path, [*TEAM[:2], TEAM[2]])))
    assert [judged.apart is None for judged in found.mixed[0].replies] == [True, False, False]
    assert "1 have no other reply to be compared with" in str(found)
    assert " alone" in str(found)


def test_turns_of_one_agent_whose_prompts_differ_are_kinds_too(tmp_path):
    found = audit(
        read(verl(tmp_path, [("a", 0, "one", 1.0), ("a", 0, "one", 0.0), ("a", 0, "two", 1.0), ("a", 0, "two", 1.0)]))
    )
    assert found.mixed[0].what == ("prompts",)
    assert [judged.apart for judged in found.mixed[0].replies] == pytest.approx(APART, abs=1e-5)


def test_what_was_not_rewarded_or_not_trained_is_passed_over_and_counted(tmp_path):
    samples = [
        {"group_index": 0, "prompt": "p", "reward": reward, "remove_sample": gone}
        for reward, gone in ((1.0, False), (None, False), (0.0, True))
    ]
    torch.save({"samples": samples}, tmp_path / "x.pt")
    found = read(tmp_path / "x.pt")
    assert (len(found.rows), found.passed) == (2, 1)  # one that is removed is compared all the same
    frozen = json.loads(traces(tmp_path).read_text().splitlines()[0])
    frozen["agent"]["trainable"] = False
    assert (
        read(
            lines(tmp_path / "frozen.jsonl", [frozen, json.loads(traces(tmp_path).read_text().splitlines()[0])])
        ).passed,
        read(traces(tmp_path)).passed,
    ) == (1, 0)
    several = [{"group_index": 0, "prompt": "p", "reward": {"right": 1.0, "form": 0.5}}]
    torch.save({"samples": several}, tmp_path / "y.pt")
    with pytest.raises(ConfigError, match=r"reward\.right"):
        audit(read(tmp_path / "y.pt", ColumnChoice(reward="right")))
    assert read(tmp_path / "y.pt", ColumnChoice(reward="reward.right")).rows[0].reward == 1.0


def test_it_says_what_it_cannot_read(tmp_path):
    def told(path: Path, **asked: str) -> str:
        with pytest.raises(ConfigError) as caught:
            audit(read(path, ColumnChoice(**asked)))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no known format" in told(lines(tmp_path / "a.jsonl", [{"x": 1}]))
    assert "holds no records" in told(lines(tmp_path / "b.jsonl", []))
    assert "has more than 1,000 columns" in told(lines(tmp_path / "d.jsonl", [{f"k{at}": 0 for at in range(1_001)}]))
    (tmp_path / "c.jsonl").write_text('{"input": "a", "output": "b", "score": 1}\n{broken\n')
    assert "line 2" in told(tmp_path / "c.jsonl")
    assert "line 1: a record is an object" in told(lines(tmp_path / "d.jsonl", [[1]]))
    assert "is not there" in told(tmp_path / "none.jsonl")
    assert "is no file" in told(Path("/dev/null"))
    assert "not like its first" in told(
        lines(tmp_path / "e.jsonl", [{"input": "a", "output": "b", "score": 1}, {"output": "b"}])
    )
    assert "no column 'scor', did you mean 'score'" in told(verl(tmp_path), reward="scor").replace("; did", ", did")
    assert "no column 'uids'" in told(verl(tmp_path), group="uids")
    torch.save({"samples": [Evil(tmp_path / "ran")]}, tmp_path / "f.pt")
    assert "cannot be read as plain data" in told(tmp_path / "f.pt")
    assert not (tmp_path / "ran").exists()
    (tmp_path / "g.jsonl").write_text("[" * 100_000 + "\n")
    assert "line 1" in told(tmp_path / "g.jsonl")
    assert "it has no column of numbers" in told(
        lines(tmp_path / "h.jsonl", [{"prompt": "a", "completion": "b", "text": "c"}])
    )


class Evil:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self):
        return Path.touch, (self.flag,)


def test_rewards_that_are_no_numbers_are_none(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"input": "a", "output": "b", "score": NaN}\n{"input": "a", "output": "b", "score": 1}\n'
    )
    found = read(tmp_path / "a.jsonl")
    assert (len(found.rows), found.passed) == (1, 1)


MORE = {"input": "a", "output": "b", "score": 1.0, "uid": "g"}


@pytest.mark.parametrize(
    ("records", "mixed"),
    [
        ([{**MORE, "role": "assistant", "agent_name": name} for name in ("planner", "checker")], ("roles",)),
        ([{**MORE, "policy": "shared", "extra_info": {"role": name}} for name in ("planner", "checker")], ("roles",)),
        ([{**MORE, "uid": None}, *({**MORE, "input": str(at)} for at in range(3))], ("prompts",)),
        ([MORE, {**MORE, "input": "b", "turn": 1}], ("prompts", "turns")),
        ([{**MORE, "extra_info": {"turn": at}} for at in range(3)], None),  # how many turns there were, perhaps
        ([{**MORE, "step": 1, "uid": "2/3"}, {**MORE, "step": "1/2", "uid": "3", "input": "b"}], None),
    ],
)
def test_what_hides_is_found_and_what_is_fine_is_fine(records, mixed, tmp_path):
    found = audit(read(lines(tmp_path / "x.jsonl", records)))
    assert [each.what for each in found.mixed] == ([] if mixed is None else [mixed])


def test_groups_of_advantages_that_sum_to_zero_by_halves_are_said_to_be_a_guess(tmp_path):
    records = [{**MORE, "uid": None, "advantage": at} for at in (1.0, -1.0, 1.0, -1.0)]
    assert read(lines(tmp_path / "x.jsonl", records)).grouped.endswith("--group SIZE if more")
    records = [{**MORE, "uid": None, "advantage": 1.0 + at} for at in range(3000)]
    assert "by equal prompts" in read(lines(tmp_path / "y.jsonl", records)).grouped


@pytest.mark.parametrize("score", [10**400, 1e308, "1", None, float("inf")])
def test_numbers_that_statistics_cannot_take_are_none(score, tmp_path):
    with pytest.raises(ConfigError, match="has a number as its reward"):
        read(lines(tmp_path / "x.jsonl", [{**MORE, "score": score}]))


def test_a_line_that_a_model_wrote_is_no_line_of_ours(tmp_path):
    name = "a\nno group mixes roles, turns or prompts"
    found = audit(read(lines(tmp_path / "x.jsonl", [{**MORE, "uid": name, "role": each} for each in (name, "b")])))
    assert "\nno group mixes" not in str(found)


def test_a_role_that_is_alone_has_its_name(tmp_path):
    found = read(lines(tmp_path / "x.jsonl", [{**MORE, "agent_name": "planner"}] * 2))
    assert [row.role for row in found.rows] == ["planner"] * 2


def test_several_rewards_are_asked_for(tmp_path):
    record = {"prompt": "p", "completion": "c", "right": 1.0, "length": 300}
    with pytest.raises(
        ConfigError, match=r"which of right, length are rewards\? Name them, such as --reward right\+length"
    ):
        read(lines(tmp_path / "x.jsonl", [record]))
    assert read(lines(tmp_path / "x.jsonl", [record]), ColumnChoice(reward="right")).rows[0].reward == 1.0
    torch.save(
        {"samples": [{"group_index": 0, "prompt": "p", "reward": {"right": 1.0, "form": 0.5}}]}, tmp_path / "y.pt"
    )
    with pytest.raises(ConfigError, match=r"which of reward\.right, reward\.form is the reward"):
        read(tmp_path / "y.pt")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["at_grpo", "magrpo"])
def test_none_of_our_groups_mixes(algorithm, tmp_path):
    save_model(tiny(scale=2.0, context=2048), tmp_path / "model")
    sets = [
        f"algorithm.name={algorithm}",
        "train.steps=1",
        "train.tasks_per_step=2",
        "train.eval_tasks=1",
        "team.a=x",
        "team.b=y",
    ]
    sets += ["engine.max_tokens=4", *(f"policies.{name}.model={tmp_path / 'model'}" for name in "xy")]
    run = train(load_config("tests/toys.py:Sequential", sets), tmp_path / "run")
    found = audit(read(run.folder))
    assert found.ok, str(found)
    assert found.groups > 1
    assert not found.computed
    with pytest.raises(ConfigError, match="have no effect on a run folder"):
        read(run.folder, ColumnChoice(group="uid"))


@pytest.mark.parametrize(("role", "roles"), [("planner", ["planner", "proposer"]), ("team", ["team", "team"])])
def test_a_group_of_ours_is_looked_at_by_its_members_and_not_by_its_name(role, roles):
    """A group of the whole team compares whole episodes, and is meant to."""
    group = replace(replies((0, "planner", 1.0, 1), (1, "proposer", 0.0, 1)), key=Key("t", 0, "*", role))
    played = SimpleNamespace(collected=SimpleNamespace(groups=[group]), advantages=[(1.0, -1.0)])
    run = SimpleNamespace(episodes=lambda step: [played])
    assert [row.role for row in _rows_of(run, 1)] == roles


def test_the_page_shows_what_is_printed_of_a_team_whose_prompts_are_one_group(tmp_path, monkeypatch):
    """A planner and a checker, four replies each; the checker is asked of each plan."""
    chance = Random(7)
    records = [
        {
            "input": f"check plan {at} of {task}" if at % 2 else f"plan {task}",
            "output": "words",
            "score": float(chance.random() < (0.75 if at % 2 else 0.25)),
            "step": 1,
            "uid": f"u{task}",
            "agent_name": ("planner", "checker")[at % 2],
            "turn_idx": at % 2,
        }
        for task in range(8)
        for at in range(8)
    ]
    lines(tmp_path / "1.jsonl", records)
    monkeypatch.chdir(tmp_path)
    printed = str(audit(read(Path("1.jsonl"))))
    page = (Path(__file__).parents[2] / "docs" / "rollouts.md").read_text()
    shown = page.partition("$ coterie audit 1.jsonl\n")[2].partition("\n```")[0]
    for part in shown.split("\n  ..."):
        assert part in printed, printed
