"""The interface of record formats, which decode bytes into a source's columns."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, Protocol, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from tidemark.base import thresholds
from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark.store.rows import compute as pc
from tidemark_streaming.payloads.column_types import arrow_type

_T = TypeVar("_T")


Columns = Mapping[str, str | None]
"""Names of columns with their Spark DDL types. A column with None instead of a type is not read."""


@dataclass(frozen=True)
class Decoded:
    """Decoded events.

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
        reasons, rows = dict[int, str](), 0
        for part in parts:
            reasons |= {rows + n: reason for n, reason in part.reasons.items()}
            rows += part.rows
        columns = {
            name: pa.chunked_array(
                [c for part in parts for c in part.columns[name].chunks], like.type
            )
            for name, like in parts[0].columns.items()
        }
        return cls(columns, reasons, rows)


def decode_by_halves(
    values: pa.ChunkedArray,
    regular: Callable[[pa.ChunkedArray], Decoded | None],
    singly: Callable[[Sequence[bytes | None]], Decoded],
) -> Decoded:
    """Decode records in bulk. Halve a batch with irregular records until it has few records, and
    decode these one at a time.

    Args:
        regular: decodes records in bulk; returns None if it can't decode all of them.
        singly: decodes records one at a time.
    """

    def parts(some: pa.ChunkedArray) -> Iterator[Decoded]:
        if not len(some):
            return
        if (found := regular(some)) is not None:
            yield found
        elif len(some) <= thresholds.SINGLE_RECORDS:
            yield singly(some.to_pylist())
        else:
            half = len(some) // 2
            yield from parts(some[:half])
            yield from parts(some[half:])

    found = list(parts(values)) or [singly([])]
    return found[0] if len(found) == 1 else Decoded.concatenate(found)


class Payload(Protocol):
    """A record format."""

    def decode(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
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


def misfit_reason(name: str, kind: str) -> str:
    """Return the reason of a dead letter in which a field does not have its column's type."""
    return f"The field '{name}' is not a valid {kind.upper()}."


class Results:
    """Collects the columns and errors of some records."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._columns = dict[str, pa.ChunkedArray]()
        self._reasons = dict[int, str]()

    def refuse(self, row: int, reason: str) -> None:
        """Record why a row can't be decoded, unless the row already has a reason."""
        self._reasons.setdefault(row, reason)

    def misfit(self, rows: Sequence[int], name: str, kind: str) -> None:
        """Record the rows in which a field does not have its column's type."""
        for row in rows:
            self.refuse(row, misfit_reason(name, kind))

    def add(self, name: str, column: "pa.Array[Any] | pa.ChunkedArray[Any]") -> None:
        """Add a column."""
        whole = isinstance(column, pa.ChunkedArray)
        self._columns[name] = column if whole else pa.chunked_array([column])

    def finish(self) -> Decoded:
        """Return the events. Rows that can't be decoded are null in every column."""
        if not self._reasons:
            return Decoded(self._columns, {}, self._rows)
        columns = {name: null_rows(column, self._reasons) for name, column in self._columns.items()}
        return Decoded(columns, dict(sorted(self._reasons.items())), self._rows)


def null_rows(column: Any, rows: Collection[int]) -> Any:  # noqa: ANN401 (an array of any)
    """Return a column with the given rows set to null."""
    if not len(column):
        return column
    kept = np.arange(len(column))
    return column.take(pa.array(kept, mask=np.isin(kept, list(rows))))


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
    wanted = {fields[n]: None if n in dropped else kind for n, kind in columns.items()}
    events = payload.decode(values, wanted)
    found = dict[str, pa.ChunkedArray]()
    for name, kind in columns.items():
        if name in dropped:
            found[name] = pa.chunked_array([pa.nulls(len(values), arrow_type(kind))])
            continue
        found[name] = events.columns[fields[name]]
        if way := source.mask.get(name):
            found[name] = pa.chunked_array([way.protect(found[name])])
    return Decoded(found, events.reasons, events.rows)


def decode_each(
    values: pa.ChunkedArray, columns: Columns, decode: Callable[[bytes], Event]
) -> Decoded:
    """Decode records one by one.

    Args:
        decode: returns the fields of a record, or raises UndecodableError.
    """
    found, events = Results(len(values)), list[Event]()
    for row, value in enumerate(values.to_pylist()):
        event = dict[str, Any]()
        if value is not None:
            try:
                event = decode(value)
            except UndecodableError as error:
                found.refuse(row, str(error))
        events.append(event)
    for name, kind in columns_to_read(columns).items():
        _add(found, [event.get(name) for event in events], name, kind)
    return found.finish()


def _add(found: Results, values: list[Any], name: str, kind: str) -> None:
    """Add a column of values. A value that does not fit is null and is recorded as a misfit."""
    wanted = arrow_type(kind)
    try:
        column = _array(values, wanted)
    except _MISFIT:
        odd = list[int]()
        for row, value in enumerate(values):
            try:
                _array([value], wanted)
            except _MISFIT:
                values[row] = None
                odd.append(row)
        found.misfit(odd, name, kind)
        column = _array(values, wanted)
    found.add(name, column)


_MISFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([_plain(value, kind) for value in values], kind)


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 (what formats give)
    """Return a value in the form that Arrow requires: a map as pairs, at any depth; a UUID as text.

    Raises:
        TypeError: Arrow would misread the value, truncate it, or crash.
    """
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = _require_type(value, dict).items()
        return [(_plain(k, kind.key_type), _plain(v, kind.item_type)) for k, v in pairs]
    if pa.types.is_struct(kind):
        fields = _require_type(value, dict)
        return {f.name: _plain(fields.get(f.name), f.type) for f in kind}
    if pa.types.is_list(kind):
        return [_plain(v, kind.value_type) for v in _require_type(value, list)]
    if type(value) in _misread_types(kind) or _is_lost(value, kind):
        raise TypeError
    return str(value) if type(value) is UUID else value


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
    return (int, float, Decimal) if pa.types.is_timestamp(kind) else ()
