"""Avro's binary encoding is read as the specification says, and as another implementation does."""

import io
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.read import SchemaResolutionError
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.data.binaries import avro
from tidemark.base.errors import DefinitionError
from tidemark_streaming.payloads import Avro
from tidemark_streaming.payloads.avro_input import MAX_ITEMS

FINER = (
    "The field 'x' has a time with more precision than microseconds. To drop the extra digits, set "
    "finer to 'truncate'."
)
NO_ZONE = (
    "The field 'x' has a time without a time zone. Specify the zone in the format: the option "
    "timeZone, or time_zone= of Avro(…)."
)


def one(type_: object, **more: object) -> dict[str, Any]:
    """Return the schema of a record with the field `x`."""
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": type_, **more}]}


def decoded(payload: Avro, values: list[bytes], column: str) -> list[Any]:
    """Return the value of `x`, or the reason of a dead letter, of each record."""
    events = payload.decode_values(pa.chunked_array([pa.array(values, pa.binary())]), {"x": column})
    found = events.columns["x"]
    if pa.types.is_timestamp(found.type):
        found = found.cast(pa.int64())
    return [events.reasons.get(row, value) for row, value in enumerate(found.to_pylist())]


# Random schemas, each with a value.

LONGS = st.integers(-(2**63), 2**63 - 1)
SIMPLE: Mapping[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": LONGS,
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=5),
    "string": st.text(max_size=5),
}


@st.composite
def written(draw: st.DrawFn, levels: int = 3, names: list[int] | None = None) -> tuple[Any, Any]:
    """Return a schema and a value of it."""
    names = [] if names is None else names
    kinds = [*SIMPLE, "enum", "fixed", *(["record", "array", "map", "union"] if levels else [])]
    kind = draw(st.sampled_from(kinds))
    names.append(len(names))
    name = f"T{names[-1]}"
    if kind in SIMPLE:
        return kind, draw(SIMPLE[kind])
    if kind == "enum":
        symbols = ["A", "B", "C"][: draw(st.integers(1, 3))]
        return {"type": "enum", "name": name, "symbols": symbols}, draw(st.sampled_from(symbols))
    if kind == "fixed":
        size = draw(st.integers(1, 4))
        return {"type": "fixed", "name": name, "size": size}, draw(
            st.binary(min_size=size, max_size=size)
        )
    inner = [draw(written(levels - 1, names)) for _ in range(draw(st.integers(1, 3)))]
    if kind == "record":
        fields = [{"name": f"f{n}", "type": type_} for n, (type_, _) in enumerate(inner)]
        value = {f"f{n}": value for n, (_, value) in enumerate(inner)}
        return {"type": "record", "name": name, "fields": fields}, value
    type_, value = inner[0]
    count = draw(st.integers(0, 3))
    if kind == "array":
        return {"type": "array", "items": type_}, [value] * count
    if kind == "map":
        return {"type": "map", "values": type_}, {str(n): value for n in range(count)}
    if isinstance(type_, list) or type_ == "null":
        return type_, value
    return ["null", type_], draw(st.sampled_from([None, value]))


def same(one_: Any, other: Any) -> bool:  # noqa: ANN401 (any value)
    if isinstance(one_, float) and isinstance(other, float) and math.isnan(one_):
        return math.isnan(other)
    if isinstance(one_, dict) and isinstance(other, dict):
        return one_.keys() == other.keys() and all(same(one_[k], other[k]) for k in one_)
    if isinstance(one_, list) and isinstance(other, list):
        return len(one_) == len(other) and all(map(same, one_, other))
    return type(one_) is type(other) and one_ == other


@settings(max_examples=200, deadline=None)
@given(written())
def test_values_are_those_of_another_reader(drawn: tuple[Any, Any]) -> None:
    schema, content = one(drawn[0]), avro(one(drawn[0]), {"x": drawn[1]})
    theirs = fastavro.schemaless_reader(io.BytesIO(content), fastavro.parse_schema(schema), None)
    assert same(Avro(json.dumps(schema)).decode_event(content), theirs)


