"""A call may die, hang, spin or exit; the run goes on, counts it by name and leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.algorithms.mas_grpo import MASGRPO
from coterie.errors import CallError, EnvError, Unavailable
from coterie.kernel import calls
from coterie.kernel.calls import Crashed, InThread, TimedOut, WorkerPool
from coterie.kernel.calls.inside import load, own_name
from coterie.kernel.environment import Environment
from coterie.kernel.play import Sampling
from coterie.kernel.scene import Scene
from coterie.registry import find
from coterie.run.metrics import rollout_metrics
from tests import outside
from tests.toys import Toy, one, scripted, worth


def call(function, *args, limit_s: float = 10.0):
    return asyncio.run(calls.run(function, args, limit_s))


def gone(pid: int) -> bool:
    """Whether a process has ended, or ends within two seconds."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (outside.segfault, ("crash", "its process was ended by SIGSEGV")),
        (outside.killed, ("crash", "its process was ended by SIGSEGV")),
        (outside.leave, ("crash", "its process ended with exit code 7")),
        (outside.ask_to_leave, ("SystemExit", "enough")),
        (outside.no_memory, ("MemoryError", "all of it")),
    ],
)
def test_a_call_that_dies_is_an_error_for_play_and_the_next_one_works(function, error):
    began = time.monotonic()
    with pytest.raises(CallError) as caught:
        call(function)
    assert (caught.value.kind, caught.value.message) == error
    assert call(outside.echo, [1, {"a": None}]) == [1, {"a": None}]
    assert time.monotonic() - began < 5, "none waits for the limit"


def test_what_a_call_gives_and_says_has_a_size():
    assert len(call(outside.repeated, 16_000_000)) == 16_000_000
    with pytest.raises(CallError, match=r"^unusable: 18,000,002 characters of JSON, and a log takes 16,777,216$"):
        call(outside.repeated, 18_000_000)
    with pytest.raises(CallError) as caught:
        call(outside.complain, 1_000_000)
    assert caught.value.message == "x" * 10_000


def test_a_call_that_spins_is_ended_with_its_process():
    worker = call(outside.process)
    with pytest.raises(TimedOut, match=r"no result after 0.1 s"):
        call(outside.spin, limit_s=0.1)
    assert gone(worker)
    assert call(outside.process) != worker


def test_what_a_call_has_started_ends_with_its_worker():
    started = call(outside.start_another)
    assert Path(f"/proc/{started}").exists()
    with pytest.raises(Crashed):
        call(outside.leave)
    assert gone(started)


class Calling(Toy):
    """One call, of what a said; its failure ends the episode."""

    tool: str = "spin_for_odd"

    async def play(self, task, scene: Scene) -> None:
        said = await scene.ask("a", "x")
        try:
            await scene.call(getattr(outside, self.tool), int(worth(said.text)))
        except CallError as error:
            scene.fail(error.kind)
        else:
            scene.succeed()


@pytest.mark.parametrize(
    ("tool", "reason", "counted"), [("spin_for_odd", "timeout", "timeouts"), ("die_for_odd", "crash", "crashes")]
)
def test_time_outs_and_crashes_are_counted_by_the_functions_name(tool, reason, counted):
    draws = iter("121122")
    play = scripted(Calling(tool=tool), lambda *_: next(draws), sampling=Sampling(call_timeout_s=0.2))
    found = one(play, MASGRPO(num_generations=6).collect(play, Calling().task("train", 0)))
    assert [log.outcome.reason for log in found.logs].count(reason) == 3
    assert [log.solved for log in found.logs].count(True) == 3
    line = rollout_metrics([], play.budget)
    assert line["rollout/calls"] == line[f"call/{tool}/count"] == 6
    assert {name: count for name, count in line.items() if count == 3} == {f"call/{tool}/{counted}": 3}
    assert not any(name.startswith(("rollout/dropped", "rollout/retried")) for name in line)


def test_where_nothing_is_called_no_metric_says_so():
    play = scripted(Calling())
    assert not any("call" in name for name in rollout_metrics([], play.budget))


def test_a_worker_is_used_again_and_keeps_its_module_to_itself():
    assert len({call(outside.process) for _ in range(5)}) == 1
    first = call(outside.how_often)
    assert call(outside.how_often) == first + 1
    assert call(outside.process) != os.getpid()
    assert not outside.CALLS or len(outside.CALLS) != first + 1


def test_a_thousand_calls_leave_no_descriptor_and_no_process():
    call(outside.echo, 0)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))

    async def go() -> None:
        for number in range(200):
            assert await calls.run(outside.echo, (number,), 5.0) == number
        for _ in range(100):
            many = [calls.run(outside.echo, (number,), 5.0) for number in range(8)]
            assert await asyncio.gather(*many) == list(range(8))
        for _ in range(20):
            with pytest.raises(Crashed):
                await calls.run(outside.leave, (), 5.0)

    asyncio.run(go())
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 8, "a socket for each worker that waits"


def test_a_call_costs_far_less_than_a_process():
    call(outside.echo, 0)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    process = time.perf_counter() - began

    async def go() -> float:
        began = time.perf_counter()
        for number in range(200):
            await calls.run(outside.echo, (number,), 5.0)
        return (time.perf_counter() - began) / 200

    assert min(asyncio.run(go()) for _ in range(3)) < process / 3


def test_a_large_result_and_a_large_argument_cross():
    assert call(outside.letters, 3_000_000) == "x" * 3_000_000
    assert call(outside.echo, "y" * 3_000_000) == "y" * 3_000_000


def test_a_result_that_is_not_json_is_the_same_line_as_in_process():
    with pytest.raises(EnvError, match=r"the result of scene.call\(.*, …\) must be JSON"):
        call(outside.a_set)
    assert call(outside.touch) == 1


