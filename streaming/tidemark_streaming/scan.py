"""Rows of a Delta table, read by this process without the engine."""

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark.store.committers.staged import file_system

_MICROS = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")


def whole(path: str) -> pa.Table | None:
    """All rows of the table at a path; None where there is none."""
    try:
        return rows(DeltaTable(path))
    except TableNotFoundError:
        return None


def rows(
    table: DeltaTable, columns: list[str] | None = None, chosen: ds.Expression | None = None
) -> pa.Table:
    """Rows of a table of which a condition is true.

    Raises:
        FileNotFoundError: another table has come in its place since it was opened.
    """
    # Delta's reader gives Arrow files whose methods are Python's. A thread of Arrow that lets go
    # of one while Python ends aborts the process, after all its output: thus none for tables on a
    # disk, and no other thread that continues a read of any.
    data = table.to_pyarrow_dataset(parquet_read_options=_MICROS, filesystem=_local(table))
    return data.to_table(columns=columns, filter=chosen, use_threads=False)


def _local(table: DeltaTable) -> pafs.FileSystem | None:
    """Arrow's own way to the files of a table on a disk; None for one in an object store."""
    if not table.table_uri.startswith("file:"):
        return None
    system, root = file_system(table.table_uri)
    return pafs.SubTreeFileSystem(root, system)
