"""Watermarks that the rows of an arrival tell, all of them alike."""

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import describe, duration
from tidemark.define.watermarks.strategy import Watermark, newest


@checked_class
@dataclass(frozen=True, init=False)
class BoundedOutOfOrderness(Watermark):
    """Events come at most `bound` after a newer one: the watermark is newest event time - bound.

    It moves with each arrival, to the newest event time of all arrivals so far less the bound, and
    never goes back. A bound that is too small makes events late; one that is too large makes all
    windows wait. `tidemark lateness SOURCE` measures which one would have been enough.

    Example:
        BoundedOutOfOrderness("3 hours")  # the newest event is of 12:00: the watermark is 09:00

    Args:
        bound: a number and a unit from microseconds to weeks, zero or more.

    Raises:
        DefinitionError: a bound below zero, or a text that is no length of time.
    """

    bound: int

    def __init__(self, bound: str | timedelta) -> None:
        object.__setattr__(self, "bound", not_negative(bound))

    def __str__(self) -> str:
        return f"newest event time - {describe(self.bound)}"

    @property
    def by_newest(self) -> bool:
        return True

    def observe(self, event_time: Column) -> Column:
        return newest(event_time)

    def reached(self, observed: str | None, given: int | None) -> int | None:
        return None if observed is None else int(observed) - self.bound


@checked_class
@dataclass(frozen=True)
class Monotonous(Watermark):
    """Events come in the order of their event time: the watermark is the newest of them.

    It is `BoundedOutOfOrderness("0 seconds")`. An event that is older than one before it is still
    on time while the watermark is not at the end of its window.

    Example:
        Monotonous()
    """

    def __str__(self) -> str:
        return "newest event time"

    @property
    def by_newest(self) -> bool:
        return True

    def observe(self, event_time: Column) -> Column:
        return newest(event_time)


_NOTHING = "TIMESTAMP '0001-01-01 00:00:00Z'"


@checked_class
@dataclass(frozen=True)
class Punctuated(Watermark):
    """The rows say it: the watermark is the greatest that an expression over them ever gave.

    So a producer that knows how far it is complete can say so in the stream. A row on which the
    expression fails, because a text is not a time, say, does not move the watermark, and the ingest
    reports it.

    Example:
        Punctuated("CASE WHEN kind = 'complete' THEN at END")

    Args:
        expression: a SQL expression over the source's columns that gives a timestamp, or null
            where a row says nothing.

    Raises:
        DefinitionError: an empty expression.
    """

    expression: str

    def __post_init__(self) -> None:
        if not self.expression.strip():
            raise DefinitionError(
                "A punctuated watermark needs a SQL expression that gives a timestamp or null."
            )

    def __str__(self) -> str:
        return f"greatest of {self.expression}"

    def observe(self, event_time: Column) -> Column:
        mark = self._mark()
        return newest(F.when(mark > F.expr(_NOTHING), mark))

    def unreadable(self) -> Column:
        return F.count_if(self._mark().isNull())

    def _mark(self) -> Column:
        """Return the instant, `_NOTHING` if a row says nothing, or null if the expression fails."""
        mark = F.coalesce(F.expr(self.expression), F.expr(_NOTHING))
        # The sum of a time and an interval is null if anything in it fails.
        return F.try_add(mark, F.expr("INTERVAL '0' DAY"))


def not_negative(bound: str | timedelta) -> int:
    """A bound in microseconds."""
    length = duration(bound)
    if length < 0:
        raise DefinitionError(f"A watermark's bound is zero or more, not '{bound}'.")
    return length
