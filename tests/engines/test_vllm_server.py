"""vLLM behind HTTP, as far as it can be told without vLLM: what is asked, and what is said of a server that cannot."""

import asyncio
from typing import Any, cast

import pytest

from coterie.engines import vllm as engine_file
from coterie.engines.vllm import VLLMEngine
from coterie.engines.vllm_config import VLLMConfig
from coterie.engines.vllm_server import VLLMServer, _options
from coterie.errors import ConfigError, EngineError, Unavailable
from coterie.kernel.loops import Hosted, drive
from coterie.learning.policy import Policy
from coterie.models.adapters import adapted
from tests.servers import serving
from tests.toys import policies, tiny


def test_a_server_that_is_not_there_is_one_line():
    with pytest.raises(
        ConfigError, match=r"^engine.url = 'http://127.0.0.1:1': no vLLM answers there \(.*start it, or"
    ):
        Hosted(VLLMEngine(policies({"p": tiny()}), VLLMConfig(url="http://127.0.0.1:1"))).open()


def test_one_server_is_of_one_network():
    team = policies({"p": tiny(), "q": tiny(1)})
    with pytest.raises(ConfigError, match=r"engine.url is of one server, and the policies have 2 networks"):
        Hosted(VLLMEngine(team, VLLMConfig(url="http://127.0.0.1:1"))).open()


def test_base_rows_beside_adapters_are_refused_behind_http_on_a_processor(monkeypatch):
    monkeypatch.setattr(engine_file, "check_version", lambda: None)
    base = tiny()
    team = {"b": Policy("b", base, "frozen")}
    team["a"] = Policy("a", adapted(base, rank=2, alpha=4.0, seed=0, where="a"), "lora")
    with pytest.raises(ConfigError, match=r"policies.b is the base that a adapt: on a processor vLLM's server would"):
        Hosted(VLLMEngine(team, VLLMConfig(server=True))).open()


def test_sleep_is_refused_where_it_frees_nothing(monkeypatch):
    monkeypatch.setattr(engine_file, "check_version", lambda: None)
    with pytest.raises(ConfigError, match=r"engine.sleep has no effect on a processor"):
        Hosted(VLLMEngine(policies({"p": tiny()}), VLLMConfig(sleep=True))).open()


def test_arguments_become_options():
    given = {"enforce_eager": True, "enable_chunked_prefill": False, "max_model_len": 64, "gpu_memory_utilization": 0.3}
    assert _options(given) == [
        "--enforce-eager", "--no-enable-chunked-prefill", "--max-model-len", "64", "--gpu-memory-utilization", "0.3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (401, ConfigError, "vLLM's server wants another key: name the variable"),
        (500, Unavailable, "vLLM's server answers POST /v1/completions with 500: "),
        (b"nothing", Unavailable, "vLLM's server gave no answer: 'nothing'"),
        ((200, {}, {"choices": []}), Unavailable, "vLLM's server gave no answer"),
    ],
)
def test_what_a_server_refuses_is_told(status, error, said):
    with serving(lambda body, number: status) as fake:

        async def asks():
            server = VLLMServer(fake.url.removesuffix("/v1"), "key")
            try:
                await server.ask([1, 2], {"temperature": 1.0}, "a@3")
            finally:
                await server.close()

        with pytest.raises(error, match=said):
            asyncio.run(asks())
    assert fake.asked[0]["model"] == "a@3"
    assert fake.asked[0]["prompt"] == [1, 2]
    assert fake.headers["Authorization"] == "Bearer key"


class Sleeper:
    """What an engine asks of vLLM around an update."""

    ended = False

    def __init__(self) -> None:
        self.said: list[str] = []

    async def rest(self) -> None:
        self.said.append("rest")

    async def wake(self) -> None:
        self.said.append("wake")

    async def take(self, file) -> None:
        assert file.exists()
        self.said.append("take")

    async def close(self) -> None:
        self.said.append("close")

    async def ask(self, prompt, sampling, adapter):
        self.said.append("ask")
        return [3] * sampling["max_tokens"], [-1e9] * sampling["max_tokens"], "length"


def test_weights_are_woken_before_they_are_written_and_what_differs_is_never_sampled(tmp_path):
    engine = VLLMEngine(policies({"p": tiny()}), VLLMConfig())
    (served,), sleeper = engine.served, Sleeper()
    served._engine, served._folder = cast("Any", sleeper), tmp_path / "vllm"
    served._folder.mkdir()
    engine.config = engine.config.model_copy(update={"sleep": True})
    drive(engine.rest())
    with pytest.raises(EngineError, match=r"vLLM and the learner differ by .* nats for policy 'p'"):
        drive(engine.sync("p", 1))
    assert sleeper.said == ["rest", "wake", "take", "ask", "close"]
    assert engine.versions == {"p": 0}
