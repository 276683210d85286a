"""Does memory pay? Weights frozen, memory alone evolving over a stream of questions in an office that changes.

Writes docs/results/stream.md.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.bench import Say
from coterie.bench.intervals import over_seeds
from coterie.config.resolve import load_config
from coterie.kernel.safe import plain
from coterie.run.folder import Run

PAGE = Path("docs/results/stream.md")
FOLDER = Path("runs/bench-stream")
SEEDS = range(5)
MODES = {
    "on": ("notes",),
    "placebo": ("as many notes, each another's",),
    "harmless": ("notes that stay unless they do harm", "memory.worth=-0.1"),
    "off": ("no notes",),
}
"""By name: what it is called, and what differs."""
STEPS, TASKS, CHANGE = 60, 32, 30
"""Steps of a stream, questions of each, and the step before which the office changes."""
PARTS = {
    "whole stream": range(1, STEPS + 1),
    "steps 1 to 10": range(1, 11),
    "21 to 30": range(21, 31),
    "31 to 40, changed": range(31, 41),
    "51 to 60": range(51, 61),
}


def run(say: Say) -> dict[str, Any]:
    """Plays what is missing, writes the page, and returns success over the whole stream by mode."""
    for seed in SEEDS:
        for mode in MODES:
            say(f"{mode}, seed {seed}: {fmean(streamed(mode, seed)):.3f}")
    PAGE.write_text(plain("\n".join(page())))
    return {mode: round(fmean(fmean(streamed(mode, seed)) for seed in SEEDS), 4) for mode in MODES}


def streamed(mode: str, seed: int) -> list[float]:
    """Success by step of one stream, played if it has not been."""
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
    """The results page."""
    lines = [
        "# Results: a stream of questions, and memory alone that learns",
        "",
        "Written by `coterie bench stream`. `desks`: which of 4 desks and which of 4 forms a topic needs is drawn at "
        "random, said nowhere, and drawn anew before step 31. The weights (0.19 million parameters) know how to follow "
        "a note, and are frozen; a role is shown what it did for questions on the same topic that were answered. 60 "
        "steps of 32 questions, one episode in five without notes; success of all episodes as they are sampled, mean "
        "over five offices, and 95 % intervals over them (Student's t). By chance it would be 0.063.",
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
    lines.append(f"| the first less the third, by office | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "What one learns here no weights could know, a note says it in a word, and one success is enough to write it "
        "down: that is where memory pays. In `assistants` the same notes say what the weights learn in the same "
        "minutes, and gain nothing ([notes](notes.md)). After the change the old notes are followed and fail. They "
        "harm little, for without notes success is 0.06 as well, so a rule that removes what does harm (the third "
        "row) keeps them; `memory.worth = 0` removes what does no good, and the last row says what that is worth in "
        "the same offices. Either takes long: every note on a topic has "
        "to be shown several times before it is judged.",
        "",
    ]
