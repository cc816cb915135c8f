"""Define the kinds of commits, and the JSON in which a state stores the record of a commit.

A table in `commit_info` compares the kinds.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tidemark.define.identity.parts import Part
from tidemark.store.commits.commit_info import CommitInfo, StateCommit
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.ranges import Ranges
from tidemark.store.commits.scope import Scope


@dataclass(frozen=True, kw_only=True)
class Increment(StateCommit):
    """A commit that adds the events of the arrivals since the previous commit.

    Args:
        open_before: for session windows, the start of the first session that this commit can
            change, in microseconds. It is the `open_from` of the previous commit; None, for all
            sessions, if another definition made that commit.
    """

    open_before: int | None = None

    @property
    def mode(self) -> str:
        return "incremental"

    @property
    def changing_from(self) -> int | None:
        return self.open_before

    def counted_scope(self) -> Scope:
        # Windows that a backfill has already brought up to date do not count an event again.
        return Scope.beyond_coverage(self.before, self.furthest_position.arrival)


NO_COMMIT = Increment()
"""The record that stands for the newest commit of a state without commits."""


@dataclass(frozen=True, kw_only=True)
class Following(CommitInfo):
    """A commit that brings a roll-up up to date with its base, up to the base's `commit_number`.

    No state stores the commit, because it can be derived from the state of the base.

    Args:
        ranges: the ranges of the windows that the commit replaces. An empty tuple stands for all
            windows. None means that the base has replaced no window.
        base_run: the id of the base's run that made the commit with the number `commit_number`.
    """

    ranges: Ranges | None = None
    base_run: str = ""

    @property
    def mode(self) -> str:
        return "rollup"

    @property
    def recomputed_ranges(self) -> Ranges | None:
        return self.ranges


class Cause(StrEnum):
    """Why windows are recomputed."""

    BACKFILL = "backfill"
    CORRECTION = "correction"
    ERASURE = "erasure"


@dataclass(frozen=True, kw_only=True)
class Replacement(StateCommit):
    """A commit that replaces the windows that start in its ranges.

    Args:
        ranges: ranges [start, end) of window starts; an empty tuple stands for all windows.
        complete: true if too-late events count.
    """

    counts_all_events = True

    cause: Cause
    ranges: Ranges = ()
    complete: bool = False

    @property
    def mode(self) -> str:
        return self.cause.value

    @property
    def recomputed_ranges(self) -> Ranges:
        return self.ranges

    @property
    def late_events(self) -> str:
        return "include" if self.complete else "exclude"

    @property
    def lists_late_events(self) -> bool:
        # The too-late events that a correction counts stay in the late table.
        return self.cause is not Cause.CORRECTION

    @property
    def furthest_position(self) -> TimelinePosition:
        furthest = self.after.at
        for backfilled in self.after.covers:
            is_further = backfilled.at.arrival > furthest.arrival
            if is_further and backfilled.overlaps_any(self.ranges):
                furthest = backfilled.at
        return furthest

    @property
    def start_bounds(self) -> tuple[int | None, int | None]:
        if not self.ranges:
            return None, None
        starts, ends = zip(*self.ranges, strict=True)
        return min(starts), max(ends)

    def counted_scope(self) -> Scope:
        return Scope.from_coverage(self.after, self.ranges, complete=self.complete)


@dataclass(frozen=True, kw_only=True)
class SessionReplacement(Replacement):
    """A replacement of session windows. A session may extend beyond the commit's ranges.

    The commit recounts the events in its ranges, joins them with the stored partials outside of the
    ranges, and merges the affected sessions into the published ones.
    """

    counts_all_events = False
    # The state has only the present sessions around the ranges, not those as of the commit.
    can_repeat = False

    @property
    def replaced_ranges(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class TableSwap(StateCommit):
    """A commit that replaces all rows of an asset's tables by copies of other rows.

    Args:
        taken: for each of the asset's tables, the table and version from which rows are copied. A
            table that is missing in `taken` becomes empty.
    """

    # Publishing a promotion drops the rebuilt tables, so their rows can't be copied again.
    can_repeat = False

    taken: Mapping[str, tuple[str, int]]

    @property
    def recomputed_ranges(self) -> Ranges:
        return ()

    def counted_scope(self) -> Scope:
        return Scope.from_coverage(self.after)


@dataclass(frozen=True, kw_only=True)
class Promotion(TableSwap):
    """A commit that replaces all rows by those of rebuilt tables.

    Args:
        kept: for each table, the version that has the earlier rows; empty if no backup is kept.
    """

    kept: Mapping[str, int]

    @property
    def mode(self) -> str:
        return "promotion"


@dataclass(frozen=True, kw_only=True)
class Rollback(TableSwap):
    """A commit that restores the rows from before a promotion."""

    allows_changes = False

    @property
    def mode(self) -> str:
        return "rollback"


_KINDS: dict[str, type[StateCommit]] = {
    kind.__name__: kind
    for kind in (Increment, Replacement, SessionReplacement, Promotion, Rollback)
}


def to_json(commit: StateCommit) -> str:
    return json.dumps({"kind": type(commit).__name__, **asdict(commit)}, separators=(",", ":"))


def from_json(text: str) -> StateCommit:
    plain = json.loads(text)
    kind = _KINDS[plain.pop("kind")]
    fields = dict[str, Any]()
    for name, value in plain.items():
        read_value = _READERS.get(name)
        fields[name] = value if read_value is None else read_value(value)
    return kind(**fields)


def _read_parts(parts: dict[str, Any] | None) -> dict[str, Part] | None:
    if parts is None:
        return None
    return {name: Part(*part) for name, part in parts.items()}


def _read_ranges(ranges: list[list[int]]) -> Ranges:
    return tuple((start, end) for start, end in ranges)


def _read_taken(versions: dict[str, list[Any]]) -> dict[str, tuple[str, int]]:
    return {table: (name, version) for table, (name, version) in versions.items()}


def _read_coverage(plain: dict[str, Any]) -> Coverage:
    covers = list[BackfilledRange]()
    for cover in plain["covers"]:
        position = TimelinePosition(**cover["at"])
        covers.append(BackfilledRange(cover["start"], cover["end"], position))
    return Coverage(TimelinePosition(**plain["at"]), tuple(covers), plain["whole"])


_READERS: dict[str, Callable[[Any], Any]] = {
    "before": _read_coverage,
    "after": _read_coverage,
    "cause": Cause,
    "parts": _read_parts,
    "ranges": _read_ranges,
    "taken": _read_taken,
}
"""How the values of some fields are read from JSON."""
