"""Training of unmodified agents: a script, a LangGraph graph and the Agents SDK, with two policies and three seeds.

Writes docs/results/agents.md. Needs what `make bench-agents` installs.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.rows import Row, Table
from coterie.bench import Say
from coterie.errors import ConfigError

PAGE = Path("docs/results/agents.md")
CONFIG = "examples/agents/config.toml"
NEEDED = ("langchain_openai", "langgraph", "agents")
TABLE = Table(
    Path("runs/bench-agents"),
    "benchmarks.agents",
    {
        name: Row(title, CONFIG, overrides=(f"environment.agent=examples/agents/{name}.py:run",))
        for name, title in (
            ("script", "a script with OpenAI's client"),
            ("graph", "a graph of LangGraph"),
            ("sdk", "two agents of the Agents SDK, Responses API"),
        )
    },
)


def run(say: Say) -> dict[str, Any]:
    """Makes the missing runs, writes the results page, and returns success by row."""
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise ConfigError(f"this needs {', '.join(missing)}; make bench-agents installs them")
    return TABLE.publish(PAGE, page, say)


def page() -> list[str]:
    """Returns the lines of the results page, from the figures of all finished runs."""
    return [
        "# Results: agents of other frameworks",
        "",
        "Written by `make bench-agents`. The three agents of `examples/agents` are trained, unmodified, through the",
        "[gateway](../agents.md) with their config (`examples/agents/config.toml`). A lead decides into how many",
        "pieces a row is cut, and one counter per piece counts, all at the same time. Lead and counter have one policy",
        "each, of 0.18 million parameters, and start from the starter of `tally`. The table gives the success of",
        "greedy play on held-out test tasks, before and after 40 steps of 8 tasks with 8 runs each. All three agents",
        "ask the same questions, so their success is equal. An agent's episodes count no turns, so the turns are 0.",
        "",
        *TABLE.lines(),
        "",
        "Validation success by step, mean over seeds:",
        "",
        *TABLE.curves((0, 10, 20, 30, 40)),
        "",
        "Dropped runs (total), repeated requests and time (means over seeds and steps):",
        "",
        "| | dropped runs, total | repeated requests per run | seconds per step |",
        "|---|---|---|---|",
        *(_costs(name) for name in TABLE.rows),
        "",
    ]


def _costs(name: str) -> str:
    """Returns the table line with a row's dropped runs, repeated requests and seconds per step."""
    lines = [line for run in TABLE.runs(name) for line in run.metrics() if line["step"]]
    dropped = sum(value for line in lines for key, value in line.items() if key.startswith("rollout/dropped/"))
    again = sum(line["metric/gateway_repeated"] for line in lines) / len(lines)
    seconds = fmean(line["time/step"] for line in lines)
    return f"| {TABLE.rows[name].title} | {dropped:g} | {again:.4f} | {seconds:.1f} |"
