"""Tests that tables that stay open show the newest commits of all writers."""

import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from tidemark.store.committers.open_tables import OpenTables


@pytest.fixture
def tables(tmp_path: Path) -> OpenTables:
    return OpenTables(str(tmp_path))


def _write(tables: OpenTables, rows: int, commits: int = 1) -> None:
    for _ in range(commits):
        write_deltalake(tables.path_of("t"), pa.table({"a": [1] * rows}), mode="append")


def _count(table: DeltaTable) -> int:
    return sum(pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist())


def test_commits_of_other_writers_are_visible(tables: OpenTables) -> None:
    _write(tables, 1)
    first = tables.open_newest("t")
    assert _count(first) == 1
    _write(tables, 2, commits=3)
    assert tables.open_newest("t") is first
    assert (first.version(), _count(first)) == (3, 7)


def test_a_dropped_table_is_not_found(tables: OpenTables) -> None:
    _write(tables, 1)
    tables.open_newest("t")
    shutil.rmtree(tables.path_of("t"))
    with pytest.raises(TableNotFoundError):
        tables.open_newest("t")


def test_a_recreated_table_is_not_confused_with_the_old_one(tables: OpenTables) -> None:
    _write(tables, 1, commits=5)
    table_id = tables.open_newest("t").metadata().id
    for _ in range(5):
        # Once is not enough: a file system often gives the same inode number to the next folder.
        shutil.rmtree(tables.path_of("t"))
        _write(tables, 10)
        again = tables.open_newest("t")
        assert (again.version(), _count(again)) == (0, 10)
        assert again.metadata().id != table_id
        table_id = again.metadata().id


def test_a_table_with_a_cleaned_up_transaction_log_is_reopened(tables: OpenTables) -> None:
    write_deltalake(
        tables.path_of("t"),
        pa.table({"a": [1]}),
        configuration={"delta.logRetentionDuration": "interval 0 seconds"},
    )
    tables.open_newest("t")
    _write(tables, 1, commits=9)
    other = DeltaTable(tables.path_of("t"))
    other.create_checkpoint()
    other.cleanup_metadata()
    newest = tables.open_newest("t")
    assert (newest.version(), _count(newest)) == (9, 10)


def test_each_thread_has_its_own_table_object(tables: OpenTables) -> None:
    _write(tables, 1)
    mine, theirs = tables.open_newest("t"), []
    thread = threading.Thread(target=lambda: theirs.append(tables.open_newest("t")))
    thread.start()
    thread.join()
    assert theirs[0] is not mine


def test_a_reopened_table_stays_at_its_version(tables: OpenTables) -> None:
    _write(tables, 1)
    stays = tables.open_separately("t")
    _write(tables, 1)
    assert (tables.open_newest("t").version(), stays.version()) == (1, 0)


def test_a_table_without_newer_commits_is_not_updated(
    tables: OpenTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tables, 1, commits=2)
    opened = tables.open_newest("t")
    updates = list[int]()
    update = DeltaTable.update_incremental

    def count(table: DeltaTable) -> None:
        updates.append(table.version())
        update(table)

    monkeypatch.setattr(DeltaTable, "update_incremental", count)
    for _ in range(3):
        assert tables.open_newest("t") is opened
    _write(tables, 1)
    for _ in range(3):
        assert tables.open_newest("t") is opened
    assert (updates, opened.version(), _count(opened)) == ([1], 2, 3)


def test_a_trim_that_was_interrupted_after_the_next_entry_hides_no_commit(
    tables: OpenTables,
) -> None:
    """The entry of the open version is left, as if the process died before it was deleted."""
    _write(tables, 1, commits=3)
    tables.open_newest("t")
    _write(tables, 1, commits=4)
    other = DeltaTable(tables.path_of("t"))
    other.create_checkpoint()
    log = Path(tables.path_of("t")) / "_delta_log"
    for version in (3, 4):
        (log / f"{version:020d}.json").unlink()
    assert (log / f"{2:020d}.json").exists()
    newest = tables.open_newest("t")
    assert (newest.version(), _count(newest)) == (6, 7)


def test_a_table_that_was_restored_in_its_folder_is_reopened(tables: OpenTables) -> None:
    _write(tables, 1, commits=5)
    assert tables.open_newest("t").version() == 4
    log = Path(tables.path_of("t")) / "_delta_log"
    for version in (3, 4):
        (log / f"{version:020d}.json").unlink()
    newest = tables.open_newest("t")
    assert (newest.version(), _count(newest)) == (2, 3)


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_table_that_was_restored_and_written_again_is_reopened(
    tables: OpenTables, more: int
) -> None:
    """The folder and the table id stay the same, and no version is missing."""
    _write(tables, 1, commits=5)
    before = tables.open_newest("t")
    identity = tables.find_identity("t")
    assert not tables.close_replaced_tables()
    log = Path(tables.path_of("t")) / "_delta_log"
    for version in (3, 4):
        (log / f"{version:020d}.json").unlink()
    _write(tables, 10, commits=2 + more)
    newest = tables.open_newest("t")
    assert newest is not before
    assert (newest.version(), _count(newest)) == (4 + more, 23 + 10 * more)
    assert tables.find_identity("t") != identity
    assert tables.count_replacements("t") == 1


def test_a_replaced_table_is_reported_once_although_it_was_opened_since(
    tables: OpenTables,
) -> None:
    _write(tables, 1)
    tables.open_newest("t")
    shutil.rmtree(tables.path_of("t"))
    _write(tables, 2)
    assert _count(tables.open_newest("t")) == 2
    assert tables.close_replaced_tables()
    assert not tables.close_replaced_tables()


def test_commits_of_this_thread_do_not_replace_a_table(tables: OpenTables) -> None:
    _write(tables, 1)
    opened = tables.open_newest("t")
    for _ in range(3):
        with tables.stage_commit("t", opened) as committed:
            write_deltalake(committed, pa.table({"a": [1]}), mode="append")
        assert tables.open_newest("t") is opened
    assert not tables.close_replaced_tables()
