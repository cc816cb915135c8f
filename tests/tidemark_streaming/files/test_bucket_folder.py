"""Tests that files in an object store are ingested like the files of a folder on a disk."""

import gzip
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

from helpers.data.landing import HEADER, NO_ENGINE, SOURCE, delete, put
from helpers.processes.refusing_store import serve_refusals
from helpers.processes.store_proxy import serve_proxy, summarize_requests
from tidemark.base import thresholds
from tidemark.base.errors import DataError, DefinitionError, StoreError
from tidemark.store.committers import object_reader
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import DEAD, Chunk
from tidemark_streaming.files import FileConnector

ROW = "2023-11-14T22:13:20Z,a,{}\n"


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> str:
    """Return the path or address of an empty landing folder."""
    return str(tmp_path) if request.param == "disk" else f"{bucket}/{uuid4().hex}/in"


@pytest.fixture
def stored(bucket: str) -> str:
    """Return the address of an empty landing folder in an object store."""
    return f"{bucket}/{uuid4().hex}/in"


def csv_connector(place: str) -> FileConnector:
    return FileConnector(SOURCE, place, options={"header": True})


def names_of(chunks: Sequence[Chunk]) -> list[str]:
    return [json.loads(chunk.position)["file"] for chunk in chunks]


def ingested(chunks: Sequence[Chunk]) -> list[Arrival]:
    """Return the arrivals of chunks that were ingested, with one row each."""
    return [
        Arrival(number, chunk.arrived_at, None, None, 1, None, None, chunk.bytes, chunk.position)
        for number, chunk in enumerate(chunks)
    ]


