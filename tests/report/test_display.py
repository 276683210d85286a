"""What a training shows where there is no terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from coterie.report import display
from coterie.report.display import Display


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


def shown(out: io.StringIO) -> list[str]:
    return [line.split("  ")[0] for line in out.getvalue().splitlines() if line.startswith("step")]


def begun(out: io.StringIO, steps: int = 130) -> Display:
    told = Display(console=Console(file=out, width=300, force_terminal=False))
    told.begin(Path("runs/x"), {"team": {"a": "p"}, "train": {"steps": steps, "eval_every": 50}}, [])
    return told


def line(step: int, **more: float) -> dict[str, float]:
    usual = {"reward/a": -1.17, "groups/total": 16, "groups/live": 3, "role/a/live_groups": 3}
    times = {"time/tokens_per_s": 120.0, "time/step": 2.0}
    return {"step": step, **usual, **times, **{key.replace("__", "/"): value for key, value in more.items()}}


def test_a_line_says_what_its_numbers_are(clock):
    out = io.StringIO()
    begun(out).log(line(1, reward__team=0.5))
    assert "reward team +0.50, a -1.17  3 of 16 groups live  120 tokens/s  4:18 left" in out.getvalue()


def test_where_there_is_no_terminal_a_line_comes_by_time_at_validations_and_with_warnings(clock):
    out = io.StringIO()
    told = begun(out)
    for step in range(1, 131):
        clock[0] += 2.0
        valid = {"validation__success": 0.5, "validation__success_low": 0.4, "validation__success_high": 0.6}
        told.log(
            line(step, **(valid if step % 50 == 0 else {}), **({"policy__p__mismatch": 0.2} if step == 20 else {}))
        )
    assert shown(out) == [f"step {step}/130" for step in (1, 16, 20, 35, 50, 65, 80, 95, 100, 115, 130)]
    assert "warning at step 20: policy 'p' is trained on other probabilities" in out.getvalue()


def test_a_first_step_without_a_live_group_is_told_with_what_to_do(clock):
    out = io.StringIO()
    begun(out).log({**line(1), "groups/live": 0, "role/a/live_groups": 0})
    assert "warning at step 1: 0 of 16 groups had different returns so far, so nothing is learned: " in out.getvalue()
