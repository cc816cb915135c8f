"""Repair damaged tables: move them back to the newest commits that belong together.

The result is a state that the home was in before, or could have been in. The event log and the
timeline end with the same arrival, so the next ingest continues from there with the data that its
source still has. The next run of an asset with damaged tables recomputes it from the event log. No
ingest and no run may be in progress.

| damaged | repair |
| --- | --- |
| a table's newest commits or their data files | the table goes back to its newest intact version |
| event log or dead letters, against the timeline | the timeline is cut before the first arrival |
| | that lacks a row |
| an asset's tables, against each other or the timeline | they are dropped |
| validation results, against the ledger | the remaining ones are kept, and so are the assets |
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tidemark.base.errors import DataError
from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.tables import CHECKS, ERASURES, LEDGER, Role, TableName
from tidemark.store import integrity
from tidemark.store.checkpoints import FOLDER
from tidemark.store.committers import durable, file_list
from tidemark.store.committers.durable import LOG
from tidemark.store.integrity import Tables, entries

_CHECKPOINT = "*.checkpoint*.parquet"


def repair(
    folder: str, sources: Sequence[Source], definitions: Sequence[Definition]
) -> Iterator[str]:
    """Move tables back to commits that belong together, and yield a message for each step.

    Args:
        folder: the database's, on a local disk.

    Raises:
        DataError: the database is in an object store, or the record of erasures is damaged.
        DamageError: a table is still damaged.
    """
    if "://" in folder:
        raise DataError(
            f"The tables in '{folder}' are in an object store, which does not lose committed "
            "data. If files were deleted there, restore them from its own versions or from a "
            "backup."
        )
    whole = Tables(folder)
    if whole.open(ERASURES) is None and ERASURES in whole.broken:
        raise DataError(
            f"{whole.broken[ERASURES]}. Without this table, Tidemark can't tell which events were "
            "erased on purpose: restore it from a backup."
        )
    for log in sorted(Path(folder).glob(f"*/{LOG}")):
        yield from _back_to_whole(log.parent)
    for source in sources:
        yield from _cut(folder, source)
    lacking = {damage.asset: None for damage in integrity.check(folder, sources, definitions)}
    for asset in (name for name in lacking if name is not None):
        yield from _dropped(folder, asset)
    yield from _vouched_again(folder, definitions)
    if left := integrity.check(folder, sources, definitions):
        raise integrity.DamageError(left)


def _back_to_whole(place: Path) -> Iterator[str]:
    """Remove a table's newest commits until the rest is intact."""
    table, removed = place.name, 0
    while problem := _problem(place):
        known = entries(str(place))
        if _without_checkpoints(place, known):
            continue
        if not known:
            shutil.rmtree(place)
            yield (
                f"Table '{table}' {problem}: the table was removed, because none of its "
                "versions is intact."
            )
            return
        newest = int(known[-1].stem)
        for file in place.glob(f"{LOG}/{newest:020}.*"):
            file.unlink()
        removed += 1
    if removed:
        durable.sync_log(str(place))
        version = int(entries(str(place))[-1].stem)
        yield (
            f"Table '{table}' was moved back to version {version}: {removed} newer commits were "
            "damaged."
        )


def _problem(place: Path) -> str | None:
    tables = Tables(str(place.parent))
    opened = tables.open(place.name)
    if (damage := tables.broken.get(place.name)) is not None:
        return damage.problem
    return "has no commit" if opened is None else None


def _without_checkpoints(place: Path, known: Sequence[Path]) -> bool:
    """Remove unusable or redundant checkpoints, and return whether any was removed.

    A checkpoint is unusable if it is newer than the newest commit, and redundant if the log has all
    commits.
    """
    found = [*place.glob(f"{LOG}/{_CHECKPOINT}")]
    whole = [int(entry.stem) for entry in known] == [*range(len(known))]
    newest = int(known[-1].stem) if known else -1
    needless = [file for file in found if whole or int(file.name.partition(".")[0]) > newest]
    for file in needless:
        file.unlink()
    if needless:
        with suppress(FileNotFoundError):
            Path(place, LOG, "_last_checkpoint").unlink()
    return bool(needless)


def _cut(folder: str, source: Source) -> Iterator[str]:
    """Cut the timeline before the first arrival that lacks a row."""
    tables = Tables(folder)
    timeline = tables.open(source.timeline_table)
    if timeline is None:
        return
    for table in (source.log_table, source.dead_letters_table):
        tables.open(table)
    app = integrity.ingest_app(source)
    if not [*integrity.source_damages(tables, source)]:
        return
    bad = [
        arrival
        for table in (source.log_table, source.dead_letters_table)
        for arrival, rows in integrity.expected(tables, source, timeline, table).items()
        if rows != _by_arrival(tables.open(table))[arrival]
    ]
    rows = file_list.load(timeline, ())
    last = max(rows["arrival"].to_pylist(), default=-1)
    through = min(bad, default=last + 1) - 1
    kept = rows.filter(ds.field("arrival") <= through)
    vouched = integrity.versions(tables, app, (source.log_table, source.dead_letters_table))
    told = [Transaction(*each) for each in vouched.items()]
    write_deltalake(
        timeline, kept, mode="overwrite", commit_properties=CommitProperties(None, None, told)
    )
    durable.sync_commit(f"{folder}/{source.timeline_table}", timeline)
    events = sum(n or 0 for n in rows["rows"].to_pylist()) - sum(
        n or 0 for n in kept["rows"].to_pylist()
    )
    yield (
        f"Source '{source.name}' was moved back to arrival {through}: the next ingest reads the "
        f"{last - through:,} arrivals after it again, with {events:,} events."
    )


def _by_arrival(opened: DeltaTable | None) -> Counter[int]:
    if opened is None:
        return Counter()
    return Counter(file_list.load(opened, (), ["arrival"])["arrival"].to_pylist())


def _dropped(folder: str, asset: str) -> Iterator[str]:
    """Remove all tables of an asset, its state first, and the checkpoint of its streaming query."""
    shutil.rmtree(Path(folder, FOLDER, asset), ignore_errors=True)
    found = [t for t in _owned(folder) if t.owner == tables_of.asset(asset)]
    for table in sorted(found, key=lambda t: (t.role is not Role.STATE, t)):
        shutil.rmtree(Path(folder, table))
    durable.sync_folder(folder)
    yield (
        f"The tables of '{asset}' were removed: its next run recomputes them from the event log. "
        "Decide again about quarantined windows that were released or discarded."
    )


def _vouched_again(folder: str, definitions: Sequence[Definition]) -> Iterator[str]:
    """Let the ledger vouch for the validation results that are left."""
    tables = Tables(folder)
    ledger = tables.open(LEDGER)
    if ledger is None or not [*integrity.results_lacking(tables, definitions)]:
        return
    there = tables.version(CHECKS)
    told = [Transaction(app, there) for app in integrity.results_apps(tables, definitions)]
    nothing = file_list.load(ledger, ()).slice(0, 0)
    write_deltalake(
        ledger, nothing, mode="append", commit_properties=CommitProperties(None, None, told)
    )
    durable.sync_commit(f"{folder}/{LEDGER}", ledger)
    yield (
        f"Table '{CHECKS}' lacks its newest commits: the results of some validations are lost. "
        "The assets have all their windows."
    )


def _owned(folder: str) -> Iterable[TableName]:
    for log in Path(folder).glob(f"*/{LOG}"):
        name = log.parent.name
        told = TableName.of(name, DeltaTable(str(log.parent)).metadata().configuration)
        if told is not None:
            yield told
