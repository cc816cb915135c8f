"""A lane accepts only what the decoder of an ingest accepts, with the same values; all other
records are dead letters."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.suite.nightly import mostly_nightly
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark_streaming.extras.lane.records import decode_json
from tidemark_streaming.payloads import Json

KINDS = (
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,0)"),
    *("DECIMAL(38,38)", "BOOLEAN", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
)
TIMES = [kind for kind in KINDS if kind.startswith(("DATE", "TIMESTAMP"))]
OPTIONS: Sequence[Mapping[str, str]] = (
    {"timeZone": "Europe/Berlin"},
    {
        "timestampFormat": "d.M.yyyy H:mm:ss.SSS",
        "dateFormat": "M/d/yyyy",
        "timeZone": "Asia/Tehran",
    },
    {
        "timestampFormat": "d-MMM-yy h:mm:ss a",
        "dateFormat": "MMMM d, yyyy",
        "timeZone": "America/New_York",
    },
    {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ssXX", "dateFormat": "yyyyMMdd"},
    *({"timestampFormat": f"epoch{unit}"} for unit in ("Seconds", "Millis", "Micros", "Nanos")),
    *({"timestampFormat": f"epoch{u}", "finer": "truncate"} for u in ("Seconds", "Nanos")),
    {"finer": "truncate"},
)
NUMBERS = (
    *("0", "-0", "-1", "01", "1.", ".5", "1.005", "0.004", "2.340", "1e2", "1e-2", "1e400"),
    *("-1e400", "1e-400", "1e39", "1e-50", "0e9", "-0.0", "NaN", "Infinity", "-Infinity", "+1"),
    *("127", "128", "-128", "-129", "32768", "2147483648", "9007199254740993", "1.0", "0.1"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1767225603123456"),
    *("1" * 38, "1" * 39, "9" * 400, "0." + "0" * 39 + "1", "0." + "1" * 38, "1e999999999"),
    *("1e-999999999", "16777217", "3.4028236e38", "1.4e-45", "7e-46", "4.9e-324", "2.5e-324"),
    *("true", "false", "null", "True", "nul", "{}", '{"a":1e-400}', "[1]", "[1e-400, 1.0]"),
    *('{"x": 1, "x": 1}', "[1}", "{1}", "[,]", "[1 2]", '{"a" 1}', "[" * 99 + "]" * 99),
    *("[" * 100 + "]" * 100, "62135596800", "-62135596801", "253402300799", "253402300800"),
    *("1767225603123", "1767225603123456789", "1767225603123456000", "-1500", "-1000"),
    *("1700000000.0", "1700000000.123", "1700000000.1234567", "-0.5", "-0.0000005", "-1.0000001"),
    *("1700000000123.4567", "1700000000123456.7", "-1.5", "-9223372036854775807.5", "0.000001"),
)
TEXTS = (
    *("2026-01-01", "2026-1-1", "2026-02-29", "2024-02-29", "0000-01-01", "0001-01-01"),
    *("9999-12-31", "10000-01-01", "10:15:30", "T10:15:30Z", "2026-01-01T00:00Z", "+2026-01-01"),
    *("2026-01-01T00:00:00", "2026-01-01 00:00", "2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z"),
    *("2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00.1234560000Z", "2026-01-01T00:00:00.5"),
    *(
        "3-Jan-26 1:05:09 PM",
        "13-dec-99 12:00:00 am",
        "3-Jan-26 13:05:09 PM",
        "3-Jun-26 0:05:09 AM",
    ),
    *(
        "3-JUL-26 12:05:09 PM",
        "3-Jan-26 1:05:09",
        "May 3, 2026",
        "september 31, 2026",
        "Mai 3, 2026",
    ),
    *("2026-01-01T00:00:00.10", "2026-01-01T00:00:00-00:00", "9999-12-31T23:59:59-00:01"),
    *("0001-01-01T00:00:00+00:01", "0000-12-31T23:30:00-01:00", "2026-01-01T00:00:00[UTC]"),
    *("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "2026-01-01T00:00:00Z\n"),
    *("2026-01-01\n", "2026-03-29T02:30:00", "2026-10-25T02:30:00", "1890-01-01T00:00:00"),
    *("2026-01-01T00:00+05", "2026-01-01 00:00:00.5-0930", "2026-01-01T1:02:03", "epoch", "now"),
    *("29.3.2026 2:30:00.123", "1.1.2026 0:00:00.000", "13/1/2026", "1/31/2026", "20260101"),
    *("2026-01-01T00:00:00+0530", "NaN", "nan", "Infinity", "-INF", "+inf", "inf ", "1", "1.5"),
    *("+1.5", ".5", "1.", ".", "1e2", " 1", "1_000", "1d", "0x1p3", "true", "AQI=", "AQI", "A"),
    *("AQ==", "AR==", "A Q==", "AQ=\n", "", "é", "\ufffd", "\0", "\u2028", "a\\u0062", "😀"),
)
OFFSETS = (
    "Z",
    "+00:00",
    "+02:00",
    "+0200",
    "-02",
    "+14",
    "-17:59",
    "+1759",
    "+17",
    "+18",
    "+18:00",
)
OFFSETS += ("-23:59", "+24:00", "+2:00", "+020", "+02:0", "+02:60", " UTC", "z")
ESCAPED = (
    *(r'"\ud800"', r'"\udc00\ud800"', r'"\ud83d\ude00"', r'"\\ud800"', r'"\u004eaN"', r'"\x"'),
    *(r'"\u00e9"', r'"2026\u002d01-01"', r'"\"\\\/\b\f\n\r\t"', '"\t"', '"\n"', "'a'", r'"\u12"'),
)
TOKENS = [
    *(*NUMBERS, *map(json.dumps, TEXTS), *ESCAPED),
    *(json.dumps(text, ensure_ascii=False) for text in TEXTS),
    *(json.dumps(f"2026-01-01T10:15:30{offset}") for offset in OFFSETS),
]
RECORDS: list[bytes | None] = [
    *(f'{{"x": {token}}}'.encode() for token in TOKENS),
    *(None, b"", b" ", b"{}", b" {\r\n\t} ", b"null", b"[]", b'{"y": 1}', b'{"X": 1}'),
    *(b'{"x": 1}{"x": 2}', b'{"x": 1},{"x": 2}', b'{"x": 1}]', b'{"x": 1} [{}', b'{"x": 1}\0'),
    *(b'{"x": 1, "x": 1}', rb'{"x": 1, "\u0078": 2}', rb'{"\u0078": 2}', b'\xef\xbb\xbf{"x": 1}'),
    *(b'{"x": 1,}', b'{,"x": 1}', b'{"x": 1 "y": 2}', b'{"x" 1}', b'{"x": 1{}', b'\xa0{"x": 1}'),
    *(b"{'x': 1}", b"{x: 1}", b'{"x": "\xff"}', b'{"x": "\xed\xa0\x80"}', b'{"x": "\xc0\x80"}'),
    *(b'{"x": 1 /* one */}', b'{"y": {"x": 2}}', b'{"y": "\\"x\\": 2", "x": 1}'),
    *(b'{"x": 1{"y": 2}}', b'{"y": 1, "y": 2, "x": 3}', b'{"\xff": 1, "x": 2}', b'{"": 1, "x": 2}'),
    *(b'{"x": "' + b"a" * 20_000 + b'"}', b'{"x": "' + rb"\n" * 20_000 + b'"}'),
    *(b'{"x": 1' + b', "y": [1]' * 5_000 + b"}", b'{"x": [' + b"1," * 20_000 + b"1]}"),
]


def _written(draw: st.DrawFn) -> bytes:
    """Return a record with any value of `x`, of which some bytes may have changed."""
    numbers = st.from_regex(r"-?(0|[1-9]\d{0,20})(\.\d{1,12})?([eE][+-]?\d{1,3})?", fullmatch=True)
    times = st.builds(
        lambda time, offset: time.isoformat() + offset,
        st.datetimes() | st.dates(),
        st.sampled_from(("", *OFFSETS)),
    )
    tokens = st.sampled_from(TOKENS) | numbers | (st.text() | times).map(json.dumps)
    space = draw(st.sampled_from(("", " ", "\n\t\r")))
    token = draw(tokens)
    more = draw(st.just("") | tokens.map(lambda token: f', "{draw(st.text())}": {token}'))
    found = f'{space}{{{space}"x"{space}:{space}{token}{more}{space}}}'.encode()
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(found)))
        new = draw(
            st.sampled_from([bytes([sign]) for sign in b'{}[]":,\\ 0e-u\x00\xff']) | st.just(b"")
        )
        found = found[:place] + new + found[place + draw(st.integers(0, 1)) :]
    return found


WRITTEN = st.composite(_written)()


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 (any value)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return repr(one) == repr(other)


def plain(column: "pa.ChunkedArray[Any]") -> list[Any]:
    """Return values in a form that reveals each difference, with times as numbers in any year."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        assert kind.unit == "us"
        column = column.cast(pa.int64())
    return column.to_pylist()


