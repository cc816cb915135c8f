"""Measure how much a source's events are out of order, to choose an out-of-orderness bound.

The lag of an event is how far its event time is behind the newest event time of all earlier
arrivals. Events of the same arrival do not count, because the lateness of all events of an arrival
is classified by the watermark before the arrival. An event that is not behind has a lag of zero.

With `BoundedOutOfOrderness(bound)`, the events whose lag exceeds the bound are exactly the events
that arrive behind the watermark. A transform without allowed lateness loses at most these events.
It can lose fewer events, because a window that ends after the watermark still accepts them. With
allowed lateness, windows accept more of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import duration, latest
from tidemark.define.helper_columns import helper
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

_PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)

_BOUNDS = tuple(
    duration(f"{count} {unit}s")
    for unit, counts in {
        "second": (0, 1, 2, 5, 10, 15, 20, 30),
        "minute": (1, 2, 3, 5, 10, 15, 20, 30, 45),
        "hour": (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18),
        "day": (1, 2, 3, 5, 7, 10, 14, 21, 30, 60, 90, 180, 365),
    }.items()
    for count in counts
)


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
class Lateness:
    """The lags observed in a source's event log, in microseconds.

    Args:
        events: the number of events with an event time.
        no_event_time: the number of events without an event time, which are not measured.
        percentiles: the lag by percentile; percentile 100 is the maximum.
        candidates: the bounds of a fixed list, such as 1 second or 5 minutes, each with its loss.
            They are in ascending order, up to the first that loses no event.
        target: the share of events that may arrive behind the watermark.
        recommended: the smallest bound of the list whose loss is within the target; None if even a
            bound of a year loses more.
    """

    source: str
    events: int
    no_event_time: int
    percentiles: dict[float, int]
    candidates: tuple[_Candidate, ...]
    target: float
    recommended: _Candidate | None


def measure_lags(warehouse: Warehouse, source: Source, target: float = 0.001) -> Lateness:
    """Measure the lags in a source's event log in one pass, and recommend a bound.

    Args:
        target: the share of events that may arrive behind the watermark.

    Raises:
        DataError: the event log has no events with an event time.
    """
    check_target(target)
    log, name = Log(warehouse, source), source.name
    timeline = log.timeline()
    if not any(a.max_event_time is not None for a in timeline):
        raise DataError(f"Source '{name}' has no events with an event time yet: ingest some first.")
    newest = warehouse.spark.createDataFrame(
        _list_newest_before(timeline), f"arrival BIGINT, {_NEWEST} BIGINT"
    )
    rows = log.read(-1, timeline[-1].arrival).join(F.broadcast(newest), "arrival")
    time = F.unix_micros(source.valid_event_time(F.unix_micros("arrived_at")))
    lag = F.when(time.isNotNull(), F.greatest(F.col(_NEWEST) - time, F.lit(0)))
    facts = rows.select(lag.alias("lag")).agg(*_measures(F.col("lag"))).collect()[0]
    rows_, events, greatest, points, *lost = facts
    candidates = [
        _Candidate(b, count, count / events) for b, count in zip(_BOUNDS, lost, strict=True)
    ]
    enough = next((i for i, c in enumerate(candidates) if c.lost == 0), len(candidates))
    return Lateness(
        source=name,
        events=events,
        no_event_time=rows_ - events,
        percentiles={**dict(zip(_PERCENTILES, points, strict=True)), 100.0: greatest},
        candidates=tuple(candidates[: enough + 1]),
        target=target,
        recommended=next((c for c in candidates if c.share <= target), None),
    )


def check_target(target: float) -> None:
    """Raise an error if the target is not a valid share of events."""
    if not 0 <= target < 1:
        raise DefinitionError(
            f"The target, a share of the events, must be at least 0 and less than 1 (got {target})."
        )


_NEWEST = helper("newest")


def _list_newest_before(timeline: Sequence[Arrival]) -> list[tuple[int, int | None]]:
    """Return pairs of an arrival and the newest event time of all arrivals before it."""
    newest = accumulate((None, *(a.max_event_time for a in timeline)), latest)
    return [(a.arrival, before) for a, before in zip(timeline, newest, strict=False)]


def _measures(lag: Column) -> list[Column]:
    points = [p / 100 for p in _PERCENTILES]
    return [
        F.count("*"),
        F.count(lag),
        F.max(lag),
        F.percentile_approx(lag, points, 100_000),
        *(F.count_if(lag > bound) for bound in _BOUNDS),
    ]
