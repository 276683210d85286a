"""Time that the viewer's pages take, of a run of 1,000 steps whose 100,000 samples are all saved.

The run is synthetic, and its figures are random. If Playwright and Debian's chromium are installed, a browser is timed
too.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from coterie.bench import Say
from coterie.config.resolve import load_config
from coterie.kernel.episode import Answered, Asked, Ended, Log, Rewarded, Sample, TurnBegan
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.scene import Reply
from coterie.run.folder import Run
from coterie.run.records import Played
from coterie.view.pages import Site
from coterie.view.shelf import Shelf

STEPS, TASKS, POINTS, MEMBERS, TOKENS = 1000, 5, 4, 5, 40
PAGES = {
    "overview": "", "story": "run/", "curves": "run/curves/", "roles": "run/roles/", "warnings": "run/warnings/",
    "rollouts": "run/rollouts/", "rollout": "run/rollouts/500/", "tree": "run/rollouts/500/3/",
    "group": "run/rollouts/500/3/2/",
}  # fmt: skip
"""Pages of the viewer by name, with their addresses."""


def run(say: Say) -> dict[str, Any]:
    """Returns milliseconds of each page: the first time, the median of ten more, and until a browser has painted it."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "runs/run"
        folder.parent.mkdir()
        say(f"making {STEPS * TASKS * POINTS * MEMBERS:,} samples")
        make(folder)
        site = Site(Shelf([folder.parent]))
        for name, address in PAGES.items():
            times = [_timed(site, address) for _ in range(11)]
            first, again = round(times[0]), round(median(times[1:]))
            figures |= {f"{name}_first_ms": first, f"{name}_ms": again}
            say(f"{name}: {first} ms, then {again}; {len(site.get(address)):,} bytes")
        with suppress(ImportError):
            figures |= _browsed(Shelf([folder.parent]), say)
    return figures


def make(folder: Path) -> None:
    """Makes the synthetic run in a folder."""
    rng = Random(0)
    made = Run.create(folder, load_config("tally", [f"train.steps={STEPS}"]))
    roles = tuple(made.config.team.roles)
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(STEPS + 1):
            file.write(json.dumps(_line(step, roles, rng)) + "\n")
    for step in range(1, STEPS + 1):
        made.save_episodes(step, [_played(step, task, roles, rng) for task in range(TASKS)])


def _line(step: int, roles: tuple[str, ...], rng: Random) -> dict[str, float]:
    line: dict[str, float] = {"step": step}
    if step % 10 == 0:
        success = 0.4 + 0.5 * step / STEPS + rng.uniform(-0.02, 0.02)
        line |= {
            "validation/success": success,
            "validation/success_low": success - 0.04,
            "validation/success_high": success + 0.04,
        }
    if step:
        line |= {
            "groups/total": 20.0,
            "groups/live": 12.0,
            "rollout/success": rng.random(),
            "budget/sampled_tokens": step * 4e3,
        }
        line |= {f"time/{name}": rng.random() for name in ("step", "rollout", "update", "tokens_per_s")}
        for role in roles:
            line |= {f"role/{role}/figure_{number}": rng.random() for number in range(15)} | {
                f"reward/{role}": rng.random()
            }
            line |= {f"policy/{role}/figure_{number}": rng.random() for number in range(15)}
            line |= {f"policy/{role}/entropy": 0.5 + rng.random(), f"role/{role}/live_groups": 6.0}
    return line


def _played(step: int, task: int, roles: tuple[str, ...], rng: Random) -> Played:
    groups: list[Group] = []
    events: list[Any] = []
    for point in range(POINTS):
        role = roles[point % len(roles)]
        prompt = tuple(rng.randrange(300) for _ in range(60))
        members = tuple(_member(role, prompt, rng) for _ in range(MEMBERS))
        groups.append(Group(Key(f"train-{task}", 0, f"0@{point}", role), "prompt", members, committed=0, point=point))
        said = members[0].samples[0]
        events += [TurnBegan(point), Asked({role: "what now? " * 10}), Answered({role: Reply(role, said.text)})]
        events.append(Rewarded(role, point, members[0].value, "figure"))
    events.append(Ended(rng.random() < step / STEPS, "it was over"))
    credit = tuple(tuple(member.value - 0.5 for member in group.members) for group in groups)
    return Played("train", task, Collected(tuple(groups), (Log("0", f"train-{task}", step, tuple(events)),)), credit)


def _member(role: str, prompt: tuple[int, ...], rng: Random) -> Member:
    ids = tuple(rng.randrange(300) for _ in range(TOKENS))
    logprobs = tuple(math.log(0.05 + 0.95 * rng.random()) for _ in ids)
    text = " ".join(f"word{token}" for token in ids)
    return Member((Sample(role, role, 0, prompt, ids, logprobs, "stop", text),), (rng.random(),))


def _timed(site: Site, address: str) -> float:
    began = time.perf_counter()
    site.get(address)
    return 1000 * (time.perf_counter() - began)


def _browsed(shelf: Shelf, say: Say) -> dict[str, Any]:
    """Returns milliseconds until Debian's chromium has painted the first page, and then each page anew."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    from coterie.protocol.listening import listen
    from coterie.view.app import Viewer

    chromium = shutil.which("chromium")
    if chromium is None:
        return {}
    place = listen("127.0.0.1", 0)
    viewer = Viewer(Site(shelf), "key", "cookie")
    threading.Thread(target=place.serve, args=(viewer.app(),), daemon=True).start()
    figures: dict[str, Any] = {}
    with sync_playwright() as player:
        window = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = window.new_page()

        def painted(url: str) -> float:
            tab.goto(url)
            while (at := tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")) is None:
                tab.wait_for_timeout(5)
            return at

        figures["first_paint_ms"] = round(painted(f"{place.url}/?key=key"))
        for name, address in PAGES.items():
            times = [painted(f"{place.url}/{address}") for _ in range(5)]
            figures[f"{name}_paint_ms"] = round(median(times))
            say(f"{name}: painted after {figures[f'{name}_paint_ms']} ms")
        window.close()
    return figures
