"""Trained replies per second of Coterie, CoMLRL and TRL: each library's own training loop on equal work.

Writes docs/results/peers.md. Needs the extra `oracles`. Each training is a separate process; peer and Coterie
alternate. All use the same weights, prompt lengths, probability that a reply ends, tasks per step, number of optimizer
steps, AdamW, float32 and two threads. Only whole steps after the first ones are timed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import log
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any, ClassVar
from zlib import crc32

from benchmarks import alone, processor
from coterie.bench import Say
from coterie.errors import ConfigError
from coterie.kernel.environment import Environment, Split, Task
from coterie.kernel.safe import plain
from coterie.kernel.scene import Scene
from coterie.kernel.tracker import Line, Tracker

Told = dict[str, float]
"""Figures of one training: trained replies and tokens of replies per second, and the most gigabytes held."""
Pairs = list[tuple[Told, Told]]
"""Pairs of our figures and the peer's."""
CHECKOUT = Path(__file__).parents[1]
PAGE = Path("docs/results/peers.md")
TASKS, SAMPLES = 16, 8
"""Number of tasks of one optimizer step, and of replies to each."""
WARM, PAIRS = 1, 5
"""Number of steps that are not timed, and of trainings of each library."""
THREADS = "2"
LETTERS = "JKQXZ"
"""Letters that are a token each, in the starter's tokenizer."""


@dataclass(frozen=True)
class Shape:
    """The work that is compared: the peer, tokens of a prompt and of a reply, mean of replies that end early."""

    peer: str
    prompt: int
    reply: int
    mean: int = 0
    steps: int = 2

    @property
    def roles(self) -> int:
        """Number of roles: CoMLRL trains two agents with a model each, TRL one."""
        return 2 if self.peer == "CoMLRL" else 1

    @property
    def title(self) -> str:
        """The work in words, as on the page."""
        early = f", ending early (mean {self.mean})" if self.mean else ""
        return f"{self.peer}: {self.roles} {'roles' if self.roles > 1 else 'role'}, {self.prompt} + {self.reply}{early}"


SHAPES = (
    Shape("CoMLRL", 16, 32, steps=6),
    Shape("CoMLRL", 256, 64),
    Shape("CoMLRL", 256, 64, mean=16),
    Shape("TRL", 200, 64),
    Shape("TRL", 200, 64, mean=16),
)


def words(role: int, index: int, tokens: int) -> str:
    """Returns a prompt of so many tokens."""
    chance = Random(f"{role} {index}")
    return "".join(chance.choice(LETTERS) for _ in range(tokens))


def worth(*texts: str) -> float:
    """Returns a reward in [0, 1) that differs from reply to reply, so that each has an advantage, and is trained."""
    return crc32("\n".join(texts).encode()) / 2**32


class TwoSpeakers(Environment):
    """An environment in which two roles speak at once, each to its own prompt, and are rewarded together."""

    roles: ClassVar = ("left", "right")
    prompt: int = 16
    """Tokens of a prompt."""
    reply: int = 32
    """Tokens of a reply, at most."""

    def task(self, split: Split, index: int) -> Task:
        """Returns a task whose query is its number."""
        return Task(f"{split}-{index}", split, query=str(index))

    async def play(self, task: Task, scene: Scene) -> None:
        """Asks all roles at once, for one turn, and rewards them together."""
        prompts = {role: words(at, int(task.query), self.prompt) for at, role in enumerate(self.roles)}
        replies = await scene.ask_all(prompts, max_tokens=self.reply)
        scene.team_reward(worth(*(reply.text for reply in replies.values())))
        scene.succeed()


class OneSpeaker(TwoSpeakers):
    """The same environment with one role."""

    roles: ClassVar = ("left",)


def run(say: Say) -> dict[str, Any]:
    """Trains in pairs, writes the page, and returns the median ratio of replies per second by shape."""
    from benchmarks.update import SIZES

    for needed in ("trl", "comlrl"):
        if not find_spec(needed):
            raise ConfigError(f"{needed} is not installed; install 'coterie[oracles]'")
    alone()
    told: dict[Shape, Pairs] = {}
    for shape in SHAPES:
        told[shape] = []
        with tempfile.TemporaryDirectory() as folder:
            save_network(Path(folder) / "network", SIZES["0.85M"], shape.mean)
            for pair in range(PAIRS):
                order = ("peer", "coterie") if pair % 2 else ("coterie", "peer")
                both = {who: _trained(who, shape, Path(folder)) for who in order}
                told[shape].append((both["coterie"], both["peer"]))
                ratio = both["coterie"]["replies"] / both["peer"]["replies"]
                say(f"{shape.title}, pair {pair + 1} of {PAIRS}: {ratio:.2f} times as many replies a second")
    PAGE.write_text(plain("\n".join(page(told))))
    return {shape.title: round(ratio_of(pairs, "replies")[1], 2) for shape, pairs in told.items()}


