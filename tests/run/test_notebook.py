"""A real notebook, whose kernel has an event loop already: it trains, evaluates, plays, checks, and shows progress."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from coterie.models.load import save_model
from coterie.run.folder import Run
from tests.toys import tiny

pytestmark = pytest.mark.slow

CELLS = (
    "import asyncio; asyncio.get_running_loop()\nfrom coterie import check, load, load_config, train, update",
    "config = load_config('tests/toys.py:Agree', {sets})\nrun = train(config, {folder!r})\nrun",
    "team = load(run)\nfound = team.evaluate(tasks=8)\nassert team.evaluate(tasks=8) == found\nprint(found.success)",
    "log = team.play('validation', 1)\nprint(log.outcome.reason)",
    "print(check(config.environment, tasks=1))",
    "print(train(resume={folder!r}).checkpoints.steps())\nprint(update({folder!r}, 1).differs)",
    "import os, signal, threading\nfrom tests.toys import Hears\n"
    "def press(line):\n    if line['step'] == 1: os.kill(os.getpid(), signal.SIGINT)\n"
    "try:\n    train(config, {folder!r} + '-stopped', trackers=[Hears(press)])\n"
    "except KeyboardInterrupt as stop:\n    print(stop)",
    "print([thread.name for thread in threading.enumerate() if thread.name.startswith('coterie-play')])",
)


RUN = """
import sys, nbclient, nbformat
book = nbformat.read(sys.argv[1], 4)
try:
    nbclient.NotebookClient(book, timeout=120).execute()
finally:
    nbformat.write(book, sys.argv[1])
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> list[list[dict[str, Any]]]:
    """What each cell put out."""
    pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    home = tmp_path_factory.mktemp("notebook")
    save_model(tiny(scale=2.0), home / "tiny")
    sets = [f"policies.team.model={home / 'tiny'}", "train.steps=3", "train.tasks_per_step=4", "train.eval_tasks=6",
            "train.eval_every=1", "train.checkpoint_every=1", "train.episodes_every=1",
            "algorithm.num_generations=3"]  # fmt: skip
    values = {"sets": sets, "folder": str(home / "run")}
    file = home / "book.ipynb"
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(_filled(cell, values)) for cell in CELLS]), file
    )
    # in a process of its own, which may leave its sockets open
    done = subprocess.run([sys.executable, "-c", RUN, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    book = nbformat.read(file, 4)
    assert Run(home / "run").checkpoints.steps()[-1] == 3
    return [cell.outputs for cell in book.cells]


def _filled(cell: str, values: dict[str, Any]) -> str:
    for name, value in values.items():
        cell = cell.replace(f"{{{name}!r}}", repr(value)).replace(f"{{{name}}}", repr(value))
    return cell


def text(cell: list[dict[str, Any]]) -> str:
    return "".join(one.get("text", "") or one.get("data", {}).get("text/plain", "") for one in cell)


def test_progress_is_one_output_of_one_cell(outputs):
    shown = [one for one in outputs[1] if one["output_type"] == "display_data"]
    assert len(shown) == 1
    said = shown[0]["data"]["text/plain"]
    assert "3/3" in said
    assert "validation" in said
    assert "writing to" in said
    assert "step 1/3" not in said  # written anew, not line by line
    assert not [one for one in outputs[1] if one["output_type"] == "stream"]


def test_it_evaluates_twice_plays_checks_resumes_and_updates(outputs):
    assert 0 <= float(text(outputs[2])) <= 1
    assert text(outputs[3]).strip() in ("solved", "not solved", "no match") or text(outputs[3]).strip()
    assert "FAIL" not in text(outputs[4])
    assert "a second process plays the same" in text(outputs[4])
    assert text(outputs[5]).strip().endswith("()")


def test_an_interrupted_cell_saves_and_says_how_to_go_on(outputs):
    assert "stopped after step" in text(outputs[6])
    assert "go on with: coterie train --resume" in text(outputs[6])
    assert text(outputs[7]).strip() == "[]"
