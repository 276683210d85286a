"""The parts of a cluster, each alone and in this process: what they answer, whom they ask, what they refuse."""

import asyncio
import http.server
import os
import pickle
import socketserver
import subprocess
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from coterie import load_config
from coterie.errors import CheckpointError, ConfigError, EngineError, Unavailable, UpdateError
from coterie.kernel.cursor import PlayBug
from coterie.kernel.engine import Request
from coterie.kernel.episode import Sample
from coterie.kernel.team import Graded
from coterie.learning.batch import Learned
from coterie.learning.loss import Clip
from coterie.models.load import save_model
from coterie.run.pools import needed, pools_of
from tests.toys import policies, tiny

ray = pytest.importorskip("ray")
from coterie.run.cluster import engine, pulse  # noqa: E402 they need it
from coterie.run.cluster.actors import Home, Replica, Worker  # noqa: E402
from coterie.run.cluster.engine import Pools, Replicas  # noqa: E402
from coterie.run.cluster.joining import check_there, swept  # noqa: E402
from coterie.run.cluster.runtime import Cluster, _Share, _worker_threads  # noqa: E402
from coterie.run.ranks import RankStart, packed, sendable  # noqa: E402

ONE = ["team.a=x", "team.b=x", "policies.x.model=TINY", "train.steps=2", "train.tasks_per_step=2", "runtime.name=ray"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "tiny"
    save_model(tiny(scale=2.0), folder)
    return folder


def config(model, *more, world="tests/toys.py:Agree"):
    return load_config(world, [one.replace("TINY", str(model)) for one in (*ONE, *more)])


def home(model, *more, **settings) -> Home:
    return Home(config(model, *more, **settings).toml(), "cpu", ".")


def request(number: int, *seeds: int) -> Request:
    key = (f"t{number}", 0, "0@0", "a")
    return Request(key, "x", "a", "hello", (5, 6, 7 + number), seeds, 1.0, 1.0, 4, ())


async def ready(replica: Replica, version: int = 0) -> None:
    assert await replica.begin() == ("done", None)
    assert await replica.take("x", version, packed(tiny(scale=2.0).weights())) == ("done", None)


def done(replica: Replica) -> None:
    replica._engine.shut()


def test_an_engine_answers_once_it_has_the_weights_and_ignores_older_ones(model):
    async def play():
        replica = Replica(home(model), ("x",), 0)
        assert (await replica.generate([request(0, 1)]))[0] == "unavailable"
        await ready(replica, 3)
        kind, (name, answers) = await replica.generate([request(0, 1, 2)])
        assert (kind, [sample.version for sample in answers[0]]) == ("done", [3, 3])
        assert name.startswith("x/0 of process ")
        assert await replica.take("x", 2, packed(tiny(1, scale=2.0).weights())) == ("done", None)
        assert (await replica.generate([request(0, 1, 2)]))[1][1] == answers, "they came late, and are not taken"
        assert (await replica.take("x", 4, packed({})))[0] == "raised"
        assert (await replica.generate([request(0, 1)]))[0] == "unavailable", "half an update is no version"
        done(replica)

    asyncio.run(play())


def test_what_waits_is_one_wave_and_weights_wait_for_it(model):
    async def play():
        replica = Replica(home(model), ("x",), 0)
        await ready(replica)
        waves, generate = [], replica._engine.generate

        async def slow(requests):
            waves.append(len(requests))
            await asyncio.sleep(0.2)
            return await generate(requests)

        replica._engine.generate = slow
        first = asyncio.create_task(replica.generate([request(0, 1)]))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(replica.generate([request(number, 1, 2)])) for number in (1, 2, 3)]
        await asyncio.sleep(0.05)
        update = asyncio.create_task(replica.take("x", 1, packed(tiny(1, scale=2.0).weights())))
        await asyncio.sleep(0.05)
        late = asyncio.create_task(replica.generate([request(4, 1)]))
        answers = [(await task)[1][1] for task in (first, *others)]
        assert waves == [1, 3]
        assert [len(given) for (given,) in answers] == [1, 2, 2, 2]
        assert {sample.version for (given,) in answers for sample in given} == {0}
        assert await update == ("done", None)
        assert (await late)[1][1][0][0].version == 1
        done(replica)

    asyncio.run(play())


