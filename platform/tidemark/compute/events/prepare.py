"""Prepare the log's rows: mark duplicates, and call the function of an asset.

The function depends only on a row and on what was recorded with the row's arrival, never on other
rows of the run. The result is therefore the same however the arrivals are divided into runs.

An event is a duplicate if the log has another event with the same sender-assigned id at an earlier
(arrival, position), and the two events happened at most a horizon apart. Duplicates therefore
depend on the log alone, and a run has to look back no further than the horizon. Every earlier event
counts, even if it was too late or was itself a duplicate. An event without an id, or without a
plausible event time, is never a duplicate, and never makes another event a duplicate.
"""

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidemark.define.preparation import Preparation
from tidemark.define.transform import WindowedTransform
from tidemark.define.uniqueness import MARK, Deduplicate
from tidemark.store.event_log import lookup_tables
from tidemark.store.event_log.log import Log


def prepare_rows(
    log: Log,
    transform: WindowedTransform,
    after_arrival: int,
    last_arrival: int,
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """Return the result of the transform's function for the rows of some arrivals.

    Args:
        after_arrival, last_arrival: only rows with `after_arrival` < arrival <= `last_arrival`.
        start, end: only events that happened in [start, end), in microseconds; None means no bound.
    """
    if transform.deduplicate is None:
        rows = log.read_events(after_arrival, last_arrival, start, end)
    else:
        rows = mark_duplicates(log, transform.deduplicate, after_arrival, last_arrival, start, end)
    return call_function(log, transform.preparation, rows, after_arrival, last_arrival)


def call_function(
    log: Log, preparation: Preparation, rows: DataFrame, after_arrival: int, last_arrival: int
) -> DataFrame:
    """Return the function's result for rows with `after_arrival` < arrival <= `last_arrival`.

    The function gets its lookup tables in the versions that the arrivals recorded.
    """
    names = preparation.lookup_names
    warehouse = log.warehouse
    source = log.source
    if not names:
        return preparation.prepare_rows(rows)
    parts: list[DataFrame] = []
    for span in lookup_tables.recorded_versions(log, names, after_arrival, last_arrival):
        tables: dict[str, DataFrame] = {}
        for lookup in names:
            version = span.versions[lookup]
            tables[lookup] = lookup_tables.read_lookup_table(warehouse, source, lookup, version)
        arrival = F.col("arrival")
        span_rows = rows.where((arrival > span.after) & (arrival <= span.through))
        parts.append(preparation.prepare_rows(span_rows, tables))
    return reduce(DataFrame.unionByName, parts)


_ORDER = ["arrival", "position"]


def mark_duplicates(
    log: Log,
    deduplicate: Deduplicate,
    after_arrival: int,
    last_arrival: int,
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """Return the log's rows of some arrivals, with `MARK`, which is true for duplicates.

    Args:
        after_arrival, last_arrival: only rows with `after_arrival` < arrival <= `last_arrival`.
        start, end: only events that happened in [start, end), in microseconds; None means no bound.
    """
    time = log.source.valid_event_time(F.unix_micros("arrived_at"))
    ids = [F.col(f"`{c}`") for c in deduplicate.by]
    first_time = start
    if first_time is not None:
        first_time -= deduplicate.within
    end_time = end
    if end_time is not None:
        end_time += deduplicate.within
    rows = log.read_events(after_arrival, last_arrival, first_time, end_time)
    if after_arrival >= 0 and (span := log.read_event_time_range(after_arrival, last_arrival)):
        oldest, newest = span
        earlier = log.read_events(
            -1, after_arrival, oldest - deduplicate.within, newest + deduplicate.within + 1
        )
        # Read only the needed columns, and only rows with one of the ids.
        needed = [*deduplicate.by, log.source.event_time, "arrived_at"]
        needed += _ORDER
        earlier_ids = earlier.select([f"`{name}`" for name in dict.fromkeys(needed)])
        earlier_ids = earlier_ids.join(rows.select(ids), list(deduplicate.by), "left_semi")
        rows = rows.unionByName(earlier_ids, allowMissingColumns=True)
    has_key = F.lit(True)
    for column in (time, *ids):
        has_key = has_key & column.isNotNull()
    # Each row without an id is a group of its own. A common group of all such rows might be larger
    # than any other.
    log_position = F.struct(_ORDER)
    groups = Window.partitionBy(*ids, F.when(~has_key, log_position))
    by_time = groups.orderBy(F.unix_micros(time))
    near_events = by_time.rangeBetween(-deduplicate.within, deduplicate.within)
    first_event = F.min(log_position).over(near_events)
    marked = rows.withColumn(MARK, has_key & (first_event < log_position))
    is_requested = F.col("arrival") > after_arrival
    if start is not None:
        is_requested = is_requested & (F.unix_micros(time) >= start)
    if end is not None:
        is_requested = is_requested & (F.unix_micros(time) < end)
    return marked.where(is_requested)
