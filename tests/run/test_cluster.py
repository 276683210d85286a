"""Runs on a Ray cluster: they learn as one process does, whatever is killed, and every sample is trained or dropped."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from coterie import load_config, train
from coterie.errors import ConfigError, RolloutError
from coterie.run.folder import Run
from coterie.run.ledger import audit, read
from coterie.run.rollout import step_tasks
from tests.run.test_ranks import near
from tests.run.test_runs import TINY, model, whole  # noqa: F401
from tests.runs import untimed
from tests.toys import Hears

ray = pytest.importorskip("ray")
SETS = [*TINY, "runtime.name=ray", "train.eval_every=4"]


@pytest.fixture(scope="module", autouse=True)
def alone():
    """One thread a part: two cores are shared by many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def config(model, *more, world="tests/toys.py:Agree"):  # noqa: F811
    return load_config(world, [one.replace("TINY", str(model)) for one in (*SETS, *more)])


def parts(name: str, mark: str = "") -> list[psutil.Process]:
    """This one's processes of a kind, or those that have a mark: Ray calls them by the class that they are."""
    there = []
    for each in psutil.process_iter() if mark else psutil.Process().children(recursive=True):
        try:
            ours = not mark or each.environ().get("MARK") == mark
            if ours and each.cmdline() and each.cmdline()[0].startswith(f"ray::{name}"):
                there.append(each)
        except psutil.Error:
            continue
    return sorted(there, key=lambda each: each.pid)


def listening() -> set[str]:
    """The addresses on which processes of this one wait for others."""
    held = [link for each in psutil.Process().children(recursive=True) for link in each.net_connections("tcp")]
    return {link.laddr.ip.removeprefix("::ffff:") for link in held if link.status == psutil.CONN_LISTEN}


def handlers() -> list:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


def kill(name: str, number: int = signal.SIGKILL) -> None:
    parts(name)[0].send_signal(number)


