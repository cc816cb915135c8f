"""The range of times that a source accepts: the years 1 to 9999, as in SQL, Python, and Delta.

The rows of every connector are checked before they are appended to the event log. A row with a time
outside the range in one of its columns, at any depth, is a dead letter. The event time is the
exception: the late tables have such an event as `invalid_timestamp`.
"""

from collections.abc import Iterator, Mapping
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
_TIMES = (DateType, TimestampType, TimestampNTZType)

Array = Any
"""An Arrow array."""


def in_range(source: Source, rows: Rows) -> Rows:
    """Return the rows of a connector; those with a time out of range are dead letters."""
    kinds = _with_times(source)
    if not kinds:
        return rows
    if isinstance(rows, DataFrame):
        return _in_engine(source, rows, kinds)
    return _in_memory(source, rows, kinds)


def each_in_range(source: Source, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables of a connector's rows, as `in_range` returns them."""
    kinds = _with_times(source)
    return (_in_memory(source, table, kinds) for table in tables) if kinds else tables


def _with_times(source: Source) -> dict[str, DataType]:
    """Return the columns other than the event time whose type contains times."""
    kinds = {name: data_type(kind) for name, kind in source.columns.items()}
    return {n: k for n, k in kinds.items() if n != source.event_time and _has_times(k)}


def _has_times(kind: DataType) -> bool:
    return isinstance(kind, _TIMES) or any(map(_has_times, _parts(kind)))


def _parts(kind: DataType) -> list[DataType]:
    match kind:
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
        case StructType():
            return [field.dataType for field in kind.fields]
        case _:
            return []


def _reason(source: Source, column: str) -> str:
    return f"The field '{source.field_of(column)}' has a time outside the years 1 to 9999."


def _in_memory(source: Source, rows: pa.Table, kinds: Mapping[str, DataType]) -> pa.Table:
    reasons = dict[int, str]()
    for name in kinds:
        for number in _outside(rows[name].combine_chunks()):
            reasons.setdefault(int(number), _reason(source, name))
    letters = dead_letters_of(len(rows), reasons, {})
    if DEAD not in rows.column_names:
        return rows.append_column(DEAD, letters)
    if not reasons:
        return rows
    known = rows[DEAD]
    both = pc.if_else(pc.is_valid(known), known, letters.cast(known.type))
    return rows.set_column(rows.column_names.index(DEAD), DEAD, both)


def _outside(values: Array) -> Array:
    """Return the indices of the values that contain a time out of range."""
    kind, none = values.type, np.array([], np.int64)
    if isinstance(values, pa.ChunkedArray):
        ends = np.cumsum([0, *(len(chunk) for chunk in values.chunks)])
        found = [_outside(c) + first for c, first in zip(values.chunks, ends[:-1], strict=True)]
        return np.concatenate([none, *found])
    if pa.types.is_map(kind):
        pair = pa.struct({"key": kind.key_type, "value": kind.item_type})
        return _outside(values.cast(pa.list_(pair)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pc.list_parent_indices(values).to_numpy()[_outside(pc.list_flatten(values))]
    if pa.types.is_struct(kind):
        parts = [_outside(pc.struct_field(values, n)) for n in range(kind.num_fields)]
        return np.unique(np.concatenate([none, *parts]))
    if pa.types.is_date32(kind):
        least, most, counts = BEGINNING // _DAY, INFINITY // _DAY, pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(kind):
        per_second = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[kind.unit]
        scale = 1_000 if kind.unit == "ns" else 1
        least = max(BEGINNING // per_second * scale, -(2**63))
        most = min(INFINITY // per_second * scale, 2**63 - 1)
        counts = pc.cast(values, pa.int64())
    else:
        return none
    outside = pc.or_(pc.less(counts, least), pc.greater(counts, most))
    return pc.indices_nonzero(pc.fill_null(outside, False)).to_numpy().astype(np.int64)


def _in_engine(source: Source, rows: DataFrame, kinds: Mapping[str, DataType]) -> DataFrame:
    reasons = [
        F.when(_is_outside(F.col(f"`{name}`"), kind), F.lit(_reason(source, name)))
        for name, kind in kinds.items()
    ]
    letter = dead_letter(F.coalesce(*reasons), F.lit(None))
    known = DEAD in rows.columns
    return rows.withColumn(DEAD, F.coalesce(F.col(DEAD), letter) if known else letter)


def _is_outside(value: Column, kind: DataType) -> Column:
    """Return whether a value has a time out of range."""
    match kind:
        case ArrayType():
            return F.exists(value, lambda each: _is_outside(each, kind.elementType))
        case MapType():
            keys, items = ArrayType(kind.keyType), ArrayType(kind.valueType)
            parts = [_is_outside(F.map_keys(value), keys), _is_outside(F.map_values(value), items)]
        case StructType():
            parts = [_is_outside(value.getField(f.name), f.dataType) for f in kind.fields]
        case DateType():
            days = F.unix_date(value)
            parts = [days < BEGINNING // _DAY, days > INFINITY // _DAY]
        case TimestampType():
            micros = F.unix_micros(value)
            parts = [micros < BEGINNING, micros > INFINITY]
        case TimestampNTZType():
            least, most = (F.lit(text).cast("timestamp_ntz") for text in _LOCAL)
            parts = [value < least, value > most]
        case _:
            return F.lit(False)
    return reduce(or_, (F.coalesce(part, F.lit(False)) for part in parts))
