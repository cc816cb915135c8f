"""Preparation: from the log to the rows that a transform's windows are made of.

Whatever happens here is told by a row and the facts of its arrival, never by what else is in the
run: so the same rows come out of any cut into runs.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.duplicates import marked
from tidemark.define.transform import WindowedTransform
from tidemark.store import reference
from tidemark.store.log import Log


def prepared(
    log: Log,
    transform: WindowedTransform,
    after: int,
    through: int,
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """The log's rows with `after` < arrival <= `through`, as the transform's function gives them.

    Args:
        start, end: only what happened in [start, end), in microseconds; None is no bound.
    """
    if transform.unique is None:
        rows = log.read(after, through, start, end)
    else:
        rows = marked(log, transform.unique, after, through, start, end)
    names, warehouse, source = transform.references, log.warehouse, log.source
    if not names:
        return transform.prepare(rows)
    parts: list[DataFrame] = []
    for span in reference.recorded(log, names, after, through):
        tables = {n: reference.read(warehouse, source, n, span.versions[n]) for n in names}
        arrival = F.col("arrival")
        own = rows.where((arrival > span.after) & (arrival <= span.through))
        parts.append(transform.prepare(own, tables))
    return reduce(DataFrame.unionByName, parts)
