"""Plain evaluation."""

import itertools
from dataclasses import replace

import pytest

from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError, RolloutError, Unavailable
from coterie.kernel.episode import NO_OUTCOME, Sample
from coterie.kernel.play import Sampling, majority
from coterie.run.evaluate import at_k, evaluate_team, wilson
from coterie.seeds import seed_of
from tests.toys import TEAM, Agree, Sequential, Toy, counting


# 8 of 10: middle .8 + 3.8415/20 = .99207; half 1.95996 sqrt(.16/10 + 3.8415/400) = .31361; / (1 + .38415)
def test_wilson_by_hand():
    assert wilson(0.8, 10) == pytest.approx((0.4901625, 0.9433178), rel=0, abs=1e-6)
    assert wilson(0.0, 10)[0] == 0.0
    assert wilson(1.0, 10)[1] == pytest.approx(1.0)
    assert all(0.0 <= end <= 1.0 for trials in range(1, 300) for share in (0.0, 1.0) for end in wilson(share, trials))


def test_success_is_what_the_environment_says_and_every_episode_counts():
    words = {"a": "b", "b": "b"}  # byte 98: even
    found = evaluate_team(Agree(), TEAM, ScriptedEngine.table(words), tasks=30)
    assert (found.success, found.turns, found.outcomes) == (1.0, 1.0, {"solved": 30})
    found = evaluate_team(Agree(), TEAM, ScriptedEngine.table({"a": "a", "b": "a"}), tasks=30)
    assert (found.success, found.outcomes) == (0.0, {"not solved": 30})
    assert found.rewards == pytest.approx({"a": 0.0, "b": 1.0, "team": 0.0})


def test_greedy_asks_at_temperature_zero_and_sampled_enumerates_tasks_times_samples():
    engine = ScriptedEngine(counting())
    evaluate_team(Sequential(), TEAM, engine, tasks=3)
    assert {request.temperature for wave in engine.waves for request in wave} == {0.0}
    engine = ScriptedEngine(counting())
    found = evaluate_team(Sequential(max_turns=1), TEAM, engine, tasks=3, sampled=4)
    assert len(found.solved) == 12
    keys = [request.key[:2] for request in engine.waves[0]]
    assert len(keys) == len(set(keys)) == 12


def test_the_interval_is_over_tasks_however_many_episodes_each_has():
    """Episodes of one task are no independent tasks: twelve episodes of three tasks are three."""
    engine = ScriptedEngine(lambda role, prompt, rng: rng.choice("ab"))
    found = evaluate_team(Agree(), TEAM, engine, tasks=3, sampled=4)
    assert 0 < found.success < 1
    assert (found.success_low, found.success_high) == wilson(found.success, 3)
    assert found.success_low < wilson(found.success, 12)[0]


def test_a_task_is_drawn_once_however_many_episodes_it_has():
    drawn: list[int] = []

    class Costly(Agree):
        """An environment whose tasks take long to draw."""

        def task(self, split, index):
            drawn.append(index)
            return super().task(split, index)

    evaluate_team(Costly(), TEAM, ScriptedEngine(counting()), tasks=3, sampled=4)
    assert drawn == [0, 1, 2]


class Hasty(Toy):
    """Solved at the turn that its task's number says, or at the limit of three not at all."""

    async def play(self, task, scene) -> None:
        for turn in scene.turns(3):
            await scene.ask("a", str(turn))
            if turn == task.number % 5:
                scene.succeed()
                break


def test_unsolved_episodes_count_with_the_turns_of_the_limit():
    """Numbers 1, 4, 7, 10 of validation: solved at turns 2 of 3, never (4), 3, 1; so 2 + 3 + 3 + 1 of four tasks."""
    found = evaluate_team(Hasty(), TEAM, ScriptedEngine(counting()), tasks=4)
    assert found.solved == (True, False, True, True)
    assert found.turns == (2 + 3 + 3 + 1) / 4


def test_the_majority_is_what_most_replies_say_and_a_tie_goes_to_the_first():
    def said(*texts: str) -> tuple[Sample, ...]:
        return tuple(Sample("a", "p", 0, (1,), (at,), (0.0,), "stop", text, seed=at) for at, text in enumerate(texts))

    assert majority(said("x", "y", "y")).seed == 1
    assert majority(said("x", "y")).seed == 0
    assert majority(said("x", "y", "z", "z", "y")).seed == 1


