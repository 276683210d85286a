"""The registry: it maps names in a config or on the command line to classes.

To add an algorithm, loss, engine or tracker, write a file and add a line here; to add a world, write a file in
`coterie_worlds` and add its entry point to pyproject.toml. A class of your own is named by its location,
`my_env.py:MyEnv` or `package.module:MyEnv`, or by an entry point of an installed package in the group
`coterie.environments`, `coterie.algorithms`, `coterie.losses`, `coterie.engines` or `coterie.trackers`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from coterie.errors import ConfigError, nearest
from coterie.installed import entries, is_ours, spec_of, starters
from coterie.kernel.mistakes import raised_at, said
from coterie.kernel.safe import command, one_line
from coterie.models.files import GGUF
from coterie.models.named import NAMED
from coterie.seeds import seed_of

ENVIRONMENTS = {
    "gateway": "coterie.environments.gateway:Gateway",
    "prompts": "coterie.environments.prompts:Prompts",
}
"""Environments that are made of what a user brings. The worlds are entry points of `coterie_worlds`."""
ALGORITHMS = {
    "at_grpo": "coterie.algorithms.at_grpo:ATGRPO",
    "grpo": "coterie.algorithms.grpo:GRPO",
    "mas_grpo": "coterie.algorithms.mas_grpo:MASGRPO",
    "magrpo": "coterie.algorithms.magrpo:MAGRPO",
    "joyagents": "coterie.algorithms.joyagents:JoyAgents",
    "joyagents_paper": "coterie.algorithms.joyagents:JoyAgentsPaper",
    "drmas": "coterie.algorithms.drmas:DrMAS",
    "c3": "coterie.algorithms.c3:C3",
    "gigpo": "coterie.algorithms.gigpo:GiGPO",
    "rae": "coterie.algorithms.rae:RAE",
    "reinforce_pp": "coterie.algorithms.reinforce_pp:ReinforcePP",
    "main_sub_grpo": "coterie.algorithms.main_sub_grpo:MainSubGRPO",
    "wideseek": "coterie.algorithms.wideseek:WideSeek",
    "hierarchical_grpo": "coterie.algorithms.hierarchical_grpo:HierarchicalGRPO",
    "marshal": "coterie.algorithms.marshal:Marshal",
    "gdpo": "coterie.algorithms.gdpo:GDPO",
}
LOSSES = {
    "clip": "coterie.learning.loss:Clip",
    "gspo": "coterie.learning.loss:GSPO",
    "policy_gradient": "coterie.learning.loss:PolicyGradient",
}
ENGINES = {
    "transformers": "coterie.engines.transformers:TransformersEngine",
    "vllm": "coterie.engines.vllm:VLLMEngine",
}
TRACKERS = {
    "display": "coterie.report.display:Display",
    "tensorboard": "coterie.trackers.tensorboard:TensorBoard",
    "wandb": "coterie.trackers.wandb:WandB",
    "mlflow": "coterie.trackers.mlflow:MLflow",
    "trackio": "coterie.trackers.trackio:Trackio",
}
TABLES = {
    "environment": ENVIRONMENTS,
    "algorithm": ALGORITHMS,
    "loss": LOSSES,
    "engine": ENGINES,
    "tracker": TRACKERS,
}
ELSEWHERE = {
    "hgpo": "gigpo with algorithm.history",
    "m_grpo": "main_sub_grpo",
    "mgrpo": "main_sub_grpo",
    "spiral": "rae",
}
"""Names that papers give to algorithms which have another name here, each with that name."""
PLURALS = {kind: "losses" if kind == "loss" else f"{kind}s" for kind in TABLES}
"""Plural of each kind, for lists on the command line and groups of entry points."""
TABULAR = (".csv", ".tsv", ".jsonl", ".parquet")
"""Endings of the file names of tables, which are no environments."""
OWN = {"algorithm": "collect", "loss": "tokens", "engine": "generate", "tracker": "log"}
"""Method that every class of a kind writes itself, by kind; an environment's are checked when it is made."""

