"""Each commit is synced to the disk before the next one, and a long log makes this no slower."""

import os
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tidemark.store.committers import durable
from tidemark.store.committers.durable import LAST_CHECKPOINT, LOG
from tidemark.store.warehouse import Warehouse

ROWS = pa.table({"n": pa.array([1], pa.int64())})
COMMITS = 60
"""As many commits make two checkpoints."""


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_a_commit_syncs_the_files_that_it_has_written_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Warehouse(cast("Any", None), str(tmp_path), "home", registered=False)
    warehouse.ensure_table("numbers", ROWS)
    table = Path(warehouse.path_of("numbers"))
    synced = set[Path]()

    def record(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink())

    # Tests usually run without syncs.
    monkeypatch.setattr(durable, "_is_enabled", lambda: True)
    monkeypatch.setattr(os, "fsync", record)
    checkpoints = 0
    for number in range(COMMITS):
        before = files_in(table)
        synced.clear()
        warehouse.append_rows(ROWS, "numbers", "writer", number)
        written = files_in(table) - before
        compacted = {path for path in written if path.suffix == ".json"}
        checkpoints += any(path.name.endswith(".checkpoint.parquet") for path in written)
        assert written <= synced
        assert {table, table / LOG} <= synced
        # A compaction is a commit of its own.
        assert len(compacted) in {1, 2}
        assert synced - written <= {table, table / LOG, table / LOG / LAST_CHECKPOINT}
    assert checkpoints == 2