def until(true, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def same(run: Path, other: Path) -> None:
    """Whether two runs' metrics are the same, but for the order of additions."""
    for mine, theirs in zip(untimed(run), untimed(other), strict=True):
        for name in theirs.keys() - {"budget/engine_calls"}:
            if not name.startswith(("validation", "mute")):
                assert mine[name] == pytest.approx(theirs[name], abs=1e-5), name


@pytest.mark.long
def test_two_pools_taking_turns_learn_as_one_process_does(whole, model, tmp_path):  # noqa: F811
    folder, before, during, begun, init = tmp_path / "run", handlers(), [], [], ray.init
    doors: set[str] = set()

    def heard(line):
        during.append(handlers())
        doors.update(listening())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", lambda *args, **kwargs: begun.append(kwargs) or init(*args, **kwargs))
        train(config(model), folder, trackers=[Hears(heard)])
    assert doors == {"127.0.0.1"}, "its own cluster is nobody else's"
    assert len(begun) == 1, "and no other cluster, at the end"
    assert [[each.__name__ for each in pair] for pair in during] == 5 * [["_arrived", "_arrived"]], (
        "signals are the run's"
    )
    assert handlers() == before
    same(folder, whole)
    assert near(folder, whole, 4)
    told = audit(folder)
    assert not told.odd
    assert (told.steps, told.incarnations, len(told.engines)) == (4, 1, 2)
    lines = Run(folder).metrics()
    assert sum(told.trained.values()) == sum(
        line[f"policy/{name}/trained_sequences"] for line in lines for name in "xy" if f"policy/{name}/loss" in line
    )
    assert told.tokens == lines[-1]["budget/sampled_tokens"]
    assert not parts("Replica")
    assert not parts("Rank")
    assert not ray.is_initialized()


@pytest.mark.cluster
def test_it_learns_on_whatever_is_killed(whole, model, tmp_path):  # noqa: F811
    """An engine, a worker, and a rank of two, each in the middle of things."""
    folder, killed = tmp_path / "run", []

    def strike(line):
        victims = {1: ["Replica"], 2: ["Worker"], 3: ["Rank"]}
        for name in victims.get(line["step"], []):
            if name not in killed:
                killed.append(name)
                kill(name)

    sets = ["train.ranks=2", "policies.x.kind=lora", "policies.y.kind=lora", "train.checkpoint_every=4"]
    train(config(model, *sets), folder, trackers=[Hears(strike)])  # the rank's end shows in an update
    train(load_config("tests/toys.py:Agree", [one.replace("TINY", str(model)) for one in (*TINY, *sets[1:])]),
          tmp_path / "local")  # fmt: skip
    assert killed == ["Replica", "Worker", "Rank"]
    told = audit(folder)
    assert not told.odd
    assert (told.steps, told.incarnations, told.undone) == (4, 2, 3)
    assert sum(told.lost.values()) >= 1
    assert {line["at"] for line in read(folder)} == {"began", "sent", "done", "lost", "settled"}
    drawn_by = {entry[7] for line in read(folder) if line["at"] == "done" for entry in line["samples"]}
    assert len({name for name in drawn_by if name.startswith("x+y/0")}) >= 2, "adapters of one base share engines"
    for mine, theirs in zip(untimed(folder), untimed(tmp_path / "local"), strict=True):
        loss = "policy/x/loss"
        assert mine.get(loss) == pytest.approx(theirs.get(loss), abs=1e-5)


@pytest.mark.cluster
def test_rollouts_run_ahead_within_their_bound_and_a_killed_run_goes_on(model, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    sets = ["runtime.max_staleness=2", "runtime.workers=2", "runtime.engines=2", "train.steps=8"]
    script = (
        "import os, signal, sys\n"
        "from coterie import train, load_config\n"
        "from tests.toys import Hears\n"
        "def kill(line):\n"
        "    if line['step'] == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    train(load_config('tests/toys.py:Agree', sys.argv[2:]), sys.argv[1], trackers=[Hears(kill)])\n"
    )
    (tmp_path / "killed.py").write_text(script)
    overrides = [one.replace("TINY", str(model)) for one in (*SETS, *sets)]
    command = [sys.executable, str(tmp_path / "killed.py"), str(folder), *overrides]
    mark = str(folder)
    done = subprocess.run(
        command, check=False, env=os.environ | {"PYTHONPATH": str(Path.cwd()), "MARK": mark}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = list(Path("/tmp").glob("coterie-ray-[0-9]*-*"))
    assert left, "what was killed has cleared nothing up"
    until(lambda: not any(parts(name, mark) for name in ("Replica", "Rank", "Worker")))
    with (folder / "ledger.jsonl").open("a") as file:
        file.write('{"at":"done","step":3,"att')  # a line that was cut
    train(config(model, *sets), resume=folder)
    told = audit(folder)
    assert not told.odd
    assert (told.steps, told.incarnations) == (8, 2)
    assert set(told.staleness) <= {0, 1, 2}
    assert told.staleness[2]
    lines = Run(folder).metrics()
    assert max(line.get("rollout/staleness_max", 0) for line in lines) == 2
    assert any("policy/x/correction" in line for line in lines), "the correction is on where rollouts run ahead"
    assert all(line.get("time/tokens_per_s", 0) < 20_000 for line in lines), "a wait for nothing is no speed"
    assert not [path for path in left if path.exists()], "the next run clears up"
    for step in range(8):
        done_of = [line["attempt"] for line in read(folder) if line["at"] == "done" and line["step"] == step]
        tasks = [line["tasks"] for line in read(folder) if line["at"] == "sent" and line["attempt"] in done_of]
        assert {task for share in tasks for task in share} == set(step_tasks(config(model, *sets), step))


@pytest.mark.cluster
def test_a_signal_to_the_runs_whole_group_lets_it_save(model, tmp_path):  # noqa: F811
    """As schedulers, `timeout` and shells send it: the cluster is no part of the group."""
    folder = tmp_path / "run"
    overrides = [f"--set={one.replace('TINY', str(model))}" for one in (*SETS, "train.steps=500")]
    command = [sys.executable, "-m", "coterie.cli", "train", "tests/toys.py:Agree", "--out", str(folder), *overrides]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        until(lambda: (folder / "metrics.jsonl").exists() and Run(folder).metrics()[-1]["step"] > 2)
        os.killpg(run.pid, signal.SIGTERM)
        _, told = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM, told
    assert "saved as of step" in told
    assert Run(folder).checkpoints.steps()[-1] > 2


HANGS = """
import signal, sys
from coterie import load_config
from coterie.cli import main
from coterie.run import interrupts
from tests.run.test_cluster import kill
from tests.toys import Hears

def strike(line):
    if line["step"] == 2:
        kill({victim!r}, signal.SIGSTOP)

if __name__ == "__main__":
    interrupts.SHIELD_S = 3.0
    import coterie.run.train as train
    named = train.of_config
    train.of_config = lambda config: {{**named(config), "hears": Hears(strike)}}
    main()
"""


@pytest.mark.cluster
@pytest.mark.parametrize("victim", ["Replica", "Worker", "Rank"])
def test_a_signal_ends_a_run_whose_part_hangs(victim, model, tmp_path):  # noqa: F811
    folder, script = tmp_path / "run", tmp_path / "hangs.py"
    script.write_text(HANGS.format(victim=victim))
    overrides = [f"--set={one.replace('TINY', str(model))}" for one in (*SETS, "train.steps=500", "train.grace_s=1")]
    command = [sys.executable, str(script), "train", "tests/toys.py:Agree", "--out", str(folder), *overrides]
    env = os.environ | {"PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=env) as run:
        try:
            until(lambda: (folder / "metrics.jsonl").exists() and Run(folder).metrics()[-1]["step"] == 2)
            time.sleep(2)
            run.send_signal(signal.SIGTERM)
            _, told = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 128 + signal.SIGTERM, told
    assert re.search(r"go on with: coterie train --resume \S+$", told.strip()), told


BUGGY = """
from tests.toys import Agree

class Ends(Agree):
    async def play(self, task, scene):
        import os
        if task.split == "train":
            os._exit(3)
        await super().play(task, scene)
"""


@pytest.mark.long
def test_what_goes_wrong_elsewhere_is_told_here(model, tmp_path):  # noqa: F811
    (tmp_path / "buggy.py").write_text(BUGGY)
    ray.init(address="local", num_cpus=8, include_dashboard=False, object_store_memory=200 << 20)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coterie.run.train.rehearse", lambda *args, **kwargs: ())
            patch.setattr("coterie.run.cluster.runtime.TRIES", 2)
            with pytest.raises(RolloutError, match="step 1: workers have ended 2 times while they played tasks"):
                train(config(model, world=f"{tmp_path}/buggy.py:Ends"), tmp_path / "ends")
        with pytest.raises(
            ConfigError, match=r"the cluster has 8 CPUs, and this run asks for 13: 2 pools of 5 engines"
        ):
            train(config(model, "runtime.engines=5"), tmp_path / "large")
        assert not (tmp_path / "large").exists()
        assert ray.is_initialized(), "what was here before stays"
        assert not parts("Replica")
        until(lambda: ray.available_resources()["CPU"] == 8)
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_a_cluster_that_hides_exit_codes_is_refused():
    """Ray can be told to: then whatever a program of a model's ends with, it would have ended well."""
    script = (
        "import signal\n"
        "from coterie.run.cluster.actors import check_exit_codes\n"
        "check_exit_codes()\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "check_exit_codes()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert "ConfigError: this cluster hides how programs end" in done.stderr
    assert "line 5, in <module>" in done.stderr, "only where it does"


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_line(model, tmp_path):  # noqa: F811
    wrong = config(model, 'runtime.address="127.0.0.1:1"')
    with pytest.raises(ConfigError, match=r"runtime.address = '127.0.0.1:1': no Ray cluster could be joined there"):
        train(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not ray.is_initialized()


INSIDE = r"""
set -e
cd {home}
ip link set lo up
mkdir -p /run/netns
mount -t tmpfs none /run/netns
for name in head other; do ip netns add $name; ip netns exec $name ip link set lo up; done
ip link add veth0 netns head type veth peer name veth1 netns other
ip netns exec head ip addr add 10.77.0.1/24 dev veth0
ip netns exec other ip addr add 10.77.0.2/24 dev veth1
ip netns exec head ip link set veth0 up
ip netns exec other ip link set veth1 up
ip netns exec head {bin}/ray start --head --node-ip-address 10.77.0.1 --port 6399 --num-cpus 8 --temp-dir {temp} \
  --include-dashboard false --object-store-memory 200000000 --disable-usage-stats
ip netns exec other {bin}/ray start --address 10.77.0.1:6399 --node-ip-address 10.77.0.2 --num-cpus 4 \
  --object-store-memory 200000000 --disable-usage-stats
(export RAY_AUTH_TOKEN={wrong}; ip netns exec head {bin}/coterie train tests/toys.py:Agree --out {folder}-wrong \
  {flags} 2>&1 || echo "exit $?")
ip netns exec head {bin}/python {script} {folder} {sets}
ip netns exec head {bin}/python -c "
import ray
ray.init(address='10.77.0.1:6399', log_to_driver=False)
print('still there', sum(node['Alive'] for node in ray.nodes()))
"
ip netns exec head {bin}/ray stop --force
"""
TWO = """
import os, signal, sys, psutil
from coterie import train, load_config
from tests.toys import Hears

def other():
    inside = os.stat('/run/netns/other').st_ino
    there = []
    for each in psutil.process_iter():
        try:
            if os.stat(f'/proc/{each.pid}/ns/net').st_ino == inside:
                there.append(each)
        except (OSError, psutil.Error):
            pass
    return there

def lose(line):
    if line['step'] == 2:
        names = {each.cmdline()[0].split('.')[0] for each in other() if each.cmdline()}
        print('lost', sorted(name for name in names if name.startswith('ray::')), flush=True)
        for each in other():
            each.send_signal(signal.SIGKILL)

if __name__ == '__main__':
    train(load_config('tests/toys.py:Agree', sys.argv[2:]), sys.argv[1], trackers=[Hears(lose)])
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-nm", "ip", "link"], check=False, capture_output=True).returncode != 0,
    reason="needs to make network namespaces",
)
@pytest.mark.cluster
def test_two_machines_are_joined_by_address_and_one_may_be_lost(model, tmp_path):  # noqa: F811
    """Each in a network namespace of its own, with a cable between them."""
    (tmp_path / "two.py").write_text(TWO)
    folder = tmp_path / "run"
    sets = [*SETS, "runtime.workers=4", 'runtime.address="10.77.0.1:6399"', "train.steps=5"]
    temp = Path("/tmp") / f"ray-{os.getpid()}"
    settings = [f"'{one.replace('TINY', str(model))}'" for one in sets]
    token, wrong = "1234" * 16, "4321" * 16
    words = {
        "wrong": wrong, "flags": " ".join(f"--set {one}" for one in settings), "sets": " ".join(settings),
        "home": Path.cwd(), "bin": Path(sys.executable).parent, "temp": temp, "script": tmp_path / "two.py",
        "folder": folder,
    }  # fmt: skip
    done = subprocess.run(
        ["unshare", "-nm", "bash", "-c", INSIDE.format(**words)], check=False, capture_output=True, text=True,
        env=os.environ | {
            "PYTHONPATH": str(Path.cwd()), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token,
            "RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "1000",
        },
    )  # fmt: skip
    shutil.rmtree(temp, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "still there 1" in done.stdout, "a cluster that was joined outlives the run"
    refused = done.stdout.partition("coterie: ")[2].splitlines()
    assert refused[0].startswith("runtime.address = '10.77.0.1:6399': no Ray cluster could be joined there (")
    assert refused[1] == "exit 2"
    (lost,) = [line for line in done.stdout.splitlines() if line.startswith("lost")]
    assert "ray::" in lost, "something of the run was there"
    told = audit(folder)
    assert not told.odd
    assert told.steps == 5
    assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 5
