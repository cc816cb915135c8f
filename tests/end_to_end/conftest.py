"""What a browser's test leaves behind where it fails: nobody sees the page of a machine far off."""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes and the browser write down what they say."""
    return tmp_path_factory.mktemp("logs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report what the page shows, and the ends of the logs."""
    report = yield
    page, logs = item.funcargs.get("page"), item.funcargs.get("logs")
    if report.failed and isinstance(page, Page) and isinstance(logs, Path):
        try:
            text = page.locator("body").inner_text(timeout=5000)
        except Error as error:
            text = str(error)
        report.sections.append((f"text of {page.url}", text))
        for log in sorted(logs.glob("*.log")):
            report.sections.append((f"end of {log.name}", log.read_text()[-3000:]))
    return report
