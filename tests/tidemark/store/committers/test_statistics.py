"""Tests of tables with instants or dates that Python can't represent."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tidemark.base import thresholds
from tidemark.store.commits.conditions import InRanges
from tidemark.store.committers import statistics, table_upkeep
from tidemark.store.committers.committer import Committer
from tidemark.store.rows import to_display as shown

INSTANT = pa.timestamp("us", "UTC")
NEAR, FAR = 1_700_000_000_000_000, 1_700_000_000_000_000_000
YEAR_0, YEAR_1 = -62_167_219_200_000_000, -62_135_596_800_000_000
BEYOND = [(INSTANT, FAR), (INSTANT, YEAR_0), (pa.date32(), 3_700_000)]


def several(kind: pa.DataType, at: int, rows: int = 1) -> pa.Table:
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
    return pa.table(
        {
            "at": pa.array([at] * rows, plain).cast(kind),
            "arrived": pa.array(range(NEAR, NEAR + rows), pa.int64()).cast(INSTANT),
        }
    )


def told(rows: pa.Table, place: Path) -> dict[str, Any]:
    pq.write_table(rows, place / "rows.parquet")
    return statistics.read_statistics(pq.read_metadata(place / "rows.parquet"))


@pytest.mark.parametrize(("kind", "at"), BEYOND)
def test_values_beyond_pythons_range_have_no_min_and_max(
    tmp_path: Path, kind: pa.DataType, at: int
) -> None:
    found = told(several(kind, at), tmp_path)
    assert list(found["minValues"]) == list(found["maxValues"]) == ["arrived"]
    assert found["nullCount"] == {"at": 0, "arrived": 0}


def test_years_in_statistics_have_four_digits(tmp_path: Path) -> None:
    found = told(several(INSTANT, YEAR_1), tmp_path)
    assert found["minValues"]["at"] == "0001-01-01T00:00:00.000000Z"
    assert found["maxValues"]["arrived"] == "2023-11-14T22:13:20.000000Z"


@pytest.mark.parametrize(
    ("kind", "at", "text"),
    [
        (INSTANT, FAR, "55840-11-08T22:13:20.000000Z"),
        (INSTANT, YEAR_0, "0000-01-01T00:00:00.000000Z"),
        (pa.date32(), 3_700_000, "12100-04-04"),
        (INSTANT, NEAR, datetime.fromtimestamp(NEAR // 1_000_000, UTC)),
    ],
)
def test_values_beyond_pythons_range_are_shown_as_text(
    kind: pa.DataType, at: int, text: object
) -> None:
    (row,) = shown(several(kind, at))
    assert row == {"at": text, "arrived": datetime.fromtimestamp(NEAR // 1_000_000, UTC)}


@pytest.mark.parametrize(("kind", "at"), BEYOND)
def test_tables_beyond_pythons_range_are_written_compacted_and_read(
    tmp_path: Path, kind: pa.DataType, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "COMPACTION_COMMITS", 3)
    monkeypatch.setattr(thresholds, "COMPACTION_FILES", 2)
    store = Committer(cast(Any, None), str(tmp_path))
    store.create_table("t", several(kind, 0).schema, "", {})
    for n in range(7):
        store.append_rows(several(kind, at if n in (1, 5) else 1, rows=n + 1), "t", "writer", n)
    assert store.transaction_version("t", "writer") == 6
    assert len(DeltaTable(tmp_path / "t").file_uris()) < 7
    assert store.compact_table("t", 1 << 20).after == 1
    store.append_rows(several(kind, at), "t", "writer", 7)
    assert store.max_row_count("t") == 29
    assert store.load_rows("t", InRanges("arrived", ((NEAR + 5, NEAR + 7),))).num_rows == 3
    if kind == INSTANT:
        assert store.load_rows("t", InRanges("at", ((0, NEAR),))).num_rows == 28 - 2 - 6


def test_a_commit_succeeds_even_if_its_compaction_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OverflowError

    monkeypatch.setattr(thresholds, "COMPACTION_COMMITS", 1)
    monkeypatch.setattr(table_upkeep, "compact_files", failing)
    store = Committer(cast(Any, None), str(tmp_path))
    store.create_table("t", several(INSTANT, 0).schema, "", {})
    assert store.append_rows(several(INSTANT, 0), "t", "writer", 0) == 1
