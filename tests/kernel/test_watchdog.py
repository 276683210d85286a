"""`play` that never comes back is stopped, with its task, role, point and line; nothing else is."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coterie import check, load_config, train
from coterie.algorithms.mas_grpo import MASGRPO
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError, EnvError
from coterie.kernel.play import Play, Sampling
from coterie.kernel.watchdog import Stuck, Watch
from coterie.models.load import save_model
from coterie.run.evaluate import evaluate_team
from tests import looping, outside
from tests.toys import TEAM, Sequential, Toy, counting, one, tiny

SHORT = Sampling(play_timeout_s=0.2)
FILE = looping.__file__


def line_of(text: str) -> int:
    return next(at for at, line in enumerate(Path(FILE).read_text().splitlines(), 1) if text in line)


def played(environment: Toy, sampling: Sampling = SHORT, script=None):
    play = Play(environment, TEAM, ScriptedEngine(script or counting()), seed=0, sampling=sampling)
    return one(play, MASGRPO(num_generations=2).collect(play, environment.task("train", 0)))


def test_a_loop_in_play_is_named_by_task_role_point_and_line():
    with pytest.raises(EnvError) as caught:
        played(looping.Looping())
    said = str(caught.value)
    assert (
        "play of task train-0, episode 0, after the answer of role 'a' at point 0, has run for more than 0.2 s" in said
    )
    assert f", at {FILE}:{line_of('        count_for_ever()')}, in count_for_ever at {FILE}:" in said
    assert "bound the loop" in said
    assert "\n" not in said


def test_a_server_outlives_what_blocks_in_a_thread_and_hears_of_it_when_it_comes_back(monkeypatch):
    monkeypatch.setattr(Watch, "ends_process", False)
    found: list[BaseException] = []

    class Blocks(Sequential):
        async def play(self, task, scene):
            threading.Event().wait(1.5)  # seven limits: from a thread nothing can be raised in it
            await super().play(task, scene)

    def work() -> None:
        try:
            played(Blocks())
        except EnvError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10.0)
    assert "has run for more than 0.2 s" in str(found[0])


def test_a_loop_in_a_thread_of_its_own_is_found_too():
    found: list[BaseException] = []

    def work() -> None:
        try:
            played(looping.Looping())
        except EnvError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive()
    assert "after the answer of role 'a' at point 0" in str(found[0])
    assert f"in count_for_ever at {FILE}" in str(found[0])


def test_play_cannot_catch_it_and_a_regular_expression_cannot_hold_it_off():
    with pytest.raises(Stuck, match="from its beginning"):
        played(looping.Stubborn())
    with pytest.raises(Stuck, match="from its beginning"):
        played(looping.LoopsAtOnce())
    with pytest.raises(Stuck, match=r"after the answer of role 'a'.*in match at "):
        played(looping.Backtracking())


def test_evaluation_is_watched():
    with pytest.raises(Stuck, match="task validation-0"):
        evaluate_team(looping.Looping(), TEAM, ScriptedEngine(counting()), tasks=2, sampling=SHORT)


def test_train_stops_with_the_line_and_leaves_nothing_behind(tmp_path):
    save_model(tiny(scale=2.0), tmp_path / "tiny")
    sets = ["train.steps=1", "train.eval_tasks=2", "engine.play_timeout_s=0.3", "team.a=x", "team.b=x"]
    config = load_config("tests/looping.py:LoopingAgree", [*sets, f"policies.x.model={tmp_path / 'tiny'}"])
    with pytest.raises(EnvError, match=r"task train-0, episode 0, after the answer of role 'b' at point 1"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_that_never_comes_is_named():
    with pytest.raises(ConfigError, match=r"task\('train', 0\) has run for more than 0.2 s, at .*looping.py"):
        load_config("tests/looping.py:LoopingTask", ["engine.play_timeout_s=0.2"])
    report = check(looping.LoopingTask(), tasks=1, play_timeout_s=0.2)
    assert "task('train', 0) has run for more than 0.2 s" in str(report)


def test_check_names_the_loop_and_looks_no_further():
    began = time.monotonic()
    report = check(looping.Looping(), tasks=1, play_timeout_s=0.3)
    assert time.monotonic() - began < 3
    assert not report.ok
    assert report.findings[-1].claim == "play ends, whatever roles say, and raises nothing"
    assert "after the answer of role 'a' at point 0" in report.findings[-1].detail
    assert f"{FILE}:" in report.findings[-1].detail


def test_check_is_not_held_up_by_its_second_process():
    report = check(looping.LoopsElsewhere(), tasks=1, play_timeout_s=0.3)
    (wrong,) = [finding for finding in report.findings if not finding.ok]
    assert wrong.claim == "a second process plays the same"
    assert "after the answer of role 'a' at point 0" in wrong.detail


class Sleepy(ScriptedEngine):
    async def generate(self, requests):
        time.sleep(0.4)  # noqa: ASYNC251  (as a forward pass does)
        return await super().generate(requests)


class Calling(Toy):
    async def play(self, task, scene) -> None:
        await scene.ask("a", "x")
        await scene.call(outside.slow, 0.4)
        scene.succeed()


def test_neither_a_slow_engine_nor_a_slow_call_counts():
    play = Play(Calling(), TEAM, Sleepy(counting()), seed=0, sampling=SHORT)
    (log,) = one(play, MASGRPO(num_generations=2).collect(play, Calling().task("train", 0))).logs[:1]
    assert log.solved


def test_the_timer_is_gone_after_the_rollout_and_leaves_another_persons_alone():
    before = signal.getsignal(signal.SIGALRM)
    played(Sequential())
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    def theirs(*_: object) -> None:
        """Somebody else's alarm."""

    signal.signal(signal.SIGALRM, theirs)
    try:
        with pytest.raises(Stuck):
            played(looping.Looping())
        assert signal.getsignal(signal.SIGALRM) == theirs
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_ends_just_as_it_is_found_late_raises_there_or_not_at_all():
    """In a thread the error is raised from outside: it must never come later, in somebody else's code."""
    late, wrong = 0, []

    def work() -> None:
        nonlocal late
        watch = Watch(0.005)
        with watch:
            number = 0
            while number < 200 or not late:  # a busy machine looks seldom
                number += 1
                try:
                    watch.over(lambda: "piece", time.sleep, 0.004 + 0.00002 * min(number, 500))
                except Stuck:
                    late += 1
                except BaseException as error:
                    wrong.append(error)
                sum(range(2000))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20.0)
    assert not thread.is_alive()
    assert not wrong
    assert late


