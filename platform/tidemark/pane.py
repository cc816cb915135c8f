"""Panes: from events to partials, from partials to the rows of windows.

Each step is a function from DataFrame to DataFrame, used alike by a run that stores partials and
by a bounded computation that does not: `judged` gives each event its windows and verdicts,
`partials` adds them up by window, keys and slot, `finished` merges the slots that have fired.
"""

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark import judge, trigger
from tidemark.errors import DefinitionError
from tidemark.instant import INFINITY
from tidemark.log import Log
from tidemark.state import Marker, within
from tidemark.transform import WindowedTransform


def covered(log: Log, transform: WindowedTransform, marker: Marker) -> DataFrame:
    """The judged events that a commit of the state counts, of windows and arrivals in its range."""
    at = marker.at.arrival
    if marker.mode == "incremental":
        before = marker.before
        events = judged(log.read(before.at.arrival, at), transform)
        if not before.covers:
            return events
        return events.where(F.col("arrival") > before.pick(F.col("window_start"), "arrival"))
    rows = log.read(-1, at)
    if marker.start is not None and marker.end is not None:
        time = F.unix_micros(transform.source.event_time)
        rows = rows.where((time >= marker.start) & (time < marker.end + transform.window.reach))
    return judged(rows, transform).where(within(marker.start, marker.end))


def judged(rows: DataFrame, transform: WindowedTransform) -> DataFrame:
    """Log rows, prepared, one for each of their windows, with `window_start`, `window_end` and
    `verdict`."""
    prepared = transform.prepare(rows)
    assigned = transform.window.assign(prepared, transform.source.event_time)
    verdict = judge.verdict(F.col("window_end"), F.col("watermark"), transform.allowed_lateness)
    return assigned.withColumn("verdict", verdict)


def partials(
    events: DataFrame, transform: WindowedTransform, *, complete: bool = False
) -> DataFrame:
    """Judged events, added up by window, keys and slot.

    Columns: window_start, window_end, the keys, verdict, slot, admitted (whether it counts: with
    `complete`, too-late events count as well), events, last_arrival, and a partial by the name of
    each aggregate.
    """
    admitted = F.col("verdict") <= (judge.TOO_LATE if complete else judge.LATE)
    columns = [a.partial().alias(name) for name, a in transform.aggregates.items()]
    slotted = events.withColumn("slot", trigger.slot(F.col("verdict"), F.col("arrival")))
    return (
        slotted.groupBy(*by_window(transform), "verdict", "slot")
        .agg(F.count("*").alias("events"), F.max("arrival").alias("last_arrival"), *columns)
        .withColumn("admitted", admitted)
    )


def finished(
    stored: DataFrame, transform: WindowedTransform, watermark: Column, *others: Column
) -> DataFrame:
    """The rows of windows that have fired when the source's watermark is `watermark`.

    Args:
        stored: partials, possibly several of a slot.
        watermark: BIGINT microseconds, null for minus infinity; may differ by window.
        others: further aggregate expressions over the partials that count.
    """
    end = F.unix_micros("window_end")
    closed = F.coalesce(end <= watermark, F.lit(False))
    counted = stored.where(
        F.col("window_start").isNotNull()
        & F.col("admitted")
        & trigger.fired(F.col("verdict"), closed)
    )
    values = [a.merge(F.col(name)).alias(name) for name, a in transform.aggregates.items()]
    late = F.when(F.col("verdict") != judge.ON_TIME, F.col("events")).otherwise(0)
    merged = counted.groupBy(*by_window(transform)).agg(
        *values,
        F.sum("events").alias("events"),
        F.sum(late).alias("late_events"),
        (F.size(F.collect_set("slot")) - 1).alias("revision"),
        F.when(F.max("slot") == 0, trigger.ON_TIME).otherwise(trigger.LATE).alias("timing"),
        F.max("last_arrival").alias("last_arrival"),
        *others,
    )
    final = F.least(end + transform.allowed_lateness, F.lit(INFINITY)) <= watermark
    return merged.withColumns(
        {name: a.finish(F.col(name)) for name, a in transform.aggregates.items()}
        | {"final": F.coalesce(final, F.lit(False))}
    )


def check(rows: DataFrame, transform: WindowedTransform) -> None:
    """Let the engine analyse the definition on the log's columns, without running anything.

    Raises:
        DefinitionError: a column or function that is not there, a key or aggregate of a type that
            cannot be grouped or added up.
    """
    try:
        _ = finished(partials(judged(rows, transform), transform), transform, F.lit(0)).schema
    except AnalysisException as error:
        reason = str(error).strip().splitlines()[0]
        raise DefinitionError(
            f"Asset '{transform.name}' can't run on source '{transform.source.name}': {reason}"
        ) from None


def by_window(transform: WindowedTransform) -> list[str]:
    """The columns that tell one published row from another."""
    return ["window_start", "window_end", *transform.keys]
