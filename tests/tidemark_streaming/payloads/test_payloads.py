"""Avro and Protobuf records become columns; invalid records are dead letters with a reason."""

import json
import random
import re
import struct
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import Row

from helpers.data.binaries import avro, describe, message
from helpers.kafka.certificates import Authority
from helpers.kafka.registries import Registered, serving
from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.protection import Drop, Mask
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.payloads import Avro, Payload, Protobuf, payload
from tidemark_streaming.payloads.nested import MAX_DEPTH
from tidemark_streaming.payloads.payload import UndecodableError, decode_protected
from tidemark_streaming.payloads.registry import Registry

INSTANT = datetime(2026, 1, 1, 12, 30, 0, 123456, UTC)
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            ],
            "default": None,
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "what", "type": "string"},
                        {"name": "sizes", "type": {"type": "map", "values": "int"}},
                    ],
                },
            },
        },
        {
            "name": "state",
            "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]},
        },
    ],
}
COLUMNS = {
    "at": "TIMESTAMP",
    "price": "DECIMAL(10,2)",
    "day": "DATE",
    "id": "STRING",
    "counts": "MAP<STRING, BIGINT>",
    "lines": "ARRAY<STRUCT<what: STRING, sizes: MAP<STRING, INT>>>",
    "state": "STRING",
    "other": "INT",
}
PAID: dict[str, Any] = {
    "at": INSTANT,
    "price": Decimal("12.50"),
    "day": date(2026, 1, 1),
    "id": UUID(int=7),
    "counts": {"a": 1},
    "lines": [{"what": "tea", "sizes": {"l": 2}}],
    "state": "PAID",
}
SMALL = {"type": "record", "name": "Small", "fields": [{"name": "n", "type": "long"}]}
UNREFERRED = "its answer has a reference without a subject or a version"
STAMP = pa.timestamp("us", "UTC")
COUNTS = pa.map_(pa.string(), pa.int64())


def decode(payload: Payload, columns: Mapping[str, str], *values: bytes | None) -> list[Row]:
    records = pa.chunked_array([pa.array(values, pa.binary())])
    events = payload.decode_values(records, columns)
    rows = pa.table(dict(events.columns)).to_pylist(maps_as_pydicts="strict")
    return [Row(**row, reason=events.reasons.get(n)) for n, row in enumerate(rows)]


def test_avro_records_of_a_given_schema_become_columns(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    for schema in (json.dumps(ORDER), tmp_path / "order.avsc", str(tmp_path / "order.avsc")):
        payload = Avro(schema)
    unpriced = {**PAID, "price": None, "state": "OPEN"}
    rows = decode(payload, COLUMNS, avro(ORDER, PAID), None, avro(ORDER, unpriced))
    first, none, second = (r.asDict(recursive=True) for r in rows)
    assert first["at"].timestamp() == INSTANT.timestamp()
    told = {n: v for n, v in first.items() if n != "at"}
    same = {n: v for n, v in PAID.items() if n != "at"}
    assert told == {**same, "id": str(UUID(int=7)), "other": None, "reason": None}
    assert set(none.values()) == {None}
    assert (second["price"], second["state"]) == (None, "OPEN")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "The record can't be decoded with the given schema: it ends too early."),
        (avro(SMALL, {"n": 1}) + b"x", "The record is 1 byte longer than the given schema spec"),
        (b"\xff" * 12, "The record can't be decoded with the given schema: it is damaged."),
        (avro(SMALL, {"n": 2**40}), "The field 'n' is not a valid INT."),
    ],
)
def test_records_that_do_not_match_the_avro_schema_have_a_reason(value: bytes, reason: str) -> None:
    good = avro(SMALL, {"n": 3})
    before, bad, after = decode(Avro(json.dumps(SMALL)), {"n": "INT"}, good, value, good)
    assert (before.n, before.reason) == (after.n, after.reason) == (3, None)
    assert bad.n is None
    assert bad.reason.startswith(reason)


