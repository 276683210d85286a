"""Pictures of the viewer for the docs: python -m tests.screenshots SITE FOLDER, with Debian's chromium.

SITE is what `coterie view RUNS --bundle SITE` wrote.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(site: Path, folder: Path) -> None:
    with sync_playwright() as player:
        window = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = window.new_page(viewport={"width": 1000, "height": 620})
        tab.goto((site / "index.html").resolve().as_uri())
        tab.screenshot(path=folder / "view-runs.png")
        tab.locator("table a").first.click()
        tab.screenshot(path=folder / "view-story.png")
        tab.get_by_role("link", name="Rollouts").click()
        tab.locator("table a").nth(-2).click()  # the second that was saved
        rows = tab.locator("table tr")
        live = [int(rows.nth(at).locator("td").last.inner_text()) for at in range(1, rows.count())]
        rows.nth(1 + live.index(max(live))).locator("a").click()
        tab.screenshot(path=folder / "view-tree.png")
        tab.emulate_media(color_scheme="dark")
        tab.locator("summary", has_text="The groups as a table").click()
        tab.locator("tr", has_text="yes").first.locator("a").click()
        tab.screenshot(path=folder / "view-group.png")
        window.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
