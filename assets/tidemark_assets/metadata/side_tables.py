"""Side tables: further tables that a step writes next to the table of its asset.

Windows have side tables for late events, late loss, panes and quarantine; a source has its timeline
and its dead letters. Side tables are not assets: the page of the asset lists them with their
columns, and each materialization of the asset reports their row counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import dagster as dg
import pyarrow as pa

from tidemark.define import window_columns
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.store.event_log.arrival import TIMELINE
from tidemark.store.event_log.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.store.rows import INSTANT
from tidemark_assets.metadata import describe
from tidemark_assets.metadata.describe import Metadata

_TYPES = {pa.int64(): "bigint", pa.string(): "string", INSTANT: "timestamp"}


@dataclass(frozen=True)
class _SideTable:
    """A side table, as the page of its asset shows it."""

    name: str
    description: str
    columns: dg.TableSchema


def source_side_tables(source: Source) -> list[_SideTable]:
    """Return the side tables of a source's log."""
    timeline = {field.name: _TYPES[field.type] for field in TIMELINE}
    reasons = {**describe.MEANINGS, "reason": "Why the row could not be decoded"}
    return [
        _SideTable(
            source.timeline_table,
            "One row for each arrival: its watermark, event times and size",
            describe.schema(timeline, describe.MEANINGS),
        ),
        _SideTable(
            source.dead_letters_table,
            "Rows that could not be decoded, with their bytes and the reason; `tidemark "
            "dead-letters` lists them, and ingests them once they are fixed",
            describe.schema(DEAD_LETTER_COLUMNS, reasons),
        ),
    ]


def transform_side_tables(transform: Definition) -> list[_SideTable]:
    """Return the side tables of published windows."""

    def side(name: str, description: str, columns: Mapping[str, str | None]) -> _SideTable:
        return _SideTable(name, description, describe.columns_of(transform, columns))

    side_tables = list[_SideTable]()
    if isinstance(transform, WindowedTransform):
        side_tables += [
            side(
                transform.late_table,
                "Events too late for their window, each with the window that it missed and by how "
                "much, and events without an event time",
                window_columns.late_columns(transform),
            ),
            side(
                transform.late_loss_table,
                "Windows that are missing too-late events: the values as streamed and the "
                "complete values",
                window_columns.late_loss_columns(transform),
            ),
        ]
    if transform.expectations:
        side_tables.append(
            side(
                transform.quarantine_table,
                "Windows that failed an expectation, unpublished until a job releases or discards "
                "them",
                window_columns.quarantined_columns(transform),
            )
        )
    if transform.accumulation is not None:
        side_tables.append(
            side(
                transform.panes_table,
                "Every firing of every window, in order",
                window_columns.pane_columns(transform),
            )
        )
    return side_tables


def side_table_metadata(tables: Iterable[_SideTable]) -> Metadata:
    """Return metadata that lists the side tables on an asset's page; empty without side tables."""
    rows = [f"| `{table.name}` | {table.description} |" for table in tables]
    if not rows:
        return {}
    head = ["| table | content |", "| --- | --- |"]
    return {
        "side tables": dg.MetadataValue.md("\n".join([*head, *rows])),
        **{f"columns of {table.name}": table.columns for table in tables},
    }


def row_count(table: str) -> str:
    """Return the metadata key of a side table's row count."""
    return f"rows in {table}"
