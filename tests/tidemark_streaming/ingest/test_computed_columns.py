"""Columns that are computed from the record when it is ingested, whatever its format."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from helpers.data.landing import land
from tidemark.base import thresholds
from tidemark.base.errors import DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define.protection import Drop, Mask
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.run import incremental
from tidemark.store.rows import Rows, fetch_rows, to_frame
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.connector import CHUNK, CONTENT, DEAD
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.extras.lane import records as lane_records
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.computed_columns import compute_columns
from tidemark_streaming.ingest.dead_letters import reprocess_letters
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.kafka import KafkaConnector, KafkaSink
from tidemark_streaming.kafka.decode import RECORD, decode_records
from tidemark_streaming.kafka.records import SCHEMA
from tidemark_streaming.payloads import Json

AFTER = "STRUCT<id: BIGINT, updated_at: BIGINT>"
ENVELOPE = Source(
    name="changes",
    columns={"id": "BIGINT", "at": "TIMESTAMP", "sent_at": "TIMESTAMP"},
    event_time="at",
    watermark=BoundedOutOfOrderness("1 minute"),
    computed={
        "id": "payload.after.id",
        "at": "timestamp_micros(payload.after.updated_at)",
        "sent_at": "timestamp_millis(payload.ts_ms)",
    },
    transient_fields={"payload": f"STRUCT<ts_ms: BIGINT, after: {AFTER}, op: STRING>"},
)
"""Debezium's envelope: microseconds and milliseconds in one record."""
TOO_LARGE = 2**62
AT = 1_700_000_000


def record(number: int, sent: int | None = None) -> dict[str, Any]:
    micros = (AT + number) * 1_000_000 + 5
    after = {"id": number, "updated_at": micros}
    return {"payload": {"ts_ms": sent or AT * 1000 + 7, "after": after, "op": "u"}}


def moment(seconds: int, micros: int) -> datetime:
    return datetime.fromtimestamp(AT + seconds, UTC).replace(microsecond=micros)


READ_FROM = lane_records.READ_FROM
KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    f"timestampType INT, headers {RECORD['kafka_headers']}"
)
EXPECTED = [(n, moment(n, 5), moment(0, 7000)) for n in range(3)]
LINES = [json.dumps(r) for r in (record(0), record(9, TOO_LARGE), record(1), record(2))]
HOURLY = WindowedTransform(
    name="changes_hourly",
    description="Changes by hour.",
    source=ENVELOPE,
    keys=(),
    window=Tumbling("1 hour"),
    allowed_lateness=0,
    aggregates={"n": agg.count()},
    function=lambda rows: rows,
)


def computed(spark: SparkSession, source: Source, rows: Rows) -> pa.Table:
    result = compute_columns(spark, source, rows)
    assert isinstance(result, pa.Table | DataFrame)
    return fetch_rows(result)


def events(warehouse: Warehouse, source: Source) -> list[tuple[Any, ...]]:
    rows = warehouse.load_rows(source.log_table)
    return sorted(tuple(row.values()) for row in rows.select(list(source.columns)).to_pylist())


def letters(warehouse: Warehouse, source: Source) -> pa.Table:
    return warehouse.load_rows(source.dead_letters_table).sort_by("position")


