"""Diagnostics of failed browser tests, because the page on a remote machine is not visible."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Error, Page

from tidemark.base.settings import Settings


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the text of the page and the ends of the logs to the report."""
    report = yield
    page, engine = item.funcargs.get("page"), item.funcargs.get("engine")
    if report.failed and isinstance(page, Page) and isinstance(engine, Settings):
        try:
            text = page.locator("body").inner_text(timeout=5000)
        except Error as error:
            text = str(error)
        report.sections.append((f"text of {page.url}", text))
        for log in sorted((engine.home / "logs").glob("*.log")):
            report.sections.append((f"end of {log.name}", log.read_text()[-3000:]))
    return report
