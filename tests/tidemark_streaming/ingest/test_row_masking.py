"""Files and Delta tables of a source with masked columns: the original values are in no file of the
home."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from helpers.data.landing import SOURCE, T0, clock, land
from helpers.data.searched import found
from helpers.suite.nightly import mostly_nightly
from tidemark.base import thresholds
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.define.protection import MASKED, Drop, Mask, Tokenize
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest import dead_letters
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.snapshot.snapshot import Snapshot

# Searches every file of the home for values.
pytestmark = pytest.mark.slow

MARK, SSN = "rawvalue", 4242424242
PEOPLE = replace(
    SOURCE,
    name="people",
    columns={"at": "TIMESTAMP", "n": "INT", "email": "STRING", "card": "STRING", "ssn": "BIGINT"},
    mask={"email": Tokenize(), "card": Mask(keep_last=4), "ssn": Drop()},
)
EACH = 20
"""Number of people per file."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_TOKENIZATION_KEY", "0123456789abcdef0123456789abcdef")


def people(first: int) -> list[dict[str, object]]:
    return [
        {
            "at": clock(n),
            "n": n,
            "email": f"{MARK}-{n % 2}@example.com",
            "card": f"{MARK}-4111-{n:04}",
            "ssn": SSN,
        }
        for n in range(first, first + EACH)
    ]


def bring(
    warehouse: Warehouse, folder: Path, form: Literal["csv", "json", "parquet"]
) -> FileConnector:
    """Ingest two files in one commit and return the connector. Each text file has a row that can't
    be decoded."""
    for file in (0, 1):
        rows = people(EACH * file)
        if form == "parquet":
            instants = [datetime.fromtimestamp(T0 + EACH * file + n, UTC) for n in range(EACH)]
            table = pa.Table.from_pylist(rows).set_column(0, "at", pa.array(instants))
            numbers = pa.array(range(EACH * file, EACH * file + EACH), pa.int32())
            table = table.set_column(1, "n", numbers)
            folder.mkdir(exist_ok=True)
            pq.write_table(table, folder / f"{file}.parquet")
            continue
        text = [json.dumps(r) if form == "json" else ",".join(map(str, r.values())) for r in rows]
        text.insert(5, f"gibberish {MARK},{SSN}")
        head = [",".join(PEOPLE.columns)] if form == "csv" else []
        land(folder, f"{file}.{form}", "\n".join([*head, *text]), file)
    files = FileConnector(PEOPLE, folder, form, {"header": True} if form == "csv" else {})
    [commit] = ingest(warehouse, files, batch=None)
    assert len(commit.arrivals) == 2
    return files


@pytest.mark.parametrize("form", mostly_nightly(["csv", "json", "parquet"]))
def test_files_are_masked_before_anything_is_written(
    engine: Settings,
    warehouse: Warehouse,
    tmp_path: Path,
    form: Literal["csv", "json", "parquet"],
) -> None:
    files = bring(warehouse, tmp_path / "landing", form)
    assert found(engine.home, MARK, SSN) == []
    assert found(Path(warehouse.path_of(PEOPLE.log_table)), MARK, SSN) == []

    log = warehouse.read_frame(PEOPLE.log_table).orderBy("arrival", "position").collect()
    assert [row.n for row in log] == list(range(2 * EACH))
    assert {(row.ssn, row.card[:-4]) for row in log} == {(None, MASKED)}
    assert [row.card[-4:] for row in log] == [f"{n:04}" for n in range(2 * EACH)]
    assert len({row.email for row in log}) == 2
    assert [row.email for row in log] == [log[row.n % 2].email for row in log]
    there = [n for n in range(EACH + (form != "parquet")) if n != 5 or form == "parquet"]
    assert [row.position for row in log] == 2 * there
    assert log[-1].read_from == f"1.{form}#{there[-1]}"

    letters = warehouse.read_frame(PEOPLE.dead_letters_table).collect()
    expected = [] if form == "parquet" else [(0, 5), (1, 5)]
    assert sorted((row.arrival, row.position) for row in letters) == expected
    assert {row.bytes for row in letters} <= {None}
    if letters:
        settings = engine.model_copy(update={"database": warehouse.database})
        columns = warehouse.read_schema(PEOPLE.dead_letters_table).names
        standing = dead_letters.read_dead_letters(Snapshot(settings), PEOPLE, columns)
        with pytest.raises(DataError, match="put the corrected rows in a new file"):
            dead_letters.reprocess_letters(warehouse, files, standing)


def write(path: Path, first: int, **more: Any) -> None:  # noqa: ANN401 (the writer's own)
    """Write a version of a table with a column that its source does not declare."""
    rows = people(first)
    instants = [datetime.fromtimestamp(T0 + first + n, UTC) for n in range(EACH)]
    table = pa.Table.from_pylist(rows).set_column(0, "at", pa.array(instants))
    table = table.set_column(1, "n", pa.array(range(first, first + EACH), pa.int32()))
    table = table.append_column("other", pa.array([MARK] * EACH))
    write_deltalake(path, table, mode="append", **more)


@pytest.mark.parametrize("way", mostly_nightly([{}, {"start": 1}, {"change_feed": True}]))
def test_delta_versions_are_masked_before_anything_is_written(
    engine: Settings,
    warehouse: Warehouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: dict[str, Any],
) -> None:
    """Covers large versions too, which the engine reads for sources without masks."""
    monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
    path = tmp_path / "people"
    write(path, 0, configuration={"delta.enableChangeDataFeed": "true"})
    write(path, EACH)
    if "change_feed" in way:
        DeltaTable(path).update(predicate="n = 3", updates={"card": f"'{MARK}-9999'"})
    list(ingest(warehouse, DeltaConnector(PEOPLE, str(path), **way)))
    assert found(engine.home, MARK, SSN) == []
    assert found(Path(warehouse.path_of(PEOPLE.log_table)), MARK, SSN) == []
    log = warehouse.read_frame(PEOPLE.log_table).orderBy("arrival", "n", "card").collect()
    whole = [(n, None, f"{MASKED}{n:04}") for n in range(2 * EACH)]
    changed = [(3, None, f"{MASKED}0003"), (3, None, f"{MASKED}9999")]
    told = [(row.n, row.ssn, row.card) for row in log]
    assert told == whole + (changed if "change_feed" in way else [])
    emails = [Tokenize().create_change()(f"{MARK}-{n}@example.com".encode()) for n in (0, 1)]
    assert [row.email.encode() for row in log] == [emails[row.n % 2] for row in log]


def test_unsafe_partitions_and_masks_of_nested_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "people", 0, partition_by=["email"])
    sentence = r"is partitioned by the protected column 'email'\. The names of its files"
    renamed = replace(
        PEOPLE,
        columns={("address" if n == "email" else n): k for n, k in PEOPLE.columns.items()},
        mask={("address" if n == "email" else n): way for n, way in PEOPLE.mask.items()},
        rename={"email": "address"},
    )
    for source in (PEOPLE, renamed):
        with pytest.raises(DefinitionError, match=sentence):
            DeltaConnector(source, str(tmp_path / "people")).list_pending([])
    columns = {**PEOPLE.columns, "of": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}
    source = replace(PEOPLE, columns=columns, mask={"of": Tokenize()})
    for connector in (DeltaConnector, lambda source, path: FileConnector(source, Path(path))):
        with pytest.raises(DefinitionError, match=r"'of' is declared as ARRAY.*: use Drop\(\)"):
            connector(source, str(tmp_path))
