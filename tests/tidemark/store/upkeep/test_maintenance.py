"""Tests of maintenance, which changes no row and deletes only files that no reader needs."""

import json
import multiprocessing
import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from helpers.data.support import READINGS
from tidemark.base.errors import ConflictError, DataError
from tidemark.define.tables import TableName
from tidemark.store.commits.conditions import InRanges
from tidemark.store.committers import committer, compaction
from tidemark.store.committers.staged import File
from tidemark.store.committers.values import KeptFiles, Merge
from tidemark.store.upkeep.maintenance import (
    DAY,
    MaintenanceResult,
    combine_errors,
    maintain_tables,
)
from tidemark.store.warehouse import Warehouse

NOW = time.time_ns() // 1000
COLUMNS = pa.schema({"seq": pa.int64(), "key": pa.string(), "value": pa.int64()})
TIMELINE = pa.schema({"arrival": pa.int64(), "lookups": pa.string()})


def numbered(*numbers: int, value: int = 0) -> pa.Table:
    columns = [list(numbers), [f"k{n}" for n in numbers], [value] * len(numbers)]
    return pa.table(columns, schema=COLUMNS)


def opened(location: str, database: str = "db") -> Warehouse:
    """Return a warehouse whose few rows need no engine."""
    return Warehouse(cast(Any, None), location, database, registered=False)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the location of a warehouse with a table of sixty commits, one row each."""
    place = tmp_path_factory.mktemp("template")
    made(opened(str(place)), "t", 60)
    return place


@pytest.fixture
def bare(tmp_path: Path, template: Path) -> Warehouse:
    """Return a copy of that warehouse that needs no engine."""
    shutil.copytree(template, tmp_path / "warehouse")
    return opened(str(tmp_path / "warehouse"))


def lookup(name: str) -> TableName:
    """Return the name of a lookup table of some source."""
    return READINGS.lookup_table(name)


def made(warehouse: Warehouse, table: str, commits: int) -> None:
    warehouse.ensure_table(lookup(table), numbered(), feed=True)
    for n in range(commits):
        warehouse.append_rows(numbered(n), table, "writer", n)


def rows(warehouse: Warehouse, table: str = "t") -> list[int]:
    return sorted(warehouse.load_rows(table)["seq"].to_pylist())


def live(warehouse: Warehouse, table: str = "t") -> list[Path]:
    return [Path(uri) for uri in DeltaTable(warehouse.path_of(table)).file_uris()]


def one(
    warehouse: Warehouse, table: str = "t", *, retention: int = 7 * DAY, dry_run: bool = False
) -> MaintenanceResult:
    (found,) = maintain_tables(warehouse, [table], retention=retention, dry_run=dry_run)
    return found


def age(folder: Path, days: float) -> None:
    """Set the modification time of all files below a folder to some days ago."""
    then = time.time() - days * 86_400
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then))


def test_appends_compact_small_files_and_keep_large_ones(bare: Warehouse) -> None:
    assert len(live(bare)) == 60
    warehouse = opened(bare.location, "long")
    made(warehouse, "t", 120)
    # The hundredth commit compacted a hundred files; later ones wait for the next time.
    assert len(live(warehouse)) == 120 - 99
    assert rows(warehouse) == list(range(120))
    assert warehouse.transaction_version("t", "writer") == 119
    folded = bare.compact_table("t", 16 << 20)
    assert folded == (60, 1)
    assert rows(bare) == list(range(60))
    # A file that is not small compared to the target size is not compacted.
    (large,) = live(bare)
    for n in (60, 61):
        bare.append_rows(numbered(n), "t", "writer", n)
    assert bare.compact_table("t", 4 * large.stat().st_size) == (3, 2)
    assert large in live(bare)


def test_a_compaction_is_not_a_data_change_for_readers(bare: Warehouse) -> None:
    before = bare.newest_version("t")
    bare.compact_table("t", 16 << 20)
    log = Path(bare.path_of("t"), "_delta_log", f"{before + 1:020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    changes = [a[kind]["dataChange"] for a in actions for kind in ("add", "remove") if kind in a]
    assert Counter(changes) == {False: 61}


def test_compacted_files_keep_their_statistics(bare: Warehouse) -> None:
    bare.compact_table("t", 16 << 20)
    assert bare.max_value("t", "seq") == 59
    found = bare.load_rows("t", InRanges("seq", ((7, 9),), instants=False))
    assert found["seq"].to_pylist() == [7, 8]
    (file,) = pa.table(DeltaTable(bare.path_of("t")).get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min.seq"], file["max.seq"]) == (60, 0, 59)


def test_concurrent_appends_make_a_compaction_give_up(
    bare: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, count = compaction._write_files, 0

    def slow(*arguments: Any) -> list[File]:  # noqa: ANN401
        nonlocal count
        count += 1
        bare.append_rows(numbered(100 + count), "t", "writer", 100 + count)
        return write(*arguments)

    monkeypatch.setattr(compaction, "_write_files", slow)
    with pytest.raises(ConflictError, match="Table 't' is busy"):
        bare.compact_table("t", 16 << 20)
    assert count > 1
    assert rows(bare) == [*range(60), *(100 + n for n in range(1, count + 1))]
    # The files of the failed compaction were deleted.
    assert not list(Path(bare.path_of("t")).glob("compacted-*"))
    found = one(bare)
    assert found.busy
    assert found.before == found.after


@pytest.mark.parametrize("where", ["TRUE", "seq >= 0"])
def test_a_replacement_retries_after_a_concurrent_compaction(
    bare: Warehouse, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    write, tries = committer.write_deltalake, 0

    def late(opened: DeltaTable, *rows: Any, **options: Any) -> None:  # noqa: ANN401
        nonlocal tries
        tries += 1
        if tries == 1:
            assert bare.compact_table("t", 16 << 20) == (60, 1)
        write(opened, *rows, **options)

    monkeypatch.setattr(committer, "write_deltalake", late)
    assert bare.replace_rows(numbered(99), "t", where, "other", 0) == 1
    assert (rows(bare), tries) == ([99], 2)


def _work(place: str, who: int, until: float, done: "multiprocessing.Queue[list[int]]") -> None:
    """Append, merge, replace some or all rows and compact at random, until a point in time."""
    warehouse, chance, mine = opened(place), random.Random(who), list[int]()
    number = 0
    while time.time() < until:
        number += 1
        app, what = f"w{who}", chance.random()
        try:
            if what < 0.35:
                warehouse.append_rows(numbered(1_000 * who + number), "busy", app, number)
            elif what < 0.6:
                mark = numbered(who, value=number)
                warehouse.merge_rows(
                    mark, "busy", Merge(on=["seq"], update="s.value > t.value"), app, number
                )
            elif what < 0.7:
                warehouse.replace_rows(numbered(-who), "busy", f"seq = {-who}", app, number)
            elif what < 0.8:
                all_rows = numbered(50)
                warehouse.replace_rows(all_rows, "whole", "TRUE", app, number)
            else:
                for table in ("busy", "whole"):
                    warehouse.compact_table(table, 16 << 20)
                continue
        except ConflictError:
            continue
        if what < 0.35:
            mine.append(1_000 * who + number)
    done.put(mine)


# Many commits in several threads.
@pytest.mark.slow
def test_concurrent_writes_and_compactions_lose_and_double_no_row(
    tmp_path: Path,
) -> None:
    warehouse = opened(str(tmp_path))
    for table in ("busy", "whole"):
        made(warehouse, table, 0)
    warehouse.append_rows(numbered(1, 2, 3, -1, -2, -3), "busy", "first", 0)
    context = multiprocessing.get_context("spawn")
    done: multiprocessing.Queue[list[int]] = context.Queue()
    until = time.time() + 12
    workers = [
        context.Process(target=_work, args=(str(tmp_path), who, until, done)) for who in (1, 2, 3)
    ]
    for worker in workers:
        worker.start()
    added = [number for _ in workers for number in done.get(timeout=180)]
    for worker in workers:
        worker.join()
    assert rows(warehouse, "busy") == sorted([-3, -2, -1, 1, 2, 3, *added])
    assert rows(warehouse, "whole") in ([50], [])


def test_removed_files_stay_for_the_retention_period(bare: Warehouse) -> None:
    assert one(bare).removed == 0
    (file,) = live(bare)
    assert one(bare, retention=0, dry_run=True).removed == 60
    freed = one(bare, retention=0)
    assert (freed.before, freed.after, freed.removed) == (1, 1, 60)
    assert freed.freed > 60 * 500
    assert list(Path(bare.path_of("t")).glob("*.parquet")) == [file]
    assert rows(bare) == list(range(60))


def test_versions_recorded_by_arrivals_stay_readable(bare: Warehouse) -> None:
    bare.ensure_table(READINGS.timeline_table, TIMELINE.empty_table())
    told = [["{}", '{"t": 9, "elsewhere": 4}', '{"t": 20}'][n] for n in range(3)]
    bare.append_rows(pa.table([[0, 1, 2], told], schema=TIMELINE), "readings_timeline")
    age(Path(bare.path_of("t")), 60)
    found = one(bare, retention=0)
    assert found.spared == "2 recorded versions"
    # The twenty files of version 20 stay: commit 1 was the first with a row.
    assert found.removed == 40
    for version in (9, 20):
        then = DeltaTable(bare.path_of("t"), version).to_pyarrow_table()
        assert sorted(then["seq"].to_pylist()) == list(range(version))


def test_changes_that_a_mart_has_not_read_are_kept(bare: Warehouse) -> None:
    merging = Merge(on=["seq"])
    for n in range(3):
        bare.merge_rows(numbered(n, value=9), "t", merging, "merger", n)
    marts = opened(bare.location, "db_marts")
    for name, version in (("slow", 60), ("quick", 63)):
        read = {"code": "x", str(DeltaTable(bare.path_of("t")).metadata().id): [version, "then"]}
        properties = {"tidemark.read": json.dumps(read)}
        marts.create_table(name, COLUMNS, "", properties)
    old = Path(bare.path_of("t"))
    age(old, 60)
    # The merges were 50 days ago, after the slow mart's last read.
    for n in (61, 62, 63):
        then = time.time() - (50 - n / 100) * 86_400
        os.utime(old / "_delta_log" / f"{n:020}.json", (then, then))
    before = changes(bare, 61)
    found = one(bare, retention=0)
    assert found.spared == "unread changes since version 60"
    assert changes(bare, 61) == before
    assert len(before) == 6
    marts.create_table("other", COLUMNS, "", {})
    DeltaTable(marts.path_of("slow")).alter.set_table_properties(
        {
            "tidemark.read": json.dumps(
                {str(DeltaTable(bare.path_of("t")).metadata().id): [63, "then"]}
            )
        },
        raise_if_not_exists=False,
    )
    assert one(bare, retention=0).spared in ("", "unread changes since version 63")


def changes(warehouse: Warehouse, since: int) -> list[tuple[int, int, str]]:
    feed = pa.table(DeltaTable(warehouse.path_of("t")).load_cdf(starting_version=since).read_all())
    columns = (feed[c].to_pylist() for c in ("seq", "value", "_change_type"))
    return sorted(zip(*columns, strict=True))


def test_changes_that_a_query_has_not_read_are_kept(bare: Warehouse) -> None:
    life = DeltaTable(bare.path_of("t")).metadata().id
    folder = Path(bare.path_of("_checkpoints"), "followed", "offsets")
    folder.mkdir(parents=True)
    for batch, version in ((8, 30), (9, 41)):
        offset = {"sourceVersion": 1, "reservoirId": life, "reservoirVersion": version}
        (folder / str(batch)).write_text("v1\n{}\n" + json.dumps(offset))
        (folder / f".{batch}.crc").write_text("x")
    assert one(bare, retention=0).spared == "unread changes since version 40"


def test_uncommitted_files_stay_for_a_day(bare: Warehouse) -> None:
    table = Path(bare.path_of("t"))
    for name, days in (("part-young", 0.5), ("part-old", 1.5)):
        staged = table / name
        staged.mkdir()
        for file in ("part-0.parquet", "_SUCCESS", ".part-0.parquet.crc"):
            (staged / file).write_bytes(b"1234")
        age(staged, days)
    assert bare.vacuum_table("t", KeptFiles(NOW, NOW - DAY), dry_run=True) == (3, 12)
    assert one(bare, retention=0).removed == 60 + 3
    assert (table / "part-young" / "part-0.parquet").exists()
    assert not (table / "part-old").exists()


def test_scratch_folders_are_removed_after_a_day(bare: Warehouse) -> None:
    for name, days in (("young", 0.5), ("old", 1.5)):
        folder = Path(bare.path_of("_scratch"), name, "1")
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(b"1234")
        age(folder.parent, days)
    *_, dry = maintain_tables(bare, dry_run=True)
    *_, done = maintain_tables(bare)
    assert dry == done == MaintenanceResult("_scratch", removed=1, freed=4)
    assert [p.name for p in Path(bare.path_of("_scratch")).iterdir()] == ["young"]


def test_old_log_entries_are_removed_unless_a_reader_needs_them(bare: Warehouse) -> None:
    made(bare, "read", 30)
    bare.ensure_table(READINGS.timeline_table, TIMELINE.empty_table())
    bare.append_rows(pa.table([[0], ['{"read": 3}']], schema=TIMELINE), "readings_timeline")
    for table in ("t", "read"):
        age(Path(bare.path_of(table), "_delta_log"), 8)
        # A checkpoint alone removes no log entry.
        DeltaTable(bare.path_of(table)).create_checkpoint()
        assert Path(bare.path_of(table), "_delta_log", f"{0:020}.json").exists()
        one(bare, table)
    there = [Path(bare.path_of(t), "_delta_log", f"{0:020}.json").exists() for t in ("t", "read")]
    assert there == [False, True]
    assert rows(bare) == list(range(60))


def test_an_unknown_table_is_named(bare: Warehouse) -> None:
    Path(bare.path_of("stray")).mkdir()
    with pytest.raises(DataError, match=r"no Tidemark table 'nope'. Available: t\."):
        list(maintain_tables(bare, ["nope"]))


def test_a_table_dropped_during_maintenance_is_skipped(
    bare: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("u", "v_timeline", "w_state"):
        made(bare, table, 2)
    there, properties = bare.list_tables(), bare.read_properties

    def dropped(table: str) -> dict[str, str]:
        told = properties(table)
        if table != "t":
            shutil.rmtree(bare.path_of(table))
        return told

    monkeypatch.setattr(bare, "list_tables", lambda: [*there, "x"])
    monkeypatch.setattr(bare, "read_properties", dropped)
    found = [done.table for done in maintain_tables(bare)]
    assert there == ["t", "u", "v_timeline", "w_state"]
    assert found == ["t", "_scratch"]


def test_an_error_in_one_table_is_reported_and_others_continue(bare: Warehouse) -> None:
    made(bare, "a", 3)
    made(bare, "b", 3)
    live(bare, "a")[0].unlink()
    told, folded, *others = maintain_tables(bare)
    assert (told.table, folded, [each.table for each in others]) == (
        "a",
        MaintenanceResult("b", 3, 1),
        ["t", "_scratch"],
    )
    assert "parquet" in told.trouble
    trouble = combine_errors([told, folded, *others])
    assert str(trouble).startswith("Maintenance failed for some tables. Table 'a': ")
    assert combine_errors(others) is None
