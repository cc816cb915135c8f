"""Track coverage: through which arrival each window of an asset is up to date."""

from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.store.commits.ranges import Ranges


@dataclass(frozen=True)
class TimelinePosition:
    """The state of a source's timeline after an arrival.

    Args:
        arrival: the arrival's number, -1 before the first.
        watermark: the watermark after the arrival, in microseconds; None is minus infinity.
        clock: the arrival's processing time, in microseconds; None before the first arrival.
        arrival_id: the identity of the arrival (`Arrival.arrival_id`); empty before the first.
    """

    arrival: int = -1
    watermark: int | None = None
    clock: int | None = None
    arrival_id: str = ""


@dataclass(frozen=True)
class BackfilledRange:
    """A range of window starts [start, end) that a backfill brought up to date through `at`."""

    start: int
    end: int
    at: TimelinePosition

    def overlaps_any(self, ranges: Ranges) -> bool:
        """Return whether a window of one of the ranges may start in this range."""
        return any(start < self.end and self.start < end for start, end in ranges)


@dataclass(frozen=True)
class Coverage:
    """Through which arrival each window is up to date.

    Args:
        at: the position of every window outside of the backfilled ranges.
        covers: the backfilled ranges, which are up to date through later arrivals than `at`. If
            several ranges contain a window, the last one applies.
        whole: if true, a backfilled range contains only the windows that lie completely in it;
            otherwise, all windows that start in it.
    """

    at: TimelinePosition = TimelinePosition()
    covers: tuple[BackfilledRange, ...] = ()
    whole: bool = False

    @property
    def newest_arrival(self) -> int:
        """The newest arrival through which at least one window is up to date."""
        return self.newest_position.arrival

    @property
    def newest_position(self) -> TimelinePosition:
        """The position of the newest arrival through which at least one window is up to date."""
        newest = self.at
        for backfilled in self.covers:
            if backfilled.at.arrival > newest.arrival:
                newest = backfilled.at
        return newest

    def advance_to(self, position: TimelinePosition) -> "Coverage":
        """Return the coverage after an incremental run through `position`.

        Backfilled ranges remain only if they are up to date through a later arrival than
        `position`.
        """
        remaining = list[BackfilledRange]()
        for backfilled in self.covers:
            if backfilled.at.arrival > position.arrival:
                remaining.append(backfilled)
        return Coverage(position, tuple(remaining))

    def with_backfill(self, backfilled: BackfilledRange) -> "Coverage":
        if backfilled.at.arrival <= self.at.arrival:
            return self
        covers = list[BackfilledRange]()
        for earlier in self.covers:
            covers.extend(_cut_out(earlier, backfilled))
        covers.append(backfilled)
        covers.sort(key=lambda cover: cover.start)
        return replace(self, covers=tuple(covers))

    def position_column(self, field: str) -> Column:
        """Return a BIGINT column: a field of the position through which each window is up to date.

        Args:
            field: the field of `TimelinePosition`: `arrival`, `watermark` or `clock`.
        """
        picked = uncompiled_literal(getattr(self.at, field))
        start = F.unix_micros("window_start")
        end = F.unix_micros("window_end")
        for c in self.covers:
            first = uncompiled_literal(c.start)
            last = uncompiled_literal(c.end)
            inside = (start >= first) & (end <= last if self.whole else start < last)
            picked = F.when(inside, uncompiled_literal(getattr(c.at, field))).otherwise(picked)
        return picked


def _cut_out(covered: BackfilledRange, removed: BackfilledRange) -> list[BackfilledRange]:
    pieces = []
    if covered.start < removed.start:
        pieces.append(replace(covered, end=min(covered.end, removed.start)))
    if covered.end > removed.end:
        pieces.append(replace(covered, start=max(covered.start, removed.end)))
    return pieces
