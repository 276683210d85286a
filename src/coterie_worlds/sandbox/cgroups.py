"""Control groups, if this process may create them: limits of memory (including kernel memory), processes and CPU share.

Only version 2 is supported. Root can use the whole tree. An ordinary user can use what a session manager has delegated,
as systemd does for `systemd-run --user` and most desktops. Otherwise only resource limits apply; `level` says which
case holds.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie_worlds.sandbox.backends import Box

MOUNTS = Path("/proc/self/mounts")
WANTED = ("memory", "pids", "cpu")
KEEPERS_MB = 64
"""Megabytes of memory for all that runs beside a program in its sandbox."""
PERIOD_US = 100_000
REMOVED_S = 2.0
"""Seconds that the kernel may take to let go of a group whose processes have ended."""
_numbers = itertools.count()


class ControlGroup:
    """The control group of one sandbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def around(self, command: list[str]) -> list[str]:
        """Returns a command that enters the group before it begins."""
        return ["/bin/sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(self.folder), *command]

    def starved(self) -> bool:
        """Returns True if the kernel has ended something in the group for want of memory."""
        with contextlib.suppress(OSError):
            for line in (self.folder / "memory.events").read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1]) > 0
        return False

    def remove(self) -> None:
        """Ends the processes that are still in the group, and removes it."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        until = time.monotonic() + REMOVED_S
        while self.folder.exists() and time.monotonic() < until:
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.001)


def group(box: Box) -> ControlGroup | None:
    """Returns a new group with a sandbox's limits; None if none can be had."""
    parent = home()
    if parent is None:
        return None
    folder = parent / f"coterie-{os.getpid()}-{next(_numbers)}"
    limits = {
        "memory.max": box.memory_mb + box.tmp_mb + KEEPERS_MB << 20,
        "memory.swap.max": 0,
        "memory.oom.group": 1,
        "pids.max": box.threads + 4,  # the keeper, its program, and bubblewrap's two
        "cpu.max": f"{PERIOD_US} {PERIOD_US}",
    }
    folder.mkdir()
    for name, most in limits.items():
        if (folder / name).exists():
            (folder / name).write_text(str(most))
    return ControlGroup(folder)


@lru_cache
def home() -> Path | None:
    """Returns the folder in which this process may make groups with every wanted controller; None: there is none."""
    return next((folder for folder in _candidates() if _usable(folder)), None)


def level() -> str:
    """Returns in words what bounds a sandbox on this machine."""
    if home() is not None:
        return "control groups: memory with the kernel's own, processes and CPU are bounded"
    return (
        "no control groups can be had: resource limits bound each process, not the kernel's memory or the CPU's share"
    )


def _candidates() -> list[Path]:
    """Returns the folder in which groups might be made: the top for root, else the one that holds the own group."""
    with contextlib.suppress(OSError):
        lines = [line.split() for line in MOUNTS.read_text().splitlines()]
        root = next((Path(where) for _, where, kind, *_ in lines if kind == "cgroup2"), None)
        if root and os.geteuid() == 0:
            return [root]
        own = [line[4:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")]
        if root and own and own[0]:
            return [(root / own[0]).parent]
    return []


def _usable(folder: Path) -> bool:
    """Returns True if groups can be made in a folder, which is tried with one."""
    tried = folder / f"coterie-{os.getpid()}-try"
    try:
        given = set((folder / "cgroup.controllers").read_text().split())
        if not given.issuperset(WANTED):
            return False
        missing = set(WANTED) - set((folder / "cgroup.subtree_control").read_text().split())
        if missing:
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(missing)))
        for left in folder.glob("coterie-*"):  # of processes that were killed: an empty one can be removed
            with contextlib.suppress(OSError):
                left.rmdir()
        tried.mkdir()
        tried.rmdir()
    except OSError:
        return False
    return True
