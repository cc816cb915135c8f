"""Refuse values that no table can store, whichever connector they come from.

Such values are times outside the years 1 to 9999 (the range of SQL, Python, and Delta) and texts
that are not UTF-8. Every connector's rows are checked before they are appended to the event log. A
row with such a value in one of its columns, at any depth, becomes a dead letter. The event time is
an exception: an event with an invalid event time goes to the late tables as `invalid_timestamp`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.column_type import data_type
from tidemark.define.source import Source
from tidemark.store.event_log.dead_letters import DEAD, dead_letter, dead_letters_of
from tidemark.store.rows import Rows
from tidemark.store.rows import compute as pc

_DAY = 86_400_000_000
_LOCAL = ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")

_Array = Any
"""An Arrow array."""


@dataclass(frozen=True)
class _Check:
    """A check of the values of some types.

    Args:
        types: the scalar Spark types whose values are checked.
        reason: the fault of the value, as a text that follows "The field 'x' ".
        in_memory: returns a mask of the values of an array that fail; None if no value fails.
        in_engine: returns whether a value of a type fails.
    """

    types: tuple[type[DataType], ...]
    reason: str
    in_memory: Callable[[_Array], _Array | None]
    in_engine: Callable[[Column, DataType], Column]

    def applies_to(self, kind: DataType) -> bool:
        """Return whether a type is one of the check's types, or contains one at any depth."""
        return isinstance(kind, self.types) or any(map(self.applies_to, _nested_types(kind)))


def check_values(source: Source, rows: Rows | Iterator[pa.Table]) -> Rows | Iterator[pa.Table]:
    """Check the rows of a connector. A row with a value that fails becomes a dead letter."""
    if isinstance(rows, DataFrame):
        return _in_engine(source, rows)
    if isinstance(rows, pa.Table):
        return _in_memory(source, rows)
    return (_in_memory(source, table) for table in rows)


def _checked_columns(source: Source) -> Iterator[tuple[str, DataType, _Check]]:
    """Yield each column, except the event time, with its type and a check that applies to it."""
    for name, ddl in source.columns.items():
        kind = data_type(ddl)
        for check in _CHECKS:
            if name != source.event_time and check.applies_to(kind):
                yield name, kind, check


def _nested_types(kind: DataType) -> list[DataType]:
    match kind:
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
        case StructType():
            return [field.dataType for field in kind.fields]
        case _:
            return []


def _describe_reason(source: Source, column: str, check: _Check) -> str:
    return f"The field '{source.field_of(column)}' {check.reason}."


def _in_memory(source: Source, rows: pa.Table) -> pa.Table:
    checks = list(_checked_columns(source))
    reasons = dict[int, str]()
    for name, _, check in checks:
        for number in _find_failing(rows[name], check):
            reasons.setdefault(int(number), _describe_reason(source, name, check))
    letters = dead_letters_of(len(rows), reasons, {})
    if DEAD not in rows.column_names:
        # All tables of a commit have the same columns.
        if checks:
            return rows.append_column(DEAD, letters)
        return rows
    if not reasons:
        return rows
    earlier_letters = rows[DEAD]
    both = pc.if_else(
        pc.is_valid(earlier_letters), earlier_letters, letters.cast(earlier_letters.type)
    )
    return rows.set_column(rows.column_names.index(DEAD), DEAD, both)


def _find_failing(values: _Array, check: _Check) -> _Array:
    kind = values.type
    none = np.array([], np.int64)
    if isinstance(values, pa.ChunkedArray):
        ends = np.cumsum([0, *(len(chunk) for chunk in values.chunks)])
        firsts = zip(values.chunks, ends[:-1], strict=True)
        return np.concatenate(
            [none, *(_find_failing(chunk, check) + first for chunk, first in firsts)]
        )
    if pa.types.is_map(kind):
        pair = pa.struct({"key": kind.key_type, "value": kind.item_type})
        return _find_failing(values.cast(pa.list_(pair)), check)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(values).to_numpy()
        return parents[_find_failing(pc.list_flatten(values), check)]
    if pa.types.is_struct(kind):
        fields = (pc.struct_field(values, [n]) for n in range(kind.num_fields))
        return np.unique(np.concatenate([none, *(_find_failing(field, check) for field in fields)]))
    fails = check.in_memory(values)
    if fails is None:
        return none
    return pc.indices_nonzero(pc.fill_null(fails, False)).to_numpy().astype(np.int64)


def _is_out_of_range(values: _Array) -> _Array | None:
    kind = values.type
    if pa.types.is_date32(kind):
        least = BEGINNING // _DAY
        most = INFINITY // _DAY
        counts = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(kind):
        per_second = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[kind.unit]
        scale = 1_000 if kind.unit == "ns" else 1
        least = max(BEGINNING // per_second * scale, -(2**63))
        most = min(INFINITY // per_second * scale, 2**63 - 1)
        counts = pc.cast(values, pa.int64())
    else:
        return None
    return pc.or_(pc.less(counts, least), pc.greater(counts, most))


def _is_no_utf8(values: _Array) -> _Array | None:
    if not pa.types.is_string(values.type):
        return None
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([not _is_utf8(value) for value in values.cast(pa.binary()).to_pylist()])
    return None


def _is_utf8(value: bytes | None) -> bool:
    try:
        _ = value and value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _in_engine(source: Source, rows: DataFrame) -> DataFrame:
    reasons = [
        F.when(
            _value_fails(F.col(f"`{name}`"), kind, check),
            F.lit(_describe_reason(source, name, check)),
        )
        for name, kind, check in _checked_columns(source)
    ]
    if not reasons:
        return rows
    letter = dead_letter(F.coalesce(*reasons), F.lit(None))
    has_letters = DEAD in rows.columns
    return rows.withColumn(DEAD, F.coalesce(F.col(DEAD), letter) if has_letters else letter)


def _value_fails(value: Column, kind: DataType, check: _Check) -> Column:
    match kind:
        case ArrayType():
            return F.exists(value, lambda element: _value_fails(element, kind.elementType, check))
        case MapType():
            keys = ArrayType(kind.keyType)
            items = ArrayType(kind.valueType)
            parts = [
                _value_fails(F.map_keys(value), keys, check),
                _value_fails(F.map_values(value), items, check),
            ]
        case StructType():
            parts = [_value_fails(value.getField(f.name), f.dataType, check) for f in kind.fields]
        case _ if isinstance(kind, check.types):
            parts = [check.in_engine(value, kind)]
        case _:
            return F.lit(False)
    return reduce(or_, (F.coalesce(part, F.lit(False)) for part in parts))


def _is_time_out_of_range(value: Column, kind: DataType) -> Column:
    match kind:
        case DateType():
            days = F.unix_date(value)
            return (days < BEGINNING // _DAY) | (days > INFINITY // _DAY)
        case TimestampType():
            micros = F.unix_micros(value)
            return (micros < BEGINNING) | (micros > INFINITY)
        case _:
            least, most = (F.lit(text).cast("timestamp_ntz") for text in _LOCAL)
            return (value < least) | (value > most)


_CHECKS = (
    _Check(
        types=(DateType, TimestampType, TimestampNTZType),
        reason="has a time outside the years 1 to 9999",
        in_memory=_is_out_of_range,
        in_engine=_is_time_out_of_range,
    ),
    _Check(
        types=(StringType,),
        reason="has a text that is not valid UTF-8",
        in_memory=_is_no_utf8,
        in_engine=lambda value, _: ~F.is_valid_utf8(value),
    ),
)
