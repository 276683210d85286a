"""A tokenizer that may be anybody's is tried apart before it is loaded here, where nothing could interrupt it."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer

from coterie.apart import MEMORY, Apart, Refused
from coterie.bounded import TooMuch, content
from coterie.errors import ConfigError

FILE = "tokenizer.json"
LARGEST, BESIDE = 128 << 20, 16 << 20
"""Maximum bytes of the tokenizer's file, and of another that says what a model is."""
LOADED, TAKEN = 4 << 20, 20
"""Bytes of the tokenizer's file that are loaded in a second, at the slowest, and bytes of memory that each takes."""
LONG = 4096
ALPHABETS = (
    "a",
    " ",
    "\n",
    "0",
    "!",
    "é",
    "中",
    "a ",
    "aA",
    "a1",
    "a'",
    " \n",
    "(){}",
    "aeiou 019.,!\n'Ωñ中\U0001f600",
)
"""Signs of which long test texts are made: a pattern that goes back and forth takes for ever at one of them."""
MOST_SIGNS = 100
"""Maximum number of letters and digits of the tokenizer's own patterns, of each of which such a text is made too."""
ESCAPE = re.compile(r"\\(?:[xu]\{?([0-9A-Fa-f]{1,6})\}?|([0-7]{2,3}))")
SCRIPT = re.compile(r"\\[pP]\{\^?(\w{3,})\}")


def check_tokenizer(folder: Path, where: str) -> None:
    """Tries a folder's tokenizer, once in a process for each.

    Args:
        where: names it in errors.

    Raises:
        ConfigError: it is too large, takes too much, or cannot be read.
    """
    try:
        for file in sorted(folder.iterdir()):
            if file.suffix in (".json", ".jinja") and file.name != FILE and file.stat().st_size > BESIDE:
                raise TooMuch(f"{file.name} has more than {BESIDE:,} bytes")
        if (folder / FILE).exists():
            whole = content(folder / FILE, LARGEST)
            _check(str((folder / FILE).absolute()), len(whole), sha256(whole).hexdigest())
    except (Refused, TooMuch) as error:
        raise ConfigError(f"{where}: its tokenizer cannot be used: {error}") from error


@cache
def _check(file: str, size: int, digest: str) -> None:
    """Tries a tokenizer's file in a process of its own. Args: digest: of its content, which is tried if changed."""
    trial = Apart(f"{__name__}:tried", memory=MEMORY + TAKEN * size)
    try:
        for _ in trial.ask(file, seconds=1 + size // LOADED):
            pass
    finally:
        trial.close()


def tried(file: str) -> Iterator[Any]:
    """Yields the lengths of long texts that were encoded and decoded: of one sign each, and of several."""
    tokenizer, chance = Tokenizer.from_file(file), Random(0)
    patterns = "".join(regexes(json.loads(Path(file).read_bytes())))
    for signs in (*ALPHABETS, *sorted(own_signs(patterns))[:MOST_SIGNS]):
        encoded = tokenizer.encode("".join(chance.choices(signs, k=LONG)))
        yield len(tokenizer.decode(encoded.ids))


def regexes(part: Any) -> Iterator[str]:
    """Yields the patterns that stand anywhere in a tokenizer's settings."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    if isinstance(part, dict) and isinstance(part.get("Regex"), str):
        yield part["Regex"]
    for each in inner:
        if isinstance(each, dict | list):
            yield from regexes(each)


def own_signs(pattern: str) -> set[str]:
    """Returns the letters and digits that a pattern names: as they are, as escapes, or by their script."""
    codes = {int(found[1], 16) if found[1] else int(found[2], 8) for found in ESCAPE.finditer(pattern)}
    signs = {*pattern, *(chr(code) for code in codes if code <= sys.maxunicode)}
    scripts = {found[1].upper() for found in SCRIPT.finditer(pattern)}
    for code in range(sys.maxunicode + 1) if scripts else ():
        script = unicodedata.name(chr(code), "").partition(" ")[0]
        if script in scripts and chr(code).isalnum():
            scripts.remove(script)
            signs.add(chr(code))
    return {sign for sign in signs if sign.isalnum()}
