"""The Arrow types of a source's columns."""

from functools import cache

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidemark.define.column_type import data_type
from tidemark.store.rows import INSTANT

_PLAIN: dict[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampType: INSTANT,
    TimestampNTZType: pa.timestamp("us"),
}


@cache
def arrow_type(ddl: str) -> pa.DataType:
    """Return the Arrow type for a Spark DDL type."""
    return _arrow_type(data_type(ddl))


def _arrow_type(kind: DataType) -> pa.DataType:
    match kind:
        case ArrayType():
            return pa.list_(_arrow_type(kind.elementType))
        case MapType():
            return pa.map_(_arrow_type(kind.keyType), _arrow_type(kind.valueType))
        case StructType():
            return pa.struct([(f.name, _arrow_type(f.dataType)) for f in kind.fields])
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case _:
            return _PLAIN[type(kind)]
