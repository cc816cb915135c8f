"""Convert values so that Great Expectations compares them exactly.

In the pandas columns that Great Expectations usually gets, a BIGINT in a column with a null becomes
a float, NaN is null, and 0.1 is greater than the decimal 0.10. For expectations about single rows,
the columns therefore contain Python objects, which compare exactly across types:

| column | values | a bound or an allowed value becomes |
| --- | --- | --- |
| integers, booleans | `int`, `bool` | unchanged |
| DECIMAL | `Decimal` | the decimal with the same digits: 0.1 becomes exactly 0.1 |
| FLOAT, DOUBLE | `float`; NaN is `NAN`, which is not null | the nearest number of that type |
| TIMESTAMP | instants in UTC, without a time zone | such an instant; UTC is the default time zone |
| DATE | `date` | a `date`; a text is parsed as ISO 8601 |
| strings, others | Python objects | unchanged |

A null is `pd.NA`, or `NaT` for an instant. A sum with such a null is null, but a sum with None
would raise an error.
"""

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from great_expectations.expectations.row_conditions import Condition
from great_expectations.types import SerializableDictDot

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.store.rows import compute as pc


class _NotANumber:
    """NaN as a value: equal only to NaN, and neither less nor greater than any value.

    Great Expectations would treat a float NaN as null.
    """

    def __lt__(self, operand: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __eq__(self, operand: object) -> bool:
        return isinstance(_unwrap_value(operand), _NotANumber)

    def __hash__(self) -> int:
        return 0

    def __add__(self, operand: object) -> "_NotANumber":
        return self

    __radd__ = __add__

    def __float__(self) -> float:
        return math.nan

    def __repr__(self) -> str:
        return "NaN"


class _ExactValue(SerializableDictDot):
    """A bound or an allowed value, in a form that Great Expectations keeps exactly.

    Great Expectations would convert a decimal to a float, and could merge two different decimals
    into one value.
    """

    def __init__(self, value: Decimal | _NotANumber) -> None:
        self.value = value

    def __eq__(self, operand: object) -> bool:
        return self.value == _unwrap_value(operand)

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, operand: object) -> bool:
        return _unwrap_value(self) < _unwrap_value(operand)

    def __le__(self, operand: object) -> bool:
        return _unwrap_value(self) <= _unwrap_value(operand)

    def __gt__(self, operand: object) -> bool:
        return _unwrap_value(self) > _unwrap_value(operand)

    def __ge__(self, operand: object) -> bool:
        return _unwrap_value(self) >= _unwrap_value(operand)

    def __repr__(self) -> str:
        return str(self.value)

    def to_json_dict(self) -> Any:  # noqa: ANN401 (as the library has it)
        return str(self)


def _unwrap_value(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, _ExactValue):
        return value.value
    return value


NAN = _NotANumber()

_EPOCH = dt.date(1970, 1, 1).toordinal()
_DATES = (dt.date.min.toordinal() - _EPOCH, dt.date.max.toordinal() - _EPOCH)
"""The first and the last date that Python can represent, as days since 1970."""


def exact_frame(rows: pa.Table) -> pd.DataFrame:
    """Return rows for expectations about single rows, with values that compare exactly."""
    return pd.DataFrame({name: _to_series(rows[name]) for name in rows.column_names})


def statistics_frame(rows: pa.Table) -> pd.DataFrame:
    """Return rows for expectations about statistics of a column, such as its mean.

    Numeric columns keep integers and decimals exact, and distinguish null from NaN. Dates stay
    dates even in a column with nulls.
    """
    return _to_local_times(rows).to_pandas(types_mapper=_find_exact_type)


def _find_exact_type(column_type: pa.DataType) -> pd.ArrowDtype | None:
    """Return the pandas type that keeps a column's values exact; None for the usual type."""
    is_number = pa.types.is_integer(column_type) or pa.types.is_floating(column_type)
    if is_number or pa.types.is_decimal(column_type) or pa.types.is_date32(column_type):
        return pd.ArrowDtype(column_type)
    return None


def usual_frame(rows: pa.Table) -> pd.DataFrame:
    """Return rows in the pandas columns that Great Expectations usually gets.

    Decimals become floats, and so do integers in a column with a null. A statistic of no values is
    NaN in these columns, as Great Expectations expects, and not `pd.NA`.
    """
    fields: list[pa.Field[Any]] = []
    for field in rows.schema:
        if pa.types.is_decimal(field.type):
            fields.append(field.with_type(pa.float64()))
        else:
            fields.append(field)
    return _to_local_times(rows.cast(pa.schema(fields))).to_pandas()


