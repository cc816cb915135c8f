"""Record erasures: how many events were deleted from a source's event log, without their content.

The timeline keeps the number of events that each arrival brought. The table `erasures` holds the
number deleted since, so that the event log can still be proven complete:

    rows of an arrival in the event log = its rows in the timeline - its events in `erasures`

The equation also holds for a derived source's dead letters (`<source>_unjoined`). An erasure of a
base may add rows to a derived source, for example a row of a left join that has lost its partner.
The timeline of the derived source then counts these rows, too.

An erasure is recorded before anything is deleted, with the windows to recompute. The commit that
deletes the events carries the erasure's id. When everything is done, the erasure is recorded as
finished. A later process can therefore finish an erasure that was killed, without knowing which
events the user wanted to erase.

The event log counts its erasures, as a Delta transaction of the commits that delete events
(`Log.read_epoch`). Of two erasures that have searched the log at the same time, only the first can
delete. Runs that have read the events before can't commit after it (`store.epoch`).
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pyarrow as pa

from tidemark.define import tables
from tidemark.define.source import Source
from tidemark.store.commits.conditions import Equals
from tidemark.store.commits.ranges import Ranges, merge_ranges
from tidemark.store.committers.values import Vouches
from tidemark.store.integrity import vouching
from tidemark.store.rows import INSTANT, to_dicts
from tidemark.store.warehouse import Warehouse

TABLE = tables.ERASURES

BEGUN = "begun"
ENDED = "ended"
VOID = "void"
"""The last phase of an erasure that was killed before any event was deleted."""

_MANY = 2
_COUNTS = pa.list_(pa.struct({"arrival": pa.int64(), "events": pa.int64()}))
_POSITIONS = pa.list_(pa.struct({"arrival": pa.int64(), "position": pa.int64()}))
_SCHEMA = pa.schema(
    {
        "erasure": pa.string(),
        "source": pa.string(),
        "phase": pa.string(),
        "at": INSTANT,
        "through_arrival": pa.int64(),
        "events": _COUNTS,
        "dead_letters": _COUNTS,
        "windows": pa.string(),
        "added": _POSITIONS,
    }
)


@dataclass(frozen=True)
class Erasure:
    """The record of an erasure: the events of a source to delete, and the windows to recompute.

    Args:
        through: the source's newest arrival when the erasure began.
        events: the number of events to delete, by arrival.
        letters: the number of dead letters that lose their content, by arrival; for a derived
            source, the number of dead letters to delete.
        windows: the windows to recompute, by asset, as ranges of their starts; an empty tuple
            stands for all windows.
        added: for a derived source, the position of the first row to add, by arrival. Existing rows
            of the arrival have smaller positions.
        started_at: when the erasure began, in microseconds.
    """

    source: str
    through: int
    events: Mapping[int, int]
    letters: Mapping[int, int]
    windows: Mapping[str, Ranges]
    added: Mapping[int, int] = field(default_factory=dict[int, int])
    id: str = field(default_factory=lambda: uuid4().hex)
    started_at: int = field(default_factory=lambda: time.time_ns() // 1000)

    @property
    def commit_app(self) -> str:
        """The application id of the erasure's commits."""
        return vouching.erasure_app(self.id)

    @property
    def changes_events(self) -> bool:
        """True if the erasure deletes or adds any event."""
        return bool(self.events or self.added)

    @property
    def changes_rows(self) -> bool:
        """True if the erasure deletes, empties or adds any row."""
        return self.changes_events or bool(self.letters)


def record_phase(warehouse: Warehouse, erasure: Erasure, phase: str) -> None:
    """Record that an erasure has begun or ended. A repeated call has no effect.

    Args:
        phase: `begun`, `ended`, or `void` if it was killed before any event was deleted.
    """
    warehouse.ensure_table(TABLE, _SCHEMA.empty_table(), "Events that were deleted from event logs")
    if phase == BEGUN:
        recorded_at = erasure.started_at
        version = 0
    else:
        recorded_at = time.time_ns() // 1000
        version = 1
    row = {
        "erasure": erasure.id,
        "source": erasure.source,
        "phase": phase,
        "at": recorded_at,
        "through_arrival": erasure.through,
        "events": _to_rows(erasure.events),
        "dead_letters": _to_rows(erasure.letters),
        "windows": json.dumps(erasure.windows),
        "added": _to_rows(erasure.added, "position"),
    }
    rows = pa.Table.from_pylist([row], schema=_SCHEMA)
    warehouse.append_rows(rows, TABLE, erasure.commit_app, version)


def find_unfinished(warehouse: Warehouse, source: Source) -> list[Erasure]:
    """Return the erasures of a source that have begun but not ended, the oldest first."""
    rows = _read_records(warehouse, source)
    phases = Counter(row["erasure"] for row in rows)
    return [_to_erasure(row) for row in rows if phases[row["erasure"]] < _MANY]


def superseding_record(warehouse: Warehouse, source: Source) -> Vouches:
    """Return the record of all erasures so far, for a commit that replaces all rows of a table.

    See `vouching.erasure_app`.
    """
    record = dict[str, int]()
    for row in _read_records(warehouse, source):
        record[vouching.erasure_app(str(row["erasure"]))] = 1
    return record


def arrival_ranges(arrivals: Iterable[int]) -> Ranges:
    return merge_ranges((arrival, arrival + 1) for arrival in arrivals)


def arrival_condition(ranges: Ranges) -> str:
    """Return the SQL condition that an arrival is in one of the ranges; false without ranges."""
    ranges = ranges or ((-1, 0),)
    conditions = [f"(arrival >= {start} AND arrival < {end})" for start, end in ranges]
    return f"({' OR '.join(conditions)})"


def _read_records(warehouse: Warehouse, source: Source) -> list[dict[str, object]]:
    if not warehouse.has_table(TABLE):
        return []
    rows = warehouse.load_rows(TABLE, Equals("source", source.name))
    return to_dicts(rows.sort_by("at"))


def _to_erasure(row: Mapping[str, object]) -> Erasure:
    windows = dict[str, Ranges]()
    for asset, ranges in json.loads(str(row["windows"])).items():
        windows[asset] = tuple((start, end) for start, end in ranges)
    empty = Erasure(str(row["source"]), -1, {}, {}, windows, id=str(row["erasure"]))
    return replace(
        empty,
        through=row["through_arrival"],
        events=_to_numbers(row["events"]),
        letters=_to_numbers(row["dead_letters"]),
        added=_to_numbers(row["added"], "position"),
        started_at=row["at"],
    )


def _to_rows(numbers: Mapping[int, int], name: str = "events") -> list[dict[str, int]]:
    return [{"arrival": arrival, name: number} for arrival, number in sorted(numbers.items())]


def _to_numbers(rows: object, name: str = "events") -> dict[int, int]:
    assert isinstance(rows, list)
    return {row["arrival"]: row[name] for row in rows}
