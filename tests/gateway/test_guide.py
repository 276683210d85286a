"""The guide for people who have an agent: what it shows works."""

import re
from pathlib import Path

from coterie.models.load import save_model
from tests.test_cli import call
from tests.toys import tiny

GUIDE = Path(__file__).parents[2] / "docs/agents.md"


def test_the_guides_agent_is_checked_and_trained(tmp_path, monkeypatch):
    (tmp_path / "my_agent.py").write_text(re.search(r"```agent\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1])
    save_model(tiny(), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^coterie (.*gateway:my_agent.py:run.*)$", GUIDE.read_text(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["check", "train"]
    small = [
        "train.steps=1", "train.tasks_per_step=1", "train.eval_tasks=2", "train.mute_every=0",
        "algorithm.num_generations=2", "environment.max_tokens=3",
    ]  # fmt: skip
    for command in commands:
        words = command.replace("Qwen/Qwen3-0.6B", str(tmp_path / "model")).split()
        if words[0] == "train":
            words += ["--out", "run", "--no-test", *(word for one in small for word in ("--set", one))]
        code, told = call(*words)[:2]
        assert code == 0, told
    assert (tmp_path / "run/metrics.jsonl").exists()
