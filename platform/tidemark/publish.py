"""Publishing: what a commit of the state changed, written to the tables that users read.

The rows to publish are a function of the commit alone: of its marker and of the state as that
commit left it. Each table takes them under the commit's number, so publishing again after a crash
does nothing that was done before.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark import late
from tidemark.instant import INFINITY
from tidemark.pane import finished
from tidemark.state import Marker, State, within
from tidemark.transform import WindowedTransform
from tidemark.warehouse import Warehouse

def publish(
    warehouse: Warehouse, transform: WindowedTransform, marker: Marker, *, with_late: bool
) -> None:
    """Write the windows that `marker`'s commit fired, and its late events where it has any."""
    if marker.mode == "backfill":
        _replace_windows(warehouse, transform, marker)
    else:
        _add_windows(warehouse, transform, marker)
    if with_late:
        late.write_events(warehouse, transform, marker)
        late.write_loss(warehouse, transform, marker)


def _replace_windows(warehouse: Warehouse, transform: WindowedTransform, marker: Marker) -> None:
    where = within(marker.start, marker.end)
    stored = State(warehouse, transform).read().where(where)
    rows = finished(stored, transform, F.lit(marker.at.watermark).cast("bigint"))
    rows = _stamped(rows, transform, marker)
    _create(warehouse, transform, rows)
    warehouse.replace(rows, transform.table, where, transform.table, marker.seq)


def _add_windows(warehouse: Warehouse, transform: WindowedTransform, marker: Marker) -> None:
    before, at = marker.before, marker.after.at
    lateness = transform.allowed_lateness
    stored = State(warehouse, transform).read()
    reach = "TRUE"
    if before.at.watermark is not None:
        # No window that ended earlier can have admitted an event of these arrivals.
        reach = f"window_end > timestamp_micros({before.at.watermark - lateness})"
        stored = stored.where(reach)
    if before.covers:
        stored = stored.where(before.pick(F.col("window_start"), "arrival") < at.arrival)
    now = F.lit(at.watermark).cast("bigint")
    rows = finished(
        stored, transform, now, F.min("seq").alias("oldest"), F.max("seq").alias("newest")
    )
    then = F.coalesce(before.pick(F.col("window_start"), "watermark"), F.lit(-INFINITY))
    end = F.unix_micros("window_end")
    fresh = ((end > then) & (end <= now)) | (F.col("oldest") == marker.seq)
    turned_final = F.col("final") & (end + lateness > then)
    changed = rows.withColumn("fresh", F.coalesce(fresh, F.lit(False))).where(
        F.col("fresh") | (F.col("newest") == marker.seq) | turned_final
    )
    out = _stamped(changed, transform, marker)
    _create(warehouse, transform, out)
    if lateness == 0:
        warehouse.append(out, transform.table, transform.table, marker.seq)
        return
    changed = changed.persist()
    try:
        out = _stamped(changed, transform, marker)
        if changed.where("NOT fresh").isEmpty():
            warehouse.append(out, transform.table, transform.table, marker.seq)
        else:
            on = ["window_start", "window_end", *transform.keys]
            within_reach = f"t.{reach}" if reach != "TRUE" else reach
            warehouse.merge(out, transform.table, on, within_reach, transform.table, marker.seq)
    finally:
        changed.unpersist()


def _stamped(rows: DataFrame, transform: WindowedTransform, marker: Marker) -> DataFrame:
    return rows.select(
        *("window_start", "window_end", *transform.keys, *transform.aggregates),
        *("events", "late_events", F.col("revision").cast("int"), "timing", "final"),
        "last_arrival",
        F.lit(marker.at.arrival).cast("bigint").alias("as_of"),
        F.lit(marker.seq).cast("bigint").alias("seq"),
    )


def _create(warehouse: Warehouse, transform: WindowedTransform, rows: DataFrame) -> None:
    warehouse.create(transform.table, rows.schema, transform.description)