@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        ("double", 1.5, "INT"),
        ("long", 1, "TIMESTAMP"),
        ("int", 1, "DATE"),
        ("string", "1", "INT"),
        ("long", 1, "STRING"),
        ({"type": "array", "items": "double"}, [1.5], "ARRAY<INT>"),
        ({"type": "map", "values": "string"}, {"a": "b"}, "MAP<STRING, INT>"),
    ],
)
def test_a_value_of_another_type_is_never_truncated(
    kind: object, value: object, column: str
) -> None:
    schema = {"type": "record", "name": "One", "fields": [{"name": "x", "type": kind}]}
    (row,) = decode(Avro(json.dumps(schema)), {"x": column}, avro(schema, {"x": value}))
    assert (row.x, row.reason) == (None, f"The field 'x' is not a valid {column.upper()}.")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Decimal("19.99"), pa.int64()),
        (Decimal("20"), pa.int32()),
        (1_764_079_200.5, STAMP),
        (Decimal("1764079200.5"), STAMP),
        (19_999.9, pa.date32()),
        (Decimal("19999.9"), pa.date32()),
        (INSTANT, pa.date32()),
        (True, pa.float64()),
        ("abc", pa.list_(pa.string())),
        (b"ab", pa.list_(pa.int32())),
        ({"a": 1}, pa.list_(pa.string())),
        (["x"], COUNTS),
        ([None], COUNTS),
        ("", COUNTS),
        ([], pa.struct({"a": pa.int64()})),
        ([{"a": Decimal("1.5")}], pa.list_(pa.struct({"a": pa.int64()}))),
        ({"a": [None]}, pa.map_(pa.string(), COUNTS)),
        ({"a": {"b": 1.5}}, pa.struct({"a": pa.struct({"b": STAMP})})),
        ({"a": 1.5}, COUNTS),
    ],
)
def test_values_of_another_type_are_never_coerced(value: object, kind: pa.DataType) -> None:
    with pytest.raises((pa.ArrowException, TypeError, ValueError, OverflowError)):
        payload._convert_array([value], kind)
    assert payload._convert_array([None], kind).to_pylist() == [None]


def test_the_decoder_masks_values_and_drops_undecodable_bytes() -> None:
    texts = [{"name": name, "type": "string"} for name in ("masked", "dropped", "other")]
    schema = {**SMALL, "fields": [*SMALL["fields"], *texts]}
    raw = {name: f"rawvalue {name}" for name in ("masked", "dropped", "other")}
    good, wide = (avro(schema, {**raw, "n": n}) for n in (1, 2**40))
    values = pa.chunked_array([pa.array([good, wide, good + b"rawvalue", None], pa.binary())])
    columns = {"at": "TIMESTAMP", "n": "INT", "masked": "STRING", "dropped": "STRING"}
    ways = {"masked": Mask(), "dropped": Drop()}
    source = Source("small", columns, "at", BoundedOutOfOrderness("0 seconds"), mask=ways)
    events = decode_protected(values, columns, source, Avro(json.dumps(schema)))
    rows = pa.table(dict(events.columns)).to_pylist()
    assert [(r["n"], r["masked"], r["dropped"]) for r in rows] == [
        (1, "***", None),
        *[(None, None, None)] * 3,
    ]
    assert "rawvalue" not in str(events)


def test_random_bytes_are_dead_letters_and_never_crash() -> None:
    payload, chance, good = Avro(json.dumps(ORDER)), random.Random(5), avro(ORDER, PAID)
    refused = 0
    for n in range(5_000):
        begin = good[: chance.randrange(len(good))] if n % 2 else b""
        try:
            payload._decode_by_schema(begin + chance.randbytes(chance.randrange(30)))
        except UndecodableError:
            refused += 1
    assert refused > 4_900


def chain(levels: int, of: str = "L") -> dict[str, Any]:
    """Return a recursive schema in a namespace, within this many other records."""
    link: dict[str, Any] = {
        "type": "record",
        "name": of,
        "namespace": "a.b",
        "fields": [{"name": "next", "type": ["null", of]}, {"name": "n", "type": "int"}],
    }
    for level in range(levels):
        link = {"type": "record", "name": f"A{level}", "fields": [{"name": "in", "type": link}]}
    return link


