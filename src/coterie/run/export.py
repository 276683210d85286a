"""Exports a run's team: one Hugging Face or PEFT folder per policy, and a config that assigns policies to roles."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.config.settings import UNTRAINED, Config, PolicyConfig
from coterie.errors import ConfigError, first_line
from coterie.installed import starter_folder, starters
from coterie.kernel.safe import one_line
from coterie.models.files import ADAPTER_CONFIG, base_of
from coterie.registry import past_policy
from coterie.run.files import check_free, whole
from coterie.run.folder import Run
from coterie.run.records import Progress

TEAM = "team.toml"
TAGS = ["coterie", "multi-agent", "reinforcement-learning"]


def export(run: Run | str | Path, out: str | Path, *, step: int | None = None, merge: bool = False) -> Path:
    """Writes the policies of a run's team as ordinary model folders, and a config `team.toml` to train or play them.

    Models on a hub or a server are named in the config and not copied.

    Args:
        run: a run or its folder.
        out: the folder to create; it must not exist yet.
        step: the step of the checkpoint; None: the best checkpoint by validation.
        merge: whether adapters are merged into full models.

    Returns:
        the folder.

    Raises:
        CoterieError: no such run or checkpoint, the folder exists, or there is nothing to merge.
    """
    run, out = run if isinstance(run, Run) else Run.open(Path(run)), Path(out)
    check_free(out)
    config = run.config
    if merge and not any(policy.kind == "lora" for policy in config.policies.values()):
        raise ConfigError(f"--merge has no effect: no policy of {run.folder} is an adapter; leave it away")
    aside = out.with_name(f".{out.name}-{os.getpid()}")
    with (
        run.checkpoints.reading("best" if step is None else step) as (checkpoint, progress),
        whole(out, "choose another folder with --out", aside),
    ):
        aside.mkdir(parents=True)
        exported = _Exported(config, checkpoint / "policies", aside, merge=merge)
        policies = {name: exported.policy(name, policy) for name, policy in config.policies.items()}
        (aside / TEAM).write_text(_team(config, policies, run, progress))
        for name, policy in policies.items():
            if (aside / name).is_dir():
                (aside / name / "README.md").write_text(_card(aside / name, policy, run, progress))
        (aside / "README.md").write_text(_cover(policies, run, progress))
        aside.rename(out)
        for file in out.glob(f"*/{ADAPTER_CONFIG}"):
            _name_base(file, out)
    return out


class _Exported:
    """A writer of policies into the folder of an export."""

    def __init__(self, config: Config, weights: Path, out: Path, *, merge: bool) -> None:
        self.config = config
        self.weights = weights
        self.out = out
        self.merge = merge
        self._bases: dict[str, str] = {}

    def policy(self, name: str, policy: PolicyConfig) -> PolicyConfig:
        """Writes a policy's folder, and returns the policy's config in the exported team."""
        if policy.kind == "remote":
            return policy
        if policy.kind == "frozen":
            return self._frozen(name, policy)
        if policy.kind == "past":  # as it is now
            now = policy.model_copy(update={"kind": "frozen", "past": PolicyConfig(model="").past})
            return self._written(name, now, self.weights / policy.model, self.config.policies[policy.model])
        return self._written(name, policy, self.weights / name, policy)

    def _written(self, name: str, policy: PolicyConfig, folder: Path, theirs: PolicyConfig) -> PolicyConfig:
        """Writes a policy from a checkpoint's folder, and returns its config. theirs: what that run says of it."""
        plain = {"model": name, "chat_template": ""}  # the tokenizer has it
        if theirs.kind == "full":
            _copy(folder, self.out / name)
            return policy.model_copy(update=plain)
        if self.merge:
            self._merged(theirs.model, folder, self.out / name)
            kind = "full" if policy.kind == "lora" else policy.kind
            return policy.model_copy(update={**plain, "kind": kind, "lora": PolicyConfig(model="").lora})
        _copy(folder, self.out / name)
        _set_base(self.out / name / ADAPTER_CONFIG, self._base(theirs.model))
        return policy.model_copy(update=plain)

    def _frozen(self, name: str, policy: PolicyConfig) -> PolicyConfig:
        """Writes a frozen policy from wherever it lies, and returns its config; a model on a hub stays there."""
        template = {"chat_template": ""}
        if policy.chat_template:
            shutil.copy(policy.chat_template, self.out / f"{name}.jinja")
            template = {"chat_template": f"{name}.jinja"}
        if past := past_policy(policy.model):
            run = Run.open(past.run)
            with run.checkpoints.reading("best" if past.step is None else past.step) as (checkpoint, _):
                theirs = run.config.policies[past.policy]
                there = self._written(name, policy, checkpoint / "policies" / past.policy, theirs)
            return there.model_copy(update=template)
        return policy.model_copy(update={"model": self._placed(policy.model, name), **template})

    def _base(self, model: str) -> str:
        """Copies the base of adapters, once for all of them, and returns its name."""
        if model not in self._bases:
            taken = {*self.config.policies, *self._bases.values()}
            name = next(name for at in range(len(taken) + 1) if (name := f"base-{at}" if at else "base") not in taken)
            self._bases[model] = self._placed(model, name)
        return self._bases[model]

    def _placed(self, model: str, name: str) -> str:
        """Copies a model's folder under a name, and returns the name; of a model on a hub, its id."""
        with _folder_of(model) as folder:
            if folder is None:
                return model
            _copy(folder, self.out / name)
        return name

    def _merged(self, base: str, adapter: Path, out: Path) -> None:
        from coterie.models.adapters import merge

        with _folder_of(base) as folder:
            merge(str(folder or base), adapter, out)


