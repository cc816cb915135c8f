"""Read text files, and decode their rows in this process, some megabytes at a time."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.base.errors import DataError
from tidemark.define.protection import Drop
from tidemark.define.source import CORRELATION, Source
from tidemark.store.committers.file_systems import FileChangedError
from tidemark.store.event_log.dead_letters import DEAD, content_of, dead_letters_of
from tidemark.store.refusals import store_failure
from tidemark_streaming.connector import CHUNK, CONTENT
from tidemark_streaming.files.csv_header import WrongHeaderError, columns_of_header
from tidemark_streaming.files.landed_file import LandedFile
from tidemark_streaming.payloads import Json, Payload
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.csv_records import Csv
from tidemark_streaming.payloads.payload import Decoded, UndecodableError, decode_protected
from tidemark_streaming.payloads.record_files import TextFormat, read_records
from tidemark_streaming.payloads.undeclared import find_undeclared, sample_step
from tidemark_streaming.payloads.wrong_content import (
    WrongContentError,
    check_first_object,
    check_line_ends,
)


def read_text(
    file: LandedFile, chunk: int, source: Source, form: TextFormat, undeclared: set[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a file in order, as at least one table.

    Args:
        chunk: the value of the column `CHUNK` in all rows of the file.
        undeclared: gets the names of JSON fields that the source does not declare.
    """
    columns = source.record_columns
    row_count = 0
    has_read_separator = False
    has_read_header = False
    for records in _checked_records(file, source, form):
        if isinstance(form, Csv) and form.has_header and not has_read_header:
            if records and not has_read_separator and form.is_separator_line(records[0]):
                records.pop(0)
                has_read_separator = True
            # The first batch may have only the header, because the first row may be large.
            if records:
                columns = _read_header(records.pop(0), file, source, form)
                check_missing(file, source, columns)
                has_read_header = True
        # Without its declared fields, a protected source would show the names of others.
        if isinstance(form, Json) and not source.mask:
            sampled = records[:: sample_step(len(records))]
            undeclared.update(find_undeclared(sampled, source.record_fields, form))
        values = pa.chunked_array([pa.array(records, pa.binary())])
        events = decode_protected(values, columns, source, form)
        letters = _dead_letters_of_events(events, values, source)
        read = _source_columns(events, source)
        if source.computed:
            read[CONTENT] = content_of(events.rows, _letter_fields(values, source))
        yield arrival_rows(read, letters, (chunk, row_count, file.name))
        row_count += len(records)


def _checked_records(file: LandedFile, source: Source, form: TextFormat) -> Iterator[list[bytes]]:
    """Yield the records of a file in batches, after a check of the first one."""
    is_checked = False
    with explain_errors(file, source, "it is damaged"), file.open() as content:
        for records in read_records(content, file.name, form):
            if records and not is_checked:
                _check_first_record(records, form)
                is_checked = True
            yield records


def _check_first_record(records: Sequence[bytes], form: TextFormat) -> None:
    first = records[0]
    is_only = len(records) == 1
    if not isinstance(form, Csv):
        check_first_object(first, is_only=is_only, is_valid=_is_json(first))
        return
    if b"\r" in first and is_only:
        try:
            form.split_fields(first)
        except UndecodableError:
            check_line_ends(first)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def explain_errors(file: LandedFile, source: Source, damaged: str) -> Iterator[None]:
    """Convert an error in the block into a DataError that names the file and its source.

    Args:
        damaged: the reason to give if the content of the file is at fault, not the file system.
    """
    try:
        yield
    except WrongContentError as error:
        raise unreadable_error(file, source, str(error)) from None
    except FileChangedError:
        raise DataError(
            f"File '{file.location}' of source '{source.name}' changed while it was read, so "
            f"nothing of it is ingested. {file.writing_advice}",
            retriable=True,
        ) from None
    except FileNotFoundError:
        raise DataError(
            f"File '{file.location}' of source '{source.name}' was deleted or renamed before it "
            "was read. The next ingest continues without it: put it back if you need its rows.",
            retriable=True,
        ) from None
    except (OSError, pa.ArrowException) as error:
        if failed := store_failure(error):
            raise failed from error
        is_damaged = isinstance(error, pa.ArrowException) or not error.errno
        reason = damaged if is_damaged else (error.strerror or str(error)).lower()
        raise unreadable_error(file, source, reason) from None


