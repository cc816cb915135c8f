"""Tests that a compaction keeps the newest windows of a table apart from older ones.

Otherwise, each merge would rewrite all windows that the table has, and each run would read them.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.base import thresholds
from tidemark.define.tables import Role, TableName
from tidemark.store.committers.values import Merge
from tidemark.store.rows import INSTANT
from tidemark.store.warehouse import Warehouse

SECOND = 1_000_000
COLUMNS = pa.schema([("window_start", INSTANT), ("key", pa.int64()), ("events", pa.int64())])


def opened(folder: Path, role: Role = Role.PUBLISHED) -> Warehouse:
    warehouse = Warehouse(cast("Any", None), str(folder), "home", registered=False)
    warehouse.ensure_table(TableName("t", "asset a", role), COLUMNS.empty_table(), feed=True)
    return warehouse


def rows_of(starts: Sequence[int | None], key: int = 0) -> pa.Table:
    """Return a row for each start of a window, in seconds; None for a row without a window."""
    micros = [None if start is None else start * SECOND for start in starts]
    columns = [
        pa.array(micros, pa.int64()).cast(INSTANT),
        pa.array([key] * len(starts), pa.int64()),
        pa.array([1] * len(starts), pa.int64()),
    ]
    return pa.table(columns, schema=COLUMNS)


def files(warehouse: Warehouse) -> list[dict[str, Any]]:
    table = DeltaTable(warehouse.path_of("t"))
    return pa.table(table.get_add_actions(flatten=True)).to_pylist()


def contents(warehouse: Warehouse) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in warehouse.load_rows("t").to_pylist())


_STARTS = st.lists(st.none() | st.integers(0, 40), max_size=30)


@given(commits=st.lists(_STARTS, min_size=2, max_size=8), newest_rows=st.integers(1, 20))
@settings(max_examples=30)
def test_a_compaction_keeps_all_rows_and_divides_them_by_window(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[int | None]],
    newest_rows: int,
) -> None:
    warehouse = opened(tmp_path_factory.mktemp("compacted"))
    for number, starts in enumerate(commits):
        warehouse.append_rows(rows_of(starts, number), "t", "writer", number)
    before = contents(warehouse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "NEWEST_ROWS", newest_rows)
        planned = warehouse.compact_table("t", 16 << 20, dry_run=True)
        done = warehouse.compact_table("t", 16 << 20)
        assert contents(warehouse) == before
        assert planned == done
        assert done.after == len(files(warehouse))
        assert warehouse.compact_table("t", 16 << 20) == (done.after, done.after)
    windows = sorted(
        (file["min.window_start"], file["max.window_start"])
        for file in files(warehouse)
        if file["min.window_start"] is not None
    )
    if done.after < done.before:
        assert all(older[1] < newer[0] for older, newer in pairwise(windows))


def test_a_merge_rewrites_only_the_newest_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream merges into the newest windows; its table grows, but not what a merge rewrites."""
    monkeypatch.setattr(thresholds, "NEWEST_ROWS", 10)
    warehouse = opened(tmp_path)
    rewritten = list[int]()
    for number in range(160):
        start = number // 2
        by_window = Merge(
            on=["window_start", "key"],
            within=f"t.window_start >= timestamp_micros({(start - 1) * SECOND})",
        )
        warehouse.merge_rows(rows_of([start] * 4, number % 2), "t", by_window, "run", number)
        newest = max(files(warehouse), key=lambda file: file["max.window_start"])
        rewritten.append(newest["num_records"])
    assert sum(contents(warehouse).values()) == 160 * 4
    assert max(rewritten[100:]) <= max(rewritten[:100])


def test_a_large_file_with_the_newest_windows_is_divided(tmp_path: Path) -> None:
    """A backfill leaves such a file."""
    warehouse = opened(tmp_path)
    warehouse.append_rows(rows_of(range(50_000)), "t", "writer", 0)
    result = warehouse.compact_table("t", 1_000)
    rows = sorted(file["num_records"] for file in files(warehouse))
    assert rows == [2_500, 7_500, 10_000, 30_000]
    assert result == (1, 4)


@pytest.mark.parametrize("role", [Role.EVENT_LOG, Role.LATE])
def test_other_tables_keep_the_order_of_their_commits(tmp_path: Path, role: Role) -> None:
    """The events of a chain are windows, and are read by arrival."""
    warehouse = opened(tmp_path, role)
    starts = [7, 3, 9, 1]
    for number, start in enumerate(starts):
        warehouse.append_rows(rows_of([start] * 3_000, number), "t", "writer", number)
    assert warehouse.compact_table("t", 16 << 20) == (4, 1)
    (file,) = files(warehouse)
    keys = warehouse.load_rows("t")["key"].to_pylist()
    assert (file["num_records"], keys) == (12_000, sorted(keys))
