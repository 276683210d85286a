"""The effect of memory alone: weights are frozen, and memory evolves over a stream of questions in a changing office.

Writes docs/results/stream.md.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.intervals import over_seeds
from coterie.bench import Say
from coterie.config.resolve import load_config
from coterie.kernel.safe import plain
from coterie.run.folder import Run

PAGE = Path("docs/results/stream.md")
FOLDER = Path("runs/bench-stream")
SEEDS = range(5)
MODES = {
    "on": ("notes",),
    "placebo": ("as many notes, each for another question",),
    "harmless": ("notes, removed only if harmful", "memory.worth=-0.1"),
    "off": ("no notes",),
}
"""Modes of the memory by name: title, and the settings that differ."""
STEPS, TASKS, CHANGE = 60, 32, 30
"""Number of steps of a stream, of questions of each, and the step after which the office changes."""
PARTS = {
    "whole stream": range(1, STEPS + 1),
    "steps 1 to 10": range(1, 11),
    "21 to 30": range(21, 31),
    "31 to 40, after the change": range(31, 41),
    "51 to 60": range(51, 61),
}


def run(say: Say) -> dict[str, Any]:
    """Plays the missing streams, writes the page, and returns success over the whole stream by mode."""
    for seed in SEEDS:
        for mode in MODES:
            say(f"{mode}, seed {seed}: {fmean(streamed(mode, seed)):.3f}")
    PAGE.write_text(plain("\n".join(page())))
    return {mode: round(fmean(fmean(streamed(mode, seed)) for seed in SEEDS), 4) for mode in MODES}


def streamed(mode: str, seed: int) -> list[float]:
    """Returns success by step of one stream, which is played if it has not been."""
    folder = FOLDER / f"{mode}-{seed}"
    if not (folder / "done").exists():
        from coterie.run.train import train

        _, *changes = MODES[mode]
        memory = ["memory.mode=placebo"] if mode == "placebo" else []
        if mode == "off":  # a run without anything that learns is refused: notes are kept, and shown to nobody
            memory = ["memory.relevance=1"]
        settings = [
            f"environment.office={seed}", f"environment.era={CHANGE * TASKS}", f"train.seed={seed}",
            f"train.steps={STEPS}", f"train.tasks_per_step={TASKS}", *memory, *changes,
        ]  # fmt: skip
        train(load_config("desks", settings), folder)
        (folder / "done").touch()
    return [line["rollout/success"] for line in Run(folder).metrics() if line["step"]]


def page() -> list[str]:
    """Returns the lines of the results page."""
    lines = [
        "# Results: a stream of questions in which only the memory learns",
        "",
        "Written by `python -m benchmarks stream`. "
        "In `desks`, each topic needs one of 4 desks and one of 4 forms. Both are "
        "drawn at random, are not stated anywhere, and are drawn again before step 31. The weights (0.19 million "
        "parameters) can follow a note and are frozen. A note tells a role what it did for an answered question on the "
        "same topic. A stream has 60 steps of 32 questions; one episode in five is played without notes. The table "
        "gives the success of all sampled episodes: the mean over five offices (draws of desks and forms) with 95 % "
        "intervals (Student's t). Chance level is 0.063.",
        "",
        f"| | {' | '.join(PARTS)} |",
        "|---|" + "---|" * len(PARTS),
    ]
    for mode, (title, *_) in MODES.items():
        streams = [streamed(mode, seed) for seed in SEEDS]
        cells = []
        for steps in PARTS.values():
            mean, low, high = over_seeds([fmean(stream[step - 1] for step in steps) for stream in streams])
            cells.append(f"{mean:.3f} ({max(0.0, low):.3f} to {high:.3f})")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    pairs = [(streamed("on", seed), streamed("harmless", seed)) for seed in SEEDS]
    cells = []
    for steps in PARTS.values():
        mean, low, high = over_seeds([fmean(on[step - 1] - kept[step - 1] for step in steps) for on, kept in pairs])
        cells.append(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})")
    lines.append(f"| difference: first row minus third, same office | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "Memory helps here because the weights cannot know what a topic needs, a note can say it in a few words, and "
        "one success is enough to write the note. In `assistants`, such notes say what the weights learn in the same "
        "minutes, so they bring no gain ([notes](notes.md)). After the change, the team follows the old notes and "
        "fails. The old notes do little harm, since success without notes is also only 0.06. So a rule that removes "
        "only harmful notes (third row) keeps them. `memory.worth = 0` (first row) also removes notes that do not "
        "help; the last row gives the difference in the same offices. Both rules are slow, because every note on a "
        "topic must be shown several times before it is judged.",
        "",
    ]
