"""Prepare the log's rows for a transform's windows.

Each step depends only on a row and the facts of its arrival, never on other rows of the run. The
result is therefore the same however the arrivals are divided into runs.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.events.duplicates import mark_duplicates
from tidemark.define.transform import WindowedTransform
from tidemark.store.event_log import lookup_tables
from tidemark.store.event_log.log import Log


def prepare_rows(
    log: Log,
    transform: WindowedTransform,
    after: int,
    through: int,
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """Return the rows with `after` < arrival <= `through` after the transform's function.

    Args:
        start, end: only events that happened in [start, end), in microseconds; None means no bound.
    """
    if transform.deduplicate is None:
        rows = log.read(after, through, start, end)
    else:
        rows = mark_duplicates(log, transform.deduplicate, after, through, start, end)
    names, warehouse, source = transform.lookups, log.warehouse, log.source
    if not names:
        return transform.prepare(rows)
    parts: list[DataFrame] = []
    for span in lookup_tables.recorded_versions(log, names, after, through):
        tables = {n: lookup_tables.read(warehouse, source, n, span.versions[n]) for n in names}
        arrival = F.col("arrival")
        own = rows.where((arrival > span.after) & (arrival <= span.through))
        parts.append(transform.prepare(own, tables))
    return reduce(DataFrame.unionByName, parts)