def test_a_thread_that_was_late_goes_on_where_calls_are_traced():
    """As under a debugger, coverage or hypothesis: Python 3.11 waited there for an error that was taken back."""
    program = (
        "import sys\nfrom coterie.kernel.watchdog import Late, Watch\nwatch = Watch()\nwatch._fired = True\n"
        "try:\n    watch._settle()\nexcept Late:\n    print('late')\n"
        "sys.settrace(lambda *_: None)\ndef called(): print('called')\ncalled()"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout == "late\ncalled\n"


def test_a_process_that_was_stopped_and_goes_on_has_not_been_late():
    def stopped() -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as in a stop: what comes waits, once
        time.sleep(1.0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        return 3

    watch = Watch(0.2)
    with watch:
        assert watch.over(lambda: "it", stopped) == 3


def test_watching_costs_next_to_nothing():
    def piece() -> None:
        """Nothing."""

    watch = Watch()

    def best(run) -> float:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(10_000):
                run()
            times.append((time.perf_counter() - began) / 10_000)
        return min(times)

    with watch:
        assert best(lambda: watch.over(str, piece)) - best(piece) < 5e-6


def test_pieces_of_many_branches_are_watched_one_by_one():
    async def go() -> list[object]:
        play = Play(Sequential(), TEAM, ScriptedEngine(counting()), seed=0, sampling=Sampling(play_timeout_s=0.2))
        tasks = [Sequential().task("train", index) for index in range(4)]
        return await play.together(*(play.run(play.start(task)) for task in tasks))

    assert len(asyncio.run(go())) == 4


def test_a_thread_that_nothing_reaches_ends_the_process(monkeypatch):
    """As long as the piece is in C nothing is raised in it, as where it catches everything."""
    left, stuck = threading.Event(), []
    monkeypatch.setattr(Watch, "_leave", lambda self, why: left.set())

    def work() -> None:
        with (watch := Watch(0.05)):
            try:
                watch.over(lambda: "play of task x", left.wait)
            except Stuck as error:
                stuck.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert left.is_set()
    assert stuck[0].startswith("play of task x has run for more than 0.05 s")


def test_once_a_piece_was_stuck_the_others_of_a_rollout_are_not_waited_for():
    watch, begun = Watch(0.2), []
    with watch:
        for number in range(50):
            with pytest.raises(Stuck, match="piece 0 has run"):
                watch.over(
                    lambda number=number: f"piece {number}", lambda number=number: begun.append(number) or loop()
                )
    assert begun == [0]
    with watch:
        assert watch.over(lambda: "another", lambda: 3) == 3


def loop() -> None:
    while True:
        pass
