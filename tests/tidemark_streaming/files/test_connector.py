"""The file connector: each file is one arrival and read once; each row is an event or a dead
letter."""

import bz2
import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.data.landing import HEADER, NO_ENGINE, SOURCE, T0, connector, land, log_rows
from tidemark.base import thresholds
from tidemark.base.errors import DataError
from tidemark.define.protection import Mask
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, DEAD, Chunk
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.payloads.faults import Fault

MICROS = 1_000_000


def names(chunks: Sequence[Chunk]) -> list[str]:
    return [json.loads(c.position)["file"] for c in chunks]


def done(chunks: Sequence[Chunk]) -> list[Arrival]:
    return [
        Arrival(n, c.arrived_at, None, None, 0, None, None, c.bytes, c.position)
        for n, c in enumerate(chunks)
    ]


def rows_of(source_connector: FileConnector) -> pa.Table:
    return pa.concat_tables(source_connector.read(NO_ENGINE, source_connector.list_pending([])))


def read(source_connector: FileConnector) -> list[tuple[Any, ...]]:
    """Return all rows, each with its text if it is a dead letter."""
    found = list[tuple[Any, ...]]()
    for row in rows_of(source_connector).to_pylist():
        at, letter = row["at"], row[DEAD]
        seconds = None if at is None else int(at.timestamp())
        text = None if letter is None else letter["bytes"].decode()
        columns = (row[name] for name in ("sensor", "value", CHUNK, "position", "read_from"))
        found.append((seconds, *columns, text))
    return found


def test_files_arrive_in_the_order_of_modification_then_name(tmp_path: Path) -> None:
    for name, seconds in (("b.csv", 5), ("a.csv", 5), ("z.csv", 1)):
        land(tmp_path, name, HEADER, seconds)
    chunks = connector(tmp_path).list_pending([])
    assert names(chunks) == ["z.csv", "a.csv", "b.csv"]
    assert [c.arrived_at // MICROS - T0 for c in chunks] == [1, 5, 5]


def test_a_file_is_read_once_and_older_new_files_come_next(tmp_path: Path) -> None:
    land(tmp_path, "a.csv", HEADER, 10)
    first = connector(tmp_path).list_pending([])
    assert connector(tmp_path).list_pending(done(first)) == []
    land(tmp_path, "b.csv", HEADER, 2)
    later = connector(tmp_path).list_pending(done(first))
    assert names(later) == ["b.csv"]
    assert later[0].arrived_at == first[0].arrived_at


def test_hidden_files_and_folders_are_skipped(tmp_path: Path) -> None:
    for name in (".a.csv", "_b.csv", "_temporary/c.csv", ".folder/d.csv"):
        land((tmp_path / name).parent, Path(name).name, HEADER, 1)
    assert connector(tmp_path).list_pending([]) == []


def test_files_in_sub_folders_are_read(tmp_path: Path) -> None:
    for name, seconds in (("2026/01/a.csv", 3), ("2026/a.csv", 2), ("a.csv", 1)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        land((tmp_path / name).parent, "a.csv", HEADER, seconds)
    chunks = connector(tmp_path).list_pending([])
    assert names(chunks) == ["a.csv", "2026/a.csv", "2026/01/a.csv"]
    assert connector(tmp_path).list_pending(done(chunks)) == []


def test_a_file_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")).write_text(HEADER)
    message = rf"The file '{tmp_path}/caf\\xe9\.csv' .*: its name is not UTF-8\. Rename"
    with pytest.raises(DataError, match=message):
        connector(tmp_path).list_pending([])


@pytest.mark.parametrize("seconds", [9, 10, 11])
@pytest.mark.parametrize("row", ["2023-11-14,a,1", "2023-11-14,a,2", "2023-11-14,a,11"])
def test_a_file_is_recognized_by_its_content(tmp_path: Path, seconds: int, row: str) -> None:
    """A file with only a different modification time is unchanged."""
    land(tmp_path, "a.csv", f"{HEADER}2023-11-14,a,1\n", 10)
    before = done(connector(tmp_path).list_pending([]))
    (tmp_path / "a.csv").unlink()
    land(tmp_path, "a.csv", f"{HEADER}{row}\n", seconds + 0.5)
    if row.endswith(",1"):
        assert connector(tmp_path).list_pending(before) == []
    else:
        with pytest.raises(DataError, match=r"a\.csv' of source 'sensors' has changed .* new file"):
            connector(tmp_path).list_pending(before)


def test_a_file_that_grew_after_it_was_ingested_is_refused(tmp_path: Path) -> None:
    land(tmp_path, "a.csv", HEADER, 10)
    before = done(connector(tmp_path).list_pending([]))
    land(tmp_path, "a.csv", HEADER + "2023-11-14,a,1\n", 11)
    with pytest.raises(DataError, match=r"a\.csv' of source 'sensors' has changed .* new file"):
        connector(tmp_path).list_pending(before)


MOVES = st.lists(
    st.sampled_from(["a.csv", "b.csv", "c.csv", "archive/a.csv", "archive/b.csv"]),
    min_size=2,
    max_size=2,
    unique=True,
)


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["1", "2"]), min_size=3, max_size=3), st.lists(MOVES, max_size=6))
def test_an_ingested_file_that_is_renamed_or_moved_is_not_read_again(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], moves: list[list[str]]
) -> None:
    """SPARK-26875, SPARK-18960: an archive in the folder, rotated logs. Files may be equal."""
    folder = tmp_path_factory.mktemp("moves")
    (folder / "archive").mkdir()
    for second, (name, value) in enumerate(zip("abc", values, strict=True)):
        # Equal files may have one modification time.
        modified = 5 if value == "1" else second
        land(folder, f"{name}.csv", f"{HEADER}2023-11-14,a,{value}\n", modified)
    timeline = done(connector(folder).list_pending([]))
    for before, after in moves:
        if (folder / before).exists() and not (folder / after).exists():
            (folder / before).rename(folder / after)
    assert connector(folder).list_pending(timeline) == []
    land(folder, "new.csv", f"{HEADER}2023-11-14,a,1\n", 2)
    assert names(connector(folder).list_pending(timeline)) == ["new.csv"]


