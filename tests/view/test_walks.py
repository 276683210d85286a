"""Whoever opens the pages of a run that failed finds what failed within three clicks: docs/viewer.md has the walks."""

import json
import re
from html import unescape
from posixpath import normpath

import pytest

from coterie import load_config
from coterie.kernel.episode import Answered, Asked, Ended, Log, Sample, TurnBegan
from coterie.kernel.group import Collected, Group, Key, Member
from coterie.kernel.scene import Reply
from coterie.run.folder import Run
from coterie.run.records import Played
from coterie.view.pages import Site
from coterie.view.shelf import Shelf

ROLES = ("lead", "counter")
STEPS = 25


def step(number: int, **more: float) -> dict[str, float]:
    live = {f"role/{role}/live_groups": 4.0 for role in ROLES}
    return {"step": number, "groups/total": 10.0, "groups/live": 8.0, **live, **more}


def probe(role: str, change: float) -> dict[str, float]:
    return {f"mute/{role}/change{end}": change + more for end, more in (("", 0.0), ("_low", -0.01), ("_high", 0.01))}


def played(value: float, prompt: str = "what now?") -> Played:
    replies = [Sample("lead", "team", 0, (1, 2), (3 + at,), (-0.5,), "stop", f"reply {at}") for at in range(2)]
    group = Group(Key("train-0", 0, "0@0", "lead"), "prompt",
                  tuple(Member((one,), (value * at,)) for at, one in enumerate(replies)), committed=0)  # fmt: skip
    events = TurnBegan(0), Asked({"lead": prompt}), Answered({"lead": Reply("lead", "reply 0")}), Ended(True, "solved")
    return Played("train", 0, Collected((group,), (Log("0", "train-0", 1, events),)), ((-1.0 * value, value),))


IDLE = probe("lead", -0.4) | probe("counter", 0.0)
FAILED = {
    "collapsed": (
        [step(n, **{"policy/team/entropy": 1.0 if n < 10 else 0.001}) for n in range(1, STEPS)],
        None, r"has collapsed: entropy 0\.001",
    ),
    "lazy": ([step(n) | (IDLE if n % 5 == 0 else {}) for n in range(1, STEPS)], None, r"role 'counter' is lazy"),
    "dead": ([step(n) | {"role/counter/live_groups": 0.0} for n in range(1, STEPS)], None, r"role 'counter' is dead"),
    "dead groups": ([step(n) | {"groups/live": 0.0} for n in range(1, STEPS)], played(0.0), r"nothing: equal returns"),
    "leak": ([step(n) for n in range(1, STEPS)], played(1.0, "3 + 4 = ? The answer is 7."), r"The answer is 7\."),
}  # fmt: skip
"""Of runs that failed: what their metrics say, their latest rollout, and what is to be found."""


@pytest.mark.parametrize("name", FAILED)
def test_what_failed_is_found_within_three_clicks(name, tmp_path):
    lines, rollout, wanted = FAILED[name]
    made = Run.create(tmp_path / "runs/failed", load_config("tally", ["train.steps=30"]))
    (made.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if rollout:
        made.save_episodes(STEPS - 1, [rollout])
    site, reached = Site(Shelf([tmp_path / "runs"])), {""}
    for _ in range(4):
        pages = {address: site.get(address) for address in reached}
        if any(re.search(wanted, unescape(page)) for page in pages.values()):
            return
        links = {
            normpath(f"/{address}{link}").strip("/")
            for address, page in pages.items()
            for link in re.findall(r'<a [^>]*?href="([^"#?]*)"', page)
        }
        reached = {f"{link}/" if link else "" for link in links if not link.endswith(("find", "play"))}
    pytest.fail(f"{wanted} is not found in three clicks")
