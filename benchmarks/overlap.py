"""The effect of playing rollouts ahead on time and on success, with engine and learner on separate cores.

Writes docs/results/overlap.md. Two cores are enough: one for the engine and the worker, one for the learner and the
run. Seeds and variants are interleaved.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil

from benchmarks.intervals import over_seeds
from coterie.bench import Say
from coterie.config.resolve import load_config
from coterie.kernel.safe import plain
from coterie.kernel.tracker import Line, Tracker
from coterie.run.folder import Run
from coterie.run.ledger import audit

PAGE = Path("docs/results/overlap.md")
FOLDER = Path("runs/bench-overlap")
SEEDS = range(5)
FAR = range(3)
"""Seeds of the ways that run further ahead than one step."""
STEPS = 50
SETTINGS = (
    "runtime.name=ray", f"train.steps={STEPS}", "train.tasks_per_step=32", f"train.eval_every={STEPS}",
    "train.eval_tasks=1000", "train.mute_every=0", f"train.checkpoint_every={STEPS}", "train.device=cpu",
    "train.max_mismatch=1000",  # how far apart they come is what is asked
)  # fmt: skip
OFF = "loss.correction=none"
WAYS = {
    "0": ("taking turns",),
    "1": ("1 step ahead", "runtime.max_staleness=1"),
    "1 off": ("1 step ahead, no correction", "runtime.max_staleness=1", OFF),
    "2": ("2 steps ahead", "runtime.max_staleness=2"),
    "2 off": ("2 steps ahead, no correction", "runtime.max_staleness=2", OFF),
    "4": ("4 steps ahead", "runtime.max_staleness=4"),
    "4 off": ("4 steps ahead, no correction", "runtime.max_staleness=4", OFF),
}
"""Ways to train by name: title, and the settings that differ."""
CORES = {"Replica": 0, "Worker": 0, "Rank": 1}
"""The core of each kind of process of a run."""


class Pinned(Tracker):
    """A tracker that puts the parts of a run on their cores, and notes when a step ends."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def log(self, line: Line) -> None:
        """Notes the time, and puts the parts on their cores after the first validation, when everything is up."""
        if line["step"] == 0:
            os.sched_setaffinity(0, {1})
            for each in psutil.process_iter(["pid", "cmdline"]):
                name = (each.info["cmdline"] or [""])[0].removeprefix("ray::").split(".")[0]
                if name in CORES:
                    for thread in each.threads():
                        os.sched_setaffinity(thread.id, {CORES[name]})
        self.times.append(time.perf_counter())


def run(say: Say) -> dict[str, Any]:
    """Trains the missing runs, writes the page, and returns mean success by way."""
    for seed in SEEDS:
        for way in (way for way in WAYS if seed in seeds_of(way)):
            told = trained(way, seed)
            say(f"{WAYS[way][0]}, seed {seed}: {told['seconds']:.0f} s, success {told['success']:.3f}")
    PAGE.write_text(plain("\n".join(page())))
    return {way: round(fmean(trained(way, seed)["success"] for seed in seeds_of(way)), 4) for way in WAYS}


def seeds_of(way: str) -> range:
    """Returns the seeds that a way is trained with."""
    return SEEDS if way[0] in "01" else FAR


def folder_of(way: str, seed: int) -> Path:
    """Returns the folder of a way's training with a seed."""
    return FOLDER / f"{way.replace(' ', '-')}-{seed}"


def trained(way: str, seed: int) -> dict[str, float]:
    """Trains unless it is done; returns seconds from the first step to the last, success, and means of its steps."""
    folder = folder_of(way, seed)
    file = folder / "told.json"
    if not file.exists():
        from coterie.run.train import train

        os.environ["OMP_NUM_THREADS"] = "1"
        pinned, before = Pinned(), os.sched_getaffinity(0)
        _, *changes = WAYS[way]
        try:
            made = train(load_config("configs/plan_path_shared.toml", [*SETTINGS, f"train.seed={seed}", *changes]),
                         folder, trackers=[pinned])  # fmt: skip
        finally:
            os.sched_setaffinity(0, before)
        file.write_text(json.dumps(_told(made, pinned)))
    return json.loads(file.read_text())