PROMOTED = ["int", "long", "float", "double", "string", "bytes", "boolean", "null"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(PROMOTED), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(PROMOTED), min_size=1, max_size=3, unique=True),
    st.data(),
)
def test_values_are_resolved_as_by_another_reader(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[str],
    reads: list[str],
    data: st.DataObject,
) -> None:
    """Whether a union can be resolved depends on the branch of each value."""
    writer = one(writes if len(writes) > 1 else writes[0])
    reader = one(reads if len(reads) > 1 else reads[0])
    kind = data.draw(st.sampled_from(writes))
    value = data.draw(SIMPLE[kind])
    if isinstance(value, bytes):
        value = value.hex().encode()
    content = avro(writer, {"x": (kind, value) if len(writes) > 1 else value}, 1)
    folder = tmp_path_factory.mktemp("registry")
    (folder / "1.avsc").write_text(json.dumps(writer))
    payload = Avro(json.dumps(reader), by_id=True, registry=folder)
    (reason,) = decoded(payload, [content], "STRING")
    try:
        theirs: Any = fastavro.schemaless_reader(
            io.BytesIO(content[5:]), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        )
    except SchemaResolutionError:
        assert reason.startswith("The record was written with schema 1 and can't be resolved to")
        assert "because the field 'x' was written as" in reason
        return
    mine = payload.decode_event(content)["x"]
    # The other reader takes the first fitting branch, not the one of the same type.
    assert same(mine, theirs["x"] if len(reads) == 1 or kind not in reads else value)


@pytest.mark.parametrize(
    ("writer", "reader", "values", "expected"),
    [
        (["null", "string"], "string", [None, "a"], ["null", "a"]),
        (["int", "string"], ["null", "string"], [("int", 1), "a"], ["int", "a"]),
    ],
)
def test_the_reason_names_the_branch(
    tmp_path: Path,
    writer: object,
    reader: object,
    values: list[Any],
    expected: list[str],
) -> None:
    (tmp_path / "3.avsc").write_text(json.dumps(one(writer)))
    payload = Avro(json.dumps(one(reader)), by_id=True, registry=tmp_path)
    found = decoded(payload, [avro(one(writer), {"x": v}, 3) for v in values], "STRING")
    assert f"the field 'x' was written as {expected[0]}, which does not fit" in found[0]
    assert found[1] == expected[1]


def wrap(type_: object, around: str) -> object:
    """Return a type that contains another one."""
    if around == "record":
        return {"type": "record", "name": "In", "fields": [{"name": "s", "type": type_}]}
    if around in ("array", "map"):
        return {"type": around, "items" if around == "array" else "values": type_}
    return ["null", type_] if around == "union" else type_


@pytest.mark.parametrize("around", ["", "record", "array", "map", "union"])
def test_an_unknown_symbol_concerns_only_its_record(tmp_path: Path, around: str) -> None:
    """The next record of the same schema is decoded."""
    symbols = {"type": "enum", "name": "S", "symbols": ["A", "B"]}
    fewer = {**symbols, "symbols": ["A"]}
    writer, reader = one(wrap(symbols, around)), one(wrap(fewer, around))
    (tmp_path / "3.avsc").write_text(json.dumps(writer))

    def value(symbol: str) -> dict[str, Any]:
        inner: Any = {"record": {"s": symbol}, "array": [symbol], "map": {"k": symbol}}
        return {"x": inner.get(around, symbol)}

    values = [avro(writer, value(symbol), 3) for symbol in "ABA"]
    column = {"record": "STRUCT<s: STRING>", "array": "ARRAY<STRING>", "map": "MAP<STRING, STRING>"}
    kind = column.get(around, "STRING")
    payload = Avro(json.dumps(reader), by_id=True, registry=tmp_path)
    first, unknown, last = decoded(payload, values, kind)
    assert first == last
    assert "A" in str(first)
    path = "x.s" if around == "record" else "x"
    assert unknown == (
        "The record was written with schema 3 and can't be resolved to the `schema` of Avro(…), "
        f"because the field '{path}' has a symbol that the enumeration S lacks, and no default "
        "replaces it."
    )
    fewer["default"] = "A"
    payload = Avro(json.dumps(one(wrap(fewer, around))), by_id=True, registry=tmp_path)
    assert decoded(payload, values, kind) == [first] * 3


