"""The benchmark of a CUDA device, where there is none: its refusal, and what it says of what was measured."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu, run_bench
from coterie.errors import ConfigError


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_is_refused_in_a_line():
    with pytest.raises(ConfigError, match="needs a CUDA device, and there is none here"):
        run_bench("gpu")


def test_a_step_is_what_the_last_line_has_more_than_the_one_before():
    lines = [
        {"budget/replies": 10 * at, "budget/prompt_tokens": 100 * at, "budget/sampled_tokens": at * at,
         "time/rollout": 1.0 / at, "time/step": 2.0 / at} for at in (1, 2, 4)
    ]  # fmt: skip
    assert gpu.of_steps(lines) == {
        "replies": 20, "prompt_tokens": 200, "sampled_tokens": 12, "time/rollout": 0.25, "time/step": 0.5
    }  # fmt: skip


def test_a_page_has_what_was_measured_and_says_what_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "FOLDER", tmp_path)
    (tmp_path / "decoded.json").write_text('{"0.6B, 16": {"modules": 555.0, "graphs": 2220.0}}')
    lines = gpu.page()
    assert "| 0.6B, 16 | 555 | 2,220 | 4.0 |" in lines
    assert not any("GiB" in line and "|" in line for line in lines)  # of memory nothing was measured
    assert any(line.startswith("Not run on a GPU yet") for line in lines)
