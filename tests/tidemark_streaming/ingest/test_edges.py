"""Small files that a careless platform would lose, alter or extend: as one backfill and as one run
per arrival, in memory and in the engine."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helpers.suite.nightly import NIGHTLY
from tidemark import expect as q
from tidemark.base import thresholds
from tidemark.compute import in_memory
from tidemark.define import aggregates as agg
from tidemark.define.aggregates import Aggregate
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import end_source, ingest

EDGES = Path(__file__).parents[2] / "cases" / "edges"
NEW_YEAR = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z, in microseconds."""
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A file, an asset, and the expected results.

    Args:
        columns: the source's columns except its event time.
        events: the source's events, without their event times.
        newest: the newest event time, in seconds of 2026.
        dead: number of dead letters.
        published: the published windows, by their start, without the columns of every asset.
        quarantined: names of the expectations that windows in quarantine fail.
    """

    file: str
    columns: Mapping[str, str]
    events: Rows
    newest: int
    aggregates: Mapping[str, Aggregate]
    published: Rows | None
    dead: int = 0
    keys: Sequence[str] = ()
    expectations: Sequence[Any] = ()
    quarantined: Sequence[Sequence[str]] = ()
    event_time: str = "at"
    max_future_skew: str | None = None
    late: Sequence[str] = field(default_factory=tuple[str, ...])


LISTS: list[list[str | None]] = [[], [None], ["a"], ["a", None], [None, "a"], ["z"]]
CASES = [
    Case(
        "two_values_on_a_line.json",
        {"k": "STRING", "v": "BIGINT"},
        [{"k": "one", "v": 1}],
        1,
        {"total": agg.sum("v")},
        [{"total": 1}],
        dead=2,
    ),
    Case(
        "times.json",
        {"k": "STRING"},
        [{"k": "iso"}, {"k": "iso"}],
        4,
        {"n": agg.count()},
        [{"n": 2}],
        dead=3,
    ),
    Case(
        "quoted_line_break.csv",
        {"k": "STRING", "note": "STRING"},
        [{"k": "a", "note": "first line\nsecond line"}, {"k": "b", "note": "plain"}],
        2,
        {"least": agg.min("note")},
        [{"least": "first line\nsecond line"}],
    ),
    Case(
        "money.json",
        {"price": "DECIMAL(10,2)"},
        [{"price": "2.34"}],
        3,
        {"total": agg.sum("price")},
        [{"total": "2.34"}],
        dead=2,
    ),
    Case(
        "helper_columns.csv",
        dict.fromkeys(("block", "row", "file", "chunk", "dead_letter"), "STRING"),
        [{"block": "A", "row": "7", "file": "f", "chunk": "9", "dead_letter": "x"}],
        1,
        {"dead_letter": agg.max("dead_letter")},
        [{"block": "A", "dead_letter": "x"}],
        keys=("block",),
    ),
    Case(
        "lists.json",
        {"l": "ARRAY<STRING>"},
        [{"l": each} for each in LISTS],
        600,
        {"n": agg.count_distinct("l")},
        [{"n": 5}, {"n": 1}],
    ),
    Case(
        "lists.json",
        {"l": "ARRAY<STRING>"},
        [{"l": each} for each in LISTS],
        600,
        {"n": agg.count()},
        [],
        keys=("l",),
        expectations=(q.between("n", 2, 100),),
        quarantined=[["between(n, 2, 100)"]] * 6,
    ),
    Case(
        "gate.json",
        {"k": "STRING", "v": "DOUBLE", "price": "DECIMAL(10,2)", "id": "BIGINT"},
        [
            {"k": "a", "v": float("nan"), "price": "5.00", "id": 5},
            {"k": "b", "v": 1.0, "price": "0.10", "id": 9007199254740993},
            {"k": "c", "v": 2.0, "price": "3.00", "id": None},
            {"k": "z", "v": 2.0, "price": "3.00", "id": 5},
        ],
        600,
        {"mean": agg.mean("v"), "total": agg.sum("price"), "top": agg.max("id")},
        [
            {"k": "c", "mean": 2.0, "total": "3.00", "top": None},
            {"k": "z", "mean": 2.0, "total": "3.00", "top": 5},
        ],
        keys=("k",),
        expectations=(
            q.between("mean", 0, 100),
            q.between("total", 0.1, 1000),
            q.one_of("top", [9007199254740992, 5]),
        ),
        quarantined=[["between(mean, 0, 100)"], ["one_of(top, [9007199254740992, 5])"]],
    ),
    Case(
        "ledger.json",
        {"account": "STRING", "amount": "DOUBLE"},
        [],
        900,
        {"total": agg.sum("amount"), "mean": agg.mean("amount")},
        None,
        keys=("account",),
    ),
    Case(
        "far_future.csv",
        {"order_id": "STRING", "city": "STRING", "amount": "BIGINT"},
        [],
        10 * 3600 + 15 * 60,
        {"n": agg.count(), "total": agg.sum("amount")},
        [{"n": 2, "total": 32}, {"n": 1, "total": 16}],
        event_time="ordered_at",
        max_future_skew="1 hour",
        late=["future_timestamp"],
    ),
]


def landed(case: Case, folder: Path, *, singly: bool) -> list[Path]:
    """Write the case's records as one file, or as one file per event time. Return the files."""
    path, form = EDGES / case.file, case.file.rpartition(".")[2]
    parts: dict[str, str] = {}
    if not singly:
        parts[""] = path.read_text()
    elif form == "json":
        for line in path.read_text().splitlines(keepends=True):
            parts[line[:30]] = parts.get(line[:30], "") + line
    else:
        header, *records = csv.reader(io.StringIO(path.read_text()))
        for n, record in enumerate(records):
            text = io.StringIO()
            csv.writer(text).writerows([header, record])
            parts[str(n)] = text.getvalue()
    folder.mkdir()
    files = [folder / f"{n:03}.{form}" for n in range(len(parts))]
    for n, (file, text) in enumerate(zip(files, parts.values(), strict=True)):
        file.write_text(text)
        os.utime(file, (1_790_000_000 + n, 1_790_000_000 + n))
    return files


