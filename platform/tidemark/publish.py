"""Publishing: what a commit of the state changed, written to the tables that users read.

The rows to publish are a function of the commit alone: of its marker and of the state as that
commit left it. Each table takes them under the commit's number, so publishing again after a crash
does nothing that was done before.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark import late
from tidemark.instant import INFINITY
from tidemark.pane import by_window, finished
from tidemark.state import Marker, State, within
from tidemark.transform import WindowedTransform
from tidemark.warehouse import Warehouse


def publish(
    warehouse: Warehouse, transform: WindowedTransform, marker: Marker, *, with_late: bool
) -> int:
    """Write the windows that `marker`'s commit fired, and its late events where it has any.

    Returns:
        How many rows were published; 0 for what had been published before.
    """
    write = _replace_windows if marker.mode == "backfill" else _add_windows
    windows = write(warehouse, transform, marker)
    if with_late:
        late.write_events(warehouse, transform, marker)
        late.write_loss(warehouse, transform, marker)
    return windows


def _replace_windows(warehouse: Warehouse, transform: WindowedTransform, marker: Marker) -> int:
    where = within(marker.start, marker.end)
    stored = State(warehouse, transform).read().where(where)
    rows = finished(stored, transform, F.lit(marker.at.watermark).cast("bigint"))
    rows = _stamped(rows, transform, marker)
    _create(warehouse, transform, rows)
    done = warehouse.replace(rows, transform.table, where, transform.table, marker.seq)
    return done["rows"] if done else 0


def _add_windows(warehouse: Warehouse, transform: WindowedTransform, marker: Marker) -> int:
    before, at = marker.before, marker.after.at
    lateness = transform.allowed_lateness
    stored = State(warehouse, transform).read()
    reach = "TRUE"
    if before.at.watermark is not None:
        # No window that ended earlier can have admitted an event of these arrivals.
        bound = f"window_end > timestamp_micros({before.at.watermark - lateness})"
        stored, reach = stored.where(bound), f"t.{bound}"
    if before.covers:
        stored = stored.where(before.pick(F.col("window_start"), "arrival") < at.arrival)
    now = F.lit(at.watermark).cast("bigint")
    rows = finished(stored, transform, now, F.max("seq").alias("newest"))
    then = F.coalesce(before.pick(F.col("window_start"), "watermark"), F.lit(-INFINITY))
    end = F.unix_micros("window_end")
    closed = (end > then) & (end <= now)
    turned_final = F.col("final") & (end + lateness > then)
    changed = rows.where(closed | turned_final | (F.col("newest") == marker.seq))
    rows = _stamped(changed, transform, marker)
    _create(warehouse, transform, rows)
    if lateness == 0 or marker.seq == 0:
        # Every window fires for the first time here: an append takes a third of a merge's time.
        done = warehouse.append(rows, transform.table, transform.table, marker.seq)
        return done["rows"] if done else 0
    on, app = by_window(transform), transform.table
    return warehouse.merge(rows, transform.table, on, reach, app, marker.seq) or 0


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
