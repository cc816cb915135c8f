"""Records with the ID of a schema in front, and records that are too long."""

import gzip
import json
import random
import struct
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.data.binaries import describe, message
from tidemark.base.errors import DefinitionError
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.payloads import Json, Payload, Protobuf
from tidemark_streaming.payloads.csv_records import Csv
from tidemark_streaming.payloads.payload import MAX_RECORD_BYTES
from tidemark_streaming.payloads.record_files import read_records

HEAD = struct.pack(">bI", 0, 7)
NAMES = st.lists(st.sampled_from("ABCDEFGH"), min_size=1, max_size=4, unique=True)


def decoded(payload: Payload, values: list[bytes], kind: str = "BIGINT") -> list[Any]:
    """Return the value of `n`, or the reason of a dead letter, of each record."""
    events = payload.decode_values(pa.chunked_array([pa.array(values, pa.binary())]), {"n": kind})
    found = events.columns["n"].to_pylist()
    return [events.reasons.get(row, value) for row, value in enumerate(found)]


def zigzag(index: list[int]) -> bytes:
    """Return the index of a message as Confluent's serializers write it."""
    if index == [0]:
        return b"\0"
    numbers = [len(index), *index]
    assert max(numbers) < 64
    return bytes(number << 1 for number in numbers)


def nested(names: list[str], levels: int) -> list[DescriptorProto]:
    """Return messages with these names, each of which contains messages with the same names."""
    messages = list[DescriptorProto]()
    for name in names:
        each = DescriptorProto(name=name)
        text_format.Parse("name: 'n' number: 1 type: TYPE_INT64", each.field.add())
        if levels:
            each.nested_type.extend(nested(names, levels - 1))
        messages.append(each)
    return messages


@settings(max_examples=25, deadline=None)
@given(NAMES, st.randoms(use_true_random=False))
def test_the_message_index_is_part_of_the_type(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], chance: random.Random
) -> None:
    """A record of another message of the same schema is never read as this one."""
    file = FileDescriptorProto(name="a.proto", package="a", message_type=nested(names, 1))
    path = tmp_path_factory.mktemp("messages") / "a.pb"
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    indexes = {f"a.{name}": [n] for n, name in enumerate(names)}
    indexes |= {
        f"a.{outer}.{inner}": [n, m]
        for n, outer in enumerate(names)
        for m, inner in enumerate(names)
    }
    wanted = chance.choice([*indexes])
    body = message(path, wanted)(n=5).SerializeToString()
    values = [HEAD + zigzag(index) + body for index in indexes.values()]
    found = decoded(Protobuf(path, wanted, by_id=True), values)
    for (name, index), value in zip(indexes.items(), found, strict=True):
        other = f"The record is message {index} of its schema, '{name}', but '{wanted}' is message"
        assert value == 5 if name == wanted else value.startswith(other)
    moved = Protobuf(path, wanted, by_id=True, index=[9, 3])
    assert decoded(moved, [HEAD + zigzag([9, 3]) + body]) == [5]


@pytest.mark.parametrize(
    "index", [b"", b"\x01\x00", b"\x02\x01", b"\xff", b"\xfe\xff\xff\x7f", b"\x02"]
)
def test_an_invalid_message_index_is_a_dead_letter(tmp_path: Path, index: bytes) -> None:
    text = 'name: "a.proto" package: "a" message_type { name: "A" }'
    path = describe(text + ' dependency: "google/protobuf/timestamp.proto"', tmp_path / "a.pb")
    (found,) = decoded(Protobuf(path, "a.A", by_id=True), [HEAD + index])
    assert found == "The record does not specify which message of its schema it is."


def test_entries_of_maps_may_count_as_messages(tmp_path: Path) -> None:
    """Serializers in Python count them, and those in Java do not."""
    text = """
        name: "a.proto" package: "a" dependency: "google/protobuf/timestamp.proto"
        message_type { name: "A"
          nested_type { name: "CountsEntry" options { map_entry: true }
            field { name: "key" number: 1 type: TYPE_STRING }
            field { name: "value" number: 2 type: TYPE_INT32 } }
          nested_type { name: "Line" field { name: "n" number: 1 type: TYPE_INT64 } }
        }
    """
    path = describe(text, tmp_path / "a.pb")
    body = message(path, "a.A.Line")(n=5).SerializeToString()
    values = [HEAD + zigzag([0, number]) + body for number in (0, 1)]
    assert decoded(Protobuf(path, "a.A.Line", by_id=True), values) == [5, 5]


