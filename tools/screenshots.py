"""Take the README's screenshots of a running platform: `make demo`, then `make screenshots`.

A browser opens the real pages, and the pictures are saved in `docs/images`.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tidemark.base.settings import Settings
from tidemark_streaming.home import services

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE = {"width": 1600, "height": 900}
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
SHOWN = "flights"
"""A source that each page shows once its content is loaded, which is after its load event."""

SETTLED = 4000
"""Milliseconds to wait after that, for pictures in the page."""

LOADED = 120_000
"""The longest wait for the source, in milliseconds. Dagster loads its definitions first."""


def main() -> int:
    """Take the screenshots. Return the exit code."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("The screenshots need Chromium on the PATH.", file=sys.stderr)  # noqa: T201
        return 2
    settings = Settings()
    pages = {
        "dagster_lineage": f"{services.url(settings)}/asset-groups",
        "live_page": services.watch_url(settings),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SIZE)  # pyright: ignore[reportArgumentType]
        for name, url in pages.items():
            _take(page, url, IMAGES / f"{name}.png")
        browser.close()
    return 0


def _take(page: Page, url: str, file: Path) -> None:
    page.goto(url)
    page.get_by_text(SHOWN).first.wait_for(timeout=LOADED)
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=file)
    print(file)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