@pytest.mark.parametrize("around", [0, 3])
def test_too_deeply_nested_records_are_dead_letters(around: int) -> None:
    """The compiled reader would crash the process."""
    payload = Avro(json.dumps(chain(around)))

    def links(count: int) -> bytes:
        return b"\x02" * (count - 1) + b"\x00" + b"\x0e" * count

    most = payload._decode_by_schema(links(MAX_DEPTH - around))
    for _ in range(MAX_DEPTH - 1):
        most = most["in"] if "in" in most else most["next"]
    assert most == {"next": None, "n": 7}
    for count in (MAX_DEPTH - around + 1, 1_000, 50_000):
        with pytest.raises(
            UndecodableError, match="more than 100 levels of nested records, arrays and maps"
        ):
            payload._decode_by_schema(links(count))
    with pytest.raises(UndecodableError, match="it ends too early"):
        payload._decode_by_schema(links(20)[:-1])


@pytest.mark.parametrize(
    ("type_", "step"),
    [
        ("L", b""),
        ({"type": "array", "items": "L"}, b"\x02"),
        ({"type": "map", "values": ["null", "L"]}, b"\x02\x00\x02"),
        ({"type": "record", "name": "M", "fields": [{"name": "l", "type": ["int", "L"]}]}, b"\x02"),
    ],
)
def test_every_kind_of_recursive_schema_is_detected(
    type_: object, step: bytes, registered: Registered
) -> None:
    schema = {"type": "record", "name": "L", "fields": [{"name": "next", "type": type_}]}
    reference = {"name": "L", "subject": "l", "version": 1}
    outer = {"type": "record", "name": "O", "fields": [{"name": "l", "type": "L"}]}
    registered.has(1, outer, references=[reference])
    registered.answers["/subjects/l/versions/1"] = (200, {"schema": json.dumps(schema)})
    named = Avro(registry=registered.url)
    for avro_, head in ((Avro(json.dumps(schema)), b""), (named, struct.pack(">bI", 0, 1))):
        with pytest.raises(UndecodableError, match="more than 100 levels of nested records"):
            avro_.decode_event(head + step * 20_000)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"schema": "/nowhere.avsc"}, "'/nowhere.avsc' can't be read: no such file"),
        ({"schema": '{"type": "strin"}'}, "The Avro schema is not valid: unknown type .*strin"),
        ({"schema": '{"type": '}, "The Avro schema is not valid: Expecting value"),
        ({"schema": '{"type": "string"}'}, "must be a record, whose fields are the columns"),
        ({"by_id": False}, "needs a schema: set `schema`"),
    ],
)
def test_an_invalid_schema_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        Avro(**given)


def test_a_record_is_decoded_with_the_schema_of_its_id(tmp_path: Path) -> None:
    """It is resolved to the given schema: a default for a missing field, a wider number."""
    old: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    wide, text = {"name": "n", "type": "long"}, {"name": "m", "type": "string"}
    new = {**old, "fields": [wide, text]}
    reader = {**old, "fields": [wide, {**text, "default": "none"}]}
    other = {**old, "fields": [{"name": "n", "type": "string"}]}
    for number, schema in {1: old, 2: new, 3: other}.items():
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
    values = [
        avro(old, {"n": 1}, 1),
        avro(new, {"n": 2, "m": "x"}, 2),
        avro(other, {"n": "x"}, 3),
        avro(old, {"n": 1}, 9),
        b"\x01abcdef",
    ]
    columns = {"n": "BIGINT", "m": "STRING"}
    alone = decode(Avro(registry=tmp_path), columns, *values)
    assert [(r.n, r.m) for r in alone] == [(1, None), (2, "x"), *[(None, None)] * 3]
    resolved = Avro(json.dumps(reader), by_id=True, registry=tmp_path)
    both = decode(resolved, columns, *values)
    assert [(r.n, r.m) for r in both] == [(1, "none"), (2, "x"), *[(None, None)] * 3]
    assert [r.reason for r in alone[2:]] == [
        "The field 'n' is not a valid BIGINT.",
        "There is no schema with the record's schema ID 9.",
        "The record does not begin with a schema ID (a zero byte and four bytes). If records have "
        "no schema ID, set by_id=False.",
    ]
    assert (
        both[2].reason == "The record was written with schema 3 and can't be resolved to the "
        "`schema` of Avro(…), because the field 'n' was written as string, which does not fit long."
    )


