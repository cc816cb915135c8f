"""Read the data for the charts from the warehouse.

The chart of arrivals shows at most about `_SHOWN_EVENTS` on-time events. They are selected by a
hash of their correlation id, so that the same event log always gives the same chart. All late
events are shown.
"""

from collections.abc import Sequence

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import parse_duration
from tidemark.charts.picture import VERDICTS
from tidemark.compute.windowing import classify_scope
from tidemark.define import classification
from tidemark.define.helper_columns import VERDICT
from tidemark.define.transform import WindowedTransform
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

_SHOWN_EVENTS = 5000
_DAY = parse_duration("1 day")


def read_events(
    warehouse: Warehouse, transform: WindowedTransform, timeline: Sequence[Arrival]
) -> pd.DataFrame:
    """Return the events of the arrivals in `timeline` that `picture.arrivals_chart` draws.

    These are all late and too-late events, and some of the on-time events. Duplicates and events
    without an event time are left out. An event that belongs to several windows has its best
    verdict: on time is better than late, and late is better than too late.
    """
    if not timeline:
        return pd.DataFrame(columns=["arrival", "position", "event_time", "verdict"])
    log = Log(warehouse, transform.source)
    first = timeline[0].arrival
    last = timeline[-1].arrival
    time = F.unix_micros(F.col(f"`{transform.source.event_time}`"))
    best = (
        classify_scope(log, transform, Scope(first - 1, last))
        .where(F.col(VERDICT) < classification.NO_EVENT_TIME)
        .groupBy("arrival", "position", "correlation_id", time.alias("event_time"))
        .agg(F.min(VERDICT).alias("verdict"))
    )
    share = sum(a.rows for a in timeline) // _SHOWN_EVENTS + 1
    shown = F.pmod(F.xxhash64("correlation_id"), F.lit(share)) == 0
    table = best.where(shown | (F.col("verdict") != classification.ON_TIME)).drop("correlation_id")
    frame = table.orderBy("arrival", "position").toPandas()
    words = [VERDICTS[v] for v in frame["verdict"]]
    return frame.assign(verdict=words)


def read_days(warehouse: Warehouse, transform: WindowedTransform) -> pd.DataFrame:
    """Return the number of events by lateness and day of their window, for `late_loss_chart`."""
    counted = _by_day(
        warehouse.read_frame(transform.published_table),
        F.sum("events").alias("events"),
        F.sum("late_events").alias("late"),
    )
    if not warehouse.has_table(transform.late_table):
        return counted.toPandas().assign(too_late=0)
    missed = warehouse.read_frame(transform.late_table).where("reason = 'too_late'")
    lost = _by_day(missed, F.count("*").alias("too_late"))
    both = counted.join(lost, "day", "full").na.fill(0)
    return both.orderBy("day").toPandas()


def _by_day(rows: DataFrame, *counts: Column) -> DataFrame:
    start = F.unix_micros("window_start")
    return rows.groupBy((start - F.pmod(start, F.lit(_DAY))).alias("day")).agg(*counts)