Difference = tuple[bytes, str, Any, Any]
_EXPONENT = re.compile(rb"[0-9.][eE][+-]?[0-9]")


def differences(
    spark: SparkSession,
    records: Sequence[bytes | None],
    kinds: Sequence[str],
    options: Mapping[str, str],
) -> tuple[list[Difference], list[Difference]]:
    """Return the values that a lane decodes differently from an ingest, and those that only the
    lane refuses."""

    def decoded(rows: DataFrame, n: int) -> DataFrame:
        rows = decode_json(rows, F.col("value").cast("string"), {"x": kinds[n]}, options)
        return rows.withColumns({f"x{n}": F.col("event.x"), f"reason{n}": F.col("reason")}).drop(
            "event", "reason"
        )

    rows = spark.createDataFrame([*enumerate(records)], "n INT, value BINARY")
    table = fetch_dataframe(reduce(decoded, range(len(kinds)), rows).drop("value")).sort_by("n")
    values, wrong, refused = pa.chunked_array([pa.array(records, pa.binary())]), [], []
    for n, kind in enumerate(kinds):
        strict = Json(options).decode_values(values, {"x": kind})
        mine, reasons = plain(table[f"x{n}"]), table[f"reason{n}"].to_pylist()
        for row, theirs in enumerate(plain(strict.columns["x"])):
            fault, told = strict.reasons.get(row), records[row] or b""
            if reasons[row] is not None:
                if fault is None:
                    refused.append((told, kind, theirs, reasons[row]))
            elif fault is not None or not same(mine[row], theirs):
                wrong.append((told, kind, theirs, mine[row]))
    return wrong, refused


