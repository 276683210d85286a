"""Creates the policies of a run: whole models, adapters on shared bases, and policies of other runs."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coterie import ram
from coterie.checks.families import FOUND, check_family
from coterie.config.settings import UNTRAINED, Config, LoraConfig, PolicyConfig
from coterie.errors import CheckpointError, ConfigError, first_line
from coterie.learning.policy import Policy
from coterie.models.adapters import adapted
from coterie.models.files import adapter_config, base_of
from coterie.models.lean import LARGE
from coterie.models.load import Model, load_model
from coterie.registry import Past, past_policy
from coterie.run.folder import Run
from coterie.seeds import seed_of

ODD = ("use_dora", "use_rslora", "bias", "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform")
"""Settings of adapters that are neither trained nor played here."""

KERNEL_CACHES = "LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
"""Variables that limit how many kernels for one shape PyTorch keeps; 1,024 take a GiB, and rarely come again."""

TESTED: dict[str, tuple[bool, ...]] = {}
"""Ways in which networks of a shape can be run, the values of FOUND, by all that decides them."""


class Policies:
    """A maker of the policies of one run.

    Args:
        load: what loads a model, as `load_model` does.
    """

    def __init__(self, config: Config, load: Callable[..., Model] = load_model) -> None:
        self.config = config
        self._load = load
        self._bases: dict[tuple[str, str, torch.dtype], Model] = {}

    def make(self, name: str, policy: PolicyConfig, folder: Path | None = None) -> Policy:
        """Makes the policy of a checkpoint's folder, or else of the model that the config names.

        To play, a checkpoint is enough: the model that the run began with may have gone. An adapter needs its base, and
        what is frozen is where it was.

        Raises:
            ConfigError: a model or device is not there, or the model is of a family that cannot be run.
        """
        policy = self._lived(policy)
        device = pick_device(policy.device or self.config.train.device)
        settle(deterministic=self.config.train.deterministic)
        if device == "cpu" and self._dtype(policy) == torch.bfloat16:
            for cache in KERNEL_CACHES:
                os.environ.setdefault(cache, "64")
        made = self.load(name, policy, device, folder)
        if device == "cpu" and made.model.size > LARGE:
            ram.map_blocks()
        self._test(made, policy)
        return made

    def _test(self, made: Policy, policy: PolicyConfig) -> None:
        """Finds out how a policy's network can be run: once in a process for all that differ in their weights alone."""
        model, trained = made.model, policy.kind not in UNTRAINED
        if model.device.type != "meta" and not all(bool(torch.isfinite(each).all()) for each in model.net.parameters()):
            raise ConfigError(f"policy '{made.name}' has weights that are no finite numbers: its files are damaged")
        said = {name: value for name, value in model.net.config.to_dict().items() if name != "_name_or_path"}
        weights = tuple((name, tuple(each.shape), each.dtype) for name, each in model.net.named_parameters())
        attention = str(getattr(model.net.config, "_attn_implementation", ""))
        kernels = (attention, policy.kind, made.dtype, str(model.device), self.config.train.deterministic)
        key = (repr(sorted(said.items())), weights, kernels, [getattr(model, name) for name in FOUND])
        known = None if made.optimizer.checkpointing else TESTED.get(repr(key))  # which is put into the network itself
        if known is None:
            check_family(made, trained=trained)
            known = TESTED[repr(key)] = tuple(getattr(model, name) for name in FOUND)
        for name, found in zip(FOUND, known, strict=True):
            setattr(model, name, found)

    def load(self, name: str, policy: PolicyConfig, device: str, folder: Path | None = None) -> Policy:
        """Makes a policy as `make` does, on a device that is there, without testing it.

        Raises:
            ConfigError: a model is not there.
        """
        policy = self._lived(policy)
        assert policy.kind != "remote", "a server's has no weights here"
        model = self._model(name, policy, device, folder)
        if model.tokenizer is not None:  # of a shape alone there may be none
            template = policy.chat_template if folder is None or policy.kind != "full" else ""  # a checkpoint has it
            model = _templated(model, f"policies.{name}", template)
        return Policy(
            name,
            model,
            policy.kind,
            template=policy.template,
            thinking=policy.thinking,
            system=policy.system,
            system_text=policy.system_text,
            optimizer=self.config.optimizer_of(name) if name in self.config.policies else self.config.optimizer,
            dtype=self._dtype(policy),
        )

    def _lived(self, policy: PolicyConfig) -> PolicyConfig:
        """Returns a policy of the past with the other settings of the policy whose past it is; any other as it is."""
        if policy.kind != "past":
            return policy
        own = {name: getattr(policy, name) for name in ("kind", "model", "past", "temperature")}
        return self.config.policies[policy.model].model_copy(update=own)

    def _dtype(self, policy: PolicyConfig) -> torch.dtype:
        return getattr(torch, policy.dtype or self.config.train.dtype)

    def _model(self, name: str, policy: PolicyConfig, device: str, folder: Path | None) -> Model:
        where = f"policies.{name}"
        if policy.kind == "frozen":
            model = self._frozen(name, policy, device)
            model.net.requires_grad_(False)
            return model
        if policy.kind == "past":
            model = self._model(policy.model, self.config.policies[policy.model], device, folder)
            model.net.requires_grad_(False)
            return model
        if policy.kind == "lora":
            return self._adapted(name, policy, device, folder)
        if folder:
            return self._load(str(folder), device=device, where=f"policy {name}")
        return self._loaded(policy.model, device, torch.float32, where)

    def _adapted(self, name: str, policy: PolicyConfig, device: str, folder: Path | None) -> Model:
        """Returns a new adapter over its base, or one that begins with an adapter's folder. folder: a checkpoint's."""
        where, begun = f"policies.{name}", Path(policy.model)
        theirs, lora = lora_of(begun), policy.lora
        if theirs and (theirs.rank, theirs.alpha) != (lora.rank, lora.alpha):
            raise ConfigError(
                f"{where}.lora: the adapter in {begun} has rank = {theirs.rank} and alpha = {theirs.alpha:g}, not "
                f"{lora.rank} and {lora.alpha:g}; set them so"
            )
        source = base_of(begun) or policy.model
        base = self._base(source, device, self._dtype(policy), where)
        seed = seed_of("lora", self.config.train.seed, name)
        model = adapted(base, **lora.model_dump(), seed=seed, source=source, where=where)
        if (folder or theirs) and model.device.type != "meta":  # a shape takes no numbers
            model.take(folder or begun)
        return model

    def _frozen(self, name: str, policy: PolicyConfig, device: str) -> Model:
        """Returns a frozen model: a model's own, an adapter's folder on its base, or a policy of a run as it was."""
        past, where = past_policy(policy.model), f"policies.{name}"
        dtype = self._dtype(policy)
        if past is None and (lora := lora_of(Path(policy.model))):
            return self._adapted(name, policy.model_copy(update={"lora": lora}), device, None)
        if past is None:
            return self._load(policy.model, device=device, dtype=dtype, where=f"{where}.model")
        with _weights(past, where) as (theirs, folder):
            if theirs.kind == "full":
                return self._load(str(folder), device=device, dtype=dtype, where=f"{where}.model")
            return self._model(name, theirs, device, folder)

    def _loaded(self, source: str, device: str, dtype: torch.dtype, where: str) -> Model:
        """Returns the model of a source: as `load_model` knows it, or whole weights of a run's policy."""
        if (past := past_policy(source)) is None:
            return self._load(source, device=device, dtype=dtype, where=f"{where}.model")
        with _weights(past, where) as (theirs, folder):
            if theirs.kind != "full":
                raise ConfigError(
                    f"{where}.model = '{source}' is {theirs.kind}, no whole model; kind = 'frozen' plays it"
                )
            return self._load(str(folder), device=device, dtype=dtype, where=f"{where}.model")

    def _base(self, source: str, device: str, dtype: torch.dtype, where: str) -> Model:
        """Returns the base of adapters: loaded once, however many there are. Its weights are never trained."""
        key = source, device, dtype
        if key not in self._bases:
            self._bases[key] = self._loaded(source, device, dtype, where)
            self._bases[key].net.requires_grad_(False)
        return self._bases[key]


