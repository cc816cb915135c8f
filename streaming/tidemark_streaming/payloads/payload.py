"""The interface of record formats, which decode bytes into a source's columns."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from tidemark.base import thresholds
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark.store.rows import compute as pc
from tidemark_streaming.base.local_times import zone_of
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.faults import Fault
from tidemark_streaming.payloads.time_rules import NO_RULES, TimeRules

_T = TypeVar("_T")


MAX_RECORD_BYTES = 1 << 26
"""The maximum size of a record. A longer one is a dead letter, so that damaged or malicious data
can't exhaust memory or time."""

_TOO_LONG = f"The record is longer than {MAX_RECORD_BYTES >> 20} MiB."

Columns = Mapping[str, str | None]
"""Names of columns with their Spark DDL types. A column with None instead of a type is not read."""


@dataclass(frozen=True)
class Decoded:
    """The columns of decoded records, and why some records can't be decoded.

    Args:
        columns: the columns, by name. An event that can't be decoded is null in every column.
        reasons: why events can't be decoded, by row index.
        rows: the number of events, including those that can't be decoded.
    """

    columns: Mapping[str, pa.ChunkedArray]
    reasons: Mapping[int, str]
    rows: int

    @classmethod
    def concatenate(cls, parts: Sequence["Decoded"]) -> "Decoded":
        """Concatenate the rows of one or more results."""
        reasons = dict[int, str]()
        rows = 0
        for part in parts:
            reasons |= {rows + n: reason for n, reason in part.reasons.items()}
            rows += part.rows
        columns = dict[str, Any]()
        for name, first_column in parts[0].columns.items():
            chunks = list[Any]()
            for part in parts:
                chunks += part.columns[name].chunks
            columns[name] = pa.chunked_array(chunks, first_column.type)
        return cls(columns, reasons, rows)


def decode_by_halves(
    values: pa.ChunkedArray,
    decode_in_bulk: Callable[[pa.ChunkedArray], Decoded | None],
    decode_singly: Callable[[Sequence[bytes | None]], Decoded],
) -> Decoded:
    """Decode records in bulk. Halve a batch with irregular records until it has few records, and
    decode these one at a time.

    Args:
        decode_in_bulk: decodes records in bulk; returns None if it can't decode all of them.
        decode_singly: decodes records one at a time.
    """

    def decode_parts(part_values: pa.ChunkedArray) -> Iterator[Decoded]:
        if not len(part_values):
            return
        if (decoded := decode_in_bulk(part_values)) is not None:
            yield decoded
        elif len(part_values) <= thresholds.SINGLE_RECORDS:
            yield decode_singly(part_values.to_pylist())
        else:
            half = len(part_values) // 2
            yield from decode_parts(part_values[:half])
            yield from decode_parts(part_values[half:])

    decoded = list(decode_parts(values)) or [decode_singly([])]
    if len(decoded) == 1:
        return decoded[0]
    return Decoded.concatenate(decoded)


def decode_except(
    values: pa.ChunkedArray,
    reasons: Mapping[int, str],
    decode: Callable[[pa.ChunkedArray], Decoded],
) -> Decoded:
    """Decode records except those that have a reason, by row. A record that is too long is another
    exception.

    Args:
        decode: decodes records; one without a value has null columns.
    """
    is_long = pc.greater(pc.binary_length(values), MAX_RECORD_BYTES)
    if pc.any(is_long).as_py():
        long_rows = pc.indices_nonzero(is_long).to_pylist()
        reasons = {**reasons, **dict.fromkeys(long_rows, _TOO_LONG)}
    if not reasons:
        return decode(values)
    events = decode(null_rows(values, reasons))
    return replace(events, reasons=dict(sorted({**events.reasons, **reasons}.items())))