def ratio_of(pairs: Pairs, what: str) -> tuple[float, float, float]:
    """Returns the least, median and largest ratio of ours to theirs, pair by pair."""
    ratios = sorted(ours[what] / theirs[what] for ours, theirs in pairs)
    return ratios[0], median(ratios), ratios[-1]


def page(told: dict[Shape, Pairs]) -> list[str]:
    """Returns the lines of the results page."""
    lines = [
        "# Results: speed compared with CoMLRL and TRL",
        "",
        "Written by `python -m benchmarks peers`. The complete training loops of CoMLRL 1.4.3 (`MAGRPOTrainer.train`), "
        "TRL 1.16 (`GRPOTrainer.train`) and `coterie.train` do the same work. Each role has a network of Qwen3's shape "
        f"with 0.85 million random parameters. A step has {TASKS} tasks with {SAMPLES} replies each and one AdamW "
        f"step, in float32 on two threads. Evaluation and the first step are not timed. There are {PAIRS} pairs of "
        f"runs, theirs and ours alternately, each run in its own process. Processor: {processor()}. A row gives the "
        "peer, the tokens of a prompt and the tokens of a reply. Rates are medians of the trained replies per second, "
        "and of their tokens up to the end of each reply. Memory is the peak of a process, including the libraries.",
        "",
        "| | replies per second: theirs, ours | ratio (min to max) | tokens per second: theirs, ours | "
        "peak memory (GB): theirs, ours |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for shape, pairs in told.items():
        least, middle, most = ratio_of(pairs, "replies")
        both = {
            what: (median(theirs[what] for _, theirs in pairs), median(ours[what] for ours, _ in pairs))
            for what in ("replies", "tokens", "gigabytes")
        }
        lines.append(
            f"| {shape.title} | {both['replies'][0]:.0f}, {both['replies'][1]:.0f} | {middle:.1f} ({least:.1f} to "
            f"{most:.1f}) | {both['tokens'][0]:,.0f}, {both['tokens'][1]:,.0f} | {both['gigabytes'][0]:.2f}, "
            f"{both['gigabytes'][1]:.2f} |"
        )
    return [*lines, ""]


def save_network(folder: Path, size: Mapping[str, Any], mean: int = 0) -> None:
    """Saves a random network, whose replies end with a chance of one in `mean` at every token, or never.

    As our starters, and most published networks, it has a multiple of 64 tokens, of which the last are never said.
    """
    import torch

    from benchmarks.models import random_qwen3
    from coterie.models.load import load_model, save_model

    tokenizer: Any = load_model("starter").tokenizer
    padding = range(len(tokenizer), -(-len(tokenizer) // 64) * 64)
    model = random_qwen3(padding.stop, **size, context=8192)
    model.tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    net: Any = model.net
    weights = net.get_input_embeddings().weight  # the output layer's too
    with torch.no_grad():
        common = torch.zeros(weights.shape[1])
        common[0] = 0.5  # of all tokens, so that it is in every state, and can be read from it
        weights += common
        states = net.model(input_ids=torch.randint(3, padding.start, (4, 64))).last_hidden_state
        logit = -50.0 if not mean else log((padding.start - 1) / (mean - 1))
        each = float((states @ common).mean())
        never = dict.fromkeys((tokenizer.pad_token_id, *padding), -50.0)
        for token, wanted in {tokenizer.eos_token_id: logit, **never}.items():
            weights[token] = common * (1 + wanted / each)
    save_model(model, folder)


def _trained(who: str, shape: Shape, folder: Path) -> Told:
    """Makes one training in a process of its own, and returns its figures."""
    script = f"from benchmarks import peers; peers.child({who!r}, peers.{shape!r}, {str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": THREADS, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(CHECKOUT)},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{who}, {shape.title}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def child(who: str, shape: Shape, folder: str) -> None:
    """Trains, and prints replies and tokens per second and the most memory held, as one line of JSON."""
    train = _coterie if who == "coterie" else {"CoMLRL": _comlrl, "TRL": _trl}[shape.peer]
    times, tokens = train(shape, Path(folder))
    seconds = times[WARM + shape.steps - 1] - times[WARM - 1]
    replies = shape.steps * TASKS * SAMPLES * shape.roles
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(  # noqa: T201  # what the process is for
        json.dumps({"replies": replies / seconds, "tokens": replies * tokens / seconds, "gigabytes": peak})
    )


def _coterie(shape: Shape, folder: Path) -> tuple[list[float], float]:
    from coterie.run.train import train

    steps, policy = WARM + shape.steps + 1, {"model": str(folder / "network")}  # the last step has a validation
    roles = TwoSpeakers.roles if shape.roles > 1 else OneSpeaker.roles
    ended = _Ended(shape.roles)
    with tempfile.TemporaryDirectory() as out:
        train(
            {
                "environment": {
                    "name": f"benchmarks.peers:{'TwoSpeakers' if shape.roles > 1 else 'OneSpeaker'}",
                    "prompt": shape.prompt,
                    "reply": shape.reply,
                },
                "algorithm": {"name": "magrpo" if shape.roles > 1 else "grpo", "num_generations": SAMPLES},
                "team": {role: role for role in roles},
                "policies": dict.fromkeys(roles, policy),
                "optimizer": {"lr": 1e-6},
                "train": {
                    "steps": steps, "tasks_per_step": TASKS, "eval_every": steps, "eval_tasks": 1, "mute_every": 0,
                    "checkpoint_every": steps, "episodes_every": steps, "device": "cpu",
                },
            },
            Path(out) / "run",
            trackers=[ended],
        )  # fmt: skip
    return ended.times, fmean(ended.tokens[WARM:-1])


class _Ended(Tracker):
    """A tracker that notes when steps end and their mean reply length, and asserts that all replies were trained."""

    def __init__(self, roles: int) -> None:
        super().__init__()
        self.roles = roles
        self.times: list[float] = []
        self.tokens: list[float] = []

    def log(self, line: Line) -> None:
        if line["step"]:
            self.times.append(time.perf_counter())
            self.tokens.append(line["rollout/reply_tokens"])
            trained = sum(value for name, value in line.items() if name.endswith("/trained_sequences"))
            assert trained == TASKS * SAMPLES * self.roles, line


def _comlrl(shape: Shape, folder: Path) -> tuple[list[float], float]:
    from comlrl.trainers.reinforce import magrpo  # pyright: ignore[reportMissingImports]
    from datasets import Dataset  # pyright: ignore[reportMissingImports]

    tasks = [{"prompt": str(index)} for index in range((WARM + shape.steps) * TASKS)]
    networks, tokenizer = zip(*(_network(folder) for _ in range(shape.roles)), strict=True)
    lengths, times = _lengths(networks, shape), list[float]()
    trainer: Any = magrpo.MAGRPOTrainer(
        agents=list(networks),
        num_agents=shape.roles,
        tokenizer=list(tokenizer),
        reward_func=lambda *texts: [worth(*joint) for joint in zip(*texts, strict=True)],
        formatters=[
            lambda item, at=at, **_: words(at, int(item["prompt"]), shape.prompt) for at in range(shape.roles)
        ],
        train_dataset=Dataset.from_list(tasks),
        args=magrpo.MAGRPOConfig(
            num_train_epochs=1, agent_learning_rate=1e-6, num_agents=shape.roles, agent_devices="cpu",
            num_generations=SAMPLES, max_new_tokens=shape.reply, temperature=1.0, top_p=1.0, top_k=0, num_turns=1,
            eval_interval=0, rollout_buffer_size=TASKS, train_batch_size=TASKS,
        ),
    )  # fmt: skip
    last = trainer.optimizers[-1]
    last.step = _timed(last.step, times)
    trainer.train()
    return times, fmean(lengths[WARM * TASKS * SAMPLES * shape.roles :])


def _trl(shape: Shape, folder: Path) -> tuple[list[float], float]:
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from transformers import TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig  # pyright: ignore[reportMissingImports]
    from trl.trainer.grpo_trainer import GRPOTrainer  # pyright: ignore[reportMissingImports]

    network, tokenizer = _network(folder)
    lengths, times = _lengths((network,), shape), list[float]()

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    trainer: Any = GRPOTrainer(
        model=network,
        args=GRPOConfig(
            output_dir=str(folder / "trl"), per_device_train_batch_size=TASKS * SAMPLES, num_generations=SAMPLES,
            max_steps=WARM + shape.steps, max_completion_length=shape.reply, learning_rate=1e-6, beta=0.0,
            report_to=[], use_cpu=True, bf16=False, save_strategy="no", gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": words(0, index, shape.prompt)} for index in range((WARM + shape.steps) * TASKS)]
        ),
        reward_funcs=lambda completions, **_: [worth(text) for text in completions],
        processing_class=tokenizer,
        callbacks=[Clock()],
    )  # fmt: skip
    trainer.train()
    return times, fmean(lengths[WARM * TASKS * SAMPLES :])


def _network(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder / "network"), AutoTokenizer.from_pretrained(folder / "network")


def _lengths(networks: tuple[Any, ...], shape: Shape) -> list[int]:
    """Returns a list to which each reply that the networks generate from now on adds its tokens, up to its end."""
    import torch

    lengths: list[int] = []

    def counted(generate: Callable[..., Any], end: int) -> Callable[..., Any]:
        def inner(*given: Any, **named: Any) -> Any:
            made = generate(*given, **named)
            ids = made if isinstance(made, torch.Tensor) else made.sequences
            prompt = (named["input_ids"] if "input_ids" in named else given[0]).shape[1]
            assert prompt == shape.prompt, (prompt, shape)  # the same work for all
            ends = (ids[:, prompt:] == end).tolist()
            lengths.extend(reply.index(True) + 1 if True in reply else len(reply) for reply in ends)
            return made

        return inner

    for network in networks:
        network.generate = counted(network.generate, network.generation_config.eos_token_id)
    return lengths


def _timed(work: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def inner(*given: Any, **named: Any) -> Any:
        done = work(*given, **named)
        times.append(time.perf_counter())
        return done

    return inner
