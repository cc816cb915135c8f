"""Check, without the engine, whether the tables of a home belong together.

Tables are committed to in this order: event log and dead letters, timeline, state, the tables that
a run publishes, ledger. Each commit *vouches* for the tables that come earlier in this order: it
records their versions, and a digest of their data files, as Delta application transactions. After a
power cut, or in a copy made of a live home, a table may lack commits that a later table depends on.
The check finds such a table before the next commit to it. The check reads transaction logs, file
sizes and a few columns.

| table | requirement |
| --- | --- |
| any | the commits since its newest checkpoint are intact, and all data files have their full |
| | size (on a local disk) |
| event log, dead letters | at or after the version that the timeline vouches for, which has the |
| | same files as then; all rows exist |
| timeline | has each arrival once, from 0 on, each with the identity of the one before it, and |
| | those whose rows an asset or a derived source has read, if the event log still has the rows |
| state | has every commit that the asset's other tables and the ledger have |
| asset's tables, validation results | at or after the version that the ledger vouches for, which |
| | has the same files as then |
| published table | at or after the version that the quarantine vouches for: has all released rows |
| ledger | has all commits of the state, except those that the next run can still publish |

Tables are read in the opposite order of their commits, so that runs in parallel do not cause false
findings. A finding counts only if a second check confirms it.

A source whose tables were all restored from the same earlier copy is not damaged: they belong
together, and an ingest reads the lost arrivals again. What was computed from these arrivals is
stale (`store.lineage`).
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSelector

from tidemark.base import thresholds
from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, summarize_error
from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import MARKER
from tidemark.define.source import Source
from tidemark.define.tables import (
    CHECKS,
    ERASURES,
    LEDGER,
    SYSTEM_TABLES,
    Role,
    TableName,
)
from tidemark.store import log_rewrite, operations
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.commit_info import StateCommit, drop_superseded
from tidemark.store.commits.conditions import at_least, number_in
from tidemark.store.commits.kinds import from_json
from tidemark.store.committers import file_list, statistics
from tidemark.store.committers.durable import LAST_CHECKPOINT, LOG, added_files
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.open_tables import OpenTables

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse

STATE = "state"
"""The application id of a state's commits."""

ERASURES_APP = "erasures"
"""The application id that counts the erasures of an event log."""

_DIGEST_BYTES = 7
"""The size of a digest, which must fit into the positive numbers of a transaction's version."""

_BY_DELTA_RS = '"engineInfo":"delta-rs'

MOMENT = 0.3
"""Seconds before findings are checked a second time."""

checked_nodes = set[tuple[str, str]]()
"""The sources and assets that this process has checked, each with the folder of its tables."""

_READERS = ("_state", "_timeline")
"""The endings of the names of tables that record which arrivals were read."""


@dataclass(frozen=True)
class Damage:
    """A table that lacks data.

    Args:
        problem: the problem, with the table's version; completes "Table '…' …".
        asset: the asset whose tables don't belong together; None for a table of a source or of
            Tidemark itself.
    """

    table: str
    problem: str
    asset: str | None = None

    def __str__(self) -> str:
        return f"Table '{self.table}' {self.problem}"


ADVICE = (
    "Restore the tables from a backup in which they have these versions, or the whole home from "
    "any backup. Without a backup, drop damaged assets and derived sources (`tidemark drop`), and "
    "compute them again from their event logs."
)
"""The way to recover from damage, for messages."""


class DamageError(DataError):
    """Tables that don't belong together, so that Tidemark neither reads nor changes them."""

    def __init__(self, damages: Iterable[Damage]) -> None:
        super().__init__(
            " ".join(f"{damage}." for damage in damages)
            + (
                " The cause is a power failure, a damaged disk, a restored table, or a copy made "
                f"of a running home. Nothing was changed. {ADVICE}"
            )
        )


def ingest_app(source: Source) -> str:
    """Return the application id of the commits to a source's tables."""
    return f"{source.name}_ingest"


