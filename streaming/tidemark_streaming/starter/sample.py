"""Infer the columns of a new project, and their types, from the user's own CSV file."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, summarize_error
from tidemark.define.helper_columns import PREFIX, is_helper
from tidemark.define.tidemark_columns import EVENT_TABLES, find_table
from tidemark.store.rows import compute as pc
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.csv_records import SEPARATORS, Csv
from tidemark_streaming.payloads.payload import UndecodableError
from tidemark_streaming.payloads.record_files import read_records
from tidemark_streaming.payloads.text_values import TimeFormats, decode_utf8, parse_texts
from tidemark_streaming.payloads.time_rules import ZONE_OPTION
from tidemark_streaming.starter.choices import name_problem
from tidemark_streaming.starter.conversions import find_conversions

_TYPE_SHARE = 0.9
"""The share of a column's values that must fit a type. The other values count as errors in the
file."""

_SNIFFED_ROWS = 100

ZONE = "UTC"
"""The zone of times without an offset in the file, which the project's connector names."""

_KINDS = ("BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")
"""Types of columns other than STRING. The type that most values of a column fit is chosen; if
that is true of several types, the first of them."""

_ID = re.compile(r"(?i:(.*[_\W])?(id|uuid|guid|key|no|nr|number))|.*[a-z0-9]I[dD]")
"""Names of columns that probably contain identifiers."""


class Sample(NamedTuple):
    """The content of a CSV file.

    Args:
        columns: the types of the columns for a source, by name and in order.
        time: candidates for the event time, the most likely first.
        key: candidates for the key of windows, the most likely first.
        value: candidates for the numeric column, the most likely first.
        table: all rows, with nulls for values that do not fit their column.
        rename: new names for columns whose names are those of Tidemark's own columns, by old name.
        computed: SQL expressions of further columns, which are converted from the columns of the
            file, by name.
        options: the options of the connector.
        misfits: descriptions of rows that do not fit; the ingest writes them to the dead letters.
    """

    columns: dict[str, str]
    time: list[str]
    key: list[str]
    value: list[str]
    table: pa.Table
    rename: dict[str, str]
    computed: dict[str, str]
    options: dict[str, str | bool]
    misfits: list[str]

    def first_day(self, column: str) -> str:
        """Return the day of the oldest time in a column, as `2026-01-31`."""
        return min(filter(None, self.table[column].to_pylist())).date().isoformat()


def read_sample(path: Path) -> Sample:
    """Read a CSV file with a header. Raise a DataError if no project can be made from it."""
    try:
        table, form, misfits = _read_columns(path)
    except FileNotFoundError:
        raise DataError(f"There is no file '{path}'.") from None
    except (OSError, pa.ArrowException, UndecodableError) as error:
        raise DataError(
            f"'{path}' can't be read as CSV with a header: {summarize_error(error)}."
        ) from None
    rename = _new_names(table.column_names)
    table = table.rename_columns([rename.get(name, name) for name in table.column_names])
    kinds = dict[str, str]()
    options = dict(form.options)
    for index, name in enumerate(table.column_names):
        kinds[name], column, misfit_count = _infer_type(table[name])
        if kinds[name] == "TIMESTAMP" and _needs_zone(table[name], column):
            options[ZONE_OPTION] = ZONE
        table = table.set_column(index, name, column)
        if misfit_count:
            misfits.append(
                f"{format_count(misfit_count, 'row')} of '{name}' without a valid {kinds[name]}"
            )
    sources = dict[str, str]()
    computed = dict[str, str]()
    for conversion in find_conversions(table, kinds, _TYPE_SHARE):
        kinds[conversion.column] = conversion.kind
        computed[conversion.column] = conversion.sql
        table = table.append_column(conversion.column, conversion.values)
        sources |= dict.fromkeys(conversion.sources, conversion.column)
        if conversion.misfits:
            misfits.append(
                f"{format_count(conversion.misfits, 'row')} without a valid '{conversion.column}'"
            )

    def describe_choice(purpose: str, example: str, *column_types: str) -> list[str]:
        # A column from which another is computed is no number to sum, and no key.
        matching = list[str]()
        for column_type in column_types:
            for name, kind in kinds.items():
                if kind == column_type and name not in sources:
                    matching.append(name)
        fit = [name for name in matching if name_problem(name) is None]
        if not matching:
            raise DataError(
                f"The project needs a column of {purpose}, such as {example}, but '{path}' has "
                "none. "
                f"Its columns are {', '.join(f'{n} ({k})' for n, k in kinds.items())}."
            )
        if not fit:
            raise DataError(
                f"'{path}' has columns of {purpose}, but the project can't use their names. For "
                f"example, '{matching[0]}' is not a valid name: {name_problem(matching[0])}. "
                "Rename one of these columns in the header."
            )
        # The sum of an identifier is meaningless, and windows by an identifier have one event each,
        # so these columns come last.
        return sorted(fit, key=lambda name: _ID.fullmatch(name) is not None)

    return Sample(
        kinds,
        describe_choice("times", "2026-01-31T09:30:00Z", "TIMESTAMP"),
        describe_choice("texts", "york", "STRING"),
        # Integers are more often counts or codes than amounts, so doubles come first.
        describe_choice("numbers", "12.5", "DOUBLE", "BIGINT"),
        table,
        rename,
        computed,
        options,
        misfits,
    )


