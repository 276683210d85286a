"""An environment of verifiers, played by its own machinery, whose agents are a team. `make test-verifiers`."""

import importlib.util
from pathlib import Path

import pytest

from coterie.engines.scripted import ScriptedEngine
from coterie.environments.gateway import Gateway
from coterie.kernel.episode import Asked
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from tests.gateway.test_gateway import rewards
from tests.toys import one

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "verifiers_env.py"


def test_its_agents_are_roles_and_what_they_do_at_once_is_one_point():
    def says(role: str, prompt: str, rng) -> str:
        return "2" if role == "lead" else str(prompt.count("x") - "Count x".count("x"))

    environment = Gateway(agent=f"{EXAMPLE}:run", max_tokens=4)
    team = Team({"lead": "a", "counter": "b"})

    def played():
        play = Play(environment, team, ScriptedEngine(says), seed=0)
        cursor = play.start(environment.task("train", 0))
        return cursor, one(play, play.run(cursor))

    cursor, drawn = played()
    assert isinstance(drawn, list), drawn
    assert cursor.log.solved, cursor.log.outcome
    assert rewards(cursor) == [("lead", -0.04, "returned"), (None, 1.0, "team")]
    points = [sorted(event.prompts) for event in cursor.events if isinstance(event, Asked)]
    assert points == [["lead"], ["counter#0", "counter#1"]]
    assert played()[0].events == cursor.events