def arrivals_app(source: Source) -> str:
    """Return the application id under which a table's commits record the newest arrival they read.

    The tables are the states of assets, and the timelines of derived sources.
    """
    return f"arrivals of {source.name}"


def replaced_app(source: Source) -> str:
    """Return the application id under which a source's event log records replaced arrivals.

    The number is that of the newest arrival that had been read when an ingest began. If the
    timeline lacked it, its rows did not exist any more, either: rows under this number that are
    written later are those of another arrival.
    """
    return f"{ingest_app(source)} replaced"


def erasure_app(erasure: str) -> str:
    """Return the application id of an erasure's commits.

    The erasure commits version 0. A commit that replaces all rows of a table later records version
    1: the erasure then no longer explains why the table has fewer rows than its timeline records.

    Args:
        erasure: the identity of the erasure.
    """
    return f"erasure/{erasure}"


def vouched_versions(warehouse: "Warehouse", app: str, tables: Iterable[str]) -> dict[str, int]:
    """Return the versions of tables that a commit of this thread can vouch for.

    The keys are the application ids under which the commit records the versions. The values are
    the newest versions that the thread has seen, and the digests of their files. Tables that the
    thread has not seen are left out.
    """
    recorded = dict[str, int]()
    for table in tables:
        opened = warehouse.find_opened(table)
        if opened is not None:
            recorded[_version_app(app, table)] = opened.version()
            recorded[_files_app(app, table)] = digest_files(opened)
    return recorded


def digest_files(opened: DeltaTable) -> int:
    """Return a number that identifies the data files of a version of a table.

    The number depends on the names of the files, which are unique, and not on the location.
    """
    names = sorted(uri.rpartition("/")[2] for uri in opened.file_uris())
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "big")


def forget_replaced_tables(warehouse: "Warehouse") -> bool:
    """Close the tables that this thread has open and that were replaced, for example by a restored
    copy. Return whether there was one.

    The next call of `demand_intact` then checks the tables of the folder again.
    """
    if not warehouse.close_replaced_tables():
        return False
    folder = warehouse.path_of("").rstrip("/")
    checked_nodes.difference_update([node for node in checked_nodes if node[0] == folder])
    return True


def demand_intact(
    warehouse: "Warehouse", source: Source, definition: Definition | None = None
) -> bool:
    """Raise `DamageError` if the tables of a source, or of an asset on it, don't belong together.

    If a process rewrites the event log of the source, wait until it has ended.

    After they have passed, the same process does not check them again, and returns False, until one
    of the tables that it has open is replaced, for example by a restored copy.

    Raises:
        DataError: an operation on the source or the asset is unfinished.
    """
    folder = warehouse.path_of("").rstrip("/")
    owners = [tables_of.source_owner(source.name)]
    owners += [] if definition is None else [tables_of.asset_owner(definition.name)]
    if operations.list_unfinished(warehouse):
        log_rewrite.wait_for_rewrite(warehouse, source)
        operations.check_unfinished(warehouse, owners)
        log_rewrite.report_interruption(warehouse, source)
    wanted = [source.name] if definition is None else [source.name, f"asset {definition.name}"]
    forget_replaced_tables(warehouse)
    if all((folder, name) in checked_nodes for name in wanted):
        return False
    if found := find_damage(folder, [source], [] if definition is None else [definition]):
        raise DamageError(found)
    checked_nodes.update((folder, name) for name in wanted)
    return True


def find_damage(
    folder: str, sources: Iterable[Source], definitions: Iterable[Definition]
) -> list[Damage]:
    """Return the damage to Tidemark's own tables, and to the tables of given sources and assets."""
    wanted = [*sources], [*definitions]
    if not (found := [*_find_damage_once(folder, *wanted)]):
        return []
    # A table may have been dropped, or committed to, during the check.
    time.sleep(MOMENT)
    names = {damage.table for damage in found}
    return [damage for damage in _find_damage_once(folder, *wanted) if damage.table in names]


