"""vLLM as an engine, for real, on a processor: `make test-vllm` installs it beside, for it wants another transformers.

Every log-probability is compared with a plain forward of the policy's own network.
"""

import asyncio
import copy
import importlib.util
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
import torch

from coterie.engines import vllm as engine_file
from coterie.engines.vllm import VLLMEngine, _arguments
from coterie.engines.vllm_config import VLLMConfig
from coterie.engines.vllm_server import WANTED, _options
from coterie.errors import ConfigError, EngineError, Unavailable
from coterie.kernel.engine import Request
from coterie.kernel.front import Eager
from coterie.kernel.loops import Hosted, drive
from coterie.learning.distribution import log_distribution
from coterie.learning.policy import Policy
from coterie.models.adapters import adapted
from coterie.models.load import save_model
from tests.toys import policies, tiny

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("default"),
]
RIGHT = 1e-3
SETTINGS = VLLMConfig(memory_gib=0.25)


def network(seed: int = 0, *, tied: bool = True):
    """Heads of 32 numbers: with fewer vLLM's processor kernels cannot."""
    model = copy.deepcopy(tiny(seed, scale=3.0, hidden=64))
    if not tied:
        head = model.net.get_output_embeddings()
        head.weight = torch.nn.Parameter(torch.randn_like(head.weight) * 0.3)
        model.net.config.tie_word_embeddings = False
    return model


def drawn(model, seed: int, scale: float = 0.3) -> None:
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.trained:
            weight.copy_(torch.randn(weight.shape, generator=chance) * scale)


def asked(policy: str, number: int, *seeds: int, tokens: int = 40, **settings) -> Request:
    prompt = tuple(5 + (number + at) % 90 for at in range(tokens))
    settings = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 12, "stop": (), **settings}
    return Request((f"{policy}-{number}", 0, "0", policy), policy, "a", "x", prompt, seeds, **settings)


def apart(engine: VLLMEngine, samples) -> float:
    """The largest difference to the policy's own forward."""
    worst = 0.0
    for sample in samples:
        model = engine.policies[sample.policy].model
        ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]])
        with torch.no_grad():
            logits = model.net(input_ids=ids, use_cache=False).logits[0, len(sample.prompt_ids) - 1 : -1]
        known = log_distribution(logits, sample.temperature, model.vocabulary)
        own = known.gather(-1, torch.tensor(sample.completion_ids)[:, None])[:, 0]
        worst = max(worst, float((own - torch.tensor(sample.logprobs)).abs().max()))
    return worst


async def mixed(engine: VLLMEngine, order, number: int = 0):
    """Rows of several policies in one batch."""
    answers = await asyncio.gather(*(engine.generate([asked(name, number, 1, 2, 3, 4)]) for name in order))
    return [sample for (samples,) in answers for sample in samples]


@pytest.fixture(scope="module")
def adapters():
    """A base that plays a role itself, and two adapters on it."""
    base = network()
    base.net.requires_grad_(False)
    models = {name: adapted(base, rank=4, alpha=8.0, seed=at, where=name) for at, name in enumerate("ab")}
    for at, model in enumerate(models.values()):
        drawn(model, at)
    team = {"base": Policy("base", base, "frozen")}
    team |= {name: Policy(name, model, "lora") for name, model in models.items()}
    with Hosted(VLLMEngine(team, SETTINGS)) as hosted:
        yield hosted


@pytest.fixture(scope="module", params=["tied", "untied"])
def whole(request):
    with Hosted(VLLMEngine(policies({"p": network(tied=request.param == "tied")}), SETTINGS)) as hosted:
        yield hosted


def test_adapters_and_their_base_in_one_batch_are_exact_in_any_order_and_after_updates(adapters):
    number = 0
    for version in range(4):
        for order in itertools.permutations(("base", "a", "b")):
            number += 1
            assert apart(adapters.engine, drive(on(adapters, mixed(adapters.engine, order, number)))) < RIGHT
        for name in "ab":
            drawn(adapters.engine.policies[name].model, 10 * version + ord(name))
            drive(adapters.sync(name, version + 1))
    assert adapters.engine.versions == {"base": 0, "a": 4, "b": 4}


async def on(hosted: Hosted, coroutine):
    """Runs a coroutine on the engine's own loop."""
    return await hosted._brought(lambda: coroutine)


def test_whole_weights_are_taken_over_with_a_warm_cache_and_nothing_old_is_left(whole):
    wave = [asked("p", number, 1, 2, 3) for number in range(4)]
    for version in range(3):
        samples = [one for group in drive(whole.generate(wave)) for one in group]
        assert apart(whole.engine, samples) < RIGHT
        assert {sample.version for sample in samples} == {whole.engine.versions["p"]}
        drawn(whole.engine.policies["p"].model, version)
        drive(whole.sync("p", version + 1))


def test_equal_seeds_repeat_in_any_company_and_long_prompts(whole):
    wave = [asked("p", number, number, tokens=81) for number in range(64)]
    first = drive(whole.generate(wave))
    random.Random(0).shuffle(wave)
    again = dict(zip((one.key for one in wave), drive(whole.generate(wave)), strict=True))
    assert [again[f"p-{number}", 0, "0", "p"] for number in range(64)] == first


