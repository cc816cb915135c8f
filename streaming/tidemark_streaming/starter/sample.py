"""Infer the columns of a new project, and their types, from the user's own CSV file."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import csv

from tidemark.base.errors import DataError
from tidemark.define.helper_columns import PREFIX, is_helper
from tidemark.define.source import ARRIVAL_COLUMNS, RUN_COLUMNS
from tidemark_streaming.starter.choices import why_unfit

MOSTLY = 0.9
"""The share of a column's values that determines its type; the others count as errors in the
file."""

_ID = re.compile(r"(?i:(.*[_\W])?(id|uuid|guid|key|no|nr|number))|.*[a-z0-9]I[dD]")
"""Names of columns that probably contain identifiers."""


class Sample(NamedTuple):
    """The content of a CSV file.

    Args:
        columns: the types of the columns for a source, in order.
        time: candidates for the event time, the most likely first.
        key: candidates for the key of windows, in the same order.
        value: candidates for the numeric column, in the same order.
        table: all rows, with nulls for values that do not fit their column.
        rename: new names for columns whose names are those of Tidemark's own columns.
        misfits: descriptions of rows that do not fit; the ingest writes them to the dead letters.
    """

    columns: dict[str, str]
    time: list[str]
    key: list[str]
    value: list[str]
    table: pa.Table
    rename: dict[str, str]
    misfits: list[str]

    def first_day(self, column: str) -> str:
        """Return the day of the oldest event, as `2026-01-31`."""
        return min(filter(None, self.table[column].to_pylist())).date().isoformat()


def look(path: Path) -> Sample:
    """Read a CSV file with a header.

    Raises:
        DataError: the file can't be read, a source can't have one of its columns, or it lacks a
            usable column of times, text or numbers.
    """
    odd_lines: list[int | None] = []

    def skip(row: csv.InvalidRow) -> str:
        odd_lines.append(row.number)
        return "skip"

    try:
        table = csv.read_csv(path, parse_options=csv.ParseOptions(invalid_row_handler=skip))
    except FileNotFoundError:
        raise DataError(f"There is no file '{path}'.") from None
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"'{path}' can't be read as CSV with a header: {reason}.") from None
    _check_columns(path, table.column_names)
    rename = _renamed(table.column_names)
    table = table.rename_columns([rename.get(name, name) for name in table.column_names])
    misfits = [f"another number of fields in {len(odd_lines):,} lines"] if odd_lines else []
    for place, name in enumerate(table.column_names):
        column, odd = _mostly(table[name])
        if odd:
            table = table.set_column(place, name, column)
            misfits.append(f"no {_kind(column.type)} in {odd:,} rows of '{name}'")
    kinds = {name: _kind(table.schema.field(name).type) for name in table.column_names}

    def choice(what: str, example: str, *wanted: str) -> list[str]:
        there = [name for kind in wanted for name in kinds if kinds[name] == kind]
        fit = [name for name in there if why_unfit(name) is None]
        if not there:
            raise DataError(
                f"'{path}' has no column of {what} such as {example}, which the project's windows "
                f"need; its columns are {', '.join(f'{n} ({k})' for n, k in kinds.items())}."
            )
        if not fit:
            raise DataError(
                f"'{path}' has a column of {what}, '{there[0]}', whose name the project can't "
                f"use ({why_unfit(there[0])}): rename it in the header."
            )
        # The sum of an identifier is meaningless, and windows by an identifier have one event each,
        # so these columns come last.
        return sorted(fit, key=lambda name: _ID.fullmatch(name) is not None)

    return Sample(
        kinds,
        choice("times", "2026-01-31T09:30:00Z", "TIMESTAMP"),
        choice("texts", "york", "STRING"),
        # Integers are more often counts or codes than amounts, so doubles come first.
        choice("numbers", "12.5", "DOUBLE", "BIGINT"),
        table,
        rename,
        misfits,
    )


def _mostly(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray | pa.Array, int]:
    """Return a text column converted to the type of most of its values, with nulls for the others,
    and the number of these. Return any other column unchanged."""
    if not pa.types.is_string(column.type):
        return column, 0
    texts = [text for text in column.to_pylist() if text]
    for parse, kind in _READS:
        fit = sum(_read(parse, text) is not None for text in texts)
        if fit < len(texts) and fit >= MOSTLY * len(texts):
            return pa.array([_read(parse, t) for t in column.to_pylist()], kind), len(texts) - fit
    return column, 0


def _read(parse: Callable[[str], object], text: str | None) -> object:
    try:
        return parse(text or "")
    except (ValueError, OverflowError):
        return None


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_READS: tuple[tuple[Callable[[str], object], pa.DataType], ...] = (
    (int, pa.int64()),
    (float, pa.float64()),
    (_instant, pa.timestamp("us", "UTC")),
)


def _check_columns(path: Path, names: list[str]) -> None:
    """Refuse columns that a source can't have."""
    lower = [name.lower() for name in names]
    for name in names:
        if not name.strip():
            reason = "has no name"
        elif "`" in name or not name.isprintable():
            reason = "has a character in its name that no column can have"
        elif lower.count(name.lower()) > 1:
            reason = "is there twice, as capitals make no difference"
        elif is_helper(name):
            reason = f"begins with '{PREFIX}', as Tidemark's helper columns do"
        else:
            continue
        raise DataError(
            f"The column '{name}', number {names.index(name) + 1} of '{path}', {reason}: rename it "
            "in the header."
        )


def _renamed(names: list[str]) -> dict[str, str]:
    """Return new names for columns whose names are those of Tidemark's own columns."""
    found, lower = dict[str, str](), {name.lower() for name in names}
    for name in names:
        if name.lower() in (*ARRIVAL_COLUMNS, *RUN_COLUMNS):
            other = f"own_{name.lower()}"
            while other in lower:
                other = f"own_{other}"
            found[name] = other
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
