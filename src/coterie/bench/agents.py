"""Agents that exist, as they are: a script, a LangGraph graph, the Agents SDK; two policies and three seeds each.

Writes docs/results/agents.md. Needs what `make bench-agents` installs.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.bench import Say
from coterie.bench.rows import Row, Table
from coterie.errors import ConfigError

PAGE = Path("docs/results/agents.md")
CONFIG = "examples/agents/config.toml"
NEEDED = ("langchain_openai", "langgraph", "agents")
TABLE = Table(
    Path("runs/bench-agents"),
    "coterie.bench.agents",
    {
        name: Row(title, CONFIG, overrides=(f"environment.agent=examples/agents/{name}.py:run",))
        for name, title in (
            ("script", "a script, OpenAI's client"),
            ("graph", "a graph of LangGraph"),
            ("sdk", "two agents of the Agents SDK, by responses"),
        )
    },
)


def run(say: Say) -> dict[str, Any]:
    """Runs what is missing, writes the page, and returns success by row."""
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise ConfigError(f"this needs {', '.join(missing)}; make bench-agents installs them")
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """The results page, from the figures of all finished runs."""
    return [
        "# Results: agents that exist",
        "",
        "Written by `make bench-agents`: the three agents of `examples/agents`, unmodified,",
        "trained through the [gateway](../agents.md) with their config (`examples/agents/config.toml`). A lead",
        "says for how many counters a row shall be cut, and as many counters count at once; a policy each, of 0.18",
        "million parameters, from the starter of `tally`. Success on held-out test tasks, greedy, before and after 40",
        "steps of 8 tasks and 8 runs each.",
        "",
        *TABLE.lines(),
        "",
        "Validation success by step, mean over seeds:",
        "",
        *TABLE.curves((0, 10, 20, 30, 40)),
        "",
        "What was lost, and what a step takes, mean over seeds and steps:",
        "",
        "| | runs dropped, in all | requests repeated, a run | seconds a step |",
        "|---|---|---|---|",
        *(_costs(name) for name in TABLE.rows),
        "",
    ]


def _costs(name: str) -> str:
    """A row's losses and its time."""
    lines = [line for run in TABLE.runs(name) for line in run.metrics() if line["step"]]
    dropped = sum(value for line in lines for key, value in line.items() if key.startswith("rollout/dropped/"))
    again = sum(line["metric/gateway_repeated"] for line in lines) / len(lines)
    seconds = fmean(line["time/step"] for line in lines)
    return f"| {TABLE.rows[name].title} | {dropped:g} | {again:.4f} | {seconds:.1f} |"
