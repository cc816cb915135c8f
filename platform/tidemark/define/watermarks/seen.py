"""Watermark strategies that depend on an arrival's rows, without partitions."""

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import describe, duration
from tidemark.define.watermarks.strategy import Watermark, newest_event_time


@checked_class
@dataclass(frozen=True, init=False)
class BoundedOutOfOrderness(Watermark):
    """A watermark for events that arrive at most `bound` after a newer one: newest event time -
    bound.

    It moves with each arrival, to the newest event time of all arrivals so far minus the bound, and
    never goes back. A bound that is too small makes events late; one that is too large delays all
    windows. `tidemark lateness SOURCE` shows which bound would have been enough.

    Example:
        BoundedOutOfOrderness("3 hours")  # the newest event is of 12:00: the watermark is 09:00

    Args:
        bound: a number and a unit from microseconds to weeks, zero or more.

    Raises:
        DefinitionError: the bound is negative, or is not a length of time.
    """

    bound: int

    def __init__(self, bound: str | timedelta) -> None:
        object.__setattr__(self, "bound", check_bound(bound))

    def __str__(self) -> str:
        return f"newest event time - {describe(self.bound)}"

    @property
    def by_newest(self) -> bool:
        return True

    def observe(self, event_time: Column) -> Column:
        return newest_event_time(event_time)

    def arrival_watermark(self, observed: str | None, given: int | None) -> int | None:
        return None if observed is None else int(observed) - self.bound


@checked_class
@dataclass(frozen=True)
class MonotonicTimestamps(Watermark):
    """A watermark for events in the order of their event time: the newest event time.

    It is equal to `BoundedOutOfOrderness("0 seconds")`. An event that is older than one before it
    is still on time if the watermark has not reached the end of its window.

    Example:
        MonotonicTimestamps()
    """

    def __str__(self) -> str:
        return "newest event time"

    @property
    def by_newest(self) -> bool:
        return True

    def observe(self, event_time: Column) -> Column:
        return newest_event_time(event_time)


_NOTHING = "TIMESTAMP '0001-01-01 00:00:00Z'"


@checked_class
@dataclass(frozen=True)
class Punctuated(Watermark):
    """A watermark in the rows: the greatest value so far of an expression over them.

    A producer that knows up to which time it is complete can announce that in the stream. The
    expression may fail on a row, for example because a text is not a time. Such a row does not move
    the watermark, and the ingest reports it.

    Example:
        Punctuated("CASE WHEN kind = 'complete' THEN at END")

    Args:
        expression: a SQL expression over the source's columns that gives a timestamp, or null if a
            row does not announce anything.

    Raises:
        DefinitionError: the expression is empty.
    """

    expression: str

    def __post_init__(self) -> None:
        if not self.expression.strip():
            raise DefinitionError(
                "A punctuated watermark needs a SQL expression that returns a timestamp or null."
            )

    def __str__(self) -> str:
        return f"maximum of {self.expression}"

    def observe(self, event_time: Column) -> Column:
        mark = self._mark()
        return newest_event_time(F.when(mark > F.expr(_NOTHING), mark))

    def unreadable(self) -> Column:
        return F.count_if(self._mark().isNull())

    def _mark(self) -> Column:
        """Return the watermark that a row announces: `_NOTHING` if none, null if the expression
        fails.
        """
        mark = F.coalesce(F.expr(self.expression), F.expr(_NOTHING))
        # The sum of a time and an interval is null if any part of it fails.
        return F.try_add(mark, F.expr("INTERVAL '0' DAY"))


def check_bound(bound: str | timedelta) -> int:
    """Return a bound in microseconds, and refuse a negative one."""
    length = duration(bound)
    if length < 0:
        raise DefinitionError(f"The bound of a watermark must not be negative (got '{bound}').")
    return length