def test_infrastructure_keeps_its_stage():
    with pytest.raises(Unavailable, match="no room") as caught:
        call(outside.unavailable_for_odd, 1)
    assert caught.value.stage == "sandbox"


def test_what_a_call_prints_reaches_neither_the_result_nor_standard_output(capfd):
    pool = WorkerPool()  # its template has this test's standard error
    assert asyncio.run(pool.run(calls.place_of(outside.shout), ("hello",), 5.0)) == "hello"
    pool.close()
    out, err = capfd.readouterr()
    assert (out, err.count("hello")) == ("", 3)


def test_a_call_that_is_given_up_leaves_no_worker_that_would_answer_the_next():
    async def go() -> object:
        late = asyncio.ensure_future(calls.run(outside.slow, (0.2,), 5.0))
        await asyncio.sleep(0.05)
        late.cancel()
        await asyncio.wait({late})
        return await calls.run(outside.echo, ("mine",), 5.0)

    assert asyncio.run(go()) == "mine"


def test_a_result_that_came_while_the_loop_was_busy_is_in_time():
    async def go() -> object:
        waiting = asyncio.ensure_future(calls.run(outside.slow, (0.05,), 0.2))
        await asyncio.sleep(0.02)
        time.sleep(0.5)  # noqa: ASYNC251  (that is the point)
        return await waiting

    call(outside.echo, 0)
    assert asyncio.run(go()) == 0.05


def test_a_template_that_was_ended_is_started_again():
    pool = calls.pool()
    worker = call(outside.process)
    template = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(template, signal.SIGKILL)
    assert gone(worker)
    assert call(outside.process) != worker
    assert calls.pool() is pool


def test_a_module_of_a_users_file_is_loaded_from_its_path(tmp_path):
    file = tmp_path / "my_env.py"
    file.write_text(
        "import os\nfrom coterie import Environment\n\n"
        "def look(word):\n    return [word, os.getpid(), __name__]\n\n"
        "class Mine(Environment):\n    roles = ('a',)\n"
    )
    mine = find("environment", f"{file}:Mine", Environment)
    module = sys.modules[mine.__module__]
    word, pid, name = call(module.look, "hello")
    assert (word, name) == ("hello", mine.__module__)
    assert pid != os.getpid()


def test_a_module_that_only_this_process_can_import_is_one_line(tmp_path):
    file = tmp_path / "once.py"
    file.write_text(
        f"import os\nif os.getpid() != {os.getpid()}: raise RuntimeError('never twice')\ndef f():\n    return 1\n"
    )
    find_module = find.__globals__["_module"]
    with pytest.raises(EnvError, match=r"cannot import it \(RuntimeError: never twice\); write it into a file"):
        call(find_module(file).f)


def test_a_function_that_is_not_what_its_name_says_is_refused(monkeypatch):
    given = outside.echo
    monkeypatch.setattr(outside, "echo", outside.touch)
    with pytest.raises(EnvError, match=r"tests.outside:echo is not the one it was given"):
        call(given, 1)


SCRIPT = """
import asyncio, os
from coterie.kernel import calls

def here():
    return os.getpid()

{guard}
    print(asyncio.run(calls.run(here, (), 5.0)) != os.getpid())
"""


@pytest.mark.parametrize(("guard", "works"), [("if __name__ == '__main__':", True), ("if True:", False)])
def test_a_scripts_own_function_runs_where_the_script_can_be_imported(guard, works, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    if works:
        assert ran.stdout == "True\n", ran.stderr
    else:
        assert "write it into a file of its own and import it from there, or put what this" in ran.stderr


@pytest.mark.parametrize("what", ["spin", "echo"])
def test_workers_end_when_the_trainer_is_killed(what, tmp_path):
    """One that spins and one that waits."""
    code = (
        "import asyncio, os, sys\nfrom coterie.kernel import calls\nfrom tests import outside\n"
        "async def go():\n"
        "    print(await calls.run(outside.process, (), 5.0), flush=True)\n"
        f"    await calls.run(outside.{what}, {() if what == 'spin' else (1,)}, 60.0)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(go())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        worker = int(trainer.stdout.readline())
        template = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        time.sleep(0.1)
        trainer.kill()
        trainer.wait()
    assert gone(worker)
    assert gone(template)


def test_a_fork_of_the_trainer_has_workers_of_its_own():
    mine = call(outside.process)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, str(call(outside.process)).encode())
            calls.pool().close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 20)) not in (mine, 0)
    os.close(reading)
    os.close(writing)
    assert call(outside.process) == mine


def test_ctrl_c_is_the_trainers_alone():
    worker = call(outside.process)
    assert os.getsid(worker) != os.getsid(0)
    assert os.getpgid(worker) == worker


def _process_here() -> int:
    return os.getpid()


in_thread = InThread(_process_here)


def test_a_function_that_only_waits_stays_in_this_process_and_keeps_its_name():
    assert call(in_thread) == os.getpid()
    assert in_thread.__qualname__ == "_process_here"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(CallError, match="SystemExit"):
        call(InThread(outside.ask_to_leave))
    call(InThread(outside.slow), 0.1, limit_s=0.01)  # it bounds its own time, and nothing else does


def test_a_users_file_that_was_edited_is_not_taken_for_what_it_was(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("one = 1\n")
    name = own_name(str(file), file.read_bytes())
    load(name, str(file))
    assert sys.modules.pop(name).one == 1
    file.write_text("one = 2\n")
    with pytest.raises(ImportError, match=r"mine.py has been edited since; put it back as it was, or begin anew"):
        load(name, str(file))
    load("some_name_of_mine", str(file))
    assert sys.modules.pop("some_name_of_mine").one == 2
