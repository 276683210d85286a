"""Play: what a question asks for, what is tried again, and what a rollout is said to have cost."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from coterie.engines.scripted import ScriptedEngine
from coterie.errors import CallError, ConfigError, EnvError, Unavailable
from coterie.kernel import calls
from coterie.kernel.episode import Ended, Sample
from coterie.kernel.front import RETRIES
from coterie.kernel.loops import drive
from coterie.kernel.play import Play, Sampling
from coterie.kernel.scene import Scene
from coterie.seeds import seed_of
from tests.outside import double
from tests.toys import TEAM, Agree, Number, Sequential, Toy, one, run


class Two(Toy):
    """a is asked with a limit and a stop string of its own, b with neither."""

    async def play(self, task, scene: Scene) -> None:
        said = await scene.ask("a", "one", max_tokens=3, stop=("!",))
        await scene.ask("b", f"two {said.text}")
        scene.succeed()


class Calling(Toy):
    async def play(self, task, scene: Scene) -> None:
        await scene.ask("a", "x")
        try:
            await scene.call(double, 2)
        except CallError as error:
            scene.fail(error.kind)
        else:
            scene.succeed()


class Fails(ScriptedEngine):
    """Fails so often before it answers."""

    def __init__(self, script, times: int) -> None:
        super().__init__(script)
        self.times = times

    async def generate(self, requests):
        if self.times:
            self.times -= 1
            raise Unavailable("engine", "busy just now")
        await asyncio.sleep(0.01)
        return await super().generate(requests)


def said(role, prompt, rng) -> str:
    return "longer" if role == "a" else "bb"


def played(play: Play, tasks: int = 1):
    """Every task's log, or the fault that it met."""

    async def episode(index):
        cursor = play.start(play.task("train", index))
        drawn = await play.run(cursor)
        return cursor.log, drawn

    async def together():
        return await play.together(*(episode(index) for index in range(tasks)))

    return run(together())


def test_a_question_asks_for_what_the_environment_and_the_sampling_say():
    engine = ScriptedEngine(said)
    sampling = Sampling(temperature=0.7, top_p=0.9, max_tokens=40)
    play = Play(Two(), TEAM, engine, seed=5, step=3, sampling=sampling)
    played(play)
    (first,), (second,) = engine.waves
    assert (first.role, first.policy, first.prompt, first.prompt_ids) == ("a", "pa", "one", tuple(b"one"))
    assert (first.max_tokens, first.stop) == (3, ("!",))
    assert (second.max_tokens, second.stop) == (40, ())
    assert (first.temperature, first.top_p) == (0.7, 0.9)
    assert first.key == ("train-0", 0, "0@0", "a")
    assert second.key == ("train-0", 0, "0@1", "b")
    assert first.seeds == (seed_of("sample", 5, 3, *first.key, 0),)


def test_draws_roles_and_temperature_are_those_that_are_asked_for():
    engine = ScriptedEngine(said)
    play = Play(Sequential(), TEAM, engine, seed=0)

    async def ask():
        cursor = play.start(play.task("train", 0), 7)
        return await play.ask(cursor, await cursor.advance(), 3, roles=("a",), temperature=0.0)

    answers = one(play, ask())
    assert {role: len(samples) for role, samples in answers.items()} == {"a": 3}
    (request,) = engine.waves[0]
    assert (request.temperature, request.key[1]) == (0.0, 7)
    assert request.seeds == tuple(seed_of("sample", 0, 0, *request.key, draw) for draw in range(3))


def test_episodes_steps_and_seeds_have_chance_of_their_own():
    def chance(seed=0, step=0, index=0, episode=0) -> int:
        play = Play(Toy(), TEAM, ScriptedEngine(said), seed=seed, step=step)
        return play.start(play.task("train", index), episode).log.seed

    assert chance() == chance() == seed_of("episode", 0, 0, "train-0", 0)
    assert len({chance(), chance(seed=1), chance(step=1), chance(index=1), chance(episode=1)}) == 5


def test_what_is_drawn_is_told_with_the_number_of_its_point():
    ((log, drawn),) = played(Play(Two(), TEAM, ScriptedEngine(said), seed=0))
    assert [(index, sample.role, sample.text) for index, _, sample in drawn] == [(0, "a", "lon"), (1, "b", "bb")]
    assert [(reply.role, reply.text, reply.finish) for _, reply in log.replies()] == [
        ("a", "lon", "length"), ("b", "bb", "stop")]  # fmt: skip


