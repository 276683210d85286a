"""Measurements on a CUDA device: planned and used memory, tokens per second, the update, a step of a config, learning.

Networks have the shapes of Qwen3 models and random weights. Only the learning run starts from the demo's starter.
Writes docs/results/gpu.md. Each part is measured once and saved in runs/bench-gpu; remove its file to repeat it.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from benchmarks.decode import wave
from benchmarks.models import random_qwen3
from benchmarks.plan import tried
from benchmarks.rows import Row, Table
from benchmarks.update import by_rows, rows_of_groups, useful
from coterie.bench import Say
from coterie.checks.machines import here
from coterie.config.resolve import load_config
from coterie.engines.transformers import TransformersConfig, TransformersEngine
from coterie.errors import ConfigError
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.models.load import Model, save_model
from coterie.models.memory import GIB
from coterie.run.train import train

PAGE = Path("docs/results/gpu.md")
LEFT = [
    "## What is not known",
    "",
    "`make test-gpu` ran once on this machine: 10 of its 16 tests passed. Among them are the bit-exact resume and the",
    "bit-exact repetition of one update, in float32 without modules and in bfloat16 with graphs. Six tests failed:",
    "networks of 27 million parameters took 0.38 GiB more than planned in float32 and 0.75 in bfloat16, and a test of",
    "long packs had not requested deterministic kernels. Both faults are fixed, but the tests have not run on a GPU",
    "since. The predicted memory above is the prediction of that run plus 0.74 GiB, a part that the plan did not count",
    "then and counts now.",
    "Both columns assume that the driver takes 0.7 GiB. Two changes to the graphs are newer than the measurement. The",
    "reserved cache now grows by 256 tokens; before, it had room for the longest reply. All recordings now use one",
    "stream.",
    "",
    "Not run on a GPU yet: replies of hundreds of tokens with graphs, vLLM, Ray, several GPUs, training of adapters,",
    "networks of more than 1.7 billion parameters.",
]
"""The page's section on what has not been measured, written by hand."""
FOLDER = Path("runs/bench-gpu")
DEVICE = os.environ.get("COTERIE_TEST_DEVICE", "cuda")
"""The device that is measured; another one than CUDA only tests the benchmark itself."""
TOKENS = 151_936
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "0.6B": {"width": 1024, "inner": 3072, "layers": 28, "heads": 16},
    "1.7B": {"width": 2048, "inner": 6144, "layers": 28, "heads": 16},
}
"""Shapes of Qwen3-0.6B and Qwen3-1.7B, with TOKENS tokens and 8 heads of 128 numbers for keys and values."""
PLANNED = (("0.6B", "full"), ("1.7B", "full"))
"""Networks and kinds of policies whose memory is measured: one policy per role, in bfloat16."""
DECODED, ROWS, PROMPT, REPLY, SAMPLES = ("0.6B", "1.7B"), (1, 16, 128, 512), 300, 48, 4
UPDATED, PROMPTS, GROUP, TRAINED = "0.6B", (300, 1000, 4000), 8, 200
REPEATS = 3
CONFIG = "configs/gpu/plan_path_qwen3.toml"
CONFIG_STEPS = 2
SMALLER = ("train.tasks_per_step=8", "environment.max_tokens=64", "train.eval_tasks=8", "eval.tasks=8",
           "train.mute_every=0", f"train.steps={CONFIG_STEPS}", "train.max_mismatch=1")  # fmt: skip
LEARNING = (
    "train.steps=40", "train.tasks_per_step=24", "train.eval_every=40", "train.eval_tasks=1000", "train.mute_every=0",
    "train.checkpoint_every=40", f"train.device={DEVICE}",
)  # fmt: skip
TABLE = Table(
    FOLDER,
    "benchmarks.gpu",
    {
        dtype: Row(f"in {dtype}", "configs/plan_path.toml", overrides=(*LEARNING, f"train.dtype={dtype}"))
        for dtype in ("float32", "bfloat16")
    },
)


def run(say: Say) -> dict[str, Any]:
    """Measures the missing parts, writes the page, and returns all figures.

    Raises:
        ConfigError: there is no CUDA device.
    """
    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise ConfigError("bench gpu needs a CUDA device, and there is none here")
    for name in PARTS:
        measure(name, say)
    PAGE.write_text("\n".join(page()), encoding="utf-8")
    return {f"{part}: {name}": value for part in PARTS for name, value in found(part).items()}