def test_a_nested_envelope_gives_columns_and_dead_letters_that_can_be_replayed(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    land(tmp_path, "a.json", "\n".join([*LINES, '{"payload": 1}']), 1)
    files = FileConnector(ENVELOPE, tmp_path, format="json")
    list(ingest(warehouse, files))
    assert warehouse.load_rows(ENVELOPE.log_table).schema.names[:4] == [
        *ENVELOPE.columns,
        "arrival",
    ]
    assert events(warehouse, ENVELOPE) == EXPECTED
    waiting = letters(warehouse, ENVELOPE)
    misfit = f"The field 'payload' is not a valid {ENVELOPE.transient_fields['payload'].upper()}."
    reason = "The column 'sent_at' can't be computed."
    assert waiting["reason"].to_pylist() == [reason, misfit]
    assert waiting["bytes"].to_pylist()[0] == LINES[1].encode()
    # An event two hours later closes the window of the others.
    land(tmp_path, "b.json", json.dumps(record(7200)), 2)
    list(ingest(warehouse, files))
    incremental(warehouse, HOURLY)
    assert warehouse.load_rows(HOURLY.published_table)["n"].to_pylist() == [3]
    assert check_parity(warehouse, HOURLY).is_equal
    # With a corrected expression, the dead letter can be decoded.
    corrected = {**ENVELOPE.computed, "sent_at": "timestamp_millis(payload.ts_ms % 1000)"}
    files = replace(files, source=replace(ENVELOPE, computed=corrected))
    outcome = reprocess_letters(warehouse, files, waiting)
    assert (outcome.brought, list(outcome.refused.values())) == (1, [misfit])
    sent_at = datetime.fromtimestamp(TOO_LARGE % 1000 / 1000, UTC)
    assert (9, moment(9, 5), sent_at) in events(warehouse, ENVELOPE)


CSV_COLUMNS = {"day": "STRING", "time": "STRING", "seconds": "DOUBLE", "at": "TIMESTAMP"}
BY_PARTS = Source(
    name="parts",
    columns=CSV_COLUMNS,
    event_time="at",
    watermark=BoundedOutOfOrderness("1 minute"),
    computed={"at": "to_timestamp(day || ' ' || time, 'dd.MM.yyyy HH:mm')"},
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("to_timestamp(day || ' ' || time, 'dd.MM.yyyy HH:mm')", "2026-01-31T09:05"),
        ("timestamp_seconds(seconds)", "2023-11-14T22:13:20.250"),
        ("to_utc_timestamp(to_timestamp(day, 'dd.MM.yyyy'), 'CET')", "2026-01-30T23:00"),
        # Spark evaluates a part that occurs twice only once.
        ("timestamp_seconds(CAST(time AS INT) + CAST(time AS INT))", None),
        ("CAST(day AS TIMESTAMP)", None),
        ("raise_error(day)", None),
        ("timestamp_seconds(if(seconds > 0, CAST(NULL AS DOUBLE), 0))", ""),
    ],
)
def test_expressions_over_several_columns(
    spark: SparkSession, expression: str, expected: str | None
) -> None:
    """A failing expression is a dead letter, and null is a value. Both paths give the same rows."""
    rows = pa.table(
        {
            "day": ["31.01.2026", "31.01.2026"],
            "time": ["09:05", "09:05"],
            "seconds": [1_700_000_000.25] * 2,
            CHUNK: [0, 0],
        }
    )
    source = replace(BY_PARTS, computed={"at": expression})
    if expression.startswith("raise_error"):
        source = replace(source, computed={"at": f"CAST({expression} AS TIMESTAMP)"})
    in_memory = computed(spark, source, rows)
    in_engine = computed(spark, source, to_frame(spark, rows))
    for table in (in_memory, in_engine):
        at = table["at"].to_pylist()[0]
        assert (table[DEAD].null_count == 0) == (expected is None)
        assert at == (datetime.fromisoformat(f"{expected}+00:00") if expected else None)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("day", r"has the type STRING, but the column is declared as TIMESTAMP: write CAST\(day"),
        ("seconds", r"has the type DOUBLE, but the column is declared as TIMESTAMP"),
        ("timestamp_seconds(second)", r"can't be computed from the columns day, time, seconds: "),
        ("timestamp_seconds(", r"can't be computed from the columns day, time, seconds: "),
    ],
)
def test_expressions_that_do_not_fit_are_refused(
    spark: SparkSession, expression: str, message: str
) -> None:
    rows = pa.table({"day": ["1"], "time": ["1"], "seconds": [1.0], CHUNK: [0]})
    with pytest.raises(DefinitionError, match=message):
        compute_columns(spark, replace(BY_PARTS, computed={"at": expression}), rows)


def test_a_csv_file_needs_no_computed_column(warehouse: Warehouse, tmp_path: Path) -> None:
    text = "day,time,seconds\n31.01.2026,09:05,1\n31.01.2026,25:00,1\n"
    land(tmp_path, "a.csv", text, 1)
    list(ingest(warehouse, FileConnector(BY_PARTS, tmp_path, options={"header": True})))
    at = datetime(2026, 1, 31, 9, 5, tzinfo=UTC)
    assert events(warehouse, BY_PARTS) == [("31.01.2026", "09:05", 1.0, at)]
    assert letters(warehouse, BY_PARTS)["bytes"].to_pylist() == [b"31.01.2026,25:00,1"]


