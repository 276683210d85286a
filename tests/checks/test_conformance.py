"""`coterie check` finds what is broken, and only that."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie import check, load_config, train
from coterie.checks import rehearsal
from coterie.checks.rehearsal import rehearse
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError, EnvError
from coterie.kernel.environment import Task
from coterie.kernel.scene import Scene
from coterie.report.evaluation import evaluation_text
from coterie.run.evaluate import evaluate_team
from coterie_worlds import sandbox
from coterie_worlds.games.plan_path import PlanPath
from coterie_worlds.sandbox import Box
from coterie_worlds.sandbox.backends import missing
from tests import broken_envs
from tests.toys import TEAM, Carrying, Looping, Number, Sequential, Simultaneous, Tools, Toy, counting
from tests.troubled import Crashing
from tests.unasked import Absent, Again, OnlyA, Outside, Rarely, Shown

BROKEN = {
    "Clock": ("a replay says the same", "not deterministic"),
    "Forgetful": ("a replay says the same", "must be in scene.state"),
    "Hour": ("a second process", "differs there"),
    "SetOrder": ("a second process", "differs there"),
    "WrongRole": ("raises nothing", "the roles are"),
    "OwnTask": ("raises nothing", "of its own"),
    "OwnThread": ("raises nothing", "of its own"),
    "MutatedTask": ("not changed", "has changed"),
    "LateReward": ("seen by horizon", 'horizon "episode"'),
    "Leaking": ("splits are disjoint", "is also a train task"),
    "Endless": ("raises nothing", "decision points"),
    "Crashing": ("raises nothing", "ValueError"),
    "OutOfRange": ("team_reward_range", "outside"),
    "Impure": ("is pure", "differs when asked again"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_environment_is_caught_and_named(name):
    claim, detail = BROKEN[name]
    report = check(getattr(broken_envs, name)(), tasks=1)
    failed = [finding for finding in report.findings if not finding.ok]
    assert not report.ok
    assert any(claim in finding.claim and detail in finding.detail for finding in failed), report


@pytest.mark.slow
@pytest.mark.parametrize("environment", [PlanPath(), PlanPath(solo=True), PlanPath(view="full", size=4)])
def test_plan_path_keeps_the_contract(environment):
    report = check(environment, tasks=2)
    assert report.ok, report


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", [Sequential(), Simultaneous(), Looping(), Tools()], ids=lambda e: type(e).__name__
)
def test_the_toys_keep_the_contract(environment):
    report = check(environment, tasks=2)
    assert report.ok, report


@pytest.mark.slow
def test_a_late_reward_is_fine_under_a_longer_horizon():
    assert check(broken_envs.LateReward(), tasks=1, horizon="episode").ok
    assert check(Carrying(), tasks=2, horizon="episode").ok


def test_a_class_that_a_second_process_cannot_import_is_said_so():
    class Here(Sequential):
        pass

    failed = [finding for finding in check(Here(), tasks=1).findings if not finding.ok]
    assert [finding.claim for finding in failed] == ["a second process plays the same"]


class Apart(Toy):
    """Each role is shown its own words of the turn before."""

    async def play(self, task: Number, scene: Scene) -> None:
        own = {"a": "", "b": ""}
        for _ in scene.turns(2):
            replies = await scene.ask_all({role: f"{role} {words}" for role, words in own.items()})
            own = {role: reply.text for role, reply in replies.items()}


@pytest.mark.slow
def test_decentralised_execution_is_proved_or_the_words_that_leak_are_named():
    claim = "no role is shown what another said"
    found = check(Apart(), tasks=1, decentralised=True)
    assert found.ok, found
    assert claim in str(found)
    leak = {one.claim: one for one in check(PlanPath(), tasks=1, decentralised=True).findings}[claim]
    assert not leak.ok
    assert "'planner' is shown words of 'proposer'" in leak.detail


def test_a_tool_that_ends_its_process_fails_the_check_and_not_the_checker():
    report = check(Crashing(), tasks=1)
    (wrong, *_) = [finding for finding in report.findings if not finding.ok]
    assert "crash: its process was ended by SIGSEGV" in wrong.detail


class Meddling(Toy):
    change: Callable[[], Any]

    async def play(self, task, scene):
        self.change()
        await scene.ask("a", "x")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: os.chdir("/"), "the working folder to /; a run computes"),
        (lambda: torch.set_default_dtype(torch.float64), "torch's default dtype to torch.float64; a run computes"),
        (lambda: torch.set_grad_enabled(False), r"torch.is_grad_enabled\(\); a run computes"),
        (lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN), "the handler of SIGTERM; a run computes"),
    ],
)
def test_what_play_changes_of_its_process_is_told(change, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(EnvError, match=f"play has changed {says}"):
            rehearse(Meddling(change=change), play_timeout_s=5.0)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        signal.signal(signal.SIGTERM, before)
    assert Path.cwd() == tmp_path, "taken back"


FORKS = """
import os
from coterie import check
from tests.toys import Toy

