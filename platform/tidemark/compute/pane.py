"""Panes: from events to partials, from partials to the rows of windows.

Each step is a function from DataFrame to DataFrame, used alike by a run that stores partials and
by a bounded computation that does not: `judged` gives each event its windows and verdicts,
`partials` adds them up by window, keys and slot, `finished` merges the slots that have fired.
"""

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.compute import plan_check as rowwise
from tidemark.compute import slices, slot
from tidemark.compute.lifecycle import lifecycle
from tidemark.compute.prepare import prepared
from tidemark.compute.scope import Scope
from tidemark.compute.slot import AsOf
from tidemark.define import uniqueness
from tidemark.define import verdict as judge
from tidemark.define.definition import Definition
from tidemark.define.transform import WindowedTransform
from tidemark.store.conditions import Within, started
from tidemark.store.coverage import Coverage
from tidemark.store.log import Log
from tidemark.store.marker import Marker
from tidemark.store.ranges import Ranges


def counted(
    log: Log, transform: WindowedTransform, marker: Marker, before: DataFrame | None = None
) -> DataFrame:
    """The partials that a commit of the state adds; their columns are those of `partials`.

    Args:
        before: the partials of earlier runs, for triggers that count.
    """
    return _partials(log, transform, Scope.of(marker), before)


def recounted(
    log: Log,
    transform: WindowedTransform,
    coverage: Coverage,
    ranges: Ranges = (),
    *,
    complete: bool = False,
) -> DataFrame:
    """The partials of each window, of all arrivals through which it is complete.

    Args:
        ranges, complete: as `judged` takes them.
    """
    return _partials(log, transform, Scope.known(coverage, ranges, complete=complete))


def counted_in(log: Log, transform: WindowedTransform, scope: Scope) -> DataFrame:
    """The partials of the events and windows in a scope."""
    return _partials(log, transform, scope)


def taken(log: Log, transform: WindowedTransform, marker: Marker) -> DataFrame:
    """The log's rows that a commit of the state reads."""
    scope = Scope.of(marker)
    return log.read(scope.after, scope.through, *_happening(transform, scope))


def taken_prepared(log: Log, transform: WindowedTransform, marker: Marker) -> DataFrame:
    """The same, as the transform's function gives them."""
    rows = _prepared(log, transform, Scope.of(marker))
    return rows.drop(uniqueness.MARK, "happened_at")


def covered(log: Log, transform: WindowedTransform, marker: Marker) -> DataFrame:
    """The judged events that a commit of the state counts, of windows and arrivals in its range."""
    return _events(log, transform, Scope.of(marker))


def judged(
    log: Log,
    transform: WindowedTransform,
    after: int,
    through: int,
    ranges: Ranges = (),
    *,
    complete: bool = False,
) -> DataFrame:
    """The rows of the arrivals (after, through], prepared, one for each of their windows that
    starts in one of the ranges.

    Adds `window_start` and `window_end`; `verdict`; `admitted`, whether it counts (with
    `complete`, too-late events count as well); `happened_at`, the event time.
    """
    return _events(log, transform, Scope(after, through, ranges, complete))


def partials(
    events: DataFrame, transform: WindowedTransform, log: Log, before: DataFrame | None = None
) -> DataFrame:
    """Judged events, added up by window, keys and slot.

    Columns: window_start, window_end, the keys, verdict, admitted, slot, events, last_arrival, and
    a partial by the name of each aggregate; for sessions also what `fragments` tells of them.

    Args:
        before: the partials of earlier runs, for triggers that count.
    """
    columns = [a.partial().alias(name) for name, a in transform.aggregates.items()]
    columns = [F.count("*").alias("events"), F.max("arrival").alias("last_arrival"), *columns]
    return lifecycle(transform).partials(events, transform, log, columns, before)


def _events(log: Log, transform: WindowedTransform, scope: Scope) -> DataFrame:
    again = F.col(uniqueness.MARK) if transform.unique else None
    rows = _judged(_prepared(log, transform, scope), transform, scope, again)
    return rows.drop(uniqueness.MARK) if transform.unique else rows