def test_a_copy_of_an_ingested_file_is_another_arrival(tmp_path: Path) -> None:
    land(tmp_path, "a.csv", HEADER, 1)
    before = done(connector(tmp_path).list_pending([]))
    land(tmp_path, "b.csv", HEADER, 1)
    assert names(connector(tmp_path).list_pending(before)) == ["b.csv"]


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize("rest", ["3", ""])
@pytest.mark.parametrize("new_name", ["a.csv", "done/a.csv", "a.csv.filepart~"])
@pytest.mark.parametrize("is_copy", [True, False])
def test_a_file_that_was_ingested_before_it_was_complete_is_refused(
    tmp_path: Path, form: Literal["csv", "json"], rest: str, new_name: str, is_copy: bool
) -> None:
    """A program uploads under a temporary name that is listed, and then renames the file."""
    written = {"csv": HEADER, "json": ""}[form] + "".join(f"{n}\n" for n in range(1000))
    (tmp_path / "done").mkdir()
    partial = land(tmp_path, "a.csv.filepart", written + rest, 1)
    looks = replace(connector(tmp_path), format=form, options={})
    timeline = [replace(arrival, rows=1000) for arrival in done(looks.list_pending([]))]
    with partial.open("a") as file:
        file.write("4\n")
    complete = tmp_path / new_name
    if is_copy:
        complete.write_bytes(partial.read_bytes())
        partial.unlink()
    else:
        partial.rename(complete)
    with pytest.raises(DataError, match=r"begins with the content of 'a\.csv\.filepart', .*twice"):
        looks.list_pending(timeline)
    # The check is for rows, so files with the same header are no problem.
    assert names(looks.list_pending([replace(arrival, rows=0) for arrival in timeline])) == [
        new_name
    ]


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from("ab"), max_size=3), min_size=2, max_size=4, unique_by=str))
def test_a_new_file_is_refused_exactly_if_it_begins_with_a_deleted_one(
    tmp_path_factory: pytest.TempPathFactory, contents: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("beginnings")
    *earlier, last = ("".join(lines) for lines in contents)
    for number, text in enumerate(earlier):
        land(folder, f"{number}.json", text, number)
    timeline = [replace(a, dead_letters=1) for a in done(connector(folder).list_pending([]))]
    for path in folder.iterdir():
        path.unlink()
    land(folder, "new.json", last, 9)
    if any(text and last.startswith(text) for text in earlier):
        with pytest.raises(DataError, match=r"new\.json' .* begins with the content of"):
            connector(folder).list_pending(timeline)
    else:
        assert names(connector(folder).list_pending(timeline)) == ["new.json"]


@pytest.mark.parametrize("text", ["2023-11-14,a,1", "2023-11-14,a,2"])
def test_a_file_that_was_replaced_with_its_modification_time_is_recognized(
    tmp_path: Path, text: str
) -> None:
    """`rsync -t` and `sftp -p` set the modification time, and the size may be the same."""
    land(tmp_path, "a.csv", f"{HEADER}2023-11-14,a,1\n", 1)
    timeline = done(connector(tmp_path).list_pending([]))
    (land(tmp_path, ".new", f"{HEADER}{text}\n", 1)).rename(tmp_path / "a.csv")
    if text.endswith("1"):
        assert connector(tmp_path).list_pending(timeline) == []
    else:
        with pytest.raises(DataError, match=r"has changed since .*31 bytes, but other content\)"):
            connector(tmp_path).list_pending(timeline)


def test_a_file_that_was_overwritten_in_place_is_recognized(tmp_path: Path) -> None:
    path = land(tmp_path, "a.csv", f"{HEADER}2023-11-14,a,1\n", 1)
    timeline = done(connector(tmp_path).list_pending([]))
    chunks = connector(tmp_path).list_pending([])
    before = path.stat()
    path.write_text(f"{HEADER}2023-11-14,a,2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DataError, match="has changed since it was ingested"):
        connector(tmp_path).list_pending(timeline)
    with pytest.raises(DataError, match="changed while it was read"):
        list(connector(tmp_path).read(NO_ENGINE, chunks))


def test_a_copy_of_a_deleted_file_is_refused_unless_it_was_touched(tmp_path: Path) -> None:
    """The copy has the content and the modification time of a file that was ingested."""
    path = land(tmp_path, "a.csv", f"{HEADER}2023-11-14,a,1\n", 1)
    timeline = [replace(a, rows=1) for a in done(connector(tmp_path).list_pending([]))]
    copy = land(tmp_path, "b.csv", path.read_bytes(), 1)
    path.unlink()
    with pytest.raises(DataError, match=r"b\.csv' .* the modification time of 'a\.csv', .*`touch`"):
        connector(tmp_path).list_pending(timeline)
    copy.touch()
    assert names(connector(tmp_path).list_pending(timeline)) == ["b.csv"]
    copy.rename(path)
    assert connector(tmp_path).list_pending(timeline) == []


WINDOWS = [
    "Thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
    "Desktop.INI",
    "~$x.csv",
    "2026/Thumbs.db",
    "2026/~$b.csv",
]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), ["2026/b.csv.gz", "README.txt", "a.csv"]),
        ("*.csv", ["a.csv"]),
        (("*.csv", "*.csv.gz"), ["2026/b.csv.gz", "a.csv"]),
        ("[!R]*.*", ["2026/b.csv.gz", "a.csv"]),
        ("?.CSV", []),
    ],
)
def test_other_files_in_the_folder_are_skipped(
    tmp_path: Path, patterns: str | Sequence[str], expected: list[str]
) -> None:
    for name in [*WINDOWS, "a.csv", "2026/b.csv.gz", "README.txt"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        land(tmp_path, name, HEADER, 1)
    looks = replace(connector(tmp_path), names=patterns)
    assert names(looks.list_pending([])) == expected


def test_a_wrong_header_shows_no_value_of_a_source_with_protected_columns(tmp_path: Path) -> None:
    protected = replace(SOURCE, mask={"sensor": Mask()})
    land(tmp_path, "a.csv", "2023-11-14,secret,1\n2023-11-14,secret,2\n", 1)
    with pytest.raises(DataError, match=r"3 columns are not declared \(found …, …, …\)") as caught:
        rows_of(replace(connector(tmp_path), source=protected))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("sizes", [(9, 1), (1, 9), (9, 9)])
def test_rows_of_any_size_follow_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    monkeypatch.setattr(thresholds, "FILE_BLOCK_BYTES", len(HEADER) + 2)
    land(tmp_path, "a.csv", HEADER + "".join(f"2023-11-14,{'x' * 9 * n},1\n" for n in sizes), 1)
    assert [len(row[1] or "") for row in read(connector(tmp_path))] == [9 * n for n in sizes]


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("line", ["", "sep=,\n", "SEP=,\r\n"])
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_files_of_excel_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, line: str, size: int
) -> None:
    """The first line of such a file may state the separator, and its text may be UTF-16."""
    monkeypatch.setattr(thresholds, "FILE_BLOCK_BYTES", size)
    mark = "\ufeff" if codec == "utf-16-be" else ""
    land(tmp_path, "a.csv", f"{mark}{line}{HEADER}2023-11-14,é𝄞,1\n".encode(codec), 1)
    assert [(row[1], row[2], row[4]) for row in read(connector(tmp_path))] == [("é𝄞", 1, 0)]


