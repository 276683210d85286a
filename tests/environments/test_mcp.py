"""MCP servers as tools. Those that start one need the extra `mcp`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from coterie import check, load_config
from coterie.engines.scripted import ScriptedEngine
from coterie.environments import mcp as adapter
from coterie.environments.mcp import LONGEST, called, check_server, listed
from coterie.environments.prompts import Prompts
from coterie.errors import ConfigError, Unavailable
from coterie.kernel.episode import Asked, Noted
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from tests.toys import one

SERVER = f"{sys.executable} {Path(__file__).parent.parent}/mcp_server.py"
CALL = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'


@pytest.fixture(autouse=True)
def sessions():
    """None is left open, and the library is there."""
    pytest.importorskip("mcp", reason="needs the extra mcp: pip install 'coterie[mcp]'")
    yield
    adapter._close()


def begun(monkeypatch) -> list[str]:
    """The servers that are started from now on."""
    started: list[str] = []
    make = adapter._Open.__init__

    def watched(self, server, stack, **more):
        started.append(server)
        make(self, server, stack, **more)

    monkeypatch.setattr(adapter._Open, "__init__", watched)
    return started


@pytest.mark.slow
def test_what_a_server_offers_is_told_as_chat_templates_take_it():
    tools = {tool["function"]["name"]: tool for tool in listed(SERVER)}
    assert set(tools) == {"price", "sell", "flood", "spin", "variable", "leave"}
    assert tools["price"]["type"] == "function"
    assert tools["price"]["function"]["description"] == "What an item costs."
    assert tools["price"]["function"]["parameters"]["required"] == ["item"]


@pytest.mark.slow
def test_a_process_asks_once_what_a_server_offers_and_again_where_it_did_not_answer(monkeypatch):
    started = begun(monkeypatch)
    adapter._offered.forget()
    assert listed(SERVER) == listed(SERVER)
    assert len(started) == 1
    for _ in range(2):
        with pytest.raises(Unavailable, match="nowhere"):
            listed("nowhere")
    assert len(started) == 3
    assert adapter._OPEN == []


@pytest.mark.slow
def test_whatever_goes_wrong_is_what_a_role_sees():
    def last(name, arguments):
        return called(SERVER, [[name, arguments]])

    assert last("price", {"item": "mug"}) == {"text": "3", "ok": True, "ended": False}
    assert last("price", {"item": "hat"}) == {"text": "Error executing tool price", "ok": False, "ended": False}
    assert not last("price", {"thing": "mug"})["ok"]
    assert not last("steal", {})["ok"]
    assert len(last("flood", {})["text"]) == LONGEST + 2
    assert last("leave", {}) == {"text": "Connection closed", "ok": False, "ended": True}
    assert last("price", {"item": "cup"})["text"] == "4", "the next session is another"
    with pytest.raises(Unavailable, match="nowhere"):
        called("nowhere", [["price", {}]])


@pytest.mark.slow
def test_a_session_is_what_was_called_in_it_whichever_worker_holds_it(monkeypatch):
    started = begun(monkeypatch)
    mug, cup, hat = (["sell", {"item": item}] for item in ("mug", "cup", "hat"))
    assert called(SERVER, [mug])["text"] == "mug"
    assert called(SERVER, [mug, cup])["text"] == "mug cup"
    assert len(started) == 1, "it was open"
    assert called(SERVER, [mug, hat])["text"] == "mug hat", "a branch has a session of its own"
    assert len(started) == 2
    assert called(SERVER, [mug, cup, hat])["text"] == "mug cup hat"
    assert called(SERVER, [mug, hat, cup])["text"] == "mug hat cup"
    assert len(started) == 2
    adapter._close()
    assert called(SERVER, [mug, cup, hat, mug])["text"] == "mug cup hat mug", "played again from its beginning"
    assert len(started) == 3


@pytest.mark.slow
def test_a_call_that_takes_too_long_ends_its_session_and_its_server(monkeypatch):
    monkeypatch.setattr(adapter, "CALL_S", 1.0)
    found = called(SERVER, [["spin", {}]])
    assert (found["ok"], found["ended"]) == (False, True)
    assert adapter._OPEN == []
    assert not [
        child for child in psutil.Process().children(recursive=True) if "mcp_server" in " ".join(child.cmdline())
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can")
def test_a_server_ends_with_a_worker_that_was_killed():
    call = f"from coterie.environments.mcp import called; called({SERVER!r}, [['price', {{'item': 'mug'}}]])"
    code = f"{call}; print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == "open\n"
        (server,) = [one for one in psutil.Process(worker.pid).children() if "mcp_server" in " ".join(one.cmdline())]
        worker.kill()
        server.wait(20)


@pytest.mark.slow
def test_a_server_is_given_no_secrets(monkeypatch):
    monkeypatch.setenv("A_KEY", "secret")
    assert called(SERVER, [["variable", {"name": "A_KEY"}]])["text"] == "none"
    assert called(f"env A_KEY=given {SERVER}", [["variable", {"name": "A_KEY"}]])["text"] == "given"


@pytest.mark.slow
def test_no_more_sessions_stay_open_than_are_allowed(monkeypatch):
    monkeypatch.setattr(adapter, "OPEN", 1)
    started = begun(monkeypatch)
    for item in ("mug", "cup", "mug"):
        called(SERVER, [["sell", {"item": item}]])
    assert (len(started), len(adapter._OPEN)) == (3, 1)


def shop(tmp_path, **more) -> Prompts:
    rows = [{"prompt": f"What does a mug cost, {number}?", "gold": "3"} for number in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "mine.py").write_text(
        "def right(completions, gold, **_):\n    return [float(c == g) for c, g in zip(completions, gold)]\n"
    )
    settings = {"tools": {"writer": SERVER}, "rewards": [f"{tmp_path}/mine.py:right"], **more}
    return Prompts(data=f"{tmp_path}/rows.jsonl", **settings)


def played(environment: Prompts, *words: str):
    left = list(words)
    play = Play(
        environment, Team(dict.fromkeys(environment.roles, "p")), ScriptedEngine(lambda *_: left.pop(0)), seed=0
    )
    cursor = play.start(environment.task("train", 0), 0)
    one(play, play.run(cursor))
    return cursor


def prompts_of(cursor) -> list[Any]:
    return [prompt for event in cursor.events if isinstance(event, Asked) for prompt in event.prompts.values()]


@pytest.mark.slow
def test_a_role_calls_tools_before_it_answers(tmp_path):
    environment = shop(tmp_path, instructions={"writer": "Be brief."})
    environment.ready()
    cursor = played(environment, "Let me see. " + CALL.format("price", '{"item": "mug"}'), "3")
    assert cursor.log.solved
    first, second = prompts_of(cursor)
    assert first[0].content.startswith("Be brief.\n\n# Tools")
    assert '"name": "price"' in first[0].content
    assert [turn.role for turn in second] == ["system", "user", "assistant", "tool"]
    assert second[-1].content == "3"
    noted = {event.name: event.value for event in cursor.events if isinstance(event, Noted)}
    assert (noted["tools/writer"], noted["tools_failed/writer"]) == (1, 0)


@pytest.mark.slow
def test_what_fails_is_told_and_calls_have_an_end(tmp_path):
    bad = CALL.format("price", '{"item": "hat"}')
    cursor = played(shop(tmp_path, max_calls=2), bad, bad, bad)
    assert not cursor.log.solved
    prompts = prompts_of(cursor)
    assert len(prompts) == 3
    assert prompts[-1][-1].content == "error: Error executing tool price"
    noted = {event.name: event.value for event in cursor.events if isinstance(event, Noted)}
    assert (noted["tools/writer"], noted["tools_failed/writer"]) == (2, 2)


@pytest.mark.slow
def test_what_cannot_be_called_is_told_and_no_reply_makes_more_calls_than_are_allowed(tmp_path):
    deep = '{"a": ' * 150 + "1" + "}" * 150
    cursor = played(shop(tmp_path, max_tokens=9000), CALL.format("price", deep), "3")
    assert cursor.log.solved
    assert prompts_of(cursor)[-1][-1].content.startswith("error: ")
    many = CALL.format("price", '{"item": "mug"}') * 3
    cursor = played(shop(tmp_path, max_calls=2), many)
    assert len(prompts_of(cursor)) == 1, "it asked for more than there are, which is its answer"


@pytest.mark.slow
def test_a_server_that_is_edited_is_another_content(tmp_path, monkeypatch):
    (tmp_path / "server.py").write_text("1")
    monkeypatch.chdir(tmp_path)
    environment = shop(tmp_path, tools={"writer": "python server.py"})
    assert environment.tools == {"writer": f"python {tmp_path}/server.py"}
    before = environment.content()
    (tmp_path / "server.py").write_text("2")
    assert environment.content() != before


@pytest.mark.slow
def test_the_contract_holds(tmp_path):
    report = check(shop(tmp_path), tasks=1)
    assert report.ok, str(report)


@pytest.mark.slow
def test_a_server_that_is_none_is_told_in_a_line(tmp_path):
    for server, says in (
        ("nowhere --at all", "environment.tools.writer = 'nowhere --at all': there is no such command"),
        ("echo 'half", "No closing quotation"),
        (f"{sys.executable} -c pass", "does not answer as a server of MCP: "),
        (f"{sys.executable} -c 'import nothing_here'", "MCP: ModuleNotFoundError: No module named 'nothing_here'"),
        ("http://127.0.0.1:9/mcp", "does not answer as a server of MCP"),
    ):
        with pytest.raises(ConfigError, match=says):
            check_server(server, "environment.tools.writer")
    with pytest.raises(ValueError, match=r"tools: no role 'writr'; did you mean 'writer'"):
        shop(tmp_path, tools={"writr": SERVER})
    with pytest.raises(ConfigError, match=r"environment.max_calls has no effect: no role has tools"):
        load_config(
            f"prompts:{tmp_path}/rows.jsonl",
            [f"environment.rewards={tmp_path}/mine.py:right", "environment.max_calls=3", "policies.team.model=x"],
        )


@pytest.mark.slow
def test_a_server_by_url():
    import socket
    import time

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "import sys; sys.path.insert(0, '.'); from tests.mcp_server import server; "
        f"server.run('streamable-http', port={port})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(200):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            assert called(f"http://127.0.0.1:{port}/mcp", [["price", {"item": "cup"}]])["text"] == "4"
        finally:
            adapter._close()
            process.terminate()


def test_without_mcp_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'coterie\\[mcp\\]'"):
        check_server(SERVER, "environment.tools.writer")