def _find_damage_once(
    folder: str, sources: Iterable[Source], definitions: Iterable[Definition]
) -> Iterator[Damage]:
    tables = Tables(folder)
    ledger = tables.open_table(LEDGER)
    for definition in definitions:
        yield from tables.asset_damages(definition, ledger)
    yield from tables.results_lacking(definitions)
    for source in sources:
        yield from tables.source_damages(source)
    for table in SYSTEM_TABLES:
        tables.open_table(table)
    yield from tables.broken.values()


class Tables:
    """The tables of a folder, each opened once, with checks for missing commits, files and rows.

    `broken` holds, by table name, the tables whose newest commit or data files are damaged.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.broken: dict[str, Damage] = {}
        # An entry of a transaction log may have been lost since this process copied it.
        self._tables = OpenTables(folder, reads_again=True)
        self._opened: dict[str, DeltaTable | None] = {}

    def open_table(self, table: str, asset: str | None = None) -> DeltaTable | None:
        """Open a table; None if it does not exist or is damaged.

        Args:
            asset: the asset to which the table belongs, for the entry in `broken`.
        """
        if table not in self._opened:
            self._opened[table] = self._open_intact(table, asset)
        return self._opened[table]

    def find_readers(self, source: Source) -> Iterator[tuple[TableName, int]]:
        """Yield each table that records arrivals of a source, with the newest arrival it has read.

        All assets and derived sources are found, even if no domain defines them.
        """
        system, path = file_system(self.folder)
        existing = system.get_file_info(FileSelector(path, allow_not_found=True))
        # The suffix only avoids opening every table: the record identifies a reader.
        names = sorted(info.base_name for info in existing if info.base_name.endswith(_READERS))
        for name in names:
            opened = self.open_table(name)
            if opened is None:
                continue
            reader = TableName.from_properties(name, opened.metadata().configuration)
            newest = opened.transaction_version(arrivals_app(source))
            if reader is not None and newest is not None:
                yield reader, newest

    def opened_version(self, table: str) -> int:
        """Return the version of a table that `open` has opened; -1 if missing or damaged."""
        opened = self._opened.get(table)
        return -1 if opened is None else opened.version()

    def transaction_version(self, table: str, app: str) -> int | None:
        """Return an application's newest version in a table that `open` has opened.

        Return None if it has none, or if the table is missing or damaged.
        """
        opened = self._opened.get(table)
        return None if opened is None else opened.transaction_version(app)

    def _open_intact(self, table: str, asset: str | None) -> DeltaTable | None:
        place = f"{self.folder}/{table}"
        problem = None if "://" in place else _broken_entry(place)
        opened = None
        if problem is None:
            try:
                opened = self._tables.open_newest(table)
            except TableNotFoundError:
                return None
            except DeltaError as error:
                problem = f"can't be read: {summarize_error(error)}"
        if opened is not None and "://" not in place:
            problem = _broken_file(place, opened)
        if problem is not None:
            self.broken[table] = Damage(table, problem, asset)
            return None
        return opened

    def opened_versions(self, app: str, tables: Iterable[str]) -> dict[str, int]:
        """Return transactions that vouch for tables: the version of each, by application id.

        Args:
            app: the application id of the commit that vouches.
            wanted: the names of tables that `open` has opened.
        """
        return {_version_app(app, table): self.opened_version(table) for table in tables}

    def source_damages(self, source: Source) -> Iterator[Damage]:
        yield from self._find_lost_arrivals(source)
        name, app = source.timeline_table, ingest_app(source)
        timeline = self.open_table(name)
        if timeline is not None and (fault := _find_sequence_fault(timeline)) is not None:
            # The rows of the other tables can't be compared with such a timeline.
            yield Damage(name, f"{fault} (version {self.opened_version(name)})")
            return
        others = (source.log_table, source.dead_letters_table)
        for table in others:
            self.open_table(table)
            if timeline is None:
                continue
            lost = [*self._find_lost(timeline, name, app, table)]
            yield from lost
            vouched = timeline.transaction_version(_version_app(app, table))
            if not lost and vouched is not None and table not in self.broken:
                yield from self._rows_lacking(source, timeline, table)

    def _find_lost(
        self, voucher: DeltaTable, name: str, app: str, table: str, asset: str | None = None
    ) -> Iterator[Damage]:
        """Yield the damage if a table lacks commits for which another table vouches.

        Args:
            voucher, name: the table that vouches, and its name.
            app: the application id of the commits that vouch.
            table: the name of a table that `open` has opened.
            asset: the asset to which the table belongs.
        """
        vouched = voucher.transaction_version(_version_app(app, table))
        if vouched is None or table in self.broken:
            return
        if self.opened_version(table) < vouched:
            yield Damage(table, _describe_lag(self.opened_version(table), vouched, name), asset)
            return
        files = voucher.transaction_version(_files_app(app, table))
        opened = self._open_version(table, vouched)
        if files is not None and opened is not None and digest_files(opened) != files:
            yield Damage(
                table,
                f"has other data files at version {vouched} than '{name}' has recorded: one of "
                "its commits was lost or replaced",
                asset,
            )

    def _open_version(self, table: str, version: int) -> DeltaTable | None:
        """Open a version of a table; None if its transaction log does not reach back that far."""
        opened = self._opened.get(table)
        if opened is None or opened.version() == version:
            return opened
        try:
            return self._tables.open_version(table, version)
        except DeltaError:
            return None

    def _rows_lacking(self, source: Source, timeline: DeltaTable, table: str) -> Iterator[Damage]:
        if self._is_adding(source):
            # The timeline does not count the added rows yet. The next erasure finishes the
            # interrupted one.
            return
        arrived = self.expected_rows(source, timeline, table)
        opened, total = self.open_table(table), sum(arrived.values())
        actual = 0 if opened is None else _rows_through(opened, max(arrived, default=-1))
        if actual != total:
            yield Damage(
                table,
                f"has {format_count(actual, 'row')} (version {self.opened_version(table)}), but "
                f"the table '{source.timeline_table}' records {total:,}",
            )

    def expected_rows(self, source: Source, timeline: DeltaTable, table: str) -> dict[int, int]:
        """Return the number of rows of each arrival in the event log or the dead letters."""
        column = "rows" if table == source.log_table else "dead_letters"
        found = file_list.load_rows(timeline, (), ["arrival", column]).to_pydict()
        rows = {a: n or 0 for a, n in zip(found["arrival"], found[column], strict=True)}
        # An erasure deletes the dead letters of derived sources. For other sources, it only removes
        # their content.
        if column == "rows" or isinstance(source, DerivedSource):
            for arrival, erased in self._erased_rows(source, table).items():
                rows[arrival] = rows.get(arrival, 0) - erased
        return rows

    def _erased_rows(self, source: Source, table: str) -> Mapping[int, int]:
        """Return the number of rows of each arrival that were erased from a source's table."""
        opened = self.open_table(ERASURES)
        if opened is None:
            return {}
        found: dict[int, int] = {}
        column = "events" if table == source.log_table else "dead_letters"
        by_erasure = {
            row["erasure"]: row[column]
            for row in file_list.load_rows(opened, (), ["erasure", "source", column]).to_pylist()
            if row["source"] == source.name
        }
        for erasure, erased in by_erasure.items():
            # An erasure that has not committed to the table yet does not count, nor does one after
            # which all rows were replaced.
            if self.transaction_version(table, erasure_app(erasure)) == 0:
                for each in erased:
                    found[each["arrival"]] = found.get(each["arrival"], 0) + each["events"]
        return found

    def _is_adding(self, source: Source) -> bool:
        """Return whether an unfinished erasure adds rows to a source."""
        opened = self.open_table(ERASURES)
        if opened is None:
            return False
        rows = file_list.load_rows(opened, (), ["erasure", "source", "added"]).to_pylist()
        adding = Counter(r["erasure"] for r in rows if r["source"] == source.name and r["added"])
        # An erasure gets its second row when it has ended.
        return 1 in adding.values()

    def asset_damages(self, definition: Definition, ledger: DeltaTable | None) -> Iterator[Damage]:
        own, state_table = definition.name, definition.state_table
        others = [table for table in definition.own_tables if table != state_table]
        for table in reversed(others):
            self.open_table(table, own)
        self.open_table(CHECKS)
        state = self.open_table(state_table, definition.rolled_up_name or own)
        app = self.asset_app(definition)
        if state is None or app is None:
            # The asset was dropped, or its first run is incomplete: the next run recomputes all.
            return
        if ledger is not None:
            for table in definition.own_tables:
                yield from self._find_lost(ledger, LEDGER, app, table, own)
        if self.lacks_release(definition, app):
            yield Damage(
                definition.published_table,
                f"lacks windows that were released from '{definition.quarantine_table}' (version "
                f"{self.opened_version(definition.published_table)})",
                own,
            )
        if definition.rolled_up_name is not None:
            return
        commit_number = _last_commit(state)
        for table in [*others, LEDGER, CHECKS]:
            taken = self.transaction_version(table, app)
            if taken is not None and taken > commit_number:
                yield Damage(
                    state_table,
                    f"has commits up to number {commit_number} (version {state.version()}), "
                    f"but '{table}' was written by commit {taken}",
                    own,
                )
                return
        published = None if ledger is None else ledger.transaction_version(app)
        if commit_number - (-1 if published is None else published) > 1:
            yield from self._find_unpublished(state, app, commit_number, own)

    def lacks_release(self, definition: Definition, app: str) -> bool:
        """Return whether the published table lacks windows that were released from the quarantine.

        A run can't publish these windows again: it repeats only the decisions of earlier runs, and
        a user decided on the release.
        """
        released = self.transaction_version(
            definition.quarantine_table, _version_app(app, definition.published_table)
        )
        return (
            released is not None
            and definition.published_table not in self.broken
            and self.opened_version(definition.published_table) < released
        )

    def asset_app(self, definition: Definition) -> str | None:
        """Return the application id of an asset's commits (`Asset.commit_app`).

        Return None if the state is missing or damaged. A roll-up has the state of its base, and its
        published table must be intact, too.
        """
        state = self.open_table(definition.state_table)
        if state is None:
            return None
        table_id = str(state.metadata().id)
        if definition.rolled_up_name is not None:
            if (published := self.open_table(definition.published_table)) is None:
                return None
            own = published.metadata()
            table_id += f"+{rollup_generation.table_identity(str(own.id), own.configuration)}"
        return f"{definition.name}/{table_id}"

    def results_lacking(self, definitions: Iterable[Definition]) -> Iterator[Damage]:
        """Yield the damage if the ledger vouches for validation results that the table lacks."""
        self.open_table(CHECKS)
        if CHECKS in self.broken:
            return
        ledger = self.open_table(LEDGER)
        apps = self.results_apps(definitions)
        vouched = [
            n for app in apps if ledger and (n := ledger.transaction_version(app)) is not None
        ]
        if self.opened_version(CHECKS) < max(vouched, default=-1):
            yield Damage(CHECKS, _describe_lag(self.opened_version(CHECKS), max(vouched), LEDGER))

    def results_apps(self, definitions: Iterable[Definition]) -> list[str]:
        """Return the application ids of the transactions that vouch for validation results."""
        apps = (self.asset_app(definition) for definition in definitions)
        return [_version_app(app, CHECKS) for app in apps if app is not None]

    def _find_unpublished(
        self, state: DeltaTable, app: str, commit_number: int, asset: str
    ) -> Iterator[Damage]:
        """Yield the damage if the ledger lacks a state's commits, and no run can publish them."""
        with suppress(TableNotFoundError, DeltaError):
            now = OpenTables(self.folder).open_newest(LEDGER).transaction_version(app)
            if not can_republish(commits_after(state, -1 if now is None else now)):
                yield Damage(
                    LEDGER,
                    f"has the runs of '{asset}' up to number {-1 if now is None else now} (version "
                    f"{self.opened_version(LEDGER)}), but its state is at number {commit_number}",
                    asset,
                )

    def _find_lost_arrivals(self, source: Source) -> Iterator[Damage]:
        """Yield the damage for each node that has read rows of arrivals that the timeline lacks.

        The next ingest would delete these rows, which may be the only copy: files whose arrival was
        recorded may have been deleted. If the rows do not exist either, an ingest has nothing to
        lose, and the nodes that have read them are stale.
        """
        name = source.timeline_table
        timeline = self.open_table(name)
        if name in self.broken or self._is_changing(source):
            return
        newest = None if timeline is None else file_list.max_value(timeline, "arrival")
        newest = -1 if newest is None else newest
        for table in (source.log_table, source.dead_letters_table):
            leftover = self._find_first_arrival(table, newest + 1)
            if leftover is None:
                continue
            replaced = self.transaction_version(table, replaced_app(source))
            for reader, through in self.find_readers(source):
                if through < leftover or (replaced is not None and through <= replaced):
                    continue
                node = reader.owner.partition(" ")[2]
                yield Damage(
                    name,
                    f"ends with arrival {newest} (version {self.opened_version(name)}), but "
                    f"'{table}' has rows of arrival {leftover}, which '{node}' has read: the "
                    "timeline's newest commits were lost",
                    node if reader.role is Role.STATE else None,
                )

    def _find_first_arrival(self, table: str, start: int) -> int | None:
        """Return the first arrival from a number on that a table has rows of; None without any."""
        opened = self.open_table(table)
        if opened is None:
            return None
        rows = file_list.load_rows(opened, (at_least("arrival", start),), ["arrival"])
        return min(rows["arrival"].to_pylist(), default=None)

    def _is_changing(self, source: Source) -> bool:
        """Return whether an unfinished operation replaces or deletes a source's tables."""
        opened = self.open_table(operations.TABLE)
        if opened is None:
            return False
        owner = tables_of.source_owner(source.name)
        unfinished = operations.select_unfinished(file_list.load_rows(opened, ()))
        return any(
            operation.owner == owner and operation.kind is not operations.Kind.ERASE
            for operation in unfinished
        )


