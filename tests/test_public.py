"""What `from coterie import …` gives."""

import pkgutil
import subprocess
import sys
import types

import pytest

import coterie

MODULES = sorted(f"coterie.{module.name}" for module in pkgutil.iter_modules(coterie.__path__))


def test_no_submodule_has_a_public_name():
    """Importing a submodule sets its name on the package, over whatever stood there."""
    assert not {name.rpartition(".")[2] for name in MODULES} & set(coterie.__all__)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        *(pytest.param(f"coterie.run.{name}", marks=pytest.mark.long) for name in ("evaluate", "train", "sft")),
        "coterie.cli",
    ],
)
def test_public_names_are_what_they_say_whatever_was_imported_before(first):
    names = ", ".join(coterie.__all__)
    program = (
        f"import {first}\nfrom coterie import {names}\nimport coterie\nprint(*(type(x).__name__ for x in ({names},)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert len(printed) == len(coterie.__all__)
    assert "module" not in printed


def test_every_public_name_is_there_and_is_no_module():
    for name in coterie.__all__:
        assert not isinstance(getattr(coterie, name), types.ModuleType), name
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = coterie.trian