def test_play_stops_where_it_is_told_to():
    play = Play(Sequential(max_turns=2), TEAM, ScriptedEngine(said), seed=0)

    async def until():
        cursor = play.start(play.task("train", 0))
        drawn = await play.run(cursor, lambda point: point.index == 2, temperature=0.0)
        return drawn, cursor.log

    drawn, log = one(play, until())
    assert [one.point for one in drawn] == [0, 1]
    assert not any(isinstance(event, Ended) for event in log.events)
    assert {request.temperature for wave in play._front.engine.waves for request in wave} == {0.0}  # pyright: ignore[reportAttributeAccessIssue]


def test_a_seat_that_is_taken_is_not_sampled():
    heard = []
    engine = ScriptedEngine(said)
    play = Play(Two(), TEAM, engine, seed=0, seats={"a": lambda prompt: heard.append(prompt) or "by hand"})
    ((log, drawn),) = played(play)
    assert heard == ["one"]
    assert [reply.text for _, reply in log.replies()] == ["by hand", "bb"]
    assert [one.sample.role for one in drawn] == ["b"]
    assert {request.role for wave in engine.waves for request in wave} == {"b"}


# three episodes: a's prompt of 3 bytes and cut reply of 3, b's of 7 and reply of 2 and its end
def test_a_rollouts_cost_by_hand():
    play = Play(Two(), TEAM, Fails(said, 0), seed=0)
    played(play, 3)
    budget = play.budget
    assert (budget.prompt_tokens, budget.sampled_tokens) == (3 * (3 + 7), 3 * (3 + 3))
    assert budget.engine_calls == 2
    assert 0.015 <= budget.engine_s < 60  # each call slept for 0.01
    assert (budget.replies, budget.truncated) == ({"a": 3, "b": 3}, {"a": 3, "b": 0})
    assert not any((budget.dropped, budget.retried, budget.overlong, budget.calls))


def test_a_faulty_wave_is_tried_again_and_then_its_branches_are_dropped():
    play = Play(Two(), TEAM, Fails(said, RETRIES), seed=0)
    ((log, _),) = played(play)
    assert log.solved
    assert (play.budget.retried, play.budget.engine_calls) == ({"engine": RETRIES}, RETRIES + 2)
    assert not play.budget.dropped
    play = Play(Two(), TEAM, Fails(said, RETRIES + 1), seed=0)
    lost = played(play, 2)
    assert [(type(fault), fault.stage, str(fault)) for fault in lost] == [
        (Unavailable, "engine", "busy just now")] * 2  # fmt: skip
    assert (play.budget.dropped, play.budget.engine_calls) == ({"engine": 2}, RETRIES + 1)


def test_what_an_engine_has_tried_again_is_counted_once():
    class Tries(ScriptedEngine):
        count = 0

        @property
        def tried_again(self):
            return Counter(busy=self.count)

        async def generate(self, requests):
            self.count += 1
            return await super().generate(requests)

    play = Play(Two(), TEAM, Tries(said), seed=0)
    played(play)
    assert play.budget.engine_calls == 2
    assert play.budget.retried == {"busy": 2}


class HalfDown(ScriptedEngine):
    """Policy pa is gone, the first that a wave asks."""

    async def generate(self, requests):
        if requests[0].policy == "pa":
            raise Unavailable("engine", "pa is gone")
        return await super().generate(requests)


