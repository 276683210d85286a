"""Run folders as a stranger may send them: each names code, a command, a server or a variable in another way.

`hostile` makes them of one honest run, so that nothing else is wrong with them. Code that is imported or run, by
whichever way, writes a file at the place that `CANARY` names.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.config.toml import to_toml

CANARY, SECRET = "COTERIE_TEST_CANARY", "COTERIE_TEST_SECRET"
EVIL = f"""
import os, pathlib
pathlib.Path(os.environ["{CANARY}"]).write_text("it was run")
def reward(*_, **__): return 1.0
class Env: pass
"""
MODULE = "coterie_test_evil"
"""A module that can be imported, as a package of the stranger's that lies in the working folder."""
Change = Callable[[dict[str, Any], Path], None]


def _set(path: str, value: object) -> Change:
    def change(tables: dict[str, Any], folder: Path) -> None:
        *above, key = path.split(".")
        table = tables
        for name in above:
            table = table.setdefault(name, {})
        table[key] = value.replace("HERE", str(folder)) if isinstance(value, str) else value

    return change


def _all(*changes: Change) -> Change:
    def change(tables: dict[str, Any], folder: Path) -> None:
        for one in changes:
            one(tables, folder)

    return change


def _environment(**settings: object) -> Change:
    def change(tables: dict[str, Any], folder: Path) -> None:
        tables["environment"] = settings

    return change


def _server(url: str, variable: str = SECRET) -> Change:
    remote = {"url": url, "key_variable": variable}
    return _set("policies.judge", {"kind": "remote", "model": "x", "remote": remote})


def _beside(name: str, text: str = "", link: str = "") -> Change:
    """Puts a file, or a link, into the folder of the run."""

    def change(tables: dict[str, Any], folder: Path) -> None:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(link) if link else file.write_text(text)

    return change


def _policy_of_another_run(tables: dict[str, Any], folder: Path) -> None:
    other = folder.parent / "other"
    (other / "checkpoints").mkdir(parents=True, exist_ok=True)
    (other / "config.toml").touch()
    tables["policies"]["old"] = {"model": f"{other}#1/pilot", "kind": "frozen"}


ROWS = json.dumps({
    "id": "r", "text": "Add 1 to x", "name": "f", "tests": [{"args": [1], "value": 2}],
    "solution": f"import os\nopen(os.environ['{CANARY}'], 'w')\ndef f(x):\n    return x + 1",
})  # fmt: skip
"""A problem whose own solution, which is tried before the problem is used, is a stranger's code."""
COMMAND = f"python -c \"import os; open(os.environ['{CANARY}'], 'w')\""
WAYS: dict[str, Change] = {
    "environment_beside": _set("environment.name", "evil.py:Env"),
    "environment_whole": _set("environment.name", "HERE/evil.py:Env"),
    "environment_alone": _set("environment.name", "HERE/evil.py"),
    "environment_module": _set("environment.name", f"{MODULE}:Env"),
    "environment_spaces": _set("environment.name", "HERE/evil copy é.py:Env"),
    "algorithm": _set("algorithm.name", "HERE/evil.py:Env"),
    "algorithm_module": _set("algorithm.name", f"{MODULE}:Env"),
    "loss": _set("loss.name", "evil.py:Env"),
    "engine": _set("engine.name", "HERE/evil.py:Env"),
    "tracker": _set("trackers.mine", {"name": "HERE/evil.py:Env"}),
    "tracker_module": _set("trackers.mine", {"name": f"{MODULE}:Env"}),
    "tracker_label": _set("trackers.wandb", {"mode": "online"}),
    "wandb": _set("trackers.mine", {"name": "wandb"}),
    "mlflow": _set("trackers.mine", {"name": "mlflow", "tracking_uri": "http://evil.invalid"}),
    "agent": _environment(name="gateway", agent="evil.py:reward"),
    "agent_module": _environment(name="gateway", agent=f"{MODULE}:reward"),
    "reward": _environment(name="prompts", data="rows.jsonl", rewards=["evil.py:reward"]),
    "reward_module": _environment(name="prompts", data="rows.jsonl", rewards=[f"{MODULE}:reward"]),
    "reward_odd": _environment(name="prompts", data="rows.jsonl", rewards=["evil-x:reward"]),
    "role_reward": _environment(name="prompts", data="rows.jsonl", role_rewards={"writer": [f"{MODULE}:reward"]}),
    "tool": _environment(name="prompts", data="rows.jsonl", rewards=["exact"], tools={"writer": COMMAND}),
    "tool_server": _environment(name="prompts", data="rows.jsonl", tools={"writer": "https://evil.invalid/mcp"}),
    "pettingzoo": _environment(name="pettingzoo", game=MODULE),
    "gymnasium": _environment(name="gymnasium", game=f"{MODULE}:Evil-v0"),
    "textarena": _environment(name="textarena", game="Evil-v0"),
    "openenv": _environment(name="openenv", game=f"{MODULE}:Env"),
    "server": _server("https://evil.invalid/v1"),
    "server_plain": _server("http://evil.invalid/v1"),
    "server_blank": _server("http:\t//evil.invalid/v1"),
    "server_here": _server("http://127.0.0.1:9/v1", "HOME"),
    "engine_server": _all(
        _set("engine.name", "vllm"), _set("engine.url", "http://evil.invalid"), _set("engine.key_variable", SECRET)
    ),
    "cluster": _set("runtime.address", "evil.invalid:6379"),
    "model_download": _set("policies.team.model", "evil/model"),
    "model_bare": _set("policies.team.model", "evil-gpt2"),
    "model_file": _all(_set("policies.team.model", "evil/model"), _beside("evil/model")),
    "benchmark_file": _all(_environment(name="maths", data="gsm8k"), _beside("gsm8k")),
    "file_by_link": _all(_set("policies.team.chat_template", "t.jinja"), _beside("t.jinja", link="/etc/hostname")),
    "policy_of_another_run": _policy_of_another_run,
    "benchmark": _environment(name="maths", data="gsm8k"),
    "no_sandbox": _environment(name="code", sandbox="process"),
    "no_sandbox_of_its_data": _all(
        _environment(name="code", data="rows.jsonl", sandbox="process"), _beside("rows.jsonl", ROWS)
    ),
    "no_sandbox_of_tools": _environment(name="maths", tool="python", sandbox="process"),
    "file_elsewhere": _set("policies.team.chat_template", "/etc/hostname"),
    "data_download": _environment(name="maths", data="hub:evil/rows"),
    "data_download_second": _environment(name="maths", data="HERE/rows.jsonl -> hub:evil/rows"),
    "old_signature": _set("environment.name", "HERE/evil.py:Env"),
    "forged_signature": _set("environment.name", "HERE/evil.py:Env"),
}


def hostile(way: str, honest: Path, folder: Path) -> Path:
    """Makes a hostile folder of an honest run of this user's."""
    shutil.copytree(honest, folder)
    for name in ("evil.py", "evil copy é.py", "evil-x.py"):
        (folder / name).write_text(EVIL)
    (folder / "rows.jsonl").write_text('{"question": "x", "answer": "y"}\n')
    tables = tomllib.loads((folder / "config.toml").read_text())
    WAYS[way](tables, folder)
    (folder / "config.toml").write_text(to_toml(tables))
    if way == "forged_signature":
        (folder / "owner").write_text("0" * 64)
    elif way != "old_signature":
        (folder / "owner").unlink()
    return folder