def _copy(folder: Path, to: Path) -> None:
    """Copies a model's folder. A link in it may lead to a file of its own, or to one of the hub's cache that it is in.

    Raises:
        ConfigError: one leads elsewhere: what is there may be no model's, and an export is given away.
    """
    home = folder.resolve()
    for path in folder.rglob("*"):
        real = path.resolve()
        if path.is_symlink() and not (real.is_relative_to(home) or real.parent == home.parent.parent / "blobs"):
            raise ConfigError(f"{path} is a link to {real}, outside of its folder; put the file itself there")
    shutil.copytree(folder, to)


@contextlib.contextmanager
def _folder_of(model: str) -> Iterator[Path | None]:
    """Yields the folder of a model: of a starter, a folder, or a policy of a run; None for a model on a hub."""
    if past := past_policy(model):
        with Run.open(past.run).checkpoints.reading("best" if past.step is None else past.step) as (checkpoint, _):
            yield checkpoint / "policies" / past.policy
    elif model in starters():
        yield starter_folder(model)
    else:
        yield Path(model) if Path(model).is_dir() else None


def _set_base(file: Path, base: str) -> None:
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "base_model_name_or_path": base}, indent=2))


def _name_base(file: Path, out: Path) -> None:
    """Writes the whole path of a copied base into an adapter's config: PEFT looks from the working folder."""
    base = base_of(file.parent)
    if base is not None and (out / Path(base).name).is_dir():
        _set_base(file, str((out / Path(base).name).resolve()))


def _team(config: Config, policies: Mapping[str, PolicyConfig], run: Run, progress: Progress) -> str:
    """Returns the whole config as TOML, with the exported folders in place of what the run began with."""
    said = one_line(f"{run.folder.name}, as it was at step {progress.step}")
    return (
        f"# The team of {said}: coterie train {TEAM} goes on from it as a new run.\n\n"
        + replace(config, policies=policies).toml()
    )


def _card(folder: Path, policy: PolicyConfig, run: Run, progress: Progress) -> str:
    """Returns a policy's model card."""
    config, base, name = run.config, base_of(folder), folder.name
    library, auto = ("transformers", "AutoModelForCausalLM") if base is None else ("peft", "AutoPeftModelForCausalLM")
    roles = ", ".join(role for role, plays in config.team.roles.items() if plays == name)
    head: dict[str, Any] = {"library_name": library, "pipeline_tag": "text-generation", "tags": TAGS}
    if base is not None and not (folder.parent / base).is_dir():
        head["base_model"] = base
    told = {
        "plays": roles,
        "environment": config.names["environment"],
        "algorithm": f"{config.names['algorithm']}, loss {config.names['loss']}, seed {config.train.seed}",
        "trained": f"never: it is {policy.kind}" if policy.kind in UNTRAINED else f"{progress.step} steps",
        "the team on validation": _success(run, progress),
    }
    return "\n".join([
        "---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", "",
        f"# {name}", "",
        "A policy of a team that was trained with Coterie, to play with the others; alone it may be of little use.",
        "", *(f"- {label}: {one_line(value)}" for label, value in told.items() if value), "",
        "```python", f"from {library} import {auto}", "", f'model = {auto}.from_pretrained("{name}")', "```", "",
        "Prompts are what the chat template of its tokenizer gives.", "",
    ])  # fmt: skip


def _success(run: Run, progress: Progress) -> str:
    at = [line for line in run.metrics() if line["step"] == progress.step and "validation/success" in line]
    return f"{at[-1]['validation/success']:.3f}, greedy, {run.config.train.eval_tasks} tasks" if at else ""


def _cover(policies: Mapping[str, PolicyConfig], run: Run, progress: Progress) -> str:
    lines = [f"- {name}: {policy.kind}, {policy.model}" for name, policy in policies.items()]
    return "\n".join([
        "---", f"tags: {json.dumps(TAGS)}", "---", "",
        f"# The team of {one_line(run.folder.name)}", "",
        f"Policies as they were at step {progress.step}; `coterie train {TEAM}` goes on from them as a new run.", "",
        *map(one_line, lines), "",
    ])  # fmt: skip


def push_to_hub(folder: Path, repository: str) -> str:
    """Uploads an exported team to the Hugging Face hub, as one repository, private until its owner opens it.

    Args:
        repository: owner/name.

    Returns:
        its address.

    Raises:
        ConfigError: the hub cannot be reached, or does not know who asks.
    """
    from huggingface_hub import HfApi

    if repository.count("/") != 1 or not all(repository.split("/")):
        raise ConfigError(f"--push {repository}: write it as owner/name")
    api = HfApi()
    try:
        url = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="A team of Coterie")
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"--push {repository}: {first_line(error)}; {folder} is written: log in with `hf auth login` and upload it "
            f"with: hf upload {repository} {folder}"
        ) from error
    return str(url)
