"""What every watermark strategy does."""

from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY


class Watermark(Protocol):
    """A watermark strategy."""

    @property
    def by(self) -> str | None:
        """The column of the source whose values `observe` tells apart, if it does."""
        return None

    @property
    def by_newest(self) -> bool:
        """Whether `observe` is `newest` of the event time: then it is told without the engine."""
        return False

    def observe(self, event_time: Column) -> Column:
        """An aggregate over one arrival's rows, a STRING; null when it learnt nothing.

        Where the strategy has a column `by`, over those of its rows that share a value of it.
        """
        ...

    def reached(self, observed: str | None, given: int | None) -> int | None:
        """How far an arrival alone says that the source is: all that most strategies ask."""
        return None if observed is None else int(observed)

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        given: int | None = None,
    ) -> tuple[int | None, str | None]:
        """The watermark after an arrival, and the state to hand to the next `advance`.

        Args:
            state: what `advance` returned for the arrival before, `None` at the first.
            previous: the watermark before this arrival, which the answer is never below.
            observed: what `observe` gave, `None` for an arrival without rows. Where the strategy
                has a column `by`, a JSON array of pairs [value, what `observe` gave for it], in
                any order; the value is a text or null.
            clock: processing time of the arrival, in microseconds, for idleness.
            given: the watermark that the feed gave with the arrival, if it did.
        """
        return forward(previous, self.reached(observed, given)), None


def newest(instant: Column) -> Column:
    """What most strategies observe: the greatest instant, in microseconds."""
    return F.max(F.unix_micros(instant)).cast("string")


def forward(previous: int | None, reached: int | None) -> int | None:
    """The watermark that follows `previous`: it never goes back, and does not end the stream."""
    if reached is None:
        return previous
    # INFINITY itself says that the stream has ended, which an event far in the future must not.
    reached = min(reached, INFINITY - 1)
    return reached if previous is None else max(previous, reached)