WRAPPED = """
name: "a.proto" package: "a" syntax: "proto3" dependency: "google/protobuf/wrappers.proto"
message_type { name: "A"
  field { name: "n" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.KIND" }
  field { name: "m" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".google.protobuf.KIND" } }
"""


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("DoubleValue", "DOUBLE", 12.5),
        ("FloatValue", "FLOAT", 0.5),
        ("Int64Value", "BIGINT", -(2**40)),
        ("UInt64Value", "DECIMAL(20,0)", 2**63),
        ("Int32Value", "INT", 0),
        ("UInt32Value", "BIGINT", 2**31),
        ("BoolValue", "BOOLEAN", False),
        ("StringValue", "STRING", ""),
        ("BytesValue", "BINARY", b"\xff"),
    ],
)
def test_a_wrapper_is_its_value_or_null(
    tmp_path: Path, kind: str, column: str, value: object
) -> None:
    from google.protobuf import wrappers_pb2

    imported = FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(imported)
    file = text_format.Parse(WRAPPED.replace("KIND", kind), FileDescriptorProto())
    path = tmp_path / "a.pb"
    path.write_bytes(FileDescriptorSet(file=[imported, file]).SerializeToString())
    full = message(path, "a.A")(n={"value": value}, m=[{"value": value}])
    records = pa.chunked_array([[full.SerializeToString(), b""]])
    columns = {"n": column, "m": f"ARRAY<{column}>"}
    events = Protobuf(path, "a.A").decode_values(records, columns)
    assert events.reasons == {}
    assert events.columns["n"].to_pylist() == [value, None]
    assert events.columns["m"].to_pylist() == [[value], []]


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=6), st.integers(-100, 100), st.integers(1, 40))
def test_json_may_follow_the_id_of_its_schema(damaged: bytes, n: int, count: int) -> None:
    """The same records as without an ID, in a batch of any size."""
    record = json.dumps({"n": n}).encode()
    values = [HEAD + record] * count
    assert decoded(Json(by_id=True), values) == [n] * count
    no_id = (
        "The record does not begin with a schema ID (a zero byte and four bytes). If records have "
        "no schema ID, set by_id=False."
    )
    found = decoded(Json(by_id=True), [record, HEAD + damaged, *values])
    assert found[0] == no_id
    assert found[1] == decoded(Json(), [damaged])[0]
    assert found[2:] == [n] * count
    assert decoded(Json(by_id=True), [HEAD[:4], b""]) == [no_id] * 2


@pytest.mark.parametrize("head", [HEAD, b"\0\xff\xff\xff\xff", b"\0\0\0\0\0 "])
def test_an_unexpected_id_is_named(head: bytes) -> None:
    (found,) = decoded(Json(), [head + b'{"n": 1}'])
    assert found == (
        "The record begins with a schema ID (a zero byte and four bytes) instead of a JSON object. "
        "If all records do, set the format to Json(by_id=True)."
    )


def test_options_of_a_topic_are_not_ignored() -> None:
    source = Source("a", {"n": "TIMESTAMP"}, "n", BoundedOutOfOrderness("0 seconds"))
    options = {"timestampFormat": "epochMillis"}
    with pytest.raises(DefinitionError, match=r"Set the options .* there: format=Json\(…\)"):
        KafkaConnector(source, ["a"], format=Json(by_id=True), options=options)
    KafkaConnector(source, ["a"], format=Json(options, by_id=True))


@pytest.mark.slow
@pytest.mark.parametrize("form", [Json(), Csv()], ids=["json", "csv"])
def test_a_line_that_is_too_long_costs_time_in_proportion(tmp_path: Path, form: Any) -> None:  # noqa: ANN401
    good = b'{"n": 1}' if isinstance(form, Json) else b"1"
    seconds = list[float]()
    for megabytes in (2, 6):
        path = tmp_path / f"{megabytes}.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(good + b"\n")
            for _ in range(megabytes * 64):
                file.write(b"a" * (1 << 20))
            file.write(b"\n" + good + b"\n")
        begun = time.monotonic()
        with pa.OSFile(str(path)) as content:
            batches = list(read_records(content, path.name, form))
        records = [record for batch in batches for record in batch]
        seconds.append(time.monotonic() - begun)
        assert [len(record) for record in records][1] == MAX_RECORD_BYTES + 1
        found = decoded(form, records)
        assert found == [1, "The record is longer than 64 MiB.", 1]
    assert seconds[1] < 6 * seconds[0]


def test_a_quoted_field_of_many_lines_is_read_once() -> None:
    """Each line was once read again for each line before it."""
    lines = [b'a,"', *[b'""x'] * 200_000, b'",b']
    begun = time.monotonic()
    found, rest = Csv().split_records(b"\n".join(lines), is_last=True)
    assert (found, rest) == ([b"\n".join(lines)], b"")
    assert time.monotonic() - begun < 20