def test_a_policy_that_is_gone_takes_no_answer_from_another():
    class Both(Toy):
        async def play(self, task, scene: Scene) -> None:
            await scene.ask(("a", "b")[task.number // 3 % 2], "x")
            scene.succeed()

    play = Play(Both(), TEAM, HalfDown(said), seed=0)
    lost, (log, _) = played(play, 2)
    assert (lost.stage, str(lost)) == ("engine", "pa is gone")
    assert log.solved


def test_a_bug_in_the_engine_is_raised_by_all_who_wait():
    class Broken(ScriptedEngine):
        async def generate(self, requests):
            raise LookupError("by design")

    with pytest.raises(LookupError, match="by design"):
        played(Play(Agree(), TEAM, Broken(said), seed=0), 2)


@pytest.mark.parametrize(
    ("fault", "outcome", "counted"),
    [
        (calls.TimedOut("timeout", "late"), "timeout", "call_timeouts"),
        (calls.Crashed("crash", "dead"), "crash", "call_crashes"),
    ],
)
def test_a_call_that_is_late_or_dies_is_counted_and_not_tried_again(monkeypatch, fault, outcome, counted):
    async def fails(function, args, limit_s):
        raise fault

    monkeypatch.setattr(calls, "run", fails)
    play = Play(Calling(), TEAM, ScriptedEngine(said), seed=0)
    assert [log.outcome.reason for log, _ in played(play, 2)] == [outcome] * 2
    assert getattr(play.budget, counted) == play.budget.calls == {"double": 2}
    assert not play.budget.retried


def test_a_call_without_its_infrastructure_is_tried_again_and_then_dropped(monkeypatch):
    asked, failures = [], RETRIES

    async def fails(function, args, limit_s):
        asked.append((function, args, limit_s))
        if len(asked) <= failures:
            raise Unavailable("sandbox", "no room")
        return function(*args)

    monkeypatch.setattr(calls, "run", fails)
    play = Play(Calling(), TEAM, ScriptedEngine(said), seed=0, sampling=Sampling(call_timeout_s=4.0))
    ((log, _),) = played(play)
    assert log.solved
    assert asked == [(double, (2,), 4.0)] * (RETRIES + 1)
    assert (play.budget.calls, play.budget.retried) == ({"double": 1}, {"sandbox": RETRIES})
    asked.clear()
    failures += 1
    ((fault),) = played(play)
    assert (fault.stage, str(fault)) == ("sandbox", "no room")
    assert play.budget.dropped == {"sandbox": 1}


def test_only_so_many_calls_run_at_once(monkeypatch):
    running, most = 0, 0

    async def counted(function, args, limit_s):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return 0

    monkeypatch.setattr(calls, "run", counted)
    monkeypatch.setattr(calls, "AT_ONCE", 3)
    played(Play(Calling(), TEAM, ScriptedEngine(said), seed=0), 9)
    assert most == 3


class Narrow(ScriptedEngine):
    def context(self, policy):
        return 20


def test_a_prompt_and_its_reply_may_fill_the_context_and_no_more():
    class Long(Toy):
        length: int
        limit: int = 8

        async def play(self, task, scene: Scene) -> None:
            await scene.ask("a", "x" * self.length, max_tokens=self.limit or None)

    played(Play(Long(length=12), TEAM, Narrow(said), seed=0))
    for settings, told in (({"length": 13}, "what play passes as max_tokens"), ({"length": 13, "limit": 0}, None)):
        play = Play(Long(**settings), TEAM, Narrow(said), seed=0, sampling=Sampling(max_tokens=8))
        says = f"role 'a' has 13 tokens and its reply may have 8, but policy 'pa' has .* {told or 'engine.max_tokens'}"
        with pytest.raises(ConfigError, match=says):
            played(play)


def test_nothing_side_by_side_is_nothing():
    play = Play(Toy(), TEAM, ScriptedEngine(said), seed=0)
    assert run(play.together()) == []


def test_a_signal_leaves_without_a_word_of_its_tasks_and_other_errors_are_told():
    told = []

    async def task(error):
        asyncio.get_running_loop().default_exception_handler = told.append  # pyright: ignore[reportAttributeAccessIssue]
        asyncio.get_running_loop().call_exception_handler({"message": "m", "exception": error})
        return 3

    assert drive(task(KeyboardInterrupt())) == 3
    assert told == []
    assert drive(task(LookupError())) == 3
    assert [context["message"] for context in told] == ["m"]


@pytest.mark.parametrize("answers", [False, True])
def test_a_signal_within_a_wave_leaves_without_a_word(answers):
    class Struck(ScriptedEngine):
        async def generate(self, requests):
            loop = asyncio.get_running_loop()
            loop.default_exception_handler = told.append  # pyright: ignore[reportAttributeAccessIssue]
            loop.call_soon(strike)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not answers:
                    raise
            return await super().generate(requests)

    def strike():
        raise KeyboardInterrupt

    told = []
    play = Play(Sequential(), TEAM, Struck(said), seed=0)
    with pytest.raises(KeyboardInterrupt):
        drive(play.together(play.run(play.start(Number("n", "train")))))
    assert told == []


class Notes:
    """Stands for memory: a note before every prompt."""

    def __init__(self) -> None:
        self.asked, self.unread = [], []

    def told(self, prompt, role, task, episode):
        self.asked.append((prompt, role, task.id, episode))
        return f"note! {prompt}"

    def unseen(self, role, task, episode) -> None:
        self.unread.append((role, task.id, episode))


def test_notes_reach_who_is_asked_and_who_has_a_seat():
    engine, notes, heard = ScriptedEngine(said), Notes(), []
    play = Play(Two(), TEAM, engine, seed=0, recall=notes, seats={"b": lambda prompt: heard.append(prompt) or "bb"})

    async def third():
        cursor = play.start(play.task("train", 2), 3)
        await play.run(cursor)
        return cursor.log

    log = one(play, third())
    ((request,),) = engine.waves
    assert (request.prompt, request.prompt_ids) == ("note! one", tuple(b"note! one"))
    assert heard == ["note! two lon"]
    assert notes.asked == [("one", "a", "train-2", 3), ("two lon", "b", "train-2", 3)]
    assert [(reply.role, reply.text) for _, reply in log.replies()] == [("a", "lon"), ("b", "bb")]
    assert notes.unread == []


@pytest.mark.parametrize(("length", "fits"), [(6, True), (7, False)])
def test_a_prompt_that_notes_would_make_too_long_goes_without_them(length, fits):
    class Long(Toy):
        async def play(self, task, scene: Scene) -> None:
            await scene.ask("a", "x" * length, max_tokens=8)

    engine, notes = Narrow(said), Notes()
    play = Play(Long(), TEAM, engine, seed=0, recall=notes)
    played(play, 2)
    shown = ("note! " if fits else "") + "x" * length
    assert {(request.prompt, request.prompt_ids) for request in engine.waves[0]} == {(shown, tuple(shown.encode()))}
    assert play.budget.dropped == ({} if fits else {"notes": 2})
    assert notes.unread == ([] if fits else [("a", "train-0", 0), ("a", "train-1", 0)])


class Grows(Toy):
    """Its second prompt has outgrown a context of 20."""

    async def play(self, task, scene: Scene) -> None:
        await scene.ask("a", "x", max_tokens=8)
        await scene.ask("a", "x" * 13, max_tokens=8)


def test_a_role_whose_prompt_has_outgrown_the_context_is_not_asked_and_says_nothing():
    play = Play(Grows(), TEAM, Narrow(said), seed=0)

    async def second():
        cursor = play.start(play.task("train", 0))
        await play.run(cursor, lambda point: point.index == 1)
        return await play.ask(cursor, await cursor.advance(), 2)

    silent = Sample("a", "pa", -1, (), (), (), "context", "")
    assert one(play, second()) == {"a": (silent, silent)}
    assert play.budget.overlong == {"a": 1}
    for log, drawn in played(play, 2):
        assert [one.point for one in drawn] == [0]
        assert [reply.finish for _, reply in log.replies()] == ["stop", "context"]
    assert play.budget.overlong == {"a": 3}


def test_prompts_are_rendered_and_measured_by_the_policy_that_is_asked():
    class Watched(ScriptedEngine):
        def render(self, policy, role, prompt):
            asked.append((policy, role))
            return super().render(policy, role, prompt)

        def context(self, policy):
            asked.append(policy)
            return super().context(policy)

    asked = []
    played(Play(Two(), TEAM, Watched(said), seed=0))
    assert asked == [("pa", "a"), "pa", ("pb", "b"), "pb"]


def test_two_tasks_of_one_name_are_refused_with_what_to_do():
    class OneName(Agree):
        def task(self, split, index):
            return replace(super().task(split, index), id="riddle")

    says = "both called task 'riddle', episode 0; give every task of a split an id of its own"
    with pytest.raises(EnvError, match=says):
        played(Play(OneName(), TEAM, ScriptedEngine(said), seed=0), 2)
