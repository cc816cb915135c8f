"""Tables that stay open are as they are now, whoever wrote them meanwhile."""

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
        write_deltalake(tables.path("t"), pa.table({"a": [1] * rows}), mode="append")


def _count(table: DeltaTable) -> int:
    return sum(pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist())


def test_what_others_commit_is_seen(tables: OpenTables) -> None:
    _write(tables, 1)
    first = tables.newest("t")
    assert _count(first) == 1
    _write(tables, 2, commits=3)
    assert tables.newest("t") is first
    assert (first.version(), _count(first)) == (3, 7)


def test_a_table_that_was_dropped_is_not_there(tables: OpenTables) -> None:
    _write(tables, 1)
    tables.newest("t")
    shutil.rmtree(tables.path("t"))
    with pytest.raises(TableNotFoundError):
        tables.newest("t")


def test_a_table_made_anew_is_not_taken_for_the_old_one(tables: OpenTables) -> None:
    _write(tables, 1, commits=5)
    table_id = tables.newest("t").metadata().id
    for _ in range(5):
        # Once is not enough: the file system likes to give the same number to the next folder.
        shutil.rmtree(tables.path("t"))
        _write(tables, 10)
        again = tables.newest("t")
        assert (again.version(), _count(again)) == (0, 10)
        assert again.metadata().id != table_id
        table_id = again.metadata().id


def test_log_that_was_cleaned_up(tables: OpenTables) -> None:
    write_deltalake(
        tables.path("t"),
        pa.table({"a": [1]}),
        configuration={"delta.logRetentionDuration": "interval 0 seconds"},
    )
    opened = tables.newest("t")
    _write(tables, 1, commits=9)
    other = DeltaTable(tables.path("t"))
    other.create_checkpoint()
    other.cleanup_metadata()
    assert tables.newest("t") is opened
    assert (opened.version(), _count(opened)) == (9, 10)


def test_each_thread_has_its_own(tables: OpenTables) -> None:
    _write(tables, 1)
    mine, theirs = tables.newest("t"), []
    thread = threading.Thread(target=lambda: theirs.append(tables.newest("t")))
    thread.start()
    thread.join()
    assert theirs[0] is not mine


def test_a_look_that_is_to_stay_is_not_moved_on(tables: OpenTables) -> None:
    _write(tables, 1)
    stays = tables.reopen("t")
    _write(tables, 1)
    assert (tables.newest("t").version(), stays.version()) == (1, 0)