def lora_of(folder: Path) -> LoraConfig | None:
    """Returns the settings of the adapter in a folder; None if there is none.

    Raises:
        ConfigError: it is an adapter of another form.
    """
    config = adapter_config(folder)
    if config is None:
        return None
    if odd := [key for key in ODD if config.get(key) not in (None, False, "none", {}, [])]:
        raise ConfigError(f"{folder}: an adapter with {odd[0]} is not supported; merge it into its base")
    targets = config.get("target_modules") or ()
    try:
        names = () if isinstance(targets, str) else tuple(sorted({name.rpartition(".")[2] for name in targets}))
        return LoraConfig(rank=config["r"], alpha=config["lora_alpha"], targets=names)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{folder}: its adapter_config.json is damaged ({first_line(error)}); put it back from a copy"
        ) from error


@contextmanager
def _weights(past: Past, where: str) -> Iterator[tuple[PolicyConfig, Path]]:
    """Yields the config of one of a run's policies, and the folder of its weights."""
    run, there = Run.open(past.run), f"{where}.model = '{past}'"
    if past.policy not in run.config.policies:
        raise ConfigError(f"{there}: {past.run} has no policy '{past.policy}'; it has {', '.join(run.config.policies)}")
    try:
        with run.checkpoints.reading("best" if past.step is None else past.step) as (checkpoint, _):
            yield run.config.policies[past.policy], checkpoint / "policies" / past.policy
    except CheckpointError as error:
        reason, _, hint = str(error).partition("; ")
        mend = hint if hint.startswith("there are") else "put it back from a copy"
        raise ConfigError(f"{there}: {reason}; {mend}") from error