def _partials(
    log: Log, transform: WindowedTransform, scope: Scope, before: DataFrame | None = None
) -> DataFrame:
    window, of_these = slices.slicing(transform), log.spanning(scope.after, scope.through)
    if window is None:
        return partials(_events(log, transform, scope), transform, of_these, before)
    rows = _prepared(log, transform, scope)
    parts = slices.sliced(rows, transform, window, by_arrival=scope.arrivals is not None)
    again = F.col(slices.AGAIN) if transform.unique else None
    events = _judged(parts, transform, scope, again)
    placed = slot.slotted(events, transform, of_these, None)
    return placed.groupBy(*transform.by_window, "verdict", "admitted", "slot").agg(
        *slices.merged(parts, transform)
    )


def _prepared(log: Log, transform: WindowedTransform, scope: Scope) -> DataFrame:
    """The rows that may be in one of the scope's windows, with `happened_at`, the event time as far
    as it is believed."""
    held = _held(transform, scope)
    rows = prepared(log, transform, scope.after, scope.through, *_happening(transform, scope))
    if len(held) > 1:
        rows = rows.where(Within(transform.source.event_time, held).sql())
    happened = transform.source.happened(F.unix_micros("arrived_at"))
    return rows.select("*", happened.alias("happened_at"))


def _held(transform: WindowedTransform, scope: Scope) -> Ranges:
    """When those events happen that may be in one of the scope's windows; none is no bound."""
    reach = transform.window.assigned_reach
    return tuple((start, end + reach) for start, end in scope.ranges)


def _happening(transform: WindowedTransform, scope: Scope) -> tuple[int | None, int | None]:
    """From when to when they do; None is no bound."""
    held = _held(transform, scope)
    return min((s for s, _ in held), default=None), max((e for _, e in held), default=None)


def _judged(
    rows: DataFrame, transform: WindowedTransform, scope: Scope, again: Column | None
) -> DataFrame:
    """Events, or slices of them, one for each of their windows in the scope, as `judged` says.

    Args:
        again: BOOLEAN, whether they are duplicates.
    """
    end, watermark = F.col("window_end"), F.col("watermark")
    verdict = judge.verdict(end, watermark, transform.allowed_lateness, again)
    admitted = F.col("verdict") <= (judge.TOO_LATE if scope.complete else judge.LATE)
    events = (
        transform.window.assign(rows, "happened_at")
        .where(started(scope.ranges).sql())
        .select("*", verdict.alias("verdict"))
        .select("*", admitted.alias("admitted"))
    )
    return events if scope.arrivals is None else events.where(scope.arrivals)


def finished(
    stored: DataFrame,
    transform: Definition,
    log: Log,
    at: AsOf,
    *others: Column,
    all_plain: bool = False,
) -> DataFrame:
    """The rows of the windows that have fired.

    Args:
        stored: partials, possibly several of a slot.
        at: as of when.
        others: further aggregate expressions over the partials that count.
        all_plain: whether it is known that each window fires just once, as a whole.
    """
    kind = lifecycle(transform)
    return kind.finished(stored, transform, log, at, *others, all_plain=all_plain)


def as_of(coverage: Coverage) -> AsOf:
    """The moment through which each window is complete."""
    return AsOf(coverage.pick("arrival"), coverage.pick("watermark"))


def check(log: Log, transform: WindowedTransform) -> None:
    """Let the engine analyse the definition on the log's columns, without running anything.

    Raises:
        DefinitionError: a column or function that is not there, a key or aggregate of a type that
            cannot be grouped or added up, a function that does not work row by row.
    """
    start = AsOf(F.lit(0).cast("bigint"), F.lit(0).cast("bigint"))
    try:
        rowwise.check(log, transform)
        added_up = _partials(log, transform, Scope(0, 0))
        _ = finished(added_up, transform, log, start).schema
    except AnalysisException as error:
        reason = str(error).strip().splitlines()[0]
        raise DefinitionError(
            f"Asset '{transform.name}' can't run on source '{transform.source.name}': {reason}"
        ) from None
