"""Define the base class of watermark strategies, and functions for all strategies."""

from typing import ClassVar, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY


class Watermark(Protocol):
    """A watermark strategy; derive from it to write your own.

    `observe` reduces the rows of one arrival, in the engine, to a text. `advance` processes these
    texts in the order of the arrivals, and keeps its state as a second text.

    Example:
        class OneArrivalBehind(Watermark):  # an event comes at most one arrival after a newer one

            def observe(self, event_time):
                return F.max(F.unix_micros(event_time)).cast("string")

            def advance(self, state, previous, observed, clock, connector_watermark=None):
                before = None if state is None else int(state)
                return forward(previous, before), observed or state
    """

    by_newest: ClassVar[bool] = False
    """True if `observe` returns `newest_event_time`, which can be computed without the engine."""

    by_silence: ClassVar[bool] = False
    """True if the strategy measures how long each value of `group_column` has had no events.

    `advance` then also receives the values whose events will come with later arrivals.
    """

    @property
    def group_column(self) -> str | None:
        """The column of the source by which `observe` groups the rows; None if it does not group
        them.
        """
        return None

    @property
    def needs_heartbeats(self) -> bool:
        """True if an option of the strategy, such as `idle`, has no effect without heartbeats."""
        return False

    @property
    def shortest_silence(self) -> int | None:
        """The shortest silence, in microseconds, after which a heartbeat moves the watermark.

        None if heartbeats never move it.
        """
        return None

    def observe(self, event_time: Column) -> Column:
        """Return an aggregate over one arrival's rows, a STRING; null if they have no information.

        If the strategy has a `group_column`, the aggregate is computed for each value of that
        column.
        """
        ...

    def count_unreadable(self) -> Column:
        """Return an aggregate over one arrival's rows: the number of rows that `observe` can't
        read.

        The number is a BIGINT. These rows do not move the watermark.
        """
        return F.lit(0).cast("bigint")

    def arrival_watermark(
        self, observed: str | None, connector_watermark: int | None
    ) -> int | None:
        """Return the watermark that follows from one arrival alone; None if there is none.

        The default `advance` calls this method, and ignores a result before the current watermark.

        Args:
            observed, connector_watermark: as in `advance`.
        """
        if observed is None:
            return None
        return int(observed)

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        connector_watermark: int | None = None,
    ) -> tuple[int | None, str | None]:
        """Return the watermark after an arrival, and the state to pass to the next `advance`.

        Args:
            state: the state that `advance` returned for the previous arrival; None at the first.
            previous: the watermark before this arrival; the result must not be earlier.
            observed: the result of `observe`; None for an arrival without rows. If the strategy has
                a `group_column`, a JSON array of pairs [value, the result of `observe` for it], in
                any order; the value is a text or null. If `by_silence` is true, the array also has
                the pair [value, null] for each value whose events wait for a later arrival.
            clock: the processing time of the arrival, in microseconds, for idleness.
            connector_watermark: the watermark that the connector gave with the arrival, if any.
        """
        return forward(previous, self.arrival_watermark(observed, connector_watermark)), None

    def silent_watermark(self, clock: int) -> int | None:
        """Return the watermark after a silence of at least `shortest_silence`.

        None means that the silence does not move the watermark.

        Args:
            clock: the processing time of the heartbeat, in microseconds.
        """
        return None


def newest_event_time(instant: Column) -> Column:
    """Return an aggregate: the latest instant, a STRING of microseconds.

    Most strategies return it from `observe`.
    """
    return F.max(F.unix_micros(instant)).cast("string")


def after_heartbeat(
    strategy: Watermark, previous: int | None, clock: int, silent_since: int
) -> int | None:
    """Return the watermark after a heartbeat, a record of the source's silence.

    Before the first event of a source, the watermark stays at minus infinity, because the first
    events may be history.

    Args:
        previous: the watermark before the heartbeat, in microseconds.
        clock: the processing time of the heartbeat, in microseconds.
        silent_since: the time since which the source has had no data, in microseconds.
    """
    idle = strategy.shortest_silence
    if previous is None or idle is None or clock - silent_since < idle:
        return previous
    return forward(previous, strategy.silent_watermark(clock))


def forward(previous: int | None, reached: int | None) -> int | None:
    """Return the later of two watermarks, so that the watermark never goes back.

    Use this function in your own strategies. Both arguments are in microseconds since 1970; None is
    minus infinity. A `reached` of `INFINITY` or more is reduced, because `INFINITY` would end the
    stream.

    Example:
        forward(20, 10)  # 20
    """
    if reached is None:
        return previous
    # INFINITY itself means that the stream has ended. An event far in the future must not end it.
    reached = min(reached, INFINITY - 1)
    if previous is None:
        return reached
    return max(previous, reached)
