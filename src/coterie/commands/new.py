"""The command `coterie new`: it writes a working environment and its test, or a team for a table of questions."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from coterie.commands.new_team import new_team
from coterie.errors import ConfigError
from coterie.registry import known
from coterie.report.output import say

KINDS = ("environment", "team")
TAKEN = {"none", "true", "false", "environment", "scene", "task", "coterie"}
"""Names that are refused: a class or file of this name would hide another one that the generated files use."""
TEMPLATES = ("environment.py", "test_environment.py")


def new(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to create: environment or team.")],
    name: Annotated[
        str, typer.Argument(help="environment: a module name, as my_env. team: a table of questions and answers.")
    ],
    out: Annotated[Path | None, typer.Option(help="File of the team. Default: team.toml.")] = None,
) -> None:
    """Create an environment and its test, or a team for a table of questions. Example: coterie new team qa.csv"""
    if kind not in KINDS:
        raise ConfigError(f"coterie new {kind}: unknown; there are {', '.join(KINDS)}")
    if kind == "team":
        return new_team(name, out or Path("team.toml"))
    if out is not None:
        raise ConfigError(f"--out {out} is for `coterie new team`; an environment's file is called as it is")
    return new_environment(name)


def new_environment(name: str) -> None:
    """Writes an environment and its test.

    Raises:
        ConfigError: the name cannot be one, or there is such a file.
    """
    name = name.removesuffix(".py")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"'{name}' is no name for a module; take small letters, digits and _, such as my_env")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names | TAKEN:
        raise ConfigError(f"'{name}' is a name of Python's, or of the file's own; take another, such as my_{name}")
    if name in known("environment"):
        raise ConfigError(f"there is an environment {name} already; take another name")
    paths = {Path(template.replace("environment", name)): template for template in TEMPLATES}
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path} exists; choose another name, or remove it")
    class_name = "".join(part.capitalize() for part in name.split("_") if part)
    for path, template in paths.items():
        text = files("coterie.templates").joinpath(template).read_text(encoding="utf-8")
        text = text.replace("NewEnvironment", class_name).replace("new_environment", name)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        say(f"wrote {path}")
    say(f"does it keep its contract?  coterie check {name}.py")
    small = "--set sft.steps=400 --set sft.hidden_size=64 --set sft.layers=2"
    say(f"a small model for it:       coterie sft {name}.py --out my_starter {small}")
