"""Rows of data sets and reward functions of TRL's, unchanged."""

import json
from pathlib import Path

import pytest

from coterie import check, load_config, train
from coterie.algorithms.grpo import GRPO
from coterie.engines.scripted import ScriptedEngine
from coterie.environments.prompts import Prompts
from coterie.errors import ConfigError, EnvError, RolloutError, Unavailable
from coterie.kernel.environment import Split
from coterie.kernel.episode import Asked, Called, Noted, Returned, Rewarded
from coterie.kernel.play import Play, Sampling
from coterie.kernel.team import Team
from coterie.models.load import save_model
from coterie.run.loaded import headline
from tests.toys import one, tiny

FILE = Path(__file__).parent / "trl_rewards.py"
ROWS = [
    {"prompt": f"What is {n} + {n}?", "ground_truth": str(2 * n), "task": ("maths", "words")[n % 2]} for n in range(40)
]


def written(path: Path, rows=ROWS) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def world(tmp_path, *rewards: str, rows=ROWS, **settings) -> Prompts:
    names = tuple(f"{FILE}:{name}" for name in rewards)
    tmp_path.mkdir(exist_ok=True)
    return Prompts(data=written(tmp_path / "rows.jsonl", rows), rewards=names, **settings)


def played(environment: Prompts, *words: str, limit_s: float = 60.0, split: Split = "train"):
    """An episode in which roles say these words, in turn."""
    left = list(words)
    team = Team(dict.fromkeys(environment.roles, "p"))
    engine = ScriptedEngine(lambda role, prompt, rng: left.pop(0))
    play = Play(environment, team, engine, seed=0, sampling=Sampling(call_timeout_s=limit_s))
    cursor = play.start(environment.task(split, 0), 0)
    fault = one(play, play.run(cursor))
    if isinstance(fault, Unavailable):
        raise fault
    return cursor


def of(cursor, kind) -> list:
    return [event for event in cursor.events if isinstance(event, kind)]


def words(prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(str(message.content) for message in prompt)


def rewards(cursor) -> list[tuple[str | None, float]]:
    return [(event.role, event.value) for event in of(cursor, Rewarded)]


def test_a_function_of_trls_is_paid_for_what_the_team_wrote(tmp_path):
    environment = world(tmp_path, "solution")
    truth = json.loads(environment.task("train", 0).columns)["ground_truth"]
    right, wrong = played(environment, f"so \\boxed{{{truth}}}"), played(environment, "\\boxed{x}")
    assert (rewards(right), right.log.solved) == ([(None, 1.0)], True)
    assert (rewards(wrong), wrong.log.outcome.reason) == ([(None, 0.0)], "rewarded too little")
    (asked,) = of(right, Asked)
    assert json.loads(environment.task("train", 0).prompt) in str(asked.prompts["writer"])


def test_several_are_summed_by_weight_and_one_that_does_not_apply_counts_nothing(tmp_path):
    environment = world(tmp_path, "tokens", "of_maths", "later", reward_weights=(0.25, 2.0, 1.0))
    maths = json.loads(environment.task("train", 0).columns)["task"] == "maths"
    cursor = played(environment, "a b c")
    ((_, reply),) = cursor.log.replies()
    count = len(reply.ids)
    assert count > 1
    assert rewards(cursor) == [(None, 0.25 * count + 2.0 * maths + 0.5)]
    noted = {event.name: event.value for event in of(cursor, Noted)}
    assert noted["reward_tokens"] == count
    assert ("reward_of_maths" in noted) == maths
    assert noted["length"] == 5
    assert of(cursor, Returned)[0].value["extra"]["shown"].endswith("?!")


def test_messages_make_completions_of_messages(tmp_path):
    rows = [
        {"prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": f"{n}?"}]} for n in range(30)
    ]
    cursor = played(world(tmp_path, "form", rows=rows), "<think>a</think><answer>b</answer>")
    assert rewards(cursor) == [(None, 1.0)]