def test_votes_are_drawn_at_every_question_and_the_answer_is_one_of_them():
    engine = ScriptedEngine(lambda role, prompt, rng: rng.choice("abb"))
    found = evaluate_team(Agree(), TEAM, engine, tasks=40, votes=9)
    assert {len(request.seeds) for wave in engine.waves for request in wave} == {9}
    assert {request.temperature for wave in engine.waves for request in wave} == {1.0}
    once = evaluate_team(Agree(), TEAM, engine, tasks=40, sampled=1)
    assert found.success > once.success
    assert found.tokens == 9 * once.tokens


def test_nothing_is_branched_or_compared_in_evaluation():
    engine = ScriptedEngine(counting())
    evaluate_team(Sequential(max_turns=2), TEAM, engine, tasks=2)
    assert all(len(request.seeds) == 1 for wave in engine.waves for request in wave)
    assert sum(len(wave) for wave in engine.waves) == 2 * 4


class Down(ScriptedEngine):
    async def generate(self, requests):
        raise Unavailable("engine", "down")


def test_an_episode_lost_to_a_fault_counts_as_not_solved():
    lost = r"4 of 4 validation episodes were lost to faults \({'engine': 4}\).*; most often: down"
    with pytest.raises(RolloutError, match=lost):
        evaluate_team(Agree(), TEAM, Down(counting()), tasks=4)
    found = evaluate_team(Agree(), TEAM, Down(counting()), tasks=4, max_dropped_share=1.0)
    assert (found.success, found.dropped, found.outcomes) == (0.0, 4, {"dropped": 4})
    assert (found.turns, found.tokens, found.rewards, found.noted, found.truncated) == (0, 0, {}, {}, {})


class Silent(Toy):
    """Says no outcome; its third task in four is lost, and b is cut."""

    async def play(self, task, scene) -> None:
        await scene.ask("a", "x")
        if task.number // 3 == 2:
            raise Unavailable("sandbox", "down")
        await scene.ask("b", "y", max_tokens=1)
        scene.reward("a", task.number)
        scene.metric("seen", 1.0)


def test_what_is_told_of_episodes_without_an_outcome_and_of_one_that_is_lost():
    """Numbers 1, 4 and 10 of validation are left of four; a says 2 tokens, and b one, which is cut."""
    engine = ScriptedEngine.table({"a": "v", "b": "w"})
    found = evaluate_team(Silent(), TEAM, engine, tasks=4, sampled=2, max_dropped_share=0.25)
    assert (found.split, found.tasks, found.sampled, found.dropped) == ("validation", 4, 2, 2)
    assert found.outcomes == {"dropped": 2, NO_OUTCOME: 6}
    assert found.rewards == pytest.approx({"a": (1 + 4 + 10) / 3})
    assert found.truncated == {"a": 0.0, "b": 1.0}
    assert found.tokens == (8 * 2 + 6 * 1) / 8
    assert found.noted == {"seen": (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0)}


class Kinds(Toy):
    """Tasks of two kinds, every other one; the second kind is never solved."""

    async def play(self, task, scene) -> None:
        if (await scene.ask("a", "x")).text == "v" and task.kind == "even":
            scene.succeed()

    def task(self, split, index):
        return replace(super().task(split, index), kind=("even", "odd")[index % 2])


def test_success_is_told_by_kind_where_there_are_several():
    engine = ScriptedEngine.table({"a": "v"})
    found = evaluate_team(Kinds(), TEAM, engine, tasks=5, sampled=2)
    assert found.kinds == ("even", "odd", "even", "odd", "even")
    assert found.by_task == (1.0, 0.0, 1.0, 0.0, 1.0)
    assert found.by_kind == {"even": 1.0, "odd": 0.0}
    assert evaluate_team(Kinds(), TEAM, engine, tasks=1).by_kind == {}
    assert evaluate_team(Agree(), TEAM, ScriptedEngine(counting()), tasks=2).by_kind == {}


