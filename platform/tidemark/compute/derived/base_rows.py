"""Read the rows of a base, with the columns that a derivation needs."""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute.derived.settling import add_raised_watermark, number_array
from tidemark.define.helper_columns import name_helper
from tidemark.define.source import Source
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

STEP = name_helper("step")
"""The index of the step that brought a row, INT; -1 for rows from before the computed steps."""
ROW = name_helper("row")
"""The row's own columns, a STRUCT."""
TIME = name_helper("time")
"""The row's event time, BIGINT microseconds; null if it is missing or not valid."""
MARK = name_helper("mark")
"""The effective watermark of the row's base before the row's arrival, BIGINT microseconds."""
ARRIVAL, POSITION, CORRELATION = map(name_helper, ("arrival", "position", "correlation"))
_RAISED = name_helper("raised")


def origin_of(base: Source, arrival: str = "arrival", position: str = "position") -> Column:
    """Return the text by which a derived row names a row of a base, in `read_from`.

    Args:
        arrival, position: the columns with the arrival and the position of the base's row.
    """
    return F.concat(F.lit(f"{base.name} "), arrival, F.lit("#"), position)


def origin_text(base: str, arrival: int, position: int) -> str:
    """Return the text by which `read_from` names one row of a base, for example `orders 3#0`."""
    return f"{base} {arrival}#{position}"


def parse_origins(read_from: str) -> list[tuple[str, int, int]]:
    """Return the base, arrival and position of each row that a derived row names in `read_from`."""
    origins = re.findall(r"(\w+) (\d+)#(\d+)", read_from)
    return [(base, int(arrival), int(position)) for base, arrival, position in origins]


def read_new(log: Log, steps: Steps) -> DataFrame:
    return read_between(log, steps, *steps.arrival_span(log.source.name))


def read_between(
    log: Log,
    steps: Steps,
    after_arrival: int,
    last_arrival: int,
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """Return the rows of a base with `after_arrival` < arrival <= `last_arrival`.

    Args:
        start, end: only rows with an event time in [start, end), in microseconds; None means no
            bound.
    """
    source = log.source
    rows = log.read_events(after_arrival, last_arrival, start, end)
    mark = F.unix_micros("watermark")
    if raised := steps.raised.get(source.name):
        rows = add_raised_watermark(rows, _RAISED, F.col("arrival"), raised)
        mark = F.greatest(mark, _RAISED)
    return rows.select(
        _find_step_index(steps, source.name, last_arrival).alias(STEP),
        F.struct([F.col(f"`{name}`") for name in source.columns]).alias(ROW),
        F.unix_micros(source.valid_event_time(F.unix_micros("arrived_at"))).alias(TIME),
        mark.alias(MARK),
        F.col("arrival").alias(ARRIVAL),
        F.col("position").alias(POSITION),
        F.col("correlation_id").alias(CORRELATION),
    )


def _find_step_index(steps: Steps, base: str, last_arrival: int) -> Column:
    """Return the index of the step that brought a row of a base; -1 for earlier rows.

    Args:
        last_arrival: the last arrival of the rows.
    """
    arrival_before, _ = steps.arrival_span(base)
    if last_arrival <= arrival_before:
        return F.lit(-1)
    numbers = steps.step_indexes(base)
    of_arrivals = [
        numbers.get(arrival, -1) for arrival in range(arrival_before + 1, last_arrival + 1)
    ]
    index = F.col("arrival") - uncompiled_literal(arrival_before + 1)
    return F.coalesce(F.get(number_array(of_arrivals, "int"), index.cast("int")), F.lit(-1))
