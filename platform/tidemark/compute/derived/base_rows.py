"""Read the rows of a base, with the facts that a derivation needs."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.define.helper_columns import helper
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

STEP = helper("step")
"""The index of the step that brought a row, INT; -1 if it came before these steps."""
ROW = helper("row")
"""The row's own columns, a STRUCT."""
TIME = helper("time")
"""Its event time, BIGINT microseconds; null if it has none that is valid."""
MARK = helper("mark")
"""The watermark of its own base before its arrival, BIGINT microseconds."""
ARRIVAL, POSITION, ORIGIN, CORRELATION = map(
    helper, ("arrival", "position", "origin", "correlation")
)


def read_new(log: Log, steps: Steps) -> DataFrame:
    """Return the rows of a base that these steps bring."""
    return read_between(log, steps, *steps.span(log.source.name))


def read_between(
    log: Log,
    steps: Steps,
    after: int,
    through: int,
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """Return the rows of a base with `after` < arrival <= `through`.

    Args:
        start, end: only rows with an event time in [start, end), in microseconds.
    """
    source = log.source
    rows = log.read(after, through, start, end)
    numbers = steps.numbers(source.name)
    known = rows.sparkSession.createDataFrame(
        list(numbers.items()) or [(-1, -1)], f"arrival BIGINT, {STEP} INT"
    )
    rows = rows.join(F.broadcast(known), "arrival", "left")
    return rows.select(
        F.coalesce(STEP, F.lit(-1)).alias(STEP),
        F.struct(*(F.col(f"`{c}`") for c in source.columns)).alias(ROW),
        F.unix_micros(source.valid_event_time(F.unix_micros("arrived_at"))).alias(TIME),
        F.unix_micros("watermark").alias(MARK),
        F.col("arrival").alias(ARRIVAL),
        F.col("position").alias(POSITION),
        F.concat(F.lit(f"{source.name} "), "arrival", F.lit("#"), "position").alias(ORIGIN),
        F.col("correlation_id").alias(CORRELATION),
    )
