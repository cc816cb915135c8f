"""Watermark strategies that treat all rows of a source alike, without partitions."""

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.determinism import Sql
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import checked_duration, format_duration
from tidemark.define.watermarks.strategy import Watermark, newest_event_time

BOUND = "The bound of a watermark"


@checked_class
@dataclass(frozen=True, init=False)
class BoundedOutOfOrderness(Watermark):
    """A watermark for events that are at most `bound` out of order: newest event time - bound.

    An event may thus be up to `bound` older than an event that arrived before it. The watermark
    moves with each arrival, to the newest event time of all arrivals so far minus the bound, and
    never goes back. A bound that is too small makes events late; one that is too large delays all
    windows. `tidemark watermark SOURCE --recommend` shows which bound would have been enough.

    Example:
        BoundedOutOfOrderness("3 hours")  # the newest event is of 12:00: the watermark is 09:00

    Args:
        bound: a number and a unit from microseconds to weeks, zero or more.
        idle: how long the source must be silent before its heartbeats move the watermark, to the
            heartbeat's processing time minus the bound. Heartbeats do not move it by default.

    Raises:
        DefinitionError: the bound is negative, the idle time is not greater than zero, or one of
            them is not a length of time.
    """

    bound: int
    idle: int | None

    by_newest = True

    def __init__(self, bound: str | timedelta, idle: str | timedelta | None = None) -> None:
        object.__setattr__(self, "bound", checked_duration(BOUND, bound, zero=True))
        silence = None
        if idle is not None:
            silence = checked_duration("The idle time of a source", idle)
        object.__setattr__(self, "idle", silence)

    def __str__(self) -> str:
        return (
            "newest event time - "
            f"{format_duration(self.bound)}{_describe_idle(self.idle, self.bound)}"
        )

    @property
    def needs_heartbeats(self) -> bool:
        return self.idle is not None

    def observe(self, event_time: Column) -> Column:
        return newest_event_time(event_time)

    def arrival_watermark(
        self, observed: str | None, connector_watermark: int | None
    ) -> int | None:
        if observed is None:
            return None
        return int(observed) - self.bound

    @property
    def shortest_silence(self) -> int | None:
        return self.idle

    def silent_watermark(self, clock: int) -> int | None:
        return clock - self.bound


@checked_class
@dataclass(frozen=True, init=False)
class MonotonicTimestamps(BoundedOutOfOrderness):
    """A watermark for events that arrive in the order of event time: the newest event time.

    It is equal to `BoundedOutOfOrderness("0 seconds")`. An event that arrives out of order is still
    on time if the watermark has not reached the end of its window.

    Example:
        MonotonicTimestamps()

    Args:
        idle: how long the source must be silent before its heartbeats move the watermark, to the
            heartbeat's processing time. Heartbeats do not move it by default.

    Raises:
        DefinitionError: the idle time is not greater than zero, or is not a length of time.
    """

    def __init__(self, idle: str | timedelta | None = None) -> None:
        super().__init__("0 seconds", idle)

    def __str__(self) -> str:
        return f"newest event time{_describe_idle(self.idle, 0)}"


_NOTHING = "TIMESTAMP '0001-01-01 00:00:00Z'"


@checked_class
@dataclass(frozen=True)
class Punctuated(Watermark):
    """A watermark that rows announce: the latest value so far of an expression over the rows.

    A producer that knows up to which time its data are complete can announce that time in a row.
    The expression may fail on a row, for example because a text is not a time. Such a row does not
    move the watermark, and the ingest reports it.

    Example:
        Punctuated("CASE WHEN kind = 'complete' THEN at END")

    Args:
        expression: a SQL expression over the source's columns that gives a timestamp, or null if a
            row does not announce anything.

    Raises:
        DefinitionError: the expression is empty.
    """

    expression: Sql

    def __post_init__(self) -> None:
        if not self.expression.strip():
            raise DefinitionError(
                "Punctuated: `expression` must be a SQL expression that returns a timestamp or "
                f"null (got '{self.expression}')."
            )

    def __str__(self) -> str:
        return f"maximum of {self.expression}"

    def observe(self, event_time: Column) -> Column:
        mark = self._announced_watermark()
        return newest_event_time(F.when(mark > F.expr(_NOTHING), mark))

    def count_unreadable(self) -> Column:
        return F.count_if(self._announced_watermark().isNull())

    def _announced_watermark(self) -> Column:
        """Return the watermark that a row announces: `_NOTHING` if it announces none.

        Return null if the expression fails.
        """
        mark = F.coalesce(F.expr(self.expression), F.expr(_NOTHING))
        # `try_add` returns null if the evaluation of an operand fails.
        return F.try_add(mark, F.expr("INTERVAL '0' DAY"))


def _describe_idle(idle: int | None, bound: int) -> str:
    if idle is None:
        return ""
    description = f"; after {format_duration(idle)} of silence, at least processing time"
    if bound:
        return f"{description} - {format_duration(bound)}"
    return description
