"""The metrics of the service, parsed as Prometheus does."""

import time
from collections.abc import Callable, Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark_streaming.base.extra import Pipeline
from tidemark_streaming.findings import polls
from tidemark_streaming.home.domains import AvailableDomains, Domains
from tidemark_streaming.monitor.metrics import render_metrics
from tidemark_streaming.monitor.overview import Monitor

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Samples by name and labels."""


def scraped(watcher: Monitor) -> Values:
    """Return the samples of a scrape."""
    text = render_metrics(watcher.read()).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Values, name: str, **labels: str) -> float | None:
    """Return the sample of that name with exactly these labels, or None."""
    return found.get((name, frozenset(labels.items())))


def summed(found: Values, name: str, **labels: str) -> float:
    """Return the sum of the samples of that name with at least these labels."""
    wanted = labels.items()
    return sum(v for (n, given), v in found.items() if n == name and wanted <= given)


def watcher(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    *assets: WindowedTransform,
    pipelines: Sequence[Pipeline] = (),
) -> Monitor:
    """Return a monitor of a domain with only these assets and pipelines."""
    found = Domains({}, {}, {asset.name: asset for asset in assets}, pipelines)
    monkeypatch.setattr(polls, "EVERY", 0.0)
    return Monitor(settings, AvailableDomains(found))


def seen(watching: Monitor, right: Callable[[Values], bool], wait: float = 60) -> Values:
    """Scrape until the values are as expected, because topics are polled in the background. Return
    the values."""
    deadline = time.monotonic() + wait
    while not right(found := scraped(watching)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found
