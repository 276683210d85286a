"""Prediction of `coterie plan` against measurement for a tiny step, each in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.models import random_qwen3
from coterie.bench import Say
from coterie.errors import RolloutError
from coterie.models.load import save_model

SIZES = {
    "1M": (512, 128, 384, 4, 4),
    "30M": (4096, 512, 1536, 8, 8),
    "135M": (32_768, 768, 2304, 16, 12),
    "0.6B": (151_936, 1024, 3072, 28, 16),
}
"""Shapes of random networks like Qwen3: tokens, width, inner width, layers, heads; the last is Qwen3-0.6B's."""
WAYS = [(kind, dtype) for kind in ("full", "lora", "lora, one for both roles") for dtype in ("float32", "bfloat16")]
LARGE = [("lora", "bfloat16")]
"""Kinds and dtypes in which the largest network is tried."""
SCRIPT = """
import json, sys
from coterie import load_config
from coterie.run.dry import dry_run
done = dry_run(load_config("plan_path", json.loads(sys.argv[1])), tasks=1)
(plan,), (measured,) = done.plans, done.measured
print(json.dumps({"predicted": plan.peak, "measured": measured}))
"""
PAGE = Path("docs/results/plan.md")
GIB = 1 << 30


def run(say: Say) -> dict[str, Any]:
    """Returns the ratios of predicted to measured memory; writes the table where the docs are."""
    figures: dict[str, Any] = {}
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for size, (vocabulary, width, inner, layers, heads) in SIZES.items():
            large = size == "0.6B"
            model = random_qwen3(
                vocabulary,
                width,
                inner,
                layers=layers,
                heads=heads,
                kv_heads=8 if large else 4,
                head_dim=128 if large else 64,
            )
            save_model(model, Path(folder) / size)
            parameters = model.size
            del model
            for kind, dtype in LARGE if large else WAYS:
                say(f"{size} {kind} {dtype}")
                done = tried(f"{folder}/{size}", kind, dtype)
                ratio = done["predicted"] / done["measured"]
                figures[f"{size} {kind} {dtype}"] = round(ratio, 3)
                rows.append(
                    f"| {parameters / 1e6:,.1f} M | {kind} | {dtype} | {done['predicted'] / GIB:.2f} | "
                    f"{done['measured'] / GIB:.2f} | {ratio:.2f} |"
                )
                say(rows[-1])
    if PAGE.parent.is_dir():
        PAGE.write_text("\n".join([*HEAD, *rows]) + "\n", encoding="utf-8")
    return figures


def tried(model: str, kind: str, dtype: str, *more: str) -> dict[str, int]:
    """Returns predicted and measured bytes of a tiny step, in a process of its own.

    Args:
        kind: of both roles' policies.
        more: settings.

    Raises:
        RolloutError: it failed.
    """
    kind, _, shared = kind.partition(", ")
    policies = ["team"] if shared else ["scout", "pilot"]
    sets = [
        f"policies.{policy}.{key}={value}" for policy in policies for key, value in (("model", model), ("kind", kind))
    ]
    sets += [f"train.dtype={dtype}", "optimizer.tokens_per_microbatch=2048", *more]
    command = [sys.executable, "-c", SCRIPT, json.dumps(sets)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RolloutError(f"a tiny step of {model}, {kind}, {dtype} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


HEAD = [
    "# Results: predicted and measured memory",
    "",
    "Written by `python -m benchmarks plan`. Measured is the peak memory, in GiB, of a process that plays one task of",
    "plan_path with one network per role and updates both networks twice. Predicted is what `coterie plan` says for",
    "the same work. Networks have Qwen3's shape and random weights, adapters have rank 32; there are two CPU threads.",
    "Both columns include the memory of Python and its libraries. The share of memory that an allocator cannot reuse",
    "was fitted to runs like these: a fifth of the temporary memory for whole policies, seven tenths for adapters.",
    "",
    "| parameters | kind | dtype | predicted (GiB) | measured (GiB) | predicted / measured |",
    "|---|---|---|---|---|---|",
]