class Forks(Toy):
    async def play(self, task, scene):
        if os.fork():
            raise SystemExit("the parent goes on")
        await scene.ask("a", "x")

check(Forks(), tasks=1)
"""


def test_a_child_of_play_that_comes_back_out_of_it_is_ended():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=False, timeout=60)
    assert "has forked, and its child came back from it: give such work to scene.call" in done.stderr


def test_what_is_no_environment_is_one_line():
    with pytest.raises(ConfigError, match="'plan_path' is no environment"):
        check("plan_path")  # pyright: ignore[reportArgumentType]


def test_a_class_in_place_of_what_it_makes_is_one_line():
    with pytest.raises(ConfigError, match=r"Sequential is a class; check what it makes: check\(Sequential\(\)\)"):
        check(Sequential)  # pyright: ignore[reportArgumentType]


def test_an_error_of_play_is_told_once_and_what_rests_on_playing_is_not_tried():
    class Broken(Toy):
        async def play(self, task, scene):
            await scene.ask("a", "pick")
            raise KeyError("oops")

    lines = str(check(Broken(), tasks=1)).splitlines()
    assert sum("KeyError" in line for line in lines) == 1
    assert sum(line.startswith("FAIL ") for line in lines) == 1
    assert "-    a replay says the same, event for event: not tried, since play raised" in lines
    assert lines[-1] == "-    a second process plays the same: not tried, since play raised"
    assert "the same: the same" not in "\n".join(lines)


class Boxed(Toy):
    """Calls into a sandbox that nothing has made ready: its first call starts what keeps them warm."""

    async def play(self, task: Number, scene: Scene) -> None:
        for role in self.roles:
            reply = await scene.ask(role, "write")
            (found,) = await scene.call(sandbox.runs, Box(memory_mb=347).json(), reply.text, [""])
            scene.reward(role, float(found["status"] == "ok"))
        scene.succeed()


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap"))
def test_what_keeps_sandboxes_warm_is_no_thread_of_plays():
    sandbox.pool.forget()
    assert check(Boxed()).ok


def test_moves_that_are_demonstrated_of_a_real_question_alone_are_played():
    """A game reads from its prompt what may be done, and of an empty one it knows nothing."""

    class Answers(Toy):
        async def play(self, task, scene):
            if (await scene.ask("a", "go")).text == "seven":
                raise LookupError("seven is not there")
            scene.succeed()

        def demonstrate(self, role, task, prompt, rng):
            if not prompt:
                raise NotImplementedError("of nothing")
            return "seven"

    assert "raised LookupError: seven is not there" in str(check(Answers(), tasks=1))


def test_an_environment_that_asks_nobody_and_splits_that_meet_late_are_caught():
    class Mute(Toy):
        async def play(self, task, scene):
            scene.succeed()

    class Late(Toy):
        """Validation begins where train ends, five tasks too early."""

        def count(self, split):
            return 80

        def task(self, split, index):
            return replace(
                super().task(split, index), number={"train": 0, "validation": 75, "test": 500}[split] + index
            )

    told = str(check(Mute(), tasks=1))
    assert "FAIL some role is asked: no role was asked anything in 3 episodes" in told
    assert "is also a train task" in str(check(Late(), tasks=1))


def test_a_role_that_nobody_asks_is_warned_of():
    report = check(OnlyA(), tasks=2)
    assert "warn every role is asked: role 'b' was asked nothing in 58 episodes, and would learn nothing: have" in str(
        report
    )
    assert "or leave it out of roles; if it is asked after good replies only, write demonstrate()" in str(report)
    assert report.ok
    report = check(Shown(), tasks=2)
    assert "warn every role is asked: role 'b' was asked nothing in 64 episodes" in str(report)
    assert "write demonstrate()" not in str(report)
    for environment in (Rarely(), Absent()):
        assert "ok   every role is asked" in str(check(environment, tasks=2))


def test_a_rehearsal_names_a_role_that_nobody_asks():
    (remark,) = rehearse(OnlyA(), play_timeout_s=5.0)
    assert remark.startswith("warning: role 'b' was asked nothing in 19 episodes")
    assert rehearse(Rarely(), play_timeout_s=5.0) == ()
    assert rehearse(Absent(), play_timeout_s=5.0) == ()


def test_a_rehearsal_says_nothing_of_roles_that_may_be_asked_after_a_call():
    assert rehearse(Outside(), play_timeout_s=5.0) == ()


@pytest.mark.parametrize("name", [name for name in BROKEN if name not in ("Hour", "SetOrder", "OwnThread")])
def test_a_rehearsal_finds_in_one_line_what_a_check_finds(name):
    """But for what needs a second process, or counts threads."""
    with pytest.raises(EnvError, match=BROKEN[name][1]) as told:
        rehearse(getattr(broken_envs, name)(), play_timeout_s=5.0, horizon="turn")
    assert "\n" not in str(told.value)


def test_what_a_rehearsal_finds_names_the_line_and_the_reply():
    says = (
        r"ValueError: invalid literal .* \(.*broken_envs.py:\d+\) after 'a' replied ''; mend it there: whatever roles"
    )
    with pytest.raises(EnvError, match=says):
        rehearse(broken_envs.Crashing(), play_timeout_s=5.0)


def test_a_rehearsal_of_slow_tasks_is_short(monkeypatch):
    class Slow(Toy):
        def task(self, split, index):
            time.sleep(0.01)
            return super().task(split, index)

        async def play(self, task, scene):
            scene.rng.sample(range(10**5), 10**4)
            await scene.ask("a", "pick")
            await scene.ask("b", "pick")

    monkeypatch.setattr(rehearsal, "LIMIT_S", 0.05)
    began = time.monotonic()
    assert rehearse(Slow(), play_timeout_s=5.0) == ()
    assert time.monotonic() - began < 1


def test_tasks_that_hold_nothing_but_an_id_are_not_compared():
    class Drawn(Toy):
        """What there is to solve is drawn in play."""

        def task(self, split, index):  # pyright: ignore
            return Task(f"{split}-{index}", split)

        async def play(self, task, scene):
            for role in self.roles:
                await scene.ask(role, str(scene.rng.random()))

    assert rehearse(Drawn(), play_timeout_s=5.0) == ()


def test_training_refuses_splits_that_overlap_before_anything_is_made(tmp_path):
    config = load_config("tests/broken_envs.py:Leaking", ["policies.team.model=nowhere", "train.device=cpu"])
    with pytest.raises(EnvError, match=r"task\('validation', 0\) is also a train task: .*; make each split of other"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_test_tasks_that_repeat_are_counted_and_fail_nothing():
    report = check(Again(), tasks=1)
    assert "ok   test tasks that differ: 500 of the first 1,000" in str(report)
    assert report.ok, report
    assert "ok   test tasks that differ: all of the first 1,000" in str(check(OnlyA(), tasks=1))


def test_an_evaluation_says_how_many_of_its_tasks_differ():
    found = evaluate_team(Again(), TEAM, ScriptedEngine(counting()), split="test", tasks=7)
    assert found.distinct == 4
    assert "7 tasks (4 different), greedy" in evaluation_text(found, (), {}, 1)
    assert "7 tasks, greedy" in evaluation_text(replace(found, distinct=7), (), {}, 1)


def test_an_evaluation_tells_of_a_role_that_earns_nothing_of_its_own_how_many_replies_were_cut():
    found = evaluate_team(Again(), TEAM, ScriptedEngine(counting()), split="test", tasks=7)
    text = evaluation_text(replace(found, rewards={"team": 1.0}, truncated={"a": 0.25}), (), {}, 1)
    assert "  team: reward +1.000 an episode\n  a: 25.0% of replies cut" in text