def newest_read(warehouse: "Warehouse", source: Source) -> int:
    """Return the newest arrival of a source that an asset or a derived source has read; -1 if none.

    It is later than the newest arrival of the timeline if the source was restored from an earlier
    copy.
    """
    tables = Tables(warehouse.path_of("").rstrip("/"))
    return max((through for _, through in tables.find_readers(source)), default=-1)


def _find_sequence_fault(timeline: DeltaTable) -> str | None:
    """Return the problem with the first arrival that does not belong behind the one before it.

    Such an arrival is missing, exists more than once, or follows an arrival that has been replaced.
    """
    columns = ["arrival", "arrival_id", "follows"]
    rows = file_list.load_rows(timeline, (), columns).sort_by("arrival").to_pylist()
    before = ""
    for expected, row in enumerate(rows):
        arrival = row["arrival"]
        if arrival > expected:
            return f"lacks arrival {expected}, but has arrival {rows[-1]['arrival']}"
        if arrival < expected:
            return f"has arrival {arrival} more than once"
        if row["follows"] != before:
            return (
                f"has an arrival {arrival} that followed another arrival {arrival - 1} than the "
                "table has: one of its commits was replaced"
            )
        before = row["arrival_id"]
    return None


def log_entries(folder: str) -> list[Path]:
    """Return the commits in the transaction log of a table on a local disk, the oldest first."""
    return sorted(file for file in Path(folder, LOG).glob("*.json") if file.stem.isdigit())


