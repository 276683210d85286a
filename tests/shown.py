"""The pages of a finished run for the docs: python -m tests.shown RUN FOLDER, by `make shown`.

Of its saved rollouts the first and the last are shown, and of each so many tasks.
"""

import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path

from coterie.view.bundle import write
from coterie.view.pages import Site
from coterie.view.shelf import Shelf

TASKS = 3


def main(run: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        copy = Path(home) / "demo"
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("*.safetensors", "optimizer*"))
        about = json.loads((copy / "about.json").read_text())
        about["command"] = ["coterie", *about["command"][1:]]
        (copy / "about.json").write_text(json.dumps(about))
        saved = sorted((copy / "episodes").glob("step-*.jsonl.gz"))
        for file in saved[1:-1]:
            file.unlink()
        for file in (saved[0], saved[-1]):
            lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
            file.write_bytes(gzip.compress(b"".join(lines[:TASKS]), mtime=0))
        shutil.rmtree(folder, ignore_errors=True)
        _, unread = write(Site(Shelf([copy]), static=True), folder)
        assert not unread, unread


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
