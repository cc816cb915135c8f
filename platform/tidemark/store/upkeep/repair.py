"""Repair damaged tables: move them back to the newest commits that belong together.

The result is a state that the home was in before, or could have been in. After a repair, the event
log and the timeline end with the same arrival, and the next ingest continues from there with the
data that its source still has. Everything that an asset's tables lack can be computed again, except
decisions about quarantined windows. The repair therefore keeps the tables, and lets the next run
write the missing rows. No ingest and no run may be in progress.

- A table's newest commits, or their data files, are damaged: the table goes back to its newest
  intact version.
- The event log or the dead letters lack rows that the timeline counts: the timeline is cut before
  the first arrival that lacks a row.
- An asset's tables other than its state lack commits that the ledger vouches for: the ledger goes
  back to the newest commit that all of these tables have. The next run publishes the later commits
  again, for the tables that lack them.
- A state lacks commits that other tables have, or the timeline lacks arrivals that the state has
  counted: the state is removed. The next run recomputes it from the event log, and replaces the
  rows of the asset's other tables.
- A published table lacks windows that were released from quarantine: the state is removed, as
  in the previous case. The next run quarantines the windows again.
- A roll-up's tables lack commits that the ledger vouches for: the tables are removed. The next run
  recomputes them.
- Validation results lack commits that the ledger vouches for: the remaining results are kept.
  Assets are unchanged.
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.tables import CHECKS, ERASURES, LEDGER, Role, TableName
from tidemark.store import integrity
from tidemark.store.commits.kinds import TableSwap
from tidemark.store.committers import durable, file_list
from tidemark.store.committers.durable import LOG
from tidemark.store.integrity import Tables, entries
from tidemark.store.upkeep.checkpoints import FOLDER

_CHECKPOINT = "*.checkpoint*.parquet"


def repair(
    folder: str, sources: Sequence[Source], definitions: Sequence[Definition]
) -> Iterator[str]:
    """Move tables back to commits that belong together, and yield a message for each step.

    Args:
        folder: the database's folder, on a local disk.

    Raises:
        DataError: the folder is in an object store, or the table of erasures is damaged.
        DamageError: the tables still do not belong together after the repair.
    """
    if "://" in folder:
        raise DataError(
            f"The tables in '{folder}' can't be repaired: only tables on a local disk can, because "
            "an object store does not lose committed data. If files were deleted in it, restore "
            "them from the store's own versions or from a backup."
        )
    whole = Tables(folder)
    if whole.open(ERASURES) is None and ERASURES in whole.broken:
        raise DataError(
            f"{whole.broken[ERASURES]}. Without this table, Tidemark can't determine which events "
            "were erased on purpose: restore it from a backup."
        )
    for log in sorted(Path(folder).glob(f"*/{LOG}")):
        yield from _back_to_whole(log.parent)
    for source in sources:
        yield from _cut(folder, source)
    lacking = defaultdict[str, set[str]](set)
    for damage in integrity.check(folder, sources, definitions):
        if damage.asset is not None:
            lacking[damage.asset].add(damage.table)
    known = {definition.name: definition for definition in definitions}
    for asset, tables in lacking.items():
        definition = known.get(asset)
        if definition is None or not _publish_again(folder, definition, tables):
            yield from _recompute(folder, asset, definition)
        else:
            yield _describe_publishing(definition, tables)
    yield from _vouched_again(folder, definitions)
    if left := integrity.check(folder, sources, definitions):
        raise integrity.DamageError(left)


def _back_to_whole(place: Path) -> Iterator[str]:
    """Remove a table's newest commits until the table is intact."""
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
            f"Table '{table}' was moved back to version {version}, because of "
            f"{format_count(removed, 'damaged commit')}."
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
    """Remove the first arrival that lacks a row, or that is not the next one after its predecessor,
    and all later arrivals from the timeline."""
    tables = Tables(folder)
    timeline = tables.open(source.timeline_table)
    if timeline is None:
        return
    for table in (source.log_table, source.dead_letters_table):
        tables.open(table)
    app = integrity.ingest_app(source)
    if not [*tables.source_damages(source)]:
        return
    bad = [
        arrival
        for table in (source.log_table, source.dead_letters_table)
        for arrival, rows in tables.expected_rows(source, timeline, table).items()
        if rows != _by_arrival(tables.open(table))[arrival]
    ]
    if (fault := integrity.find_sequence_fault(timeline)) is not None:
        bad.append(fault.arrival)
    rows = file_list.load(timeline, ())
    last = max(rows["arrival"].to_pylist(), default=-1)
    through = min(bad, default=last + 1) - 1
    kept = rows.filter(ds.field("arrival") <= through)
    vouched = tables.versions(app, (source.log_table, source.dead_letters_table))
    properties = [Transaction(*each) for each in vouched.items()]
    write_deltalake(
        timeline, kept, mode="overwrite", commit_properties=CommitProperties(None, None, properties)
    )
    durable.sync_commit(f"{folder}/{source.timeline_table}", timeline)
    events = sum(n or 0 for n in rows["rows"].to_pylist()) - sum(
        n or 0 for n in kept["rows"].to_pylist()
    )
    yield (
        f"Source '{source.name}' was moved back to arrival {through}: the next ingest reads the "
        f"{format_count(last - through, 'arrival')} after it again, with "
        f"{format_count(events, 'event')}."
    )


