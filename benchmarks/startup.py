"""Seconds that `coterie --help` takes: the median of ten calls."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median
from typing import Any

from coterie.bench import Say


def run(say: Say) -> dict[str, Any]:
    """Returns the median seconds, and True if torch was imported."""
    times: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "coterie.cli", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
        say(f"{times[-1]:.3f} s")
    script = "import sys, coterie.cli; print('torch' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return {"help_s": round(median(times), 3), "imports_torch": loaded.stdout.strip() == "True"}
