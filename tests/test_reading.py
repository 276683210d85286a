"""Lines to read before changing an algorithm: its file and what this imports, down to the kernel.

python -m tests.test_reading
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pytest

from coterie.registry import ALGORITHMS
from tests.reached import ALWAYS, ROOT, SRC, imported, reached


def to_read(file: Path) -> dict[str, int]:
    """Returns the lines of a file and of all that it imports above the kernel, by file."""
    found: dict[Path, int] = {}
    left = [file]
    while left:
        path = left.pop()
        if path.parent.name in ("algorithms", "sampling") and path not in found:
            found[path] = len(path.read_text(encoding="utf-8").splitlines())
            left += imported(path)
    return {str(path.relative_to(SRC)): lines for path, lines in sorted(found.items())}


def by_algorithm() -> dict[str, dict[str, int]]:
    """Returns the lines to read for each file of shipped algorithms, by file."""
    modules = dict.fromkeys(place.partition(":")[0] for place in ALGORITHMS.values())
    return {module.rpartition(".")[2]: to_read(SRC / f"{module.replace('.', '/')}.py") for module in modules}


STEP = """
import sys, pathlib
from coterie import load_config, train
sets = ["train.steps=1", "train.eval_tasks=4", "train.tasks_per_step=1", "eval.tasks=4", "train.mute_every=0"]
train(load_config("plan_path", sets), pathlib.Path(sys.argv[1]))
files = [pathlib.Path(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
ours = [file for file in files if str(file).startswith(sys.argv[2])]
print(len(ours), sum(len(file.read_text().splitlines()) for file in ours))
"""
"""A program that prints the modules of ours that one step of plan_path loads, and their lines."""


def of_a_step(folder: Path) -> tuple[int, int]:
    """Returns how many modules a step of plan_path loads, and their lines."""
    words = [sys.executable, "-c", STEP, str(folder / "run"), str(SRC)]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    modules, lines = map(int, told.split())
    return modules, lines


def test_what_an_algorithm_is_made_of_is_found():
    assert set(to_read(SRC / "coterie/algorithms/rae.py")) == {
        "coterie/algorithms/episodic.py", "coterie/algorithms/rae.py", "coterie/sampling/episodes.py"
    }  # fmt: skip


def test_an_algorithm_can_be_read_before_it_is_changed():
    assert median(sum(files.values()) for files in by_algorithm().values()) <= 300


@pytest.mark.slow
def test_a_step_loads_what_it_needs(tmp_path):
    """No sandbox, no server, no memory: a step of plan_path uses none of them."""
    modules, lines = of_a_step(tmp_path)
    assert modules > 100, "or it looked at nothing"
    assert lines <= 20_000


def test_quick_runs_the_tests_of_what_has_changed():
    files = {SRC / "coterie/kernel/snapshots.py", SRC / "coterie/kernel/cursor.py"}
    found = {str(test.relative_to(ROOT)) for test in reached(files)}
    assert {"tests/kernel/test_cursor.py", "tests/environments/test_tally.py"} <= found
    assert "tests/algorithms/test_credit.py" not in found
    for name in ("coterie/config/merge.py", "coterie/kernel/recording.py", "coterie/kernel/calls/workers.py"):
        assert len(reached({SRC / name})) > len(ALWAYS), f"no test of {name}"


if __name__ == "__main__":
    totals = {name: sum(files.values()) for name, files in by_algorithm().items()}
    for name, files in by_algorithm().items():
        sys.stdout.write(f"{name}: {totals[name]}: {', '.join(f'{file} {lines}' for file, lines in files.items())}\n")
    sys.stdout.write(f"median: {median(totals.values()):.0f}\n")
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write("a step of plan_path: {} modules, {:,} lines\n".format(*of_a_step(Path(folder))))
