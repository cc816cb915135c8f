"""Watermarks: how far a source's event time is known to be complete.

A watermark W promises that no event with event time < W is still expected. It is a property of the
source, moves once for each arrival, from what the arrival brought, and never goes back. `None` is
minus infinity, the watermark before the first event; INFINITY is the watermark after the end of
the stream, and no strategy reaches it alone.

A strategy has two halves. `observe` reduces the rows of one arrival, in Spark, to a text that says
all the strategy wants to know of them; `advance` folds these texts over the arrivals in Python,
with what it has to remember between two arrivals as a second text. The facts of many arrivals are
therefore computed in one pass over the data, and are the same as one by one.

| strategy | watermark after an arrival |
| --- | --- |
| `BoundedOutOfOrderness(bound)` | newest event time so far - bound |
| `Monotonous()` | newest event time so far: events come in order |
| `Perfect()` | none until the stream ends: history read whole, nothing is late |
| `Manual()` | what the feed said with the arrival, as a source that knows, or a test, does |
"""

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.errors import DefinitionError
from tidemark.instant import INFINITY, describe, duration


class Watermark(Protocol):
    """A watermark strategy."""

    def observe(self, event_time: Column) -> Column:
        """An aggregate over one arrival's rows, a STRING; null when it learnt nothing."""
        ...

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
            observed: what `observe` gave, `None` for an arrival without rows.
            clock: processing time of the arrival, in microseconds, for idleness.
            given: the watermark that the feed gave with the arrival, if it did.
        """
        ...


@dataclass(frozen=True, init=False)
class BoundedOutOfOrderness:
    """Events come at most `bound` after a newer one: the watermark is newest event time - bound."""

    bound: int

    def __init__(self, bound: str) -> None:
        object.__setattr__(self, "bound", duration(bound))
        if self.bound < 0:
            raise DefinitionError(f"A watermark's bound is zero or more, not '{bound}'.")

    def __str__(self) -> str:
        return f"newest event time - {describe(self.bound)}"

    def observe(self, event_time: Column) -> Column:
        return _newest(event_time)

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        given: int | None = None,
    ) -> tuple[int | None, str | None]:
        reached = None if observed is None else int(observed) - self.bound
        return _forward(previous, reached), None


@dataclass(frozen=True)
class Monotonous:
    """Events come in the order of their event time: the watermark is the newest of them."""

    def __str__(self) -> str:
        return "newest event time"

    def observe(self, event_time: Column) -> Column:
        return _newest(event_time)

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        given: int | None = None,
    ) -> tuple[int | None, str | None]:
        return _forward(previous, None if observed is None else int(observed)), None


@dataclass(frozen=True)
class Perfect:
    """History read whole: the watermark stays at minus infinity until the stream ends."""

    def __str__(self) -> str:
        return "none until the stream ends"

    def observe(self, event_time: Column) -> Column:
        return _nothing()

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        given: int | None = None,
    ) -> tuple[int | None, str | None]:
        return previous, None


@dataclass(frozen=True)
class Manual:
    """The feed gives the watermark with the arrival; where it gives none, it stays."""

    def __str__(self) -> str:
        return "given by the feed"

    def observe(self, event_time: Column) -> Column:
        return _nothing()

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        given: int | None = None,
    ) -> tuple[int | None, str | None]:
        return _forward(previous, given), None


def _newest(event_time: Column) -> Column:
    return F.max(F.unix_micros(event_time)).cast("string")


def _nothing() -> Column:
    return F.max(F.lit(None).cast("string"))


def _forward(previous: int | None, reached: int | None) -> int | None:
    if reached is None:
        return previous
    # INFINITY itself says that the stream has ended, which an event far in the future must not.
    reached = min(reached, INFINITY - 1)
    return reached if previous is None else max(previous, reached)
