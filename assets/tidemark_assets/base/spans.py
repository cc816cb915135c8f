"""Partitions as spans of event time, in microseconds."""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from tidemark.base.instants import INFINITY, as_datetime, parse_instant
from tidemark.define.windows import Window

PartitionsOf = Callable[[str], dg.TimeWindowPartitionsDefinition]
"""A function that takes the name of an asset, and returns the partitions of that asset."""


@dataclass(frozen=True)
class Span:
    """A partition: the windows that start in [start, end)."""

    key: str
    start: int
    end: int


def spans(partitions: dg.TimeWindowPartitionsDefinition, first: int, last: int) -> list[Span]:
    """Return the partitions that contain the instants from `first` to `last`, in order."""
    newest = partitions.get_last_partition_window()
    begin = max(first, parse_instant(partitions.start))
    if newest is None or begin > last or begin >= parse_instant(newest.end):
        return []
    begins = _span(partitions, _key_at(partitions, begin)).start
    ends = min(min(last, INFINITY - 1) + 1, parse_instant(newest.end))
    # In UTC: when clocks are set back, local times occur twice, and Dagster confuses the two.
    window = dg.TimeWindow(as_datetime(begins), as_datetime(ends))
    keys = partitions.get_partition_keys_in_time_window(window)
    return [_span(partitions, key) for key in keys]


def find_closed_partitions(
    partitions: dg.TimeWindowPartitionsDefinition,
    window: Window,
    watermark: int,
    newest_event: int,
    count: int,
) -> list[Span]:
    """Return the newest partitions in which all windows have closed, in order and at most `count`.

    Partitions after the newest event have no windows, and are left out. `watermark` and
    `newest_event` are in microseconds.
    """
    newest = partitions.get_last_partition_window()
    if newest is None or min(watermark, newest_event) < parse_instant(partitions.start):
        return []
    last = min(watermark, newest_event, parse_instant(newest.end) - 1)
    key: str | None = _key_at(partitions, last)
    closed: list[Span] = []
    while key is not None and len(closed) < count:
        span = _span(partitions, key)
        if window.last_window_end(span.end) <= watermark:
            closed.append(span)
        before = partitions.get_prev_partition_window(as_datetime(span.start))
        key = None if before is None else _key_at(partitions, parse_instant(before.start))
    return closed[::-1]


def _key_at(partitions: dg.TimeWindowPartitionsDefinition, instant_micros: int) -> str:
    return partitions.get_partition_key_for_timestamp(instant_micros / 1e6)


def _span(partitions: dg.TimeWindowPartitionsDefinition, key: str) -> Span:
    window = partitions.time_window_for_partition_key(key)
    return Span(key, parse_instant(window.start), parse_instant(window.end))