def measure(name: str, say: Say) -> None:
    """Measures one part and saves its figures, unless they are there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / f"{name}.json").exists():
        figures = PARTS[name][0](say)
        (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")


def found(name: str) -> dict[str, Any]:
    """Returns a part's figures; none if it has not been measured."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def shaped(size: str) -> Model:
    """Returns a network on the device, in bfloat16, with random weights that end no reply."""
    with torch.device(DEVICE):
        model = random_qwen3(TOKENS, kv_heads=8, head_dim=128, context=8192, **SHAPES[size])
    model.net.to(torch.bfloat16)  # pyright: ignore[reportArgumentType]
    return replace(model, stop_ids=frozenset())


def _machine(say: Say) -> dict[str, Any]:
    found = here(DEVICE)
    say(found.name)
    return {
        "name": found.name, "GiB": round(found.memory / GIB, 1), "python": platform.python_version(),
        "torch": torch.__version__, "transformers": transformers.__version__,
        "float32": found.float32 / 1e12, "bfloat16": found.bfloat16 / 1e12, "bandwidth": found.bandwidth / 1e12,
    }  # fmt: skip


def _planned(say: Say) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for size, kind in PLANNED:
        folder = _saved(size)
        done = tried(str(folder), kind, "bfloat16", f"train.device={DEVICE}")
        figures[f"{size}, {kind}"] = [done["predicted"] / GIB, done["measured"] / GIB]
        say(f"{size}, {kind}: {done['predicted'] / GIB:.1f} GiB planned, {done['measured'] / GIB:.1f} taken")
    return figures


def _saved(size: str) -> Path:
    folder = FOLDER / f"model-{size}"
    if not folder.exists():
        save_model(shaped(size), folder)
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    return folder


def _decoded(say: Say) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for size in DECODED:
        model = shaped(size)
        engines = {
            way: TransformersEngine(
                {"p": Policy("p", replace(model, graphs=way == "graphs"), "frozen", dtype=torch.bfloat16)},
                TransformersConfig(memory_gib=32),
            )
            for way in ("modules", "graphs")
        }
        for rows in ROWS:
            asked = wave(rows, PROMPT, REPLY, SAMPLES)
            times: dict[str, list[float]] = {way: [] for way in engines}
            for repeat in range(REPEATS + 1):
                for way, engine in engines.items():
                    took = _seconds(lambda engine=engine, asked=asked: asyncio.run(engine.generate(asked)))
                    if repeat:  # the first warms up
                        times[way].append(took)
            medians = {way: median(took) for way, took in times.items()}
            figures[f"{size}, {rows}"] = {way: rows * REPLY / took for way, took in medians.items()}
            say(f"{size}, {rows} rows: {figures[f'{size}, {rows}']} tokens a second")
    return figures


