"""Original values of masked columns are in no file: neither in tables and checkpoints nor in log
files."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from helpers.data import searched
from helpers.data.binaries import avro, describe, message
from helpers.kafka.topics import CLICKS, Topics
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DefinitionError
from tidemark.base.secret import secret
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.protection import MASKED, Drop, Mask, Tokenize
from tidemark.define.source import Source
from tidemark.define.transform import windowed_asset
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.run.runner import incremental
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.connector import Chunk
from tidemark_streaming.ingest import dead_letters
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.kafka import RECORD, KafkaConnector
from tidemark_streaming.payloads import Avro, Payload, Protobuf
from tidemark_streaming.snapshot.snapshot import Snapshot

KEY = "0123456789abcdef0123456789abcdef"
MARK = "rawvalue"
"""A part of every text that is masked, so that one search finds all of them."""

SSN = 4242424242

ORDERS = Source(
    name="orders",
    columns={
        "at": "TIMESTAMP",
        "n": "INT",
        "price": "DECIMAL(20,10)",
        "email": "STRING",
        "card": "STRING",
        "ssn": "BIGINT",
        "note": "STRING",
        "kafka_key": "STRING",
        "kafka_headers": RECORD["kafka_headers"],
    },
    event_time="at",
    watermark=BoundedOutOfOrderness("10 seconds"),
    mask={
        "email": Tokenize(),
        "card": Mask(keep_last=4),
        "ssn": Drop(),
        "note": Mask(),
        "kafka_key": Tokenize(),
        "kafka_headers": Tokenize(),
        "correlation_id": Tokenize(),
    },
)


@windowed_asset(
    source=ORDERS,
    keys=["email"],
    window=Tumbling("1 minute"),
    allowed_lateness="1 minute",
    aggregates={"orders": agg.count(), "cards": agg.count_distinct("card")},
)
def orders_by_customer(orders: DataFrame) -> DataFrame:
    """Orders by customer and minute."""
    return orders


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_TOKENIZATION_KEY", KEY)


def order(n: int, customer: str) -> bytes:
    """Return an order with an undeclared field."""
    return (
        f'{{"at": "2026-01-01T00:0{n % 3}:00Z", "n": {n}, "price": 1.2345678901, '
        f'"email": "{customer}-{MARK}@example.com", "card": "{MARK}-4111-{n:04}", '
        f'"ssn": {SSN}, "note": {{"of": ["{MARK}"]}}, "other": "{MARK}"}}'
    ).encode()


UNDECODABLE = (
    f"not JSON: {MARK}".encode(),
    f'["{MARK}"]'.encode(),
    f'{{"email": "{MARK}"'.encode(),
    order(1, "x").replace(b'"n": 1', b'"n": "no number"'),
    f'{{"email": "{MARK}", "at": "{MARK}"}}'.encode()[:-1] + b"\xff}",
)


@dataclass(frozen=True)
class Binary:
    """A binary format and an encoder of its records."""

    format: Payload
    encode: Callable[..., bytes]


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "n", "type": "long"},
        *({"name": name, "type": ["null", "string"]} for name in ("email", "card", "note")),
        {"name": "ssn", "type": "long"},
        {"name": "other", "type": {"type": "array", "items": "string"}},
    ],
}
PROTOBUF = """
name: "shop.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "Order"
  field { name: "at" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "n" number: 2 type: TYPE_INT64 }
  field { name: "email" number: 3 type: TYPE_STRING }
  field { name: "card" number: 4 type: TYPE_STRING }
  field { name: "note" number: 5 type: TYPE_STRING }
  field { name: "ssn" number: 6 type: TYPE_INT64 }
  field { name: "other" number: 7 label: LABEL_REPEATED type: TYPE_STRING }
}
"""


@pytest.fixture(params=mostly_nightly(["avro", "protobuf"]))
def binary(request: pytest.FixtureRequest, tmp_path: Path) -> Binary:
    if request.param == "avro":
        return Binary(Avro(json.dumps(AVRO)), lambda **fields: avro(AVRO, fields))
    path = describe(PROTOBUF, tmp_path / "shop.pb")
    order = message(path, "shop.Order")
    return Binary(
        Protobuf(path, "shop.Order"), lambda **fields: order(**fields).SerializeToString()
    )


def fields(n: int, customer: str) -> dict[str, Any]:
    """Return the fields of the same order for a binary format."""
    return {
        "at": datetime(2026, 1, 1, 0, n % 3, tzinfo=UTC),
        "n": n,
        "email": f"{customer}-{MARK}@example.com",
        "card": f"{MARK}-4111-{n:04}",
        "ssn": SSN,
        "note": MARK,
        "other": [MARK],
    }


def connector(topics: Topics, name: str, source: Source = ORDERS, **more: Any) -> KafkaConnector:  # noqa: ANN401
    return topics.connector(name, source=source, correlation="trace", **more)


def send(topics: Topics, name: str, values: Iterable[bytes]) -> None:
    headers = {"trace": f"{MARK}-trace".encode(), "user": f"{MARK}-user".encode()}
    topics.send(name, values, headers=headers, key=f"{MARK}-key".encode())


def found(folder: Path) -> list[str]:
    """Return the files that contain an original value, as plain bytes or within Parquet."""
    return searched.found(folder, MARK, SSN)


# Searches every file of the home for values.
@pytest.mark.slow
def test_no_file_has_an_original_value_of_a_masked_column(
    engine: Settings, warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    many = [order(n, "ann" if n % 2 else "bob") for n in range(6_000)]
    send(topics, name, [*many, *UNDECODABLE])
    list(ingest(warehouse, connector(topics, name)))
    incremental(warehouse, orders_by_customer)
    assert check_parity(warehouse, orders_by_customer).is_equal
    assert found(engine.home) == []
    assert found(Path(warehouse.path_of(ORDERS.log_table))) == []

    rows = warehouse.read_frame(ORDERS.log_table).where("n < 2").orderBy("n").collect()
    assert str(rows[0].price) == "1.2345678901", "what is not protected is as it came"
    assert rows[0].card == f"{MASKED}0000"
    assert (rows[0].note, rows[0].ssn) == (MASKED, None)
    assert [len(r.email) for r in rows] == [32, 32]
    assert rows[0].email != rows[1].email
    assert rows[0].correlation_id == rows[0].kafka_headers[0]["value"].decode()
    assert [h["key"] for h in rows[0].kafka_headers] == ["trace", "user"]
    assert warehouse.read_frame(ORDERS.log_table).select("email").distinct().count() == 2
    letters = warehouse.read_frame(ORDERS.dead_letters_table).collect()
    assert len(letters) == len(UNDECODABLE)
    assert {(r.bytes, r.key, r.headers) for r in letters} == {(None, None, None)}


# Searches every file of the home for values.
@pytest.mark.slow
def test_no_file_has_an_original_value_of_a_binary_format(
    engine: Settings, warehouse: Warehouse, topics: Topics, binary: Binary
) -> None:
    name, good = topics.create(), binary.encode(**fields(1, "x"))
    wide = binary.encode(**fields(1, "x") | {"n": 2**40})
    many = [binary.encode(**fields(n, "ann" if n % 2 else "bob")) for n in range(6_000)]
    send(topics, name, [*many, wide, good[:-3], good + f"\x07{MARK}".encode()])
    topics.send(name, [None], key=f"{MARK}-key".encode())
    orders = connector(topics, name, format=binary.format)
    list(ingest(warehouse, orders))
    assert found(engine.home) == []
    assert found(Path(warehouse.path_of(ORDERS.log_table))) == []

    rows = warehouse.read_frame(ORDERS.log_table).where("n < 2").orderBy("n").collect()
    assert [(r.card, r.note, r.ssn) for r in rows] == [
        (f"{MASKED}{n:04}", MASKED, None) for n in (0, 1)
    ]
    told = Tokenize().create_change()
    emails = [told(f"{who}-{MARK}@example.com".encode()) for who in ("bob", "ann")]
    assert [r.email.encode() for r in rows] == emails
    assert {r.kafka_key.encode() for r in rows} == {told(f"{MARK}-key".encode())}
    assert rows[0].correlation_id == rows[0].kafka_headers[0]["value"].decode()
    (tombstone,) = warehouse.read_frame(ORDERS.log_table).where("n IS NULL").collect()
    assert (tombstone.email, tombstone.card, tombstone.ssn) == (None, None, None)
    letters = warehouse.read_frame(ORDERS.dead_letters_table).collect()
    assert [r.reason for r in letters if "'n'" in r.reason] == ["The field 'n' is not a valid INT."]
    assert {(r.bytes, r.key, r.headers) for r in letters} == {(None, None, None)}
    assert len(letters) == 3
    # Corrected dead letters are masked too.
    settings = engine.model_copy(update={"database": warehouse.database})
    columns = warehouse.read_schema(ORDERS.dead_letters_table).names
    standing = dead_letters.read_dead_letters(Snapshot(settings), ORDERS, columns)
    place = standing.column_names.index("bytes")
    mended = standing.set_column(place, "bytes", pa.array([good] * 3, pa.binary()))
    assert dead_letters.reprocess_letters(warehouse, orders, mended).brought == 3
    assert found(engine.home) == []


def test_a_corrected_dead_letter_is_masked(
    engine: Settings, warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    send(topics, name, UNDECODABLE[:1])
    list(ingest(warehouse, connector(topics, name)))
    settings = engine.model_copy(update={"database": warehouse.database})
    columns = warehouse.read_schema(ORDERS.dead_letters_table).names
    letters = dead_letters.read_dead_letters(Snapshot(settings), ORDERS, columns)
    place = letters.column_names.index("bytes")
    mended = letters.set_column(place, "bytes", pa.array([order(1, "ann")], pa.binary()))
    assert dead_letters.reprocess_letters(warehouse, connector(topics, name), mended).brought == 1
    assert found(engine.home) == []


def test_a_token_depends_only_on_its_key_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    token, masked = Tokenize().create_change(), Mask(keep_last=4).create_change()
    assert token(b"a") == token(b"a") != token(b"b")
    # HMAC-SHA256, as computed by `openssl dgst -sha256 -hmac KEY`.
    assert token(b"ann@example.com") == b"093e3dd9df951c5008225d533a017547"
    monkeypatch.setenv("TIDEMARK_TOKENIZATION_KEY", KEY[::-1])
    assert Tokenize().create_change()(b"a") != token(b"a")
    assert [masked(v) for v in (b"12345678", b"1234567", b"")] == [b"***5678", b"***", b"***"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"emial": Mask()},
            "can't protect the column 'emial', which is not among its columns: at, n",
        ),
        ({"at": Drop()}, "can't protect the column 'at': the event time needs its orig"),
        ({"n": Mask()}, "the column 'n' by Mask, which accepts STRING, but the column is"),
        ({"n": Tokenize()}, "by Tokenize, which accepts STRING or BINARY or"),
        ({"email": "mask"}, "mask must be a mapping from strings to Protection objects"),
    ],
)
def test_an_invalid_mask_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        replace(ORDERS, mask=change)
    assert sentence in str(raised.value)


def test_the_kafka_position_of_a_record_cannot_be_masked(topics: Topics) -> None:
    source = replace(CLICKS, mask={"kafka_topic": Tokenize()})
    with pytest.raises(DefinitionError, match="needs the original value of 'kafka_topic'"):
        topics.connector("clicks", source=source)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (None, "set the environment variable TIDEMARK_TOKENIZATION_KEY"),
        ("short", "has 5 characters, but needs"),
    ],
)
def test_without_a_valid_key_nothing_is_ingested(
    warehouse: Warehouse,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    key: str | None,
    sentence: str,
) -> None:
    if key is None:
        monkeypatch.delenv("TIDEMARK_TOKENIZATION_KEY")
    else:
        monkeypatch.setenv("TIDEMARK_TOKENIZATION_KEY", key)
    with pytest.raises(DefinitionError, match=sentence):
        list(ingest(warehouse, connector(topics, "none")))
    assert not warehouse.has_table(ORDERS.timeline_table)


def test_an_event_log_refuses_another_mask_or_key(
    warehouse: Warehouse, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create()
    list(ingest(warehouse, connector(topics, name)))
    less = replace(ORDERS, mask={**ORDERS.mask, "card": Mask()})
    with pytest.raises(
        DefinitionError, match=r"the protection of 'card' \(mask 0 in the definition, "
    ):
        list(ingest(warehouse, connector(topics, name, less)))
    monkeypatch.setenv("OTHER", KEY[::-1])
    other = Tokenize(key=secret("env:OTHER"))
    more = replace(ORDERS, mask={**ORDERS.mask, "email": other})
    told = r"the protection of 'email' \(tokenize by key"
    with pytest.raises(DefinitionError, match=told) as raised:
        list(ingest(warehouse, connector(topics, name, more)))
    assert KEY[::-1] not in str(raised.value)


class Plain:
    """A custom connector without support for masks."""

    source = ORDERS

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        raise AssertionError("It is not asked.")

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows:
        raise AssertionError("It is not asked.")


def test_a_connector_without_masking_is_refused_for_masked_columns(warehouse: Warehouse) -> None:
    with pytest.raises(DefinitionError, match="and Plain does not protect them: use a connector"):
        list(ingest(warehouse, Plain()))
