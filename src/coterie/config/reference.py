"""Writes the reference of settings from the settings themselves: `python -m coterie.config.reference`."""

from __future__ import annotations

import json
import sys

from coterie.config.settings import (
    EvalConfig,
    LoraConfig,
    PastConfig,
    PolicyConfig,
    RuntimeConfig,
    SFTConfig,
    TrainConfig,
)
from coterie.engines.remote_config import RemoteConfig
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.engine import LONGEST_S, Engine
from coterie.kernel.environment import Environment, Settings
from coterie.learning.loss import Loss
from coterie.learning.optimizer import OptimizerConfig
from coterie.memory.store import MemoryConfig
from coterie.registry import ALGORITHMS, ENGINES, LOSSES, find, shipped


def reference() -> str:
    """Returns all tables of a config as markdown, a row a setting."""
    parts = [
        "# Configuration",
        "`make docs` generates this page from the docstrings of the settings. A config is a TOML file. Every key can "
        "be set on the command line with `--set table.key=value`. `[team]` assigns a policy to each role; without it, "
        "one policy, `team`, plays all roles. `[policies.NAME.optimizer]` overrides `[optimizer]` for one policy. "
        "`[trackers.NAME]` holds the name and the settings of a tracker. For how to name your own classes, see "
        "[extending](extending.md). A key whose default is *not set* can be left out; the text after `none:` says "
        "what then applies. TOML has no null, so the word none is not accepted as a value of such a key.",
    ]
    for name in shipped("environment"):
        parts += _table(f'[environment] name = "{name}"', find("environment", name, Environment))
    for name in ALGORITHMS:
        method = find("algorithm", name, Algorithm)
        its = ", ".join(f"{key} = {json.dumps(value)}" for key, value in method.loss.items())
        parts += [*_table(f'[algorithm] name = "{name}"', method), f"The default `[loss]` of this algorithm: `{its}`."]
    for name in LOSSES:
        parts += _table(f'[loss] name = "{name}"', find("loss", name, Loss))
    parts += _table("[memory]", MemoryConfig)
    parts += _table("[policies.NAME]", PolicyConfig)
    parts += _table("[policies.NAME.lora]", LoraConfig)
    parts += _table("[policies.NAME.past]", PastConfig)
    parts += _table("[policies.NAME.remote]", RemoteConfig)
    parts += _table("[optimizer]", OptimizerConfig)
    for name in ENGINES:
        parts += _table(f'[engine] name = "{name}"', find("engine", name, Engine).options)
    parts += _table("[runtime]", RuntimeConfig)
    parts += _table("[train]", TrainConfig)
    parts += _table("[eval]", EvalConfig)
    parts += _table("[sft] (for `coterie sft`)", SFTConfig)
    return "\n\n".join(parts) + "\n"


def _table(title: str, kind: type[Settings]) -> list[str]:
    schema = kind.model_json_schema(mode="serialization")["properties"]
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for name, field in kind.model_fields.items():
        default = "" if field.is_required() else _default(field.get_default(call_default_factory=True))
        meaning = (field.description or "").replace("|", "\\|").replace("\n", " ")
        choices = schema[name].get("enum")
        among = f" One of {', '.join(f'`{choice}`' for choice in choices if choice)}." if choices else ""
        most = f" At most {limit}." if (limit := schema[name].get("maximum")) and limit != LONGEST_S else ""
        least = f" At least {limit:g}." if (limit := schema[name].get("minimum")) else ""
        rows.append(f"| `{name}` | {default} | {meaning}{least}{most}{among} |")
    return [f"## {title}", "\n".join(rows) if kind.model_fields else "It has no settings."]


def _default(value: object) -> str:
    """Returns a default as a cell: a table of its own has its defaults there, and None cannot be written in TOML."""
    if value is None:
        return "not set"
    return "its own table" if isinstance(value, Settings) else f"`{json.dumps(value, default=list)}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
