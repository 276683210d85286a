"""vLLM as the engine, with continuous batching, adapters by name, and in-place weight updates.

vLLM runs in this process or behind HTTP (`vllm_server.py`).

There is one vLLM instance per whole model, and one per base for all its adapters. Requests hold token ids. Answers hold
token ids and their log-probabilities under the sampling distribution. At start and after every update, the
log-probabilities are compared with the learner's forward pass. So the engine never samples from outdated weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from coterie.engines.vllm_config import CPU_GIB, VLLMConfig, check_version
from coterie.engines.vllm_server import SILENT, VLLMServer
from coterie.errors import ConfigError, EngineError, Unavailable, first_line
from coterie.kernel.engine import Engine, EngineConfig, Request
from coterie.kernel.episode import Sample, SampleFinish
from coterie.kernel.stopping import cut

if TYPE_CHECKING:
    from coterie.learning.policy import Policy
    from coterie.models.load import Model

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that vLLM makes room for."""
PROBE = 8
"""Number of tokens that are compared with the learner's forward."""
APART = {"float32": 1e-3, "bfloat16": 0.25}
"""Maximum difference to the learner's log-probabilities, in nats, by what the network computes in."""
BLOCK = 32
"""Tokens of a block of vLLM's cache on a processor: what prompts share is shared by whole blocks."""
QUIET = SILENT | {"VLLM_LOGGING_LEVEL": "CRITICAL"}
"""Environment variables that vLLM is given, where they are not set."""
NEVER = -100.0
"""Number that is added to the logits of ids that are no tokens, the least that vLLM takes."""


class VLLMEngine(Engine):
    """An engine with one vLLM for each network that policies are played by."""

    apart: ClassVar[bool] = True
    options: ClassVar[type[EngineConfig]] = VLLMConfig

    def __init__(self, policies: Mapping[str, Policy], config: EngineConfig | None = None) -> None:
        super().__init__(policies, config)
        from coterie.models.adapters import Adapted

        served: dict[int, _Served] = {}
        self._of: dict[str, _Served] = {}
        for name, policy in self.policies.items():
            base = policy.model.base if isinstance(policy.model, Adapted) else policy.model
            one = self._of[name] = served.setdefault(id(base), _Served(base, self.config, policy.dtype))
            if isinstance(policy.model, Adapted):
                one.adapted[name] = policy.model
            else:
                one.whole.append(name)
        self.served = tuple(served.values())
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Brings up every vLLM that is not up, with the weights of the latest `sync`."""
        self._check_room()
        assert isinstance(self.config, VLLMConfig)
        async with self._starting:  # whoever waited for what has ended asks for it
            for one in self.served:
                await one.start(self.versions, self.config.memory_share / len(self.served))

    def _check_room(self) -> None:
        """Raises ConfigError: this vLLM cannot play these policies."""
        assert isinstance(self.config, VLLMConfig)
        if not self.config.url:
            check_version()
        elif len(self.served) > 1:
            raise ConfigError(
                f"engine.url is of one server, and the policies have {len(self.served)} networks; let adapters share a "
                "base, or leave the url out and one is started for each"
            )
        for one in self.served:
            on_cpu, behind = not _on_gpu(), self.config.server or self.config.url
            if one.whole and one.adapted and on_cpu and behind:
                raise ConfigError(
                    f"policies.{one.whole[0]} is the base that {', '.join(one.adapted)} adapt: on a processor vLLM's "
                    "server would give its replies an adapter; set engine.server = false"
                )
            if self.config.sleep and on_cpu:
                raise ConfigError("engine.sleep has no effect on a processor: vLLM frees nothing there; leave it out")

    async def generate(self, requests: Sequence[Request]) -> list[tuple[Sample, ...]]:
        """Answers each seed by a request of vLLM's own; prompts that begin alike are computed once."""
        one, version = self._of[requests[0].policy], self.versions[requests[0].policy]
        asked = [one.answer(request, seed, version) for request in requests for seed in request.seeds]
        answers = iter(await _all(asked))
        return [tuple(next(answers) for _ in request.seeds) for request in requests]

    async def sync(self, policy: str, version: int) -> None:
        """Takes over a policy's weights as they are now; nothing is in flight."""
        await self._of[policy].take(policy, version, moved=self.policies[policy].kind != "frozen")
        await super().sync(policy, version)

    async def rest(self) -> None:
        """Gives memory back until the next `sync`, if `sleep` is set."""
        assert isinstance(self.config, VLLMConfig)
        if self.config.sleep:
            for one in self.served:
                await one.rest()

    async def close(self) -> None:
        """Ends every vLLM."""
        for one in self.served:
            await one.close()