class Payload(Protocol):
    """A record format: it decodes the bytes of records into the columns of a source."""

    def decode_values(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
        """Decode the bytes of records; a record without a value has null columns.

        Args:
            columns: the columns of the source that are in the payload.

        Raises:
            DataError: something needed for decoding, such as a schema registry, is unavailable at
                the moment.
        """
        ...


def columns_to_read(columns: Columns) -> dict[str, str]:
    """Return the columns that have a type. A column with None instead of a type is not read."""
    return {name: kind for name, kind in columns.items() if kind is not None}


class UndecodableError(Exception):
    """A record can't be decoded. The message has the reason, but no values of the record."""


Event = Mapping[str, Any]
"""An event's fields by name."""


class WrittenTime(NamedTuple):
    """A time as a binary format has it.

    Args:
        nanos: nanoseconds since 1970-01-01 00:00, in UTC unless the time is local.
        is_local: whether the time is a date and time of day without a time zone.
    """

    nanos: int
    is_local: bool = False


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (local times have no zone)


def misfit_reason(name: str, kind: str) -> str:
    """Return the reason of a dead letter in which a field does not have its column's type."""
    return Fault.MISFIT.describe_fault(name, kind)


class Results:
    """Collects the columns and errors of some records."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._columns = dict[str, pa.ChunkedArray]()
        self._reasons = dict[int, str]()

    def refuse_row(self, row: int, reason: str) -> None:
        """Record why a row can't be decoded, unless the row already has a reason."""
        self._reasons.setdefault(row, reason)

    def add_faults(self, faults: Mapping[int, Fault], name: str, kind: str) -> None:
        """Record what is wrong with the values of a field, by row."""
        for row, fault in faults.items():
            self.refuse_row(row, fault.describe_fault(name, kind))

    def add_column(self, name: str, column: "pa.Array[Any] | pa.ChunkedArray[Any]") -> None:
        """Add a column."""
        is_chunked = isinstance(column, pa.ChunkedArray)
        self._columns[name] = column if is_chunked else pa.chunked_array([column])

    def finish_events(self) -> Decoded:
        """Return the events. Rows that can't be decoded are null in every column."""
        if not self._reasons:
            return Decoded(self._columns, {}, self._rows)
        columns = {name: null_rows(column, self._reasons) for name, column in self._columns.items()}
        return Decoded(columns, dict(sorted(self._reasons.items())), self._rows)


def null_rows(column: Any, rows: Collection[int]) -> Any:  # noqa: ANN401 (an array of any)
    """Return a column with the given rows set to null."""
    if not len(column):
        return column
    indices = np.arange(len(column))
    return column.take(pa.array(indices, mask=np.isin(indices, list(rows))))


def undecoded_rows(written: pa.ChunkedArray, read: pa.ChunkedArray) -> list[int]:
    """Return the indices of the rows that are null in `read` although `written` has a value."""
    return pc.indices_nonzero(pc.and_(pc.is_valid(written), pc.is_null(read))).to_pylist()


def decode_protected(
    values: pa.ChunkedArray, columns: Mapping[str, str], source: Source, payload: Payload
) -> Decoded:
    """Decode records, and protect their columns as the source's `mask` declares. A column masked
    with `Drop` is not decoded and is null.

    Args:
        columns: the columns of the source that are in the records.
    """
    dropped = {name for name, way in source.mask.items() if isinstance(way, Drop)}
    fields = {name: source.field_of(name) for name in columns}
    needed = {fields[n]: None if n in dropped else kind for n, kind in columns.items()}
    events = payload.decode_values(values, needed)
    protected = dict[str, pa.ChunkedArray]()
    for name, kind in columns.items():
        if name in dropped:
            protected[name] = pa.chunked_array([pa.nulls(len(values), arrow_type(kind))])
            continue
        protected[name] = events.columns[fields[name]]
        if way := source.mask.get(name):
            protected[name] = pa.chunked_array([way.protect_values(protected[name])])
    return Decoded(protected, events.reasons, events.rows)


def decode_each(
    values: pa.ChunkedArray,
    columns: Columns,
    decode: Callable[[bytes], Event],
    rules: TimeRules,
) -> Decoded:
    """Decode records one by one.

    Args:
        decode: returns the fields of a record, or raises UndecodableError.
        rules: what to do with times without a time zone, and with times finer than microseconds.
    """
    return decode_except(
        values, {}, lambda part_values: _decode_singly(part_values, columns, decode, rules)
    )


def _decode_singly(
    values: pa.ChunkedArray,
    columns: Columns,
    decode: Callable[[bytes], Event],
    rules: TimeRules,
) -> Decoded:
    results = Results(len(values))
    events = list[Event]()
    for row, value in enumerate(values.to_pylist()):
        event = dict[str, Any]()
        if value is not None:
            try:
                event = decode(value)
            except UndecodableError as error:
                results.refuse_row(row, str(error))
        events.append(event)
    for name, kind in columns_to_read(columns).items():
        _add_values(results, [event.get(name) for event in events], name, kind, rules)
    return results.finish_events()


def _add_values(
    results: Results, values: list[Any], name: str, kind: str, rules: TimeRules
) -> None:
    """Add a column of values. A value that does not fit is null, and its fault is recorded."""
    target = arrow_type(kind)
    try:
        column = _convert_array(values, target, rules)
    except _MISFIT:
        faults = dict[int, Fault]()
        for row, value in enumerate(values):
            try:
                _convert_array([value], target, rules)
            except _MISFIT as error:
                values[row] = None
                faults[row] = error.fault if isinstance(error, _TimeError) else Fault.MISFIT
        results.add_faults(faults, name, kind)
        column = _convert_array(values, target, rules)
    results.add_column(name, column)


class _TimeError(TypeError):
    """A time does not fit its column."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


_MISFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _convert_array(
    values: Sequence[Any], kind: pa.DataType, rules: TimeRules = NO_RULES
) -> pa.Array:
    return pa.array(list(map(_value_converter(kind, rules), values)), kind)


@cache
def _value_converter(kind: pa.DataType, rules: TimeRules) -> Callable[[Any], Any]:
    """Return a function that gives a value the form that Arrow requires: a map as pairs, at any
    depth; a UUID as text.

    The function raises TypeError if Arrow would misread the value, truncate it, or crash.
    """
    if pa.types.is_map(kind):
        key = _value_converter(kind.key_type, rules)
        item = _value_converter(kind.item_type, rules)
        return lambda value: (
            None
            if value is None
            else [(key(k), item(v)) for k, v in _require_type(value, dict).items()]
        )
    if pa.types.is_struct(kind):
        fields = [(f.name, _value_converter(f.type, rules)) for f in kind]
        return lambda value: (
            None if value is None else _convert_fields(_require_type(value, dict), fields)
        )
    if pa.types.is_list(kind):
        item = _value_converter(kind.value_type, rules)
        return lambda value: None if value is None else list(map(item, _require_type(value, list)))
    misread = _misread_types(kind)
    unchanged = _UNCHANGED.difference(misread)
    if pa.types.is_float32(kind):
        unchanged -= {int, float}

    def convert_scalar(value: Any) -> Any:  # noqa: ANN401 (what formats give)
        if type(value) in unchanged:
            return value
        if isinstance(value, WrittenTime):
            return _plain_time(value, kind, rules)
        if isinstance(value, time):
            return _plain_time_of_day(value, kind)
        if type(value) in misread or _is_lost(value, kind):
            raise TypeError
        if type(value) is UUID:
            return str(value)
        return value

    return convert_scalar


_UNCHANGED = frozenset((type(None), bool, int, float, str, bytes, Decimal, date))
"""The types of values that already have the form that Arrow requires."""


def _convert_fields(
    fields: Mapping[str, Any], converters: Sequence[tuple[str, Callable[[Any], Any]]]
) -> dict[str, Any]:
    return {name: convert(fields.get(name)) for name, convert in converters}


def _plain_time(written: WrittenTime, kind: pa.DataType, rules: TimeRules) -> datetime | int:
    """Return a time for a TIMESTAMP or TIMESTAMP_NTZ column, as microseconds if no zone must be
    added.

    Raises:
        TypeError: the time does not fit the column.
    """
    if not pa.types.is_timestamp(kind):
        raise TypeError
    micros, extra = divmod(written.nanos, 1000)
    if extra and not rules.is_truncating:
        raise _TimeError(Fault.FINER)
    if not BEGINNING <= micros <= INFINITY:
        raise _TimeError(Fault.OUT_OF_RANGE)
    if kind.tz is None:
        if not written.is_local:
            # An instant has no date and time of day without a zone.
            raise TypeError
        return micros
    if not written.is_local:
        return micros
    if rules.zone is None:
        raise _TimeError(Fault.NO_ZONE)
    clock = _EPOCH + timedelta(microseconds=micros)
    return clock.replace(tzinfo=zone_of(rules.zone, rules.owner))


def _plain_time_of_day(value: time, kind: pa.DataType) -> int | str:
    """Return a time of day as text, or as microseconds since midnight.

    Raises:
        TypeError: the column has another type.
    """
    if pa.types.is_string(kind):
        return value.isoformat()
    if not pa.types.is_integer(kind):
        raise TypeError
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _is_lost(value: Any, kind: pa.DataType) -> bool:  # noqa: ANN401 (as above)
    """Return whether a FLOAT column would turn a nonzero finite number into zero or infinity."""
    if not pa.types.is_float32(kind) or not isinstance(value, int | float) or not value:
        return False
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
    return bool(single == 0 or (np.isinf(single) and not math.isinf(value)))


def _require_type(value: Any, kind: type[_T]) -> _T:  # noqa: ANN401 (what formats give)
    """Return the value if it has this type. Arrow would accept a text as a list of its characters.

    Raises:
        TypeError: the value has another type.
    """
    if not isinstance(value, kind):
        raise TypeError
    return value


@cache
def _misread_types(kind: pa.DataType) -> tuple[type, ...]:
    """Return the Python types whose values Arrow would accept for this type, but misread."""
    if pa.types.is_integer(kind):
        return (float, Decimal)
    if pa.types.is_floating(kind):
        return (bool,)
    if pa.types.is_date(kind):
        return (int, float, Decimal, datetime)
    # A number has no unit: it may count seconds or smaller units.
    if pa.types.is_timestamp(kind):
        return (int, float, Decimal)
    return ()
