"""The benchmark of `make demo`: it trains a team of two adapters over one real model and shows what the team says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from coterie.bench import Say
from coterie.bench.english import perplexity
from coterie.config.resolve import load_config
from coterie.kernel.episode import Answered, Asked, Log, text_of
from coterie.kernel.safe import command, one_line
from coterie.report.display import Display
from coterie.report.terminal import SafeConsole
from coterie.run.ablation import Ablation
from coterie.run.dry import resident
from coterie.run.evaluate import Evaluation
from coterie.run.folder import Run
from coterie.run.loaded import headline, load
from coterie.run.train import train

ENVIRONMENT, MODEL = "errand", "smollm2"
NEEDS = "This takes 4 GB of memory; the model takes 550 MB of disk, and the run 170 MB."
MUTED = 64
"""Number of test tasks on which each role is muted."""
LONGEST = 300
"""Maximum number of characters of a prompt or reply that are shown."""


def run(say: Say) -> dict[str, Any]:
    """Trains the team; measures it on the same test tasks before and after, and with each role muted."""
    config = load_config(ENVIRONMENT, [f"policies.*.model={MODEL}"])
    for line in (NEEDS, *config.remarks):
        say(line)
    began = time.perf_counter()
    run = train(config, trackers=[Display(console=SafeConsole(stderr=True, highlight=False))])
    minutes = (time.perf_counter() - began) / 60
    figures = headline(run)
    for line in in_words(figures.start, figures.end):
        say(line)
    say(str(figures))
    before, after = _perplexities(run, 0), _perplexities(run, None)
    with closing(load(run.folder)) as team:
        roles = list(team.config.team.roles)
        _, changes = team.compare([Ablation("mute", (role,)) for role in roles], tasks=MUTED)
    for change in changes:
        say(f"{change.ablation}: {100 * change.change:+.0f} points of {MUTED} test tasks")
    english = "; ".join(f"{name} {before[name]:.1f} to {after[name]:.1f}" for name in after)
    say(f"perplexity of plain English, which was not trained: {english}")
    say(f"watch it play: {command('play', run.folder)}")
    return {
        "run": str(run.folder),
        "tasks": figures.end.tasks,
        "start_success": figures.start.success,
        "success": figures.end.success,
        "success_low": round(figures.end.success_low, 4),
        "success_high": round(figures.end.success_high, 4),
        "best_step": figures.step,
        **{change.ablation: round(change.change, 4) for change in changes},
        **{f"perplexity {name}": [round(before[name], 2), round(after[name], 2)] for name in after},
        "training_minutes": round(minutes, 2),
        "peak_gib": round(resident() / 2**30, 2),
    }


def _perplexities(run: Run, step: int | None) -> dict[str, float]:
    """Returns the perplexity of plain English, by policy, at the checkpoint of a step; None: at the best one."""
    with closing(load(run.folder, step)) as team:
        return {name: perplexity(policy) for name, policy in team.models.policies.items()}


def in_words(start: Evaluation, end: Evaluation) -> Iterator[str]:
    """Yields what the team says on one task before and after training: the first that only the trained team solves."""
    pairs = list(zip(start.logs, end.logs, strict=True))
    both = [(before, after) for before, after in pairs if before is not None and after is not None]
    chosen = next((pair for pair in both if pair[1].solved and not pair[0].solved), both[0] if both else None)
    if chosen is None:
        return
    for when, log in zip(("before training", "after training"), chosen, strict=True):
        yield f"{when}: {'solved' if log.solved else 'not solved'}"
        yield from (f"  {line}" for line in _spoken(log))


def _spoken(log: Log) -> Iterator[str]:
    """Yields each question to a role, of which the last message is shown, and the reply."""
    asked = [event for event in log.events if isinstance(event, Asked)]
    answered = [event for event in log.events if isinstance(event, Answered)]
    for question, answer in zip(asked, answered, strict=True):
        for speaker, prompt in question.prompts.items():
            last = prompt if isinstance(prompt, str) else text_of((prompt[-1],)).partition("] ")[2]
            yield f"{speaker} is asked: {one_line(last)[-LONGEST:]}"
            yield f"{speaker} says: {one_line(answer.replies[speaker].text)[:LONGEST]}"
