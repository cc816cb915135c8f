"""Measure how much a source's events are out of order, to choose an out-of-orderness bound.

The lag of an event is how far its event time is behind the newest event time of all earlier
arrivals. Events of the same arrival do not count, because the lateness of all events of an arrival
is classified by the watermark before the arrival. An event that is not behind has a lag of zero.

With `BoundedOutOfOrderness(bound)`, the events whose lag exceeds the bound are exactly the events
that arrive behind the watermark. A transform without allowed lateness loses at most these events.
It can lose fewer events, because a window that ends after the watermark still accepts them. With
allowed lateness, windows accept more of them.

A bulk load hides lags, because its events arrive at once, and its many events would outweigh those
of other arrivals. A bound is therefore recommended from the other arrivals, the *live* ones. An
arrival is a bulk load if no event arrived before it. It is also a bulk load if it has more than
`BULK_FACTOR` times as many events as the median arrival, and covers more than `BULK_FACTOR` times
as much event time as the median arrival adds. Only arrivals that kept pace with the clock count
for the medians, if there are any: history in several files has event times that advance faster than
the files were written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import latest_watermark, parse_duration
from tidemark.define.helper_columns import name_helper
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

BULK_FACTOR = 10
"""How many times more events and event time than usual a bulk load has; and how many times faster
than the clock its event times advance.
"""

_PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)

_COUNTS = {
    "seconds": (0, 1, 2, 5, 10, 15, 20, 30),
    "minutes": (1, 2, 3, 5, 10, 15, 20, 30, 45),
    "hours": (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18),
    "days": (1, 2, 3, 5, 7, 10, 14, 21, 30, 60, 90, 180, 365),
}


def _list_bounds() -> list[int]:
    """Return the bounds that are measured, in microseconds, in ascending order."""
    bounds = list[int]()
    for unit, counts in _COUNTS.items():
        bounds += [parse_duration(f"{count} {unit}") for count in counts]
    return bounds


_BOUNDS = _list_bounds()


@dataclass(frozen=True)
class _Candidate:
    """A bound of out-of-orderness, and the loss with this bound.

    Args:
        bound: the bound in microseconds.
        lost: the number of events that would arrive behind the watermark.
        share: the share of these events.
    """

    bound: int
    lost: int
    share: float


@dataclass(frozen=True)
class Lags:
    """The lags of the events of some arrivals, in microseconds.

    Args:
        events: the number of events with an event time.
        percentiles: the lag by percentile; percentile 100 is the maximum.
        candidates: the bounds of a fixed list, such as 1 second or 5 minutes, each with its loss.
            They are in ascending order, up to the first that loses no event.
        recommended: the smallest bound of the list whose loss is within the target; None if even a
            bound of a year loses more.
    """

    events: int
    percentiles: dict[float, int]
    candidates: tuple[_Candidate, ...]
    recommended: _Candidate | None


@dataclass(frozen=True)
class Lateness:
    """The lags observed in a source's event log.

    Args:
        no_event_time: the number of events without an event time, which are not measured.
        target: the share of events that may arrive behind the watermark.
        bulk_loads: the numbers of the arrivals that are bulk loads.
        live: the lags without bulk loads; None if all events arrived in bulk loads.
        total: the lags of all events. Events of the first arrival have a lag of zero.
    """

    source: str
    no_event_time: int
    target: float
    bulk_loads: tuple[int, ...]
    live: Lags | None
    total: Lags


def measure_lags(warehouse: Warehouse, source: Source, target: float = 0.001) -> Lateness:
    """Measure the lags in a source's event log in one pass, and recommend bounds.

    Args:
        target: the share of events that may arrive behind the watermark.

    Raises:
        DataError: the event log has no events with an event time.
    """
    check_target(target)
    log = Log(warehouse, source)
    name = source.name
    timeline = log.read_timeline()
    if not any(a.max_event_time is not None for a in timeline):
        raise DataError(f"Source '{name}' has no events with an event time yet: ingest some first.")
    bulk = find_bulk_loads(timeline)
    facts: list[tuple[int, int | None, bool]] = []
    for arrival, newest_before in _list_newest_before(timeline):
        facts.append((arrival, newest_before, arrival not in bulk))
    newest_events = warehouse.spark.createDataFrame(
        facts, f"arrival BIGINT, {_NEWEST} BIGINT, {_LIVE} BOOLEAN"
    )
    rows = log.read_events(-1, timeline[-1].arrival).join(F.broadcast(newest_events), "arrival")
    time = F.unix_micros(source.valid_event_time(F.unix_micros("arrived_at")))
    lag = F.when(time.isNotNull(), F.greatest(F.col(_NEWEST) - time, F.lit(0)))
    lags = rows.select(lag.alias("lag"), F.when(F.col(_LIVE), lag).alias("live_lag"))
    measures = [F.count("*")]
    measures += _measure_columns(F.col("lag"))
    measures += _measure_columns(F.col("live_lag"))
    count, *measured = lags.agg(*measures).collect()[0]
    half = len(measured) // 2
    total = _summarize_lags(measured[:half], target)
    live = None
    live_lags = _summarize_lags(measured[half:], target)
    if live_lags.events:
        live = live_lags
    return Lateness(
        source=name,
        no_event_time=count - total.events,
        target=target,
        bulk_loads=tuple(sorted(bulk)),
        live=live,
        total=total,
    )


def find_bulk_loads(timeline: Sequence[Arrival]) -> set[int]:
    """Return the numbers of the arrivals that are bulk loads; see the module's description."""
    with_times = [a for a in timeline if a.max_event_time is not None]
    if not with_times:
        return set()
    first, *later = with_times
    newest = dict(_list_newest_before(timeline))
    in_pace: list[Arrival] = []
    for previous, arrival in pairwise(with_times):
        elapsed = arrival.arrived_at - previous.arrived_at
        if _count_advance(arrival, newest) <= BULK_FACTOR * elapsed:
            in_pace.append(arrival)
    usual = in_pace or later
    if not usual:
        return {first.arrival}
    max_rows = BULK_FACTOR * median(arrival.rows for arrival in usual)
    max_time = BULK_FACTOR * median(_count_advance(arrival, newest) for arrival in usual)
    bulk_loads = {first.arrival}
    for arrival in later:
        if arrival.rows > max_rows and _measure_covered_time(arrival) > max_time:
            bulk_loads.add(arrival.arrival)
    return bulk_loads