def unreadable_error(file: LandedFile, source: Source, reason: str) -> DataError:
    """Create the error of a file that can't be read."""
    return DataError(
        f"File '{file.location}' of source '{source.name}' can't be read: {reason}. Correct the "
        "file, move it out of the folder, or set `names` of the connector, for example to '*.csv'."
    )


def _read_header(header: bytes, file: LandedFile, source: Source, form: Csv) -> dict[str, str]:
    try:
        return columns_of_header(header, source, form)
    except WrongHeaderError as error:
        raise unreadable_error(file, source, str(error)) from None


def check_missing(file: LandedFile, source: Source, columns: Collection[str]) -> None:
    """Refuse a file that lacks the event time, or that has a column only in the name of a folder.

    Programs that partition their files name a folder `day=2026-01-01`, and leave the column `day`
    out of the files in it.

    Args:
        columns: the source's columns that the file has.
    """
    if source.event_time in source.record_columns and source.event_time not in columns:
        field = source.field_of(source.event_time)
        raise unreadable_error(file, source, f"it has no column '{field}', the event time")
    missing = set[str]()
    for column in source.record_columns:
        is_dropped = isinstance(source.mask.get(column), Drop)
        if column not in columns and not is_dropped:
            missing.add(source.field_of(column).lower())
    for part in file.name.split("/")[:-1]:
        field, is_partition, _ = part.partition("=")
        if is_partition and field.lower() in missing:
            raise unreadable_error(
                file,
                source,
                f"its column '{field}' is only in the name of the folder '{part}', which is not "
                "read. Write it into the file, or declare a source without it",
            )


def arrival_rows(
    columns: Mapping[str, Any], letters: pa.ChunkedArray, origin: tuple[int, int, str]
) -> pa.Table:
    """Return the columns of a source as the rows that a connector reads.

    Args:
        letters: the dead letters among the rows.
        origin: the index of the arrival, the position of the first row in it, and the file's name.
    """
    chunk, first, name = origin
    positions = np.arange(first, first + len(letters))
    rows = dict(columns)
    rows[CHUNK] = pa.array(np.full(len(letters), chunk))
    rows["position"] = pa.array(positions)
    rows["read_from"] = pa.array([f"{name}#{n}" for n in positions.tolist()], pa.string())
    rows[DEAD] = letters
    return pa.table(rows)


def _source_columns(events: Decoded, source: Source) -> dict[str, Any]:
    """Return the source's columns. A column that the events lack is null."""
    columns = dict[str, Any]()
    for name, kind in source.record_columns.items():
        if name in events.columns:
            columns[name] = events.columns[name]
        else:
            columns[name] = pa.nulls(events.rows, arrow_type(kind))
    return columns


def _dead_letters_of_events(
    events: Decoded, values: pa.ChunkedArray, source: Source
) -> pa.ChunkedArray:
    """Return a dead letter for each row that could not be decoded, and null for each other row.

    If the source has protected columns, the dead letters lack the bytes of their rows, because the
    protected values in the bytes can't be located.

    Args:
        values: the bytes of each row.
    """
    return dead_letters_of(events.rows, events.reasons, _letter_fields(values, source))


def _letter_fields(values: pa.ChunkedArray, source: Source) -> dict[str, pa.ChunkedArray]:
    """Return the fields that dead letters of rows have."""
    if source.mask:
        return {}
    return {"bytes": values}


def decode_letters(letters: pa.Table, source: Source, form: Payload) -> pa.Table:
    """Decode dead letters into rows in the form of `read_text`."""
    events = decode_protected(letters["bytes"], source.record_columns, source, form)
    rows: dict[str, Any] = _source_columns(events, source)
    rows |= {n: letters[n] for n in (CHUNK, "position", "read_from", CORRELATION)}
    rows[DEAD] = _dead_letters_of_events(events, letters["bytes"], source)
    return pa.table(rows)