@pytest.mark.parametrize("many", [False, True])
def test_a_delta_table_with_a_nested_column(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    if many:
        monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 1)
    rows = [record(0), record(9, TOO_LARGE), record(1), record(2)]
    write_deltalake(str(tmp_path / "table"), pa.Table.from_pylist(rows))
    list(ingest(warehouse, DeltaConnector(ENVELOPE, str(tmp_path / "table"))))
    assert events(warehouse, ENVELOPE) == EXPECTED
    assert letters(warehouse, ENVELOPE).num_rows == 1


def test_kafka_records_use_their_metadata_and_keep_them_in_dead_letters(
    spark: SparkSession,
) -> None:
    source = replace(
        ENVELOPE,
        columns={**ENVELOPE.columns, "place": "STRING"},
        computed={**ENVELOPE.computed, "place": "kafka_topic || '/' || kafka_offset"},
        transient_fields={
            **ENVELOPE.transient_fields,
            "kafka_topic": "STRING",
            "kafka_offset": "BIGINT",
        },
    )
    count = len(LINES)
    given = {
        "chunk": [0] * count,
        "position": list(range(count)),
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(10, 10 + count)),
        "value": [line.encode() for line in LINES],
    }
    columns = [
        pa.array(given[f.name], f.type) if f.name in given else pa.nulls(count, f.type)
        for f in SCHEMA
    ]
    records = pa.table(columns, schema=SCHEMA)
    rows = computed(spark, source, decode_records(records, source, Json({}), None))
    assert CONTENT not in rows.column_names
    assert rows["place"].to_pylist() == ["t/10", "t/11", "t/12", "t/13"]
    (letter,) = (one for one in rows[DEAD].to_pylist() if one is not None)
    assert (letter["offset"], letter["bytes"]) == (11, LINES[1].encode())


def test_protection_comes_before_and_after_the_expressions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An expression sees the protected value of another column, and its own is protected, too."""
    source = Source(
        name="people",
        columns={
            "at": "TIMESTAMP",
            "email": "STRING",
            "card": "STRING",
            "copy": "STRING",
            "last": "STRING",
            "gone": "STRING",
            "domain": "STRING",
        },
        event_time="at",
        watermark=BoundedOutOfOrderness("1 minute"),
        mask={"email": Mask(), "card": Drop(), "last": Mask(keep_last=2), "gone": Drop()},
        computed={
            "copy": "email || coalesce(card, '-')",
            "last": "phone",
            "gone": "phone",
            "domain": "CAST(raise_error(phone) AS STRING)",
        },
        transient_fields={"phone": "STRING"},
    )
    row = {"at": "2026-01-01T00:00:00Z", "email": "secret", "card": "secret", "phone": "secret77"}
    land(tmp_path, "a.json", json.dumps(row), 1)
    files = FileConnector(source, tmp_path, format="json")
    read = pa.concat_tables(files.read(spark, files.list_pending([])))
    with_failure = computed(spark, source, read)
    assert "secret" not in str(with_failure.to_pylist())
    harmless = replace(source, computed={**source.computed, "domain": "length(phone) || ''"})
    for rows in (read, to_frame(spark, read.drop_columns([CONTENT]))):
        (found,) = computed(spark, harmless, rows).to_pylist()
        assert [found[n] for n in ("copy", "last", "gone", "domain")] == [
            "***-",
            "***77",
            None,
            "8",
        ]


def test_a_lane_computes_the_same_columns(spark: SparkSession) -> None:
    source = Source(
        name="visits",
        columns={"at": "TIMESTAMP", "id": "BIGINT"},
        event_time="at",
        watermark=BoundedOutOfOrderness("1 minute"),
        computed={
            "at": "timestamp_micros(CAST(get_json_object(after, '$.updated_at') AS BIGINT))",
            "id": "CAST(get_json_object(after, '$.id') AS BIGINT)",
        },
        transient_fields={"after": "STRING"},
    )
    lane = Lane(
        name="visits_seen",
        connector=KafkaConnector(source, ["visits"], servers="127.0.0.1:1"),
        prepare=lambda rows: rows,
        to=KafkaSink("seen", servers="127.0.0.1:1"),
    )
    values = [b'{"after": {"id": 7, "updated_at": 1700000000000005}}', b'{"after": {"id": "x"}}']
    sent = [(None, v, "visits", 0, n, moment(0, 0), 0, None) for n, v in enumerate(values)]
    rows = lane_records.decode_records(spark.createDataFrame(sent, KAFKA), lane).orderBy(READ_FROM)
    found = rows.select("at", "id", "reason").toArrow().to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (moment(0, 5), 7, None),
        (None, None, "The column 'id' can't be computed."),
    ]
