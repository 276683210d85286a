"""`coterie doctor`: versions, hardware, and which engines, extras and sandboxes can run here."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from coterie.errors import ConfigError
from coterie.installed import entries
from coterie.kernel.diagnosis import Diagnosis
from coterie.kernel.mistakes import said
from coterie.registry import ENGINES, at

GIB = 1 << 30


def examine() -> list[Diagnosis]:
    """Looks at packages, extras, hardware, engines and what installed packages look at; changes nothing."""
    return [*_packages(), *_hardware(), *_engines(), *_of_packages()]


def _packages() -> list[Diagnosis]:
    """Returns findings about the core's packages, then about those of each extra."""
    findings = [
        Diagnosis("core", "python", True, platform.python_version()),
        Diagnosis("core", "coterie", True, metadata.version("coterie")),
    ]
    extras: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, metadata.requires("coterie") or ()):
        extra = re.search(r"extra == ['\"]([\w-]+)", str(requirement.marker or ""))
        if extra:
            extras.setdefault(extra[1], []).append(requirement)
        else:
            name, wanted = requirement.name, requirement.specifier
            version, fits = _version(requirement)
            findings.append(Diagnosis("core", name, fits, version, f"pip install '{name}{wanted}'"))
    for extra, requirements in sorted(extras.items()):
        versions = [(requirement.name, *_version(requirement)) for requirement in requirements]
        text = ", ".join(f"{name} {version}" for name, version, _ in versions)
        fits = all(fit for *_, fit in versions)
        findings.append(Diagnosis("extras", extra, fits, text, f"where wanted: pip install 'coterie[{extra}]'"))
    return findings


def _version(requirement: Requirement) -> tuple[str, bool]:
    """Returns the installed version of a package, and True if it fits."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return "not installed", False
    return version, requirement.specifier.contains(version, prereleases=True)


def _hardware() -> list[Diagnosis]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    free = shutil.disk_usage(Path.cwd()).free / GIB
    findings = [
        Diagnosis("hardware", "processor", True, f"{os.cpu_count()} cores"),
        Diagnosis("hardware", "memory", memory > 2, f"{memory:.1f} GiB", "the demo needs 2 GiB"),
        Diagnosis("hardware", "disk", free > 1, f"{free:.1f} GiB free here", "runs keep checkpoints: make room"),
    ]
    try:
        import torch
    except ImportError as error:
        return [*findings, Diagnosis("hardware", "accelerator", False, f"unknown: {error}", "see torch above")]
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    devices += ["Apple MPS"] if torch.backends.mps.is_available() else []
    text = ", ".join(devices) or "none: training runs on the processor"
    return [*findings, Diagnosis("hardware", "accelerator", True, text)]


def _engines() -> list[Diagnosis]:
    findings: list[Diagnosis] = []
    for name, home in ENGINES.items():
        try:
            at(home)
            if name == "vllm":
                from coterie.engines.vllm_config import check_version

                check_version()
        except ImportError as error:
            findings.append(Diagnosis("engines", name, False, f"cannot run: {error}", "see core above"))
        except ConfigError as error:
            findings.append(Diagnosis("engines", name, False, "cannot run", str(error)))
        else:
            findings.append(Diagnosis("engines", name, True, "can run"))
    return findings


def _of_packages() -> list[Diagnosis]:
    """Returns what functions of installed packages find, in the group `coterie.diagnoses`, such as the sandbox's."""
    findings: list[Diagnosis] = []
    for name, home in entries("diagnoses").items():
        try:
            with contextlib.redirect_stdout(sys.stderr):
                told = [one for one in at(home)() if isinstance(one, Diagnosis)]
            findings += told
        except (Exception, SystemExit) as error:  # a package may do anything
            findings.append(Diagnosis(name, home, False, f"cannot be looked at: {said(error)}", "install it again"))
    return findings
