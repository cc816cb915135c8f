"""Checks that a Delta table is intact."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

_FILE = re.compile(r"^(\d{20})\.json$")


def damaged(table: Path) -> Iterator[str]:
    """Yield a message for each fault of a Delta table.

    Faults are a gap in the transaction log, a missing file, a wrong number of rows, and a table
    that does not open at its newest version.
    """
    names = (_FILE.match(file.name) for file in (table / "_delta_log").iterdir())
    versions = sorted(int(found[1]) for found in names if found)
    if versions != [*range(versions[0], versions[0] + len(versions))]:
        yield f"the log of {table.name} has a gap: {versions}"
        return
    opened = DeltaTable(str(table))
    if opened.version() != versions[-1]:
        yield f"{table.name} opens at version {opened.version()} of {versions[-1]}"
    for add in pa.table(opened.get_add_actions(flatten=True)).to_pylist():
        file = table / add["path"]
        if not file.exists():
            yield f"{table.name} lacks its file {add['path']}"
        elif (rows := pq.read_metadata(file).num_rows) != add["num_records"]:
            yield f"{add['path']} of {table.name} has {rows} rows of {add['num_records']}"
