"""Test files of what has changed since the last commit: python -m tests.reached.

A test file is one of them if it has changed, or imports a module that has, or one of its fixtures' files.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"


def imported(file: Path) -> set[Path]:
    """Returns the files of the project that a file imports."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (node.module, *(f"{node.module}.{name.name}" for name in node.names))
            files = (f"{name.replace('.', '/')}.py" for name in names)
            found |= {path for file in files for home in (SRC, ROOT) if (path := home / file).exists()}
    return found


def changed() -> set[Path]:
    """Returns the files of Python that differ from the last commit, and new ones."""
    names = ["git", "diff", "--name-only", "HEAD"], ["git", "ls-files", "--others", "--exclude-standard"]
    told = [subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout for words in names]
    return {ROOT / name for name in "".join(told).splitlines() if name.endswith(".py") and (ROOT / name).exists()}


def reached(files: set[Path]) -> list[Path]:
    """Returns the test files that are among some files, or import one of them."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [test for test in tests if test in files or imported(test) & files]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{test.relative_to(ROOT)}\n" for test in reached(changed())))
