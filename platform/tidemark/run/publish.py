"""Publishing: what a commit of the state changed, written to the tables that users read.

The rows to publish are a function of the commit alone: of its marker and of the state as that
commit left it. Each table takes them under the commit's number, so publishing again after a crash
does nothing that was done before.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute import slot
from tidemark.compute.pane import as_of, finished
from tidemark.compute.pane_table import panes
from tidemark.compute.rollups import stored
from tidemark.compute.session import changes
from tidemark.define.rollup import RollUp
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session
from tidemark.quality.gate import gate
from tidemark.run import late
from tidemark.store.log import Log
from tidemark.store.marker import Marker
from tidemark.store.ranges import within
from tidemark.store.state import put, settled, unsettled
from tidemark.store.warehouse import Warehouse


class Published(NamedTuple):
    """How many rows a commit published; how many it withheld, and how many it warns of."""

    windows: int
    quarantined: int = 0
    warned: int = 0


def publish(
    warehouse: Warehouse, transform: WindowedTransform, marker: Marker, *, with_late: bool
) -> Published:
    """Write the windows that `marker`'s commit fired, their panes, and its late events.

    Args:
        with_late: whether the commit has late events.

    Returns:
        What was published; no rows where they had been published before.
    """
    whole = marker.replaces
    others: list[Callable[[Warehouse, WindowedTransform, Marker], None]] = []
    if transform.accumulation is not None:
        others.append(_write_panes)
    own = not isinstance(transform, RollUp)
    if own and (with_late or (whole and warehouse.exists(transform.late_table))):
        others.append(late.write_loss)
        if marker.mode != "correction":
            # What came too late stays on record, also when a correction counts it.
            others.append(late.write_events)
    # Tables of their own: what waits for the engine here leaves it free for the others.
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(write, warehouse, transform, marker) for write in others]
        windows = (_replace_windows if whole else _add_windows)(warehouse, transform, marker)
        for done in work:
            done.result()
    return windows


def _replace_windows(
    warehouse: Warehouse, transform: WindowedTransform, marker: Marker
) -> Published:
    where, log = within(marker.ranges), Log(warehouse, transform.source)
    partials, _ = _reached(warehouse, transform, marker)
    rows = _stamped(finished(partials, transform, log, as_of(marker.after)), transform, marker)
    _create(warehouse, transform, rows)
    with gate(warehouse, transform, marker, rows) as passed:
        done = warehouse.replace(passed.rows, transform.table, where, transform.table, marker.seq)
    windows = done["rows"] - passed.kept if done else 0
    return Published(windows, passed.quarantined, passed.warned)


def _add_windows(warehouse: Warehouse, transform: WindowedTransform, marker: Marker) -> Published:
    table, log = transform.table, Log(warehouse, transform.source)
    partials, reach = _reached(warehouse, transform, marker)
    now, then = as_of(marker.after), as_of(marker.before)
    if isinstance(transform.window, Session):
        changed = changes(partials, transform, log, now, then)
    else:
        rows = finished(partials, transform, log, now, F.max("fired").alias("fired"))
        again = F.coalesce(F.col("fired") > then.arrival, F.lit(False))
        moved = slot.closed(now, then) | slot.became_final(transform, now, then)
        changed = rows.where(again | moved).withColumn("gone", F.lit(False))
    rows = _stamped(changed, transform, marker, "gone")
    _create(warehouse, transform, rows.drop("gone"))
    with gate(warehouse, transform, marker, rows) as passed:
        if marker.seq == 0 or _fires_once(transform):
            # Every window fires for the first time here: an append takes a third of a merge's time.
            new = passed.rows.where("NOT gone").drop("gone")
            done = warehouse.append(new, table, table, marker.seq)
            windows = done["rows"] if done else 0
        else:
            by = transform.by_window
            windows = warehouse.merge(passed.rows, table, by, reach, table, marker.seq) or 0
    return Published(windows, passed.quarantined, passed.warned)


def _fires_once(transform: WindowedTransform) -> bool:
    # What a roll-up's run published before it was killed is in the next one again.
    merges = isinstance(transform.window, Session) or isinstance(transform, RollUp)
    return not merges and transform.trigger.early is None and transform.allowed_lateness == 0


def _write_panes(warehouse: Warehouse, transform: WindowedTransform, marker: Marker) -> None:
    log = Log(warehouse, transform.source)
    partials, _ = _reached(warehouse, transform, marker)
    then = None if marker.replaces else as_of(marker.before)
    rows = panes(partials, transform, log, as_of(marker.after), then)
    rows = rows.withColumn("seq", F.lit(marker.seq).cast("bigint"))
    put(warehouse, rows, transform.panes_table, f"Every firing of {transform.name}", marker)


def _reached(
    warehouse: Warehouse, transform: WindowedTransform, marker: Marker
) -> tuple[DataFrame, str]:
    """The partials of all windows that a commit can have changed, and a condition on these."""
    if marker.replaces:
        return stored(warehouse, transform, marker.after, marker.ranges), "TRUE"
    before, reach = marker.before, "TRUE"
    rows = stored(warehouse, transform, marker.after, unsettled(transform, before))
    if (end := settled(transform, before)) is not None:
        bound = f"window_end > timestamp_micros({end})"
        rows, reach = rows.where(bound), f"t.{bound}"
    if before.covers:
        rows = rows.where(before.pick("arrival") < marker.after.at.arrival)
    return rows, reach


def _stamped(
    rows: DataFrame, transform: WindowedTransform, marker: Marker, *others: str
) -> DataFrame:
    return rows.select(
        *("window_start", "window_end", *transform.keys, *transform.aggregates),
        *("events", "late_events", F.col("revision").cast("int"), "timing", "final"),
        "last_arrival",
        marker.after.pick("arrival").alias("as_of"),
        F.lit(marker.seq).cast("bigint").alias("seq"),
        F.lit(None).cast("string").alias("quality"),
        *others,
    )


def _create(warehouse: Warehouse, transform: WindowedTransform, rows: DataFrame) -> None:
    warehouse.create(transform.table, rows, transform.description, feed=True)
