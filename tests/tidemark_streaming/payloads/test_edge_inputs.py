"""Small files that a careless reader would lose, alter or extend."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.connector import DEAD
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.row_summary import summarize_rows
from tidemark_streaming.kafka.decode import decode_records
from tidemark_streaming.kafka.records import SCHEMA
from tidemark_streaming.payloads import Json

EDGES = Path(__file__).parents[2] / "cases" / "edges"
NO_ENGINE = cast(SparkSession, None)
MANY = 3_000
"""Valid records around the others, so that large batches are also covered."""


def source(**columns: str) -> Source:
    watermark = BoundedOutOfOrderness("0 seconds")
    return Source("edges", {"at": "TIMESTAMP", **columns}, "at", watermark)


def from_file(path: Path, of: Source, folder: Path, before: bytes = b"") -> pa.Table:
    """Return the rows of a file with additional lines before its own."""
    form, header = path.suffix[1:], path.read_bytes()
    begin = header.index(b"\n") + 1 if form == "csv" else 0
    (folder / path.name).write_bytes(header[:begin] + before + header[begin:])
    connector = FileConnector(of, folder, form, {"header": True} if form == "csv" else {})  # pyright: ignore[reportArgumentType]
    rows = connector.read(NO_ENGINE, connector.list_pending([]))
    assert not isinstance(rows, pa.Table)
    return pa.concat_tables(cast("list[pa.Table]", rows))


def from_kafka(path: Path, of: Source, before: bytes = b"") -> pa.Table:
    values = [*before.splitlines(), *path.read_bytes().splitlines()]
    columns = {f.name: pa.nulls(len(values), f.type) for f in SCHEMA}
    columns |= {"value": pa.array(values, pa.binary()), "position": pa.array(range(len(values)))}
    columns["chunk"] = pa.array([0] * len(values))
    return decode_records(pa.table(columns, schema=SCHEMA), of, Json(), None)


def split(rows: pa.Table, events: int = 0) -> tuple[list[dict[str, object]], list[bytes]]:
    """Return the events after the first ones, and the bytes of the dead letters."""
    found, letters = list[dict[str, object]](), list[bytes]()
    for row in rows.to_pylist():
        letter = row.pop(DEAD, None)
        if letter is None:
            found.append(row)
        else:
            letters.append(letter["bytes"])
    return found[events:], letters


@pytest.mark.parametrize("before", [0, MANY])
@pytest.mark.parametrize("kafka", [False, True], ids=["file", "kafka"])
@pytest.mark.parametrize(
    ("name", "columns", "kept", "dead"),
    [
        ("two_values_on_a_line", {"k": "STRING", "v": "BIGINT"}, {"k": ["one"]}, [1, 2]),
        ("times", {"k": "STRING"}, {"k": ["iso", "iso"]}, [1, 2, 3]),
        ("money", {"price": "DECIMAL(10,2)"}, {"price": ["2.34"]}, [0, 1]),
    ],
)
def test_ambiguous_json_is_a_dead_letter(
    tmp_path: Path,
    name: str,
    columns: dict[str, str],
    kept: dict[str, list[object]],
    dead: list[int],
    kafka: bool,
    before: int,
) -> None:
    path, of = EDGES / f"{name}.json", source(**columns)
    more = b'{"at": "2026-01-01T00:00:00Z"}\n' * before
    rows = from_kafka(path, of, more) if kafka else from_file(path, of, tmp_path, more)
    events, letters = split(rows, before)
    assert {n: [str(e[n]) for e in events] for n in kept} == kept
    lines = path.read_bytes().splitlines()
    assert letters == [lines[n] for n in dead]
    # Dead letters do not advance the watermark.
    newest = max(e["at"] for e in events)  # pyright: ignore[reportArgumentType]
    (facts,) = summarize_rows(of, rows, [], NO_ENGINE).values()
    assert facts.max_event_time == int(newest.timestamp()) * 1_000_000
    assert (facts.rows, facts.dead_letters) == (before + len(events), len(dead))


@pytest.mark.parametrize("before", [0, MANY])
def test_a_line_break_within_quotes_is_part_of_the_value(tmp_path: Path, before: int) -> None:
    path, of = EDGES / "quoted_line_break.csv", source(k="STRING", note="STRING")
    rows = from_file(path, of, tmp_path, b"2026-01-01T00:00:00Z,x,y\n" * before)
    events, letters = split(rows, before)
    assert [e["note"] for e in events] == ["first line\nsecond line", "plain"]
    assert letters == []


def test_an_invalid_kafka_timestamp_or_key_is_a_dead_letter() -> None:
    """A producer may write any number; multiplied by 1,000 it would overflow."""
    of = source(kafka_timestamp="TIMESTAMP", kafka_key="STRING")
    values = {
        "chunk": [0] * 3,
        "position": [0, 1, 2],
        "timestamp": [None, None, 5],
        "timestamp_type": ["CreateTime", None, "CreateTime"],
        "key": [b"a", b"\xff", b"b"],
        "value": [b"{}"] * 3,
    }
    columns = [pa.array(values.get(f.name, [None] * 3), f.type) for f in SCHEMA]
    rows = decode_records(pa.table(columns, schema=SCHEMA), of, Json(), None)
    reasons = [None if d is None else d["reason"] for d in rows[DEAD].to_pylist()]
    assert reasons == [
        "The field 'kafka_timestamp' is not a valid TIMESTAMP.",
        "The field 'kafka_key' is not a valid STRING.",
        None,
    ]


def test_a_dropped_column_is_not_decoded(tmp_path: Path) -> None:
    """The other columns of a CSV record keep their places."""
    of = replace(source(n="INT", k="STRING"), mask={"n": Drop()})
    (tmp_path / "a.csv").write_text("2026-01-01,no number,a\n2026-01-01,1,b\n2026-01-01,c\n")
    connector = FileConnector(of, tmp_path, options={"timeZone": "UTC"})
    rows = connector.read(NO_ENGINE, connector.list_pending([]))
    assert not isinstance(rows, pa.Table)
    found = pa.concat_tables(cast("list[pa.Table]", rows))
    assert (found["n"].to_pylist(), found["k"].to_pylist()) == ([None] * 3, ["a", "b", None])
    (letter,) = (row[DEAD] for row in found.to_pylist() if row[DEAD] is not None)
    assert (letter["reason"], letter["bytes"]) == ("The record has 2 fields instead of 3.", None)
