"""What a format does: it makes a source's columns of the bytes of records."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark.compute.protect import protect
from tidemark.define.protection import Drop, Protection
from tidemark.engine.requests import as_fetched
from tidemark.store.rows import SENT, frame

T = TypeVar("T")

TASKS = 8
"""In how many pieces the engine works on many records."""


class Payload(Protocol):
    """A format."""

    def decode(
        self, spark: SparkSession, records: pa.Table, columns: Mapping[str, str]
    ) -> DataFrame:
        """Records, and of each what its `value`, bytes, says.

        With `event`, a struct of the columns that are null without a value, if there are any
        columns; and `reason`, why the value is not decoded, in a sentence, else null.

        Args:
            columns: of the source, those that its payload has, with their Spark DDL types.

        Raises:
            DataError: what is needed to decode can't be had at the moment.
        """
        ...


class UndecodableError(Exception):
    """A record can't be decoded; the message is the sentence that says why, without its values."""


Event = Mapping[str, Any]
"""An event's fields, by their names."""


@runtime_checkable
class InMemory(Protocol):
    """A format that is decoded in this process, so that events can be protected before anything of
    them is sent."""

    def event(self, value: bytes) -> Event:
        """The fields of a value.

        Raises:
            UndecodableError: it has none.
            DataError: what is needed to decode can't be had at the moment.
        """
        ...


_AS_IT_COMES: Mapping[str, Protection] = MappingProxyType({})


def given(spark: SparkSession, records: pa.Table) -> DataFrame:
    """Records, for the engine to work on with all its cores."""
    rows = frame(spark, records)
    # Rows that were sent would otherwise be worked on where plans are made, by one thread.
    return rows.repartition(TASKS) if records.num_rows > SENT else rows


def decoded(
    spark: SparkSession,
    records: pa.Table,
    columns: Mapping[str, str],
    decode: Callable[[bytes], Event],
    ways: Mapping[str, Protection] = _AS_IT_COMES,
) -> DataFrame:
    """The same as `Payload.decode`, of a format that is decoded in this process.

    Args:
        decode: the fields of a value, as `InMemory.event`.
        ways: how columns are protected. If any is, the engine is sent no value as it came.

    Raises:
        DataError: what is needed to decode can't be had at the moment.
        DefinitionError: the key of tokens is not there.
    """
    events, reasons = list[Event](), list[str | None]()
    for value in records["value"].to_pylist():
        event, reason = dict[str, Any](), None
        if value is not None:
            try:
                event = decode(value)
            except UndecodableError as error:
                reason = str(error)
        events.append(event)
        reasons.append(reason)
    if columns:
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        schema = as_fetched(spark.createDataFrame([], ddl).schema)
        arrays = [_protected(events, f, columns[f.name], reasons, ways.get(f.name)) for f in schema]
        struct = pa.StructArray.from_arrays(arrays, fields=list(schema))
        records = records.append_column("event", struct)
    if ways:
        values = records.column_names.index("value")
        records = records.set_column(values, "value", pa.nulls(len(records), pa.binary()))
    return given(spark, records.append_column("reason", pa.array(reasons, pa.string())))


def _protected(
    events: Sequence[Event],
    field: pa.Field,
    kind: str,
    reasons: list[str | None],
    way: Protection | None,
) -> pa.Array:
    """The values of a column, protected; of one that is dropped nobody asks whether they fit."""
    if isinstance(way, Drop):
        return pa.nulls(len(events), field.type)
    values = _column(events, field, kind, reasons)
    return values if way is None else protect(values, way)


def _column(
    events: Sequence[Event], field: pa.Field, kind: str, reasons: list[str | None]
) -> pa.Array:
    """The values of a column; where one does not fit, null and its event's reason."""
    values = [event.get(field.name) for event in events]
    try:
        return _array(values, field.type)
    except _MISFIT:
        for n, value in enumerate(values):
            try:
                _array([value], field.type)
            except _MISFIT:
                values[n] = None
                reasons[n] = f"The field '{field.name}' is no {kind.upper()}."
        return _array(values, field.type)


_MISFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([_plain(value, kind) for value in values], kind)


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 (what formats give)
    """A value as Arrow takes it: a map as pairs, at any depth; an identity as text.

    Raises:
        TypeError: Arrow would take it for something else, cut it, or end the process over it.
    """
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = _of(value, dict).items()
        return [(_plain(k, kind.key_type), _plain(v, kind.item_type)) for k, v in pairs]
    if pa.types.is_struct(kind):
        fields = _of(value, dict)
        return {f.name: _plain(fields.get(f.name), f.type) for f in kind}
    if pa.types.is_list(kind):
        return [_plain(v, kind.value_type) for v in _of(value, list)]
    if type(value) in _mistaken(kind):
        raise TypeError
    return str(value) if type(value) is UUID else value


def _of(value: Any, kind: type[T]) -> T:  # noqa: ANN401 (what formats give)
    """A value that is of this type; Arrow would take text for the letters that are in it."""
    if not isinstance(value, kind):
        raise TypeError
    return value


@cache
def _mistaken(kind: pa.DataType) -> tuple[type, ...]:
    """Types of values that Arrow would take for this one, and that are not."""
    if pa.types.is_integer(kind):
        return (float, Decimal)
    if pa.types.is_floating(kind):
        return (bool,)
    if pa.types.is_date(kind):
        return (int, float, Decimal, datetime)
    # Of what a number counts, seconds or less, it does not say.
    return (int, float, Decimal) if pa.types.is_timestamp(kind) else ()
