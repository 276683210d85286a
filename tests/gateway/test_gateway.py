"""Agents that exist, unmodified: what they ask is what is trained, whatever their clients do."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import load_config
from coterie.algorithms.at_grpo import ATGRPO
from coterie.algorithms.drmas import DrMAS
from coterie.engines.scripted import ScriptedEngine
from coterie.environments.gateway import Gateway
from coterie.errors import ConfigError, EnvError, Unavailable
from coterie.gateway import agents as at_work
from coterie.kernel.environment import SPLITS
from coterie.kernel.episode import Asked, Noted, Rewarded
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply
from coterie.kernel.team import Team
from coterie.protocol.tools import parsed
from tests.toys import one

AGENTS = Path(__file__).parent / "agents.py"
TEAM = Team({"lead": "pa", "worker": "pb"})
CALL = '<tool_call>\n{"name": "look", "arguments": {"far": false}}\n</tool_call>'


def world(name: str, file: Path = AGENTS, **settings) -> Gateway:
    return Gateway(agent=f"{file}:{name}", **settings)


def echo(role: str, prompt: str, rng) -> str:
    """What the last message says, by its speaker."""
    return f"{role}: {prompt.rpartition('] ')[2]}"


def looks(role: str, prompt: str, rng) -> str:
    """Calls the tool twice, with words beside it, then says so."""
    return "done" if prompt.count("[tool]") == 2 else f"I look\n{CALL}"


class Slow(ScriptedEngine):
    """Takes longer than a client waits."""

    async def generate(self, requests):
        await asyncio.sleep(1.2)
        return await super().generate(requests)


def playing(environment: Gateway, script=echo, engine=ScriptedEngine, **settings) -> Play:
    return Play(environment, TEAM, engine(script), seed=settings.pop("seed", 0), **settings)


def played(environment: Gateway, script=echo, index: int = 0, play: Play | None = None, episode: int = 0):
    """An episode: its cursor, and what was sampled in it."""
    play = play or playing(environment, script)
    cursor = play.start(environment.task("train", index), episode)

    async def go():
        return await play.run(cursor)

    return cursor, [drawn.sample for drawn in one(play, go())]


async def forked(play: Play, environment: Gateway):
    """A branch at the second question of an episode that is over."""
    cursor = play.start(environment.task("train", 0))
    await play.run(cursor)
    return await play.run(cursor.fork(1, "again"))


def noted(cursor) -> dict[str, float]:
    return {event.name.removeprefix("gateway_"): event.value for event in cursor.events if isinstance(event, Noted)}


def rewards(cursor) -> list[tuple[str | None, float, str]]:
    return [(event.role, event.value, event.name) for event in cursor.events if isinstance(event, Rewarded)]


def asked(cursor) -> list[dict[str, Any]]:
    return [dict(event.prompts) for event in cursor.events if isinstance(event, Asked)]


@pytest.mark.slow
def test_an_agents_questions_are_decisions_and_what_it_returns_is_what_they_earn():
    cursor, samples = played(world("plain"))
    number = json.loads(world("plain").task("train", 0).given)["number"]
    assert [(sample.role, sample.text) for sample in samples] == [
        ("lead", f"lead: plan {number}"), ("worker", f"worker: do lead: plan {number}"),
    ]  # fmt: skip
    assert rewards(cursor) == [("lead", -0.1, "returned"), (None, 0.5, "team")]
    assert (noted(cursor)["length"], cursor.log.solved) == (len(samples[1].text), False)
    cursor, samples = played(world("asynchronous"))
    assert (len(samples), cursor.log.solved, rewards(cursor)) == (1, True, [(None, 1.0, "team")])


def test_tasks_that_are_a_list_are_split_by_content():
    environment = world("plain")
    lots = [{environment.task(split, index).given for index in range(environment.count(split))} for split in SPLITS]
    assert [len(lot) for lot in lots] == [environment.count(split) for split in SPLITS]
    assert sum(map(len, lots)) == len(set.union(*lots)) == 60
    assert min(map(len, lots)) > 0


@pytest.mark.slow
def test_questions_at_once_are_one_point_whatever_order_they_come_in():
    logs = [played(world("parallel"))[0] for _ in range(3)]
    (nodes, last), *others = [asked(cursor) for cursor in logs]
    assert len(nodes) == 6
    assert set(last) == {"lead"}
    assert others == [[nodes, last]] * 2
    assert logs[0].events == logs[1].events == logs[2].events


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tools", "responses"])
def test_tools_two_turns_and_own_words_that_come_back_are_own_tokens(name):
    cursor, samples = played(world(name), looks)
    assert [sample.text for sample in samples] == [f"I look\n{CALL}"] * 2 + ["done"]
    assert cursor.log.solved
    assert {key: noted(cursor).get(key) for key in ("own_words_kept", "own_words_changed", "words_of_others")} == {
        "own_words_kept": 3.0, "own_words_changed": None, "words_of_others": None,
    }  # fmt: skip
    (last,) = asked(cursor)[-1].values()
    replies = [message.content for message in last if message.role == "assistant"]
    assert [reply.ids for reply in replies] == [sample.completion_ids[:-1] for sample in samples[:2]]
    assert [message.content for message in last if message.role == "tool"] == [
        "seen call_lead_0_0", "seen call_lead_1_0",
    ]  # fmt: skip
    system = str(last[0].content)
    assert system.startswith("You look.\n\n# Tools\n")
    assert '"name": "look"' in system
    assert "strict" not in system


@pytest.mark.slow
def test_equal_questions_at_once_are_draws_and_one_that_comes_later_is_counted():
    cursor, _ = played(world("twins"))
    assert [len(prompts) for prompts in asked(cursor)] == [3, 1, 1, 1]
    assert (noted(cursor)["repeated"], noted(cursor)["ignored"]) == (1, 2)


@pytest.mark.slow
def test_siblings_that_say_the_same_are_asked_the_same():
    prompts = [[sample.prompt_ids for sample in played(world("tools"), looks, episode=at)[1]] for at in range(2)]
    assert prompts[0] == prompts[1]


@pytest.mark.slow
def test_words_that_come_back_changed_are_text_and_are_counted():
    cursor, _ = played(world("edits"), lambda role, prompt, rng: f"I look\n{CALL}")
    found = noted(cursor)
    assert (found["own_words_kept"], found["own_words_changed"], found["words_of_others"]) == (1.0, 2.0, 1.0)
    own = [
        [isinstance(message.content, Reply) for message in prompts["lead"] if message.role == "assistant"]
        for prompts in asked(cursor)
    ]
    assert own == [[], [False], [False], [True], [False]]
    assert '"far": true' in str(asked(cursor)[2]["lead"])


@pytest.mark.slow
def test_words_are_those_of_the_role_that_said_them():
    cursor, _ = played(world("shares"))
    found = noted(cursor)
    assert (found["own_words_kept"], found["own_words_changed"]) == (1, 1)
    own = [message.content for prompts in asked(cursor) for prompt in prompts.values() for message in prompt]
    assert [reply.role for reply in own if isinstance(reply, Reply)] == ["worker"]


def test_a_stop_string_ends_a_reply():
    assert played(world("stops"))[0].log.solved


def test_an_answer_that_came_is_not_drawn_again_for_a_client_that_says_it_asks_again():
    cursor, samples = played(world("again"))
    first, second, third = cursor.log.outcome.reason.split()
    assert (first, second, third) == ("chatcmpl-lead_0", "chatcmpl-lead_0", "chatcmpl-lead_1")
    assert len(samples) == 2
    assert noted(cursor)["repeated"] == 1


def test_an_agent_goes_on_only_where_all_that_it_was_answered_is_the_same():
    agent = at_work.Agent(("m", "", "f"), ("lead",), 1.0)

    async def waits() -> list[bool]:
        run = at_work.AgentRun(agent, 1, 0, [["lead", "d0", "x"]])
        run.asked = [run.post("lead", {"turns": []}, False)]
        asked = ["lead", run.asked[0].digest, "answer"]
        places = [
            (agent, 1, 0, [["lead", "d0", "x"], asked]),
            (agent, 1, 0, [["lead", "d0", "y"], asked]),
            (agent, 1, 0, [["lead", "d0", "x"], ["lead", "other", "answer"]]),
            (agent, 1, 0, [["lead", "d0", "x"]]),
            (agent, 1, 1, [["lead", "d0", "x"], asked]),
            (agent, 2, 0, [["lead", "d0", "x"], asked]),
        ]
        return [run.waits_at(*place) for place in places]

    assert asyncio.run(waits()) == [True, False, False, False, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("free", [1.0, 0.0])
def test_agents_wait_only_where_memory_is_left_and_are_run_again_where_it_is_not(free, monkeypatch):
    started = []
    start = at_work.Agents._started
    monkeypatch.setattr(at_work.Agents, "_started", lambda *args: started.append(args) or start(*args))
    monkeypatch.setattr(at_work.ram, "free", lambda: free * at_work.ram.total())
    environment = world("plain")
    play = playing(environment)
    cursors = [play.start(environment.task("train", index)) for index in range(4)]

    async def go():
        await play.together(*(play.run(cursor) for cursor in cursors))

    one(play, go())
    assert [cursor.log.outcome is not None and cursor.log.rewards()["lead"] for cursor in cursors] == [-0.1] * 4
    assert (len(started) > 4) == (not free), len(started)


@pytest.mark.slow
def test_streams_are_whole_in_both_protocols():
    assert played(world("streams"))[0].log.solved


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_a_client_that_waits_a_moment_asks_three_times_and_gets_one_sample(index):
    environment = world("slow")
    play = playing(environment, engine=Slow)
    cursor, samples = played(environment, index=index, play=play)
    assert cursor.log.solved
    assert (len(samples), play.budget.engine_calls, play.budget.dropped) == (1, 1, {})


FAULTS = {
    "leaves": ("client_lost", "did not wait for its answer"),
    "abandons": ("client_lost", "ended before it had all of its answers"),
    "killed": ("agent_crash", "ended by SIGKILL"),
    "crashes": ("agent_error", f"the agent failed: KeyError: 'lead: hello' ({AGENTS}:"),
    "hangs": ("agent_hang", "asked nothing and did not end in 1 s"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_what_goes_wrong_in_an_agent_drops_its_episode_by_name(name, monkeypatch):
    monkeypatch.setattr(at_work, "RETRY_S", 1.0)
    environment = world(name, patience_s=1.0 if name == "hangs" else 30.0)
    play = playing(environment, engine=Slow if name in ("leaves", "abandons", "killed") else ScriptedEngine)
    stage, message = FAULTS[name]
    fault = None
    for _ in range(2):
        cursor = play.start(environment.task("train", 0))
        fault = one(play, play.run(cursor))
        assert isinstance(fault, Unavailable)
        assert fault.stage == stage
        assert message in str(fault)
        assert not rewards(cursor)
    assert play.budget.dropped == {stage: 2}


@pytest.mark.slow
def test_rewards_on_the_way_go_to_what_was_said_last_or_to_the_answer_that_they_name():
    cursor, _ = played(world("posts"))
    assert [event.value for event in cursor.events if isinstance(event, Rewarded)] == [0.25, 0.5, 1, 2]
    got = [(event.role, event.point) for event in cursor.events if isinstance(event, Rewarded)]
    assert got[:2] == [("lead", 0), ("lead", 1)]
    left = next(speaker for speaker, prompt in asked(cursor)[2].items() if "left" in str(prompt))
    assert got[2] == (left, 2)
    assert {role for role, _ in got[2:]} == {"worker#0", "worker#1"}
    cursor, _ = played(world("early"))
    assert noted(cursor)["code"] == 409
    cursor, _ = played(world("misnamed"))
    assert noted(cursor)["code"] == 400


@pytest.mark.slow
def test_branches_are_the_same_agent_run_again_and_one_that_differs_is_refused_by_name():
    scripts = {"tools": looks, "twins": lambda role, prompt, rng: str(rng.randint(0, 9))}
    for name in ("plain", "tools", "parallel", "twins", "chance", "posts"):
        environment = world(name)
        play = playing(environment, scripts.get(name, echo))
        found = one(play, ATGRPO(num_generations=3).collect(play, environment.task("train", 0)))
        assert all(len(group.members) == 3 for group in found.groups)
        assert not play.budget.dropped
    environment = world("dated")
    play = playing(environment)
    with pytest.raises(EnvError, match=r"not deterministic: a branch and the story went apart.*such as .*drmas"):
        one(play, ATGRPO(num_generations=2).collect(play, environment.task("train", 0)))
    play = playing(environment)
    with pytest.raises(EnvError, match=r"question 1 of role 'worker' was another one.*take a method .*drmas"):
        one(play, forked(play, environment))
    play = playing(environment)
    found = one(play, DrMAS(num_generations=2).collect(play, environment.task("train", 0)))
    assert len(found.groups) == 2


@pytest.mark.slow
def test_an_agent_is_the_same_in_another_process_with_another_hash_seed():
    code = (
        "from tests.gateway.test_gateway import played, world; "
        "print([sample.prompt_ids for sample in played(world('chance'))[1]])"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."}, cwd=AGENTS.parents[2],
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert found[0] == found[1] == f"{[sample.prompt_ids for sample in played(world('chance'))[1]]}\n"


@pytest.mark.slow
def test_what_cannot_be_promised_is_refused_by_name_and_sampling_is_the_runs():
    cursor, samples = played(world("refused"))
    assert cursor.log.solved, cursor.log.outcome
    assert noted(cursor)["ignored"] == 1
    assert (samples[0].temperature, len(samples[0].completion_ids)) == (1.0, 3)
    _, samples = played(world("demands", force="ask", max_tokens=4096), lambda role, prompt, rng: prompt)
    assert "You must call the function look." in samples[0].text
    assert 'Answer with a JSON object only of this schema: {"b": 1}' in samples[1].text


def test_a_key_opens_its_own_run_alone():
    cursor, _ = played(world("keys"), index=1)
    assert json.loads(cursor.log.outcome.reason) == [401, 404, 409, 404]


@pytest.mark.slow
def test_two_runs_in_one_process_are_apart():
    """Their keys, swapped, open nothing; a page of another's name neither; and a run that is over is closed."""
    here = at_work.agents()
    environment = world("plain")
    agent = next(event for event in played(environment)[0].events if event.kind == "called").args[0]

    def turn(number: int):
        return at_work.turn(agent, {"number": number}, 0, [], 0)

    first, second = (turn(number) for number in (1, 2))
    assert first != second
    one_, two = [run for run in here.runs.values() if run.asked][-2:]

    def post(run, key: str, host: str = "127.0.0.1") -> int:
        request = urllib.request.Request(
            f"{here.door.url}/e/{run.token}/lead/reward",
            b'{"reward": 1}',
            {"Authorization": f"Bearer {key}", "Host": host},
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert (post(one_, two.key), post(two, one_.key), post(one_, one_.key, "evil.example")) == (401, 401, 403)
    assert post(one_, one_.key) == 409  # nobody has spoken yet
    ((role, digest, _),) = first["asks"]
    answer = {"text": "x", "calls": [], "finish": "stop", "tokens": 1, "id": "lead_0"}
    assert "asks" in at_work.turn(agent, {"number": 1}, 0, [[role, digest, answer]], 0)
    assert post(one_, one_.key) == 200
    here.loop.call_soon_threadsafe(here._close, one_)
    assert post(one_, one_.key) == 409


def test_a_request_that_its_client_left_is_the_same_one_when_it_comes_again():
    """Some ask again in a loop of their own, and do not say so."""

    async def posts() -> list[bool]:
        run = at_work.AgentRun(at_work.Agent(("m", "", "f"), ("lead",), 1.0), None, 0, [])
        first = run.post("lead", {"turns": []}, False)
        first.waits = 1
        found = [run.post("lead", {"turns": []}, False) is first]  # somebody still listens: another draw
        found.append(run.post("lead", {"turns": []}, True) is first)
        run.posts[1].waits, first.waits = 1, 0
        found.append(run.post("lead", {"turns": []}, False) is first)
        found.append(run.post("lead", {"turns": []}, True) is first)
        first.had = True
        for post in run.posts:
            post.had = True
        found.append(run.post("lead", {"turns": []}, False) is first)
        return found

    assert asyncio.run(posts()) == [False, False, True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("index", range(8))
def test_what_an_agent_returns_is_checked(index):
    environment = world("returns")
    tasks = {
        json.loads(environment.task("train", at).given)["number"] % 8: at for at in range(environment.count("train"))
    }
    words = [
        "gave no reward",
        "'reward' is of another kind; return a number, or an object of reward",
        "numbers that JSON can write",
        "unknown 'rewad'; did you mean 'reward'",
        "no role 'led'; did",
        "'reward' is of another kind; return a number, or an object of reward",
        "'rewards' is of another kind",
        "'metrics' is of another kind",
    ]
    with pytest.raises(EnvError, match=words[index]):
        played(environment, index=tasks[index])


def test_a_question_that_outgrows_the_context_is_said_to_the_agent():
    class Narrow(ScriptedEngine):
        def context(self, policy):
            return 500

    environment = world("long")
    cursor, samples = played(environment, play=playing(environment, engine=Narrow))
    assert len(samples) == 1
    assert (cursor.log.solved, cursor.log.outcome.reason) == (False, "the prompt of lead outgrew the context")


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("nowhere.py:run", "nowhere.py does not exist"),
        ("agents", "'agents' names no function; name your agent: gateway:FILE.py:FUNCTION"),
        ("{here}/agents.py:plian", "no function plian; did you mean 'plain'"),
        ("{tmp}/bare.py:run", r"write roles = \(\"planner\""),
        ("{tmp}/idle.py:run", "write tasks"),
        ("{tmp}/broken.py:run", r"does not import: .*no_such_module.* \(.*broken.py:2\)$"),
        ("{tmp}/garbled.py:run", r"does not import: SyntaxError: .*garbled.py, line 1\)$"),
        ("{tmp}/bare_tasks.py:run", r"write tasks\(split\), with these arguments \(too many positional"),
        ("{tmp}/string.py:run", r"roles = 'asker'; write a tuple"),
        ("{tmp}/yields.py:run", r"write run\(task, team\) as a function that returns, without yield"),
        ("{tmp}/short.py:run", r"write run\(task, team\), with these arguments \(too many positional"),
        ("{tmp}/odd.py:run", "must be JSON"),
        ("{tmp}/named.py:run", "the role 'seed' cannot be written as team.ROLE"),
    ],
)
def test_an_agent_that_cannot_be_used_is_told_in_a_line(agent, says, tmp_path):
    (tmp_path / "bare.py").write_text("def run(task, team): ...")
    (tmp_path / "idle.py").write_text("roles = ('a',)\ndef run(task, team): ...")
    (tmp_path / "broken.py").write_text("\nimport no_such_module")
    (tmp_path / "garbled.py").write_text("def (")
    (tmp_path / "bare_tasks.py").write_text("roles = ('a',)\ndef tasks(): return []\ndef run(task, team): ...")
    (tmp_path / "string.py").write_text("roles = 'asker'\ntasks = [1]\ndef run(task, team): ...")
    (tmp_path / "yields.py").write_text("roles = ('a',)\ntasks = [1]\ndef run(task, team): yield 1")
    (tmp_path / "short.py").write_text("roles = ('a',)\ntasks = [1]\ndef run(task): ...")
    (tmp_path / "named.py").write_text("roles = ('a', 'seed')\ndef run(task, team): ...")
    (tmp_path / "odd.py").write_text("roles = ('a',)\ntasks = [{1, 2}]\ndef run(task, team): ...")
    with pytest.raises(ConfigError, match=says) as caught:
        load_config(f"gateway:{agent.format(here=AGENTS.parent, tmp=tmp_path)}")
    assert "\n" not in str(caught.value)


