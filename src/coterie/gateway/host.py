"""Runs in an agent's process: it imports the agent, passes the URLs of its roles, and runs it.

    def run(task, team):
        client = OpenAI(base_url=team.planner.base_url, api_key=team.planner.api_key)

Every run forks a process that has already imported the agent. With `ahead = false` every process imports the agent
again; agents need this if they read environment variables at import.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from typing import Any
from urllib.parse import quote

from coterie.kernel.calls.inside import load, raised_at
from coterie.kernel.scene import JSON

AGENT = "COTERIE_AGENT"
"""Variable of the environment that says which agent is imported ahead: a place as JSON."""
QUIET = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "PYTHONHASHSEED": "0",
}
"""Variables that agents are run with: nothing calls home, no proxy stands before this machine, sets have an order."""
LATE = (
    "anyio._backends._asyncio", "h11", "httpcore", "httpcore2", "openai.resources.chat", "openai.resources.responses",
)  # fmt: skip
"""Modules that clients import only when they are used: better once than in every run."""


class Failed(Exception):
    """Error that an agent raised, with its place in the agent's file."""


class Seat:
    """Address of one role's model. base_url, api_key, model: what a client of OpenAI's takes."""

    def __init__(self, role: str, url: str, key: str) -> None:
        self.role = role
        self.base_url = f"{url}/{quote(role)}/v1"
        self.api_key = key
        self.model = f"coterie-{role}"
        self._url = f"{url}/{quote(role)}/reward"

    def reward(self, value: float, call: str = "") -> None:
        """Sends a reward for what the role said last.

        Args:
            call: the `id` of the answer that it is for, where the role spoke several times at once.
        """
        head = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        body = json.dumps({"reward": value, "call": call}).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(self._url, body, head)):  # noqa: S310
            pass


class Team:
    """Roles of the team, each a `Seat` by its name: `team.planner` or `team["planner"]`. seed: the episode's chance."""

    def __init__(self, roles: list[str], url: str, key: str, seed: int) -> None:
        self.roles = tuple(roles)
        self.seed = seed
        self._seats = {role: Seat(role, url, key) for role in roles}

    def __getitem__(self, role: str) -> Seat:
        return self._seats[role]

    def __getattr__(self, role: str) -> Seat:
        if role.startswith("_") or role not in self._seats:
            raise AttributeError(f"the team has no role '{role}'; it has {', '.join(self._seats)}")
        return self._seats[role]


def run(place: list[str], task: JSON, seed: int, roles: list[str], url: str, key: str) -> JSON:
    """Runs an agent on a task, with the seats of its team.

    Returns:
        what it returned: a number, an object, or nothing.
    """
    team = Team(roles, url, key, seed)
    for role in roles:
        name = f"COTERIE_{role.upper()}"
        os.environ |= {f"{name}_BASE_URL": team[role].base_url, f"{name}_API_KEY": key}
    if len(roles) == 1:
        os.environ |= {"OPENAI_BASE_URL": team[roles[0]].base_url, "OPENAI_API_KEY": key}
    random.seed(seed)
    agent = _agent(place)
    try:
        result = agent(task, team)
        return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
    except Exception as error:
        where = raised_at(error, place[0])
        raise Failed(f"{type(error).__name__}: {error}{f' ({where})' if where else ''}") from error


async def _awaited(result: Any) -> Any:
    return await result


def _agent(place: list[str]) -> Callable[..., Any]:
    module, file, name = place
    load(module, file or None)
    return reduce(getattr, name.split("."), sys.modules[module])


if AGENT in os.environ:
    _agent(json.loads(os.environ[AGENT]))
    for late in LATE:
        if late.partition(".")[0] in sys.modules:
            with suppress(ImportError):
                importlib.import_module(late)
