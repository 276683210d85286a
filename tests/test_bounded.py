"""Files that may be anybody's: what is too much is refused before it is kept."""

import datetime
import gzip
import json
import os
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from coterie import load_config
from coterie.bounded import SMALL, TooMuch, content, parquet, unpacked
from coterie.config.toml import LARGEST
from coterie.errors import CheckpointError, ConfigError
from coterie.run import folder
from coterie.run.folder import Run


def bomb(file: Path, size: int) -> Path:
    with gzip.open(file, "wb") as packed:
        for _ in range(size >> 20):
            packed.write(b"0" * (1 << 20))
    return file


def test_a_bomb_is_counted_and_not_kept(tmp_path):
    file = bomb(tmp_path / "bomb", 4 * SMALL)
    assert file.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(TooMuch, match=f"it unpacks to more than {SMALL:,} bytes"):
        next(unpacked(file, 1 << 40))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_what_is_small_or_not_packed_tightly_comes_line_by_line(tmp_path):
    bomb(tmp_path / "small", 1 << 20)
    assert [len(line) for line in unpacked(tmp_path / "small", 1 << 30)] == [1 << 20]
    with pytest.raises(TooMuch, match="more than 1,000 bytes"):
        next(unpacked(tmp_path / "small", 1000))
    (tmp_path / "lines").write_bytes(gzip.compress(b"a\nb\n"))
    assert list(unpacked(tmp_path / "lines", 1000)) == [b"a\n", b"b\n"]


def test_content_has_an_end(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert content(tmp_path / "file", 5) == b"12345"
    with pytest.raises(TooMuch, match="it has more than 4 bytes"):
        content(tmp_path / "file", 4)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "nothing"])
def test_what_is_no_file_is_not_waited_for(kind, tmp_path):
    file = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "folder":
        file.mkdir()
    for read in (lambda: content(file, 5), lambda: next(unpacked(file, 5))):
        with pytest.raises(OSError, match="no ordinary file" if kind != "nothing" else "No such file"):
            read()


def test_every_file_of_a_run_has_bounds(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", load_config("plan_path"))
    about = (run.folder / "about.json").read_text()
    (run.folder / "about.json").write_text(json.dumps({**json.loads(about), "command": ["x" * (17 << 20)]}))
    with pytest.raises(CheckpointError, match=r"about\.json is missing or damaged"):
        run.about()
    (run.folder / "about.json").write_text(about)
    (run.folder / "episodes").mkdir()
    bomb(run.folder / "episodes/step-00001.jsonl.gz", 2 * SMALL)
    with pytest.raises(CheckpointError, match=r"step-00001.jsonl.gz is refused: it unpacks to more than .* bytes"):
        run.episodes(1)
    with gzip.open(run.folder / "episodes/step-00002.jsonl.gz", "wt") as file:
        file.write(json.dumps({"task": [[] for _ in range(100_000)]}))
    with pytest.raises(CheckpointError, match="it holds hardly anything but lists and objects"):
        run.episodes(2)
    with gzip.open(run.folder / "episodes/step-00003.jsonl.gz", "wt") as file:
        file.write(f'{{"advantages": [[{"0," * 3_000_000}0]]}}')
    with pytest.raises(CheckpointError, match="it holds more than 2,097,152 values"):
        run.episodes(3)
    monkeypatch.setattr(folder, "LARGEST_METRICS", 100)
    (run.folder / "metrics.jsonl").write_text('{"step": 1}\n' * 100)
    with pytest.raises(CheckpointError, match=r"metrics.jsonl is refused: it has more than 100 bytes"):
        run.metrics()
    text = (run.folder / "config.toml").read_text()
    (run.folder / "config.toml").write_text(f"{text}#{'x' * LARGEST}")
    with pytest.raises(CheckpointError, match="cannot be read as TOML: it has more than 1,048,576 bytes"):
        _ = run.tables
    (run.folder / "config.toml").unlink()
    os.mkfifo(run.folder / "config.toml")
    with pytest.raises(ConfigError, match="it is no ordinary file"):
        load_config(run.folder / "config.toml")


def table(file: Path, columns, **how) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), file, **how)
    return file


def test_the_rows_of_a_parquet_file_are_as_json_has_them(tmp_path):
    rows = [{"q": f"é {number}", "n": number, "x": 0.5, "no": None, "in": {"a": [1, 2]}} for number in range(200)]
    file = table(tmp_path / "t.parquet", {name: [row[name] for row in rows] for name in rows[0]})
    assert list(parquet(file)) == rows
    dated = table(tmp_path / "d.parquet", {"day": [datetime.date(2026, 1, 2)], "cost": [Decimal("1.50")]})
    assert list(parquet(dated)) == [{"day": "2026-01-02", "cost": "1.50"}]


def one_text(file: Path) -> Path:
    return table(file, {"a": ["x" * (1 << 20)] * 1000})


def many_rows(file: Path) -> Path:
    return table(file, {"a": pyarrow.array([0] * 4_000_000, pyarrow.int8())})


def one_cell(file: Path) -> Path:
    return table(file, {"a": ["x" * (1 << 28)]}, compression="zstd", use_dictionary=False)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (one_text, "it takes more than 200 MB"),
        (many_rows, "it unpacks to more"),
        (one_cell, "it takes more than 200 MB"),
    ],
)
def test_a_parquet_bomb_is_refused(make, reason, tmp_path):
    file = make(tmp_path / "bomb.parquet")
    with pytest.raises(TooMuch, match=reason):
        list(parquet(file))


def test_what_is_no_parquet_file_says_so(tmp_path):
    (tmp_path / "none.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ValueError, match=r"(?i)parquet"):
        list(parquet(tmp_path / "none.parquet"))
    with pytest.raises(OSError, match="No such file"):
        list(parquet(tmp_path / "gone.parquet"))