def test_a_missing_schema_folder_is_an_error_not_a_dead_letter(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder '.*nowhere', which should have schemas by ID"):
        decode(Avro(registry=tmp_path / "nowhere"), {"n": "INT"}, avro(SMALL, {"n": 1}, 1))


@pytest.fixture
def registered() -> Iterator[Registered]:
    with serving() as server:
        yield server


def test_each_schema_is_requested_once_from_the_registry(registered: Registered) -> None:
    registered.has(1, SMALL)
    payload = Avro(registry=registered.url)
    for _ in range(2):
        values = [avro(SMALL, {"n": n}, 1) for n in range(3)]
        rows = decode(payload, {"n": "BIGINT"}, *values, avro(SMALL, {"n": 1}, 5))
        assert [r.n for r in rows] == [0, 1, 2, None]
        assert rows[-1].reason == "There is no schema with the record's schema ID 5."
    assert registered.asked == ["/schemas/ids/1", "/schemas/ids/5"]
    registry = Registry(registered.url)
    assert registry.find_schema(1) is registry.find_schema(1)
    assert registered.asked[2:] == ["/schemas/ids/1"]


def test_schemas_are_requested_also_right_after_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    (tmp_path / "1.avsc").write_text(json.dumps(SMALL))
    registry = Registry(tmp_path)
    assert json.loads(registry.find_schema(1).text) == SMALL
    # A missing schema is requested once, and again after half a minute.
    for _ in range(2):
        with pytest.raises(UndecodableError, match="no schema with the record's schema ID 2"):
            registry.find_schema(2)
        (tmp_path / "2.avsc").write_text(json.dumps(SMALL))
    monkeypatch.setattr(time, "monotonic", lambda: 31.1)
    assert json.loads(registry.find_schema(2).text) == SMALL


def test_a_schema_file_that_can_not_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").mkdir()
    (tmp_path / "2.avsc").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"schema file '.*1.avsc' can't be read: is a directory\."):
        Registry(tmp_path).find_schema(1)
    with pytest.raises(DataError, match=r"schema file '.*2.avsc' is not valid UTF-8 text\."):
        Registry(tmp_path).find_schema(2)


def test_a_schema_may_reference_others(registered: Registered) -> None:
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "inner", "type": "Small"}],
    }
    reference = {"name": "Small", "subject": "a/small", "version": 2}
    registered.has(7, outer, references=[reference])
    path = "/subjects/a%2Fsmall/versions/2"
    registered.answers[path] = (200, {"schema": json.dumps(SMALL)})
    whole = {**outer, "fields": [{"name": "inner", "type": SMALL}]}
    columns = {"inner": "STRUCT<n: BIGINT>"}
    value = avro(whole, {"inner": {"n": 4}}, 7)
    (row,) = decode(Avro(registry=registered.url), columns, value)
    assert row.inner == {"n": 4}