def _by_arrival(opened: DeltaTable | None) -> Counter[int]:
    if opened is None:
        return Counter()
    return Counter(file_list.load(opened, (), ["arrival"])["arrival"].to_pylist())


def _publish_again(folder: str, definition: Definition, lacking: Iterable[str]) -> bool:
    """Let the next run publish an asset's newest commits again. Return False if it can't.

    The ledger is moved back to the newest commit that all tables in `lacking` have. Each table
    accepts a commit only once, so only the tables in `lacking` change.
    """
    if definition.follows is not None or definition.state_table in lacking:
        return False
    tables = Tables(folder)
    app, ledger = tables.asset_app(definition), tables.open(LEDGER)
    state = tables.open(definition.state_table)
    own = set(definition.tables)
    if app is None or ledger is None or state is None or not own.issuperset(lacking):
        return False
    for table in own:
        tables.open(table)
    if tables.lacks_release(definition, app):
        return False
    transactions = [tables.transaction(table, app) for table in lacking]
    through = min(-1 if commit_number is None else commit_number for commit_number in transactions)
    commits = integrity.commits_after(state, through)
    if any(isinstance(commit, TableSwap) for commit in commits) or not integrity.can_republish(
        commits
    ):
        return False
    published = ledger.transaction_version(app)
    reached = {} if published is None else {app: min(published, through)}
    _note(folder, ledger, reached | tables.versions(app, own))
    return True


def _describe_publishing(definition: Definition, lacking: Iterable[str]) -> str:
    names = " and ".join(f"'{table}'" for table in sorted(lacking))
    text = (
        f"Asset '{definition.name}' lacks commits in {names}: its next run writes them again, from "
        "the state and the event log. Its other tables are unchanged."
    )
    if definition.quarantine_table in lacking:
        text += " Windows that were discarded are quarantined again: decide again about them."
    return text


def _recompute(folder: str, asset: str, definition: Definition | None) -> Iterator[str]:
    """Let the next run of an asset recompute and replace all rows of its tables.

    Remove the asset's state, the states of its rebuilds, and the checkpoint of its streaming query.
    For a roll-up, which has no state, remove its tables.
    """
    shutil.rmtree(Path(folder, FOLDER, asset), ignore_errors=True)
    follows = None if definition is None else definition.follows
    for table in [t for t in _list_owned_tables(folder) if t.owner == tables_of.asset(asset)]:
        if follows is not None or table.role is Role.STATE:
            shutil.rmtree(Path(folder, table))
    durable.sync_folder(folder)
    if follows is not None:
        yield (
            f"The tables of '{asset}' were removed: its next run recomputes them from the state of "
            f"'{follows}'. Decide again about its quarantined windows."
        )
    else:
        yield (
            f"The state of '{asset}' was removed: its next run recomputes it from the event log, "
            "and replaces the rows of its other tables. Decisions about quarantined windows stay, "
            "but windows whose release was lost are quarantined again. "
            "If too-late events were counted, run `tidemark correct` again."
        )


def _vouched_again(folder: str, definitions: Sequence[Definition]) -> Iterator[str]:
    """Let the ledger vouch for the validation results that remain."""
    tables = Tables(folder)
    ledger = tables.open(LEDGER)
    if ledger is None or not [*tables.results_lacking(definitions)]:
        return
    version = tables.version(CHECKS)
    _note(folder, ledger, dict.fromkeys(tables.results_apps(definitions), version))
    yield (
        f"Table '{CHECKS}' lacks its newest commits: the results of some validations are lost. "
        "The assets have all their windows."
    )


def _note(folder: str, ledger: DeltaTable, versions: Mapping[str, int]) -> None:
    """Set the ledger's newest version of each application, in a commit that adds no row."""
    nothing = file_list.load(ledger, ()).slice(0, 0)
    properties = CommitProperties(None, None, [Transaction(*each) for each in versions.items()])
    write_deltalake(ledger, nothing, mode="append", commit_properties=properties)
    durable.sync_commit(f"{folder}/{LEDGER}", ledger)


def _list_owned_tables(folder: str) -> Iterable[TableName]:
    for log in Path(folder).glob(f"*/{LOG}"):
        name = log.parent.name
        table_name = TableName.of(name, DeltaTable(str(log.parent)).metadata().configuration)
        if table_name is not None:
            yield table_name