def plain(rows: pa.Table, columns: Sequence[str]) -> Rows:
    """Return rows with decimals as text, in a fixed order."""
    names = [name for name in columns if name in rows.column_names]
    kinds = {name: rows.schema.field(name).type for name in names}
    rows = rows.select(names)
    for n, (name, kind) in enumerate(kinds.items()):
        if pa.types.is_decimal(kind):
            rows = rows.set_column(n, name, rows[name].cast(pa.string()))
    return sorted(rows.to_pylist(), key=repr)


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        ("batch", "engine"),
        ("stream", "memory"),
        pytest.param("batch", "memory", marks=NIGHTLY),
        pytest.param("stream", "engine", marks=NIGHTLY),
    ],
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}-{'-'.join(case.keys)}")
def test_edge_files_give_the_expected_log_and_windows(
    warehouse: Warehouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: Case,
    mode: str,
    size: str,
) -> None:
    if size == "engine":
        monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
        monkeypatch.setattr(thresholds, "SMALL_BATCH_BYTES", 0)
        monkeypatch.setattr(in_memory, "is_supported", lambda *_: False)
        monkeypatch.setattr(thresholds, "VALIDATED_ROWS", 1)
    columns = {case.event_time: "TIMESTAMP", **case.columns}
    if case.file.endswith(".csv"):
        # A source lists its columns in the order of the header.
        header = (EDGES / case.file).read_text().partition("\n")[0].split(",")
        columns = {name: columns[name] for name in header}
    source = Source(
        "edges",
        columns,
        case.event_time,
        BoundedOutOfOrderness("0 seconds"),
        max_future_skew=case.max_future_skew,
    )
    asset = WindowedTransform(
        name="edge",
        description="What comes of the file.",
        source=source,
        keys=tuple(case.keys),
        window=Tumbling("1 hour") if case.file == "far_future.csv" else Tumbling("10 minutes"),
        allowed_lateness=0,
        aggregates=case.aggregates,
        function=lambda rows: rows,
        expectations=tuple(case.expectations),
    )
    files = landed(case, tmp_path / "landed", singly=mode == "stream")
    form = case.file.rpartition(".")[2]
    options = {"header": True} if form == "csv" else {}
    connector = FileConnector(source, files[0].parent, form, options)  # pyright: ignore[reportArgumentType]
    list(ingest(warehouse, connector, batch=None if mode == "batch" else 1))
    end_source(warehouse, source)
    if mode == "batch":
        backfill(warehouse, asset)
    else:
        while incremental(warehouse, asset, limit=1) is not None:
            pass

    log = warehouse.load_rows(source.log_table)
    newest = max(a.max_event_time or 0 for a in Log(warehouse, source).read_timeline())
    assert newest == NEW_YEAR + case.newest * 1_000_000
    if case.events:
        # Compare as text, because NaN is not equal to itself.
        assert repr(plain(log, [*case.columns])) == repr(sorted(case.events, key=repr))
    assert warehouse.load_rows(source.dead_letters_table).num_rows == case.dead
    if case.published is not None:
        names = list(dict.fromkeys([*case.keys, *case.aggregates]))
        rows = plain(warehouse.load_rows(asset.published_table), names)
        assert repr(rows) == repr(sorted(case.published, key=repr))
    held = warehouse.has_table(asset.quarantine_table)
    failed = (
        warehouse.load_rows(asset.quarantine_table)["failed_expectations"].to_pylist()
        if held
        else []
    )
    assert sorted([f["expectation"] for f in fs] for fs in failed) == sorted(
        map(list, case.quarantined)
    )
    late = warehouse.load_rows(asset.late_table)["reason"].to_pylist() if case.late else []
    assert late == [*case.late]
    assert check_parity(warehouse, asset).is_equal