def pinned(config: Config, before: Config | None = None, *, keep: bool = True) -> Config:
    """Returns the config with policies of other runs as they are now: RUN/POLICY becomes RUN#STEP/POLICY, for good.

    The run that it comes from keeps that checkpoint. What the engine found for its machine at the beginning stays.

    Args:
        before: of the same run, when it began.
        keep: whether the runs that models come from are told to keep them.

    Raises:
        ConfigError: a model names no policy of a run, though it looks as if it did.
    """
    policies = dict(config.policies)
    for name, policy in config.policies.items():
        if policy.kind in ("past", "remote"):
            continue
        past = past_policy(policy.model)
        if past is None:
            _check_named(policy.model, f"policies.{name}.model")
            continue
        then = past_policy(before.policies[name].model) if before and name in before.policies else None
        if past.step is None and then is not None and (then.run, then.policy) == (past.run, past.policy):
            past = then
        checkpoints, step = Run.open(past.run).checkpoints, past.step
        if step is None:
            with checkpoints.reading("best") as (_, progress):
                step = progress.step
        if keep:
            checkpoints.keep(step)
        past = replace(past, step=step)
        policies[name] = policy.model_copy(update={"model": str(past)})
    engine = config.engine
    if before and before.names["engine"] == config.names["engine"]:
        then = before.engine.model_dump(include=set(engine.found))
        engine = engine.model_copy(update={key: value for key, value in then.items() if getattr(engine, key) is None})
    return replace(config, policies=policies, engine=engine)


def _check_named(model: str, where: str) -> None:
    """Raises ConfigError if a model is named like a run's policy, and is none."""
    folder = Path(model.split("#", maxsplit=1)[0])
    if (folder / "checkpoints").is_dir() and (folder / "config.toml").is_file():
        there = ", ".join(f"{model.split('#', maxsplit=1)[0]}#STEP/{name}" for name in Run.open(folder).config.policies)
        raise ConfigError(f"{where} = '{model}' is a run; name one of its policies: {there}")
    if "#" in model or (model.count("/") > 1 and not folder.is_absolute() and not folder.exists()):
        raise ConfigError(
            f"{where} = '{model}': there is no such folder here, and no such run; name a folder, RUN#STEP/POLICY or a "
            "Hugging Face id"
        )


def _templated(model: Model, where: str, file: str) -> Model:
    """Returns the model, with a file's chat template if one is named.

    Raises:
        ConfigError: the file is not there; or there is no template at all.
    """
    if file:
        try:
            template = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{where}.chat_template = '{file}': this file cannot be read; name one that can"
            ) from error
        model.tokenizer = copy.deepcopy(model.tokenizer)  # a base's is everybody's
        model.tokenizer.chat_template = template
    if not model.tokenizer.chat_template:
        raise ConfigError(
            f"{where}.model: the tokenizer has no chat template; use an instruct model, or give {where}.chat_template"
        )
    return model


def settle(*, deterministic: bool) -> None:
    """Has kernels give the same numbers every time, or not; an operation that has no such kernel then raises.

    On a processor this is for indexing: otherwise several threads add up the gradients of a state that is used twice in
    any order, once there are enough of them.
    Warnings in place of errors would let attention's backward pass take its unsteady kernel.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first kernel is
    torch.use_deterministic_algorithms(deterministic)
    filling: Any = torch.utils.deterministic
    filling.fill_uninitialized_memory = False  # nothing here reads what it has not written


def pick_device(wanted: str) -> str:
    """Returns the device that a setting stands for.

    Raises:
        ConfigError: it is not there.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, available in there.items() if available)
    kind, _, number = wanted.partition(":")
    if not there[kind] or (number and int(number) >= torch.cuda.device_count()):
        raise ConfigError(f"device = '{wanted}', but there is no such device here; use 'auto' or 'cpu'")
    return wanted