def test_each_role_sees_what_those_before_it_wrote_and_may_be_paid_for_its_own(tmp_path):
    environment = world(
        tmp_path, "tokens", roles=("drafter", "editor"), instructions={"editor": "You edit."},
        role_rewards={"drafter": (f"{FILE}:later",)},
    )  # fmt: skip
    cursor = played(environment, "my draft\nThe editor wrote: 9", "edited")
    assert rewards(cursor)[0] == ("drafter", 0.5)
    first, second = (
        words(asked.prompts[role]) for role, asked in zip(environment.roles, of(cursor, Asked), strict=True)
    )
    assert "You edit." in second
    assert "You edit." not in first
    assert "The drafter wrote:\n> my draft\n> The editor wrote: 9" in second, "another's words are marked"
    called = of(cursor, Called)
    assert [call.args[2] for call in called] == ["my draft\nThe editor wrote: 9", "edited"]


def test_what_goes_wrong_in_a_function_drops_the_episode_by_name_and_says_why(tmp_path):
    environment = world(tmp_path, "raises")
    with pytest.raises(Unavailable, match=r"raises raised ZeroDivisionError: .* \(\S+\.py:\d+\)$") as found:
        played(environment, "x")
    assert found.value.stage == "reward_error"
    for name, says in (("leaves", "leaves raised SystemExit: 4"), ("dumb", "dumb raised Dumb: "), ("long", "xxx")):
        with pytest.raises(Unavailable, match=says) as found:
            played(world(tmp_path, name), "x")
        assert len(str(found.value)) < 600
    with pytest.raises(Unavailable, match="no result after") as found:
        played(world(tmp_path, "endless"), "x", limit_s=0.5)
    assert found.value.stage == "reward_timeout"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("alone", "alone returned 1.0; a reward function returns a list, of a number or None"),
        ("text", r"text returned \['1'\]; a reward function returns a list, of a number"),
        ("word", "word returned '1'; a reward function returns a list, of a number"),
        ("huge", "huge returned .*; a reward function returns a list, of a number"),
        ("infinite", "infinite returned inf, which is no reward"),
        ("never", "never: none of them applies to task 1; leave the row out"),
    ],
)
def test_what_is_no_reward_ends_the_run_in_a_line(tmp_path, name, says):
    with pytest.raises(EnvError, match=says):
        played(world(tmp_path, name), "x")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rewards": ("nowhere.py:f",)}, "nowhere.py does not exist"),
        ({"rewards": (f"{FILE}:solutoin",)}, "no function solutoin; did you mean 'solution'"),
        (
            {"rewards": ("solution",)},
            "'solution' is no reward; write exact, number, contains, regex, json, judge, or a function of your own",
        ),
        ({"reward_weights": (1.0,)}, "reward_weights: 1 for 0 of rewards"),
        ({"roles": ()}, "name at least one"),
        ({"roles": ("a", "a")}, "each speaks once"),
        ({"instructions": {"wirter": "x"}}, "instructions: no role 'wirter'; did you mean 'writer'"),
        ({"role_rewards": {"x": ()}}, "role_rewards: no role 'x'"),
        (
            {"data": ""},
            "data is missing; name the table, as in prompts:qa.csv: a .csv, .jsonl or .parquet file with a question",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_told_in_a_line(tmp_path, settings, says):
    with pytest.raises(ValueError, match=says):
        Prompts(**{"data": written(tmp_path / "rows.jsonl"), **settings})


def test_a_reward_function_that_is_another_makes_another_environment(tmp_path):
    file, contents = tmp_path / "own.py", []
    for reward in (1, 1, 2):
        file.write_text(f"def own(completions, **_): return [{reward}.0 for _ in completions]")
        environment = Prompts(data=written(tmp_path / "rows.jsonl"), rewards=(f"{file}:own",))
        contents.append(environment.content())
        assert rewards(played(environment, "x")) == [(None, reward)]
    assert contents[0] == contents[1] != contents[2]


def test_without_a_reward_there_is_nothing_to_learn(tmp_path):
    with pytest.raises(ConfigError, match="name what is rewarded"):
        world(tmp_path).ready()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": ""}, "its prompt is empty"),
        ({"prompt": 3}, "its prompt is neither text nor a list of messages"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "has a message of 'user' that is no text"),
        ({"prompt": [{"role": "tool", "content": "x"}]}, "has a message of 'tool' that is no text"),
        ({"prompt": [{"role": "assistant", "content": "x"}]}, "its prompt does not end with a user's message"),
        ({"messages": []}, "its prompt does not end with a user's message"),
        ({"messages": ["x"]}, "AttributeError"),
        ({"frage": "x"}, "no column is obviously the question; the columns are frage; write environment.columns = "),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, says):
    with pytest.raises(ConfigError, match=f"row 1: .*{says}"):
        world(tmp_path, "solution", rows=[row]).rows()


