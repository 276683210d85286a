# ruff: noqa: E501  (a table reads best with a line a row)
"""What somebody who writes a first environment gets wrong: one line that says what, where and what to do."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coterie import load_config
from coterie.checks.rehearsal import rehearse
from coterie.errors import CoterieError
from coterie.models.load import save_model
from coterie.registry import summary
from coterie.run.folder import Run
from tests.config.test_wrong_inputs import SMALL
from tests.test_cli import ROOT, call, snapshot
from tests.toys import tiny

HEAD = """from coterie import Environment, Task


class MyEnv(Environment):
    roles = ("solver",)

    def task(self, split, index):
        return Task(f"{split}-{index}", split, query=f"{split} {index}")

"""
PLAY = "    async def play(self, task, scene):\n"
ASK = PLAY + '        reply = await scene.ask("solver", "pick", max_tokens=4)\n'
GOOD = ASK + '        scene.reward("solver", float(len(reply.text)))\n'
TASK = 'return Task(f"{split}-{index}", split, query=f"{split} {index}")'
MISTAKES: dict[str, tuple[str, str]] = {
    "a question nobody awaited": (
        HEAD + PLAY + '        scene.ask("solver", "pick")\n',
        "my_env.py:11 makes was never awaited, so nothing was done; write `await` before it: `reply = await scene.ask(…)`",
    ),
    "the text of a coroutine": (
        HEAD + PLAY + '        reply = scene.ask("solver", "pick")\n        scene.team_reward(len(reply.text))\n',
        "my_env.py:11 makes was never awaited",
    ),
    "a coroutine in a prompt": (
        HEAD + PLAY + '        idea = scene.ask("solver", "a")\n        await scene.ask("solver", f"{idea}")\n',
        "my_env.py:11 makes was never awaited",
    ),
    "a helper nobody awaited": (
        HEAD + PLAY + "        self.turn(scene)\n\n    async def turn(self, scene):\n        await scene.ask('solver', 'a')\n",
        "coroutine 'MyEnv.turn' was never awaited; write `await` before it",
    ),
    "the value of a helper nobody awaited": (
        HEAD + ASK + "        self.turn(scene).text\n\n    async def turn(self, scene):\n        return 1\n",
        "my_env.py:12: .text is asked of a coroutine; write `await`",
    ),
    "play without async": (HEAD + GOOD.replace("async ", "").replace("await ", ""), "write `async def play(self, task, scene)`"),
    "play that yields": (HEAD + PLAY + "        yield 1\n", "write `async def play(self, task, scene)`, without yield"),
    "play with other arguments": (HEAD + "    async def play(self, scene):\n        pass\n", "write play(self, task, scene)"),
    "no play": (HEAD + "    size: int = 3\n", "has no method play(self, task, scene)"),
    "a string of roles": (HEAD.replace('("solver",)', '"solver"') + GOOD, "roles = 'solver' is a string; write roles = (\"solver\",)"),
    "no roles": (HEAD.replace('    roles = ("solver",)\n', "") + GOOD, "names no roles"),
    "a set of roles": (HEAD.replace('("solver",)', '{"solver"}') + GOOD, "is a set"),
    "a role twice": (HEAD.replace('("solver",)', '("a", "a")') + GOOD, "names a role twice"),
    "a role without a name": (HEAD.replace('("solver",)', '("",)') + GOOD, "the role '' is no name"),
    "a role that steers a terminal": (HEAD.replace('("solver",)', '("\\x1b[2J",)') + GOOD, "is no name"),
    "a missing import in play": (
        HEAD + ASK + "        re.match('a', reply.text)\n",
        "my_env.py:12: NameError: name 're' is not defined; import it at the top",
    ),
    "a missing import at the top": (HEAD + "    size: int = random.random()\n" + GOOD, "name 'random' is not defined ("),
    "a reply taken for its text": (HEAD + ASK + "        reply.strip()\n", "my_env.py:12: a reply has no strip; its words are a string, reply.text"),
    "a reply taken for a number": (HEAD + ASK + "        int(reply)\n", "take the reply's words from reply.text"),
    "a method the scene lacks": (HEAD + PLAY + "        await scene.asks('a', 'b')\n", "the scene has no asks; did you mean 'ask'?"),
    "a question without a prompt": (HEAD + PLAY + "        await scene.ask('solver')\n", "missing 1 required positional argument: 'prompt'"),
    "a prompt that is none": (HEAD + PLAY + "        await scene.ask('solver', None)\n", "my_env.py:11: a prompt is a string"),
    "a role that is not there": (HEAD + PLAY + "        await scene.ask('solvr', 'a')\n", "my_env.py:11: play asked ['solvr']; the roles are ['solver']"),
    "play that returns": (HEAD + ASK + "        return 1.0\n", "returned 1.0, which nobody reads"),
    "a reward that is none": (HEAD + ASK + "        scene.reward('solver', None)\n", "the reward 'local' of solver is None"),
    "a reward no float32 holds": (HEAD + ASK + "        scene.team_reward(1e308, name='big')\n", "the reward 'big' of the team is 1e+308"),
    "a reward whose square overflows": (HEAD + ASK + "        scene.reward('solver', -1e200, name='big')\n", "the reward 'big' of solver is -1e+200"),
    "a metric whose mean overflows": (HEAD + ASK + "        scene.metric('size', 1e308)\n", "the metric 'size' is 1e+308"),
    "a reason that is none": (HEAD + ASK + "        scene.fail(None)\n", "the reason of scene.fail is None"),
    "no task": (HEAD.replace(TASK, "pass") + GOOD, "environment.task('train', 0) returned None, which is no coterie.Task"),
    "a task that raises": (HEAD.replace(TASK, "return {}['x']") + GOOD, "environment.task('train', 0) raised KeyError: 'x' ("),
    "a later task that raises": (
        HEAD.replace(TASK, 'return Task(f"{split}-{index}", {"train": "train"}[split])') + GOOD,
        "environment.task('validation', 0) raised KeyError: 'validation' (",
    ),
    "an id that is no text": (HEAD.replace("-{index}", "-{index}\\ud800") + GOOD, "environment.task('train', 0) returned a task whose id is 'train-0\\ud800': a lone surrogate"),
    "a count that is none": (HEAD + GOOD + "\n    def count(self, split):\n        return '5'\n", "environment.count('train') returned '5'"),
    "an __init__ that raises": (
        HEAD + "    def __init__(self, **settings):\n        super().__init__(**settings)\n        {}['x']\n\n" + GOOD,
        "MyEnv cannot be made: it raised KeyError: 'x'",
    ),
    "two classes": (HEAD + GOOD + "\n\nclass Second(MyEnv):\n    pass\n", "it has MyEnv, Second; name one as"),
    "no class": ("x = 1\n", "has no class that is a coterie.Environment"),
    "an exit at the top": ("raise SystemExit(3)\n", "does not import: SystemExit: 3"),
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("mistakes")
    save_model(tiny(scale=2.0), home / "model")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("kind", MISTAKES)
def test_a_beginners_mistake_is_one_line_and_leaves_no_folder(kind, home, tmp_path, monkeypatch):
    text, says = MISTAKES[kind]
    (tmp_path / "my_env.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    code, out, err = call("train", "my_env.py", *SMALL(home))
    assert code == 2, (out, err)
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1, err
    assert says in err
    assert [one for one in snapshot(tmp_path) if "__pycache__" not in one[0]] == before


@pytest.mark.parametrize("value", ["1e308", "-1e200", "1e10"])
def test_check_refuses_rewards_that_statistics_cannot_take(value, tmp_path):
    (tmp_path / "my_env.py").write_text(HEAD + ASK + f"        scene.team_reward({value}, name='big')\n")
    code, out, _ = call("check", str(tmp_path / "my_env.py"), "--tasks", "1")
    assert code == 1
    assert f"the reward 'big' of the team is {float(value)}" in out


def test_a_bug_that_no_rehearsal_meets_keeps_its_traceback_and_can_be_played_again(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_env.py").write_text(HEAD + ASK + "        1 / 0\n")
    code, _, err = call("train", "my_env.py", "--out", "a run", *SMALL(home))
    assert code == 2
    assert err == (
        f"coterie: play of task train-0 raised ZeroDivisionError: division by zero ({tmp_path}/my_env.py:12) after 'solver' "
        "replied ''; mend it there: whatever roles reply is scored, and raises nothing\n"
    )
    assert not (tmp_path / "a run").exists()
    (tmp_path / "my_env.py").write_text(HEAD + ASK + "        1 / (task.id < 'validation-3')\n")
    with pytest.raises(Exception, match="ZeroDivisionError") as caught:
        call("train", "my_env.py", "--out", "a run", *SMALL(home))
    assert caught.value.__notes__ == [
        "Play the episode again up to there: coterie play 'a run' --bug",
        "When it is mended, go on from the last checkpoint: coterie train --resume 'a run' --anyway",
    ]
    with pytest.raises(Exception, match="ZeroDivisionError"):
        call("play", "a run", "--bug")


def test_a_model_that_nobody_named_is_asked_for_and_not_taken_from_another_world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_env.py").write_text(HEAD + GOOD)
    for more in ((), ("--dry-run",), ("--set", "policies.team.model=")):
        code, _, err = call("train", "my_env.py", *more)
        assert code == 2
        assert "policies.team.model: this environment comes with no model to start from; name a folder" in err
    assert not (tmp_path / "runs").exists()
    code, out, _ = call("check", "my_env.py", "--tasks", "1")
    assert code == 0, out


def test_tools_of_ones_own_may_lie_beside_and_a_bug_in_them_names_its_line(tmp_path):
    (tmp_path / "tools_of_mine.py").write_text("def ratio(a, b):\n    return a / b\n")
    play = "    async def play(self, task, scene):\n        await scene.call(tools_of_mine.ratio, 1, 0)\n"
    (tmp_path / "my_env.py").write_text(f"import tools_of_mine\n{HEAD}{play}")
    code, out, _ = call("check", str(tmp_path / "my_env.py"), "--tasks", "1")
    assert code == 1
    assert (
        f"CallError: ZeroDivisionError: division by zero ({tmp_path}/my_env.py:12, in a call of {tmp_path}/tools" in out
    )
    assert "tools_of_mine.py:2)" in out
    sys.modules.pop("tools_of_mine")
    sys.path.remove(str(tmp_path))


@pytest.mark.slow
def test_the_limits_of_a_config_hold_in_check_too(tmp_path):
    slow = HEAD + "    async def play(self, task, scene):\n        await scene.call(slow, 0.15)\n" + GOOD[len(PLAY) :]
    (tmp_path / "my_env.py").write_text(f"from tests.outside import slow\n{slow}")
    target = (str(tmp_path / "my_env.py"), "--tasks", "1")
    assert call("check", *target)[0] == 0
    code, out, _ = call("check", *target, "--set", "engine.call_timeout_s=0.05")
    assert code == 1
    assert "no result after 0.05 s" in out


@pytest.mark.slow
def test_play_may_print_where_check_looks_on(tmp_path):
    (tmp_path / "my_env.py").write_text(HEAD + PLAY + "        print('hello')\n" + GOOD.split("\n", 1)[1])
    code, out, _ = call("check", str(tmp_path / "my_env.py"), "--tasks", "1")
    assert code == 0, out
    code, out, err = call("check", str(tmp_path / "my_env.py"), "--tasks", "1", "--json")
    assert json.loads(out)["ok"], out
    assert "hello" in err


@pytest.mark.slow
def test_one_class_in_a_file_needs_no_name_and_a_run_is_read_from_everywhere(home, tmp_path, monkeypatch):
    """Its config names file and model whole; where the run itself lies does not matter."""
    project, elsewhere = tmp_path / "a project", tmp_path / "else where"
    project.mkdir()
    elsewhere.mkdir()
    (project / "my_env.py").write_text(HEAD + GOOD)
    (project / "my.toml").write_bytes('\ufeff[environment]\nname = "my_env.py"\n'.encode())
    shutil.copytree(home / "model", project / "model")
    monkeypatch.chdir(elsewhere)
    sets = [*SMALL(home)[:-2], "--set", "policies.team.model=../a project/model"]
    code, out, err = call("train", str(project / "my.toml"), "--out", str(project / "run"), *sets)
    assert code == 0, err
    assert shlex.split(out.splitlines()[-1].partition("tasks: ")[2]) == ["coterie", "eval", str(project / "run")]
    config = Run.open(project / "run").config
    assert config.names["environment"] == f"{project / 'my_env.py'}:MyEnv"
    assert config.policies["team"].model == str(project / "model")
    (project / "run").rename(elsewhere / "moved")
    monkeypatch.chdir(tmp_path)
    code, _, err = call("eval", str(elsewhere / "moved"), "--tasks", "2")
    assert code == 0, err


def test_a_run_that_was_moved_while_it_ran_is_told_so_and_not_made_again(tmp_path):
    from coterie.config.resolve import load_config
    from coterie.errors import CheckpointError

    run = Run.create(tmp_path / "my run", load_config(f"{ROOT / 'tests/toys.py'}:Agree"))
    run.folder.rename(tmp_path / "moved")
    with pytest.raises(
        CheckpointError, match=r"moved, removed or replaced.*coterie train --resume '.*my run'"
    ) as caught:
        run.log({"step": 0})
    assert "make room" not in str(caught.value)
    with pytest.raises(CheckpointError, match="moved, removed or replaced"):
        run.save_episodes(1, [])
    assert not run.folder.exists()


def test_a_config_of_another_format_is_told_to_be_toml(tmp_path):
    (tmp_path / "my.json").write_text("{}")
    code, _, err = call("train", str(tmp_path / "my.json"))
    assert (code, err.count("\n")) == (2, 1)
    assert "a config is a TOML file" in err


def test_a_list_of_names_needs_no_torch():
    script = "import sys\nfrom coterie.registry import summary, TABLES\n[summary(kind) for kind in TABLES]\n"
    script += "assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert summary("engine")["transformers"].startswith("Hugging Face models in this process")


@pytest.mark.slow
def test_a_model_of_a_hub_that_answers_nothing_is_one_line_and_asked_for_once():
    """The hub's client would ask for each file five times, for a minute."""
    asked: list[bytes] = []

    def hub(door: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = door.accept()
                with caller:
                    asked.append(caller.recv(1 << 12).partition(b"\r\n")[0])

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=hub, args=(door,), daemon=True).start()
        env = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{door.getsockname()[1]}"}
        command = [sys.executable, "-m", "coterie.cli", "train", "plan_path", "--set", "policies.team.model=no/thing"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "policies.team.model = 'no/thing'" in done.stderr
    assert 1 <= len(asked) == len(set(asked)), asked


@pytest.mark.parametrize(
    "method", ["ready(self)", "wanted(self)", "isolation(self)", "absent(self, split)", "remarks(self)"]
)
def test_whatever_method_of_a_persons_raises_the_file_and_the_line_are_named(tmp_path, method):
    world = tmp_path / "mine.py"
    world.write_text(
        f"from tests.toys import Agree\n\n\nclass Mine(Agree):\n    def {method}:\n        return {{}}['oops']\n"
    )
    name = method.partition("(")[0]
    with pytest.raises(CoterieError, match=rf"{name}\(.*\) raised KeyError: 'oops' \({world}:6\); mend it there"):
        rehearse(
            load_config(f"{world}:Mine", ["policies.team.model=x", "train.device=cpu"]).environment, play_timeout_s=5
        )
