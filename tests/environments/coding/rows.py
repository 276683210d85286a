"""Rows of data sets as programming problems."""

from coterie.environments.published import data as published
from coterie.environments.published.data import Data
from coterie_worlds.coding.problems import Problem
from coterie_worlds.coding.problems.data import Problems


def load(data: str, **reader) -> Data[Problem]:
    """What a setting `environment.data` stands for."""
    return published.load(data, Problems(**reader))


def problems(data: str, split: str, **reader) -> tuple[Problem, ...]:
    """The problems of a split."""
    return load(data, **reader).splits[split]