def test_links_to_listed_files_and_to_parent_folders_are_skipped(tmp_path: Path) -> None:
    """Other links are followed, as into the hidden folders of a Kubernetes volume."""
    folder, other = tmp_path / "landing", tmp_path / "other"
    for name in ("day-1/a.csv", "..data/b.csv", "../other/c.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        land((folder / name).parent, Path(name).name, HEADER, 1)
    for link, target in {
        "latest": "day-1",
        "again.csv": "day-1/a.csv",
        "loop": ".",
        "day-1/up": "..",
        "b.csv": "..data/b.csv",
        "other": str(other),
        "missing.csv": "nowhere.csv",
    }.items():
        (folder / link).symlink_to(target)
    (other / "back").symlink_to(folder)
    (other / "self").symlink_to(other)
    assert names(connector(folder).list_pending([])) == ["b.csv", "day-1/a.csv", "other/c.csv"]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_file_that_changes_between_poll_and_read_is_not_ingested(
    tmp_path: Path, form: Literal["csv", "json", "parquet"]
) -> None:
    """A writer that appends in place: the arrival would describe other rows than it has."""
    name = f"a.{form}"
    looks = FileConnector(SOURCE, tmp_path, form, {"header": True} if form == "csv" else {})
    land(tmp_path, name, WHOLE[name], 1)
    chunks = looks.list_pending([])
    more = {"csv": HEADER + "2023-11-14,a,1\n", "json": lines(2001), "parquet": parquet(2001)}
    land(tmp_path, name, more[form], 2)
    with pytest.raises(DataError, match=rf"{name}' .* changed while it was read.*rename") as caught:
        list(looks.read(NO_ENGINE, chunks))
    assert caught.value.retriable
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=r"was deleted or renamed before it was read\.") as caught:
        list(looks.read(NO_ENGINE, chunks))
    assert caught.value.retriable