def test_the_registrys_credentials_come_from_a_secret(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered.has(1, SMALL)
    registered.user = "ann:s3cret"
    monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY", registered.url)
    with pytest.raises(DataError, match=r"it denies access \(HTTP 401\); set schema_registry_auth"):
        Registry().find_schema(1)
    monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY_AUTH", "env:REGISTRY_USER")
    monkeypatch.setenv("REGISTRY_USER", "ann:s3cret")
    (row,) = decode(Avro(), {"n": "BIGINT"}, avro(SMALL, {"n": 1}, 1))
    assert row.n == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((503, {}), "it answers HTTP 503"),
        ((404, b"<html>not here</html>"), "it answers HTTP 404"),
        # From a registry itself, for an unknown path.
        ((404, {"error_code": 404, "message": "HTTP 404 Not Found"}), "it answers HTTP 404"),
        ((404, {"error_code": "40403"}), "it answers HTTP 404"),
        ((404, ["error_code"]), "it answers HTTP 404"),
        ((200, b"<html>log in</html>"), "its answer is not JSON"),
        ((200, {"subject": "x"}), "its answer has no schema"),
        ((200, {"schema": "{}", "references": [{"name": "x"}]}), UNREFERRED),
        ((200, {"schema": "{}", "references": ["x"]}), UNREFERRED),
    ],
)
def test_a_registry_failure_is_an_error_and_not_a_dead_letter(
    registered: Registered, answer: tuple[int, object], reason: str
) -> None:
    registered.answers["/schemas/ids/1"] = answer
    # The Retry-After header is ignored: it may be hours.
    registered.later, begun = "5", time.monotonic()
    told = f"at {registered.url} does not return /schemas/ids/1: {reason}. No record is lost"
    with pytest.raises(DataError, match=told) as failed:
        Registry(registered.url).find_schema(1)
    assert failed.value.retriable == (answer[0] == 503)
    assert len(registered.asked) == (5 if answer[0] == 503 else 1)
    assert time.monotonic() - begun < 15
    # Transient failures are retried, and the schema is found once it exists.
    registered.has(1, SMALL)
    assert json.loads(Registry(registered.url).find_schema(1).text) == SMALL


def test_an_unreachable_registry_is_reported_without_its_password() -> None:
    with pytest.raises(
        DataError, match=r"at http://127.0.0.1:1 does not .*can't be reached"
    ) as told:
        Registry("http://ann:s3cret@127.0.0.1:1").find_schema(1)
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_a_schema_unknown_to_the_registry_is_a_dead_letter(
    registered: Registered, code: int
) -> None:
    registered.answers["/schemas/ids/1"] = (404, {"error_code": code, "message": "not found"})
    with pytest.raises(UndecodableError, match="There is no schema with the record's schema ID 1"):
        Registry(registered.url).find_schema(1)


@pytest.mark.parametrize("address", ["[::1", "host:8o81", "host:99999", "a b", ""])
def test_an_invalid_registry_address_is_not_retried(address: str) -> None:
    told = f"at http://{address} does not return /schemas/ids/1: its address is not valid."
    with pytest.raises(DataError, match=re.escape(told)) as failed:
        Registry(f"http://ann:s3cret@{address}" if address else "http://").find_schema(1)
    assert not failed.value.retriable
    assert "s3cret" not in str(failed.value)


def test_a_missing_ca_file_is_not_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    told = (
        r"no file '/nowhere/ca.pem' of trusted certificates, which REQUESTS_CA_BUNDLE specifies\."
    )
    with pytest.raises(DataError, match=told) as failed:
        Registry("https://127.0.0.1:1").find_schema(1)
    assert not failed.value.retriable


def test_a_registry_is_verified_with_its_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with serving(authority.server()) as registered:
        registered.has(1, SMALL)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
        assert json.loads(Registry(registered.url).find_schema(1).text) == SMALL
        sentence = (
            rf"{registered.url} does not return /schemas/ids/1: its certificate can't be verified "
            r"\(.*(self.signed|issuer).*\); if a private authority signed it, set REQUESTS_CA_"
        )
        for trusted in (str(other.certificate), None):
            if trusted is None:
                monkeypatch.delenv("REQUESTS_CA_BUNDLE")
            else:
                monkeypatch.setenv("REQUESTS_CA_BUNDLE", trusted)
            with pytest.raises(DataError, match=sentence) as caught:
                Registry(registered.url).find_schema(1)
            # A following ingest does not retry an error that a person must fix.
            assert not caught.value.retriable
            assert "\n" not in str(caught.value)
    assert registered.asked == ["/schemas/ids/1"]