class Handle:
    """A replica as Ray would hand it out."""

    def __init__(self, name: str, fails: Exception | str | None = None) -> None:
        self.asked: list[list[Request]] = []
        self.generate = SimpleNamespace(remote=self._generate)
        self.ready = SimpleNamespace(remote=self._ready)
        self.name, self.fails, self.up = name, fails, True

    async def _ready(self):
        return 1, {"x": 0} if self.up else {}

    async def _generate(self, requests):
        if isinstance(self.fails, str):
            return "unavailable", self.fails
        if self.fails:
            raise self.fails
        self.asked.append(list(requests))
        return "done", (self.name, [tuple(_sample(one, seed) for seed in one.seeds) for one in requests])


def _sample(one: Request, seed: int) -> Sample:
    return Sample(one.role, one.policy, 0, one.prompt_ids, (5,), (-1.0,), "stop", "x", seed=seed, temperature=1.0)


def said(answers) -> list[int]:
    return [sample.seed for given in answers for sample in given]


def asks(*handles: Handle) -> Replicas:
    made = policies({"x": tiny()})
    return Replicas(made, engine.EngineConfig(), {"x": handles})


def test_a_wave_is_shared_out_by_what_each_has_to_do():
    one, two = Handle("one"), Handle("two")
    team = asks(one, two)
    answers = asyncio.run(team.generate([request(0, 1, 2, 3), request(1, 4), request(2, 5), request(3, 6)]))
    assert said(answers) == [1, 2, 3, 4, 5, 6]
    assert [[part.key[0] for part in wave] for wave in one.asked] == [["t0"]]
    assert [[part.key[0] for part in wave] for wave in two.asked] == [["t1", "t2", "t3"]]
    assert {(entry.task, entry.engine) for entry in team.answered} == {
        ("t0", "one"), ("t1", "two"), ("t2", "two"), ("t3", "two"),
    }  # fmt: skip
    assert not any(team._load.values())


def test_one_that_has_ended_is_asked_no_more_and_its_questions_go_elsewhere(monkeypatch):
    gone, there = Handle("gone", ray.exceptions.RayActorError()), Handle("there")
    team = asks(gone, there)
    answers = asyncio.run(team.generate([request(number, number) for number in range(4)]))
    assert said(answers) == [0, 1, 2, 3]
    assert len(team.answered) == 4
    asyncio.run(team.generate([request(number, number) for number in range(4)]))
    assert len(there.asked) == 3, "twice its share and once the other's, then all of it"
    monkeypatch.setattr(engine, "DOWN_S", -1.0)
    team._down.clear()
    gone.fails = None
    asyncio.run(team.generate([request(number, number) for number in range(4)]))
    assert gone.asked, "it is back"


def test_where_none_can_answer_the_question_waits_for_an_engine_that_is_back(monkeypatch):
    monkeypatch.setattr(engine, "LOOK_S", 0.01)
    only = Handle("only", "it holds no weights yet")
    team = asks(only)
    with pytest.raises(Unavailable, match="it holds no weights yet"):
        asyncio.run(team.generate([request(0, 1)]))
    assert not team.answered

    async def back():
        only.up = False
        waiting = asyncio.create_task(team.start())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        only.up = True
        await waiting

    asyncio.run(back())
    only.up = False
    monkeypatch.setattr(engine, "BACK_S", 0.05)
    with pytest.raises(Unavailable, match=r"no engine of policy 'x' came back within 0.05 s"):
        asyncio.run(team.start())