@pytest.mark.slow
def test_a_lane_accepts_only_values_that_an_ingest_decodes_equally(spark: SparkSession) -> None:
    wrong, refused = differences(spark, RECORDS, KINDS, {})
    assert wrong == []
    # A lane refuses exponents in a DECIMAL.
    assert [
        each for each in refused if "DECIMAL" not in each[1] or not _EXPONENT.search(each[0])
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("options", mostly_nightly(OPTIONS), ids=str)
def test_a_lane_decodes_times_in_each_format_as_an_ingest_does(
    spark: SparkSession, options: Mapping[str, str]
) -> None:
    wrong, refused = differences(spark, RECORDS, TIMES, options)
    assert wrong == []
    # A lane refuses exponents in a count since 1970.
    is_count = options.get("timestampFormat", "").startswith("epoch")
    assert [each for each in refused if not (is_count and _EXPONENT.search(each[0]))] == []


@pytest.mark.slow
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(records=st.lists(WRITTEN, min_size=50, max_size=50))
def test_a_lane_decodes_any_record_as_an_ingest_does(
    spark: SparkSession, records: Sequence[bytes]
) -> None:
    wrong, refused = differences(spark, records, KINDS, {})
    assert wrong == []
    assert [
        each for each in refused if "DECIMAL" not in each[1] or not _EXPONENT.search(each[0])
    ] == []
