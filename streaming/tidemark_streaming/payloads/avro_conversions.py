"""Convert a value of an Avro type to the type that the schemas declare."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tidemark_streaming.payloads.avro_input import Read
from tidemark_streaming.payloads.avro_types import AvroSchema, type_of
from tidemark_streaming.payloads.payload import WrittenTime

_PROMOTE: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "double": float,
    "bytes": str.encode,
    "string": bytes.decode,
}
_EPOCH = date(1970, 1, 1)
_MIDNIGHT = datetime.combine(_EPOCH, time())
_NANOS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}


def with_conversion(read: Read, writer: AvroSchema, reader: AvroSchema | None) -> Read:
    """Return a reader that gives the value the type that the schemas declare.

    Args:
        read: reads the value as it was written.
        writer: the schema with which the value was written.
        reader: the schema to which the value is resolved; None for the writer's.
    """
    target = writer if reader is None else reader
    promote: Callable[[Any], Any] | None = None
    if type_of(writer) != type_of(target):
        promote = _PROMOTE.get(type_of(target))
        convert = logical_converter(target)
    else:
        # The writer knows the meaning of its numbers.
        convert = logical_converter(writer) or logical_converter(target)
    for step in (promote, convert):
        if step is not None:
            read = _with_step(read, step)
    return read


def _with_step(read: Read, step: Callable[[Any], Any]) -> Read:
    return lambda source: step(read(source))


def logical_converter(schema: AvroSchema) -> Callable[[Any], Any] | None:
    """Return the function that converts values of a logical type; None if the schema declares none
    that has a meaning for its type."""
    if not isinstance(schema, dict):
        return None
    kind = schema["type"]
    logical = schema.get("logicalType", "")
    name, _, unit = logical.rpartition("-")
    if kind == "long" and name in ("timestamp", "local-timestamp") and unit in _NANOS:
        scale = _NANOS[unit]
        is_local = name != "timestamp"
        return lambda number: WrittenTime(number * scale, is_local)
    if (kind, logical) in (("int", "time-millis"), ("long", "time-micros")):
        return _time_of_day_converter(1_000 if unit == "millis" else 1)
    if (kind, logical) == ("int", "date"):
        return lambda days: _EPOCH + timedelta(days=days)
    if kind in ("bytes", "fixed") and logical == "decimal":
        scale = schema.get("scale", 0)
        return lambda data: Decimal(f"{int.from_bytes(data, 'big', signed=True)}e-{scale}")
    if (kind, logical) == ("string", "uuid"):
        return lambda text: str(UUID(text))
    if kind == "fixed" and logical == "uuid" and schema["size"] == 16:
        return lambda data: str(UUID(bytes=data))
    return None


def _time_of_day_converter(micros_per_unit: int) -> Callable[[int], time]:
    def to_time_of_day(number: int) -> time:
        clock = _MIDNIGHT + timedelta(microseconds=number * micros_per_unit)
        if clock.date() != _EPOCH:
            raise ValueError("not a time of day")
        return clock.time()

    return to_time_of_day
