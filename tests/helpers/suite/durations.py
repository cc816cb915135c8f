"""The order of the test files: the longest of earlier runs come first.

Otherwise a worker may start a long file when the others have finished.
"""

from collections import defaultdict
from collections.abc import Mapping

import pytest

from helpers.suite.longest import EXPECTED_SECONDS

_KEY = "tidemark/durations"
_SLOW_SECONDS = 20.0
"""The duration from which the summary lists a test without the marker `slow`."""


class Durations:
    """A pytest plugin: the controller stores durations, and workers order files by them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._measured: defaultdict[str, float] = defaultdict(float)
        self._marked: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a set-up, a test or a tear-down."""
        self._measured[report.nodeid] += report.duration
        if "slow" in report.keywords:
            self._marked.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests that should be faster or marked as slow."""
        found = {test: s for test, s in self._measured.items() if s >= _SLOW_SECONDS}
        for test in sorted(found.keys() - self._marked, key=lambda test: -found[test]):
            terminalreporter.write_line(f"{found[test]:.0f} s, and not marked as slow: {test}")

    def pytest_sessionfinish(self) -> None:
        """Store the durations of the tests that ran and of others whose file still exists."""
        if not self._is_worker and self._measured:
            kept = {**self._known(), **self._measured}
            root = self._config.rootpath
            there = {file: (root / file).exists() for file in map(file_of, kept)}
            self._cache().set(_KEY, {test: kept[test] for test in kept if there[file_of(test)]})

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order the files of a worker: new files first, because they may take long."""
        if self._is_worker:
            tests = [item.nodeid for item in items]
            in_order = longest_first(tests, self._known(), EXPECTED_SECONDS)
            place = {file: n for n, file in enumerate(in_order)}
            items.sort(key=lambda item: place[file_of(item.nodeid)])

    def _known(self) -> dict[str, float]:
        return self._cache().get(_KEY, {})

    def _cache(self) -> pytest.Cache:
        cache = self._config.cache
        assert cache is not None
        return cache


def file_of(test: str) -> str:
    """Return the file path in a test's ID."""
    return test.partition("::")[0]


def longest_first(
    tests: list[str], seconds: Mapping[str, float], expected: Mapping[str, float]
) -> list[str]:
    """Return the files of tests in the order in which they run.

    Args:
        seconds: the durations of earlier runs, by test.
        expected: the durations of files of which not all tests ran before.
    """
    files: defaultdict[str, float] = defaultdict(float)
    measured = {file_of(test) for test in seconds}
    for test in tests:
        files[file_of(test)] += seconds.get(test, 0.0)
    for file in {file_of(test) for test in tests if test not in seconds}:
        least = 0.0 if file in measured else float("inf")
        files[file] = max(files[file], expected.get(file, least))
    return sorted(files, key=lambda file: -files[file])