USER_MODULE = "coterie_user_"
"""Beginning of the names of modules loaded from a user's file; a hash of its path follows."""

LOADED: dict[str, bytes] = {}
"""Content of users' files when they were loaded, by module: a changed one is loaded anew, as in a notebook."""

C = TypeVar("C")


def at(home: str) -> Any:
    """Returns the object at `module:name`."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def summary(kind: str) -> dict[str, str]:
    """Returns the names of a kind, each with the first line of its docstring, without importing its module."""
    names: dict[str, str] = {}
    for name, home in known(kind).items():
        line = one_line(_docstring(home).strip().partition("\n")[0])
        names[one_line(name)] = line if is_ours(home) else f"{line} (installed: {one_line(home)})".strip()
    return names


def known(kind: str) -> dict[str, str]:
    """Returns the classes that have a name: `module:Class` by name, of the table and of installed packages."""
    return TABLES[kind] | {name: home for name, home in entries(PLURALS[kind]).items() if name not in TABLES[kind]}


def shipped(kind: str) -> list[str]:
    """Returns the names of the classes that come with Coterie."""
    return [name for name, home in known(kind).items() if is_ours(home)]


def find(kind: str, name: str, base: type[C]) -> type[C]:
    """Returns the class that a name stands for.

    Args:
        kind: a key of TABLES.
        name: a known one, `file.py:Class`, `file.py` where it has one such class, or `package.module:Class`.

    Raises:
        ConfigError: no such name, file, module or class, or it is not a subclass of `base`.
    """
    table = TABLES[kind]
    if name in table:
        return at(table[name])
    file, attribute = _parts(name)
    if file:
        module = _module(Path(file))
    else:
        names = known(kind)
        file, _, attribute = names.get(name, name).partition(":")
        if not attribute or not all(part.isidentifier() for part in (*file.split("."), attribute)):
            if kind == "environment" and name.endswith(TABULAR):
                raise ConfigError(f"'{name}' is a table; make a team for it: {command('new', 'team', name)}")
            meant = ELSEWHERE.get(name.lower()) if kind == "algorithm" else None
            hint = f"; it is {meant} here" if meant else nearest(name, names)
            raise ConfigError(
                f"unknown {kind} '{name}'{hint}; there are {', '.join(names)}, or FILE.py:Class, or "
                "package.module:Class"
            )
        module = _package_module(file, nearest(file, names))
    there = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    }
    if not attribute and len(there) == 1:
        (attribute,) = there
    cls = getattr(module, attribute, None) if attribute else None
    if not (isinstance(cls, type) and issubclass(cls, base)):
        wanted = f"class {attribute} that is" if attribute else "class that is" if not there else "single class that is"
        has = f"; it has {', '.join(there)}{nearest(attribute, there)}" if there else ""
        advice = f"; name one as {file}:{next(iter(there))}" if there and not attribute else ""
        raise ConfigError(f"{kind} '{name}': {file} has no {wanted} a coterie.{base.__name__}{has}{advice}")
    if (method := OWN.get(kind)) and getattr(cls, method) is getattr(base, method):
        raise ConfigError(f"{kind} '{name}': {cls.__name__} has no method {method}, which every {kind} writes itself")
    return cls


def about(kind: str, name: str) -> tuple[str, str]:
    """Splits `gateway:my_agent.py:run` into the name `gateway` and its argument `my_agent.py:run`, otherwise ""."""
    head, _, rest = name.partition(":")
    return (head, rest) if head in known(kind) else (name, "")


def whole_name(name: str, folder: Path | None) -> str:
    """Returns a name with the absolute path of its file, which lies beside the config that names it, else here.

    Args:
        folder: where the config lies, if it is a file.
    """
    file, attribute = _parts(name)
    for path in (*([folder / file] if folder else ()), Path(file)) if file else ():
        if path.is_file():
            return f"{path.resolve()}:{attribute}" if attribute else str(path.resolve())
    return name


def whole_file(name: str, folder: Path | None) -> str:
    """Returns the absolute path of a file, which lies beside the config that names it, else here."""
    there = [home / name for home in (*([folder] if folder else ()), Path()) if name and (home / name).is_file()]
    return str(there[0].resolve()) if there else name


def whole_folder(model: str, folder: Path | None) -> str:
    """Returns the absolute path of a model's folder, as `whole_name`; a starter, a hub's id or none stays as it is.

    A policy of a run, RUN#STEP/POLICY, is found by the run's folder.
    """
    if model and model not in starters() and model not in NAMED:
        for home in (*([folder] if folder else ()), Path()):
            if (home / model).is_dir() or (model.endswith(GGUF) and (home / model).is_file()):
                return str((home / model).resolve())
            if "/" in model and (past := past_policy(str(home / model))):  # a name alone is no policy of a config's run
                return str(past)
    return model


@dataclass(frozen=True, slots=True)
class Past:
    """A policy of a run, as it was at a step; None: at the best by validation."""

    run: Path
    step: int | None
    policy: str

    def __str__(self) -> str:
        return f"{self.run.resolve()}{'' if self.step is None else f'#{self.step}'}/{self.policy}"


def past_policy(model: str) -> Past | None:
    """Returns the policy that RUN/POLICY or RUN#STEP/POLICY names; None if it names no run."""
    found = re.fullmatch(r"(.+?)(?:#(\d+))?/([A-Za-z0-9_-]+)", model)
    try:
        if found is None or not all((Path(found[1]) / part).exists() for part in ("config.toml", "checkpoints")):
            return None
    except OSError:  # too long for the name of a file
        return None
    return Past(Path(found[1]), int(found[2]) if found[2] else None, found[3])


