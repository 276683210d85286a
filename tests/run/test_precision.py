"""What networks compute in where nobody has said: the faster type, found once and kept."""

from dataclasses import replace

import pytest

from coterie.checks.machines import Machine
from coterie.config.resolve import load_config
from coterie.models.load import save_model
from coterie.run import precision
from coterie.run.plan import plan
from coterie.run.precision import precise
from coterie.run.train import train
from tests.toys import tiny

AUTO = load_config("plan_path", ["train.dtype=auto", "train.device=cpu"])


def machine(kind: str, bfloat16: float) -> Machine:
    """One of 1 TFLOP/s in float32."""
    return Machine("some", kind, 1 << 40, 1e12, bfloat16, 1e12)


@pytest.mark.parametrize(
    ("kind", "bfloat16", "chosen"),
    [("cuda", 8e12, "bfloat16"), ("cuda", 1.4e12, "float32"), ("cpu", 0.1e12, "float32"), ("cpu", 8e12, "float32")],
)
def test_it_is_what_is_faster_and_small_networks_on_a_processor_stay_without_modules(kind, bfloat16, chosen):
    assert precise(AUTO, machine=machine(kind, bfloat16)).train.dtype == chosen


def test_large_networks_on_a_processor_compute_in_what_is_faster_there(monkeypatch):
    monkeypatch.setattr(precision, "LARGE", 1000)
    assert precise(AUTO, machine=machine("cpu", 8e12)).train.dtype == "bfloat16"
    assert precise(AUTO, machine=machine("cpu", 0.1e12)).train.dtype == "float32"


def test_what_somebody_has_said_is_kept_and_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(precision, "here", lambda _: pytest.fail("it was measured"))
    said = load_config("plan_path", ["train.dtype=bfloat16"])
    assert precise(said) is said
    before = replace(AUTO, train=AUTO.train.model_copy(update={"dtype": "bfloat16"}))
    assert precise(AUTO, before).train.dtype == "bfloat16", "as the run has found it when it began"


@pytest.mark.long
def test_a_plan_for_a_gpu_is_of_what_a_run_would_find_there():
    kinds = [plan(replace(AUTO, train=AUTO.train.model_copy(update={"device": device})), machine("cuda", 8e12))
             for device in ("auto", "cpu")]  # fmt: skip
    on_gpu, on_processor = ({share.memory["copy"] for share in one[0].shares} for one in kinds)
    assert on_gpu != on_processor, "weights in bfloat16 are copies for the engine"


@pytest.mark.slow
def test_a_run_keeps_what_it_has_found(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "here", lambda _: machine("cpu", 8e12))
    monkeypatch.setattr(precision, "LARGE", 1000)
    save_model(tiny(scale=2.0), tmp_path / "tiny")
    sets = ["team.a=x", "team.b=x", f"policies.x.model={tmp_path / 'tiny'}", "train.dtype=auto",
            "train.tasks_per_step=2", "train.eval_tasks=4", "algorithm.num_generations=2"]  # fmt: skip
    run = train(load_config("tests/toys.py:Agree", [*sets, "train.steps=1"]), tmp_path / "run")
    assert run.config.train.dtype == "bfloat16"
    monkeypatch.setattr(precision, "here", lambda _: pytest.fail("it was measured again"))
    run = train(load_config("tests/toys.py:Agree", [*sets, "train.steps=2"]), resume=run.folder)
    assert run.checkpoints.steps()[-1] == 2
    assert run.config.train.dtype == "bfloat16"
