"""Times without a time zone, and times finer than microseconds, follow one rule in each format."""

import json
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.data.binaries import describe, message
from helpers.data.landing import NO_ENGINE
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.dead_letters import DEAD
from tidemark_streaming.files import FileConnector
from tidemark_streaming.payloads import Json, Protobuf
from tidemark_streaming.payloads.csv_records import Csv

FINER = (
    "The field 'x' has a time with more precision than microseconds. To drop the extra digits, set "
    "finer to 'truncate'."
)
NO_ZONE = (
    "The field 'x' has a time without a time zone. Specify the zone in the format: the option "
    "timeZone, or time_zone= of Avro(…)."
)
MISFIT = "The field 'x' is not a valid TIMESTAMP."
FEW = settings(max_examples=60, deadline=None)
NANOS = st.integers(-(10**19), 10**19) | st.integers(-(10**10), 10**10)
TIMED = """
name: "timed.proto" package: "a" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "Timed"
  field { name: "x" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "y" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
}
"""


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return describe(TIMED, tmp_path_factory.mktemp("timed") / "timed.pb")


def decoded(payload: Any, values: Sequence[bytes], kind: str = "TIMESTAMP") -> list[int | str]:  # noqa: ANN401
    """Return microseconds since 1970, or the reason of a dead letter, of each record."""
    events = payload.decode_values(pa.chunked_array([pa.array(values, pa.binary())]), {"x": kind})
    times = events.columns["x"].cast(pa.int64()).to_pylist()
    return [events.reasons.get(row, time) for row, time in enumerate(times)]


def written(nanos: int, digits: int) -> str:
    """Return a time as text with this many digits of a second's fraction."""
    seconds, rest = divmod(nanos, 10**9)
    day = str(pa.scalar(seconds, pa.timestamp("s")).cast(pa.string()))
    text = str(day).replace(" ", "T")
    return text + (
        f".{rest:09d}".ljust(10 + max(digits - 9, 0), "0")[: digits + 1] if digits else ""
    )