@pytest.mark.parametrize("name", ["a", "a.csv", "a.csv.GZ", "a.gzip", "a.csv.gz", "a.zst"])
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_files_are_recognized_by_their_content(
    tmp_path: Path, name: str, codec: str
) -> None:
    content = pa.compress((HEADER + ROWS).encode(), codec, asbytes=True)
    land(tmp_path, name, content, 1)
    assert [(row[2], row[6]) for row in read(connector(tmp_path))] == [
        (n, None) for n in range(2000)
    ]
    for cut in (len(content) // 2, len(content) - 1):
        land(tmp_path, name, content[:cut], 1)
        with pytest.raises(DataError, match=r"it is damaged\."):
            read(connector(tmp_path))


def test_a_missing_folder_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder '.*nowhere', from which source 'sensors'"):
        connector(tmp_path / "nowhere").list_pending([])


def test_csv_rows_keep_their_position_and_bad_rows_their_text(tmp_path: Path) -> None:
    bad = ["2023-13-45,a,1", "2023-11-14,a,1.5", "2023-11-14,a,1,9", "rubbish"]
    good = ["2023-11-14T22:13:20Z,a,1", ",b,2", '2023-11-14 22:13:21,"a,""b",']
    land(tmp_path, "a.csv", HEADER + "\n".join(good + bad) + "\n", 1)
    land(tmp_path, "b.csv", "", 2)
    land(tmp_path, "c+d %20[e]{f}*.csv", HEADER + "\n".join(reversed(good)) + "\n", 3)
    assert read(connector(tmp_path)) == [
        (T0, "a", 1, 0, 0, "a.csv#0", None),
        (None, "b", 2, 0, 1, "a.csv#1", None),
        (T0 + 1, 'a,"b', None, 0, 2, "a.csv#2", None),
        *((None, None, None, 0, n, f"a.csv#{n}", b) for n, b in enumerate(bad, 3)),
        (T0 + 1, 'a,"b', None, 2, 0, "c+d %20[e]{f}*.csv#0", None),
        (None, "b", 2, 2, 1, "c+d %20[e]{f}*.csv#1", None),
        (T0, "a", 1, 2, 2, "c+d %20[e]{f}*.csv#2", None),
    ]


def test_positions_are_right_if_a_file_is_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "FILE_BLOCK_BYTES", 9000)
    lines = "".join(f'2023-11-14,"a\n{n}",{n}\n' for n in range(5000))
    land(tmp_path, "a.csv", HEADER + lines, 1)
    rows = rows_of(connector(tmp_path))
    assert rows["position"].to_pylist() == rows["value"].to_pylist() == list(range(5000))
    assert rows["sensor"].to_pylist() == [f"a\n{n}" for n in range(5000)]


