"""Random values in Avro, Protobuf, Parquet and Delta are decoded unchanged or refused."""

import json
import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from helpers.data.binaries import avro, describe, message
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.rows import fetch_rows
from tidemark_streaming.connector import DEAD
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.payloads import Avro, Protobuf

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
floats = st.one_of(st.floats(), st.sampled_from([-0.0, 1e300, 1e-300, 5e-324, 2.0**53 + 2, 0.1]))
longs = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300))
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
money = st.decimals(-(10**8) + 1, 10**8 - 1, places=2)
days = st.dates()

LONG = "a whole number of 64 bits"
TYPES: dict[str, tuple[Any, Any, Any]] = {
    "STRING": ("string", texts, pa.string()),
    "BINARY": ("bytes", st.binary(max_size=4), pa.binary()),
    "BOOLEAN": ("boolean", st.booleans(), pa.bool_()),
    "TINYINT": ("long", longs, pa.int8()),
    "INT": ("long", longs, pa.int32()),
    "BIGINT": ("long", longs, pa.int64()),
    "DOUBLE": ("double", floats, pa.float64()),
    "FLOAT": ("double", floats, pa.float32()),
    "DATE": ({"type": "int", "logicalType": "date"}, days, pa.date32()),
    "TIMESTAMP": (
        {"type": "long", "logicalType": "timestamp-micros"},
        instants,
        pa.timestamp("us", "UTC"),
    ),
    "DECIMAL(10,2)": (
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4},
        st.one_of(money, st.decimals(-(10**7), 10**7, places=4)),
        pa.decimal128(10, 2),
    ),
}


def held(value: Any, kind: str) -> bool:  # noqa: ANN401 (any value)
    """Return whether a column of this type can hold a value."""
    if kind in ("TINYINT", "INT"):
        most = 2 ** (7 if kind == "TINYINT" else 31)
        return -most <= value < most
    if kind == "FLOAT" and math.isfinite(value) and value:
        with np.errstate(over="ignore", under="ignore"):
            return bool(np.isfinite(np.float32(value)) and np.float32(value))
    if kind.startswith("DECIMAL"):
        return abs(value) < 10**8 and value == round(value, 2)
    return True


def same(found: Any, value: Any, kind: str) -> bool:  # noqa: ANN401 (as above)
    """Return whether two values are equal to the bit, or to the nearest for FLOAT."""
    if isinstance(value, float):
        with np.errstate(over="ignore", under="ignore"):
            value = float(np.float32(value)) if kind == "FLOAT" else value
        return (math.isnan(found) and math.isnan(value)) or struct.pack("d", found) == struct.pack(
            "d", value
        )
    return type(found) is type(value) and found == value


