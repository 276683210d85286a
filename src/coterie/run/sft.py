"""Builds a starter: a small model trained on an environment's demonstrations.

A starter is an ordinary Hugging Face model folder with the Qwen3 architecture and a byte-level BPE tokenizer
with a chat template. The learner that trains teams also trains starters: with an advantage of 1, the policy
gradient is the gradient of the log-likelihood.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from coterie.config.settings import SFTConfig
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Environment, Lesson
from coterie.kernel.episode import Sample
from coterie.kernel.loops import drive
from coterie.kernel.mistakes import task_of
from coterie.kernel.safe import tell
from coterie.kernel.scene import Reply, role_of
from coterie.kernel.team import Graded
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import PolicyGradient
from coterie.learning.optimizer import OptimizerConfig
from coterie.learning.policy import Policy
from coterie.memory.evolve import evolve, told_by
from coterie.memory.recall import Recall
from coterie.memory.store import FinishedEpisode, MemoryConfig, Store
from coterie.models.files import POLICIES
from coterie.models.load import Model, load_model, prepare, save_model
from coterie.models.rendering import Renderer
from coterie.run.files import check_free, whole
from coterie.run.interrupts import Interrupts, Stop
from coterie.run.unfinished import Reached, Unfinished
from coterie.seeds import seed_of

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}{{ '\\n' }}{{ message['content'] }}"
    "<|im_end|>{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}{% endif %}"
)
PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
STARTER = "starter"
SAVE_S, GRACE_S = 120, 5
"""Seconds between two saves of an unfinished starter, and those that a step may go on after a signal to end."""
LOOKED_AT = 200
"""Number of train tasks from whose demonstrations a new model's tokenizer is made."""


def sft(
    environment: Environment,
    out: Path,
    config: SFTConfig,
    *,
    source: str | None = None,
    memory: MemoryConfig | None = None,
    progress: Callable[[int, float], None] | None = None,
    looking: Callable[[int, int], None] = lambda *_: None,
) -> Model:
    """Trains a starter, a small initial model, on demonstrations and saves it.

    What it has is saved every SAVE_S seconds beside `out`, and when a signal stops it: called again, it goes on from
    there, to the same weights.

    Args:
        environment: the environment that demonstrates.
        out: the model folder to create; it must not exist yet.
        config: the training settings.
        source: a model to continue training; None: a new model is created.
        memory: the memory settings, if roles are shown notes from earlier demonstrations that succeeded.
        progress: called with (step, loss) after each step.
        looking: called with (tasks done, tasks in total) while the vocabulary of a new model is collected from
            demonstrations.

    Raises:
        ConfigError: the folder exists, or the environment has no demonstrations; or what lies beside it is of another
            training.
        Stop: a signal came.
    """
    if out.exists():
        raise ConfigError(f"{out} exists; choose another folder, or remove it")
    check_free(out)
    with Interrupts(GRACE_S) as interrupts:
        interrupts.beginning = True
        unfinished = Unfinished(out, _digest(environment, config, source, memory))
        reached = unfinished.reached()
        if reached:
            tell(f"{unfinished.folder} is there; going on after step {reached.steps}")
            source = str(unfinished.folder / POLICIES / STARTER)
        model = load_model(source) if source else new_model(environment, config, looking)
        _train(environment, model, config, memory, Kept(unfinished, reached, interrupts), progress)
        with interrupts.shielded():
            with whole(out, "run the same command again", out):
                save_model(model, out)
            unfinished.remove()
    return model


@dataclass(frozen=True, slots=True)
class Kept:
    """A training's unfinished folder, the state that it goes on from, and the signals that stop it."""

    unfinished: Unfinished
    reached: Reached | None
    interrupts: Interrupts