def read(connector: FileConnector, chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    return pa.concat_tables(connector.read(NO_ENGINE, chunks)).to_pylist()


def parquet(count: int) -> bytes:
    sink = pa.BufferOutputStream()
    at = pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC"))
    columns = {"at": at, "sensor": ["a"] * count, "value": pa.array(range(count), pa.int32())}
    pq.write_table(pa.table(columns), sink, row_group_size=1000)
    return sink.getvalue().to_pybytes()


CSV = HEADER + "".join(ROW.format(n) for n in range(3000))
JSON = "".join(f'{{"at":"2023-11-14T22:13:20Z","value":{n}}}\n' for n in range(3000))
CONTENTS = {
    "a.csv": CSV.encode(),
    "a.csv.gz": gzip.compress(CSV.encode()),
    "a.gz.csv": pa.compress(CSV.encode(), "zstd", asbytes=True),
    "a.json": JSON.encode(),
    "a.json.gz": gzip.compress(JSON.encode()),
    "a.parquet": parquet(3000),
}


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("name", CONTENTS)
def test_each_format_is_read(
    place: str, name: str, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_parts:
        monkeypatch.setattr(object_reader, "_SMALL_BYTES", 0)
        monkeypatch.setattr(object_reader, "READ_AHEAD_BYTES", 4096)
        monkeypatch.setattr(thresholds, "FILE_BLOCK_BYTES", 1000)
    form: Literal["csv", "json", "parquet"] = "csv"
    for other in ("json", "parquet"):
        form = other if f".{other}" in name else form
    options: dict[str, str | bool] = {"header": True} if form == "csv" else {}
    connector = FileConnector(SOURCE, place, form, options)
    put(place, f"2026/b c%20+é[1]:{name}", CONTENTS[name])
    put(place, f"2026/empty.{form}", b"")
    chunks = connector.list_pending([])
    rows = read(connector, chunks)
    assert [row["value"] for row in rows] == list(range(3000))
    assert {row["read_from"].partition("#")[0] for row in rows} == {f"2026/b c%20+é[1]:{name}"}
    assert connector.list_pending(ingested(chunks)) == []
    later = FileConnector(SOURCE, place, form, options)
    assert later.list_pending(ingested(chunks)) == []


def test_only_complete_and_selected_files_are_listed(place: str) -> None:
    for name in ("a.csv", "x/b.csv", ".c.csv", "_d/e.csv", "x/.f/g.csv", "x/Thumbs.db", "h.txt"):
        put(place, name, HEADER)
    assert sorted(names_of(csv_connector(place).list_pending([]))) == ["a.csv", "h.txt", "x/b.csv"]
    selective = replace(csv_connector(place), names="*.csv")
    chunks = selective.list_pending([])
    assert sorted(names_of(chunks)) == ["a.csv", "x/b.csv"]
    put(place, "new.csv", HEADER)
    assert names_of(selective.list_pending(ingested(chunks))) == ["new.csv"]


def test_a_row_that_does_not_fit_is_a_dead_letter_with_its_file_and_row(place: str) -> None:
    put(place, "x/a.csv", HEADER + ROW.format(1) + ROW.format("many"))
    connector = csv_connector(place)
    fits, misfit = read(connector, connector.list_pending([]))
    assert (fits["value"], fits[DEAD]) == (1, None)
    assert misfit["read_from"] == "x/a.csv#1"
    assert misfit[DEAD]["bytes"] == ROW.format("many").strip().encode()


def test_a_replaced_file_is_refused_and_an_equal_one_is_not(place: str) -> None:
    put(place, "a.csv", HEADER + ROW.format(1))
    timeline = ingested(csv_connector(place).list_pending([]))
    put(place, "a.csv", HEADER + ROW.format(1))
    assert csv_connector(place).list_pending(timeline) == []
    for content in (ROW.format(2), ROW.format(22)):
        put(place, "a.csv", HEADER + content)
        with pytest.raises(DataError, match=r"a\.csv' of source 'sensors' has changed since it wa"):
            csv_connector(place).list_pending(timeline)


def test_an_ingested_file_may_be_deleted(place: str) -> None:
    put(place, "a.csv", HEADER + ROW.format(1))
    timeline = ingested(csv_connector(place).list_pending([]))
    delete(place, "a.csv")
    put(place, "b.csv", HEADER + ROW.format(2))
    assert names_of(csv_connector(place).list_pending(timeline)) == ["b.csv"]


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.json", "a.parquet"])
def test_a_file_that_is_replaced_between_poll_and_read_is_not_ingested(
    place: str, name: str, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_parts:
        monkeypatch.setattr(object_reader, "_SMALL_BYTES", 0)
    form: Any = name.split(".")[1]
    connector = FileConnector(SOURCE, place, form, {"header": True} if form == "csv" else {})
    put(place, name, CONTENTS[name])
    chunks = connector.list_pending([])
    object_reader._cache.__init__()
    other = CSV[:-200] if form == "csv" else JSON[:-200]
    replaced = gzip.compress(other.encode()) if name.endswith(".gz") else other
    put(place, name, parquet(3001) if form == "parquet" else replaced)
    with pytest.raises(DataError, match=rf"{name}' .* changed while it was read") as caught:
        list(connector.read(NO_ENGINE, chunks))
    assert caught.value.retriable
    delete(place, name)
    with pytest.raises(DataError, match=r"was deleted or renamed before it was read\.") as caught:
        list(connector.read(NO_ENGINE, chunks))
    assert caught.value.retriable


def test_a_moved_object_is_refused_because_it_may_be_new(stored: str) -> None:
    """A store can't move an object: it copies and deletes it, and the copy has a new time."""
    content = HEADER + ROW.format(1)
    put(stored, "a.csv", content)
    (before,) = ingested(csv_connector(stored).list_pending([]))
    position = json.loads(before.position)
    # The times of a store may have whole seconds.
    timeline = [replace(before, position=json.dumps({**position, "modified": 1}))]
    put(stored, "archive/a.csv", content)
    copies = csv_connector(stored).list_pending(timeline)
    assert names_of(copies) == ["archive/a.csv"]
    delete(stored, "a.csv")
    with pytest.raises(DataError, match=r"archive/a\.csv' .* has the content of 'a\.csv', .* put"):
        csv_connector(stored).list_pending(timeline)
    assert csv_connector(stored).list_pending([*timeline, *ingested(copies)]) == []


def test_objects_that_mark_folders_are_skipped(stored: str) -> None:
    """Consoles create such objects; a listing shows them like empty files."""
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{stored.partition('://')[2]}"
    for folder in ("", "/day", "/day/hour"):
        requests.put(f"{url}{folder}/", timeout=10).raise_for_status()
    put(stored, "day/a.csv", HEADER)
    put(stored, "day/empty.csv", b"")
    chunks = csv_connector(stored).list_pending([])
    assert sorted(names_of(chunks)) == ["day/a.csv", "day/empty.csv"]
    with serve_proxy() as proxy, proxy.count() as requested:
        assert csv_connector(stored).list_pending(ingested(chunks)) == []
    assert [request.kind for request in requested] == ["LIST"]


def test_requests_of_polls_and_reads(stored: str) -> None:
    connector = csv_connector(stored)
    for number in range(40):
        put(stored, f"{number}.csv", HEADER + ROW.format(number))
    with serve_proxy() as proxy:
        with proxy.count() as first:
            chunks = connector.list_pending([])
        # Each object is read once.
        assert len(first) == 1 + 40, summarize_requests(first)
        with proxy.count() as reading:
            assert len(read(connector, chunks)) == 40
        assert reading == []
        timeline = ingested(chunks)
        with proxy.count() as idle:
            assert connector.list_pending(timeline) == []
            assert csv_connector(stored).list_pending(timeline) == []
        assert [request.kind for request in idle] == ["LIST", "LIST"]
        put(stored, "new.csv", HEADER)
        with proxy.count() as new:
            assert names_of(csv_connector(stored).list_pending(timeline)) == ["new.csv"]
        assert [request.kind for request in new] == ["LIST", "GET"]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "SignatureDoesNotMatch", "refuses the secret key"),
        (403, "InvalidAccessKeyId", "does not know the access key"),
        (400, "ExpiredToken", "have expired"),
        (403, "AccessDenied", "denies access"),
    ],
)
def test_a_refusal_of_the_store_is_one_message(status: int, code: str, message: str) -> None:
    with serve_refusals(status, code) as address:
        with pytest.raises(StoreError, match=message) as caught:
            csv_connector(f"{address}/in").list_pending([])
        assert "\n" not in str(caught.value)
        assert not caught.value.retriable
        position = {"file": "a.csv", "bytes": 9, "modified": 1, "tag": "t", "sha256": "s"}
        chunk = Chunk(json.dumps(position), 0)
        with pytest.raises(StoreError, match=message) as caught:
            list(csv_connector(f"{address}/in").read(NO_ENGINE, [chunk]))
        assert "\n" not in str(caught.value)


def test_an_unknown_bucket_is_one_message(bucket: str) -> None:
    with pytest.raises(StoreError, match="has no such bucket"):
        csv_connector(f"{bucket}-without-files/in").list_pending([])


@pytest.mark.parametrize("key", ["x//a.csv", "x/../a.csv"])
def test_an_object_whose_name_the_client_refuses_is_one_message(stored: str, key: str) -> None:
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{stored.partition('://')[2]}/{key}"
    request = requests.Request("PUT", url).prepare()
    # Without this, the client would normalize the path.
    request.url = url
    with requests.Session() as session:
        session.send(request, timeout=10).raise_for_status()
    with pytest.raises(DataError, match=rf"in/{re.escape(key)}.*\. Rename the object, or move"):
        csv_connector(stored).list_pending([])


@pytest.mark.parametrize(
    "path",
    [
        "http://host/in",
        "s3://",
        "s3://bucket//in",
        "s3://bucket/a/../in",
        "s3://bucket/.",
        Path("s3://bucket/in"),
    ],
)
def test_a_place_that_is_neither_a_path_nor_an_address_is_refused(path: Path | str) -> None:
    with pytest.raises(DefinitionError, match=r"'sensors' has the path '.*': "):
        FileConnector(SOURCE, path)
