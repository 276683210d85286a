"""All of HumanEval through the sandbox: what is right passes, what is nearly right fails, and what pairs earn."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from coterie.kernel.environment import SPLITS
from coterie_worlds.coding.code_pair import CodePair
from coterie_worlds.coding.problems import Problem, verdict_of, whole
from coterie_worlds.coding.problems.mutate import mutations
from coterie_worlds.sandbox import Box, judged
from coterie_worlds.sandbox.backends import missing
from tests.environments.coding import rows
from tests.environments.coding.test_code_pair import play

DATA = Path(__file__).parents[4] / "shared" / "data" / "humaneval.jsonl"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not here"),
    pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap")),
]
MUTANTS_TRIED = 40
UNUSED = "def aux(x):\n    return x"


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [problem for split in SPLITS for problem in rows.problems(str(DATA), split)]


def passes(problem: Problem, program: str, time_s: float = 4.0) -> bool:
    box = Box(time_s=time_s, total_s=3 * time_s).json()
    return verdict_of(judged(box, problem.check, whole(problem, program), problem.name)).solved


def failing_mutant(problem: Problem) -> str | None:
    return next(
        (one for one in islice(mutations(problem.solution), MUTANTS_TRIED) if not passes(problem, one, 1.0)), None
    )


def test_every_canonical_solution_passes_and_a_mutant_of_each_fails(problems):
    """As published 21 of the solutions lost tests and 14 all of them (D37)."""
    assert len(problems) == 164
    began = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        passed = list(pool.map(lambda problem: passes(problem, problem.solution), problems))
        mutants = list(pool.map(failing_mutant, problems))
    assert [problem.id for problem, right in zip(problems, passed, strict=True) if not right] == []
    assert [problem.id for problem, mutant in zip(problems, mutants, strict=True) if mutant is None] == []
    print(f"164 solutions and their mutants: {time.perf_counter() - began:.0f} s")  # noqa: T201


def test_as_mains_with_an_unused_aux_they_earn_two_and_a_half(problems):
    env = CodePair(data=str(DATA), time_s=4.0)
    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(lambda one: play(env, one, {"aux": UNUSED, "main": one.solution}).log, problems))
    earned = {problem.id: log.rewards()["team"] for problem, log in zip(problems, logs, strict=True)}
    assert {name: total for name, total in earned.items() if total != pytest.approx(2.5)} == {}
    assert all(log.solved for log in logs)


def test_splits_share_no_problem(problems):
    splits = [{(one.name, one.text) for one in rows.problems(str(DATA), split)} for split in SPLITS]
    assert sum(map(len, splits)) == len(set().union(*splits)) == 164