def _broken_entry(folder: str) -> str | None:
    """Return the problem with a transaction log on a local disk; None if it is intact."""
    since = _checkpoint_version(folder)
    for entry in log_entries(folder):
        version = int(entry.stem)
        if version > since and not _is_whole(entry):
            return f"has a truncated or empty commit (version {version})"
    return None


def _checkpoint_version(folder: str) -> int:
    """Return the version of a table's newest checkpoint; -1 if it has none.

    A table is opened from its newest checkpoint, so that earlier commits do not matter.
    """
    try:
        return int(json.loads(Path(folder, LOG, LAST_CHECKPOINT).read_text())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _is_whole(entry: Path) -> bool:
    try:
        text = entry.read_text()
        # delta-rs writes one action per line, without a line break after the last one.
        cut = text.endswith("\n") and _BY_DELTA_RS in text
        added_files(text)
    except ValueError:
        return False
    except FileNotFoundError:
        # The table was dropped, or its transaction log was trimmed, in the meantime.
        return True
    return text.strip() != "" and not cut


def _broken_file(folder: str, opened: DeltaTable) -> str | None:
    """Return the problem with a table's data files; None if all exist in full size."""
    found = pa.table(opened.get_add_actions(flatten=True))
    for path, size in zip(*(found[c].to_pylist() for c in ("path", "size_bytes")), strict=True):
        try:
            actual_size = Path(folder, path).stat().st_size
        except FileNotFoundError:
            return f"is missing the data file '{path}' at version {opened.version()}"
        if actual_size != size:
            return (
                f"has the data file '{path}' with {format_count(actual_size, 'byte')} instead of "
                f"{size:,} at version "
                f"{opened.version()}"
            )
    return None


def _rows_through(opened: DeltaTable, arrival: int) -> int:
    """Return the number of rows of the arrivals up to `arrival`.

    Rows of later arrivals belong to a writer that died or is still at work.
    """
    total = sum(file["num_records"] for file in statistics.list_files(opened))
    beyond = at_least("arrival", arrival + 1)
    return total - file_list.load_rows(opened, (beyond,), ["arrival"]).num_rows


def _last_commit(state: DeltaTable) -> int:
    """Return the number of a state's newest commit; -1 if it has none."""
    commit_number = state.transaction_version(STATE)
    return -1 if commit_number is None else commit_number


def commits_after(state: DeltaTable, commit_number: int) -> Sequence[StateCommit]:
    """Return a state's commits after a number.

    If one of them replaced all rows, leave out the commits before it.
    """
    bound = number_in("commit_number", commit_number + 1, _last_commit(state) + 1)
    rows = file_list.load_rows(state, (bound,), ["commit_number", MARKER])
    commit_texts = rows.filter(rows[MARKER].is_valid()).sort_by("commit_number")[MARKER].to_pylist()
    return drop_superseded([from_json(text) for text in commit_texts])


def can_republish(commits: Sequence[StateCommit]) -> bool:
    """Return whether a run can publish commits again, exactly as they were.

    The newest commit of a state can always be published. Several commits can be published if there
    are at most `REPUBLISHED_COMMITS`, all with `can_repeat`.

    Args:
        commits: the newest commits of a state, from `commits_after`.
    """
    return len(commits) <= 1 or (
        len(commits) <= thresholds.REPUBLISHED_COMMITS
        and all(commit.can_repeat for commit in commits)
    )


def _describe_lag(version: int, vouched: int, voucher: str) -> str:
    state = "does not exist" if version < 0 else f"is at version {version}"
    return f"{state}, but '{voucher}' depends on its version {vouched}"


def _version_app(app: str, table: str) -> str:
    """Return the application id with which a commit records the version of a table."""
    return f"{app} {table}"


def _files_app(app: str, table: str) -> str:
    """Return the application id with which a commit records the digest of a table's files."""
    return f"{app} {table} files"