@pytest.mark.slow
def test_progress_is_told_in_chunks_and_nothing_depends_on_them():
    told = []
    engine = ScriptedEngine(lambda role, prompt, rng: rng.choice("ab"))
    found = evaluate_team(Agree(), TEAM, engine, tasks=5, sampled=400, progress=lambda *at: told.append(at))
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert len(found.solved) == 5 * 400
    keys = [request.key for wave in engine.waves for request in wave if request.role == "a"]
    assert len(set(keys)) == len(keys) == 5 * 400
    first = evaluate_team(Agree(), TEAM, engine, tasks=1, sampled=400)
    assert first.solved == found.solved[:400]


def test_what_is_sampled_is_given_by_the_seed():
    engine = ScriptedEngine(lambda role, prompt, rng: rng.choice("ab"))
    by_seed = [evaluate_team(Agree(), TEAM, engine, tasks=20, sampled=1, seed=seed).solved for seed in (0, 0, 1)]
    assert by_seed[0] == by_seed[1] != by_seed[2]
    request = engine.waves[-2][0]
    assert request.seeds == (seed_of("sample", 1, -1, *request.key, 0),)  # of no step of a run


def test_memory_is_shown_to_who_is_evaluated():
    class Notes:
        def told(self, prompt, role, task, episode):
            return f"note! {prompt}"

    engine = ScriptedEngine(counting())
    evaluate_team(Agree(), TEAM, engine, tasks=2, recall=Notes())
    assert all(request.prompt.startswith("note! ") for wave in engine.waves for request in wave)  # pyright: ignore[reportAttributeAccessIssue]


def test_sampling_is_that_of_the_caller_but_for_a_single_greedy_answer():
    def asked(**settings) -> tuple[float, float]:
        engine = ScriptedEngine(counting())
        evaluate_team(Agree(), TEAM, engine, tasks=1, sampling=Sampling(temperature=0.7, top_p=0.9), **settings)
        request = engine.waves[0][0]
        return request.temperature, request.top_p

    assert asked() == (0.0, 1.0)
    assert asked(sampled=1) == asked(votes=3) == (0.7, 0.9)


def test_a_seat_is_taken_by_who_is_named():
    engine = ScriptedEngine.table({"a": "b"})
    found = evaluate_team(Agree(), TEAM, engine, tasks=2, seats={"b": lambda prompt: "b"})
    assert found.success == 1.0
    assert {request.role for wave in engine.waves for request in wave} == {"a"}


class Few(Agree):
    def count(self, split):
        return 3 if split == "validation" else 5


def test_more_tasks_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="has 3 tasks, not 9"):
        evaluate_team(Few(), TEAM, ScriptedEngine(counting()), tasks=9)
    assert evaluate_team(Few(), TEAM, ScriptedEngine(counting()), tasks=3).tasks == 3


def test_the_best_of_k_is_the_published_pass_at_k():
    # one of three solved: pass@1 = 1/3, pass@2 = 1 - C(2, 2)/C(3, 2) = 2/3, pass@3 = 1; and a task that is never solved
    solved = [False, True, False, False, False, False]
    assert [at_k(solved, 3, k) for k in (1, 2, 3)] == pytest.approx([1 / 6, 1 / 3, 1 / 2])


def test_the_best_of_k_is_the_mean_over_all_choices_of_k():
    values = [0.2, 0.9, 0.4, 0.4, 0.0]
    for k in range(1, 6):
        choices = list(itertools.combinations(values, k))
        assert at_k(values, 5, k) == pytest.approx(sum(map(max, choices)) / len(choices))
    with pytest.raises(ValueError, match="needs 6 episodes"):
        at_k(values, 5, 6)
    with pytest.raises(ValueError, match="best of 0"):
        at_k(values, 5, 0)


def test_what_the_environment_notes_is_kept_by_episode():
    class Noting(Toy):
        async def play(self, task, scene):
            for number in range(2):
                await scene.ask("a", "go")
                scene.metric("number", task.number + number)

    found = evaluate_team(Noting(), TEAM, ScriptedEngine.table({"a": "x"}), tasks=3, sampled=2)
    assert found.noted == {"number": tuple(float(3 * task + 1 + 1) for task in range(3) for _ in range(2))}