def _updated(say: Say) -> dict[str, Any]:
    model = replace(shaped(UPDATED), splits=True, vocabulary=TOKENS)
    model.net.float()
    optimizer = OptimizerConfig(checkpointing=False, tokens_per_microbatch=16_384)
    policy = Policy("p", model, optimizer=optimizer, dtype=torch.bfloat16)
    learner = LocalLearner({"p": policy}, Clip(), 1)
    best, figures = here(DEVICE).bfloat16, dict[str, Any]()
    for prompt in PROMPTS:
        rows = rows_of_groups(1, GROUP, prompt, TRAINED)
        ways: dict[str, Callable[[], object]] = {"packed": lambda rows=rows: learner.accumulate("p", rows)}
        ways |= {
            f"rows of {count}": lambda rows=rows, count=count: by_rows(model, rows, count, torch.bfloat16)
            for count in (1, GROUP)
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for repeat in range(REPEATS + 1):
            for way, work in ways.items():
                model.net.zero_grad(set_to_none=True)
                took = _seconds(work)
                if repeat:  # the first warms up
                    times[way].append(took)
        medians = {way: median(took) for way, took in times.items()}
        tokens = GROUP * TRAINED
        figures[str(prompt)] = {
            "times": min(took for way, took in medians.items() if way != "packed") / medians["packed"],
            "share": useful(model, rows) / medians["packed"] / best,
            "trained": tokens / medians["packed"],
        }
        say(f"update after {prompt} tokens: {figures[str(prompt)]}")
    return figures


def _stepped(say: Say) -> dict[str, Any]:
    folder = _saved("1.7B")
    sets = [*SMALLER, f"train.device={DEVICE}"]
    for name in ("scout", "pilot"):
        sets += [f"policies.{name}.model={folder}", f"policies.{name}.template={{}}"]  # the starter's has no thoughts
    shutil.rmtree(FOLDER / "config", ignore_errors=True)
    figures = of_steps(train(load_config(CONFIG, sets), FOLDER / "config").metrics())
    say(f"a step of {CONFIG}: {figures}")
    return figures


def of_steps(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the replies, tokens and seconds of the last step; replies are random, so that nothing is learned."""
    *_, before, last = lines
    spent = {
        name: last[f"budget/{name}"] - before[f"budget/{name}"]
        for name in ("replies", "prompt_tokens", "sampled_tokens")
    }
    return {**spent, "time/rollout": last["time/rollout"], "time/step": last["time/step"]}


def _learned(say: Say) -> dict[str, Any]:
    TABLE.make(say)
    return {"table": TABLE.lines()}


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def page() -> list[str]:
    """Returns the lines of the results page, from the parts that have been measured."""
    lines = ["# Results: on a CUDA device", ""]
    for name, (_, told) in PARTS.items():
        if figures := found(name):
            lines += [*told(figures), ""]
    return [*lines, *LEFT, ""]


def _tell_machine(figures: Mapping[str, Any]) -> list[str]:
    return [
        "Written by `python -m benchmarks gpu`. " + "{name}, {GiB} GiB; Python {python}, torch {torch}, transformers "
        "{transformers}. Measured speed: {float32:.0f} TFLOP/s in float32, {bfloat16:.0f} in bfloat16, "
        "{bandwidth:.2f} TB/s.".format(**figures),
        "Networks have the shapes of Qwen3 models and random weights, except in the learning runs. Times are medians;",
        "the compared variants are measured alternately.",
    ]  # fmt: skip


def _tell_planned(figures: Mapping[str, Sequence[float]]) -> list[str]:
    return [
        "## Memory",
        "",
        "Peak memory (GiB) of playing one task of plan_path and of two updates, with one policy per role, in bfloat16.",
        "",
        "| network, kind | predicted | measured | predicted / measured |",
        "|---|---|---|---|",
        *(f"| {name} | {one:.1f} | {other:.1f} | {one / other:.2f} |" for name, (one, other) in figures.items()),
    ]


def _tell_decoded(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [
        "## Sampling",
        "",
        f"Tokens per second of the embedded engine in bfloat16, for prompts of {PROMPT} tokens with {SAMPLES} replies",
        f"of {REPLY} tokens each; prefill is included. *modules* runs the network's PyTorch modules, *graph* runs a",
        "recorded CUDA graph of them. The tokenizer is the starter's: logits are computed for 151,936 tokens, and the",
        "sampled token is one of 448.",
        "",
        "| network, rows | modules | graph | speed-up |",
        "|---|---|---|---|",
        *(
            f"| {name} | {each['modules']:,.0f} | {each['graphs']:,.0f} | {each['graphs'] / each['modules']:.1f} |"
            for name, each in figures.items()
        ),
    ]


def _tell_updated(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [
        "## Updates",
        "",
        f"The update of a group of {GROUP} replies of {TRAINED} tokens, for all weights of the {UPDATED} network, with",
        "float32 weights and bfloat16 arithmetic. A pack is compared with the faster of micro-batches of 1 and",
        f"{GROUP} rows. The third column is the rate of useful matrix products, as a share of the device's best rate.",
        "",
        "| prompt tokens | speed relative to rows | share of the device's best | trained tokens per second |",
        "|---|---|---|---|",
        *(
            f"| {prompt} | {each['times']:.2f} | {each['share']:.0%} | {each['trained']:,.0f} |"
            for prompt, each in figures.items()
        ),
    ]


def _tell_stepped(figures: Mapping[str, float]) -> list[str]:
    return [
        "## A step of a GPU config",
        "",
        f"`{CONFIG}`, with two networks of Qwen3-1.7B's shape, all weights trained, and the settings",
        f"{', '.join(f'`{one}`' for one in SMALLER)}.",
        f"In the last step, sampling took {figures['time/rollout']:.1f} of {figures['time/step']:.1f} seconds:",
        f"{figures['replies']:,.0f} replies with {figures['sampled_tokens']:,.0f} tokens, to prompts with",
        f"{figures['prompt_tokens']:,.0f} tokens. All random replies get the same reward, so this step trains nothing.",
    ]


def _tell_learned(figures: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        "## Training from the starter",
        "",
        "plan_path is trained as in [engines](engines.md): 40 steps of 24 tasks, three seeds. Success is measured on",
        "1,000 test tasks.",
        "",
        *figures["table"],
    ]


PARTS: Mapping[str, tuple[Callable[[Say], dict[str, Any]], Callable[[Mapping[str, Any]], list[str]]]] = {
    "machine": (_machine, _tell_machine),
    "decoded": (_decoded, _tell_decoded),
    "updated": (_updated, _tell_updated),
    "learned": (_learned, _tell_learned),
    "stepped": (_stepped, _tell_stepped),
    "planned": (_planned, _tell_planned),
}
"""Parts of the page by name: the function that measures, and the one that writes the section."""
