"""Coverage: through which arrival each window of an asset is complete."""

from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.engine.varying import varying


@dataclass(frozen=True)
class Position:
    """The state of a source's timeline after an arrival.

    Args:
        arrival: the arrival's number, -1 before the first.
        watermark: microseconds after it; None is minus infinity.
        clock: its processing time in microseconds; None before the first.
    """

    arrival: int = -1
    watermark: int | None = None
    clock: int | None = None


@dataclass(frozen=True)
class Cover:
    """A range of window starts [start, end) that a backfill made complete through `at`."""

    start: int
    end: int
    at: Position


@dataclass(frozen=True)
class Coverage:
    """Through which arrival each window is complete.

    Args:
        at: for every window that no cover holds.
        covers: ranges that a backfill brought further than `at`; the last of those that hold a
            window counts.
        whole: a cover holds the windows that lie whole in it; otherwise those that start in it.
    """

    at: Position = Position()
    covers: tuple[Cover, ...] = ()
    whole: bool = False

    @property
    def through(self) -> int:
        """The newest arrival through which any window is complete."""
        return max([self.at.arrival, *(c.at.arrival for c in self.covers)])

    def advance(self, at: Position) -> "Coverage":
        """After an incremental run: covers that it caught up with are forgotten."""
        return Coverage(at, tuple(c for c in self.covers if c.at.arrival > at.arrival))

    def cover(self, new: Cover) -> "Coverage":
        """After a backfill of a range."""
        if new.at.arrival <= self.at.arrival:
            return self
        rest = [piece for c in self.covers for piece in _cut(c, new)]
        return replace(self, covers=tuple(sorted([*rest, new], key=lambda c: c.start)))

    def pick(self, what: str) -> Column:
        """`arrival` or `watermark` (BIGINT) of the position that holds for each row's window."""
        picked = varying(getattr(self.at, what))
        start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
        for c in self.covers:
            first, last = varying(c.start), varying(c.end)
            inside = (start >= first) & (end <= last if self.whole else start < last)
            picked = F.when(inside, varying(getattr(c.at, what))).otherwise(picked)
        return picked


def _cut(old: Cover, new: Cover) -> list[Cover]:
    pieces = []
    if old.start < new.start:
        pieces.append(replace(old, end=min(old.end, new.start)))
    if old.end > new.end:
        pieces.append(replace(old, start=max(old.start, new.end)))
    return pieces
