"""Reward functions as people write them for TRL's trainer: what they are given, and what they return."""

import asyncio
import json
import re
import time


def solution(completions, ground_truth, **kwargs):
    """Text completions and a column."""
    found = [re.search(r"\\boxed\{(.*?)\}", completion) for completion in completions]
    contents = [match.group(1) if match else "" for match in found]
    return [1.0 if content == truth else 0.0 for content, truth in zip(contents, ground_truth, strict=True)]


def form(completions, **kwargs):
    """Completions of messages."""
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if re.match(r"^<think>.*?</think><answer>.*?</answer>$", content) else 0.0 for content in contents]


def tokens(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


async def later(prompts, completions, log_metric, log_extra, trainer_state, **kwargs):
    await asyncio.sleep(0)
    log_metric("length", sum(map(len, completions)) / len(completions))
    log_extra("shown", [f"{prompt}!" for prompt in prompts])
    return [0.5 for _ in completions]


def of_maths(completions, task, **kwargs):
    """One of several kinds of rows."""
    return [1.0 if kind == "maths" else None for kind in task]


def never(completions, **kwargs):
    return [None for _ in completions]


GIVEN = []


def given(**kwargs):
    """Says what it was given."""
    GIVEN.append({key: _plain(value) for key, value in kwargs.items()})
    kwargs["log_extra"]("given", [json.dumps(GIVEN[-1])] * len(kwargs["completions"]))
    return [0.0 for _ in kwargs["completions"]]


def _plain(value):
    return value if isinstance(value, list) else type(value).__name__


def leaves(completions, **kwargs):
    raise SystemExit(4)


class Dumb(Exception):
    def __str__(self):
        raise ValueError("it says nothing")


def dumb(completions, **kwargs):
    raise Dumb


def long(completions, **kwargs):
    raise ValueError("x" * 1_000_000)


def text(completions, **kwargs):
    return ["1"]


def word(completions, **kwargs):
    return "1"


def huge(completions, **kwargs):
    return [10**400]


def raises(completions, **kwargs):
    return [1.0 / len(completion.split("nothing")[1:]) for completion in completions]


def alone(completions, **kwargs):
    return 1.0


def endless(completions, **kwargs):
    time.sleep(100)


def infinite(completions, **kwargs):
    return [float("inf")]


def of_one(completions, prompt_ids, **kwargs):
    return [1.0]


def is_even(completions, **kwargs):
    """Of a token of the tests' tiny model."""
    return [float(sum(map(ord, completion)) % 2 == 0) if completion else 0.0 for completion in completions]