def _to_local_times(rows: pa.Table) -> pa.Table:
    """Return rows with all timestamps in UTC without a time zone, for Great Expectations."""
    for index, name in enumerate(rows.column_names):
        if _is_instant(rows[name]):
            rows = rows.set_column(index, name, pa.array(_to_instants(rows[name])))
    return rows


def convert_bounds(arguments: Mapping[str, Any], kind: pa.DataType) -> dict[str, Any]:
    """Return those arguments that are compared with a column's values, in the column's type.

    Args:
        arguments: all arguments of the expectation.
        kind: the type of the column.
    """
    converted: dict[str, Any] = {}
    for name in ("min_value", "max_value"):
        if name in arguments:
            converted[name] = _convert_argument(arguments[name], kind)
    allowed_values = arguments.get("value_set")
    if allowed_values is not None:
        converted["value_set"] = [_convert_argument(value, kind) for value in allowed_values]
    return converted


def in_utc(value: Any) -> Any:  # noqa: ANN401 (any argument of the library)
    """Return an argument with its instants in UTC without a time zone, like the instants of rows.

    Instants within mappings, lists and conditions on rows are converted too.
    """
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, Mapping):
        return {name: in_utc(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(map(in_utc, value))
    if isinstance(value, Condition):
        return value.copy(update={name: in_utc(getattr(value, name)) for name in value.__fields__})
    return value


def _to_series(values: pa.ChunkedArray) -> "pd.Series[Any]":
    if _is_instant(values):
        return pd.Series(_to_instants(values))
    if pa.types.is_date32(values.type):
        values = _clamp_values(values.cast(pa.int32()), *_DATES).cast(pa.date32())
    is_floating = pa.types.is_floating(values.type)
    converted: list[object] = []
    for value in values.to_pylist():
        if value is None:
            converted.append(pd.NA)
        elif is_floating and math.isnan(value):
            converted.append(NAN)
        else:
            converted.append(value)
    return pd.Series(converted, dtype=object)


def _is_instant(values: pa.ChunkedArray) -> bool:
    return pa.types.is_timestamp(values.type)


def _to_instants(values: pa.ChunkedArray) -> "np.ndarray[Any, Any]":
    """Return instants in UTC without a time zone, limited to the range that Python supports."""
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return _clamp_values(micros, BEGINNING, INFINITY).cast(pa.timestamp("us")).to_numpy()


def _clamp_values(values: pa.ChunkedArray, lowest: int, highest: int) -> pa.ChunkedArray:
    capped = pc.min_element_wise(values, pa.scalar(highest, values.type), skip_nulls=False)
    return pc.max_element_wise(capped, pa.scalar(lowest, values.type), skip_nulls=False)


def _convert_argument(value: object, kind: pa.DataType) -> object:
    """Return a value of an expectation's arguments, converted to a column's type."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float | Decimal):
        return _convert_number(value, kind)
    try:
        if pa.types.is_timestamp(kind) and isinstance(value, str | dt.date):
            return _convert_time(value)
        if pa.types.is_date(kind) and isinstance(value, str):
            return dt.date.fromisoformat(value)
    except ValueError:
        # A text that is not a date or time equals no value of the column.
        return value
    return value


def _convert_time(value: str | dt.date) -> pd.Timestamp:
    instant = pd.Timestamp(value)
    if instant.tz is None:
        return instant
    return instant.tz_convert("UTC").tz_localize(None)


def _convert_number(value: "float | Decimal", kind: pa.DataType) -> object:
    if pa.types.is_floating(kind):
        return _convert_float(value, kind)
    if not pa.types.is_decimal(kind):
        return value
    if isinstance(value, float):
        # The shortest text that gives this float has the digits that the user wrote.
        return _ExactValue(Decimal(repr(value)))
    return _ExactValue(Decimal(value))


def _convert_float(value: "float | Decimal", kind: pa.DataType) -> object:
    nearest = float(value)
    if math.isnan(nearest):
        return _ExactValue(NAN)
    if pa.types.is_float32(kind):
        return float(np.float32(nearest))
    if isinstance(value, int):
        # An integer that lies between two floats would have another value as a float.
        return value
    return nearest
