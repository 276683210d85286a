"""HTML pages: templates that escape all inserted values, and one style sheet."""

from __future__ import annotations

import importlib.resources

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def templates(*packages: str) -> Environment:
    """Returns the templates of packages, and of this one, which all may use."""
    loaders = [PackageLoader(package) for package in (*packages, "coterie.report")]
    return Environment(
        loader=ChoiceLoader(loaders), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def style() -> str:
    """Returns the style sheet of reports and of the viewer."""
    return importlib.resources.files("coterie.report").joinpath("templates/style.css").read_text(encoding="utf-8")
