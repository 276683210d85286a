"""Lines to read before changing an algorithm: its file and what this imports, down to the kernel.

python -m tests.test_reading
"""

import ast
import sys
from pathlib import Path
from statistics import median

from coterie.registry import ALGORITHMS
from tests.test_docs import ROOT

SRC = ROOT / "src"


def imported(file: Path) -> set[Path]:
    """Returns the files of the project that a file imports."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (node.module, *(f"{node.module}.{name.name}" for name in node.names))
            found |= {path for name in names if (path := SRC / f"{name.replace('.', '/')}.py").exists()}
    return found


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


def test_what_an_algorithm_is_made_of_is_found():
    assert set(to_read(SRC / "coterie/algorithms/rae.py")) == {
        "coterie/algorithms/episodic.py", "coterie/algorithms/rae.py", "coterie/sampling/episodes.py"
    }  # fmt: skip


def test_an_algorithm_can_be_read_before_it_is_changed():
    assert median(sum(files.values()) for files in by_algorithm().values()) <= 300


if __name__ == "__main__":
    totals = {name: sum(files.values()) for name, files in by_algorithm().items()}
    for name, files in by_algorithm().items():
        sys.stdout.write(f"{name}: {totals[name]}: {', '.join(f'{file} {lines}' for file, lines in files.items())}\n")
    sys.stdout.write(f"median: {median(totals.values()):.0f}\n")