def test_an_engine_that_missed_an_update_is_given_it_and_only_that():
    handle: Any = Handle("x")
    given = []

    async def began():
        return "done", None

    async def taken(name, version, weights):
        given.append((name, version, weights))
        return "done", None

    handle.begin, handle.take = SimpleNamespace(remote=began), SimpleNamespace(remote=taken)
    pools = Pools(policies({"x": tiny()}), engine.EngineConfig(), {"x": [handle]})
    pools._current["x"] = 0, "as it began"
    asyncio.run(pools._brought_up(handle))
    assert not given
    pools._current["x"] = 3, "as it is now"
    asyncio.run(pools._brought_up(handle))
    assert given == [("x", 3, "as it is now")]


def test_three_deaths_within_minutes_are_no_accident():
    pools = Pools(policies({"x": tiny()}), engine.EngineConfig(), {"x": [Handle("x")]})
    pools._died()
    pools._died()
    with pytest.raises(EngineError, match="3 engines have ended within 10 minutes; look at their logs"):
        pools._died()
    pools._deaths.clear()
    pools._died()
    pools._deaths[0] -= engine.WITHIN_S
    pools._died()
    pools._died()


BUG = """
from tests.toys import Agree

class Bug(Agree):
    async def play(self, task, scene):
        raise ValueError("a bug in play")
"""


class Ref:
    """What stands for an answer that comes."""

    def __init__(self, value):
        self.value = value


class Said:
    """What a method of a part on a cluster answers."""

    def __init__(self, answer):
        self.remote = lambda *args: Ref(answer(*args))


class Learns:
    """A rank that notes what it is told, and answers so."""

    def __init__(self, *said):
        self.places, self.asks, answers = [], [], iter(said)
        self.meeting = Said(lambda: "here")
        self.begin = Said(lambda place: self.places.append(place) or ("done", None))
        self.asked = Said(lambda method, *_: self.asks.append(method) or next(answers))


class Refs:
    """What a learner asks of Ray."""

    put = staticmethod(lambda value: value)
    get = staticmethod(lambda ref: ref.value)
    wait = staticmethod(lambda refs, **_: (refs, []))


def pooled(monkeypatch, **ranks):
    from coterie.run.cluster import learner

    monkeypatch.setattr(learner, "ray", Refs)
    pools = {tuple(name): each for name, each in ranks.items()}
    place = RankStart("", (), 0, 1, "", "cpu", None)
    return learner.PooledLearner({}, pools, place, lambda *_: None)


def test_each_pool_learns_its_own_policies(monkeypatch):
    one, two, other = Learns(), Learns(), Learns()
    pooled(monkeypatch, xy=[one, two], z=[other])
    told = [(each.policies, each.rank, each.size, each.meet) for rank in (one, two, other) for each in rank.places]
    assert told == [(("x", "y"), 0, 2, "here"), (("x", "y"), 1, 2, "here"), (("z",), 0, 1, "")]


def test_where_one_pool_refuses_and_another_has_learned_weights_have_moved(monkeypatch):
    refused = "refused", UpdateError("not finite", untouched=True)
    for other, untouched in ((("done", {}), False), (refused, True)):
        learner = pooled(monkeypatch, x=[Learns(refused)], z=[Learns(other)])
        with pytest.raises(UpdateError, match="not finite") as told:
            learner.update({"x": [None], "z": [None]}, 0)
        assert told.value.untouched == untouched


def test_a_checkpoint_that_ranks_wrote_elsewhere_is_not_whole(monkeypatch, tmp_path):
    learner = pooled(monkeypatch, x=[Learns(("done", None))])
    with pytest.raises(CheckpointError, match=r"optimizers/x is not whole: ranks on other machines wrote elsewhere"):
        learner.save(tmp_path)
    (tmp_path / "optimizers").mkdir()
    (tmp_path / "optimizers/x.pt").touch()
    pooled(monkeypatch, x=[Learns(("done", None))]).save(tmp_path)


