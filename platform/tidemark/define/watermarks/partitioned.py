"""The watermark of a source whose partitions advance at different paces."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import Column

from tidemark.base.arguments import checked_class
from tidemark.base.instants import checked_duration, format_duration
from tidemark.define.watermarks.seen import BOUND
from tidemark.define.watermarks.strategy import Watermark, forward, newest_event_time

_Partitions = dict[str | None, tuple[int, int]]
"""For each partition, its newest event time and `Partition.heard_at`, both in microseconds."""


@dataclass(frozen=True)
class Partition:
    """The progress of a partition as of an arrival; times are in microseconds.

    Args:
        value: the value of `PerPartition.column` in all events of the partition.
        watermark: the newest event time of the partition - bound.
        heard_at: the processing time of the newest arrival at which the partition was not silent:
            the arrival had an event of the partition, or such an event waited for a later arrival.
        idle: true if the partition is idle, so that it does not hold back the others.
    """

    value: str | None
    watermark: int
    heard_at: int
    idle: bool


@checked_class
@dataclass(frozen=True, init=False)
class PerPartition(Watermark):
    """A watermark for sources whose partitions advance at different paces.

    A partition is a value of `column`, null included: a sensor, a shard, a region. The strategy
    assumes that an event is at most `bound` older than any event of the same partition that arrived
    before it. The partition's own watermark is therefore its newest event time - bound. The
    watermark of the source is the earliest of the partitions' watermarks, so events of a slow
    partition do not become late when another partition is ahead.

    A partition without events for `idle` of processing time is idle, and no longer holds back the
    others; its next event makes it active again. While a backlog is ingested as several arrivals, a
    partition with events in any of these arrivals is not idle. Processing time advances only with
    arrivals; in a silent source, heartbeats (arrivals without rows) advance it. If all partitions
    are idle, the watermark advances to the latest of the partitions' watermarks, as in Flink. Once
    the whole source has been silent for `idle`, the heartbeats of a source with `heartbeat` move
    the watermark further: to the heartbeat's processing time - `bound`.

    A partition is unknown before its first event. The first events of a new partition, or of one
    that was idle, may be behind the watermark. They can then be late, because the watermark never
    goes back.

    Example:
        PerPartition("sensor", "1 minute", idle="5 minutes")

    Args:
        column: a column of the source.
        bound: how far out of order the events of one partition can be, as in
            `BoundedOutOfOrderness`.
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
            f"minimum over {self.column} of newest event time - {format_duration(self.bound)}, "
            "ignoring "
            f"values that were idle for {format_duration(self.idle)}"
        )

    @property
    def group_column(self) -> str | None:
        return self.column

    def observe(self, event_time: Column) -> Column:
        return newest_event_time(event_time)

    def advance(
        self,
        state: str | None,
        previous: int | None,
        observed: str | None,
        clock: int,
        connector_watermark: int | None = None,
    ) -> tuple[int | None, str | None]:
        partitions = _read_state(state)
        for value, text in json.loads(observed or "[]"):
            if value in partitions:
                newest, _ = partitions[value]
                if text is not None:
                    newest = max(newest, int(text))
                partitions[value] = (newest, clock)
            elif text is not None:
                partitions[value] = (int(text), clock)
        watermark_after = forward(previous, self._reached_watermark(partitions, clock))
        return watermark_after, self._to_json(partitions, clock, watermark_after)

    def _reached_watermark(self, partitions: _Partitions, clock: int) -> int | None:
        """Return the watermark that follows from the partitions; None if there are none."""
        if not partitions:
            return None
        active = [time for time, heard in partitions.values() if not self._is_idle(heard, clock)]
        if active:
            return min(active) - self.bound
        newest, _ = max(partitions.values())
        return newest - self.bound

    def list_partitions(self, state: str | None, clock: int) -> list[Partition]:
        """Return the known partitions: the active ones, then the idle ones, each by watermark.

        The first partition holds the watermark back, unless all are idle. A partition that became
        idle behind the watermark is no longer known.

        Args:
            state: the state after an arrival.
            clock: the processing time of that arrival, in microseconds.
        """
        partitions = list[Partition]()
        for value, (time, heard) in _read_state(state).items():
            is_idle = self._is_idle(heard, clock)
            partitions.append(Partition(value, time - self.bound, heard, is_idle))
        return sorted(partitions, key=lambda p: (p.idle, p.watermark, p.value or ""))

    @property
    def shortest_silence(self) -> int | None:
        return self.idle

    def silent_watermark(self, clock: int) -> int | None:
        return clock - self.bound

    def _is_idle(self, heard_at: int, clock: int) -> bool:
        return clock - heard_at >= self.idle

    def _to_json(self, partitions: _Partitions, clock: int, watermark: int | None) -> str:
        """Return the state as JSON, without idle partitions that are not ahead of the watermark.

        Args:
            clock: the processing time of the arrival, in microseconds.
            watermark: the watermark after the arrival, in microseconds; None is minus infinity.
        """
        ahead = list[list[Any]]()
        for value, (time, heard) in partitions.items():
            is_ahead = watermark is None or time - self.bound > watermark
            if is_ahead or not self._is_idle(heard, clock):
                ahead.append([value, time, heard])
        return json.dumps(sorted(ahead, key=lambda p: (p[0] is None, p[0])), separators=(",", ":"))


def _read_state(state: str | None) -> _Partitions:
    return {value: (time, heard) for value, time, heard in json.loads(state or "[]")}