@dataclass(eq=False)
class _Served:
    """One vLLM: a base, and the adapters on it.

    whole: policies that are the base itself. adapted: models by policy.
    """

    base: Model
    config: EngineConfig
    dtype: Any
    whole: list[str] = field(default_factory=list[str])
    adapted: dict[str, Any] = field(default_factory=dict[str, Any])
    _engine: _Inside | VLLMServer | None = None
    _folder: Path | None = None
    _turn: dict[str, int] = field(default_factory=dict[str, int])
    _lora: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def precision(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    async def start(self, versions: Mapping[str, int], share: float) -> None:
        """Starts vLLM, unless it is up. share: of a GPU."""
        if self._engine is not None and not self._engine.ended:
            return
        from coterie.models.load import save_model

        await self.close()
        self._folder = Path(tempfile.mkdtemp(prefix="coterie-vllm-"))
        save_model(self.base, self._folder / "base")
        self._turn = dict.fromkeys(self.adapted, 0)
        try:
            self._engine = await self._begun(share)
            assert isinstance(self.config, VLLMConfig)
            if self.config.url and self.whole:  # what it was started with may be another version
                await self._put_whole()
            for name in self.adapted:
                await self._put_adapter(name, versions[name])
            for name in (*self.whole, *self.adapted):
                await self._compare(name)
        except (ConfigError, EngineError):
            await self.close()
            raise
        except Exception as error:
            await self.close()
            raise EngineError(
                f"vLLM did not start: {first_line(error)}; its own words: set VLLM_LOGGING_LEVEL=INFO"
            ) from error

    async def _begun(self, share: float) -> _Inside | VLLMServer:
        """Returns a vLLM: started with the base's weights, or the server at the url. share: of a GPU."""
        assert isinstance(self.config, VLLMConfig)
        assert self._folder is not None
        if self.config.url:
            return await VLLMServer.joined(self.config.url, self.config.key_variable)
        arguments = _arguments(self, self._folder / "base", share)
        if self.config.server:
            return await VLLMServer.started(arguments)
        return _Inside(arguments)

    async def answer(self, request: Request, seed: int, version: int) -> Sample:
        """Returns one reply. Raises Unavailable: vLLM has ended."""
        stop_ids = self.base.stop_ids
        sampling = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_tokens,
            "seed": seed % 2**63 if request.temperature else None,
            "stop": list(request.stop),
            "stop_token_ids": sorted(stop_ids),
            "logprobs": 0,
            "skip_special_tokens": False,
            "logit_bias": dict.fromkeys(range(self.base.vocabulary, self.base.config.vocab_size), NEVER) or None,
        }
        ids, logprobs, ended = await self._asked(request.prompt_ids, sampling, request.policy)
        finish: SampleFinish = "stop" if ids[-1] in stop_ids else "string" if ended == "stop" else "length"
        text = self.base.tokenizer.decode(ids[:-1] if finish == "stop" else ids, skip_special_tokens=False)
        return Sample(
            role=request.role,
            policy=request.policy,
            version=version,
            prompt_ids=request.prompt_ids,
            completion_ids=tuple(ids),
            logprobs=tuple(logprobs) if request.temperature else (0.0,) * len(ids),
            finish=finish,
            text=cut(text, request.stop)[0] if finish == "string" else text,
            seed=seed,
            temperature=request.temperature,
        )

    async def take(self, name: str, version: int, *, moved: bool) -> None:
        """Takes over a policy's weights. Raises Unavailable: it could not, and vLLM is ended.

        Args:
            moved: whether they are others than it has.
        """
        if self._engine is None:
            return
        try:
            await self._engine.wake()
            if not moved:
                return
            if name in self.adapted:
                await self._put_adapter(name, version)
            else:
                await self._put_whole()
            await self._compare(name)
        except Exception as error:  # half an update poisons the next: what is there is of no version
            await self.close()
            if isinstance(error, (EngineError, ConfigError)):
                raise
            raise Unavailable("engine", f"vLLM did not take over policy '{name}': {first_line(error)}") from error

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def rest(self) -> None:
        """Gives the memory of weights and cache back."""
        with contextlib.suppress(Exception):  # it has ended, and the next update finds that out
            if self._engine is not None:
                await self._engine.rest()

    async def _asked(
        self, prompt: Sequence[int], sampling: Mapping[str, Any], policy: str
    ) -> tuple[list[int], list[float], str]:
        if self._engine is None:
            raise Unavailable("engine", "vLLM has ended")
        return await self._engine.ask(prompt, sampling, self._lora.get(policy))

    async def _put_adapter(self, name: str, version: int) -> None:
        """Loads an adapter beside its last version, under a name and a folder of its own."""
        assert self._folder is not None
        model, self._turn[name] = self.adapted[name], 1 - self._turn[name]
        folder = self._folder / f"{name}@{version}-{uuid.uuid4().hex[:8]}"
        model.save(folder, model.weights())
        number = 1 + 2 * list(self.adapted).index(name) + self._turn[name]
        assert self._engine is not None
        self._lora[name] = await self._engine.adapter(name, number, folder)

    async def _put_whole(self) -> None:
        assert self._folder is not None
        file = self._folder / "weights.safetensors"
        write(self.base, file)
        assert self._engine is not None
        await self._engine.take(file)
        file.unlink()

    async def _compare(self, name: str) -> None:
        """Raises EngineError: vLLM computes other log-probabilities than the learner's forward."""
        import torch

        from coterie.learning.distribution import log_distribution

        model = self.adapted.get(name, self.base)
        prompt = [3 + at for at in range(min(BLOCK + 8, model.context // 2))]
        sampling = {"temperature": 1.0, "max_tokens": PROBE, "logprobs": 0, "ignore_eos": True, "seed": 1}
        ids, logprobs, _ = await self._asked(prompt, sampling, name)
        with torch.no_grad(), torch.autocast(model.device.type, self.dtype, enabled=self.dtype != torch.float32):
            whole = torch.tensor([prompt + ids], device=model.device)
            logits = model.net(input_ids=whole, use_cache=False).logits[0, len(prompt) - 1 : -1]
        known = log_distribution(logits, 1.0, logits.shape[-1]).gather(-1, whole[0, len(prompt) :, None])[:, 0]
        apart = float((known.cpu() - torch.tensor(logprobs)).abs().max())
        if not apart <= APART[self.precision]:
            raise EngineError(
                f"vLLM and the learner differ by {apart:.2g} nats for policy '{name}', where {APART[self.precision]:g} "
                "is rounding; this model is not played rightly by this vLLM: use engine.name = 'transformers'"
            )


class _Inside:
    """vLLM in this process's loop, with processes of its own."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        made = _library("vllm").AsyncEngineArgs(**arguments, disable_log_stats=True)
        self._engine: Any = _library("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(made)
        self._sleeps = bool(arguments.get("enable_sleep_mode"))

    @property
    def ended(self) -> bool:
        """True if one of vLLM's processes has ended."""
        return self._engine.errored

    async def ask(
        self, prompt: Sequence[int], sampling: Mapping[str, Any], adapter: Any
    ) -> tuple[list[int], list[float], str]:
        """Returns ids, log-probabilities and why the reply ended. Raises Unavailable: vLLM has ended."""
        kind = _library("vllm.sampling_params").RequestOutputKind.FINAL_ONLY
        made = _library("vllm").SamplingParams(**sampling, output_kind=kind)
        asked = {"prompt_token_ids": list(prompt)}, made, uuid.uuid4().hex
        try:
            parts = [part async for part in self._engine.generate(*asked, lora_request=adapter)]
        except _library("vllm.v1.engine.exceptions").EngineDeadError as error:
            raise Unavailable("engine", "vLLM has ended") from error
        output = parts[-1].outputs[0]
        ids = list(output.token_ids)
        logprobs = [known[token].logprob for token, known in zip(ids, output.logprobs, strict=True)]
        return ids, logprobs, output.finish_reason

    async def adapter(self, name: str, number: int, folder: Path) -> Any:
        """Loads an adapter in the place of its last but one version. Returns what requests name it by."""
        lora = _library("vllm.lora.request").LoRARequest(folder.name, number, str(folder), load_inplace=True)
        await self._engine.add_lora(lora)
        lora.load_inplace = False  # or the folder would be read again at every step
        return lora

    async def take(self, file: Path) -> None:
        """Has vLLM take over whole weights from a file."""
        await self._engine.collective_rpc("take_weights", args=(str(file),))
        if not await self._engine.reset_prefix_cache():
            raise RuntimeError("its prefix cache could not be cleared")

    async def rest(self) -> None:
        """Moves vLLM's weights to the processor's memory, and forgets its cache."""
        await self._engine.sleep(level=1)

    async def wake(self) -> None:
        """Gives a vLLM that rests its memory back: before weights are sent, or they would be written nowhere."""
        if self._sleeps and await self._engine.is_sleeping():
            await self._engine.wake_up()

    async def close(self) -> None:
        """Ends vLLM's processes."""
        engine, self._engine = self._engine, None  # it complains where it is collected as Python ends
        await asyncio.to_thread(engine.shutdown)  # it waits for them


def _arguments(one: _Served, folder: Path, share: float) -> dict[str, Any]:
    """Returns the arguments that vLLM is started with. Args: share: of a GPU."""
    config, model = one.config, one.base
    assert isinstance(config, VLLMConfig)
    settings: dict[str, Any] = {"gpu_memory_utilization": share}
    if not _on_gpu():
        settings = {"enforce_eager": True, "block_size": BLOCK}
        settings["kv_cache_memory_bytes"] = int((config.memory_gib or CPU_GIB) * 2**30)
    elif config.memory_gib:
        settings["kv_cache_memory_bytes"] = int(config.memory_gib * 2**30)
    if one.adapted:
        settings |= _room(one)
    if config.sleep:
        settings["enable_sleep_mode"] = True
    return {
        "model": str(folder),
        "dtype": one.precision,
        "max_model_len": model.context,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "enable_chunked_prefill": False,  # a prompt that is split loses its seed on a CPU
        "max_num_batched_tokens": max(config.max_tokens_at_once, model.context),
        "worker_extension_cls": "coterie.engines.vllm_worker.Weights",
        **settings,
    }


def _on_gpu() -> bool:
    """Returns True if vLLM computes on a GPU, wherever the policies' own weights are."""
    import torch

    return torch.cuda.is_available()


def _room(one: _Served) -> dict[str, Any]:
    """Returns settings for adapters: two slots a policy, in turn. One more, or CPU kernels give base rows the last.

    Raises:
        ConfigError: an adapter has a larger rank than vLLM has room for.
    """
    ranks = {name: model.adapter.peft_config["default"].r for name, model in one.adapted.items()}
    name, rank = max(ranks.items(), key=lambda item: item[1])
    if rank > RANKS[-1]:
        raise ConfigError(f"policies.{name}.lora.rank = {rank}: vLLM has room for {RANKS[-1]} at most; lower it")
    slots = 2 * len(ranks) + 1
    room = next(room for room in RANKS if room >= rank)
    return {"enable_lora": True, "max_loras": slots, "max_cpu_loras": slots, "max_lora_rank": room}


def write(model: Model, file: Path) -> None:
    """Writes all weights of a model into a file, the output layer's too where it is tied to the embedding."""
    from safetensors.torch import save_file

    weights = {name: weight.detach().cpu().clone().contiguous() for name, weight in model.net.state_dict().items()}
    save_file(weights, file)


async def _all(coroutines: Sequence[Any]) -> list[Any]:
    """Returns the results of all coroutines; where one fails, the others are given up before it is told."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _library(module: str) -> Any:
    """Returns a module of vLLM's, which is quiet, and tells nobody that it runs.

    Raises:
        ConfigError: it cannot be imported.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError, OSError) as error:
        broken = any(name in str(error) for name in ("torchvision", "libc10", "libcud"))
        hint = "; on a CPU: pip uninstall torchvision torchaudio torchcodec" if broken else ""
        raise ConfigError(f"engine.name = 'vllm': it cannot be imported: {first_line(error)}{hint}") from error
