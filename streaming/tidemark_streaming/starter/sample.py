"""A user's own file, as the first events of a new project: its columns, and their kinds."""

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
"""The share of a column's values that make its type; the others are mistakes in the file."""

_ID = re.compile(r"(?i:(.*[_\W])?(id|uuid|guid|key|no|nr|number))|.*[a-z0-9]I[dD]")
"""A column that probably tells one event, or one thing, from another."""


class Sample(NamedTuple):
    """What a file of CSV says of itself.

    Args:
        columns: their types, as a source has them, in their order.
        time: the columns that can say when an event happened, first that which does it probably.
        key: those by which windows can be computed, in that order too.
        value: those of numbers, likewise.
        table: all of it, without what does not fit.
        rename: the columns whose names in the header are those of Tidemark's own columns.
        misfits: what does not fit, in plain words; the ingest makes dead letters of it.
    """

    columns: dict[str, str]
    time: list[str]
    key: list[str]
    value: list[str]
    table: pa.Table
    rename: dict[str, str]
    misfits: list[str]

    def first_day(self, column: str) -> str:
        """The day of the oldest event, as `2026-01-31`."""
        return min(filter(None, self.table[column].to_pylist())).date().isoformat()


def look(path: Path) -> Sample:
    """Read a file of CSV with a header.

    Raises:
        DataError: it can't be read, has a column that no source can have, or has none of time, of
            text or of numbers.
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
        # What an id comes to says nothing, and windows by it have an event each.
        return sorted(fit, key=lambda name: _ID.fullmatch(name) is not None)

    return Sample(
        kinds,
        choice("times", "2026-01-31T09:30:00Z", "TIMESTAMP"),
        choice("texts", "york", "STRING"),
        # Whole numbers are numbers of something more often than amounts of it.
        choice("numbers", "12.5", "DOUBLE", "BIGINT"),
        table,
        rename,
        misfits,
    )


def _mostly(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray | pa.Array, int]:
    """Return a column of texts as what most of them are, with nulls for the others, and how many
    these are; a column of anything else as it is."""
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
    """Refuse columns that no source can have."""
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
    """Return other names for the columns that are called as Tidemark's own."""
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