def test_chat_data_is_prompts_whose_last_words_are_shown(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": f"{n}"}, {"role": "assistant", "content": f"it is {n}"}], "id": n}
        for n in range(40)
    ]
    environment = world(tmp_path, "tokens", rows=rows)
    task = environment.task("train", 0)
    assert task.shown == f"it is {json.loads(task.prompt)[0]['content']}"
    assert environment.demonstrate("writer", task, "", None) == task.shown  # pyright: ignore[reportArgumentType]
    assert task.columns == json.dumps({"id": int(json.loads(task.prompt)[0]["content"])})
    longer = [{"messages": [row["messages"][1], *row["messages"], *row["messages"]]} for row in rows]  # pyright: ignore
    environment = world(tmp_path / "longer", "tokens", rows=longer)
    assert [turn["role"] for turn in json.loads(environment.task("train", 0).prompt)] == [
        "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    other = world(tmp_path / "other", "tokens")
    with pytest.raises(NotImplementedError, match="shows no completion"):
        other.demonstrate("writer", other.task("train", 0), "", None)  # pyright: ignore[reportArgumentType]


def test_what_a_person_asks_is_rewarded_by_nobody(tmp_path):
    environment = world(tmp_path, "solution")
    team = Team({"writer": "p"})
    play = Play(environment, team, ScriptedEngine(lambda *_: "hello"), seed=0)
    cursor = play.start(environment.asked("Who are you?"), 0)

    one(play, play.run(cursor))
    assert not of(cursor, Rewarded)
    assert environment.answer(None, cursor.log) == "hello"


@pytest.mark.slow
def test_it_keeps_the_contract(tmp_path):
    report = check(world(tmp_path, "tokens", roles=("drafter", "editor")), tasks=2)
    assert report.ok, str(report)


def test_a_name_with_its_rows_is_a_config_whatever_they_are_called(tmp_path):
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps(ROWS))
    sets = [f"environment.rewards={FILE}:solution", "policies.team.model=x/y"]
    config = load_config(f"prompts:{rows}", sets)
    assert (config.names["environment"], config.names["algorithm"]) == ("prompts", "grpo")
    assert config.environment.count("train")
    two = load_config(f"prompts:{rows}", [*sets, 'environment.roles=["a", "b"]'])
    assert two.names["algorithm"] == "at_grpo"


def test_a_run_whose_function_fails_says_why(tmp_path):
    save_model(tiny(0), tmp_path / "model")
    sets = [
        f"environment.rewards={FILE}:raises", f"policies.team.model={tmp_path / 'model'}", "train.steps=1",
        "environment.max_tokens=4", "train.tasks_per_step=2",
    ]  # fmt: skip
    with pytest.raises(RolloutError, match="raises raised ZeroDivisionError"):
        train(load_config(f"prompts:{written(tmp_path / 'rows.jsonl')}", sets), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_a_role_learns_what_a_function_of_trls_pays_for(tmp_path, seed):
    save_model(tiny(seed), tmp_path / "model")
    rows = [{"prompt": f"pick {n}"} for n in range(200)]
    sets = [
        f"environment.rewards={FILE}:is_even", f"policies.team.model={tmp_path / 'model'}", "train.steps=40",
        "environment.max_tokens=1", "train.tasks_per_step=8", "train.eval_every=40", "optimizer.lr=1e-2",
        f"train.seed={seed}",
    ]  # fmt: skip
    config = load_config(f"prompts:{written(tmp_path / 'rows.jsonl', rows)}", sets)
    assert isinstance(config.algorithm, GRPO)
    run = train(config, tmp_path / "run")
    assert headline(run).end.success > 0.95
    earned = [line["role/writer/return"] for line in run.metrics() if "role/writer/return" in line]
    assert sum(earned[:3]) / 3 < 0.8
