"""What came too late: the events, and what the windows lack without them.

Nothing is dropped in silence. An event that is too late for a window goes to the asset's late
table, with the window that it missed and by how much, and an event without an event time as well.
The late loss sets, for every window that lacks such events, the answer as streamed beside the
complete one: it tells what the allowed lateness costs.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.compute.pane import as_of, covered, finished
from tidemark.define import verdict as judge
from tidemark.define.definition import COMPLETE
from tidemark.define.transform import WindowedTransform
from tidemark.engine.varying import varying
from tidemark.store.log import Log
from tidemark.store.marker import Marker
from tidemark.store.rows import delta_schema, spark_schema
from tidemark.store.warehouse import Warehouse


def late_events(log: Log, transform: WindowedTransform, marker: Marker) -> DataFrame:
    """The events of a commit that came too late for a window, or that no window can hold."""
    events = covered(log, transform, marker)
    verdict = F.col("verdict")
    reason = (
        F.when(F.col("unparsed").isNotNull(), "unparsable")
        .when(verdict != judge.NO_EVENT_TIME, "too_late")
        .when(~transform.source.possible, "impossible_time")
        .when(F.col("happened_at").isNotNull(), "window_out_of_range")
        .when(F.col(f"`{transform.source.event_time}`").isNotNull(), "dated_ahead")
        .otherwise("no_event_time")
    )
    lag = (F.unix_micros("watermark") - F.unix_micros("happened_at")) / 1e6
    seq = varying(marker.seq)
    return (
        events.where(verdict.isin(judge.TOO_LATE, judge.NO_EVENT_TIME))
        .withColumns({"lag_seconds": lag, "reason": reason, "seq": seq})
        .drop("verdict", "admitted", "happened_at")
    )


def as_kept(warehouse: Warehouse, transform: WindowedTransform, events: DataFrame) -> DataFrame:
    """Late events with nulls in those columns of the late table that they have no more: what is in
    it stays, whatever its source and its function have gained or lost since."""
    there = set(events.columns)
    lacking = [f for f in _kept(warehouse, transform).fields if f.name not in there]
    return events.select("*", *(F.lit(None).cast(f.dataType).alias(f.name) for f in lacking))


def misfits(warehouse: Warehouse, transform: WindowedTransform, log: Log) -> list[str]:
    """The columns of which late events have another type than their table, in plain words."""
    kept = {f.name: f.dataType.simpleString() for f in _kept(warehouse, transform).fields}
    if not kept:
        return []
    now = late_events(log, transform, Marker()).schema.fields
    types = [(f.name, kept.get(f.name), f.dataType.simpleString()) for f in now]
    return [f"{n} ({then} → {is_})" for n, then, is_ in types if then not in (None, is_)]


def _kept(warehouse: Warehouse, transform: WindowedTransform) -> StructType:
    """The columns of the late table; none where there is no table."""
    if not warehouse.exists(transform.late_table):
        return StructType()
    return spark_schema(delta_schema(warehouse.schema(transform.late_table)))


def late_loss(
    stored: DataFrame, transform: WindowedTransform, log: Log, marker: Marker
) -> DataFrame:
    """Windows that lack too-late events: how many were `lost`, and each aggregate `x` as streamed
    (null where no such window was) beside `x_complete`."""
    on = transform.by_window
    window, values = F.struct(*on), list(transform.aggregates)
    at = as_of(marker.after)
    gone = judge.missed()
    if not marker.replaces:
        gone = gone & (F.col("seq") == varying(marker.seq))
    # Which fragments are in a session with a too-late event shows when they are merged: here just
    # those of its keys are kept.
    by = list(transform.keys) if transform.window.merges else on
    if by:
        lacking = stored.where(gone).select(F.struct(*by).alias("_lacking")).distinct()
        stored = stored.join(lacking, F.struct(*by).eqNullSafe(F.col("_lacking")), "left_semi")
    all_in = stored.withColumns(
        {
            "admitted": F.col("verdict") <= judge.TOO_LATE,
            "_missed": F.when(gone, F.col("events")),
        }
    )
    complete = finished(all_in, transform, log, at, F.sum("_missed").alias("lost"))
    streamed = finished(stored, transform, log, at).select(window.alias("_some"), *values)
    there = complete.where("lost > 0").select(
        *on, "lost", window.alias("_all"), *(F.col(v).alias(f"{v}{COMPLETE}") for v in values)
    )
    return (
        there.join(streamed, F.col("_all").eqNullSafe(F.col("_some")), "left")
        .drop("_all", "_some")
        .withColumn("seq", varying(marker.seq))
    )