def test_temperature_stops_and_limits_are_kept(whole):
    cold, warm = drive(whole.generate([asked("p", 1, 1, 2, temperature=0.0), asked("p", 1, 1, 2, temperature=0.7)]))
    assert cold[0].completion_ids == cold[1].completion_ids
    assert set(cold[0].logprobs) == {0.0}
    assert apart(whole.engine, warm) < RIGHT
    (plain,) = drive(whole.generate([asked("p", 2, *range(20))]))
    stop = next(sample.text for sample in plain if len(sample.text) > 2)[1]
    (cut,) = drive(whole.generate([asked("p", 2, *range(20), stop=(stop,))]))
    assert any(sample.finish == "string" for sample in cut)
    assert not any(stop in sample.text for sample in cut)
    assert all(len(sample.completion_ids) <= 12 for sample in (*plain, *cut))
    vocabulary = whole.engine.policies["p"].model.vocabulary
    assert all(token < vocabulary for sample in (*plain, *cut) for token in sample.completion_ids)


def test_what_is_given_up_is_not_left_behind(whole):
    async def give_up():
        tasks = [
            asyncio.create_task(whole.engine.generate([asked("p", number, number, max_tokens=400)]))
            for number in range(100)
        ]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.5)
        return done

    done = drive(on(whole, give_up()))
    assert any(isinstance(one, asyncio.CancelledError) for one in done)
    (served,) = whole.engine.served
    assert served._engine._engine.get_num_unfinished_requests() == 0
    assert apart(whole.engine, drive(whole.generate([asked("p", 3, 1)]))[0]) < RIGHT


def below() -> list[psutil.Process]:
    """VLLM's processes."""
    return [child for child in psutil.Process().children(recursive=True) if "VLLM" in child.name().upper()]


@pytest.mark.parametrize("which", ["EngineCore", "Worker"])
def test_killed_in_mid_generation_it_comes_back_and_every_request_is_counted_once(whole, which):
    drawn(whole.engine.policies["p"].model, 77)
    drive(whole.sync("p", 9))
    front = Eager(whole)
    wave = [asked("p", number, number, number + 1, tokens=150, max_tokens=300) for number in range(300)]

    async def play():
        answers = asyncio.gather(*(front.ask((one,)) for one in wave))
        while not whole.engine.served[0]._engine._engine.get_num_unfinished_requests():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        core = psutil.Process(
            whole.engine.served[0]._engine._engine.engine_core.resources.engine_manager.processes[0].pid
        )
        (core if which == "EngineCore" else core.children()[-1]).send_signal(signal.SIGKILL)
        return await answers

    answers = [samples for (samples,) in drive(play())]
    assert [len(samples) for samples in answers] == [2] * 300
    assert apart(whole.engine, [sample for samples in answers for sample in samples]) < RIGHT
    assert {sample.version for samples in answers for sample in samples} == {9}
    assert front.budget.replies["a"] == 600
    assert front.budget.retried["engine"] > 0
    assert not front.budget.dropped


def test_half_an_update_is_never_sampled_from(whole, monkeypatch):
    write = engine_file.write

    def shorter(model, file):
        from safetensors.torch import load_file, save_file

        write(model, file)
        weights = load_file(file)
        name = next(key for key in weights if "down_proj" in key)
        save_file({**weights, name: weights[name][:-1].contiguous()}, file)

    monkeypatch.setattr(engine_file, "write", shorter)
    with pytest.raises(Unavailable, match="did not take over policy 'p'"):
        drive(whole.sync("p", 11))
    with pytest.raises(Unavailable, match="vLLM has ended"):
        drive(whole.generate([asked("p", 1, 1)]))
    monkeypatch.undo()
    drive(whole.start())
    drive(whole.sync("p", 12))
    assert apart(whole.engine, drive(whole.generate([asked("p", 1, 1)]))[0]) < RIGHT


def test_weights_that_did_not_arrive_are_found(whole, monkeypatch):
    drawn(whole.engine.policies["p"].model, 123)
    monkeypatch.setattr(engine_file._Served, "_put_whole", nothing)
    with pytest.raises(EngineError, match=r"vLLM and the learner differ by .* nats for policy 'p'"):
        drive(whole.sync("p", 13))
    monkeypatch.undo()
    drive(whole.start())
    assert apart(whole.engine, drive(whole.generate([asked("p", 1, 1)]))[0]) < RIGHT


async def nothing(self) -> None:
    """No weights go anywhere."""


def test_nothing_is_left_of_it_when_it_is_closed():
    before = {process.pid for process in below()}
    engine = VLLMEngine(policies({"p": network()}), SETTINGS)
    with Hosted(engine):
        mine = [process for process in below() if process.pid not in before]
        folder = engine.served[0]._folder
        assert folder.exists()
        assert mine
    psutil.wait_procs(mine, timeout=20)
    assert not any(process.is_running() for process in mine)
    assert not folder.exists()