def _count_advance(arrival: Arrival, newest: Mapping[int, int | None]) -> int:
    """Return how far an arrival moves the newest event time, in microseconds.

    Args:
        newest: the newest event time before each arrival.
    """
    before = newest[arrival.arrival]
    if before is None or arrival.max_event_time is None:
        return 0
    return max(0, arrival.max_event_time - before)


def _measure_covered_time(arrival: Arrival) -> int:
    """Return how much event time an arrival covers, in microseconds."""
    if arrival.min_event_time is None or arrival.max_event_time is None:
        return 0
    return arrival.max_event_time - arrival.min_event_time


def _summarize_lags(measured: Sequence[Any], target: float) -> Lags:
    """Return the result of `_measure_columns`."""
    events, greatest, points, *lost = measured
    percentiles: dict[float, int] = dict(zip(_PERCENTILES, points or (), strict=False))
    percentiles[100.0] = greatest
    candidates: list[_Candidate] = []
    recommended = None
    for bound, count in zip(_BOUNDS, lost, strict=True):
        candidate = _Candidate(bound, count, count / max(events, 1))
        candidates.append(candidate)
        if recommended is None and candidate.share <= target:
            recommended = candidate
        if count == 0:
            break
    return Lags(events, percentiles, tuple(candidates), recommended)


def check_target(target: float) -> None:
    """Raise an error if the target is not a valid share of events."""
    if not 0 <= target < 1:
        raise DefinitionError(
            f"The target, a share of the events, must be at least 0 and less than 1 (got {target})."
        )


_NEWEST = name_helper("newest")
_LIVE = name_helper("live")


def _list_newest_before(timeline: Sequence[Arrival]) -> list[tuple[int, int | None]]:
    """Return pairs of an arrival and the newest event time of all arrivals before it."""
    pairs: list[tuple[int, int | None]] = []
    newest = None
    for arrival in timeline:
        pairs.append((arrival.arrival, newest))
        newest = latest_watermark([newest, arrival.max_event_time])
    return pairs


def _measure_columns(lag: Column) -> list[Column]:
    """Return the number of lags, the largest, the percentiles, and how many exceed each bound."""
    points = [percentile / 100 for percentile in _PERCENTILES]
    columns = [F.count(lag), F.max(lag), F.percentile_approx(lag, points, 100_000)]
    columns += [F.count_if(lag > bound) for bound in _BOUNDS]
    return columns
