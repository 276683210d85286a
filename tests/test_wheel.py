"""The wheel: what is in it, and that it trains in an environment that holds nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import coterie
from tests.test_docs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_has_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert f"## {coterie.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_oldest_versions_are_those_that_are_admitted():
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *extras["maths"], *extras["remote"]]
    admitted = {one.split(";")[0].split(",")[0].replace(">=", "==") for one in needed}
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = {line for line in lines if line and not line.startswith("#")}

    def parts(line: str) -> tuple[str, tuple[int, ...]]:
        name, _, version = line.partition("==")
        numbers = [int(one) for one in version.split(".")]
        return name, tuple([*numbers, 0, 0, 0][:3])

    assert {parts(one) for one in oldest} == {parts(one) for one in admitted}


@pytest.mark.long
def test_it_holds_what_is_needed_and_trains_in_a_bare_environment(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    starter = "coterie_worlds/starters/tally/model.safetensors"
    assert {"coterie/py.typed", "coterie/report/templates/report.html", starter} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=True)
    pip = [
        bare / "bin/pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--constraint",
        ROOT / "constraints.txt",
    ]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    run = tmp_path / "run"
    sets = ["train.steps=3", "train.eval_tasks=20", "eval.tasks=20"]
    words = [word for one in sets for word in ("--set", one)]
    done = said(bare, tmp_path, "train", "tally", "--out", str(run), *words)
    assert f"done: {run}" in done
    assert said(bare, tmp_path, "--version").strip() == coterie.__version__
    assert "solved, 95 % interval" in said(bare, tmp_path, "eval", str(run))
    assert "equal to the bit" in said(bare, tmp_path, "update", str(run), "--step", "1")


def said(bare: Path, folder: Path, *words: str) -> str:
    """What a command of the installed package prints, from a folder without the project."""
    done = subprocess.run([bare / "bin/coterie", *words], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
