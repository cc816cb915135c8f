"""Keep the ledger: one row for each finished run.

A run writes its row last. A state commit without a row in the ledger may therefore be incompletely
published, and the next run publishes that commit again before its own one. The Delta commit that
adds a row has the number of the state commit as its transaction version. The ledger's transactions
therefore show how far an asset is published, and no row is written twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import pyarrow as pa

from tidemark.define import tables
from tidemark.store.commits.conditions import number_is
from tidemark.store.integrity import vouching
from tidemark.store.rows import INSTANT, to_dicts
from tidemark.store.warehouse import Warehouse

TABLE = tables.LEDGER

ENDED = {
    "count": "counted_at",
    "compute": "computed_at",
    "validate": "validated_at",
    "store": "stored_at",
    "publish": "ended_at",
}
"""The steps of a run, each with the column that holds the time when it ended."""


@dataclass(frozen=True)
class RunFacts:
    """The ledger's row of one run. Instants are microseconds; the table has them as timestamps.

    `counted_at`, `computed_at`, `validated_at` and `stored_at` are None if a later run finished
    this run, or if this run computed nothing.

    Args:
        table_id: the identity of the asset's tables; it changes if they are dropped and recreated.
        mode: `incremental`, `backfill` or `correction`; `rollup` for a run of a roll-up.
        late_events: `include` or `exclude`.
        commit_number: the number of the run's commit in the state; for a roll-up, the number of the
            last commit of its base that the run processed.
        from_arrival, through_arrival: the run processed the arrivals (from, through].
        window_from, window_to: the starts of the replaced windows are in [from, to). A correction
            replaces only some windows of that range. None means unbounded.
        started_at, ended_at: wall-clock time.
        watermark: the source's watermark after `through_arrival`; None is minus infinity.
        windows: the number of rows published; 0 if an earlier run, which did not finish, had
            published them already.
        on_time, late, too_late, no_event_time, duplicate: the number of events by class of
            lateness. An event in several windows counts only for the one that ends first: in the
            run that computes that window, with its lateness for that window. For a roll-up, only
            admitted events count.
        quarantined: the number of rows quarantined because they failed an expectation.
        warned: the number of rows published although they failed an expectation of level `warning`.
        reported: true if the process that started the run reports it to the orchestrator; false if
            a later run finished it.
        counted_at: when the run's events had been read, prepared, classified and aggregated to
            partials; None for a roll-up, which stores no partials.
        computed_at: when the rows of the windows that the run may have changed were computed.
        validated_at: when the asset's expectations had validated these rows.
        stored_at: when the run's partials were in the state. A run that replaces windows stores the
            partials before it computes the windows; other runs store them after validation.
        limited_by: the limit (`arrivals`, `rows`, `bytes`) because of which the run left arrivals
            to the next run. None if it processed all arrivals, or if a later run finished it.
    """

    run: str
    asset: str
    table_id: str
    mode: str
    late_events: str
    commit_number: int
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
    validated_at: int | None = None
    stored_at: int | None = None
    limited_by: str | None = None

    @property
    def events(self) -> int:
        """The number of events of all classes of lateness."""
        admitted = self.on_time + self.late
        return admitted + self.too_late + self.no_event_time + self.duplicate

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at) / 1e6

    @property
    def steps(self) -> dict[str, float]:
        """The duration of each step in seconds, in order."""
        durations = dict[str, float]()
        for step, start, end in step_spans(asdict(self)):
            durations[step] = (end - start) / 1e6
        return durations


_INSTANTS = ("window_from", "window_to", "started_at", "watermark", *ENDED.values())
_TYPES = {
    **dict.fromkeys((int, int | None), pa.int64()),
    **dict.fromkeys((str, str | None), pa.string()),
    bool: pa.bool_(),
}


def _create_schema() -> pa.Schema:
    fields = list[tuple[str, pa.DataType]]()
    for name, kind in get_type_hints(RunFacts).items():
        fields.append((name, INSTANT if name in _INSTANTS else _TYPES[kind]))
    return pa.schema(fields)


SCHEMA = _create_schema()


def add_run(
    warehouse: Warehouse, facts: RunFacts, tables: Iterable[str], *, is_repeated: bool = False
) -> RunFacts:
    """Add the row of a finished run, once.

    Args:
        tables: the tables that the run wrote.
        is_repeated: true if another run began the commit, so that the ledger may have its row.
            That row then stays as it is.

    Returns:
        The row in the ledger. If another process has recorded the commit first, it is that
        process's row.
    """
    ensure_ledger(warehouse)
    # A run with a row is complete, so all tables must be in the catalog first.
    warehouse.catalog.wait_until_registered()
    rows = pa.Table.from_pylist([asdict(facts)], schema=SCHEMA)
    if is_repeated and (recorded := _find_recorded(warehouse, facts)) is not None:
        rows = rows.slice(0, 0)
        facts = recorded
    app = f"{facts.asset}/{facts.table_id}"
    vouches = vouching.vouched_versions(warehouse, app, tables)
    if warehouse.append_rows(rows, TABLE, app, facts.commit_number, vouches=vouches) is not None:
        return facts
    # A later commit of the asset may have a row although this one has none.
    return _find_recorded(warehouse, facts) or facts


def _find_recorded(warehouse: Warehouse, facts: RunFacts) -> RunFacts | None:
    """Return the row that the ledger has already for the run's commit; None if there is none."""
    rows = warehouse.load_rows(TABLE, number_is("commit_number", facts.commit_number))
    for run in to_dicts(rows):
        if run["asset"] == facts.asset and run["table_id"] == facts.table_id:
            return RunFacts(**run)
    return None


def ensure_ledger(warehouse: Warehouse) -> None:
    warehouse.ensure_table(TABLE, SCHEMA.empty_table(), "Every run of every asset")


def step_spans(run: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Return a run's steps in order, each with its start and end.

    The list is empty if the run did not record the steps.

    Args:
        run: a row of the ledger, with instants in microseconds.
    """
    finished = list[tuple[int, str]]()
    for step, column in ENDED.items():
        if run[column] is not None:
            finished.append((run[column], step))
    if len(finished) == 1:
        return []
    # Steps that ended at the same instant keep their order in `ENDED`.
    finished.sort(key=lambda step_end: step_end[0])
    spans = list[tuple[str, int, int]]()
    start = run["started_at"]
    for end, step in finished:
        # The clock may have been set back during the run.
        end = max(start, end)
        spans.append((step, start, end))
        start = end
    return spans
