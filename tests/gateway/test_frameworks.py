"""Seven frameworks, unmodified, with a tool in two turns. `make test-agents` installs them."""

import json
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from coterie.engines.scripted import ScriptedEngine
from coterie.environments.gateway import Gateway
from coterie.kernel.cursor import Cursor
from coterie.kernel.episode import Asked, Noted
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply
from coterie.kernel.team import Team
from tests.gateway.test_gateway import AGENTS
from tests.toys import one

pytestmark = pytest.mark.agents
FRAMEWORKS = AGENTS.parent / "frameworks.py"
KEPT = ("langgraph", "agents_chat", "agents_responses", "agents_named", "autogen", "ag2", "litellm")
"""Those that send a role's words back as they were; smolagents writes them anew."""


def called(name: str, **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def looks(role: str, prompt: str, rng) -> str:
    """Two looks, then the answer; to an agent that has a tool for the answer, by that."""
    seen = prompt.count("nothing at")
    if seen < 2:
        return f"I look\n{called('look', place=f'place {seen}')}"
    return called("final_answer", answer="done") if "final_answer" in prompt else "done"


def looking(environment: Gateway) -> tuple[Cursor, Any]:
    """An episode, and what was drawn in it."""
    play = Play(environment, Team({"lead": "p"}), ScriptedEngine(looks), seed=0)
    cursor = play.start(environment.task("train", 0))
    return cursor, one(play, play.run(cursor))


@pytest.mark.parametrize("name", [*KEPT, "smolagents"])
def test_a_framework_is_played_as_it_is_and_what_was_sampled_is_what_is_trained(name):
    environment = Gateway(agent=f"{FRAMEWORKS}:{name}", max_tokens=4096, force="ask")
    cursor, drawn = looking(environment)
    assert isinstance(drawn, list), drawn
    assert cursor.log.solved, cursor.log.outcome
    samples = [each.sample for each in drawn]
    assert [sample.text for sample in samples[:2]] == [looks("lead", "", None), looks("lead", "nothing at", None)]
    assert len(samples) == 3
    found = {event.name.removeprefix("gateway_"): event.value for event in cursor.events if isinstance(event, Noted)}
    last: Any
    (last,) = [event for event in cursor.events if isinstance(event, Asked)][-1].prompts.values()
    own = [message.content.ids for message in last if isinstance(message.content, Reply)]
    if name in KEPT:
        assert found["own_words_kept"] == 3
        assert own == [sample.completion_ids[:-1] for sample in samples[:2]]
    else:
        assert "own_words_kept" not in found
        assert own == []
    assert looking(environment)[0].events == cursor.events


@pytest.mark.skipif(not all(map(shutil.which, ("strace", "unshare", "ip"))), reason="needs strace, unshare and ip")
def test_no_framework_looks_beyond_this_machine(tmp_path):
    """Where there is loopback alone, and every connection is noted, those of native code too."""
    noted = tmp_path / "noted"
    name = test_a_framework_is_played_as_it_is_and_what_was_sampled_is_what_is_trained.__name__
    inside = (
        f"ip link set lo up && exec strace -f -qq -e trace=connect,sendto -o {noted} {sys.executable} -m pytest -q "
        f"-m agents -p no:cacheprovider {__file__} -k {name}"
    )
    done = subprocess.run(["unshare", "-rn", "sh", "-c", inside], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    places = re.findall(r'sin6?_addr=\w*\(?(?:AF_INET6, )?"([^"]+)"', noted.read_text())
    assert {place for place in places if not place.startswith("127.") and place != "::1"} == set()
    assert places, "they asked this machine"
