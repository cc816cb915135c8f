"""A user's own file, as the first events of a new project: its columns, and their kinds."""

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import csv

from tidemark.base.errors import DataError


class Sample(NamedTuple):
    """What a file of CSV says of itself.

    Args:
        columns: their types, as a source has them, in their order.
        time: the columns that can say when an event happened.
        key: those by which windows can be computed.
        value: those of numbers.
        table: all of it.
    """

    columns: dict[str, str]
    time: list[str]
    key: list[str]
    value: list[str]
    table: pa.Table

    def first_day(self, column: str) -> str:
        """The day of the oldest event, as `2026-01-31`."""
        return min(filter(None, self.table[column].to_pylist())).date().isoformat()


def look(path: Path) -> Sample:
    """Read a file of CSV with a header.

    Raises:
        DataError: it can't be read, or has no column of time, of text or of numbers.
    """
    try:
        table = csv.read_csv(path)
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"'{path}' can't be read as CSV with a header: {reason}.") from None
    kinds = {name: _kind(table.schema.field(name).type) for name in table.column_names}
    found = Sample(
        kinds,
        _of(kinds, "TIMESTAMP"),
        _of(kinds, "STRING"),
        # Whole numbers are numbers of something more often than amounts of it.
        [*_of(kinds, "DOUBLE"), *_of(kinds, "BIGINT")],
        table,
    )
    for what, names, example in (
        ("times", found.time, "2026-01-31T09:30:00Z"),
        ("texts", found.key, "york"),
        ("numbers", found.value, "12.5"),
    ):
        if not names:
            raise DataError(
                f"'{path}' has no column of {what} such as {example}, which the project's windows "
                f"need; its columns are {', '.join(f'{n} ({k})' for n, k in kinds.items())}."
            )
    return found


def _kind(of: pa.DataType) -> str:
    if pa.types.is_timestamp(of):
        return "TIMESTAMP"
    if pa.types.is_integer(of):
        return "BIGINT"
    if pa.types.is_floating(of):
        return "DOUBLE"
    if pa.types.is_boolean(of):
        return "BOOLEAN"
    return "DATE" if pa.types.is_date(of) else "STRING"


def _of(kinds: dict[str, str], wanted: str) -> list[str]:
    return [name for name, kind in kinds.items() if kind == wanted]
