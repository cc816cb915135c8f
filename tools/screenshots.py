"""Make the pictures of the README and the docs: `make demo`, then `make screenshots`.

The charts are those of the demo. For the other pictures, a browser opens the real pages while a
stream runs. The pictures are saved in `docs/images/demo`.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import vl_convert
from playwright.sync_api import Page, sync_playwright

from tidemark.base.settings import Settings
from tidemark_streaming.home import services

IMAGES = Path(__file__).parents[1] / "docs" / "images" / "demo"
CHARTS = ("arrivals", "late_loss")
SIZE = {"width": 1600, "height": 900}
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
STREAMED = "departures_hourly"
"""The asset whose stream runs while the pictures are taken."""

MART = "daily_punctuality"
"""The mart whose lineage is shown."""

CONNECTOR = "flights_connector"
"""The first asset of this lineage, which the page shows once it is complete."""

SETTLED = 4000
"""Milliseconds to wait after a page shows its content, for pictures in it."""

LOADED = 300_000
"""The longest wait for a text, in milliseconds. Dagster loads its definitions first."""


def main() -> int:
    """Make the pictures. Return the exit code."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("The screenshots need Chromium on the PATH.", file=sys.stderr)  # noqa: T201
        return 2
    settings = Settings()
    for name in CHARTS:
        save_chart(settings.home / "pictures" / f"{name}.html", IMAGES / f"{name}.svg")
    with sync_playwright() as playwright, run_stream():
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SIZE)  # pyright: ignore[reportArgumentType]
        page.goto(services.watch_url(settings))
        page.get_by_text("● streaming").first.wait_for(timeout=LOADED)
        take_picture(page, IMAGES / "live_page.png")
        lineage = "view=lineage&lineageScope=upstream&lineageDepth=6"
        page.goto(f"{services.webserver_url(settings)}/assets/{MART}?{lineage}")
        page.get_by_text(CONNECTOR).first.wait_for(timeout=LOADED)
        take_picture(page, IMAGES / "dagster_lineage.png")
        browser.close()
    return 0


def save_chart(picture: Path, file: Path) -> None:
    """Draw a picture of the demo, whose HTML contains the definition of its chart, as SVG."""
    html = picture.read_text()
    start = html.index("{", html.index("const spec ="))
    definition, _ = json.JSONDecoder().raw_decode(html, start)
    # Descriptions for screen readers would double the size.
    definition["config"]["aria"] = False
    file.write_text(vl_convert.vegalite_to_svg(definition))
    print(file)  # noqa: T201


@contextmanager
def run_stream() -> Iterator[None]:
    """Run the stream of `STREAMED` during a `with` block."""
    command = [Path(sys.executable).parent / "tidemark", "stream", STREAMED]
    stream = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        stream.terminate()
        stream.wait()


def take_picture(page: Page, file: Path) -> None:
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=file)
    print(file)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