def _train(
    environment: Environment,
    model: Model,
    config: SFTConfig,
    memory: MemoryConfig | None,
    kept: Kept,
    progress: Callable[[int, float], None] | None,
) -> None:
    """Makes the steps that are left. Raises Stop if a signal came, after what there is was saved."""
    render = Renderer(model.tokenizer, STARTER)
    optimizer = OptimizerConfig.model_validate(
        {"lr": config.lr, "warmup_steps": min(50, config.steps // 4), "weight_decay": 0.01}
    )
    policy = Policy(STARTER, model, optimizer=optimizer, dtype=getattr(torch, config.dtype))
    checkpoint = kept.unfinished.folder if kept.reached else None
    learner = LocalLearner({STARTER: policy}, PolicyGradient(), config.steps, checkpoint=checkpoint)
    store, done = (kept.reached.store, kept.reached.steps) if kept.reached else (Store(), 0)
    interrupts, saved, then = kept.interrupts, done, time.monotonic()

    def write(folder: Path) -> None:
        save_model(model, folder / POLICIES / STARTER)
        learner.save(folder)

    def save() -> None:
        nonlocal saved, then
        with interrupts.shielded():
            kept.unfinished.save(done, store, write)
            saved, then = done, time.monotonic()

    interrupts.beginning = False
    try:
        for step in range(done, config.steps):
            if interrupts.number:
                raise Stop("stopped", interrupts.number, save=True)
            if done > saved and time.monotonic() - then > SAVE_S:
                save()
            interrupts.busy = f"step {step + 1}"
            recall = Recall(store, memory, training=True, seed=config.seed) if memory and memory.mode != "off" else None
            episodes: list[FinishedEpisode] = []
            graded = [
                _graded(lesson, model, render)
                for index in range(config.tasks_per_step)
                for lesson in lessons(environment, config.seed, step * config.tasks_per_step + index, recall, episodes)
            ]
            with interrupts.shielded():
                learned = learner.update({STARTER: graded}, step)
                if recall:
                    store, _ = evolve(store, episodes, recall.config)
                done = step + 1
            if progress:
                progress(step, learned[STARTER].metrics["loss"])
    except Stop as stop:
        with suppress(Stop):  # a scheduler may send the signal again
            if stop.save and done > saved:
                save()
        there = f"saved as of step {saved}; the same command goes on from there" if saved else "nothing was trained yet"
        raise Stop(f"{stop}; {there}", stop.number, save=False) from None


def _digest(environment: Environment, config: SFTConfig, source: str | None, memory: MemoryConfig | None) -> str:
    """Returns a digest of what a training depends on: its settings, and its environment's first demonstrations."""
    begin = [(lesson.prompt, lesson.reply) for index in range(8) for lesson in lessons(environment, config.seed, index)]
    told = config.model_dump(), memory.model_dump() if memory else None, source, begin
    return sha256(repr(told).encode()).hexdigest()


def lessons(
    environment: Environment,
    seed: int,
    index: int,
    recall: Recall | None = None,
    episodes: list[FinishedEpisode] | None = None,
) -> Iterator[Lesson]:
    """Yields the demonstrations of one train task.

    Args:
        recall: notes that prompts show.
        episodes: takes what the episode says to memory.

    Raises:
        ConfigError: the environment has neither `lessons` nor `demonstrate`.
    """
    rng = Random(seed_of("sft", seed, index))
    task = task_of(environment, "train", (seed << 32) + index)
    try:
        if type(environment).lessons is not Environment.lessons:
            yield from environment.lessons(task, rng)
        else:
            cursor = Cursor(environment, task, rng.getrandbits(63))
            yield from drive(_played(environment, cursor, rng, recall))
            if recall and episodes is not None:
                episodes.append(told_by(environment, recall, task, cursor.log))
    except NotImplementedError as error:
        raise ConfigError(f"{error}; write it to say what a starter should imitate") from error


async def _played(environment: Environment, cursor: Cursor, rng: Random, recall: Recall | None) -> list[Lesson]:
    """Plays an episode in which every role does as demonstrated, and returns its lessons."""
    shown: list[Lesson] = []
    while (point := await cursor.advance()) is not None:
        replies: dict[str, Reply] = {}
        for speaker, asked in point.asked.prompts.items():
            role = role_of(speaker)
            prompt = recall.told(asked, role, cursor.task, 0) if recall else asked
            if not isinstance(prompt, str):
                raise ConfigError("sft learns from prompts that are strings; write lessons() for chats")
            shown.append(Lesson(role, prompt, environment.demonstrate(role, cursor.task, prompt, rng)))
            replies[speaker] = Reply(role, shown[-1].reply)
        cursor.answer(replies)
    return shown


def new_model(
    environment: Environment, config: SFTConfig, looking: Callable[[int, int], None] = lambda *_: None
) -> Model:
    """Returns an untrained model of Qwen3 shape, with a tokenizer made from the environment's own texts."""
    texts: list[str] = []
    for index in range(LOOKED_AT):
        for lesson in lessons(environment, config.seed, index):
            texts += (f"user\n{lesson.prompt}\nassistant\nsystem\n", lesson.reply)
        looking(index + 1, LOOKED_AT)
    tokenizer = new_tokenizer(texts, config.vocabulary)
    torch.manual_seed(config.seed)
    net = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            hidden_size=config.hidden_size,
            intermediate_size=3 * config.hidden_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            head_dim=config.hidden_size // config.heads,
            max_position_embeddings=config.context,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    return prepare(net, tokenizer)


def new_tokenizer(texts: list[str], vocabulary: int) -> Any:
    """Trains a byte-level BPE tokenizer: it is lossless, and no text is unknown to it.

    A word with its leading space is one piece, and so is a line break with its indentation.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [
            pre_tokenizers.Split(Regex(r"\n(?: (?= ))+| ?[^\s]+|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _graded(lesson: Lesson, model: Model, render: Renderer) -> Graded:
    """Returns a lesson as experience: its reply and the stop token, with an advantage of 1."""
    reply = model.tokenizer.encode(lesson.reply, add_special_tokens=False, split_special_tokens=True)
    completion = (*reply, model.tokenizer.eos_token_id)
    sample = Sample(
        role=lesson.role,
        policy=STARTER,
        version=0,
        prompt_ids=render(lesson.prompt),
        completion_ids=completion,
        logprobs=(0.0,) * len(completion),
        finish="stop",
        text=lesson.reply,
    )
    return Graded(sample, 1.0, 1.0, lesson.role)
