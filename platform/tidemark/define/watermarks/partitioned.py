"""The watermark of a source whose partitions advance at different paces."""

import json
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column

from tidemark.base.arguments import checked_class
from tidemark.base.instants import checked_duration, describe
from tidemark.define.watermarks.seen import BOUND
from tidemark.define.watermarks.strategy import Watermark, forward, newest_event_time

_Partitions = dict[str | None, tuple[int, int]]
"""The newest event time of each partition, and the clock when it last had an event."""


@dataclass(frozen=True)
class Partition:
    """The progress of a partition as of an arrival; times are in microseconds.

    Args:
        value: its value of the strategy's column.
        watermark: its own watermark.
        heard_at: the processing time of its last event.
        idle: true if it does not hold back the others.
    """

    value: str | None
    watermark: int
    heard_at: int
    idle: bool


@checked_class
@dataclass(frozen=True, init=False)
class PerPartition(Watermark):
    """A watermark for sources whose partitions advance at different paces.

    A partition is a value of `column`, null included: a sensor, a shard, a region. Its events
    arrive at most `bound` after a newer one of the same partition, so its own watermark is its
    newest event time - bound. The watermark of the source is the least of these: the events of a
    slow partition are not late because another partition is ahead.

    A partition without events for `idle` of processing time is idle, and no longer holds back the
    others; its next event makes it active again. A partition is not idle while it has events in a
    backlog that is ingested as several arrivals, whichever of them brings its events. Time passes
    only with arrivals: if nothing else arrives, heartbeats (arrivals without rows) advance it. If
    all partitions are idle, none holds another back, and the watermark advances to the greatest of
    theirs, as in Flink. Once the whole source has been silent for `idle`, the heartbeats of a
    source with `heartbeat` move it further: to their processing time - `bound`.

    A partition is unknown before its first event. Events of a new partition, or of one that was
    idle, may be behind the watermark. They are classified against it: the watermark never goes
    back.

    Example:
        PerPartition("sensor", "1 minute", idle="5 minutes")

    Args:
        column: a column of the source.
        bound: how far out of order the events of one partition are, as in `BoundedOutOfOrderness`.
        idle: the processing time after which a partition without events is idle.

    Raises:
        DefinitionError: the bound is negative, or the idle time is not greater than zero.
    """

    column: str
    bound: int
    idle: int

    by_newest = by_silence = True

    def __init__(
        self, column: str, bound: str | timedelta, idle: str | timedelta = "5 minutes"
    ) -> None:
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "bound", checked_duration(BOUND, bound, zero=True))
        object.__setattr__(self, "idle", checked_duration("The idle time of a partition", idle))

    def __str__(self) -> str:
        return (
            f"minimum over {self.column} of newest event time - {describe(self.bound)}, ignoring "
            f"values that were idle for {describe(self.idle)}"
        )

    @property
    def by(self) -> str | None:
        return self.column

    def observe(self, event_time: Column) -> Column:
        return newest_event_time(event_time)

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        given: int | None = None,
    ) -> tuple[int | None, str | None]:
        known = _read(state)
        for value, text in json.loads(observed or "[]"):
            if text is not None:
                known[value] = (max(int(text), known.get(value, (int(text), clock))[0]), clock)
            elif value in known:
                known[value] = (known[value][0], clock)
        active = [time for time, heard in known.values() if not self._is_idle(heard, clock)]
        all_ = [time for time, _ in known.values()]
        reached = min(active) if active else max(all_, default=None)
        after = forward(previous, None if reached is None else reached - self.bound)
        return after, self._to_json(known, clock, after)

    def partitions(self, state: str | None, clock: int) -> list[Partition]:
        """Return the known partitions; the first one holds the watermark back unless it is idle.

        A partition that was idle behind the watermark is no longer known.

        Args:
            state: the state after an arrival.
            clock: the processing time of that arrival, in microseconds.
        """
        known = [
            Partition(value, time - self.bound, heard, self._is_idle(heard, clock))
            for value, (time, heard) in _read(state).items()
        ]
        return sorted(known, key=lambda p: (p.idle, p.watermark, p.value or ""))

    @property
    def shortest_silence(self) -> int | None:
        return self.idle

    def silent_watermark(self, clock: int) -> int | None:
        return clock - self.bound

    def _is_idle(self, heard_at: int, clock: int) -> bool:
        return clock - heard_at >= self.idle

    def _to_json(self, known: _Partitions, clock: int, after: int | None) -> str:
        """Return the state of active partitions, and of idle ones ahead of the watermark."""
        kept = [
            [value, time, heard]
            for value, (time, heard) in known.items()
            if not self._is_idle(heard, clock) or after is None or time - self.bound > after
        ]
        return json.dumps(sorted(kept, key=lambda p: (p[0] is None, p[0])), separators=(",", ":"))


def _read(state: str | None) -> _Partitions:
    return {value: (time, heard) for value, time, heard in json.loads(state or "[]")}
