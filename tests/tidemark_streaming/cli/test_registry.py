"""Records with schemas of a schema registry, from a broker to the event log. Confluent's own
serializers write them and register the schemas by HTTP; the ingest requests these schemas."""

import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMPS
from pyspark.sql import SparkSession

from helpers.kafka.registries import Registered, serving
from helpers.kafka.topics import Topics
from helpers.processes.commands import call
from helpers.processes.following import Following
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.home import domains
from tidemark_streaming.kafka import KafkaConnector

_NOT_HERE = "no schema registry's client here: Confluent's serializers were not tried"
registry = pytest.importorskip("confluent_kafka.schema_registry", reason=_NOT_HERE)
avro = pytest.importorskip("confluent_kafka.schema_registry.avro", reason=_NOT_HERE)
protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf", reason=_NOT_HERE)

AT = datetime(2026, 1, 1, tzinfo=UTC)
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "n", "type": "int"},
    ],
}
NOTED = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"]}]}
MESSAGE = """
name: "order.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Other" }
message_type {
  name: "Order"
  field { name: "at" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "n" number: 2 type: TYPE_INT32 }
}
"""
FEED = """
from tidemark import Source
from tidemark import BoundedOutOfOrderness
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.payloads import Avro, Protobuf

source = Source(
    name={topic!r},
    columns={{"at": "TIMESTAMP", "n": "INT"}},
    event_time="at",
    watermark=BoundedOutOfOrderness("10 seconds"),
)
ingestion = Ingestion(
    source, lambda _: KafkaConnector(source, [{topic!r}], servers={servers!r}, format={format})
)
"""

Domain = Callable[[str], str]
"""Makes a domain whose source reads a new topic in the given format. Both have the returned
name."""


@pytest.fixture
def registered() -> Iterator[Registered]:
    with serving() as server:
        yield server


@pytest.fixture
def domain(tmp_path: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Domain:
    def made(format_: str) -> str:
        topic = topics.create(name=f"orders_{tmp_path.name[-12:]}".lower())
        package = tmp_path / f"domain_of_{topic}"
        package.mkdir()
        (package / "__init__.py").touch()
        text = FEED.format(topic=topic, servers=topics.servers, format=format_)
        (package / "connectors.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
        monkeypatch.setenv("TIDEMARK_DOMAINS", package.name)
        return topic

    return made


@pytest.fixture
def tables(here: Settings, spark: SparkSession) -> Warehouse:
    return Warehouse(spark, here.warehouse, here.database)


def numbers(tables: Warehouse, name: str) -> list[int]:
    return sorted(row.n for row in tables.read_frame(f"{name}_log").select("n").collect())


def test_avro_records_are_decoded_with_the_schemas_of_their_producers(
    registered: Registered, topics: Topics, tables: Warehouse, domain: Domain
) -> None:
    name = domain(f"Avro(registry={registered.url!r})")
    client = registry.SchemaRegistryClient({"url": registered.url})
    place = SerializationContext(name, MessageField.VALUE)
    writes, notes = (avro.AvroSerializer(client, json.dumps(schema)) for schema in (ORDER, NOTED))

    def order(n: int) -> bytes:
        return writes({"at": AT, "n": n}, place) or b""

    unknown = struct.pack(">bI", 0, 99) + order(2)[5:]
    topics.send(name, [order(1), unknown, order(3)[:-1], order(4)])
    ingested = json.loads(call("ingest", name, "--json").stdout)
    assert (ingested["events"], ingested["dead_letters"]) == (2, 2)
    assert numbers(tables, name) == [1, 4]
    letters = tables.load_rows(f"{name}_dead_letters").sort_by("offset").to_pylist()
    assert [(r["offset"], r["bytes"], r["reason"]) for r in letters] == [
        (1, unknown, "There is no schema with the record's schema ID 99."),
        (2, order(3)[:-1], "The record can't be decoded with schema 1: it ends too early."),
    ]

    # A new schema, while the registry is down.
    connector = domains.load_domains(Settings().domains).ingestions[name].connector("")
    assert isinstance(connector, KafkaConnector)
    following = Following(tables, connector)
    noted = notes({"at": AT, "n": 5, "note": "new"}, place)
    registered.fails = 503
    topics.send(name, [noted])
    said = following.says()
    assert "does not return /schemas/ids/2: it answers HTTP 503. No record is lost" in said
    assert said.endswith("Waiting until it is back.")
    registered.fails = None
    following.brings(1)
    following.end()
    topics.send(name, [order(6)])
    following.brings(1)
    following.join()
    assert numbers(tables, name) == [1, 4, 5, 6]
    assert tables.load_rows(f"{name}_dead_letters").num_rows == 2

    registered.has(99, ORDER)
    replay = call(
        "dead-letters",
        "replay",
        name,
        "--reason",
        "no schema with the record",
        "--json",
    )
    assert replay.exit_code == 0, replay.stderr
    assert json.loads(replay.stdout)["letters"] == 1
    assert numbers(tables, name) == [1, 2, 4, 5, 6]


def test_protobuf_records_are_decoded_by_confluents_framing(
    registered: Registered, topics: Topics, tables: Warehouse, domain: Domain, tmp_path: Path
) -> None:
    times = FileDescriptorProto()
    TIMESTAMPS.CopyToProto(times)
    files = FileDescriptorSet(file=[times, text_format.Parse(MESSAGE, FileDescriptorProto())])
    (tmp_path / "shop.pb").write_bytes(files.SerializeToString())
    name = domain(f"Protobuf({str(tmp_path / 'shop.pb')!r}, 'shop.Order', by_id=True)")
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    order: Any = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    client = registry.SchemaRegistryClient({"url": registered.url})
    writes = protobuf.ProtobufSerializer(order, client, {"use.deprecated.format": False})
    place = SerializationContext(name, MessageField.VALUE)
    good, other = (order(n=n) for n in (1, 2))
    good.at.FromDatetime(AT)
    value = writes(good, place) or b""
    topics.send(name, [value, value[:-1], writes(other, place)])
    ingested = json.loads(call("ingest", name, "--json").stdout)
    assert (ingested["events"], ingested["dead_letters"]) == (2, 1)
    rows = tables.read_frame(f"{name}_log").orderBy("n").collect()
    assert [(r.n, r.at and r.at.timestamp()) for r in rows] == [(1, AT.timestamp()), (2, None)]
    (letter,) = tables.load_rows(f"{name}_dead_letters").to_pylist()
    assert (letter["offset"], letter["bytes"]) == (1, value[:-1])
    assert letter["reason"] == "The record is not a message 'shop.Order'."