def test_a_model_that_vllm_cannot_play_is_one_line():
    with pytest.raises(EngineError, match=r"^vLLM did not start: .*VLLM_LOGGING_LEVEL"):
        Hosted(VLLMEngine(policies({"p": copy.deepcopy(tiny())}), SETTINGS)).open()


def test_another_version_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(engine_file, "TESTED", "9.9.")
    with pytest.raises(ConfigError, match=r"vllm(-cpu)? 0\.\S+ was not tested; install 9\.9\.x"):
        Hosted(VLLMEngine(policies({"p": network()}), SETTINGS)).open()


def test_a_rank_that_is_too_large_is_refused_before_anything_starts():
    base = network()
    model = adapted(base, rank=600, alpha=8.0, seed=0, where="p")
    with pytest.raises(ConfigError, match=r"^policies\.p\.lora\.rank = 600: vLLM has room for 512 at most; lower it$"):
        Hosted(VLLMEngine({"p": Policy("p", model, "lora")}, SETTINGS)).open()


@pytest.mark.parametrize("kind", ["adapters", "whole"])
def test_a_server_beside_answers_as_one_inside_through_updates_and_deaths(kind):
    """Started, watched and ended by the engine; its process killed, and what was in flight asked again."""
    if kind == "whole":
        team = policies({"p": network()})
    else:
        base = network()
        models = {name: adapted(base, rank=4, alpha=8.0, seed=at, where=name) for at, name in enumerate("ab")}
        team = {name: Policy(name, model, "lora") for name, model in models.items()}
    names = list(team)
    with Hosted(VLLMEngine(team, SETTINGS.model_copy(update={"server": True}))) as hosted:
        for version in range(3):
            wave = [asked(name, number, 1, 2, 3) for number in range(4) for name in names]
            groups = [drive(hosted.generate([request])) for request in wave]
            samples = list(itertools.chain.from_iterable(group for (group,) in groups))
            assert apart(hosted.engine, samples) < RIGHT
            assert {sample.version for sample in samples} == {version}
            for at, name in enumerate(names):
                drawn(hosted.engine.policies[name].model, 10 * version + at)
                drive(hosted.sync(name, version + 1))
        front, (server,) = (
            Eager(hosted),
            [child for child in psutil.Process().children() if "api_server" in " ".join(child.cmdline())],
        )

        async def in_flight():
            tasks = [
                asyncio.create_task(front.ask((asked(names[0], number, 1, max_tokens=30),))) for number in range(9)
            ]
            await asyncio.sleep(0.3)
            server.send_signal(signal.SIGKILL)
            return await asyncio.gather(*tasks)

        answers = [sample for ((sample,),) in drive(in_flight())]
        assert len(answers) == 9
        assert front.budget.sampled_tokens == sum(len(sample.completion_ids) for sample in answers)
        assert apart(hosted.engine, answers) < RIGHT, "it came back with the current weights"
    left = [child for child in psutil.Process().children() if "api_server" in " ".join(child.cmdline())]
    assert not left


def test_a_server_that_runs_takes_over_weights(monkeypatch, tmp_path):
    """Joined by its address and key; whoever wants it with another key, or base, is told."""
    (served,) = VLLMEngine(policies({"p": network()}), SETTINGS).served
    save_model(served.base, tmp_path / "base")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port),
         *_options(_arguments(served, tmp_path / "base", 0.9))],
        env=os.environ | WANTED | {"VLLM_API_KEY": "a key"},
    )  # fmt: skip
    try:
        joined = VLLMConfig(url=f"http://127.0.0.1:{port}", key_variable="KEY")
        monkeypatch.setenv("KEY", "a key")
        end = time.monotonic() + 300
        while True:
            try:
                hosted = Hosted(VLLMEngine(policies({"p": network(1)}), joined))
                hosted.open()
                break
            except ConfigError:  # nothing answers there yet
                if time.monotonic() > end:
                    raise
                time.sleep(1)
        for version in range(2):
            (samples,) = drive(hosted.generate([asked("p", version, 1, 2, 3)]))
            assert apart(hosted.engine, samples) < RIGHT, "what it was started with is not what is played"
            drawn(hosted.engine.policies["p"].model, version)
            drive(hosted.sync("p", version + 1))
        hosted.shut()
        assert process.poll() is None, "it is somebody else's"
        monkeypatch.setenv("KEY", "wrong")
        with pytest.raises(ConfigError, match="vLLM's server wants another key"):
            Hosted(VLLMEngine(policies({"p": network()}), joined)).open()
        monkeypatch.setenv("KEY", "a key")
        lora = adapted(network(), rank=4, alpha=8.0, seed=0, where="a")
        with pytest.raises((ConfigError, EngineError), match=r"lora|LoRA"):
            Hosted(VLLMEngine({"a": Policy("a", lora, "lora")}, joined)).open()
    finally:
        process.terminate()
        process.wait(30)


def test_it_is_really_here():
    assert importlib.util.find_spec("vllm"), "run me by: make test-vllm"
