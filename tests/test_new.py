"""`coterie new environment`: what it writes works, is tested, and is what the tutorial shows."""

import subprocess
import sys
from pathlib import Path

import pytest

from coterie import check
from coterie.kernel.environment import Environment
from coterie.registry import find
from tests.test_cli import call


@pytest.mark.slow
def test_what_it_writes_keeps_the_contract_and_passes_its_own_tests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("new", "environment", "my_world")
    assert code == 0
    assert out.splitlines()[:2] == ["wrote my_world.py", "wrote test_my_world.py"]
    assert len(Path("my_world.py").read_text().splitlines()) < 45
    assert "NewEnvironment" not in Path("my_world.py").read_text() + Path("test_my_world.py").read_text()
    report = check(find("environment", "my_world.py:MyWorld", Environment)(), tasks=1)
    assert report.ok, report
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_my_world.py"], capture_output=True, check=False
    )
    assert tested.returncode == 0, tested.stdout


def test_it_overwrites_nothing_and_says_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("test_mine.py").write_text("mine")
    for words, said in (
        (("environment", "mine"), "test_mine.py exists"),
        (("environment", "My-World"), "no name for a module"),
        (("environment", "sokoban"), "already"),
        (("algorithm", "x"), "unknown; there is environment"),
        (("environment", "../x"), "no name for a module"),
        *((("environment", name), "a name of Python's") for name in ("json", "class", "none", "task", "random")),
    ):
        code, _, err = call("new", *words)
        assert code == 2
        assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]