@FEW
@given(NANOS)
@example(-1)
@example(-1001)
@example(1_769_854_530_123_456_789)
def test_truncated_times_are_equal_in_all_formats(descriptors: Path, nanos: int) -> None:
    """Truncation is to the past, also before 1970; without it, the record is a dead letter."""
    micros = nanos // 1000
    timed = message(descriptors, "a.Timed")(x={"seconds": nanos // 10**9, "nanos": nanos % 10**9})
    text = f"{written(nanos, 9)}Z"
    record = json.dumps({"x": text}).encode()
    count = json.dumps({"x": nanos}).encode()
    for finer, wanted in (
        ({"finer": "truncate"}, micros),
        ({}, FINER if nanos % 1000 else micros),
    ):
        assert decoded(Json(finer), [record, b" " + record]) == [wanted] * 2
        assert decoded(Csv(finer), [text.encode(), f'"{text}"'.encode()]) == [wanted] * 2
        messages = Protobuf(descriptors, "a.Timed", finer=finer.get("finer"))
        assert decoded(messages, [timed.SerializeToString()]) == [wanted]
        if -(2**63) <= nanos < 2**63:
            nano = {"timestampFormat": "epochNanos", **finer}
            assert decoded(Json(nano), [count, b" " + count]) == [wanted] * 2
            assert decoded(Csv(nano), [str(nanos).encode()]) == [wanted]


@pytest.mark.parametrize("finer", [{}, {"finer": "truncate"}])
def test_a_stream_may_have_any_number_of_digits(finer: Mapping[str, str]) -> None:
    texts = [f"{written(1_769_854_530_120_000_000, digits)}Z" for digits in range(10)]
    values = [json.dumps({"x": text}).encode() for text in texts]
    second = 1_769_854_530_000_000
    wanted = [second, second + 100_000, *[second + 120_000] * 8]
    assert decoded(Json(finer), values) == wanted
    assert decoded(Csv(finer), [text.encode() for text in texts]) == wanted


UNITS = {"epochSeconds": 10**9, "epochMillis": 10**6, "epochMicros": 10**3, "epochNanos": 1}
FRACTIONS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)


@FEW
@given(st.sampled_from([*UNITS]), FRACTIONS, st.sampled_from([{}, {"finer": "truncate"}]))
@example("epochSeconds", "1700000000.123", {})
@example("epochSeconds", "1700000000.0", {})
@example("epochSeconds", "1.700000000123E9", {})
@example("epochSeconds", "-0.0000005", {"finer": "truncate"})
@example("epochMillis", "1700000000123.4567", {"finer": "truncate"})
@example("epochNanos", "1700000000123456789.5", {"finer": "truncate"})
def test_counts_since_1970_may_have_a_fraction(
    unit: str, number: str, finer: dict[str, str]
) -> None:
    """A JSON number may be in quotes, because the unit is declared."""
    exact = Fraction(Decimal(number)) * UNITS[unit] / 1000
    micros = exact.numerator // exact.denominator
    wanted: int | str = micros
    fits = unit != "epochNanos" or -(2**63) <= Fraction(Decimal(number)) < 2**63
    if not fits or not BEGINNING <= micros <= INFINITY:
        wanted = MISFIT
    elif exact.denominator != 1 and not finer:
        wanted = FINER
    options = {"timestampFormat": unit, **finer}
    values = [f'{{"x": {number}}}'.encode(), f'{{"x": "{number}"}}'.encode()]
    found = [*decoded(Json(options), values), *decoded(Csv(options), [number.encode()])]
    # A batch of regular records is decoded by Arrow.
    found += decoded(Json(options), values[:1] * 50)
    if wanted == MISFIT:
        assert {type(each) for each in found} == {str}
    else:
        assert found == [wanted] * 53


@pytest.mark.parametrize("number", ["1e999999999", "-1e99999999999999999999", "1e-999999999", "."])
def test_extreme_counts_take_no_time(number: str) -> None:
    options = {"timestampFormat": "epochSeconds"}
    (found,) = decoded(Csv(options), [number.encode()])
    assert found in (FINER, MISFIT)


def test_other_counts_are_dead_letters() -> None:
    options = {"timestampFormat": "epochSeconds"}
    values = [b'{"x": true}', b'{"x": "now"}', b'{"x": ""}', b'{"x": [1]}', b'{"x": "0x1F"}']
    assert decoded(Json(options), values) == [MISFIT] * 5


TEXTS = ["2026-01-31T10:15:30", "2026-01-31 10:15", "2026-01-31", "2026-01-31T10:15:30.5"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_without_an_offset_needs_a_zone(text: str) -> None:
    record, field = json.dumps({"x": text}).encode(), text.encode()
    nested = json.dumps({"x": [{"a": text}]}).encode()
    for form, values in ((Json(), [record, b" " + record]), (Csv(), [field])):
        assert decoded(form, values) == [NO_ZONE] * len(values)
    events = Json().decode_values(
        pa.chunked_array([[nested]]), {"x": "ARRAY<STRUCT<a: TIMESTAMP>>"}
    )
    assert events.reasons == {0: NO_ZONE}
    for zone, hours in (("UTC", 0), ("Asia/Tokyo", -9)):
        (utc,) = decoded(Json({"timeZone": "UTC"}), [record])
        assert isinstance(utc, int)
        wanted = utc + hours * 3_600_000_000
        assert decoded(Json({"timeZone": zone}), [record]) == [wanted]
        assert decoded(Csv({"timeZone": zone}), [field]) == [wanted]
        assert decoded(Json(), [record], "TIMESTAMP_NTZ") == [utc]


def test_a_pattern_without_an_offset_needs_a_zone() -> None:
    options = {"timestampFormat": "dd.MM.yyyy HH:mm"}
    assert decoded(Csv(options), [b"31.01.2026 10:15"]) == [NO_ZONE]
    (found,) = decoded(Csv({**options, "timeZone": "UTC"}), [b"31.01.2026 10:15"])
    assert found == 1_769_854_500_000_000


COLUMNS = {"at": "TIMESTAMP", "x": "TIMESTAMP"}
SOURCE = Source("values", COLUMNS, "at", BoundedOutOfOrderness("0 seconds"))


def parquet(
    folder: Path, column: "pa.Array[Any]", options: dict[str, str | bool]
) -> list[int | str]:
    """Return the times of a Parquet file as `decoded` does."""
    at = pa.array([0] * len(column), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "x": column}), folder / "a.parquet")
    connector = FileConnector(SOURCE, folder, "parquet", options)
    rows = pa.concat_tables(connector.read(NO_ENGINE, connector.list_pending([])))
    times, letters = rows["x"].cast(pa.int64()).to_pylist(), rows[DEAD].to_pylist()
    return [
        letter["reason"] if letter else time for time, letter in zip(times, letters, strict=True)
    ]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_parquet_follows_the_rules(tmp_path: Path, zone: str | None) -> None:
    values = [1_769_854_530_123_456_789, -1, -1001, 1000]
    nanos = pa.array(values, pa.int64()).cast(pa.timestamp("ns", zone))
    if zone is None:
        with pytest.raises(DataError, match=r"'x' is timestamp\[ns\].* set the option timeZone"):
            parquet(tmp_path, nanos, {})
    options: dict[str, str | bool] = {"timeZone": "UTC"} if zone is None else {}
    assert parquet(tmp_path, nanos, options) == [*[FINER] * 3, 1]
    truncated = parquet(tmp_path, nanos, {**options, "finer": "truncate"})
    assert truncated == [value // 1000 for value in values]


def test_an_instant_is_not_a_local_time(tmp_path: Path) -> None:
    source = Source("values", {**COLUMNS, "x": "TIMESTAMP_NTZ"}, "at", SOURCE.watermark)
    at = pa.array([0], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "x": at}), tmp_path / "a.parquet")
    connector = FileConnector(source, tmp_path, "parquet")
    with pytest.raises(DataError, match="which does not fit TIMESTAMP_NTZ"):
        list(connector.read(NO_ENGINE, connector.list_pending([])))


def test_only_the_columns_of_a_message_are_decoded(descriptors: Path) -> None:
    timed = message(descriptors, "a.Timed")(x={"seconds": 1}, y={"seconds": 2**60, "nanos": 1})
    assert decoded(Protobuf(descriptors, "a.Timed"), [timed.SerializeToString()]) == [1_000_000]
    far = message(descriptors, "a.Timed")(x={"seconds": 2**40})
    reason = "The field 'x' has a time outside the years 1 to 9999."
    assert decoded(Protobuf(descriptors, "a.Timed"), [far.SerializeToString()]) == [reason]


def test_an_unknown_rule_is_refused(descriptors: Path) -> None:
    for create in (
        lambda: Json({"finer": "round"}),
        lambda: Csv({"finer": "round"}),
        lambda: Protobuf(descriptors, "a.Timed", finer="round"),
        lambda: FileConnector(SOURCE, Path(), "parquet", {"finer": "round"}),
    ):
        with pytest.raises(
            DefinitionError, match=r"`finer` must be 'truncate', .* \(got 'round'\)"
        ):
            create()


def test_the_model_rounds_to_the_past() -> None:
    assert Decimal("-0.5").to_integral_value(ROUND_FLOOR) == -1
