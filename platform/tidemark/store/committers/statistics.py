"""Read and write the statistics of files in a table's transaction log.

Python's instants and dates cover the years 1 to 9999; Parquet's cover more. A file with values
outside of that range gets no statistics for the column, so readers do not skip it.
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidemark.store.rows import OUT_OF_RANGE_ERRORS, to_python


def files(opened: DeltaTable) -> list[dict[str, Any]]:
    """Return a table's files from its transaction log, with their statistics."""
    return to_python(pa.table(opened.get_add_actions(flatten=True)))


def read_statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a file that allow data skipping, as Delta stores them.

    These are the number of rows, the minimum and maximum of each column of whole numbers or
    instants, and the number of nulls of each column. Nested columns have none.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    for column_index in range(footer.num_columns):
        chunks = [group.column(column_index) for group in groups]
        name = chunks[0].path_in_schema
        statistics = [c.statistics for c in chunks]
        if "." in name or not all(s is not None and s.has_null_count for s in statistics):
            continue
        nulls[name] = sum(s.null_count for s in statistics)
        with_bounds = [s for s in statistics if s.has_min_max]
        if len(with_bounds) < sum(s.num_values > 0 for s in statistics) or not with_bounds:
            continue
        try:
            low = min(s.min for s in with_bounds)
            high = max(s.max for s in with_bounds)
        except OUT_OF_RANGE_ERRORS:
            continue
        if isinstance(low, datetime):
            least[name], most[name] = _instant(low), _instant(high)
        elif isinstance(low, int) and not isinstance(low, bool):
            least[name] = low
            most[name] = high
    return {
        "numRecords": footer.num_rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": nulls,
    }


def _instant(value: datetime) -> str:
    # `strftime` writes years before 1000 with fewer than four digits.
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
