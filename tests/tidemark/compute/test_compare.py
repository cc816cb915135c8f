"""JSON by which rows and keys are identified distinguishes all values."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.compute.compare import exact_json, keys_as_json

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
NEIGHBORS = {
    "TIMESTAMP": (NOON, NOON + MICROSECOND),
    "TIMESTAMP_NTZ": tuple(t.replace(tzinfo=None) for t in (NOON, NOON + MICROSECOND)),
    "STRUCT<t: TIMESTAMP>": ((NOON,), (NOON + MICROSECOND,)),
    "ARRAY<TIMESTAMP>": ([NOON], [NOON + MICROSECOND]),
    "DOUBLE": (0.1, 0.1 + 2**-56),
    "DECIMAL(38,18)": (Decimal("1"), Decimal("1.000000000000000001")),
    "BIGINT": (2**62, 2**62 + 1),
    "STRING": ("null", None),
    "BINARY": (b"\xff", b"\xfe"),
}


@pytest.mark.parametrize("kind", NEIGHBORS)
def test_neighboring_values_have_different_json(spark: SparkSession, kind: str) -> None:
    rows = spark.createDataFrame([(value,) for value in NEIGHBORS[kind]], f"x {kind}")
    texts = rows.select(exact_json([F.col("x")]).alias("a"), keys_as_json(["x"]).alias("b"))
    assert [texts.select(name).distinct().count() for name in ("a", "b")] == [2, 2]
