"""The columns that Tidemark adds to the tables of sources and assets, and their types.

Their names are a public interface and share a namespace with the user's columns. A definition is
therefore refused if it has a column of the same name in the same table. All other columns that
Tidemark adds exist only while it processes rows, and start with a prefix (`helper_columns`).
"""

from collections.abc import Mapping

ARRIVAL_COLUMNS = {
    "arrival": "BIGINT",
    "position": "BIGINT",
    "arrived_at": "TIMESTAMP",
    "watermark": "TIMESTAMP",
    "read_from": "STRING",
    "correlation_id": "STRING",
}
"""The columns that describe an event's arrival, stored with the event in the log, and their Spark
DDL types.
"""

ARRIVAL_MEANINGS = {
    "arrival": "Number of the arrival that contains the row: 0, 1, 2, … without gaps",
    "position": "Position of the row in its arrival",
    "arrived_at": "Processing time of the arrival",
    "watermark": (
        "Watermark just before the arrival, from which lateness is determined; null is -infinity"
    ),
    "read_from": "Where the row was read, for example the file and row",
    "correlation_id": "ID of the row, the same whenever it is read",
}

BOUNDS = {"window_start": "timestamp", "window_end": "timestamp"}
_MISSED = {"lateness_seconds": "double", "reason": "string", "commit_number": "bigint"}
"""The columns that describe a too-late event in the late table, without the window's bounds."""

PUBLISHED = {
    "events": "bigint",
    "late_events": "bigint",
    "revision": "int",
    "timing": "string",
    "final": "boolean",
    "last_arrival": "bigint",
    "as_of": "bigint",
    "commit_number": "bigint",
    "quality": "string",
}
FAILED = "array<struct<expectation:string,level:string,observed:string,expected:string>>"
"""The type of the column that lists the expectations that a quarantined row failed."""
QUARANTINE_COLUMNS = {
    "failed_expectations": FAILED,
    "quarantine_status": "string",
    "quarantine_run": "string",
}
FIRED = {"pane": "int", "timing": "string", "is_last": "boolean", "retraction": "boolean"}
LOST = {"lost_events": "bigint"}

LATE_COLUMNS = {**BOUNDS, **_MISSED}
"""The columns that the late table has in addition to those of a prepared event."""

EVENT_TABLES = {"event log": ARRIVAL_COLUMNS, "late table": LATE_COLUMNS}
"""The columns that Tidemark adds to tables that contain a source's columns, by table."""

WINDOW_TABLES = {
    "event log": ARRIVAL_COLUMNS,
    "published table": {**BOUNDS, **PUBLISHED},
    "quarantine table": QUARANTINE_COLUMNS,
    "panes table": FIRED,
    "late-loss table": LOST,
}
"""The columns that Tidemark adds to tables that contain an asset's keys or aggregates, by table."""


def find_table(column: str, *tables: Mapping[str, Mapping[str, str]]) -> str | None:
    """Return the first table to which Tidemark adds a column of that name; None if there is none.

    Case is ignored.
    """
    for group in tables:
        for table, columns in group.items():
            if column.lower() in columns:
                return table
    return None
