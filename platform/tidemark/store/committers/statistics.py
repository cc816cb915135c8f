"""Read and write the statistics of files in a table's transaction log.

Python's instants and dates cover the years 1 to 9999; Parquet's cover more. A file with values
outside of that range gets no statistics for the column, so readers do not skip it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidemark.store.rows import OUT_OF_RANGE_ERRORS, to_python


def list_files(opened: DeltaTable) -> list[dict[str, Any]]:
    """Return a table's files from its transaction log, with their statistics."""
    return to_python(pa.table(opened.get_add_actions(flatten=True)))


def read_statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a file that allow data skipping, as Delta stores them.

    These are the number of rows, the minimum and maximum of each column of whole numbers or
    instants, and the number of nulls of each column. Nested columns have none.
    """
    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}
    null_counts: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for column_index in range(footer.num_columns):
        chunks = [group.column(column_index) for group in groups]
        name = chunks[0].path_in_schema
        statistics = [chunk.statistics for chunk in chunks]
        is_complete = all(part is not None and part.has_null_count for part in statistics)
        if "." in name or not is_complete:
            continue
        null_counts[name] = sum(part.null_count for part in statistics)
        bounds = _find_bounds(statistics)
        if bounds is None:
            continue
        minimum, maximum = bounds
        if isinstance(minimum, datetime):
            min_values[name] = _format_instant(minimum)
            max_values[name] = _format_instant(maximum)
        elif isinstance(minimum, int) and not isinstance(minimum, bool):
            min_values[name] = minimum
            max_values[name] = maximum
    return {
        "numRecords": footer.num_rows,
        "minValues": min_values,
        "maxValues": max_values,
        "nullCount": null_counts,
    }


def _find_bounds(statistics: Sequence[pq.Statistics]) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of a column; None if they are not known.

    Args:
        statistics: those of the column in each row group.
    """
    with_bounds = [part for part in statistics if part.has_min_max]
    with_values = [part for part in statistics if part.num_values > 0]
    if not with_bounds or len(with_bounds) < len(with_values):
        return None
    try:
        return min(part.min for part in with_bounds), max(part.max for part in with_bounds)
    except OUT_OF_RANGE_ERRORS:
        return None


def _format_instant(value: datetime) -> str:
    # `strftime` writes years before 1000 with fewer than four digits.
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
