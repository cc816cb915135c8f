"""Keys of windows are the same text, whether they come from a table or from the engine's JSON."""

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidemark.compute.compare import keys_as_json
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.rows import to_display
from tidemark_streaming.snapshot.check_results import keys_of_json, keys_of_row

KEYS: dict[str, list[Any]] = {
    "STRING": ["", "NaN", "null", 'a"b\\', "é", "\u2028", "None", None],
    "BOOLEAN": [True, False, None],
    "BIGINT": [0, -(2**63), 2**53 + 1, None],
    "DOUBLE": [math.nan, math.inf, -math.inf, 0.0, 0.1, 1e22, 1e-7, 5e-324, 1.7976931348623157e308],
    "FLOAT": [math.nan, 0.1, 1.0, 3.4028234663852886e38, 1e-7],
    "DECIMAL(38,10)": [Decimal("1.5"), Decimal("1e-10"), Decimal("-0.3"), Decimal(10**27), None],
    "DECIMAL(20,0)": [Decimal(10**19), Decimal(0)],
    "DATE": [date(2026, 1, 31), date(1, 1, 1), None],
    "TIMESTAMP": [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        None,
    ],
    "TIMESTAMP_NTZ": [datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 120000)],  # noqa: DTZ001
    "BINARY": [b"", b"\xff", b"a", None],
    "STRUCT<a: DOUBLE, b: ARRAY<DECIMAL(4,2)>>": [
        (math.nan, [Decimal("1.50"), None]),
        (None, []),
        (1.0, None),
        None,
    ],
}


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> dict[str, list[tuple[str, str]]]:
    """Return, for each type, the texts of its values from a table and from JSON."""
    longest = max(map(len, KEYS.values()))
    rows = [
        (n, *(values[n] if n < len(values) else None for values in KEYS.values()))
        for n in range(longest)
    ]
    columns = ", ".join(f"k{n} {kind}" for n, kind in enumerate(KEYS))
    frame = spark.createDataFrame(rows, f"n INT, {columns}").orderBy("n")
    own = [f"k{n}" for n in range(len(KEYS))]
    found = fetch_dataframe(
        frame.select("*", *(keys_as_json([name]).alias(f"json_{name}") for name in own))
    )
    kinds = dict(zip(found.schema.names, found.schema.types, strict=True))
    result = dict[str, list[tuple[str, str]]]()
    for name, (kind, values) in zip(own, KEYS.items(), strict=True):
        types = {name: kinds[name]}
        result[kind] = [
            (keys_of_row(row, types), keys_of_json(row[f"json_{name}"], types))
            for row in found.to_pylist()[: len(values)]
        ]
    return result


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_the_same_text_from_a_table_and_from_json(
    texts: dict[str, list[tuple[str, str]]], kind: str
) -> None:
    assert [a for a, _ in texts[kind]] == [b for _, b in texts[kind]]
    assert len({a for a, _ in texts[kind]}) == len(KEYS[kind])


def test_a_time_of_any_year_is_the_same_text_from_a_table_and_from_json(
    spark: SparkSession,
) -> None:
    chance = random.Random(5)
    days = [2_932_897, -719_529, *(chance.randint(-(10**8), 10**8) for _ in range(30))]
    micros = [n * 86_400 * 10**6 + chance.randint(0, 10**6) for n in days]
    frame = spark.createDataFrame(list(zip(days, micros, strict=True)), "days INT, micros BIGINT")
    keys = {
        "day": "date_add(DATE'1970-01-01', days)",
        "instant": "timestamp_micros(micros)",
        "local": "CAST(timestamp_micros(micros) AS TIMESTAMP_NTZ)",
    }
    frame = frame.selectExpr(*(f"{expression} AS {name}" for name, expression in keys.items()))
    found = fetch_dataframe(frame.withColumn("json", keys_as_json([*keys])))
    types = {name: found.schema.field(name).type for name in keys}
    rows = to_display(found)
    assert [keys_of_row(r, types) for r in rows] == [keys_of_json(r["json"], types) for r in rows]
    assert len({keys_of_row(r, types) for r in rows}) == len(days)
