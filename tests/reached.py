"""Test files of what has changed since the last commit: python -m tests.reached.

A test file is one of them if it has changed, or imports what has, or what imports that if no test does. Whatever has
changed, the tests of pages, names and settings are among them.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
ALWAYS = ("test_docs.py", "test_docstrings.py", "test_names.py", "config/test_config.py", "environments/test_every.py")


def imported(file: Path) -> set[Path]:
    """Returns the files of the project that a file imports."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        places = [home / name.replace(".", "/") for name in names for home in (SRC, ROOT)]
        found |= {path for place in places for path in (place.with_name(f"{place.name}.py"), place / "__init__.py")}
    return {path for path in found if path.exists()}


def changed() -> set[Path]:
    """Returns the files that differ from the last commit, and new ones."""
    names = ["git", "diff", "--name-only", "HEAD"], ["git", "ls-files", "--others", "--exclude-standard"]
    told = [subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout for words in names]
    return {ROOT / name for name in "".join(told).splitlines() if (ROOT / name).exists()}


def reached(files: set[Path]) -> list[Path]:
    """Returns the test files that are among some files or import one of them, and those that are run whatever it is.

    A file that no test imports is reached by what imports it, and so on.
    """
    everything = [path for home in (SRC, ROOT / "tests", ROOT / "benchmarks") for path in home.rglob("*.py")]
    imports = {path: imported(path) for path in everything}
    found = {ROOT / "tests" / name for name in ALWAYS} if files else set()
    left, seen = set(files), set(files)
    while left:
        file = left.pop()
        users = {path for path, used in imports.items() if file in used} | {file}
        tests = {path for path in users if path.name.startswith("test_")}
        found |= tests
        if not tests:
            left |= users - seen
            seen |= users
    return sorted(found)


if __name__ == "__main__":
    sys.stdout.write("".join(f"{test.relative_to(ROOT)}\n" for test in reached(changed())))
