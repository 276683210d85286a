"""Every tracker's points are read back by its own reader, all of them, and are those of metrics.jsonl."""

import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys

import pytest

from coterie.commands import tracked
from coterie.config.resolve import load_config
from coterie.errors import ConfigError
from coterie.kernel.tracker import Tracker
from coterie.registry import TRACKERS, find
from coterie.run.train import train
from coterie.run.trust import QUIET
from coterie.trackers import Other, as_trl

LINES = [{"step": step, "policy/team/entropy": step / 7, "rollout/success": step / 2000} for step in range(1000)]
BLOCK, HEAD = 32768, 7


def read_tensorboard(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    events = accumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    points = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    assert {len(values) for values in points.values()} == {len(LINES)}
    return {(name, point.step): point.value for name, values in points.items() for point in values}


def records(data):
    """Of a .wandb file: after a head, blocks of (crc, length, type) and a piece."""
    at, pieces = HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEAD])
        pieces += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (1, 4):  # whole, or the last piece
            yield pieces
            pieces = b""


def read_wandb(folder):
    kind = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record
    newest = max(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    points = {}
    for record in map(kind.FromString, records(newest.read_bytes())):
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        points |= {(name, items["_step"]): value for name, value in items.items() if not name.startswith("_")}
    return points


def read_mlflow(folder):
    client = pytest.importorskip("mlflow").MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    newest, *_ = client.search_runs([client.get_experiment_by_name("coterie").experiment_id])
    names = newest.data.metrics
    return {
        (name, point.step): point.value
        for name in names
        for point in client.get_metric_history(newest.info.run_id, name)
    }


def read_trackio(folder):
    (file,) = (folder.parent / "trackio").glob("*.db")
    with sqlite3.connect(file) as database:
        newest = database.execute("select run_id from metrics order by rowid desc limit 1").fetchone()[0]
        rows = database.execute("select step, metrics from metrics where run_id = ?", (newest,)).fetchall()
    assert len(rows) == len(LINES)
    return {(name, step): value for step, line in rows for name, value in json.loads(line).items()}


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow, "trackio": read_trackio}
TELLS = """
import time
from pathlib import Path
from coterie.kernel.tracker import Tracker
from coterie.registry import find
from tests.trackers.test_trackers import LINES

for told, until in ((0, 600), (500, 1000)):  # a run is stopped, and goes on from before that
    tracker = find("tracker", {name!r}, Tracker)()
    tracker.ready()
    tracker.begin(Path({folder!r}), {{"train": {{"seed": 3}}}}, LINES[:told])
    for line in LINES[told:until]:
        tracker.log(line)
    tracker.end()
    time.sleep(1)  # TensorBoard's files are named by the second
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "tensorboard" else pytest.mark.long) for name in READERS]
)
def test_every_point_is_read_back_of_a_run_that_went_on(name, tmp_path):
    pytest.importorskip(find("tracker", name, Other).package)
    folder = tmp_path / "run"
    folder.mkdir()
    told = subprocess.run(  # a process of its own: these libraries start others, and warn
        [sys.executable, "-c", TELLS.format(name=name, folder=str(folder))], check=True, timeout=300,
        stdout=subprocess.PIPE, env={**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert not told.stdout  # it would write into the display
    points = READERS[name](folder)
    wanted = {(key, line["step"]): value for line in LINES for key, value in as_trl(line).items()}
    assert points == pytest.approx(wanted, rel=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not all(map(shutil.which, ("strace", "unshare"))), reason="needs strace and unshare")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "wandb" else pytest.mark.long) for name in READERS]
)
def test_nothing_outside_is_looked_up(name, tmp_path):
    """Where there is no network, and every connection is noted, those of native code too."""
    pytest.importorskip(find("tracker", name, Other).package)
    (tmp_path / "run").mkdir()
    told = TELLS.format(name=name, folder=str(tmp_path / "run"))
    noted = ["strace", "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(tmp_path / "noted")]
    subprocess.run(
        ["unshare", "-rn", *noted, sys.executable, "-c", told], check=True, timeout=300,
        env={**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert "AF_INET" not in (tmp_path / "noted").read_text()


def test_metrics_that_trl_has_too_are_called_as_there():
    line = {
        "step": 3, "policy/team/kl_k3": 0.1, "policy/a/clip_share": 0.2, "policy/a/ratio": 1.0,
        "rollout/reply_tokens": 9, "role/b/truncated_share": 0.5, "role/b/return": 1.5, "rollout/success": 0.4,
    }  # fmt: skip
    assert as_trl(line) == {
        "kl/team": 0.1, "clip_ratio/region_mean/a": 0.2, "policy/a/ratio": 1.0, "completions/mean_length": 9,
        "completions/clipped_ratio/b": 0.5, "role/b/return": 1.5, "rollout/success": 0.4,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in TRACKERS if issubclass(find("tracker", name, Tracker), Other)])
def test_one_that_is_not_installed_is_refused_before_anything_is_loaded(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, find("tracker", name, Other).package, None)
    tables = {
        "environment": {"name": "tests/toys.py:Agree"},
        "trackers": {name: {}},
        "policies": {"team": {"model": "?"}},
    }
    with pytest.raises(ConfigError, match=rf"tracker '{name}' needs .*; install it: pip install 'coterie\[{name}\]'"):
        train(tables, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_mistake_on_the_command_line_is_said_of_the_option_that_was_written():
    with pytest.raises(ConfigError, match=r"^--tracker wandd: unknown tracker 'wandd'; did you mean 'wandb'\?"):
        load_config("plan_path", [tracked("wandd")])


def test_one_on_the_command_line_stands_beside_those_of_the_config(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[environment]\nname = "plan_path"\n[trackers.wandb]\nproject = "ours"\n')
    own = f"{tmp_path}/mine.py:Log"
    (tmp_path / "mine.py").write_text("import coterie\n\nclass Log(coterie.Tracker):\n    def log(self, line): ...\n")
    config = load_config(file, [*map(tracked, ("wandb", "trackio", own)), "trackers.trackio.project=mine"])
    assert [config.names[f"trackers.{label}"] for label in config.trackers] == ["wandb", "trackio", own]
    assert [getattr(settings, "project", "") for settings in config.trackers.values()] == ["ours", "mine", ""]


def test_those_that_reach_nobody_are_the_ones_that_say_so():
    """Of others a stranger's run is told, which is read without importing any."""
    assert {name for name in TRACKERS if find("tracker", name, Tracker).local} == QUIET