def test_an_earlier_shorter_header_is_accepted_in_compressed_files(tmp_path: Path) -> None:
    wider = replace(SOURCE, columns={**SOURCE.columns, "unit": "STRING"})
    text = (HEADER + "2023-11-14T22:13:20Z,a,1\n").encode()
    for name, content in (
        ("a.csv", text),
        ("b.csv.gz", gzip.compress(text)),
        ("c.csv.bz2", bz2.compress(text)),
        ("d.csv", text.replace(b"value", b"value,unit").replace(b",1", b",1,C")),
    ):
        land(tmp_path, name, content, 1)
    found = read(replace(connector(tmp_path), source=wider))
    assert found == [
        (T0, "a", 1, n, 0, f"{name}#0", None)
        for n, name in enumerate(["a.csv", "b.csv.gz", "c.csv.bz2", "d.csv"])
    ]


def test_json_lines_become_events_and_dead_letters(tmp_path: Path) -> None:
    lines = ['{"at":"2023-11-14T22:13:20Z","sensor":"a","value":1}', '{"value":"x"}', "{oops", "{}"]
    land(tmp_path, "a.json", "\n".join(lines) + "\n", 1)
    found = read(FileConnector(SOURCE, tmp_path, format="json"))
    assert [(r[0], r[1], r[2], r[6]) for r in found] == [
        (T0, "a", 1, None),
        (None, None, None, lines[1]),
        (None, None, None, lines[2]),
        (None, None, None, None),
    ]


def test_parquet_rows_become_events(tmp_path: Path) -> None:
    times = pa.array([T0 * MICROS, None], pa.timestamp("us", tz="UTC"))
    table = pa.table({"at": times, "sensor": ["a", "b"], "value": pa.array([1, 2], pa.int32())})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(FileConnector(SOURCE, tmp_path, format="parquet")) == [
        (T0, "a", 1, 0, 0, "a.parquet#0", None),
        (None, "b", 2, 0, 1, "a.parquet#1", None),
    ]


