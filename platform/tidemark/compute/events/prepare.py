"""Prepare the log's rows by the function of an asset.

Each step depends only on a row and the facts of its arrival, never on other rows of the run. The
result is therefore the same however the arrivals are divided into runs.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.events.duplicates import mark_duplicates
from tidemark.define.preparation import Preparation
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
    return call_function(log, transform.preparation, rows, after, through)


def call_function(
    log: Log, preparation: Preparation, rows: DataFrame, after: int, through: int
) -> DataFrame:
    """Return rows with `after` < arrival <= `through` after the function, which gets its lookup
    tables as of the versions that the arrivals recorded.
    """
    names, warehouse, source = preparation.lookups, log.warehouse, log.source
    if not names:
        return preparation.prepare(rows)
    parts: list[DataFrame] = []
    for span in lookup_tables.recorded_versions(log, names, after, through):
        tables = {n: lookup_tables.read(warehouse, source, n, span.versions[n]) for n in names}
        arrival = F.col("arrival")
        own = rows.where((arrival > span.after) & (arrival <= span.through))
        parts.append(preparation.prepare(own, tables))
    return reduce(DataFrame.unionByName, parts)
