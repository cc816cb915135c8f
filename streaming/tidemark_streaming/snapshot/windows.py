"""The numbers of an asset's open, published and final windows, read from its tables.

A window is *open* until the watermark passes its end. After that, late events may still change it
until it is *final*.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED
from tidemark.quality.quarantine import QUARANTINED
from tidemark.store.commits.conditions import at_least, text_field
from tidemark.store.rows import to_micros
from tidemark_streaming.snapshot.tables import Tables, sum_column


@dataclass(frozen=True)
class _Published:
    """The numbers of an asset's published rows.

    Args:
        final: rows that can't change any more.
        late: late events in the rows. An event counts once for each of its windows.
    """

    rows: int = 0
    final: int = 0
    late: int = 0


def count_published(tables: Tables, definition: Definition) -> _Published:
    """Return the numbers of published rows."""

    def count_rows() -> _Published:
        rows = read_published(tables, definition)
        if rows is None:
            return _Published()
        return _Published(rows.num_rows, sum_column(rows["final"]), sum_column(rows["late_events"]))

    return tables.read_if_changed(
        (definition.name, "published"), [definition.published_table], count_rows
    )


def read_published(tables: Tables, definition: Definition) -> pa.Table | None:
    """Read the end, the finality and the number of late events of each published row."""
    return tables.read(definition.published_table, ["window_end", "final", "late_events"])


def count_open(tables: Tables, definition: Definition, watermark: int | None) -> Counter[int]:
    """Return the number of rows of open windows, by the end of the window.

    The rows are counted in the state, because a window that has not fired is not published. A
    roll-up has no state: only the open windows that it has published early are counted.
    """
    rolls_up = definition.rolled_up_name is not None
    table = definition.published_table if rolls_up else definition.state_table

    def count_rows() -> Counter[int]:
        if watermark is not None and watermark >= INFINITY:
            return Counter()
        window_columns = tables.existing_columns(table, definition.by_window)
        after = BEGINNING if watermark is None else watermark + 1
        where = None if rolls_up else ds.field(ADMITTED)
        bounds = [at_least("window_end", after, instants=True)]
        rows = tables.read(table, window_columns, where, bounds)
        if rows is None:
            return Counter()
        return Counter(to_micros(rows.group_by(window_columns).aggregate([])["window_end"]))

    return tables.read_if_changed(
        (definition.name, "open"), [table], count_rows, dependency=watermark
    )


def count_too_late(tables: Tables, definition: Definition) -> int:
    """Return the number of too-late events; a roll-up has none."""
    late_tables = definition.late_tables[:1]

    def count_events() -> int:
        reason = text_field("reason") == "too_late"
        event_columns = ["arrival", "position"]
        count = 0
        for table in late_tables:
            rows = tables.read(table, event_columns, reason)
            if rows is not None:
                # The late table has one row per event and window: count the distinct events.
                count += rows.group_by(event_columns).aggregate([]).num_rows
        return count

    return tables.read_if_changed((definition.name, "too late"), late_tables, count_events)


@dataclass(frozen=True)
class QuarantineCounts:
    """The numbers of rows in an asset's quarantine.

    Args:
        quarantined: rows that wait for a decision, or for a run that finds them valid.
        discarded: rows that were discarded manually.
        failures: the numbers of quarantined rows that fail an expectation, by expectation.
    """

    quarantined: int = 0
    discarded: int = 0
    failures: Mapping[str, int] = field(default_factory=dict[str, int])


def count_quarantined(tables: Tables, definition: Definition) -> QuarantineCounts:
    """Return the numbers of rows in an asset's quarantine."""

    def count_rows() -> QuarantineCounts:
        columns = ["failed_expectations", "quarantine_status"]
        rows = tables.read(definition.quarantine_table, columns)
        if rows is None:
            return QuarantineCounts()
        waiting = rows.filter(ds.field("quarantine_status") == QUARANTINED)
        failures = Counter[str]()
        for failed in waiting["failed_expectations"].to_pylist():
            failures.update(failure["expectation"] for failure in failed or ())
        return QuarantineCounts(waiting.num_rows, rows.num_rows - waiting.num_rows, failures)

    return tables.read_if_changed(
        (definition.name, "quarantine counts"), [definition.quarantine_table], count_rows
    )