def _read_columns(path: Path) -> tuple[pa.Table, Csv, list[str]]:
    """Return all columns of a CSV file as bytes, its format, and descriptions of its undecodable
    lines.

    Raises:
        OSError, pa.ArrowException, UndecodableError: the file can't be read as CSV.
        DataError: a source can't have one of the file's columns.
    """
    first_records = next(filter(None, _read_records(path, Csv({"header": True}))), None)
    if first_records is None:
        raise UndecodableError("it is empty")
    form = _find_format(first_records)
    records = list(chain.from_iterable(_read_records(path, form)))
    if form.is_separator_line(records[0]):
        records.pop(0)
    if not records:
        raise UndecodableError("it has no header")
    names = [(name or "").strip() for name in form.split_fields(records.pop(0))]
    _check_columns(path, names)
    lines = pa.chunked_array([pa.array(records, pa.binary())])
    decoded = form.decode_values(lines, dict.fromkeys(names, "BINARY"))
    misfits = list[str]()
    for reason, count in Counter(decoded.reasons.values()).items():
        clause = f"{reason[0].lower()}{reason[1:-1]}"
        misfits.append(f"{format_count(count, 'line')} that can't be decoded ({clause})")
    return pa.table(dict(decoded.columns)), form, misfits


def _read_records(path: Path, form: Csv) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        yield from read_records(pa.PythonFile(file, "r"), path.name, form)


def _find_format(records: Sequence[bytes]) -> Csv:
    """Return the format whose separator gives the most fields in the header, as far as the first
    rows have as many.

    Raises:
        UndecodableError: the header can't be read.
    """
    forms = list[Csv]()
    for separator in SEPARATORS:
        options: dict[str, str | bool] = {"header": True}
        if separator != ",":
            options["sep"] = separator
        forms.append(Csv(options))
    for form in forms:
        if form.is_separator_line(records[0]):
            return form
    return max(forms, key=lambda form: _fitting_fields(records[:_SNIFFED_ROWS], form))


def _fitting_fields(records: Sequence[bytes], form: Csv) -> int:
    """Return the number of fields in the header times the number of rows with as many fields."""
    counts = list[int]()
    for record in records:
        try:
            counts.append(len(form.split_fields(record)))
        except UndecodableError:
            counts.append(0)
    return (counts[0] - 1) * counts.count(counts[0])


def _infer_type(column: pa.ChunkedArray) -> tuple[str, pa.ChunkedArray, int]:
    """Return three facts about a column: the type that most of its values have; its values, as an
    ingest decodes them; and how many of them do not fit the type, and are therefore null.
    """
    texts = decode_utf8(column)
    filled = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
    count = len(filled) - filled.null_count
    candidates = [(k, parse_texts(filled, arrow_type(k), TimeFormats(zone=ZONE))) for k in _KINDS]
    kind, values = min(candidates, key=lambda candidate: candidate[1].null_count)
    misfit_count = values.null_count - filled.null_count
    if not count or misfit_count > (1 - _TYPE_SHARE) * count:
        return "STRING", texts, 0
    return kind, values, misfit_count


def _needs_zone(column: pa.ChunkedArray, times: pa.ChunkedArray) -> bool:
    """Return whether a column has times without an offset.

    Args:
        times: the times in the column.
    """
    zoned = parse_texts(decode_utf8(column), arrow_type("TIMESTAMP"), TimeFormats())
    return zoned.null_count > times.null_count


def _check_columns(path: Path, names: list[str]) -> None:
    lower = [name.lower() for name in names]
    for name in names:
        if not name.strip():
            reason = "has no name"
        elif "`" in name or not name.isprintable():
            reason = "has a name with a character that column names can't have"
        elif lower.count(name.lower()) > 1:
            reason = "occurs twice (names that differ only in case are equal)"
        elif is_helper(name):
            reason = f"begins with '{PREFIX}', which is reserved for Tidemark's helper columns"
        else:
            continue
        raise DataError(
            f"Column '{name}' (number {names.index(name) + 1} of '{path}') {reason}: rename it in "
            "the header."
        )


def _new_names(names: list[str]) -> dict[str, str]:
    """Return new names for columns whose names are those of Tidemark's own columns."""
    renamed = dict[str, str]()
    lower = {name.lower() for name in names}
    for name in names:
        if find_table(name, EVENT_TABLES):
            other = f"own_{name.lower()}"
            while other in lower:
                other = f"own_{other}"
            renamed[name] = other
    return renamed
