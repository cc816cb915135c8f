"""What a lane decodes is what the strict decoder of an ingest says; the rest are dead letters."""

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.engine.requests import fetch
from tidemark_streaming.lane import json_columns
from tidemark_streaming.payloads import Json

KINDS = ("BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "BOOLEAN", "STRING", "DATE", "TIMESTAMP")
NUMBERS = (
    *("0", "-0", "-1", "01", "1.", "1.005", "0.004", "2.340", "1e2", "1e-2", "1e400", "-1e400"),
    *("1e-400", "1e39", "1e-50", "0e9", "-0.0", "NaN", "Infinity", "127", "128", "2147483648"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "1767225603123456"),
    *("true", "false", "null", "{}", '{"a":1e-400}', "[1]", "[1e-400,1.0]"),
)
TEXTS = (
    *("2026-01-01", "2026-1-1", "2026-02-29", "0000-01-01", "0001-01-01", "9999-12-31"),
    *("10000-01-01", "10:15:30", "T10:15:30Z", "2026-01-01T00:00Z", "2026-01-01T00:00:00"),
    *("2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z", "2026-01-01T00:00:00.1234567Z"),
    *("2026-01-01T00:00:00+05:30", "2026-01-01T00:00:00-00:00", "9999-12-31T23:59:59-00:01"),
    *("0001-01-01T00:00:00+00:01", "2026-01-01T00:00:00[UTC]", "NaN", "Infinity", "1", "1.5"),
    *("true", "AQI=", "AQI", "A", "é"),
)
TOKENS = [*NUMBERS, *map(json.dumps, TEXTS), '""', '"\\ud800"', '"a" "b"', '1, "x": 2']
RECORDS = [f'{{"x": {token}}}' for token in TOKENS]


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 (any value)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return repr(one) == repr(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lane_says_what_the_strict_decoder_says(spark: SparkSession, kind: str) -> None:
    rows = spark.createDataFrame([*enumerate(RECORDS)], "n INT, value STRING")
    found = json_columns.decode_json(rows, F.col("value"), {"x": kind}, {})
    table = fetch(found.select("n", F.col("event.x").alias("x"), "reason")).sort_by("n")
    values = pa.chunked_array([pa.array([r.encode() for r in RECORDS], pa.binary())])
    strict = Json().decode(values, {"x": kind})
    lane, own = table["x"], strict.columns["x"]
    if kind.startswith("TIMESTAMP"):
        lane, own = lane.cast(pa.int64()), own.cast(pa.int64())
    reasons = table["reason"].to_pylist()
    both = zip(RECORDS, reasons, lane.to_pylist(), own.to_pylist(), strict=True)
    wrong = [
        (record, mine, theirs, strict.reasons.get(n))
        for n, (record, reason, mine, theirs) in enumerate(both)
        if reason is None and (n in strict.reasons or not same(mine, theirs))
    ]
    assert wrong == []
