"""Tests of claims on scratch folders, which are removed only after their process has died."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from unittest.mock import create_autospec

import pytest

from tidemark.compute.materialize import temp_tables
from tidemark.store import claims
from tidemark.store.claims import SweepResult
from tidemark.store.warehouse import SCRATCH, Warehouse

CLAIMING = """
import sys, time
from tidemark.store.claims import claim_folder
assert claim_folder(sys.argv[1]) is not None
print("claimed", flush=True)
time.sleep(60)
"""


def test_a_scratch_folder_is_removed_after_its_process_is_killed(tmp_path: Path) -> None:
    scratch = tmp_path / "_scratch"
    own, left = scratch / "own", scratch / "left"
    with subprocess.Popen(
        [sys.executable, "-c", CLAIMING, left],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        handle = claims.claim_folder(str(own))
        for folder in (own, left):
            (folder / "part-1").mkdir()
            (folder / "part-1" / "rows.parquet").write_text("rows")
        assert claims.sweep_folders(str(scratch)) == SweepResult(0, ["left", "own"])
        process.send_signal(signal.SIGKILL)
    assert claims.sweep_folders(str(scratch)) == SweepResult(1, ["own"])
    assert [path.name for path in scratch.iterdir()] == ["own"]
    claims.release_claim(handle)
    assert claims.sweep_folders(str(scratch)) == SweepResult(1, [])
    assert claims.sweep_folders(str(tmp_path / "none")) == SweepResult(0, [])


def test_a_claim_follows_a_table_that_is_moved_to_scratch(tmp_path: Path) -> None:
    table, scratch = tmp_path / "table", tmp_path / "_scratch"
    handle = claims.claim_folder(str(table))
    scratch.mkdir()
    table.rename(scratch / "dropped")
    assert claims.sweep_folders(str(scratch)) == SweepResult(0, ["dropped"])
    claims.release_claim(handle)
    assert claims.sweep_folders(str(scratch)) == SweepResult(1, [])


def test_object_stores_have_no_claims() -> None:
    assert claims.claim_folder("mock:///bucket/_scratch/1") is None


def test_a_failed_removal_keeps_the_first_error_and_frees_the_claim(
    tmp_path: Path,
) -> None:
    """The engine may still write there for a moment after a failed query."""
    warehouse = create_autospec(Warehouse, instance=True)
    warehouse.path_of.side_effect = lambda name: str(tmp_path / name)
    warehouse.materialize_rows.side_effect = ZeroDivisionError
    warehouse.remove_folder.side_effect = OSError(39, "Directory not empty")
    with pytest.raises(ZeroDivisionError), temp_tables(warehouse) as place:
        place.materialize(cast(Any, None), few=False)
    assert warehouse.remove_folder.called
    assert claims.sweep_folders(str(tmp_path / SCRATCH)) == SweepResult(1, [])
