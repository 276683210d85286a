"""Comparison of learning with different engines: the embedded engine, vLLM, and two pools of a cluster.

Writes docs/results/engines.md. vLLM needs another version of transformers, so its runs are trained in a separate Python
environment. If vLLM is not installed, its rows come from those earlier runs in the shared folder of runs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.intervals import over_seeds
from coterie.bench import Say
from coterie.config.resolve import load_config
from coterie.kernel.safe import plain
from coterie.run.folder import Run

PAGE = Path("docs/results/engines.md")
FOLDER = Path("runs/bench-engines")
SEEDS = range(3)
STEPS = 40
SETTINGS = (
    f"train.steps={STEPS}", "train.tasks_per_step=24", f"train.eval_every={STEPS}", "train.eval_tasks=1000",
    "train.mute_every=0", f"train.checkpoint_every={STEPS}", "train.device=cpu",
)  # fmt: skip
WAYS = {
    "embedded": ("the embedded engine, one process", ""),
    "ray": ("two pools of a cluster, the embedded engine in each", "ray", "runtime.name=ray"),
    "vllm": ("vLLM, one network per role", "vllm", "engine.name=vllm", "engine.memory_gib=0.5"),
}
"""Ways of sampling by name: title, the package that is needed, and settings that differ."""


def run(say: Say) -> dict[str, Any]:
    """Trains the missing runs that are possible here, writes the page, and returns success by way."""
    for seed in SEEDS:
        for way in WAYS:
            if (told := trained(way, seed)) is not None:
                say(f"{WAYS[way][0]}, seed {seed}: {told[0]:.3f} to {told[1]:.3f}, {told[2]:.1g} nats apart")
    there = {way: [told for seed in SEEDS if (told := trained(way, seed))] for way in WAYS}
    if all(len(told) == len(SEEDS) for told in there.values()):
        PAGE.write_text(plain("\n".join(page(there))))
    return {way: round(fmean(end for _, end, _ in told), 4) for way, told in there.items() if told}


def trained(way: str, seed: int) -> tuple[float, float, float] | None:
    """Returns success at start and end, and the largest mismatch of engine and learner; None: it cannot run here."""
    folder = FOLDER / f"{way}-{seed}"
    _, needs, *changes = WAYS[way]
    if not (folder / "done").exists():
        if needs and importlib.util.find_spec(needs) is None:
            return None
        from coterie.run.train import train

        train(load_config("configs/plan_path.toml", [*SETTINGS, f"train.seed={seed}", *changes]), folder)
        (folder / "done").touch()
    lines = Run(folder).metrics()
    apart = max(value for line in lines for name, value in line.items() if name.endswith("/mismatch_max"))
    return lines[0]["validation/success"], lines[-1]["validation/success"], apart


def page(there: dict[str, list[tuple[float, float, float]]]) -> list[str]:
    """Returns the lines of the results page."""
    lines = [
        "# Results: the same team trained with three ways of sampling",
        "",
        "Written by `python -m benchmarks engines`. `plan_path` as in configs/plan_path.toml, with one policy of 0.85 "
        f"million parameters per role, is trained for {STEPS} steps of 24 tasks with {len(SEEDS)} seeds on two cores. "
        "Success is measured on 1,000 validation tasks before training and after the last step; "
        "[plan_path](plan_path.md) uses test tasks and the best checkpoint, so its numbers differ. It is the mean "
        "over seeds with a 95 % interval over seeds (Student's t). The last column is the largest difference between "
        "the engine's and the learner's log-probability of one token.",
        "",
        "| | success before | success after | largest difference (nats) |",
        "|---|---|---|---|",
    ]
    for way, (title, *_) in WAYS.items():
        mean, low, high = over_seeds([end for _, end, _ in there[way]])
        start, apart = fmean(start for start, *_ in there[way]), max(apart for *_, apart in there[way])
        lines.append(f"| {title} | {start:.3f} | {mean:.3f} ({low:.3f} to {min(1.0, high):.3f}) | {apart:.1g} |")
    return [*lines, ""]