def test_a_learner_that_trained_fewer_than_it_was_given_is_refused():
    cluster: Any = Cluster.__new__(Cluster)
    told: list[Any] = []
    cluster.config = SimpleNamespace(loss=Clip())
    cluster._ledger = SimpleNamespace(write=lambda *args, **event: told.append(event))
    cluster._drawn = {0: []}
    given = {"x": [Graded(Sample("a", "x", 0, (5,), (6,), (-1.0,), "stop", "", seed=7), 1.0, 1.0, "g")]}
    cluster._settle(0, given, {"x": Learned({"trained_sequences": 1.0}, {})})
    assert told[0]["trained"] == {"x": ["0000000000000007"]}
    with pytest.raises(UpdateError, match="policy 'x' was given 1 samples to learn from, and has learned from 0"):
        cluster._settle(0, given, {"x": Learned({"trained_sequences": 0.0}, {})})


class Plays:
    """A worker as Ray would hand it out, and what it is asked. ended: what it was asked before that is lost."""

    def __init__(self, ended: bool) -> None:
        self.ended, self.asked = ended, []
        self.rollout = SimpleNamespace(remote=self._rollout)
        self.pid = SimpleNamespace(remote=lambda: "pid")

    def _rollout(self, step, *_):
        self.asked.append(step)
        return ("lost" if self.ended else "done"), step, len(self.asked)


def test_what_a_worker_had_of_later_steps_is_sent_again_when_it_ends(monkeypatch):
    first, second = Plays(ended=True), Plays(ended=False)

    def get(ref, timeout=None):
        if ref == "pid":
            first.ended = False
        if ref[0] == "lost":
            raise ray.exceptions.ActorDiedError
        return "done", (f"step {ref[1]}", [])

    cluster: Any = Cluster.__new__(Cluster)
    cluster._ray = SimpleNamespace(get=get, wait=lambda refs, timeout: (refs, []), exceptions=ray.exceptions)
    cluster._ledger = SimpleNamespace(write=lambda *args, **event: None)
    cluster._engine = SimpleNamespace(failed=None)
    cluster._workers, cluster._replicas, cluster._drawn, cluster._ended = [first, second], {}, {}, set()
    cluster._open = {step: [_Share(step, [step], None, 0, None, "")] for step in range(3)}
    for (share,) in cluster._open.values():
        cluster._send(share)
    assert cluster._come(cluster._open[0]) == ["step 0"]
    assert (first.asked, second.asked) == ([0, 1, 2], [0, 1, 2])
    late = _Share(3, [3], None, 0, None, "")
    cluster._send(late)
    assert not first.ended, "it was waited for until it had begun anew"
    for step in (1, 2):
        assert cluster._come(cluster._open.pop(step)) == [f"step {step}"]


def test_an_engine_that_lacks_one_of_its_policies_answers_nothing(model):
    replica: Any = Replica(home(model), ("x", "y"), 0)
    replica._engine, replica._held = SimpleNamespace(), {"x": 3}
    assert asyncio.run(replica.generate([request(0, 1)])) == (
        "unavailable",
        "this engine does not hold the run's weights yet",
    )


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("ray://127.0.0.1:1", "is no address: it is HOST:PORT, as `ray start --head` prints it, with nothing before"),
        ("here", "is no address"),
        ("127.0.0.1:PORT", r"no Ray cluster could be joined there \(what listens there is not Ray"),
    ],
)
def test_what_is_no_address_of_a_cluster_is_told_at_once(address, why):
    with socketserver.TCPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(ConfigError, match=why):
                check_there(address.replace("PORT", str(server.server_address[1])))
        finally:
            server.shutdown()


