"""Data as people have it: each folder in `tests/inputs` is a public report, with its data.

`case.yaml` has the origin of the report, what happened there, the definition of a source, and what
Tidemark must do with the data. The data are files in `landing`, or records in `records.txt` or
`records.hex`, one on each line. If `landing` has the folders `1`, `2` and so on, each of them has
the files of one poll, of which only the last one may be refused.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from tidemark.base.errors import TidemarkError
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, DEAD
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.ingest.row_summary import summarize_rows
from tidemark_streaming.ingest.unusable_arrivals import check_decodable, check_event_times
from tidemark_streaming.payloads import Avro, Json, Payload, Protobuf
from tidemark_streaming.payloads.csv_records import Csv

CASES = Path(__file__).parents[1] / "inputs"
NO_ENGINE = cast(SparkSession, None)
LANDED = 1_767_225_600
PAYLOADS = {"avro": Avro, "protobuf": Protobuf, "json": Json, "csv": Csv}


class Case:
    """A case, with the source that it defines."""

    def __init__(self, name: str) -> None:
        self.folder = CASES / name
        self.given: Mapping[str, Any] = yaml.safe_load((self.folder / "case.yaml").read_text())
        self.source = Source(
            name="reported",
            columns=self.given["columns"],
            event_time=self.given.get("event_time", "at"),
            watermark=BoundedOutOfOrderness("1 minute"),
            **{n: self.given[n] for n in ("computed", "transient_fields") if n in self.given},
        )

    def connector(self, landing: Path) -> FileConnector:
        arguments = {n: self.given[n] for n in ("options", "names") if n in self.given}
        return FileConnector(self.source, landing, self.given["files"], **arguments)

    @property
    def polls(self) -> Sequence[Path]:
        """The folders with the files of each poll."""
        landing = self.folder / "landing"
        return sorted(landing.glob("[0-9]")) or [landing]

    @property
    def payload(self) -> Payload:
        """The format of the records. An argument that is the name of a file becomes its path."""
        arguments = dict(self.given.get("arguments", {}))
        for name, value in arguments.items():
            if isinstance(value, str) and (self.folder / value).exists():
                arguments[name] = str(self.folder / value)
        return PAYLOADS[self.given["records"]](**arguments)

    @property
    def records(self) -> list[bytes | None]:
        """The records; a line with `null` is a record without a value."""
        text = self.folder / "records.txt"
        if text.exists():
            lines = text.read_bytes().splitlines()
            return [None if line == b"null" else line for line in lines]
        lines = (self.folder / "records.hex").read_text().splitlines()
        return [None if line == "null" else bytes.fromhex(line) for line in lines]

    def check(self, rows: Sequence[Mapping[str, Any]], reasons: Sequence[str]) -> None:
        """Compare rows and the reasons of dead letters with those of the case."""
        wanted = self.given.get("rows", [])
        assert [{n: plain(row[n]) for n in self.given["columns"]} for row in rows] == wanted
        expected = self.given.get("dead_letters", [])
        assert len(reasons) == len(expected), reasons
        for reason, part in zip(reasons, expected, strict=True):
            assert part in reason


def plain(value: object) -> object:
    """Return a value as `case.yaml` has it."""
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, Decimal) else value


def named(key: str, *, computed: bool = False) -> list[str]:
    """Return the names of the cases with a key."""
    names = sorted(path.parent.name for path in CASES.glob("*/case.yaml"))
    return [
        name
        for name in names
        if key in Case(name).given and ("computed" in Case(name).given) == computed
    ]


def land(poll: Path, landing: Path) -> None:
    """Replace the files of a folder by those of a poll, all with the same modification time."""
    shutil.rmtree(landing, ignore_errors=True)
    shutil.copytree(poll, landing)
    for path in landing.rglob("*"):
        os.utime(path, (LANDED, LANDED))


def arrive(case: Case, landing: Path) -> Iterator[tuple[pa.Table, Mapping[int, Sequence[str]]]]:
    """Yield the rows and the undeclared fields of each poll, as an ingest checks them."""
    timeline = list[Arrival]()
    for poll in case.polls:
        land(poll, landing)
        connector = case.connector(landing)
        chunks = connector.list_pending(timeline)
        rows = pa.concat_tables(connector.read(NO_ENGINE, chunks)) if chunks else pa.table({})
        facts = summarize_rows(case.source, rows, chunks, NO_ENGINE) if chunks else {}
        check_decodable(case.source.name, facts, timeline)
        check_event_times(
            case.source,
            facts,
            timeline,
            must_have_event_times=connector.must_have_event_times,
        )
        yield rows, connector.undeclared_fields()
        for number, chunk in enumerate(chunks):
            count = facts[number].rows if number in facts else 0
            position, at = chunk.position, chunk.arrived_at
            timeline.append(
                Arrival(len(timeline), at, None, None, count, None, None, chunk.bytes, position)
            )


@pytest.mark.parametrize("name", named("files"))
def test_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    case, rows, reasons, undeclared = Case(name), list[Any](), list[str](), set[str]()
    polls = arrive(case, tmp_path / "landing")
    refused = case.given.get("refused")
    for number, _ in enumerate(case.polls, 1):
        if refused is not None and number == len(case.polls):
            with pytest.raises(TidemarkError) as caught:
                next(polls)
            assert refused in str(caught.value)
            break
        table, fields = next(polls)
        undeclared.update(*fields.values())
        for row in table.sort_by([(CHUNK, "ascending")]).to_pylist() if table.num_rows else ():
            letter = row[DEAD]
            if letter is None:
                rows.append(row)
            else:
                reasons.append(letter["reason"])
    case.check(rows, reasons)
    assert sorted(undeclared) == case.given.get("undeclared", [])


@pytest.mark.parametrize("name", named("records"))
def test_records_are_decoded_or_dead_letters(name: str) -> None:
    case = Case(name)
    values = pa.chunked_array([pa.array(case.records, pa.binary())])
    events = case.payload.decode_values(values, case.source.record_columns)
    table = pa.table(dict(events.columns)).to_pylist()
    rows = [row for number, row in enumerate(table) if number not in events.reasons]
    case.check(rows, [events.reasons[number] for number in sorted(events.reasons)])


@pytest.mark.slow
@pytest.mark.parametrize("name", named("files", computed=True))
def test_columns_are_computed_from_files(name: str, warehouse: Warehouse, tmp_path: Path) -> None:
    case, landing = Case(name), tmp_path / "landing"
    land(case.polls[0], landing)
    list(ingest(warehouse, case.connector(landing)))
    rows = warehouse.load_rows(case.source.log_table).sort_by("position").to_pylist()
    case.check(rows, [])


def test_each_case_names_its_origin() -> None:
    for path in CASES.iterdir():
        given = Case(path.name).given
        assert given["origin"], path
        assert given["seen"], path
