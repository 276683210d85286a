"""The contract of engines, fronts and the engine's own loop, kept by every implementation, the docs' own too."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coterie import Environment, load_config, train
from coterie.algorithms.at_grpo import ATGRPO
from coterie.engines.lean import Lean
from coterie.engines.remote import RemoteEngine, RemotePolicy
from coterie.engines.remote_config import RemoteConfig
from coterie.engines.scripted import ScriptedEngine
from coterie.engines.transformers import TransformersConfig, TransformersEngine
from coterie.errors import EngineError, Unavailable
from coterie.kernel.engine import Engine, Request
from coterie.kernel.front import RETRIES, Eager, Waves, check_answers
from coterie.kernel.loops import Hosted, drive
from coterie.kernel.play import Play, Sampling
from coterie.learning.distribution import log_distribution
from coterie.models.load import save_model
from coterie.registry import find
from tests.runs import answered
from tests.servers import serving
from tests.test_docs import ROOT, blocks
from tests.toys import TEAM, Agree, Sequential, counting, policies, run, tiny


def plain(folder: Path) -> type[Engine]:
    """The engine of docs/extending.md."""
    file = folder / "mine.py"
    file.write_text("\n\n".join(blocks(ROOT / "docs/extending.md", "python")))
    return find("engine", f"{file}:Plain", Engine)


@pytest.fixture(params=["scripted", "transformers", "transformers, one row at a time", "of the docs", "remote"])
def engine(request, tmp_path) -> Iterator[Engine]:
    if request.param != "remote":
        yield made(request.param, tmp_path)
        return
    with serving(lambda body, number: f"{body['messages'][0]['content']} {body.get('seed')}") as server:
        yield RemoteEngine({"p": RemotePolicy("p", "gpt", RemoteConfig(url=server.url))})


def made(name: str, folder: Path) -> Engine:
    model = tiny(scale=3.0)
    match name:
        case "scripted":
            return ScriptedEngine(lambda role, prompt, rng: f"{prompt} {rng.randrange(10)}")
        case "of the docs":
            return plain(folder)(policies({"p": model}))
        case _:
            return TransformersEngine(
                policies({"p": model}), TransformersConfig(memory_gib=1e-6 if "one" in name else 1)
            )


def wordy(engine: Engine) -> bool:
    """Whether it answers with text and knows no distribution."""
    return isinstance(engine, ScriptedEngine | RemoteEngine)


def asked(engine: Engine, number: int, *seeds: int, stop=(), temperature=1.0, top_p=1.0) -> Request:
    prompt = f"say {number}" if wordy(engine) else tuple(5 + (number + at) % 90 for at in range(6))
    ids = tuple(str(prompt).encode()) if isinstance(prompt, str) else prompt
    return Request((f"t{number}", 0, "0@0", "a"), "p", "a", str(prompt), ids, seeds, temperature, top_p, 8, stop)


def test_it_answers_each_seed_of_each_request_and_the_same_again(engine):
    wave = [asked(engine, 1, 7, 8, 9), asked(engine, 2, 7), asked(engine, 3, 1, 2)]
    with Hosted(engine) as hosted:
        first = answered(hosted, wave)
        again = answered(hosted, wave)
        alone = [answered(hosted, [one])[0] for one in reversed(wave)][::-1]
    assert [len(samples) for samples in first] == [3, 1, 2]
    assert first == again
    check_answers(engine, wave, first)
    for one, samples, lone in zip(wave, first, alone, strict=True):
        assert [sample.completion_ids for sample in samples] == [sample.completion_ids for sample in lone]
        for seed, sample in zip(one.seeds, samples, strict=True):
            assert (sample.role, sample.policy, sample.version, sample.seed) == ("a", "p", 0, seed)
            assert sample.prompt_ids == one.prompt_ids
            assert 1 <= len(sample.completion_ids) <= 8
            assert sample.finish in ("stop", "string", "length")


def test_what_it_reports_is_the_distribution_that_it_sampled(engine):
    if wordy(engine):
        pytest.skip("it has none")
    model = engine.policies["p"].model
    for settings in ({}, {"temperature": 0.7}):
        with Hosted(engine) as hosted:
            (samples,) = answered(hosted, [asked(engine, 1, *range(12), **settings)])
        for sample in samples:
            ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]])
            with torch.no_grad():
                logits = model.net(input_ids=ids, use_cache=False).logits[0, len(sample.prompt_ids) - 1 : -1]
            full = log_distribution(logits, sample.temperature, model.vocabulary)
            expected = full.gather(-1, torch.tensor(sample.completion_ids)[:, None])[:, 0]
            assert list(sample.logprobs) == pytest.approx(expected.tolist(), rel=0, abs=1e-4)


def test_greedy_takes_the_likeliest_and_is_certain_of_it(engine):
    if wordy(engine):
        pytest.skip("it has none")
    with Hosted(engine) as hosted:
        ((one, other),) = answered(hosted, [asked(engine, 1, 3, 4, temperature=0.0)])
    assert one.completion_ids == other.completion_ids
    assert set(one.logprobs) == {0.0}


@pytest.mark.slow
def test_a_stop_string_ends_a_reply_and_is_left_out_of_it(engine):
    with Hosted(engine) as hosted:
        (samples,) = answered(hosted, [asked(engine, 1, *range(40))])
        text = next(sample.text for sample in samples if len(sample.text) > 2)
        stop = text[1]
        (cut,) = answered(hosted, [asked(engine, 1, *range(40), stop=(stop,))])
    assert not any(stop in sample.text for sample in cut)


def test_sync_takes_the_weights_over_under_a_new_version(engine):
    wave = [asked(engine, 1, 1, temperature=0.0)]
    with Hosted(engine) as hosted:
        before = answered(hosted, wave)
        if not wordy(engine):
            with torch.no_grad():
                for weight in engine.policies["p"].model.net.parameters():
                    weight.copy_(torch.randn_like(weight) * 0.3)
        drive(hosted.sync("p", 5))
        after = answered(hosted, wave)
    assert after[0][0].version == 5
    if not wordy(engine):
        assert after[0][0].completion_ids != before[0][0].completion_ids


def test_it_starts_again_and_closes_twice(engine):
    wave = [asked(engine, 1, 1, 2)]
    hosted, threads = Hosted(engine), threading.active_count()
    answers = []
    for _ in range(2):
        hosted.open()
        hosted.open()
        drive(hosted.start())  # as after a fault
        answers.append(answered(hosted, wave))
        hosted.shut()
        hosted.shut()
    assert answers[0] == answers[1]
    assert threading.active_count() == threads


def test_a_task_in_the_background_goes_on_while_nobody_asks(tmp_path):
    mine = plain(tmp_path)(policies({"p": tiny()}))
    with Hosted(mine):
        beats, waited = mine.beats, threading.Event()  # pyright: ignore[reportAttributeAccessIssue]
        for _ in range(500):
            waited.wait(0.01)
            if mine.beats > beats + 3:  # pyright: ignore[reportAttributeAccessIssue]
                break
    assert mine.beats > beats + 3  # pyright: ignore[reportAttributeAccessIssue]
    assert mine.heart.cancelled()  # pyright: ignore[reportAttributeAccessIssue]


class Crashes(ScriptedEngine):
    """Dies in its second wave, and is back when it is started."""

    def __init__(self, comes_back: bool = True) -> None:
        super().__init__(lambda role, prompt, rng: rng.choice("ab"))
        self.up, self.starts, self.comes_back = False, 0, comes_back

    async def start(self) -> None:
        self.starts += 1
        if self.starts > 1 and not self.comes_back:
            raise Unavailable("engine", "it stays down")
        self.up = True

    async def generate(self, requests):
        if len(self.waves) == 1 and self.starts == 1:
            self.up = False
        if not self.up:
            raise Unavailable("engine", "the server has gone")
        return await super().generate(requests)


def rollout(engine: Engine, front: str = "waves", environment=Agree()):  # noqa: B008
    play = Play(environment, TEAM, engine, seed=0, sampling=Sampling(front=front))  # pyright: ignore[reportArgumentType]

    async def collect():
        algorithm = ATGRPO(num_generations=3)
        tasks = [environment.task("train", index) for index in range(5)]
        return await play.together(*(algorithm.collect(play, task) for task in tasks))

    return drive(collect()), play.budget


@pytest.mark.parametrize("front", ["waves", "eager"])
def test_an_engine_that_crashed_is_started_and_asked_again_and_nothing_differs(front):
    whole, _ = rollout(ScriptedEngine(lambda role, prompt, rng: rng.choice("ab")), front)
    with Hosted(Crashes()) as hosted:
        found, budget = rollout(hosted, front)
    assert found == whole
    assert budget.retried["engine"] >= 1
    assert not budget.dropped


def test_one_that_stays_down_drops_what_asked():
    with Hosted(Crashes(comes_back=False)) as hosted:
        found, budget = rollout(hosted)
    assert all(isinstance(one, Unavailable) for one in found)
    assert budget.dropped["engine"] >= 5
    assert budget.retried["engine"] >= RETRIES


def test_one_that_does_not_start_is_one_line():
    class Never(ScriptedEngine):
        async def start(self) -> None:
            raise Unavailable("engine", "no port 8000")

    hosted, threads = Hosted(Never(lambda role, prompt, rng: "")), threading.active_count()
    with pytest.raises(EngineError, match="engine Never did not start: no port 8000"):
        hosted.open()
    assert threading.active_count() == threads


def changed(**fields: Any):
    """Spoils every sample alike."""
    return lambda given: [tuple(replace(sample, **fields) for sample in samples) for samples in given]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda given: given[:-1], "answered 4 of 5 requests"),
        (lambda given: [samples[:-1] for samples in given], "a request for 3 samples with 2"),
        (lambda given: list(reversed(given)), "another role, policy or prompt|a sample of seed"),
        (changed(policy="other"), "another role, policy or prompt"),
        (changed(temperature=0.5), "and temperature 0.5; asked for were"),
        (changed(seed=0), "a sample of seed 0"),
        (changed(finish="context"), "finish 'context'; say 'stop'"),
        (changed(completion_ids=[1], logprobs=[0.0]), "give a coterie.Sample whose ids are a tuple"),
        (changed(text=None), "whose text is a string"),
        (changed(completion_ids=(1,) * 999, logprobs=(0.0,) * 999), "gave 999 tokens where 1 were allowed"),
        (changed(completion_ids=(300,), logprobs=(0.0,)), "tokens outside the vocabulary, which are 0 to 299"),
        (changed(completion_ids=(-1,), logprobs=(0.0,)), "tokens outside the vocabulary"),
        (changed(completion_ids=(1,), logprobs=(0.5,)), "above 0, or below -700"),
        (changed(completion_ids=(1,), logprobs=(math.nan,)), "above 0, or below -700"),
        (changed(completion_ids=(1,), logprobs=(-math.inf,)), "above 0, or below -700"),
        (changed(completion_ids=(1,), logprobs=(-9999.0,)), "above 0, or below -700"),
    ],
)
def test_what_is_no_answer_is_one_line(spoil, message):
    class Spoilt(ScriptedEngine):
        async def generate(self, requests):
            return spoil(await super().generate(requests))

    engine = Spoilt(lambda role, prompt, rng: rng.choice("ab"))
    engine.policies = dict.fromkeys(TEAM.policies, SimpleNamespace(vocabulary=300))
    with pytest.raises(EngineError, match=message):
        rollout(engine)


def test_answers_after_a_fault_are_looked_at_too_and_so_are_too_many():
    engine = ScriptedEngine(lambda role, prompt, rng: "x")
    asked = [Request((f"t{at}", 0, "0@0", "a"), "p", "a", "x", (1,), (7,), 1.0, 1.0, 8, ()) for at in range(2)]
    (good,) = run(engine.generate(asked[1:]))
    check_answers(engine, asked, [Unavailable("engine", "gone"), good])
    for given, told in (
        ([Unavailable("engine", "gone"), (replace(good[0], seed=8),)], "a sample of seed 8"),
        ([good, good, good], "answered 3 of 2 requests"),
        ([Unavailable("engine", "gone"), good * 2], "a request for 1 samples with 2"),
    ):
        with pytest.raises(EngineError, match=told):
            check_answers(engine, asked, given)


def test_one_that_raises_while_it_starts_says_what_and_where_and_closing_half_of_it_hides_nothing():
    class Half(ScriptedEngine):
        async def start(self) -> None:
            raise RuntimeError("no memory")

        async def close(self) -> None:
            raise AttributeError("nothing is up")

    hosted, threads = Hosted(Half(lambda role, prompt, rng: "")), threading.active_count()
    with pytest.raises(
        EngineError, match=r"engine Half did not start: RuntimeError: no memory \(.*test_contract.py:\d+"
    ):
        hosted.open()
    assert threading.active_count() == threads


@pytest.mark.parametrize("where", ["generate", "beside"])
def test_an_exit_in_an_engine_is_an_error_and_leaves_nobody_waiting(where):
    class Exits(ScriptedEngine):
        async def generate(self, requests):
            if where == "generate":
                raise SystemExit(3)
            task = asyncio.get_running_loop().create_task(self.leave())
            await asyncio.wait([task])
            return await super().generate(requests)

        async def leave(self):
            raise SystemExit(3)

    with Hosted(Exits(lambda role, prompt, rng: rng.choice("ab"))) as hosted:
        if where == "generate":
            with pytest.raises(RuntimeError, match="SystemExit"):
                rollout(hosted)
        else:
            found, _ = rollout(hosted)
            assert not any(isinstance(one, Exception) for one in found)


class Late(ScriptedEngine):
    """Each policy's wave waits for the other's: they are answered side by side, or never."""

    def __init__(self) -> None:
        super().__init__(lambda role, prompt, rng: rng.choice("ab"))
        self.asked: set[str] = set()
        self.both = asyncio.Event()

    async def generate(self, requests):
        self.asked.add(requests[0].policy)
        if len(self.asked) == 2:
            self.both.set()
        await asyncio.wait_for(self.both.wait(), 30)
        return await super().generate(requests)


def test_policies_are_answered_side_by_side():
    from tests.toys import Simultaneous

    found, _ = rollout(Late(), environment=Simultaneous())
    assert not any(isinstance(one, Exception) for one in found)


def test_both_fronts_give_equal_logs_where_the_engine_does():
    for environment in (Sequential(max_turns=2), Agree()):
        waves, budget = rollout(ScriptedEngine(counting()), "waves", environment)
        eager, other = rollout(ScriptedEngine(counting()), "eager", environment)
        assert waves == eager
        assert (budget.prompt_tokens, budget.sampled_tokens) == (other.prompt_tokens, other.sampled_tokens)
        assert budget.engine_calls < other.engine_calls
    for front, kind in (("waves", Waves), ("eager", Eager)):
        play = Play(Agree(), TEAM, ScriptedEngine(counting()), seed=0, sampling=Sampling(front=front))
        assert type(play._front) is kind


class Busy(ScriptedEngine):
    """Generates in pieces until somebody waits for its end."""

    async def generate(self, requests):
        while not self.closing:  # noqa: ASYNC110  (the contract has a flag)
            await asyncio.sleep(0.001)
        raise Unavailable("engine", "it is being closed")


def test_an_engine_is_told_that_somebody_waits_for_its_end():
    hosted = Hosted(Busy(lambda role, prompt, rng: ""))
    hosted.open()
    future = hosted._there.submit(hosted.engine.generate([]))
    hosted.shut()
    assert future.cancelled() or isinstance(future.exception(1), Unavailable)


def test_inside_a_running_loop_what_drives_goes_aside():
    async def notebook():
        return rollout(ScriptedEngine(counting()))[0], threading.current_thread() is threading.main_thread()

    found, here = asyncio.run(notebook())
    assert here
    assert found == rollout(ScriptedEngine(counting()))[0]


@pytest.mark.slow
def test_an_engine_that_does_not_come_up_leaves_no_run_behind(tmp_path):
    save_model(tiny(), tmp_path / "tiny")
    (tmp_path / "mine.py").write_text(
        "from coterie import Engine, Unavailable\n\n\n"
        "class Down(Engine):\n"
        "    async def start(self):\n"
        "        raise Unavailable('engine', 'no port 8000')\n\n"
        "    async def generate(self, requests):\n"
        "        return []\n"
    )
    sets = [f"engine.name={tmp_path / 'mine.py'}", f"policies.team.model={tmp_path / 'tiny'}"]
    with pytest.raises(EngineError, match="engine Down did not start: no port 8000"):
        train(load_config("tests/toys.py:Agree", sets), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_eager_front_says_that_a_resume_is_not_exact(tmp_path):
    save_model(tiny(), tmp_path / "tiny")
    sets = ["engine.front=eager", f"policies.team.model={tmp_path / 'tiny'}"]
    assert any("a resume is not exact" in remark for remark in load_config("tests/toys.py:Agree", sets).remarks)


def test_the_embedded_engine_stops_between_tokens_for_its_end():
    engine = TransformersEngine(policies({"p": tiny()}))
    engine.closing = True
    with pytest.raises(Unavailable, match="it is being closed"):
        asyncio.run(engine.generate([asked(engine, 1, 1)]))


def test_the_embedded_engine_stops_between_parts_of_the_prompts_for_its_end(monkeypatch):
    engine = TransformersEngine(policies({"p": tiny()}))
    asyncio.run(engine.generate([asked(engine, number, 1) for number in range(4)]))  # its costs are known now
    parts: list[int] = []
    read = Lean._read_some

    def read_and_end(self, ids, *rest):
        parts.append(len(ids))
        engine.closing = True
        return read(self, ids, *rest)

    monkeypatch.setattr(Lean, "reads", 6)  # a prompt of `asked`
    monkeypatch.setattr(Lean, "_read_some", read_and_end)
    with pytest.raises(Unavailable, match="it is being closed"):
        asyncio.run(engine.generate([asked(engine, number, 1) for number in range(4)]))
    assert parts == [1]


def test_shutting_tells_the_engine_before_it_waits():
    seen: list[bool] = []

    class Asked(ScriptedEngine):
        async def close(self) -> None:
            seen.append(self.closing)

    with Hosted(Asked(lambda role, prompt, rng: "")):
        pass
    assert seen == [True]


class Apart(ScriptedEngine):
    """Of its policies one may be down; it does not come back at once."""

    def __init__(self, down: str = "") -> None:
        super().__init__(counting())
        self.down, self.starts = down, 0

    async def start(self) -> None:
        self.starts += 1
        if self.starts == 2:
            raise Unavailable("start", "not yet")

    async def generate(self, requests):
        if requests[0].policy == self.down:
            raise Unavailable("engine", "it has gone")
        return await super().generate(requests)


class Either(Agree):
    """Odd tasks ask the one, even ones the other."""

    async def play(self, task, scene):
        await scene.ask("a" if task.number % 2 else "b", "pick")


def episodes(engine: Engine, indices: Sequence[int], environment: Environment):
    play = Play(environment, TEAM, engine, seed=0)

    async def go():
        return await play.together(*(play.run(play.start(play.task("train", index))) for index in indices))

    return drive(go()), play.budget


@pytest.mark.parametrize("down", [TEAM.roles["a"], TEAM.roles["b"]])
def test_one_policys_fault_is_its_own(down):
    engine = Apart(down)
    with Hosted(engine) as hosted:
        found, budget = episodes(hosted, (0, 1), Either())
    assert sum(isinstance(one, Unavailable) for one in found) == 1
    assert budget.retried["start"] == 1


def test_a_wave_is_in_the_order_of_keys_whoever_came_first():
    engine = ScriptedEngine(counting())
    episodes(engine, (3, 1, 2, 0), Agree())
    keys = [request.key for request in engine.waves[0]]
    assert keys == sorted(keys)
    assert len(keys) == 4


def test_time_with_several_waves_under_way_counts_once(monkeypatch):
    clock = iter([0.0, 5.0])
    monkeypatch.setattr("coterie.kernel.front.time.perf_counter", lambda: next(clock))
    front = Eager(ScriptedEngine(counting()))
    with front._timed(), front._timed():
        pass
    assert front.budget.engine_s == 5.0


def test_a_prompt_counts_once_however_often_it_is_answered():
    engine = ScriptedEngine(counting())
    request = replace(asked(engine, 1, 1), seeds=(1, 2, 3))
    front = Eager(engine)
    drive(front.ask((request,)))
    assert front.budget.prompt_tokens == len(request.prompt_ids)
    assert front.budget.replies[request.role] == 3


def test_every_policys_weights_are_taken_over_and_a_fault_of_it_is_tried_again():
    class Once(ScriptedEngine):
        def __init__(self, faults: int) -> None:
            super().__init__(counting())
            self.versions = {"x": 0, "y": 0}
            self.policies = {"x": None, "y": None}
            self.faults = faults

        async def sync(self, policy, version):
            if policy == "y" and self.faults:
                self.faults -= 1
                raise Unavailable("engine", "not now")
            await super().sync(policy, version)

    with Hosted(Once(RETRIES)) as hosted:
        hosted.take_over(3)
        assert hosted.engine.versions == {"x": 3, "y": 3}
    with Hosted(Once(RETRIES + 1)) as hosted, pytest.raises(EngineError, match="did not take over policy 'y': not now"):
        hosted.take_over(3)


def test_what_an_engine_has_in_the_background_ends_before_its_loop():
    ended: list[bool] = []

    class Beats(ScriptedEngine):
        async def start(self) -> None:
            self.heart = asyncio.get_running_loop().create_task(self.beat())
            await asyncio.sleep(0)

        async def beat(self) -> None:
            try:
                await asyncio.sleep(1e6)
            finally:
                ended.append(True)

    with Hosted(Beats(counting())):
        assert ended == []
    assert ended == [True]


def test_one_that_blocks_its_loop_is_given_up_on(monkeypatch):
    free = threading.Event()

    class Blocks(ScriptedEngine):
        async def generate(self, requests):
            free.wait(60)
            return await super().generate(requests)

    monkeypatch.setattr("coterie.kernel.loops.SHUT_S", 0.2)
    hosted = Hosted(Blocks(counting()))
    hosted.open()
    hosted._there.submit(hosted.engine.generate([]))
    with pytest.raises(EngineError, match=r"engine Blocks has not closed within .* something in it waits without"):
        hosted.shut()
    free.set()