def test_what_a_run_that_was_killed_has_left_is_removed_and_nothing_else(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = [f"coterie-ray-{ended.pid}-a", f"coterie-ray-{os.getpid()}-b", "coterie-ray-c-d", "coterie-ray-9", "other"]
    for name in names:
        (tmp_path / name / "r").mkdir(parents=True)
    swept(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_a_part_whose_work_does_not_return_says_nothing():
    mine = pulse.Pulse("", 0.05)
    with mine.at_work():
        with mine.at_work():
            pass
        assert not mine.overdue
        time.sleep(0.1)
        assert mine.overdue
    assert not mine.overdue


def test_a_worker_has_a_thread_for_all_that_it_may_be_given(model):
    assert _worker_threads(config(model, "runtime.workers=3").runtime) == 1
    assert _worker_threads(config(model, "runtime.workers=3", "runtime.max_staleness=2").runtime) == 3 * 3


def test_what_one_process_is_anyway_may_be_said(model):
    assert config(model, "runtime.name=local", "runtime.engines=1", "runtime.address=").runtime.name == "local"


def test_a_worker_tells_what_the_environment_did_in_another_process(model, tmp_path):
    (tmp_path / "buggy.py").write_text(BUG)
    worker = Worker(home(model, world=f"{tmp_path}/buggy.py:Bug"), "worker 0")
    kind, told = pickle.loads(pickle.dumps(worker.rollout(0, [0], None, {"x": [Handle("x")]})))
    assert kind == "raised"
    assert isinstance(told, PlayBug)
    assert told.log.task == "train-0"
    assert "a bug in play" in str(told)


def test_faults_say_the_same_in_another_process():
    for error in (Unavailable("engine", "gone"), PlayBug("a bug", None)):
        error.add_note("and a note")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
    assert pickle.loads(pickle.dumps(Unavailable("engine", "gone"))).stage == "engine"

    class Own(Exception):
        """What cannot be sent."""

    assert "Own: hello" in str(sendable(Own("hello")))


def test_pools_are_policies_or_the_adapters_on_one_base(model, tmp_path):
    whole = config(model, "team.b=y", f"policies.y.model={model}", "runtime.engines=2", "train.ranks=3")
    assert [pool.policies for pool in pools_of(whole)] == [("x",), ("y",)]
    assert needed(whole) == (2 * 2 + 2 * 3 + 1, 10.0)
    adapters = config(model, "team.b=y", f"policies.y.model={model}", "policies.x.kind=lora", "policies.y.kind=lora")
    assert [pool.policies for pool in pools_of(adapters)] == [("x", "y")]
    other = tmp_path / "other"
    save_model(tiny(1), other)
    apart = config(model, "team.b=y", f"policies.y.model={other}", "policies.x.kind=lora", "policies.y.kind=lora")
    assert [pool.policies for pool in pools_of(apart)] == [("x",), ("y",)]
    opponent = config(model, "team.b=y", f"policies.y.model={model}", "policies.y.kind=frozen", "runtime.rank_gpus=0.5")
    assert [(pool.policies, pool.trained) for pool in pools_of(opponent)] == [(("x",), ("x",)), (("y",), ())]
    assert needed(opponent) == (4, 2.5)


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (["policies.x.device=cpu"], "policies.x.device = 'cpu', but runtime.name = 'ray' places policies itself"),
        (["runtime.name=local", "runtime.max_staleness=1"], "runtime.max_staleness has no effect"),
        (["runtime.max_staleness=1", "loss.name=policy_gradient"], "max_staleness = 1 trains on samples of older"),
        (["runtime.engines=0"], "runtime.engines = 0"),
        (["runtime.rank_gpus=0.5", "train.ranks=2"], "would put several of train.ranks = 2 on one GPU"),
        (["train.ranks=two", "runtime.rank_gpus=0.5"], "train.ranks = 'two'"),
        (["runtime.nodes=2"], "unknown key 'runtime.nodes'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(model, sets, why):
    with pytest.raises(ConfigError, match=why):
        config(model, *sets)


def test_the_correction_is_on_where_rollouts_run_ahead_unless_another_is_chosen(model):
    assert config(model).loss.correction == "none"
    assert config(model, "runtime.max_staleness=1").loss.correction == "token_truncate"
    assert config(model, "runtime.max_staleness=1", "loss.correction=none").loss.correction == "none"