def _told(made: Run, pinned: Pinned) -> dict[str, float]:
    """Returns a training's figures, less its last step, which has the validation; medians without the first two."""
    lines, proof = made.metrics(), audit(made.folder)
    if proof.odd:
        raise AssertionError(proof.odd)
    steps = [line for line in lines if line["step"]]
    inner = steps[2:-1]
    times = [later - earlier for earlier, later in zip(pinned.times[2:-2], pinned.times[3:-1], strict=True)]
    stale = [(updates, count) for updates, count in proof.staleness.items()]
    return {
        "seconds": pinned.times[-2] - pinned.times[0],
        "step": median(times),
        "rollout": median(line["time/rollout"] for line in inner),
        "update": median(line["time/update"] for line in inner),
        "success": lines[-1]["validation/success"],
        "start": lines[0]["validation/success"],
        "staleness": sum(updates * count for updates, count in stale) / sum(count for _, count in stale),
        "mismatch": fmean(line["policy/team/mismatch"] for line in inner if "policy/team/mismatch" in line),
        "cut": fmean(line.get("policy/team/correction_cut", 0.0) for line in inner),
    }


def page() -> list[str]:
    """Returns the lines of the results page."""
    told = {way: [trained(way, seed) for seed in seeds_of(way)] for way in WAYS}
    turns = told["0"]
    rollout, update = (median(one[phase] for one in turns) for phase in ("rollout", "update"))
    lines = [
        "# Results: rollouts that run ahead of updates",
        "",
        "Written by `python -m benchmarks overlap`. "
        "`plan_path` is trained with one policy (0.85 million parameters) for "
        f"{STEPS} steps of 32 tasks, with {len(SEEDS)} seeds ({len(FAR)} for two and more steps ahead) and "
        f"`runtime.name = \"ray\"` on two cores. One core has the engine and the worker that plays environments, the "
        "other the learner and the run's process. Without running ahead (*taking turns*), the rollout of a step takes "
        f"{rollout:.2f} s and its update {update:.2f} s (medians), so each core is idle for about half of the step. "
        "Success is measured on 1,000 validation tasks after the last step; at the start it is "
        f"{fmean(one['start'] for one in turns):.3f}. Values are means over seeds with 95 % intervals (Student's t).",
        "",
        "| | steps per second, relative to taking turns | success | success minus that of taking turns, same seed | "
        "updates behind, mean | difference of engine and learner, mean (nats) | "
        "share of tokens cut by the correction |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for way, (title, *_) in WAYS.items():
        mine = told[way]
        gain, slow, fast = over_seeds([one["step"] / other["step"] for one, other in zip(turns, mine, strict=False)])
        mean, low, high = over_seeds([one["success"] for one in mine])
        cost, least, most = over_seeds(
            [other["success"] - one["success"] for one, other in zip(turns, mine, strict=False)]
        )
        lines.append(
            f"| {title} | {gain:.2f} ({slow:.2f} to {fast:.2f}) | {mean:.3f} ({low:.3f} to {min(1.0, high):.3f}) | "
            f"{cost:+.3f} ({least:+.3f} to {most:+.3f}) | {fmean(one['staleness'] for one in mine):.2f} | "
            f"{fmean(one['mismatch'] for one in mine):.3f} | {fmean(one['cut'] for one in mine):.4f} |"
        )
    return [
        *lines,
        "",
        "When taking turns, each of the two cores is idle for half of a step. When rollouts run one step ahead, both "
        "are always busy. Two steps ahead gain nothing more, because rollout and update take about the same time. If "
        "one of them takes ten times as long as the other, running ahead can gain at most a tenth. The speed of a "
        "row also depends on how well its team plays: a worse team plays and trains longer replies and more turns.",
        "",
        "With `loss.correction`, the ratio that `clip` clips compares the current weights with those at the start of "
        "the update. With one update per step this ratio is always 1, so only the weights of the correction limit a "
        "step. Without the correction, the ratio compares with the weights that sampled, and it is clipped. Here this "
        "is better at every distance ahead, and at four steps ahead the corrected runs diverge. The correction is "
        "meant for an engine whose numbers differ from the learner's, and for several updates per step. If the engine "
        'is exact and there is one update per step, set `loss.correction = "none"`.',
        "",
    ]