def test_parquet_times_of_other_units_and_zones_are_converted(tmp_path: Path) -> None:
    """Covers what pandas writes: nanoseconds, no time zone, and another column name."""
    renamed = replace(SOURCE, rename={"position": "at"})
    micros = [0, -1, T0 * MICROS + 123_456, None]
    for unit, parts in (("ms", (1, 1000)), ("us", (1, 1)), ("ns", (1000, 1))):
        for zone in ("UTC", None):
            times = [None if m is None else m * parts[0] // parts[1] for m in micros]
            at = pa.array(times, pa.int64()).cast(pa.timestamp(unit, zone))
            table = pa.table({"position": at, "sensor": [f"{unit} {zone}"] * 4})
            pq.write_table(table, tmp_path / f"{unit}{zone}.parquet")
    source_connector = FileConnector(
        renamed, tmp_path, "parquet", options={"timeZone": "Asia/Tokyo"}
    )
    rows = rows_of(source_connector)
    found: dict[str, list[int | None]] = {}
    times = rows["at"].cast(pa.int64()).to_pylist()
    for sensor, at in zip(rows["sensor"].to_pylist(), times, strict=True):
        found.setdefault(sensor, []).append(at)
    for kind, times in found.items():
        step, earlier = 1000 if "ms" in kind else 1, 9 * 3600 * MICROS if "None" in kind else 0
        assert times == [None if m is None else m // step * step - earlier for m in micros]
    assert len(found) == 6


ROWS = "".join(f"2023-11-14T22:13:20Z,a,{n}\n" for n in range(2000))
"""More rows than a reader finds in a truncated file."""


def parquet(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    times = pa.array([T0 * MICROS] * rows, pa.timestamp("us", tz="UTC"))
    numbers = pa.array(range(rows), pa.int32())
    pq.write_table(pa.table({"at": times, "sensor": ["a"] * rows, "value": numbers}), sink)
    return sink.getvalue().to_pybytes()


def lines(rows: int) -> str:
    return "".join(f'{{"at":"2023-11-14T22:13:20Z","value":{n}}}\n' for n in range(rows))


WHOLE = {
    "a.csv": (HEADER + ROWS).encode(),
    "a.csv.gz": gzip.compress((HEADER + ROWS).encode()),
    "a.json": lines(2000).encode(),
    "a.json.gz": gzip.compress(lines(2000).encode()),
    "a.parquet": parquet(2000),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_is_read_only_after_its_rename(tmp_path: Path, name: str) -> None:
    """The file is written in pieces under a hidden name, and the folder is polled after each
    piece."""
    form = name.split(".")[1]
    looks = replace(
        connector(tmp_path), format=form, options={"header": True} if form == "csv" else {}
    )
    hidden, content = tmp_path / f".{name}", WHOLE[name]
    with hidden.open("wb") as file:
        for begin in range(0, len(content), len(content) // 3 + 1):
            file.write(content[begin : begin + len(content) // 3 + 1])
            file.flush()
            assert looks.list_pending([]) == []
    hidden.rename(tmp_path / name)
    rows = read(looks)
    assert [(row[2], row[6]) for row in rows] == [(n, None) for n in range(2000)]
    assert looks.list_pending(done(looks.list_pending([]))) == []


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("a.csv.gz", WHOLE["a.csv.gz"][:-200], r"a\.csv\.gz' .* it is damaged\. Correct"),
        ("a.json.gz", WHOLE["a.json.gz"][:-200], r"a\.json\.gz' .* it is damaged\."),
        (
            "a.parquet",
            WHOLE["a.parquet"][:-200],
            r"a\.parquet' .* it is damaged, or not a Parquet file\.",
        ),
        (
            "a.parquet",
            b"nonsense",
            r"a\.parquet' .* can't be read: it is damaged, or not a Parquet file\.",
        ),
        ("a.csv.gz", b"nonsense", r"a\.csv\.gz' .* can't be read: it is damaged\."),
        ("a.csv", b"sensor,at,value\n", r"its header must name the columns at, sensor, value, but"),
        ("a.csv", b"at,value\n2023-11-14,1\n", r"its header must name the columns at, sensor,"),
        ("a.csv", b"sep=;\nat;sensor;value\n", r"its first line is 'sep=;': set the option sep to"),
        ("a.csv", b"sep=,\nsep=,\nat,sensor,value\n", r"its header must name the columns at, sens"),
        (
            "a.csv",
            HEADER.encode("utf-16-le"),
            r"UTF-16 without a byte order mark: write it as UTF-",
        ),
        ("a.csv", HEADER.encode("utf-16") + b"\0", r"a\.csv' .* can't be read: it is damaged\."),
        ("a.csv", b"at;sensor;value\n", r"separated by ';': set the option sep to ';'"),
        ("a.csv", b"at\tsensor\tvalue\n", r"separated by '\\t': set the option sep"),
        ("a.csv", b"at,sensor\xe9,value\n", r"its header can't be read: .*UTF-8"),
        ("a.csv", b"sensor,at,value\n", r"another order \(found sensor, at, value\)\."),
        ("a.csv", b"at,sensor,value,unit\n", r"unit is not declared \(found at, sensor, value, u"),
        ("a.csv", b"at,value\n", r"sensor is missing \(found at, value\)\."),
        ("a.csv", b"at,value,value\n", r"sensor is missing and it has a column twice \(found at,"),
        ("a.csv", b"At,sensr,value\n", r"sensor is missing and sensr is not declared \(found At, "),
        (
            "a.csv",
            b"at,sensor,value," + b"x" * 900,
            r"xxxxx… is not declared \(found at, .{196}…\)",
        ),
    ],
)
def test_an_unreadable_file_is_reported(
    tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    land(tmp_path, file, content, 1)
    broken = connector(tmp_path)
    if (form := file.split(".")[1]) != "csv":
        broken = replace(broken, format=form, options={})
    with pytest.raises(DataError, match=message) as caught:
        read(broken)
    assert "\n" not in str(caught.value)


def is_read(name: str) -> bool:
    """Return whether a file or folder of this name is read, by the rules of docs/sources.md."""
    is_of_windows = name.lower() in ("desktop.ini", "ehthumbs.db", "thumbs.db")
    return name[0] not in "._~" and not is_of_windows


# Hypothesis also draws texts that occur in the code, such as the names that are skipped.
NAMES = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"])
        | st.sampled_from(":[]{}*?\\ %+#=&;'\"\n"),
        min_size=1,
        max_size=20,
    ).filter(lambda name: is_read(name) and len(name.encode()) < 200),
    min_size=1,
    max_size=3,
).map("/".join)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@settings(max_examples=20)
@given(st.sets(NAMES, min_size=8, max_size=8))
@example({"a:b.csv", "a[1].csv", "x/2026-01-01T10:00.csv", "y/[b]/{c}*?:.csv", "a+b %20.csv"})
def test_files_of_any_name_are_read(
    tmp_path_factory: pytest.TempPathFactory,
    form: Literal["csv", "parquet"],
    names: set[str],
) -> None:
    folder, landed = tmp_path_factory.mktemp("names"), set[str]()
    content = parquet(1) if form == "parquet" else f"{HEADER}2023-11-14T00:00Z,a,1\n".encode()
    for name in sorted(names):
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:
            # Another name uses a file where this name needs a folder, or the reverse.
            continue
        landed.add(name)
    (folder / "nothing").mkdir()
    options: dict[str, str | bool] = {"header": True} if form == "csv" else {}
    looks = FileConnector(SOURCE, folder / "nothing" / "..", form, options)
    assert {row[5] for row in read(looks)} == {f"{name}#0" for name in landed}


def test_a_time_finer_than_microseconds_is_a_dead_letter(tmp_path: Path) -> None:
    nanos = pa.array([1_000, 1_001, -1, None], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"at": nanos, "sensor": ["a"] * 4}), tmp_path / "a.parquet")
    rows = rows_of(FileConnector(SOURCE, tmp_path, "parquet"))
    assert rows["at"].cast(pa.int64()).to_pylist() == [1, None, None, None]
    assert rows["sensor"].to_pylist() == ["a", None, None, "a"]
    reasons = [letter and letter["reason"] for letter in rows[DEAD].to_pylist()]
    finer = Fault.FINER.describe_fault("at", "TIMESTAMP")
    assert reasons == [None, finer, finer, None]


def test_rows_beyond_the_memory_limit_are_ingested(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "GATHERED_BYTES", 2_000)
    monkeypatch.setattr(thresholds, "FILE_BLOCK_BYTES", 1_000)
    lines = "".join(f"2023-11-14T22:13:20Z,a,{n}\n" for n in range(300))
    land(tmp_path, "a.csv", HEADER + lines + "2023-11-14,a,x\n", 1)
    land(tmp_path, "b.csv", HEADER + lines, 2)
    (commit,) = ingest(warehouse, connector(tmp_path), batch=None)
    assert [(a.rows, a.dead_letters) for a in commit.arrivals] == [(300, 1), (300, 0)]
    rows = log_rows(warehouse)
    assert [row[2] for row in rows] == [*range(300)] * 2
    assert {row[0] for row in rows} == {T0 * MICROS}