def test_another_record_is_not_read_as_this_one(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(json.dumps({**one("long"), "name": "Payment"}))
    payload = Avro(json.dumps(one("long")), by_id=True, registry=tmp_path)
    (reason,) = decoded(payload, [avro(one("long"), {"x": 7}, 1)], "BIGINT")
    assert "because the record was written as record Payment, which does not fit record R" in reason


@pytest.mark.parametrize(
    "item",
    [
        "null",
        {"type": "record", "name": "E", "fields": []},
        {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]},
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "array", "items": "null"},
    ],
)
@pytest.mark.parametrize("negative", [False, True])
def test_the_items_of_a_record_are_bounded(item: object, negative: bool) -> None:
    """Seven bytes were once decoded to a hundred million items."""
    payload = Avro(json.dumps(one({"type": "array", "items": item})))
    count = bytes.fromhex("80c2d72f") if not negative else bytes.fromhex("ffc1d72f00")
    (reason,) = decoded(payload, [count + b"\0"], "ARRAY<STRING>")
    bound = "The record has more than 1,000,000 items in arrays and maps."
    assert reason == bound


def test_the_items_of_all_blocks_are_counted() -> None:
    bound = "The record has more than 1,000,000 items in arrays and maps."
    block = avro({"type": "array", "items": "null"}, [None] * (MAX_ITEMS // 2))[:-1]
    payload = Avro(json.dumps(one({"type": "array", "items": "null"})))
    assert decoded(payload, [block * 3 + b"\0"], "ARRAY<STRING>") == [bound]
    assert len(payload.decode_event(block * 2 + b"\0")["x"]) == MAX_ITEMS


TIMES = [
    *(
        (f"{local}timestamp-{unit}", scale)
        for local in ("", "local-")
        for unit, scale in (("millis", 10**6), ("micros", 10**3), ("nanos", 1))
    ),
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TIMES), LONGS | st.integers(-(10**16), 10**16), st.booleans())
def test_times_follow_the_rules_of_all_formats(
    time: tuple[str, int], number: int, truncate: bool
) -> None:
    logical, scale = time
    schema = one({"type": "long", "logicalType": logical})
    content = avro(one("long"), {"x": number})
    micros, extra = divmod(number * scale, 1000)
    finer = "truncate" if truncate else None
    try:
        clock = datetime(1970, 1, 1) + timedelta(microseconds=micros)  # noqa: DTZ001
    except OverflowError:
        clock = None
    wanted: int | str = micros
    if extra and not truncate:
        wanted = FINER
    elif clock is None:
        wanted = "The field 'x' has a time outside the years 1 to 9999."
    is_local = logical.startswith("local")
    (plain,) = decoded(Avro(json.dumps(schema), finer=finer), [content], "TIMESTAMP")
    assert plain == (NO_ZONE if is_local and isinstance(wanted, int) else wanted)
    zoned = Avro(json.dumps(schema), finer=finer, time_zone="UTC")
    assert decoded(zoned, [content], "TIMESTAMP") == [wanted]
    (ntz,) = decoded(zoned, [content], "TIMESTAMP_NTZ")
    if isinstance(wanted, int) and not is_local:
        assert ntz == "The field 'x' is not a valid TIMESTAMP_NTZ."
    else:
        assert ntz == wanted


def test_local_times_are_in_the_declared_zone() -> None:
    """A time that occurs twice is the first, and one that does not occur is later."""
    schema = one(
        {"type": "array", "items": {"type": "long", "logicalType": "local-timestamp-micros"}}
    )
    clocks = ["2026-07-01T12:00", "2026-10-25T02:30", "2026-03-29T02:30"]
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001
    numbers = [(datetime.fromisoformat(c) - epoch) // timedelta(microseconds=1) for c in clocks]
    content = avro(one({"type": "array", "items": "long"}), {"x": numbers})
    payload = Avro(json.dumps(schema), time_zone="Europe/Berlin")
    (found,) = decoded(payload, [content], "ARRAY<TIMESTAMP>")
    wanted = ["2026-07-01T10:00:00+00:00", "2026-10-25T00:30:00+00:00", "2026-03-29T01:30:00+00:00"]
    assert [each.isoformat() for each in found] == wanted
    assert decoded(Avro(json.dumps(schema)), [content], "ARRAY<TIMESTAMP>") == [NO_ZONE]


@pytest.mark.parametrize(
    ("kind", "logical", "scale"), [("int", "time-millis", 1000), ("long", "time-micros", 1)]
)
def test_a_time_of_day_is_a_text_or_microseconds(kind: str, logical: str, scale: int) -> None:
    micros = ((10 * 60 + 15) * 60 + 30) * 1_000_000 + 123_000
    content = avro(one(kind), {"x": micros // scale})
    payload = Avro(json.dumps(one({"type": kind, "logicalType": logical})))
    assert decoded(payload, [content], "STRING") == ["10:15:30.123000"]
    assert decoded(payload, [content], "BIGINT") == [micros]
    for column in ("TIMESTAMP", "DOUBLE", "DATE"):
        assert decoded(payload, [content], column) == [f"The field 'x' is not a valid {column}."]
    late = avro(one(kind), {"x": 86_400_000_000 // scale})
    assert decoded(payload, [late], "STRING") == [
        "The record can't be decoded with the given schema: it is damaged."
    ]


def test_defaults_have_their_logical_types(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(json.dumps({**one("int"), "fields": []}))
    types: list[tuple[object, object, str, object]] = [
        ({"type": "int", "logicalType": "date"}, 1, "DATE", date(1970, 1, 2)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "\u00ff",
            "DECIMAL(4,2)",
            Decimal("-0.01"),
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, "TIMESTAMP", 5_000),
        (["null", "string"], None, "STRING", None),
        (["string", "null"], "a", "STRING", "a"),
        ({"type": "array", "items": "long"}, [1], "ARRAY<BIGINT>", [1]),
    ]
    for type_, default, column, value in types:
        payload = Avro(json.dumps(one(type_, default=default)), by_id=True, registry=tmp_path)
        assert decoded(payload, [b"\0\0\0\0\1"], column) == [value]


def test_the_readers_of_another_library_stay_as_they_are() -> None:
    """The host's own code rounds a decimal to the precision of its schema."""
    program = """
import io, json
from fastavro import schemaless_reader, schemaless_writer, parse_schema
from tidemark_streaming.payloads import Avro
wide = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
record = lambda kind: {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
stream = io.BytesIO()
from decimal import Decimal
schemaless_writer(stream, parse_schema(record(wide)), {"x": Decimal("1234567.89")})
narrow = record({**wide, "precision": 4})
theirs = schemaless_reader(io.BytesIO(stream.getvalue()), parse_schema(narrow), None)["x"]
print(theirs, Avro(json.dumps(narrow)).decode_event(stream.getvalue())["x"])
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert output.stdout.split() == ["1.235E+6", "1234567.89"]


def test_an_unknown_zone_or_rule_is_refused() -> None:
    with pytest.raises(DefinitionError, match="unknown time zone, 'Mars'"):
        Avro(json.dumps(one("long")), time_zone="Mars")
    with pytest.raises(DefinitionError, match=r"`finer` must be 'truncate'"):
        Avro(json.dumps(one("long")), finer="round")
