"""What every watermark strategy does."""

from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY


class Watermark(Protocol):
    """A watermark strategy; derive from it for one of your own.

    `observe` reduces the rows of one arrival, in the engine, to a text; `advance` folds these texts
    over the arrivals, in their order, with what it has to remember as a second text.

    Example:
        class OneArrivalBehind(Watermark):  # an event comes at most one arrival after a newer one

            def observe(self, event_time):
                return F.max(F.unix_micros(event_time)).cast("string")

            def advance(self, state, previous, observed, clock, given=None):
                before = None if state is None else int(state)
                return forward(previous, before), observed or state
    """

    @property
    def by(self) -> str | None:
        """The column of the source whose values `observe` tells apart, if it does."""
        return None

    @property
    def by_newest(self) -> bool:
        """Whether `observe` is `newest` of the event time: then it is told without the engine."""
        return False

    @property
    def by_silence(self) -> bool:
        """Whether it counts how long a value of `by` has had no events: then `advance` is told too
        of which values some are still to come."""
        return False

    def observe(self, event_time: Column) -> Column:
        """An aggregate over one arrival's rows, a STRING; null when it learnt nothing.

        Where the strategy has a column `by`, over those of its rows that share a value of it.
        """
        ...

    def unreadable(self) -> Column:
        """Return an aggregate over one arrival's rows: the number of those, BIGINT, that `observe`
        ignores because what they say of the watermark can't be read."""
        return F.lit(0).cast("bigint")

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
                any order; the value is a text or null. With `by_silence`, also [value, null] for a
                value of which more events are at hand and come with the next arrivals.
            clock: processing time of the arrival, in microseconds, for idleness.
            given: the watermark that the feed gave with the arrival, if it did.
        """
        return forward(previous, self.reached(observed, given)), None


def newest(instant: Column) -> Column:
    """What most strategies observe: the greatest instant, in microseconds."""
    return F.max(F.unix_micros(instant)).cast("string")


def forward(previous: int | None, reached: int | None) -> int | None:
    """The watermark that follows `previous`: it never goes back, and does not end the stream.

    For strategies of your own. Both are in microseconds since 1970; None is minus infinity.

    Example:
        forward(20, 10)  # 20
    """
    if reached is None:
        return previous
    # INFINITY itself says that the stream has ended, which an event far in the future must not.
    reached = min(reached, INFINITY - 1)
    return reached if previous is None else max(previous, reached)
