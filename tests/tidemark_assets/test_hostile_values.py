"""Test in a real browser that Dagster's pages show event values as text."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page, sync_playwright

from gated.transforms import gated
from helpers.data.judgements import judged, withhold
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_assets.base.names import PLAIN
from tidemark_assets.checks import checks
from tidemark_streaming.home import services
from tidemark_streaming.snapshot.snapshot import Snapshot

CHROMIUM = shutil.which("chromium")
CODE = """
import dagster as dg

@dg.asset
def gated(): ...

@dg.asset_check(asset=gated, name="between_most_max_value_5")
def check(): ...

defs = dg.Definitions(assets=[gated], asset_checks=[check])
"""
MUTATION = "mutation{setConcurrencyLimit(concurrencyKey:%22evil%22,limit:1)}"
HOSTILE = (
    f"![x](/graphql?query={MUTATION})",
    f'<img src="/graphql?query={MUTATION}">',
    "[x](javascript:alert(1)) | a | b |\n\n# heading",
    '<script>document.title="evil"</script>`<b>bold</b>`',
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: no page was opened"),
]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Yield a browser page on a Dagster whose check failed for hostile keys and values."""
    (tmp_path / "hostile.py").write_text(CODE)
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text("load_from: [{python_file: hostile.py}]\n")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.chdir(tmp_path)
        patch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
        patch.setenv("TIDEMARK_WEBSERVER_PORT", str(free_port()))
        settings = Settings()
        for name in ("webserver", "daemon"):
            stack.callback(services.find_service(settings, name).stop)
        services.start_orchestrator(settings, workspace)
        patch.setenv("DAGSTER_HOME", str(settings.home / "dagster"))
        report(settings)
        url = services.await_ready(settings, "webserver")
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=CHROMIUM, args=("--no-sandbox", "--disable-gpu", "--no-first-run")
        )
        stack.callback(browser.close)
        page = browser.new_page(base_url=url, viewport={"width": 1500, "height": 950})
        page.set_default_timeout(20_000)
        yield page


def report(settings: Settings) -> None:
    """Report a failed check in the way that a stream's runs are reported."""
    expectation = gated.expectations[0].name
    judged(settings, 1, expectation=expectation)
    for value in HOSTILE:
        withhold(settings, (3, value), by=expectation, observed=value, mode="append")
    evaluation = next(checks.current_results(PLAIN, Snapshot(settings), gated))
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(evaluation)


@pytest.mark.nightly
def test_hostile_values_are_shown_as_text_on_the_check_page(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/assets/gated?view=checks&checkDetail=between_most_max_value_5")
    page.get_by_text("4 failed, the first at").first.wait_for()
    page.get_by_text(HOSTILE[3]).first.wait_for()
    cells = page.locator("td").all_inner_texts()
    # A cell collapses white space.
    assert {" ".join(value.split()) for value in HOSTILE} <= {" ".join(c.split()) for c in cells}
    page.wait_for_timeout(1000)
    assert page.locator("img[src*=graphql], a[href^=javascript], td b").count() == 0
    assert [url for url in asked if "query=" in url] == []
    assert page.title() != "evil"
