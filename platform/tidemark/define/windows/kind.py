"""What every kind of window can do."""

from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


class Window(Protocol):
    """A kind of window."""

    @property
    def reach(self) -> int:
        """How far, in microseconds, an event may lie after the start of a window that holds it."""
        ...

    def assign(self, rows: DataFrame, event_time: str) -> DataFrame:
        """`rows` with `window_start` and `window_end`, one row for each window of each event.

        A row without an event time stays, once, with a null window.
        """
        ...


def assigned(rows: DataFrame, start: Column, end: Column) -> DataFrame:
    """`rows` with their window's bounds, given in microseconds."""
    return rows.withColumns(
        {"window_start": F.timestamp_micros(start), "window_end": F.timestamp_micros(end)}
    )


def floor_to(micros: Column, step: int, offset: int) -> Column:
    """The last multiple of `step`, counted from `offset`, that is not after `micros`."""
    return micros - F.pmod(micros - F.lit(offset), F.lit(step))
