"""Windows: which spans of event time an event belongs to.

A window is half-open, [start, end): an event at `start` is inside, one at `end` is not. A window
kind is a small value whose `assign` gives an event its windows, as a function of the event's time
alone, so that it is the same in every run.
"""

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.errors import DefinitionError
from tidemark.instant import describe, duration


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


@dataclass(frozen=True, init=False)
class Tumbling:
    """Windows of one size that follow each other without gap or overlap.

    Window N is [N * size + offset, (N + 1) * size + offset), N also negative.
    """

    size: int
    offset: int

    def __init__(self, size: str, offset: str = "0 seconds") -> None:
        object.__setattr__(self, "size", duration(size))
        object.__setattr__(self, "offset", duration(offset))
        if self.size <= 0:
            raise DefinitionError(f"A tumbling window's size is more than zero, not '{size}'.")

    def __str__(self) -> str:
        offset = f", offset {describe(self.offset)}" if self.offset else ""
        return f"tumbling {describe(self.size)}{offset}"

    @property
    def reach(self) -> int:
        return self.size

    def assign(self, rows: DataFrame, event_time: str) -> DataFrame:
        start = floor_to(F.unix_micros(F.col(event_time)), self.size, self.offset)
        return rows.withColumns(
            {
                "window_start": F.timestamp_micros(start),
                "window_end": F.timestamp_micros(start + F.lit(self.size)),
            }
        )


def floor_to(micros: Column, step: int, offset: int) -> Column:
    """The last multiple of `step`, counted from `offset`, that is not after `micros`."""
    return micros - F.pmod(micros - F.lit(offset), F.lit(step))
