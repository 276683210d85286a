"""Pictures of a report for the docs: python -m tests.screenshots PAGE FOLDER, with Debian's chromium."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(page: Path, folder: Path) -> None:
    with sync_playwright() as player:
        window = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = window.new_page(viewport={"width": 1000, "height": 760})
        tab.goto(page.resolve().as_uri())
        tab.screenshot(path=folder / "report.png")
        tab = window.new_page(viewport={"width": 1000, "height": 760}, color_scheme="dark")
        tab.goto(page.resolve().as_uri())
        tab.locator("h2", has_text="Group audit").evaluate("heading => heading.scrollIntoView()")
        tab.screenshot(path=folder / "report-tree.png")
        window.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