def test_a_name_with_an_argument_is_a_setting():
    config = load_config(f"gateway:{AGENTS}:plain", ["policies.team.model=starter"])
    assert config.environment == world("plain")
    assert config.names["environment"] == "gateway"
    for model in ("starter", "some/model"):
        assert load_config(f"gateway:{AGENTS}:plain", [f"policies.team.model={model}"]).names["algorithm"] == "drmas"
    for name, says in (("maths:x", "maths is about nothing; write maths"), ("gatway:x", "did you mean")):
        with pytest.raises(ConfigError, match=says):
            load_config(name)
    with pytest.raises(ConfigError, match="sets agent, which is written beside it"):
        load_config(f"gateway:{AGENTS}:plain", ["environment.agent=x"])


@pytest.mark.slow
def test_a_proxy_of_the_machine_does_not_stand_before_it(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    environment = world("plain", patience_s=60.0)  # an agent of its own, which is started now
    assert played(environment)[1]


@given(st.text(max_size=60), st.booleans())
def test_a_call_is_read_strictly(noise, before):
    text = f"{noise}\n{CALL}" if before else f"{CALL}{noise}"
    said, calls = parsed(text, "call_lead_0")
    if "<tool_call>" not in noise and "</tool_call>" not in noise:
        assert [(call.id, call.name, call.arguments) for call in calls] == [("call_lead_0_0", "look", {"far": False})]
        assert said == noise.strip()


@pytest.mark.parametrize(
    "written",
    [
        "{",
        "[1]",
        '{"name": 1}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": {"x": NaN}}',
        "[" * 9999,
    ],
)
def test_a_call_that_is_none_stays_text(written):
    text = f"a <tool_call>{written}</tool_call> {CALL}"
    assert parsed(text, "c") == (text, ())
