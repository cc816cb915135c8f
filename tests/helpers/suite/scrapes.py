"""The metrics of the service, parsed as Prometheus does."""

from prometheus_client.parser import text_string_to_metric_families

from tidemark_streaming.monitor.metrics import exposition
from tidemark_streaming.monitor.overview import Monitor

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Samples by name and labels."""


def scraped(watcher: Monitor) -> Values:
    """Return the samples of a scrape."""
    text = exposition(watcher.read()).decode()
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