@settings(max_examples=60, deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", TYPES)
def test_avro_values_are_exact_or_dead_letters(kind: str, data: st.DataObject) -> None:
    written, values, _ = TYPES[kind]
    schema = {"type": "record", "name": "One", "fields": [{"name": "x", "type": written}]}
    drawn = data.draw(st.lists(values, min_size=1, max_size=10))
    records = pa.chunked_array([pa.array([avro(schema, {"x": v}) for v in drawn], pa.binary())])
    events = Avro(json.dumps(schema)).decode_values(records, {"x": kind})
    for n, (value, found) in enumerate(zip(drawn, events.columns["x"].to_pylist(), strict=True)):
        assert (n in events.reasons) != held(value, kind), (value, found)
        assert found is None if n in events.reasons else same(found, value, kind), (value, found)


@pytest.mark.parametrize("micros", [2**63 - 1, -(2**63), 253_402_300_800_000_000])
def test_an_avro_timestamp_out_of_range_is_a_dead_letter(micros: int) -> None:
    written, plain = TYPES["TIMESTAMP"][0], {"type": "record", "name": "One"}
    value = avro({**plain, "fields": [{"name": "x", "type": "long"}]}, {"x": micros})
    form = Avro(json.dumps({**plain, "fields": [{"name": "x", "type": written}]}))
    events = form.decode_values(pa.chunked_array([[value]], pa.binary()), {"x": "TIMESTAMP"})
    assert (events.columns["x"].null_count, list(events.reasons)) == (1, [0])


@settings(max_examples=60, deadline=None)
@given(st.integers(-(10**40), 10**40) | st.integers(-(10**12), 10**12), st.integers(1, 12))
@pytest.mark.parametrize("written", ["bytes", "fixed"])
def test_an_avro_decimal_has_all_digits_that_were_written(
    written: str, unscaled: int, precision: int
) -> None:
    """Many writers do not check the precision that their schema declares."""
    scale, size = min(precision, 2), 17
    kind = {"type": written, "logicalType": "decimal", "precision": precision, "scale": scale}
    kind |= {"name": "amount", "size": size} if written == "fixed" else {}
    schema = {"type": "record", "name": "One", "fields": [{"name": "x", "type": kind}]}
    content = unscaled.to_bytes(size, "big", signed=True)
    value = content if written == "fixed" else bytes([2 * size]) + content
    form = Avro(json.dumps(schema))
    events = form.decode_values(pa.chunked_array([[value]], pa.binary()), {"x": "DECIMAL(38,2)"})
    (found,) = events.columns["x"].to_pylist()
    exact = Decimal(f"{unscaled}e-{scale}")
    if abs(exact) < 10**36:
        assert (found, events.reasons) == (exact, {})
    else:
        assert (found, list(events.reasons)) == (None, [0])


ONE = """
name: "one.proto" package: "one" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "One"
  field { name: "STRING" number: 1 type: TYPE_STRING }
  field { name: "BINARY" number: 2 type: TYPE_BYTES }
  field { name: "BOOLEAN" number: 3 type: TYPE_BOOL }
  field { name: "INT" number: 4 type: TYPE_INT64 }
  field { name: "BIGINT" number: 5 type: TYPE_INT64 }
  field { name: "DOUBLE" number: 6 type: TYPE_DOUBLE }
  field { name: "FLOAT" number: 7 type: TYPE_DOUBLE }
  field { name: "TIMESTAMP" number: 8 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
}
"""
PROTOBUF = ("STRING", "BINARY", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "FLOAT", "TIMESTAMP")


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return describe(ONE, tmp_path_factory.mktemp("protobuf") / "one.pb")


@settings(max_examples=60, deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", PROTOBUF)
def test_protobuf_values_are_exact_or_dead_letters(
    descriptors: Path, kind: str, data: st.DataObject
) -> None:
    made = message(descriptors, "one.One")
    drawn = data.draw(st.lists(TYPES[kind][1], min_size=1, max_size=10))
    values = list[bytes]()
    for value in drawn:
        one = made()
        if kind == "TIMESTAMP":
            one.TIMESTAMP.FromDatetime(value)
        else:
            setattr(one, kind, value)
        values.append(one.SerializeToString())
    records = pa.chunked_array([pa.array(values, pa.binary())])
    events = Protobuf(descriptors, "one.One").decode_values(records, {kind: kind})
    for n, (value, found) in enumerate(zip(drawn, events.columns[kind].to_pylist(), strict=True)):
        assert (n in events.reasons) != held(value, kind), (value, found)
        assert found is None if n in events.reasons else same(found, value, kind), (value, found)


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(0, 1), (253_402_300_800, 0), (-(2**62), 0), (0, 2**30)]
)
def test_a_protobuf_timestamp_out_of_range_is_a_dead_letter(
    descriptors: Path, seconds: int, nanos: int
) -> None:
    one = message(descriptors, "one.One")()
    one.TIMESTAMP.seconds, one.TIMESTAMP.nanos = seconds, nanos
    values = pa.chunked_array([[one.SerializeToString()]], pa.binary())
    events = Protobuf(descriptors, "one.One").decode_values(values, {"TIMESTAMP": "TIMESTAMP"})
    assert (events.columns["TIMESTAMP"].null_count, list(events.reasons)) == (1, [0])


EXACT = {kind: kinds for kind, kinds in TYPES.items() if kind not in ("TINYINT", "INT", "FLOAT")}
SOURCE = Source(
    "exact",
    {"at": "TIMESTAMP", **{f"c{n}": kind for n, kind in enumerate(EXACT)}},
    "at",
    BoundedOutOfOrderness("0 seconds"),
)
cells = st.fixed_dictionaries(
    {
        "at": instants,
        **{
            f"c{n}": st.none() | (money if kind.startswith("DECIMAL") else drawn)
            for n, (kind, (_, drawn, _)) in enumerate(EXACT.items())
        },
    }
)


@pytest.mark.parametrize("form", ["parquet", "delta"])
@settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(cells, min_size=20, max_size=40))
def test_parquet_and_delta_values_are_exact(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    rows: list[dict[str, Any]],
) -> None:
    kinds = {"at": pa.timestamp("us", "UTC")}
    kinds |= {f"c{n}": kind for n, (_, _, kind) in enumerate(EXACT.values())}
    table, place = pa.Table.from_pylist(rows, pa.schema(kinds)), tmp_path_factory.mktemp(form)
    if form == "parquet":
        pq.write_table(table, place / "a.parquet")
        connector = FileConnector(SOURCE, place, "parquet")
    else:
        write_deltalake(place, table)
        connector = DeltaConnector(SOURCE, str(place))
    read = connector.read(spark, connector.list_pending([])[-1:])
    rows_read = read if isinstance(read, pa.Table | DataFrame) else pa.concat_tables(read)
    found = fetch_rows(rows_read).sort_by("position")
    if DEAD in found.column_names:
        assert found[DEAD].null_count == len(rows)
    for row, mine in zip(rows, found.to_pylist(), strict=True):
        for name, kind in SOURCE.columns.items():
            value = row[name]
            assert mine[name] is None if value is None else same(mine[name], value, kind), (
                name,
                row,
            )
