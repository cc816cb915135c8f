"""The ledger: one row for each finished run, with its facts.

A run writes its row last, so a commit of the state that has no row was not, or perhaps not, fully
published; the next run publishes it again first. The row carries the commit's number as its
transaction, so the head of the ledger tells how far an asset is published, and no row comes twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import pyarrow as pa

from tidemark.define import tables
from tidemark.store import integrity
from tidemark.store.conditions import Within
from tidemark.store.rows import INSTANT, plain
from tidemark.store.warehouse import Warehouse

TABLE = tables.LEDGER

ENDED = {
    "count": "counted_at",
    "compute": "computed_at",
    "judge": "judged_at",
    "store": "stored_at",
    "publish": "ended_at",
}
"""The steps of a run, and the column that says when each had ended."""


@dataclass(frozen=True)
class RunFacts:
    """What a run did. Instants are microseconds; the ledger holds them as timestamps.

    Args:
        run: the run's id.
        asset: the transform's name.
        life: the asset's identity; another one after it was dropped and made anew.
        mode: `incremental`, `backfill` or `correction`; `rollup` for a run of a roll-up.
        answer: `as_streamed` or `complete`.
        seq: the number of its commit in the state; a roll-up's, of the last commit of its base that
            it followed.
        from_arrival, through_arrival: it covered the arrivals (from, through].
        window_from, window_to: the windows replaced start in [from, to), a correction's here and
            there; None is no bound.
        started_at, ended_at: wall-clock time.
        watermark: the source's watermark after `through_arrival`; None is minus infinity.
        windows: rows published; 0 where an earlier run had published them before it ended.
        on_time, late, too_late, no_event_time, duplicate: events by verdict, once for each of their
            windows; of a roll-up, those alone that count.
        quarantined: rows withheld because they failed an expectation.
        warned: rows published that failed one of level `warning`.
        reported: whether who began it tells the orchestrator of it; not where a later run ended it.
        counted_at: when its events were read, prepared, judged and added up to partials; None of a
            roll-up, which stores none.
        computed_at: when the rows of the windows that it can have changed were there.
        judged_at: when these were judged by the asset's expectations.
        stored_at: when its partials were in the state: of a run that replaces windows before
            these are computed, of others after they are judged.
            These four are None of a run that a later one ended, and of one that computes nothing.
        limited_by: which limit of a run (`arrivals`, `rows`, `bytes`) left others to the next one;
            None where it took in all that had come, and of one that a later run ended.
    """

    run: str
    asset: str
    life: str
    mode: str
    answer: str
    seq: int
    from_arrival: int
    through_arrival: int
    window_from: int | None
    window_to: int | None
    started_at: int
    ended_at: int
    watermark: int | None
    windows: int
    quarantined: int
    warned: int
    on_time: int
    late: int
    too_late: int
    no_event_time: int
    duplicate: int
    reported: bool
    counted_at: int | None = None
    computed_at: int | None = None
    judged_at: int | None = None
    stored_at: int | None = None
    limited_by: str | None = None

    @property
    def events(self) -> int:
        """All events, once for each of their windows."""
        admitted = self.on_time + self.late
        return admitted + self.too_late + self.no_event_time + self.duplicate

    @property
    def seconds(self) -> float:
        """How long the run took."""
        return (self.ended_at - self.started_at) / 1e6

    @property
    def steps(self) -> dict[str, float]:
        """How long each of its steps took, in seconds, in their order."""
        return {step: (end - start) / 1e6 for step, start, end in spans(asdict(self))}


_INSTANTS = ("window_from", "window_to", "started_at", "watermark", *ENDED.values())
_TYPES = {
    **dict.fromkeys((int, int | None), pa.int64()),
    **dict.fromkeys((str, str | None), pa.string()),
    bool: pa.bool_(),
}
_SCHEMA = pa.schema(
    [
        (name, INSTANT if name in _INSTANTS else _TYPES[kind])
        for name, kind in get_type_hints(RunFacts).items()
    ]
)


def append(warehouse: Warehouse, facts: RunFacts, tables: Iterable[str]) -> RunFacts:
    """Record a finished run, once.

    Args:
        tables: the tables that it has written.

    Returns:
        The facts as they are on record: those of who recorded the commit first.
    """
    create(warehouse)
    # What is on record is done to the end: no table is left that the catalog lacks.
    warehouse.catalog.entered()
    rows = pa.Table.from_pylist([asdict(facts)], schema=_SCHEMA)
    app = f"{facts.asset}/{facts.life}"
    vouches = integrity.vouches(warehouse, app, tables)
    if warehouse.append(rows, TABLE, app, facts.seq, vouches=vouches) is not None:
        return facts
    found = warehouse.take(TABLE, Within("seq", ((facts.seq, facts.seq + 1),), instants=False))
    own = [r for r in plain(found) if (r["asset"], r["life"]) == (facts.asset, facts.life)]
    # A later commit of the asset may be on record without this one having been.
    return RunFacts(**own[0]) if own else facts


def create(warehouse: Warehouse) -> None:
    """Create the ledger, unless it is there."""
    if not warehouse.create(TABLE, _SCHEMA.empty_table(), "Every run of every asset"):
        # One of before runs told of their steps.
        warehouse.widen(TABLE, _SCHEMA)


def spans(run: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """The steps of a run in their order, each from where to where it went; none where it does not
    tell of them.

    Args:
        run: a row of the ledger, with instants in microseconds.
    """
    ended = {step: run.get(column) for step, column in ENDED.items()}
    told = [(end, step) for step, end in ended.items() if end is not None]
    if len(told) == 1:
        return []
    found, start = list[tuple[str, int, int]](), run["started_at"]
    for end, step in sorted(told, key=lambda t: t[0]):
        # A clock may have been set back meanwhile.
        found.append((step, start, max(start, end)))
        start = max(start, end)
    return found


def published(warehouse: Warehouse, asset: str, life: str) -> int:
    """The number of the newest commit of the asset's state that is known to be published; or -1.

    Args:
        life: the identity of the asset's state.
    """
    return warehouse.transaction(TABLE, f"{asset}/{life}")