def test_a_schema_that_is_not_avro_is_reported(registered: Registered) -> None:
    registered.has(1, SMALL, schemaType="PROTOBUF")
    registered.has(2, {"type": "strin"})
    payload, value = Avro(registry=registered.url), avro(SMALL, {"n": 1})
    (row,) = decode(payload, {"n": "INT"}, struct.pack(">bI", 0, 1) + value)
    assert row.reason == "The record's schema 1 is not Avro, but PROTOBUF."
    with pytest.raises(
        DataError, match=r"Schema 2 of the registry is not valid Avro: unknown type .*strin"
    ):
        decode(payload, {"n": "INT"}, struct.pack(">bI", 0, 2) + value)


SHOP = """
name: "shop.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
enum_type { name: "State" value { name: "OPEN" number: 0 } value { name: "PAID" number: 1 } }
message_type { name: "Other" }
message_type {
  name: "Order"
  field { name: "at" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "n" number: 2 type: TYPE_INT64 }
  field { name: "note" number: 3 type: TYPE_STRING proto3_optional: true oneof_index: 0 }
  field { name: "state" number: 4 type: TYPE_ENUM type_name: ".shop.State" }
  field { name: "lines" number: 5 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".shop.Order.Line" }
  field { name: "counts" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".shop.Order.CountsEntry" }
  nested_type { name: "Line" field { name: "what" number: 1 type: TYPE_STRING } }
  nested_type { name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_INT32 } }
  oneof_decl { name: "_note" }
}
"""


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return describe(SHOP, tmp_path_factory.mktemp("shop") / "shop.pb")


def test_protobuf_records_become_columns(descriptors: Path) -> None:
    order = message(descriptors, "shop.Order")
    full = order(n=5, note="", state=1, lines=[{"what": "tea"}], counts={"a": 2})
    full.at.FromDatetime(INSTANT)
    columns = {
        "at": "TIMESTAMP",
        "n": "INT",
        "note": "STRING",
        "state": "STRING",
        "lines": "ARRAY<STRUCT<what: STRING>>",
        "counts": "MAP<STRING, INT>",
    }
    values = [full.SerializeToString(), b"", order(n=2**40).SerializeToString(), b"\xff\xff"]
    first, empty, wide, bad = decode(Protobuf(descriptors, "shop.Order"), columns, *values)
    assert first.at.timestamp() == INSTANT.timestamp()
    told = first.asDict(recursive=True)
    assert {n: v for n, v in told.items() if n != "at"} == {
        "n": 5,
        "note": "",
        "state": "PAID",
        "lines": [{"what": "tea"}],
        "counts": {"a": 2},
        "reason": None,
    }
    assert (empty.at, empty.n, empty.note, empty.state) == (None, 0, None, "OPEN")
    assert wide.reason == "The field 'n' is not a valid INT."
    assert bad.reason == (
        "The record is not a message 'shop.Order'. If records begin with a schema ID, set "
        "by_id=True."
    )
    # The second message of its schema: a count of 1 and the number 1, in zigzag.
    by_id = Protobuf(descriptors, "shop.Order", by_id=True)
    head = struct.pack(">bI", 0, 3)
    framed = [head + b"\x02\x02" + values[0], head + b"\x00" + values[0], head, b"\x05" + values[0]]
    rows = decode(by_id, columns, *framed)
    assert [r.n for r in rows] == [5, None, None, None]
    assert rows[1].reason == (
        "The record is message [0] of its schema, 'shop.Other', but 'shop.Order' is message [1]. "
        "If that differs in the producers' schema, set `index` of Protobuf(…)."
    )
    assert rows[2].reason == "The record does not specify which message of its schema it is."


@pytest.mark.parametrize(
    ("content", "message", "sentence"),
    [
        (None, "shop.Order", "can't be read: no such file"),
        (b"\xff\xff", "shop.Order", "is not a complete descriptor set"),
        (b"", "shop.Order", "has no message 'shop.Order'"),
    ],
)
def test_invalid_descriptors_are_refused(
    tmp_path: Path, content: bytes | None, message: str, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "shop.pb").write_bytes(content)
    with pytest.raises(DefinitionError, match=sentence):
        Protobuf(tmp_path / "shop.pb", message)
