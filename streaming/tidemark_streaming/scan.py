"""Rows of a Delta table, read by this process without the engine."""

import re

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark.store.committers.staged import file_system

_UNTOLD = re.compile(r"[<>]= null\[(timestamp|date)")
"""What a condition of Arrow says of a bound that is not known."""

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
    return _files(table).to_table(columns=columns, filter=chosen, use_threads=False)


def _files(table: DeltaTable) -> ds.FileSystemDataset:
    """A table's files, with what is known of their rows.

    Of an instant or a date beyond the year 9999 Delta's reader knows nothing: it gives up, or takes
    the bound for one that no row is within.
    """
    try:
        data = table.to_pyarrow_dataset(parquet_read_options=_MICROS, filesystem=_local(table))
    except ValueError:
        paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
        system, form = _there(table), ds.ParquetFileFormat(read_options=_MICROS)
        found = [form.make_fragment(path, system) for path in paths]
        return ds.FileSystemDataset(found, pa.schema(table.schema().to_arrow()), form, system)
    parts = list(data.get_fragments())
    untold = [_UNTOLD.search(str(part.partition_expression)) is not None for part in parts]
    if not any(untold):
        return data
    parts = [
        data.format.make_fragment(part.path, part.filesystem) if flawed else part
        for part, flawed in zip(parts, untold, strict=True)
    ]
    return ds.FileSystemDataset(parts, data.schema, data.format, data.filesystem)


def _local(table: DeltaTable) -> pafs.FileSystem | None:
    """Arrow's own way to the files of a table on a disk; None for one in an object store."""
    return _there(table) if table.table_uri.startswith("file:") else None


def _there(table: DeltaTable) -> pafs.FileSystem:
    """Arrow's own way to the files of a table."""
    system, root = file_system(table.table_uri)
    return pafs.SubTreeFileSystem(root, system)
