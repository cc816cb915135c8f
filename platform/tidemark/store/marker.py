"""A marker: what one commit of an asset did, as the commit itself says."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from operator import attrgetter

from tidemark.define.parts import Part
from tidemark.store.coverage import Cover, Coverage, Position
from tidemark.store.ranges import Ranges


class Mode(StrEnum):
    """What kind of run made a commit."""

    INCREMENTAL = "incremental"
    BACKFILL = "backfill"
    CORRECTION = "correction"
    ERASURE = "erasure"
    ROLLUP = "rollup"
    SWITCH = "switch"
    BACK = "back"

    @property
    def replaces(self) -> bool:
        """Whether it puts what was counted anew, or before, in the place of what there is."""
        return self not in (Mode.INCREMENTAL, Mode.ROLLUP)

    @property
    def records_late(self) -> bool:
        """Whether what came too late goes on record; what a correction counts stays there."""
        return self is not Mode.CORRECTION


@dataclass(frozen=True)
class Swap:
    """Where the rows come from that a commit puts in the place of all that there is.

    Args:
        taken: by table, of which version of which table it is to have the rows; a table that is not
            named is to have none.
        kept: by table, the version that had the rows before.
    """

    taken: Mapping[str, tuple[str, int]]
    kept: Mapping[str, int]


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
        defined: the number of the commit that tells the parts of that definition; -1 where an
            earlier Tidemark made it, which did not tell them.
        parts: the parts of the definition, where this is that commit.
        switched: the number of the newest commit that put rebuilt tables in the place of these, and
            keeps what was there before; -1 where none does.
        swap: of a commit that puts other tables' rows in the place of what was there, of which.
        open_from: of sessions, where the first one starts that later arrivals may still change,
            microseconds; None is no bound.
        changing_from: the same before this commit: an increment reads the partials from there on.
        merges: of sessions, which no range holds: whether it counted the events of its ranges anew,
            and what became of the sessions that these are in is merged into what there was.
        erasures: of how many erasures the events had left the log when the first of the commits was
            begun (`store.erasures`).
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
    defined: int = -1
    parts: Mapping[str, Part] | None = None
    switched: int = -1
    swap: Swap | None = None
    open_from: int | None = None
    changing_from: int | None = None
    merges: bool = False
    erasures: int = 0

    @property
    def replaces(self) -> bool:
        """Whether the commit put all that it is about in the place of what was there."""
        return self.mode.replaces or bool(self.ranges)

    @property
    def renews(self) -> bool:
        """Whether all that there is was counted anew by one definition."""
        return self.mode.replaces and not self.ranges

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
        if told := plain.get("parts"):
            plain["parts"] = {name: Part(*part) for name, part in told.items()}
        if told := plain.get("swap"):
            taken = {table: (str(at[0]), int(at[1])) for table, at in told["taken"].items()}
            plain["swap"] = Swap(taken, told["kept"])
        plain["mode"] = Mode(plain["mode"])
        plain["ranges"] = tuple((start, end) for start, end in plain["ranges"])
        return cls(**plain)
