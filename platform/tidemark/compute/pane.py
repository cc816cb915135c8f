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
from tidemark.compute import session, slot
from tidemark.compute.prepare import prepared
from tidemark.compute.rows import completed, merged
from tidemark.compute.slot import AsOf
from tidemark.define import uniqueness
from tidemark.define import verdict as judge
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session
from tidemark.store.coverage import Coverage
from tidemark.store.log import Log
from tidemark.store.marker import Marker
from tidemark.store.ranges import Ranges, within


def covered(log: Log, transform: WindowedTransform, marker: Marker) -> DataFrame:
    """The judged events that a commit of the state counts, of windows and arrivals in its range."""
    if marker.replaces:
        complete = marker.answer == "complete"
        return known(log, transform, marker.after, marker.ranges, complete=complete)
    before = marker.before
    events = judged(log, transform, before.at.arrival, marker.at.arrival)
    if not before.covers:
        return events
    return events.where(F.col("arrival") > before.pick("arrival"))


def known(
    log: Log,
    transform: WindowedTransform,
    coverage: Coverage,
    ranges: Ranges = (),
    *,
    complete: bool = False,
) -> DataFrame:
    """The judged events of each window, of all arrivals through which it is complete.

    Args:
        ranges, complete: as `judged` takes them.
    """
    events = judged(log, transform, -1, coverage.through, ranges, complete=complete)
    if not coverage.covers:
        return events
    return events.where(F.col("arrival") <= coverage.pick("arrival"))


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
    source, window = transform.source, transform.window
    held = tuple((start, end + window.reach) for start, end in ranges)
    rows = prepared(
        log,
        transform,
        after,
        through,
        min((start for start, _ in held), default=None),
        max((end for _, end in held), default=None),
    )
    if len(held) > 1:
        rows = rows.where(within(held, f"`{source.event_time}`"))
    assigned = window.assign(rows, source.event_time)
    again = F.col(uniqueness.MARK) if transform.unique else None
    verdict = judge.verdict(
        F.col("window_end"), F.col("watermark"), transform.allowed_lateness, again
    )
    admitted = F.col("verdict") <= (judge.TOO_LATE if complete else judge.LATE)
    return (
        assigned.where(within(ranges))
        .withColumns({"verdict": verdict, "happened_at": F.col(source.event_time)})
        .withColumn("admitted", admitted)
        .drop(uniqueness.MARK)
    )


def partials(
    events: DataFrame, transform: WindowedTransform, log: Log, before: DataFrame | None = None
) -> DataFrame:
    """Judged events, added up by window, keys and slot.

    Columns: window_start, window_end, the keys, verdict, admitted, slot, events, last_arrival, and
    a partial by the name of each aggregate; for sessions also what `session` needs.

    Args:
        before: the partials of earlier runs, for triggers that count.
    """
    columns = [a.partial().alias(name) for name, a in transform.aggregates.items()]
    if isinstance(transform.window, Session):
        events, slots, facts = session.fragments(events, transform, log)
    else:
        events, slots, facts = slot.slotted(events, transform, log, before), ["slot"], []
    return events.groupBy(*transform.by_window, "verdict", "admitted", *slots).agg(
        F.count("*").alias("events"), F.max("arrival").alias("last_arrival"), *facts, *columns
    )


def finished(
    stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf, *others: Column
) -> DataFrame:
    """The rows of the windows that have fired.

    Args:
        stored: partials, possibly several of a slot.
        at: as of when.
        others: further aggregate expressions over the partials that count.
    """
    if isinstance(transform.window, Session):
        return session.finished(stored, transform, log, at, *others)
    fired = slot.fired(stored, transform, log, at)
    phase = F.col("phase")
    windows = fired.groupBy(*transform.by_window).agg(
        *merged(transform),
        F.count_distinct("phase", "firing").alias("_firings"),
        F.max(phase).alias("phase"),
        (F.min(phase) <= slot.ON_TIME).alias("_punctual"),
        F.max(phase == slot.ON_TIME).alias("_closing"),
        *others,
    )
    # The end of a window that had on-time events fires, also where none of them waited for it.
    closed = F.coalesce(F.unix_micros("window_end") <= at.watermark, F.lit(False))
    repeats = F.col("_punctual") & ~F.col("_closing") & closed
    named = windows.withColumns(
        {
            "revision": F.col("_firings") - F.when(repeats, 0).otherwise(1),
            "phase": F.when(repeats, F.greatest(phase, F.lit(slot.ON_TIME))).otherwise(phase),
        }
    )
    return completed(named.drop("_firings", "_punctual", "_closing"), transform, at)


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
        counted = partials(judged(log, transform, 0, 0), transform, log)
        _ = finished(counted, transform, log, start).schema
    except AnalysisException as error:
        reason = str(error).strip().splitlines()[0]
        raise DefinitionError(
            f"Asset '{transform.name}' can't run on source '{transform.source.name}': {reason}"
        ) from None
