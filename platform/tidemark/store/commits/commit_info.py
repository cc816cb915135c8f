"""Define `CommitInfo`: the record that each commit of a state has of its own effect."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from operator import attrgetter

from tidemark.define.identity.parts import Part
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.ranges import Ranges


class Mode(StrEnum):
    """The kind of run that made a commit."""

    INCREMENTAL = "incremental"
    BACKFILL = "backfill"
    CORRECTION = "correction"
    ERASURE = "erasure"
    ROLLUP = "rollup"
    PROMOTION = "promotion"
    ROLLBACK = "rollback"

    @property
    def replaces(self) -> bool:
        """Whether it replaces existing windows, with recomputed or with earlier ones."""
        return self not in (Mode.INCREMENTAL, Mode.ROLLUP)

    @property
    def records_late(self) -> bool:
        """Whether it writes the late table. A correction leaves the events that it counts there."""
        return self is not Mode.CORRECTION


@dataclass(frozen=True)
class Swap:
    """The origin of the rows in a commit that replaces all existing rows.

    Args:
        taken: for each table, the table and version that its rows are copied from; a table that is
            not named becomes empty.
        kept: for each table, the version that has its earlier rows.
    """

    taken: Mapping[str, tuple[str, int]]
    kept: Mapping[str, int]


@dataclass(frozen=True)
class CommitInfo:
    """The record of one commit of the state.

    Args:
        run: the run's id.
        started: when it began, in microseconds.
        mode: the kind of the run; a roll-up's run stores nothing.
        commit_number: the commit's number, from 0. For a roll-up's run: the last commit of its base
            that it follows.
        before: the coverage that the run started from.
        after: the coverage with this commit.
        ranges: the ranges [start, end) of window starts that the commit affects; empty means all.
        late_events: `exclude` or `include`, whether too-late events count.
        definition: the fingerprint of the definition that made it.
        defined: the number of the commit that records the parts of that definition; -1 before the
            first commit, and for a roll-up's run.
        parts: the parts of the definition, if this commit records them.
        promoted: the number of the newest commit that promoted rebuilt tables and keeps the earlier
            rows; -1 if none does.
        swap: for a commit that replaces all rows by those of other tables, their origin.
        open_from: for session windows, the start of the first session that later arrivals may still
            change, in microseconds; None means unbounded.
        changing_from: the same before this commit; an incremental run reads the partials from there
            on.
        merges: for session windows, which may extend beyond the ranges: true if the commit
            recounted the events of its ranges and merged the affected sessions into the existing
            ones.
        erasures: the number of erasures whose events had left the event log when the asset's first
            run began (`store.upkeep.erasures`).
    """

    run: str = ""
    started: int = 0
    mode: Mode = Mode.INCREMENTAL
    commit_number: int = -1
    before: Coverage = field(default_factory=Coverage)
    after: Coverage = field(default_factory=Coverage)
    ranges: Ranges = ()
    late_events: str = "exclude"
    definition: str = ""
    defined: int = -1
    parts: Mapping[str, Part] | None = None
    promoted: int = -1
    swap: Swap | None = None
    open_from: int | None = None
    changing_from: int | None = None
    merges: bool = False
    erasures: int = 0

    @property
    def replaces(self) -> bool:
        """Whether the commit replaced existing rows of the windows that it affects."""
        return self.mode.replaces or bool(self.ranges)

    @property
    def renews(self) -> bool:
        """Whether one definition recomputed all windows."""
        return self.mode.replaces and not self.ranges

    @property
    def begins(self) -> bool:
        """Whether it is the state's first commit. Existing rows are then from an earlier state."""
        return self.commit_number == 0 and self.mode is not Mode.ROLLUP

    @property
    def replaces_windows(self) -> bool:
        """Whether the commit replaced the existing windows that start in its ranges."""
        return self.replaces and not self.merges

    @property
    def at(self) -> TimelinePosition:
        """The position through which this commit's windows are up to date.

        If the windows differ, the furthest position. For a roll-up's run, the position of all its
        windows.
        """
        if self.mode is Mode.ROLLUP:
            return self.after.at
        ahead = (
            c.at
            for c in self.after.covers
            if any(start < c.end and c.start < end for start, end in self.ranges)
        )
        return max((self.after.at, *ahead), key=attrgetter("arrival"))

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "CommitInfo":
        plain = json.loads(text)
        for side in ("before", "after"):
            plain[side] = Coverage(
                TimelinePosition(**plain[side]["at"]),
                tuple(
                    BackfilledRange(c["start"], c["end"], TimelinePosition(**c["at"]))
                    for c in plain[side]["covers"]
                ),
            )
        if recorded := plain.get("parts"):
            plain["parts"] = {name: Part(*part) for name, part in recorded.items()}
        if recorded := plain.get("swap"):
            taken = {table: (str(at[0]), int(at[1])) for table, at in recorded["taken"].items()}
            plain["swap"] = Swap(taken, recorded["kept"])
        plain["mode"] = Mode(plain["mode"])
        plain["ranges"] = tuple((start, end) for start, end in plain["ranges"])
        return cls(**plain)


def drop_superseded(commits: Sequence[CommitInfo]) -> Sequence[CommitInfo]:
    """Return the commits since all rows were last replaced, that commit included."""
    starts = [n for n, commit in enumerate(commits) if commit.renews or commit.swap]
    return commits[max(starts, default=0) :]