def _parts(name: str) -> tuple[str, str]:
    """Returns file and class of `file.py:Class` or `file.py`; two empty strings for a name of another kind."""
    if name.endswith(".py"):
        return name, ""
    file, _, attribute = name.rpartition(":")
    return (file, attribute) if file.endswith(".py") else ("", "")


def _docstring(home: str) -> str:
    """Returns the docstring of the class at `module:name`, from its source: an engine's module would import torch."""
    module, _, name = home.partition(":")
    with contextlib.suppress(OSError, SyntaxError, ValueError):  # of a package that is damaged
        spec = spec_of(module)
        if spec is not None and spec.origin is not None:
            tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
            definitions = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
            return next((text for text in map(ast.get_docstring, definitions) if text), "")
    return ""


def _package_module(name: str, meant: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"there is no module '{error.name}' here{meant}; install its package, or name a file: FILE.py:Class"
            ) from error
        raise ConfigError(f"{name} does not import: {said(error)}") from error


def _module(file: Path) -> ModuleType:
    if not file.is_file():
        kind, about, _ = str(file).partition(":")  # it may be a name and what it is about
        meant = nearest(kind, known("environment")) if about else ""
        raise ConfigError(f"{file} does not exist; name your own class as FILE.py:Class{meant}")
    whole = file.resolve()
    name = f"{USER_MODULE}{seed_of(str(whole)):x}"
    content = whole.read_bytes()
    if name not in sys.modules or LOADED.get(name) != content:
        spec = importlib.util.spec_from_file_location(name, whole)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # functions given to scene.call are found again by this name
        if str(whole.parent) not in sys.path:
            sys.path.append(str(whole.parent))  # what lies beside it can be imported, and hides nothing installed
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # a user's file may raise anything
            del sys.modules[name]
            where = "" if isinstance(error, SyntaxError) else f" ({raised_at(error, str(whole))})"  # it tells its line
            raise ConfigError(f"{file} does not import: {said(error)}{where}") from error
        LOADED[name] = content
    return sys.modules[name]
