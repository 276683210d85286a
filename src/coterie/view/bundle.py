"""Writes the viewer's pages as static files: all pages that links lead to from the first page."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from posixpath import normpath

from coterie.errors import CheckpointError, ConfigError
from coterie.report.looks import style
from coterie.run.files import whole
from coterie.view.pages import Missing, Page, Site, script

LINK = re.compile(r'(<a\b[^>]*?\shref=")([^"#?:]*)((?:#[^"]*)?")')
"""Pattern of a link within the site."""


def write(site: Site, folder: Path) -> tuple[int, list[str]]:
    """Writes all pages. Returns how many, and the reason for each that could not be shown.

    Raises:
        ConfigError: the folder is there already.
        CheckpointError: it cannot be written.
    """
    if folder.exists():
        raise ConfigError(f"--bundle {folder} exists; name a new folder, or remove it")
    done: set[str] = set()
    unread: list[str] = []
    aside = folder.with_name(f".{folder.name}-{os.getpid()}-{secrets.token_hex(4)}")  # a name that nothing else uses
    with whole(folder, "choose another folder with --bundle", aside):
        (aside / "static").mkdir(parents=True)
        (aside / "static/style.css").write_text(style(), encoding="utf-8")
        (aside / "static/view.js").write_text(script(), encoding="utf-8")
        left = [""]
        while left:
            address = left.pop()
            if address in done:
                continue
            done.add(address)
            try:
                text = site.get(address)
            except Missing:
                continue
            except CheckpointError as error:
                unread.append(str(error))
                text = site.show(address, Page("error.html", "This cannot be shown", {"why": str(error)}))
            file = aside / address / "index.html"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(LINK.sub(_to_file, text), encoding="utf-8", errors="replace")
            left += [_joined(address, link) for _, link, _ in LINK.findall(text) if link]
        aside.rename(folder)
    return len(done), unread


def _joined(address: str, link: str) -> str:
    """Returns the address that a link of a page leads to."""
    found = normpath(f"/{address}{link}").strip("/")
    return f"{found}/" if found else ""


def _to_file(link: re.Match[str]) -> str:
    """Returns a link to the file of a page: files have no addresses that end in a slash."""
    before, address, after = link.groups()
    return f"{before}{address}index.html{after}" if address.endswith("/") else link[0]
