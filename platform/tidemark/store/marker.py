"""A marker: what one commit of an asset did, as the commit itself says."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from operator import attrgetter

from tidemark.store.coverage import Cover, Coverage, Position
from tidemark.store.ranges import Ranges


class Mode(StrEnum):
    """What kind of run made a commit."""

    INCREMENTAL = "incremental"
    BACKFILL = "backfill"
    CORRECTION = "correction"
    ROLLUP = "rollup"

    @property
    def replaces(self) -> bool:
        """Whether it counts events anew, and puts that in the place of what was counted."""
        return self in (Mode.BACKFILL, Mode.CORRECTION)

    @property
    def records_late(self) -> bool:
        """Whether what came too late goes on record; what a correction counts stays there."""
        return self is not Mode.CORRECTION


@dataclass(frozen=True)
class Marker:
    """What one commit of the state did.

    Args:
        run: the run's id.
        started: when it began, in microseconds.
        mode: of what kind the run was; that of a roll-up stores nothing.
        seq: the commit's number, from 0; of a roll-up's run, that of the base's commit that it
            follows through.
        before: the coverage that the run started from.
        after: the coverage with this commit.
        ranges: the window starts, each [start, end), that the commit is about; none is no bound.
        answer: `as_streamed` or `complete`.
        definition: the fingerprint of the definition that made it.
        open_from: of sessions, where the first one starts that later arrivals may still change,
            microseconds; None is no bound.
        changing_from: the same before this commit: an increment reads the partials from there on.
        merges: of sessions, which no range holds: whether it counted the events of its ranges anew,
            and what became of the sessions that these are in is merged into what there was.
    """

    run: str = ""
    started: int = 0
    mode: Mode = Mode.INCREMENTAL
    seq: int = -1
    before: Coverage = field(default_factory=Coverage)
    after: Coverage = field(default_factory=Coverage)
    ranges: Ranges = ()
    answer: str = "as_streamed"
    definition: str = ""
    open_from: int | None = None
    changing_from: int | None = None
    merges: bool = False

    @property
    def replaces(self) -> bool:
        """Whether the commit put all that it is about in the place of what was there."""
        return self.mode.replaces or bool(self.ranges)

    @property
    def replaces_windows(self) -> bool:
        """Whether the windows that start in its ranges are in the place of what was there."""
        return self.replaces and not self.merges

    @property
    def at(self) -> Position:
        """The position through which this commit's windows are complete; the furthest one where
        they differ. Of a roll-up's run, that of all its windows."""
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
    def from_json(cls, text: str) -> "Marker":
        plain = json.loads(text)
        for side in ("before", "after"):
            plain[side] = Coverage(
                Position(**plain[side]["at"]),
                tuple(
                    Cover(c["start"], c["end"], Position(**c["at"])) for c in plain[side]["covers"]
                ),
            )
        plain["mode"] = Mode(plain["mode"])
        plain["ranges"] = tuple((start, end) for start, end in plain["ranges"])
        return cls(**plain)
