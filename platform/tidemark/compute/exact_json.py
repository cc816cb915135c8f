"""JSON that distinguishes all values: rows are compared, ordered and identified by it."""

from pyspark.sql import Column
from pyspark.sql import functions as F

# By default, the engine leaves out nulls, and everything below a millisecond.
_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def exact_json(*fields: Column) -> Column:
    """Return columns as a JSON object, with nulls and with the microseconds of times."""
    return struct_as_json(F.struct(*fields))


def struct_as_json(struct: Column) -> Column:
    """Return a struct as a JSON object, with nulls and with the microseconds of times."""
    return F.to_json(struct, _OPTIONS)
