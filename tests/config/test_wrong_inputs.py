# ruff: noqa: E501  (a table reads best with a line a row)
"""Wrong inputs, by kind: each is one line, exit code 2, and nothing is written or changed.

Those of the command line's own words are in test_cli.py; damaged checkpoints, full disks and killed
runs in test_runs.py and test_faults.py.
"""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from random import Random

import pytest

from coterie.models.load import save_model
from coterie.report.output import INTERRUPTED
from coterie.run.folder import Run
from tests.run.test_faults import child, contents
from tests.test_cli import ROOT, call, snapshot
from tests.toys import tiny


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A model, a finished run, and files that are wrong."""
    home = tmp_path_factory.mktemp("wrong")
    save_model(tiny(scale=2.0), home / "model")
    (home / "empty").mkdir()
    shutil.copytree(home / "model", home / "untemplated")
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        file = home / "untemplated" / name
        if name.endswith("json"):
            config = json.loads(file.read_text())
            config.pop("chat_template", None)
            file.write_text(json.dumps(config))
        else:
            file.unlink(missing_ok=True)
    shutil.copytree(home / "model", home / "encoder")
    config = json.loads((home / "encoder/config.json").read_text())
    (home / "encoder/config.json").write_text(
        json.dumps({**config, "model_type": "vit", "architectures": ["ViTModel"]})
    )
    (home / "typo.toml").write_text('[environment]\nname = "plan_path"\n\n[train]\nstep = 3\n')
    (home / "broken.toml").write_text("[environment\nname = 3")
    (home / "latin.toml").write_bytes('[environment]\nname = "plän"'.encode("latin-1"))
    (home / "list.toml").write_text("train = [1, 2]\n")
    (home / "syntax.py").write_text("class Env(:\n")
    (home / "raises.py").write_text("1 / 0\n")
    (home / "other.py").write_text("class Env:\n    pass\n")
    (home / "breaks.py").write_text(
        "from coterie import Environment, Task\n\n\nclass Env(Environment):\n    roles = ('a',)\n\n"
        "    def task(self, split, index):\n        return Task(f'{split}-{index}', split)\n\n"
        "    async def play(self, task, scene):\n        await scene.ask('b', 'pick')\n"
    )
    (home / "file").write_text("")
    code, _, err = call("train", str(ROOT / "tests/toys.py:Agree"), "--out", str(home / "run"), *SMALL(home))
    assert code == 0, err
    for name in ("cut", "missing", "shapes", "older"):
        shutil.copytree(home / "run", home / name)
    weights = home / "cut/checkpoints/step-00002/policies/team/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    (home / "missing/checkpoints/step-00002/policies/team/model.safetensors").unlink()
    about = json.loads((home / "older/about.json").read_text())
    about["exact"]["torch"] = "1.0"
    (home / "older/about.json").write_text(json.dumps(about))
    config = (home / "shapes/config.toml").read_text().replace(str(home / "model"), "starter")
    (home / "shapes/config.toml").write_text(config)
    return home


def SMALL(home: Path) -> list[str]:
    sets = ["train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=4", "algorithm.num_generations=3",
            "train.mute_every=0", f"policies.team.model={home / 'model'}"]  # fmt: skip
    return [word for one in sets for word in ("--set", one)]


def sets(*words: str) -> list[str]:
    return ["train", "plan_path", *(part for word in words for part in ("--set", word))]


TOYS = f"{ROOT / 'tests/toys.py'}:Agree"
WRONG = {
    "1 an unknown key, with file, line and the nearest": (["train", "typo.toml"], "typo.toml:5: unknown key 'train.step'; did you mean 'steps'?"),
    "2 an unknown device": (sets("train.device=gpu"), "train.device = 'gpu'"),
    "2 an unknown environment": (["train", "plan_pth"], "did you mean 'plan_path'?"),
    "2 an unknown algorithm": (sets("algorithm.name=at_gpro"), "did you mean 'at_grpo'?"),
    "3 a role that is not there": (sets("team.walker=x"), "unknown role 'team.walker'"),
    "3 a role without a policy": (sets("team.proposer=x", "policies.x.model=starter"), "role 'planner' has no policy"),
    "3 a policy nobody plays": (sets("policies.ghost.model=starter"), "ghost"),
    "4 a group of one": (sets("algorithm.num_generations=1"), "algorithm.num_generations = 1"),
    "4 no steps": (sets("train.steps=0"), "train.steps = 0"),
    "4 fewer than no steps": (sets("train.steps=-3"), "train.steps = -3"),
    "4 no learning rate": (sets("optimizer.lr=0"), "optimizer.lr = 0"),
    "4 no temperature": (sets("train.temperature=0"), "train.temperature = 0"),
    "4 an empty nucleus": (sets("eval.top_p=0"), "eval.top_p = 0"),
    "4 a number that is none": (sets("optimizer.lr=nan"), "optimizer.lr"),
    "5 a setting without effect": (sets("algorithm.name=mas_grpo", "algorithm.horizon=turn"), "it is a setting of at_grpo"),
    "5 a view for a planner alone": (sets("environment.solo=true", "environment.view=full"), "environment.view has no effect"),
    "5 a mute probe for a team of one": (sets("environment.solo=true", "train.mute_every=3"), "train.mute_every has no effect"),
    "6 a model that is not there": (sets("policies.team.model=nowhere"), "policies.team.model = 'nowhere'"),
    "6 an empty folder": (sets("policies.team.model=empty"), "config.json is missing"),
    "6 no causal language model": (sets("policies.team.model=encoder"), "no causal language model"),
    "6 no chat template": (sets("policies.team.model=untemplated"), "has no chat template"),
    "7 a reply beyond the context": (sets("environment.max_tokens=5000"), "has a context of"),
    "8 no TOML": (["train", "broken.toml"], "broken.toml: cannot be read as TOML"),
    "8 no UTF-8": (["train", "latin.toml"], "latin.toml: cannot be read as TOML"),
    "8 a list for a table": (["train", "list.toml"], "'train' is a table"),
    "8 a number for a name": (sets("algorithm.name=3"), "algorithm.name is 3"),
    "8 a number for a policy": (sets("team.proposer=3"), "name a policy"),
    "9 a folder that exists": (["train", "plan_path", "--out", "run"], "run exists"),
    "9 another seed": (["train", "run/config.toml", "--resume", "run", "--set", "train.seed=5"], "was run with train.seed = 0, not 5"),
    "9 other versions": (["train", "--resume", "older"], "it was run with torch 1.0, here"),
    "10 a checkpoint cut short": (["eval", "cut", "--step", "2"], "is cut or changed"),
    "10 a checkpoint with a file missing": (["eval", "missing", "--step", "2"], "is missing"),
    "10 other shapes": (["train", "--resume", "shapes", "--trust", "--set", "train.steps=9"], "has other shapes"),
    "10 a file for a run": (["eval", "run/config.toml"], "is a file; name the folder of a run"),
    "10 a run for a config": (["train", "run"], "run is the folder of a run; go on with: coterie train --resume run"),
    "11 a file where a folder is wanted": (["train", "plan_path", "--out", "file/run"], "could not be written: Not a directory"),
    "11 a report into nowhere": (["report", "run", "--tasks", "0", "--out", "file/page.html"], "could not be written: Not a directory; choose another place"),
    "12 an environment that does not parse": (["train", "syntax.py:Env"], "syntax.py does not import: SyntaxError"),
    "12 an environment that raises": (["train", "raises.py:Env"], "raises.py does not import: ZeroDivisionError"),
    "12 a class of another kind": (["train", "other.py:Env"], "has no class Env that is a coterie.Environment"),
    "12 no such class": (["train", "breaks.py:Nothing"], "has no class Nothing"),
    "15 a GPU that is not there": (sets("train.device=cuda"), "there is no such device here"),
    "an ablation that is none": (["eval", "run", "--mute", "a,b"], "write it as --mute ROLE"),
    "an ablation of nobody": (["eval", "run", "--mute", "walker"], "unknown role 'walker'; the roles are a, b"),
    "a swap of one policy": (["eval", "run", "--swap", "a,b"], "nothing to swap"),
    "a replacement from nowhere": (["eval", "run", "--replace", "a=nowhere"], "is not a run folder"),
    "a report of nothing": (["report", "nowhere"], "is not a run folder"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_input_is_one_line_and_writes_nothing(kind, home, monkeypatch):
    import torch

    words, says = WRONG[kind]
    if "train.device=cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    monkeypatch.chdir(home)
    before = snapshot(home)
    code, out, err = call(*words)
    assert code == 2, (out, err)
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1, err
    assert says in err
    assert snapshot(home) == before


def test_12_an_environment_that_breaks_the_contract_is_one_line_and_keeps_no_half_run(home, tmp_path, monkeypatch):
    monkeypatch.chdir(home)
    code, _, err = call("train", "breaks.py:Env", "--out", str(tmp_path / "run"), *SMALL(home))
    assert code == 2
    assert err.count("\n") == 1, err
    assert "play asked ['b']; the roles are ['a']" in err
    assert not (tmp_path / "run").exists()
    assert call("check", "breaks.py:Env")[0] == 1


def lasting(folder: Path) -> dict[str, bytes]:
    """Everything but earlier checkpoints: where a run is stopped, it saves one more."""
    return {
        name: content for name, content in contents(folder).items() if "step-000" not in name or "step-00010" in name
    }


@pytest.mark.parametrize("command", [("train",), ("check",)])
def test_14_no_bubblewrap_where_code_must_run_is_one_line_and_writes_nothing(command, home, tmp_path, monkeypatch):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **kwargs: None if name == "bwrap" else which(name, **kwargs))
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*command, "code", "--set", f"policies.team.model={home / 'model'}")
    said = err or out
    assert code == (2 if command == ("train",) else 1)
    assert "apt-get install bubblewrap" in said
    assert "environment.sandbox = 'process'" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.long)])
def test_18_ctrl_c_at_any_moment_is_one_line_and_loses_nothing(times, home, tmp_path):
    """During start, rollout, update or save, and twice: the line says how to go on, and that works."""
    sets = [*SMALL(home), "--set", "train.steps=10", "--set", "train.checkpoint_every=2"]
    code, _, err = call("train", TOYS, "--out", str(tmp_path / "whole"), *sets)
    assert code == 0, err
    folder, rng, stopped = tmp_path / "run", Random(0), 0
    while stopped < times:
        hear, say = os.pipe()

        def work(say: int = say) -> None:
            going = ["--resume", str(folder)] if folder.exists() else [TOYS, "--out", str(folder), *sets]
            code, _, err = call("train", *going)
            os.write(say, f"{code} {err}".encode())

        pid = child(work)
        time.sleep(rng.uniform(0.05, 0.6))
        os.kill(pid, signal.SIGINT)
        if stopped % 2:
            time.sleep(0.05)
            os.kill(pid, signal.SIGINT)
        os.waitpid(pid, 0)
        os.close(say)
        code, _, said = os.read(hear, 100_000).decode().partition(" ")
        os.close(hear)
        if code == str(INTERRUPTED):
            stopped += 1
            assert "Traceback" not in said
            assert said.strip().startswith("coterie: "), said
        elif code == "0":  # it was done before the key
            assert lasting(folder) == lasting(tmp_path / "whole")
            shutil.rmtree(folder)
        else:
            assert code == "", (code, said)  # stopped before it could listen
        if folder.exists() and not Run(folder).checkpoints.steps():
            shutil.rmtree(folder)
    code, _, err = call(
        "train", *(["--resume", str(folder)] if folder.exists() else [TOYS, "--out", str(folder), *sets])
    )
    assert code == 0, err
    assert lasting(folder) == lasting(tmp_path / "whole")
